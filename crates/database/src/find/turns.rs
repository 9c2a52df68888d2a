//! Which scans run now, fairly among users and their databases.
//!
//! A query that may examine many documents has a turn for as long as it has a thread. While it
//! examines documents each of its threads also has the place of a processor, for a slice of time.
//! Then the place goes to the user that has the fewest, and of the user's databases to the one that
//! has the fewest. So what a scan costs another user is one slice, however much it reads.

use std::sync::Arc;
use std::time::Duration;

use fair_queue::{Admission, Limits, Place, Queue, Share};

/// Turns at a time. A user has at most half as many as are free, and a database twice as many, for its
/// other users.
const TURNS: usize = 32;
const USER_PERCENT: usize = 50;
const DATABASE_PERCENT: usize = 200;
/// Queries that wait for a turn.
const WAITING_MAX: usize = 1000;
/// How long a scan works before another one continues.
const SLICE: Duration = Duration::from_millis(20);
/// Places for each processor: some scans wait for the disk.
const PLACES_PER_CORE: usize = 2;

/// The turns of a server.
#[derive(Debug)]
pub(crate) struct ScanTurns {
    turns: Arc<Queue>,
    places: Arc<Queue>,
}

impl Default for ScanTurns {
    fn default() -> ScanTurns {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // One for other users of a database, and one for other databases.
        let places = PLACES_PER_CORE * cores + 1;
        ScanTurns {
            turns: Queue::new(Limits {
                user_percent: Some(USER_PERCENT),
                database_percent: Some(DATABASE_PERCENT),
                waiting_max: WAITING_MAX,
                ..Limits::new(TURNS)
            }),
            places: Queue::new(Limits {
                of_user: places - 2,
                of_database: places - 1,
                slice: SLICE,
                ..Limits::new(places)
            }),
        }
    }
}

impl ScanTurns {
    /// Requests turns, one after another, for the pieces of an answer.
    pub fn of(&self, share: Share) -> impl Fn() -> Admission + Send + 'static + use<> {
        let turns = self.turns.clone();
        move || turns.admission(&share)
    }

    /// Waits for the place of a thread. The caller has a turn, or is a thread of a query that has
    /// one, which limits the number of waiting callers.
    pub fn begin(&self, share: Share) -> Working {
        let mut working = Working {
            places: self.places.clone(),
            share,
            place: None,
        };
        working.begin();
        working
    }

    /// Takes all free places, each for another user.
    #[cfg(test)]
    pub fn take_all(&self) -> Vec<Place> {
        let take = |n: usize| {
            let requester = fair_queue::Requester::user(&n.to_string());
            self.places
                .try_place(&requester.share(&n.to_string().into()))
        };
        (0..).map_while(take).collect()
    }
}

/// The place of a thread while it examines documents.
pub(crate) struct Working {
    places: Arc<Queue>,
    share: Share,
    place: Option<Place>,
}

impl Working {
    fn begin(&mut self) {
        // Waiting is patient, and is never refused.
        self.place = self.places.admission(&self.share).wait().ok();
    }

    /// Lets others run when the slice is over and others wait.
    pub fn pause(&mut self) {
        if self.place.as_ref().is_some_and(Place::is_wanted) {
            self.place = None;
            self.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use fair_queue::Requester;

    use super::*;

    #[test]
    fn a_scan_gives_its_place_to_another_database() {
        let turns = ScanTurns::default();
        let mut held: Vec<Place> =
            std::iter::from_fn(|| turns.places.try_place(&"other".into())).collect();
        held.extend(turns.places.try_place(&"fourth".into()));
        let mut own = turns.begin("own".into());
        own.pause();
        assert!(own.place.is_some());
        std::thread::scope(|scope| {
            let third = scope.spawn(|| turns.begin("third".into()).place.is_some());
            // The slice is over at some time, and the third database is served.
            while !third.is_finished() {
                own.pause();
                std::thread::yield_now();
            }
            assert!(third.join().expect("no panic"));
        });
        drop(held);
    }

    #[test]
    fn a_user_with_many_databases_leaves_turns_to_others() {
        let turns = ScanTurns::default();
        let take = |user: &str, database: usize| {
            let share = Requester::user(user).share(&database.to_string().into());
            turns.turns.try_place(&share)
        };
        let many: Vec<Place> = (0..TURNS).map_while(|n| take("many", n)).collect();
        assert!(many.len() <= TURNS / 2, "{} turns", many.len());
        assert!(take("other", 0).is_some());
    }

    #[test]
    fn a_database_leaves_turns_to_others() {
        let turns = ScanTurns::default();
        let take = |database: &str| turns.turns.try_place(&database.into());
        let one: Vec<Place> = std::iter::from_fn(|| take("one")).collect();
        assert!(one.len() <= TURNS / 2, "{} turns", one.len());
        assert!(take("two").is_some());
    }

    #[test]
    fn a_user_leaves_turns_and_places_to_other_users_of_its_database() {
        let scans = ScanTurns::default();
        for queue in [&scans.turns, &scans.places] {
            let take = |user: &str, database: &str| {
                queue.try_place(&Requester::user(user).share(&database.into()))
            };
            let of_one: Vec<Place> = std::iter::from_fn(|| take("one", "db")).collect();
            let other = take("other", "db");
            assert!(!of_one.is_empty() && other.is_some());
            let many = (0..100).map_while(|n| take(&n.to_string(), "db"));
            let many: Vec<Place> = many.collect();
            assert!(take("other", "another").is_some());
            drop((of_one, other, many));
        }
    }
}
