//! Reads the changes feed of a source in batches.

use std::time::Duration;

use bytes::Bytes;
use database::{Changes, Framing};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::batch::{Batch, ChangesQuery, Read, Row, RowText, failed, refused};
use super::long_responses::{LONG_BYTES, ResponsePermit, row_bytes_max};
use super::peer_values::parse_seq;
use crate::batch_memory::Account;
use crate::error::Error;
use crate::rows::{Form, Rows};
use crate::shared_reads::{Settle, settled};

/// Changes of a continuous feed that arrive within this time of each other form one batch.
const LINGER: Duration = Duration::from_millis(5);
/// Longest row without a document, in bytes: it names leaves.
const BARE_ROW_BYTES_MAX: usize = 16 << 20;
/// Bytes of a local feed that are read in one call.
const LOCAL_CHUNK_BYTES: usize = 64 << 10;

/// A changes feed.
pub enum Feed {
    Local(Box<LocalFeed>),
    Http(Box<HttpFeed>),
}

impl Feed {
    /// Waits for the next batch, whose memory is taken from `memory`. The caller must hold none of
    /// it besides the batches that workers have.
    ///
    /// # Errors
    /// The source failed: the feed cannot be used any more.
    pub async fn read(&mut self, memory: &Account) -> Result<Read, Error> {
        match self {
            Feed::Local(feed) => feed.read(memory).await,
            Feed::Http(feed) => feed.read(memory).await,
        }
    }
}

/// A feed over HTTP.
pub struct HttpFeed {
    pub(super) response: reqwest::Response,
    holding: ResponsePermit,
    pub(super) rows: Rows,
    /// A row for which the last batch had no memory.
    next: Option<Bytes>,
    pub(super) query: ChangesQuery,
    pub(super) seq: Value,
    pub(super) end: Option<(Option<Value>, Option<u64>)>,
    pub(super) _connection: OwnedSemaphorePermit,
}

impl HttpFeed {
    pub(super) fn new(
        response: reqwest::Response,
        query: ChangesQuery,
        since: Value,
        connection: OwnedSemaphorePermit,
    ) -> HttpFeed {
        let form = if query.continuous {
            Form::Lines
        } else {
            Form::Results
        };
        let row_bytes_max = row_bytes_max(&response);
        HttpFeed {
            holding: ResponsePermit::of(&response),
            response,
            rows: match query.include_docs {
                true => Rows::up_to(form, row_bytes_max),
                false => Rows::up_to(form, BARE_ROW_BYTES_MAX.min(row_bytes_max)),
            },
            next: None,
            query,
            seq: since,
            end: None,
            _connection: connection,
        }
    }

    async fn read(&mut self, memory: &Account) -> Result<Read, Error> {
        let mut batch = Batch::new(&self.query, memory);
        loop {
            while !batch.is_full()
                && let Some(text) = next_row(&mut self.next, &mut self.rows)?
            {
                if !batch.cover(&text, memory).await {
                    self.next = Some(text);
                    break;
                }
                if let Row::End(seq, pending) = batch.add(&text)? {
                    self.end = Some((Some(seq), pending));
                }
            }
            if batch.is_full() || self.end.is_some() && !batch.changes.is_empty() {
                return self.hand_over(batch);
            }
            if let Some((seq, pending)) = self.end.take() {
                return Ok(Read::End(seq, pending));
            }
            if self.rows.held_bytes() > LONG_BYTES {
                // A long row is a batch of its own: its memory, and a place for the response, are
                // taken while no other memory is held.
                if !batch.changes.is_empty() {
                    return self.hand_over(batch);
                }
                batch.cover_long(self.rows.row_bytes_max(), memory).await;
            }
            let wait = self.query.continuous && !batch.changes.is_empty();
            let Some(bytes) = self.more(wait, batch.is_waited_for()).await? else {
                return self.hand_over(batch);
            };
            if bytes.is_empty() {
                self.end = Some(self.finish()?);
            } else {
                self.rows.push_bytes(bytes);
            }
        }
    }

    fn hand_over(&mut self, batch: Batch) -> Result<Read, Error> {
        self.holding.release_unless_long(self.rows.held_bytes());
        handed_over(batch, &mut self.seq)
    }

    /// Reads more bytes; empty at the end; `None` when none arrived for a moment and the caller is
    /// `impatient`. `others_wait`: for the memory of the batch.
    async fn more(&mut self, impatient: bool, others_wait: bool) -> Result<Option<Bytes>, Error> {
        let held = self.rows.held_bytes();
        let held = self.holding.hold(held, others_wait).await;
        held.map_err(|told| Error::Request(format!("_changes: {told}")))?;
        let chunk = self.response.chunk();
        let chunk = match impatient {
            false => chunk.await,
            true => match tokio::time::timeout(LINGER, chunk).await {
                Ok(chunk) => chunk,
                Err(_) => return Ok(None),
            },
        };
        let chunk = chunk.map_err(|e| {
            Error::Request(format!("_changes broke off: {}", super::http::cause(&e)))
        })?;
        Ok(Some(chunk.unwrap_or_default()))
    }

    fn finish(&mut self) -> Result<(Option<Value>, Option<u64>), Error> {
        let form = if self.query.continuous {
            Form::Lines
        } else {
            Form::Results
        };
        let rows = std::mem::replace(&mut self.rows, Rows::new(form));
        let envelope = rows.finish().map_err(|e| failed(e.to_string()))?;
        if self.query.continuous {
            // The source closed the connection without a last row.
            return Err(Error::Request("_changes ended".into()));
        }
        let envelope: RowText = serde_json::from_slice(&envelope)
            .map_err(|e| failed(format!("it is not understood: {e}")))?;
        if let Some(error) = envelope.error {
            return Err(refused(&error, envelope.reason));
        }
        let last = envelope.last_seq.map(|raw| parse_seq(raw.get().as_bytes()));
        Ok((last.transpose().map_err(failed)?, envelope.pending))
    }
}

/// Returns the row that was kept from the last batch, or the next one of the stream.
fn next_row(kept: &mut Option<Bytes>, rows: &mut Rows) -> Result<Option<Bytes>, Error> {
    match kept.take() {
        None => rows.next_row().map_err(|e| match e.is_too_long() {
            true => Error::LongRow(rows.row_bytes_max()),
            false => failed(e.to_string()),
        }),
        kept => Ok(kept),
    }
}

/// Hands over a batch, and remembers its last seq.
fn handed_over(batch: Batch, last: &mut Value) -> Result<Read, Error> {
    let read = batch.into_read(last)?;
    if let Read::Changes(_, seq, _) = &read {
        last.clone_from(seq);
    }
    Ok(read)
}

/// A feed of a database on this server.
pub struct LocalFeed {
    /// `None` only while a blocking thread reads it.
    pub(super) changes: Option<Changes>,
    pub(super) changed: watch::Receiver<u64>,
    pub(super) rows: Rows,
    /// A row for which the last batch had no memory.
    pub(super) next: Option<Bytes>,
    pub(super) query: ChangesQuery,
    pub(super) seq: Value,
    pub(super) ended: bool,
    /// Waits until reads are final, in a cluster.
    pub(super) settle: Option<Settle>,
}

impl LocalFeed {
    async fn read(&mut self, memory: &Account) -> Result<Read, Error> {
        let read = self.read_now(memory).await?;
        settled(self.settle.as_ref()).await?;
        Ok(read)
    }

    async fn read_now(&mut self, memory: &Account) -> Result<Read, Error> {
        let mut batch = Batch::new(&self.query, memory);
        loop {
            while !batch.is_full()
                && let Some(text) = next_row(&mut self.next, &mut self.rows)?
            {
                if !batch.cover(&text, memory).await {
                    self.next = Some(text);
                    break;
                }
                batch.add(&text)?;
            }
            if batch.is_full() {
                return handed_over(batch, &mut self.seq);
            }
            if !self.ended {
                self.read_chunk().await?;
                continue;
            }
            if !batch.changes.is_empty() {
                return handed_over(batch, &mut self.seq);
            }
            if !self.query.continuous {
                let changes = self.changes.as_ref().ok_or(Error::Stopped)?;
                return Ok(Read::End(
                    Some(changes.last_seq().into()),
                    changes.pending().ok(),
                ));
            }
            self.wait().await?;
        }
    }

    async fn read_chunk(&mut self) -> Result<(), Error> {
        let mut changes = self.changes.take().ok_or(Error::Stopped)?;
        let place = changes
            .admission()
            .patiently()
            .await
            .map_err(database::Error::from)?;
        changes.admit(place);
        let may_block = changes.may_block();
        let read = move || {
            let mut out = vec![];
            let more = changes.next_chunk(Framing::Lines, &mut out, LOCAL_CHUNK_BYTES);
            (changes, out, more)
        };
        let (changes, out, more) = if may_block {
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|_| Error::Stopped)?
        } else {
            let done = read();
            tokio::task::yield_now().await;
            done
        };
        self.changes = Some(changes);
        self.ended = !more?;
        self.rows.push_bytes(out.into());
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let changes = self.changes.as_mut().ok_or(Error::Stopped)?;
        changes.release();
        let changed = self.changed.changed().await;
        changed.map_err(|_| Error::Database(database::Error::NoDatabase))?;
        changes.refresh()?;
        self.ended = false;
        Ok(())
    }
}
