//! The parts of a value that a function can access: a tree of member names.

use std::collections::BTreeMap;

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// The member of this name; of an array, the element of this index or its length.
    Name(String),
    /// A member or an element that is known only at run time.
    Any,
}

/// The need for one value.
///
/// The empty need is the value's kind: scalars are always taken unchanged, an object becomes `{}`
/// and an array `[]`. That is enough for truth tests, `typeof`, `===`, and for reading an absent
/// member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// All of it, in the document's order. The fields below are then empty.
    pub whole: bool,
    /// The needs of members by name.
    pub names: BTreeMap<String, Need>,
    /// The need for every member and element, none of which may be left out.
    pub any: Option<Box<Need>>,
}

impl Need {
    /// Adds that the value at `path` is needed, all of it or its kind.
    pub fn add(&mut self, path: &[Step], whole: bool) {
        if self.whole {
            return;
        }
        match path.split_first() {
            None if whole => self.take_whole(),
            None => {}
            Some((Step::Name(name), rest)) => {
                self.names.entry(name.clone()).or_default().add(rest, whole);
            }
            Some((Step::Any, rest)) => {
                let any = self.any.get_or_insert_default();
                any.add(rest, whole);
                if any.whole {
                    self.take_whole();
                }
            }
        }
    }

    /// Adds all that `other` needs.
    pub fn merge(&mut self, other: &Need) {
        if self.whole {
            return;
        }
        if other.whole {
            return self.take_whole();
        }
        for (name, need) in &other.names {
            self.names.entry(name.clone()).or_default().merge(need);
        }
        if let Some(any) = &other.any {
            self.any.get_or_insert_default().merge(any);
        }
        if self.any.as_ref().is_some_and(|any| any.whole) {
            self.take_whole();
        }
    }

    fn take_whole(&mut self) {
        *self = Need {
            whole: true,
            ..Need::default()
        };
    }

    /// Returns the paths of this tree as text: `a.b` all of b, `a.b?` its kind, `a[].b` the b of
    /// every member or element of a.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.write_paths(&mut String::new(), &mut paths);
        paths
    }

    fn write_paths(&self, prefix: &mut String, paths: &mut Vec<String>) {
        if self.whole {
            return paths.push(prefix.clone());
        }
        if self.names.is_empty() && self.any.is_none() {
            if !prefix.is_empty() {
                paths.push(format!("{prefix}?"));
            }
            return;
        }
        let length = prefix.len();
        for (name, need) in &self.names {
            push_name(prefix, name);
            need.write_paths(prefix, paths);
            prefix.truncate(length);
        }
        if let Some(any) = &self.any {
            prefix.push_str("[]");
            any.write_paths(prefix, paths);
            prefix.truncate(length);
        }
    }
}

fn push_name(prefix: &mut String, name: &str) {
    let plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == '-');
    if plain {
        if !prefix.is_empty() {
            prefix.push('.');
        }
        prefix.push_str(name);
    } else {
        prefix.push_str(&format!("[{}]", serde_json::Value::from(name)));
    }
}

/// Returns the number of an array's element that `name` names, if it is such a name: `"0"`, `"1"`,
/// … but not `"01"`.
pub(crate) fn array_index(name: &str) -> Option<u32> {
    let canonical =
        name == "0" || (!name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit()));
    if !canonical {
        return None;
    }
    name.parse().ok().filter(|&index| index != u32::MAX)
}
