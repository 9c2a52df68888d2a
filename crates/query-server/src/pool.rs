//! The processes of all languages: who uses which, who waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::builtin::Programs;
use crate::language::Error;
use crate::process::{Process, Taught};
use crate::settings::Settings;
use crate::starter::Request;

/// A process that was used within this time is kept for its user as long as another can be started.
const STILL_WANTED: Duration = Duration::from_secs(1);

pub(crate) struct Pool {
    state: Mutex<State>,
    starter: Mutex<Sender<Request>>,
    programs: Programs,
}

struct State {
    settings: Arc<Settings>,
    languages: HashMap<Arc<str>, Language>,
}

#[derive(Default)]
struct Language {
    /// Existing processes, and those that callers may start.
    count: usize,
    /// Those of them that are ending because they are not needed.
    ending: usize,
    /// The longest unused first.
    idle: Vec<Idle>,
    /// Waiting callers, in order of arrival.
    waiting: VecDeque<Arc<Waiter>>,
}

struct Idle {
    process: Process,
    since: Instant,
}

#[derive(Default)]
struct Waiter {
    turn: Mutex<Option<Turn>>,
    came: Condvar,
}

/// The thing given to a waiting caller.
enum Turn {
    Process(Box<Process>),
    /// Leave to start a process, which is counted already.
    Start,
}

impl Waiter {
    fn give(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
        self.came.notify_one();
    }
}

/// A process in use. It returns to the pool when [`Lease::done`] was called before this is dropped;
/// otherwise it is ended.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    language: Arc<str>,
    /// `Some` until dropped.
    process: Option<Process>,
    is_done: bool,
    /// It has not been used by another caller.
    pub is_new: bool,
}

impl Pool {
    pub fn new(settings: Settings, starter: Sender<Request>) -> Self {
        Self {
            state: Mutex::new(State {
                settings: Arc::new(settings),
                languages: HashMap::new(),
            }),
            starter: Mutex::new(starter),
            programs: Programs::default(),
        }
    }

    pub fn settings(&self) -> Arc<Settings> {
        self.state.lock().settings.clone()
    }

    /// New settings: idle processes are ended, and those in use when they come back.
    pub fn configure(&self, settings: Settings) {
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        state.settings = Arc::new(settings);
        let limit = state.settings.process_limit;
        for language in state.languages.values_mut() {
            language.count -= language.idle.len();
            ended.append(&mut language.idle);
            while language.count < limit
                && let Some(waiter) = language.waiting.pop_front()
            {
                language.count += 1;
                waiter.give(Turn::Start);
            }
        }
        drop(state);
        drop(ended);
    }

    /// Leases a process for `language`, preferably the one whose state has the highest rank, 0
    /// being none at all; waits for one when there are enough.
    pub fn lease(
        self: &Arc<Self>,
        language: &str,
        rank: impl Fn(&Taught) -> u8,
    ) -> Result<Lease, Error> {
        loop {
            let (language, turn) = self.turn(language, &rank)?;
            let mut lease = match turn {
                Turn::Process(process) => Lease::new(self, language, *process, false),
                Turn::Start => self.start(language)?,
            };
            if lease.is_new || lease.process().is_well() {
                return Ok(lease);
            }
        }
    }

    fn turn(
        &self,
        language: &str,
        rank: impl Fn(&Taught) -> u8,
    ) -> Result<(Arc<str>, Turn), Error> {
        let mut state = self.state.lock();
        let settings = state.settings.clone();
        if !settings.commands.contains_key(language) {
            return Err(Error::UnknownLanguage(language.to_owned()));
        }
        let (language, pool) = state.language(language);
        if let Some(turn) = pool.turn(&settings, rank) {
            return Ok((language, turn));
        }
        let waiter = Arc::new(Waiter::default());
        pool.waiting.push_back(waiter.clone());
        drop(state);
        let turn = self.wait(&language, &waiter, &settings)?;
        Ok((language, turn))
    }

    fn wait(
        &self,
        language: &Arc<str>,
        waiter: &Arc<Waiter>,
        settings: &Settings,
    ) -> Result<Turn, Error> {
        let deadline = Instant::now() + settings.wait;
        let mut turn = waiter.turn.lock();
        loop {
            if let Some(turn) = turn.take() {
                return Ok(turn);
            }
            if waiter.came.wait_until(&mut turn, deadline).timed_out() && turn.is_none() {
                break;
            }
        }
        drop(turn);
        // Turns are given with the state locked: after this none is given to this waiter.
        let mut state = self.state.lock();
        let (_, pool) = state.language(language);
        pool.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        drop(state);
        waiter.turn.lock().take().ok_or_else(|| Error::Limit {
            limit: "os_process_limit",
            value: settings.process_limit.to_string(),
        })
    }

    /// Starts a process, which is counted already.
    fn start(self: &Arc<Self>, language: Arc<str>) -> Result<Lease, Error> {
        let started = self.start_process(&language).and_then(|mut process| {
            process.reset()?;
            Ok(process)
        });
        match started {
            Ok(process) => Ok(Lease::new(self, language, process, true)),
            Err(error) => {
                self.ended(&language);
                Err(error)
            }
        }
    }

    fn start_process(&self, language: &Arc<str>) -> Result<Process, Error> {
        let settings = self.settings();
        let failed = |why: String| {
            Error::Process(format!(
                "cannot start the query server for {language}: {why}"
            ))
        };
        let line = settings
            .commands
            .get(&**language)
            .ok_or_else(|| Error::UnknownLanguage(language.to_string()))?;
        let command = self.programs.command(line).map_err(failed)?;
        let (reply, child) = sync_channel(1);
        // The thread lives as long as the sender.
        let asked = self.starter.lock().send(Request::Start(command, reply));
        let child = asked
            .ok()
            .and_then(|()| child.recv().ok())
            .unwrap_or_else(|| Err(std::io::Error::other("the server is stopping")))
            .map_err(|error| failed(error.to_string()))?;
        Process::new(child, language.clone(), settings).map_err(|error| failed(error.to_string()))
    }

    /// Records that a process has ended: a waiting caller may start another.
    fn ended(&self, language: &Arc<str>) {
        let mut state = self.state.lock();
        let limit = state.settings.process_limit;
        let (_, pool) = state.language(language);
        if pool.count <= limit
            && let Some(waiter) = pool.waiting.pop_front()
        {
            waiter.give(Turn::Start);
        } else {
            pool.count -= 1;
        }
    }

    /// Returns a process to the pool.
    fn give_back(&self, language: &Arc<str>, mut process: Process) {
        process.rest();
        let mut state = self.state.lock();
        let settings = state.settings.clone();
        let is_stale = !Arc::ptr_eq(&settings, process.settings());
        let (_, pool) = state.language(language);
        let keep = if pool.waiting.is_empty() {
            pool.count - pool.ending <= settings.process_soft_limit
        } else {
            pool.count - pool.ending <= settings.process_limit
        };
        if is_stale || !keep {
            pool.ending += 1;
            drop(state);
            drop(process);
            self.state.lock().language(language).1.ending -= 1;
            self.ended(language);
            return;
        }
        if let Some(waiter) = pool.waiting.pop_front() {
            waiter.give(Turn::Process(Box::new(process)));
            return;
        }
        pool.idle.push(Idle {
            process,
            since: Instant::now(),
        });
        if pool.idle.len() == 1 {
            drop(state);
            let _ = self.starter.lock().send(Request::LookAgain);
        }
    }

    /// Ends processes that were idle for too long. Returns the time of the next check.
    pub fn end_idle(&self) -> Option<Instant> {
        let mut ended = Vec::new();
        let mut next = None::<Instant>;
        let mut state = self.state.lock();
        let limit = state.settings.idle_limit;
        for language in state.languages.values_mut() {
            let expired = language
                .idle
                .iter()
                .take_while(|idle| idle.since.elapsed() >= limit)
                .count();
            ended.extend(language.idle.drain(..expired));
            language.count -= expired;
            let first = language
                .idle
                .first()
                .and_then(|idle| idle.since.checked_add(limit));
            next = next.into_iter().chain(first).min();
        }
        drop(state);
        drop(ended);
        next
    }

    /// Returns the numbers of processes of `language`: in use, and idle.
    pub fn counts(&self, language: &str) -> (usize, usize) {
        let state = self.state.lock();
        state.languages.get(language).map_or((0, 0), |pool| {
            (pool.count - pool.idle.len(), pool.idle.len())
        })
    }
}

impl State {
    fn language(&mut self, name: &str) -> (Arc<str>, &mut Language) {
        let name = match self.languages.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => Arc::from(name),
        };
        (name.clone(), self.languages.entry(name).or_default())
    }
}

impl Language {
    /// Returns an immediately available process: none while others wait.
    fn turn(&mut self, settings: &Settings, rank: impl Fn(&Taught) -> u8) -> Option<Turn> {
        if !self.waiting.is_empty() {
            return None;
        }
        let found = self
            .idle
            .iter()
            .enumerate()
            .map(|(at, idle)| (rank(&idle.process.taught), at))
            .max()
            .filter(|&(rank, _)| rank > 0)
            .map(|(_, at)| at)
            .or_else(|| {
                self.idle
                    .iter()
                    .position(|idle| idle.process.taught == Taught::Nothing)
            })
            .or_else(|| {
                let oldest = self.idle.first()?;
                let may_start =
                    self.count < settings.process_soft_limit.min(settings.process_limit);
                (!may_start || oldest.since.elapsed() >= STILL_WANTED).then_some(0)
            });
        if let Some(at) = found {
            return Some(Turn::Process(Box::new(self.idle.remove(at).process)));
        }
        (self.count < settings.process_limit).then(|| {
            self.count += 1;
            Turn::Start
        })
    }
}

impl Lease {
    fn new(pool: &Arc<Pool>, language: Arc<str>, process: Process, is_new: bool) -> Self {
        Self {
            pool: pool.clone(),
            language,
            process: Some(process),
            is_done: false,
            is_new,
        }
    }

    /// Returns the process.
    pub fn process(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .expect("a lease has its process until it is dropped")
    }

    /// Records that the process waits for the next command, whether or not the last one succeeded.
    /// A process that must not be used again is ended anyway.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        if self.is_done && !process.is_spent {
            self.pool.give_back(&self.language, process);
        } else {
            drop(process);
            self.pool.ended(&self.language);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::starter;

    /// Returns a pool with one language whose server answers `true` to everything.
    fn pool(process_limit: usize) -> Arc<Pool> {
        let mut settings = Settings {
            process_limit,
            ..Settings::default()
        };
        let command = "sh -c 'while read -r line; do echo true; done'";
        settings
            .commands
            .insert("yes".to_owned(), command.to_owned());
        let (starter, requests) = std::sync::mpsc::channel();
        std::thread::spawn(move || starter::run(&requests, || None));
        Arc::new(Pool::new(settings, starter))
    }

    fn waiting(pool: &Pool) -> usize {
        pool.state.lock().languages["yes"].waiting.len()
    }

    #[test]
    fn processes_are_given_in_the_order_in_which_they_were_asked_for() {
        let pool = pool(1);
        let order = Mutex::new(Vec::new());
        let held = pool.lease("yes", |_| 0).unwrap();
        std::thread::scope(|scope| {
            for turn in 0..6 {
                let (pool, order) = (&pool, &order);
                scope.spawn(move || {
                    let lease = pool.lease("yes", |_| 0).unwrap();
                    order.lock().push(turn);
                    // A process that is ended passes its place on as well.
                    if turn % 2 == 0 {
                        lease.done();
                    }
                });
                while waiting(pool) < turn + 1 {
                    std::thread::yield_now();
                }
            }
            held.done();
        });
        assert_eq!(order.into_inner(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(pool.counts("yes"), (0, 0));
    }

    #[test]
    fn who_was_taught_what_is_wanted_is_taken_first() {
        let pool = pool(3);
        let leases: Vec<Lease> = (0..3).map(|_| pool.lease("yes", |_| 0).unwrap()).collect();
        let map = Taught::Maps(Arc::new(crate::language::MapGroup::default()));
        for (mut lease, taught) in
            leases
                .into_iter()
                .zip([map.clone(), Taught::Unknown, Taught::Nothing])
        {
            lease.process().taught = taught;
            lease.done();
        }
        let rank = |taught: &Taught| if *taught == map { 2 } else { 0 };
        let mut leases: Vec<Lease> = (0..3).map(|_| pool.lease("yes", rank).unwrap()).collect();
        let taught: Vec<Taught> = leases
            .iter_mut()
            .map(|lease| lease.process().taught.clone())
            .collect();
        assert_eq!(taught, [map.clone(), Taught::Nothing, Taught::Unknown]);
    }
}
