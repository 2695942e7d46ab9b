//! Texts that the library makes for C, which frees them.

use std::ffi::{CString, c_char};

use crate::ffi::protect;

/// A text for C, which frees it by `apus_string_free`.
pub(crate) fn owned(text: String) -> *mut c_char {
    let text = CString::new(text.replace('\0', "\\0"));
    text.unwrap_or_default().into_raw()
}

/// Frees a text that a function of this library returned as `char *`. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_string_free(text: *mut c_char) {
    protect("apus_string_free", || free(text));
}

fn free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the header says that the text is of this library, which makes such texts by `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}
