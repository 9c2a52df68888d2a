//! Memory of the descriptions of jobs, mostly of their ids and selectors: from when a replication is
//! requested until its job is gone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::error::Error;
use crate::options::{Replication, Selection};

/// Descriptions up to this many bytes take no room.
const FREE_BYTES: u64 = 16 << 10;
/// A selector's JSON is copied while it is compiled.
const SELECTOR_COPIES: u64 = 2;
/// Copies of the first seq that a running job has: of its description, of the start, and of how far it is.
const SEQ_COPIES: u64 = 8;
/// Memory of a string or a member of an object without its text, about, in bytes.
const ALLOCATION_BYTES: u64 = 48;

/// Memory of the selections of all jobs.
#[derive(Debug, Default)]
pub struct Selections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    used: u64,
    peak: u64,
    by_user: HashMap<String, u64>,
}

/// The room of a job, which its document shares: `None` for a description of ordinary length.
pub type Room = Option<Arc<SelectionPermit>>;

/// Room for the description of one job, until it is dropped.
#[derive(Debug)]
pub struct SelectionPermit {
    of: Arc<Selections>,
    /// `None` for a server admin, whose share is not limited.
    user: Option<String>,
    bytes: u64,
}

impl Selections {
    /// Returns what selections take now, and the most that they took, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.used, state.peak)
    }

    /// Takes memory for the description of a job, out of `budget_bytes` for all jobs. A user gets
    /// at most as much as stays free.
    ///
    /// # Errors
    /// [`Error::LargeSelection`] when it is more than a user can get, [`Error::NoRoom`] when there
    /// is too little now.
    pub fn take(
        self: &Arc<Self>,
        replication: &Replication,
        is_admin: bool,
        budget_bytes: u64,
    ) -> Result<Room, Error> {
        let bytes = memory_bytes(replication);
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let owner = replication
            .owner
            .as_ref()
            .or(replication.user.name.as_ref());
        let user = (!is_admin).then(|| owner.cloned().unwrap_or_default());
        let most = if is_admin {
            budget_bytes
        } else {
            budget_bytes / 2
        };
        if bytes > most {
            return Err(Error::LargeSelection(most));
        }
        let mut state = self.0.lock();
        let own = user.as_ref().and_then(|user| state.by_user.get(user));
        let own = own.copied().unwrap_or(0);
        let has_room = match user {
            Some(_) => own + bytes <= budget_bytes.saturating_sub(state.used - own) / 2,
            None => state.used + bytes <= budget_bytes,
        };
        if !has_room {
            return Err(Error::NoRoom);
        }
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        if let Some(user) = &user {
            *state.by_user.entry(user.clone()).or_default() += bytes;
        }
        drop(state);
        Ok(Some(Arc::new(SelectionPermit {
            of: self.clone(),
            user,
            bytes,
        })))
    }
}

impl Drop for SelectionPermit {
    fn drop(&mut self) {
        let mut state = self.of.0.lock();
        state.used -= self.bytes;
        if let Some(user) = &self.user
            && let Some(own) = state.by_user.get_mut(user)
        {
            *own -= self.bytes;
            if *own == 0 {
                state.by_user.remove(user);
            }
        }
    }
}

/// Memory of a description while its job runs, about, in bytes: the selection as stored, and as the
/// filter of a feed.
fn memory_bytes(replication: &Replication) -> u64 {
    let selection = match &replication.selection {
        Selection::All => 0,
        Selection::Ids(ids) => ids
            .iter()
            .map(|id| 2 * id.len() as u64 + ALLOCATION_BYTES)
            .sum(),
        Selection::Filter { name, params } => name.len() as u64 + members_bytes(params.iter()),
        Selection::Selector(selector) => {
            SELECTOR_COPIES * members_bytes(selector.iter()) + replication.selector_bytes as u64
        }
    };
    let since = replication.since_seq.as_ref().map_or(0, value_bytes);
    let roles = replication.user.roles.iter();
    let names = roles
        .chain(&replication.user.name)
        .chain(&replication.owner);
    let names: u64 = names.map(|name| name.len() as u64 + ALLOCATION_BYTES).sum();
    selection
        + members_bytes(replication.create_target_params.iter())
        + SEQ_COPIES * since
        + names
        + replication.source.memory_bytes()
        + replication.target.memory_bytes()
}

fn members_bytes<'a>(members: impl Iterator<Item = (&'a String, &'a Value)>) -> u64 {
    let bytes = |(name, value): (&String, &Value)| {
        name.len() as u64 + ALLOCATION_BYTES + value_bytes(value)
    };
    members.map(bytes).sum()
}

fn value_bytes(value: &Value) -> u64 {
    let beside = match value {
        Value::String(text) => text.len() as u64 + ALLOCATION_BYTES / 3,
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(members) => ALLOCATION_BYTES + members_bytes(members.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() as u64 + beside
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::options::User;
    use crate::settings::Settings;

    fn replication(user: &str, ids: usize) -> Replication {
        let ids: Vec<String> = (0..ids).map(|id| format!("{id:032}")).collect();
        let body = json!({"source": "http://h/a", "target": "http://h/b", "doc_ids": ids});
        let Value::Object(body) = body else {
            panic!("an object")
        };
        let user = User {
            name: Some(user.to_owned()),
            roles: vec![],
        };
        Replication::parse(&body, user, None, &Settings::default()).expect("a replication")
    }

    #[test]
    fn a_user_leaves_as_much_as_it_has() {
        let all = Arc::new(Selections::default());
        let budget = 1 << 20;
        let take = |user: &str, ids| all.take(&replication(user, ids), false, budget);
        assert!(matches!(take("a", 10), Ok(None)));
        assert!(matches!(take("a", 100_000), Err(Error::LargeSelection(_))));
        let first = take("a", 4000).expect("room").expect("it is counted");
        assert!(matches!(take("a", 4000), Err(Error::NoRoom)));
        let second = take("b", 2000).expect("room of others");
        let used = all.used_bytes().0;
        assert!(used > 600_000 && used < budget, "{used}");
        drop((first, second));
        assert_eq!(all.used_bytes().0, 0);
        assert!(all.0.lock().by_user.is_empty());
    }

    #[test]
    fn the_expressions_of_a_selector_are_counted() {
        let room = |regex: fn(usize) -> String| {
            let regexes: Vec<Value> = (0..4).map(|n| json!({"a": {"$regex": regex(n)}})).collect();
            let body = json!({
                "source": "http://h/a", "target": "http://h/b", "selector": {"$or": regexes},
            });
            let body = body.as_object().cloned().unwrap_or_default();
            let settings = Settings::default();
            let parsed = Replication::parse(&body, User::default(), None, &settings);
            memory_bytes(&parsed.expect("a replication"))
        };
        let small = room(|n| format!("^a{n}"));
        assert!(small < 200_000, "{small}");
        let large = room(|n| format!("(?:a{{1000}}){{9}}b{n}"));
        assert!(large > 1_600_000, "{large}");
    }

    #[test]
    fn all_that_a_job_keeps_is_counted() {
        let text = "x".repeat(20_000);
        let long_url = format!("http://h/{text}");
        let (source, target) = (json!("http://h/a"), json!("http://h/b"));
        for (member, value) in [
            ("since_seq", json!("x".repeat(10_000))),
            ("create_target_params", json!({"q": text})),
            ("source", json!(long_url)),
            (
                "target",
                json!({"url": "http://h/b", "headers": {"x": text}}),
            ),
            ("filter", json!(format!("d/{text}"))),
        ] {
            let mut body = Map::from_iter([
                ("source".to_owned(), source.clone()),
                ("target".to_owned(), target.clone()),
            ]);
            body.insert(member.to_owned(), value);
            let settings = Settings::default();
            let parsed = Replication::parse(&body, User::default(), None, &settings);
            let parsed = parsed.expect("a replication");
            let room = Arc::new(Selections::default()).take(&parsed, false, 1 << 20);
            assert!(matches!(room, Ok(Some(_))), "{member}");
        }
    }
}
