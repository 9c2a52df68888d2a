//! Invariants that always hold, whatever clients see.

use super::*;
use cluster::replica::GenerationStart;

#[derive(Default)]
pub struct Invariants {
    /// Where each leader was followed from: the offset, and the chain there.
    bases: HashMap<(Generation, i32), (u64, Chain)>,
    beginnings: HashMap<Generation, GenerationStart>,
}

impl World {
    /// A record is handed out: no durable promise forbids it.
    pub(super) fn may_apply(&mut self, node: NodeId, cursor: &Cursor) {
        let (position, promises) = (&cursor.position, &self.nodes[&node].disk.saved.promises);
        let last = (position.leader_epoch, position.next_offset - 1);
        let is_begin = cursor.begun.as_ref().is_some_and(|b| b.offset == last.1);
        if !is_begin && position.generation < promises.sealed {
            return self.violate(format!("{node} is sealed and applies {position:?}"));
        }
        self.keeps_fences(node, position.generation, &[last]);
    }

    /// A copy replaces the state.
    pub(super) fn may_be(&mut self, node: NodeId, cursor: &Cursor) {
        let position = &cursor.position;
        if position.generation < self.nodes[&node].disk.saved.promises.sealed {
            return self.violate(format!("{node} is sealed and becomes {position:?}"));
        }
        let ends = cursor.epochs.iter().skip(1).map(|(_, from)| from - 1);
        let ends = ends.chain([position.next_offset - 1]);
        let lasts: Vec<(i32, u64)> = cursor.epochs.iter().map(|(e, _)| *e).zip(ends).collect();
        self.keeps_fences(node, position.generation, &lasts);
    }

    fn keeps_fences(&mut self, node: NodeId, generation: Generation, records: &[(i32, u64)]) {
        let fences = &self.nodes[&node].disk.saved.promises.fences;
        let broken = fences.iter().find(|f| {
            let breaks = |(epoch, offset): &(i32, u64)| {
                *epoch < f.epoch && (*offset >= f.offset || *epoch > f.last_epoch)
            };
            f.generation == generation && records.iter().any(breaks)
        });
        if let Some(fence) = broken
            && self.plan.rules.fence
        {
            self.violate(format!("{node} breaks {fence:?} by {records:?}"));
        }
    }

    /// A ballot is used for one state only.
    pub(super) fn is_one_beginning(&mut self, node: NodeId, begin: &GenerationStart) {
        let known = self
            .invariants
            .beginnings
            .entry(begin.generation)
            .or_insert_with(|| begin.clone());
        if known != begin {
            let other = format!("{known:?}");
            return self.violate(format!("{node} begins {begin:?}, and before {other}"));
        }
        if self.nodes[&node].disk.saved.promises.sealed < begin.generation {
            self.violate(format!("{node} begins {begin:?} without its own seal"));
        }
    }

    /// All replicas that follow a leader do so from the same position.
    pub(super) fn is_one_way(&mut self, node: NodeId, cursor: &Cursor) {
        let before = &self.nodes[&node].disk.saved.cursor;
        let generation = cursor.position.generation;
        let is_new = before.position.generation != generation
            || before.epochs.last() != cursor.epochs.last();
        let Some((epoch, offset)) = cursor.epochs.last().copied().filter(|_| is_new) else {
            return;
        };
        let base = (offset, before.position.chain);
        let known = *self
            .invariants
            .bases
            .entry((generation, epoch))
            .or_insert(base);
        if known != base && self.plan.rules.fence {
            self.violate(format!(
                "{node} follows leader {epoch} of {generation:?} from {base:?}, others from {known:?}"
            ));
        }
    }

    /// Visible records of a replica were on the disks of a majority of the replicas as it knows
    /// them.
    pub(super) fn is_on_a_majority(&mut self, node: NodeId, generation: Generation, next: u64) {
        let Node { disk, replica, .. } = &self.nodes[&node];
        let (Some((_, chain)), Some(replica)) =
            (disk.store.lengths.get(&(generation, next)), replica)
        else {
            return;
        };
        let cursor = &replica.saved().cursor;
        if cursor.position.generation != generation || cursor.position.next_offset < next {
            return self.violate(format!("{node} shows {next} and is at {cursor:?}"));
        }
        let had = |id: &&NodeId| {
            let it = self.nodes.get(*id);
            it.is_some_and(|n| n.ever.contains(&(generation, next, *chain)))
        };
        let count = cursor.members.iter().filter(had).count();
        if count < cursor.majority() {
            self.violate(format!(
                "{node} shows {next} of {generation:?}, which {count} of {:?} had",
                cursor.members
            ));
        }
    }

    /// Every replica of at least this rank has it.
    pub(super) fn is_at_all_later(&mut self, node: NodeId, generation: Generation, next: u64) {
        let disk = &self.nodes[&node].disk;
        let epochs = disk.saved.cursor.epochs.iter().rev();
        let epoch = epochs
            .filter(|(_, from)| *from < next)
            .map(|(epoch, _)| *epoch)
            .next();
        let (Some(epoch), Some(length)) = (epoch, disk.store.length(generation, next)) else {
            return;
        };
        let Some(at) = length.checked_sub(1) else {
            return;
        };
        let hash = disk.store.hashes[at];
        let lacks = |(_, other): &(&NodeId, &Node)| {
            let is_later = other.disk.saved.cursor.position.rank() >= (generation, epoch, next);
            is_later && other.disk.store.hashes.get(at) != Some(&hash)
        };
        let lacking = self.nodes.iter().find(lacks).map(|(id, _)| *id);
        if let Some(other) = lacking {
            self.violate(format!(
                "{node} shows {next} of {generation:?}, leader {epoch}, and {other} is later and lacks it: {:?}",
                self.nodes[&other].disk.saved.cursor.position
            ));
        }
    }
}
