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
/// Dropped, it gives back all its memory at once.
pub struct Heap {
    // First, so that nothing of it is used after the runtime.
    pub(crate) realms: Vec<(u64, Realm)>,
    pub(crate) runtime: Runtime,
}

// SAFETY: QuickJS keeps no state in threads but the stack's limit, which `enter` sets anew. All that refers to the runtime is in
// here, or cannot get out of the closure that `enter` calls; so all of it moves at once, and is used through `&mut` only.
unsafe impl Send for Heap {}

/// The next context's id. Those of all heaps differ, so that a context of another heap is noticed.
static NEXT_CONTEXT: AtomicU64 = AtomicU64::new(1);

/// A context of a heap: globals of its own. Those that are not closed end with their heap.
#[derive(Debug)]
pub struct Context(u64);

/// A heap that can be entered.
pub trait Enter {
    /// Runs `work` in a context, with the clock started and with enough stack for what JavaScript may use.
    /// JavaScript reaches `host` meanwhile.
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
    /// An empty heap. Its limits are [`Limits::clamped`].
    ///
    /// # Errors
    /// [`Limit::Memory`] when there is no memory for it.
    pub fn new(limits: &Limits) -> Result<Heap, Limit> {
        Ok(Heap {
            realms: Vec::new(),
            runtime: Runtime::new(limits)?,
        })
    }

    /// A new context with JavaScript's own globals.
    ///
    /// # Errors
    /// [`Limit::Memory`]: the heap is of no more use.
    pub fn new_context(&mut self) -> Result<Context, Limit> {
        let realm = self.runtime.enter(|| Realm::new(&self.runtime))?;
        let id = NEXT_CONTEXT.fetch_add(1, Relaxed);
        self.realms.push((id, realm));
        Ok(Context(id))
    }

    /// Gives back what a context has of the heap, what was kept of it too. One of another heap is ignored.
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

    /// What the heap may use.
    pub fn limits(&self) -> &Limits {
        &self.runtime.control().limits
    }

    /// The limit that was hit; the heap is then of no more use: JavaScript stops at its first step.
    pub fn over(&self) -> Option<Limit> {
        self.runtime.control().over()
    }

    /// Bytes in use.
    pub fn memory_used(&self) -> usize {
        self.runtime.memory_used()
    }

    /// Lets the garbage collector wait until a quarter of the memory is in use, which it does not do by itself once it has run.
    pub fn raise_gc_threshold(&self) {
        self.runtime.raise_gc_threshold();
    }

    /// Collects garbage that consists of rings, all else being freed at once anyway.
    pub fn collect(&mut self) {
        self.runtime.enter(|| self.runtime.collect());
    }

    /// Closes all contexts and takes the heap down in order, object by object. Answers the bytes that are left. This is for tests
    /// of whoever uses heaps: dropping does the same, but faster and with less to ask for.
    ///
    /// QuickJS **aborts the process** when a value is left, which is never so in a heap that hit no limit.
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
