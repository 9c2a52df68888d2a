//! Slow operations that run in tasks of their own: appends, reading the log again, copies.

use std::sync::atomic::Ordering;

use super::{Event, Task};
use crate::log::{LogError, RawReadBackResult};
use crate::position::NodeId;
use crate::record::Body;
use crate::replica::{Cursor, GenerationStart, Input, ReadBackResult};
use crate::slot::propose::Batch;
use crate::slot::types::{SlotStore, StagedCopy as _, StoreError};

impl<S: SlotStore> Task<S> {
    pub(super) fn append(&mut self, batch: Batch) {
        let Batch {
            record,
            of,
            is_whole,
        } = batch;
        // Called here, so that records reach the log in this order.
        let appended = self.log.append(self.options.slot, record);
        self.spawn_background(async move {
            Event::Appended {
                of,
                is_whole,
                result: appended.await,
            }
        });
    }

    pub(super) fn append_begin(&mut self, begin: GenerationStart) {
        let (boot, generation) = (self.boot, begin.generation);
        let record = self.options.stamp.write(generation, &Body::Begin(begin));
        let appended = self.log.append(self.options.slot, record);
        self.spawn_background(async move {
            Event::BeginAppended {
                boot,
                generation,
                result: appended.await,
            }
        });
    }

    pub(super) fn read_back(&mut self, offset: u64, epoch: i32) {
        let asked = (offset, epoch);
        if !self.reading_back.insert(asked) {
            return;
        }
        let boot = self.boot;
        let found = self.log.read_back(self.options.slot, offset, epoch);
        self.spawn_background(async move {
            Event::ReadBack {
                boot,
                asked,
                result: found.await,
            }
        });
    }

    pub(super) fn copy(&mut self, from: NodeId) {
        let boot = self.boot;
        let fetched = self.store.copy(from);
        self.spawn_background(async move {
            Event::Fetched {
                boot,
                result: fetched.await,
            }
        });
    }

    pub(super) fn spawn_background(
        &self,
        work: impl Future<Output = Event<S::Copy>> + Send + 'static,
    ) {
        let events = self.to_events.clone();
        tokio::spawn(async move {
            let _ = events.send(work.await);
        });
    }

    pub(super) fn event(&mut self, event: Event<S::Copy>) {
        match event {
            Event::Appended {
                of,
                is_whole,
                result,
            } => self.proposals.appended(of, is_whole, &result),
            Event::BeginAppended {
                boot,
                generation,
                result,
            } => match result {
                Ok(offset) if boot == self.boot => {
                    self.give(Input::Appended { generation, offset });
                }
                Ok(_) => {}
                Err(error) => self.complain(format!("a generation does not begin: {error}")),
            },
            Event::ReadBack {
                boot,
                asked,
                result,
            } if boot == self.boot => self.found(asked, result),
            Event::ReadBack { .. } => {}
            Event::Fetched { boot, result } => {
                if boot == self.boot {
                    self.fetched(result);
                }
            }
            Event::Installed { cursor, result } => self.installed(*cursor, result),
        }
    }

    pub(super) fn found(&mut self, asked: (u64, i32), result: Result<RawReadBackResult, LogError>) {
        self.reading_back.remove(&asked);
        if result.is_ok() {
            self.error = None;
        }
        let found = match result {
            Ok(RawReadBackResult::Record(raw)) => ReadBackResult::Record(self.decode(&raw).0),
            Ok(RawReadBackResult::Trimmed) => ReadBackResult::Trimmed,
            Ok(RawReadBackResult::BeyondEnd) => ReadBackResult::BeyondEnd,
            // Repeated by ticks.
            Err(error) => return self.error = Some(format!("the log was not read: {error}")),
        };
        let offset = asked.0;
        self.give(Input::ReadBack { offset, found });
    }

    pub(super) fn fetched(&mut self, result: Result<S::Copy, StoreError>) {
        // A replica that can be copied has what this one lacks: no generation has to begin for it,
        // however long the copy took, and even if it broke off.
        self.lacking_ticks = self.lacking_ticks.map(|_| 0);
        let staged = match result {
            Ok(staged) => staged,
            Err(error) => {
                self.complain(format!("no copy of another replica was made: {error}"));
                return self.give(Input::Copied(None));
            }
        };
        let Some(replica) = &mut self.replica else {
            return;
        };
        if !replica.may_become(staged.cursor()) {
            return self.give(Input::CopyRefused);
        }
        let cursor = Box::new(staged.cursor().clone());
        self.is_installing = true;
        self.board.replaced.fetch_add(1, Ordering::AcqRel);
        let installed = staged.install();
        self.spawn_background(async move {
            Event::Installed {
                cursor,
                result: installed.await,
            }
        });
    }

    pub(super) fn installed(&mut self, cursor: Cursor, result: Result<(), StoreError>) {
        self.is_installing = false;
        self.board.replaced.fetch_add(1, Ordering::AcqRel);
        if let Err(error) = result {
            return self.fail(&error);
        }
        self.generation = cursor.position.generation;
        self.begin_stable(cursor.position.next_offset);
        self.proposals.renew();
        self.lag.restart();
        self.error = None;
        self.store_error = None;
        self.lacking_ticks = None;
        self.give(Input::Copied(Some(cursor)));
    }
}
