//! A heap as it was at a moment, which it can be taken back to: so what one call leaves behind (a changed prototype, a global,
//! a module's state) is not there for the next. Copying some hundred kilobytes back costs a tenth of making a new heap.

use std::ptr;

use super::runtime::{Block, Control, HEADER};

/// The contents of all blocks that a heap had.
pub(super) struct Image {
    blocks: Vec<*mut Block>,
    /// One block's behind the other's.
    contents: Vec<u8>,
    used: usize,
}

impl Control {
    /// Keeps what the heap is now. From now on its blocks are not given back before the heap is.
    ///
    /// # Safety
    /// Nothing runs in the runtime, and its blocks are all of what it consists of.
    pub unsafe fn image(&self) -> Image {
        let mut blocks = Vec::new();
        let mut contents: Vec<u8> = Vec::with_capacity(self.used.get());
        // SAFETY: blocks in the ring are live, and each has `size` bytes behind its header. Arenas are given out whole, with
        // whatever was in them: reading that is reading memory that QuickJS may read as well.
        unsafe {
            for block in self.detach() {
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
            used: self.used.get(),
        }
    }

    /// Makes the heap what it was when the image was made.
    ///
    /// # Safety
    /// The image is of this heap, nothing runs in it, and nobody has values of it that were made since.
    pub unsafe fn rewind(&self, image: &Image) {
        // SAFETY: what was allocated since is in the ring, and nothing of the image refers to it. The image's blocks were not
        // given back.
        unsafe {
            for block in self.detach() {
                self.retire(block);
            }
            let mut at = 0;
            for &block in &image.blocks {
                let size = (*block).size;
                let from = image.contents.as_ptr().add(at);
                ptr::copy_nonoverlapping(from, block.cast::<u8>().add(HEADER), size);
                at += size;
            }
        }
        self.used.set(image.used);
    }

    /// Gives the blocks of an image back.
    ///
    /// # Safety
    /// The image is of this heap, which is not used any more.
    pub unsafe fn forget(&self, image: Image) {
        for block in image.blocks {
            // SAFETY: by the caller; these blocks are in no ring.
            unsafe { Control::give_back(block, (*block).size) };
        }
    }
}
