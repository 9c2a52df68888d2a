//! Which searches of text indexes run now, fairly among users and their databases.
//!
//! A search has a turn for as long as it has a thread and memory: a light or a heavy one, so that
//! heavy searches of a user do not delay light ones. While it works it also has the place
//! of a processor, for a slice of time. Then the place goes to the user that has the fewest, and of
//! the user's databases to the one that has the fewest. So what a search costs another user is one
//! slice, however expensive it is. Heavy searches work
//! on threads with a lower priority: a flood of them leaves the processors to light searches and to
//! other requests.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fair_queue::{Admission, Busy, Limits, Place, Queue, Share};
use search::{Effort, SharedMemory};
use telemetry::lower_priority;

use super::TEXT_ANSWER_BYTES_MAX;
use crate::low_priority::{Threads, WorkOwner};
use crate::rules::DatabaseAs;

/// Turns at a time. A user has at most half as many as are free, and a database twice as many, for its
/// other users.
const LIGHT_TURNS: usize = 32;
const HEAVY_TURNS: usize = 16;
const USER_PERCENT: usize = 50;
const DATABASE_PERCENT: usize = 200;
/// Searches that wait for a turn, of each kind.
const WAITING_MAX: usize = 1000;
/// How long a search works before another one continues.
const SLICE: Duration = Duration::from_millis(20);
/// Places for each processor: some searches wait for the disk.
const PLACES_PER_CORE: usize = 2;

/// `nice` of threads for heavy searches. While requests want all processors, each of these has a third of one: people wait for
/// their answers.
const HEAVY_NICE: i32 = 5;

/// How long a search may take, without the time that others take meanwhile.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A query that examines more values than this is heavy.
const LIGHT_VALUES_MAX: u64 = 200_000;
/// A longer query is heavy.
const LIGHT_BYTES_MAX: usize = 1 << 10;
/// More hits, or more hits with their documents, make a search heavy.
const LIGHT_HITS_MAX: usize = 1000;
const LIGHT_DOCS_MAX: usize = 50;
/// These characters may make a query search for many words, for positions, or for parts within
/// parts.
const HEAVY_SYNTAX: [char; 8] = ['*', '?', '~', '/', '[', '{', '"', '('];

/// Properties of a search that determine its cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextCost<'a> {
    /// The query, in Lucene's syntax.
    pub q: &'a str,
    /// Fields that hits are sorted by, and fields and ranges that they are counted by.
    pub of_hit: usize,
    /// Groups; each has a list of hits.
    pub groups: usize,
    /// Values that hits are narrowed to.
    pub values: usize,
    /// Whether texts are highlighted, or scores explained.
    pub reads_stored_text: bool,
    /// Hits at most.
    pub hits: usize,
    /// Whether the documents of hits are read.
    pub reads_docs: bool,
}

impl TextCost<'_> {
    /// Whether a search among this number of documents may be slow.
    fn is_heavy(&self, docs: u64) -> bool {
        let passes = 1 + self.groups as u64;
        let of_hit = 1 + self.of_hit as u64;
        let values = docs
            .saturating_mul(of_hit)
            .saturating_mul(passes)
            .saturating_add(self.values as u64);
        let hits_max = match self.reads_docs {
            true => LIGHT_DOCS_MAX,
            false => LIGHT_HITS_MAX,
        };
        values > LIGHT_VALUES_MAX
            || self.hits > hits_max
            || self.reads_stored_text
            || self.q.len() > LIGHT_BYTES_MAX
            || self.q.contains(HEAVY_SYNTAX)
    }
}

/// Which threads make an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerThreads {
    /// Threads of the runtime for blocking work.
    Blocking,
    /// Threads for heavy searches, which have a lower priority. The caller holds a turn for heavy
    /// searches.
    Heavy,
}

impl AnswerThreads {
    /// Does `work` on such a thread. Returns `None` when it panics.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // A thread for each turn: searches wait for places on them.
        static HEAVY: LazyLock<Threads> =
            LazyLock::new(|| Threads::new("search", || lower_priority(HEAVY_NICE), HEAVY_TURNS));
        match self {
            AnswerThreads::Blocking => tokio::task::spawn_blocking(work).await.ok(),
            // The owner of a turn needs no other.
            AnswerThreads::Heavy => HEAVY.start(WorkOwner::default(), work).await.ok(),
        }
    }
}

/// A turn to search, until it is dropped, and where to search.
#[derive(Debug)]
pub struct TextTurn {
    turn: Place,
    threads: AnswerThreads,
}

impl TextTurn {
    /// Does `work` in this turn. Work that has started continues when the caller stops waiting for
    /// it, and holds the turn until it ends. Returns `None` when it panics.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let TextTurn { turn, threads } = self;
        let in_turn = move || {
            let _turn = turn;
            work()
        };
        threads.run(in_turn).await
    }
}

/// The turns of a server.
#[derive(Debug)]
pub(crate) struct TextTurns {
    light: Arc<Queue>,
    heavy: Arc<Queue>,
    places: Arc<Queue>,
    memory: Arc<SharedMemory>,
}

impl TextTurns {
    /// Creates the queue for searches that share this much memory, in bytes.
    pub fn new(memory_bytes: usize) -> TextTurns {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // One for other users of a database, and one for other databases.
        let places = PLACES_PER_CORE * cores + 1;
        let turns = |turns| {
            Queue::new(Limits {
                user_percent: Some(USER_PERCENT),
                database_percent: Some(DATABASE_PERCENT),
                waiting_max: WAITING_MAX,
                ..Limits::new(turns)
            })
        };
        TextTurns {
            light: turns(LIGHT_TURNS),
            heavy: turns(HEAVY_TURNS),
            places: Queue::new(Limits {
                of_user: places - 2,
                of_database: places - 1,
                slice: SLICE,
                ..Limits::new(places)
            }),
            memory: SharedMemory::new(memory_bytes, LIGHT_TURNS + HEAVY_TURNS),
        }
    }

    /// Bytes that searches have now, and the most that they had.
    pub fn memory_bytes(&self) -> (usize, usize) {
        self.memory.used_bytes()
    }
}

/// The place of a search while it works.
struct Working {
    places: Arc<Queue>,
    share: Share,
    place: RefCell<Option<Place>>,
}

impl Working {
    /// Waits for a place, on this thread: turns bound how many do.
    fn begin(&self) {
        // Waiting is patient, and is never refused.
        *self.place.borrow_mut() = self.places.admission(&self.share).wait().ok();
    }

    /// Lets others run when the slice is over; returns how long that took.
    fn pause(&self) -> Duration {
        let is_wanted = self.place.borrow().as_ref().is_some_and(Place::is_wanted);
        if !is_wanted {
            return Duration::ZERO;
        }
        let since = Instant::now();
        self.place.borrow_mut().take();
        self.begin();
        since.elapsed()
    }
}

impl DatabaseAs {
    /// Waits for a turn to search a text index of `docs` documents.
    ///
    /// # Errors
    /// [`Busy`]: too many wait already.
    pub async fn text_turn(&self, docs: u64, cost: &TextCost<'_>) -> Result<TextTurn, Busy> {
        let (admission, threads) = self.text_turns(docs, cost);
        let turn = admission().await?;
        Ok(TextTurn { turn, threads })
    }

    /// Requests turns, one after another, for the pieces of a response; and returns the threads
    /// that make them.
    pub(crate) fn text_turns(
        &self,
        docs: u64,
        cost: &TextCost<'_>,
    ) -> (
        impl Fn() -> Admission + Send + 'static + use<>,
        AnswerThreads,
    ) {
        let turns = &self.shared_views().text_turns;
        let (queue, threads) = match cost.is_heavy(docs) {
            true => (turns.heavy.clone(), AnswerThreads::Heavy),
            false => (turns.light.clone(), AnswerThreads::Blocking),
        };
        let share = self.share();
        (move || queue.admission(&share), threads)
    }

    /// Waits until a search of the caller may work, and returns its allowed effort. The caller
    /// has a turn. Blocks.
    pub(crate) fn text_effort(&self) -> Effort {
        let turns = &self.shared_views().text_turns;
        let working = Working {
            places: turns.places.clone(),
            share: self.share(),
            place: RefCell::default(),
        };
        working.begin();
        let effort = Effort::new(TIME_MAX, TEXT_ANSWER_BYTES_MAX)
            .with_memory(turns.memory.clone(), working.share.user());
        effort.with_pauses(move || working.pause())
    }
}

#[cfg(test)]
mod tests {
    use fair_queue::Requester;

    use super::*;

    #[test]
    fn what_a_search_is_asked_for_makes_it_heavy() {
        let plain = TextCost {
            q: "some words",
            ..TextCost::default()
        };
        assert!(!plain.is_heavy(100_000));
        assert!(plain.is_heavy(1_000_000));
        let heavy = [
            TextCost { q: "w*", ..plain },
            TextCost {
                q: "word~",
                ..plain
            },
            TextCost {
                q: "/w.*/",
                ..plain
            },
            TextCost {
                of_hit: 100,
                ..plain
            },
            TextCost {
                groups: 200,
                ..plain
            },
            TextCost {
                values: 1 << 20,
                ..plain
            },
            TextCost {
                reads_stored_text: true,
                ..plain
            },
            TextCost {
                hits: 5000,
                ..plain
            },
            TextCost {
                hits: 200,
                reads_docs: true,
                ..plain
            },
        ];
        for cost in heavy {
            assert!(cost.is_heavy(10_000), "{cost:?}");
        }
        assert!(
            !TextCost {
                of_hit: 100,
                ..plain
            }
            .is_heavy(100)
        );
    }

    #[test]
    fn a_search_that_others_wait_for_gives_its_place_away() {
        let turns = TextTurns::new(0);
        let places = turns.places.clone();
        let mut held: Vec<Place> =
            std::iter::from_fn(|| places.try_place(&"other".into())).collect();
        held.extend(places.try_place(&"fourth".into()));
        let working = |database: &str| Working {
            places: places.clone(),
            share: database.into(),
            place: RefCell::default(),
        };
        let own = working("own");
        own.begin();
        assert_eq!(own.pause(), Duration::ZERO);
        std::thread::scope(|scope| {
            let third = scope.spawn(|| {
                let third = working("third");
                third.begin();
                third.place.borrow().is_some()
            });
            // The slice is over at some time, and the third database is served.
            while !third.is_finished() {
                own.pause();
                std::thread::yield_now();
            }
            assert!(third.join().unwrap());
        });
        drop(held);
    }

    #[test]
    fn a_user_leaves_turns_and_places_to_other_users_of_its_database() {
        let turns = TextTurns::new(0);
        for queue in [&turns.light, &turns.heavy, &turns.places] {
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
