//! Faults, and the operator who repairs them.

use super::*;

/// Earlier leaders that may still be seen, or return.
const BRANCHES_MAX: usize = 4;
/// Visits after which the operator acts.
const VISITS: u32 = 3;
/// How long the operator stays after the faults end, in milliseconds.
const OPERATED_MS: u64 = 20_000;

impl World {
    pub(super) fn fault(&mut self) {
        if self.healed {
            return;
        }
        let (least, most) = self.profile.fault_ms;
        let wait = self.rng.u64(least..most);
        self.at(wait, Event::Fault);
        if self.rng.u32(..100) < self.profile.leaders {
            return self.other_leader();
        }
        if self.rng.u32(..100) < self.profile.changes {
            let node = self.rng.u64(1..=self.nodes.len() as u64);
            return self.change_replicas(node);
        }
        self.any_fault();
    }

    fn any_fault(&mut self) {
        let count = self.nodes.len() as u64;
        let node = self.rng.u64(1..=count);
        let until = self.now + self.rng.u64(100..3_000);
        let kind = self.rng.u32(..100);
        match kind {
            0..=24 => {
                self.crash(node);
                self.at(until - self.now, Event::Start { node });
            }
            25..=34 => {
                self.note(|| format!("{node} stops until {until}"));
                if let Some(it) = self.nodes.get_mut(&node) {
                    it.paused_until = until;
                }
            }
            35..=49 => {
                let other = self.rng.u64(1..=count);
                self.note(|| format!("{node} and {other} cannot speak until {until}"));
                self.cut.insert((node.min(other), node.max(other)), until);
            }
            50..=57 => {
                self.note(|| format!("{node} is cut off from others until {until}"));
                for other in 1..=count {
                    self.cut.insert((node.min(other), node.max(other)), until);
                }
            }
            58..=66 => {
                self.note(|| format!("{node} does not reach the log until {until}"));
                self.off_log.insert(node, until);
            }
            67..=88 => self.other_leader(),
            92 if self.profile.loses_all => {
                self.note(|| "the log is lost".into());
                self.log.lose_all();
            }
            93 => {
                let back = self.rng.u64(..3);
                self.note(|| format!("the record {back} from the end is damaged"));
                self.log.damage(back);
            }
            92 | 94 => {
                let records = self.rng.usize(..60);
                self.note(|| format!("the log forgets {records}"));
                self.log.trim(records);
            }
            89..=91 | 95..=97 if self.profile.loses_disk => self.lose_disk(node),
            89..=91 | 95..=97 => self.change_replicas(node),
            _ if self.profile.loses_all => self.give_if_up(node, Input::Reseed),
            _ => self.other_leader(),
        }
    }

    /// Elects another leader, which may lack some records; some readers see the older one for a
    /// while.
    pub(super) fn other_leader(&mut self) {
        let lost = match self.rng.u32(..self.profile.leaders_per_loss) {
            0 => self.rng.usize(1..5),
            _ => 0,
        };
        let before = self.log.clone();
        // Usually enough brokers have what a majority of replicas has.
        let floor = match self.rng.u32(..self.profile.leaders_per_accident) {
            0 => 0,
            _ => self.stable_in_log(),
        };
        let lost = lost.min(before.end().saturating_sub(floor) as usize);
        // A broker that was down may have what others lost, and lack what they have.
        let older = self.rng.choice(0..self.branches.len());
        let back = older.filter(|_| self.rng.u32(..self.profile.leaders_per_return) == 0);
        let has_stable = |log: &FakeLog| {
            let last = |log: &FakeLog| {
                let entry = log.get(floor.checked_sub(1)?)?;
                Some((entry.epoch, entry.hash))
            };
            floor == 0 || last(log).is_some() && last(log) == last(&before)
        };
        match back.map(|at| self.branches[at].clone()) {
            Some(branch) if branch.number == before.number && has_stable(&branch) => {
                self.note(|| format!("back to leader {}", branch.epoch));
                self.log.go_back_to(branch);
            }
            _ => self.log.lose(lost),
        }
        if self.branches.len() == BRANCHES_MAX {
            self.branches.remove(0);
        }
        self.branches.push(before);
        self.note(|| format!("another leader, without the last {lost}"));
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            for which in [FOLLOWS, READS_AGAIN] {
                if self.rng.u32(..3) != 0 {
                    continue;
                }
                let until = self.now + self.rng.u64(10..self.profile.behind_ms);
                let last = self.branches.len() - 1;
                let at = match self.rng.u32(..3) {
                    0 => self.rng.usize(..=last),
                    _ => last,
                };
                let branch = (self.branches[at].number, self.branches[at].epoch);
                if let Some(it) = self.nodes.get_mut(&node) {
                    it.behind[which] = Some((until, branch));
                }
            }
        }
    }

    /// Returns the offset up to which the log contains what some replica of the latest generation
    /// knows to be stable.
    fn stable_in_log(&self) -> u64 {
        let replicas = self.nodes.values().filter_map(|n| n.replica.as_ref());
        let of_log = replicas.filter(|r| r.saved().cursor.log == self.log.number);
        let stable = of_log.map(|r| (r.saved().cursor.position.generation, r.stable()));
        stable.max().map_or(0, |(_, stable)| stable)
    }

    /// Loses a node with its disk, so also the contents there, once in a run. A majority is left.
    fn lose_disk(&mut self, node: NodeId) {
        if self.lost.is_some() || self.members().len() < 3 {
            return self.other_leader();
        }
        let genesis: Vec<NodeId> = self.nodes.keys().copied().collect();
        let new = genesis.len() as NodeId + 1;
        self.crash(node);
        self.note(|| format!("the disk of {node} is lost, {new} takes its place"));
        if let Some(it) = self.nodes.get_mut(&node) {
            it.disk = Disk::new(&genesis);
        }
        self.nodes.insert(new, Node::off(Disk::new(&genesis)));
        self.lost = Some((node, new));
        self.at(1, Event::Start { node: new });
    }

    /// Removes the node whose disk is lost from the replicas, and then adds the new one.
    fn replace_lost(&mut self) {
        let Some((lost, new)) = self.lost else {
            return;
        };
        let mut members = self.members();
        if members.contains(&lost) {
            members.retain(|id| *id != lost);
        } else if members.contains(&new) {
            return;
        } else {
            members.push(new);
        }
        let header = |it: &Node| it.replica.as_ref()?.change_replicas(members.clone());
        let proposed = self
            .nodes
            .iter()
            .filter_map(|(id, it)| Some((*id, header(it)?)));
        let proposed: Vec<(NodeId, Header)> = proposed.collect();
        if let Some((node, header)) = self.rng.choice(proposed) {
            self.propose(node, header, vec![]);
        }
    }

    /// Removes a replica, or adds an earlier one again.
    pub(super) fn change_replicas(&mut self, node: NodeId) {
        let it = &self.nodes[&node];
        let mut members = it.disk.saved.cursor.members.to_vec();
        let is_absent = |n: &&NodeId| !members.contains(n);
        let absent: Vec<NodeId> = self.nodes.keys().filter(is_absent).copied().collect();
        match self.rng.choice(absent) {
            Some(new) if self.rng.bool() || members.len() < 3 => members.push(new),
            _ if members.len() > 2 => {
                let at = self.rng.usize(..members.len());
                members.remove(at);
            }
            _ => return,
        }
        let replica = self.nodes[&node].replica.as_ref();
        if let Some(header) = replica.and_then(|r| r.change_replicas(members)) {
            self.propose(node, header, vec![]);
        }
    }

    pub(super) fn give_if_up(&mut self, node: NodeId, input: Input) {
        if self
            .nodes
            .get(&node)
            .is_some_and(|n| n.replica.is_some() && n.paused_until <= self.now)
        {
            self.give(node, input);
        }
    }

    pub(super) fn heal(&mut self) {
        self.note(|| "all is mended".into());
        self.healed = true;
        self.healed_at = self.now;
        self.cut.clear();
        self.off_log.clear();
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            if let Some(it) = self.nodes.get_mut(&node) {
                it.behind = [None; 2];
            }
            self.start(node);
        }
    }

    /// Starts a generation when a majority has halted permanently.
    pub(super) fn operate(&mut self) {
        let wait = self.rng.u64(800..3_000);
        self.at(wait, Event::Operator);
        self.replace_lost();
        if self.healed && self.now > self.healed_at + OPERATED_MS {
            // From here on it has to recover on its own.
            return;
        }
        let is_stuck = |id: &&NodeId| {
            let replica = self.nodes.get(*id).and_then(|n| n.replica.as_ref());
            replica.is_some_and(|r| r.proposes_in().is_none())
        };
        let members = self.members();
        let stuck: Vec<NodeId> = members.iter().filter(is_stuck).copied().collect();
        // It may have advanced by the next visit.
        self.visits = match stuck.len() * 2 >= members.len() {
            true => self.visits + 1,
            false => 0,
        };
        if self.visits >= VISITS
            && let Some(node) = self.rng.choice(stuck)
        {
            self.give_if_up(node, Input::Reseed);
        }
    }

    /// Returns the replicas, as the most advanced of them has them.
    fn members(&self) -> Vec<NodeId> {
        let cursors = self.nodes.values().map(|n| &n.disk.saved.cursor);
        let furthest = cursors.max_by_key(|c| c.position.rank());
        furthest.map(|c| c.members.to_vec()).unwrap_or_default()
    }

    /// Returns whether every replica advances, and has acknowledged a write.
    pub(super) fn is_well(&mut self) -> bool {
        let members = self.members();
        let is_replaced = self.lost.is_none_or(|(_, new)| members.contains(&new));
        let works = !members.is_empty() && members.iter().all(|id| self.after.contains(id));
        is_replaced && works && {
            let mut positions = members.iter().filter_map(|id| self.nodes.get(id));
            let first = positions.next().map(|n| n.disk.saved.cursor.position.chain);
            first.is_some() && positions.all(|n| Some(n.disk.saved.cursor.position.chain) == first)
        }
    }

    pub(super) fn describe(&self) -> String {
        let one = |(id, node): (&NodeId, &Node)| {
            let replica = node.replica.as_ref();
            let cursor = &node.disk.saved.cursor;
            format!(
                "{id}: {:?} sealed {:?} halted {:?} proposes {:?} members {:?} stable {}",
                cursor.position,
                node.disk.saved.promises.sealed,
                replica.and_then(Replica::halted),
                replica.and_then(Replica::proposes_in),
                cursor.members,
                replica.map_or(0, Replica::stable),
            )
        };
        let nodes: Vec<String> = self.nodes.iter().map(one).collect();
        format!(
            "log {}..{} epoch {}; answered {:?}\n{}",
            self.log.start,
            self.log.end(),
            self.log.epoch,
            self.after,
            nodes.join("\n")
        )
    }
}
