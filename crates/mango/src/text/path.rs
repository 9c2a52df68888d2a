//! Paths of fields while a selector is converted, and the bound on that work: a few bytes of a
//! selector can stand for many long names.

use std::cell::Cell;
use std::rc::Rc;

use super::{ELEMENTS, NAME_BYTES_MAX};

/// Maximum number of parts of a path: conversions recurse for each part.
const PARTS_MAX: usize = 512;
/// Work of a value besides the bytes of its path and its text.
const VALUE_BYTES: usize = 64;
/// Maximum work of a conversion, in bytes that are read or written.
const WORK_BYTES_MAX: usize = 4 << 20;
/// Maximum number of clauses of a query, with a reserve for those that are added to it: the engine
/// has a maximum of 1,024, as Lucene does.
pub const CLAUSES_MAX: usize = 1_000;

/// The path of a field. The paths below it share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Path(Option<Rc<Part>>);

#[derive(Debug)]
struct Part {
    above: Path,
    name: Box<str>,
    /// Number of parts up to this one.
    parts: usize,
    /// Bytes of all of them, with separators.
    bytes: usize,
}

impl Path {
    /// Returns the path of a member.
    pub fn member(&self, name: &str) -> Path {
        Path(Some(Rc::new(Part {
            above: self.clone(),
            name: name.into(),
            parts: self.0.as_ref().map_or(0, |above| above.parts) + 1,
            bytes: self.bytes() + name.len() + 1,
        })))
    }

    /// Returns the path of the elements of an array.
    pub fn elements(&self) -> Path {
        self.member(ELEMENTS)
    }

    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the parts, outermost first.
    pub fn parts(&self) -> Vec<&str> {
        let above = std::iter::successors(self.0.as_deref(), |part| part.above.0.as_deref());
        let mut parts: Vec<&str> = above.map(|part| &*part.name).collect();
        parts.reverse();
        parts
    }

    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |part| part.bytes)
    }

    /// Returns whether no index has values of this field: its name is too long.
    pub fn is_long(&self) -> bool {
        let is_deep = |part: &Rc<Part>| part.parts > PARTS_MAX;
        self.bytes() > NAME_BYTES_MAX || self.0.as_ref().is_some_and(is_deep)
    }
}

/// The work and the clauses that a conversion may still take.
#[derive(Debug)]
pub(super) struct Effort {
    work_bytes: Cell<usize>,
    clauses: Cell<usize>,
}

impl Effort {
    pub fn new() -> Effort {
        Effort::of(WORK_BYTES_MAX)
    }

    /// Limits the work to some bytes.
    pub fn of(work_bytes: usize) -> Effort {
        Effort {
            work_bytes: Cell::new(work_bytes),
            clauses: Cell::new(CLAUSES_MAX),
        }
    }

    /// Counts the work on a value of this length below a path. Returns false when it is too much:
    /// then nothing more may be converted.
    pub fn spend(&self, path: &Path, value_bytes: usize) -> bool {
        let bytes = VALUE_BYTES + path.bytes() + value_bytes;
        let left = self.work_bytes.get().checked_sub(bytes);
        self.work_bytes.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns whether too much was converted.
    pub fn is_over(&self) -> bool {
        self.work_bytes.get() < VALUE_BYTES
    }

    /// Counts a clause. Returns false when there are too many.
    pub fn clause(&self) -> bool {
        let left = self.clauses.get().checked_sub(1);
        self.clauses.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns the number of clauses that are left.
    pub fn clauses_left(&self) -> usize {
        self.clauses.get()
    }

    /// Drops the clauses since there were this many left.
    pub fn drop_clauses(&self, left: usize) {
        self.clauses.set(left);
    }
}
