//! The names of callbacks for people.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// The name of a callback: what it is for, and the symbol of the function.
#[derive(Debug)]
pub(crate) struct CallbackName {
    role: String,
    address: usize,
}

impl CallbackName {
    /// The name of a function of the program.
    pub(crate) fn of(address: usize, role: String) -> Arc<Self> {
        Arc::new(Self { role, address })
    }
}

impl fmt::Display for CallbackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.role)?;
        // SAFETY: all fields are pointers, for which zero is valid.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: it only looks the address up, and writes to `found`.
        let is_found = unsafe { libc::dladdr(self.address as *const c_void, &raw mut found) } != 0;
        if is_found && !found.dli_sname.is_null() {
            // SAFETY: the symbol is a text that ends with NUL, in the tables of a program that is not unloaded during the call.
            let symbol = unsafe { std::ffi::CStr::from_ptr(found.dli_sname) };
            write!(f, " ({})", symbol.to_string_lossy())?;
        }
        Ok(())
    }
}
