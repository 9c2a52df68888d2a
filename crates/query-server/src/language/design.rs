//! All other functions of design documents: filters, updates, shows, lists, validations and
//! rewrites.

use std::sync::Arc;
use std::time::Instant;

use super::error::Error;
use super::slice::SLICE;

/// A design document for calls of its other functions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DesignDoc {
    /// `_design/name`
    pub id: String,
    /// Its revision, `1-967a…`.
    pub rev: String,
    /// The language of its functions.
    pub language: String,
    /// The whole document's JSON text, with `_id` and `_rev`.
    pub json: Arc<[u8]>,
}

/// Rows of a view for a list function, and the receiver of its output. Called by [`Designs::list`].
pub trait ListIo {
    /// The list function called `start` (or wrote its first output): headers of the response as
    /// JSON text (`{"headers":{…},"code":…}`, the `resp` of `["start", chunks, resp]` in CouchDB's
    /// protocol). Called once, before any chunk.
    ///
    /// # Errors
    /// The receiver is gone. The list function ends, and [`Designs::list`] returns this error.
    fn start(&mut self, response: &[u8]) -> Result<(), Error>;

    /// Receives a piece of output, decoded text.
    ///
    /// # Errors
    /// Errors of [`ListIo::start`].
    fn chunk(&mut self, text: &str) -> Result<(), Error>;

    /// Returns the next row (`{"id":…,"key":…,"value":…}`) as JSON text, `None` after the last.
    ///
    /// # Errors
    /// Errors of [`ListIo::start`], and of reading the view.
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error>;
}

/// Calls design functions other than map and reduce.
pub trait Designs: Send {
    /// Calls the function at `path` (`["filters","f"]`, `["updates","u"]`, `["shows","s"]`,
    /// `["validate_doc_update"]`, `["rewrites"]`, `["views","v","map"]` for a `_view` filter) with
    /// `args`, a JSON array as in CouchDB's protocol (`["ddoc", id, path, args]`). Returns the
    /// protocol's reply as compact JSON text: `1` for a validation that passes,
    /// `[true,[true,false]]` for filters, `["resp",{…}]` for a show, `["up",doc,{…}]` for an
    /// update, `["ok", {…}]` for a rewrite.
    ///
    /// # Errors
    /// A thrown `{"forbidden": …}` or `{"unauthorized": …}` is [`Error::Forbidden`] or
    /// [`Error::Unauthorized`], any other thrown value [`Error::Thrown`].
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error>;

    /// Calls it with each of `args`, for about as long as [`SLICE`]: returns the replies to the
    /// first of them, at least one.
    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let started = Instant::now();
        let mut replies = Vec::with_capacity(args.len());
        for args in args {
            replies.push(self.call(ddoc, path, args));
            if started.elapsed() >= SLICE {
                break;
            }
        }
        replies
    }

    /// Runs the list function at `path` (`["lists","l"]`) with `args` = `[head, request]`.
    ///
    /// # Errors
    /// The exception of the function, the limit that it hit, or the error of `io`.
    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error>;
}
