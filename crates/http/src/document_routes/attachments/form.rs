//! `POST /{db}/{doc}`: a document and its attachments out of a web page's form (`multipart/form-data`).
//!
//! The fields are `_doc`, the document's JSON, or otherwise `_rev`, a revision whose body is kept,
//! and files named `_attachments`, which replace attachments of the same names. Others are ignored.
//! Of a repeated field the first one applies.

use std::collections::HashSet;

use bytes::BytesMut;
use database::{AttachmentSink, Database, EditMode, SinkOptions, UploadedContent};
use document::json::members;
use document::multipart::{ContentType, Event, Headers};
use document::{Attachment, DocId, EditDoc, Rev, RevError, parse_document, write_json_string};
use hyper::header::{CONTENT_TYPE, REFERER};

use super::receive::Events;
use super::{Answer, DEFAULT_TYPE, before_of, check_name, edit, named};
use crate::document_routes::documents::{edited_rev, write};
use crate::errors::ApiError;
use crate::request::Request;
use crate::settings::Settings;
use node::Access;
use node::parse_id;

const FORM_TYPE: &str = "multipart/form-data";
/// Longer than any revision.
const REV_BYTES_MAX: usize = 1024;
/// Most files of one form, whatever a document may have: data of each is held until the document is
/// written.
const FILES_MAX: u64 = 100_000;
/// Memory for files is taken for each 64 KiB of their names and types.
const KEEP_EVERY_BYTES: usize = 64 << 10;
/// Memory of a file besides its name and type, about, in bytes.
const FILE_BYTES: usize = size_of::<Attachment>() + size_of::<UploadedContent>();

/// Writes the document that the form holds.
pub async fn post_form(req: &mut Request, access: &Access, id: &str) -> Answer {
    check_referer(req)?;
    let settings = req.settings.clone();
    let id = parse_id(id, &settings.couchdb)?;
    let content_type = req.header(&CONTENT_TYPE).unwrap_or("");
    if !is_form(content_type) {
        let reason = format!("Content-Type must be {FORM_TYPE}");
        return Err(ApiError::bad_content_type(reason));
    }
    let mut events = Events::new(content_type)?;
    // Before the files: who is going to be refused need not send them all.
    if id.is_design() {
        access.require_design_admin(&req.user)?;
    }
    let mut form = Form::new(&access.db, &settings, &id);
    while let Some(event) = events.next(req).await? {
        if let (Part::Doc, Some(text)) = (&form.part, &form.doc) {
            req.make_room_for_text(text.len() as u64, &event).await?;
        }
        form.event(event).await?;
        if form.unkept_bytes >= KEEP_EVERY_BYTES {
            req.keep(std::mem::take(&mut form.unkept_bytes)).await?;
        }
    }
    let Form {
        doc,
        rev,
        names,
        mut files,
        uploaded,
        ..
    } = form;
    let written = match (doc, rev) {
        (Some(text), _) => {
            let length = text.len();
            let parse = move || {
                let mut doc = parse_document(&text)?;
                take_out(&mut doc, &names);
                Ok::<_, ApiError>(doc)
            };
            let mut doc = req.process(length, false, parse).await??;
            doc.rev = edited_rev(req, doc.rev.take())?;
            doc.id = Some(id);
            doc.files = files;
            write(req, access, doc, EditMode::Interactive).await?
        }
        (None, Some(rev)) => {
            let rev = std::str::from_utf8(&rev).map_err(|_| RevError)?;
            let before = before_of(access, &id, Rev::parse(rev.trim())?)?;
            files.extend(before.others(|name| names.contains(name)));
            edit(req, access, before, id, files).await?
        }
        (None, None) => {
            return Err(ApiError::bad_request(
                "The form has neither a field `_doc` nor a field `_rev`",
            ));
        }
    };
    drop(uploaded);
    Ok(written.reply(None))
}

/// A browser sends forms of any page with the user's cookie: only pages of this host may submit
/// them here.
fn check_referer(req: &Request) -> Result<(), ApiError> {
    let Some(referer) = req.headers.get(REFERER) else {
        return Err(ApiError::bad_request("Referer header required."));
    };
    let host = referer.to_str().ok().and_then(host_of);
    match host == Some(req.host()) {
        true => Ok(()),
        false => Err(ApiError::bad_request("Referer header must match host.")),
    }
}

/// Host and port of an absolute URL, without decoding.
fn host_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let delimiters = ['/', '?', '#'];
    (!scheme.contains(delimiters)).then(|| rest.split(delimiters).next())?
}

fn is_form(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or("");
    kind.trim().eq_ignore_ascii_case(FORM_TYPE)
}

/// Removes the attachments of the form from the document's entries: they come first then, as in
/// CouchDB, whose revisions depend on the order. The entries stay texts: values would take a multiple of
/// their memory.
fn take_out(doc: &mut EditDoc, names: &HashSet<String>) {
    let Some(said) = doc.attachments.as_deref().filter(|_| !names.is_empty()) else {
        return;
    };
    let mut left = vec![];
    for (name, entry) in members(said).filter(|(name, _)| !names.contains(name)) {
        left.push(if left.is_empty() { b'{' } else { b',' });
        write_json_string(&name, &mut left);
        left.push(b':');
        left.extend_from_slice(entry);
    }
    if !left.is_empty() {
        left.push(b'}');
    }
    doc.attachments = Some(left.into_boxed_slice()).filter(|left| !left.is_empty());
}

/// The contents of the form.
struct Form<'a> {
    db: &'a Database,
    settings: &'a Settings,
    id: &'a DocId,
    part: Part,
    doc: Option<BytesMut>,
    rev: Option<BytesMut>,
    names: HashSet<String>,
    files: Vec<Attachment>,
    /// To be held until the document is written.
    uploaded: Vec<UploadedContent>,
    /// Bytes of the files, without their contents, for which no memory was taken.
    unkept_bytes: usize,
}

/// The part that is coming in.
enum Part {
    Ignored,
    Doc,
    Rev,
    /// A field for a file, without a name: no file was chosen.
    NoFile,
    File(Box<File>),
}

struct File {
    name: String,
    content_type: String,
    sink: AttachmentSink,
}

impl<'a> Form<'a> {
    fn new(db: &'a Database, settings: &'a Settings, id: &'a DocId) -> Form<'a> {
        Form {
            db,
            settings,
            id,
            part: Part::Ignored,
            doc: None,
            rev: None,
            names: HashSet::new(),
            files: vec![],
            uploaded: vec![],
            unkept_bytes: 0,
        }
    }

    async fn event(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Part(headers) => self.part = self.begin(&headers)?,
            Event::Data(bytes) => match &mut self.part {
                Part::Ignored => {}
                Part::Doc => {
                    let text = self.doc.get_or_insert_default();
                    if (text.len() + bytes.len()) as u64
                        > self.settings.chttpd.max_http_request_size
                    {
                        return Err(ApiError::new(
                            413,
                            "document_too_large",
                            "the document exceeds max_document_size",
                        ));
                    }
                    text.extend_from_slice(&bytes);
                }
                Part::Rev => {
                    let text = self.rev.get_or_insert_default();
                    if text.len() + bytes.len() > REV_BYTES_MAX {
                        return Err(RevError.into());
                    }
                    text.extend_from_slice(&bytes);
                }
                Part::NoFile => return Err(ApiError::bad_request("A file has no name")),
                Part::File(file) => {
                    let max = self.settings.couchdb.max_attachment_size;
                    let written = file.sink.write(bytes).await;
                    written.map_err(|e| named(e, &file.name, max))?;
                }
            },
            Event::PartEnd | Event::End => {
                if let Part::File(file) = std::mem::replace(&mut self.part, Part::Ignored) {
                    let uploaded = file.sink.finish().await?;
                    let attachment = uploaded.attachment(&file.name, &file.content_type, None);
                    self.files.push(attachment);
                    self.uploaded.push(uploaded);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, headers: &Headers) -> Result<Part, ApiError> {
        let field = headers
            .form_field()
            .ok_or_else(|| ApiError::bad_request("A part of the form is no form field"))?;
        Ok(match (field.as_str(), headers.filename()) {
            ("_doc", _) if self.doc.is_none() => {
                self.doc = Some(BytesMut::new());
                Part::Doc
            }
            ("_rev", _) if self.rev.is_none() => {
                self.rev = Some(BytesMut::new());
                Part::Rev
            }
            ("_attachments", Some(name)) if name.is_empty() => Part::NoFile,
            ("_attachments", Some(name)) => self.begin_file(name, headers.content_type())?,
            _ => Part::Ignored,
        })
    }

    /// The type's parameters are left out, as in CouchDB.
    fn begin_file(
        &mut self,
        name: String,
        content_type: Option<ContentType>,
    ) -> Result<Part, ApiError> {
        if self.id.is_local() {
            return Err(super::no_local_attachments());
        }
        check_name(&name)?;
        let max = self
            .settings
            .couchdb
            .max_attachments_per_document
            .min(FILES_MAX);
        if self.files.len() as u64 >= max {
            return Err(ApiError::new(
                413,
                "attachment_too_large",
                format!("the form has more than {max} attachments"),
            ));
        }
        if !self.names.insert(name.clone()) {
            return Err(ApiError::bad_request("Duplicate attachments"));
        }
        let content_type = content_type.map_or_else(|| DEFAULT_TYPE.to_owned(), |c| c.essence);
        // The name is in two places.
        self.unkept_bytes += 2 * name.len() + content_type.len() + FILE_BYTES;
        let options = SinkOptions {
            bytes_max: Some(self.settings.couchdb.max_attachment_size),
            ..SinkOptions::default()
        };
        Ok(Part::File(Box::new(File {
            sink: self.db.attachment_sink(self.id, &content_type, options),
            name,
            content_type,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_page_is_what_stands_between_the_slashes() {
        for (url, host) in [
            (
                "http://a.example:5984/db/form.html?x#y",
                Some("a.example:5984"),
            ),
            ("https://a.example", Some("a.example")),
            ("http://a.example?http://b.example", Some("a.example")),
            ("http://a.example#x", Some("a.example")),
            ("http://user@a.example/", Some("user@a.example")),
            ("http:///x", Some("")),
            ("/x?http://a.example", None),
            ("a.example", None),
            ("", None),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }

    #[test]
    fn what_the_form_brings_is_taken_out_of_what_the_document_says() {
        let names = HashSet::from(["b".to_owned()]);
        let said = |json: &[u8]| {
            let mut doc = parse_document(json).unwrap();
            take_out(&mut doc, &names);
            doc.attachments
                .map(|said| String::from_utf8(said.into_vec()).unwrap())
        };
        assert_eq!(
            said(br#"{"_attachments":{"c":{"stub":true},"b":{"stub":true},"a":{"stub":true}}}"#),
            Some(r#"{"c":{"stub":true},"a":{"stub":true}}"#.to_owned())
        );
        assert_eq!(said(br#"{"_attachments":{"b":{"stub":true}}}"#), None);
        assert_eq!(said(b"{}"), None);
        // As values such an entry would be refused.
        let depth = 200;
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let kept = format!(r#"{{"é\"":{{"x":{deep}}}}}"#);
        let both = format!(r#"{{"_attachments":{{"b":{{"stub":true}},"é\"":{{"x":{deep}}}}}}}"#);
        assert_eq!(said(both.as_bytes()), Some(kept));
    }
}
