//! The body of `_find` and `_explain`.

use serde_json::{Map, Value, json};

use crate::aggregate::Aggregate;
use crate::error::FindError;
use crate::fields::Fields;
use crate::json::{self, Kind, members};
use crate::limits::Limits;
use crate::selector::Selector;
use crate::sort::Sort;

/// What `_find` and `_explain` are asked for.
#[derive(Clone, Debug)]
pub struct Find {
    /// Which documents.
    pub selector: Selector,
    /// The design document and perhaps the name of the index to be used.
    pub use_index: Vec<String>,
    /// Where to go on.
    pub bookmark: Option<String>,
    /// Documents at most.
    pub limit: u64,
    /// Documents to be left out first.
    pub skip: u64,
    /// In which order.
    pub sort: Sort,
    /// Which fields.
    pub fields: Fields,
    /// Of which partition.
    pub partition: Option<String>,
    /// Of how many replicas; there is one.
    pub r: u64,
    /// Whether documents have `_conflicts`.
    pub conflicts: bool,
    /// `stale: "ok"`
    pub stale: bool,
    /// Whether the index is brought up to date first.
    pub update: bool,
    /// Answered in any case; there is one replica.
    pub stable: bool,
    /// Whether the answer has `execution_stats`.
    pub execution_stats: bool,
    /// Whether another index than `use_index` may serve.
    pub allow_fallback: bool,
    /// Groups and what they come to, instead of documents.
    pub aggregate: Option<Aggregate>,
}

/// Settings of the server that a query is read with.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Documents when the query says nothing.
    pub limit: u64,
    /// Limits on selectors.
    pub limits: Limits,
}

/// All members but the selector.
fn options(text: &[u8]) -> Result<Map<String, Value>, FindError> {
    members(text)
        .filter(|(name, _)| name != "selector")
        .map(|(name, value)| match serde_json::from_slice(value) {
            // A whole number beyond 64 bits; as a float it would be refused.
            Ok(Value::Number(_)) if is_beyond_64_bits(value) => Ok((name, u64::MAX.into())),
            Ok(value) => Ok((name, value)),
            Err(_) => Err(FindError::NestedTooDeeply(name)),
        })
        .collect()
}

/// Returns whether the text of a number is a whole one beyond 64 bits.
fn is_beyond_64_bits(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default().trim();
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u64>().is_err()
}

/// A text, `None` when it is empty; what is no text is the error.
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
    /// Reads a body, a text in the normal form of [`document::normalise`].
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
        // Groups are few, and no page of them says that there are more.
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

    /// The options as `_explain` shows them.
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

/// `"ddoc"`, `"_design/ddoc"`, `"ddoc/name"`, or a list of one or two of them.
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
