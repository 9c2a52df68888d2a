//! QuickJS's memory, through an allocator of our own: it counts, has a limit, and can free
//! everything in one step.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;

use rquickjs_sys as qjs;

use crate::control::Control;
use crate::limits::Limit;

/// QuickJS carves small values out of blocks of at most this size, and frees a block when its last
/// value dies.
const ARENA: usize = 4096;
/// Number of spare blocks, so that a document's worth of them is not freed and allocated again.
const SPARE_ARENAS: usize = 512;
/// Bytes between two readings of the clock. A smaller block counts as an arena.
const CLOCK_BYTES: usize = 64 * ARENA;

/// Memory for the error that ends a function, in bytes.
const ERROR_BYTES: usize = 16 * ARENA;

/// In front of each block that QuickJS was given: blocks form a ring, so that all can be freed
/// without QuickJS's help.
#[repr(C, align(16))]
pub(crate) struct Block {
    previous: *mut Block,
    next: *mut Block,
    pub size: usize,
    /// It is in an [`Image`](crate::rewind::Image), and in no ring.
    pub kept: bool,
}

pub(crate) const HEADER: usize = size_of::<Block>();

/// The blocks of one heap.
pub(crate) struct Blocks {
    /// The ring's head; it is moved no more once [`Blocks::close_ring`] was called.
    ring: UnsafeCell<Block>,
    /// Bytes in use.
    pub used: Cell<usize>,
    spare: RefCell<Vec<*mut Block>>,
    /// Bytes until the clock is read: long-running built-in functions do not call the interrupt
    /// handler, but most of them allocate.
    clock_bytes_left: Cell<usize>,
    /// Bytes left for the error that ends the function.
    error_bytes_left: Cell<usize>,
}

impl Blocks {
    pub fn new() -> Blocks {
        Blocks {
            ring: UnsafeCell::new(Block {
                previous: ptr::null_mut(),
                next: ptr::null_mut(),
                size: 0,
                kept: false,
            }),
            used: Cell::new(0),
            spare: RefCell::default(),
            clock_bytes_left: Cell::new(CLOCK_BYTES),
            error_bytes_left: Cell::new(0),
        }
    }

    /// Makes the ring, once this has its place in memory.
    pub fn close_ring(&mut self) {
        let head = self.ring.get();
        let ring = self.ring.get_mut();
        ring.previous = head;
        ring.next = head;
    }

    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size.checked_add(HEADER)?, align_of::<Block>()).ok()
    }

    /// # Safety
    /// `block` is a live allocation of `layout(size)` that is in no ring.
    unsafe fn link(&self, block: *mut Block, size: usize) -> *mut c_void {
        let ring = self.ring.get();
        // SAFETY: the ring's head lives as long as the heap (it is boxed), and all its blocks are
        // live.
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

    /// # Safety
    /// `pointer` came from [`Control::allocate`] or [`Control::reallocate`] and was not freed
    /// since.
    unsafe fn free(&self, pointer: *mut c_void) {
        // SAFETY: the header precedes the result of `allocate`, and such blocks are in the ring.
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

    /// Keeps an arena for later, or frees a block.
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

    /// Bytes of free blocks that are kept.
    pub fn spare_bytes(&self) -> usize {
        self.spare.borrow().len() * (ARENA + HEADER)
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
            // SAFETY: by the caller; the layout is the one that it was allocated with.
            unsafe { alloc::dealloc(block.cast(), layout) };
        }
    }

    /// Frees all blocks except those of an image.
    ///
    /// # Safety
    /// The heap is not used any more.
    pub unsafe fn give_all_back(&self) {
        // SAFETY: by the caller. All blocks are in the ring or spare, each with its size.
        unsafe {
            for block in self.detach() {
                Self::give_back(block, (*block).size);
            }
            for block in self.spare.borrow_mut().drain(..) {
                Self::give_back(block, ARENA);
            }
        }
    }
}

impl Control {
    /// Provides memory for the error with which QuickJS ends the function: JavaScript cannot catch
    /// it, but without memory QuickJS throws an error that it can.
    pub(crate) fn provide_error(&self) {
        self.blocks.error_bytes_left.set(ERROR_BYTES);
    }

    /// Whether this much memory may be allocated. After a limit was hit, every attempt of
    /// JavaScript fails: it may catch the exception and try again.
    fn may_allocate(&self, size: usize, more: usize) -> bool {
        let blocks = &self.blocks;
        if self.over().is_some() {
            let left = blocks.error_bytes_left.get().checked_sub(size);
            blocks.error_bytes_left.set(left.unwrap_or(0));
            return left.is_some();
        }
        if more > self.limits.memory_bytes.saturating_sub(blocks.used.get()) {
            self.set_over(Limit::Memory);
            return false;
        }
        let cost = size.max(ARENA);
        match blocks.clock_bytes_left.get().checked_sub(cost) {
            Some(left) => blocks.clock_bytes_left.set(left),
            None => {
                blocks.clock_bytes_left.set(CLOCK_BYTES);
                return !self.must_stop();
            }
        }
        true
    }

    fn allocate(&self, size: usize, zeroed: bool) -> *mut c_void {
        let blocks = &self.blocks;
        // Arenas differ by some bytes by size class; made equal, each can serve any class.
        let arena = size > ARENA - 1024 && size <= ARENA;
        let size = if arena { ARENA } else { size };
        if !self.may_allocate(size, size) {
            return ptr::null_mut();
        }
        let Some(layout) = Blocks::layout(size) else {
            return ptr::null_mut();
        };
        let spare = if arena && !zeroed {
            blocks.spare.borrow_mut().pop()
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
        blocks.used.set(blocks.used.get() + size);
        // SAFETY: the block was just allocated with this layout, or was removed from the ring when
        // it became spare.
        unsafe { blocks.link(block, size) }
    }

    /// # Safety
    /// As for [`Blocks::free`].
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
                self.blocks.free(pointer);
            }
            new
        }
    }

    /// Leaves it to the system allocator to move a large block, which may cost nothing.
    ///
    /// # Safety
    /// `block` is in the ring, its size is `old`.
    unsafe fn resize(&self, block: *mut Block, old: usize, size: usize) -> *mut c_void {
        let blocks = &self.blocks;
        if !self.may_allocate(size, size.saturating_sub(old)) {
            return ptr::null_mut();
        }
        let (Some(layout), Some(wanted)) = (Blocks::layout(old), Blocks::layout(size)) else {
            return ptr::null_mut();
        };
        // SAFETY: the block has this layout; it is out of the ring while it may move, and back in
        // it afterwards, wherever it then is.
        unsafe {
            Blocks::unlink(block);
            let moved = alloc::realloc(block.cast(), layout, wanted.size()).cast::<Block>();
            if moved.is_null() {
                blocks.link(block, old);
                self.set_over(Limit::Memory);
                return ptr::null_mut();
            }
            blocks.used.set(blocks.used.get() - old + size);
            blocks.link(moved, size)
        }
    }
}

/// The functions that QuickJS calls, with the heap's [`Control`] as the opaque pointer.
pub(crate) const FUNCTIONS: qjs::JSMallocFunctions = qjs::JSMallocFunctions {
    js_calloc: Some(js_calloc),
    js_malloc: Some(js_malloc),
    js_free: Some(js_free),
    js_realloc: Some(js_realloc),
    js_malloc_usable_size: Some(js_usable_size),
};

unsafe extern "C" fn js_malloc(opaque: *mut c_void, size: qjs::size_t) -> *mut c_void {
    // SAFETY: `opaque` is the `Control` that the runtime was created with, and outlives it.
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
        unsafe { (*opaque.cast::<Control>()).blocks.free(pointer) }
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
