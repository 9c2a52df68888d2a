//! Who may read and write a document: the member `_access`, and the changes that each principal
//! sees.
//!
//! A *principal* is a user, a role, or everybody. A revision has an [`AccessSet`], which its body's
//! member `_access` names; a tombstone takes over that of the revision that it deletes. A
//! [`DocAccess`] has the sets of all leaves of a document, and for each principal the change that
//! it saw last.

use std::collections::BTreeSet;

use crate::json::{Elements, member, members, string_text};
use crate::rev::{Rev, RevHash, RevRef};
use crate::tree::{RevPath, RevTree};
use crate::varint::{put, take, take_slice};

/// The name of the member.
pub const ACCESS_MEMBER: &str = "_access";
/// Maximum number of principals in one list of a document.
pub const ACCESS_PRINCIPALS_MAX: usize = 256;
/// Maximum length of a principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 512;
/// Maximum number of a user's roles that count. Further ones match nothing.
const ROLES_MAX: usize = 253;

const EVERYBODY: &str = "*";
const ROLE: &str = "role:";
/// Everybody with a login.
const USERS: &str = "role:_users";

/// A user, a role, or everybody.
///
/// ```
/// use document::Principal;
/// assert!(Principal::parse("alice").is_some());
/// assert!(Principal::parse("role:nurse").is_some());
/// assert!(Principal::parse("*").is_some());
/// assert!(Principal::parse("group:nurse").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Box<str>);

impl Principal {
    /// Reads a principal as a document names it: the name of a user, `role:` with a role, or `*`.
    pub fn parse(text: &str) -> Option<Principal> {
        let is_valid = match text.strip_prefix(ROLE) {
            Some(role) => !role.is_empty(),
            None => !text.is_empty() && !text.contains(':'),
        };
        (is_valid && text.len() <= PRINCIPAL_BYTES_MAX).then(|| Principal(text.into()))
    }

    /// Everybody whom the database admits.
    fn everybody() -> Principal {
        Principal(EVERYBODY.into())
    }

    /// Returns it as a document names it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The principals that one user is, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principals(Box<[Principal]>);

impl Principals {
    /// Returns the principals of a user. `None` is an anonymous one. A name that looks like a role
    /// or like everybody, which a token or a proxy may have given, matches nothing.
    ///
    /// ```
    /// use document::Principals;
    /// let names = |name, roles: &[&'static str]| {
    ///     let all = Principals::of(name, roles.iter().copied());
    ///     all.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>()
    /// };
    /// assert_eq!(names(None, &[]), ["*"]);
    /// assert_eq!(names(Some("al"), &["nurse"]), ["*", "al", "role:_users", "role:nurse"]);
    /// assert_eq!(names(Some("role:nurse"), &[]), ["*", "role:_users"]);
    /// ```
    pub fn of<'a>(name: Option<&str>, roles: impl IntoIterator<Item = &'a str>) -> Principals {
        let mut all = vec![Principal::everybody()];
        if let Some(name) = name {
            all.push(Principal(USERS.into()));
            let is_user = !name.contains(':') && name != EVERYBODY;
            all.extend(is_user.then(|| Principal::parse(name)).flatten());
        }
        let roles = roles.into_iter().take(ROLES_MAX);
        all.extend(roles.filter_map(|role| Principal::parse(&format!("{ROLE}{role}"))));
        all.sort_unstable();
        all.dedup();
        Principals(all.into())
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Principal> {
        self.0.iter()
    }

    /// Returns whether the user is this principal.
    pub fn contains(&self, principal: &Principal) -> bool {
        self.0.binary_search(principal).is_ok()
    }
}

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
        "`_access` names `{0}`, which is no principal: use the name of a user, `role:` with a role, or `*`"
    )]
    Principal(String),
    /// A list is too long.
    #[error("`_access` has a list of more than {max} principals", max = ACCESS_PRINCIPALS_MAX)]
    TooMany,
}

/// The principals who may read and write a revision. The default is nobody but admins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSet {
    /// Sorted; `writers` are among them.
    readers: Box<[Principal]>,
    /// Sorted.
    writers: Box<[Principal]>,
}

impl AccessSet {
    /// Returns that of a design document, which everybody reads and admins write.
    pub fn of_design() -> AccessSet {
        AccessSet {
            readers: [Principal::everybody()].into(),
            writers: Box::default(),
        }
    }

    /// Reads the member `_access` of a document's text in normal form. Without the member, the
    /// document is of the admins alone.
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

    /// Returns whether a user may read the revision.
    pub fn may_read(&self, user: &Principals) -> bool {
        self.readers.iter().any(|one| user.contains(one))
    }

    /// Returns whether a user may write a successor of the revision.
    pub fn may_write(&self, user: &Principals) -> bool {
        self.writers.iter().any(|one| user.contains(one))
    }

    fn is_read_by(&self, principal: &Principal) -> bool {
        self.readers.binary_search(principal).is_ok()
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
    /// Who may read and write it.
    pub set: AccessSet,
}

/// The last change of a document that a principal saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who.
    pub principal: Principal,
    /// The update seq of the change.
    pub seq: u64,
    /// Leaves that it could read and that something took away, which it may not read.
    pub removed: Vec<Rev>,
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
    /// Whose rows.
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

/// What becomes of an edit.
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
}

/// What a feed shows a user of a document.
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
        grants.filter(|grant| user.contains(&grant.principal))
    }

    /// Makes the leaves those of the tree. Leaves whose sets are not known are of the admins alone.
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

    /// Judges an edit of a document with this tree. `writer`: whose principals count; `None` for
    /// one who may write everything.
    pub fn judge(
        &self,
        tree: &RevTree,
        edit: &AccessEdit<'_>,
        writer: Option<&Principals>,
    ) -> AccessVerdict {
        let (base, is_interactive) = match edit.basis {
            EditBasis::Interactive(Some(parent)) => match self.leaf(parent.as_ref()) {
                Some(leaf) => (Some(leaf), true),
                None => return AccessVerdict::Conflict,
            },
            EditBasis::Interactive(None) => {
                if tree.winner().is_some_and(|winner| !winner.revision.deleted) {
                    return AccessVerdict::Conflict;
                }
                (self.leaves.first(), true)
            }
            EditBasis::Replicated(path) => {
                let newest = path.newest();
                let known = newest.filter(|rev| tree.get(rev).is_some());
                match known {
                    Some(rev) if writer.is_some() => return AccessVerdict::Known(rev),
                    _ => (self.extended(tree, path), false),
                }
            }
        };
        if let Some(writer) = writer {
            let may_write = base.is_none_or(|leaf| leaf.set.may_write(writer));
            if !may_write && is_interactive && base.is_some_and(|leaf| !leaf.set.may_read(writer)) {
                return AccessVerdict::Conflict;
            }
            if !may_write || edit.design {
                return AccessVerdict::NotWriter;
            }
            let keeps_write = edit.deleted && base.is_some() || edit.set.may_write(writer);
            if !keeps_write {
                return AccessVerdict::NotWriterAfter;
            }
        }
        AccessVerdict::Write(match base {
            _ if edit.design => AccessSet::of_design(),
            Some(leaf) if edit.deleted => leaf.set.clone(),
            _ => edit.set.clone(),
        })
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
        let both = before.iter().chain(&self.leaves);
        let readers = both.flat_map(|leaf| leaf.set.readers.iter());
        let all: BTreeSet<&Principal> = readers
            .chain(grants.iter().map(|grant| &grant.principal))
            .collect();
        let mut moves = vec![];
        let mut granted = vec![];
        for principal in all {
            let old = grants.iter().find(|grant| grant.principal == *principal);
            let new = next_grant((seq, rev), tree, (&before, &self.leaves), principal, old);
            let reads = |leaves: &[LeafAccess]| leaves.iter().any(|l| l.set.is_read_by(principal));
            let moved = GrantMove {
                principal: principal.clone(),
                from: old.map(|grant| grant.seq),
                to: new.as_ref().map(|grant| grant.seq),
                read_before: reads(&before),
                reads: reads(&self.leaves),
            };
            if moved.from != moved.to || moved.read_before != moved.reads {
                moves.push(moved);
            }
            granted.extend(new);
        }
        self.grants = granted;
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

/// Returns the grant of a principal after a change; `None` if it has nothing of the document.
/// `added` is the revision that came, `before` and `after` are all leaves.
fn next_grant(
    (seq, added): (u64, Option<&Rev>),
    tree: &RevTree,
    (before, after): (&[LeafAccess], &[LeafAccess]),
    principal: &Principal,
    old: Option<&Grant>,
) -> Option<Grant> {
    if tree.is_empty() {
        return None;
    }
    let (had, has) = (read_of(before, principal), read_of(after, principal));
    let reads_first = |leaves: &[LeafAccess]| {
        let winner = leaves.first();
        winner.is_some_and(|leaf| leaf.set.is_read_by(principal))
    };
    let (saw, sees) = (reads_first(before), reads_first(after));
    let is_continued = |rev: &Rev| {
        let latest = tree.latest_of(rev);
        let mut latest = latest.iter();
        latest.any(|leaf| has.iter().any(|one| Rev::as_ref(one) == leaf.rev))
    };
    let mut removed = old.map_or(vec![], |grant| grant.removed.clone());
    let is_taken = |rev: &Rev| match tree.get(rev) {
        Some(node) => !node.is_leaf && !is_continued(rev),
        // It was stemmed, or purged: nothing takes a purged leaf away.
        None => added.is_some_and(|added| !has.contains(added)),
    };
    let taken = had.iter().filter(|rev| is_taken(rev));
    // Once the winner is hidden, so is the rest of the document.
    let hidden = has.iter().filter(|_| saw && !sees);
    for rev in taken.chain(hidden) {
        if !removed.contains(rev) {
            removed.push(rev.clone());
        }
    }
    if sees {
        removed.retain(|rev| tree.get(rev).is_some() && !is_continued(rev));
    }
    let winner = |leaves: &[LeafAccess]| leaves.first().map(|leaf| leaf.rev.clone());
    let is_moved = had != has
        || winner(before) != winner(after) && !(had.is_empty() && has.is_empty())
        || old.is_none();
    let is_anything = !has.is_empty() || !removed.is_empty();
    is_anything.then(|| Grant {
        principal: principal.clone(),
        seq: match old {
            Some(grant) if !is_moved => grant.seq,
            _ => seq,
        },
        removed,
    })
}

/// Returns the leaves that a principal may read.
fn read_of(leaves: &[LeafAccess], principal: &Principal) -> Vec<Rev> {
    let read = leaves.iter().filter(|leaf| leaf.set.is_read_by(principal));
    read.map(|leaf| leaf.rev.clone()).collect()
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
