use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::collate::integer;
use crate::condition::{Condition, Relation};
use crate::error::SelectorError;
use crate::path::FieldPath;
use crate::selector::Node;

/// Levels of conditions in a selector, at most.
pub const DEPTH_MAX: usize = 64;
/// Operators and field names in a selector, at most.
pub const CONDITIONS_MAX: usize = 10_000;
/// Regular expressions in a selector, at most.
pub const REGEXES_MAX: usize = 64;
/// Memory of one compiled regular expression, at most.
pub const REGEX_SIZE_MAX_BYTES: usize = 1 << 20;

/// Reads the whole selector.
pub(crate) fn root(value: &Value) -> Result<Node, SelectorError> {
    Reader::default().node(
        value,
        &Place {
            field: String::new(),
            depth: 0,
            negation: Negation::Moved { negated: false },
        },
    )
}

/// What has been counted so far, to be held against the limits.
#[derive(Default)]
struct Reader {
    conditions: usize,
    regexes: usize,
}

/// Where in the selector a value stands.
struct Place {
    /// The dotted name of the field above; empty for none.
    field: String,
    depth: usize,
    negation: Negation,
}

/// What becomes of a negation.
#[derive(Clone, Copy)]
enum Negation {
    /// It is moved down into the conditions; `negated` says whether there is one above.
    Moved { negated: bool },
    /// It stays where it is: below `$elemMatch` and its like, where CouchDB does not move it.
    Kept,
}

impl Place {
    fn deeper(&self) -> Result<Self, SelectorError> {
        if self.depth >= DEPTH_MAX {
            return Err(SelectorError::TooDeep(DEPTH_MAX));
        }
        Ok(Self {
            field: self.field.clone(),
            depth: self.depth + 1,
            negation: self.negation,
        })
    }

    fn below_field(&self, name: &str) -> Result<Self, SelectorError> {
        let place = self.deeper()?;
        let field = if self.field.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.field)
        };
        Ok(Self { field, ..place })
    }

    fn element(&self) -> Result<Self, SelectorError> {
        Ok(Self {
            field: String::new(),
            negation: Negation::Kept,
            ..self.deeper()?
        })
    }

    fn negated(&self) -> bool {
        matches!(self.negation, Negation::Moved { negated: true })
    }

    /// A node that asks for the condition here, or for its opposite if that is what has been moved down.
    fn condition(&self, condition: Condition) -> Result<Node, SelectorError> {
        let condition = if self.negated() {
            condition.negated()
        } else {
            condition
        };
        if self.field.is_empty() {
            return Ok(Node::Here(condition));
        }
        Ok(Node::Field(FieldPath::parse(&self.field)?, condition))
    }
}

impl Reader {
    fn node(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        let members = match value {
            Value::Object(members) if !members.is_empty() => members,
            other => return place.condition(Condition::Is(Relation::Equal, other.clone())),
        };
        let nodes = self.members(members, place)?;
        Ok(if place.negated() {
            any(nodes)
        } else {
            all(nodes)
        })
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        place: &Place,
    ) -> Result<Vec<Node>, SelectorError> {
        members
            .iter()
            .map(|(name, value)| self.member(name, value, place))
            .collect()
    }

    fn member(&mut self, name: &str, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(SelectorError::TooManyConditions(CONDITIONS_MAX));
        }
        match name {
            "$and" => Ok(self.combination("$and", value, place)?.all(place.negated())),
            "$or" => Ok(self.combination("$or", value, place)?.any(place.negated())),
            "$nor" => self.nor(value, place),
            "$not" => self.not(value, place),
            "$text" => text(value, place),
            _ if name.starts_with('$') => {
                let condition = self.condition(name, value, place)?;
                place.condition(condition)
            }
            _ => self.node(value, &place.below_field(name)?),
        }
    }

    fn combination(
        &mut self,
        operator: &'static str,
        value: &Value,
        place: &Place,
    ) -> Result<Combination, SelectorError> {
        let place = place.deeper()?;
        let nodes = list(operator, value)?
            .iter()
            .map(|value| self.node(value, &place));
        Ok(Combination(nodes.collect::<Result<_, _>>()?))
    }

    fn nor(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        match place.negation {
            Negation::Kept => Ok(Node::Not(Box::new(Node::Any(
                self.combination("$nor", value, place)?.0,
            )))),
            Negation::Moved { negated } => {
                let place = Place {
                    negation: Negation::Moved { negated: !negated },
                    ..place.deeper()?
                };
                Ok(self.combination("$nor", value, &place)?.all(negated))
            }
        }
    }

    fn not(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        if !value.is_object() {
            return Err(bad_argument("$not", value));
        }
        let inner = place.deeper()?;
        match place.negation {
            Negation::Kept => Ok(Node::Not(Box::new(self.node(value, &inner)?))),
            Negation::Moved { negated } => self.node(
                value,
                &Place {
                    negation: Negation::Moved { negated: !negated },
                    ..inner
                },
            ),
        }
    }

    fn condition(
        &mut self,
        name: &str,
        value: &Value,
        place: &Place,
    ) -> Result<Condition, SelectorError> {
        Ok(match (name, value) {
            ("$eq", _) => Condition::Is(Relation::Equal, value.clone()),
            ("$ne", _) => Condition::Is(Relation::NotEqual, value.clone()),
            ("$lt", _) => Condition::Is(Relation::Less, value.clone()),
            ("$lte", _) => Condition::Is(Relation::LessOrEqual, value.clone()),
            ("$gt", _) => Condition::Is(Relation::Greater, value.clone()),
            ("$gte", _) => Condition::Is(Relation::GreaterOrEqual, value.clone()),
            ("$in", _) => Condition::In(list("$in", value)?.to_vec()),
            ("$nin", _) => Condition::NotIn(list("$nin", value)?.to_vec()),
            ("$all", _) => Condition::All(list("$all", value)?.to_vec()),
            ("$exists", _) => Condition::Exists(
                value
                    .as_bool()
                    .ok_or_else(|| bad_argument("$exists", value))?,
            ),
            ("$type", _) => Condition::Type(
                value
                    .as_str()
                    .ok_or_else(|| bad_argument("$type", value))?
                    .to_owned(),
            ),
            ("$size", _) => {
                Condition::Size(value.as_u64().ok_or_else(|| bad_argument("$size", value))?)
            }
            ("$mod", _) => modulo(value).ok_or_else(|| bad_argument("$mod", value))?,
            ("$regex", Value::String(pattern)) => Condition::Regex(self.regex(pattern)?),
            ("$beginsWith", Value::String(prefix)) => Condition::BeginsWith(prefix.clone()),
            ("$elemMatch", _) => Condition::ElemMatch(self.element("$elemMatch", value, place)?),
            ("$allMatch", _) => Condition::AllMatch(self.element("$allMatch", value, place)?),
            ("$keyMapMatch", _) => {
                Condition::KeyMapMatch(self.element("$keyMapMatch", value, place)?)
            }
            ("$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere", _) => {
                return Err(SelectorError::UnsupportedOperator(name.to_owned()));
            }
            _ => return Err(SelectorError::InvalidOperator(name.to_owned())),
        })
    }

    fn element(
        &mut self,
        operator: &'static str,
        value: &Value,
        place: &Place,
    ) -> Result<Box<Node>, SelectorError> {
        if !value.is_object() {
            return Err(bad_argument(operator, value));
        }
        Ok(Box::new(self.node(value, &place.element()?)?))
    }

    fn regex(&mut self, pattern: &str) -> Result<Regex, SelectorError> {
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            return Err(SelectorError::TooManyRegexes(REGEXES_MAX));
        }
        let compiled = RegexBuilder::new(pattern)
            .size_limit(REGEX_SIZE_MAX_BYTES)
            .dfa_size_limit(REGEX_SIZE_MAX_BYTES)
            .build();
        compiled.map_err(|error| bad_regex(pattern, &error))
    }
}

/// The operands of `$and`, `$or` or `$nor`, each of them negated already where a negation is moved down.
struct Combination(Vec<Node>);

impl Combination {
    fn all(self, negated: bool) -> Node {
        if negated {
            Node::Any(self.0)
        } else {
            Node::All(self.0)
        }
    }

    fn any(self, negated: bool) -> Node {
        self.all(!negated)
    }
}

/// A single condition stands for itself, so that one without a field is seen at the root.
fn all(mut nodes: Vec<Node>) -> Node {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => Node::All(nodes.into_iter().chain(last).collect()),
    }
}

fn any(mut nodes: Vec<Node>) -> Node {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => Node::Any(nodes.into_iter().chain(last).collect()),
    }
}

/// Without a text index `$text` restricts nothing, as recorded.
fn text(value: &Value, place: &Place) -> Result<Node, SelectorError> {
    match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {}
        _ => return Err(bad_argument("$text", value)),
    }
    match place.negation {
        Negation::Moved { negated: false } if place.field.is_empty() => Ok(Node::Everything),
        Negation::Moved { negated: true } if place.field.is_empty() => {
            Err(bad_argument("$not", value))
        }
        _ => Err(SelectorError::TextBelowRoot),
    }
}

fn list<'a>(operator: &'static str, value: &'a Value) -> Result<&'a [Value], SelectorError> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(bad_argument(operator, value)),
    }
}

fn modulo(value: &Value) -> Option<Condition> {
    let [Value::Number(divisor), Value::Number(remainder)] = value.as_array()?.as_slice() else {
        return None;
    };
    let (divisor, remainder) = (integer(divisor)?, integer(remainder)?);
    (divisor != 0).then_some(Condition::Modulo { divisor, remainder })
}

fn bad_argument(operator: &'static str, argument: &Value) -> SelectorError {
    SelectorError::BadArgument {
        operator,
        argument: argument.clone(),
    }
}

/// The compiler draws the place of the error over several lines; only the last says what is wrong.
fn bad_regex(pattern: &str, error: &regex::Error) -> SelectorError {
    let text = error.to_string();
    let cause = text
        .lines()
        .last()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    SelectorError::BadRegex {
        pattern: Value::from(pattern),
        cause,
    }
}
