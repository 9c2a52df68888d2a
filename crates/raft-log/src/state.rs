//! A group's state apart from its entries, and its form on disk.

use bytes::{Buf, BufMut};
use raft::eraftpb::{ConfState, HardState};

use crate::offsets::{Base, Offsets};
use crate::wire::{DecodeError, get_ids, put_ids};

/// The first byte of a state on disk.
const FORM: u8 = 1;

/// The state of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupState {
    /// Raft's term, vote and commit index.
    pub hard: HardState,
    /// The members of the group after the entry at `applied`.
    pub members: ConfState,
    /// The index of the last entry that was delivered.
    pub applied: u64,
    /// Where records are among the entries.
    pub offsets: Offsets,
}

impl GroupState {
    /// Returns the state of a new group whose only member is this one. Its log starts after an entry
    /// that does not exist, so that members which join later get the base, which names the members.
    pub fn first(me: u64) -> GroupState {
        let base = Base {
            index: 1,
            term: 1,
            offset: 0,
        };
        let mut hard = HardState::default();
        hard.set_term(base.term);
        hard.set_commit(base.index);
        let mut members = ConfState::default();
        members.set_voters(vec![me]);
        GroupState {
            hard,
            members,
            applied: base.index,
            offsets: Offsets::starting(base),
        }
    }

    /// Returns its form on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORM];
        for number in [
            self.hard.get_term(),
            self.hard.get_vote(),
            self.hard.get_commit(),
        ] {
            out.put_u64_le(number);
        }
        put_members(&self.members, &mut out);
        out.put_u64_le(self.applied);
        put_base(&self.offsets.base(), &mut out);
        put_ids(self.offsets.gaps(), &mut out);
        out
    }

    /// Reads its form on disk.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut bytes: &[u8]) -> Result<GroupState, DecodeError> {
        if bytes.try_get_u8()? != FORM {
            return Err(DecodeError::Form);
        }
        let mut hard = HardState::default();
        hard.set_term(bytes.try_get_u64_le()?);
        hard.set_vote(bytes.try_get_u64_le()?);
        hard.set_commit(bytes.try_get_u64_le()?);
        let members = get_members(&mut bytes)?;
        let applied = bytes.try_get_u64_le()?;
        let base = get_base(&mut bytes)?;
        let gaps = get_ids(&mut bytes)?;
        Ok(GroupState {
            hard,
            members,
            applied,
            offsets: Offsets::new(base, gaps).ok_or(DecodeError::Form)?,
        })
    }
}

/// Appends a base.
pub(crate) fn put_base(base: &Base, out: &mut Vec<u8>) {
    for number in [base.index, base.term, base.offset] {
        out.put_u64_le(number);
    }
}

/// Reads a base.
pub(crate) fn get_base(bytes: &mut impl Buf) -> Result<Base, DecodeError> {
    Ok(Base {
        index: bytes.try_get_u64_le()?,
        term: bytes.try_get_u64_le()?,
        offset: bytes.try_get_u64_le()?,
    })
}

/// Appends the members of a group.
pub(crate) fn put_members(members: &ConfState, out: &mut Vec<u8>) {
    put_ids(members.get_voters(), out);
    put_ids(members.get_learners(), out);
    put_ids(members.get_voters_outgoing(), out);
    put_ids(members.get_learners_next(), out);
    out.put_u8(u8::from(members.get_auto_leave()));
}

/// Reads the members of a group.
pub(crate) fn get_members(bytes: &mut impl Buf) -> Result<ConfState, DecodeError> {
    let mut members = ConfState::default();
    members.set_voters(get_ids(bytes)?);
    members.set_learners(get_ids(bytes)?);
    members.set_voters_outgoing(get_ids(bytes)?);
    members.set_learners_next(get_ids(bytes)?);
    members.set_auto_leave(bytes.try_get_u8()? != 0);
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back() {
        let mut state = GroupState::first(7);
        state.hard.set_vote(9);
        state.members.set_learners(vec![8, 10]);
        state.members.set_auto_leave(true);
        state.offsets.push(2, false);
        state.offsets.push(3, true);
        state.offsets.push(4, false);
        state.applied = 3;
        let bytes = state.encode();
        assert_eq!(GroupState::decode(&bytes), Ok(state));
        for end in 0..bytes.len() {
            assert!(GroupState::decode(&bytes[..end]).is_err(), "{end}");
        }
    }
}
