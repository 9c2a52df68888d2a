//! Memory of the jobs' selections: their ids and selectors, from when a job is added until it is
//! gone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::error::Error;
use crate::options::{Replication, Selection};

/// Selections up to this many bytes take no room.
const FREE_BYTES: u64 = 16 << 10;
/// A compiled selector takes up to 4 times the memory of its JSON.
const COMPILED_FACTOR: u64 = 4;
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

/// Room for the selection of one job, until it is dropped.
#[derive(Debug)]
pub struct Held {
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

    /// Takes memory for the selection of a job, out of `budget_bytes` for all jobs. A user gets at
    /// most as much as stays free.
    ///
    /// # Errors
    /// [`Error::LargeSelection`] when it is more than a user can get, [`Error::NoRoom`] when there
    /// is too little now.
    pub fn take(
        self: &Arc<Self>,
        replication: &Replication,
        is_admin: bool,
        budget_bytes: u64,
    ) -> Result<Option<Held>, Error> {
        let bytes = memory_bytes(&replication.selection);
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
        Ok(Some(Held {
            of: self.clone(),
            user,
            bytes,
        }))
    }
}

impl Drop for Held {
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

/// Memory of a selection while its job runs, about, in bytes: as stored, and as the filter of a
/// feed.
fn memory_bytes(selection: &Selection) -> u64 {
    match selection {
        Selection::All => 0,
        Selection::Ids(ids) => ids
            .iter()
            .map(|id| 2 * id.len() as u64 + ALLOCATION_BYTES)
            .sum(),
        Selection::Filter { params, .. } => members_bytes(params.iter()),
        Selection::Selector(selector) => COMPILED_FACTOR * members_bytes(selector.iter()),
    }
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
    use serde_json::json;

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
}
