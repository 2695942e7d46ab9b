//! mimalloc as the allocator of this program, and the free memory that it keeps for later use.

// An allocator cannot be written without it. The rest of the program denies it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// mimalloc as the allocator of a program.
///
/// The `mimalloc` crate asks for an alignment in every call, which takes a longer way in mimalloc, although
/// nearly all allocations need no more than every allocation has.
pub(crate) struct Mimalloc;

/// The alignment of every allocation that is at least as large (`MI_MAX_ALIGN_SIZE`).
const NATURAL_ALIGN: usize = 16;

fn is_natural(layout: Layout) -> bool {
    layout.align() <= NATURAL_ALIGN && layout.align() <= layout.size()
}

// SAFETY: every function passes the size on, and the alignment too where mimalloc does not guarantee it
// anyway; memory from each of them can be freed and resized by the others.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the functions take every size and every power of two.
        unsafe {
            if is_natural(layout) {
                libmimalloc_sys::mi_malloc(layout.size())
            } else {
                libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align())
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe {
            if is_natural(layout) {
                libmimalloc_sys::mi_zalloc(layout.size())
            } else {
                libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align())
            }
        }
        .cast()
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the caller got the memory from this allocator, and does not use it any more.
        unsafe { libmimalloc_sys::mi_free(memory.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_natural = is_natural(layout) && layout.align() <= size;
        // SAFETY: the caller got the memory from this allocator, and uses only the result.
        unsafe {
            if is_natural {
                libmimalloc_sys::mi_realloc(memory.cast(), size)
            } else {
                libmimalloc_sys::mi_realloc_aligned(memory.cast(), size, layout.align())
            }
        }
        .cast()
    }
}

/// Returns memory to the system that has been free for about a second.
///
/// mimalloc itself does this only while it searches for larger pieces of memory, so an idle process
/// would keep the memory of its last load.
pub(crate) fn give_back_free_memory() {
    // SAFETY: the function may be called at any time on any thread; it takes no pointers, and frees
    // no memory that is in use.
    unsafe {
        mi_collect(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_keeps_its_bytes_when_it_is_resized() {
        for align in [1, 2, 8, 16, 32, 64, 4096] {
            for size in [1, 7, 8, 15, 16, 17, 24, 48, 1023, 1024, 1025, 70_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the memory is as large as the layout says, and is freed with its last layout.
                unsafe {
                    let zeroed = Mimalloc.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align), "{layout:?}");
                    let bytes = std::slice::from_raw_parts_mut(zeroed, size);
                    assert!(bytes.iter().all(|byte| *byte == 0), "{layout:?}");
                    Mimalloc.dealloc(zeroed, layout);
                    let first = Mimalloc.alloc(layout);
                    assert!(first.addr().is_multiple_of(align), "{layout:?}");
                    first.write_bytes(7, size);
                    let resized = Mimalloc.realloc(first, layout, size * 3);
                    assert!(resized.addr().is_multiple_of(align), "{layout:?}");
                    let bytes = std::slice::from_raw_parts(resized, size);
                    assert!(bytes.iter().all(|byte| *byte == 7), "{layout:?}");
                    let larger = Layout::from_size_align(size * 3, align).unwrap();
                    Mimalloc.dealloc(resized, larger);
                }
            }
        }
    }
}
