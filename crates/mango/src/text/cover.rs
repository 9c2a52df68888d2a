//! Converts a selector to an index query that finds every matching document, and perhaps others,
//! since each hit is tested against the selector.
//!
//! A value of one type does not find fields of another, though selectors compare all types: the
//! same as in CouchDB.

use std::collections::HashSet;

use super::path::{Effort, Path};
use super::{
    ELEMENTS, NAME_BYTES_MAX, TextDefinition, defined_name, field_name, number_of, path_name,
    whole_array,
};
use crate::condition::{Condition, Relation};
use crate::json::{Elements, Kind, members, string};
use crate::path::FieldPath;
use crate::selector::{Selector, SelectorNode, TextNode};

/// A condition on hits.
#[derive(Clone, Debug, PartialEq)]
pub enum HitCondition {
    /// The exact word of a field.
    Word(String, String),
    /// A word of a field with this prefix.
    Prefix(String, String),
    /// A number of a field between two inclusive bounds, either of which may be absent.
    Number(String, Option<f64>, Option<f64>),
    /// Words of a text, in Lucene's syntax.
    Text(String),
    /// All of these.
    All(Vec<HitCondition>),
    /// Any of these; if empty, nothing.
    Any(Vec<HitCondition>),
    /// The first without the second.
    Without(Box<HitCondition>, Box<HitCondition>),
}

impl HitCondition {
    fn depth(&self) -> usize {
        match self {
            HitCondition::All(parts) | HitCondition::Any(parts) => {
                1 + parts.iter().map(HitCondition::depth).max().unwrap_or(0)
            }
            HitCondition::Without(first, second) => 1 + first.depth().max(second.depth()),
            _ => 1,
        }
    }
}

/// How much of a selector an index can find.
#[derive(Clone, Debug, PartialEq)]
pub enum Cover {
    /// It restricts nothing: all documents of the index are examined.
    Everything,
    /// All matching documents satisfy this condition.
    Part(HitCondition),
}

/// Maximum depth of conditions in conditions. The engine builds and reads queries recursively, on
/// threads with little stack.
const DEPTH_MAX: usize = 64;
/// Maximum number of paths in an index of a field with numbers in its path.
const PATHS_MAX: usize = 16;
/// Longer words are not found, in bytes.
pub(super) const WORD_BYTES_MAX: usize = 32_000;
/// Work of a conversion that takes about a millisecond, in bytes.
const LIGHT_WORK_BYTES: usize = 256 << 10;
/// `$text` operators of this length together are analyzed in much less than a millisecond.
const LIGHT_TEXTS_BYTES_MAX: usize = 1 << 10;
/// Integers up to this are distinct as doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

impl Cover {
    /// Returns the index query of a selector.
    #[must_use]
    pub fn of(selector: &Selector, definition: &TextDefinition) -> Cover {
        Cover::within(selector, definition, Effort::new()).0
    }

    /// Returns the index query of a selector that converts in about a millisecond, and whose
    /// `$text` operators are short; `None` otherwise.
    #[must_use]
    pub fn of_light(selector: &Selector, definition: &TextDefinition) -> Option<Cover> {
        if selector.texts_bytes() > LIGHT_TEXTS_BYTES_MAX {
            return None;
        }
        let (cover, is_whole) = Cover::within(selector, definition, Effort::of(LIGHT_WORK_BYTES));
        is_whole.then_some(cover)
    }

    /// Converts a selector with this effort. Also returns whether the effort was enough.
    fn within(selector: &Selector, definition: &TextDefinition, effort: Effort) -> (Cover, bool) {
        let fields = definition.fields.as_ref().map(|fields| {
            let names = fields.iter().map(|(name, kind)| defined_name(name, *kind));
            names.filter_map(Result::ok).collect()
        });
        let reader = Reader {
            fields,
            definition,
            effort,
        };
        let cover = reader.node(&selector.root, &Path::default());
        let is_whole = !reader.effort.is_over();
        let is_deep = |cover: &Cover| match cover {
            Cover::Part(condition) => condition.depth() > DEPTH_MAX,
            Cover::Everything => false,
        };
        let may_lack_texts = !is_whole || reader.effort.clauses_left() == 0 || is_deep(&cover);
        let cover = match may_lack_texts {
            true => Cover::of_texts(selector, definition, cover),
            false => cover,
        };
        (cover, is_whole)
    }

    /// Returns what a selector finds whose conversion is not complete: its required words, or else
    /// the converted part.
    fn of_texts(selector: &Selector, definition: &TextDefinition, converted: Cover) -> Cover {
        let texts = selector.required_texts();
        let mut words: Vec<HitCondition> = texts
            .into_iter()
            .map(|text| words_wanted(text, definition))
            .collect();
        match (words.len(), converted) {
            (1, _) => words.pop().map_or(Cover::Everything, Cover::Part),
            (2.., _) => Cover::Part(HitCondition::All(words)),
            (_, Cover::Part(condition)) if condition.depth() <= DEPTH_MAX => Cover::Part(condition),
            _ => Cover::Everything,
        }
    }

    fn part(self) -> Option<HitCondition> {
        match self {
            Cover::Everything => None,
            Cover::Part(wanted) => Some(wanted),
        }
    }
}

/// Returns the index query of each `$text` in an `$or`, with its number: a document either has its
/// words or matches the other branches, so that the hits have to be queried too.
#[must_use]
pub fn text_nodes_in_or(
    selector: &Selector,
    definition: &TextDefinition,
) -> Vec<(usize, HitCondition)> {
    let texts = selector.text_nodes_in_or().into_iter();
    let wanted = |text: &TextNode| (text.number, words_wanted(text, definition));
    texts.map(wanted).collect()
}

/// Returns the words of a `$text`. An index without the default field has none.
fn words_wanted(text: &TextNode, definition: &TextDefinition) -> HitCondition {
    match definition.has_default {
        true => HitCondition::Text(words_of(&text.operand)),
        false => HitCondition::Any(vec![]),
    }
}

/// Returns the operand of `$text` as text: a number or a boolean as it is written.
fn words_of(operand: &[u8]) -> String {
    let written = || String::from_utf8_lossy(operand);
    string(operand).unwrap_or_else(written).into_owned()
}

struct Reader<'a> {
    /// The fields of the index; `None`: all.
    fields: Option<HashSet<String>>,
    definition: &'a TextDefinition,
    effort: Effort,
}

impl Reader<'_> {
    fn node(&self, node: &SelectorNode, path: &Path) -> Cover {
        if !self.effort.spend(path, 0) {
            return Cover::Everything;
        }
        match node {
            SelectorNode::All(nodes) => self.all(nodes.iter().map(|n| self.node(n, path))),
            // Without parts it matches everything.
            SelectorNode::Any(nodes) if nodes.is_empty() => Cover::Everything,
            SelectorNode::Any(nodes) => self.any(nodes.iter().map(|n| self.node(n, path))),
            SelectorNode::Not(_) | SelectorNode::Everything => Cover::Everything,
            SelectorNode::Field(field, condition) => {
                let Some(paths) = self.paths(&field.path, path) else {
                    return Cover::Everything;
                };
                match paths.as_slice() {
                    [path] => self.condition(condition, path),
                    paths => self.any(paths.iter().map(|path| self.condition(condition, path))),
                }
            }
            // The document as a whole is not in the index.
            SelectorNode::Here(_) if path.is_root() => Cover::Everything,
            SelectorNode::Here(condition) => self.condition(condition, path),
            SelectorNode::Text(text) => self.part(words_wanted(text, self.definition)),
        }
    }

    /// Returns the paths that a field's name stands for; `None`: too many.
    fn paths(&self, field: &FieldPath, above: &Path) -> Option<Vec<Path>> {
        let mut paths = vec![above.clone()];
        for part in field.parts() {
            let is_number = part.parse::<i64>().is_ok();
            if is_number && paths.len() > PATHS_MAX / 2 {
                return None;
            }
            // The name of a member, or the position of an element.
            let elements = paths.iter().filter(|_| is_number).map(Path::elements);
            let elements: Vec<Path> = elements.collect();
            paths.iter_mut().for_each(|path| *path = path.member(part));
            paths.extend(elements);
        }
        Some(paths)
    }

    fn condition(&self, condition: &Condition, path: &Path) -> Cover {
        if !self.effort.spend(path, 0) {
            return Cover::Everything;
        }
        match condition {
            Condition::Is(relation, operand) => self.relation(*relation, &operand.text, path),
            Condition::In(operands) => self.any_of(operands.values(), path),
            Condition::NotIn(operands) => {
                let values: Vec<&[u8]> = operands.values().take(VALUES_MAX + 1).collect();
                let is_exact =
                    values.len() <= VALUES_MAX && values.iter().all(|value| is_exact(value));
                self.without(path, is_exact, || self.any_of(values.into_iter(), path))
            }
            Condition::Exists(true) | Condition::Type(_) | Condition::KeyMapMatch(_) => {
                self.exists(path)
            }
            Condition::Exists(false) | Condition::Not(_) => Cover::Everything,
            Condition::Modulo { .. } => self.has(path, "number"),
            Condition::Regex(_) => self.has(path, "string"),
            Condition::BeginsWith(prefix) => match self.name(path, "string") {
                Some(name)
                    if prefix.len() <= WORD_BYTES_MAX && self.effort.spend(path, prefix.len()) =>
                {
                    self.part(HitCondition::Prefix(name, prefix.clone()))
                }
                _ => self.has(path, "string"),
            },
            Condition::All(literals) => self.all_of(&literals.text, path),
            Condition::Size(size) => self.length(*size as f64, &path.elements()),
            Condition::ElemMatch(below) => self.node(&below.node, &path.elements()),
            // An empty array has no elements that do not match.
            Condition::AllMatch(_) => Cover::Everything,
        }
    }

    /// Converts `$all`.
    fn all_of(&self, array: &[u8], path: &Path) -> Cover {
        let below = path.elements();
        let mut first_two = Elements::of(array);
        match (first_two.next(), first_two.next()) {
            (Some(list), None) if Kind::of(list) == Kind::Array => {
                let both = [path, &below];
                self.any(both.into_iter().map(|path| self.equal(list, path)))
            }
            _ => self.all(Elements::of(array).map(|value| self.equal(value, &below))),
        }
    }

    fn relation(&self, relation: Relation, value: &[u8], path: &Path) -> Cover {
        let kind = Kind::of(value);
        match (relation, kind) {
            (Relation::Equal, _) => self.equal(value, path),
            (Relation::NotEqual, _) => {
                self.without(path, is_exact(value), || self.equal(value, path))
            }
            (_, Kind::Number) => {
                let Some(name) = self.name(path, "number") else {
                    return Cover::Everything;
                };
                let number = number_of(value);
                self.part(match relation {
                    Relation::Less | Relation::LessOrEqual => {
                        HitCondition::Number(name, None, number)
                    }
                    _ => HitCondition::Number(name, number, None),
                })
            }
            // Strings are ordered differently in selectors and in the index.
            (_, Kind::String) => self.has(path, "string"),
            (_, Kind::True | Kind::False) => self.has(path, "boolean"),
            _ => self.exists(path),
        }
    }

    fn equal(&self, value: &[u8], path: &Path) -> Cover {
        if !self.effort.spend(path, value.len()) || path.is_long() {
            return Cover::Everything;
        }
        let word = |kind: &str, word: String| match self.name(path, kind) {
            Some(name) if word.len() <= WORD_BYTES_MAX => self.part(HitCondition::Word(name, word)),
            _ => self.has(path, kind),
        };
        match Kind::of(value) {
            Kind::Null => word("null", "true".to_owned()),
            Kind::True => word("boolean", "true".to_owned()),
            Kind::False => word("boolean", "false".to_owned()),
            Kind::String => word("string", string(value).unwrap_or_default().into_owned()),
            Kind::Number => match self.name(path, "number") {
                Some(name) => {
                    let number = number_of(value);
                    self.part(HitCondition::Number(name, number, number))
                }
                None => Cover::Everything,
            },
            Kind::Array => {
                let below = path.elements();
                let length = self.length(Elements::of(value).count() as f64, &below);
                let values = Elements::of(value).map(|value| self.equal(value, &below));
                self.all(std::iter::once(length).chain(values))
            }
            Kind::Object => {
                let of_member =
                    |(name, value): (String, &[u8])| self.equal(value, &path.member(&name));
                self.all(members(value).map(of_member))
            }
        }
    }

    fn any_of<'v>(&self, values: impl Iterator<Item = &'v [u8]>, path: &Path) -> Cover {
        let below = path.elements();
        let values: Vec<_> = values.take(VALUES_MAX + 1).collect();
        if values.len() > VALUES_MAX {
            return self.exists(path);
        }
        let both = values.into_iter().map(|value| {
            let both = [path, &below];
            self.any(both.into_iter().map(|path| self.equal(value, path)))
        });
        self.any(both)
    }

    /// Returns the field without some values, if their query is exact. A document has several
    /// elements: one may have the value, and another not.
    fn without(&self, path: &Path, is_exact: bool, values: impl FnOnce() -> Cover) -> Cover {
        let exists = self.exists(path);
        if !is_exact || path.parts().contains(&ELEMENTS) {
            return exists;
        }
        let clauses = self.effort.clauses_left();
        match (exists, values()) {
            (Cover::Part(exists), Cover::Part(values)) => {
                Cover::Part(HitCondition::Without(Box::new(exists), Box::new(values)))
            }
            (exists, _) => {
                self.effort.drop_clauses(clauses);
                exists
            }
        }
    }

    fn exists(&self, path: &Path) -> Cover {
        if self.fields.is_some() || is_made_when_read(path) || path.is_long() {
            // The field may exist with a type that is not in the index.
            return Cover::Everything;
        }
        let name = path_name(path.parts().into_iter());
        if name.len() + FIELD_END.len() > NAME_BYTES_MAX {
            return Cover::Everything;
        }
        let begins = |rest: &str| {
            let prefix = format!("{name}{rest}");
            self.part(HitCondition::Prefix("$fieldnames".to_owned(), prefix))
        };
        self.any([FIELD_END, "."].into_iter().map(begins))
    }

    fn has(&self, path: &Path, kind: &str) -> Cover {
        match self.name(path, kind) {
            Some(name) => self.part(HitCondition::Word("$fieldnames".to_owned(), name)),
            None => Cover::Everything,
        }
    }

    fn length(&self, length: f64, path: &Path) -> Cover {
        if !self.definition.array_lengths || path.is_long() {
            return Cover::Everything;
        }
        let name = field_name(path.parts().into_iter(), "length");
        match name.len() > NAME_BYTES_MAX {
            true => Cover::Everything,
            false => self.part(HitCondition::Number(name, Some(length), Some(length))),
        }
    }

    /// Returns the field of the index; `None`: it is not in it.
    fn name(&self, path: &Path, kind: &str) -> Option<String> {
        if is_made_when_read(path) || path.is_long() {
            return None;
        }
        let parts = path.parts();
        let name = field_name(parts.iter().copied(), kind);
        let is_there = self.fields.as_ref().is_none_or(|fields| {
            let whole = whole_array(&parts).iter().copied();
            fields.contains(&name) || fields.contains(&field_name(whole, kind))
        });
        (is_there && name.len() <= NAME_BYTES_MAX).then_some(name)
    }

    /// Returns a condition, unless the query has too many clauses already.
    fn part(&self, condition: HitCondition) -> Cover {
        match self.effort.clause() {
            true => Cover::Part(condition),
            false => Cover::Everything,
        }
    }

    /// Returns the documents that all parts cover, or of too many parts the first ones.
    fn all(&self, parts: impl Iterator<Item = Cover>) -> Cover {
        let parts = parts.take_while(|_| !self.effort.is_over());
        let mut wanted: Vec<HitCondition> = vec![];
        for part in parts.filter_map(Cover::part) {
            match part {
                // Arrays in arrays are one list of conditions.
                HitCondition::All(parts) => wanted.extend(parts),
                part => wanted.push(part),
            }
        }
        match (wanted.len(), wanted.pop()) {
            (_, None) => Cover::Everything,
            (1, Some(only)) => Cover::Part(only),
            (_, Some(last)) => {
                wanted.push(last);
                Cover::Part(HitCondition::All(wanted))
            }
        }
    }

    /// Returns the documents that any part covers.
    fn any(&self, parts: impl Iterator<Item = Cover>) -> Cover {
        let clauses = self.effort.clauses_left();
        let wanted: Option<Vec<HitCondition>> = parts.map(Cover::part).collect();
        match wanted {
            Some(wanted) => Cover::Part(HitCondition::Any(wanted)),
            None => {
                self.effort.drop_clauses(clauses);
                Cover::Everything
            }
        }
    }
}

/// The text between the name of a field and its type.
const FIELD_END: &str = "_3a";

/// For more values the query is for documents that have the field: a query has a limited number of
/// clauses, two a value.
const VALUES_MAX: usize = 256;

/// Returns whether the member is only added when the document is read, like `_conflicts`: it is in
/// no index.
fn is_made_when_read(path: &Path) -> bool {
    let parts = path.parts();
    let first = parts.first().copied().unwrap_or_default();
    first.starts_with('_') && !["_id", "_rev", "_attachments"].contains(&first)
}

/// Returns whether a query of the value finds nothing else.
fn is_exact(value: &[u8]) -> bool {
    match Kind::of(value) {
        Kind::Null | Kind::True | Kind::False => true,
        Kind::String => value.len() <= WORD_BYTES_MAX,
        Kind::Number => {
            let is_short = value.len() <= 15 && !value.contains(&b'.');
            is_short && number_of(value).is_some_and(|n| n.abs() <= EXACT_MAX)
        }
        Kind::Array | Kind::Object => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::text::TextKind;
    use serde_json::{Value, json};

    fn cover(definition: Value, selector: Value) -> Cover {
        let definition = crate::json::text_of(&definition);
        let definition =
            TextDefinition::read(TextKind::Text, &definition, &Limits::default()).unwrap();
        Cover::of(&Selector::parse(&selector).unwrap(), &definition)
    }

    fn word(name: &str, word: &str) -> HitCondition {
        HitCondition::Word(name.into(), word.into())
    }

    #[test]
    fn what_an_index_of_fields_does_not_have_restricts_nothing() {
        let some = json!({"fields": [{"name": "a", "type": "string"}]});
        assert_eq!(
            cover(some.clone(), json!({"a": "x", "b": 1})),
            Cover::Part(word("a_3astring", "x"))
        );
        assert_eq!(cover(some.clone(), json!({"b": 1})), Cover::Everything);
        assert_eq!(
            cover(some.clone(), json!({"$or": [{"a": "x"}, {"b": 1}]})),
            Cover::Everything
        );
        assert_eq!(
            cover(some, json!({"a": {"$exists": true}})),
            Cover::Everything
        );
    }

    #[test]
    fn only_the_words_of_texts_in_an_or_are_asked_for_twice() {
        let read = |definition: Value, selector: Value| {
            let definition = crate::json::text_of(&definition);
            let definition =
                TextDefinition::read(TextKind::Text, &definition, &Limits::default()).unwrap();
            text_nodes_in_or(&Selector::parse(&selector).unwrap(), &definition)
        };
        let fox = HitCondition::Text("fox".to_owned());
        let in_or =
            json!({"$text": "a", "$or": [{"$and": [{"$text": "fox"}, {"a": 1}]}, {"b": 2}]});
        assert_eq!(read(json!({}), in_or.clone()), [(1, fox.clone())]);
        let nothing = HitCondition::Any(vec![]);
        let without_default = json!({"default_field": {"enabled": false}});
        assert_eq!(read(without_default, in_or), [(1, nothing)]);
        let either = json!({"$or": [{"$text": "fox"}, {"$text": "dog"}]});
        let dog = HitCondition::Text("dog".to_owned());
        assert_eq!(read(json!({}), either), [(0, fox), (1, dog)]);
        for all in [
            json!({"a": 1, "$text": "fox"}),
            json!({"$and": [{"$text": "fox"}, {"$text": "dog"}]}),
            json!({"$or": [{"a": 1}, {"b": 2}]}),
        ] {
            assert!(read(json!({}), all).is_empty());
        }
    }

    /// Hits are tested for everything else.
    #[test]
    fn required_words_are_in_every_query() {
        let branches: Vec<Value> = (0..2000).map(|n| json!({"a": n})).collect();
        let fox = || HitCondition::Text("fox".to_owned());
        let dog = HitCondition::Text("dog".to_owned());
        for (selector, words) in [
            (json!({"$and": branches, "$text": "fox"}), fox()),
            (
                json!({"$and": [{"$and": branches}, {"$text": "fox"}]}),
                fox(),
            ),
            (
                json!({"$and": [{"$and": branches}, {"$or": [{"$text": "fox"}]}]}),
                fox(),
            ),
            (
                json!({"$and": [{"$text": "fox"}, {"$and": branches}, {"$text": "dog"}]}),
                HitCondition::All(vec![fox(), dog]),
            ),
        ] {
            assert_eq!(cover(json!({}), selector), Cover::Part(words));
        }
    }

    #[test]
    fn long_selectors_and_texts_are_not_light() {
        let written = crate::json::text_of(&json!({}));
        let definition =
            TextDefinition::read(TextKind::Text, &written, &Limits::default()).unwrap();
        let values = |count: usize| (0..count).map(|n| json!({"a": n})).collect::<Vec<_>>();
        for (selector, is_light) in [
            (json!({}), true),
            (json!({"$text": "fox", "a": {"$gt": 5}}), true),
            (json!({"$or": values(100)}), true),
            (json!({"$and": values(4000)}), false),
            (json!({"a": "x".repeat(300_000)}), false),
            (json!({"$text": "x".repeat(2000)}), false),
            (
                json!({"$or": vec![json!({"$text": "x".repeat(500)}); 3]}),
                false,
            ),
        ] {
            let selector = Selector::parse(&selector).unwrap();
            let light = Cover::of_light(&selector, &definition);
            assert_eq!(light.is_some(), is_light);
            if let Some(cover) = light {
                assert_eq!(cover, Cover::of(&selector, &definition));
            }
        }
    }

    #[test]
    fn an_index_without_the_default_field_has_no_words() {
        let without_default = json!({"default_field": {"enabled": false}});
        assert_eq!(
            cover(without_default, json!({"$text": "fox"})),
            Cover::Part(HitCondition::Any(vec![]))
        );
    }

    /// Returns how many clauses it has, and the length of the longest name.
    fn size(condition: &HitCondition) -> (usize, usize) {
        let sum = |parts: &[HitCondition]| {
            let sizes = parts.iter().map(size);
            sizes.fold((0, 0), |(a, b), (c, d)| (a + c, b.max(d)))
        };
        match condition {
            HitCondition::Word(name, _) | HitCondition::Number(name, ..) => (1, name.len()),
            HitCondition::Prefix(_, prefix) => (1, prefix.len()),
            HitCondition::Text(_) => (1, 0),
            HitCondition::All(parts) | HitCondition::Any(parts) => sum(parts),
            HitCondition::Without(condition, without) => {
                sum(&[(**condition).clone(), (**without).clone()])
            }
        }
    }

    #[test]
    fn a_few_bytes_of_a_selector_do_not_stand_for_many_clauses_or_long_names() {
        let deep = |depth: usize| (0..depth).fold(json!([1]), |inner, _| json!([inner]));
        let numbers = (0..4).fold(
            json!({"$eq": 1}),
            |inner, _| json!({"$elemMatch": {"0.1.2.3": inner}}),
        );
        let branches: Vec<Value> = (0..2000).map(|n| json!({"a": n})).collect();
        for (selector, is_covered) in [
            // Each element would have the long name.
            (
                json!({"a": {"$eq": {"k".repeat(5000): vec![1; 5000]}}}),
                false,
            ),
            (json!({"a": {"$eq": {"k": vec![1; 5000]}}}), true),
            (json!({"a": deep(900)}), true),
            // Each position is also the name of a member: 16 paths at each of four levels.
            (json!({"a": numbers}), false),
            (json!({"$or": branches}), false),
            (json!({"$and": [{"$or": branches}, {"b": 1}]}), true),
            (json!({"$and": branches}), true),
            (json!({"a": {"$all": vec![json!([1, 2, 3]); 1000]}}), true),
        ] {
            for definition in [
                json!({}),
                json!({"fields": [{"name": "a", "type": "number"}]}),
            ] {
                let found = cover(definition, selector.clone());
                let Cover::Part(condition) = found else {
                    continue;
                };
                let (clauses, name) = size(&condition);
                assert!(clauses <= super::super::CLAUSES_MAX, "{clauses}");
                assert!(name <= NAME_BYTES_MAX, "{name}");
            }
            let found = cover(json!({}), selector.clone());
            let shown: String = selector.to_string().chars().take(80).collect();
            assert_eq!(found != Cover::Everything, is_covered, "{shown}");
        }
    }

    #[test]
    fn values_that_are_not_told_apart_are_not_taken_out() {
        let exists = || {
            let begins = |rest: &str| HitCondition::Prefix("$fieldnames".into(), rest.into());
            HitCondition::Any(vec![begins("a_3a"), begins("a.")])
        };
        assert_eq!(
            cover(json!({}), json!({"a": {"$ne": "x"}})),
            Cover::Part(HitCondition::Without(
                Box::new(exists()),
                Box::new(word("a_3astring", "x"))
            ))
        );
        for selector in [
            json!({"a": {"$ne": 12345678901234567_i64}}),
            json!({"a": {"$ne": [1]}}),
            json!({"a": {"$nin": [[1]]}}),
        ] {
            assert_eq!(
                cover(json!({}), selector.clone()),
                Cover::Part(exists()),
                "{selector}"
            );
        }
        assert_eq!(
            cover(json!({}), json!({"a": {"$not": {"$regex": "x"}}})),
            Cover::Everything
        );
    }
}
