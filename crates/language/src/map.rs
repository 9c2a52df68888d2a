//! Map functions: documents in, rows out.

use std::fmt;
use std::sync::Arc;

use crate::Error;

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
    /// Where the key's JSON text starts and ends, in bytes.
    pub key: (u32, u32),
    /// Where the value's JSON text starts and ends, in bytes.
    pub value: (u32, u32),
}

/// What map functions emitted: compact JSON texts in one buffer.
///
/// Rows come in the order of documents, then of functions, then of the calls of `emit`.
#[derive(Clone, Debug, Default)]
pub struct Emits {
    /// Keys and values; between them may be bytes that belong to none.
    pub bytes: Vec<u8>,
    /// Where each row is in `bytes`.
    pub rows: Vec<Emit>,
    /// For how many documents each function threw, as far as its server tells; functions behind the last did not.
    pub failures: Vec<u64>,
    /// Nanoseconds that each function took, as far as its server tells.
    pub spent: Vec<u64>,
    /// What functions threw, where [`MapGroup::tells`] asks for it, and the limits that they exceeded, where
    /// [`MapGroup::leaves_out`] asks for it.
    pub thrown: Vec<Thrown>,
}

/// What a function threw for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrown {
    /// Index of the document in the slice given to [`Mapper::map`].
    pub doc: u32,
    /// Index of the map function in its [`MapGroup`].
    pub view: u32,
    /// What it threw; no longer than [`THROWN_BYTES_MAX`].
    pub error: Error,
    /// The line of the function's source, from 1, where that is known.
    pub line: Option<u32>,
}

/// Bytes that are kept of the name and of the reason of what was thrown.
pub const THROWN_BYTES_MAX: usize = 2000;

impl Thrown {
    /// `error` is cut to what is kept of it.
    pub fn new(doc: u32, view: u32, error: Error, line: Option<u32>) -> Thrown {
        Thrown {
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

    /// How much there is, for [`Emits::renumber`].
    pub fn mark(&self) -> Mark {
        Mark {
            rows: self.rows.len(),
            thrown: self.thrown.len(),
        }
    }

    /// What was added since a mark is of documents that come so many later.
    pub fn renumber(&mut self, since: Mark, documents: usize) {
        let rows = self.rows[since.rows..].iter_mut().map(|row| &mut row.doc);
        let thrown = self.thrown[since.thrown..].iter_mut();
        for doc in rows.chain(thrown.map(|thrown| &mut thrown.doc)) {
            *doc += documents as u32;
        }
    }

    /// A function threw for so many documents more.
    pub fn note_failures(&mut self, view: usize, documents: u64) {
        add(&mut self.failures, view, documents);
    }

    /// A function took so many nanoseconds more.
    pub fn note_spent(&mut self, view: usize, nanoseconds: u64) {
        add(&mut self.spent, view, nanoseconds);
    }

    /// The key of a row, as JSON text.
    ///
    /// # Panics
    /// When the row is not one of `rows`.
    #[inline]
    pub fn key(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.key.0 as usize..e.key.1 as usize]
    }

    /// The value of a row, as JSON text.
    ///
    /// # Panics
    /// When the row is not one of `rows`.
    #[inline]
    pub fn value(&self, e: &Emit) -> &[u8] {
        &self.bytes[e.value.0 as usize..e.value.1 as usize]
    }
}

/// How much was in an [`Emits`].
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

/// Whose functions they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The database's name: databases take turns.
    pub database: Arc<str>,
    /// The design document's id, for log lines.
    pub design: String,
    /// Names of the views of each map function, for profiles. Views that have a function in common are divided by commas.
    pub views: Vec<String>,
}

impl Owner {
    /// The path of the view with this number, or of the design document when it has no name.
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
    /// Bodies are projected to what the functions touch, with a mark before each object and array that is taken whole
    /// (`projection::Projection::project_records`).
    pub records: bool,
    /// What functions throw is told ([`Emits::thrown`]), and not logged.
    pub tells: bool,
    /// A document for which a function exceeds a limit of rows, bytes or memory has no rows of that function, and an
    /// [`Error::Limit`] in [`Emits::thrown`]. Otherwise, and for other limits, the whole call fails.
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
    /// `index(type, name, value, options)`: the key is `[type, name]`, and the value `[value, options.store]`. A number that is none is
    /// its name there, as `"NaN"`.
    Nouveau,
    /// `index(name, value, options)`: the key is the name, and the value `[value, options]`.
    Clouseau,
}

/// Runs a [`MapGroup`]; one for each worker thread.
pub trait Mapper: Send {
    /// Appends to `out` what the functions emit for `docs`. A function that throws for a document adds nothing for that
    /// document and is logged, or told.
    ///
    /// # Errors
    /// An error (a limit hit, a dead process) is about the whole call: nothing of `out` is to be used.
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error>;

    /// The same for the first of `docs`, at least one if there is any: answers how many. Others wait for their turn, so that
    /// it comes to an end after about [`SLICE`](crate::SLICE).
    ///
    /// # Errors
    /// As of [`Mapper::map`].
    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        self.map(docs, out).map(|()| docs.len())
    }
}
