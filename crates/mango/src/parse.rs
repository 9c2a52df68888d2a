use std::sync::Arc;

use serde_json::Value;

use crate::compare::Operand;
use crate::condition::{Condition, Literals, Operands, Relation};
use crate::error::SelectorError;
use crate::json::{DIVISOR_DIGITS_MAX, Elements, Kind, integer, members, shown, string};
use crate::lift::Lifter;
use crate::limits::Limits;
use crate::path::{FieldPath, check_length};
use crate::pcre::{ClassCosts, Pattern};
use crate::selector::{ElementSelector, Field, SelectorNode, TEXTS_BYTES_MAX, TextHits, TextNode};

/// A parsed selector.
pub(crate) struct Parsed {
    pub root: SelectorNode,
    /// The fields of the root's conditions.
    pub lifter: Lifter,
    /// How much memory both take, about, in bytes.
    pub memory_bytes: usize,
}

/// About how many bytes a byte of a selector takes once it is parsed, besides its conditions.
const PARSED_RATIO: usize = 8;
/// Memory of a condition besides its operands, its field's name and path, about, in bytes.
const CONDITION_BYTES: usize = 512;
/// Memory of the caches that a thread has for all regular expressions of a selector, in bytes, and
/// at least for one.
const CACHES_BYTES_MAX: usize = 16 << 20;
const CACHE_BYTES_MIN: usize = 32 << 10;

/// Parses the whole selector, a normalised object text.
pub(crate) fn root(value: &[u8], limits: &Limits) -> Result<Parsed, SelectorError> {
    let mut reader = Reader {
        limits,
        text: value,
        conditions: 0,
        names_bytes: 0,
        regexes: 0,
        regexes_bytes: 0,
        class_costs: ClassCosts::default(),
        cache_bytes: None,
        lifter: Lifter::default(),
        texts: 0,
        texts_bytes: 0,
        last: None,
    };
    let place = Place {
        field: None,
        depth: 0,
        negation: Negation::Moved { negated: false },
    };
    let root = reader.node(value, &place)?;
    Ok(Parsed {
        root,
        memory_bytes: reader.memory_bytes(),
        lifter: reader.lifter,
    })
}

/// A parser, with counts for the limits.
struct Reader<'a> {
    limits: &'a Limits,
    /// The whole selector.
    text: &'a [u8],
    conditions: usize,
    /// Memory of the names of fields.
    names_bytes: usize,
    regexes: usize,
    /// Memory of the compiled expressions.
    regexes_bytes: usize,
    /// The costs of the classes of the expressions.
    class_costs: ClassCosts,
    /// Maximum memory of a thread's cache for one expression, once there is one.
    cache_bytes: Option<usize>,
    /// The fields of conditions on the document itself, or on an element of an array.
    lifter: Lifter,
    texts: usize,
    /// Length of their operands.
    texts_bytes: usize,
    /// The field of the previous condition.
    last: Option<(Arc<str>, FieldPath)>,
}

/// The place of a value in the selector.
struct Place {
    /// The dotted name of the field above.
    field: Option<Arc<str>>,
    depth: usize,
    negation: Negation,
}

/// The treatment of a negation.
#[derive(Clone, Copy)]
enum Negation {
    /// It is moved down into the conditions; `negated` is whether there is one above.
    Moved { negated: bool },
    /// It stays: below `$elemMatch` and similar operators, where CouchDB does not move it.
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
        if name.is_empty() {
            return Err(SelectorError::InvalidFieldName(String::new()));
        }
        let above = self.field.as_deref();
        check_length(above.map_or(0, |above| above.len() + 1) + name.len())?;
        let field = match above {
            None => Some(Arc::from(name)),
            Some(above) => Some(Arc::from(format!("{above}.{name}"))),
        };
        Ok(Self { field, ..place })
    }

    fn element(&self, limits: &Limits) -> Result<Self, SelectorError> {
        Ok(Self {
            field: None,
            negation: Negation::Kept,
            ..self.deeper(limits)?
        })
    }

    fn negated(&self) -> bool {
        matches!(self.negation, Negation::Moved { negated: true })
    }
}

impl Reader<'_> {
    fn memory_bytes(&self) -> usize {
        PARSED_RATIO * self.text.len()
            + CONDITION_BYTES * self.conditions
            + self.names_bytes
            + self.regexes_bytes
            + self.lifter.memory_bytes()
    }

    /// Returns a node of the condition, or of its opposite if a negation was moved down.
    fn wanted(
        &mut self,
        place: &Place,
        condition: Condition,
    ) -> Result<SelectorNode, SelectorError> {
        let condition = if place.negated() {
            condition.negated()
        } else {
            condition
        };
        let Some(name) = &place.field else {
            return Ok(SelectorNode::Here(condition));
        };
        let path = self.path(name)?;
        let field = Field {
            name: name.clone(),
            span: self.lifter.try_add(&path)?,
            path,
        };
        Ok(SelectorNode::Field(field, condition))
    }

    fn path(&mut self, name: &Arc<str>) -> Result<FieldPath, SelectorError> {
        if let Some((last, path)) = &self.last
            && Arc::ptr_eq(last, name)
        {
            return Ok(path.clone());
        }
        let path = FieldPath::parse(name)?;
        // The name, and its parts in the path.
        self.names_bytes += 2 * name.len();
        self.last = Some((name.clone(), path.clone()));
        Ok(path)
    }

    fn node(&mut self, value: &[u8], place: &Place) -> Result<SelectorNode, SelectorError> {
        if Kind::of(value) != Kind::Object || value == b"{}" {
            let equal = Condition::Is(Relation::Equal, Operand::new(value));
            return self.wanted(place, equal);
        }
        let nodes = members(value).map(|(name, value)| self.member(&name, value, place));
        let nodes = nodes.collect::<Result<_, _>>()?;
        Ok(if place.negated() {
            any(nodes)
        } else {
            all(nodes)
        })
    }

    fn member(
        &mut self,
        name: &str,
        value: &[u8],
        place: &Place,
    ) -> Result<SelectorNode, SelectorError> {
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
        value: &[u8],
        place: &Place,
    ) -> Result<Combination, SelectorError> {
        let place = place.deeper(self.limits)?;
        let nodes = Elements::of(array(operator, value)?).map(|value| self.node(value, &place));
        Ok(Combination(nodes.collect::<Result<_, _>>()?))
    }

    fn nor(&mut self, value: &[u8], place: &Place) -> Result<SelectorNode, SelectorError> {
        match place.negation {
            Negation::Kept => {
                let nodes = self.combination("$nor", value, place)?.0;
                let not = |node| SelectorNode::Not(Box::new(node));
                Ok(SelectorNode::All(nodes.into_iter().map(not).collect()))
            }
            Negation::Moved { negated } => {
                let place = Place {
                    negation: Negation::Moved { negated: !negated },
                    ..place.deeper(self.limits)?
                };
                Ok(self.combination("$nor", value, &place)?.all(negated))
            }
        }
    }

    fn not(&mut self, value: &[u8], place: &Place) -> Result<SelectorNode, SelectorError> {
        if Kind::of(value) != Kind::Object {
            return Err(bad_argument("$not", value));
        }
        let inner = place.deeper(self.limits)?;
        match place.negation {
            Negation::Kept => Ok(SelectorNode::Not(Box::new(self.node(value, &inner)?))),
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
        value: &[u8],
        place: &Place,
    ) -> Result<Condition, SelectorError> {
        let bad = |operator| bad_argument(operator, value);
        let is = |relation| Condition::Is(relation, Operand::new(value));
        let text = || string(value);
        Ok(match name {
            "$eq" => is(Relation::Equal),
            "$ne" => is(Relation::NotEqual),
            "$lt" => is(Relation::Less),
            "$lte" => is(Relation::LessOrEqual),
            "$gt" => is(Relation::Greater),
            "$gte" => is(Relation::GreaterOrEqual),
            "$in" => Condition::In(Operands::new(array("$in", value)?)),
            "$nin" => Condition::NotIn(Operands::new(array("$nin", value)?)),
            "$all" => Condition::All(Literals::new(array("$all", value)?)),
            "$exists" => match Kind::of(value) {
                Kind::True => Condition::Exists(true),
                Kind::False => Condition::Exists(false),
                _ => return Err(bad("$exists")),
            },
            "$type" => Condition::Type(text().ok_or_else(|| bad("$type"))?.into_owned()),
            "$size" => {
                let size = integer(value).and_then(|n| u64::try_from(n).ok());
                Condition::Size(size.ok_or_else(|| bad("$size"))?)
            }
            "$mod" => modulo(value).ok_or_else(|| bad("$mod"))?,
            "$regex" => match text() {
                Some(pattern) => Condition::Regex(self.regex(&pattern)?),
                None => return Err(SelectorError::InvalidOperator(name.to_owned())),
            },
            "$beginsWith" => match text() {
                Some(prefix) => Condition::BeginsWith(prefix.into_owned()),
                None => return Err(SelectorError::InvalidOperator(name.to_owned())),
            },
            "$elemMatch" => Condition::ElemMatch(self.element("$elemMatch", value, place)?),
            "$allMatch" => Condition::AllMatch(self.element("$allMatch", value, place)?),
            "$keyMapMatch" => Condition::KeyMapMatch(self.element("$keyMapMatch", value, place)?),
            "$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere" => {
                return Err(SelectorError::UnsupportedOperator(name.to_owned()));
            }
            _ => return Err(SelectorError::InvalidOperator(name.to_owned())),
        })
    }

    fn element(
        &mut self,
        operator: &'static str,
        value: &[u8],
        place: &Place,
    ) -> Result<Box<ElementSelector>, SelectorError> {
        if Kind::of(value) != Kind::Object {
            return Err(bad_argument(operator, value));
        }
        let lifter = self.lifter.of_elements();
        let above = std::mem::replace(&mut self.lifter, lifter);
        let node = self.node(value, &place.element(self.limits)?)?;
        let lifter = std::mem::replace(&mut self.lifter, above);
        self.lifter.count(&lifter);
        Ok(Box::new(ElementSelector { node, lifter }))
    }

    fn regex(&mut self, pattern: &str) -> Result<Pattern, SelectorError> {
        self.regexes += 1;
        if self.regexes > self.limits.regexes_max {
            return Err(SelectorError::TooManyRegexes(self.limits.regexes_max));
        }
        let cache_bytes = self.cache_bytes();
        let bytes_max = self.limits.regex_bytes_max;
        let compiled = Pattern::compile(pattern, bytes_max, cache_bytes, &mut self.class_costs);
        let compiled = compiled.map_err(|cause| SelectorError::BadRegex {
            pattern: Value::from(pattern),
            cause,
        })?;
        self.regexes_bytes += compiled.memory_bytes();
        match self.regexes_bytes > self.limits.regexes_bytes_max {
            true => Err(SelectorError::LargeRegexes(self.limits.regexes_bytes_max)),
            false => Ok(compiled),
        }
    }

    /// Returns the maximum memory of a thread's cache for one expression: many expressions share
    /// the memory of all.
    fn cache_bytes(&mut self) -> usize {
        let (text, most) = (self.text, self.limits.regex_bytes_max);
        *self.cache_bytes.get_or_insert_with(|| {
            let operator = b"\"$regex\"";
            let windows = text.windows(operator.len());
            let count = windows.filter(|window| *window == operator).count();
            let share = CACHES_BYTES_MAX / count.max(1);
            share.max(CACHE_BYTES_MIN).min(most)
        })
    }

    /// Without a text index `$text` restricts nothing, as recorded.
    fn text(&mut self, value: &[u8], place: &Place) -> Result<SelectorNode, SelectorError> {
        if matches!(Kind::of(value), Kind::Null | Kind::Array | Kind::Object) {
            return Err(bad_argument("$text", value));
        }
        match place.negation {
            Negation::Moved { negated: false } if place.field.is_none() => {
                let number = self.texts;
                if number >= TextHits::TEXTS_MAX {
                    return Err(SelectorError::TooManyTexts(TextHits::TEXTS_MAX));
                }
                self.texts += 1;
                self.texts_bytes += value.len();
                if self.texts_bytes > TEXTS_BYTES_MAX {
                    return Err(SelectorError::LongTexts(TEXTS_BYTES_MAX));
                }
                let operand = value.into();
                Ok(SelectorNode::Text(TextNode { number, operand }))
            }
            Negation::Moved { negated: true } if place.field.is_none() => {
                Err(bad_argument("$not", value))
            }
            _ => Err(SelectorError::TextBelowRoot),
        }
    }
}

/// The operands of `$and`, `$or` or `$nor`, each of them negated already where a negation is moved
/// down.
struct Combination(Vec<SelectorNode>);

impl Combination {
    fn all(self, negated: bool) -> SelectorNode {
        if negated {
            SelectorNode::Any(self.0)
        } else {
            SelectorNode::All(self.0)
        }
    }

    fn any(self, negated: bool) -> SelectorNode {
        self.all(!negated)
    }
}

/// Returns a single condition unchanged, so that one without a field is detected at the root.
fn all(mut nodes: Vec<SelectorNode>) -> SelectorNode {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => SelectorNode::All(nodes.into_iter().chain(last).collect()),
    }
}

fn any(mut nodes: Vec<SelectorNode>) -> SelectorNode {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => SelectorNode::Any(nodes.into_iter().chain(last).collect()),
    }
}

fn array<'a>(operator: &'static str, value: &'a [u8]) -> Result<&'a [u8], SelectorError> {
    match Kind::of(value) {
        Kind::Array => Ok(value),
        _ => Err(bad_argument(operator, value)),
    }
}

fn modulo(value: &[u8]) -> Option<Condition> {
    let mut both = Elements::of(array("$mod", value).ok()?);
    let (divisor, remainder) = (both.next()?, both.next()?);
    let is_short = divisor.len() <= DIVISOR_DIGITS_MAX;
    let (divisor, remainder) = (integer(divisor)?, integer(remainder)?);
    let is_divisor = is_short && divisor != 0 && both.next().is_none();
    is_divisor.then_some(Condition::Modulo { divisor, remainder })
}

fn bad_argument(operator: &'static str, argument: &[u8]) -> SelectorError {
    SelectorError::BadArgument {
        operator,
        argument: shown(argument),
    }
}
