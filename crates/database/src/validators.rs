//! The validations of a database: design documents with a `validate_doc_update`, each a function of its language or, in
//! the language `query`, a Mango selector.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use document::{DocId, Rev, normalise};
use functions::{DesignDoc, Error as FunctionError};
use mango::{Limits, Selector};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::design_limits::{KEPT_MAX, TEXT_BYTES_KEPT_MAX, memory_of_text};

/// Language of design documents with fields and selectors instead of functions (Mango).
pub(crate) const QUERY: &str = "query";

/// The reason of CouchDB for an edit that a selector refuses.
const NOT_VALID: &str = "document is not valid";

/// One design document with a `validate_doc_update`.
pub(crate) struct Validator {
    pub id: DocId,
    pub rev: Rev,
    pub language: String,
    pub check: Check,
    /// The document of a function, if it is kept here. Others are read for each use, and are in
    /// memory with other design documents in use.
    pub design: Option<Arc<DesignDoc>>,
    /// Whether the log already has a warning that no query server runs the function's language.
    pub is_skip_logged: AtomicBool,
}

/// Decides whether an edit is allowed.
pub(crate) enum Check {
    /// Call the function `validate_doc_update` of the design document.
    Function,
    /// Match `{"newDoc":…,"oldDoc":…}`.
    Selector(Arc<Selector>),
    /// Read the selector, which is too long to be kept, and match. Requests at the same time share
    /// it.
    LongSelector(Mutex<Weak<LongSelector>>),
    /// Refuse every edit: a selector that an older version stored unread, and that cannot be read.
    Broken(String),
}

/// A selector that is in memory while requests use it.
pub(crate) struct LongSelector {
    pub selector: Arc<Selector>,
    /// About how much memory it takes.
    pub bytes: usize,
}

impl Validator {
    /// `room_bytes`: the memory that its selector may take. It is reduced by the memory of a selector that is kept.
    pub fn new(id: DocId, rev: Rev, design: &DesignDoc, room_bytes: &mut usize) -> Validator {
        let check = match design.language == QUERY {
            false => Check::Function,
            true => match selector_of_design(&design.json) {
                Ok(selector) => match room_bytes.checked_sub(selector.memory_bytes()) {
                    Some(left) => {
                        *room_bytes = left;
                        Check::Selector(Arc::new(selector))
                    }
                    None => Check::LongSelector(Mutex::default()),
                },
                Err(reason) => Check::Broken(reason),
            },
        };
        Validator {
            id,
            rev,
            language: design.language.clone(),
            check,
            design: None,
            is_skip_logged: AtomicBool::new(false),
        }
    }

    /// Returns whether it is a function, which needs a place to run in.
    pub fn is_function(&self) -> bool {
        matches!(self.check, Check::Function)
    }

    /// Returns whether it needs a place to run in: it is a function, or a selector that takes more
    /// time than a document takes to be read.
    pub fn is_slow(&self) -> bool {
        match &self.check {
            Check::Function | Check::LongSelector(_) => true,
            Check::Selector(selector) => !selector.is_light(),
            Check::Broken(_) => false,
        }
    }

    /// About how much memory it takes, in bytes, without its selector.
    fn memory_bytes(&self) -> usize {
        let reason = match &self.check {
            Check::Broken(reason) => reason.len(),
            _ => 0,
        };
        let text = self.design.as_ref();
        let text = text.map_or(0, |design| memory_of_text(design.json.len()));
        size_of::<Validator>() + self.id.as_str().len() + self.language.len() + reason + text + 64
    }

    /// Logs that the function is not called, as nothing runs its language.
    pub fn log_skipped(&self, database: &str) {
        if !self.is_skip_logged.swap(true, Relaxed) {
            tracing::warn!(
                database,
                design = self.id.as_str(),
                language = self.language,
                "no query server runs this language: edits are not checked by validate_doc_update"
            );
        }
    }
}

/// Judges an edit by a selector; `pair` is `{"newDoc":…,"oldDoc":…}`.
///
/// # Errors
/// CouchDB's refusal.
pub(crate) fn judge(selector: &Selector, pair: &[u8]) -> Result<(), FunctionError> {
    match selector.matches_doc(&mango::Doc::whole(pair)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(FunctionError::Forbidden(NOT_VALID.to_owned())),
        Err(error) => Err(FunctionError::Forbidden(error.to_string())),
    }
}

/// Reads the selector of a `validate_doc_update`, JSON text as a client wrote it.
///
/// # Errors
/// Returns the selector, or the reason why it is invalid, for people.
pub(crate) fn read_selector(text: &[u8]) -> Result<Selector, String> {
    let text = normalise(text).map_err(|e| e.to_string())?;
    Selector::read(&text, &Limits::default()).map_err(|e| e.to_string())
}

/// The longest selectors that a database keeps, in bytes of memory, all together.
const SELECTORS_BYTES_MAX: usize = 8 << 20;

/// The longest texts of functions that a database keeps with its validators, in bytes, all together.
const TEXTS_BYTES_MAX: usize = 8 << 20;

/// The selector of a design document, for one use of it.
///
/// # Errors
/// As [`read_selector`].
pub(crate) fn selector_of(design: &DesignDoc) -> Result<LongSelector, String> {
    let selector = selector_of_design(&design.json)?;
    Ok(LongSelector {
        bytes: selector.memory_bytes(),
        selector: Arc::new(selector),
    })
}

fn selector_of_design(json: &[u8]) -> Result<Selector, String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        validate_doc_update: &'a RawValue,
    }
    let head: Head<'_> = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    read_selector(head.validate_doc_update.get().as_bytes())
}

/// Validators while they are read.
pub(crate) struct Reading {
    found: Vec<Validator>,
    /// The memory that selectors may still take, in bytes.
    room_bytes: usize,
    /// The memory that texts of functions may still take, and that all of them would, in bytes.
    texts_room_bytes: usize,
    texts_bytes: usize,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            found: vec![],
            room_bytes: SELECTORS_BYTES_MAX,
            texts_room_bytes: TEXTS_BYTES_MAX,
            texts_bytes: 0,
        }
    }
}

impl Reading {
    /// Adds the validator of a design document.
    pub fn add(&mut self, id: DocId, rev: Rev, design: &DesignDoc) {
        let mut validator = Validator::new(id, rev, design, &mut self.room_bytes);
        if validator.is_function() {
            let bytes = memory_of_text(design.json.len());
            self.texts_bytes += bytes;
            if let Some(left) = self.texts_room_bytes.checked_sub(bytes) {
                self.texts_room_bytes = left;
                validator.design = Some(Arc::new(design.clone()));
            }
        }
        self.found.push(validator);
    }

    /// Drops the texts that were kept if the cache of design documents can have all of them, where
    /// other functions use them too. A cache that cannot has none of them when it is used in order.
    fn share_texts(&mut self) {
        let functions = self.found.iter().filter(|v| v.is_function()).count();
        if functions <= KEPT_MAX && self.texts_bytes <= TEXT_BYTES_KEPT_MAX {
            self.found.iter_mut().for_each(|v| v.design = None);
        }
    }

    /// All validators by id, and their memory in bytes.
    fn end(mut self) -> (Arc<[Validator]>, usize) {
        self.share_texts();
        self.found.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
        let own: usize = self.found.iter().map(Validator::memory_bytes).sum();
        (
            self.found.into(),
            own + SELECTORS_BYTES_MAX - self.room_bytes,
        )
    }
}

/// The validators of a database.
#[derive(Default)]
pub(crate) struct Validators(RwLock<Option<Known>>);

struct Known {
    /// The version of the design documents at which they were read.
    version: u64,
    validators: Arc<[Validator]>,
    hash: u64,
    bytes: usize,
}

/// Separates the hash of a set of design documents from hashes of other things.
const DESIGNS_HASH: &[u8] = b"settee designs 1";

/// Returns a hash of the design documents that validate, never 0.
pub(crate) fn hash_of(validators: &[Validator]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(DESIGNS_HASH);
    for validator in validators {
        for text in [validator.id.as_str(), &validator.rev.to_string()] {
            hasher.update(&(text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
    }
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_be_bytes(first).max(1)
}

impl Validators {
    /// Returns `None` when design documents have changed since, or were never read.
    pub fn known(&self, version: u64) -> Option<Arc<[Validator]>> {
        let known = self.0.read();
        let known = known.as_ref().filter(|known| known.version == version)?;
        Some(known.validators.clone())
    }

    /// Returns the hash of the validators, as [`Validators::known`] returns them.
    pub fn known_hash(&self, version: u64) -> Option<u64> {
        let known = self.0.read();
        let known = known.as_ref().filter(|known| known.version == version)?;
        Some(known.hash)
    }

    /// Keeps the validators that were read at a version, and returns them.
    pub fn keep(&self, version: u64, read: Reading) -> Arc<[Validator]> {
        let (validators, bytes) = read.end();
        *self.0.write() = Some(Known {
            version,
            validators: validators.clone(),
            hash: hash_of(&validators),
            bytes,
        });
        validators
    }

    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.read().as_ref().map_or(0, |known| known.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(function: &str, language: &str, more: usize) -> DesignDoc {
        let text = serde_json::json!({
            "language": language,
            "validate_doc_update": serde_json::from_str::<serde_json::Value>(function).unwrap(),
            "more": "x".repeat(more),
        });
        DesignDoc {
            id: "_design/d".to_owned(),
            rev: "1-00".to_owned(),
            language: language.to_owned(),
            json: text.to_string().into_bytes().into(),
        }
    }

    #[test]
    fn validators_keep_texts_and_selectors_up_to_a_limit() {
        let mut reading = Reading::default();
        let values: Vec<String> = (0..60_000).map(|n| format!("\"x{n}\"")).collect();
        let long = format!(r#"{{"newDoc.a":{{"$in":[{}]}}}}"#, values.join(","));
        let mut add = |name: String, function: &str, language| {
            let id = DocId::new(&format!("_design/{name}")).unwrap();
            let design = design(function, language, 1 << 20);
            reading.add(id, Rev::parse("1-00").unwrap(), &design);
        };
        for n in (0..100).rev() {
            add(
                format!("function{n:02}"),
                "\"function () {}\"",
                "javascript",
            );
        }
        for n in 0..4 {
            add(format!("selector{n}"), &long, QUERY);
        }
        let known = Validators::default();
        let validators = known.keep(7, reading);
        assert!(validators.is_sorted_by_key(|v| v.id.as_str().to_owned()));
        let kept = |v: &&Validator| matches!(v.check, Check::Selector(_));
        let long = |v: &&Validator| matches!(v.check, Check::LongSelector(_));
        let functions = validators.iter().filter(|v| v.is_function());
        assert_eq!(functions.count(), 100);
        let texts = validators.iter().filter(|v| v.design.is_some());
        assert_eq!(texts.count(), 7);
        assert!(validators.iter().filter(kept).count() >= 1);
        assert!(validators.iter().filter(long).count() >= 1);
        let bytes = known.memory_bytes();
        assert!(
            (7 << 20..TEXTS_BYTES_MAX + SELECTORS_BYTES_MAX + 100_000).contains(&bytes),
            "{bytes}"
        );
        assert!(known.known(7).is_some() && known.known(8).is_none());
    }

    #[test]
    fn selectors_are_kept_by_the_memory_of_their_expressions() {
        let regex = |n: usize| format!(r#"{{"newDoc.a":{{"$regex":"(?:a{{1000}}){{9}}b{n}"}}}}"#);
        let regexes: Vec<String> = (0..6).map(regex).collect();
        let selector = format!(r#"{{"$or":[{}]}}"#, regexes.join(","));
        let mut reading = Reading::default();
        for n in 0..4 {
            let id = DocId::new(&format!("_design/{n}")).unwrap();
            let design = design(&selector, QUERY, 0);
            reading.add(id, Rev::parse("1-00").unwrap(), &design);
        }
        let known = Validators::default();
        let validators = known.keep(7, reading);
        let kept = |v: &&Validator| matches!(v.check, Check::Selector(_));
        let kept = validators.iter().filter(kept).count();
        // One takes about 5 MB, and 1 KB of text.
        assert!((1..4).contains(&kept), "{kept}");
        let bytes = known.memory_bytes();
        assert!(
            (2_000_000..SELECTORS_BYTES_MAX + 10_000).contains(&bytes),
            "{bytes}"
        );
    }

    #[test]
    fn texts_that_the_cache_of_design_documents_has_room_for_are_not_kept_twice() {
        let mut reading = Reading::default();
        for n in 0..7 {
            let id = DocId::new(&format!("_design/{n}")).unwrap();
            let design = design("\"function () {}\"", "javascript", 1 << 20);
            reading.add(id, Rev::parse("1-00").unwrap(), &design);
        }
        let known = Validators::default();
        let validators = known.keep(7, reading);
        assert!(validators.iter().all(|v| v.design.is_none()));
        assert!(known.memory_bytes() < 10_000);
    }
}
