//! Heaps for reduce functions, kept between calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use telemetry::State;

use language::Error;
use quickjs::{Heap, Kept, Limits, Value};

use super::environment::{Entered, Environment, new_heap};
use super::host::Console;
use super::{IDLE_TIME_MAX, Options};

/// Contexts kept in one heap.
const CONTEXTS_MAX: usize = 32;

/// A reduce function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub source: String,
    /// `views.lib` as JSON text.
    pub lib: Option<String>,
}

/// A context with one reduce function.
struct Slot {
    source: Arc<Source>,
    environment: Environment,
    function: Kept,
}

/// A heap with contexts, for one call at a time.
struct Host {
    heap: Heap,
    console: Console,
    /// The one used last is last.
    slots: Vec<Slot>,
    /// When it was last used.
    used: Instant,
}

impl Host {
    fn new(limits: &Limits) -> Result<Host, Error> {
        Ok(Host {
            heap: new_heap(limits)?,
            console: Console::default(),
            slots: Vec::new(),
            used: Instant::now(),
        })
    }

    fn position(&self, source: &Source) -> Option<usize> {
        self.slots.iter().position(|slot| *slot.source == *source)
    }

    /// The context of a function, made unless there is one. It is the last then.
    fn slot(&mut self, source: &Arc<Source>) -> Result<&Slot, Error> {
        let slot = match self.position(source) {
            Some(at) => self.slots.remove(at),
            None => self.new_slot(source)?,
        };
        Ok(self.slots.push_mut(slot))
    }

    fn new_slot(&mut self, source: &Arc<Source>) -> Result<Slot, Error> {
        // What idle contexts take is not there for the others' functions.
        let memory = self.heap.limits().memory_bytes / 4;
        while self.slots.len() == CONTEXTS_MAX
            || (!self.slots.is_empty() && self.heap.memory_used() > memory)
        {
            self.slots.remove(0).environment.close(&mut self.heap);
        }
        let environment = Environment::new(&mut self.heap, &self.console)?;
        let function = environment.enter(&mut self.heap, &self.console, |entered| {
            let modules = entered.modules(source.lib.as_deref())?;
            let function = entered.compile(&source.source, modules.as_ref())?;
            Ok(entered.scope.keep(function))
        });
        match function {
            Ok(function) => Ok(Slot {
                source: source.clone(),
                environment,
                function,
            }),
            Err(error) => {
                environment.close(&mut self.heap);
                Err(error)
            }
        }
    }
}

/// Idle heaps.
pub(super) struct Pool {
    limits: Limits,
    idle_max: usize,
    idle: Mutex<Vec<Host>>,
}

impl Pool {
    pub fn new(options: &Options) -> Pool {
        Pool {
            limits: options.limits(),
            idle_max: options.workers_max,
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Host>> {
        // A panic cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of heaps that nobody used lately.
    pub fn rest(&self) {
        let mut idle = self.idle();
        let ended: Vec<_> = idle
            .extract_if(.., |h| h.used.elapsed() > IDLE_TIME_MAX)
            .collect();
        drop(idle);
        drop(ended);
    }

    /// Runs `work` with a heap, one that has this function if there is one. After a limit was hit the heap is thrown away.
    fn with<T>(
        &self,
        source: Option<&Source>,
        work: impl FnOnce(&mut Host) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _runs = telemetry::enter(State::Functions);
        let mut idle = self.idle();
        let has = |host: &Host| source.is_some_and(|source| host.position(source).is_some());
        let host = match idle.iter().rposition(has) {
            Some(at) => Some(idle.remove(at)),
            None => idle.pop(),
        };
        drop(idle);
        let mut host = match host {
            Some(host) => host,
            None => Host::new(&self.limits)?,
        };
        let result = work(&mut host);
        host.heap.raise_gc_threshold();
        if host.heap.over().is_none() {
            host.used = Instant::now();
            let mut idle = self.idle();
            if idle.len() < self.idle_max {
                idle.push(host);
            }
        }
        result
    }

    /// Runs `work` with a function, compiled, in its context.
    pub fn call<T>(
        &self,
        source: &Arc<Source>,
        work: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>, &Value<'js>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with(Some(source), |host| {
            host.slot(source)?;
            let Host {
                heap,
                console,
                slots,
                ..
            } = host;
            let Some(slot) = slots.last() else {
                return Err(Error::Process("a function has no context".into()));
            };
            slot.environment.enter(heap, console, |entered| {
                work(entered, &entered.scope.kept(&slot.function))
            })
        })
    }

    /// Whether a source is a function.
    pub fn check(&self, source: &str, lib: Option<&str>) -> Result<(), Error> {
        self.with(None, |host| {
            let environment = Environment::new(&mut host.heap, &host.console)?;
            let result = environment.enter(&mut host.heap, &host.console, |entered| {
                let modules = entered.modules(lib)?;
                entered.compile(source, modules.as_ref()).map(drop)
            });
            environment.close(&mut host.heap);
            result
        })
    }
}
