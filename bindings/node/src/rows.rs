//! Rows and changes, some at a time.

use std::sync::Arc;
use std::time::Duration;

use embedded::{Batch, Piece};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::cancel::cancellable;
use crate::error::{blocking, text};

/// Rows of a listing, of a view or of a query.
#[napi]
pub struct Rows(embedded::Rows);

impl Rows {
    pub fn new(rows: embedded::Rows) -> Rows {
        Rows(rows)
    }
}

fn texts(batch: &Batch) -> napi::Result<Vec<String>> {
    let rows = batch.rows();
    rows.into_iter().map(|row| text(row.to_vec())).collect()
}

#[napi]
impl Rows {
    /// The members before the rows, as JSON text.
    #[napi]
    pub fn head(&self) -> String {
        self.0.head()
    }

    /// The members after the rows, as JSON text.
    #[napi]
    pub async fn tail(&self) -> napi::Result<String> {
        let rows = self.0.clone();
        blocking(move || rows.tail()).await
    }

    /// The next rows as JSON text of a list; nothing at the end.
    #[napi]
    pub async fn next_array(&self) -> napi::Result<Option<String>> {
        let batch = self.next().await?;
        batch.map(|batch| text(batch.into_array())).transpose()
    }

    /// The next rows, each as JSON text; nothing at the end.
    #[napi]
    pub async fn next_texts(&self) -> napi::Result<Option<Vec<String>>> {
        let batch = self.next().await?;
        batch.map(|batch| texts(&batch)).transpose()
    }

    /// Lets go of its snapshot.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let rows = self.0.clone();
        blocking(move || {
            rows.close();
            Ok(())
        })
        .await
    }

    async fn next(&self) -> napi::Result<Option<Batch>> {
        let rows = self.0.clone();
        blocking(move || rows.next()).await
    }
}

/// A feed of changes.
#[napi]
pub struct Feed {
    feed: Arc<Mutex<embedded::Feed>>,
    /// A second handle of the feed, for calls that need no lock.
    shared: embedded::Feed,
}

impl Feed {
    pub fn new(feed: embedded::Feed) -> Feed {
        Feed {
            feed: Arc::new(Mutex::new(feed.clone())),
            shared: feed,
        }
    }

    /// The next rows; nothing at the end, or after the time-out.
    async fn next(&self, timeout_ms: Option<f64>, cancel: u32) -> napi::Result<Option<Batch>> {
        loop {
            let feed = self.feed.clone();
            let piece = blocking(move || feed.lock().next_piece()).await?;
            match piece {
                Piece::Rows(batch) => return Ok(Some(batch)),
                Piece::End => return Ok(None),
                Piece::Wait => {}
            }
            let feed = self.feed.lock().clone();
            let Some(timeout_ms) = timeout_ms else {
                cancellable(cancel, feed.wait()).await?;
                continue;
            };
            let timeout = Duration::from_millis(timeout_ms.max(0.0) as u64);
            let waited = tokio::time::timeout(timeout, cancellable(cancel, feed.wait()));
            match waited.await {
                Ok(waited) => waited?,
                Err(_) => return Ok(None),
            }
        }
    }
}

#[napi]
impl Feed {
    /// The next changes as JSON text of a list; nothing at the end, or when none came within this
    /// number of milliseconds.
    #[napi]
    pub async fn next_array(
        &self,
        timeout_ms: Option<f64>,
        cancel: u32,
    ) -> napi::Result<Option<String>> {
        let batch = self.next(timeout_ms, cancel).await?;
        batch.map(|batch| text(batch.into_array())).transpose()
    }

    /// The next changes, each as JSON text; nothing as of `nextArray`.
    #[napi]
    pub async fn next_texts(
        &self,
        timeout_ms: Option<f64>,
        cancel: u32,
    ) -> napi::Result<Option<Vec<String>>> {
        let batch = self.next(timeout_ms, cancel).await?;
        batch.map(|batch| texts(&batch)).transpose()
    }

    /// The seq to resume from later.
    #[napi]
    pub async fn last_seq(&self) -> napi::Result<String> {
        let feed = self.shared.clone();
        blocking(move || feed.last_seq()).await
    }

    /// Lets go of its snapshot.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let feed = self.shared.clone();
        blocking(move || {
            feed.close();
            Ok(())
        })
        .await
    }
}
