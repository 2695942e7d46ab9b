//! Free memory that the allocator keeps for later use.

#[cfg(feature = "mimalloc")]
use libmimalloc_sys as _;

#[cfg(feature = "mimalloc")]
unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Returns memory to the system that has been free for about a second.
///
/// mimalloc itself does this only while it searches for larger pieces of memory, so an idle process
/// would keep the memory of its last load. With other allocators this function does nothing.
pub fn give_back_free_memory() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: the function may be called at any time on any thread; it takes no pointers, and frees
    // no memory that is in use.
    unsafe {
        mi_collect(false);
    }
}
