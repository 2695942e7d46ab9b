//! Memory that the allocator keeps for later use.

#[cfg(feature = "mimalloc")]
use libmimalloc_sys as _;

#[cfg(feature = "mimalloc")]
unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Gives memory back to the system that has been free for about a second.
///
/// By itself mimalloc does this only while it looks for larger pieces of memory: after a load has ended,
/// what it took would stay for as long as there is little to do. With other allocators this does
/// nothing.
pub fn give_back_free_memory() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: The function may be called at any time on any thread; it takes no pointers, and frees
    // nothing that is in use.
    unsafe {
        mi_collect(false);
    }
}
