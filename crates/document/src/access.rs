//! Access to documents: the member `_access`, and the changes that each principal sees.
//!
//! A *principal* is a user, a role, or all users. A revision has an [`AccessSet`], which its body's
//! member `_access` names; a tombstone takes over that of the revision that it deletes. A
//! [`DocAccess`] has the sets of all leaves of a document, and for each principal the change that
//! it saw last.

mod principal;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub use principal::{PRINCIPAL_BYTES_MAX, Principal, Principals};

use crate::json::{Elements, member, members, string_text};
use crate::rev::{Rev, RevHash, RevRef};
use crate::tree::{RevPath, RevTree};
use crate::varint::{put, take, take_slice};

/// The name of the member.
pub const ACCESS_MEMBER: &str = "_access";
/// Maximum number of principals in one list of a document.
pub const ACCESS_PRINCIPALS_MAX: usize = 256;
/// Maximum length of the access sets of all leaves of a document together, about, in bytes: each
/// edit and each read by a user decodes all of them.
pub const ACCESS_BYTES_MAX: usize = 256 << 10;
/// Maximum number of leaves that were taken away from a principal, kept for each document and
/// principal.
const REMOVED_MAX: usize = 200;
/// Maximum number of principals that lost a document, kept for each document. The device of a user
/// who lost it before that many others, and has not replicated since, keeps its copy.
const LOST_MAX: usize = 1000;
/// Maximum length of all that is kept of leaves that were taken away from principals, about, in
/// bytes.
const REMOVED_BYTES_MAX: usize = 256 << 10;
/// Memory of a principal or a revision besides its text, about, in bytes.
const ENTRY_BYTES: usize = 16;

/// Why a member `_access` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It is neither an array nor an object of arrays.
    #[error(
        "`_access` must be an array of principals, or an object with the arrays `read` and `write`"
    )]
    Form,
    /// Holds the text.
    #[error(
        "`_access` names `{0}`, which is not a principal: use the name of a user, `role:` with a role, or `*`"
    )]
    Principal(String),
    /// A list is too long.
    #[error("`_access` has a list of more than {max} principals", max = ACCESS_PRINCIPALS_MAX)]
    TooMany,
}

/// The principals who may read and write a revision. The default has only admins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSet {
    /// Sorted; `writers` are among them.
    readers: Box<[Principal]>,
    /// Sorted.
    writers: Box<[Principal]>,
}

impl AccessSet {
    /// Returns the set of a design document, which all users read and admins write.
    pub fn of_design() -> AccessSet {
        AccessSet {
            readers: [Principal::everyone()].into(),
            writers: Box::default(),
        }
    }

    /// Reads the member `_access` of a document's text in normal form. Without the member, only
    /// admins may read and write the document.
    ///
    /// ```
    /// use document::{AccessSet, Principals};
    /// let body = br#"{"_access":{"read":["role:nurse"],"write":["alice"]}}"#;
    /// let access = AccessSet::of_body(body).unwrap();
    /// let nurse = Principals::of(Some("bob"), ["nurse"]);
    /// assert!(access.may_read(&nurse) && !access.may_write(&nurse));
    /// let alice = Principals::of(Some("alice"), []);
    /// assert!(access.may_read(&alice) && access.may_write(&alice));
    /// ```
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn of_body(body: &[u8]) -> Result<AccessSet, AccessError> {
        match member(body, ACCESS_MEMBER) {
            None => Ok(AccessSet::default()),
            Some(value) => AccessSet::parse(value),
        }
    }

    /// Reads the value of such a member.
    fn parse(value: &[u8]) -> Result<AccessSet, AccessError> {
        if value.first() == Some(&b'[') {
            let both = sorted(list(value)?);
            return Ok(AccessSet {
                readers: both.clone(),
                writers: both,
            });
        }
        if value.first() != Some(&b'{') {
            return Err(AccessError::Form);
        }
        let (mut readers, mut writers) = (vec![], vec![]);
        for (name, value) in members(value) {
            match name.as_str() {
                "read" => readers = list(value)?,
                "write" => writers = list(value)?,
                _ => return Err(AccessError::Form),
            }
        }
        readers.extend_from_slice(&writers);
        Ok(AccessSet {
            readers: sorted(readers),
            writers: sorted(writers),
        })
    }

    /// Returns the principals that may read the revision, in order.
    pub fn readers(&self) -> impl Iterator<Item = &Principal> {
        self.readers.iter()
    }

    /// Returns whether a user may read the revision.
    pub fn may_read(&self, user: &Principals) -> bool {
        self.readers.iter().any(|one| user.contains(one))
    }

    /// Returns whether a user may write a successor of the revision.
    pub fn may_write(&self, user: &Principals) -> bool {
        self.writers.iter().any(|one| user.contains(one))
    }

    /// Returns its length, about, in bytes.
    fn bytes(&self) -> usize {
        let all = self.readers.iter().chain(self.writers.iter());
        all.map(|one| one.as_str().len() + ENTRY_BYTES).sum()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.readers, &self.writers] {
            put(list.len() as u64, out);
            for principal in list.iter() {
                put_slice(principal.as_str().as_bytes(), out);
            }
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<AccessSet> {
        let mut list = || -> Option<Box<[Principal]>> {
            let count = take(rest)?;
            (0..count).map(|_| take_principal(rest)).collect()
        };
        Some(AccessSet {
            readers: list()?,
            writers: list()?,
        })
    }
}

/// Reads an array of principals.
fn list(value: &[u8]) -> Result<Vec<Principal>, AccessError> {
    if value.first() != Some(&b'[') {
        return Err(AccessError::Form);
    }
    let mut all = vec![];
    for element in Elements::of(value) {
        if all.len() == ACCESS_PRINCIPALS_MAX {
            return Err(AccessError::TooMany);
        }
        let text = string_text(element).ok_or(AccessError::Form)?;
        match Principal::parse(&text) {
            Some(principal) => all.push(principal),
            None => return Err(AccessError::Principal(text.into_owned())),
        }
    }
    Ok(all)
}

fn sorted(mut list: Vec<Principal>) -> Box<[Principal]> {
    list.sort_unstable();
    list.dedup();
    list.into()
}

/// A leaf with its access set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafAccess {
    /// The leaf.
    pub rev: Rev,
    /// The principals that may read and write it.
    pub set: AccessSet,
}

/// The last change of a document that a principal saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The principal.
    pub principal: Principal,
    /// The update seq of the change.
    pub seq: u64,
    /// Leaves that it could read and that something took away, which it may not read.
    pub removed: Vec<Rev>,
}

impl Grant {
    /// Returns its length, about, in bytes.
    fn bytes(&self) -> usize {
        let removed = self.removed.iter();
        let removed: usize = removed
            .map(|rev| rev.hash.as_bytes().len() + ENTRY_BYTES)
            .sum();
        self.principal.as_str().len() + ENTRY_BYTES + removed
    }
}

/// The access to one document. It is a pure function of the document's edits and purges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocAccess {
    /// The leaves, winner first.
    pub leaves: Vec<LeafAccess>,
    /// By principal.
    pub grants: Vec<Grant>,
}

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

/// An edit, as far as access depends on it.
#[derive(Clone, Copy, Debug)]
pub struct AccessEdit<'a> {
    /// The revisions that it names.
    pub basis: EditBasis<'a>,
    /// It writes a tombstone.
    pub deleted: bool,
    /// It is of a design document.
    pub design: bool,
    /// The set that its body names.
    pub set: &'a AccessSet,
}

/// The revisions that an edit names.
#[derive(Clone, Copy, Debug)]
pub enum EditBasis<'a> {
    /// An edit by a client, of this leaf.
    Interactive(Option<&'a Rev>),
    /// A revision with its ancestors (`new_edits=false`).
    Replicated(&'a RevPath),
}

/// The decision about an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    /// It may be written; the new revision has this set.
    Write(AccessSet),
    /// The revision exists. It stays as it is.
    Known(Rev),
    /// The edit is a conflict; the writer learns nothing more.
    Conflict,
    /// The writer may not write the document.
    NotWriter,
    /// The writer could not write the new revision.
    NotWriterAfter,
    /// The leaves would name too many principals together.
    TooLong,
}

/// The part of a document that a feed shows a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: the document was never visible.
    Nothing,
    /// The leaves that the user may read.
    Document {
        /// Leaves that the user could read, which were taken away.
        removed: Vec<Rev>,
    },
    /// Nothing any more. Holds the leaves that the user could read.
    Removed(Vec<Rev>),
}

impl DocAccess {
    /// Returns the access to a leaf.
    pub fn leaf(&self, rev: RevRef<'_>) -> Option<&LeafAccess> {
        self.leaves.iter().find(|leaf| leaf.rev.as_ref() == rev)
    }

    /// Returns whether a user may read a leaf.
    pub fn may_read(&self, rev: RevRef<'_>, user: &Principals) -> bool {
        self.leaf(rev).is_some_and(|leaf| leaf.set.may_read(user))
    }

    /// Returns the grants of a user.
    pub fn grants_of<'a>(&'a self, user: &'a Principals) -> impl Iterator<Item = &'a Grant> {
        let grants = self.grants.iter();
        grants.filter(move |grant| user.contains(&grant.principal))
    }

    /// Makes the leaves those of the tree. Leaves whose sets are unknown are only for admins.
    pub fn reconcile(&mut self, tree: &RevTree) {
        let leaves = tree.leaves();
        let is_same = leaves.len() == self.leaves.len()
            && (leaves.iter().zip(&self.leaves)).all(|(leaf, own)| own.rev.as_ref() == leaf.rev);
        if !is_same {
            self.leaves = self.leaves_of(tree, None, &AccessSet::default());
        }
    }

    fn leaves_of(&self, tree: &RevTree, added: Option<&Rev>, set: &AccessSet) -> Vec<LeafAccess> {
        let leaf = |rev: RevRef<'_>| {
            let known = self.leaf(rev).map(|leaf| leaf.set.clone());
            let set = match added {
                Some(added) if added.as_ref() == rev => set.clone(),
                _ => known.unwrap_or_default(),
            };
            LeafAccess {
                rev: rev.to_rev(),
                set,
            }
        };
        let leaves = tree.leaves();
        leaves.iter().map(|found| leaf(found.rev)).collect()
    }

    /// Returns whether a user may know a revision: it is a visible leaf of a visible document, or an
    /// ancestor of one.
    fn shows(&self, tree: &RevTree, rev: &Rev, user: &Principals) -> bool {
        let winner = self.leaves.first();
        let latest = tree.latest_of(rev);
        winner.is_some_and(|leaf| leaf.set.may_read(user))
            && latest.iter().any(|leaf| self.may_read(leaf.rev, user))
    }

    /// Judges an edit of a document with this tree by the principals of its `writer`; `None` stands
    /// for an admin, who may write everything.
    ///
    /// **A writer needs write on the winner too,** so that no edit of another leaf replaces a
    /// winner that its writer may not write, and strangers do not learn which revisions exist.
    pub fn judge(
        &self,
        tree: &RevTree,
        edit: &AccessEdit<'_>,
        writer: Option<&Principals>,
    ) -> AccessVerdict {
        let base = match edit.basis {
            EditBasis::Interactive(Some(parent)) => match self.leaf(parent.as_ref()) {
                Some(leaf) => Some(leaf),
                None => return AccessVerdict::Conflict,
            },
            EditBasis::Interactive(None) => {
                if tree.winner().is_some_and(|winner| !winner.revision.deleted) {
                    return AccessVerdict::Conflict;
                }
                self.leaves.first()
            }
            EditBasis::Replicated(path) => self.extended(tree, path),
        };
        let known = match edit.basis {
            EditBasis::Replicated(path) => path.newest().filter(|rev| tree.get(rev).is_some()),
            EditBasis::Interactive(_) => None,
        };
        if let Some(writer) = writer
            && let Some(verdict) = self.refusal(tree, edit, (base, known.as_ref()), writer)
        {
            return verdict;
        }
        let set = match base {
            _ if edit.design => AccessSet::of_design(),
            Some(leaf) if edit.deleted => leaf.set.clone(),
            _ => edit.set.clone(),
        };
        match known.is_none() && self.outgrows(edit.basis, &set) {
            true => AccessVerdict::TooLong,
            false => AccessVerdict::Write(set),
        }
    }

    /// Returns the verdict about an edit that `writer` may not make, or need not. `base` is the leaf
    /// whose place the edit takes, or the winner; `known` its revision, if that is in the tree.
    fn refusal(
        &self,
        tree: &RevTree,
        edit: &AccessEdit<'_>,
        (base, known): (Option<&LeafAccess>, Option<&Rev>),
        writer: &Principals,
    ) -> Option<AccessVerdict> {
        if let Some(rev) = known
            && self.shows(tree, rev, writer)
        {
            return Some(AccessVerdict::Known(rev.clone()));
        }
        let is_interactive = matches!(edit.basis, EditBasis::Interactive(_));
        // A path can join branches: it takes the place of each leaf that it names.
        let edited = self.leaves.iter().enumerate();
        let edited = edited.filter(|(n, leaf)| *n == 0 || self.replaces(edit.basis, leaf));
        let edited: Vec<&LeafAccess> = edited.map(|(_, leaf)| leaf).collect();
        let may_write = edited.iter().all(|leaf| leaf.set.may_write(writer));
        if !may_write && is_interactive && edited.iter().any(|leaf| !leaf.set.may_read(writer)) {
            return Some(AccessVerdict::Conflict);
        }
        if !may_write || edit.design {
            return Some(AccessVerdict::NotWriter);
        }
        let keeps_write = edit.deleted && base.is_some() || edit.set.may_write(writer);
        if !keeps_write {
            return Some(AccessVerdict::NotWriterAfter);
        }
        known.map(|rev| AccessVerdict::Known(rev.clone()))
    }

    /// Returns whether an edit takes the place of a leaf.
    fn replaces(&self, basis: EditBasis<'_>, leaf: &LeafAccess) -> bool {
        match basis {
            EditBasis::Interactive(Some(parent)) => leaf.rev == *parent,
            EditBasis::Interactive(None) => {
                let winner = self.leaves.first();
                winner.is_some_and(|winner| winner.rev == leaf.rev)
            }
            EditBasis::Replicated(path) => {
                leaf.rev.generation < path.start && is_on(path, &leaf.rev)
            }
        }
    }

    /// Returns whether a new leaf with this set makes the sets of all leaves too long. One that makes
    /// them shorter, or no longer, is always possible.
    fn outgrows(&self, basis: EditBasis<'_>, set: &AccessSet) -> bool {
        let (mut before, mut after) = (0, set.bytes());
        for leaf in &self.leaves {
            let bytes = leaf.set.bytes();
            before += bytes;
            if !self.replaces(basis, leaf) {
                after += bytes;
            }
        }
        after > ACCESS_BYTES_MAX && after > before
    }

    /// Returns the leaf that a replicated revision extends, or the winner if it begins a branch.
    fn extended(&self, tree: &RevTree, path: &RevPath) -> Option<&LeafAccess> {
        let known = nearest_known(tree, path);
        let leaf = known.and_then(|rev| self.leaf(rev.as_ref()));
        leaf.or(self.leaves.first())
    }

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
            for principal in leaf.set.readers.iter() {
                all.entry(principal).or_default().had.push(&leaf.rev);
            }
        }
        for leaf in &self.leaves {
            for principal in leaf.set.readers.iter() {
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

    /// Returns what a feed shows a user of the document, which has this tree.
    pub fn shown_to(&self, tree: &RevTree, user: &Principals) -> Shown {
        let mut removed: Vec<Rev> = vec![];
        for rev in self.grants_of(user).flat_map(|grant| &grant.removed) {
            if !removed.contains(rev) {
                removed.push(rev.clone());
            }
        }
        let readable = self.leaves.iter().filter(|leaf| leaf.set.may_read(user));
        let readable: Vec<&Rev> = readable.map(|leaf| &leaf.rev).collect();
        let winner = self.leaves.first();
        if winner.is_some_and(|leaf| leaf.set.may_read(user)) {
            removed.retain(|rev| {
                let latest = tree.latest_of(rev);
                !(latest.iter()).any(|leaf| readable.iter().any(|one| Rev::as_ref(one) == leaf.rev))
            });
            return Shown::Document { removed };
        }
        if removed.is_empty() {
            return Shown::Nothing;
        }
        for rev in readable {
            if !removed.contains(rev) {
                removed.push(rev.clone());
            }
        }
        Shown::Removed(removed)
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(self.leaves.len() as u64, out);
        for leaf in &self.leaves {
            put_rev(&leaf.rev, out);
            leaf.set.encode(out);
        }
        put(self.grants.len() as u64, out);
        for grant in &self.grants {
            put_slice(grant.principal.as_str().as_bytes(), out);
            put(grant.seq, out);
            put(grant.removed.len() as u64, out);
            grant.removed.iter().for_each(|rev| put_rev(rev, out));
        }
    }

    /// Decodes the stored form; `None` when it is invalid.
    pub fn decode(stored: &[u8]) -> Option<DocAccess> {
        let mut rest = stored;
        let mut access = DocAccess::default();
        for _ in 0..take(&mut rest)? {
            access.leaves.push(LeafAccess {
                rev: take_rev(&mut rest)?,
                set: AccessSet::decode(&mut rest)?,
            });
        }
        for _ in 0..take(&mut rest)? {
            let (principal, seq) = (take_principal(&mut rest)?, take(&mut rest)?);
            let count = take(&mut rest)?;
            let removed = (0..count)
                .map(|_| take_rev(&mut rest))
                .collect::<Option<_>>();
            access.grants.push(Grant {
                principal,
                seq,
                removed: removed?,
            });
        }
        rest.is_empty().then_some(access)
    }
}

/// Returns the newest ancestor of a path's first revision that is in the tree.
pub fn nearest_known(tree: &RevTree, path: &RevPath) -> Option<Rev> {
    let generations = (0..=path.start).rev();
    let mut ancestors = path.ids.iter().zip(generations).skip(1);
    ancestors.find_map(|(hash, generation)| {
        let rev = Rev {
            generation,
            hash: hash.clone(),
        };
        tree.get(&rev).is_some().then_some(rev)
    })
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

/// Returns whether a revision is on a path.
fn is_on(path: &RevPath, rev: &Rev) -> bool {
    let at = path.start.checked_sub(rev.generation);
    let at = at.and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| path.ids.get(at)) == Some(&rev.hash)
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

fn put_slice(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_rev(rev: &Rev, out: &mut Vec<u8>) {
    put(rev.generation, out);
    put_slice(rev.hash.as_bytes(), out);
}

fn take_rev(rest: &mut &[u8]) -> Option<Rev> {
    let (generation, hash) = (take(rest)?, take_slice(rest)?);
    let hash = match <[u8; 16]>::try_from(hash) {
        Ok(md5) => RevHash::Md5(md5),
        Err(_) => RevHash::Text(hash.into()),
    };
    Some(Rev { generation, hash })
}

fn take_principal(rest: &mut &[u8]) -> Option<Principal> {
    Principal::parse(std::str::from_utf8(take_slice(rest)?).ok()?)
}

#[cfg(test)]
mod tests;
