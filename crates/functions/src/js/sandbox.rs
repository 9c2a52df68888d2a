//! A heap with the prelude in which calls leave nothing behind.
//!
//! [`Sandbox::rewind`] restores the heap to the state when the functions had just been compiled.
//! That copies some hundred kilobytes, so it is skipped between calls of functions that are known
//! to leave nothing ([`projection::lasting_effect`]).

use query_server::language::Error;
use quickjs::{Context, Enter, Heap, Host, Limit, Limits, RewindingHeap, Scope};

use super::environment::{Entered, Environment, new_heap};
use super::host::Console;

/// A heap that takes more than one in this many parts of its limit after compilation is used for
/// one call: a copy would double it.
const IMAGE_SHARE: usize = 4;
/// Smaller heaps are always copied, in bytes: an empty one with the prelude is smaller.
const IMAGE_BYTES_MIN: usize = 2 << 20;

/// A heap, and its state before each call.
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
    /// It is not rewound.
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
    /// Creates a heap in which `prepare` compiles functions; returns its result too.
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

    /// Returns the parts needed to enter the heap with another host, or with the console.
    pub fn parts(&mut self) -> (&mut Restored, &Environment, &Console) {
        (&mut self.heap, &self.environment, &self.console)
    }

    /// Undoes everything since the functions were compiled. Returns whether the heap can be used
    /// again.
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

    /// Returns the limit that was hit, after which the heap cannot be used.
    pub fn over(&self) -> Option<Limit> {
        match &self.heap {
            Restored::Rewinding(heap) => heap.over(),
            Restored::Once(heap) => heap.over(),
            #[cfg(test)]
            Restored::Kept(heap) => heap.over(),
        }
    }

    /// Returns the memory of the heap, in bytes.
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
    /// Sandboxes created in this thread are not rewound, so that leaks show.
    pub(super) static KEEPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
impl Sandbox {
    /// Returns the heap of one that is not rewound.
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
