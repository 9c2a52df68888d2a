//! Running users' code: the functions of design documents, in JavaScript in this process (or in worker processes of the
//! same binary), and in any language by CouchDB's query-server line protocol.
//!
//! It knows documents, keys and values as JSON text; it knows nothing of indexes, databases or HTTP.
//! All calls block: the caller is a worker thread.

mod error;
pub mod external;
mod functions;
pub mod js;
mod places;
pub mod prelude;
pub mod projection;

pub use error::Error;
pub use functions::{Functions, JAVASCRIPT};
pub use places::{Admission, Lane, Place, Places, SLICE};

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// One document for a map function.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// The underscore members as JSON text without braces, at least `"_id":"a","_rev":"1-x"`.
    pub members: &'a [u8],
    /// The rest of the document: a compact JSON object without underscore members and without duplicate members.
    pub body: &'a [u8],
}

/// Where one emitted row is in [`Emits::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Index of the document in the slice given to [`Mapper::map`].
    pub doc: u32,
    /// Index of the map function in its [`MapGroup`].
    pub view: u32,
    pub key: (u32, u32),
    pub value: (u32, u32),
}

/// What map functions emitted: compact JSON texts in one buffer. `key` and `value` of an [`Emit`] are (start, end) offsets.
/// Rows come in the order of documents, then of functions, then of the calls of `emit`.
#[derive(Clone, Debug, Default)]
pub struct Emits {
    pub bytes: Vec<u8>,
    pub rows: Vec<Emit>,
}

impl Emits {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
    pub fn key(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.key.0 as usize..e.key.1 as usize]
    }
    pub fn value(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.value.0 as usize..e.value.1 as usize]
    }
}

/// Whose functions they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The database's name: databases take turns.
    pub database: Arc<str>,
    /// The design document's id, for log lines.
    pub design: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.database, self.design)
    }
}

/// The map functions of one design document, that are run together over each document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapGroup {
    /// `javascript`, `erlang`, `python`, …: a design document's `language`.
    pub language: String,
    /// Sources, one a view.
    pub maps: Vec<String>,
    /// `views.lib` of the design document as JSON text, when it has one.
    pub lib: Option<String>,
    pub owner: Owner,
    /// Bodies come from [`projection::Projection::project_records`].
    pub records: bool,
}

/// Runs a [`MapGroup`]; one for each worker thread.
pub trait Mapper: Send {
    /// Appends to `out` what the functions emit for `docs`. A function that throws for a document adds nothing for that
    /// document and is logged. An error (a limit hit, a dead process) is about the whole call: nothing of `out` is to be used.
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error>;
    /// The same for the first of `docs`, at least one if there is any: answers how many. Others wait for their turn, so that
    /// it comes to an end after about [`SLICE`].
    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        self.map(docs, out).map(|()| docs.len())
    }
}

/// One row for a custom reduce: key, document id and value, as JSON text (`id` is the JSON string with its quotes).
#[derive(Clone, Copy, Debug)]
pub struct ReduceRow<'a> {
    pub key: &'a [u8],
    pub id: &'a [u8],
    pub value: &'a [u8],
}

/// Runs a custom reduce function.
pub trait Reducer: Send {
    /// `function(keys, values, false)`, keys being `[key, id]` pairs. Answers compact JSON text.
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error>;
    /// `function(null, values, true)`.
    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error>;
}

/// A design document for calls of its other functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignDoc {
    /// `_design/name`
    pub id: String,
    pub rev: String,
    pub language: String,
    /// The whole document's JSON text, with `_id` and `_rev`.
    pub json: Arc<[u8]>,
}

/// Rows of a view for a list function, and where its output goes. Called in turn by [`Designs::list`].
pub trait ListIo {
    /// The list function called `start` (or wrote its first output): headers of the response as JSON text
    /// (`{"headers":{…},"code":…}`, what CouchDB's protocol has in `["start", chunks, resp]`). Called once, before any chunk.
    fn start(&mut self, response: &[u8]) -> Result<(), Error>;
    /// A piece of output, decoded text.
    fn chunk(&mut self, text: &str) -> Result<(), Error>;
    /// The next row (`{"id":…,"key":…,"value":…}`) as JSON text, `None` after the last.
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error>;
}

/// Calls design functions other than map and reduce.
pub trait Designs: Send {
    /// Calls the function at `path` (`["filters","f"]`, `["updates","u"]`, `["shows","s"]`, `["validate_doc_update"]`,
    /// `["rewrites"]`, `["views","v","map"]` for a `_view` filter) with `args`, a JSON array as in CouchDB's protocol
    /// (`["ddoc", id, path, args]`). Answers the protocol's reply as compact JSON text: `1` of a validation that passes,
    /// `[true,[true,false]]` of filters, `["resp",{…}]` of a show, `["up",doc,{…}]` of an update, `["ok", {…}]` of a rewrite.
    /// A `{"forbidden": …}` or `{"unauthorized": …}` thrown is [`Error::Forbidden`] or [`Error::Unauthorized`].
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error>;
    /// Calls it with each of `args`, for about as long as [`SLICE`]: answers the replies to the first of them, to one at least.
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
    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error>;
}

/// Finds the server of a language and gives what runs its functions.
pub trait Languages: Send + Sync + fmt::Debug {
    /// Asks for leave to call functions of a database.
    fn admission(&self, _lane: Lane, _database: &Arc<str>) -> Admission {
        Admission::free()
    }
    /// What it gives waits for its places by itself, on its caller's thread, and so does this.
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error>;
    /// A custom reduce function of a database; `lib` as in [`MapGroup`]. Places as for [`Languages::mapper`].
    fn reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error>;
    /// To be used, and dropped, while its caller has the place.
    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error>;
    /// Whether `source` compiles, where the language can tell.
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
