//! Access sets: who may read and write a revision.

use super::codec::{put_slice, take_principal};
use super::principal::{Principal, Principals};
use crate::json::{Elements, member, members, string_text};
use crate::varint::{put, take};

/// The name of the member.
pub const ACCESS_MEMBER: &str = "_access";
/// Maximum number of principals in one list of a document.
pub const ACCESS_PRINCIPALS_MAX: usize = 256;
/// Memory of a principal or a revision besides its text, about, in bytes.
pub(super) const ENTRY_BYTES: usize = 16;

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

/// The principals under which an index has the rows of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReaders<'a> {
    /// In order. Principals whose users are all among those of another one are left out.
    pub principals: Vec<&'a Principal>,
    /// Whether one user may be several of them, and so finds each row several times.
    pub overlap: bool,
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

    /// Returns the principals under which an index has the rows of the revision: each user who may
    /// read it is at least one of them, and no other user is.
    ///
    /// ```
    /// use document::AccessSet;
    /// let of = |body: &[u8]| {
    ///     let set = AccessSet::of_body(body).unwrap();
    ///     let readers = set.index_readers();
    ///     let names = readers.principals.iter().map(|one| one.as_str().to_owned());
    ///     (names.collect::<Vec<_>>().join(" "), readers.overlap)
    /// };
    /// assert_eq!(of(br#"{"_access":["bob","al"]}"#), ("al bob".into(), false));
    /// assert_eq!(of(br#"{"_access":["al","role:a"]}"#), ("al role:a".into(), true));
    /// assert_eq!(of(br#"{"_access":["al","role:_users"]}"#), ("role:_users".into(), false));
    /// assert_eq!(of(br#"{"_access":["al","role:a","*"]}"#), ("*".into(), false));
    /// ```
    pub fn index_readers(&self) -> IndexReaders<'_> {
        if let Some(everyone) = self.readers.iter().find(|one| one.is_everyone()) {
            return IndexReaders {
                principals: vec![everyone],
                overlap: false,
            };
        }
        // Users with a name have a login. A role may be that of an anonymous user.
        let has_users = self.readers.iter().any(Principal::is_users);
        let counts = |one: &&Principal| one.is_role() || !has_users;
        let principals: Vec<&Principal> = self.readers.iter().filter(counts).collect();
        // A user has one name.
        let overlap = principals.len() > 1 && principals.iter().any(|one| one.is_role());
        IndexReaders {
            principals,
            overlap,
        }
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
    pub(super) fn bytes(&self) -> usize {
        let all = self.readers.iter().chain(self.writers.iter());
        all.map(|one| one.as_str().len() + ENTRY_BYTES).sum()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.readers, &self.writers] {
            put(list.len() as u64, out);
            for principal in list.iter() {
                put_slice(principal.as_str().as_bytes(), out);
            }
        }
    }

    pub(super) fn decode(rest: &mut &[u8]) -> Option<AccessSet> {
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
