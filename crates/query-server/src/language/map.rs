//! Map functions: documents in, rows out.

use std::fmt;
use std::sync::Arc;

use super::error::Error;
use super::slice::EMITS_BYTES_MAX;

/// One document for a map function.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// The underscore members as JSON text without braces, at least `"_id":"a","_rev":"1-x"`.
    pub members: &'a [u8],
    /// The rest of the document: a compact JSON object without underscore members and without
    /// duplicate members.
    pub body: &'a [u8],
}

/// The position of an emitted row in [`Emits::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Index of the document in the slice given to [`Mapper::map`].
    pub doc: u32,
    /// Index of the map function in its [`MapGroup`].
    pub view: u32,
    /// Start and end of the key's JSON text, in bytes.
    pub key: (u32, u32),
    /// Start and end of the value's JSON text, in bytes.
    pub value: (u32, u32),
}

/// Emitted rows: compact JSON texts in one buffer.
///
/// Rows come in the order of documents, then of functions, then of the calls of `emit`.
#[derive(Clone, Debug, Default)]
pub struct Emits {
    /// Keys and values; in between there may be unused bytes.
    pub bytes: Vec<u8>,
    /// The position of each row in `bytes`.
    pub rows: Vec<Emit>,
    /// Number of documents for which each function threw, as far as its server reports it;
    /// functions after the last did not.
    pub failures: Vec<u64>,
    /// Nanoseconds that each function took, as far as its server reports it.
    pub spent: Vec<u64>,
    /// Thrown values, if [`MapGroup::tells`] requests them, and exceeded limits, if
    /// [`MapGroup::leaves_out`] does.
    pub thrown: Vec<MapFailure>,
}

/// A value that a function threw for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFailure {
    /// Index of the document in the slice given to [`Mapper::map`].
    pub doc: u32,
    /// Index of the map function in its [`MapGroup`].
    pub view: u32,
    /// The error; no longer than [`THROWN_BYTES_MAX`].
    pub error: Error,
    /// The line of the function's source, from 1, where that is known.
    pub line: Option<u32>,
}

/// Maximum length of the name and of the reason that are kept of a thrown value, in bytes.
pub const THROWN_BYTES_MAX: usize = 2000;

impl MapFailure {
    /// `error` is cut to the part that is kept.
    pub fn new(doc: u32, view: u32, error: Error, line: Option<u32>) -> MapFailure {
        MapFailure {
            doc,
            view,
            error: error.cut(THROWN_BYTES_MAX),
            line,
        }
    }
}

impl Emits {
    /// Forgets all rows, and keeps the memory for the next.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.failures.clear();
        self.spent.clear();
        self.thrown.clear();
    }

    /// Returns the approximate memory of the rows, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<Emit>()
    }

    /// Returns the current size, for [`Emits::renumber`].
    pub fn mark(&self) -> Mark {
        Mark {
            rows: self.rows.len(),
            thrown: self.thrown.len(),
        }
    }

    /// Removes the rows and errors that were added since a mark: those of a call that failed.
    pub fn forget(&mut self, since: Mark) {
        self.rows.truncate(since.rows);
        self.thrown.truncate(since.thrown);
    }

    /// Adds `documents` to the document numbers of everything added since a mark.
    pub fn renumber(&mut self, since: Mark, documents: usize) {
        let rows = self.rows[since.rows..].iter_mut().map(|row| &mut row.doc);
        let thrown = self.thrown[since.thrown..].iter_mut();
        for doc in rows.chain(thrown.map(|thrown| &mut thrown.doc)) {
            *doc += documents as u32;
        }
    }

    /// Adds a row of a document and a view. Its key is [`Emits::bytes`] from `key` to `value`, its
    /// value the bytes from there to the end.
    pub fn push_row(&mut self, doc: usize, view: usize, key: usize, value: usize) {
        self.rows.push(Emit {
            doc: doc as u32,
            view: view as u32,
            key: (key as u32, value as u32),
            value: (value as u32, self.bytes.len() as u32),
        });
    }

    /// Counts documents for which a function threw.
    pub fn note_failures(&mut self, view: usize, documents: u64) {
        add(&mut self.failures, view, documents);
    }

    /// Counts time that a function took, in nanoseconds.
    pub fn note_spent(&mut self, view: usize, nanoseconds: u64) {
        add(&mut self.spent, view, nanoseconds);
    }

    /// Returns the key of a row, as JSON text.
    ///
    /// # Panics
    /// When the row is not one of `rows`.
    #[inline]
    pub fn key(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.key.0 as usize..e.key.1 as usize]
    }

    /// Returns the value of a row, as JSON text.
    ///
    /// # Panics
    /// When the row is not one of `rows`.
    #[inline]
    pub fn value(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.value.0 as usize..e.value.1 as usize]
    }
}

/// The size of an [`Emits`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    rows: usize,
    thrown: usize,
}

fn add(sums: &mut Vec<u64>, view: usize, more: u64) {
    if sums.len() <= view {
        sums.resize(view + 1, 0);
    }
    sums[view] = sums[view].saturating_add(more);
}

/// The owner of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The database's name: places are shared fairly by databases.
    pub database: Arc<str>,
    /// The design document's id, for log lines.
    pub design: String,
    /// Names of the views of each map function, for profiles. Views that have a function in common
    /// are divided by commas.
    pub views: Vec<String>,
}

impl Owner {
    /// Returns the path of the view with this number, or of the design document when it has no
    /// name.
    pub fn view(&self, number: usize) -> String {
        match self.views.get(number) {
            Some(name) => format!("{self}/_view/{name}"),
            None => self.to_string(),
        }
    }
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
    /// For log lines, and for turns.
    pub owner: Owner,
    /// Bodies are projected to what the functions touch, with a mark before each object and array
    /// that is taken whole (`projection::Projection::project_records`).
    pub records: bool,
    /// Thrown values are returned ([`Emits::thrown`]), and not logged.
    pub tells: bool,
    /// A document for which a function exceeds a limit of rows, bytes or memory has no rows of that function, and an
    /// [`Error::Limit`] in [`Emits::thrown`]. Otherwise, and for other limits, the whole call fails: a caller that leaves out
    /// documents that take too much time finds them by calls with single documents.
    pub leaves_out: bool,
    /// Functions are of a text index, and call `index`; each call is a row.
    pub indexes: Indexes,
}

/// Which `index` functions call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Indexes {
    /// None: they are of views.
    #[default]
    No,
    /// `index(type, name, value, options)`: the key is `[type, name]`, and the value `[value,
    /// options.store]`. A number that JSON does not have is represented by its name, such as
    /// `"NaN"`.
    Nouveau,
    /// `index(name, value, options)`: the key is the name, and the value `[value, options]`.
    Clouseau,
}

/// Runs a [`MapGroup`]; one for each worker thread.
pub trait Mapper: Send {
    /// Appends the rows that the functions emit for `docs` to `out`. A function that throws for a
    /// document adds nothing for that document, and the error is logged or returned.
    ///
    /// # Errors
    /// An error (a limit hit, a dead process) concerns the whole call: `out` must not be used.
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error>;

    /// Maps the first of `docs`, at least one if there is any: returns how many. It stops after rows
    /// of [`EMITS_BYTES_MAX`], and since others wait for their turn, it may stop after about
    /// [`SLICE`](super::SLICE).
    ///
    /// # Errors
    /// Errors of [`Mapper::map`].
    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let start = out.size();
        for (number, doc) in docs.iter().enumerate() {
            let mark = out.mark();
            self.map(std::slice::from_ref(doc), out)?;
            out.renumber(mark, number);
            if out.size() - start >= EMITS_BYTES_MAX {
                return Ok(number + 1);
            }
        }
        Ok(docs.len())
    }
}
