//! The response of `_explain`.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::range::{end_key, hinted_fields, id_keys, start_key};
use super::{Candidate, Choice};
use crate::error::FindError;
use crate::index::Index;
use crate::json::object;
use crate::options::Find;
use crate::sort::Direction;
use crate::text::{TextKind, fields_needed, lucene_query};

fn text(value: impl Into<Value>) -> Vec<u8> {
    value.into().to_string().into_bytes()
}

/// The response of `_explain`, which is written in pieces: the definitions of all indexes together may
/// be long.
pub struct Explanation {
    dbname: String,
    partitioned: bool,
    find: Find,
    choice: Choice,
    next: Next,
}

/// The next part to write.
#[derive(Clone, Copy, Debug)]
enum Next {
    Head,
    /// The candidates before this one, the last by name first. The flag is set until the first is written.
    Candidates(usize, bool),
    End,
}

impl Explanation {
    /// Explains a choice among `indexes`. `dbname` and `partitioned` are the database's.
    ///
    /// # Errors
    /// [`FindError::TextSort`].
    pub fn new(
        (dbname, partitioned): (&str, bool),
        find: Find,
        choice: Choice,
        indexes: &[&Index],
    ) -> Result<Explanation, FindError> {
        let chosen = choice.index.map(|i| indexes[i]);
        if let Some(of_text) = chosen.and_then(|index| index.text.as_ref()) {
            crate::text::sort_fields(&find, of_text.kind)?;
        }
        Ok(Explanation {
            dbname: dbname.to_owned(),
            partitioned,
            find,
            choice,
            next: Next::Head,
        })
    }

    /// Appends JSON text until about `soft_bytes` were added, one definition at least; returns false
    /// when that was the end. `indexes` must be those of [`Explanation::new`].
    ///
    /// # Errors
    /// [`FindError::TextSort`].
    pub fn write_some(
        &mut self,
        indexes: &[&Index],
        out: &mut Vec<u8>,
        soft_bytes: usize,
    ) -> Result<bool, FindError> {
        let enough = out.len() + soft_bytes;
        if let Next::Head = self.next {
            self.write_head(indexes, out);
            self.next = Next::Candidates(indexes.len(), true);
        }
        let Next::Candidates(mut before, mut is_first) = self.next else {
            return Ok(false);
        };
        let ranking = Ranking::of(indexes, &self.choice);
        while before > 0 {
            if out.len() >= enough {
                self.next = Next::Candidates(before, is_first);
                return Ok(true);
            }
            before -= 1;
            if self.choice.index == Some(before) {
                continue;
            }
            if !std::mem::replace(&mut is_first, false) {
                out.push(b',');
            }
            self.write_candidate(&ranking, indexes, before, out);
        }
        self.write_tail(indexes, out)?;
        self.next = Next::End;
        Ok(false)
    }

    fn chosen<'i>(&self, indexes: &[&'i Index]) -> Option<&'i Index> {
        self.choice.index.map(|i| indexes[i])
    }

    /// Writes the members before the candidates, and the beginning of these.
    fn write_head(&self, indexes: &[&Index], out: &mut Vec<u8>) {
        let find = &self.find;
        push(out, "dbname", &text(&*self.dbname));
        match self.chosen(indexes) {
            None => push(out, "index", &text(Value::Null)),
            Some(index) => push(out, "index", &index.to_json()),
        }
        push(out, "partitioned", &text(self.partitioned));
        push(out, "selector", b"");
        find.selector.write_json(out);
        push(out, "opts", &text(find.options_json()));
        push(out, "limit", &text(find.limit));
        push(out, "skip", &text(find.skip));
        push(out, "fields", &text(find.fields.names()));
        push(out, "index_candidates", b"[");
    }

    /// Writes the members after the candidates.
    fn write_tail(&self, indexes: &[&Index], out: &mut Vec<u8>) -> Result<(), FindError> {
        let find = &self.find;
        let chosen = self.chosen(indexes);
        out.push(b']');
        push(out, "selector_hints", &text(hints(find, indexes)));
        if let Some(of_text) = chosen.and_then(|index| index.text.as_ref()) {
            let sort = crate::text::sort_fields(find, of_text.kind)?.1;
            push(out, "query", &text(lucene_query(&find.selector)));
            push(out, "partition", &text(find.partition.clone()));
            let sort = match (sort.is_empty(), of_text.kind) {
                (true, TextKind::Text) => text("relevance"),
                (true, TextKind::Nouveau) => text(Value::Null),
                (false, _) => text(sort),
            };
            push(out, "sort", &sort);
        } else if let Some(index) = chosen {
            let covering = find.covered_by(index);
            push(out, "mrargs", &mrargs(find, &self.choice, index, covering));
            push(out, "covering", &text(covering));
        }
        if let Some(aggregate) = &find.aggregate {
            push(out, "aggregate", &text(aggregate.written().clone()));
        }
        out.push(b'}');
        Ok(())
    }

    /// Writes an index that is not used, with the reason.
    fn write_candidate(&self, ranking: &Ranking, indexes: &[&Index], i: usize, out: &mut Vec<u8>) {
        let (index, c) = (indexes[i], &self.choice.candidates[i]);
        let (reason, rank) = ranking.reason(&self.choice, index, i);
        let covering = match index.is_json() {
            false => Value::Null,
            true => json!(fields_covered(&self.find, index)),
        };
        let analysis = json!({
            "usable": c.is_usable(),
            "reasons": [{"name": reason}],
            "ranking": rank,
            "covering": covering,
        });
        push(out, "index", &index.to_json());
        push(out, "analysis", &text(analysis));
        out.push(b'}');
    }
}

/// Appends a member of an object, and the object's beginning before its first member.
fn push(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(match out.last() {
        None | Some(b'[' | b',') => b'{',
        Some(_) => b',',
    });
    document::write_json_string(name, out);
    out.push(b':');
    out.extend_from_slice(value);
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

/// The ranks of indexes that are not used.
struct Ranking {
    /// Of each index, its position among the usable ones.
    ranks: Vec<usize>,
    /// Each non-empty group is one rank below the one before it.
    unfavored: usize,
    excluded: usize,
    unusable: usize,
    out_of_scope: usize,
    partial: usize,
    /// Number of fields of the chosen index.
    width: usize,
}

impl Ranking {
    fn of(indexes: &[&Index], choice: &Choice) -> Ranking {
        let count = |f: &dyn Fn(&Candidate) -> bool| choice.candidates.iter().any(f);
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
        Ranking {
            ranks,
            unfavored,
            excluded,
            unusable,
            out_of_scope,
            partial,
            width,
        }
    }

    /// Why the index at position `i` is not used, and its rank.
    fn reason(&self, choice: &Choice, index: &Index, i: usize) -> (&'static str, usize) {
        let c = &choice.candidates[i];
        if c.partial {
            ("is_partial", self.partial)
        } else if c.out_of_scope {
            ("scope_mismatch", self.out_of_scope)
        } else if let Some(reason) = c.unusable {
            (reason.name(), self.unusable)
        } else if c.excluded {
            ("excluded_by_user", self.excluded)
        } else if c.unfavored {
            ("unfavored_type", self.unfavored)
        } else {
            let rank = self.ranks[i];
            let distance = choice.ranked.get(rank).map_or(0, |(.., left)| *left);
            let reason = if distance > 0 {
                "less_overlap"
            } else if index.definition.paths.len() > self.width {
                "too_many_fields"
            } else {
                "alphabetically_comes_after"
            };
            (reason, rank)
        }
    }
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
