//! What gives the functions of every language.

use std::fmt;
use std::sync::Arc;

use crate::{Admission, Designs, Error, Lane, MapGroup, Mapper, Place, Reducer};

/// Finds the server of a language and gives what runs its functions.
pub trait Languages: Send + Sync + fmt::Debug {
    /// Asks for leave to call functions of a database.
    fn admission(&self, _lane: Lane, _database: &Arc<str>) -> Admission {
        Admission::free()
    }

    /// What it gives waits for its places by itself, on its caller's thread, and so does this.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`], [`Error::Compile`], or that nothing can run the functions.
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error>;

    /// A custom reduce function of a database; `lib` as in [`MapGroup`]. Places as for [`Languages::mapper`].
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

    /// To be used, and dropped, while its caller has the place.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`].
    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error>;

    /// Whether `source` compiles, where the language can tell.
    ///
    /// # Errors
    /// [`Error::Compile`] when it does not, [`Error::UnknownLanguage`]; all others when that cannot be found out.
    fn check(
        &self,
        place: &Place,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<(), Error>;

    /// For each map function of a group the members of documents that it is given (a JSON array of paths), or why it is given
    /// whole documents. Empty where the language has nothing of the kind.
    fn projections(&self, _group: &MapGroup) -> Vec<Result<String, String>> {
        vec![]
    }

    /// The time zone of dates in JavaScript.
    fn time_zone(&self) -> &str {
        crate::js::UTC
    }

    /// Lets go of what was kept for calls that did not come. Asked now and then.
    fn rest(&self) {}

    /// Bytes that the worker processes of the built-in language take together, and the most that they took.
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
