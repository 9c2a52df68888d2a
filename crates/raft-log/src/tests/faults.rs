//! Faults of the simulation.

use std::sync::Arc;

use super::ledger::Checked;
use super::world::{DAMAGED_WRITES_MAX, Event, FAULTS_END_MS, Node, SLOTS, World};
use crate::memory_disk::MemoryDisk;
use crate::options::LogNode;

impl World {
    /// Makes a fault, and plans the next one.
    pub fn fault(&mut self) -> Checked {
        if self.now >= FAULTS_END_MS {
            return Ok(());
        }
        match self.rng.u32(..100) {
            0..25 => {
                let at = self.rng.usize(0..self.nodes.len());
                self.crash_for_a_while(at, 1_500);
            }
            // A power cut.
            25..45 => {
                for at in 0..self.nodes.len() {
                    self.crash_for_a_while(at, 300);
                }
            }
            45..70 => self.cut(),
            70..77 => self.loss = self.rng.u32(..30),
            77..83 => {
                let at = self.rng.usize(0..self.nodes.len());
                self.nodes[at].is_slow ^= true;
            }
            83..86 => {
                let at = self.rng.usize(0..self.nodes.len());
                let until = self.now + self.rng.u64(1_000..5_000);
                self.nodes[at].hangs_until = until.min(FAULTS_END_MS);
                self.note(|| format!("the disk of node {at} hangs until {until}"));
            }
            86..91 => self.lose_a_disk(),
            91..94 => self.replace_a_node(),
            _ => self.trim(),
        }
        // Groups sleep in calm runs only.
        let pause = match self.plan.seed.is_multiple_of(3) {
            true => self.rng.u64(300..2_500),
            false => self.rng.u64(50..500),
        };
        self.at(self.now + pause, Event::Fault);
        Ok(())
    }

    /// Ends all faults.
    pub fn heal(&mut self) -> Checked {
        self.note(|| "all faults end".into());
        self.cuts.clear();
        self.loss = 0;
        for at in 0..self.nodes.len() {
            self.nodes[at].is_slow = false;
            self.nodes[at].hangs_until = 0;
            self.start(at)?;
        }
        Ok(())
    }

    fn crash_for_a_while(&mut self, at: usize, most_ms: u64) {
        if self.nodes[at].core.is_some() {
            self.crash(at);
            let time = self.now + self.rng.u64(10..most_ms);
            self.at(time, Event::Start { at });
        }
    }

    /// Cuts a node off, or links at random, in one direction or both.
    fn cut(&mut self) {
        let until = self.now + self.rng.u64(200..2_500);
        let ids: Vec<u64> = self.nodes.iter().map(|node| node.id).collect();
        let alone = self.rng.choice(ids.iter().copied());
        let is_random = self.rng.bool();
        for from in &ids {
            for to in &ids {
                let is_cut = match is_random {
                    true => self.rng.u32(..100) < 30,
                    false => Some(*from) == alone || Some(*to) == alone,
                };
                if is_cut {
                    self.cuts.insert((*from, *to), until);
                }
            }
        }
        self.note(|| format!("links are cut until {until}"));
    }

    /// Returns whether the last change of the log nodes is complete.
    fn is_settled(&self) -> bool {
        let is_settled = |slot| {
            let mut cores = self.nodes.iter().filter_map(|node| node.core.as_ref());
            cores.any(|core| core.is_settled(slot))
        };
        SLOTS.into_iter().all(is_settled)
    }

    /// Replaces the disk of a log node by an empty one.
    fn lose_a_disk(&mut self) {
        if !self.is_settled() {
            return;
        }
        let place = self.rng.usize(0..self.table.len());
        let lost = self.table[place].node;
        let Some(at) = self.nodes.iter().position(|node| node.id == lost) else {
            return;
        };
        self.crash_for_a_while(at, 1_000);
        if self.plan.keeps_damaged {
            let count = self.rng.usize(1..=DAMAGED_WRITES_MAX);
            self.nodes[at].disk.damage(count);
            self.note(|| format!("node {at} forgets {count} synced writes"));
            return;
        }
        let node = &mut self.nodes[at];
        node.disks += 1;
        if !self.plan.reuses_ids {
            node.me.raft = node.id * 100 + node.disks;
        }
        node.disk = Arc::new(MemoryDisk::new(node.me.raft));
        let me = node.me;
        self.set_log_node(place, me);
        self.note(|| format!("node {at} lost its disk and is {me:?}"));
    }

    /// Makes the other node a log node in the place of one.
    fn replace_a_node(&mut self) {
        let is_other = |node: &&Node| !self.table.contains(&node.me);
        let other = self.nodes.iter().find(is_other).map(|node| node.me);
        if let Some(other) = other.filter(|_| self.is_settled()) {
            let place = self.rng.usize(0..self.table.len());
            self.note(|| format!("{other:?} is log node {place}"));
            self.set_log_node(place, other);
        }
    }

    /// Changes the table of log nodes, and notifies all nodes.
    pub fn set_log_node(&mut self, place: usize, log_node: LogNode) {
        self.table[place] = log_node;
        for node in &mut self.nodes {
            if let Some(core) = &mut node.core {
                core.set_log_nodes(self.table.clone());
            }
        }
    }

    /// Removes records that all have.
    fn trim(&mut self) {
        for slot in SLOTS {
            let offset = self.read_by_all(slot);
            for node in &mut self.nodes {
                if let Some(core) = &mut node.core {
                    core.trim(slot, offset, offset);
                }
            }
        }
    }
}
