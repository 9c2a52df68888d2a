//! Attachments of a database's documents: writing their content, reading it, and which attachments an edit's document has.
//!
//! [`Database::attachment_sink`] takes an upload and returns the attachment for an edit
//! ([`UploadedContent::attachment`], for [`EditDoc::files`](document::EditDoc)).
//! [`Database::attachment_reader`] returns the bytes, whole or a range.

mod homes;
mod placement;
mod reader;
mod resolve;
mod sink;

use std::ops::Range;
use std::sync::Arc;

use document::{Attachment, DocId};

pub(crate) use homes::Homes;
pub(crate) use placement::write_attachments;
pub use placement::{ContentPlacement, LateContents, ShownAttachments};
pub use reader::{AttachmentReader, Base64Reader};
pub(crate) use resolve::{HeldContents, MISSING_STUB, ResolvedEdits};
pub use sink::{AttachmentSink, SinkOptions, UploadedContent};

use crate::Error;
use crate::database::Database;

/// Which attachments are stored compressed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentOptions {
    /// zlib's level from 1 to 9; 0 compresses nothing.
    pub compression_level: u32,
    /// Content types, in which the first `*` stands for anything. Parameters do not matter.
    pub compressible_types: Vec<String>,
    /// Most bytes of an inline attachment.
    pub bytes_max: u64,
    /// Most attachments of a document.
    pub count_max: u64,
}

impl Default for AttachmentOptions {
    /// CouchDB's.
    fn default() -> Self {
        Self::new(
            8,
            "text/*, application/javascript, application/json, application/xml",
        )
    }
}

impl AttachmentOptions {
    /// `types`: separated by commas.
    pub fn new(compression_level: u32, types: &str) -> AttachmentOptions {
        let types = types.split(',').map(|t| t.trim().to_ascii_lowercase());
        AttachmentOptions {
            compression_level: compression_level.min(9),
            compressible_types: types.filter(|t| !t.is_empty()).collect(),
            bytes_max: 1 << 30,
            count_max: 10_000,
        }
    }

    /// Whether content of this type is stored compressed.
    pub fn compresses(&self, content_type: &str) -> bool {
        let content_type = content_type.trim().to_ascii_lowercase();
        // CouchDB's pattern lets parameters begin at any semicolon.
        let ends = content_type.match_indices(';').map(|(at, _)| at);
        let mut candidates = ends
            .chain([content_type.len()])
            .map(|end| content_type[..end].trim_end());
        self.compression_level > 0
            && candidates.any(|candidate| {
                let matches = |pattern: &String| is_like(candidate, pattern);
                self.compressible_types.iter().any(matches)
            })
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

impl Database {
    /// Begins the upload of the content of an attachment of the document `id`. It may become one of
    /// another document too: then it is stored a second time if that is in another shard.
    pub fn attachment_sink(
        &self,
        id: &DocId,
        content_type: &str,
        options: SinkOptions,
    ) -> AttachmentSink {
        let level = {
            let defaults = self.attachment_options().read();
            let gzips = !options.encoded && defaults.compresses(content_type);
            gzips.then_some(defaults.compression_level)
        };
        let upload = self.contents_of(id.as_str()).upload();
        AttachmentSink::new(upload, level, options, self.lifecycle.clone())
    }

    /// Reads the bytes of an attachment of the document `id`: as stored, or decoded. `range` is a
    /// range of these bytes; positions beyond their end are ignored.
    ///
    /// # Errors
    /// Corruption, when the content is missing.
    pub fn attachment_reader(
        &self,
        id: &DocId,
        attachment: &Attachment,
        range: Option<Range<u64>>,
        decode: bool,
    ) -> Result<AttachmentReader, Error> {
        let content = self.contents_of(id.as_str()).hold(&attachment.content)?;
        let content = content.ok_or(storage::Error::Corrupt("attachment"))?;
        Ok(AttachmentReader::new(attachment, content, range, decode))
    }

    /// Reads the bytes of an attachment of the document `id`, decoded, in Base64.
    ///
    /// # Errors
    /// Corruption, when the content is missing.
    pub fn base64_reader(
        &self,
        id: &DocId,
        attachment: &Attachment,
    ) -> Result<Base64Reader, Error> {
        Base64Reader::open(self.contents_of(id.as_str()), attachment)
    }
}

/// Checks the name of an attachment; the error is CouchDB's reason.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.starts_with('_') {
        return Err(format!(
            "Attachment name '{name}' starts with prohibited character '_'"
        ));
    }
    Ok(())
}

/// Options that all databases share.
pub(crate) type SharedOptions = Arc<parking_lot::RwLock<AttachmentOptions>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_compressible_as_in_couchdb() {
        let options = AttachmentOptions::default();
        for yes in [
            "text/plain",
            "TEXT/HTML",
            "text/html; charset=utf-8",
            "application/json",
            " application/json ; charset=utf-8",
            "text/",
        ] {
            assert!(options.compresses(yes), "{yes}");
        }
        for no in [
            "",
            "text",
            "application/xhtml+xml",
            "application/ld+json",
            "application/octet-stream",
            "image/png;text/plain",
        ] {
            assert!(!options.compresses(no), "{no}");
        }
        assert!(!AttachmentOptions::new(0, "text/*").compresses("text/plain"));
    }
}
