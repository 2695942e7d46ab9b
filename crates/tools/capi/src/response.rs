//! What a handler sets of its response.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use apus::{Body, FileRange, Response, StatusCode, header};
use bytes::Bytes;

use crate::error::{ApusStatus, CallError};
use crate::ffi::{attempt, status};
use crate::handles::ApusResponse;
use crate::request::{field_name, field_of, field_value};
use crate::text::{ApusStr, bytes, name};
use crate::user::{ApusDestroyFn, UserData};

/// The response of a handle.
pub(crate) fn known(response: Option<&mut ApusResponse>) -> Result<&mut Response, CallError> {
    response
        .ok_or_else(|| CallError::null("response"))?
        .response_mut()
}

/// Sets the status (200), 200 to 599. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_set_status(
    response: Option<&mut ApusResponse>,
    code: c_int,
) -> ApusStatus {
    status("apus_response_set_status", || {
        let response = known(response)?;
        let valid = u16::try_from(code)
            .ok()
            .filter(|code| (200..600).contains(code));
        let valid = valid.and_then(|code| StatusCode::from_u16(code).ok());
        response.set_status(valid.ok_or_else(|| {
            CallError::invalid(
                "a status of 200 to 599",
                code.to_string(),
                "see RFC 9110 section 15",
            )
        })?);
        Ok(())
    })
}

/// The status. -1 is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_status(response: Option<&ApusResponse>) -> c_int {
    attempt("apus_response_status", || {
        let response = response
            .ok_or_else(|| CallError::null("response"))?
            .response()?;
        Ok(response.status().as_u16().into())
    })
}

/// Sets a field, in place of all others of its name. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_set_header(
    response: Option<&mut ApusResponse>,
    field: *const c_char,
    value: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_response_set_header", || {
        let response = known(response)?;
        let field = field_name(name(field, "name")?.as_bytes())?;
        let value = field_value(bytes(value.cast(), len)?)?;
        response.headers_mut().insert(&field, &value);
        Ok(())
    })
}

/// Adds a field. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_add_header(
    response: Option<&mut ApusResponse>,
    field: *const c_char,
    value: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_response_add_header", || {
        let response = known(response)?;
        let field = field_name(name(field, "name")?.as_bytes())?;
        let value = field_value(bytes(value.cast(), len)?)?;
        response.headers_mut().append(&field, &value);
        Ok(())
    })
}

/// Removes all fields of a name. Errors: APUS_INVALID; APUS_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_remove_header(
    response: Option<&mut ApusResponse>,
    field: *const c_char,
) -> ApusStatus {
    status("apus_response_remove_header", || {
        let response = known(response)?;
        let field = field_name(name(field, "name")?.as_bytes())?;
        if response.headers_mut().remove(field.as_str()) {
            Ok(())
        } else {
            Err(CallError::new(
                ApusStatus::NotFound,
                format!("a field `{field}` in the response"),
                "none",
                "",
            ))
        }
    })
}

/// The first field of this name. Absent if there is none. Valid until the response is changed.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_header(
    response: Option<&ApusResponse>,
    field: *const c_char,
) -> ApusStr {
    attempt("apus_response_header", || {
        let response = response
            .ok_or_else(|| CallError::null("response"))?
            .response()?;
        Ok(ApusStr::of_option(field_of(
            response.headers(),
            name(field, "name")?,
        )))
    })
}

fn put(response: &mut Response, body: Bytes) {
    *response.body_mut() = if body.is_empty() {
        Body::Empty
    } else {
        Body::Bytes(body)
    };
}

/// Sets the body, which is copied. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_body(
    response: Option<&mut ApusResponse>,
    data: *const c_void,
    len: usize,
) -> ApusStatus {
    status("apus_response_body", || {
        let response = known(response)?;
        put(response, Bytes::copy_from_slice(bytes(data, len)?));
        Ok(())
    })
}

/// Sets the body without a copy: the bytes have to stay until the process ends, such as a string constant.
/// Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_body_static(
    response: Option<&mut ApusResponse>,
    data: *const c_void,
    len: usize,
) -> ApusStatus {
    status("apus_response_body_static", || {
        let response = known(response)?;
        let data: &'static [u8] = bytes(data, len)?;
        put(response, Bytes::from_static(data));
        Ok(())
    })
}

/// Bytes of the program, with what frees them.
struct OwnedBytes {
    data: &'static [u8],
    _owner: UserData,
}

impl AsRef<[u8]> for OwnedBytes {
    fn as_ref(&self) -> &[u8] {
        self.data
    }
}

/// Sets the body without a copy: `destroy` is called with `owner` when it is not needed any more, by any thread, also when
/// the function fails. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_body_owned(
    response: Option<&mut ApusResponse>,
    data: *const c_void,
    len: usize,
    destroy: ApusDestroyFn,
    owner: *mut c_void,
) -> ApusStatus {
    status("apus_response_body_owned", || {
        let owner = UserData::new(owner, destroy);
        let response = known(response)?;
        let data: &'static [u8] = bytes(data, len)?;
        put(
            response,
            Bytes::from_owner(OwnedBytes {
                data,
                _owner: owner,
            }),
        );
        Ok(())
    })
}

fn put_typed(
    response: Option<&mut ApusResponse>,
    data: *const c_char,
    len: usize,
    media_type: &'static str,
) -> Result<(), CallError> {
    let response = known(response)?;
    let body = Bytes::copy_from_slice(bytes(data.cast(), len)?);
    let media_type = apus::HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(&header::CONTENT_TYPE, &media_type);
    put(response, body);
    Ok(())
}

/// Sets the body to a text, which is copied, and Content-Type to text/plain in UTF-8. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_text(
    response: Option<&mut ApusResponse>,
    text: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_response_text", || {
        put_typed(response, text, len, "text/plain; charset=utf-8")
    })
}

/// Sets the body to a page, which is copied, and Content-Type to text/html in UTF-8. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_html(
    response: Option<&mut ApusResponse>,
    html: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_response_html", || {
        put_typed(response, html, len, "text/html; charset=utf-8")
    })
}

/// Sets the body to a JSON text, which is copied, and Content-Type to application/json. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_json(
    response: Option<&mut ApusResponse>,
    json: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_response_json", || {
        put_typed(response, json, len, "application/json")
    })
}

/// The status of a redirect.
pub(crate) fn redirect_status(code: c_int) -> Result<StatusCode, CallError> {
    let status = match code {
        301 => StatusCode::MOVED_PERMANENTLY,
        302 => StatusCode::FOUND,
        303 => StatusCode::SEE_OTHER,
        307 => StatusCode::TEMPORARY_REDIRECT,
        308 => StatusCode::PERMANENT_REDIRECT,
        _ => {
            return Err(CallError::invalid(
                "a status of 301, 302, 303, 307 or 308",
                code.to_string(),
                "use 303 after a form, 308 for a resource that has moved",
            ));
        }
    };
    Ok(status)
}

/// Sets status and Location of a redirect: 301, 302, 303, 307, 308. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_redirect(
    response: Option<&mut ApusResponse>,
    code: c_int,
    location: *const c_char,
) -> ApusStatus {
    status("apus_response_redirect", || {
        let response = known(response)?;
        let code = redirect_status(code)?;
        let location = field_value(name(location, "location")?.as_bytes())?;
        response.set_status(code);
        response.headers_mut().insert(&header::LOCATION, &location);
        Ok(())
    })
}

/// A part of the file behind a descriptor, which is duplicated.
pub(crate) fn file_range(fd: c_int, offset: u64, len: u64) -> Result<FileRange, CallError> {
    if fd < 0 {
        return Err(CallError::invalid(
            "the descriptor of a file",
            fd.to_string(),
            "see the error of open(2)",
        ));
    }
    // SAFETY: it is only used for the call that duplicates it, which fails if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let expected = "the descriptor of a file";
    let owned = fd
        .try_clone_to_owned()
        .map_err(|error| CallError::io(expected, &error))?;
    let file = File::from(owned);
    let metadata = file
        .metadata()
        .map_err(|error| CallError::io(expected, &error))?;
    let end = offset.checked_add(len);
    if !metadata.is_file() || end.is_none_or(|end| end > metadata.len()) {
        return Err(CallError::new(
            ApusStatus::Io,
            format!("a file with {len} bytes from byte {offset}"),
            if metadata.is_file() {
                format!("a file of {} bytes", metadata.len())
            } else {
                "another kind of descriptor".to_owned()
            },
            "see the size by fstat(2)",
        ));
    }
    Ok(FileRange {
        file: Arc::new(file),
        offset,
        len,
    })
}

/// Sets the body to a part of a file, which the kernel sends. The descriptor is duplicated: close yours when you like.
/// Errors: APUS_INVALID; APUS_IO if it is not a file, or shorter than that.
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_sendfile(
    response: Option<&mut ApusResponse>,
    fd: c_int,
    offset: u64,
    len: u64,
) -> ApusStatus {
    status("apus_response_sendfile", || {
        let response = known(response)?;
        *response.body_mut() = Body::File(file_range(fd, offset, len)?);
        Ok(())
    })
}
