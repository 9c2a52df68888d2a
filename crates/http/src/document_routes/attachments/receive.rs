//! A document whose attachments follow it in one request: `multipart/related`.

use bytes::BytesMut;
use database::{AttachmentSink, Database, SinkOptions, Uploaded};
use document::multipart::{ContentType, Event, Headers, Limits, MultipartError, Parser};
use document::{Attachment, DocId, EditDoc, parse_document};
use hyper::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use super::{DEFAULT_TYPE, decode_md5, named};
use crate::errors::ApiError;
use crate::request::Request;

/// The parts of a request's multipart body, as its bytes arrive.
pub struct Events {
    parser: Parser,
    ended: bool,
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
    pub uploaded: Vec<Uploaded>,
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
    let mut receiving = Receiving {
        db,
        id,
        document_bytes_max,
        attachment_bytes_max,
        replicated,
        text: BytesMut::new(),
        doc: None,
        expected: vec![],
        uploading: None,
        uploaded: vec![],
    };
    while let Some(event) = events.next(req).await? {
        if receiving.doc.is_none() {
            let length = receiving.text.len() as u64;
            req.make_room_for_text(length, &event).await?;
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

struct Receiving<'a> {
    db: &'a Database,
    id: &'a DocId,
    document_bytes_max: u64,
    attachment_bytes_max: u64,
    replicated: bool,
    /// The document's text, until it is complete.
    text: BytesMut,
    doc: Option<EditDoc>,
    expected: Vec<Expected>,
    uploading: Option<Uploading>,
    uploaded: Vec<Uploaded>,
}

struct Uploading {
    /// Which of those expected.
    index: usize,
    sink: AttachmentSink,
    bytes: u64,
}

impl Receiving<'_> {
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
                let expected = &self.expected[uploading.index];
                uploading.bytes += bytes.len() as u64;
                if expected.bytes.is_some_and(|n| uploading.bytes > n) {
                    return Err(ApiError::bad_request("attachment longer than expected"));
                }
                let written = uploading.sink.write(bytes).await;
                written.map_err(|e| named(e, &expected.name, self.attachment_bytes_max))?;
            }
            Event::PartEnd if self.doc.is_none() => {
                let doc = parse_document(&self.text)?;
                self.text = BytesMut::new();
                self.expected = self.expected_of(&doc)?;
                self.doc = Some(doc);
            }
            Event::PartEnd => self.end().await?,
            Event::End => {}
        }
        Ok(())
    }

    /// The part is the attachment that its file name names, or otherwise the next one that has not
    /// arrived.
    fn begin(&mut self, headers: &Headers) {
        let open = |e: &Expected| e.file.is_none();
        let name = headers.filename();
        let by_name = name.and_then(|name| {
            let is = |e: &Expected| open(e) && e.name == name;
            self.expected.iter().position(is)
        });
        let Some(index) = by_name.or_else(|| self.expected.iter().position(open)) else {
            return;
        };
        let expected = &self.expected[index];
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
        let expected = &mut self.expected[uploading.index];
        if expected.bytes.is_some_and(|n| uploading.bytes < n) {
            return Err(ApiError::bad_request("attachment shorter than expected"));
        }
        let uploaded = uploading.sink.finish().await?;
        expected.file =
            Some(uploaded.attachment(&expected.name, &expected.content_type, expected.revpos));
        self.uploaded.push(uploaded);
        Ok(())
    }

    fn expected_of(&self, doc: &EditDoc) -> Result<Vec<Expected>, ApiError> {
        let Some(said) = &doc.attachments else {
            return Ok(vec![]);
        };
        let said: Map<String, Value> =
            serde_json::from_slice(said).map_err(|_| ApiError::invalid_json())?;
        said.iter()
            .filter_map(|(name, entry)| Some((name, entry.as_object()?)))
            .filter(|(_, entry)| {
                entry.get("follows") == Some(&Value::Bool(true))
                    && entry.get("stub") != Some(&Value::Bool(true))
            })
            .map(|(name, entry)| self.expected(name, entry))
            .collect()
    }

    fn expected(&self, name: &str, entry: &Map<String, Value>) -> Result<Expected, ApiError> {
        let content_type = match entry.get("content_type") {
            None => DEFAULT_TYPE,
            Some(Value::String(content_type)) => content_type,
            Some(_) => {
                return Err(ApiError::bad_request(format!(
                    "The content_type of attachment {name} is not a string"
                )));
            }
        };
        let encoded = match entry.get("encoding").map(Value::as_str) {
            None | Some(Some("identity")) => false,
            Some(Some("gzip")) => true,
            Some(_) => {
                return Err(ApiError::bad_request(format!(
                    "The encoding of attachment {name} is neither gzip nor identity"
                )));
            }
        };
        let number = |member| entry.get(member).and_then(Value::as_u64);
        let length = number("length");
        let digest = entry.get("digest").and_then(Value::as_str);
        Ok(Expected {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            revpos: self.replicated.then(|| number("revpos").unwrap_or(0)),
            bytes: match encoded {
                true => number("encoded_length").or(length),
                false => length,
            },
            options: SinkOptions {
                encoded,
                length,
                md5: digest.and_then(|d| decode_md5(d.strip_prefix("md5-")?)),
                bytes_max: Some(self.attachment_bytes_max),
            },
            file: None,
        })
    }

    fn finish(self) -> Result<Received, ApiError> {
        let mut doc = self.doc.ok_or(MultipartError::Truncated)?;
        for expected in self.expected {
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
