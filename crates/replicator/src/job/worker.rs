//! A worker: takes batches of changes, and copies the revisions that the target lacks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::{Mutex, mpsc};

use super::Job;
use super::watermark::Watermark;
use crate::batch_memory::Grant;
use crate::db::{Body, Change, Doc, MissingRevs, Portion, Portions, Rejection, attachments};
use crate::error::Error;
use crate::spans;

/// Changes that are processed together.
pub struct Batch {
    pub number: u64,
    pub changes: Vec<Change>,
    /// The memory of the changes.
    pub memory: Grant,
}

pub struct Worker {
    pub job: Arc<Job>,
    pub waiting: Arc<Mutex<mpsc::Receiver<Batch>>>,
    pub through: Arc<Watermark>,
    /// The target was empty when the job started: documents that the feed includes need not be
    /// checked there.
    pub target_was_empty: bool,
}

impl Worker {
    /// Works until there are no more batches.
    pub async fn run(self) -> Result<(), Error> {
        loop {
            let batch = self.waiting.lock().await.recv().await;
            let Some(batch) = batch else {
                return Ok(());
            };
            let had_changes = !batch.changes.is_empty();
            if had_changes {
                let work = spans::TaskSpan::of("replication batch", &self.job.id);
                work.of_changes(batch.changes.len());
                spans::record(work, self.bring(batch.changes)).await?;
            }
            drop(batch.memory);
            let (done, furthest) = self.through.finish(batch.number, had_changes);
            self.job
                .progress
                .set_seqs(|seqs| seqs.advance(done, furthest));
        }
    }

    async fn bring(&self, changes: Vec<Change>) -> Result<(), Error> {
        let progress = &self.job.progress;
        let revs = |changes: &[Change]| changes.iter().map(|c| c.revs.len() as u64).sum::<u64>();
        progress.missing_checked.fetch_add(revs(&changes), Relaxed);
        let (with_docs, others): (Vec<Change>, Vec<Change>) = changes
            .into_iter()
            .partition(|change| self.target_was_empty && change.doc.is_some());
        let missing = match others.is_empty() {
            true => vec![],
            false => self.job.target.revs_diff(&others).await?,
        };
        let found = missing.iter().map(|m| m.revs.len() as u64).sum::<u64>();
        progress
            .missing_found
            .fetch_add(found + with_docs.len() as u64, Relaxed);
        // One portion is written while the next is read.
        let (sender, written) = mpsc::channel(1);
        let memory = self.job.memory.documents.clone();
        let portions = Portions { sender, memory };
        let (read, write) =
            tokio::join!(self.read(with_docs, missing, portions), self.write(written));
        // The writer's error explains more than that of the reader, which it left waiting.
        write?;
        read
    }

    async fn read(
        &self,
        with_docs: Vec<Change>,
        missing: Vec<MissingRevs>,
        portions: Portions,
    ) -> Result<(), Error> {
        let came: Vec<Doc> = with_docs
            .into_iter()
            .filter_map(|change| {
                let body = Body::Json(change.doc?);
                Some(Doc {
                    id: change.id,
                    body,
                })
            })
            .collect();
        if !came.is_empty() {
            // The batch has memory for them.
            let memory = portions.memory.empty();
            let portion = Portion { docs: came, memory };
            let sent = portions.sender.send(portion).await;
            sent.map_err(|_| Error::Stopped)?;
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.job
            .source
            .fetch(missing, &portions, &self.job.progress)
            .await
    }

    async fn write(&self, mut portions: mpsc::Receiver<Portion>) -> Result<(), Error> {
        let job = &self.job;
        while let Some(Portion { docs, memory }) = portions.recv().await {
            let (streamed, docs): (Vec<Doc>, Vec<Doc>) = docs
                .into_iter()
                .partition(|doc| matches!(doc.body, Body::Streamed(_)));
            if !docs.is_empty() {
                let count = docs.len() as u64;
                job.progress.docs_read.fetch_add(count, Relaxed);
                let refused = job.target.write(docs).await?;
                self.note(count, &refused);
            }
            // Streams take none.
            drop(memory);
            for doc in streamed {
                let Body::Streamed(rev) = doc.body else {
                    continue;
                };
                job.progress.docs_read.fetch_add(1, Relaxed);
                let retries = job.replication.retries_per_request;
                let bring = attachments::bring(&job.source, &job.target, &doc.id, &rev, retries);
                self.note(1, &bring.await?);
            }
        }
        Ok(())
    }

    /// Counts written and refused documents.
    fn note(&self, count: u64, refused: &[Rejection]) {
        for no in refused {
            tracing::warn!(
                replication = self.job.id,
                id = no.id,
                error = no.error,
                reason = no.reason,
                "the target refused a document"
            );
        }
        let progress = &self.job.progress;
        let refused = (refused.len() as u64).min(count);
        progress.doc_write_failures.fetch_add(refused, Relaxed);
        progress.docs_written.fetch_add(count - refused, Relaxed);
    }
}
