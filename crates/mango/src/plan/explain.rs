//! The response of `_explain`.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::range::{end_key, hinted_fields, id_keys, start_key};
use super::{Candidate, Choice};
use crate::error::FindError;
use crate::index::Index;
use crate::json::{array, object};
use crate::options::Find;
use crate::sort::Direction;
use crate::text::{TextKind, fields_needed, lucene_query};

fn text(value: impl Into<Value>) -> Vec<u8> {
    value.into().to_string().into_bytes()
}

/// Returns the response of `_explain`, as JSON text. `dbname` and `partitioned` are the database's.
///
/// # Errors
/// [`FindError::TextSort`].
pub fn explain(
    dbname: &str,
    partitioned: bool,
    find: &Find,
    indexes: &[&Index],
    choice: &Choice,
) -> Result<Vec<u8>, FindError> {
    let chosen = choice.index.map(|i| indexes[i]);
    let mut selector = vec![];
    find.selector.write_json(&mut selector);
    let mut members = vec![
        ("dbname", text(dbname)),
        (
            "index",
            chosen.map_or_else(|| text(Value::Null), Index::to_json),
        ),
        ("partitioned", text(partitioned)),
        ("selector", selector),
        ("opts", text(find.options_json())),
        ("limit", text(find.limit)),
        ("skip", text(find.skip)),
        ("fields", text(find.fields.names())),
        ("index_candidates", candidates(find, indexes, choice)),
        ("selector_hints", text(hints(find, indexes))),
    ];
    if let Some(of_text) = chosen.and_then(|index| index.text.as_ref()) {
        let sort = crate::text::sort_fields(find, of_text.kind)?.1;
        members.push(("query", text(lucene_query(&find.selector))));
        members.push(("partition", text(find.partition.clone())));
        members.push((
            "sort",
            match (sort.is_empty(), of_text.kind) {
                (true, TextKind::Text) => text("relevance"),
                (true, TextKind::Nouveau) => text(Value::Null),
                (false, _) => text(sort),
            },
        ));
    } else if let Some(index) = chosen {
        let covering = find.covered_by(index);
        members.push(("mrargs", mrargs(find, choice, index, covering)));
        members.push(("covering", text(covering)));
    }
    if let Some(aggregate) = &find.aggregate {
        members.push(("aggregate", text(aggregate.written().clone())));
    }
    Ok(object(&members))
}

fn mrargs(find: &Find, choice: &Choice, index: &Index, covering: bool) -> Vec<u8> {
    let (mut start, mut end) = if find.selector.is_empty_combination() || choice.is_empty(index) {
        (text(Value::Null), text(Value::Null))
    } else if index.is_special() {
        id_keys(choice.range_of_ids().and_then(Option::as_ref))
    } else {
        let ranges = choice.ranges_of_index();
        (start_key(ranges), end_key(ranges))
    };
    let descending = find.sort.direction() == Direction::Descending;
    if descending {
        std::mem::swap(&mut start, &mut end);
    }
    object(&[
        ("include_docs", text(!covering && find.r == 1)),
        ("view_type", text("map")),
        ("reduce", text(false)),
        ("partition", text(find.partition.clone())),
        ("start_key", start),
        ("end_key", end),
        ("direction", text(if descending { "rev" } else { "fwd" })),
        ("stable", text(find.stable || find.stale)),
        ("update", text(find.update && !find.stale)),
        (
            "conflicts",
            if find.conflicts {
                text(true)
            } else {
                text("undefined")
            },
        ),
    ])
}

/// Returns the indexes that are not used, the last by name first, with the reasons.
fn candidates(find: &Find, indexes: &[&Index], choice: &Choice) -> Vec<u8> {
    let count = |f: &dyn Fn(&Candidate) -> bool| choice.candidates.iter().any(f);
    // Each non-empty group is one rank below the one before it.
    let unfavored = choice.ranked.len().max(1);
    let excluded = unfavored + usize::from(count(&|c| c.unfavored));
    let unusable = excluded + usize::from(count(&|c| c.excluded));
    let out_of_scope = unusable + usize::from(count(&|c| c.unusable.is_some()));
    let partial = out_of_scope + usize::from(count(&|c| c.out_of_scope));
    let width = choice
        .index
        .map_or(0, |i| indexes[i].definition.paths.len());
    let mut ranks = vec![0; indexes.len()];
    for (rank, (i, ..)) in choice.ranked.iter().enumerate() {
        ranks[*i] = rank;
    }
    let mut all = vec![];
    // They are in the order of their names.
    for (i, (index, c)) in indexes.iter().zip(&choice.candidates).enumerate().rev() {
        if choice.index == Some(i) {
            continue;
        }
        let (reason, ranking) = if c.partial {
            ("is_partial", partial)
        } else if c.out_of_scope {
            ("scope_mismatch", out_of_scope)
        } else if let Some(reason) = c.unusable {
            (reason.name(), unusable)
        } else if c.excluded {
            ("excluded_by_user", excluded)
        } else if c.unfavored {
            ("unfavored_type", unfavored)
        } else {
            let rank = ranks[i];
            let distance = choice.ranked.get(rank).map_or(0, |(.., left)| *left);
            let reason = if distance > 0 {
                "less_overlap"
            } else if index.definition.paths.len() > width {
                "too_many_fields"
            } else {
                "alphabetically_comes_after"
            };
            (reason, rank)
        };
        let usable = c.is_usable();
        let covering = match index.is_json() {
            false => Value::Null,
            true => json!(fields_covered(find, index)),
        };
        let analysis = json!({
            "usable": usable,
            "reasons": [{"name": reason}],
            "ranking": ranking,
            "covering": covering,
        });
        all.push(object(&[
            ("index", index.to_json()),
            ("analysis", text(analysis)),
        ]));
    }
    array(all.iter().map(Vec::as_slice))
}

/// Returns whether an index has all `fields`; fields of the selector do not count here, as in
/// CouchDB.
fn fields_covered(find: &Find, index: &Index) -> bool {
    let has = |path: &crate::FieldPath| path.is_id() || index.definition.paths.contains(path);
    !find.fields.is_all() && find.fields.paths().iter().all(has)
}

fn hints(find: &Find, indexes: &[&Index]) -> Value {
    let indexable = hinted_fields(&find.selector);
    let known: HashSet<&str> = indexable.iter().copied().collect();
    let mut others: Vec<&str> = find.selector.field_names();
    others.retain(|name| !known.contains(name));
    let mut hints = vec![json!({
        "type": "json",
        "indexable_fields": indexable,
        "unindexable_fields": others,
    })];
    // Types without indexes are skipped.
    for kind in TextKind::ALL {
        let is_kind = |index: &&Index| index.text.as_ref().is_some_and(|text| text.kind == kind);
        if indexes.iter().any(is_kind) {
            let fields = fields_needed(&find.selector).unwrap_or_default();
            let fields = fields
                .iter()
                .map(|field| field.rsplit_once(':').map_or(&**field, |(name, _)| name));
            let indexable: BTreeSet<&str> = fields.collect();
            let mut others: Vec<&str> = find.selector.field_names();
            others.retain(|name| !indexable.contains(name));
            hints.push(json!({
                "type": kind.name(),
                "indexable_fields": indexable,
                "unindexable_fields": others,
            }));
        }
    }
    hints.into()
}
