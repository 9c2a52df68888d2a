//! Heaps, and the way into them.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::Host;
use crate::limits::{Limit, Limits};
use crate::realm::Realm;
use crate::runtime::Runtime;
use crate::scope::Scope;

/// A JavaScript heap with limits. It may move between threads.
///
/// Dropping it frees all its memory in one step.
pub struct Heap {
    // First, so that nothing of it is used after the runtime.
    pub(crate) realms: Vec<(u64, Realm)>,
    pub(crate) runtime: Runtime,
}

// SAFETY: QuickJS keeps no state in threads except the stack's limit, which `enter` sets each time.
// Everything that refers to the runtime is in here, or cannot leave the closure that `enter` calls;
// so all of it moves together, and is used through `&mut` only.
unsafe impl Send for Heap {}

/// The next context's id. Those of all heaps differ, so that a context of another heap is noticed.
static NEXT_CONTEXT: AtomicU64 = AtomicU64::new(1);

/// A context of a heap, with its own globals. Contexts that are not closed end with their heap.
#[derive(Debug)]
pub struct Context(u64);

/// A heap that can be entered.
pub trait Enter {
    /// Runs `work` in a context, with the clock started and with enough stack for what JavaScript
    /// may use. JavaScript reaches `host` meanwhile.
    ///
    /// # Panics
    /// When the context is not one of this heap.
    fn enter<T>(
        &mut self,
        context: &Context,
        host: &dyn Host,
        work: impl for<'js> FnOnce(&Scope<'js>) -> T,
    ) -> T;
}

impl Heap {
    /// Creates an empty heap. Its limits are [`Limits::clamped`].
    ///
    /// # Errors
    /// [`Limit::Memory`] when there is no memory for it.
    pub fn new(limits: &Limits) -> Result<Heap, Limit> {
        Ok(Heap {
            realms: Vec::new(),
            runtime: Runtime::new(limits)?,
        })
    }

    /// Returns a new context with JavaScript's own globals.
    ///
    /// # Errors
    /// [`Limit::Memory`]: the heap is of no more use.
    pub fn new_context(&mut self) -> Result<Context, Limit> {
        let realm = self.runtime.enter(|| Realm::new(&self.runtime))?;
        let id = NEXT_CONTEXT.fetch_add(1, Relaxed);
        self.realms.push((id, realm));
        Ok(Context(id))
    }

    /// Frees everything that a context has in the heap, including retained values. A context of
    /// another heap is ignored.
    pub fn close_context(&mut self, context: Context) {
        if let Some(at) = self.realms.iter().position(|(id, _)| *id == context.0) {
            let (_, realm) = self.realms.remove(at);
            // SAFETY: the heap is not entered, so that nothing runs and there are no values.
            self.runtime.enter(|| unsafe { realm.close() });
        }
    }

    /// See [`Enter::enter`].
    ///
    /// # Panics
    /// When the context is not one of this heap.
    pub fn enter<T>(
        &mut self,
        context: &Context,
        host: &dyn Host,
        work: impl for<'js> FnOnce(&Scope<'js>) -> T,
    ) -> T {
        let realm = self.realms.iter().find(|(id, _)| *id == context.0);
        let (_, realm) = realm.expect("a context is used with its own heap");
        // SAFETY: it is dropped below, while `host` is still borrowed.
        let lent = unsafe { self.runtime.control().lend(host) };
        let scope = Scope {
            realm,
            runtime: &self.runtime,
            brand: PhantomData,
        };
        let done = self.runtime.enter(|| work(&scope));
        drop(lent);
        done
    }

    /// Returns the limits of the heap.
    pub fn limits(&self) -> &Limits {
        &self.runtime.control().limits
    }

    /// Returns the limit that was hit; the heap is then of no more use: JavaScript stops at its
    /// first step.
    pub fn over(&self) -> Option<Limit> {
        self.runtime.control().over()
    }

    /// Bytes in use.
    pub fn memory_used(&self) -> usize {
        self.runtime.memory_used()
    }

    /// Defers garbage collection until a quarter of the memory is in use, which the collector does
    /// not do on its own after a run.
    pub fn raise_gc_threshold(&self) {
        self.runtime.raise_gc_threshold();
    }

    /// Collects cyclic garbage; everything else is freed immediately anyway.
    pub fn collect(&mut self) {
        self.runtime.enter(|| self.runtime.collect());
    }

    /// Closes all contexts and frees the heap normally, object by object. Returns the bytes that
    /// are left. For tests: dropping has the same effect, but is faster and requires less.
    ///
    /// QuickJS **aborts the process** when a value is left, which never happens in a heap that hit
    /// no limit.
    pub fn tear_down(mut self) -> usize {
        for (_, realm) in self.realms.drain(..) {
            // SAFETY: as in `close_context`.
            self.runtime.enter(|| unsafe { realm.close() });
        }
        self.runtime.close()
    }
}

impl Enter for Heap {
    fn enter<T>(
        &mut self,
        context: &Context,
        host: &dyn Host,
        work: impl for<'js> FnOnce(&Scope<'js>) -> T,
    ) -> T {
        Heap::enter(self, context, host, work)
    }
}
