//! Sorts more than memory holds: sorted runs are written to files, and merged when they are read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;

/// Memory of a sorter, in bytes.
const MEMORY_BYTES: usize = 48 << 20;

/// Sorts records of `N` bytes.
pub(crate) struct Sorter<const N: usize> {
    directory: PathBuf,
    memory_bytes: usize,
    held: Vec<[u8; N]>,
    parts: Vec<File>,
}

impl<const N: usize> Sorter<N> {
    /// `directory` is the folder for runs, in unnamed files.
    pub fn new(directory: &Path) -> Sorter<N> {
        Sorter::with_memory(directory, MEMORY_BYTES)
    }

    fn with_memory(directory: &Path, memory_bytes: usize) -> Sorter<N> {
        Sorter {
            directory: directory.into(),
            memory_bytes,
            held: vec![],
            parts: vec![],
        }
    }

    /// Adds a record.
    pub fn push(&mut self, record: [u8; N]) -> Result<(), Error> {
        self.held.push(record);
        if self.held.len() * N >= self.memory_bytes {
            self.put_aside().map_err(|e| failed(&self.directory, &e))?;
        }
        Ok(())
    }

    fn put_aside(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let mut file = BufWriter::new(tempfile::tempfile_in(&self.directory)?);
        for record in &self.held {
            file.write_all(record)?;
        }
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        self.parts.push(file);
        self.held.clear();
        Ok(())
    }

    /// Returns the records in order.
    pub fn sorted(mut self) -> Result<SortedRecords<N>, Error> {
        self.held.sort_unstable();
        let mut sorted = SortedRecords {
            directory: self.directory,
            held: self.held.into_iter(),
            parts: self.parts.into_iter().map(BufReader::new).collect(),
            heads: BinaryHeap::new(),
            next: None,
        };
        for part in 0..=sorted.parts.len() {
            sorted.refill(part)?;
        }
        sorted.advance()?;
        Ok(sorted)
    }
}

fn failed(directory: &Path, e: &io::Error) -> Error {
    Error::Directory {
        path: directory.into(),
        reason: format!("sorting needs room for files: {e}"),
    }
}

/// Records in order, with one record of look-ahead.
pub(crate) struct SortedRecords<const N: usize> {
    directory: PathBuf,
    held: std::vec::IntoIter<[u8; N]>,
    parts: Vec<BufReader<File>>,
    /// The first record of each run, and the index of the run; the last index is the run in memory.
    heads: BinaryHeap<Reverse<([u8; N], usize)>>,
    next: Option<[u8; N]>,
}

impl<const N: usize> SortedRecords<N> {
    /// Returns the next record without taking it.
    pub fn peek(&self) -> Option<&[u8; N]> {
        self.next.as_ref()
    }

    /// Takes the next record.
    pub fn take(&mut self) -> Result<Option<[u8; N]>, Error> {
        let taken = self.next.take();
        self.advance()?;
        Ok(taken)
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.next = None;
        if let Some(Reverse((record, part))) = self.heads.pop() {
            self.next = Some(record);
            self.refill(part)?;
        }
        Ok(())
    }

    fn refill(&mut self, part: usize) -> Result<(), Error> {
        let record = match self.parts.get_mut(part) {
            None => self.held.next(),
            Some(file) => {
                let mut record = [0; N];
                match file.read_exact(&mut record) {
                    Ok(()) => Some(record),
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => None,
                    Err(e) => return Err(failed(&self.directory, &e)),
                }
            }
        };
        self.heads
            .extend(record.map(|record| Reverse((record, part))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_out_in_their_order_however_much_memory_there_is(
            records in proptest::collection::vec(any::<[u8; 3]>(), 0..300), memory in 3usize..400,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut sorter = Sorter::with_memory(dir.path(), memory);
            for record in &records { sorter.push(*record).unwrap(); }
            let mut sorted = sorter.sorted().unwrap();
            let mut found = vec![];
            while let Some(record) = sorted.take().unwrap() { found.push(record); }
            let mut expected = records;
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
