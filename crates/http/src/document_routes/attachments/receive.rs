//! A document whose attachments follow it in one request: `multipart/related`.

use std::collections::HashMap;

use bytes::BytesMut;
use database::{AttachmentSink, Database, SinkOptions, UploadedContent};
use document::json::{members, string_text};
use document::multipart::{ContentType, Event, Headers, Limits, MultipartError, Parser};
use document::{Attachment, DocId, EditDoc, parse_document};
use hyper::header::CONTENT_TYPE;

use super::{DEFAULT_TYPE, decode_md5, named};
use crate::errors::ApiError;
use crate::request::Request;

/// Other requests of the thread get a turn after this number of parts: thousands of small ones may
/// be in memory already.
const PARTS_BETWEEN_PAUSES: usize = 16;

/// The parts of a request's multipart body, as its bytes arrive.
pub struct Events {
    parser: Parser,
    ended: bool,
    /// Parts that began since the last pause.
    parts: usize,
}

impl Events {
    /// # Errors
    /// 400 when the content type has no boundary of the body's parts.
    pub fn new(content_type: &str) -> Result<Events, ApiError> {
        let content_type = ContentType::parse(content_type);
        let boundary = content_type
            .as_ref()
            .and_then(ContentType::boundary)
            .ok_or_else(|| ApiError::bad_request("Missing multipart boundary"))?;
        Ok(Events {
            parser: Parser::new(boundary, Limits::default())?,
            ended: false,
            parts: 0,
        })
    }

    /// The next event; `None` after [`Event::End`], when all of the request is read.
    ///
    /// # Errors
    /// 400 when the body is not a multipart body, or ends early.
    pub async fn next(&mut self, req: &mut Request) -> Result<Option<Event>, ApiError> {
        while !self.ended {
            if let Some(event) = self.parser.next_event()? {
                self.ended = event == Event::End;
                self.parts += usize::from(matches!(event, Event::Part(_)));
                if self.parts == PARTS_BETWEEN_PAUSES {
                    self.parts = 0;
                    tokio::task::yield_now().await;
                }
                return Ok(Some(event));
            }
            match req.next_bytes().await? {
                Some(bytes) => self.parser.push(&bytes),
                None => return Err(MultipartError::Truncated.into()),
            }
        }
        // Bytes after the closing delimiter are ignored.
        while req.next_bytes().await?.is_some() {}
        Ok(None)
    }
}

/// Whether the request's body is a document with attachments.
pub fn is_multipart_related(req: &Request) -> bool {
    let header = req.header(&CONTENT_TYPE).unwrap_or("");
    let kind = header.split(';').next().unwrap_or("").trim();
    kind.eq_ignore_ascii_case("multipart/related")
}

/// A document that came with attachments. Hold `uploaded` until it is written.
pub struct Received {
    pub doc: EditDoc,
    pub uploaded: Vec<UploadedContent>,
}

/// Reads such a request for the document `id`. Attachments go to the store as they come; `document_bytes_max` bounds the document's text.
pub async fn read_multipart(
    req: &mut Request,
    db: &Database,
    id: &DocId,
    document_bytes_max: u64,
    attachment_bytes_max: u64,
    replicated: bool,
) -> Result<Received, ApiError> {
    let mut events = Events::new(req.header(&CONTENT_TYPE).unwrap_or(""))?;
    let limits = AttachmentLimits {
        bytes_max: attachment_bytes_max,
        count_max: req.settings.couchdb.max_attachments_per_document,
        replicated,
    };
    let mut receiving = Receiving {
        db,
        id,
        document_bytes_max,
        limits,
        text: BytesMut::new(),
        doc: None,
        expected: Expectations::default(),
        uploading: None,
        uploaded: vec![],
    };
    while let Some(event) = events.next(req).await? {
        if receiving.doc.is_none() {
            let length = receiving.text.len() as u64;
            req.make_room_for_text(length, &event).await?;
            if matches!(event, Event::PartEnd) {
                receiving.parse(req).await?;
                continue;
            }
        }
        receiving.event(event).await?;
    }
    receiving.finish()
}

/// An attachment that the document marks as following.
struct Expected {
    name: String,
    content_type: String,
    revpos: Option<u64>,
    options: SinkOptions,
    /// Remaining bytes.
    bytes: Option<u64>,
    file: Option<Attachment>,
}

/// Limits of a document's attachments.
#[derive(Clone, Copy, Debug)]
struct AttachmentLimits {
    bytes_max: u64,
    /// Attachments of a document, also those that do not follow.
    count_max: u64,
    /// The document names the revisions of its attachments.
    replicated: bool,
}

/// All attachments that a document marks as following, and which of them have arrived.
#[derive(Default)]
struct Expectations {
    all: Vec<Expected>,
    by_name: HashMap<String, usize>,
    /// All before it have arrived.
    first_open: usize,
}

struct Receiving<'a> {
    db: &'a Database,
    id: &'a DocId,
    document_bytes_max: u64,
    limits: AttachmentLimits,
    /// The document's text, until it is complete.
    text: BytesMut,
    doc: Option<EditDoc>,
    expected: Expectations,
    uploading: Option<Uploading>,
    uploaded: Vec<UploadedContent>,
}

struct Uploading {
    /// Which of those expected.
    index: usize,
    sink: AttachmentSink,
    bytes: u64,
}

impl Receiving<'_> {
    /// Parses the document's text, which has ended.
    async fn parse(&mut self, req: &mut Request) -> Result<(), ApiError> {
        let (text, limits) = (std::mem::take(&mut self.text), self.limits);
        let length = text.len();
        let parse = move || {
            let doc = parse_document(&text)?;
            let expected = Expectations::of(&doc, limits)?;
            Ok::<_, ApiError>((doc, expected))
        };
        let (doc, expected) = req.process(length, false, parse).await??;
        (self.doc, self.expected) = (Some(doc), expected);
        Ok(())
    }

    async fn event(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Part(headers) if self.doc.is_some() => self.begin(&headers),
            Event::Part(_) => {}
            Event::Data(bytes) if self.doc.is_none() => {
                if (self.text.len() + bytes.len()) as u64 > self.document_bytes_max {
                    return Err(ApiError::new(
                        413,
                        "document_too_large",
                        "the document exceeds max_document_size",
                    ));
                }
                self.text.extend_from_slice(&bytes);
            }
            Event::Data(bytes) => {
                let Some(uploading) = &mut self.uploading else {
                    return Ok(());
                };
                let expected = &self.expected.all[uploading.index];
                uploading.bytes += bytes.len() as u64;
                if expected.bytes.is_some_and(|n| uploading.bytes > n) {
                    return Err(ApiError::bad_request("attachment longer than expected"));
                }
                let written = uploading.sink.write(bytes).await;
                written.map_err(|e| named(e, &expected.name, self.limits.bytes_max))?;
            }
            Event::PartEnd => self.end().await?,
            Event::End => {}
        }
        Ok(())
    }

    fn begin(&mut self, headers: &Headers) {
        let Some(index) = self.expected.of_part(headers.filename().as_deref()) else {
            return;
        };
        let expected = &self.expected.all[index];
        let options = expected.options.clone();
        self.uploading = Some(Uploading {
            index,
            sink: self
                .db
                .attachment_sink(self.id, &expected.content_type, options),
            bytes: 0,
        });
    }

    async fn end(&mut self) -> Result<(), ApiError> {
        let Some(uploading) = self.uploading.take() else {
            return Ok(());
        };
        let expected = &mut self.expected.all[uploading.index];
        if expected.bytes.is_some_and(|n| uploading.bytes < n) {
            return Err(ApiError::bad_request("attachment shorter than expected"));
        }
        let uploaded = uploading.sink.finish().await?;
        expected.file =
            Some(uploaded.attachment(&expected.name, &expected.content_type, expected.revpos));
        self.uploaded.push(uploaded);
        Ok(())
    }

    fn finish(self) -> Result<Received, ApiError> {
        let mut doc = self.doc.ok_or(MultipartError::Truncated)?;
        for expected in self.expected.all {
            let Some(file) = expected.file else {
                return Err(ApiError::bad_request("attachment shorter than expected"));
            };
            doc.files.push(file);
        }
        Ok(Received {
            doc,
            uploaded: self.uploaded,
        })
    }
}

impl Expectations {
    /// # Errors
    /// 413 when the document has too many attachments, 400 for one with an invalid member.
    fn of(doc: &EditDoc, limits: AttachmentLimits) -> Result<Expectations, ApiError> {
        let mut expectations = Expectations::default();
        let entries = members(doc.attachments.as_deref().unwrap_or_default());
        for (n, (name, entry)) in entries.enumerate() {
            if n as u64 >= limits.count_max {
                return Err(too_many(limits.count_max));
            }
            let Some(entry) = Entry::of(entry).filter(|entry| entry.follows) else {
                continue;
            };
            let index = expectations.all.len();
            expectations.by_name.insert(name.clone(), index);
            expectations.all.push(entry.expected(name, limits)?);
        }
        Ok(expectations)
    }

    /// The attachment that a part is: the one that its file name names, or otherwise the next one that has
    /// not arrived.
    fn of_part(&mut self, file_name: Option<&str>) -> Option<usize> {
        let is_open = |expected: &Expected| expected.file.is_none();
        let named = file_name.and_then(|name| self.by_name.get(name).copied());
        if let Some(index) = named.filter(|index| is_open(&self.all[*index])) {
            return Some(index);
        }
        let closed = self.all[self.first_open..].iter();
        self.first_open += closed.take_while(|expected| !is_open(expected)).count();
        Some(self.first_open).filter(|index| *index < self.all.len())
    }
}

/// The refusal of a document with more attachments than it may have, as where it is written.
fn too_many(count_max: u64) -> ApiError {
    let reason = format!("the document exceeds max_attachments_per_document ({count_max})");
    ApiError::new(413, "attachment_too_large", reason)
}

/// The members of an entry of `_attachments`, as JSON texts.
#[derive(Default)]
struct Entry<'a> {
    /// Its content follows in a part.
    follows: bool,
    content_type: Option<&'a [u8]>,
    encoding: Option<&'a [u8]>,
    digest: Option<&'a [u8]>,
    revpos: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    encoded_length: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// `None` when it is not an object.
    fn of(text: &'a [u8]) -> Option<Entry<'a>> {
        if !text.starts_with(b"{") {
            return None;
        }
        let mut entry = Entry::default();
        let mut is_stub = false;
        for (name, value) in members(text) {
            match name.as_str() {
                "follows" => entry.follows = value == b"true",
                "stub" => is_stub = value == b"true",
                "content_type" => entry.content_type = Some(value),
                "encoding" => entry.encoding = Some(value),
                "digest" => entry.digest = Some(value),
                "revpos" => entry.revpos = Some(value),
                "length" => entry.length = Some(value),
                "encoded_length" => entry.encoded_length = Some(value),
                _ => {}
            }
        }
        entry.follows &= !is_stub;
        Some(entry)
    }

    fn expected(&self, name: String, limits: AttachmentLimits) -> Result<Expected, ApiError> {
        let content_type = match self.content_type.map(string_text) {
            None => DEFAULT_TYPE.into(),
            Some(Some(content_type)) => content_type,
            Some(None) => {
                return Err(ApiError::bad_request(format!(
                    "The content_type of attachment {name} is not a string"
                )));
            }
        };
        let encoded = match self.encoding {
            None | Some(b"\"identity\"") => false,
            Some(b"\"gzip\"") => true,
            Some(_) => {
                return Err(ApiError::bad_request(format!(
                    "The encoding of attachment {name} is neither gzip nor identity"
                )));
            }
        };
        let number = |text: Option<&[u8]>| text.and_then(|text| serde_json::from_slice(text).ok());
        let length: Option<u64> = number(self.length);
        let digest = self.digest.and_then(string_text);
        Ok(Expected {
            name,
            content_type: content_type.into_owned(),
            revpos: limits.replicated.then(|| number(self.revpos).unwrap_or(0)),
            bytes: match encoded {
                true => number(self.encoded_length).or(length),
                false => length,
            },
            options: SinkOptions {
                encoded,
                length,
                md5: digest.and_then(|d| decode_md5(d.strip_prefix("md5-")?)),
                bytes_max: Some(limits.bytes_max),
            },
            file: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::{ContentId, Encoding};
    use serde_json::{Value, json};

    const LIMITS: AttachmentLimits = AttachmentLimits {
        bytes_max: 1000,
        count_max: 10_000,
        replicated: true,
    };

    fn expectations(attachments: &Value) -> Result<Expectations, ApiError> {
        let doc = json!({"_id": "a", "_attachments": attachments}).to_string();
        Expectations::of(&parse_document(doc.as_bytes()).expect("a document"), LIMITS)
    }

    fn follow(names: impl Iterator<Item = String>) -> Value {
        let entries = names.map(|name| (name, json!({"follows": true})));
        entries.collect::<serde_json::Map<_, _>>().into()
    }

    fn arrived(name: &str) -> Attachment {
        Attachment {
            name: name.to_owned(),
            content_type: DEFAULT_TYPE.to_owned(),
            md5: [0; 16],
            content: ContentId::default(),
            length: 0,
            stored_length: 0,
            encoding: Encoding::Identity,
            length_unsure: false,
            revpos: None,
        }
    }

    /// Marks an attachment as arrived.
    fn arrive(expectations: &mut Expectations, index: usize) {
        let expected = &mut expectations.all[index];
        assert!(expected.file.is_none(), "it arrives once");
        expected.file = Some(arrived(&expected.name));
    }

    #[test]
    fn parts_are_found_by_their_names_or_come_in_order() {
        let attachments = json!({
            "a": {"follows": true},
            "stub": {"stub": true, "follows": true},
            "b\n": {"follows": true, "content_type": "text/x", "length": 3, "revpos": 2},
            "inline": {"data": ""},
            "c": {"follows": true, "encoding": "gzip", "length": 9, "encoded_length": 5},
        });
        let mut expected = expectations(&attachments).expect("valid");
        let all = expected.all.iter();
        let seen: Vec<_> = all
            .map(|e| (e.name.as_str(), e.content_type.as_str(), e.bytes, e.revpos))
            .collect();
        let of_any = DEFAULT_TYPE;
        assert_eq!(
            seen,
            [
                ("a", of_any, None, Some(0)),
                ("b\n", "text/x", Some(3), Some(2)),
                ("c", of_any, Some(5), Some(0)),
            ]
        );
        for (name, index) in [(Some("b\n"), 1), (Some("b\n"), 0), (None, 2)] {
            assert_eq!(expected.of_part(name), Some(index), "{name:?}");
            arrive(&mut expected, index);
        }
        assert_eq!(expected.of_part(Some("a")), None);
        assert_eq!(expected.of_part(None), None);
    }

    #[test]
    fn as_many_parts_as_a_document_may_have_arrive_in_any_order() {
        let names = || (0..10_000).map(|n| format!("f{n}"));
        let mut expected = expectations(&follow(names())).expect("as many as are allowed");
        // Those in odd places by name, backwards; then all others in order.
        let by_name: Vec<String> = names().skip(1).step_by(2).collect();
        for name in by_name.iter().rev() {
            let index = expected.of_part(Some(name)).expect("it is expected");
            assert_eq!(&expected.all[index].name, name);
            arrive(&mut expected, index);
        }
        for n in (0..10_000).step_by(2) {
            assert_eq!(expected.of_part(None), Some(n));
            arrive(&mut expected, n);
            assert!(
                expected.first_open <= n,
                "those that have arrived are not searched again"
            );
        }
        assert_eq!(expected.of_part(None), None);
    }

    #[test]
    fn a_document_with_too_many_attachments_is_refused_before_they_arrive() {
        let refused = expectations(&follow((0..10_001).map(|n| format!("f{n}"))));
        let refused = refused.err().expect("it has too many");
        assert_eq!(
            (refused.status, &*refused.error),
            (413, "attachment_too_large")
        );
        assert!(
            refused
                .reason
                .ends_with("max_attachments_per_document (10000)")
        );
    }

    #[test]
    fn invalid_members_are_refused() {
        for entry in [
            json!({"follows": true, "content_type": 1}),
            json!({"follows": true, "encoding": "br"}),
            json!({"follows": true, "encoding": 1}),
        ] {
            let refused = expectations(&json!({"a": entry})).err().expect("invalid");
            assert_eq!(refused.status, 400);
        }
        assert!(expectations(&json!({"a": {"content_type": 1}})).is_ok());
    }
}
