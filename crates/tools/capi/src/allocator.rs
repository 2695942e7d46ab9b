//! The allocator of the library: the system's, or functions of the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::error::{ApusStatus, CallError};
use crate::ffi::status;
use crate::user::UserPointer;

/// The memory functions of apus_set_allocator().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusAllocator {
    /// As aligned_alloc(3): `align` is a power of two. NULL when there is no memory. By any thread.
    pub allocate: Option<extern "C" fn(align: usize, len: usize, user: *mut c_void) -> *mut c_void>,
    /// Frees memory of `allocate`. `len` and `align` are the ones that were allocated with. By any thread.
    pub release:
        Option<extern "C" fn(memory: *mut c_void, align: usize, len: usize, user: *mut c_void)>,
    /// Is passed to both.
    pub user: *mut c_void,
}

/// The functions of the program.
struct Hooks {
    allocate: extern "C" fn(usize, usize, *mut c_void) -> *mut c_void,
    release: extern "C" fn(*mut c_void, usize, usize, *mut c_void),
    user: UserPointer,
}

/// Where the hooks are kept. It is set once.
static KEPT: OnceLock<Hooks> = OnceLock::new();
/// The hooks, for each allocation; NULL without any.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());
/// Whether anything was allocated.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The allocator of the library.
struct HookedAllocator;

#[global_allocator]
static ALLOCATOR: HookedAllocator = HookedAllocator;

fn hooks() -> Option<&'static Hooks> {
    let hooks = HOOKS.load(Ordering::Acquire);
    // SAFETY: the pointer is NULL, or of a static value that was written before the pointer.
    unsafe { hooks.as_ref() }
}

// SAFETY: memory comes from the hooks, or from the system, for the whole life of the process: hooks are refused once anything was
// allocated. Both keep to the contract: the header states it for the hooks.
unsafe impl GlobalAlloc for HookedAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(hooks) = hooks() {
            return (hooks.allocate)(layout.align(), layout.size(), hooks.user.0).cast();
        }
        if !IS_USED.load(Ordering::Relaxed) {
            IS_USED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match hooks() {
            Some(hooks) => {
                (hooks.release)(memory.cast(), layout.align(), layout.size(), hooks.user.0);
            }
            // SAFETY: the caller keeps to the contract of `dealloc`, and there were no hooks at the allocation.
            None => unsafe { System.dealloc(memory, layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if hooks().is_none() {
            if !IS_USED.load(Ordering::Relaxed) {
                IS_USED.store(true, Ordering::Relaxed);
            }
            // SAFETY: the caller keeps to the contract of `alloc_zeroed`.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as above.
        let memory = unsafe { self.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: the memory has this size.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if hooks().is_none() {
            // SAFETY: the caller keeps to the contract of `realloc`.
            return unsafe { System.realloc(memory, layout, new_size) };
        }
        // SAFETY: the caller passes a size that is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the new size is not zero, as the contract of `realloc` says.
        let moved = unsafe { self.alloc(new_layout) };
        if !moved.is_null() {
            let common = layout.size().min(new_size);
            // SAFETY: both have this many bytes, and are apart.
            unsafe { std::ptr::copy_nonoverlapping(memory, moved, common) };
            // SAFETY: the caller gives the old memory up.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

/// Makes all memory of the library come from these functions, except for its cryptography and compression, which are in C and
/// use malloc(3). It has to be the first call of the library in the process.
/// Errors: APUS_STATE if the library has memory already; APUS_INVALID if a function is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn apus_set_allocator(allocator: Option<&ApusAllocator>) -> ApusStatus {
    let given = allocator.and_then(|allocator| {
        Some(Hooks {
            allocate: allocator.allocate?,
            release: allocator.release?,
            user: UserPointer(allocator.user),
        })
    });
    let is_used = IS_USED.load(Ordering::Relaxed) || hooks().is_some();
    if let (Some(hooks), false) = (given, is_used) {
        // Nothing above allocates: an error would.
        let kept = KEPT.get_or_init(|| hooks);
        HOOKS.store(std::ptr::from_ref(kept).cast_mut(), Ordering::Release);
        return ApusStatus::Ok;
    }
    status("apus_set_allocator", || {
        if is_used {
            Err(CallError::state(
                "no memory of the library in use",
                "a library that was used before",
                "make this the first call of the program",
            ))
        } else {
            Err(CallError::null("allocator, or one of its functions"))
        }
    })
}
