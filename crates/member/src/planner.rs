//! Changes the replicas of all slots, one node at a time: to the current members, or to the nodes
//! that the cluster has decided on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::slot::SlotStatus;
use cluster::{CONTROL, NodeId, SlotNumber};
use tokio::time::Instant;

use crate::control::placement_state::PlacementState;
use crate::members::Members;
use crate::placement::PlacementNodes;
use crate::progress::Progress;
use crate::replicas::{Replica, Replicas};
use crate::slot_decisions::next_replicas;

/// Interval of checks.
const EVERY: Duration = Duration::from_millis(500);
/// Interval of checks while a node is about to become a replica, which may take
/// [`ABOUT_TO_TIME_MAX`].
const OFTEN: Duration = Duration::from_millis(100);
const ABOUT_TO_TIME_MAX: Duration = Duration::from_secs(30);
/// Time after which the next replica makes a change that the one before it has not made.
const LEADER_TIME: Duration = Duration::from_secs(15);
/// Maximum number of records that a new replica may lack.
const LACKING_MAX: u64 = 1_000;
/// Maximum number of slots that are changed at a time.
const CHANGES_AT_ONCE: usize = 16;
/// Time limit of a change.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);

/// Keeps this node connected to the current members, and reports them to the slots, until the
/// future is dropped.
pub async fn connect(members: Arc<Members>, replicas: Arc<Replicas>, known: Vec<(NodeId, String)>) {
    let mut told = vec![];
    loop {
        tokio::time::sleep(EVERY).await;
        members.connect(&known);
        let mut all: Vec<NodeId> = members.all().into_iter().map(|(id, _)| id).collect();
        if all.is_empty() {
            all.extend(known.iter().map(|(id, _)| *id));
        }
        if all != told {
            (replicas.all()).for_each(|(_, replica)| replica.know(all.clone()));
            told = all;
        }
    }
}

/// Keeps the replicas equal to the nodes that slots should have, until the future is dropped.
pub async fn run(members: Arc<Members>, replicas: Arc<Replicas>) {
    let mut plan = Plan {
        members,
        replicas,
        lacking_since: None,
        learned: Learned::default(),
    };
    loop {
        tokio::time::sleep(plan.pause()).await;
        while plan.step().await == CHANGES_AT_ONCE {}
    }
}

struct Plan {
    members: Arc<Members>,
    replicas: Arc<Replicas>,
    /// Since when the replicas of a slot have differed from the nodes that it should have.
    lacking_since: Option<Instant>,
    learned: Learned,
}

impl Plan {
    /// Returns the time until the next check.
    fn pause(&self) -> Duration {
        let is_soon = |since: Instant| since.elapsed() < ABOUT_TO_TIME_MAX;
        match self.lacking_since.is_some_and(is_soon) {
            true => OFTEN,
            false => EVERY,
        }
    }

    /// Changes some slots; returns how many.
    async fn step(&mut self) -> usize {
        if !self.lacks(&Targets::new(&self.members)) {
            self.lacking_since = None;
            self.learned = Learned::default();
            return 0;
        }
        let since = *self.lacking_since.get_or_insert_with(Instant::now);
        // The members may have changed since this node last heard.
        let deadline = Instant::now() + CHANGE_TIME_MAX;
        let Some(control) = self.replicas.get(CONTROL) else {
            return 0;
        };
        if control.fresh(deadline).await.is_err() {
            return 0;
        }
        let targets = Targets::new(&self.members);
        self.learned.ask(&targets, &self.replicas).await;
        let mut changed = vec![];
        for (slot, replica) in self.replicas.all() {
            let status = replica.status();
            let has_learned = |node| self.learned.has(node, slot, &status);
            let wanted = targets.next(slot, &status, has_learned);
            if let Some(wanted) = wanted.filter(|_| leads(&self.members, &status, since.elapsed()))
            {
                changed.push(change(slot, replica, wanted));
                if changed.len() == CHANGES_AT_ONCE {
                    break;
                }
            }
        }
        futures_util::future::join_all(changed).await.len()
    }

    /// Returns whether the replicas of a slot differ from those that it should have.
    fn lacks(&self, targets: &Targets<'_>) -> bool {
        self.replicas.all().any(|(slot, replica)| {
            let status = replica.status();
            targets.next(slot, &status, |_| true).is_some()
        })
    }
}

/// The nodes that slots should have, as far as is known here.
struct Targets<'a> {
    members: &'a Members,
    /// `None` while every node has every slot.
    placed: Option<(PlacementState, PlacementNodes)>,
}

impl Targets<'_> {
    fn new(members: &Members) -> Targets<'_> {
        let placement = members.placement();
        Targets {
            members,
            placed: placement.map(|placement| (placement, members.placement_nodes())),
        }
    }

    /// Returns the next set of a slot's replicas; `None` when there is nothing to do, or not now.
    fn next(
        &self,
        slot: SlotNumber,
        status: &SlotStatus,
        has_learned: impl Fn(NodeId) -> bool,
    ) -> Option<Vec<NodeId>> {
        if !status.proposes {
            return None;
        }
        // Every node has the state of the cluster.
        let Some((placement, nodes)) = self.placed.as_ref().filter(|_| slot != CONTROL) else {
            return next(self.members, status, has_learned);
        };
        let replicas: BTreeSet<NodeId> = status.members.iter().copied().collect();
        let next = next_replicas(placement, nodes, slot, &replicas, has_learned)?;
        Some(next.into_iter().collect())
    }

    /// Returns whether a node may become a replica of a slot.
    fn may_join(&self, slot: SlotNumber, node: NodeId) -> bool {
        let Some((placement, _)) = self.placed.as_ref().filter(|_| slot != CONTROL) else {
            return true;
        };
        placement.learns(node, slot)
    }
}

/// The positions of the nodes that are not replicas of all slots yet, and that answer.
#[derive(Default)]
struct Learned {
    nodes: BTreeMap<NodeId, Progress>,
    /// The ends of the slots here at an earlier query: up to 1 s ago, since a node that follows a
    /// busy log is a moment behind.
    ends: BTreeMap<SlotNumber, u64>,
    /// The ends of the slots here at a later query, and its time.
    ends_later: Option<(Instant, BTreeMap<SlotNumber, u64>)>,
}

impl Learned {
    async fn ask(&mut self, targets: &Targets<'_>, replicas: &Replicas) {
        let members = targets.members;
        let ends = replicas.all().map(|(slot, replica)| {
            let position = replica.status().position;
            (slot, position.next_offset)
        });
        self.keep_ends(Instant::now(), ends.collect());
        let mut new: Vec<NodeId> = members.live_others();
        new.retain(|node| {
            let mut all = replicas.all();
            all.any(|(slot, replica)| {
                targets.may_join(slot, *node) && !replica.status().members.contains(node)
            })
        });
        let mut asked = vec![];
        for node in new {
            asked.push(async move { (node, members.progress(node).await) });
        }
        let answers = futures_util::future::join_all(asked).await.into_iter();
        let found = answers.filter_map(|(node, progress)| Some((node, progress?)));
        self.nodes = found.collect();
    }

    /// Keeps the ends of the slots here at a query.
    fn keep_ends(&mut self, now: Instant, ends: BTreeMap<SlotNumber, u64>) {
        let is_due = match &self.ends_later {
            Some((at, _)) => self.ends.is_empty() || now.duration_since(*at) >= EVERY,
            None => true,
        };
        if is_due && let Some((_, earlier)) = self.ends_later.replace((now, ends)) {
            self.ends = earlier;
        }
    }

    /// Returns whether a node lacks so little of a slot that it may count among its replicas: one
    /// that lacks much would be one of a majority that has nothing. It must have reached the end
    /// that the slot had a moment ago, so that it follows the log.
    fn has(&self, node: NodeId, slot: SlotNumber, status: &SlotStatus) -> bool {
        let reached = self.nodes.get(&node).and_then(|progress| progress.at(slot));
        let (end, end_before) = (status.position.next_offset, self.ends.get(&slot));
        reached.is_some_and(|(generation, next_offset)| {
            generation == status.position.generation.number
                && end_before.is_some_and(|before| *before <= next_offset)
                && end.saturating_sub(next_offset) < LACKING_MAX
        })
    }
}

/// Returns whether this node leads the change: the first of the slot's live replicas that is still
/// a member. If that one has not made it for some time, perhaps because it cannot reach the log,
/// the next one does.
pub(crate) fn leads(members: &Members, status: &SlotStatus, waited: Duration) -> bool {
    let mut able = status.members.clone();
    able.retain(|id| members.is_live(*id) && members.knows(*id));
    able.sort_unstable();
    let rank = able.iter().position(|id| *id == members.me);
    rank.is_some_and(|rank| waited >= LEADER_TIME * u32::try_from(rank).unwrap_or(u32::MAX))
}

/// Returns the next set on the way to that of all members; `None` when there is nothing to do, or
/// not now. A node is added once it has learned what the slot has.
fn next(
    members: &Members,
    status: &SlotStatus,
    has_learned: impl Fn(NodeId) -> bool,
) -> Option<Vec<NodeId>> {
    let all: Vec<NodeId> = members.all().into_iter().map(|(id, _)| id).collect();
    let gone = status.members.iter().find(|id| !all.contains(id));
    if let Some(gone) = gone.filter(|_| !all.is_empty()) {
        let rest = status.members.iter().filter(|id| *id != gone);
        return Some(rest.copied().collect());
    }
    let is_new =
        |id: &&NodeId| !status.members.contains(id) && members.is_live(**id) && has_learned(**id);
    let new = all.iter().find(is_new)?;
    let with = status.members.iter().chain([new]);
    Some(with.copied().collect())
}

async fn change(slot: SlotNumber, replica: &Replica, wanted: Vec<NodeId>) {
    let deadline = Instant::now() + CHANGE_TIME_MAX;
    match replica.change(wanted.clone(), deadline).await {
        Ok(()) => tracing::info!(slot, members = ?wanted, "the slot's replicas were changed"),
        Err(e) => tracing::debug!(slot, error = %e, "changing the slot's replicas failed"),
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Generation, Position};

    use super::*;

    const NEW: NodeId = 4;

    /// The status of a slot whose replica here has reached this offset, in generation 1.
    fn status(next_offset: u64) -> SlotStatus {
        let generation = Generation { number: 1, by: 1 };
        SlotStatus {
            position: Position {
                generation,
                next_offset,
                ..Position::start()
            },
            ..SlotStatus::default()
        }
    }

    #[test]
    fn a_node_becomes_a_replica_once_it_follows_the_log() {
        let mut learned = Learned::default();
        let now = Instant::now();
        learned.keep_ends(now, [(0, 5_000)].into());
        learned.keep_ends(now + OFTEN, [(0, 6_000)].into());
        let mut has = |generation, reached, end| {
            let progress = Progress(vec![(0, generation, reached)]);
            learned.nodes = [(NEW, progress)].into();
            learned.has(NEW, 0, &status(end))
        };
        assert!(has(1, 5_000, 5_100));
        assert!(has(1, 5_100, 5_100));
        // An empty one, and one that is not where the others were a moment ago.
        assert!(!has(1, 0, 5_100));
        assert!(!has(1, 4_999, 5_100));
        // One that lacks too much by now.
        assert!(!has(1, 5_000, 5_000 + LACKING_MAX));
        // One of another generation has another state.
        assert!(!has(0, 5_100, 5_100));
        assert!(!has(2, 5_100, 5_100));
        learned.nodes.clear();
        assert!(!learned.has(NEW, 0, &status(5_100)));
    }

    #[test]
    fn progress_is_compared_with_the_ends_of_a_moment_ago() {
        let (mut learned, began) = (Learned::default(), Instant::now());
        let ends = [0, 100, 200, 500, 600, 1_100].map(|ms| {
            learned.keep_ends(began + Duration::from_millis(ms), [(0, ms)].into());
            learned.ends.get(&0).copied()
        });
        let expected = [None, Some(0), Some(0), Some(0), Some(100), Some(600)];
        assert_eq!(ends, expected);
    }
}
