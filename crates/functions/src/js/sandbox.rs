//! A heap with the prelude in which calls leave nothing behind.
//!
//! [`Sandbox::rewind`] restores the heap to what it was when the functions had just been compiled. That costs a copy of some
//! hundred kilobytes, so it is left out between the calls of functions that are known to leave nothing
//! ([`projection::left_behind`]).

use query_server::language::Error;
use quickjs::{Context, Enter, Heap, Host, Limit, Limits, RewindingHeap, Scope};

use super::environment::{Entered, Environment, new_heap};
use super::host::Console;

/// A heap that takes a larger part of its limit when its functions were compiled is used for one call: a copy would double it.
const IMAGE_SHARE: usize = 4;
/// Bytes that are always copied: a heap with the prelude has less.
const IMAGE_BYTES_MIN: usize = 2 << 20;

/// A heap, and what is in it before each call.
pub(super) struct Sandbox {
    heap: Restored,
    environment: Environment,
    console: Console,
}

/// The heap of a [`Sandbox`].
pub(super) enum Restored {
    Rewinding(RewindingHeap),
    /// It is too large to be copied.
    Once(Heap),
    /// It keeps what calls leave behind.
    #[cfg(test)]
    Kept(Heap),
}

impl Enter for Restored {
    fn enter<T>(
        &mut self,
        context: &Context,
        host: &dyn Host,
        work: impl for<'js> FnOnce(&Scope<'js>) -> T,
    ) -> T {
        match self {
            Restored::Rewinding(heap) => heap.enter(context, host, work),
            Restored::Once(heap) => heap.enter(context, host, work),
            #[cfg(test)]
            Restored::Kept(heap) => heap.enter(context, host, work),
        }
    }
}

fn restored(heap: Heap, limits: &Limits) -> Restored {
    #[cfg(test)]
    if KEEPS.get() {
        return Restored::Kept(heap);
    }
    let image_max = (limits.memory_bytes / IMAGE_SHARE).max(IMAGE_BYTES_MIN);
    match heap.memory_used() > image_max {
        true => Restored::Once(heap),
        false => Restored::Rewinding(heap.rewinding()),
    }
}

impl Sandbox {
    /// A heap in which `prepare` compiles functions; what that gives comes with it.
    pub fn new<T>(
        limits: &Limits,
        console: Console,
        prepare: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> Result<T, Error>,
    ) -> Result<(Sandbox, T), Error> {
        let mut heap = new_heap(limits)?;
        let environment = Environment::new(&mut heap, &console)?;
        let prepared = environment.enter(&mut heap, &console, |entered| {
            // The engine's own generator would give the same numbers after each rewind.
            entered.done(entered.scope.define_random())?;
            prepare(entered)
        })?;
        heap.raise_gc_threshold();
        let heap = restored(heap, limits);
        let sandbox = Sandbox {
            heap,
            environment,
            console,
        };
        Ok((sandbox, prepared))
    }

    pub fn enter<T>(&mut self, work: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> T) -> T {
        self.environment.enter(&mut self.heap, &self.console, work)
    }

    /// What it takes to enter the heap with another host, or with the console in reach.
    pub fn parts(&mut self) -> (&mut Restored, &Environment, &Console) {
        (&mut self.heap, &self.environment, &self.console)
    }

    /// Undoes what was done since the functions were compiled. Answers whether the heap can be used again.
    #[must_use]
    pub fn rewind(&mut self) -> bool {
        match &mut self.heap {
            Restored::Rewinding(heap) if heap.over().is_none() => {
                heap.rewind();
                true
            }
            Restored::Rewinding(_) | Restored::Once(_) => false,
            #[cfg(test)]
            Restored::Kept(heap) => heap.over().is_none(),
        }
    }

    /// The limit that was hit; the heap is then of no more use.
    pub fn over(&self) -> Option<Limit> {
        match &self.heap {
            Restored::Rewinding(heap) => heap.over(),
            Restored::Once(heap) => heap.over(),
            #[cfg(test)]
            Restored::Kept(heap) => heap.over(),
        }
    }

    /// Bytes that the heap takes of the process.
    pub fn footprint(&self) -> usize {
        match &self.heap {
            Restored::Rewinding(heap) => heap.footprint(),
            Restored::Once(heap) => heap.memory_used(),
            #[cfg(test)]
            Restored::Kept(heap) => heap.memory_used(),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Sandboxes that are made in this thread keep what calls leave behind, so that leaks show.
    pub(super) static KEEPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
impl Sandbox {
    /// The heap of one that keeps.
    pub fn heap(&mut self) -> &mut Heap {
        match &mut self.heap {
            Restored::Kept(heap) | Restored::Once(heap) => heap,
            Restored::Rewinding(_) => panic!("the heap is rewound"),
        }
    }

    pub fn into_heap(self) -> Heap {
        match self.heap {
            Restored::Kept(heap) | Restored::Once(heap) => heap,
            Restored::Rewinding(_) => panic!("the heap is rewound"),
        }
    }
}
