//! Runtimes for reduce functions, kept between calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rquickjs_sys as qjs;

use super::Options;
use super::context::{Context, Value};
use super::runtime::Runtime;
use crate::Error;

/// Contexts kept in one runtime.
const CONTEXTS_MAX: usize = 32;

/// What a context is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A reduce function's source, and `views.lib`.
    Reduce(Arc<(String, Option<String>)>),
}

pub(super) struct Slot {
    purpose: Purpose,
    pub context: Context,
    /// The reduce function; owned.
    pub function: qjs::JSValue,
}

/// A runtime with contexts, for one call at a time.
pub(super) struct Host {
    /// The one used last is last.
    slots: Vec<Slot>,
    pub runtime: Runtime,
}

// SAFETY: see `Runtime`; all in it is the runtime's.
unsafe impl Send for Host {}

impl Host {
    fn new(options: &Options) -> Result<Host, Error> {
        Ok(Host {
            slots: Vec::new(),
            runtime: Runtime::new(options)?,
        })
    }

    fn has(&self, purpose: &Purpose) -> bool {
        self.slots.iter().any(|slot| slot.purpose == *purpose)
    }

    /// The context for a purpose, made by `set_up` unless there is one. The runtime is entered.
    pub fn slot(
        &mut self,
        purpose: &Purpose,
        set_up: impl FnOnce(&mut Context) -> Result<Option<Value>, Error>,
    ) -> Result<&mut Slot, Error> {
        let known = self.slots.iter().position(|slot| slot.purpose == *purpose);
        let slot = match known {
            Some(at) => self.slots.remove(at),
            None => {
                // What idle contexts take is not there for the others' functions.
                let memory = self.runtime.control().options.memory_bytes / 4;
                while self.slots.len() == CONTEXTS_MAX
                    || (!self.slots.is_empty() && self.runtime.memory_used() > memory)
                {
                    self.slots.remove(0).close();
                }
                let mut context = Context::new(&self.runtime)?;
                match set_up(&mut context) {
                    Ok(function) => Slot {
                        purpose: purpose.clone(),
                        function: function.map_or(qjs::JS_UNDEFINED, Value::into_raw),
                        context,
                    },
                    Err(error) => {
                        context.close();
                        return Err(error);
                    }
                }
            }
        };
        Ok(self.slots.push_mut(slot))
    }
}

impl Slot {
    fn close(self) {
        // SAFETY: the slot owns the function, and is gone afterwards.
        unsafe { qjs::JS_FreeValue(self.context.ctx(), self.function) };
        self.context.close();
    }
}

/// Idle runtimes.
pub(super) struct Pool {
    options: Options,
    idle: Mutex<Vec<Host>>,
}

impl Pool {
    pub fn new(options: &Options) -> Pool {
        Pool {
            options: options.clone(),
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Host>> {
        // A panic cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with a runtime that is entered, one that has this purpose's context if there is one. After a limit was
    /// hit the runtime is thrown away.
    pub fn with<T>(
        &self,
        purpose: Option<&Purpose>,
        work: impl FnOnce(&mut Host) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut idle = self.idle();
        let fitting = purpose.and_then(|purpose| idle.iter().rposition(|host| host.has(purpose)));
        let host = match fitting {
            Some(at) => Some(idle.remove(at)),
            None => idle.pop(),
        };
        drop(idle);
        let mut host = match host {
            Some(host) => host,
            None => Host::new(&self.options)?,
        };
        let entrance = host.runtime.entrance();
        // SAFETY: the host is this thread's until it is given back below.
        let result = unsafe { entrance.enter(|| work(&mut host)) };
        host.runtime.raise_gc_threshold();
        if host.runtime.control().over().is_none() {
            let mut idle = self.idle();
            if idle.len() < self.options.workers_max {
                idle.push(host);
            }
        }
        result
    }
}
