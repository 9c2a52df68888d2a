//! Writes to the disk, and the messages and outcomes that wait for them.

use super::core::Core;
use super::group::{AfterFlush, Output};
use crate::disk::{GroupWrite, LogDisk};
use crate::options::STATE_TICKS;

/// A write, and what is sent and reported when it is durable.
#[derive(Debug)]
#[must_use = "nothing is confirmed before it is written and `Core::end_flush` is called"]
pub struct Flush {
    writes: Vec<GroupWrite>,
    must_sync: bool,
    after: Vec<AfterFlush>,
}

impl Flush {
    /// Returns what must be written. It may be nothing.
    pub fn writes(&self) -> &[GroupWrite] {
        &self.writes
    }

    /// Returns whether a vote or a term is in it.
    #[cfg(test)]
    pub(crate) fn has_vote(&self) -> bool {
        self.after.iter().any(|after| after.is_vote)
    }

    /// Returns whether the write must be synced.
    pub fn must_sync(&self) -> bool {
        self.must_sync
    }
}

impl<D: LogDisk> Core<D> {
    /// Returns whether [`Core::begin_flush`] would return something.
    pub fn has_flush(&self) -> bool {
        self.groups.values().any(|group| group.node.has_ready())
    }

    /// Takes what all groups must write. `None` if it is nothing. Effects that need not wait are put
    /// out immediately. Flushes must end in the order of their beginnings.
    pub fn begin_flush(&mut self) -> Option<Flush> {
        let mut flush = Flush {
            writes: vec![],
            must_sync: false,
            after: vec![],
        };
        let mut output = Output::default();
        let ready = self.groups.values().filter(|it| it.node.has_ready());
        let ready: Vec<_> = ready.map(|group| group.slot).collect();
        for slot in ready {
            let begun = self.with_group(slot, |group, _| group.begin(&mut output));
            if let Some(Some((write, after))) = begun {
                flush.must_sync |= write.is_some();
                flush.writes.extend(write);
                flush.after.push(after);
            }
        }
        if flush.must_sync || self.now.is_multiple_of(STATE_TICKS) {
            let states = self.groups.values_mut().filter_map(|it| it.state_write());
            flush.writes.extend(states);
        }
        #[cfg(test)]
        self.mutate(&mut flush, &mut output);
        self.put_out(output);
        self.serve_parked();
        if flush.after.is_empty() && flush.writes.is_empty() {
            return None;
        }
        self.flushes.push_back(self.now);
        Some(flush)
    }

    /// Continues when a flush is written, and is durable if it must be.
    pub fn end_flush(&mut self, flush: Flush) {
        self.flushes.pop_front();
        let mut output = Output::default();
        for after in flush.after {
            self.with_group(after.slot, |group, _| {
                group.finish(after, &mut output);
                Ok(())
            });
        }
        self.put_out(output);
    }

    /// Does too early what a mutant does too early.
    #[cfg(test)]
    fn mutate(&mut self, flush: &mut Flush, output: &mut Output) {
        use super::core::Mutant;
        let is_early = |after: &AfterFlush| match self.mutant {
            Mutant::None => false,
            Mutant::ConfirmsBeforeSync => after.last.is_some(),
            Mutant::VotesBeforeSync => after.is_vote,
        };
        let all = std::mem::take(&mut flush.after);
        let (early, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_early);
        flush.after = rest;
        for after in early {
            self.with_group(after.slot, |group, _| {
                group.finish(after, output);
                Ok(())
            });
        }
    }
}
