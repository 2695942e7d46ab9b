//! Pointers of the program: the `user` of a callback, and data with its destructor.

use std::ffi::c_void;
use std::sync::Arc;

/// Frees data.
pub type ApusDestroyFn = Option<extern "C" fn(data: *mut c_void)>;

/// The `user` of a callback, which is passed back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserPointer(pub(crate) *mut c_void);

// SAFETY: the library never reads what the pointer points to. The header says that callbacks run on all workers with it, so the
// program made its data fit for that.
unsafe impl Send for UserPointer {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserPointer {}

/// Data of the program, which is freed by its destructor.
#[derive(Debug)]
pub(crate) struct UserData {
    data: UserPointer,
    destroy: ApusDestroyFn,
}

impl UserData {
    pub(crate) fn new(data: *mut c_void, destroy: ApusDestroyFn) -> Self {
        Self {
            data: UserPointer(data),
            destroy,
        }
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.data.0
    }
}

/// The data that an application owns, which is freed with its last service.
pub(crate) type OwnedData = Arc<Vec<UserData>>;

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            destroy(self.data.0);
        }
    }
}
