//! Feeds of users of a database with access wait for rows of their own principals, so that writes of
//! others cost them nothing.

use std::sync::Arc;

use document::{Principal, Principals};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

/// Feeds that have ended are removed once a list has at least this many, and twice as many as after
/// the last time.
const PRUNED_MIN: usize = 16;

/// The feeds that wait.
#[derive(Default)]
pub(crate) struct AccessWatch {
    feeds: Mutex<Feeds>,
}

#[derive(Default)]
struct Feeds {
    /// By principal.
    of: FxHashMap<Principal, FeedList>,
    /// The database is gone.
    is_closed: bool,
}

/// The feeds of one principal.
#[derive(Default)]
struct FeedList {
    all: Vec<Arc<watch::Sender<u64>>>,
    /// How many there were after the last time that ended ones were removed.
    pruned: usize,
}

impl FeedList {
    fn add(&mut self, feed: Arc<watch::Sender<u64>>) {
        if self.all.len() >= PRUNED_MIN.max(2 * self.pruned) {
            self.all.retain(|feed| feed.receiver_count() > 0);
            self.pruned = self.all.len();
        }
        self.all.push(feed);
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
            for principal in user.iter() {
                let list = feeds.of.entry(principal.clone()).or_default();
                list.add(feed.clone());
            }
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
            for feed in list.into_iter().flat_map(|list| &list.all) {
                feed.send_modify(|n| *n = n.wrapping_add(1));
            }
        }
    }

    /// Closes all receivers.
    pub fn close(&self) {
        let mut feeds = self.feeds.lock();
        feeds.is_closed = true;
        feeds.of.clear();
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
        let user = Principals::of(Some("alice"), []);
        let kept: Vec<_> = (0..5).map(|_| watch.subscribe(&user)).collect();
        for _ in 0..10_000 {
            drop(watch.subscribe(&user));
        }
        let feeds = watch.feeds.lock();
        let longest = feeds.of.values().map(|list| list.all.len()).max();
        assert!(longest.is_some_and(|n| n <= PRUNED_MIN + kept.len()));
    }
}
