//! The continuous replications of `_replicate` that the cluster keeps: whichever node runs one of
//! them, another one continues it. Part of the control slot's state, and pure like it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum number of bytes of all of them. All nodes must decide alike, so another limit needs
/// another record version.
const BYTES_MAX: u64 = 8 << 20;
/// Bytes that each counts besides its texts.
const OVERHEAD_BYTES: u64 = 512;

/// Why a replication is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// It is kept already, or another user's has its id.
    Exists,
    /// There is no room.
    NoRoom,
}

/// A continuous replication of `_replicate`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptReplication {
    /// The user who requested it.
    pub user: Option<String>,
    /// Whether that was a server admin, whose share is not limited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_admin: bool,
    /// The roles of a user without an account, or with other roles than it, as of a token; `None` for
    /// those that the account has when the job starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// The request, as JSON text. It has credentials.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub request: Arc<str>,
}

fn write_text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

fn read_text<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(from).map(Arc::from)
}

impl KeptReplication {
    /// Returns the bytes that it counts under this id.
    fn bytes(&self, id: &str) -> u64 {
        let roles = self.roles.iter().flatten().map(String::len).sum::<usize>();
        let user = self.user.as_ref().map_or(0, String::len);
        OVERHEAD_BYTES + (id.len() + user + roles + self.request.len()) as u64
    }
}

impl fmt::Debug for KeptReplication {
    /// Hides the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KeptReplication");
        shown.field("user", &self.user).finish_non_exhaustive()
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptReplications {
    by_id: BTreeMap<String, KeptReplication>,
    bytes: u64,
}

impl KeptReplications {
    /// Returns them with the ids of their jobs.
    pub fn all(&self) -> impl Iterator<Item = (&String, &KeptReplication)> {
        self.by_id.iter()
    }

    /// Returns the one with this id.
    pub fn get(&self, id: &str) -> Option<&KeptReplication> {
        self.by_id.get(id)
    }

    /// Checks whether one may be kept: a user other than a server admin gets at most as much as
    /// stays free, and replaces none of another user.
    ///
    /// # Errors
    /// [`NotKept`].
    pub(super) fn check(&self, id: &str, new: &KeptReplication) -> Result<(), NotKept> {
        let old = self.get(id);
        if old.is_some_and(|old| old == new || old.user != new.user && !new.is_admin) {
            return Err(NotKept::Exists);
        }
        let bytes = new.bytes(id);
        let used = self.bytes - old.map_or(0, |old| old.bytes(id));
        let is_own =
            |(of, other): &(&String, &KeptReplication)| *of != id && other.user == new.user;
        let own: u64 = match new.is_admin {
            true => 0,
            false => (self.all().filter(is_own))
                .map(|(of, other)| other.bytes(of))
                .sum(),
        };
        let has_room = match new.is_admin {
            true => used + bytes <= BYTES_MAX,
            false => own + bytes <= BYTES_MAX.saturating_sub(used - own) / 2,
        };
        has_room.then_some(()).ok_or(NotKept::NoRoom)
    }

    /// Inserts one, or replaces the one with its id.
    pub(super) fn insert(&mut self, id: &str, new: KeptReplication) {
        self.remove(id);
        self.bytes += new.bytes(id);
        self.by_id.insert(id.to_owned(), new);
    }

    /// Removes the one with this id.
    pub(super) fn remove(&mut self, id: &str) -> Option<KeptReplication> {
        let old = self.by_id.remove(id)?;
        self.bytes -= old.bytes(id);
        Some(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str, length: usize) -> KeptReplication {
        KeptReplication {
            user: Some(user.into()),
            is_admin: user == "admin",
            roles: None,
            request: "x".repeat(length).into(),
        }
    }

    /// Keeps as many as there is room for, and returns their number.
    fn fill(all: &mut KeptReplications, user: &str, length: usize) -> u64 {
        for number in 0.. {
            let (id, new) = (format!("{user}-{number}"), of(user, length));
            match all.check(&id, &new) {
                Ok(()) => all.insert(&id, new),
                Err(outcome) => {
                    assert_eq!(outcome, NotKept::NoRoom);
                    return number;
                }
            }
        }
        0
    }

    #[test]
    fn a_user_gets_at_most_as_much_as_stays_free() {
        let mut all = KeptReplications::default();
        let large = of("anna", BYTES_MAX as usize / 2);
        assert_eq!(all.check("a", &large), Err(NotKept::NoRoom));
        let each = 100_000 + OVERHEAD_BYTES + 10;
        let count = fill(&mut all, "anna", 100_000);
        assert!(count.abs_diff(BYTES_MAX / 2 / each) <= 1, "{count}");
        assert!(all.bytes <= BYTES_MAX / 2);
        let second = fill(&mut all, "bert", 100_000);
        assert!(second.abs_diff(BYTES_MAX / 4 / each) <= 1, "{second}");
        // Also short ones are counted.
        let short = fill(&mut all, "carl", 0);
        assert!(short < BYTES_MAX / 4 / OVERHEAD_BYTES, "{short}");
        fill(&mut all, "admin", 1000);
        assert!(all.bytes <= BYTES_MAX && all.bytes + 2000 > BYTES_MAX);
        // In the place of one there is room for another of the same length, and for none longer.
        let mut new = of("admin", 1000);
        new.roles = Some(vec![]);
        assert_eq!(all.check("admin-0", &new), Ok(()));
        assert_eq!(
            all.check("admin-0", &of("admin", 4000)),
            Err(NotKept::NoRoom)
        );
        let ids: Vec<String> = all.all().map(|(id, _)| id.clone()).collect();
        for id in ids {
            assert!(all.remove(&id).is_some());
        }
        assert_eq!(all, KeptReplications::default());
        assert_eq!(all.remove("a"), None);
    }

    #[test]
    fn a_user_replaces_only_their_own() {
        let mut all = KeptReplications::default();
        all.insert("a", of("anna", 10));
        assert_eq!(all.check("a", &of("anna", 10)), Err(NotKept::Exists));
        assert_eq!(all.check("a", &of("bert", 10)), Err(NotKept::Exists));
        assert_eq!(all.check("a", &of("anna", 11)), Ok(()));
        assert_eq!(all.check("a", &of("admin", 10)), Ok(()));
    }

    #[test]
    fn credentials_are_not_shown() {
        let mut kept = of("anna", 0);
        kept.request = r#"{"source":"http://u:secret@h/a"}"#.into();
        assert!(!format!("{kept:?}").contains("secret"));
    }
}
