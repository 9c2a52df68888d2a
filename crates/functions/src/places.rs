//! Limits concurrent calls of users' functions: each kind of work has a queue of its own, so that
//! shows do not delay writes or index builds. Each queue is fair to users, and then to databases
//! (see [`fair_queue`]): one user never has all places of a database, nor has a database all places.

use std::sync::Arc;
use std::time::Duration;

pub use fair_queue::{Admission, Cause, Place, Requester, Share};
use fair_queue::{Limits, Queue};

use crate::SLICE;

/// Maximum number of answers in progress that call functions: each has a thread, and a list a
/// process, while its client reads it.
const ANSWERS_MAX: usize = 32;
/// Maximum number of those of one user,
const ANSWERS_OF_USER_MAX: usize = 10;
/// and of those of one database: its other users have some too.
const ANSWERS_OF_DATABASE_MAX: usize = 20;
/// A user has at most half as many answers in progress as there are free places, and a database
/// twice as many: several with slow clients leave places to others.
const ANSWERS_OF_USER_PERCENT: usize = 50;
const ANSWERS_OF_DATABASE_PERCENT: usize = 200;

/// A call of this duration is slow, and its user and database for a while after it: slow ones
/// together leave a place to others.
const SLOW: Duration = Duration::from_secs(1);

/// A kind of work that has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Functions that a request or a feed calls: shows, updates, rewrites, filters.
    Calls,
    /// Validations of writes, and checks of sources.
    Writes,
    /// Maps and reduces.
    Work,
    /// List functions, each while its client reads its output.
    Lists,
    /// Pieces of answers that call custom reduce functions; these functions have places of
    /// [`Lane::Work`].
    Answers,
}

const LANES: usize = 5;

/// The places of a server.
#[derive(Debug)]
pub struct Places {
    lanes: [Arc<Queue>; LANES],
}

/// Returns the limits of answers in progress.
fn answer_limits(queue_max: usize) -> Limits {
    Limits {
        of_user: ANSWERS_OF_USER_MAX,
        of_database: ANSWERS_OF_DATABASE_MAX,
        user_percent: Some(ANSWERS_OF_USER_PERCENT),
        database_percent: Some(ANSWERS_OF_DATABASE_PERCENT),
        waiting_max: queue_max,
        slow_after: Some(SLOW),
        slice: SLICE,
        ..Limits::new(ANSWERS_MAX)
    }
}

impl Places {
    /// `workers` is the number of places of one user in each lane of calls. There is one more for
    /// other users of the same database, and one more for other databases. `queue_max` is the maximum number of waiting calls in each lane.
    pub fn new(workers: usize, queue_max: usize) -> Arc<Places> {
        let workers = workers.max(2);
        let calls = Limits {
            places: workers + 2,
            of_user: workers,
            of_database: workers + 1,
            user_percent: None,
            database_percent: None,
            ..answer_limits(queue_max)
        };
        let answers = answer_limits(queue_max);
        Arc::new(Places {
            lanes: [calls, calls, calls, answers, answers].map(Queue::new),
        })
    }

    /// Requests a place.
    pub fn admission(&self, lane: Lane, share: &Share) -> Admission {
        self.lanes[lane as usize].admission(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const LANES_ALL: [Lane; LANES] = [
        Lane::Calls,
        Lane::Writes,
        Lane::Work,
        Lane::Lists,
        Lane::Answers,
    ];

    fn ask(places: &Places, lane: Lane, owner: &str) -> Option<Place> {
        take(places, lane, &owner.into())
    }

    fn take(places: &Places, lane: Lane, share: &Share) -> Option<Place> {
        let mut admission = places.admission(lane, share);
        match Pin::new(&mut admission).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(place)) => Some(place),
            _ => None,
        }
    }

    #[test]
    fn lanes_do_not_wait_for_each_other() {
        let places = Places::new(2, 0);
        let calls: Vec<_> = (0..2).map(|_| ask(&places, Lane::Calls, "a")).collect();
        assert!(calls.iter().all(Option::is_some));
        assert!(ask(&places, Lane::Calls, "a").is_none());
        for lane in [Lane::Writes, Lane::Work, Lane::Lists, Lane::Answers] {
            assert!(ask(&places, lane, "a").is_some());
        }
    }

    #[test]
    fn databases_whose_clients_are_slow_leave_lists_to_others() {
        let places = Places::new(2, 0);
        let owners = ["a", "b", "c", "d", "e"];
        let held: Vec<Vec<Place>> = owners
            .map(|owner| std::iter::from_fn(|| ask(&places, Lane::Lists, owner)).collect())
            .into();
        assert!(held.iter().all(|of_one| !of_one.is_empty()));
        assert!(ask(&places, Lane::Lists, "other").is_some());
    }

    #[test]
    fn a_user_with_many_databases_leaves_places_of_each_lane_to_others() {
        let places = Places::new(2, 0);
        let of =
            |user: &str, database: usize| Requester::user(user).share(&database.to_string().into());
        for lane in LANES_ALL {
            let many = (0..50).map_while(|n| take(&places, lane, &of("many", n)));
            let held: Vec<_> = many.collect();
            let most = match lane {
                Lane::Lists | Lane::Answers => ANSWERS_OF_USER_MAX,
                Lane::Calls | Lane::Writes | Lane::Work => 2,
            };
            assert_eq!(held.len(), most, "{lane:?}");
            assert!(take(&places, lane, &of("other", 0)).is_some(), "{lane:?}");
        }
    }

    #[test]
    fn a_user_leaves_places_of_each_lane_to_other_users_of_its_database() {
        let places = Places::new(2, 0);
        let share = |user: &str, db: &str| Requester::user(user).share(&db.into());
        for lane in LANES_ALL {
            let take_all = |user: &str| -> Vec<Place> {
                std::iter::from_fn(|| take(&places, lane, &share(user, "db"))).collect()
            };
            let slow = take_all("slow");
            let other = take_all("other");
            assert!(!slow.is_empty() && !other.is_empty(), "{lane:?}");
            // Nor have many users of a database all places.
            let many: Vec<_> = (0..50).map(|n| take_all(&n.to_string())).collect();
            let elsewhere = take(&places, lane, &share("third", "elsewhere"));
            assert!(elsewhere.is_some(), "{lane:?}");
            drop((slow, other, many));
        }
    }
}
