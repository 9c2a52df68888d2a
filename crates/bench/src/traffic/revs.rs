//! Revisions and ids that differ at replay.
//!
//! The same edits give the same revisions, on CouchDB and here. They differ where a document had
//! another history before, or where the server generated a value: an id, a password's salt. So
//! every revision in a recorded response is remembered with the one in the replayed response, and
//! replaces it in later requests. A request that names a revision whose request is not answered yet
//! waits for it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use tokio::sync::watch;

/// Differing revisions and ids that are remembered at most; the oldest go first.
const REMEMBERED_MAX: usize = 1_000_000;

/// The replayed form of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Became {
    /// The request that makes it was not answered yet.
    Pending,
    /// Unchanged, or unknown.
    Same,
    Another(String),
}

/// Makes a pending name known.
pub(super) struct Promise {
    key: String,
    sender: watch::Sender<Became>,
}

/// The names of a replay, as one of its requests sees them.
#[derive(Clone)]
pub(super) struct Names {
    inner: Rc<RefCell<Inner>>,
    /// The request's number. It never waits for a later request, which may be waiting for it.
    request: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            inner: Rc::default(),
            request: usize::MAX,
        }
    }
}

struct Name {
    /// The number of the request that promised it first.
    request: usize,
    receiver: watch::Receiver<Became>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<String, Name>,
    /// Names that differ, from the oldest.
    differing: VecDeque<String>,
    differing_total: u64,
}

/// The key of a document's revision.
pub(super) fn of_rev(database: &str, id: &str, rev: &str) -> String {
    format!("{database}\n{id}\n{rev}")
}

/// The key of a document's id.
pub(super) fn of_id(database: &str, id: &str) -> String {
    format!("{database}\n{id}")
}

impl Names {
    /// The names as the request of that number sees them.
    pub(super) fn of_request(&self, request: usize) -> Self {
        Self {
            inner: Rc::clone(&self.inner),
            request,
        }
    }

    /// Promises a name that the response to this request will determine. If another request
    /// promised it already, waiting requests wait for that one.
    pub(super) fn promise(&self, key: String) -> Promise {
        let (sender, receiver) = watch::channel(Became::Pending);
        let mut inner = self.inner.borrow_mut();
        inner.known.entry(key.clone()).or_insert(Name {
            request: self.request,
            receiver,
        });
        Promise { key, sender }
    }

    /// The response has come: `recorded` corresponds to `replayed`, if that is known.
    pub(super) fn keep(&self, promise: Promise, recorded: &str, replayed: Option<&str>) {
        let inner = &mut *self.inner.borrow_mut();
        let receiver = promise.sender.subscribe();
        let known = inner.known.get(&promise.key);
        let is_own = known.is_some_and(|name| name.receiver.same_channel(&receiver));
        let Some(replayed) = replayed.filter(|replayed| *replayed != recorded) else {
            promise.sender.send_replace(Became::Same);
            if is_own {
                inner.known.remove(&promise.key);
            }
            return;
        };
        promise
            .sender
            .send_replace(Became::Another(replayed.to_owned()));
        // Another request has promised it first, and will say the same.
        if known.is_some() && !is_own {
            return;
        }
        let request = known.map_or(self.request, |name| name.request);
        inner
            .known
            .insert(promise.key.clone(), Name { request, receiver });
        inner.differing_total += 1;
        inner.differing.push_back(promise.key);
        if inner.differing.len() > REMEMBERED_MAX
            && let Some(oldest) = inner.differing.pop_front()
        {
            inner.known.remove(&oldest);
        }
    }

    /// The replayed form of a recorded name; `None` when it is the same, or unknown. Waits while an
    /// earlier request that determines it is in progress.
    pub(super) async fn now(&self, key: &str) -> Option<String> {
        let mut receiver = {
            let inner = self.inner.borrow();
            let name = inner.known.get(key)?;
            let is_later = name.request >= self.request && self.request != usize::MAX;
            if is_later && *name.receiver.borrow() == Became::Pending {
                return None;
            }
            name.receiver.clone()
        };
        // A promise that was dropped is of a request that failed.
        let became = receiver.wait_for(|became| *became != Became::Pending).await;
        match &*became.ok()? {
            Became::Another(name) => Some(name.clone()),
            Became::Pending | Became::Same => None,
        }
    }

    /// How many names differed so far.
    pub(super) fn differing(&self) -> u64 {
        self.inner.borrow().differing_total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_differs_is_told_to_those_who_ask_later() {
        let names = Names::default();
        let key = of_rev("db", "a", "1-x");
        assert_eq!(names.now(&key).await, None);
        let promise = names.promise(key.clone());
        names.keep(promise, "1-x", Some("1-y"));
        assert_eq!(names.now(&key).await.as_deref(), Some("1-y"));
        assert_eq!(names.now(&of_rev("db", "b", "1-x")).await, None);
        assert_eq!(names.differing(), 1);
    }

    #[tokio::test]
    async fn who_asks_too_early_waits_for_the_answer() {
        let names = Names::default();
        let promise = names.promise(of_id("db", "a"));
        let asking = names.now("db\na");
        let answering = async {
            tokio::task::yield_now().await;
            names.keep(promise, "a", Some("b"));
        };
        let (name, ()) = tokio::join!(asking, answering);
        assert_eq!(name.as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn a_request_that_failed_keeps_nobody_waiting() {
        let names = Names::default();
        let promise = names.promise(of_id("db", "a"));
        drop(promise);
        assert_eq!(names.now("db\na").await, None);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_request_that_came_later() {
        let names = Names::default();
        let promise = names.of_request(6).promise(of_rev("db", "a", "1-x"));
        let earlier = names.of_request(5);
        assert_eq!(earlier.now("db\na\n1-x").await, None);
        names.of_request(6).keep(promise, "1-x", Some("1-y"));
        assert_eq!(earlier.now("db\na\n1-x").await.as_deref(), Some("1-y"));
    }

    #[tokio::test]
    async fn a_second_promise_neither_hides_nor_ends_the_first() {
        let names = Names::default();
        let key = of_rev("db", "a", "1-x");
        let first = names.of_request(1).promise(key.clone());
        let second = names.of_request(2).promise(key.clone());
        drop(second);
        names.of_request(1).keep(first, "1-x", Some("1-y"));
        let third = names.of_request(3).promise(key.clone());
        let asked = names.of_request(4).now(&key).await;
        assert_eq!(asked.as_deref(), Some("1-y"));
        names.of_request(3).keep(third, "1-x", Some("1-y"));
        assert_eq!(names.differing(), 1);
    }

    #[tokio::test]
    async fn names_that_are_the_same_take_no_room() {
        let names = Names::default();
        for _ in 0..3 {
            let promise = names.promise(of_id("db", "a"));
            names.keep(promise, "a", Some("a"));
        }
        assert!(names.inner.borrow().known.is_empty());
    }
}
