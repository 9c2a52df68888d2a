//! Messages, reads and writes of the log, and copies, with their delays and faults.

use cluster::position::{Generation, NodeId};
use cluster::replica::{Cursor, Header, Input, Kind, Message};

use super::{Disk, Event, FOLLOWS, POLL_MS, READS_AGAIN, World};
use crate::simulation::log::{Entry, Write};

impl World {
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        let lost = self.rng.u32(..30) == 0 && !self.healed;
        let Some(boot) = self.nodes.get(&to).map(|n| n.boot) else {
            return;
        };
        if lost || !self.speaks(from, to) {
            return;
        }
        let again = if self.rng.u32(..50) == 0 { 2 } else { 1 };
        for _ in 0..again {
            let wait = match self.rng.u32(..200) {
                0 => self.rng.u64(1..self.profile.late_ms),
                1..10 => self.rng.u64(1..400),
                _ => self.rng.u64(1..8),
            };
            let input = Input::Message {
                from,
                message: message.clone(),
            };
            self.at(
                wait,
                Event::Input {
                    node: to,
                    boot,
                    input,
                },
            );
        }
    }

    pub(super) fn poll(&mut self, node: NodeId, fetch: u64) {
        let it = &self.nodes[&node];
        if it.fetch != fetch {
            return;
        }
        let (boot, mut next) = (it.boot, it.at);
        let again = Event::Poll { node, boot, fetch };
        if !self.reaches_log(node) {
            return self.at(POLL_MS * 5, again);
        }
        let log = self.seen_by(node, FOLLOWS);
        let (start, end) = (log.start, log.end());
        if next < start || next > end {
            self.at(POLL_MS * 10, again);
            return self.give(node, Input::NoRecord { start, end });
        }
        let most = self.rng.u64(1..self.profile.records_per_poll);
        for _ in 0..most {
            let damaged = self.rng.u32(..400) == 0 && !self.healed;
            let log = self.seen_by(node, FOLLOWS);
            let Some(record) = log.record(next, damaged) else {
                break;
            };
            let writes = log
                .get(next)
                .map(|entry| entry.writes.clone())
                .unwrap_or_default();
            next += 1;
            let Some(it) = self.nodes.get_mut(&node) else {
                return;
            };
            it.given = writes;
            it.at = next;
            self.give(node, Input::Record(record));
            let it = &self.nodes[&node];
            // It may have requested others, or crashed.
            if it.fetch != fetch || it.boot != boot || it.replica.is_none() {
                return;
            }
        }
        let wait = self.rng.u64(1..POLL_MS * 2);
        self.at(wait, again);
    }

    pub(super) fn read_back(&mut self, node: NodeId, offset: u64, epoch: i32) {
        if !self.reaches_log(node) {
            return;
        }
        let damaged = self.rng.u32(..200) == 0;
        let log = self.nodes[&node].disk.saved.cursor.log;
        let view = self.seen_by(node, READS_AGAIN);
        if let Some(input) = view.read_back(offset, (log, epoch), damaged) {
            self.give(node, input);
        }
    }

    pub(super) fn applied(&mut self, node: NodeId, writes: &[Write], cursor: &Cursor) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        it.applying -= 1;
        if self.rng.u32(..2_000) == 0 && !self.healed {
            self.note(|| format!("the store of {node} fails"));
            return self.fail(node);
        }
        if !self.obtain(node, writes) {
            return self.fail(node);
        }
        self.is_one_way(node, cursor);
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        it.disk.store.apply(writes, cursor);
        let position = cursor.position;
        let now = (position.generation, position.next_offset, position.chain);
        it.ever.insert(now);
        it.disk.saved.cursor = cursor.clone();
        if cursor.position.generation > Generation::default() {
            self.generations = self.generations.max(cursor.position.generation.number);
        }
        // What is in the store is visible before the replica is notified.
        let boot = it.boot;
        if it.applying > 0 && self.rng.bool() {
            // Included in the next one.
            return;
        }
        let input = Input::Applied {
            generation: position.generation,
            next_offset: position.next_offset,
        };
        if self.rng.u32(..50) == 0 {
            let (wait, input) = (self.rng.u64(2..400), input.clone());
            self.at(wait, Event::Input { node, boot, input });
        }
        self.at(2, Event::Input { node, boot, input });
    }

    pub(super) fn copy(&mut self, node: NodeId, from: NodeId) {
        let source = self.nodes.get(&from).filter(|n| n.replica.is_some());
        let reaches = self.speaks(node, from);
        let disk = source.filter(|_| reaches).map(|n| n.disk.clone());
        let Some(disk) = disk else {
            return self.give(node, Input::Copied(None));
        };
        // It continues meanwhile, or crashes.
        let (wait, boot) = (
            self.rng.u64(0..self.profile.copy_ms),
            self.nodes[&node].boot,
        );
        let fetched = Event::Fetched {
            node,
            boot,
            from,
            disk: Box::new(disk),
        };
        self.at(wait, fetched);
    }

    pub(super) fn fetched(&mut self, node: NodeId, from: NodeId, disk: Box<Disk>) {
        let is_there = self.nodes.get(&from).is_some_and(|n| n.replica.is_some());
        let is_whole = is_there && self.speaks(node, from) || self.rng.bool();
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let (boot, Some(replica)) = (it.boot, &mut it.replica) else {
            return;
        };
        if !is_whole {
            return self.give(node, Input::Copied(None));
        }
        if !replica.may_become(&disk.saved.cursor) {
            return self.give(node, Input::CopyRefused);
        }
        // Many messages may arrive until then.
        let wait = self.rng.u64(0..200);
        self.at(wait, Event::Install { node, boot, disk });
    }

    pub(super) fn install(&mut self, node: NodeId, disk: Disk) {
        let cursor = disk.saved.cursor.clone();
        self.may_be(node, &cursor);
        if let Some(it) = self.nodes.get_mut(&node) {
            let passed = disk.store.lengths.iter();
            it.ever.extend(
                passed.map(|((generation, next), (_, chain))| (*generation, *next, *chain)),
            );
            it.disk.contents = disk.store.needed(&disk.contents);
            it.disk.store = disk.store;
            it.lacking = None;
            it.disk.saved.cursor = disk.saved.cursor;
        }
        self.give(node, Input::Copied(Some(cursor)));
    }

    pub(super) fn propose(&mut self, node: NodeId, header: Header, writes: Vec<Write>) {
        let boot = self.nodes[&node].boot;
        self.salt += 1;
        let entry = Box::new(Entry::new(header, writes, self.salt));
        if self.reaches_log(node) && self.rng.u32(..40) != 0 {
            let wait = match self.rng.u32(..100) {
                0 => self.rng.u64(1..10_000),
                _ => self.rng.u64(1..20),
            };
            let again = self.rng.u32(..30) == 0;
            self.at(
                wait,
                Event::Append {
                    node,
                    boot,
                    entry,
                    again,
                },
            );
        }
    }

    pub(super) fn append(&mut self, node: NodeId, boot: u64, entry: Entry, again: bool) {
        let generation = entry.header.generation;
        let is_begin = matches!(entry.header.kind, Kind::Begin(_));
        // A deposed leader may not know it yet.
        let deposed = self.nodes[&node].behind[FOLLOWS]
            .filter(|_| self.rng.u32(..100) < self.profile.deposed);
        let mut branches = self.branches.iter_mut();
        let deposed = deposed
            .filter(|(until, _)| *until > self.now)
            .and_then(|(_, of)| branches.find(|log| (log.number, log.epoch) == of));
        let log = deposed.unwrap_or(&mut self.log);
        let (offset, epoch) = (log.append(entry.clone()), log.epoch);
        self.note(|| {
            format!(
                "log[{offset}] epoch {epoch} = {:?} {:?}",
                entry.header, entry.writes
            )
        });
        if again {
            // A producer without an acknowledgement tries again.
            let wait = self.rng.u64(1..600);
            let entry = Box::new(entry);
            self.at(
                wait,
                Event::Append {
                    node,
                    boot,
                    entry,
                    again: false,
                },
            );
        }
        if is_begin && self.rng.u32(..10) != 0 {
            let wait = self.rng.u64(1..20);
            let input = Input::Appended { generation, offset };
            self.at(wait, Event::Input { node, boot, input });
        }
    }
}
