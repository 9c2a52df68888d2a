//! Splits the output of a process into lines.

use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// Bytes for one read: as many as a pipe holds unless asked otherwise.
const READ_BYTES: usize = 64 << 10;

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Some,
    /// Nothing is there now.
    Nothing,
    /// The other side is closed.
    End,
}

/// Bytes read and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// The start of the next line.
    start: usize,
    /// No newline is before this.
    searched: usize,
}

impl Lines {
    /// Reads once. `fd` must not block.
    pub fn read(&mut self, fd: impl AsFd) -> Read {
        if self.start > READ_BYTES && self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.bytes.reserve(READ_BYTES);
        match rustix::io::read(fd, spare_capacity(&mut self.bytes)) {
            Ok(0) => Read::End,
            Ok(_) => Read::Some,
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::End,
        }
    }

    /// Returns the next whole line, without its end.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        let Some(length) = memchr::memchr(b'\n', &self.bytes[self.searched..]) else {
            self.searched = self.bytes.len();
            return None;
        };
        let (start, end) = (self.start, self.searched + length);
        self.start = end + 1;
        self.searched = self.start;
        Some(&self.bytes[start..end])
    }

    /// Bytes that are not taken yet, a part of a line at the end included.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns the rest, which is an incomplete line.
    pub fn rest(&mut self) -> Option<&[u8]> {
        let start = std::mem::replace(&mut self.start, self.bytes.len());
        self.searched = self.start;
        (start < self.bytes.len()).then(|| &self.bytes[start..])
    }

    /// Frees the memory of taken lines.
    pub fn trim(&mut self) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.shrink_to(READ_BYTES);
    }
}
