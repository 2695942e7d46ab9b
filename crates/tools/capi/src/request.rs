//! What a handler reads of a request, and attaches to it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use apus::{
    Body, BodyError, Frame, HeaderName, HeaderValue, Headers, Response, ResponseFuture, StatusCode,
    Version,
};
use bytes::{Bytes, BytesMut};

use crate::callback::{ApusFieldFn, ApusHandler};
use crate::error::{ApusStatus, CallError};
use crate::ffi::{attempt, status};
use crate::handles::{ApusDoneFn, ApusRequest, Handles, RequestData};
use crate::text::{ApusStr, name};
use crate::user::{ApusDestroyFn, UserData, UserPointer};

/// The version of HTTP of a request.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusHttpVersion {
    /// HTTP/1.0.
    V1_0 = 10,
    /// HTTP/1.1.
    V1_1 = 11,
    /// HTTP/2.
    V2 = 20,
    /// HTTP/3.
    V3 = 30,
}

impl From<Version> for ApusHttpVersion {
    fn from(version: Version) -> Self {
        match version {
            Version::HTTP_10 => Self::V1_0,
            Version::HTTP_2 => Self::V2,
            Version::HTTP_3 => Self::V3,
            _ => Self::V1_1,
        }
    }
}

/// A field of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusField {
    /// Its name, in lower case where the library returns it.
    pub name: ApusStr,
    /// Its value.
    pub value: ApusStr,
}

fn known(request: Option<&ApusRequest>) -> Result<&ApusRequest, CallError> {
    request.ok_or_else(|| CallError::null("request"))
}

fn known_mut(request: Option<&mut ApusRequest>) -> Result<&mut ApusRequest, CallError> {
    request.ok_or_else(|| CallError::null("request"))
}

/// The method.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_method(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_method", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of(request.method().as_str().as_bytes()))
    })
}

/// The path as it came, percent-encoded; in a mounted application without the path of the mount.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_path(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_path", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of(request.path().as_bytes()))
    })
}

/// The query without its question mark, as it came. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_query(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_query", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of_option(request.query().map(str::as_bytes)))
    })
}

/// The first value of this name in the query, decoded. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_query_value(
    request: Option<&mut ApusRequest>,
    field: *const c_char,
) -> ApusStr {
    attempt("apus_request_query_value", || {
        let request = known_mut(request)?;
        let field = name(field, "name")?;
        let query = request.request()?.query().unwrap_or("");
        let found = query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key) == field.as_bytes()).then(|| decoded(value))
        });
        Ok(match found {
            Some(value) => ApusStr::of(request.keep(value)),
            None => ApusStr::ABSENT,
        })
    })
}

/// A part of a form (WHATWG URL, application/x-www-form-urlencoded), decoded.
fn decoded(text: &str) -> Vec<u8> {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).collect()
}

/// A parameter of the path, decoded. Absent if the route has none of that name.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_param(
    request: Option<&ApusRequest>,
    parameter: *const c_char,
) -> ApusStr {
    attempt("apus_request_param", || {
        let request = known(request)?;
        request.request()?;
        let found = request.parameter(name(parameter, "name")?);
        Ok(ApusStr::of_option(found.map(str::as_bytes)))
    })
}

fn number<T: std::str::FromStr>(
    request: Option<&ApusRequest>,
    parameter: *const c_char,
    value: Option<&mut T>,
    kind: &'static str,
) -> Result<(), CallError> {
    let request = known(request)?;
    request.request()?;
    let parameter = name(parameter, "name")?;
    let value = value.ok_or_else(|| CallError::null("value"))?;
    let text = request.parameter(parameter).ok_or_else(|| {
        CallError::new(
            ApusStatus::NotFound,
            format!("a parameter `{parameter}` of the path"),
            "a route without it",
            "name it in the path of the route, as /users/{id}",
        )
    })?;
    *value = text.parse().map_err(|_| {
        CallError::invalid(
            format!("{kind} for `{parameter}`"),
            format!("{text:?}"),
            "return 400 or 404 from the handler",
        )
    })?;
    Ok(())
}

/// A parameter of the path as a number. Errors: APUS_NOT_FOUND; APUS_INVALID if it is not such a number.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_param_i64(
    request: Option<&ApusRequest>,
    parameter: *const c_char,
    value: Option<&mut i64>,
) -> ApusStatus {
    status("apus_request_param_i64", || {
        number(request, parameter, value, "an integer of 64 bits")
    })
}

/// A parameter of the path as a number. Errors: APUS_NOT_FOUND; APUS_INVALID if it is not such a number.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_param_u64(
    request: Option<&ApusRequest>,
    parameter: *const c_char,
    value: Option<&mut u64>,
) -> ApusStatus {
    status("apus_request_param_u64", || {
        number(
            request,
            parameter,
            value,
            "an integer of 64 bits without a sign",
        )
    })
}

/// The first field of this name, in any case. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_header(
    request: Option<&ApusRequest>,
    field: *const c_char,
) -> ApusStr {
    attempt("apus_request_header", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of_option(field_of(
            request.headers(),
            name(field, "name")?,
        )))
    })
}

/// The first field of this name, in any case.
pub(crate) fn field_of<'h>(headers: &'h Headers, name: &str) -> Option<&'h [u8]> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        headers.get(name.to_ascii_lowercase())
    } else {
        headers.get(name)
    }
}

/// Calls a function with each field.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_each_header(
    request: Option<&ApusRequest>,
    each: ApusFieldFn,
    user: *mut c_void,
) {
    attempt("apus_request_each_header", || {
        let request = known(request)?.request()?;
        let each = each.ok_or_else(|| CallError::null("each"))?;
        for (name, value) in request.headers().iter() {
            if !each(ApusStr::of(name.as_bytes()), ApusStr::of(value), user) {
                break;
            }
        }
        Ok(())
    });
}

/// The value of a cookie. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_cookie(
    request: Option<&ApusRequest>,
    cookie: *const c_char,
) -> ApusStr {
    attempt("apus_request_cookie", || {
        let request = known(request)?.request()?;
        let cookie = name(cookie, "name")?;
        let pairs = request.headers().get_all("cookie");
        let mut pairs = pairs.flat_map(|line| line.split(|byte| *byte == b';'));
        let found = pairs.find_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (key, value) = pair.split_at_checked(at)?;
            (key.trim_ascii() == cookie.as_bytes()).then(|| value.get(1..).unwrap_or(&[]))
        });
        // A value may be in double quotes (RFC 6265 section 4.1.1).
        let found = found.map(|value| {
            let inner = value
                .strip_prefix(b"\"")
                .and_then(|rest| rest.strip_suffix(b"\""));
            inner.unwrap_or(value)
        });
        Ok(ApusStr::of_option(found))
    })
}

/// The host that the request names, without the port, in lower case. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_host(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_host", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of_option(request.host().map(str::as_bytes)))
    })
}

/// "http" or "https", as the client sees it.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_scheme(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_scheme", || {
        let request = known(request)?.request()?;
        Ok(ApusStr::of(request.scheme().as_bytes()))
    })
}

impl crate::ffi::CallResult for ApusHttpVersion {
    fn failure(_: ApusStatus) -> Self {
        Self::V1_1
    }
}

/// The version of HTTP.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_version(request: Option<&ApusRequest>) -> ApusHttpVersion {
    attempt("apus_request_version", || {
        Ok(known(request)?.request()?.version().into())
    })
}

/// The address of the client. Absent for a client over a Unix socket.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_client(request: Option<&mut ApusRequest>) -> ApusStr {
    attempt("apus_request_client", || {
        let request = known_mut(request)?;
        let address = request.request()?.client().ip;
        Ok(match address {
            Some(address) => ApusStr::of(request.keep(address.to_string().into_bytes())),
            None => ApusStr::ABSENT,
        })
    })
}

/// The certificate of the client, as DER. Absent if it presented none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_client_certificate(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_client_certificate", || {
        let request = known(request)?.request()?;
        let tls = request.connection().tls.as_ref();
        let certificate = tls.and_then(|tls| tls.client_certificate.as_ref());
        Ok(ApusStr::of_option(
            certificate.map(|certificate| &*certificate.der),
        ))
    })
}

/// The body of the request, in the function that apus_request_read_body() calls. Absent elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_body(request: Option<&ApusRequest>) -> ApusStr {
    attempt("apus_request_body", || {
        let request = known(request)?;
        request.request()?;
        Ok(ApusStr::of_option(request.body.as_deref()))
    })
}

/// A field of the trailer section, once the body was read. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_trailer(
    request: Option<&ApusRequest>,
    field: *const c_char,
) -> ApusStr {
    attempt("apus_request_trailer", || {
        let request = known(request)?;
        request.request()?;
        let field = name(field, "name")?;
        let found = request
            .trailers
            .as_ref()
            .and_then(|trailers| field_of(trailers, field));
        Ok(ApusStr::of_option(found))
    })
}

/// Attaches a pointer to the request, which `destroy` (may be NULL) frees on the worker when the response has ended, or, if a
/// mounted service responds, when that has taken the request. If a deferred request is completed after the end of its server,
/// `destroy` is called then, by one thread at a time. It replaces, and frees, an earlier one. Errors: APUS_INVALID; the data stays
/// with the caller then.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_set_data(
    request: Option<&mut ApusRequest>,
    data: *mut c_void,
    destroy: ApusDestroyFn,
) -> ApusStatus {
    status("apus_request_set_data", || {
        let request = known_mut(request)?.request_mut()?;
        let data = RequestData(Arc::new(UserData::new(data, destroy)));
        let replaced = request.extensions_mut().insert(data);
        drop(replaced);
        Ok(())
    })
}

/// The pointer that was attached, in a hook for example. NULL if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_data(request: Option<&ApusRequest>) -> *mut c_void {
    attempt("apus_request_data", || {
        let request = known(request)?.request()?;
        let data = request.extensions().get::<RequestData>();
        Ok(data.map_or(std::ptr::null_mut(), |data| data.0.pointer()))
    })
}

/// Calls a function on the worker once when the response has ended, also when the client is gone before. On the worker, in a
/// handler. Errors: APUS_INVALID; APUS_STATE in a hook.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_on_done(
    request: Option<&mut ApusRequest>,
    done: ApusDoneFn,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_request_on_done", || {
        let request = known_mut(request)?;
        request.request()?;
        let done = done.ok_or_else(|| CallError::null("done"))?;
        if request.is_of_hook() {
            return Err(CallError::state(
                "the request of a handler",
                "the request of a hook",
                "attach data with a destructor in a hook, or do this in the handler",
            ));
        }
        request.done_callbacks().add(done, UserPointer(user));
        Ok(())
    })
}

/// Sends an interim response: 102, 103. On the worker. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_interim(
    request: Option<&mut ApusRequest>,
    code: c_int,
    fields: *const ApusField,
    count: usize,
) -> ApusStatus {
    status("apus_request_interim", || {
        let request = known_mut(request)?.request()?;
        let interim = u16::try_from(code)
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok());
        let interim = interim
            .filter(|status| status.is_informational() && !matches!(status.as_u16(), 100 | 101));
        let interim = interim.ok_or_else(|| {
            CallError::invalid(
                "an interim status, 102 to 199",
                code.to_string(),
                "103 is for early hints",
            )
        })?;
        let mut headers = Headers::new();
        for field in fields_of(fields, count)? {
            headers.append(
                &field_name(field.name.bytes()?)?,
                &field_value(field.value.bytes()?)?,
            );
        }
        request.interim().send(interim, headers);
        Ok(())
    })
}

fn fields_of<'a>(fields: *const ApusField, count: usize) -> Result<&'a [ApusField], CallError> {
    match (fields.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::null("fields")),
        // SAFETY: the header says that there are `count` fields at the pointer, which do not change during the call.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(fields, count) }),
    }
}

/// The name of a field.
pub(crate) fn field_name(name: &[u8]) -> Result<HeaderName, CallError> {
    HeaderName::from_bytes(name).map_err(|_| {
        CallError::invalid(
            "the name of a field: letters, digits and hyphens",
            format!("{:?}", String::from_utf8_lossy(name)),
            "see RFC 9110 section 5.1",
        )
    })
}

/// The value of a field.
pub(crate) fn field_value(value: &[u8]) -> Result<HeaderValue, CallError> {
    HeaderValue::from_bytes(value.trim_ascii()).map_err(|_| {
        CallError::invalid(
            "the value of a field: a text without line breaks and control characters",
            format!("{:?}", String::from_utf8_lossy(value)),
            "encode the value, as by base64",
        )
    })
}

/// Reads the whole body, at most `limit` bytes, and then calls `then` as the handler of the request, in which
/// apus_request_body() has it. The handler returns 0 after this. A longer body is a 413. On the worker, in a handler.
/// Errors: APUS_INVALID; APUS_STATE if the response was deferred, or the body is being read already.
#[unsafe(no_mangle)]
pub extern "C" fn apus_request_read_body(
    request: Option<&mut ApusRequest>,
    limit: usize,
    then: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_request_read_body", || {
        let request = known_mut(request)?;
        request.request()?;
        let then = then.ok_or_else(|| CallError::null("then"))?;
        if request.is_body_taken {
            return Err(body_is_taken());
        }
        let user = UserPointer(user);
        request.continue_with(Box::new(move |mut handles, owner| {
            handles.request.is_body_taken = true;
            let Ok(request) = handles.request.request_mut() else {
                return Response::new(StatusCode::INTERNAL_SERVER_ERROR).into();
            };
            let body = request.take_body();
            if let Body::Empty = body {
                handles.request.body = Some(Bytes::new());
                return handles.call(then, user, owner);
            }
            let owner = owner.clone();
            ResponseFuture::later(async move {
                match collect(body, limit, &mut handles).await {
                    Ok(body) => {
                        handles.request.body = Some(body);
                        handles.call(then, user, &owner).wait().await
                    }
                    Err(status) => handles.finish(status, &owner),
                }
            })
        }))?;
        request.is_body_taken = true;
        Ok(())
    })
}

/// The error of a second function that reads a body.
pub(crate) fn body_is_taken() -> CallError {
    CallError::state(
        "a body that nobody reads yet",
        "one that is being read, or was read",
        "read the body of a request once",
    )
}

/// The whole body, or the status of an error response.
async fn collect(body: Body, limit: usize, handles: &mut Handles) -> Result<Bytes, i32> {
    if body.len().is_some_and(|len| len > limit as u64) {
        return Err(413);
    }
    let mut body = body.limit(limit as u64);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(Frame::Data(data)) if first.is_empty() && all.is_empty() => first = data,
            Ok(Frame::Data(data)) => {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&data);
            }
            Ok(Frame::File(_)) => return Err(500),
            Ok(Frame::Trailers(trailers)) => handles.request.trailers = Some(trailers),
            Err(error) => return Err(status_of(&error)),
        }
    }
    if all.is_empty() {
        Ok(first)
    } else {
        Ok(all.freeze())
    }
}

fn status_of(error: &BodyError) -> i32 {
    match error {
        BodyError::TooLarge => 413,
        BodyError::TimedOut => 408,
        BodyError::Source(_) => 500,
        _ => 400,
    }
}
