//! One QuickJS runtime with its limits: memory through an allocator of our own, time through the interrupt handler.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use rquickjs_sys as qjs;

use super::Options;
use super::lazy;
use crate::{Error, ListIo};

/// Stack that our own recursion (building and writing values) may use besides what JavaScript may use.
const OWN_STACK: usize = 768 << 10;
/// QuickJS carves small values out of blocks of at most this size, and frees a block when its last value dies.
const ARENA: usize = 4096;
/// Free blocks kept at hand, so that a document's worth of them is not given back and asked for again.
const SPARE_ARENAS: usize = 512;

/// Blocks between two looks at the clock.
const LOOK_AT_CLOCK: u32 = 64;

/// The limit that a call ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Time,
    Memory,
    Rows,
    Bytes,
}

/// In front of each block that QuickJS was given: blocks form a ring, so that all can be freed without QuickJS's help.
#[repr(C, align(16))]
pub(super) struct Block {
    previous: *mut Block,
    next: *mut Block,
    pub size: usize,
    /// It is in an [`Image`](super::image::Image), and in no ring.
    pub kept: bool,
}

pub(super) const HEADER: usize = size_of::<Block>();

/// What QuickJS's callbacks see of the runtime. It is shared by them and by its owner: only cells inside.
pub(super) struct Control {
    pub options: Options,
    ring: UnsafeCell<Block>,
    pub used: Cell<usize>,
    spare: RefCell<Vec<*mut Block>>,
    over: Cell<Option<Limit>>,
    /// Counts blocks, to look at the clock now and then: built-in functions that run long do not call the interrupt handler,
    /// but most of them allocate.
    allocations: Cell<u32>,
    started: Cell<Option<Instant>>,
    /// Keys and values given to `emit` by the function that runs, as owned values.
    pub emitted: RefCell<Vec<(qjs::JSValue, qjs::JSValue)>>,
    /// Collect garbage whenever a document's object is made.
    #[cfg(test)]
    pub stress: Cell<bool>,
    /// The class of documents' objects.
    pub lazy_class: Cell<qjs::JSClassID>,
    /// Whether `emit` takes rows now.
    pub emitting: Cell<bool>,
    /// The other end of the list function that runs.
    pub list: Cell<Option<NonNull<dyn ListIo>>>,
    /// What `list` failed with.
    pub list_error: RefCell<Option<Error>>,
    pub log: RefCell<super::log::Log>,
    /// State of `Math.random` of heaps that are taken back to what they were.
    pub random: Cell<u64>,
}

impl Control {
    /// Starts the clock anew. It is read first when the interrupt handler is first called, some thousand steps of
    /// JavaScript later: a short call costs no look at the clock.
    pub fn start_clock(&self) {
        self.started.set(None);
    }

    /// Takes time that was not JavaScript's off the clock.
    pub fn excuse(&self, time: Duration) {
        if let Some(started) = self.started.get() {
            self.started.set(Some(started + time));
        }
    }

    /// The limit that was hit. Once one is hit, JavaScript stops at its next step and the runtime is of no more use.
    pub fn over(&self) -> Option<Limit> {
        self.over.get()
    }

    pub fn set_over(&self, limit: Limit) {
        if self.over.get().is_none() {
            self.over.set(Some(limit));
        }
    }

    /// Whether to stop: a limit was hit, the last of them time.
    pub fn must_stop(&self) -> bool {
        if self.over.get().is_some() {
            return true;
        }
        match self.started.get() {
            None => self.started.set(Some(Instant::now())),
            Some(started) if started.elapsed() > self.options.time => {
                self.over.set(Some(Limit::Time));
                return true;
            }
            Some(_) => {}
        }
        false
    }

    pub fn limit_error(&self, limit: Limit) -> Error {
        let (key, value) = match limit {
            Limit::Time => ("time_limit_ms", self.options.time.as_millis().to_string()),
            Limit::Memory => ("memory_limit_bytes", self.options.memory_bytes.to_string()),
            Limit::Rows => ("emit_rows_limit", self.options.emit_rows_max.to_string()),
            Limit::Bytes => ("emit_bytes_limit", self.options.emit_bytes_max.to_string()),
        };
        Error::Limit { limit: key, value }
    }

    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size.checked_add(HEADER)?, align_of::<Block>()).ok()
    }

    /// # Safety
    /// `block` is a live allocation of `layout(size)` that is in no ring.
    unsafe fn link(&self, block: *mut Block, size: usize) -> *mut c_void {
        let ring = self.ring.get();
        // SAFETY: the ring's head lives as long as the runtime (it is boxed), and all its blocks are live.
        unsafe {
            let next = (*ring).next;
            block.write(Block {
                previous: ring,
                next,
                size,
                kept: false,
            });
            (*next).previous = block;
            (*ring).next = block;
            block.cast::<u8>().add(HEADER).cast()
        }
    }

    /// # Safety
    /// `block` is in the ring.
    unsafe fn unlink(block: *mut Block) {
        // SAFETY: a block in the ring has live neighbours.
        unsafe {
            (*(*block).previous).next = (*block).next;
            (*(*block).next).previous = (*block).previous;
        }
    }

    fn allocate(&self, size: usize, zeroed: bool) -> *mut c_void {
        // Arenas differ by some bytes by size class; made equal, each can serve any class.
        let arena = size > ARENA - 1024 && size <= ARENA;
        let size = if arena { ARENA } else { size };
        if size > self.options.memory_bytes.saturating_sub(self.used.get()) {
            self.set_over(Limit::Memory);
            return ptr::null_mut();
        }
        let count = self.allocations.get().wrapping_add(1);
        self.allocations.set(count);
        if count.is_multiple_of(LOOK_AT_CLOCK) && self.must_stop() {
            return ptr::null_mut();
        }
        let Some(layout) = Self::layout(size) else {
            return ptr::null_mut();
        };
        let spare = if arena && !zeroed {
            self.spare.borrow_mut().pop()
        } else {
            None
        };
        let block = match spare {
            Some(block) => block,
            // SAFETY: the layout is not empty, for the header is in it.
            None => unsafe {
                if zeroed {
                    alloc::alloc_zeroed(layout)
                } else {
                    alloc::alloc(layout)
                }
            }
            .cast(),
        };
        if block.is_null() {
            self.set_over(Limit::Memory);
            return ptr::null_mut();
        }
        self.used.set(self.used.get() + size);
        // SAFETY: the block was just made with this layout, or was taken out of the ring when it became spare.
        unsafe { self.link(block, size) }
    }

    /// # Safety
    /// `pointer` came from `allocate` or `reallocate` and was not freed since.
    unsafe fn free(&self, pointer: *mut c_void) {
        // SAFETY: the header is in front of what `allocate` answered, and such blocks are in the ring.
        unsafe {
            let block = pointer.cast::<u8>().sub(HEADER).cast::<Block>();
            let size = (*block).size;
            self.used.set(self.used.get() - size);
            if (*block).kept {
                return;
            }
            Self::unlink(block);
            self.retire(block);
        }
    }

    /// Keeps an arena for later, or gives a block back.
    ///
    /// # Safety
    /// `block` is a live block that is in no ring and that nothing refers to.
    pub unsafe fn retire(&self, block: *mut Block) {
        // SAFETY: by the caller.
        unsafe {
            let size = (*block).size;
            if size == ARENA {
                let mut spare = self.spare.borrow_mut();
                if spare.len() < SPARE_ARENAS {
                    spare.push(block);
                    return;
                }
            }
            Self::give_back(block, size);
        }
    }

    /// Takes all blocks out of the ring.
    ///
    /// # Safety
    /// Nothing is allocated or freed meanwhile.
    pub unsafe fn detach(&self) -> Vec<*mut Block> {
        let head = self.ring.get();
        let mut blocks = Vec::new();
        // SAFETY: the ring's head and blocks are live.
        unsafe {
            let mut block = (*head).next;
            while !ptr::eq(block, head) {
                blocks.push(block);
                block = (*block).next;
            }
            (*head).next = head;
            (*head).previous = head;
        }
        blocks
    }

    /// # Safety
    /// `block` is an allocation of `layout(size)` that nothing refers to any more.
    pub unsafe fn give_back(block: *mut Block, size: usize) {
        if let Some(layout) = Self::layout(size) {
            // SAFETY: by the caller; the layout is the one that it was made with.
            unsafe { alloc::dealloc(block.cast(), layout) };
        }
    }

    /// # Safety
    /// As for `free`.
    unsafe fn reallocate(&self, pointer: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: as in `free`; what is copied fits both blocks.
        unsafe {
            let block = pointer.cast::<u8>().sub(HEADER).cast::<Block>();
            let old = (*block).size;
            if old > ARENA && size > ARENA && !(*block).kept {
                return self.resize(block, old, size);
            }
            let new = self.allocate(size, false);
            if !new.is_null() {
                ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast::<u8>(), old.min(size));
                self.free(pointer);
            }
            new
        }
    }

    /// Leaves it to the system allocator to move a large block, which may cost nothing.
    ///
    /// # Safety
    /// `block` is in the ring, its size is `old`.
    unsafe fn resize(&self, block: *mut Block, old: usize, size: usize) -> *mut c_void {
        let room = self.options.memory_bytes.saturating_sub(self.used.get());
        if size.saturating_sub(old) > room {
            self.set_over(Limit::Memory);
            return ptr::null_mut();
        }
        let (Some(layout), Some(wanted)) = (Self::layout(old), Self::layout(size)) else {
            return ptr::null_mut();
        };
        // SAFETY: the block has this layout; it is out of the ring while it may move, and back in it afterwards, wherever
        // it then is.
        unsafe {
            Self::unlink(block);
            let moved = alloc::realloc(block.cast(), layout, wanted.size()).cast::<Block>();
            if moved.is_null() {
                self.link(block, old);
                self.set_over(Limit::Memory);
                return ptr::null_mut();
            }
            self.used.set(self.used.get() - old + size);
            self.link(moved, size)
        }
    }
}

unsafe extern "C" fn js_malloc(opaque: *mut c_void, size: qjs::size_t) -> *mut c_void {
    // SAFETY: `opaque` is the `Control` that the runtime was made with, and outlives it.
    unsafe { &*opaque.cast::<Control>() }.allocate(size as usize, false)
}

unsafe extern "C" fn js_calloc(
    opaque: *mut c_void,
    count: qjs::size_t,
    size: qjs::size_t,
) -> *mut c_void {
    let Some(size) = (count as usize).checked_mul(size as usize) else {
        return ptr::null_mut();
    };
    // SAFETY: as in `js_malloc`.
    unsafe { &*opaque.cast::<Control>() }.allocate(size, true)
}

unsafe extern "C" fn js_free(opaque: *mut c_void, pointer: *mut c_void) {
    if !pointer.is_null() {
        // SAFETY: as in `js_malloc`; QuickJS frees what it was given, once.
        unsafe { (*opaque.cast::<Control>()).free(pointer) }
    }
}

unsafe extern "C" fn js_realloc(
    opaque: *mut c_void,
    pointer: *mut c_void,
    size: qjs::size_t,
) -> *mut c_void {
    // SAFETY: as in `js_malloc`.
    let control = unsafe { &*opaque.cast::<Control>() };
    if pointer.is_null() {
        return control.allocate(size as usize, false);
    }
    // SAFETY: QuickJS reallocates what it was given and has not freed.
    unsafe { control.reallocate(pointer, size as usize) }
}

unsafe extern "C" fn js_usable_size(pointer: *const c_void) -> qjs::size_t {
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: the header is in front of each block that QuickJS was given.
    unsafe { (*pointer.cast::<u8>().sub(HEADER).cast::<Block>()).size as qjs::size_t }
}

unsafe extern "C" fn interrupt(_: *mut qjs::JSRuntime, opaque: *mut c_void) -> c_int {
    // SAFETY: `opaque` is the runtime's `Control`.
    c_int::from(unsafe { &*opaque.cast::<Control>() }.must_stop())
}

/// A QuickJS runtime. It may move between threads, but serves one at a time.
pub(super) struct Runtime {
    raw: NonNull<qjs::JSRuntime>,
    control: NonNull<Control>,
}

// SAFETY: QuickJS keeps no state in threads but the stack's limit, which `enter` sets anew; `Control` is reached through
// the runtime only. Nothing of it is shared, so that moving all of it at once is sound.
unsafe impl Send for Runtime {}

impl Runtime {
    pub fn new(options: &Options) -> Result<Runtime, Error> {
        let control = Box::leak(Box::new(Control {
            options: options.clone(),
            ring: UnsafeCell::new(Block {
                previous: ptr::null_mut(),
                next: ptr::null_mut(),
                size: 0,
                kept: false,
            }),
            used: Cell::new(0),
            spare: RefCell::default(),
            over: Cell::new(None),
            allocations: Cell::new(0),
            started: Cell::new(None),
            emitted: RefCell::default(),
            #[cfg(test)]
            stress: Cell::new(false),
            lazy_class: Cell::new(0),
            emitting: Cell::new(false),
            list: Cell::new(None),
            list_error: RefCell::default(),
            log: RefCell::default(),
            random: Cell::new(RandomState::new().hash_one(()) | 1),
        }));
        let head = control.ring.get();
        *control.ring.get_mut() = Block {
            previous: head,
            next: head,
            size: 0,
            kept: false,
        };
        let control = NonNull::from(control);
        let functions = qjs::JSMallocFunctions {
            js_calloc: Some(js_calloc),
            js_malloc: Some(js_malloc),
            js_free: Some(js_free),
            js_realloc: Some(js_realloc),
            js_malloc_usable_size: Some(js_usable_size),
        };
        // SAFETY: the functions fit each other, and `control` is freed after all that they allocated.
        let raw = unsafe { qjs::JS_NewRuntime2(&functions, control.as_ptr().cast()) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: no runtime refers to it.
            let control = unsafe { Box::from_raw(control.as_ptr()) };
            return Err(control.limit_error(Limit::Memory));
        };
        // SAFETY: the runtime is live.
        unsafe {
            qjs::JS_SetRuntimeOpaque(raw.as_ptr(), control.as_ptr().cast());
            qjs::JS_SetMaxStackSize(raw.as_ptr(), options.stack_bytes as _);
            qjs::JS_SetInterruptHandler(raw.as_ptr(), Some(interrupt), control.as_ptr().cast());
        }
        let runtime = Runtime { raw, control };
        runtime.raise_gc_threshold();
        let class = lazy::register(&runtime);
        let class = class.ok_or_else(|| runtime.control().limit_error(Limit::Memory))?;
        runtime.control().lazy_class.set(class);
        Ok(runtime)
    }

    /// Reference counts free documents; the collector only has to find rings. It is not needed while memory is plenty.
    pub fn raise_gc_threshold(&self) {
        let threshold = self.control().options.memory_bytes / 4;
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
        // SAFETY: it lives as long as `self`, and nobody makes a `&mut` of it.
        unsafe { self.control.as_ref() }
    }

    /// Bytes that QuickJS has in use.
    pub fn memory_used(&self) -> usize {
        self.control().used.get()
    }

    /// The way in, which does not borrow the runtime.
    pub fn entrance(&self) -> Entrance {
        Entrance {
            raw: self.raw,
            control: self.control,
        }
    }

    /// See [`Entrance::enter`].
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: the runtime is borrowed, and so lives on.
        unsafe { self.entrance().enter(work) }
    }
}

/// What it takes to enter a runtime.
pub(super) struct Entrance {
    raw: NonNull<qjs::JSRuntime>,
    control: NonNull<Control>,
}

impl Entrance {
    /// Runs `work` with the clock at zero and enough stack for what JavaScript and our own recursion may use.
    ///
    /// # Safety
    /// The runtime lives until `work` is done, and is this thread's.
    pub unsafe fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        // SAFETY: by the caller; nobody makes a `&mut` of it.
        let control = unsafe { self.control.as_ref() };
        let stack = control.options.stack_bytes + OWN_STACK;
        stacker::maybe_grow(stack, stack + (128 << 10), || {
            // SAFETY: by the caller.
            unsafe { qjs::JS_UpdateStackTop(self.raw.as_ptr()) };
            control.start_clock();
            work()
        })
    }
}

#[cfg(test)]
impl Runtime {
    pub fn collect(&self) {
        // SAFETY: the runtime is live and used by this thread only.
        unsafe { qjs::JS_RunGC(self.raw.as_ptr()) }
    }

    /// QuickJS's own teardown, which aborts when an object is left; answers the bytes that are left after it.
    pub fn close(self) -> usize {
        // SAFETY: nothing is used of the runtime afterwards but our own `Control`, by `drop`.
        unsafe { qjs::JS_FreeRuntime(self.raw.as_ptr()) };
        self.memory_used()
    }
}

impl Drop for Runtime {
    /// Frees all memory at once, without QuickJS's own teardown: that one checks by an `abort` that no value is left, which
    /// nobody promises after an allocation failed in the midst of things. Nothing in a runtime owns more than memory.
    fn drop(&mut self) {
        // SAFETY: nothing uses the runtime any more. All blocks are in the ring or spare, each with its size.
        unsafe {
            let control = Box::from_raw(self.control.as_ptr());
            let head = control.ring.get();
            let mut block = (*head).next;
            while !ptr::eq(block, head) {
                let next = (*block).next;
                Control::give_back(block, (*block).size);
                block = next;
            }
            for block in control.spare.borrow_mut().drain(..) {
                Control::give_back(block, ARENA);
            }
        }
    }
}
