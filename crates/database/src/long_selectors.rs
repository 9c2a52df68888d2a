//! Selectors of `validate_doc_update` that are too long to be kept: each is compiled once for a
//! request, and for all requests that use it at the same time.

use std::collections::HashMap;
use std::sync::Arc;

use document::DocId;
use functions::{DesignDoc, Error as FunctionError};
use mango::Selector;

use crate::Error;
use crate::validators::{Check, LongSelector, Validator, selector_of};

/// Memory of the selectors that a request keeps, in bytes, besides the last one.
const SELECTORS_BYTES_MAX: usize = 64 << 20;

/// Selectors that a database does not keep, for the time of a request.
#[derive(Default)]
pub(crate) struct LongSelectors {
    kept: HashMap<DocId, Arc<LongSelector>>,
    bytes: usize,
}

impl LongSelectors {
    /// Returns the selector of a validator; `None` when its design document was deleted since the
    /// request began. `design` reads this document.
    pub fn of(
        &mut self,
        validator: &Validator,
        design: impl FnOnce() -> Result<Option<Arc<DesignDoc>>, Error>,
    ) -> Result<Option<Arc<Selector>>, FunctionError> {
        let shared = match &validator.check {
            Check::Selector(selector) => return Ok(Some(selector.clone())),
            Check::Broken(reason) => return Err(FunctionError::Compile(reason.clone())),
            Check::Function => return Ok(None),
            Check::LongSelector(shared) => shared,
        };
        if let Some(kept) = self.kept.get(&validator.id) {
            return Ok(Some(kept.selector.clone()));
        }
        let mut shared = shared.lock();
        let selector = match shared.upgrade() {
            Some(selector) => selector,
            None => {
                let design = design().map_err(|e| unreadable(&e))?;
                let Some(design) = design else {
                    return Ok(None);
                };
                let read = selector_of(&design).map_err(FunctionError::Compile)?;
                let read = Arc::new(read);
                if design.rev == validator.rev.to_string() {
                    *shared = Arc::downgrade(&read);
                }
                read
            }
        };
        if self.bytes + selector.bytes > SELECTORS_BYTES_MAX {
            *self = LongSelectors::default();
        }
        self.bytes += selector.bytes;
        self.kept.insert(validator.id.clone(), selector.clone());
        Ok(Some(selector.selector.clone()))
    }
}

/// The error of edits whose validator cannot be read.
pub(crate) fn unreadable(error: &Error) -> FunctionError {
    FunctionError::Process(format!("a validator cannot be read: {error}"))
}
