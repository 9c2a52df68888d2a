//! Send times of the clients of a timed loop: each after its previous reply, or at a rate,
//! independent of the server's speed.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// How the options want the timed loops of a server to be. By default: each client sends as soon as it can, for a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pace {
    /// Requests a second, all clients of a loop together. A loop is open then.
    pub(crate) rate: Option<f64>,
    /// Requests of each client, in place of a time.
    pub(crate) requests: Option<u64>,
    /// Each request has a connection of its own.
    pub(crate) new_connections: bool,
}

impl Pace {
    /// Whether each client sends as soon as it can, for a time.
    pub(crate) fn is_by_time(self) -> bool {
        self.rate.is_none() && self.requests.is_none()
    }

    /// A node's share of a loop that is spread over several nodes.
    pub(crate) fn shared_by(self, nodes: usize) -> Self {
        Self {
            rate: self.rate.map(|rate| rate / nodes as f64),
            ..self
        }
    }

    /// A round's share of the requests.
    pub(crate) fn in_round(self, round: u32, rounds: u32) -> Self {
        let until = |round: u32, all: u64| all * u64::from(round) / u64::from(rounds);
        Self {
            requests: self
                .requests
                .map(|all| until(round + 1, all) - until(round, all)),
            ..self
        }
    }

    /// Number of rounds, at most `most`: not more than each client has requests.
    pub(crate) fn rounds(self, most: u32) -> u32 {
        self.requests.map_or(most, |requests| {
            most.min(u32::try_from(requests).unwrap_or(most)).max(1)
        })
    }
}

/// Requests of an open loop, and those that were not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were not sent, although the loop ran twice its length: the server cannot
    /// sustain the rate. Their latencies include the waiting time until then.
    pub unsent: u64,
    /// Most requests that were due and not sent at one time.
    pub backlog_max: u64,
    /// How late the client itself was, in microseconds, added up over the requests that no reply held up.
    pub client_late_us: u64,
    /// How many of those there were.
    pub client_waits: u64,
    /// How late the last request of each round was sent, in microseconds, added up: a server that falls behind a little more with each
    /// request is far behind then.
    pub last_late_us: u64,
}

impl OpenLoop {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            due: self.due + other.due,
            unsent: self.unsent + other.unsent,
            backlog_max: self.backlog_max.max(other.backlog_max),
            client_late_us: self.client_late_us + other.client_late_us,
            client_waits: self.client_waits + other.client_waits,
            last_late_us: self.last_late_us + other.last_late_us,
        }
    }
}

/// A loop of several clients at a pace. Its clock starts when it is created, and it ends when it is
/// dropped.
pub(crate) struct Pacing {
    start: Instant,
    deadline: Option<Instant>,
    /// Requests of each client, where there is no schedule.
    requests: Option<u64>,
    schedule: Option<Rc<Schedule>>,
}

impl Pacing {
    /// Starts a loop of `clients` clients, for `length`. Without a length there is no pace either:
    /// each client ends on its own.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(pace: Pace, length: Option<Duration>, clients: usize) -> io::Result<Self> {
        let pace = length.map_or_else(Pace::default, |_| pace);
        let start = Instant::now();
        let all_requests = pace.requests.map(|each| each * clients as u64);
        let schedule = pace
            .rate
            .zip(length)
            .map(|(rate, length)| Schedule::new(start, rate, length, all_requests, clients))
            .transpose()?;
        Ok(Self {
            start,
            deadline: length
                .map(|length| start + length)
                .filter(|_| pace.is_by_time()),
            requests: pace.requests.filter(|_| schedule.is_none()),
            schedule,
        })
    }

    /// The turns of one client.
    pub(crate) fn turns(&self) -> Turns {
        Turns {
            deadline: self.deadline,
            left: self.requests,
            schedule: self.schedule.clone(),
            is_first: true,
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The result of a loop at a rate, and the time for which each unsent request had been due.
    pub(crate) fn end(&self) -> Option<(OpenLoop, Vec<Duration>)> {
        self.schedule.as_ref().map(|schedule| schedule.end())
    }
}

/// When one client of a loop sends, and when it ends.
pub(crate) struct Turns {
    deadline: Option<Instant>,
    left: Option<u64>,
    schedule: Option<Rc<Schedule>>,
    is_first: bool,
}

impl Turns {
    /// Waits for the client's next turn; `None` at the end. Each client has at least one turn,
    /// however short the time is.
    pub(crate) async fn next(&mut self) -> Option<Turn> {
        if let Some(schedule) = &self.schedule {
            return schedule.next().await.map(Turn::DueSince);
        }
        let is_first = std::mem::take(&mut self.is_first);
        let is_late = |deadline: Instant| Instant::now() >= deadline;
        if !is_first && self.deadline.is_some_and(is_late) {
            return None;
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        Some(Turn::Now)
    }
}

/// A client's turn to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As soon as it can.
    Now,
    /// Send immediately: it should have been sent at this time.
    DueSince(Instant),
}

impl Turn {
    /// The time from which the latency of a request sent now counts.
    pub(crate) fn start(self) -> Instant {
        match self {
            Self::Now => Instant::now(),
            Self::DueSince(due) => due,
        }
    }
}

/// Longest sleep of the thread that releases requests, so that it notices the end of the run.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Due times of the requests of an open loop. All clients of the loop share it: each idle client
/// takes the next request.
struct Schedule {
    times: Times,
    /// No request is sent after this; those that are due by then and not sent exceed the server's
    /// capacity.
    give_up: Instant,
    next: Cell<u64>,
    told: Cell<OpenLoop>,
    /// One for each request that is due and not taken.
    released: Arc<Semaphore>,
    is_over: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Times {
    start: Instant,
    rate: f64,
    due: u64,
}

impl Times {
    fn of(self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// How many requests are due.
    fn passed(self, now: Instant) -> u64 {
        match now.checked_duration_since(self.start) {
            Some(since) => ((since.as_secs_f64() * self.rate) as u64 + 1).min(self.due),
            None => 0,
        }
    }
}

impl Schedule {
    /// A schedule of `rate` requests a second, from `start` on, for `length`, or for a number of
    /// requests, by `clients` clients.
    ///
    /// # Errors
    /// When no thread can be started.
    fn new(
        start: Instant,
        rate: f64,
        length: Duration,
        requests: Option<u64>,
        clients: usize,
    ) -> io::Result<Rc<Self>> {
        let due = requests.unwrap_or((rate * length.as_secs_f64()).floor() as u64);
        let due = due.max(1);
        let length = Duration::from_secs_f64(due as f64 / rate);
        let times = Times { start, rate, due };
        let released = Arc::new(Semaphore::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (releasing, over) = (Arc::clone(&released), Arc::clone(&is_over));
        std::thread::Builder::new()
            .name("bench-pace".to_owned())
            .spawn(move || release(times, &releasing, &over, clients))?;
        Ok(Rc::new(Self {
            times,
            give_up: start + length * 2,
            next: Cell::new(0),
            told: Cell::new(OpenLoop {
                due,
                ..OpenLoop::default()
            }),
            released,
            is_over,
        }))
    }

    /// Waits until the next request is due, and returns its due time; `None` after the last one.
    async fn next(&self) -> Option<Instant> {
        let waits = self.released.available_permits() == 0;
        self.released.acquire().await.ok()?.forget();
        let (number, now) = (self.next.get(), Instant::now());
        let mut told = self.told.get();
        if number >= told.due || now >= self.give_up {
            return None;
        }
        self.next.set(number + 1);
        let due = self.times.of(number);
        let late_us = (now - due).as_micros() as u64;
        if number + 1 == told.due {
            told.last_late_us = late_us;
        }
        if waits {
            told.client_late_us += late_us;
            told.client_waits += 1;
        }
        let backlog = self.times.passed(now).saturating_sub(number);
        told.backlog_max = told.backlog_max.max(backlog);
        self.told.set(told);
        Some(due)
    }

    /// The result, and the time for which each unsent request had been due.
    fn end(&self) -> (OpenLoop, Vec<Duration>) {
        let mut told = self.told.get();
        told.unsent = told.due - self.next.get();
        let now = Instant::now();
        let unsent = self.next.get()..told.due;
        let waits = unsent.filter_map(|number| now.checked_duration_since(self.times.of(number)));
        (told, waits.collect())
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Releases each request when it is due, to some 100 microseconds: the runtime's own timers have a
/// resolution of milliseconds. At the end it signals to every client that there are no more.
fn release(times: Times, released: &Semaphore, is_over: &AtomicBool, clients: usize) {
    let mut done = 0;
    while done < times.due && !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        let passed = times.passed(now);
        released.add_permits((passed - done) as usize);
        done = passed;
        let until = times.of(done).saturating_duration_since(now);
        std::thread::sleep(until.min(SLEEP_MAX));
    }
    released.add_permits(clients);
}

/// Processor time of the thread that sends, and time that it was ready and had no processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientTime {
    pub(crate) cpu_seconds: f64,
    pub(crate) waited_seconds: f64,
}

impl ClientTime {
    /// Processor time of this thread until now.
    pub(crate) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        // The second number are nanoseconds on a run queue (the kernel's Documentation/scheduler/sched-stats.rst).
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat");
        let waited_ns: Option<f64> = statistics.ok().and_then(|text| {
            let waited = text.split_ascii_whitespace().nth(1)?;
            waited.parse().ok()
        });
        Self {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            waited_seconds: waited_ns.unwrap_or(0.0) / 1e9,
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            waited_seconds: self.waited_seconds - earlier.waited_seconds,
        }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            waited_seconds: self.waited_seconds + other.waited_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_share_all_requests_between_them() {
        for (requests, rounds) in [(400, 5), (7, 5), (1, 1), (1_000_003, 3)] {
            let pace = Pace {
                requests: Some(requests),
                ..Pace::default()
            };
            let shares = (0..rounds).map(|round| pace.in_round(round, rounds).requests.unwrap());
            let shares: Vec<u64> = shares.collect();
            assert_eq!(shares.iter().sum::<u64>(), requests);
            assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
        }
    }

    #[test]
    fn there_are_no_more_rounds_than_requests() {
        let rounds = |requests| {
            let pace = Pace {
                requests,
                ..Pace::default()
            };
            pace.rounds(5)
        };
        assert_eq!([None, Some(400), Some(3)].map(rounds), [5, 5, 3]);
    }

    async fn turns_of(pacing: &Pacing) -> u64 {
        let (mut turns, mut count) = (pacing.turns(), 0);
        while turns.next().await.is_some() {
            count += 1;
        }
        count
    }

    #[tokio::test]
    async fn each_client_has_the_turns_that_its_pace_gives_it() {
        let requests = |requests| Pace {
            requests,
            ..Pace::default()
        };
        let for_ever = Some(Duration::from_secs(86_400));
        let counted = Pacing::start(requests(Some(7)), for_ever, 2).unwrap();
        assert_eq!([turns_of(&counted).await, turns_of(&counted).await], [7, 7]);
        assert_eq!(counted.end(), None);
        for new_connections in [false, true] {
            let pace = Pace {
                new_connections,
                ..Pace::default()
            };
            let no_time = Pacing::start(pace, Some(Duration::ZERO), 1).unwrap();
            assert_eq!(turns_of(&no_time).await, 1);
        }
        // A loop that ends on its own has no pace.
        let exhaustive = Pacing::start(requests(Some(1)), None, 1).unwrap();
        let mut turns = exhaustive.turns();
        for _ in 0..3 {
            assert_eq!(turns.next().await, Some(Turn::Now));
        }
    }

    #[tokio::test]
    async fn at_a_rate_all_clients_share_the_turns() {
        let pace = Pace {
            rate: Some(1_000.0),
            requests: Some(5),
            ..Pace::default()
        };
        let pacing = Pacing::start(pace, Some(Duration::from_secs(1)), 2).unwrap();
        let turns = turns_of(&pacing).await;
        let (told, waits) = pacing.end().unwrap();
        assert_eq!((told.due, turns + told.unsent), (10, 10));
        assert_eq!(waits.len() as u64, told.unsent);
    }

    fn schedule(start: Instant, rate: f64, length_ms: u64) -> Rc<Schedule> {
        Schedule::new(start, rate, Duration::from_millis(length_ms), None, 1).unwrap()
    }

    #[tokio::test]
    async fn a_schedule_hands_out_each_request_once_and_not_before_it_is_due() {
        let start = Instant::now();
        let schedule = schedule(start, 1_000.0, 20);
        let mut number = 0;
        while let Some(due) = schedule.next().await {
            assert_eq!(due, schedule.times.of(number));
            assert!(Instant::now() >= due);
            number += 1;
        }
        let (told, waits) = schedule.end();
        // Requests that a busy machine did not send in time have waited.
        assert_eq!((number + told.unsent, told.due), (20, 20));
        assert!(number > 0);
        assert_eq!(waits.len() as u64, told.unsent);
    }

    #[tokio::test]
    async fn what_a_slow_client_leaves_is_told() {
        let start = Instant::now() - Duration::from_secs(10);
        // Due for 4 seconds and as long again, until 2 seconds ago.
        let schedule = schedule(start, 100.0, 4_000);
        assert_eq!(schedule.next().await, None);
        let (told, waits) = schedule.end();
        assert_eq!((told.due, told.unsent), (400, 400));
        assert_eq!(waits.len(), 400);
        assert!(waits[0] >= Duration::from_secs(10) && waits[399] >= Duration::from_secs(6));
    }

    #[tokio::test]
    async fn a_backlog_is_seen() {
        let start = Instant::now() - Duration::from_millis(100);
        let schedule = schedule(start, 1_000.0, 60_000);
        schedule.next().await.unwrap();
        assert!(schedule.end().0.backlog_max >= 100);
    }

    #[tokio::test]
    async fn a_schedule_that_is_dropped_ends_its_thread() {
        let schedule = schedule(Instant::now(), 0.001, 86_400_000);
        let released = Arc::clone(&schedule.released);
        drop(schedule);
        // The thread's share of the semaphore goes with it.
        while Arc::strong_count(&released) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
