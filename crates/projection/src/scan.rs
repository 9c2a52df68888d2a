//! Writing the part of a document that is needed.

use super::{
    need::{Need, array_index},
    skip,
};

/// A position that is not used, since nothing after it is needed.
const NOT_LOOKED_AT: usize = usize::MAX;

/// Precedes an object or array that was taken whole; no JSON text has this byte there. It marks
/// values that are not records:
/// [`Projection::project_records`](crate::Projection::project_records).
pub const WHOLE: u8 = 1;

/// A [`Need`] prepared for scanning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    whole: bool,
    names: Vec<(Box<[u8]>, Plan)>,
    /// The plan for members of an object that are not in `names`.
    others: Option<Box<Plan>>,
    array: ArrayPlan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ArrayPlan {
    /// `[]`
    #[default]
    Empty,
    /// The same number of elements, all 0.
    Length,
    /// The elements, at most this many.
    Elements(Box<Plan>, usize),
}

/// A member that is stored in the body all the same.
const ACCESS: &[u8] = b"_access";

impl Plan {
    pub fn new(need: &Need) -> Plan {
        let others = need.any.as_deref();
        let with_others = |need: &Need| match others {
            Some(others) => {
                let mut both = need.clone();
                both.merge(others);
                Plan::new(&both)
            }
            None => Plan::new(need),
        };
        Plan {
            whole: need.whole,
            names: need
                .names
                .iter()
                .map(|(name, need)| (name.as_bytes().into(), with_others(need)))
                .collect(),
            others: others.map(|others| Box::new(Plan::new(others))),
            array: ArrayPlan::new(need),
        }
    }

    /// Splits the plan into the part for names that start with an underscore, and the rest, with the
    /// one that is stored in the body.
    pub fn split(mut self) -> (Plan, Plan) {
        let (underscore, names) = self
            .names
            .drain(..)
            .partition(|(name, _)| name.starts_with(b"_") && **name != *ACCESS);
        let underscore = Plan {
            names: underscore,
            ..self.clone()
        };
        (underscore, Plan { names, ..self })
    }

    /// Returns whether no member of an object is taken.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.names.is_empty() && self.others.is_none()
    }

    fn of_name(&self, name: &[u8]) -> Option<&Plan> {
        self.names
            .iter()
            .find(|(wanted, _)| **wanted == *name)
            .map(|(_, plan)| plan)
    }
}

impl ArrayPlan {
    fn new(need: &Need) -> ArrayPlan {
        let mut element = need.any.as_deref().cloned();
        let mut count = if element.is_some() { usize::MAX } else { 0 };
        for (name, need) in &need.names {
            if let Some(index) = array_index(name) {
                element.get_or_insert_default().merge(need);
                count = count.max(index as usize + 1);
            }
        }
        let length = need.names.contains_key("length");
        match element {
            Some(element) => {
                let count = if length { usize::MAX } else { count };
                ArrayPlan::Elements(Box::new(Plan::new(&element)), count)
            }
            None if length => ArrayPlan::Length,
            None => ArrayPlan::Empty,
        }
    }
}

/// The input and the output of a scan. The functions return the position after what they read, or
/// `None` if the text is not compact JSON; their output is useless then.
pub(crate) struct Scan<'a> {
    pub text: &'a [u8],
    pub out: &'a mut Vec<u8>,
    /// Whether [`WHOLE`] precedes objects and arrays that are taken whole.
    pub marked: bool,
}

impl Scan<'_> {
    /// Writes the part of the value at `pos` that `plan` takes. `last`: nothing after it is needed,
    /// so the position is not used.
    #[inline]
    fn value(&mut self, plan: &Plan, pos: usize, last: bool) -> Option<usize> {
        let first = *self.text.get(pos)?;
        let container = matches!(first, b'{' | b'[');
        if plan.whole || !container {
            let end = skip::value(self.text, pos)?;
            if container && self.marked {
                self.out.push(WHOLE);
            }
            self.out.extend_from_slice(self.text.get(pos..end)?);
            return Some(end);
        }
        if first == b'[' {
            return self.array(&plan.array, pos + 1, last);
        }
        self.out.push(b'{');
        let end = if plan.is_empty() {
            self.rest(pos + 1, last)
        } else {
            self.members(plan, pos + 1, Some(b'}'), last)
        };
        self.out.push(b'}');
        end
    }

    /// Skips the rest of the object or array that `pos` is inside of.
    fn rest(&self, pos: usize, last: bool) -> Option<usize> {
        if last {
            return Some(NOT_LOOKED_AT);
        }
        skip::container(self.text, pos)
    }

    /// Writes those members of an object, whose first is at `pos`, that `plan` takes. `close` is
    /// `None` at the end of the text.
    pub fn members(
        &mut self,
        plan: &Plan,
        mut pos: usize,
        close: Option<u8>,
        last: bool,
    ) -> Option<usize> {
        if self.text.get(pos).copied() == close {
            return Some(pos + 1);
        }
        let start = self.out.len();
        let mut missing = plan.names.len();
        loop {
            if *self.text.get(pos)? != b'"' {
                return None;
            }
            let (end, escapes) = skip::string(self.text, pos + 1)?;
            if *self.text.get(end)? != b':' {
                return None;
            }
            let name = self.text.get(pos + 1..end - 1)?;
            let wanted = if escapes {
                decode(name).and_then(|name| plan.of_name(&name))
            } else {
                plan.of_name(name)
            };
            if wanted.is_some() {
                missing = missing.saturating_sub(1);
            }
            let done = missing == 0 && plan.others.is_none();
            let value = end + 1;
            pos = match wanted.or(plan.others.as_deref()) {
                Some(plan) => {
                    if self.out.len() > start {
                        self.out.push(b',');
                    }
                    self.out.extend_from_slice(self.text.get(pos..value)?);
                    self.value(plan, value, last && done)?
                }
                None => skip::value(self.text, value)?,
            };
            if done && last {
                return Some(NOT_LOOKED_AT);
            }
            let next = self.text.get(pos).copied();
            if next == close {
                return Some(pos + 1);
            }
            if next != Some(b',') {
                return None;
            }
            pos += 1;
            if done {
                return match close {
                    Some(_) => skip::container(self.text, pos),
                    None => Some(NOT_LOOKED_AT),
                };
            }
        }
    }

    /// Writes what `plan` takes of the array whose first element is at `pos`.
    fn array(&mut self, plan: &ArrayPlan, mut pos: usize, last: bool) -> Option<usize> {
        self.out.push(b'[');
        let (element, count) = match plan {
            ArrayPlan::Empty => {
                self.out.push(b']');
                return self.rest(pos, last);
            }
            ArrayPlan::Length => (None, usize::MAX),
            ArrayPlan::Elements(element, count) => (Some(element), *count),
        };
        if *self.text.get(pos)? == b']' {
            self.out.push(b']');
            return Some(pos + 1);
        }
        for _ in 0..count {
            pos = match element {
                Some(plan) => self.value(plan, pos, false)?,
                None => {
                    self.out.push(b'0');
                    skip::value(self.text, pos)?
                }
            };
            match *self.text.get(pos)? {
                b',' => pos += 1,
                b']' => {
                    self.out.push(b']');
                    return Some(pos + 1);
                }
                _ => return None,
            }
            self.out.push(b',');
        }
        // Leaves out the elements after the last needed one.
        self.out.pop();
        self.out.push(b']');
        self.rest(pos, last)
    }
}

/// Returns a member's name, without escapes. `None` for a lone surrogate, which no wanted name has.
fn decode(name: &[u8]) -> Option<Vec<u8>> {
    let mut quoted = Vec::with_capacity(name.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(name);
    quoted.push(b'"');
    serde_json::from_slice::<String>(&quoted)
        .ok()
        .map(String::into_bytes)
}
