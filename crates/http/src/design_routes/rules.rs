//! The rules of a design document's `rewrites`.
//!
//! A rule's `from` and `to` are paths relative to the design document; a segment `:name` is a variable, a last `*` is the
//! rest of the path. Variables come from the path, then from the query; all of them become query parameters of the target.

use std::collections::{HashMap, HashSet};

use document::json::Elements;
use serde_json::{Map, Value};

use super::rewrite::{Base, TARGET_BYTES_MAX, Target, UriPath, broken, too_long};
use crate::errors::ApiError;
use node::{Query, encode_into, parse_json, value_of};

/// Most `..` in a rule's `to`: enough to reach the database, unless `[chttpd] secure_rewrites` is
/// false.
const PARENTS_MAX: usize = 2;

/// Query parameters that are JSON.
const JSON_PARAMETERS: [&str; 6] = ["key", "startkey", "start_key", "endkey", "end_key", "keys"];

/// The length of a design document's rules, in bytes.
const RULES_BYTES_MAX: usize = 1 << 20;
/// The parts of a rule: segments of its paths, parameters of its query and elements of those.
const RULE_PARTS_MAX: usize = 256;

#[derive(Debug, PartialEq)]
enum Part {
    Literal(String),
    Variable(String),
    Rest,
}

#[derive(Debug)]
struct Rule {
    method: Option<String>,
    from: Vec<Part>,
    to: Vec<Part>,
    query: Map<String, Value>,
    formats: Map<String, Value>,
}

/// Variables and their values, the first of a name counting.
type Bindings = Vec<(String, Value)>;

/// The rules of one revision of a design document.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// The most `..` in the `to` of a rule.
    parents: usize,
    /// Elements of the array, rules or not.
    count: usize,
    bytes: usize,
}

impl Rules {
    /// Parses `rewrites`, the text of an array. One invalid rule makes all of them fail, as in
    /// CouchDB.
    ///
    /// # Errors
    /// 500 `rewrite_error` for an invalid rule, 400 for too many or too long ones.
    pub fn parse(text: &[u8], rules_max: u64) -> Result<Rules, ApiError> {
        if text.len() > RULES_BYTES_MAX {
            let reason = format!("`rewrites` is longer than {RULES_BYTES_MAX} bytes");
            return Err(ApiError::bad_request(reason));
        }
        let count = Elements::of(text).count();
        check_count(count, rules_max)?;
        let Some(Value::Array(written)) = value_of(text) else {
            return Err(broken("`rewrites` is not an array"));
        };
        let rules = written.into_iter().filter_map(|rule| match rule {
            Value::Object(rule) => Some(Rule::parse(rule)),
            _ => None,
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        let parts = rules.iter().map(Rule::parts).sum::<usize>();
        Ok(Rules {
            parents: rules.iter().map(Rule::parents).max().unwrap_or(0),
            count,
            bytes: size_of::<Rule>() * rules.len() + 2 * size_of::<Part>() * parts + 2 * text.len(),
            rules,
        })
    }

    /// Returns about how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Refuses rules that the settings do not allow: more than `[chttpd] max_rewrite_rules`, or,
    /// with `secure_rewrites`, one that leaves the database.
    ///
    /// # Errors
    /// 400, and 500 `insecure_rewrite_rule`.
    pub fn check(&self, secure: bool, rules_max: u64) -> Result<(), ApiError> {
        check_count(self.count, rules_max)?;
        match secure && self.parents > PARENTS_MAX {
            false => Ok(()),
            true => Err(ApiError::new(
                500,
                "insecure_rewrite_rule",
                "too many ../.. segments",
            )),
        }
    }

    /// Returns the target of the first rule that matches, or `None`. `path` are the decoded segments
    /// after `_rewrite`.
    ///
    /// # Errors
    /// 400 for a query with an invalid key, 414 for a target that is too long.
    pub fn target(
        &self,
        base: Base<'_>,
        method: &str,
        path: &[String],
        query: &Query,
    ) -> Result<Option<Target>, ApiError> {
        for rule in &self.rules {
            if rule.method.as_ref().is_some_and(|m| m != method) {
                continue;
            }
            let Some((mut bindings, rest)) = bind(&rule.from, path) else {
                continue;
            };
            bindings.extend(query_bindings(query)?);
            return rule.target(base, bindings, rest).map(Some);
        }
        Ok(None)
    }
}

fn check_count(count: usize, rules_max: u64) -> Result<(), ApiError> {
    match count as u64 > rules_max {
        false => Ok(()),
        true => Err(ApiError::bad_request(format!(
            "The design document has more than {rules_max} rewrite rules ([chttpd] max_rewrite_rules)"
        ))),
    }
}

impl Rule {
    fn parse(mut rule: Map<String, Value>) -> Result<Rule, ApiError> {
        let mut text = |name: &str| match rule.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(broken(format!(
                "`{name}` of a rewrite rule must be a string"
            ))),
        };
        let to = text("to")?.ok_or_else(|| broken("invalid_rewrite_target"))?;
        let (method, from) = (text("method")?, text("from")?);
        let mut object = |name: &str| match rule.remove(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(broken(format!(
                "`{name}` of a rewrite rule must be an object"
            ))),
        };
        let parsed = Rule {
            method: method.filter(|m| *m != "*"),
            from: from.map_or_else(|| vec![Part::Rest], |from| parse_path(&from)),
            to: parse_path(&to),
            query: object("query")?,
            formats: object("formats")?,
        };
        match parsed.parts() > RULE_PARTS_MAX {
            false => Ok(parsed),
            true => Err(ApiError::bad_request(format!(
                "A rewrite rule has more than {RULE_PARTS_MAX} parts: segments of its paths, and parameters"
            ))),
        }
    }

    fn parts(&self) -> usize {
        let elements = self.query.values().filter_map(Value::as_array);
        let elements = elements.map(Vec::len).sum::<usize>();
        self.from.len() + self.to.len() + self.query.len() + self.formats.len() + elements
    }

    fn parents(&self) -> usize {
        let parent = |p: &&Part| matches!(p, Part::Literal(t) if t == "..");
        self.to.iter().filter(parent).count()
    }

    fn target(
        &self,
        base: Base<'_>,
        bindings: Bindings,
        rest: &[String],
    ) -> Result<Target, ApiError> {
        let mut given: Bindings = vec![];
        {
            let known = Known::of(&bindings);
            let mut room = TARGET_BYTES_MAX;
            for (name, value) in &self.query {
                given.push((name.clone(), self.fill(value, &known, &mut room)?));
            }
        }
        let names: HashSet<&str> = self.query.keys().map(String::as_str).collect();
        let mut all: Bindings = bindings
            .into_iter()
            .filter(|(name, _)| !names.contains(name.as_str()))
            .collect();
        all.extend(given.into_iter().rev());
        let mut uri = path_to(base, &self.to, &Known::of(&all), rest)?;
        let mut separator = '?';
        for (name, value) in all.iter().rev().filter(|(name, _)| name != "*") {
            uri.push(separator);
            encode_into(name, &mut uri);
            uri.push('=');
            encode_into(&parameter(name, value), &mut uri);
            separator = '&';
            if uri.len() > TARGET_BYTES_MAX {
                return Err(too_long());
            }
        }
        Ok(Target {
            uri,
            ..Target::default()
        })
    }

    /// A value of the rule's `query` with its variables filled in: the value itself, or elements of an array. `room`: how many
    /// more bytes the values of the rule may have.
    fn fill(&self, value: &Value, known: &Known<'_>, room: &mut usize) -> Result<Value, ApiError> {
        Ok(match value {
            Value::String(text) if text == "*" => self.variable("*", known, value, room)?,
            Value::String(text) => match text.strip_prefix(':') {
                Some(name) => self.variable(name, known, value, room)?,
                None => value.clone(),
            },
            Value::Array(elements) => elements
                .iter()
                .map(|e| match e.as_str().and_then(|t| t.strip_prefix(':')) {
                    Some(name) => self.variable(name, known, e, room),
                    None => Ok(e.clone()),
                })
                .collect::<Result<Value, ApiError>>()?,
            other => other.clone(),
        })
    }

    fn variable(
        &self,
        name: &str,
        known: &Known<'_>,
        otherwise: &Value,
        room: &mut usize,
    ) -> Result<Value, ApiError> {
        let value = known.get(name).unwrap_or(otherwise);
        let Some(text) = value.as_str() else {
            *room = room.checked_sub(text_bytes(value)).ok_or_else(too_long)?;
            return Ok(value.clone());
        };
        *room = room.checked_sub(text.len()).ok_or_else(too_long)?;
        let format = self.formats.get(name);
        let formatted = match format.and_then(Value::as_str) {
            Some("int") => text.parse::<i64>().ok().map(Value::from),
            Some("bool") => text.to_ascii_lowercase().parse().ok().map(Value::Bool),
            _ => None,
        };
        Ok(formatted.unwrap_or_else(|| value.clone()))
    }
}

/// The length of a value as JSON text, in bytes.
fn text_bytes(value: &Value) -> usize {
    value.to_string().len()
}

/// The values of variables by name.
struct Known<'b>(HashMap<&'b str, &'b Value>);

impl<'b> Known<'b> {
    fn of(bindings: &'b Bindings) -> Known<'b> {
        let mut known = HashMap::with_capacity(bindings.len());
        for (name, value) in bindings {
            known.entry(name.as_str()).or_insert(value);
        }
        Known(known)
    }

    fn get(&self, name: &str) -> Option<&'b Value> {
        self.0.get(name).copied()
    }
}

fn parse_path(path: &str) -> Vec<Part> {
    path.split('/')
        .filter(|s| !s.is_empty())
        .map(|s| match s.strip_prefix(':') {
            _ if s == "*" => Part::Rest,
            Some(name) => Part::Variable(name.to_owned()),
            None => Part::Literal(s.to_owned()),
        })
        .collect()
}

/// Variables of the path, the later ones first, and the segments that a final `*` matches.
fn bind<'p>(from: &[Part], path: &'p [String]) -> Option<(Bindings, &'p [String])> {
    let mut variables: Vec<(&str, &str)> = vec![];
    let mut rest = path;
    let mut is_open = false;
    for (i, part) in from.iter().enumerate() {
        if *part == Part::Rest && i + 1 == from.len() {
            is_open = true;
            break;
        }
        let (first, after) = rest.split_first()?;
        match part {
            Part::Literal(text) if text == first => {}
            Part::Literal(_) => return None,
            Part::Variable(name) => variables.push((name.as_str(), first.as_str())),
            Part::Rest => variables.push(("*", first.as_str())),
        }
        rest = after;
    }
    let bindings = variables.into_iter().rev();
    let bindings = bindings.map(|(name, value)| (name.to_owned(), Value::from(value)));
    (is_open || rest.is_empty()).then(|| (bindings.collect(), rest))
}

fn query_bindings(query: &Query) -> Result<Bindings, ApiError> {
    query
        .0
        .iter()
        .map(|(name, text)| {
            let value = if JSON_PARAMETERS.contains(&name.as_str()) {
                parse_json(text)?
            } else {
                text.as_str().into()
            };
            Ok((name.clone(), value))
        })
        .collect()
}

/// A value as text: a string is itself, anything else its JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parameter(name: &str, value: &Value) -> String {
    if JSON_PARAMETERS.contains(&name) {
        value.to_string()
    } else {
        plain(value)
    }
}

/// The path that `to` means. Only `.` and `..` of the rule itself lead upwards, never those that the client sent.
fn path_to(
    base: Base<'_>,
    to: &[Part],
    known: &Known<'_>,
    rest: &[String],
) -> Result<String, ApiError> {
    let mut path = UriPath::of(base);
    for part in to {
        match part {
            Part::Literal(text) => path.step(text),
            Part::Variable(name) => match known.get(name) {
                Some(value) => path.push(&plain(value)),
                None => path.push("undefined"),
            },
            Part::Rest => {
                for segment in rest {
                    path.push(segment);
                }
                break;
            }
        }
        if path.bytes > TARGET_BYTES_MAX {
            return Err(too_long());
        }
    }
    Ok(path.uri())
}
