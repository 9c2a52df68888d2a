use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::compare::Operand;
use crate::condition::{Condition, Operands, Relation};
use crate::error::SelectorError;
use crate::lift::Lifter;
use crate::limits::Limits;
use crate::path::FieldPath;
use crate::selector::{Field, Node};

/// Reads the whole selector.
pub(crate) fn root(value: &Value, limits: &Limits) -> Result<(Node, Lifter), SelectorError> {
    let mut reader = Reader {
        limits,
        conditions: 0,
        regexes: 0,
        lifter: Lifter::default(),
        has_text: false,
    };
    let place = Place {
        field: String::new(),
        depth: 0,
        negation: Negation::Moved { negated: false },
    };
    let root = reader.node(value, &place)?;
    Ok((root, reader.lifter))
}

/// What has been counted so far, to be held against the limits.
struct Reader<'a> {
    limits: &'a Limits,
    conditions: usize,
    regexes: usize,
    /// The fields of conditions that are about the document itself.
    lifter: Lifter,
    has_text: bool,
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
    fn deeper(&self, limits: &Limits) -> Result<Self, SelectorError> {
        if self.depth >= limits.selector_depth_max {
            return Err(SelectorError::TooDeep(limits.selector_depth_max));
        }
        Ok(Self {
            field: self.field.clone(),
            depth: self.depth + 1,
            negation: self.negation,
        })
    }

    fn below_field(&self, name: &str, limits: &Limits) -> Result<Self, SelectorError> {
        let place = self.deeper(limits)?;
        let field = if self.field.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.field)
        };
        Ok(Self { field, ..place })
    }

    fn element(&self, limits: &Limits) -> Result<Self, SelectorError> {
        Ok(Self {
            field: String::new(),
            negation: Negation::Kept,
            ..self.deeper(limits)?
        })
    }

    fn negated(&self) -> bool {
        matches!(self.negation, Negation::Moved { negated: true })
    }
}

impl Reader<'_> {
    /// A node that asks for the condition here, or for its opposite if that is what has been moved down.
    fn wanted(&mut self, place: &Place, condition: Condition) -> Result<Node, SelectorError> {
        let condition = if place.negated() {
            condition.negated()
        } else {
            condition
        };
        if place.field.is_empty() {
            return Ok(Node::Here(condition));
        }
        let path = FieldPath::parse(&place.field)?;
        let slot = match place.negation {
            Negation::Moved { .. } => Some(self.lifter.add(&path)),
            Negation::Kept => None,
        };
        let field = Field {
            name: place.field.clone(),
            path,
            slot,
        };
        Ok(Node::Field(field, condition))
    }

    fn node(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        let members = match value {
            Value::Object(members) if !members.is_empty() => members,
            other => {
                let equal = Condition::Is(Relation::Equal, Operand::new(other.clone()));
                return self.wanted(place, equal);
            }
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
        let max = self.limits.selector_conditions_max;
        if self.conditions > max {
            return Err(SelectorError::TooManyConditions(max));
        }
        match name {
            "$and" => Ok(self.combination("$and", value, place)?.all(place.negated())),
            "$or" => Ok(self.combination("$or", value, place)?.any(place.negated())),
            "$nor" => self.nor(value, place),
            "$not" => self.not(value, place),
            "$text" => self.text(value, place),
            _ if name.starts_with('$') => {
                let condition = self.condition(name, value, place)?;
                self.wanted(place, condition)
            }
            _ => self.node(value, &place.below_field(name, self.limits)?),
        }
    }

    fn combination(
        &mut self,
        operator: &'static str,
        value: &Value,
        place: &Place,
    ) -> Result<Combination, SelectorError> {
        let place = place.deeper(self.limits)?;
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
                    ..place.deeper(self.limits)?
                };
                Ok(self.combination("$nor", value, &place)?.all(negated))
            }
        }
    }

    fn not(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        if !value.is_object() {
            return Err(bad_argument("$not", value));
        }
        let inner = place.deeper(self.limits)?;
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
            ("$eq", _) => Condition::Is(Relation::Equal, Operand::new(value.clone())),
            ("$ne", _) => Condition::Is(Relation::NotEqual, Operand::new(value.clone())),
            ("$lt", _) => Condition::Is(Relation::Less, Operand::new(value.clone())),
            ("$lte", _) => Condition::Is(Relation::LessOrEqual, Operand::new(value.clone())),
            ("$gt", _) => Condition::Is(Relation::Greater, Operand::new(value.clone())),
            ("$gte", _) => Condition::Is(Relation::GreaterOrEqual, Operand::new(value.clone())),
            ("$in", _) => Condition::In(Operands::new(list("$in", value)?.to_vec())),
            ("$nin", _) => Condition::NotIn(Operands::new(list("$nin", value)?.to_vec())),
            ("$all", _) => Condition::All(
                list("$all", value)?
                    .iter()
                    .cloned()
                    .map(Operand::new)
                    .collect(),
            ),
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
        Ok(Box::new(self.node(value, &place.element(self.limits)?)?))
    }

    fn regex(&mut self, pattern: &str) -> Result<Regex, SelectorError> {
        self.regexes += 1;
        if self.regexes > self.limits.regexes_max {
            return Err(SelectorError::TooManyRegexes(self.limits.regexes_max));
        }
        let compiled = RegexBuilder::new(pattern)
            .size_limit(self.limits.regex_bytes_max)
            .dfa_size_limit(self.limits.regex_bytes_max)
            .build();
        compiled.map_err(|error| bad_regex(pattern, &error))
    }

    /// Without a text index `$text` restricts nothing, as recorded.
    fn text(&mut self, value: &Value, place: &Place) -> Result<Node, SelectorError> {
        match value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {}
            _ => return Err(bad_argument("$text", value)),
        }
        match place.negation {
            Negation::Moved { negated: false } if place.field.is_empty() => {
                if std::mem::replace(&mut self.has_text, true) {
                    return Err(SelectorError::SeveralTexts);
                }
                Ok(Node::Text(value.clone()))
            }
            Negation::Moved { negated: true } if place.field.is_empty() => {
                Err(bad_argument("$not", value))
            }
            _ => Err(SelectorError::TextBelowRoot),
        }
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
    let integer = |n: &serde_json::Number| {
        let signed = n.as_i64().map(i128::from);
        signed.or_else(|| n.as_u64().map(i128::from))
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
