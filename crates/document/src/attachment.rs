//! Attachments as a stored document names them, and their stored form after its body.
//!
//! A stored body is JSON text, which ends in `}`. That of a document with attachments continues:
//!
//! ```text
//! stored body = JSON text | JSON text  attachments  length of attachments (u32, little endian)  01
//! ```
//!
//! so reading the body also reads the attachments' metadata. The content is elsewhere, under a
//! [`ContentId`].

use crate::varint::{put, take, take_slice};
use crate::write_json_string;

/// Marks a stored body that continues after its JSON text, which never ends in this byte.
const TRAILER: u8 = 1;
const TRAILER_LENGTH: usize = 5;

const GZIP: u8 = 1;
/// Room for gzip's own bytes, in a short attachment: its header has the name of a file.
const GZIP_HEADER_BYTES: u64 = 1 << 10;
const LENGTH_UNSURE: u8 = 2;

/// Identifies a content: the BLAKE3 hash of the stored bytes. With MD5, which clients see, an
/// attacker could make two contents with the same id.
pub type ContentId = [u8; 32];

/// How an attachment's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Unchanged.
    Identity,
    /// Compressed.
    Gzip,
}

/// An attachment of a revision: everything but its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name in the document.
    pub name: String,
    /// As sent by the client, `application/octet-stream` by default.
    pub content_type: String,
    /// MD5 of the stored bytes, so of the gzipped ones if they are gzipped: the digest that clients
    /// see.
    pub md5: [u8; 16],
    /// The id of the stored bytes.
    pub content: ContentId,
    /// Number of bytes before any encoding, if known.
    pub length: u64,
    /// Number of stored bytes.
    pub stored_length: u64,
    /// The encoding of the content.
    pub encoding: Encoding,
    /// Whether a client compressed the bytes itself. Then `length` is its claim, or else
    /// `stored_length`.
    pub length_unsure: bool,
    /// Generation of the revision that added the content; `None` in an edit whose revision is not
    /// known yet.
    pub revpos: Option<u64>,
}

/// The form of an attachment in a document's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentForm<'a> {
    /// `"stub":true`
    Stub,
    /// `"follows":true`: its content is a later part of the same body.
    Follows,
    /// Its bytes, decoded, in Base64.
    Data(&'a str),
}

impl Attachment {
    /// `md5-` and the digest in Base64.
    pub fn digest(&self) -> String {
        let mut text = "md5-".to_owned();
        write_base64(&self.md5, &mut text);
        text
    }

    /// Returns the entity tag, without its quotes: the digest in Base64.
    pub fn etag(&self) -> String {
        let mut text = String::new();
        write_base64(&self.md5, &mut text);
        text
    }

    /// Returns whether reading the decoded bytes is little work: at most `bytes_max` of them, out of
    /// not many more stored ones. The stored bytes of a gzip file may be many more than the decoded
    /// ones, since its members may be empty.
    pub fn is_short(&self, bytes_max: u64) -> bool {
        let stored_max = bytes_max
            .saturating_mul(2)
            .saturating_add(GZIP_HEADER_BYTES);
        !self.length_unsure && self.length <= bytes_max && self.stored_length <= stored_max
    }

    /// Appends `"name":{…}` in CouchDB's form; `encoding_info` adds `encoding` and `encoded_length`
    /// to gzipped ones.
    pub fn write_json(&self, shown: AttachmentForm<'_>, encoding_info: bool, out: &mut Vec<u8>) {
        write_json_string(&self.name, out);
        out.extend_from_slice(b":{\"content_type\":");
        write_json_string(&self.content_type, out);
        out.extend_from_slice(
            format!(
                ",\"revpos\":{},\"digest\":\"{}\"",
                self.revpos.unwrap_or(0),
                self.digest()
            )
            .as_bytes(),
        );
        match shown {
            AttachmentForm::Data(base64) => {
                out.extend_from_slice(b",\"data\":\"");
                out.extend_from_slice(base64.as_bytes());
                out.push(b'"');
            }
            AttachmentForm::Stub | AttachmentForm::Follows => {
                out.extend_from_slice(format!(",\"length\":{}", self.length).as_bytes());
                out.extend_from_slice(match shown {
                    AttachmentForm::Follows => b",\"follows\":true",
                    _ => b",\"stub\":true",
                });
            }
        }
        if encoding_info && self.encoding == Encoding::Gzip {
            let info = format!(
                ",\"encoding\":\"gzip\",\"encoded_length\":{}",
                self.stored_length
            );
            out.extend_from_slice(info.as_bytes());
        }
        out.push(b'}');
    }
}

/// Appends the member `_attachments` with its comma, all as stubs; nothing when the list is empty.
pub fn write_stubs(attachments: &[Attachment], out: &mut Vec<u8>) {
    for (i, attachment) in attachments.iter().enumerate() {
        out.extend_from_slice(match i {
            0 => b",\"_attachments\":{".as_slice(),
            _ => b",",
        });
        attachment.write_json(AttachmentForm::Stub, false, out);
    }
    if !attachments.is_empty() {
        out.push(b'}');
    }
}

fn write_base64(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..group.len()].copy_from_slice(group);
        let number = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for i in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * i)) as usize & 63];
            out.push(if i > group.len() {
                '='
            } else {
                char::from(digit)
            });
        }
    }
}

/// A stored body, split.
#[derive(Clone, Copy, Debug)]
pub struct StoredBody<'a> {
    /// An object in normal form, without underscore members.
    pub json: &'a [u8],
    /// Encoded; empty without attachments.
    pub attachments: &'a [u8],
}

impl<'a> StoredBody<'a> {
    /// Splits a stored body. Invalid bytes are all JSON.
    pub fn split(stored: &'a [u8]) -> StoredBody<'a> {
        let whole = StoredBody {
            json: stored,
            attachments: &[],
        };
        let Some((rest, [a, b, c, d, TRAILER])) = stored.split_last_chunk::<TRAILER_LENGTH>()
        else {
            return whole;
        };
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        match rest.len().checked_sub(length) {
            Some(at) => StoredBody {
                json: &rest[..at],
                attachments: &rest[at..],
            },
            None => whole,
        }
    }

    /// Appends the attachments to `members`, as stubs, and returns the rest: the form of a document
    /// that functions and selectors get. `None` when the metadata does not decode.
    pub fn move_stubs(stored: &'a [u8], members: &mut Vec<u8>) -> Option<&'a [u8]> {
        let body = StoredBody::split(stored);
        write_stubs(&body.attachments()?, members);
        Some(body.json)
    }

    /// Returns the attachments' metadata; `None` when it does not decode.
    pub fn attachments(&self) -> Option<Vec<Attachment>> {
        let mut rest = self.attachments;
        let mut all = Vec::new();
        while !rest.is_empty() {
            all.push(decode(&mut rest)?);
        }
        Some(all)
    }
}

/// Appends the encoded attachments to a body's JSON text. `revpos` is the default for those without
/// one.
pub fn append_attachments(attachments: &[Attachment], revpos: u64, body: &mut Vec<u8>) {
    if attachments.is_empty() {
        return;
    }
    let start = body.len();
    for attachment in attachments {
        encode(attachment, revpos, body);
    }
    let length = (body.len() - start) as u32;
    body.extend_from_slice(&length.to_le_bytes());
    body.push(TRAILER);
}

fn encode(a: &Attachment, revpos: u64, out: &mut Vec<u8>) {
    let flags = match a.encoding {
        Encoding::Identity => 0,
        Encoding::Gzip => GZIP,
    };
    out.push(flags | if a.length_unsure { LENGTH_UNSURE } else { 0 });
    put_bytes(a.name.as_bytes(), out);
    put_bytes(a.content_type.as_bytes(), out);
    out.extend_from_slice(&a.md5);
    out.extend_from_slice(&a.content);
    put(a.length, out);
    put(a.stored_length, out);
    put(a.revpos.unwrap_or(revpos), out);
}

fn decode(rest: &mut &[u8]) -> Option<Attachment> {
    let (&[flags], after) = rest.split_first_chunk()?;
    *rest = after;
    let name = take_text(rest)?;
    let content_type = take_text(rest)?;
    let (md5, after) = rest.split_first_chunk()?;
    let (content, after) = after.split_first_chunk()?;
    *rest = after;
    Some(Attachment {
        name,
        content_type,
        md5: *md5,
        content: *content,
        length: take(rest)?,
        stored_length: take(rest)?,
        encoding: match flags & GZIP {
            0 => Encoding::Identity,
            _ => Encoding::Gzip,
        },
        length_unsure: flags & LENGTH_UNSURE != 0,
        revpos: Some(take(rest)?),
    })
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_slice(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attachments() -> impl Strategy<Value = Vec<Attachment>> {
        let one = (
            (".{0,12}", ".{0,12}", any::<[u8; 16]>(), any::<[u8; 32]>()),
            (any::<u64>(), any::<u64>(), any::<bool>(), any::<bool>()),
            any::<Option<u64>>(),
        );
        let one = one.prop_map(|((name, content_type, md5, content), numbers, revpos)| {
            let (length, stored_length, gzip, length_unsure) = numbers;
            Attachment {
                name,
                content_type,
                md5,
                content,
                length,
                stored_length,
                encoding: if gzip {
                    Encoding::Gzip
                } else {
                    Encoding::Identity
                },
                length_unsure,
                revpos,
            }
        });
        prop::collection::vec(one, 0..4)
    }

    proptest! {
        #[test]
        fn what_is_stored_behind_a_body_is_read_back(all in attachments(), revpos: u64) {
            let mut stored = br#"{"x":1}"#.to_vec();
            append_attachments(&all, revpos, &mut stored);
            let body = StoredBody::split(&stored);
            prop_assert_eq!(body.json, br#"{"x":1}"#);
            let expected: Vec<Attachment> = all
                .into_iter()
                .map(|a| Attachment { revpos: a.revpos.or(Some(revpos)), ..a })
                .collect();
            prop_assert_eq!(body.attachments(), Some(expected));
        }

        #[test]
        fn any_bytes_are_taken_apart_without_a_panic(mut stored: Vec<u8>, length in 0..64_u32) {
            stored.extend_from_slice(&length.to_le_bytes());
            stored.push(TRAILER);
            let body = StoredBody::split(&stored);
            prop_assert!(body.json.len() + body.attachments.len() <= stored.len());
            body.attachments();
        }
    }

    #[test]
    fn a_body_without_attachments_is_its_json() {
        let body = StoredBody::split(b"{}");
        assert_eq!((body.json, body.attachments.len()), (&b"{}"[..], 0));
    }

    fn gzipped() -> Attachment {
        Attachment {
            name: "t.txt".into(),
            content_type: "text/plain".into(),
            md5: *b"\x88\xc6\xa2\x0b\xcc\x2a\x88\x59\x43\xd8\xd8\xcb\x4d\xe9\xaf\x09",
            content: [0; 32],
            length: 5,
            stored_length: 25,
            encoding: Encoding::Gzip,
            length_unsure: false,
            revpos: Some(1),
        }
    }

    #[test]
    fn an_attachment_is_short_if_its_bytes_and_the_stored_ones_are_few() {
        let short = |length, stored_length, length_unsure| {
            let attachment = Attachment {
                length,
                stored_length,
                length_unsure,
                ..gzipped()
            };
            attachment.is_short(100)
        };
        assert!(short(5, 25, false) && short(100, 123, false) && short(0, 0, false));
        assert!(!short(101, 25, false) && !short(5, 25, true));
        // Empty members, which decode to nothing.
        assert!(!short(0, 1 << 30, false));
    }

    #[test]
    fn stubs_are_shown_as_couchdb_shows_them() {
        let attachment = gzipped();
        let mut out = Vec::new();
        write_stubs(std::slice::from_ref(&attachment), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#","_attachments":{"t.txt":{"content_type":"text/plain","revpos":1,"digest":"md5-iMaiC8wqiFlD2NjLTemvCQ==","length":5,"stub":true}}"#
        );
        let mut stored = b"{}".to_vec();
        append_attachments(std::slice::from_ref(&attachment), 1, &mut stored);
        let mut members = br#""_id":"a""#.to_vec();
        let json = StoredBody::move_stubs(&stored, &mut members);
        assert_eq!(json, Some(&b"{}"[..]));
        assert!(members.starts_with(br#""_id":"a","_attachments":{"t.txt":{"#));
        let mut out = Vec::new();
        attachment.write_json(AttachmentForm::Data("aGVsbG8="), true, &mut out);
        assert!(out.ends_with(br#""data":"aGVsbG8=","encoding":"gzip","encoded_length":25}"#));
    }
}
