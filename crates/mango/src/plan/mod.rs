//! Chooses the index for a query, by CouchDB's rules, and the part of it to read.

mod explain;
pub mod intervals;
mod range;

pub use explain::Explanation;
pub use intervals::{Intervals, Space, intervals};

use std::cell::OnceCell;
use std::collections::HashSet;

use crate::condition::{Condition, Relation};
use crate::error::FindError;
use crate::index::Index;
use crate::options::Find;
use crate::selector::{Selector, SelectorNode};
use crate::sort::{Direction, Sort};
use crate::text::{Cover, TextDefinition, TextKind, fields_needed};
use range::{
    Range, composite, field_ranges, id_bytes, indexable_fields, is_unsatisfiable, key_bytes,
};

/// The reason why an index cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    FieldMismatch,
    SortOrderMismatch,
    NeedsTextSearch,
    EmptySelector,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::FieldMismatch => "field_mismatch",
            Reason::SortOrderMismatch => "sort_order_mismatch",
            Reason::NeedsTextSearch => "needs_text_search",
            Reason::EmptySelector => "empty_selector",
        }
    }
}

/// A json index by its position in the list, with CouchDB's ranges, and the number of restricted
/// fields that it does not cover.
type Ranked = (usize, Vec<Option<Range>>, usize);

/// The evaluation of all indexes, and the chosen one.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The chosen index, by its position in the list. `None`: none has the sort order.
    pub index: Option<usize>,
    /// The evaluation of each, in the order of the list.
    pub(crate) candidates: Vec<Candidate>,
    /// The usable json indexes, best first.
    pub(crate) ranked: Vec<Ranked>,
    /// CouchDB's ranges of all fields.
    ranges: Vec<(String, Option<Range>)>,
    /// Whether the query reads in descending order.
    pub descending: bool,
}

/// The evaluation of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidate {
    pub partial: bool,
    pub out_of_scope: bool,
    pub unusable: Option<Reason>,
    pub excluded: bool,
    pub unfavored: bool,
}

impl Candidate {
    fn is_usable(&self) -> bool {
        !self.partial && !self.out_of_scope && self.unusable.is_none()
    }
}

/// The way to find the documents of a query.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The values of each field of the index to read; for the index of all documents the ids, as
    /// one field.
    pub columns: Vec<Intervals>,
    /// The bytes between which CouchDB reads, a superset of `columns`: for an index the
    /// concatenated sort keys of the elements of its keys; for all documents the ids.
    pub range: (Vec<u8>, Vec<u8>),
    /// The index's keys contain everything that the selector and `fields` name.
    pub covering: bool,
    /// No document can match: CouchDB then responds with `docs` alone.
    pub nothing: bool,
    /// Whether rows are read in descending order.
    pub descending: bool,
}

/// Chooses among `indexes`, which are in the order of their names, starting with that of all
/// documents.
///
/// # Errors
/// [`FindError::NoFallback`]. That no index has the sort order is not an error here.
pub fn choose(find: &Find, indexes: &[Index]) -> Result<Choice, FindError> {
    choose_of(find, indexes.iter())
}

/// Chooses among a list of references.
///
/// # Errors
/// Errors of [`choose`].
pub fn choose_of<'a>(
    find: &Find,
    indexes: impl Iterator<Item = &'a Index>,
) -> Result<Choice, FindError> {
    let indexes: Vec<&Index> = indexes.collect();
    let asked_for = |index: &Index| is_asked_for(index, &find.use_index);
    let mut candidates = candidates(find, &indexes);
    // Without a name, only a scan is refused.
    let may_fall_back = |candidates: &[Candidate]| {
        let mut all = candidates.iter().zip(&indexes);
        let mut any = || all.any(|(c, index)| c.is_usable() && !index.is_special());
        find.allow_fallback || (find.use_index.is_empty() && any())
    };
    let named = |c: &Candidate, index: &Index| c.is_usable() && asked_for(index);
    let any_named = candidates.iter().zip(&indexes).any(|(c, i)| named(c, i));
    if any_named {
        for (c, index) in candidates.iter_mut().zip(&indexes) {
            c.excluded = c.is_usable() && !asked_for(index);
        }
    } else if !may_fall_back(&candidates) {
        return Err(FindError::NoFallback(no_fallback(&find.use_index)));
    }
    note_unfavored(&mut candidates, &indexes);
    let ranges = field_ranges(&find.selector);
    let ranked = ranked(&candidates, &indexes, &ranges);
    let special = || {
        let mut all = candidates.iter().zip(&indexes);
        all.position(|(c, index)| serves(c) && index.is_special())
    };
    let index = match ranked.first() {
        Some((i, ..)) => Some(*i),
        None => text(find, &candidates, &indexes)?.or_else(special),
    };
    Ok(Choice {
        index,
        candidates,
        ranked,
        ranges,
        descending: find.sort.direction() == Direction::Descending,
    })
}

/// Marks usable indexes that are not of the first type with usable ones.
fn note_unfavored(candidates: &mut [Candidate], indexes: &[&Index]) {
    let rank = |index: &Index| match &index.text {
        None if index.is_special() => 3,
        None => 0,
        Some(text) if text.kind == TextKind::Text => 1,
        Some(_) => 2,
    };
    let all = candidates.iter().zip(indexes);
    let serving = all.filter(|(c, _)| serves(c)).map(|(_, index)| rank(index));
    if let Some(best) = serving.min() {
        for (c, index) in candidates.iter_mut().zip(indexes) {
            c.unfavored = serves(c) && rank(index) > best;
        }
    }
}

/// Returns the usable text index.
fn text(
    find: &Find,
    candidates: &[Candidate],
    indexes: &[&Index],
) -> Result<Option<usize>, FindError> {
    let all = candidates.iter().zip(indexes).enumerate();
    let serving = all.filter(|(_, (c, _))| serves(c) && !c.unfavored);
    let mut texts: Vec<(usize, &TextDefinition)> = serving
        .filter_map(|(i, (_, index))| Some((i, &**index.text.as_ref()?)))
        .collect();
    if texts.len() > 1 && texts.iter().any(|(_, text)| !lacks_documents(text, find)) {
        texts.retain(|(_, text)| !lacks_documents(text, find));
    }
    match texts.as_slice() {
        [(_, text), _, ..] => Err(FindError::SeveralTextIndexes(text.kind)),
        rest => Ok(rest.first().map(|(i, _)| *i)),
    }
}

/// Returns whether documents may match that the index does not contain, since it has only some
/// fields.
fn lacks_documents(text: &TextDefinition, find: &Find) -> bool {
    text.fields.is_some() && Cover::of(&find.selector, text) == Cover::Everything
}

/// Evaluates each index for the query, before they are compared.
fn candidates(find: &Find, indexes: &[&Index]) -> Vec<Candidate> {
    let selector = SelectorFacts::of(&find.selector);
    let candidate = |index: &&Index| {
        let partial = index.definition.partial.is_some() && !is_asked_for(index, &find.use_index);
        let scope = index.is_special() || index.partitioned == find.partition.is_some();
        let mut c = Candidate {
            partial,
            out_of_scope: !partial && !scope,
            ..Candidate::default()
        };
        if !c.partial && !c.out_of_scope {
            c.unusable = match &index.text {
                Some(text) => text_unusable(text, find, &selector),
                None => unusable(index, &selector, &find.sort),
            };
        }
        c
    };
    indexes.iter().map(candidate).collect()
}

/// Returns the usable json indexes, best first.
fn ranked(
    candidates: &[Candidate],
    indexes: &[&Index],
    ranges: &[(String, Option<Range>)],
) -> Vec<Ranked> {
    let mut ranked = vec![];
    for (i, (c, index)) in candidates.iter().zip(indexes).enumerate() {
        if serves(c) && !c.unfavored && index.is_json() {
            let prefix = composite(&index.definition.fields.fields, ranges);
            let left = ranges.len() - prefix.len();
            ranked.push((i, prefix, left));
        }
    }
    ranked.sort_by_key(|(i, _, left)| {
        let index = indexes[*i];
        (*left, index.definition.paths.len(), index.order())
    });
    ranked
}

fn serves(candidate: &Candidate) -> bool {
    candidate.is_usable() && !candidate.excluded
}

impl Choice {
    /// Returns the error of a query without a usable index. `partitioned` is that of the database.
    pub fn no_index(find: &Find, partitioned: bool) -> FindError {
        FindError::NoUsableIndex(match (partitioned, &find.partition) {
            (false, _) => "",
            (true, Some(_)) => "partitioned ",
            (true, None) => "global ",
        })
    }

    /// Returns the part of the chosen index to read.
    pub fn plan(&self, find: &Find, index: &Index) -> Plan {
        let space = if index.is_special() {
            Space::Ids
        } else {
            Space::SortKeys
        };
        let paths = index.definition.paths.iter();
        let columns: Vec<Intervals> = paths
            .map(|path| intervals(&find.selector, path, space))
            .collect();
        let range = match space {
            Space::Ids => id_bytes(self.range_of_ids().and_then(Option::as_ref)),
            Space::SortKeys => key_bytes(self.ranges_of_index()),
        };
        Plan {
            range,
            covering: find.covered_by(index) && !find.conflicts,
            nothing: find.selector.is_empty_combination()
                || self.is_empty(index) && finds_nothing(find, index, &columns),
            columns,
            descending: self.descending,
        }
    }

    /// Returns whether CouchDB's range of the chosen index is empty.
    fn is_empty(&self, index: &Index) -> bool {
        if index.is_special() {
            return self.range_of_ids().is_some_and(Option::is_none);
        }
        matches!(self.ranges_of_index(), [None])
    }

    /// Returns CouchDB's ranges of the leading fields of the chosen index.
    pub(crate) fn ranges_of_index(&self) -> &[Option<Range>] {
        self.ranked.first().map_or(&[], |(_, ranges, _)| ranges)
    }

    /// Returns CouchDB's range of ids, if the selector has one.
    fn range_of_ids(&self) -> Option<&Option<Range>> {
        let ids = self.ranges.iter().find(|(field, _)| field == "_id");
        ids.map(|(_, range)| range)
    }

    /// Returns CouchDB's warnings about the choice of the index.
    pub fn warnings(&self, find: &Find, index: &Index) -> Vec<String> {
        let mut all = vec![];
        if !find.use_index.is_empty() && !is_asked_for(index, &find.use_index) {
            let ddoc = design_name(&find.use_index[0]);
            all.push(match find.use_index.get(1) {
                None => format!(
                    "_design/{ddoc} was not used because it does not contain a valid index for this query."
                ),
                Some(name) => format!(
                    "_design/{ddoc}, {name} was not used because it is not a valid index for this query."
                ),
            });
        }
        if index.is_special() {
            let text = "No matching index found, create an index to optimize query time.";
            all.push(text.to_owned());
        }
        all
    }
}

/// Returns the warning about many documents examined for few results, from `threshold` for each
/// result; 0: never.
pub fn scan_warning(docs_examined: u64, results: u64, threshold: u64) -> Option<&'static str> {
    let high = threshold > 0 && docs_examined > threshold.saturating_mul(results.max(1));
    high.then_some(
        "The number of documents examined is high in proportion to the number of results returned. Consider adding a more specific index to improve this.",
    )
}

impl Find {
    /// Returns whether the keys of an index contain every field that the query names. (`conflicts`
    /// is ignored, as in CouchDB.)
    pub fn covered_by(&self, index: &Index) -> bool {
        if !index.is_json() || self.selector.needs_whole() {
            return false;
        }
        let has = |path: &crate::FieldPath| path.is_id() || index.definition.paths.contains(path);
        let named = match &self.aggregate {
            Some(aggregate) => aggregate.paths(),
            None if self.fields.is_all() => return false,
            None => self.fields.paths(),
        };
        named.iter().all(has) && self.selector.fields().iter().all(has)
    }
}

/// Returns whether CouchDB's empty range is really empty: it is of the index's first field.
fn finds_nothing(find: &Find, index: &Index, columns: &[Intervals]) -> bool {
    columns.first().is_some_and(Intervals::is_none)
        || index
            .definition
            .fields
            .names()
            .next()
            .is_some_and(|field| is_unsatisfiable(&find.selector, field))
}

fn design_name(name: &str) -> &str {
    name.strip_prefix("_design/").unwrap_or(name)
}

fn is_asked_for(index: &Index, use_index: &[String]) -> bool {
    let Some(ddoc) = use_index.first() else {
        return false;
    };
    index.ddoc.as_deref().map(design_name) == Some(design_name(ddoc))
        && use_index.get(1).is_none_or(|name| *name == index.name)
}

fn no_fallback(use_index: &[String]) -> String {
    match use_index {
        [] => "You must specify an index with the `use_index` parameter.".to_owned(),
        [ddoc] => format!(
            "_design/{} specified by `use_index` could not be found or it is not suitable.",
            design_name(ddoc)
        ),
        [ddoc, name, ..] => format!(
            "_design/{}, {name} specified by `use_index` could not be found or it is not suitable.",
            design_name(ddoc)
        ),
    }
}

/// Facts about a selector, for all indexes.
struct SelectorFacts<'a> {
    selector: &'a Selector,
    /// The fields that every matching document has.
    present: HashSet<&'a str>,
    /// To CouchDB every matching document has all fields.
    all_present: bool,
    has_text: bool,
    /// The fields that an index of some fields must have, if it is known.
    fields_needed: OnceCell<Option<Vec<String>>>,
}

impl<'a> SelectorFacts<'a> {
    fn of(selector: &'a Selector) -> Self {
        SelectorFacts {
            selector,
            present: present(&selector.root),
            all_present: has_empty_or(&selector.root) && matches_nothing(&selector.root),
            has_text: selector.has_text(),
            fields_needed: OnceCell::new(),
        }
    }

    /// Returns whether a text index of some fields lacks one that CouchDB requires: those that
    /// values are compared with.
    fn lacks_fields(&self, text: &TextDefinition) -> bool {
        let Some(fields) = &text.fields else {
            return false;
        };
        let needed = self
            .fields_needed
            .get_or_init(|| fields_needed(self.selector));
        let Some(needed) = needed else {
            return true;
        };
        let names = fields.iter();
        let names = names.map(|(name, kind)| format!("{name}:{}", kind.indexed()));
        let names: HashSet<String> = names.collect();
        let has = |field: &String| match field == "$default" {
            true => text.has_default,
            false => names.contains(field),
        };
        !needed.iter().all(has)
    }
}

/// Returns why an index cannot be used for a query, if so.
fn unusable(index: &Index, known: &SelectorFacts<'_>, sort: &Sort) -> Option<Reason> {
    let columns = &index.definition.fields.fields;
    if index.is_special() {
        if sort.fields.is_empty() {
            return None;
        }
        if !indexable_fields(known.selector).contains(&"_id") {
            return Some(Reason::FieldMismatch);
        }
        let ordered = sort.names().eq(["_id"]);
        return (!ordered).then_some(Reason::SortOrderMismatch);
    }
    // Sort fields exist in all results, and so do these two.
    let is_there = |name: &str| {
        known.all_present
            || ["_id", "_rev"].contains(&name)
            || known.present.contains(name)
            || sort.names().any(|s| s == name)
    };
    if !columns.iter().all(|(name, _)| is_there(name)) {
        return Some(Reason::FieldMismatch);
    }
    if !has_order(columns, sort, known.selector) {
        return Some(Reason::SortOrderMismatch);
    }
    known.has_text.then_some(Reason::NeedsTextSearch)
}

/// Returns why a text index cannot be used for a query, if so. It has no order, and hits have any.
fn text_unusable(text: &TextDefinition, find: &Find, known: &SelectorFacts<'_>) -> Option<Reason> {
    if find.selector.is_everything() || find.selector.is_empty_combination() {
        return Some(Reason::EmptySelector);
    }
    // Only an index knows which documents have the words of a `$text`: without one, all have. An
    // index without the default field can be used too, and has no words, as in CouchDB.
    let finds_too_little = || !known.has_text && lacks_documents(text, find);
    (known.lacks_fields(text) || finds_too_little()).then_some(Reason::FieldMismatch)
}

/// Returns whether there is an empty `$or`, which to CouchDB stands for all fields. So an index
/// that lacks documents can be used: here only where no document matches ([`matches_nothing`]).
fn has_empty_or(node: &SelectorNode) -> bool {
    match node {
        SelectorNode::All(nodes) => nodes.iter().any(has_empty_or),
        SelectorNode::Any(nodes) => nodes.is_empty(),
        _ => false,
    }
}

/// Returns whether obviously no document matches.
fn matches_nothing(root: &SelectorNode) -> bool {
    fn is_hopeless(node: &SelectorNode) -> bool {
        match node {
            SelectorNode::All(nodes) => nodes.iter().any(is_hopeless),
            SelectorNode::Any(nodes) => !nodes.is_empty() && nodes.iter().all(is_hopeless),
            SelectorNode::Field(_, Condition::In(operands)) => operands.sorts.is_empty(),
            _ => false,
        }
    }
    matches!(root, SelectorNode::Any(nodes) if nodes.is_empty()) || is_hopeless(root)
}

/// Returns fields that every matching document has.
fn present(node: &SelectorNode) -> HashSet<&str> {
    match node {
        SelectorNode::All(nodes) => nodes.iter().fold(HashSet::new(), |mut all, node| {
            let mut more = present(node);
            if more.len() > all.len() {
                std::mem::swap(&mut all, &mut more);
            }
            all.extend(more);
            all
        }),
        SelectorNode::Any(nodes) => {
            let all = nodes.iter().map(present);
            let common = all.reduce(|mut common, other| {
                common.retain(|name| other.contains(name));
                common
            });
            common.unwrap_or_default()
        }
        SelectorNode::Field(field, condition) if !condition.matches_missing() => {
            HashSet::from([&*field.name])
        }
        _ => HashSet::new(),
    }
}

/// Returns whether the index has the sort order: its fields start with those of the sort, except
/// for fields with a single value.
fn has_order(columns: &[(String, Direction)], sort: &Sort, selector: &Selector) -> bool {
    let Some(first) = sort.names().next() else {
        return true;
    };
    let skipped = columns
        .iter()
        .take_while(|(name, _)| name != first && is_constant(&selector.root, name))
        .count();
    let columns = columns[skipped..].iter().map(|(name, _)| name.as_str());
    let length = sort.fields.len();
    columns.take(length).eq(sort.names())
}

fn is_constant(node: &SelectorNode, name: &str) -> bool {
    match node {
        SelectorNode::All(nodes) => nodes.iter().any(|node| is_constant(node, name)),
        SelectorNode::Field(field, condition) => {
            *field.name == *name && matches!(condition, Condition::Is(Relation::Equal, _))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::NewIndex;
    use crate::{Defaults, Limits};
    use serde_json::{Value, json};

    fn find(body: Value) -> Find {
        let limits = Limits::default();
        Find::parse(body.to_string().as_bytes(), &Defaults { limit: 25, limits }).unwrap()
    }

    /// Returns the index of all documents and these.
    fn indexes(fields: &[&[&str]]) -> Vec<Index> {
        let mut all = vec![Index::all_docs()];
        for (i, fields) in fields.iter().enumerate() {
            let body = json!({"index": {"fields": fields}, "ddoc": format!("d{i}"), "name": "x"});
            let new = NewIndex::parse(body.to_string().as_bytes(), &Limits::default()).unwrap();
            let ddoc = new.add_to(None).unwrap();
            let id = Some(b"1".to_vec());
            let text = crate::index::write_design(&new.ddoc, id, ddoc);
            all.extend(Index::of_design(&text, false, &Limits::default()));
        }
        all
    }

    fn plan(selector: Value, fields: &[&[&str]]) -> (usize, Plan) {
        let (find, all) = (find(json!({"selector": selector})), indexes(fields));
        let choice = choose(&find, &all).unwrap();
        let chosen = choice.index.unwrap();
        (chosen, choice.plan(&find, &all[chosen]))
    }

    #[test]
    fn an_explanation_is_the_same_in_pieces() {
        let indexes = indexes(&[&["a"], &["b"], &["a", "b"], &["c"]]);
        let indexes: Vec<&Index> = indexes.iter().collect();
        let written = |soft_bytes: usize| {
            let find = find(json!({"selector": {"a": 1}}));
            let choice = choose_of(&find, indexes.iter().copied()).unwrap();
            let mut explanation = Explanation::new(("db", false), find, choice, &indexes).unwrap();
            let mut pieces = vec![];
            loop {
                let mut piece = vec![];
                let more = explanation.write_some(&indexes, &mut piece, soft_bytes);
                pieces.push(piece);
                if !more.unwrap() {
                    break pieces;
                }
            }
        };
        let (whole, pieces) = (written(usize::MAX >> 1), written(1));
        assert_eq!((whole.len(), pieces.len()), (1, 5));
        assert_eq!(whole.concat(), pieces.concat());
        let value: serde_json::Value = serde_json::from_slice(&whole.concat()).unwrap();
        assert_eq!(value["index"]["def"]["fields"], json!([{"a": "asc"}]));
        assert_eq!(value["index_candidates"].as_array().map(Vec::len), Some(4));
        let members: Vec<&String> = value.as_object().unwrap().keys().collect();
        let expected = "dbname index partitioned selector opts limit skip fields index_candidates \
                        selector_hints mrargs covering";
        assert_eq!(members, expected.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn an_index_serves_when_all_its_fields_are_there() {
        let (a, ab): (&[&str], &[&str]) = (&["a"], &["a", "b"]);
        for (selector, expected) in [
            (json!({"a": 1}), 1),
            (json!({"a": 1, "b": 1}), 2),
            (json!({"$or": [{"a": 1}, {"b": 1, "a": 2}]}), 1),
            (json!({"$or": [{"a": 1}, {"b": 1}]}), 0),
            (json!({"a": {"$exists": false}}), 0),
            (json!({"$and": [{"$or": []}]}), 0),
            (json!({"a": 1, "$or": []}), 1),
            (json!({"$or": []}), 1),
            (json!({"$nor": []}), 0),
            (json!({"b": {"$in": []}, "$or": []}), 1),
            (json!({"b": {"$in": []}}), 0),
        ] {
            assert_eq!(plan(selector.clone(), &[a, ab]).0, expected, "{selector}");
        }
    }

    #[test]
    fn what_couchdb_takes_for_an_empty_range_must_be_one() {
        let (ids, text): (&[&str], &[&str]) = (&["_id"], &["s"]);
        for (selector, fields, nothing) in [
            (json!({"_id": {"$gt": "b", "$lt": "a"}}), &[][..], true),
            (json!({"_id": {"$gt": "a", "$lt": "a"}}), &[], true),
            (json!({"_id": {"$gt": "b", "$lt": "a"}}), &[ids], true),
            (json!({"_id": {"$gt": "B", "$lt": "a"}}), &[], false),
            (json!({"_id": {"$gt": "B", "$lt": "a"}}), &[ids], false),
            (json!({"s": {"$gt": "b", "$lt": "a"}}), &[text], true),
            (json!({"s": {"$gt": 5, "$lt": 5}}), &[text], true),
            (
                json!({"s": {"$beginsWith": "เ", "$lt": "เ"}}),
                &[text],
                false,
            ),
            (
                json!({"s": {"$beginsWith": "b", "$lt": "a"}}),
                &[text],
                true,
            ),
            (json!({"$or": []}), &[], true),
            (json!({"$and": [{"$or": []}]}), &[], false),
        ] {
            let found = plan(selector.clone(), fields).1.nothing;
            assert_eq!(found, nothing, "{selector} with {fields:?}");
        }
    }
}
