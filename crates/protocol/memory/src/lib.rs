//! Memory that only `unsafe` code can manage: sealed memfd bodies, and the allocator.

mod allocator;
mod memfd;

#[cfg(feature = "mimalloc")]
pub use allocator::Mimalloc;
pub use allocator::give_back_free_memory;
pub use memfd::SealedMemory;
