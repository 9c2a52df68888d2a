//! `?open_revs=`: several revisions of a document, as JSON and as multipart. Long ones are read one
//! by one as the client takes them.

use std::collections::BTreeSet;

use database::{
    AttachmentSelection, DatabaseAs, OpenRevs, ReadDoc, ReadOptions, RevSelection, RevsReader,
};
use document::multipart::{PartHead, Writer};
use document::{DocId, Rev};
use node::{Access, Query};

use crate::document_routes::attachments::{
    Parts, PartsMaker, TextOf, boundary, push_doc_json, push_doc_multipart,
};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::answers::Answers;
use crate::reply::stream::{CHUNK_BYTES, pull_apart};
use crate::request::Request;
use crate::request::revisions::parse_revs;

type Answer = Result<Reply, ApiError>;

/// About this number of bytes is made in one piece of a document whose tree is read again for each
/// piece.
const WIDE_CHUNK_BYTES: usize = 4 * CHUNK_BYTES;

/// Content type of a part that is not a document.
pub const ERROR_PART: &str = "application/json; error=\"true\"";

/// The revisions that the query requests; `None` when it is for one document.
///
/// # Errors
/// 400 when it is not a list of revisions.
pub fn asked(query: &Query) -> Result<Option<RevSelection>, ApiError> {
    match query.get("open_revs") {
        None => Ok(None),
        Some("all") => Ok(Some(RevSelection::All)),
        Some(list) => {
            let revs = parse_revs(&node::parse_json(list)?)?;
            Ok((!revs.is_empty()).then_some(RevSelection::List(revs)))
        }
    }
}

/// Answers with revisions of a document.
///
/// # Errors
/// 404 when the document does not exist, or all its leaves are hidden.
pub async fn get(
    req: &Request,
    access: &Access,
    id: &DocId,
    which: &RevSelection,
    mut options: ReadOptions,
) -> Answer {
    options.sorted = true;
    // A client that accepts multipart gets it, whatever else it accepts.
    let json = !req.accepts("multipart/mixed");
    // Multipart responses always have the attachments.
    if !json && options.attachments == AttachmentSelection::None {
        options.attachments = AttachmentSelection::All;
    }
    let form = match json {
        true => Form::Json {
            encoding_info: options.att_encoding_info,
            with_bytes: options.attachments != AttachmentSelection::None,
        },
        false => Form::Multipart {
            writer: Writer::new(&boundary()?)?,
            inner: boundary()?,
        },
    };
    let mut revs = Revs {
        db: access.db.clone(),
        form,
        pushed: 0,
        must_show: matches!(which, RevSelection::All),
    };
    let found = match (access.db.open_revs(id, which, &options)?, which) {
        (Some(OpenRevs::Long(reader)), _) => {
            req.answers.admit().await?;
            return revs.read_by(*reader, &req.answers).await;
        }
        (Some(OpenRevs::Read(found)), _) => found,
        (None, RevSelection::All) => return Err(ApiError::missing()),
        (None, RevSelection::List(revs)) => {
            let revs = BTreeSet::from_iter(revs);
            revs.into_iter().cloned().map(Err).collect()
        }
    };
    let mut parts = Parts::default();
    for rev in &found {
        revs.push(rev, &mut parts)?;
    }
    revs.end(&mut parts);
    drop(found);
    let content_type = revs.form.content_type();
    parts.settled_reply(&req.answers, &content_type).await
}

/// How revisions are sent.
enum Form {
    Json {
        encoding_info: bool,
        /// With the bytes of attachments.
        with_bytes: bool,
    },
    Multipart {
        writer: Writer,
        /// The boundary within parts that are documents with attachments.
        inner: String,
    },
}

impl Form {
    fn content_type(&self) -> String {
        match self {
            Form::Json { .. } => "application/json".to_owned(),
            Form::Multipart { writer, .. } => writer.content_type("mixed"),
        }
    }
}

/// The text of revisions.
struct Revs {
    db: DatabaseAs,
    form: Form,
    /// How many were appended.
    pushed: u64,
    /// A missing result means that the document does not exist.
    must_show: bool,
}

impl Revs {
    async fn read_by(self, reader: RevsReader, answers: &Answers) -> Answer {
        let content_type = self.form.content_type();
        let is_text = matches!(
            self.form,
            Form::Json {
                with_bytes: false,
                ..
            }
        );
        let maker = LongRevs {
            revs: self,
            reader: Some(reader),
        };
        match is_text {
            true => pull_apart(answers, "application/json", TextOf(maker)).await,
            false => Parts::reply_made_apart(answers, &content_type, maker).await,
        }
    }

    fn push(&mut self, rev: &Result<ReadDoc, Rev>, parts: &mut Parts) -> Result<(), ApiError> {
        let is_first = self.pushed == 0;
        self.pushed += 1;
        match &mut self.form {
            Form::Json {
                encoding_info,
                with_bytes,
            } => {
                parts.push_text(if is_first { b"[" } else { b"," });
                match rev {
                    Ok(doc) => {
                        parts.push_text(b"{\"ok\":");
                        match with_bytes {
                            false => parts.push_text(&doc.json),
                            true => push_doc_json(&self.db, doc, *encoding_info, 0, parts)?,
                        }
                        parts.push_text(b"}");
                    }
                    Err(rev) => push_missing(rev, parts),
                }
            }
            Form::Multipart { writer, inner } => {
                let mut begin = |content_type: &str, parts: &mut Parts| {
                    let mut text = vec![];
                    let head = PartHead {
                        content_type,
                        ..PartHead::default()
                    };
                    writer.part(&head, &mut text);
                    parts.push_text(&text);
                };
                match rev {
                    Ok(doc) => {
                        push_doc_multipart(&self.db, doc, inner, &mut begin, parts)?;
                    }
                    Err(rev) => {
                        begin(ERROR_PART, parts);
                        push_missing(rev, parts);
                    }
                }
            }
        }
        Ok(())
    }

    fn end(&self, parts: &mut Parts) {
        match &self.form {
            Form::Json { .. } => {
                parts.push_text(if self.pushed == 0 { b"[" } else { b"" });
                parts.push_text(b"]\n");
            }
            Form::Multipart { writer, .. } => {
                let mut end = vec![];
                writer.end(&mut end);
                parts.push_text(&end);
            }
        }
    }
}

fn push_missing(rev: &Rev, parts: &mut Parts) {
    let mut json = b"{\"missing\":".to_vec();
    rev.write_json_to(&mut json);
    json.push(b'}');
    parts.push_text(&json);
}

/// Revisions that are read as the client takes them.
struct LongRevs {
    revs: Revs,
    /// None at the end.
    reader: Option<RevsReader>,
}

impl PartsMaker for LongRevs {
    fn more(&mut self, parts: &mut Parts) -> Result<bool, ApiError> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        while let Some(rev) = reader.next()? {
            self.revs.push(&rev, parts)?;
            if has_piece(reader, parts) {
                reader.rest();
                return Ok(true);
            }
        }
        self.reader = None;
        if self.revs.must_show && self.revs.pushed == 0 {
            return Err(ApiError::missing());
        }
        self.revs.end(parts);
        Ok(false)
    }

    fn is_long(&self) -> bool {
        self.reader.is_some()
    }
}

/// Whether parts that a reader's revisions were appended to are enough for a piece of an answer.
pub fn has_piece(reader: &RevsReader, parts: &Parts) -> bool {
    let enough = match reader.is_wide() {
        true => WIDE_CHUNK_BYTES,
        false => CHUNK_BYTES,
    };
    parts.text_bytes() >= enough || parts.count() >= PARTS_MAX
}

/// Most parts of one piece, about: each attachment's reader takes memory.
pub const PARTS_MAX: usize = 512;
