//! The body of `_find` and `_explain`.

use serde_json::{Map, Value, json};

use crate::aggregate::Aggregate;
use crate::error::FindError;
use crate::fields::Fields;
use crate::json::{self, Kind, members};
use crate::limits::Limits;
use crate::selector::Selector;
use crate::sort::Sort;

/// A request of `_find` or `_explain`.
#[derive(Clone, Debug)]
pub struct Find {
    /// The selector.
    pub selector: Selector,
    /// The design document and perhaps the name of the index to use.
    pub use_index: Vec<String>,
    /// The position to continue from.
    pub bookmark: Option<String>,
    /// Maximum number of documents.
    pub limit: u64,
    /// Number of documents to skip.
    pub skip: u64,
    /// The order.
    pub sort: Sort,
    /// The fields to return.
    pub fields: Fields,
    /// The partition.
    pub partition: Option<String>,
    /// Number of replicas to read; there is one.
    pub r: u64,
    /// Whether documents contain `_conflicts`.
    pub conflicts: bool,
    /// `stale: "ok"`
    pub stale: bool,
    /// Whether the index is updated first.
    pub update: bool,
    /// No effect; there is one replica.
    pub stable: bool,
    /// Whether the response contains `execution_stats`.
    pub execution_stats: bool,
    /// Whether another index than `use_index` may be used.
    pub allow_fallback: bool,
    /// Returns groups and computed values, instead of documents.
    pub aggregate: Option<Aggregate>,
}

/// Settings of the server for parsing a query.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Default number of documents.
    pub limit: u64,
    /// Limits on selectors.
    pub limits: Limits,
}

/// Returns all members except the selector.
fn options(text: &[u8]) -> Result<Map<String, Value>, FindError> {
    let mut values = json::ValueCount::default();
    members(text)
        .filter(|(name, _)| name != "selector")
        .map(|(name, value)| {
            if !values.add(value) {
                return Err(FindError::TooManyValues(json::VALUES_MAX));
            }
            match serde_json::from_slice(value) {
                // A whole number beyond 64 bits; as a float it would be refused.
                Ok(Value::Number(_)) if is_beyond_64_bits(value) => Ok((name, u64::MAX.into())),
                Ok(value) => Ok((name, value)),
                Err(_) => Err(FindError::NestedTooDeeply(name)),
            }
        })
        .collect()
}

/// Returns whether the text of a number is a whole one beyond 64 bits.
fn is_beyond_64_bits(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default().trim();
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u64>().is_err()
}

/// Returns a string, `None` when it is empty; any other value is the error.
fn non_empty(value: Value) -> Result<Option<String>, Value> {
    match value {
        Value::String(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        other => Err(other),
    }
}

fn is_stale(value: Value) -> Result<bool, FindError> {
    match value {
        Value::Bool(false) => Ok(false),
        Value::String(text) if text == "ok" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(FindError::InvalidStale(other)),
    }
}

impl Find {
    /// Parses a body, a text in the normal form of [`document::normalise`].
    ///
    /// # Errors
    /// Any [`FindError`] of a query.
    pub fn parse(text: &[u8], defaults: &Defaults) -> Result<Find, FindError> {
        if Kind::of(text) != Kind::Object {
            return Err(FindError::NotAnObject);
        }
        let selector = json::member(text, "selector").ok_or(FindError::MissingKey("selector"))?;
        let selector = Selector::read(selector, &defaults.limits)?;
        let mut body = options(text)?;
        let mut take = |name: &str| body.shift_remove(name);
        let use_index = take("use_index").map_or(Ok(vec![]), |v| use_index(&v))?;
        let bookmark = match take("bookmark") {
            None | Some(Value::Null) => None,
            Some(value) => non_empty(value).map_err(FindError::InvalidBookmark)?,
        };
        let limit = take("limit").map(|v| natural(&v)).transpose()?;
        let skip = take("skip").map_or(Ok(0), |v| natural(&v))?;
        let sort = take("sort").map_or(Ok(Sort::default()), |v| Sort::parse(&v))?;
        let fields = take("fields").map_or(Ok(Fields::default()), |v| Fields::parse(&v))?;
        let partition = match take("partition") {
            None => None,
            Some(value) => non_empty(value).map_err(FindError::InvalidString)?,
        };
        let r = take("r").map_or(Ok(1), |v| positive(&v))?;
        let mut flag = |name: &str, default| take(name).map_or(Ok(default), |v| boolean(&v));
        let conflicts = flag("conflicts", false)?;
        let update = flag("update", true)?;
        let stable = flag("stable", false)?;
        let execution_stats = flag("execution_stats", false)?;
        let allow_fallback = flag("allow_fallback", true)?;
        let stale = take("stale").map_or(Ok(false), is_stale)?;
        let aggregate = take("aggregate").map(|v| Aggregate::parse(&v));
        let aggregate = aggregate.transpose()?;
        if let Some((name, _)) = body.iter().next() {
            return Err(FindError::InvalidKey(name.clone()));
        }
        // Groups are few, and a page of them does not show that there are more.
        let default = match aggregate {
            Some(_) => u64::MAX,
            None => defaults.limit,
        };
        let find = Find {
            selector,
            use_index,
            bookmark,
            limit: limit.unwrap_or(default),
            skip,
            sort,
            fields,
            partition,
            r,
            conflicts,
            stale,
            update,
            stable,
            execution_stats,
            allow_fallback,
            aggregate,
        };
        if find.aggregate.is_some() {
            crate::aggregate::check(&find)?;
        }
        Ok(find)
    }

    /// Returns the options in the form of `_explain`.
    pub fn options_json(&self) -> Value {
        json!({
            "use_index": self.use_index,
            "bookmark": self.bookmark.as_deref().unwrap_or("nil"),
            "limit": self.limit,
            "skip": self.skip,
            "sort": self.sort.to_object(),
            "fields": self.fields.names(),
            "partition": self.partition.as_deref().unwrap_or(""),
            "r": self.r,
            "conflicts": self.conflicts,
            "stale": if self.stale { json!("ok") } else { json!(false) },
            "update": self.update,
            "stable": self.stable,
            "execution_stats": self.execution_stats,
            "allow_fallback": self.allow_fallback,
        })
    }
}

/// Parses `"ddoc"`, `"_design/ddoc"`, `"ddoc/name"`, or a list of one or two of them.
///
/// # Errors
/// [`FindError::InvalidIndexName`]
pub fn use_index(value: &Value) -> Result<Vec<String>, FindError> {
    let names = match value {
        Value::Null => Some(vec![]),
        Value::String(text) => {
            let name = text.strip_prefix("_design/").unwrap_or(text);
            let parts: Vec<String> = name.split('/').map(str::to_owned).collect();
            (parts.len() <= 2).then_some(parts)
        }
        Value::Array(list) if list.len() <= 2 => list
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    names.ok_or_else(|| FindError::InvalidIndexName(value.clone()))
}

fn natural(value: &Value) -> Result<u64, FindError> {
    let refused = || FindError::InvalidNatural(value.clone());
    value.as_u64().ok_or_else(refused)
}

pub(crate) fn positive(value: &Value) -> Result<u64, FindError> {
    let refused = || FindError::InvalidPositive(value.clone());
    value.as_u64().filter(|n| *n > 0).ok_or_else(refused)
}

pub(crate) fn boolean(value: &Value) -> Result<bool, FindError> {
    let refused = || FindError::InvalidBoolean(value.clone());
    value.as_bool().ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SelectorError;
    use crate::fields::FIELDS_MAX;

    #[test]
    fn options_have_few_values() {
        let refusal = |option: &str, values: usize| {
            let list = vec!["\"a\""; values].join(",");
            let body = format!(r#"{{"selector":{{}},"{option}":[{list}]}}"#);
            let defaults = Defaults {
                limit: 25,
                limits: Limits::default(),
            };
            Find::parse(body.as_bytes(), &defaults).err()
        };
        assert_eq!(refusal("fields", FIELDS_MAX), None);
        let many = FindError::Selector(SelectorError::TooManyFields(FIELDS_MAX));
        assert_eq!(refusal("fields", FIELDS_MAX + 1), Some(many));
        assert_eq!(refusal("use_index", 2), None);
        let too_many = Some(FindError::TooManyValues(json::VALUES_MAX));
        assert_eq!(refusal("use_index", json::VALUES_MAX), too_many);
        assert_eq!(refusal("unknown", json::VALUES_MAX), too_many);
    }
}
