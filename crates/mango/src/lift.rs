//! Lifting the members that a query names out of a document's text, in one pass that skips everything else.

use document::json::skip;

use crate::json::{Kind, Members, is_name};
use crate::path::FieldPath;

/// A document as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// The underscore members as JSON text without braces, as `"_id":"a","_rev":"1-x"`. Empty when they are in `body`.
    pub members: &'a [u8],
    /// The rest: a compact JSON object without duplicate members.
    pub body: &'a [u8],
}

impl<'a> Doc<'a> {
    /// A document whose text holds its underscore members too.
    pub fn whole(text: &'a [u8]) -> Doc<'a> {
        Doc {
            members: &[],
            body: text,
        }
    }
}

/// What stands at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A value's text.
    Value(&'a [u8]),
    /// The last object on the way has no such member.
    Missing,
    /// The way leads through a value that has no members, or past the end of an array. CouchDB holds this to be neither
    /// present nor absent: not even `$exists: false` matches.
    NoWay,
}

/// A [`Found`] by positions, so that a buffer of them can be used for many documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Slot {
    #[default]
    Missing,
    NoWay,
    Members(u32, u32),
    Body(u32, u32),
}

impl Slot {
    #[inline]
    pub fn of<'a>(self, doc: &Doc<'a>) -> Found<'a> {
        match self {
            Slot::Missing => Found::Missing,
            Slot::NoWay => Found::NoWay,
            Slot::Members(start, end) => Found::Value(&doc.members[start as usize..end as usize]),
            Slot::Body(start, end) => Found::Value(&doc.body[start as usize..end as usize]),
        }
    }
}

/// Fields to be lifted out of many documents.
#[derive(Clone, Debug, Default)]
pub struct Lift {
    lifter: Lifter,
    /// The slot of each field.
    slots: Vec<usize>,
    found: Vec<Slot>,
}

impl Lift {
    /// Of these fields.
    pub fn new(fields: &[FieldPath]) -> Lift {
        let mut lifter = Lifter::default();
        let slots = fields.iter().map(|path| lifter.add(path)).collect();
        Lift {
            lifter,
            slots,
            found: vec![],
        }
    }

    /// What stands at the end of each path, in the order of the fields.
    pub fn of<'a>(&mut self, doc: &'a Doc<'a>) -> impl Iterator<Item = Found<'a>> {
        self.lifter.lift(doc, &mut self.found);
        self.slots.iter().map(|slot| self.found[*slot].of(doc))
    }
}

/// The paths that are lifted; each has a slot, numbered in the order in which it was added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifter {
    paths: Vec<FieldPath>,
    branches: Vec<Branch>,
}

/// A name on a path.
#[derive(Clone, Debug)]
struct Branch {
    name: String,
    /// The name as a position in an array.
    position: Option<usize>,
    slot: Option<usize>,
    below: Vec<Branch>,
}

impl Lifter {
    /// The slot of a path, which is added when it is new.
    pub fn add(&mut self, path: &FieldPath) -> usize {
        if let Some(slot) = self.paths.iter().position(|p| p == path) {
            return slot;
        }
        let slot = self.paths.len();
        self.paths.push(path.clone());
        let mut branches = &mut self.branches;
        for (i, name) in path.parts().iter().enumerate() {
            let at = match branches.iter().position(|b| b.name == *name) {
                Some(at) => at,
                None => {
                    branches.push(Branch {
                        name: name.clone(),
                        position: name.parse().ok(),
                        slot: None,
                        below: vec![],
                    });
                    branches.len() - 1
                }
            };
            let branch = &mut branches[at];
            if i + 1 == path.parts().len() {
                branch.slot = Some(slot);
            }
            branches = &mut branch.below;
        }
        slot
    }

    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// Fills `slots`, one for each path.
    pub fn lift(&self, doc: &Doc<'_>, slots: &mut Vec<Slot>) {
        slots.clear();
        slots.resize(self.paths.len(), Slot::Missing);
        let own = |b: &&Branch| b.name.starts_with('_') && !doc.members.is_empty();
        let (members, body) = (
            self.branches.iter().filter(own).count(),
            self.branches.iter().filter(|b| !own(b)).count(),
        );
        if members > 0 {
            Pass {
                text: doc.members,
                slot: Slot::Members,
                slots,
            }
            .members(Members::of(doc.members), &self.branches, members);
        }
        if body > 0 {
            Pass {
                text: doc.body,
                slot: Slot::Body,
                slots,
            }
            .members(Members::of(doc.body), &self.branches, body);
        }
    }
}

struct Pass<'a, 's> {
    text: &'a [u8],
    slot: fn(u32, u32) -> Slot,
    slots: &'s mut Vec<Slot>,
}

impl Pass<'_, '_> {
    /// Looks for up to `wanted` of the branches; answers the position behind the object when it was read to its end.
    fn members(
        &mut self,
        mut members: Members<'_>,
        branches: &[Branch],
        mut wanted: usize,
    ) -> Option<usize> {
        loop {
            let Some((name, value)) = members.name() else {
                return Some(members.end() + 1);
            };
            let end = match branches.iter().find(|b| is_name(name, &b.name)) {
                None => skip::value(self.text, value)?,
                Some(branch) => {
                    wanted -= 1;
                    let end = self.value(branch, value, wanted == 0)?;
                    if wanted == 0 {
                        return None;
                    }
                    end
                }
            };
            if !members.go_on(end) {
                return Some(members.end());
            }
        }
    }

    /// Takes what the branch wants of the value at `pos`; answers the value's end, unless it is the last that is looked at.
    fn value(&mut self, branch: &Branch, pos: usize, last: bool) -> Option<usize> {
        if branch.below.is_empty() {
            let end = skip::value(self.text, pos)?;
            self.take(branch, pos, end);
            return Some(end);
        }
        match Kind::of(self.text.get(pos..)?) {
            Kind::Object => {
                let members = Members::from(self.text, pos + 1);
                self.members(members, &branch.below, branch.below.len());
            }
            Kind::Array => self.array(&branch.below, pos)?,
            _ => self.no_way(&branch.below),
        }
        if last && branch.slot.is_none() {
            return Some(pos);
        }
        let end = skip::value(self.text, pos)?;
        self.take(branch, pos, end);
        Some(end)
    }

    fn array(&mut self, branches: &[Branch], pos: usize) -> Option<()> {
        self.no_way(branches);
        let highest = branches.iter().filter_map(|b| b.position).max();
        let Some(highest) = highest else {
            return Some(());
        };
        let mut at = pos + 1;
        if *self.text.get(at)? == b']' {
            return Some(());
        }
        for n in 0..=highest {
            let end = skip::value(self.text, at)?;
            // Several names may be one position, as `1` and `01`.
            for branch in branches.iter().filter(|b| b.position == Some(n)) {
                self.missing(branch);
                self.value(branch, at, false)?;
            }
            if *self.text.get(end)? != b',' {
                break;
            }
            at = end + 1;
        }
        Some(())
    }

    fn take(&mut self, branch: &Branch, start: usize, end: usize) {
        if let Some(slot) = branch.slot {
            self.slots[slot] = (self.slot)(start as u32, end as u32);
        }
    }

    fn no_way(&mut self, branches: &[Branch]) {
        self.set(branches, Slot::NoWay);
    }

    fn missing(&mut self, branch: &Branch) {
        self.set(std::slice::from_ref(branch), Slot::Missing);
    }

    fn set(&mut self, branches: &[Branch], to: Slot) {
        for branch in branches {
            if let Some(slot) = branch.slot {
                self.slots[slot] = to;
            }
            self.set(&branch.below, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str], doc: &Doc<'_>) -> Vec<String> {
        let mut lifter = Lifter::default();
        for name in names {
            lifter.add(&FieldPath::parse(name).unwrap());
        }
        let mut slots = vec![];
        lifter.lift(doc, &mut slots);
        let text = |s: &Slot| match s.of(doc) {
            Found::Value(v) => String::from_utf8_lossy(v).into_owned(),
            Found::Missing => "missing".to_owned(),
            Found::NoWay => "no way".to_owned(),
        };
        slots.iter().map(text).collect()
    }

    #[test]
    fn each_path_gets_what_a_walk_finds() {
        let doc = Doc {
            members: br#""_id":"x","_rev":"1-a""#,
            body: br#"{"s":"x","list":[{"k":1},[7]],"o":{"a":{"b":2},"c":3},"z":null}"#,
        };
        let names = [
            "_id", "s", "s.x", "list", "list.0.k", "list.0.z", "list.1.0", "list.2", "list.k",
            "o.a", "o.a.b", "o.c", "o.q", "z", "q.r", "_rev", "_q",
        ];
        let expected = [
            "\"x\"",
            "\"x\"",
            "no way",
            r#"[{"k":1},[7]]"#,
            "1",
            "missing",
            "7",
            "no way",
            "no way",
            r#"{"b":2}"#,
            "2",
            "3",
            "missing",
            "null",
            "missing",
            "\"1-a\"",
            "missing",
        ];
        assert_eq!(found(&names, &doc), expected);
        for (name, expected) in names.iter().zip(expected) {
            assert_eq!(found(&[name], &doc), [expected], "{name}");
        }
    }

    #[test]
    fn underscore_members_may_be_in_the_text_itself() {
        let doc = Doc::whole(br#"{"_id":"x","a":1}"#);
        assert_eq!(found(&["a", "_id"], &doc), ["1", "\"x\""]);
    }

    #[test]
    fn empty_containers_and_cut_texts_have_nothing_in_them() {
        assert_eq!(found(&["a"], &Doc::whole(b"{}")), ["missing"]);
        assert_eq!(found(&["a.0"], &Doc::whole(br#"{"a":[]}"#)), ["no way"]);
        for text in ["", "{", "{\"a", "{\"a\":", "{\"a\":[", "{\"a\":{\"b\""] {
            found(&["a", "a.b", "a.0"], &Doc::whole(text.as_bytes()));
        }
    }
}
