//! Filters, updates, shows, lists, validations and rewrites, in this thread.
//!
//! What one call changes in its heap is not seen by the next: heaps are taken back to what they were when the design document
//! had just been read, its function compiled and its modules run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use language::{DesignDoc, Designs, Error, ListIo, SLICE};
use quickjs::{Limits, RewindingHeap, Value};

use super::environment::{Entered, Environment, Prelude, new_heap};
use super::host::{Console, Listing};
use super::{IDLE_TIME_MAX, Options};

/// Heaps kept for the next calls.
const IDLE_MAX: usize = 8;

/// Heaps of functions of design documents.
pub(super) struct Heaps {
    limits: Limits,
    /// The one used last is last.
    idle: Mutex<Vec<Prepared>>,
}

/// The heap of one function, taken back after each call.
struct Prepared {
    heap: RewindingHeap,
    environment: Environment,
    console: Console,
    ddoc: DesignDoc,
    path: Vec<String>,
    /// Modules that were run before the heap's image was made; `None` until the function's first call tells which.
    modules: Option<Vec<u8>>,
    /// When it was last used.
    used: Instant,
}

impl Heaps {
    pub fn new(options: &Options) -> Heaps {
        Heaps {
            limits: options.limits(),
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Prepared>> {
        // A panic cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of heaps that nobody used lately.
    pub fn rest(&self) {
        let mut idle = self.idle();
        let ended: Vec<_> = idle
            .extract_if(.., |p| p.used.elapsed() > IDLE_TIME_MAX)
            .collect();
        drop(idle);
        drop(ended);
    }

    fn take(&self, ddoc: &DesignDoc, path: &[&str]) -> Result<Prepared, Error> {
        let mut idle = self.idle();
        let same = |known: &DesignDoc| Arc::ptr_eq(&known.json, &ddoc.json) || known == ddoc;
        let fits = |prepared: &Prepared| prepared.path == path && same(&prepared.ddoc);
        let found = idle.iter().rposition(fits).map(|at| idle.remove(at));
        drop(idle);
        match found {
            Some(prepared) => Ok(prepared),
            None => Prepared::new(&self.limits, ddoc, path, None),
        }
    }

    /// Runs `work` with the heap of a function. After a limit was hit the heap is thrown away.
    fn with<T>(
        &self,
        ddoc: &DesignDoc,
        path: &[&str],
        work: impl FnOnce(&mut Prepared) -> T,
    ) -> Result<T, Error> {
        let mut prepared = self.take(ddoc, path)?;
        let answer = work(&mut prepared);
        self.give_back(prepared);
        Ok(answer)
    }

    fn give_back(&self, mut prepared: Prepared) {
        if prepared.heap.over().is_some() {
            return;
        }
        if prepared.modules.is_none() {
            let modules = prepared.enter(|entered| entered.modules_of_design());
            let modules = modules.unwrap_or_else(|_| b"[]".to_vec());
            if modules != b"[]" {
                let path: Vec<&str> = prepared.path.iter().map(String::as_str).collect();
                // One whose modules cannot be run ahead of a call goes on as it is.
                let again = Prepared::new(&self.limits, &prepared.ddoc, &path, Some(&modules));
                if let Ok(again) = again {
                    prepared = again;
                }
            }
            prepared.modules = Some(modules);
        }
        prepared.heap.rewind();
        // What an idle heap takes is taken from the process.
        if prepared.heap.memory_used() > self.limits.memory_bytes / 4 {
            return;
        }
        prepared.used = Instant::now();
        let mut idle = self.idle();
        if idle.len() == IDLE_MAX {
            drop(idle.remove(0));
        }
        idle.push(prepared);
    }
}

impl Prepared {
    fn new(
        limits: &Limits,
        ddoc: &DesignDoc,
        path: &[&str],
        modules: Option<&[u8]>,
    ) -> Result<Prepared, Error> {
        let mut heap = new_heap(limits)?;
        let console = Console::new(ddoc.id.clone());
        let environment = Environment::new(&mut heap, &console)?;
        environment.enter(&mut heap, &console, |entered| {
            entered.done(entered.scope.define_random())?;
            let id = entered.string(&ddoc.id)?;
            let value = entered.value(&ddoc.json)?;
            entered.prelude(Prelude::AddDesign, [&id, &value])?;
            let path = entered.strings(path)?;
            let modules = entered.value(modules.unwrap_or(b"[]"))?;
            entered.scope.start_clock();
            entered
                .prelude(Prelude::Prepare, [&id, &path, &modules])
                .map(drop)
        })?;
        heap.raise_gc_threshold();
        Ok(Prepared {
            heap: heap.rewinding(),
            environment,
            console,
            ddoc: ddoc.clone(),
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            modules: modules.map(<[u8]>::to_vec),
            used: Instant::now(),
        })
    }

    fn enter<T>(&mut self, work: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> T) -> T {
        self.environment.enter(&mut self.heap, &self.console, work)
    }
}

/// [`Designs`] that run in the calling thread.
pub(super) struct ThreadDesigns {
    pub heaps: Arc<Heaps>,
}

/// Calls the prelude's `call` or `list`.
fn call<'js>(
    entered: &Entered<'_, 'js>,
    function: Prelude,
    ddoc: &DesignDoc,
    path: &[&str],
    args: &[u8],
) -> Result<Value<'js>, Error> {
    entered.scope.start_clock();
    let id = entered.string(&ddoc.id)?;
    let path = entered.strings(path)?;
    let args = entered.value(args)?;
    entered.prelude(function, [&id, &path, &args])
}

impl Designs for ThreadDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let mut replies = self.call_some(ddoc, path, &[args]);
        replies
            .pop()
            .unwrap_or_else(|| Err(Error::Process("no reply".into())))
    }

    /// These calls see what those before them left behind: they are of one request.
    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let started = Instant::now();
        let replies = self.heaps.with(ddoc, path, |prepared| {
            prepared.enter(|entered| {
                let mut replies = Vec::with_capacity(args.len());
                for args in args {
                    let answer = call(entered, Prelude::Call, ddoc, path, args);
                    replies.push(answer.and_then(|answer| entered.json(&answer)));
                    if entered.scope.over().is_some() || started.elapsed() >= SLICE {
                        break;
                    }
                }
                replies
            })
        });
        replies.unwrap_or_else(|error| vec![Err(error)])
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        self.heaps.with(ddoc, path, |prepared| {
            let Prepared {
                heap,
                environment,
                console,
                ..
            } = prepared;
            let listing = Listing::new(console, io);
            let answer = environment.enter(heap, &listing, |entered| {
                call(entered, Prelude::List, ddoc, path, args).map(drop)
            });
            listing.ended(answer)
        })?
    }
}
