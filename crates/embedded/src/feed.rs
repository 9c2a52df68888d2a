//! Changes: existing ones, and later ones as they come.

use std::sync::Arc;

use database::{Changes, Framing};
use tokio::sync::watch;

use crate::batch::Batch;
use crate::{BATCH_BYTES, Database, Directory, Error, Handle, Result, options};

/// A piece of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Changes, one at least.
    Rows(Batch),
    /// None for now: [`Feed::wait`] waits for more.
    Wait,
    /// No more will come.
    End,
}

/// A feed of changes.
#[derive(Clone)]
pub struct Feed {
    handle: Arc<Handle<Changes>>,
    live: bool,
    directory: Directory,
    /// True once it is closed, for waiting calls.
    closed: Arc<watch::Sender<bool>>,
    /// Changes its value with every commit; of no use to a feed that does not wait.
    changed: watch::Receiver<u64>,
}

const SEPARATOR: &[u8] = b",\n";

impl Database {
    /// Opens a feed. `options`: JSON text of an object.
    ///
    /// # Errors
    /// 404 `not_found`, 400 `bad_request`.
    pub fn changes(&self, options: &str) -> Result<Feed> {
        let options: options::Changes = options::read(options)?;
        let (live, query) = (options.live, options.query()?);
        let db = self.get()?;
        // Before the snapshot, so that no commit is missed.
        let changed = db.watch();
        Ok(Feed {
            handle: self.directory.handle(db.changes(query)?),
            live,
            directory: self.directory.clone(),
            closed: Arc::new(watch::Sender::new(false)),
            changed,
        })
    }
}

impl Feed {
    /// Returns the next piece. Blocks for the time of some reads.
    ///
    /// # Errors
    /// [`Error::closed`]; 404 once the database is deleted.
    pub fn next_piece(&mut self) -> Result<Piece> {
        let live = self.live;
        let changed = &mut self.changed;
        self.handle.with(|changes| {
            let mut text = vec![];
            loop {
                let more = changes.next_chunk(Framing::Array, &mut text, BATCH_BYTES)?;
                if !text.is_empty() {
                    return Ok(Piece::Rows(Batch::new(text, SEPARATOR)));
                }
                if more {
                    continue;
                }
                if !live || changes.is_final() {
                    return Ok(Piece::End);
                }
                changes.release();
                // An error means that the database is deleted, which the refresh reports.
                if !changed.has_changed().unwrap_or(true) {
                    return Ok(Piece::Wait);
                }
                changed.borrow_and_update();
                changes.refresh()?;
            }
        })
    }

    /// Waits for a commit. Cancelling the wait loses nothing.
    ///
    /// # Errors
    /// [`Error::closed`].
    pub async fn wait(&self) -> Result<()> {
        let (mut closing, mut closed) = (self.directory.closing(), self.closed.subscribe());
        tokio::select! {
            biased;
            _ = closing.wait_for(|is| *is) => Err(Error::closed()),
            _ = closed.wait_for(|is| *is) => Err(Error::closed()),
            _ = changed(&self.changed) => Ok(()),
        }
    }

    /// Returns the seq to continue from later.
    ///
    /// # Errors
    /// [`Error::closed`].
    pub fn last_seq(&self) -> Result<String> {
        self.handle.with(|changes| Ok(changes.last_seq()))
    }

    /// Releases its snapshot; waiting callers get the error of a closed feed.
    pub fn close(&self) {
        self.closed.send_replace(true);
        self.handle.close();
    }
}

/// Waits for a value that was not seen, and leaves it unseen.
async fn changed(receiver: &watch::Receiver<u64>) {
    let mut receiver = receiver.clone();
    // An error is that the database is deleted.
    let _ = receiver.changed().await;
}
