//! One QuickJS runtime with its limits: memory through an allocator of our own, time through the
//! interrupt handler.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use rquickjs_sys as qjs;

use crate::allocator;
use crate::control::Control;
use crate::lazy;
use crate::limits::{Limit, Limits};
use crate::running;

/// Stack that our own recursion (building and writing values) may use besides what JavaScript may
/// use.
const OWN_STACK: usize = 768 << 10;

unsafe extern "C" fn interrupt(_: *mut qjs::JSRuntime, opaque: *mut c_void) -> c_int {
    // SAFETY: `opaque` is the runtime's `Control`.
    let control = unsafe { &*opaque.cast::<Control>() };
    let must_stop = control.must_stop();
    if must_stop {
        control.provide_error();
    }
    c_int::from(must_stop)
}

/// A QuickJS runtime, which one thread uses at a time.
pub(crate) struct Runtime {
    raw: NonNull<qjs::JSRuntime>,
    control: NonNull<Control>,
}

impl Runtime {
    pub fn new(limits: &Limits) -> Result<Runtime, Limit> {
        let control = Box::leak(Box::new(Control::new(limits)));
        control.blocks.close_ring();
        let stack_bytes = control.limits.stack_bytes;
        let control = NonNull::from(control);
        let opaque = control.as_ptr().cast();
        // SAFETY: the functions fit each other, and `control` is freed after all that they
        // allocated.
        let raw = unsafe { qjs::JS_NewRuntime2(&allocator::FUNCTIONS, opaque) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: no runtime refers to it. Its allocations are in the ring.
            unsafe {
                control.as_ref().blocks.give_all_back();
                drop(Box::from_raw(control.as_ptr()));
            }
            return Err(Limit::Memory);
        };
        // SAFETY: the runtime is live.
        unsafe {
            qjs::JS_SetRuntimeOpaque(raw.as_ptr(), opaque);
            qjs::JS_SetMaxStackSize(raw.as_ptr(), stack_bytes as _);
            qjs::JS_SetInterruptHandler(raw.as_ptr(), Some(interrupt), opaque);
        }
        let runtime = Runtime { raw, control };
        runtime.raise_gc_threshold();
        let class = lazy::register(&runtime).ok_or(Limit::Memory)?;
        runtime.control().lazy_class.set(class);
        Ok(runtime)
    }

    /// Reference counts free documents; the collector only has to find rings. It is not needed
    /// while memory is plenty.
    pub fn raise_gc_threshold(&self) {
        let threshold = self.control().limits.memory_bytes / 4;
        // SAFETY: the runtime is live.
        unsafe {
            if (qjs::JS_GetGCThreshold(self.raw.as_ptr()) as usize) < threshold {
                qjs::JS_SetGCThreshold(self.raw.as_ptr(), threshold as _);
            }
        }
    }

    pub fn raw(&self) -> *mut qjs::JSRuntime {
        self.raw.as_ptr()
    }

    pub fn control(&self) -> &Control {
        // SAFETY: it lives as long as `self`, and no `&mut` of it is created.
        unsafe { self.control.as_ref() }
    }

    /// Bytes that QuickJS has in use.
    pub fn memory_used(&self) -> usize {
        self.control().blocks.used.get()
    }

    /// Runs `work` with the clock at zero and enough stack for what JavaScript and our own
    /// recursion may use.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let control = self.control();
        let stack = control.limits.stack_bytes + OWN_STACK;
        stacker::maybe_grow(stack, stack + (128 << 10), || {
            // SAFETY: the runtime is live and this thread's.
            unsafe { qjs::JS_UpdateStackTop(self.raw.as_ptr()) };
            control.start_clock();
            profiler::scripted(&running::interpreter(self.raw.as_ptr()), work)
        })
    }

    /// Finds rings of objects that nothing refers to, and frees them.
    pub fn collect(&self) {
        // SAFETY: the runtime is live and used by this thread only.
        unsafe { qjs::JS_RunGC(self.raw.as_ptr()) }
    }

    /// Runs QuickJS's own teardown, which aborts when an object is left; returns the bytes that are
    /// left after it.
    pub fn close(self) -> usize {
        // SAFETY: nothing is used of the runtime afterwards but our own `Control`, by `drop`.
        unsafe { qjs::JS_FreeRuntime(self.raw.as_ptr()) };
        self.memory_used()
    }
}

impl Drop for Runtime {
    /// Frees all memory in one step, without QuickJS's own teardown: that one aborts if a value is
    /// left, which is not guaranteed after an allocation failure. Nothing in a runtime owns more
    /// than memory.
    fn drop(&mut self) {
        // SAFETY: nothing uses the runtime any more.
        unsafe {
            self.control().blocks.give_all_back();
            drop(Box::from_raw(self.control.as_ptr()));
        }
    }
}
