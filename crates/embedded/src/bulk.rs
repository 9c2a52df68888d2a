//! A bulk of documents whose attachments come as streams.

use std::sync::Arc;

use bytes::Bytes;
use database::{AttachmentSink, EditMode, SinkOptions, UploadedContent};
use document::json::{member, members, string_text};
use document::{EditDoc, parse_document};

use crate::attachments::{DEFAULT_TYPE, check_attachment};
use crate::{Database, Error, Handle, Result, options};

/// A bulk that is being gathered: documents, each followed by the contents of its attachments. Contents go to the store as they
/// come, and are held by nothing but this: without [`Bulk::commit`] it leaves nothing.
#[derive(Clone)]
pub struct Bulk {
    handle: Arc<Handle<State>>,
    db: Database,
    options: options::Put,
}

#[derive(Default)]
struct State {
    edits: Vec<EditDoc>,
    /// Attachments of the last document that are still to come, the next one last.
    expected: Vec<Expected>,
    coming: Option<(Expected, AttachmentSink)>,
    /// Kept until the edits that name them are acknowledged.
    uploaded: Vec<UploadedContent>,
}

struct Expected {
    name: String,
    content_type: String,
    revpos: Option<u64>,
}

impl Bulk {
    /// Adds a document, JSON text, and returns the names of its attachments whose content follows: those with
    /// `"follows": true`, in the document's order. For each of them [`Bulk::begin`] must be called next.
    ///
    /// # Errors
    /// 400 for what is not a document; [`Error::closed`].
    pub fn add(&self, document: &[u8]) -> Result<Vec<String>> {
        let mut edit = parse_document(document)?;
        self.db.name_it(&mut edit)?;
        let is_replicated = self.options.mode() == EditMode::Replicated;
        let expected = expected_of(&edit, is_replicated)?;
        self.handle.with(|state| {
            if !state.expected.is_empty() || state.coming.is_some() {
                return Err(Error::bad_request(INCOMPLETE));
            }
            let names = expected.iter().map(|expected| expected.name.clone());
            let names = names.collect();
            state.expected = expected;
            state.expected.reverse();
            state.edits.push(edit);
            Ok(names)
        })
    }

    /// Begins the content of the next attachment.
    ///
    /// # Errors
    /// 400 when none follows; [`Error::closed`].
    pub fn begin(&self) -> Result<()> {
        self.handle.with(|state| {
            let edit = state.edits.last();
            let id = edit.and_then(|edit| edit.id.as_ref());
            let (Some(id), None) = (id, &state.coming) else {
                return Err(Error::bad_request(NOTHING_FOLLOWS));
            };
            let expected = state.expected.pop();
            let expected = expected.ok_or_else(|| Error::bad_request(NOTHING_FOLLOWS))?;
            let sink = (self.db.writable()?).attachment_sink(
                id,
                &expected.content_type,
                SinkOptions::default(),
            );
            state.coming = Some((expected, sink));
            Ok(())
        })
    }

    /// Takes the next bytes of the current content.
    ///
    /// # Errors
    /// [`Error::closed`], or what the store meets: then nothing more is taken.
    pub async fn write(&self, bytes: Bytes) -> Result<()> {
        let mut state = self.handle.take()?;
        let Some((_, sink)) = &mut state.coming else {
            return Err(Error::bad_request(NOTHING_FOLLOWS));
        };
        sink.write(bytes).await?;
        self.handle.put_back(state);
        Ok(())
    }

    /// Ends the current content.
    ///
    /// # Errors
    /// Those of [`Bulk::write`].
    pub async fn end(&self) -> Result<()> {
        let mut state = self.handle.take()?;
        let Some((expected, sink)) = state.coming.take() else {
            return Err(Error::bad_request(NOTHING_FOLLOWS));
        };
        let uploaded = sink.finish().await?;
        let Expected {
            name,
            content_type,
            revpos,
        } = &expected;
        let file = uploaded.attachment(name, content_type, *revpos);
        if let Some(edit) = state.edits.last_mut() {
            edit.files.push(file);
        }
        state.uploaded.push(uploaded);
        self.handle.put_back(state);
        Ok(())
    }

    /// Writes all documents in one commit, and returns their outcomes as [`Database::bulk`] does.
    ///
    /// # Errors
    /// 400 when contents are missing; [`Error::closed`].
    pub async fn commit(&self) -> Result<Vec<u8>> {
        let state = self.handle.take()?;
        if !state.expected.is_empty() || state.coming.is_some() {
            return Err(Error::bad_request(INCOMPLETE));
        }
        let written = self.db.write_bulk(state.edits, &self.options).await;
        drop(state.uploaded);
        written
    }

    /// Gives it up.
    pub fn close(&self) {
        self.handle.close();
    }
}

const NOTHING_FOLLOWS: &str = "no attachment of the last document is to follow";
const INCOMPLETE: &str = "the contents of the last document's attachments are incomplete";

/// Returns the attachments whose content follows a document.
fn expected_of(edit: &EditDoc, is_replicated: bool) -> Result<Vec<Expected>> {
    let Some(attachments) = &edit.attachments else {
        return Ok(vec![]);
    };
    // As texts: values would take a multiple of their memory.
    let is = |entry: &[u8], name: &str| member(entry, name) == Some(&b"true"[..]);
    members(attachments)
        .filter(|(_, entry)| is(entry, "follows") && !is(entry, "stub"))
        .map(|(name, entry)| {
            if let Some(id) = &edit.id {
                check_attachment(id, &name)?;
            }
            let content_type = match member(entry, "content_type").map(string_text) {
                None => DEFAULT_TYPE.to_owned(),
                Some(Some(content_type)) => content_type.into_owned(),
                Some(None) => {
                    return Err(Error::bad_request(format!(
                        "The content_type of attachment {name} is not a string"
                    )));
                }
            };
            let revpos = member(entry, "revpos").and_then(|text| str::from_utf8(text).ok());
            let revpos = revpos.and_then(|text| text.parse().ok());
            Ok(Expected {
                name,
                content_type,
                revpos: is_replicated.then(|| revpos.unwrap_or(0)),
            })
        })
        .collect()
}

impl Database {
    /// Begins a bulk whose attachments come as streams. `options`: JSON text of an object, as of [`Database::bulk`].
    ///
    /// # Errors
    /// 400 for invalid options; [`Error::closed`].
    pub fn begin_bulk(&self, options: &str) -> Result<Bulk> {
        let options = options::read(options)?;
        // A database that is closed is refused before anything comes.
        self.writable()?;
        Ok(Bulk {
            handle: self.directory.handle(State::default()),
            db: self.clone(),
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(attachments: &str, is_replicated: bool) -> Result<Vec<Expected>> {
        let doc = format!("{{\"_id\":\"a\",\"_attachments\":{attachments}}}");
        expected_of(&parse_document(doc.as_bytes()).unwrap(), is_replicated)
    }

    #[test]
    fn attachments_follow_in_the_documents_order() {
        let some = r#"{"b":{"follows":true,"content_type":"x/y","revpos":3},"s":{"stub":true,"follows":true},"i":{"data":""},"a":{"follows":true}}"#;
        let found = expected(some, false).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|e| (&*e.name, &*e.content_type, e.revpos))
            .collect();
        assert_eq!(found, [("b", "x/y", None), ("a", DEFAULT_TYPE, None)]);
        let deep = format!(
            r#"{{"a":{{"follows":true,"x":{}}}}}"#,
            "[".repeat(200) + &"]".repeat(200)
        );
        assert_eq!(expected(&deep, false).unwrap().len(), 1);
        let replicated = expected(some, true).unwrap();
        let revpos: Vec<_> = replicated.iter().map(|e| e.revpos).collect();
        assert_eq!(revpos, [Some(3), Some(0)]);
    }

    #[test]
    fn what_no_attachment_can_be_is_refused_before_its_content() {
        for wrong in [
            r#"{"_a":{"follows":true}}"#,
            r#"{"a":{"follows":true,"content_type":1}}"#,
        ] {
            assert_eq!(expected(wrong, false).err().map(|e| e.status), Some(400));
        }
    }
}
