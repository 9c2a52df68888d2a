//! Extracts the members that a query names from a document's text, in one pass that skips
//! everything else.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use document::json::skip;

use crate::error::SelectorError;
use crate::json::{Kind, MemberIter, is_name, name_text};
use crate::path::FieldPath;

/// A stored document.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// The underscore members as JSON text without braces, as in `"_id":"a","_rev":"1-x"`. Empty
    /// when they are in `body`.
    pub members: &'a [u8],
    /// The rest: a compact JSON object without duplicate members.
    pub body: &'a [u8],
}

impl<'a> Doc<'a> {
    /// Wraps a document whose text contains its underscore members too.
    pub fn whole(text: &'a [u8]) -> Doc<'a> {
        Doc {
            members: &[],
            body: text,
        }
    }

    /// Returns the text of the whole document.
    pub(crate) fn text(&self) -> Cow<'a, [u8]> {
        match self.body.strip_prefix(b"{") {
            Some(rest) if !self.members.is_empty() => {
                let comma: &[u8] = if rest == b"}" { b"" } else { b"," };
                [b"{", self.members, comma, rest].concat().into()
            }
            _ => self.body.into(),
        }
    }
}

/// The value at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LiftedValue<'a> {
    /// A value's text.
    Value(&'a [u8]),
    /// The last object of the path has no such member.
    Missing,
    /// The path leads through a value without members, or past the end of an array. To CouchDB this
    /// is neither present nor absent: not even `$exists: false` matches.
    NoWay,
}

/// A [`LiftedValue`] as positions, so that a buffer of them can be reused for many documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum FoundSpan {
    #[default]
    Missing,
    NoWay,
    Members(u32, u32),
    Body(u32, u32),
}

impl FoundSpan {
    #[inline]
    pub fn of<'a>(self, doc: &Doc<'a>) -> LiftedValue<'a> {
        match self {
            FoundSpan::Missing => LiftedValue::Missing,
            FoundSpan::NoWay => LiftedValue::NoWay,
            FoundSpan::Members(start, end) => {
                LiftedValue::Value(&doc.members[start as usize..end as usize])
            }
            FoundSpan::Body(start, end) => {
                LiftedValue::Value(&doc.body[start as usize..end as usize])
            }
        }
    }
}

/// Extracts fields from many documents.
#[derive(Clone, Debug, Default)]
pub struct Lift {
    lifter: Lifter,
    /// The span of each field.
    spans: Vec<usize>,
    found: Vec<FoundSpan>,
}

impl Lift {
    /// Extracts these fields.
    pub fn new(fields: &[FieldPath]) -> Lift {
        let mut lifter = Lifter::default();
        let spans = fields.iter().map(|path| lifter.add(path)).collect();
        Lift {
            lifter,
            spans,
            found: vec![],
        }
    }

    /// Returns the value at the end of each path, in the order of the fields.
    pub fn of<'a>(&mut self, doc: &'a Doc<'a>) -> impl Iterator<Item = LiftedValue<'a>> {
        self.lifter.lift(doc, &mut self.found);
        self.spans.iter().map(|span| self.found[*span].of(doc))
    }
}

/// The paths to extract; each has a span, numbered in the order of addition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifter {
    paths: Vec<FieldPath>,
    spans: HashMap<FieldPath, usize>,
    branches: Branches,
    /// Parts of all paths in total.
    parts: usize,
    /// They begin at elements, which may be arrays.
    is_of_elements: bool,
}

/// A member that starts with an underscore, and is stored in the body all the same.
const ACCESS: &str = "_access";

/// Names to look for in one object or array.
#[derive(Clone, Debug, Default)]
struct Branches {
    all: Vec<Branch>,
    /// The index of each name, when there are more than a few.
    by_name: HashMap<Box<[u8]>, usize>,
    /// Names that are array positions, with the positions, in order. Several names may be one
    /// position, such as `1` and `01`.
    positions: BTreeSet<(usize, usize)>,
    /// Number of names that start with `_`, without [`ACCESS`].
    own: usize,
}

/// A name on a path.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub name: Box<str>,
    /// The span of a path that ends here.
    pub span: Option<usize>,
    below: Branches,
}

impl Branch {
    /// Returns the names on the paths that continue.
    pub fn below(&self) -> &[Branch] {
        &self.below.all
    }
}

/// More names than this are looked up by their hash.
const COMPARED_NAMES_MAX: usize = 8;

impl Branches {
    fn position(&self, name: &str) -> Option<usize> {
        if self.by_name.is_empty() {
            return self.all.iter().position(|b| *b.name == *name);
        }
        self.by_name.get(name.as_bytes()).copied()
    }

    /// Returns the branch of a name, given as it is written.
    #[inline]
    fn find(&self, written: &[u8]) -> Option<&Branch> {
        if self.by_name.is_empty() {
            return self.all.iter().find(|b| is_name(written, &b.name));
        }
        let at = match written.contains(&b'\\') {
            true => self.by_name.get(name_text(written)?.as_bytes()),
            false => self.by_name.get(written),
        };
        at.map(|at| &self.all[*at])
    }

    /// Returns the branch of a name, which is added if it is new, and whether the same array position
    /// had a name before.
    fn add(&mut self, name: &str) -> (&mut Branch, bool) {
        let mut is_alias = false;
        let at = self.position(name).unwrap_or_else(|| {
            let at = self.all.len();
            self.all.push(Branch {
                name: name.into(),
                span: None,
                below: Branches::default(),
            });
            self.own += usize::from(name.starts_with('_') && name != ACCESS);
            if let Ok(position) = name.parse::<usize>() {
                let same = (position, 0)..=(position, usize::MAX);
                is_alias = self.positions.range(same).next().is_some();
                self.positions.insert((position, at));
            }
            if self.all.len() > COMPARED_NAMES_MAX {
                let new = self.by_name.len();
                let names = self.all.iter().enumerate().skip(new);
                self.by_name
                    .extend(names.map(|(at, b)| (b.name.as_bytes().into(), at)));
            }
            at
        });
        (&mut self.all[at], is_alias)
    }
}

/// Maximum number of parts of all paths of a selector, of `fields` or of an aggregate.
const PARTS_MAX: usize = 1 << 16;
/// Another name of an array position, such as `01` besides `1`, counts as this number of parts:
/// the element is read again for each.
const PARTS_OF_ALIAS: usize = 1 << 11;
/// Memory of a part of a path, about, in bytes.
const PART_BYTES: usize = 600;

impl Lifter {
    /// Returns the span of a path from a client.
    ///
    /// # Errors
    /// [`SelectorError::TooManyParts`] beyond [`PARTS_MAX`].
    pub fn try_add(&mut self, path: &FieldPath) -> Result<usize, SelectorError> {
        let span = self.add(path);
        match self.parts > PARTS_MAX {
            true => Err(SelectorError::TooManyParts(PARTS_MAX)),
            false => Ok(span),
        }
    }

    /// Returns the span of a path, which is added if it is new.
    pub fn add(&mut self, path: &FieldPath) -> usize {
        if let Some(span) = self.spans.get(path) {
            return *span;
        }
        let span = self.paths.len();
        self.paths.push(path.clone());
        self.spans.insert(path.clone(), span);
        self.parts += path.parts().len();
        let mut branches = &mut self.branches;
        let last = path.parts().len() - 1;
        for (i, name) in path.parts().enumerate() {
            let (branch, is_alias) = branches.add(name);
            // A document is an object.
            if is_alias && (i > 0 || self.is_of_elements) {
                self.parts += PARTS_OF_ALIAS;
            }
            if i == last {
                branch.span = Some(span);
            }
            branches = &mut branch.below;
        }
        span
    }

    /// Returns a lifter for other values, whose paths count together with these.
    pub fn of_elements(&self) -> Lifter {
        Lifter {
            parts: self.parts,
            is_of_elements: true,
            ..Lifter::default()
        }
    }

    /// Counts the paths of a lifter that was made by [`Lifter::of_elements`].
    pub fn count(&mut self, other: &Lifter) {
        self.parts = other.parts;
    }

    /// Returns how much memory it takes with those that were counted, about, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.parts * PART_BYTES
    }

    /// Returns the first names of the paths, in the order of addition.
    pub fn branches(&self) -> &[Branch] {
        &self.branches.all
    }

    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// Fills `spans`, one for each path.
    pub fn lift(&self, doc: &Doc<'_>, spans: &mut Vec<FoundSpan>) {
        spans.clear();
        spans.resize(self.paths.len(), FoundSpan::Missing);
        let members = match doc.members.is_empty() {
            true => 0,
            false => self.branches.own,
        };
        let body = self.branches.all.len() - members;
        if members > 0 {
            Pass {
                text: doc.members,
                span: FoundSpan::Members,
                spans,
                set_count: 0,
            }
            .members(MemberIter::of(doc.members), &self.branches, members);
        }
        if body > 0 {
            Pass {
                text: doc.body,
                span: FoundSpan::Body,
                spans,
                set_count: 0,
            }
            .members(MemberIter::of(doc.body), &self.branches, body);
        }
    }
}

impl Lifter {
    /// Fills `spans`, one for each path, with the spans of a value of any kind, which is the body of
    /// a [`Doc`]. Returns how many spans and branches were set for that: even a short value sets
    /// those of all paths.
    pub fn lift_value(&self, value: &[u8], spans: &mut Vec<FoundSpan>) -> usize {
        spans.clear();
        spans.resize(self.paths.len(), FoundSpan::Missing);
        if self.paths.is_empty() {
            return 0;
        }
        let all = &self.branches;
        let mut pass = Pass {
            text: value,
            span: FoundSpan::Body,
            spans,
            set_count: self.paths.len(),
        };
        match Kind::of(value) {
            Kind::Object => {
                pass.members(MemberIter::of(value), all, all.all.len());
            }
            Kind::Array => {
                pass.array(all, 0);
            }
            _ => pass.no_way(&all.all),
        }
        pass.set_count
    }
}

struct Pass<'a, 's> {
    text: &'a [u8],
    span: fn(u32, u32) -> FoundSpan,
    spans: &'s mut Vec<FoundSpan>,
    /// Number of spans and branches that were set.
    set_count: usize,
}

impl Pass<'_, '_> {
    /// Looks for up to `wanted` of the branches; returns the position after the object if it was
    /// read to its end.
    fn members(
        &mut self,
        mut members: MemberIter<'_>,
        branches: &Branches,
        mut wanted: usize,
    ) -> Option<usize> {
        loop {
            let Some((name, value)) = members.name() else {
                return Some(members.end() + 1);
            };
            let end = match branches.find(name) {
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

    /// Records the value at `pos` for the branch; returns the value's end, unless it is the last to
    /// be read.
    fn value(&mut self, branch: &Branch, pos: usize, last: bool) -> Option<usize> {
        if branch.below.all.is_empty() {
            let end = skip::value(self.text, pos)?;
            self.take(branch, pos, end);
            return Some(end);
        }
        match Kind::of(self.text.get(pos..)?) {
            Kind::Object => {
                let members = MemberIter::from(self.text, pos + 1);
                self.members(members, &branch.below, branch.below.all.len());
            }
            Kind::Array => self.array(&branch.below, pos)?,
            _ => self.no_way(&branch.below.all),
        }
        if last && branch.span.is_none() {
            return Some(pos);
        }
        let end = skip::value(self.text, pos)?;
        self.take(branch, pos, end);
        Some(end)
    }

    fn array(&mut self, branches: &Branches, pos: usize) -> Option<()> {
        self.no_way(&branches.all);
        let mut at = pos + 1;
        if branches.positions.is_empty() || *self.text.get(at)? == b']' {
            return Some(());
        }
        let mut n = 0;
        for (position, branch) in &branches.positions {
            while n < *position {
                let end = skip::value(self.text, at)?;
                if *self.text.get(end)? != b',' {
                    return Some(());
                }
                at = end + 1;
                n += 1;
            }
            let branch = &branches.all[*branch];
            self.missing(branch);
            self.value(branch, at, false)?;
        }
        Some(())
    }

    fn take(&mut self, branch: &Branch, start: usize, end: usize) {
        if let Some(span) = branch.span {
            self.spans[span] = (self.span)(start as u32, end as u32);
        }
    }

    fn no_way(&mut self, branches: &[Branch]) {
        self.set(branches, FoundSpan::NoWay);
    }

    fn missing(&mut self, branch: &Branch) {
        self.set(std::slice::from_ref(branch), FoundSpan::Missing);
    }

    fn set(&mut self, branches: &[Branch], to: FoundSpan) {
        self.set_count += branches.len();
        for branch in branches {
            if let Some(span) = branch.span {
                self.spans[span] = to;
            }
            self.set(&branch.below.all, to);
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
        let mut spans = vec![];
        lifter.lift(doc, &mut spans);
        let text = |s: &FoundSpan| match s.of(doc) {
            LiftedValue::Value(v) => String::from_utf8_lossy(v).into_owned(),
            LiftedValue::Missing => "missing".to_owned(),
            LiftedValue::NoWay => "no way".to_owned(),
        };
        spans.iter().map(text).collect()
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
    fn an_element_of_any_kind_has_fields_as_a_document_has() {
        let found = |value: &str| {
            let mut lifter = Lifter::default();
            for name in ["k", "0", "1.k", "_id"] {
                lifter.add(&FieldPath::parse(name).unwrap());
            }
            let mut spans = vec![];
            lifter.lift_value(value.as_bytes(), &mut spans);
            let doc = Doc::whole(value.as_bytes());
            spans
                .iter()
                .map(|span| format!("{:?}", span.of(&doc)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let value = |text: &str| format!("{:?}", LiftedValue::Value(text.as_bytes()));
        assert_eq!(
            found(r#"{"k":1,"_id":2}"#),
            format!("{} Missing Missing {}", value("1"), value("2"))
        );
        assert_eq!(
            found(r#"[5,{"k":6}]"#),
            format!("NoWay {} {} NoWay", value("5"), value("6"))
        );
        assert_eq!(found("[[]]"), format!("NoWay {} NoWay NoWay", value("[]")));
        for scalar in ["7", "\"x\"", "null", "[]"] {
            assert_eq!(found(scalar), "NoWay NoWay NoWay NoWay", "{scalar}");
        }
        assert_eq!(found("{}"), "Missing Missing Missing Missing");
    }

    #[test]
    fn many_paths_are_found_as_few_are() {
        let members: Vec<String> = (0..40)
            .map(|n| format!(r#""m\n{n}":[{n},{{"k":{n}}}]"#))
            .collect();
        let text = format!("{{{}}}", members.join(","));
        let doc = Doc::whole(text.as_bytes());
        let names: Vec<String> = (0..60)
            .flat_map(|n| ["0", "1.k", "1.z", "7", "k"].map(|end| format!("m\n{n}.{end}")))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = found(&names, &doc);
        for (name, all) in names.iter().zip(all) {
            assert_eq!(found(&[name], &doc), [all], "{name}");
        }
        let array: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let text = format!(r#"{{"a":[{}]}}"#, array.join(","));
        let names: Vec<String> = (0..40).map(|n| format!("a.{}", 39 - n)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let expected = (0..40).map(|n| match 39 - n {
            n @ 0..30 => n.to_string(),
            _ => "no way".to_owned(),
        });
        let all = found(&names, &Doc::whole(text.as_bytes()));
        assert_eq!(all, expected.collect::<Vec<_>>());
        assert_eq!(
            found(&["a.1", "a.01"], &Doc::whole(text.as_bytes())),
            ["1", "1"]
        );
    }

    #[test]
    fn an_array_position_has_a_few_names() {
        let added = |count: usize, name: &dyn Fn(usize) -> String| {
            let mut lifter = Lifter::default();
            let paths = (0..count).map(|n| FieldPath::parse(&name(n)).unwrap());
            let mut added = paths.map(|path| lifter.try_add(&path));
            added.find_map(Result::err)
        };
        let too_many = Some(SelectorError::TooManyParts(PARTS_MAX));
        let zeros = |n: usize| format!("a.{}1.k", "0".repeat(n));
        assert_eq!(added(20, &zeros), None);
        assert_eq!(added(40, &zeros), too_many);
        let nested = |n: usize| format!("a.{}1.{}1", "0".repeat(n / 8), "0".repeat(n % 8));
        assert_eq!(added(64, &nested), too_many);
        // Names of members may begin with zeros.
        assert_eq!(added(1000, &|n| format!("a.{n:06}.k")), None);
        assert_eq!(added(1000, &|n| format!("a.1.k{n}")), None);
    }

    #[test]
    fn underscore_members_may_be_in_the_text_itself() {
        let doc = Doc::whole(br#"{"_id":"x","a":1}"#);
        assert_eq!(found(&["a", "_id"], &doc), ["1", "\"x\""]);
    }

    #[test]
    fn access_is_a_member_of_the_body() {
        let doc = Doc {
            members: br#""_id":"x","_rev":"1-a""#,
            body: br#"{"_access":["a"],"b":1}"#,
        };
        let values = found(&["_id", "_access", "b", "_rev"], &doc);
        assert_eq!(values, ["\"x\"", "[\"a\"]", "1", "\"1-a\""]);
        assert_eq!(found(&["_access.0"], &doc), ["\"a\""]);
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
