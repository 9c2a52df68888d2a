//! Rows of emitted keys and values.

use document::collation::{Collator, compare_erlang};
use functions::{Emit, Emits};

use super::buffer::{RowBuffer, RowRef};
use crate::Error;
use crate::keys::{RowValue, put_place_end, put_terminated};
use crate::spec::Spec;

/// Adds a document's rows to `out`. `parts`: the beginnings of the places of further rows, in a spec
/// with rows by principal.
pub(super) fn push_doc(
    id: &str,
    (emitted, parts): (&[Emit], &[Vec<u8>]),
    emits: &Emits,
    spec: &Spec,
    sorts: &mut Vec<u8>,
    out: &mut RowBuffer,
) -> Result<(), Error> {
    let first = out.rows.len();
    let mut rest = emitted;
    while let Some(e) = rest.first() {
        let count = rest.iter().take_while(|x| x.view == e.view).count();
        let (own, others) = rest.split_at(count);
        rest = others;
        push_view_rows(id, (own, parts), emits, spec, sorts, out)?;
    }
    out.push_doc(id, first);
    if out.bytes.len() > u32::MAX as usize {
        // Offsets wrapped: nothing of this buffer is to be used.
        let reason =
            format!("the documents up to '{id}' emit more rows than can be sorted at a time");
        return Err(Error::Invalid(reason));
    }
    Ok(())
}

/// Adds the rows of one document in one view, numbering those of equal keys in the order of their
/// values.
fn push_view_rows(
    id: &str,
    (emitted, parts): (&[Emit], &[Vec<u8>]),
    emits: &Emits,
    spec: &Spec,
    sorts: &mut Vec<u8>,
    out: &mut RowBuffer,
) -> Result<(), Error> {
    sorts.clear();
    let mut keyed = Vec::with_capacity(emitted.len());
    for e in emitted {
        let start = sorts.len();
        write_sort(id, emits.key(e), spec, usize::from(e.view as u16), sorts)?;
        keyed.push((start..sorts.len(), e));
    }
    if keyed.len() > 1 {
        keyed.sort_by(|(a, x), (b, y)| {
            sorts[a.clone()]
                .cmp(&sorts[b.clone()])
                .then_with(|| compare_erlang(emits.value(x), emits.value(y)))
        });
    }
    let mut ordinal = 0;
    for (i, (sort, e)) in keyed.iter().enumerate() {
        let repeats = i > 0 && sorts[keyed[i - 1].0.clone()] == sorts[sort.clone()];
        ordinal = if repeats { ordinal + 1 } else { 0 };
        let row = NewRow {
            sort: &sorts[sort.clone()],
            id,
            ordinal,
            key: emits.key(e),
            value: emits.value(e),
        };
        row.push(e.view as u16, &[], out);
        for part in parts {
            row.push(e.view as u16 + spec.mapped() as u16, part, out);
        }
    }
    Ok(())
}

/// A row of a document.
struct NewRow<'a> {
    sort: &'a [u8],
    id: &'a str,
    ordinal: u32,
    key: &'a [u8],
    value: &'a [u8],
}

impl NewRow<'_> {
    /// Adds the row to a view, at a place that begins with `part`.
    fn push(&self, view: u16, part: &[u8], out: &mut RowBuffer) {
        let place = out.bytes.len();
        out.bytes.extend_from_slice(part);
        out.bytes.extend_from_slice(self.sort);
        let sort_len = out.bytes.len() - place;
        put_place_end(self.id, self.ordinal, &mut out.bytes);
        let stored = out.bytes.len();
        RowValue::encode(sort_len, self.key, self.value, &mut out.bytes);
        out.rows.push(RowRef {
            window: 0,
            view,
            ordinal: self.ordinal,
            place: (place as u32, stored as u32),
            sort_len: sort_len as u32,
            value: (stored as u32, out.bytes.len() as u32),
            json_bytes: (self.key.len() + self.value.len()) as u32,
        });
    }
}

/// Returns the part of a place before the document's id.
fn write_sort(
    id: &str,
    key: &[u8],
    spec: &Spec,
    view: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if spec.partitioned {
        put_terminated(partition_of(id).as_bytes(), out);
    }
    write_key_sort(key, spec.views.get(view).is_some_and(|v| v.raw), out)
}

fn partition_of(id: &str) -> &str {
    id.split_once(':').map_or("", |(p, _)| p)
}

/// Appends the sort key of a view's key, which is JSON text. `raw`: in the order of Erlang's terms.
///
/// # Errors
/// [`Error::Invalid`] when the key is not JSON.
pub fn write_key_sort(key: &[u8], raw: bool, out: &mut Vec<u8>) -> Result<(), Error> {
    let collator = Collator::root();
    let written = if raw {
        collator.write_raw_sort_key(key, out)
    } else {
        collator.write_sort_key(key, out)
    };
    written.map_err(|e| Error::Invalid(format!("a key is not JSON: {e}")))
}
