//! Documents as clients send them: the body, and the members whose names start with an underscore.

use super::DocError;
use super::parser::{CutMark, MemberStart, Parser};
use crate::rev::{GENERATION_MAX, Rev, RevHash};
use crate::term;
use crate::tree::{PATH_IDS_MAX, RevPath};
use crate::{Attachment, DocId, IdError};

/// An edit of a document, as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditDoc {
    /// `_id`.
    pub id: Option<DocId>,
    /// `_rev`.
    pub rev: Option<Rev>,
    /// `_revisions`. Overrides `_rev`: see [`EditDoc::rev_path`].
    pub revisions: Option<RevPath>,
    /// `_deleted`.
    pub deleted: bool,
    /// `_attachments` in normal form, when there are any.
    pub attachments: Option<Box<[u8]>>,
    /// Attachments whose content is stored already. One replaces the entry of the same name in
    /// `attachments`, in its place; the others come first.
    pub files: Vec<Attachment>,
    /// All other members: an object in normal form.
    pub body: Vec<u8>,
    /// The body as an Erlang term without the leading version byte, for
    /// [`revision_id`](crate::revision_id).
    pub body_term: Vec<u8>,
}

impl EditDoc {
    /// Returns the revision that the document names and its ancestors: `_revisions`, or else `_rev`
    /// alone.
    pub fn rev_path(&self) -> Option<RevPath> {
        match &self.revisions {
            Some(path) if !path.ids.is_empty() => Some(path.clone()),
            _ => self.rev.clone().map(RevPath::single),
        }
    }

    /// Returns the edit with other members: `json` is an object whose members do not start with an
    /// underscore.
    ///
    /// # Errors
    /// [`DocError`].
    pub fn with_body(self, json: &[u8]) -> Result<EditDoc, DocError> {
        let EditDoc {
            body, body_term, ..
        } = parse_document(json)?;
        Ok(EditDoc {
            body,
            body_term,
            ..self
        })
    }
}

/// The body of a `_bulk_docs` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkDocs {
    /// `docs`.
    pub docs: Vec<EditDoc>,
    /// `new_edits`.
    pub new_edits: Option<bool>,
    /// Whether `all_or_nothing` is true.
    pub all_or_nothing: bool,
    /// `w`, if it is a natural number.
    pub w: Option<u64>,
}

/// Parses one document.
///
/// ```
/// let doc = document::parse_document(br#"{"_id":"a","x":[1,2.50],"_rev":"1-b"}"#).unwrap();
/// assert_eq!(doc.id.unwrap().as_str(), "a");
/// assert_eq!(doc.rev.unwrap().to_string(), "1-b");
/// assert_eq!(doc.body, br#"{"x":[1,2.5]}"#);
/// ```
///
/// # Errors
/// [`DocError`]. Invalid JSON takes precedence over anything else; then the first invalid member.
pub fn parse_document(input: &[u8]) -> Result<EditDoc, DocError> {
    let mut parser = Parser::new(input)?;
    parser.reserve(input.len());
    let special = parser.document()?;
    let (body, body_term) = (
        std::mem::take(&mut parser.out),
        std::mem::take(&mut parser.term),
    );
    parser.finish_with(special.and_then(|special| special.into_doc(body, body_term)))
}

/// Parses the body of a `_bulk_docs` request.
///
/// # Errors
/// [`DocError`]. Invalid JSON takes precedence over anything else, then errors of the request, then
/// the first invalid document.
pub fn parse_bulk_docs(input: &[u8]) -> Result<BulkDocs, DocError> {
    parse_some_bulk_docs(input, usize::MAX)
}

/// Parses such a body with at most `docs_max` documents: further ones are checked, but not kept.
///
/// # Errors
/// Errors of [`parse_bulk_docs`], and [`DocError::TooManyDocs`].
pub fn parse_some_bulk_docs(input: &[u8], docs_max: usize) -> Result<BulkDocs, DocError> {
    let mut parser = Parser::new(input)?;
    if parser.peek() != Some(b'{') {
        parser.value()?;
        return parser.finish_with(Err(DocError::RequestNotAnObject));
    }
    let request = parser.bulk_request(docs_max)?;
    parser.finish_with(request.into_bulk_docs())
}

type DocParser<'a> = Parser<'a, true, true>;

impl DocParser<'_> {
    /// JSON errors after a result take precedence over the result.
    fn finish_with<T>(mut self, result: Result<T, DocError>) -> Result<T, DocError> {
        match self.finish() {
            Ok(()) => result,
            Err(error @ DocError::IntegerTooLarge) => Err(result.err().unwrap_or(error)),
            Err(error) => Err(error),
        }
    }

    /// Clears the output, but keeps its capacity.
    fn clear(&mut self) {
        self.out.clear();
        self.term.clear();
    }

    /// Parses a value that should be a document, and leaves its body in `out` and `term`, which
    /// must be empty before.
    ///
    /// The outer error is that the text is not JSON, the inner one that the JSON is not a document.
    fn document(&mut self) -> Result<Result<Specials, DocError>, DocError> {
        if self.peek() != Some(b'{') {
            self.plain_value()?;
            return Ok(Err(DocError::NotAnObject));
        }
        let mut special = Specials::default();
        self.open(true)?;
        if self.peek() != Some(b'}') {
            self.members(&mut special)?;
        }
        self.close();
        self.cut_since(&CutMark::default());
        Ok(Ok(special))
    }

    fn members(&mut self, special: &mut Specials) -> Result<(), DocError> {
        loop {
            let start = self.name()?;
            let value_term = self.term.len();
            let value_out = self.out.len();
            let mark = self.cut_mark();
            self.value()?;
            if self.out.get(start.name_out.0) == Some(&b'_') && start.name_out.0 < start.name_out.1
            {
                self.cut_since(&mark);
                self.special_member(&start, value_out, value_term, special);
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return Ok(()),
                _ => return Err(DocError::InvalidJson),
            }
        }
    }

    fn special_member(
        &mut self,
        start: &MemberStart,
        value_out: usize,
        value_term: usize,
        special: &mut Specials,
    ) {
        let name = &self.term[start.name_term.0..start.name_term.1];
        if !special.take(name, &self.out[value_out..], &self.term[value_term..]) {
            return;
        }
        self.take_back(start);
    }

    fn bulk_request(&mut self, docs_max: usize) -> Result<BulkRequest, DocError> {
        let mut request = BulkRequest::default();
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(request);
        }
        loop {
            self.clear();
            // Outside of an object frame the name is an ordinary value.
            if self.peek() != Some(b'"') {
                return Err(DocError::InvalidJson);
            }
            self.value()?;
            self.expect(b':')?;
            match self.out.as_slice() {
                br#""docs""# => request.docs = Some(self.docs(docs_max)?),
                br#""new_edits""# => request.new_edits = Some(self.plain_value()?.to_vec()),
                br#""all_or_nothing""# => request.all_or_nothing = self.plain_value()? == b"true",
                br#""w""# => {
                    request.w = std::str::from_utf8(self.plain_value()?)
                        .ok()
                        .and_then(|w| w.parse().ok())
                }
                _ => {
                    self.plain_value()?;
                }
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(DocError::InvalidJson),
            }
        }
        self.at += 1;
        Ok(request)
    }

    fn plain_value(&mut self) -> Result<&[u8], DocError> {
        self.clear();
        self.value()?;
        self.cut_since(&CutMark::default());
        Ok(&self.out)
    }

    fn docs(&mut self, docs_max: usize) -> Result<Result<Vec<EditDoc>, DocError>, DocError> {
        if self.peek() != Some(b'[') {
            self.plain_value()?;
            return Ok(Err(DocError::DocsNotAnArray));
        }
        self.at += 1;
        let mut docs = Ok(Vec::new());
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(docs);
        }
        loop {
            self.clear();
            let special = self.document()?;
            if let Ok(good) = &mut docs {
                // Copies, so that the documents of a request share the parser's buffers.
                match special
                    .and_then(|special| special.into_doc(self.out.clone(), self.term.clone()))
                {
                    Ok(_) if good.len() == docs_max => docs = Err(DocError::TooManyDocs),
                    Ok(doc) => good.push(doc),
                    Err(error) => docs = Err(error),
                }
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(DocError::InvalidJson),
            }
        }
        self.at += 1;
        Ok(docs)
    }
}

#[derive(Default)]
struct BulkRequest {
    docs: Option<Result<Vec<EditDoc>, DocError>>,
    /// The text of the value.
    new_edits: Option<Vec<u8>>,
    all_or_nothing: bool,
    w: Option<u64>,
}

impl BulkRequest {
    fn into_bulk_docs(self) -> Result<BulkDocs, DocError> {
        let docs = match self.docs {
            None => return Err(DocError::DocsMissing),
            Some(Err(DocError::DocsNotAnArray)) => return Err(DocError::DocsNotAnArray),
            Some(docs) => docs,
        };
        let new_edits = match self.new_edits.as_deref() {
            None => None,
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            Some(_) => return Err(DocError::NewEdits),
        };
        Ok(BulkDocs {
            docs: docs?,
            new_edits,
            all_or_nothing: self.all_or_nothing,
            w: self.w,
        })
    }
}

/// The value of a special member, and its position among the special members. A later member of the
/// same name replaces an earlier one.
type SpecialMember<T> = Option<(u32, Result<T, DocError>)>;

/// The special members of a document.
#[derive(Default)]
struct Specials {
    count: u32,
    id: SpecialMember<DocId>,
    rev: SpecialMember<Rev>,
    revisions: SpecialMember<RevPath>,
    deleted: SpecialMember<bool>,
    attachments: SpecialMember<Option<Box<[u8]>>>,
    /// The first unknown special member.
    unknown: SpecialMember<()>,
}

impl Specials {
    /// Takes a member whose name starts with an underscore. Returns whether it is special: members
    /// that the replicator writes into its documents belong to the body, and so does that of access.
    fn take(&mut self, name: &[u8], text: &[u8], term: &[u8]) -> bool {
        self.count += 1;
        let at = self.count;
        match name {
            b"_id" => self.id = Some((at, read_id(term))),
            b"_rev" => self.rev = Some((at, read_rev(term))),
            b"_revisions" => self.revisions = Some((at, read_revisions(text, term))),
            b"_deleted" => self.deleted = Some((at, read_deleted(text))),
            b"_attachments" => self.attachments = Some((at, read_attachments(text))),
            b"_revs_info" | b"_conflicts" | b"_deleted_conflicts" | b"_local_seq" => {}
            b"_access"
            | b"_replication_id"
            | b"_replication_state"
            | b"_replication_state_time"
            | b"_replication_state_reason"
            | b"_replication_stats" => return false,
            _ => {
                let error = || {
                    Err(DocError::BadSpecialMember(
                        String::from_utf8_lossy(name).into_owned(),
                    ))
                };
                self.unknown.get_or_insert_with(|| (at, error()));
            }
        }
        true
    }

    fn into_doc(self, body: Vec<u8>, body_term: Vec<u8>) -> Result<EditDoc, DocError> {
        let mut first_error = None;
        let id = settle(self.id, &mut first_error);
        let rev = settle(self.rev, &mut first_error);
        let revisions = settle(self.revisions, &mut first_error);
        let deleted = settle(self.deleted, &mut first_error).unwrap_or(false);
        let attachments = settle(self.attachments, &mut first_error).flatten();
        settle(self.unknown, &mut first_error);
        match first_error {
            Some((_, error)) => Err(error),
            None => Ok(EditDoc {
                id,
                rev,
                revisions,
                deleted,
                attachments,
                files: Vec::new(),
                body,
                body_term,
            }),
        }
    }
}

/// Takes the value, or its error if it comes before the one found so far.
fn settle<T>(slot: SpecialMember<T>, first_error: &mut Option<(u32, DocError)>) -> Option<T> {
    let (at, value) = slot?;
    match value {
        Ok(value) => Some(value),
        Err(error) => {
            if first_error.as_ref().is_none_or(|(first, _)| at < *first) {
                *first_error = Some((at, error));
            }
            None
        }
    }
}

fn bad_member(name: &str) -> DocError {
    DocError::BadSpecialMember(name.to_owned())
}

fn read_id(term: &[u8]) -> Result<DocId, DocError> {
    let id = string_term(term).ok_or(IdError::NotString)?;
    Ok(DocId::new(id)?)
}

fn read_rev(term: &[u8]) -> Result<Rev, DocError> {
    Ok(Rev::parse(string_term(term).unwrap_or_default())?)
}

fn read_deleted(text: &[u8]) -> Result<bool, DocError> {
    match text {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(bad_member("_deleted")),
    }
}

fn read_attachments(text: &[u8]) -> Result<Option<Box<[u8]>>, DocError> {
    match text {
        b"{}" => Ok(None),
        [b'{', ..] => Ok(Some(text.into())),
        _ => Err(bad_member("_attachments")),
    }
}

/// Returns the string of a term.
fn string_term(term: &[u8]) -> Option<&str> {
    match term {
        [term::BINARY, _, _, _, _, text @ ..] => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// Reads `{"start": 3, "ids": ["c", "b", "a"]}`. A value in normal form has no duplicate members.
fn read_revisions(text: &[u8], object: &[u8]) -> Result<RevPath, DocError> {
    if text.first() != Some(&b'{') {
        return Err(bad_member("_revisions"));
    }
    let (mut start, mut ids) = (None, None);
    for_each_member(object, |name, value| match name {
        b"start" => start = natural_term(value),
        b"ids" => ids = Some(value),
        _ => {}
    });
    let start = start
        .filter(|&start| start <= GENERATION_MAX)
        .ok_or(DocError::RevisionsStart)?;
    Ok(RevPath {
        start,
        ids: read_ids(start, ids.ok_or(DocError::RevisionsIds)?)?,
    })
}

fn read_ids(start: u64, list: &[u8]) -> Result<Vec<RevHash>, DocError> {
    let mut elements = match list {
        [term::NIL] => return Ok(Vec::new()),
        // A list of bytes.
        [term::STRING, ..] => return Err(DocError::RevisionsId),
        [term::LIST, _, _, _, _, elements @ ..] => elements,
        _ => return Err(DocError::RevisionsIds),
    };
    let mut ids = Vec::new();
    while let Some((element, rest)) =
        term::split_first(elements).filter(|(_, rest)| !rest.is_empty())
    {
        let id = string_term(element).ok_or(DocError::RevisionsId)?;
        let id = RevHash::of_client(start, id).map_err(|_| DocError::RevisionsHex)?;
        // Older ones are beyond the number of revisions that a tree keeps, and each takes more
        // memory than text.
        if ids.len() < PATH_IDS_MAX {
            ids.push(id);
        }
        elements = rest;
    }
    Ok(ids)
}

/// Calls `visit` with the name and the value of each member of an object's term.
fn for_each_member<'a>(object: &'a [u8], mut visit: impl FnMut(&'a [u8], &'a [u8])) {
    let [term::SMALL_TUPLE, 1, term::LIST, _, _, _, _, members @ ..] = object else {
        return;
    };
    let mut members = members;
    while let [term::SMALL_TUPLE, 2, rest @ ..] = members {
        let Some((name, rest)) = term::split_first(rest) else {
            return;
        };
        let Some((value, rest)) = term::split_first(rest) else {
            return;
        };
        visit(name.get(5..).unwrap_or_default(), value);
        members = rest;
    }
}

fn natural_term(term: &[u8]) -> Option<u64> {
    match term {
        [term::SMALL_INTEGER, byte] => Some(u64::from(*byte)),
        [term::INTEGER, bytes @ ..] => {
            let number = i32::from_be_bytes(bytes.try_into().ok()?);
            u64::try_from(number).ok()
        }
        [term::SMALL_BIG, _, 0, bytes @ ..] if bytes.len() <= 8 => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            Some(u64::from_le_bytes(word))
        }
        _ => None,
    }
}
