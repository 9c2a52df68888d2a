//! The index of the times when documents expire: a native map function with two views.
//!
//! | view | key | value |
//! |---|---|---|
//! | [`TIMES`] | seconds since 1970 | the winner's revision |
//! | [`INVALID`], documents with an invalid time | `null` | `null` |

use functions::{Doc, Emits, Error, MapGroup, Mapper};
use index::{Spec, ViewSpec};
use storage::Signature;

use super::time::ExpiryTime;

/// The language of the map function. Languages of design documents have no capital letters, so none is this one. The number
/// changes with the rows that documents get: indexes of another number are rebuilt.
pub(crate) const LANGUAGE: &str = "Expiry 1";
/// The index in logs and `_active_tasks`, in place of a design document.
pub(crate) const NAME: &str = "_auto_purge";

/// The view of times.
pub(super) const TIMES: usize = 0;
/// The view of documents with an invalid time.
pub(super) const INVALID: usize = 1;

/// The beginning of a design document's underscore members.
const DESIGN: &[u8] = b"\"_id\":\"_design/";

/// Returns the specification of the index of a member.
pub(crate) fn spec(member: &str) -> Spec {
    let view = |map: &str| ViewSpec {
        map: map.to_owned(),
        raw: false,
        reduces: vec![],
    };
    Spec {
        language: LANGUAGE.to_owned(),
        lib: None,
        views: vec![view(member), view("invalid")],
        include_design: false,
        local_seq: false,
        partitioned: false,
        dialect: None,
        by_access: false,
    }
}

/// Returns the signature of the index of a member.
pub(crate) fn signature(member: &str) -> Signature {
    spec(member).signature()
}

/// The map function of the index.
pub(crate) struct ExpiryMapper {
    member: String,
}

impl ExpiryMapper {
    /// Creates it for the functions of [`spec`].
    pub fn new(group: &MapGroup) -> ExpiryMapper {
        ExpiryMapper {
            member: group.maps.first().cloned().unwrap_or_default(),
        }
    }
}

impl Mapper for ExpiryMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        for (n, doc) in docs.iter().enumerate() {
            if doc.members.starts_with(DESIGN) {
                continue;
            }
            let start = out.bytes.len();
            let view = match ExpiryTime::of(doc.body, &self.member) {
                ExpiryTime::Never => continue,
                ExpiryTime::At(unix_s) => {
                    out.bytes.extend_from_slice(unix_s.to_string().as_bytes());
                    TIMES
                }
                ExpiryTime::Invalid => {
                    out.bytes.extend_from_slice(b"null");
                    INVALID
                }
            };
            let end = out.bytes.len();
            match view {
                TIMES => write_rev(doc.members, &mut out.bytes),
                _ => out.bytes.extend_from_slice(b"null"),
            }
            out.push_row(n, view, start, end);
        }
        Ok(())
    }
}

/// Writes the text of `_rev`.
fn write_rev(members: &[u8], out: &mut Vec<u8>) {
    let object = [b"{", members, b"}"].concat();
    let rev = document::json::member(&object, "_rev");
    out.extend_from_slice(rev.unwrap_or(b"null"));
}

#[cfg(test)]
mod tests {
    use functions::Emit;

    use super::*;

    #[test]
    fn documents_have_a_row_of_their_time_and_revision() {
        let group = spec("until").map_group(functions::Owner::default());
        let docs = [
            (r#""_id":"a","_rev":"1-a""#, r#"{"until":7.5,"x":1}"#),
            (
                r#""_id":"b,\"_rev\":\"9-x\"","_rev":"2-b""#,
                r#"{"until":3}"#,
            ),
            (r#""_id":"c","_rev":"1-c""#, r#"{"x":{"until":1}}"#),
            (r#""_id":"d","_rev":"1-d""#, r#"{"until":"soon"}"#),
            (r#""_id":"_design/e","_rev":"1-e""#, r#"{"until":1}"#),
        ];
        let docs = docs.map(|(members, body)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        });
        let mut out = Emits::default();
        ExpiryMapper::new(&group).map(&docs, &mut out).unwrap();
        let row = |e: &Emit| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (e.doc, e.view as usize, text(out.key(e)), text(out.value(e)))
        };
        let rows: Vec<_> = out.rows.iter().map(row).collect();
        let expected = [
            (0, TIMES, "8", r#""1-a""#),
            (1, TIMES, "3", r#""2-b""#),
            (3, INVALID, "null", "null"),
        ];
        let expected =
            expected.map(|(doc, view, key, value)| (doc, view, key.to_owned(), value.to_owned()));
        assert_eq!(rows, expected);
    }

    #[test]
    fn design_documents_cannot_have_its_language() {
        assert_ne!(functions::language_name(LANGUAGE), LANGUAGE);
    }

    /// Stored indexes are found by it.
    #[test]
    fn the_signature_stays_the_same() {
        let signature = data_encoding::HEXLOWER.encode(&signature("expires_at"));
        assert_eq!(signature, "d7892df83d12de5ff3dceb2519497c52");
    }
}
