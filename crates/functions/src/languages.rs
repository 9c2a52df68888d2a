//! The interface to the functions of every language.

use std::fmt;
use std::sync::Arc;

use crate::{Admission, Designs, Error, Lane, MapGroup, Mapper, Place, Reducer, Share};

/// Finds the server of a language and creates its functions.
pub trait Languages: Send + Sync + fmt::Debug {
    /// Requests permission to call functions of a database.
    fn admission(&self, _lane: Lane, _share: &Share) -> Admission {
        Admission::free()
    }

    /// Creates a mapper, which waits for its places itself, on its caller's thread, as this call
    /// does. They count to the cause of this thread's work ([`Cause`](crate::Cause)).
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`], [`Error::Compile`], or that nothing can run the functions.
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error>;

    /// Creates a custom reduce function of a database; `lib` as in [`MapGroup`]. Places as for
    /// [`Languages::mapper`].
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`]. Whether the source compiles may only show when it is called.
    fn reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error>;

    /// Returns other functions, to be used and dropped while the caller holds the place.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`].
    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error>;

    /// Checks that `source` compiles, where the language supports it.
    ///
    /// # Errors
    /// [`Error::Compile`] when it does not, [`Error::UnknownLanguage`]; all others when that cannot
    /// be determined.
    fn check(
        &self,
        place: &Place,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<(), Error>;

    /// Returns for each map function of a group the members of documents that it gets (a JSON array
    /// of paths), or why it gets whole documents. Empty where the language has no such
    /// optimisation.
    fn projections(&self, _group: &MapGroup) -> Vec<Result<String, String>> {
        vec![]
    }

    /// Returns the value of a limit that map functions in a language may exceed because of their
    /// document, by its configuration key; `None` for languages without it.
    fn limit(&self, _language: &str, _name: &str) -> Option<u64> {
        None
    }

    /// The time zone of dates in JavaScript.
    fn time_zone(&self) -> &str {
        crate::spidermonkey::UTC
    }

    /// Drops state kept for calls that did not come. Called periodically.
    fn rest(&self) {}

    /// Returns the memory of the built-in language's worker processes, and its maximum so far, in
    /// bytes.
    fn worker_memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A server without any language: every function is of an unknown one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLanguages;

impl NoLanguages {
    fn refuse<T>(language: &str) -> Result<T, Error> {
        Err(Error::UnknownLanguage(language.to_owned()))
    }
}

impl Languages for NoLanguages {
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        Self::refuse(&group.language)
    }

    fn reducer(
        &self,
        _: &Arc<str>,
        language: &str,
        _: &str,
        _: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        Self::refuse(language)
    }

    fn designs(&self, _: &Place, language: &str) -> Result<Box<dyn Designs>, Error> {
        Self::refuse(language)
    }

    fn check(&self, _: &Place, language: &str, _: &str, _: Option<&str>) -> Result<(), Error> {
        Self::refuse(language)
    }
}
