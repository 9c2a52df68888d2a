//! The validations of a database: design documents with a `validate_doc_update`, each a function of its language or, in
//! the language `query`, a Mango selector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use document::normalise;
use functions::{DesignDoc, Error as FunctionError};
use mango::{Limits, Selector};
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Language of design documents with fields and selectors instead of functions (Mango).
pub(crate) const QUERY: &str = "query";

/// The reason of CouchDB for an edit that a selector refuses.
const NOT_VALID: &str = "document is not valid";

/// One design document with a `validate_doc_update`.
pub(crate) struct Validator {
    pub design: DesignDoc,
    pub check: Check,
    /// Whether the log already has a warning that no query server runs the function's language.
    pub is_skip_logged: AtomicBool,
}

/// Decides whether an edit is allowed.
pub(crate) enum Check {
    /// Call the function `validate_doc_update` of the design document.
    Function,
    /// Match `{"newDoc":…,"oldDoc":…}`.
    Selector(Box<Selector>),
    /// Refuse every edit: a selector that an older version stored unread, and that cannot be read.
    Broken(String),
}

impl Validator {
    pub fn new(design: DesignDoc) -> Validator {
        let check = match design.language == QUERY {
            false => Check::Function,
            true => match selector_of_design(&design.json) {
                Ok(selector) => Check::Selector(Box::new(selector)),
                Err(reason) => Check::Broken(reason),
            },
        };
        Validator {
            design,
            check,
            is_skip_logged: AtomicBool::new(false),
        }
    }

    /// Returns whether it is a function, which needs a place to run in.
    pub fn is_function(&self) -> bool {
        matches!(self.check, Check::Function)
    }

    /// Judges an edit by the selector; `pair` is `{"newDoc":…,"oldDoc":…}`.
    ///
    /// # Errors
    /// The refusal. A function is never asked here, so that it refuses nothing.
    pub fn judge(&self, pair: &[u8]) -> Result<(), FunctionError> {
        match &self.check {
            Check::Function => Ok(()),
            Check::Selector(selector) => judge(selector, pair),
            Check::Broken(reason) => Err(FunctionError::Compile(reason.clone())),
        }
    }

    /// Logs that the function is not called, as nothing runs its language.
    pub fn log_skipped(&self, database: &str) {
        if !self.is_skip_logged.swap(true, Relaxed) {
            tracing::warn!(
                database,
                design = self.design.id,
                language = self.design.language,
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

fn selector_of_design(json: &[u8]) -> Result<Selector, String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        validate_doc_update: &'a RawValue,
    }
    let head: Head<'_> = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    read_selector(head.validate_doc_update.get().as_bytes())
}

/// The validators of a database, and the version of its design documents at which they were read.
#[derive(Default)]
pub(crate) struct Validators(RwLock<Option<(u64, Arc<[Validator]>)>>);

impl Validators {
    /// Returns `None` when design documents have changed since, or were never read.
    pub fn known(&self, version: u64) -> Option<Arc<[Validator]>> {
        let known = self.0.read();
        let (of, validators) = known.as_ref()?;
        (*of == version).then(|| validators.clone())
    }

    /// Keeps the validators that were read at a version.
    pub fn keep(&self, version: u64, validators: Arc<[Validator]>) {
        *self.0.write() = Some((version, validators));
    }
}
