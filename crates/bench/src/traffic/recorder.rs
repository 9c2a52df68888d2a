//! The file of a recording, and the requests that were left out.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::entry::{Entry, Header, RecordingError};

/// Lines are buffered, and written at least as often as [`Recorder::flush`] is called.
const BUFFER_BYTES: usize = 256 * 1024;

/// Writes entries as they end; shared by all connections.
pub(super) struct Recorder {
    start: Instant,
    path: String,
    state: Mutex<State>,
}

struct State {
    out: BufWriter<File>,
    recorded: u64,
    left_out: BTreeMap<&'static str, u64>,
    failed: Option<std::io::Error>,
}

impl Recorder {
    /// Begins a recording in a new file.
    pub(super) fn create(path: &Path, server: &str) -> Result<Self, RecordingError> {
        let fail = |source| RecordingError::File {
            path: path.display().to_string(),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            // It holds documents.
            .mode(0o600)
            .open(path)
            .map_err(fail)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        serde_json::to_writer(&mut out, &Header::new(server))
            .map_err(std::io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush())
            .map_err(fail)?;
        Ok(Self {
            start: Instant::now(),
            path: path.display().to_string(),
            state: Mutex::new(State {
                out,
                recorded: 0,
                left_out: BTreeMap::new(),
                failed: None,
            }),
        })
    }

    /// Microseconds since the recording began.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn write(&self, entry: &Entry) {
        let mut state = self.lock();
        let state = &mut *state;
        if state.failed.is_some() {
            return;
        }
        let written = serde_json::to_writer(&mut state.out, entry)
            .map_err(std::io::Error::from)
            .and_then(|()| state.out.write_all(b"\n"));
        match written {
            Ok(()) => state.recorded += 1,
            Err(error) => state.failed = Some(error),
        }
    }

    /// Counts a request that is not written down.
    pub(super) fn leave_out(&self, reason: &'static str) {
        *self.lock().left_out.entry(reason).or_default() += 1;
    }

    /// Writes the buffer to the file. An error of any write so far is reported here, once.
    pub(super) fn flush(&self) -> Result<(), RecordingError> {
        let mut state = self.lock();
        let flushed = match state.failed.take() {
            Some(error) => Err(error),
            None => state.out.flush(),
        };
        flushed.map_err(|source| RecordingError::File {
            path: self.path.clone(),
            source,
        })
    }

    /// Requests written down, and those left out by reason.
    pub(super) fn counts(&self) -> (u64, BTreeMap<&'static str, u64>) {
        let state = self.lock();
        (state.recorded, state.left_out.clone())
    }

    /// A connection that panicked leaves whole lines, as lines are written under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
