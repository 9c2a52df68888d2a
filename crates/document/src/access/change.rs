//! The part of a change that each principal sees.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::doc::{DocAccess, Grant, is_on};
use super::principal::Principal;
use super::set::AccessSet;
use crate::rev::Rev;
use crate::tree::RevTree;

/// Maximum number of leaves that were taken away from a principal, kept for each document and
/// principal.
const REMOVED_MAX: usize = 200;
/// Maximum number of principals that lost a document, kept for each document. The device of a user
/// who lost it before that many others, and has not replicated since, keeps its copy.
pub(super) const LOST_MAX: usize = 1000;
/// Maximum length of all that is kept of leaves that were taken away from principals, about, in
/// bytes.
pub(super) const REMOVED_BYTES_MAX: usize = 256 << 10;

/// The change of a principal's rows in the indexes by principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantMove {
    /// The principal that has the rows.
    pub principal: Principal,
    /// The seq of the row that goes.
    pub from: Option<u64>,
    /// The seq of the row that comes.
    pub to: Option<u64>,
    /// Whether it could read a leaf.
    pub read_before: bool,
    /// Whether it can read a leaf.
    pub reads: bool,
}

impl DocAccess {
    /// Records the change at `seq`, after which the document has this tree. `added` is the revision
    /// that came, with its set. Returns how the rows of principals move.
    pub fn change(
        &mut self,
        seq: u64,
        tree: &RevTree,
        added: Option<(&Rev, &AccessSet)>,
    ) -> Vec<GrantMove> {
        let nobody = AccessSet::default();
        let (rev, set) = added.map_or((None, &nobody), |(rev, set)| (Some(rev), set));
        let after = self.leaves_of(tree, rev, set);
        let before = std::mem::replace(&mut self.leaves, after);
        let grants = std::mem::take(&mut self.grants);
        let mut all: BTreeMap<&Principal, Reading<'_>> = BTreeMap::new();
        for leaf in &before {
            for principal in leaf.set.readers() {
                all.entry(principal).or_default().had.push(&leaf.rev);
            }
        }
        for leaf in &self.leaves {
            for principal in leaf.set.readers() {
                all.entry(principal).or_default().has.push(&leaf.rev);
            }
        }
        for grant in &grants {
            all.entry(&grant.principal).or_default().old = Some(grant);
        }
        let step = Step {
            seq,
            tree,
            added: rev,
            winner_before: before.first().map(|leaf| &leaf.rev),
            winner: self.leaves.first().map(|leaf| &leaf.rev),
        };
        let mut next: Vec<(Option<Grant>, GrantMove)> = vec![];
        for (principal, reading) in all {
            let new = step.next_grant(principal, &reading);
            let moved = GrantMove {
                principal: principal.clone(),
                from: reading.old.map(|grant| grant.seq),
                to: new.as_ref().map(|grant| grant.seq),
                read_before: !reading.had.is_empty(),
                reads: !reading.has.is_empty(),
            };
            next.push((new, moved));
        }
        forget_oldest(&mut next);
        let mut moves = vec![];
        for (new, moved) in next {
            self.grants.extend(new);
            if moved.from != moved.to || moved.read_before != moved.reads {
                moves.push(moved);
            }
        }
        moves
    }
}

/// The leaves that one principal could and can read, in order, and its grant so far.
#[derive(Default)]
struct Reading<'a> {
    had: Vec<&'a Rev>,
    has: Vec<&'a Rev>,
    old: Option<&'a Grant>,
}

/// A change of a document.
struct Step<'a> {
    seq: u64,
    /// After it.
    tree: &'a RevTree,
    /// The revision that came.
    added: Option<&'a Rev>,
    winner_before: Option<&'a Rev>,
    winner: Option<&'a Rev>,
}

impl Step<'_> {
    /// Returns the grant of a principal after the change; `None` if it has nothing of the document.
    fn next_grant(&self, principal: &Principal, reading: &Reading<'_>) -> Option<Grant> {
        if self.tree.is_empty() {
            return None;
        }
        let Reading { had, has, old } = reading;
        // The winner is the first of all leaves.
        let saw = !had.is_empty() && had.first().copied() == self.winner_before;
        let sees = !has.is_empty() && has.first().copied() == self.winner;
        let mut removed = old.map_or(vec![], |grant| grant.removed.clone());
        let taken = had.iter().filter(|rev| self.is_taken(rev, has));
        // Once the winner is hidden, so is the rest of the document.
        let hidden = has.iter().filter(|_| saw && !sees);
        for rev in taken.chain(hidden) {
            self.add_removed(rev, &mut removed);
        }
        if sees {
            removed.retain(|rev| self.tree.get(rev).is_some() && !self.is_continued(rev, has));
        }
        let is_anything = !has.is_empty() || !removed.is_empty();
        let is_winner_new = self.winner_before != self.winner;
        let is_moved = had != has || is_winner_new && !has.is_empty();
        is_anything.then(|| Grant {
            principal: principal.clone(),
            seq: match old {
                Some(grant) if !is_moved => grant.seq,
                _ => self.seq,
            },
            removed,
        })
    }

    /// Returns whether the principal can read a leaf that descends from a revision.
    fn is_continued(&self, rev: &Rev, has: &[&Rev]) -> bool {
        let latest = self.tree.latest_of(rev);
        let mut latest = latest.iter();
        latest.any(|leaf| has.iter().any(|one| Rev::as_ref(one) == leaf.rev))
    }

    /// Returns whether what follows a leaf is hidden from the principal.
    fn is_taken(&self, rev: &Rev, has: &[&Rev]) -> bool {
        match self.tree.get(rev) {
            Some(node) => !node.is_leaf && !self.is_continued(rev, has),
            // It was stemmed, or purged: nothing takes a purged leaf away.
            None => self.added.is_some_and(|added| !has.contains(&added)),
        }
    }

    /// Adds a revision that was taken away, in place of its ancestors: what follows it on a device
    /// follows them too.
    fn add_removed(&self, rev: &Rev, removed: &mut Vec<Rev>) {
        if removed.contains(rev) {
            return;
        }
        if let Some(path) = self.tree.path(rev) {
            removed.retain(|old| !is_on(&path, old));
        }
        if removed.len() == REMOVED_MAX {
            removed.remove(0);
        }
        removed.push(rev.clone());
    }
}

/// Drops the oldest grants of principals who lost the document, if there are too many of them, and
/// the oldest removed leaves, if all together are too long.
fn forget_oldest(next: &mut [(Option<Grant>, GrantMove)]) {
    let has_lost = |(new, moved): &(Option<Grant>, GrantMove)| {
        let lost = new.as_ref();
        lost.is_some_and(|grant| !moved.reads || !grant.removed.is_empty())
    };
    let mut all: Vec<_> = next.iter_mut().filter(|one| has_lost(one)).collect();
    // Of equal ones the first principals stay.
    all.sort_by_key(|(_, moved)| Reverse(moved.to));
    let (mut lost, mut bytes) = (0, 0);
    for (new, moved) in all {
        bytes += new.as_ref().map_or(0, Grant::bytes);
        lost += usize::from(!moved.reads);
        let has_room = bytes <= REMOVED_BYTES_MAX;
        match new {
            Some(grant) if moved.reads && !has_room => grant.removed.clear(),
            Some(_) if !moved.reads && (!has_room || lost > LOST_MAX) => {
                (*new, moved.to) = (None, None);
            }
            Some(_) | None => {}
        }
    }
}
