//! Rows of a view on their way to a client: in which order, how many, and which documents come with them.

use document::Rev;
use index::{PlaceRange, RowIter};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Error;

/// Rows that one document has with one key.
pub(super) struct SameKeyRows {
    /// The shard that has them.
    pub shard: usize,
    /// The remaining places, in ascending order.
    pub left: PlaceRange,
}

/// Where the output of rows stopped.
pub(super) enum StopPoint {
    /// At the last row that was written.
    At(Vec<u8>),
    /// Among rows that one document has with one key: the remaining ones, and the place of the first.
    Among((SameKeyRows, Vec<u8>)),
}

/// Rows on their way to a client.
pub(super) struct RowOutput<'t> {
    /// Rows to skip.
    pub skip: u64,
    /// Rows that may still be written.
    pub left: u64,
    /// No row was written yet.
    pub first: bool,
    /// Takes a row, with whether it is not the first; false when it needs no more for now.
    pub take: &'t mut dyn FnMut(bool, &[u8]) -> bool,
}

impl RowOutput<'_> {
    /// Whether the next row is written, and not skipped.
    pub fn wants(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip -= u64::from(skips);
        !skips
    }

    /// Emits a row; returns false when no more rows are needed for now.
    pub fn give(&mut self, row: &[u8]) -> bool {
        self.left -= 1;
        (self.take)(!std::mem::take(&mut self.first), row)
    }
}

/// The iterator whose row comes next.
pub(super) fn best(iters: &[RowIter<'_>], descending: bool) -> Result<Option<usize>, Error> {
    if let [only] = iters {
        return Ok(only.row()?.map(|_| 0));
    }
    let mut best: Option<(usize, &[u8])> = None;
    for (i, it) in iters.iter().enumerate() {
        let Some(row) = it.row()? else {
            continue;
        };
        let better = best.is_none_or(|(_, held)| {
            if descending {
                row.place > held
            } else {
                row.place < held
            }
        });
        if better {
            best = Some((i, row.place));
        }
    }
    Ok(best.map(|(i, _)| i))
}

/// A value that names a document.
#[derive(Default, Deserialize)]
pub(super) struct Link {
    /// Of any type: other values than strings match no document.
    #[serde(rename = "_id", default, deserialize_with = "present")]
    pub id: Option<Value>,
    #[serde(rename = "_rev", default)]
    rev: Value,
}

/// A present member, `null` too.
fn present<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(member).map(Some)
}

impl Link {
    pub fn of(value: &[u8]) -> Link {
        if value.first() != Some(&b'{') {
            return Link::default();
        }
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub fn rev(&self) -> Option<Rev> {
        self.rev.as_str().and_then(|rev| Rev::parse(rev).ok())
    }
}
