//! Rows of a view on their way to a client: in which order, how many, and which documents come with them.

use document::Rev;
use index::{PlaceRange, RowIter};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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

/// A value that names a document. A list or object in it may take many times the memory of its
/// text, so it is not parsed.
#[derive(Default, Deserialize)]
pub(super) struct Link<'a> {
    #[serde(rename = "_id", default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(rename = "_rev", default, borrow, deserialize_with = "present")]
    rev: Option<&'a RawValue>,
}

/// A present member, `null` too.
fn present<'de, D: Deserializer<'de>>(member: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}

/// The document that a row is shown with.
#[derive(Debug, PartialEq)]
pub(super) enum LinkTarget {
    /// The row's own.
    Own,
    /// The one with this id.
    Other(String),
    /// None: the value names it by something else than a string.
    Nothing,
}

impl<'a> Link<'a> {
    pub fn of(value: &'a [u8]) -> Link<'a> {
        if value.first() != Some(&b'{') {
            return Link::default();
        }
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub fn target(&self) -> LinkTarget {
        match self.id {
            None => LinkTarget::Own,
            Some(id) => string_of(id).map_or(LinkTarget::Nothing, LinkTarget::Other),
        }
    }

    pub fn rev(&self) -> Option<Rev> {
        Rev::parse(&string_of(self.rev?)?).ok()
    }
}

fn string_of(value: &RawValue) -> Option<String> {
    match value.get().starts_with('"') {
        true => serde_json::from_str(value.get()).ok(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_documents_by_strings() {
        let of = |value: &str| Link::of(value.as_bytes()).target();
        for own in ["null", "5", "[]", "{}", r#"{"id":"a"}"#, r#"{"_id""#] {
            assert_eq!(of(own), LinkTarget::Own, "{own}");
        }
        assert_eq!(
            of(r#"{"x":[],"_id":"a\u0062"}"#),
            LinkTarget::Other("ab".into())
        );
        let deep = format!(r#"{{"_id":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for nothing in [
            r#"{"_id":null}"#,
            r#"{"_id":5}"#,
            r#"{"_id":["a"]}"#,
            deep.as_str(),
        ] {
            assert_eq!(of(nothing), LinkTarget::Nothing, "{nothing}");
        }
        let rev = |value: &str| Link::of(value.as_bytes()).rev().map(|rev| rev.to_string());
        let known = "1-0123456789abcdef0123456789abcdef";
        let with_rev = format!(r#"{{"_id":"a","_rev":"{known}"}}"#);
        assert_eq!(rev(&with_rev).as_deref(), Some(known));
        assert_eq!(rev(r#"{"_rev":null}"#), None);
        assert_eq!(rev(r#"{"_rev":[1,2]}"#), None);
    }
}
