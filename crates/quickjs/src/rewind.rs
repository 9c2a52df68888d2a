//! A heap that can be restored to an earlier state: so what one call leaves behind (a changed
//! prototype, a global, a module's state) is gone for the next. Copying back some hundred kilobytes
//! costs a tenth of creating a new heap.

use std::ptr;

use rquickjs_sys as qjs;

use crate::allocator::{Block, Blocks, HEADER};
use crate::heap::{Context, Enter, Heap};
use crate::host::Host;
use crate::limits::Limit;
use crate::scope::Scope;

/// A heap that can be restored to its state when this was created. It has the contexts of that
/// moment.
pub struct RewindingHeap {
    heap: Heap,
    image: Image,
    /// The retained values of each context.
    kept: Vec<Vec<qjs::JSValue>>,
}

// SAFETY: as for `Heap`; the image is its memory.
unsafe impl Send for RewindingHeap {}

impl Heap {
    /// Records the present contents of the heap.
    pub fn rewinding(self) -> RewindingHeap {
        for (_, realm) in &self.realms {
            // SAFETY: the heap is not entered: nothing runs, and nothing is being built.
            unsafe { realm.forget() };
        }
        let kept = self
            .realms
            .iter()
            .map(|(_, realm)| realm.kept.borrow().clone());
        let kept = kept.collect();
        // SAFETY: nothing runs in the heap.
        let image = unsafe { Image::new(&self.runtime.control().blocks) };
        RewindingHeap {
            heap: self,
            image,
            kept,
        }
    }
}

impl RewindingHeap {
    /// Restores the recorded contents of the heap. Limits that were hit stay hit.
    pub fn rewind(&mut self) {
        let control = self.heap.runtime.control();
        for ((_, realm), kept) in self.heap.realms.iter().zip(&self.kept) {
            // SAFETY: as in `rewinding`.
            unsafe { realm.abandon() };
            realm.kept.borrow_mut().clone_from(kept);
        }
        // A panic may have left some behind.
        control.emitting.set(false);
        control.emitted.borrow_mut().clear();
        // SAFETY: the image is of this heap. Nothing runs in it; values that were created since are
        // gone with their scope, or were forgotten here.
        unsafe { self.image.rewind(&control.blocks) };
    }

    /// See [`Heap::over`].
    pub fn over(&self) -> Option<Limit> {
        self.heap.over()
    }

    /// See [`Heap::memory_used`].
    pub fn memory_used(&self) -> usize {
        self.heap.memory_used()
    }

    /// Bytes that the heap takes of the process: what is in use, the image, and free blocks that
    /// are kept.
    pub fn footprint(&self) -> usize {
        let control = self.heap.runtime.control();
        self.memory_used() + self.image.contents.len() + control.blocks.spare_bytes()
    }
}

impl Enter for RewindingHeap {
    fn enter<T>(
        &mut self,
        context: &Context,
        host: &dyn Host,
        work: impl for<'js> FnOnce(&Scope<'js>) -> T,
    ) -> T {
        self.heap.enter(context, host, work)
    }
}

impl Drop for RewindingHeap {
    fn drop(&mut self) {
        // SAFETY: the heap is dropped next, without reading its contents.
        unsafe { self.image.give_back() };
    }
}

/// The contents of all blocks of a heap. While there is an image, its blocks are not freed.
pub(crate) struct Image {
    blocks: Vec<*mut Block>,
    /// The blocks' contents, concatenated.
    contents: Vec<u8>,
    used: usize,
}

impl Image {
    /// # Safety
    /// Nothing runs in the heap.
    unsafe fn new(heap: &Blocks) -> Image {
        let mut blocks = Vec::new();
        let mut contents: Vec<u8> = Vec::with_capacity(heap.used.get());
        // SAFETY: blocks in the ring are live, and each has `size` bytes after its header. Arenas
        // are returned whole, with their old contents: reading them is reading memory that QuickJS
        // may read as well.
        unsafe {
            for block in heap.detach() {
                (*block).kept = true;
                let start = block.cast::<u8>().add(HEADER);
                let size = (*block).size;
                contents.reserve(size);
                ptr::copy_nonoverlapping(start, contents.as_mut_ptr().add(contents.len()), size);
                contents.set_len(contents.len() + size);
                blocks.push(block);
            }
        }
        Image {
            blocks,
            contents,
            used: heap.used.get(),
        }
    }

    /// Restores the heap to its state when the image was created.
    ///
    /// # Safety
    /// The image is of this heap, nothing runs in it, and there are no values of it that were
    /// created since.
    unsafe fn rewind(&self, heap: &Blocks) {
        // SAFETY: newer allocations are in the ring, and nothing of the image refers to them. The
        // image's blocks were not freed.
        unsafe {
            for block in heap.detach() {
                heap.retire(block);
            }
            let mut at = 0;
            for &block in &self.blocks {
                let size = (*block).size;
                let from = self.contents.as_ptr().add(at);
                ptr::copy_nonoverlapping(from, block.cast::<u8>().add(HEADER), size);
                at += size;
            }
        }
        heap.used.set(self.used);
    }

    /// Frees the blocks.
    ///
    /// # Safety
    /// The heap is not used any more.
    unsafe fn give_back(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: by the caller; these blocks are in no ring.
            unsafe { Blocks::give_back(block, (*block).size) };
        }
    }
}
