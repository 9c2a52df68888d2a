//! Contents that records name, and that records do not contain.

use super::*;

/// Contents that no write needs are removed this time after they were copied to a node.
const KEPT_MS: u64 = 2_000;

impl Store {
    /// Returns the contents of the last write of each key, of those that there are.
    pub(super) fn needed(&self, contents: &BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
        let all = self.last_contents();
        let is_needed = |(content, _): &(&u64, &u64)| all.contains(*content);
        let needed = contents.iter().filter(is_needed);
        needed.map(|(content, at)| (*content, *at)).collect()
    }

    fn last_contents(&self) -> BTreeSet<u64> {
        let last = |key| self.lineage.iter().rfind(|write| write.key == key);
        (0..KEYS)
            .filter_map(last)
            .filter_map(|w| w.content)
            .collect()
    }
}

impl World {
    pub(super) fn rng_percent(&mut self, percent: u32) -> bool {
        percent > 0 && self.rng.u32(..100) < percent
    }

    /// Returns whether a node answers another.
    fn answers(&self, from: NodeId, to: NodeId) -> bool {
        let is_up = |it: &Node| it.replica.is_some() && it.paused_until <= self.now;
        from == to || self.nodes.get(&to).is_some_and(is_up) && self.speaks(from, to)
    }

    /// Copies a content to the replicas, as a node knows them; returns whether a majority has it.
    pub(super) fn stage(&mut self, node: NodeId, content: u64) -> bool {
        let members = self.nodes[&node].disk.saved.cursor.members.clone();
        let mut count = 0;
        for member in members.iter() {
            let is_slow = *member != node && self.rng.u32(..3) == 0;
            if is_slow || !self.answers(node, *member) {
                continue;
            }
            if let Some(it) = self.nodes.get_mut(member) {
                it.disk.contents.insert(content, self.now);
                count += 1;
            }
        }
        count > members.len() / 2
    }

    /// Fetches the contents of a record that is being applied. Returns whether all are here that
    /// its writes need.
    pub(super) fn obtain(&mut self, node: NodeId, writes: &[Write]) -> bool {
        let disk = &self.nodes[&node].disk;
        let is_effective = |w: &&Write| !disk.store.requests.contains(&w.request);
        let effective = writes.iter().filter(is_effective);
        let named: Vec<u64> = effective.filter_map(|write| write.content).collect();
        if self.plan.lacks_contents {
            return true;
        }
        for content in named {
            if self.nodes[&node].disk.contents.contains_key(&content) {
                continue;
            }
            let others: Vec<NodeId> = self.nodes.keys().copied().collect();
            let answering = others.into_iter().filter(|to| self.answers(node, *to));
            let answering: Vec<NodeId> = answering.collect();
            let has = |id: &NodeId| self.nodes[id].disk.contents.contains_key(&content);
            if !answering.iter().any(has) {
                self.note(|| format!("{node} lacks the content {content}"));
                self.lack(node, &answering);
                return false;
            }
            let now = self.now;
            if let Some(it) = self.nodes.get_mut(&node) {
                it.disk.contents.insert(content, now);
            }
        }
        if let Some(it) = self.nodes.get_mut(&node) {
            it.lacking = None;
        }
        true
    }

    /// Notes that these nodes, including itself, lack a content, if they are a majority.
    fn lack(&mut self, node: NodeId, lacking: &[NodeId]) {
        let now = self.now;
        if let Some(it) = self.nodes.get_mut(&node) {
            let members = &it.disk.saved.cursor.members;
            let count = members.iter().filter(|id| lacking.contains(id)).count();
            let by_majority = count * 2 > members.len();
            it.lacking = by_majority.then(|| it.lacking.unwrap_or(now));
        }
    }

    /// Removes contents that nothing needs any more.
    pub(super) fn reclaim(&mut self, node: NodeId) {
        if self.profile.contents == 0 || self.rng.u32(..5) != 0 {
            return;
        }
        let oldest = self.now.saturating_sub(KEPT_MS);
        if let Some(Node { disk, .. }) = self.nodes.get_mut(&node) {
            let last = disk.store.last_contents();
            let is_kept = |content: &u64, at: &mut u64| *at >= oldest || last.contains(content);
            disk.contents.retain(is_kept);
        }
    }

    /// The contents of visible writes are on the disks of a majority of the replicas, or a later
    /// write took their place there.
    pub(super) fn contents_are_on_a_majority(
        &mut self,
        node: NodeId,
        generation: Generation,
        next: u64,
    ) {
        let Node { disk, replica, .. } = &self.nodes[&node];
        let (Some((length, chain)), Some(replica)) =
            (disk.store.lengths.get(&(generation, next)), replica)
        else {
            return;
        };
        let cursor = &replica.saved().cursor;
        for key in 0..KEYS {
            let shown = &disk.store.lineage[..*length];
            let Some(at) = shown.iter().rposition(|write| write.key == key) else {
                continue;
            };
            let Some(content) = shown[at].content else {
                continue;
            };
            let is_lost = |id: NodeId| self.lost.is_some_and(|(lost, _)| lost == id);
            // A disk that is lost had them.
            let has = |id: &&NodeId| {
                self.nodes.get(*id).is_some_and(|it| {
                    let mut later = it.disk.store.lineage.iter().skip(at + 1);
                    let is_there = it.ever.contains(&(generation, next, *chain));
                    let is_needed = !later.any(|write| write.key == key);
                    let is_gone = !is_needed || is_lost(**id);
                    is_there && (is_gone || it.disk.contents.contains_key(&content))
                })
            };
            let count = cursor.members.iter().filter(has).count();
            if count < cursor.majority() {
                let members = cursor.members.clone();
                return self.violate(format!(
                    "{node} shows {next} of {generation:?}, and {count} of {members:?} have the content {content}"
                ));
            }
        }
    }
}
