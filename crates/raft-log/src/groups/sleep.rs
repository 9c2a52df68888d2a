//! The sleep of idle groups: they send no heartbeats. Each node sends the others the list of the
//! groups that it lets sleep, every [`crate::options::BEAT_TICKS`]; a follower of such a group calls no
//! election while it receives that.

use raft::eraftpb::{Message, MessageType};

use super::group::Group;
use crate::disk::LogDisk;
use crate::message::Asleep;
use crate::options::{IDLE_TICKS, RaftId, SLEEP_TICKS};

impl<D: LogDisk> Group<D> {
    /// Lets it sleep if this node leads it and there is nothing to do.
    pub fn sleep_if_idle(&mut self, wanted: &[RaftId]) {
        self.idle_ticks += 1;
        if self.idle_ticks >= IDLE_TICKS && self.is_done(wanted) {
            self.asleep_until = u64::MAX;
            self.node.mut_store().forget_written();
        }
    }

    /// Returns whether it sleeps.
    pub fn is_asleep(&self, now: u64) -> bool {
        now < self.asleep_until
    }

    /// Wakes it, if it sleeps.
    pub fn wake(&mut self) {
        let until = std::mem::take(&mut self.asleep_until);
        if until > 0 {
            self.idle_ticks = 0;
        }
        if until == u64::MAX {
            self.node.ping();
        }
    }

    /// Returns whether a message wakes it. The answer to a heartbeat does not: a leader may get one after
    /// it went to sleep. Nor do the elections of one that left, which may not have noticed that.
    pub fn is_woken_by(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            MessageType::MsgHeartbeatResponse => false,
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                self.has(message.get_from())
            }
            _ => true,
        }
    }

    /// Returns its entry in the leader's list of groups that sleep, if it sleeps.
    pub fn asleep(&self) -> Option<Asleep> {
        let is_leading = self.asleep_until == u64::MAX && self.is_leader();
        is_leading.then(|| Asleep {
            slot: self.slot,
            leader: self.node.raft.id,
            term: self.node.raft.term,
            last: self.node.raft.raft_log.last_index(),
        })
    }

    /// Lets a follower sleep for a while. Returns whether it has all that its leader has.
    pub fn follow_asleep(&mut self, leader: &Asleep, now: u64) -> bool {
        let raft = &self.node.raft;
        let is_equal = !self.is_leader()
            && raft.leader_id == leader.leader
            && raft.term == leader.term
            && raft.raft_log.last_index() == leader.last
            && raft.raft_log.committed == leader.last;
        if is_equal {
            self.asleep_until = now + SLEEP_TICKS;
            self.node.mut_store().forget_written();
        }
        is_equal
    }

    /// Returns whether all members have everything, and are the wanted ones.
    fn is_done(&self, wanted: &[RaftId]) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        self.is_authority()
            && raft.raft_log.committed == last
            && raft.raft_log.applied == last
            && raft.lead_transferee.is_none()
            && !raft.has_pending_conf()
            && raft
                .prs()
                .iter()
                .all(|(_, progress)| progress.matched == last)
            && (wanted.is_empty() || self.has_members(wanted))
    }
}
