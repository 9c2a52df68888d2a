//! Feeds of users of a database with access wait for rows of their own principals, so that writes of
//! others cost them nothing.

use std::sync::Arc;

use document::{Principal, Principals};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

/// Feeds that have ended are removed once there are at least this many entries, and twice as many as
/// after the last time.
const PRUNED_MIN: usize = 256;

/// The feeds that wait.
#[derive(Default)]
pub(crate) struct AccessWatch {
    feeds: Mutex<Feeds>,
}

#[derive(Default)]
struct Feeds {
    /// By principal.
    of: FxHashMap<Principal, Vec<Arc<watch::Sender<u64>>>>,
    /// How many entries all lists have.
    count: usize,
    /// How many there were after the last time that ended ones were removed.
    pruned: usize,
    /// The database is gone.
    is_closed: bool,
}

impl Feeds {
    fn add(&mut self, principal: &Principal, feed: &Arc<watch::Sender<u64>>) {
        let list = self.of.entry(principal.clone()).or_default();
        list.push(feed.clone());
        self.count += 1;
    }

    /// Removes feeds that have ended, once there are many: also those of users who do not come back.
    fn prune(&mut self) {
        if self.count < PRUNED_MIN.max(2 * self.pruned) {
            return;
        }
        self.of.retain(|_, list| {
            list.retain(|feed| feed.receiver_count() > 0);
            !list.is_empty()
        });
        self.count = self.of.values().map(Vec::len).sum();
        self.pruned = self.count;
    }
}

impl AccessWatch {
    /// Returns a receiver whose value changes whenever a feed of this user has new rows. It is
    /// closed when the database is deleted.
    pub fn subscribe(&self, user: &Principals) -> watch::Receiver<u64> {
        let (feed, receiver) = watch::channel(0);
        let feed = Arc::new(feed);
        let mut feeds = self.feeds.lock();
        if !feeds.is_closed {
            feeds.prune();
            user.iter()
                .for_each(|principal| feeds.add(principal, &feed));
        }
        receiver
    }

    /// Wakes the feeds of these principals.
    pub fn wake(&self, principals: &[Principal]) {
        let feeds = self.feeds.lock();
        if feeds.of.is_empty() {
            return;
        }
        for principal in principals {
            let list = feeds.of.get(principal);
            for feed in list.into_iter().flatten() {
                feed.send_modify(|n| *n = n.wrapping_add(1));
            }
        }
    }

    /// Closes all receivers.
    pub fn close(&self) {
        let mut feeds = self.feeds.lock();
        feeds.is_closed = true;
        feeds.of.clear();
        feeds.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_wakes_for_rows_of_its_user_alone() {
        let watch = AccessWatch::default();
        let user = |name, roles: &[&'static str]| Principals::of(Some(name), roles.iter().copied());
        let mut alice = watch.subscribe(&user("alice", &["nurse"]));
        let mut bob = watch.subscribe(&user("bob", &[]));
        let principal = |text| Principal::parse(text).unwrap();
        let mut woken = |principals: &[Principal]| {
            watch.wake(principals);
            let woken = [&mut alice, &mut bob].map(|feed| {
                let is_woken = feed.has_changed().unwrap();
                drop(feed.borrow_and_update());
                is_woken
            });
            (woken[0], woken[1])
        };
        assert_eq!(woken(&[principal("alice")]), (true, false));
        assert_eq!(woken(&[principal("role:nurse")]), (true, false));
        assert_eq!(
            woken(&[principal("carol"), principal("bob")]),
            (false, true)
        );
        assert_eq!(woken(&[principal("*")]), (true, true));
        assert_eq!(woken(&[]), (false, false));
        watch.close();
        assert!(alice.has_changed().is_err());
        assert!(watch.subscribe(&user("bob", &[])).has_changed().is_err());
    }

    #[test]
    fn feeds_that_have_ended_are_forgotten() {
        let watch = AccessWatch::default();
        let user = |n: usize| Principals::of(Some(&format!("user{n}")), []);
        let kept: Vec<_> = (0..5).map(|n| watch.subscribe(&user(n))).collect();
        // Also those of users who do not come back.
        for n in 0..10_000 {
            drop(watch.subscribe(&user(n % 5_000)));
        }
        let feeds = watch.feeds.lock();
        let all: usize = feeds.of.values().map(Vec::len).sum();
        assert_eq!(all, feeds.count);
        assert!(all <= PRUNED_MIN + 3 * kept.len(), "{all}");
        assert!(feeds.of.len() <= PRUNED_MIN + 2, "{}", feeds.of.len());
    }
}
