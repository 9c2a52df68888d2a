//! The answer of `_explain`.

use serde_json::{Value, json};

use super::range::{end_key, id_keys, indexable_fields, start_key};
use super::{Candidate, Choice};
use crate::index::Index;
use crate::options::Find;
use crate::sort::Direction;

/// What `_explain` answers. `dbname` and `partitioned` are the database's.
pub fn explain(
    dbname: &str,
    partitioned: bool,
    find: &Find,
    indexes: &[Index],
    choice: &Choice,
) -> Value {
    let chosen = choice.index.map(|i| &indexes[i]);
    let mut answer = json!({
        "dbname": dbname,
        "index": chosen.map(Index::to_json),
        "partitioned": partitioned,
        "selector": find.selector.to_json(),
        "opts": find.options_json(),
        "limit": find.limit,
        "skip": find.skip,
        "fields": find.fields.names(),
        "index_candidates": candidates(find, indexes, choice),
        "selector_hints": hints(find),
    });
    if let Some(index) = chosen {
        let covering = find.covered_by(index);
        answer["mrargs"] = mrargs(find, choice, index, covering);
        answer["covering"] = json!(covering);
    }
    if let Some(aggregate) = &find.aggregate {
        answer["aggregate"] = aggregate.written().clone();
    }
    answer
}

fn mrargs(find: &Find, choice: &Choice, index: &Index, covering: bool) -> Value {
    let (mut start, mut end) = if index.is_special() {
        let range = choice.ranges.iter().find(|(field, _)| field == "_id");
        id_keys(range.and_then(|(_, range)| range.as_ref()))
    } else {
        let ranges = choice.ranked.first().map_or(&[][..], |(_, r, _)| r);
        match ranges {
            [None] => (Value::Null, Value::Null),
            _ => (start_key(ranges), end_key(ranges)),
        }
    };
    if find.selector.is_nothing() {
        (start, end) = (Value::Null, Value::Null);
    }
    let descending = find.sort.direction() == Direction::Descending;
    if descending {
        std::mem::swap(&mut start, &mut end);
    }
    json!({
        "include_docs": !covering && find.r == 1,
        "view_type": "map",
        "reduce": false,
        "partition": find.partition,
        "start_key": start,
        "end_key": end,
        "direction": if descending { "rev" } else { "fwd" },
        "stable": find.stable || find.stale,
        "update": find.update && !find.stale,
        "conflicts": if find.conflicts { json!(true) } else { json!("undefined") },
    })
}

/// The indexes that are not used, the best first, and why.
fn candidates(find: &Find, indexes: &[Index], choice: &Choice) -> Value {
    let count = |f: &dyn Fn(&Candidate) -> bool| choice.candidates.iter().any(f);
    // Each group that has members stands one rank behind the one before it.
    let unfavored = choice.ranked.len().max(1);
    let excluded = unfavored + usize::from(count(&|c| c.unfavored));
    let unusable = excluded + usize::from(count(&|c| c.excluded));
    let out_of_scope = unusable + usize::from(count(&|c| c.unusable.is_some()));
    let partial = out_of_scope + usize::from(count(&|c| c.out_of_scope));
    let width = choice
        .index
        .map_or(0, |i| indexes[i].definition.paths.len());
    let mut all: Vec<(usize, Value)> = vec![];
    for (i, (index, c)) in indexes.iter().zip(&choice.candidates).enumerate() {
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
            let rank = choice.ranked.iter().position(|(r, ..)| *r == i);
            let rank = rank.unwrap_or_default();
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
        let covering = match index.is_special() {
            true => Value::Null,
            false => json!(fields_covered(find, index)),
        };
        let analysis = json!({
            "usable": usable,
            "reasons": [{"name": reason}],
            "ranking": ranking,
            "covering": covering,
        });
        all.push((
            ranking,
            json!({"index": index.to_json(), "analysis": analysis}),
        ));
    }
    all.sort_by_key(|(ranking, _)| *ranking);
    Value::Array(all.into_iter().map(|(_, entry)| entry).collect())
}

/// Whether an index has all `fields`; what the selector names does not count here, as in CouchDB.
fn fields_covered(find: &Find, index: &Index) -> bool {
    let has = |path: &crate::FieldPath| path.is_id() || index.definition.paths.contains(path);
    !find.fields.is_all() && find.fields.paths().iter().all(has)
}

fn hints(find: &Find) -> Value {
    let indexable = indexable_fields(&find.selector);
    let mut others: Vec<&str> = find.selector.field_names();
    others.retain(|name| !indexable.iter().any(|i| i == name));
    json!([{
        "type": "json",
        "indexable_fields": indexable,
        "unindexable_fields": others,
    }])
}
