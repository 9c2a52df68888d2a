//! A document with attachments that arrives as `multipart/related` for a database on this server.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use database::{AttachmentSink, SinkOptions, UploadedContent};
use document::multipart::{Event, Headers};
use document::{Attachment, DocId, EditDoc, parse_document};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_limits;
use super::local::LocalDb;
use super::peer_values::cut_reason;

/// The content type of attachments without one.
const DEFAULT_TYPE: &str = "application/octet-stream";
/// Maximum number of values in the description of an attachment.
const ENTRY_VALUES_MAX: usize = 100;
/// Maximum number of attachments of a document, whatever the database allows.
const ATTACHMENTS_MAX: u64 = 100_000;

/// The reason why a document cannot be written.
pub enum Broken {
    Garbled(String),
    Refused(database::Error),
    /// The document has more attachments than this, which the database allows.
    TooMany(u64),
    /// The text of the document is longer than this number of bytes.
    TooLong(usize),
}

/// An attachment expected after its document.
struct Expected {
    name: String,
    content_type: String,
    revpos: Option<u64>,
    options: SinkOptions,
    file: Option<Attachment>,
}

/// The attachments that are expected, in the order of the document.
#[derive(Default)]
struct ExpectedAttachments {
    all: Vec<Expected>,
    by_name: HashMap<String, usize>,
    /// All before this one have arrived.
    first_open: usize,
}

impl ExpectedAttachments {
    /// Parses the attachments of a document, of which a database accepts `count_max`.
    fn parse(attachments: &[u8], count_max: u64) -> Result<ExpectedAttachments, Broken> {
        let garbled = |e: String| Broken::Garbled(cut_reason(e));
        let mut deserializer = serde_json::Deserializer::from_slice(attachments);
        let entries = Entries(count_max.min(ATTACHMENTS_MAX)).deserialize(&mut deserializer);
        let entries = entries.map_err(|e| garbled(e.to_string()))?;
        let entries = entries.ok_or(Broken::TooMany(count_max))?;
        let mut found = ExpectedAttachments::default();
        for (name, text) in entries {
            let entry: Value = json_limits::parse(text.get().as_bytes(), ENTRY_VALUES_MAX)
                .map_err(|e| garbled(format!("an attachment is not understood: {e}")))?;
            if entry.get("follows") != Some(&Value::Bool(true)) {
                continue;
            }
            let expected = expected(&name, &entry);
            match found.by_name.get(&name) {
                Some(&index) => found.all[index] = expected,
                None => {
                    found.by_name.insert(name, found.all.len());
                    found.all.push(expected);
                }
            }
        }
        Ok(found)
    }

    /// Returns the index of the attachment with this name, or else of the next one, that has not
    /// arrived.
    fn open(&mut self, name: Option<&str>) -> Option<usize> {
        let is_open = |e: &Expected| e.file.is_none();
        let named = name.and_then(|name| self.by_name.get(name).copied());
        if let Some(index) = named.filter(|&index| is_open(&self.all[index])) {
            return Some(index);
        }
        let next = self.all[self.first_open..].iter().position(is_open);
        self.first_open = next.map_or(self.all.len(), |next| self.first_open + next);
        next.map(|_| self.first_open)
    }
}

/// The names and descriptions of attachments; `None` if there are more than this.
struct Entries(u64);

type NamedEntries<'de> = Vec<(String, &'de RawValue)>;

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Option<NamedEntries<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = Option<NamedEntries<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attachments of a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = vec![];
        while let Some(name) = map.next_key::<String>()? {
            if entries.len() as u64 >= self.0 {
                map.next_value::<IgnoredAny>()?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
            entries.push((name, map.next_value()?));
        }
        Ok(Some(entries))
    }
}

/// A document with attachments that is being received.
pub struct ReceivedDocument<'a> {
    target: &'a LocalDb,
    id: &'a DocId,
    text: BytesMut,
    /// Maximum length of the text, in bytes.
    text_bytes_max: usize,
    doc: Option<EditDoc>,
    expected: ExpectedAttachments,
    /// The index of the expected attachment that is being received.
    uploading: Option<(usize, AttachmentSink)>,
    held: Vec<UploadedContent>,
}

impl<'a> ReceivedDocument<'a> {
    pub fn new(target: &'a LocalDb, id: &'a DocId, text_bytes_max: usize) -> ReceivedDocument<'a> {
        ReceivedDocument {
            target,
            id,
            text: BytesMut::new(),
            text_bytes_max,
            doc: None,
            expected: ExpectedAttachments::default(),
            uploading: None,
            held: vec![],
        }
    }

    /// Returns the length of the document's text so far.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Takes the next part of the response.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn event(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Part(headers) if self.doc.is_some() => self.begin(&headers),
            Event::Part(_) | Event::End => {}
            Event::Data(bytes) if self.doc.is_none() => {
                if self.text.len() + bytes.len() > self.text_bytes_max {
                    return Err(Broken::TooLong(self.text_bytes_max));
                }
                self.text.extend_from_slice(&bytes);
            }
            Event::Data(bytes) => {
                if let Some((_, sink)) = &mut self.uploading {
                    sink.write(bytes).await.map_err(Broken::Refused)?;
                }
            }
            Event::PartEnd if self.doc.is_none() => {
                let doc = parse_document(&self.text);
                let doc = doc.map_err(|e| Broken::Garbled(cut_reason(e.to_string())))?;
                self.text = BytesMut::new();
                self.expected = self.expected_of(&doc)?;
                self.doc = Some(doc);
            }
            Event::PartEnd => {
                if let Some((index, sink)) = self.uploading.take() {
                    let uploaded = sink.finish().await.map_err(Broken::Refused)?;
                    let e = &mut self.expected.all[index];
                    e.file = Some(uploaded.attachment(&e.name, &e.content_type, e.revpos));
                    self.held.push(uploaded);
                }
            }
        }
        Ok(())
    }

    /// Starts a part: it is the attachment with its file name, or else the next expected one.
    fn begin(&mut self, headers: &Headers) {
        let Some(index) = self.expected.open(headers.filename().as_deref()) else {
            return;
        };
        let expected = &self.expected.all[index];
        let mut options = expected.options.clone();
        options.bytes_max = Some(self.target.attachment_bytes_max);
        let sink = self
            .target
            .db
            .attachment_sink(self.id, &expected.content_type, options);
        self.uploading = Some((index, sink));
    }

    fn expected_of(&self, doc: &EditDoc) -> Result<ExpectedAttachments, Broken> {
        let Some(attachments) = &doc.attachments else {
            return Ok(ExpectedAttachments::default());
        };
        let expected = ExpectedAttachments::parse(attachments, self.target.attachments_max)?;
        // Contents that are announced as too long are not read first.
        let bytes_max = self.target.attachment_bytes_max;
        let is_too_long = |e: &Expected| e.options.length.is_some_and(|length| length > bytes_max);
        match expected.all.iter().any(is_too_long) {
            true => Err(Broken::Refused(database::Error::AttachmentTooLarge)),
            false => Ok(expected),
        }
    }

    /// Returns the document and its uploads; `None` when attachments are missing.
    pub fn finish(self) -> Option<(EditDoc, Vec<UploadedContent>)> {
        let mut doc = self.doc?;
        for expected in self.expected.all {
            doc.files.push(expected.file?);
        }
        Some((doc, self.held))
    }
}

fn expected(name: &str, entry: &Value) -> Expected {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let number = |member: &str| entry.get(member).and_then(Value::as_u64);
    Expected {
        name: name.to_owned(),
        content_type: text("content_type").unwrap_or(DEFAULT_TYPE).to_owned(),
        revpos: Some(number("revpos").unwrap_or(0)),
        options: SinkOptions {
            encoded: text("encoding") == Some("gzip"),
            length: number("length"),
            md5: text("digest").and_then(md5),
            bytes_max: None,
        },
        file: None,
    }
}

/// Parses the bytes of a digest `md5-…`.
fn md5(digest: &str) -> Option<[u8; 16]> {
    let bytes = STANDARD.decode(digest.strip_prefix("md5-")?).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use document::Encoding;

    use super::*;

    fn parse(attachments: &str, count_max: u64) -> Result<ExpectedAttachments, Broken> {
        ExpectedAttachments::parse(attachments.as_bytes(), count_max)
    }

    fn follow(names: impl Iterator<Item = usize>) -> String {
        let entries = names.map(|name| format!(r#""{name}":{{"follows":true}}"#));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    }

    fn arrive(expected: &mut ExpectedAttachments, index: usize) {
        expected.all[index].file = Some(Attachment {
            name: expected.all[index].name.clone(),
            content_type: DEFAULT_TYPE.to_owned(),
            revpos: None,
            content: [0; 32],
            md5: [0; 16],
            length: 0,
            stored_length: 0,
            encoding: Encoding::Identity,
            length_unsure: false,
        });
    }

    #[test]
    fn parts_are_found_by_name_and_others_are_the_next() {
        let count = 1000;
        let mut expected = parse(&follow(0..count), count as u64).ok().unwrap();
        for index in (0..count / 2).rev() {
            assert_eq!(expected.open(Some(&index.to_string())), Some(index));
            arrive(&mut expected, index);
        }
        for index in count / 2..count {
            // Without a name, with an unknown one, and with that of one that has arrived.
            let name = [None, Some("x"), Some("0")][index % 3];
            assert_eq!(expected.open(name), Some(index));
            assert_eq!(expected.first_open, index);
            arrive(&mut expected, index);
        }
        assert_eq!(expected.open(None), None);
    }

    #[test]
    fn only_as_many_attachments_as_the_database_allows_are_read() {
        assert!(matches!(parse(&follow(0..3), 2), Err(Broken::TooMany(2))));
        assert!(parse(&follow(0..3), 3).is_ok_and(|found| found.all.len() == 3));
        let many = follow(0..ATTACHMENTS_MAX as usize + 1);
        assert!(matches!(parse(&many, u64::MAX), Err(Broken::TooMany(_))));
        let values = format!(
            r#"{{"a":{{"follows":true,"x":[{}0]}}}}"#,
            "[0],".repeat(1000)
        );
        assert!(matches!(parse(&values, 1), Err(Broken::Garbled(_))));
        let found = parse(
            r#"{"a":{"stub":true},"b":{"follows":true,"length":"x"}}"#,
            2,
        );
        assert!(found.is_ok_and(|found| found.all.len() == 1 && found.by_name["b"] == 0));
    }
}
