//! Parameters of `_search/{index}`: of a query string or members of a body, checked as dreyfus
//! checks them.

use std::sync::LazyLock;

use database::{
    TextCost, TextDistance, TextGrouping, TextHighlight, TextHighlightOptions, TextIndex,
    TextQuery, TextSortBy, TextSortKey,
};
use regex::Regex;
use serde_json::{Map, Value};

use crate::database_routes::texts::{
    Drilldown, FIELDS_MAX, GROUP_LIMIT, GROUP_LIMIT_MAX, HIGHLIGHT_SIZE_MAX, HIGHLIGHTS_MAX,
    INCLUDED_MAX, RANGES_MAX, SORT_KEYS_MAX, drilldowns, highlight_tag, within,
};
use crate::errors::ApiError;
use node::{Query, parse_json};

/// Default number of hits, and the maximum.
const LIMIT: u64 = 25;
const LIMIT_MAX: u64 = 200;
/// Both in a partitioned database.
const LIMIT_PARTITIONED: u64 = 2000;
/// Radius of the earth at the equator, in km and in miles, as Spatial4j has it.
const EARTH_KM: f64 = 6378.1370;
const EARTH_MILES: f64 = EARTH_KM * 0.621_371_192;

/// Fields, and their ranges: labels, and the range of each.
type Ranges = Vec<(String, Vec<(String, String)>)>;

/// A query, before the index is known.
#[derive(Debug, Default)]
pub struct Asked {
    q: Option<String>,
    pub update: bool,
    pub include_docs: bool,
    limit: Option<Value>,
    bookmark: Option<String>,
    partition: Option<String>,
    sort: Vec<TextSortKey>,
    counts: Option<Vec<String>>,
    ranges: Option<Ranges>,
    drilldown: Vec<Drilldown>,
    include_fields: Option<Vec<String>>,
    highlight_fields: Option<Vec<String>>,
    highlight: TextHighlightOptions,
    group_field: Option<String>,
    group_sort: Option<Vec<TextSortKey>>,
    group_limit: Option<u64>,
    /// By `group_by`, whose answer has other names.
    pub is_old_group: bool,
}

fn refused(reason: impl Into<String>) -> ApiError {
    ApiError::bad_request(reason.into())
}

fn parse_error(reason: impl Into<String>) -> ApiError {
    ApiError::query_parse(reason.into())
}

impl Asked {
    /// The properties of the search that determine its cost.
    pub fn cost(&self) -> TextCost<'_> {
        let ranges = self.ranges.iter().flatten().map(|(_, ranges)| ranges.len());
        TextCost {
            q: self.q.as_deref().unwrap_or_default(),
            of_hit: self.sort.len()
                + self.group_sort.as_ref().map_or(0, Vec::len)
                + self.counts.as_ref().map_or(0, Vec::len)
                + ranges.sum::<usize>(),
            groups: match &self.group_field {
                Some(_) => self.group_limit.map_or(GROUP_LIMIT, |n| n as usize),
                None => 0,
            },
            values: self.drilldown.iter().map(|(_, values)| values.len()).sum(),
            reads_stored_text: self.highlight_fields.is_some(),
            // An invalid limit is refused later.
            hits: self.limit.as_ref().and_then(Value::as_u64).unwrap_or(LIMIT) as usize,
            reads_docs: self.include_docs,
        }
    }

    /// By the parameters of a query string; those that are not known are ignored.
    pub fn of_params(params: &Query) -> Result<Asked, ApiError> {
        let mut asked = Asked {
            update: true,
            ..Asked::default()
        };
        for (name, value) in &params.0 {
            let value = match name.as_str() {
                "stale" if value != "ok" => {
                    return Err(parse_error("stale only available as stale=ok"));
                }
                "include_docs" | "stable" => match value.as_str() {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    other => {
                        return Err(parse_error(format!("Invalid value for {name}: {other:?}")));
                    }
                },
                "sort" | "limit" | "group_sort" | "include_fields" | "counts" | "ranges"
                | "drilldown" | "highlight_fields" | "highlight_pre_tag" | "highlight_post_tag" => {
                    parse_json(value)?
                }
                "group_limit" | "highlight_number" | "highlight_size" => match value.parse::<i64>()
                {
                    Ok(n) => n.into(),
                    Err(_) => {
                        return Err(parse_error(format!("Invalid value for {name}: {value:?}")));
                    }
                },
                _ => Value::String(value.clone()),
            };
            asked.set(name, &value)?;
        }
        Ok(asked)
    }

    /// By the members of a body, and the partition of the path.
    pub fn of_body(body: &Map<String, Value>, partition: Option<&str>) -> Result<Asked, ApiError> {
        let mut asked = Asked {
            update: true,
            partition: partition.map(str::to_owned),
            ..Asked::default()
        };
        let named = body.get("partition").and_then(Value::as_str);
        if let (Some(path), Some(named)) = (partition, named)
            && path != named
        {
            return Err(refused(
                "Multiple conflicting values for `partition` provided",
            ));
        }
        for (name, value) in body {
            // A value that is not a boolean counts as an unknown parameter.
            if name == "include_docs" && !value.is_boolean() {
                continue;
            }
            asked.set(name, value)?;
        }
        Ok(asked)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), ApiError> {
        match name {
            "q" | "query" => self.q = Some(text(name, value)?),
            "partition" => self.partition = Some(text(name, value)?),
            "bookmark" => self.bookmark = some(value).map(|v| text(name, v)).transpose()?,
            "sort" => self.sort = sort(value)?,
            "limit" => self.limit = Some(value.clone()),
            "stale" => self.update &= value != "ok",
            "include_docs" => self.include_docs = value == &Value::Bool(true),
            // The choice of a shard's copy has no meaning here.
            "stable" if !value.is_boolean() => {
                return Err(parse_error(format!("Invalid value for stable: {value}")));
            }
            "group_by" | "group_field" => {
                self.is_old_group = name == "group_by";
                self.group_field = some(value).map(group_field).transpose()?;
            }
            "group_sort" => self.group_sort = Some(sort(value)?),
            "group_limit" => {
                self.group_limit = Some(positive(name, value, GROUP_LIMIT_MAX)?);
            }
            "include_fields" => {
                self.include_fields = names(name, value)?;
                let fields = self.include_fields.as_ref().map_or(0, Vec::len);
                within(fields, INCLUDED_MAX, "fields to include")?;
            }
            "counts" => {
                self.counts = names(name, value)?;
                let fields = self.counts.as_ref().map_or(0, Vec::len);
                within(fields, FIELDS_MAX, "fields to count")?;
            }
            "ranges" => self.ranges = some(value).map(ranges).transpose()?,
            "drilldown" => self.drill(value)?,
            "highlight_fields" => {
                self.highlight_fields = names(name, value)?;
                let fields = self.highlight_fields.as_ref().map_or(0, Vec::len);
                within(fields, FIELDS_MAX, "fields to highlight")?;
            }
            "highlight_pre_tag" => self.highlight.pre_tag = highlight_tag(text(name, value)?)?,
            "highlight_post_tag" => self.highlight.post_tag = highlight_tag(text(name, value)?)?,
            "highlight_number" => {
                self.highlight.number = positive(name, value, HIGHLIGHTS_MAX)? as usize;
            }
            "highlight_size" => {
                self.highlight.size = positive(name, value, HIGHLIGHT_SIZE_MAX)? as usize;
            }
            _ => {}
        }
        Ok(())
    }

    /// A list, or several; a further one is one more.
    fn drill(&mut self, value: &Value) -> Result<(), ApiError> {
        let lists = drilldowns(value)?;
        if value.get(0).is_some_and(Value::is_array) {
            self.drilldown.clear();
        }
        self.drilldown.extend(lists);
        Ok(())
    }

    /// Refuses parameters that do not apply to such a database and design document.
    pub fn check(&self, is_partitioned: bool, design_is_partitioned: bool) -> Result<(), ApiError> {
        if self.q.is_none() {
            return Err(parse_error("Query must include a 'q' or 'query' argument"));
        }
        match (design_is_partitioned, &self.partition) {
            (true, None) => {
                return Err(refused(
                    "`partition` parameter is mandatory for queries to this index.",
                ));
            }
            (false, Some(_)) => return Err(refused("`partition` not supported on this index")),
            _ => {}
        }
        self.hits(is_partitioned)?;
        let of_all = self.counts.is_some()
            || self.ranges.is_some()
            || !self.drilldown.is_empty()
            || self.group_field.is_some()
            || self.group_sort.is_some()
            || self.group_limit.is_some();
        if self.partition.is_some() && of_all {
            return Err(refused(
                "`partition` and any of `drilldown`, `ranges`, `group_field`, `group_sort`, `group_limit` or `group_by` are incompatible",
            ));
        }
        Ok(())
    }

    /// Hits at most.
    fn hits(&self, is_partitioned: bool) -> Result<usize, ApiError> {
        let (default, most) = match is_partitioned {
            true => (LIMIT_PARTITIONED, LIMIT_PARTITIONED),
            false => (LIMIT, LIMIT_MAX),
        };
        let limit = match &self.limit {
            None => default,
            Some(value) => match value.as_i64() {
                // An integer of any length is one in Erlang.
                None if value.as_f64() >= Some(1e18) => return Err(too_large("limit", most)),
                None => return Err(parse_error(format!("Invalid value for limit: {value}"))),
                Some(n) if n < 0 => {
                    return Err(parse_error("limit must be greater than or equal to zero"));
                }
                Some(n) => n as u64,
            },
        };
        match limit > most {
            true => Err(too_large("limit", most)),
            false => Ok(limit as usize),
        }
    }

    /// The query to an index.
    pub fn query(&self, index: &TextIndex, is_partitioned: bool) -> Result<TextQuery, ApiError> {
        let limit = self.hits(is_partitioned)?;
        let mut query = TextQuery::new(self.q.clone().unwrap_or_default(), limit);
        query.sort.clone_from(&self.sort);
        query.bookmark.clone_from(&self.bookmark);
        query.counts.clone_from(&self.counts);
        query.partition.clone_from(&self.partition);
        query.include_fields.clone_from(&self.include_fields);
        query.drilldown.clone_from(&self.drilldown);
        if let Some(ranges) = &self.ranges {
            let of_field = |(field, ranges): &(String, Vec<(String, String)>)| {
                let ranges = ranges.iter().map(|(label, q)| index.range(label, q));
                Ok((
                    field.clone(),
                    ranges.collect::<Result<_, database::Error>>()?,
                ))
            };
            let ranges = ranges.iter().map(of_field);
            query.ranges = Some(ranges.collect::<Result<_, database::Error>>()?);
        }
        query.highlight = self.highlight_fields.clone().map(|fields| TextHighlight {
            fields,
            options: self.highlight.clone(),
        });
        query.group = self.group_field.clone().map(|field| TextGrouping {
            field,
            sort: self.group_sort.clone().unwrap_or_default(),
            limit: self.group_limit.map_or(GROUP_LIMIT, |n| n as usize),
        });
        Ok(query)
    }
}

fn some(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null())
}

fn text(name: &str, value: &Value) -> Result<String, ApiError> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| parse_error(format!("Invalid value for {name}: {value}")))
}

fn names(name: &str, value: &Value) -> Result<Option<Vec<String>>, ApiError> {
    let Some(value) = some(value) else {
        return Ok(None);
    };
    let texts = value.as_array().map(|list| {
        let texts = list.iter().map(|v| v.as_str().map(str::to_owned));
        texts.collect::<Option<Vec<_>>>()
    });
    match texts {
        Some(Some(texts)) => Ok(Some(texts)),
        _ => Err(refused(format!("{value} is not a valid {name} query"))),
    }
}

fn too_large(name: &str, most: u64) -> ApiError {
    parse_error(format!(
        "Value for {name} is too large, must not exceed {most}"
    ))
}

fn positive(name: &str, value: &Value, most: u64) -> Result<u64, ApiError> {
    match value.as_i64() {
        Some(n) if n < 1 => Err(parse_error(format!("{name} must be greater than zero"))),
        Some(n) if n as u64 > most => Err(too_large(name, most)),
        Some(n) => Ok(n as u64),
        None => Err(parse_error(format!("Invalid value for {name}: {value}"))),
    }
}

fn ranges(value: &Value) -> Result<Ranges, ApiError> {
    let invalid = || refused("invalid ranges query");
    let fields = value.as_object().ok_or_else(invalid)?;
    let all = fields.values().filter_map(Value::as_object).map(Map::len);
    within(all.sum(), RANGES_MAX, "ranges")?;
    within(fields.len(), FIELDS_MAX, "fields with ranges")?;
    let of_field = |(field, ranges): (&String, &Value)| {
        let ranges = ranges.as_object().ok_or_else(invalid)?.iter();
        let ranges = ranges.map(|(label, q)| {
            let q = q.as_str().ok_or_else(invalid)?;
            Ok((label.clone(), q.to_owned()))
        });
        Ok((field.clone(), ranges.collect::<Result<_, ApiError>>()?))
    };
    fields.iter().map(of_field).collect()
}

static FIELD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([-+])?([.\w]+)(?:<(\w+)>)?$").ok());
static DISTANCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let number = r"([-+]?[0-9]+(?:\.[0-9]+)?)";
    let pattern = format!(r"^([-+])?<distance,([.\w]+),([.\w]+),{number},{number},(mi|km)>$");
    Regex::new(&pattern).ok()
});

/// `field`, `-field<string>`, `<score>`, `<doc>`, `<distance,lon,lat,1.5,48,km>`, or a list of them.
fn sort(value: &Value) -> Result<Vec<TextSortKey>, ApiError> {
    let fields = match value {
        Value::Null => return Ok(vec![]),
        Value::String(_) => std::slice::from_ref(value),
        Value::Array(fields) => fields.as_slice(),
        _ => return Err(refused(format!("Unrecognized sort parameter: {value}"))),
    };
    within(fields.len(), SORT_KEYS_MAX, "fields to sort by")?;
    fields.iter().map(sort_key).collect()
}

fn sort_key(value: &Value) -> Result<TextSortKey, ApiError> {
    let refuse = || {
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        refused(format!("Unrecognized sort parameter: {shown}"))
    };
    let text = value.as_str().ok_or_else(refuse)?;
    let key = |by, reversed| TextSortKey { by, reversed };
    match text {
        "<score>" => return Ok(key(TextSortBy::Score, true)),
        "-<score>" => return Ok(key(TextSortBy::Score, false)),
        "<doc>" => return Ok(key(TextSortBy::Id, false)),
        "-<doc>" => return Ok(key(TextSortBy::Id, true)),
        _ => {}
    }
    if let Some(found) = DISTANCE.as_ref().and_then(|regex| regex.captures(text)) {
        let degrees = |at: usize, most: f64| match found[at].parse::<f64>() {
            Ok(n) if n.abs() <= most => Ok(n),
            _ => Err(refused(format!(
                "Unrecognized sort parameter: {text} (degrees are at most {most})"
            ))),
        };
        let distance = TextDistance {
            lon_field: found[2].to_owned(),
            lat_field: found[3].to_owned(),
            lon: degrees(4, 180.0)?,
            lat: degrees(5, 90.0)?,
            radius: if &found[6] == "mi" {
                EARTH_MILES
            } else {
                EARTH_KM
            },
        };
        let reversed = found.get(1).is_some_and(|sign| sign.as_str() == "-");
        return Ok(key(TextSortBy::Distance(distance), reversed));
    }
    let found = FIELD
        .as_ref()
        .and_then(|regex| regex.captures(text))
        .ok_or_else(refuse)?;
    let field = found[2].to_owned();
    let by = match found.get(3).map(|kind| kind.as_str()) {
        Some("string") => TextSortBy::Strings(field),
        Some("number") | None => TextSortBy::Numbers(field),
        Some(kind) => return Err(refused(format!("Unrecognized type: {kind}"))),
    };
    let reversed = found.get(1).is_some_and(|sign| sign.as_str() == "-");
    Ok(key(by, reversed))
}

fn group_field(value: &Value) -> Result<String, ApiError> {
    let refuse = || refused(format!("Unrecognized group_field parameter: {value}"));
    let text = value.as_str().ok_or_else(refuse)?;
    let found = FIELD
        .as_ref()
        .and_then(|regex| regex.captures(text))
        .ok_or_else(refuse)?;
    match found.get(3).map(|kind| kind.as_str()) {
        Some("string") | None => Ok(found[2].to_owned()),
        Some("number") => Err(refused(
            "Group by number not supported. Group by string terms only.",
        )),
        Some(_) => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(body: Value) -> Result<Asked, ApiError> {
        Asked::of_body(body.as_object().unwrap(), None)
    }

    fn refusal(body: Value) -> String {
        let checked = asked(body).and_then(|asked| asked.check(false, false));
        checked.unwrap_err().reason.into_owned()
    }

    #[test]
    fn what_is_asked_badly_is_refused_as_dreyfus_refuses_it() {
        assert_eq!(
            refusal(json!({})),
            "Query must include a 'q' or 'query' argument"
        );
        assert_eq!(
            refusal(json!({"q": "x", "limit": 201})),
            "Value for limit is too large, must not exceed 200"
        );
        assert_eq!(
            refusal(json!({"q": "x", "limit": -1})),
            "limit must be greater than or equal to zero"
        );
        assert_eq!(
            refusal(json!({"q": "x", "group_limit": 0})),
            "group_limit must be greater than zero"
        );
        assert_eq!(
            refusal(json!({"q": "x", "group_field": "n<number>"})),
            "Group by number not supported. Group by string terms only."
        );
        assert_eq!(
            refusal(json!({"q": "x", "sort": "n<date>"})),
            "Unrecognized type: date"
        );
        assert_eq!(
            refusal(json!({"q": "x", "sort": "a b"})),
            "Unrecognized sort parameter: a b"
        );
        assert_eq!(
            refusal(json!({"q": "x", "drilldown": [[]]})),
            "invalid drilldown query"
        );
        assert_eq!(
            refusal(json!({"q": "x", "partition": "p"})),
            "`partition` not supported on this index"
        );
    }

    #[test]
    fn sorts_are_read_as_clouseau_reads_them() {
        let keys = sort(&json!([
            "a",
            "-b<string>",
            "<score>",
            "-<doc>",
            "-<distance,x,y,1.5,-48,mi>"
        ]))
        .unwrap();
        let numbers = TextSortBy::Numbers("a".into());
        let strings = TextSortBy::Strings("b".into());
        let distance = TextSortBy::Distance(TextDistance {
            lon_field: "x".into(),
            lat_field: "y".into(),
            lon: 1.5,
            lat: -48.0,
            radius: EARTH_MILES,
        });
        let expected = [
            (numbers, false),
            (strings, true),
            (TextSortBy::Score, true),
            (TextSortBy::Id, true),
            (distance, true),
        ];
        assert_eq!(
            keys,
            expected.map(|(by, reversed)| TextSortKey { by, reversed })
        );
    }

    #[test]
    fn drilldowns_are_one_list_or_several() {
        let drilldown = |value: Value| {
            asked(json!({"q": "x", "drilldown": value}))
                .unwrap()
                .drilldown
        };
        let of = |field: &str, values: &[&str]| -> Drilldown {
            (
                field.to_owned(),
                values.iter().map(|v| (*v).to_owned()).collect(),
            )
        };
        assert_eq!(drilldown(json!(["a", "b", "c"])), [of("a", &["b", "c"])]);
        assert_eq!(drilldown(json!(["a"])), [of("a", &[])]);
        assert_eq!(
            drilldown(json!([["a", "b"], ["c", "d"]])),
            [of("a", &["b"]), of("c", &["d"])]
        );
        assert!(drilldown(json!([])).is_empty());
    }
}
