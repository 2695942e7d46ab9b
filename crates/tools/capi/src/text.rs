//! Texts and bytes that C passes and gets: a pointer and a length, or a text that ends with NUL.

use std::ffi::{CStr, c_char, c_void};

use crate::error::CallError;

/// The length of a text that ends with NUL. The header has it as `SIZE_MAX`.
///
/// cbindgen:ignore
pub const APUS_NTS: usize = usize::MAX;

/// A string: a pointer and a length. It has no NUL at the end. `data` is NULL if there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusStr {
    /// The first byte.
    pub data: *const c_char,
    /// The number of bytes.
    pub len: usize,
}

impl ApusStr {
    /// No string.
    pub(crate) const ABSENT: Self = Self {
        data: std::ptr::null(),
        len: 0,
    };

    /// A view of these bytes, which C may use as long as their owner lives.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }

    pub(crate) fn of_option(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::ABSENT, Self::of)
    }

    /// The bytes of a string that C passed in.
    pub(crate) fn bytes<'a>(self) -> Result<&'a [u8], CallError> {
        bytes(self.data.cast(), self.len)
    }
}

/// The text of a pointer that ends with NUL; `what` is the argument.
pub(crate) fn name<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, CallError> {
    match optional_name(text, what)? {
        Some(text) => Ok(text),
        None => Err(CallError::null(what)),
    }
}

/// As [`name`]; NULL is none.
pub(crate) fn optional_name<'a>(
    text: *const c_char,
    what: &'static str,
) -> Result<Option<&'a str>, CallError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the header says that the pointer is NULL or a text that ends with NUL and does not change during the call, which is
    // as long as the text is used.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(CallError::invalid(
            format!("`{what}` in UTF-8"),
            format!("{text:?}"),
            "convert the text to UTF-8",
        )),
    }
}

/// The bytes of a pointer and a length, or of a text that ends with NUL if the length is `APUS_NTS`.
pub(crate) fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], CallError> {
    match (data.is_null(), len) {
        (true, 0) => Ok(&[]),
        (true, _) => Err(CallError::invalid(
            "bytes",
            "NULL with a length",
            "pass length 0 for no bytes",
        )),
        (false, APUS_NTS) => {
            // SAFETY: the header says that the length APUS_NTS is for texts that end with NUL, which do not change during the call.
            Ok(unsafe { CStr::from_ptr(data.cast()) }.to_bytes())
        }
        (false, len) if len > isize::MAX as usize => Err(CallError::invalid(
            "a length in bytes",
            format!("{len}"),
            "pass a length below half of the address space, or APUS_NTS",
        )),
        // SAFETY: the header says that there are `len` bytes at `data`, which do not change during the call.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// As [`bytes`], for a text.
pub(crate) fn text<'a>(
    data: *const c_char,
    len: usize,
    what: &'static str,
) -> Result<&'a str, CallError> {
    std::str::from_utf8(bytes(data.cast(), len)?).map_err(|error| {
        CallError::invalid(
            format!("`{what}` in UTF-8"),
            error.to_string(),
            "convert the text to UTF-8",
        )
    })
}

/// The version of the library, such as "0.1.0". It is static.
#[unsafe(no_mangle)]
pub extern "C" fn apus_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
