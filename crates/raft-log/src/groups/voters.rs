//! Changes of a group's members, one step at a time, until they are the cluster's log nodes.

use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};

use super::group::Group;
use crate::disk::LogDisk;
use crate::options::RaftId;

/// Entries that a learner may lack when it gets a vote.
const LACK_MAX: u64 = 100;

/// The next step towards the wanted members.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Change(Vec<(ConfChangeType, RaftId)>),
    /// Another member must lead, because the leader is to leave.
    Transfer(RaftId),
}

impl<D: LogDisk> Group<D> {
    /// Returns whether its voters are these, and it has no learners.
    pub fn has_members(&self, wanted: &[RaftId]) -> bool {
        let members = &self.node.store().state.members;
        let voters = members.get_voters();
        members.get_learners().is_empty()
            && members.get_voters_outgoing().is_empty()
            && voters.len() == wanted.len()
            && wanted.iter().all(|id| voters.contains(id))
    }

    /// Takes a step towards these members, if this node leads the group.
    pub fn reconcile(&mut self, wanted: &[RaftId]) {
        let raft = &self.node.raft;
        if wanted.is_empty() || !self.is_authority() || raft.has_pending_conf() {
            return;
        }
        let members = &self.node.store().state.members;
        if !members.get_voters_outgoing().is_empty() {
            // The library leaves the joint state itself, unless the leader changed meanwhile.
            return self.propose_change(ConfChangeV2::default());
        }
        let committed = raft.raft_log.committed;
        let has_all = |id: RaftId| {
            let progress = raft.prs().get(id);
            progress.is_some_and(|it| it.recent_active && it.matched + LACK_MAX >= committed)
        };
        match next_step(members, wanted, raft.id, has_all) {
            None => {}
            Some(Step::Transfer(to)) => self.node.transfer_leader(to),
            Some(Step::Change(changes)) => self.propose_change(conf_change(&changes)),
        }
    }

    fn propose_change(&mut self, change: ConfChangeV2) {
        // It is proposed again at a later tick if it was dropped.
        if let Err(e) = self.node.propose_conf_change(vec![], change) {
            tracing::debug!(
                slot = self.slot,
                "a change of members was not proposed: {e}"
            );
        }
    }
}

fn conf_change(changes: &[(ConfChangeType, RaftId)]) -> ConfChangeV2 {
    let single = |(kind, id): &(ConfChangeType, RaftId)| {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(*kind);
        single.set_node_id(*id);
        single
    };
    let singles: Vec<ConfChangeSingle> = changes.iter().map(single).collect();
    let mut change = ConfChangeV2::default();
    change.set_changes(singles.into());
    change
}

/// Returns the next step. A new member learns first; it gets its vote together with the removal of a
/// voter, so that the group never needs more members than before.
fn next_step(
    members: &ConfState,
    wanted: &[RaftId],
    me: RaftId,
    has_all: impl Fn(RaftId) -> bool,
) -> Option<Step> {
    use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
    let (voters, learners) = (members.get_voters(), members.get_learners());
    let is_new = |id: &&RaftId| !voters.contains(id) && !learners.contains(id);
    if let Some(new) = wanted.iter().find(is_new) {
        return Some(Step::Change(vec![(AddLearnerNode, *new)]));
    }
    let stray = |id: &&RaftId| !wanted.contains(id);
    let mut removed = voters.iter().copied().filter(|id| stray(&id));
    let removed_other = removed.clone().find(|id| *id != me);
    let grown = |id: &&RaftId| wanted.contains(id) && has_all(**id);
    if let Some(learner) = learners.iter().find(grown) {
        let mut changes = vec![(AddNode, *learner)];
        changes.extend(removed_other.map(|id| (RemoveNode, id)));
        return Some(Step::Change(changes));
    }
    if let Some(learner) = learners.iter().find(stray) {
        return Some(Step::Change(vec![(RemoveNode, *learner)]));
    }
    if !wanted.iter().all(|id| voters.contains(id)) {
        return None;
    }
    match (removed_other, removed.next()) {
        (Some(id), _) => Some(Step::Change(vec![(RemoveNode, id)])),
        (None, Some(_)) => {
            let mut able = wanted.iter().copied().filter(|id| has_all(*id));
            able.next().map(Step::Transfer)
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: &[u64], learners: &[u64]) -> ConfState {
        let mut members = ConfState::default();
        members.set_voters(voters.to_vec());
        members.set_learners(learners.to_vec());
        members
    }

    #[test]
    fn a_lost_disk_is_replaced_by_another_id_in_one_step() {
        let step = |voters: &[u64], learners: &[u64], ready: bool| {
            next_step(&members(voters, learners), &[1, 2, 4], 1, |_| ready)
        };
        use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
        let change = |changes: &[(ConfChangeType, u64)]| Some(Step::Change(changes.to_vec()));
        assert_eq!(step(&[1, 2, 3], &[], true), change(&[(AddLearnerNode, 4)]));
        assert_eq!(step(&[1, 2, 3], &[4], false), None);
        let both = change(&[(AddNode, 4), (RemoveNode, 3)]);
        assert_eq!(step(&[1, 2, 3], &[4], true), both);
        assert_eq!(step(&[1, 2, 4], &[], true), None);
    }

    #[test]
    fn a_leader_that_is_to_leave_hands_over_first() {
        let step = |voters: &[u64]| next_step(&members(voters, &[]), &[1, 2, 4], 3, |_| true);
        assert_eq!(step(&[1, 2, 3, 4]), Some(Step::Transfer(1)));
        let after = next_step(&members(&[1, 2, 3, 4], &[]), &[1, 2, 4], 1, |_| true);
        let remove = vec![(ConfChangeType::RemoveNode, 3)];
        assert_eq!(after, Some(Step::Change(remove)));
    }
}
