//! Parameters of listings and views, which come as text in a query or as JSON in a body.

use database::Grouping;
use serde_json::{Map, Value};

use crate::errors::ApiError;
use node::{Query, parse_json};

/// The source of parameters. Of a parameter that is given twice, the later one applies.
pub enum Params<'a> {
    Query(&'a Query),
    Body(&'a Map<String, Value>),
}

impl Params<'_> {
    /// The parameters of a GET or POST: the query string takes precedence.
    pub fn of<'a>(query: &'a Query, body: Option<&'a Map<String, Value>>) -> Vec<Params<'a>> {
        let body = body.into_iter().map(Params::Body);
        body.chain([Params::Query(query)]).collect()
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = (&str, Given<'_>)> + '_> {
        match self {
            Params::Query(q) => Box::new(q.0.iter().map(|(k, v)| (k.as_str(), Given::Text(v)))),
            Params::Body(b) => Box::new(b.iter().map(|(k, v)| (k.as_str(), Given::Json(v)))),
        }
    }
}

/// A parameter's value.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// A value of a query string.
    Text(&'a str),
    /// A value of a body.
    Json(&'a Value),
}

impl Given<'_> {
    /// A text unchanged; other JSON as JSON text.
    pub fn text(self) -> String {
        match self {
            Given::Text(t) => t.to_owned(),
            Given::Json(Value::String(s)) => s.clone(),
            Given::Json(v) => v.to_string(),
        }
    }

    /// A JSON value.
    pub fn json(self) -> Result<Value, ApiError> {
        match self {
            Given::Text(t) => Ok(parse_json(t)?),
            Given::Json(v) => Ok(v.clone()),
        }
    }

    /// The JSON text of a key.
    pub fn key(self) -> Result<Vec<u8>, ApiError> {
        match self {
            Given::Text(t) => {
                document::normalise(t.as_bytes()).map_err(|_| ApiError::invalid_json())
            }
            Given::Json(v) => Ok(v.to_string().into_bytes()),
        }
    }

    /// `true` or `false` in any case of letters, as CouchDB takes them here.
    pub fn boolean(self) -> Result<bool, ApiError> {
        let text = self.text();
        if text.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if text.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(self.invalid("Invalid boolean parameter"))
        }
    }

    /// A whole number from 0; one beyond 64 bits is the largest.
    pub fn natural(self) -> Result<u64, ApiError> {
        let invalid = || self.invalid("Invalid value for integer");
        let text = match self {
            Given::Json(Value::String(_)) => return Err(invalid()),
            given => given.text(),
        };
        let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        let number = digits.parse().unwrap_or(u64::MAX);
        if text.starts_with('-') && number > 0 {
            return Err(self.invalid("Invalid value for positive integer"));
        }
        Ok(number)
    }

    fn invalid(self, what: &str) -> ApiError {
        let shown = match self {
            // How Erlang shows an empty string.
            Given::Text("") => "[]".to_owned(),
            Given::Text(t) => Value::from(t).to_string(),
            Given::Json(v) => v.to_string(),
        };
        ApiError::query_parse(format!("{what}: {shown}"))
    }

    /// Checks a parameter of the choice of replicas and of when the index is brought up to date,
    /// which change nothing about listings by id. Returns false for other names.
    pub fn check_freshness(self, name: &str) -> Result<bool, ApiError> {
        let known: &[&str] = match name {
            "stable" => &["true", "false"],
            "update" => &["true", "false", "lazy"],
            "stale" => &["ok", "update_after"],
            _ => return Ok(false),
        };
        if known.contains(&self.text().as_str()) {
            return Ok(true);
        }
        Err(ApiError::query_parse(format!(
            "Invalid value for `{name}`."
        )))
    }
}

/// `group` and `group_level` as given.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenGrouping {
    pub group: Option<bool>,
    pub level: Option<u64>,
}

impl GivenGrouping {
    /// Combines both, in whichever order they are given: the level takes precedence.
    pub fn grouping(self) -> Result<Grouping, ApiError> {
        Ok(Grouping::of(self.group, self.level)?)
    }
}

/// The refusal of `keys` together with a range.
pub fn keys_with_range() -> ApiError {
    ApiError::query_parse("`keys` is incompatible with `key`, `start_key` and `end_key`")
}

/// The limit that stands for none in CouchDB, and so the highest one.
const LIMIT_NONE: u64 = 0x07FF_FFFF_FFFF_FFFF;

/// Refuses a `limit` beyond the configured one, which also applies to a request without a limit.
pub fn bound_limit(limit: &mut Option<u64>, max: u64) -> Result<(), ApiError> {
    let max = if max == u64::MAX { LIMIT_NONE } else { max };
    let given = limit.filter(|limit| *limit != LIMIT_NONE);
    if *limit.insert(given.unwrap_or(max)) > max {
        return Err(ApiError::query_parse(format!(
            "Limit is too large, must not exceed {max}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use database::GroupLevel;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_may_be_signed_and_of_any_length() {
        let natural = |t| Given::Text(t).natural().map_err(|e| e.reason.into_owned());
        assert_eq!(natural("007"), Ok(7));
        assert_eq!(natural("+1"), Ok(1));
        assert_eq!(natural("-0"), Ok(0));
        assert_eq!(natural("99999999999999999999999"), Ok(u64::MAX));
        assert_eq!(
            natural("-1"),
            Err("Invalid value for positive integer: \"-1\"".to_owned())
        );
        assert_eq!(natural(""), Err("Invalid value for integer: []".to_owned()));
        assert!(natural("1.5").is_err());
        assert!(Given::Json(&json!("1")).natural().is_err());
        assert_eq!(Given::Json(&json!(3)).natural().ok(), Some(3));
    }

    #[test]
    fn a_group_level_counts_more_than_group() {
        let grouping = |group, level| GivenGrouping { group, level }.grouping().ok();
        let elements = |n| Some(Grouping::By(GroupLevel::Elements(n)));
        assert_eq!(grouping(None, None), Some(Grouping::None));
        assert_eq!(grouping(Some(false), None), Some(Grouping::None));
        assert_eq!(
            grouping(Some(true), None),
            Some(Grouping::By(GroupLevel::Exact))
        );
        assert_eq!(grouping(Some(true), Some(0)), Some(Grouping::None));
        assert_eq!(grouping(Some(true), Some(1)), elements(1));
        assert_eq!(grouping(None, Some(2)), elements(2));
        assert_eq!(grouping(Some(false), Some(0)), Some(Grouping::None));
        assert_eq!(grouping(Some(false), Some(2)), None);
    }

    #[test]
    fn booleans_are_words_in_any_case() {
        let boolean = |t| Given::Text(t).boolean().map_err(|e| e.reason.into_owned());
        assert_eq!(boolean("TRUE"), Ok(true));
        assert_eq!(boolean("false"), Ok(false));
        assert_eq!(
            boolean("x"),
            Err("Invalid boolean parameter: \"x\"".to_owned())
        );
        assert_eq!(Given::Json(&json!(true)).boolean().ok(), Some(true));
        assert!(Given::Json(&json!(1)).boolean().is_err());
    }
}
