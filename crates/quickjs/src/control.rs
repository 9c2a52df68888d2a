//! The state of a heap that QuickJS's callbacks see: its clock, the limit that it hit, and the data
//! of the running function.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::time::Instant;

use rquickjs_sys as qjs;

use crate::allocator::Blocks;
use crate::host::Host;
use crate::limits::{Limit, Limits};
use crate::timer::CallTimer;

/// Shared by callbacks and by the heap that owns it: only cells inside.
pub(crate) struct Control {
    pub limits: Limits,
    pub blocks: Blocks,
    over: Cell<Option<Limit>>,
    timer: Cell<Option<CallTimer>>,
    /// Keys and values given to `emit` by the function that runs, as owned values.
    pub emitted: RefCell<Vec<(qjs::JSValue, qjs::JSValue)>>,
    /// Collects garbage whenever a document's object is created.
    #[cfg(test)]
    pub stress: Cell<bool>,
    /// The class of documents' objects.
    pub lazy_class: Cell<qjs::JSClassID>,
    /// Whether `emit` accepts rows now.
    pub emitting: Cell<bool>,
    /// There while the heap is entered.
    host: Cell<Option<NonNull<dyn Host>>>,
    /// Whether a part of a document that nests too deeply was accessed.
    pub too_deep: Cell<bool>,
    /// State of `Math.random` of heaps that are rewound.
    pub random: Cell<u64>,
}

impl Control {
    pub fn new(limits: &Limits) -> Control {
        Control {
            limits: limits.clamped(),
            blocks: Blocks::new(),
            over: Cell::new(None),
            timer: Cell::new(None),
            emitted: RefCell::default(),
            #[cfg(test)]
            stress: Cell::new(false),
            lazy_class: Cell::new(0),
            emitting: Cell::new(false),
            host: Cell::new(None),
            too_deep: Cell::new(false),
            random: Cell::new(RandomState::new().hash_one(()) | 1),
        }
    }

    /// Restarts the clock. It is read first when the interrupt handler is first called, some
    /// thousand steps of JavaScript later: a short call never reads the clock.
    #[inline]
    pub fn start_clock(&self) {
        self.timer.set(None);
    }

    /// Does work that is not JavaScript's: its time does not count.
    pub fn excuse<T>(&self, work: impl FnOnce() -> T) -> T {
        let cpu_time = || self.timer.get().and_then(|timer| timer.cpu_time());
        let (began, cpu_before) = (Instant::now(), cpu_time());
        let done = work();
        let cpu = cpu_time().zip(cpu_before);
        if let Some(mut timer) = self.timer.get() {
            let cpu = cpu.map(|(now, before)| now.saturating_sub(before));
            timer.excuse(began.elapsed(), cpu.unwrap_or_default());
            self.timer.set(Some(timer));
        }
        done
    }

    /// Returns the limit that was hit. Once one is hit, JavaScript stops at its next step and the
    /// heap is of no more use.
    #[inline]
    pub fn over(&self) -> Option<Limit> {
        self.over.get()
    }

    pub fn set_over(&self, limit: Limit) {
        if self.over.get().is_none() {
            self.over.set(Some(limit));
        }
    }

    /// Returns whether to stop: a limit was hit, time being the last one checked.
    pub fn must_stop(&self) -> bool {
        if self.over.get().is_some() {
            return true;
        }
        let is_late = match self.timer.get() {
            None => {
                self.timer.set(Some(CallTimer::start(self.limits.time)));
                false
            }
            Some(mut timer) => {
                let is_late = timer.is_late();
                self.timer.set(Some(timer));
                is_late
            }
        };
        if is_late {
            self.over.set(Some(Limit::Time));
        }
        is_late
    }

    /// Lends a host to JavaScript until the result is dropped.
    ///
    /// # Safety
    /// The result is dropped before `host` is.
    pub unsafe fn lend<'a>(&'a self, host: &dyn Host) -> HostGuard<'a> {
        // SAFETY: it only lengthens the lifetime of the pointer, which is taken away again before
        // the reference ends, by the caller.
        let host = unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host + 'static>>(
                NonNull::from(host),
            )
        };
        self.host.set(Some(host));
        HostGuard(self)
    }

    /// Returns the host, while the heap is entered.
    pub fn host(&self) -> Option<&dyn Host> {
        // SAFETY: the pointer exists only while its source is borrowed. This is called by functions
        // that JavaScript calls, which return before the heap is left.
        self.host.get().map(|host| unsafe { &*host.as_ptr() })
    }
}

/// A host that is lent.
pub(crate) struct HostGuard<'a>(&'a Control);

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        self.0.host.set(None);
    }
}

/// Returns the `Control` of a context's heap.
///
/// # Safety
/// `ctx` is a live context of a heap; the answer lives as long as that.
#[inline]
pub(crate) unsafe fn control<'a>(ctx: *mut qjs::JSContext) -> &'a Control {
    // SAFETY: by the caller.
    unsafe { control_of(qjs::JS_GetRuntime(ctx)) }
}

/// Returns the `Control` of a runtime.
///
/// # Safety
/// `runtime` is that of a live heap; the answer lives as long as that.
#[inline]
pub(crate) unsafe fn control_of<'a>(runtime: *mut qjs::JSRuntime) -> &'a Control {
    // SAFETY: by the caller: each runtime is created with its `Control` as its opaque pointer.
    unsafe {
        let control: *mut c_void = qjs::JS_GetRuntimeOpaque(runtime);
        &*control.cast::<Control>()
    }
}
