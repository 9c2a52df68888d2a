//! Scans of all documents, on all cores: in the order in which they were written, which is how
//! their bodies are stored.

use std::cell::RefCell;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use document::StoredBody;
use fair_queue::Share;
use mango::{Doc, Find, Groups, Intervals};
use parking_lot::Mutex;
use storage::{Body, ChangeIter, Row};

use super::turns::ScanTurns;
use crate::select::Views;
use crate::{Error, Task, unix_seconds};

/// Seqs that a thread takes at a time.
const PIECE_SEQS: u64 = 8_192;
/// Scans shorter than this are not shown among the tasks.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Documents that a thread examines between two checks whether the client still waits.
const LOOKS_MAX: u64 = 16;
/// Documents that are passed between two of these checks: deleted ones, and those with other ids.
const PASSED_MAX: u64 = 256;

/// The scans that run.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    running: Mutex<Vec<Arc<Progress>>>,
    /// Threads of all scans, in addition to those that they were called on.
    threads: AtomicUsize,
    /// Which of them work.
    pub turns: ScanTurns,
}

/// Threads in addition to the one that a scan is called on.
struct Threads<'a> {
    of: &'a Scans,
    count: usize,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.of.threads.fetch_sub(self.count, Relaxed);
    }
}

#[derive(Debug)]
struct Progress {
    database: String,
    started: Instant,
    started_unix_s: u64,
    done: AtomicU64,
    total: u64,
}

impl Scans {
    fn begin(&self, database: &str, total: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress {
            database: database.to_owned(),
            started: Instant::now(),
            started_unix_s: unix_seconds(),
            done: AtomicU64::new(0),
            total,
        });
        self.running.lock().push(progress.clone());
        progress
    }

    fn end(&self, progress: &Arc<Progress>) {
        self.running.lock().retain(|p| !Arc::ptr_eq(p, progress));
    }

    /// Takes as many more threads as are free, at most `wanted`: all scans together have no more
    /// than the number of cores, in addition to their own ones.
    fn threads(&self, wanted: usize) -> Threads<'_> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut count = 0;
        let _ = self.threads.fetch_update(Relaxed, Relaxed, |running| {
            count = wanted.min((cores - 1).saturating_sub(running));
            Some(running + count)
        });
        Threads { of: self, count }
    }

    /// For `/_active_tasks`.
    pub fn tasks(&self) -> Vec<Task> {
        let running = self.running.lock();
        let long = running.iter().filter(|p| p.started.elapsed() > SHOWN_AFTER);
        long.map(|p| Task {
            kind: "find",
            database: p.database.clone(),
            design_document: None,
            index: None,
            done: p.done.load(Relaxed),
            total: p.total,
            started_unix_s: p.started_unix_s,
            updated_unix_s: unix_seconds(),
        })
        .collect()
    }
}

/// The matches that a scan searches for.
pub(crate) struct Scan<'a> {
    pub scans: &'a Scans,
    pub share: Share,
    pub views: &'a Views,
    pub find: &'a Find,
    /// Which ids.
    pub ids: &'a Intervals,
    /// Only ids behind this one, in the direction.
    pub after: Option<&'a [u8]>,
    pub descending: bool,
    /// Ends the scan when it answers true.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// The first ids, and the number of documents that were examined.
pub(crate) struct FirstIds {
    pub ids: Vec<Vec<u8>>,
    /// There are more matching documents.
    pub more: bool,
    /// Matching documents among those that were judged: at least as many as `ids`.
    pub matches: u64,
    /// Documents that the selector was applied to: those whose ids came first so far.
    pub judged: u64,
    pub examined: u64,
}

impl Scan<'_> {
    /// The first `count` ids of matching documents, in the direction.
    pub fn first_ids(&self, count: usize) -> Result<FirstIds, Error> {
        let found = Mutex::new(First::new(count, self.descending));
        let examined = self.run(
            || First::new(count, self.descending),
            |first, id, doc| {
                if !first.takes(id) {
                    return Ok(());
                }
                first.judged += 1;
                if self.find.selector.matches_doc(doc)? {
                    first.matches += 1;
                    first.add(id.to_vec());
                }
                Ok(())
            },
            |first| {
                let mut all = found.lock();
                all.dropped |= first.dropped;
                all.matches += first.matches;
                all.judged += first.judged;
                for id in first.into_ids() {
                    all.add(id);
                }
                Ok(())
            },
        )?;
        let first = found.into_inner();
        let (more, matches, judged) = (first.dropped, first.matches, first.judged);
        let mut ids = first.into_ids();
        if self.descending {
            ids.sort_unstable_by(|a, b| b.cmp(a));
        } else {
            ids.sort_unstable();
        }
        Ok(FirstIds {
            ids,
            more,
            matches,
            judged,
            examined,
        })
    }

    /// Puts all matching documents into groups; returns the number of examined documents.
    pub fn group(&self, groups: &mut Groups) -> Result<u64, Error> {
        let parts: Mutex<Vec<Groups>> = Mutex::default();
        let examined = self.run(
            || groups.part(),
            |groups, _, doc| {
                if self.find.selector.matches_doc(doc)? {
                    groups.add(doc)?;
                }
                Ok(())
            },
            |groups| {
                parts.lock().push(groups);
                Ok(())
            },
        )?;
        let mut parts = parts.into_inner().into_iter();
        parts.try_for_each(|part| groups.merge(part))?;
        Ok(examined)
    }

    /// Distributes the live documents of `ids` over as many threads as are free; returns their
    /// number.
    fn run<T: Send>(
        &self,
        new: impl Fn() -> T + Sync,
        look: impl Fn(&mut T, &[u8], &Doc<'_>) -> Result<(), Error> + Sync,
        put: impl Fn(T) -> Result<(), Error> + Sync,
    ) -> Result<u64, Error> {
        let pieces = self.pieces();
        let total = pieces.iter().map(|p| p.to - p.after).sum();
        let progress = self.scans.begin(self.share.database(), total);
        let (next, examined) = (AtomicUsize::new(0), AtomicU64::new(0));
        let failed = AtomicBool::new(false);
        let work = || -> Result<(), Error> {
            let mut own = new();
            let mut reader = Reader::default();
            let working = RefCell::new(self.scans.turns.begin(self.share.clone()));
            while let Some(piece) = pieces.get(next.fetch_add(1, Relaxed)) {
                if failed.load(Relaxed) || (self.is_over)() {
                    break;
                }
                let is_over = || {
                    working.borrow_mut().pause();
                    failed.load(Relaxed) || (self.is_over)()
                };
                let seen = self.look_at(piece, &mut reader, &is_over, |id, doc| {
                    look(&mut own, id, doc)
                })?;
                examined.fetch_add(seen, Relaxed);
                progress.done.fetch_add(piece.to - piece.after, Relaxed);
            }
            drop(working);
            put(own)
        };
        let work = || {
            let _reads = telemetry::enter(telemetry::State::Read);
            work().inspect_err(|_| failed.store(true, Relaxed))
        };
        let threads = self.scans.threads(pieces.len().saturating_sub(1));
        let result = std::thread::scope(|scope| {
            let others: Vec<_> = (0..threads.count).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                let panicked = || Err(Error::Internal("a scanning thread panicked".into()));
                result = result.and(other.join().unwrap_or_else(|_| panicked()));
            }
            result
        });
        self.scans.end(&progress);
        result.map(|()| examined.into_inner())
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = vec![];
        for (shard, view) in self.views.views.iter().enumerate() {
            let last = view.meta.update_seq;
            let starts = (0..last).step_by(PIECE_SEQS as usize);
            pieces.extend(starts.map(|after| Piece {
                shard,
                after,
                to: last.min(after + PIECE_SEQS),
            }));
        }
        pieces
    }

    /// Whether the query requests the revision, which takes time to write.
    fn wants_rev(&self) -> bool {
        let aggregated = self.find.aggregate.iter().flat_map(|a| a.paths());
        let mut paths = self.find.selector.fields().iter().chain(aggregated);
        self.find.selector.needs_whole() || paths.any(|path| path.first() == "_rev")
    }

    fn is_wanted(&self, id: &[u8]) -> bool {
        let behind = self.after.is_none_or(|after| {
            if self.descending {
                id < after
            } else {
                id > after
            }
        });
        behind && !id.starts_with(b"_design/") && (self.ids.is_full() || self.ids.find(id).is_ok())
    }

    fn look_at(
        &self,
        piece: &Piece,
        reader: &mut Reader,
        is_over: &dyn Fn() -> bool,
        mut look: impl FnMut(&[u8], &Doc<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let (shard, view) = (
            &self.views.shards[piece.shard],
            &self.views.views[piece.shard],
        );
        let mut it = ChangeIter::new(&view.snapshot, shard.number, piece.after, false);
        let wants_rev = self.wants_rev();
        let mut bodies = None;
        let (mut seen, mut passed) = (0_u64, 0_u64);
        while let Some((seq, value)) = it.entry().filter(|(seq, _)| *seq <= piece.to) {
            let row = Row::decode(seq, value)?;
            if !row.deleted && self.is_wanted(row.id.as_bytes()) {
                seen += 1;
                if seen.is_multiple_of(LOOKS_MAX) && is_over() {
                    return Ok(seen);
                }
                reader.members.clear();
                reader.members.extend_from_slice(b"\"_id\":");
                document::write_json_string(row.id, &mut reader.members);
                if wants_rev {
                    reader.members.extend_from_slice(b",\"_rev\":");
                    row.winner.write_json_to(&mut reader.members);
                }
                let corrupt = storage::Error::Corrupt("document body");
                let stored = match row.body {
                    Body::Inline(body) if row.winner_seq == seq => body,
                    Body::External { .. } if row.winner_seq == seq => bodies
                        .get_or_insert_with(|| view.scan_bodies(shard, seq, piece.to))
                        .get(seq)?
                        .ok_or(corrupt)?,
                    _ => {
                        reader.body.clear();
                        let body = &mut reader.body;
                        view.with_body(shard, row.winner_seq, |b| body.extend_from_slice(b))?
                            .ok_or(corrupt)?;
                        &reader.body
                    }
                };
                let body = StoredBody::move_stubs(stored, &mut reader.members);
                let doc = Doc {
                    members: &reader.members,
                    body: body.ok_or_else(|| storage::Error::Corrupt("attachments"))?,
                };
                look(row.id.as_bytes(), &doc)?;
            } else {
                passed += 1;
                if passed.is_multiple_of(PASSED_MAX) && is_over() {
                    return Ok(seen);
                }
            }
            it.next();
        }
        it.status()?;
        Ok(seen)
    }
}

/// Changes of a shard after one seq up to another.
struct Piece {
    shard: usize,
    after: u64,
    to: u64,
}

/// Buffers of one thread.
#[derive(Default)]
struct Reader {
    members: Vec<u8>,
    body: Vec<u8>,
}

/// The ids that come first, of those that are added.
struct First {
    count: usize,
    descending: bool,
    /// The last one is on top.
    heap: BinaryHeap<Ranked>,
    dropped: bool,
    matches: u64,
    judged: u64,
}

/// An id, compared in the direction of the query.
#[derive(PartialEq, Eq)]
struct Ranked {
    id: Vec<u8>,
    descending: bool,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = self.id.cmp(&other.id);
        if self.descending {
            order.reverse()
        } else {
            order
        }
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl First {
    fn new(count: usize, descending: bool) -> First {
        First {
            count,
            descending,
            heap: BinaryHeap::new(),
            dropped: false,
            matches: 0,
            judged: 0,
        }
    }

    /// Whether an id would be among the first ones. Other ids still count as matches.
    fn takes(&mut self, id: &[u8]) -> bool {
        if self.heap.len() < self.count {
            return true;
        }
        let takes = self.heap.peek().is_some_and(|last| {
            if self.descending {
                id > last.id.as_slice()
            } else {
                id < last.id.as_slice()
            }
        });
        self.dropped |= !takes;
        takes
    }

    fn add(&mut self, id: Vec<u8>) {
        let new = Ranked {
            id,
            descending: self.descending,
        };
        if self.heap.len() < self.count {
            self.heap.push(new);
            return;
        }
        self.dropped = true;
        if let Some(mut last) = self.heap.peek_mut()
            && new < *last
        {
            *last = new;
        }
    }

    fn into_ids(self) -> Vec<Vec<u8>> {
        self.heap.into_iter().map(|r| r.id).collect()
    }
}
