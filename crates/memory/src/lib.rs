//! Memory that only `unsafe` code can manage: sealed memfd bodies, and the free memory of the allocator.

mod allocator;
mod memfd;

pub use allocator::give_back_free_memory;
pub use memfd::SealedMemory;
