//! What handlers do with a request and its response, also after they deferred it: over one connection to a worker of this thread.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use apus_capi::*;

use super::input::{below, number, text};
use super::{made, noted, sockets};

thread_local! {
    /// Deferred requests without a response, and whether their body is being read.
    static DEFERRED: RefCell<Vec<(Box<ApusDeferred>, bool)>> = RefCell::default();
    static WRITERS: RefCell<Vec<NonNull<ApusWriter>>> = RefCell::default();
    /// Data of requests that was not freed yet.
    static DATA: Cell<i32> = const { Cell::new(0) };
    /// It stays until the process ends, as its thread does.
    static WORKER: RefCell<&'static mut ApusWorker> = RefCell::new(Box::leak(start()));
}

/// How long the response to a request may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn call() {
    let body = &b"0123456789012345678901234567890123456789"[..below::<usize>(40)];
    let length = body.len();
    let mut request = format!(
        "POST /place/7?id=9&text=a%20b HTTP/1.1\r\nHost: a\r\nCookie: x-field=1\r\nX-Field: value\r\nTE: trailers\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    // Some clients do not wait.
    let patience = match below::<u8>(4) {
        0 => Some(below::<usize>(6)),
        _ => None,
    };
    let response = exchange(&request, patience);
    assert!(
        response.is_empty() || response.starts_with(b"HTTP/1.1 "),
        "{}",
        response.escape_ascii()
    );
}

/// Sends bytes to the worker, and lets that work until it closes the connection, or until nothing happened in `patience`
/// steps.
pub(super) fn exchange(request: &[u8], patience: Option<usize>) -> Vec<u8> {
    let mut client = connect();
    client.write_all(request).expect("the socket has room");
    client.set_nonblocking(true).expect("a socket");
    let (mut response, mut part) = (Vec::new(), [0; 4096]);
    let (started, mut quiet) = (Instant::now(), 0);
    loop {
        step();
        match client.read(&mut part) {
            Ok(0) => break,
            Ok(read) => {
                response.extend_from_slice(&part[..read]);
                quiet = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                quiet += 1;
                if patience.is_some_and(|most| quiet > most) {
                    break;
                }
                if !proceed() {
                    std::thread::yield_now();
                }
                assert!(started.elapsed() < PATIENCE, "no response");
            }
            // A body that was aborted ends by a reset.
            Err(_) => break,
        }
    }
    drop(client);
    while proceed() || DATA.get() > 0 || sockets::are_open() {
        step();
        assert!(
            started.elapsed() < PATIENCE,
            "{} data are not freed, sockets are open: {}",
            DATA.get(),
            sockets::are_open()
        );
    }
    response
}

#[expect(
    clippy::disallowed_methods,
    reason = "the worker of this thread is not inside of a step"
)]
fn connect() -> TcpStream {
    let port = WORKER.with_borrow(|worker| apus_worker_port(Some(worker), 0));
    TcpStream::connect(("127.0.0.1", port)).expect("a worker that listens")
}

fn step() {
    let status = WORKER.with_borrow_mut(|worker| noted(apus_worker_step(Some(worker))));
    assert_eq!(status, ApusStatus::Ok);
}

/// Goes on with something that waits for this thread; false if nothing does.
fn proceed() -> bool {
    if let Some(writer) = WRITERS.with_borrow_mut(Vec::pop) {
        write_some(writer);
        end(writer);
        return true;
    }
    match DEFERRED.with_borrow_mut(Vec::pop) {
        Some((deferred, true)) => {
            noted(apus_deferred_resume(Some(&deferred)));
            DEFERRED.with_borrow_mut(|waiting| waiting.insert(0, (deferred, true)));
            // Its body comes from the client, or ends with it.
            false
        }
        Some((mut deferred, false)) => {
            apus_deferred_is_cancelled(Some(&deferred));
            use_messages(apus_deferred_request(Some(&mut deferred)), None);
            use_messages(None, apus_deferred_response(Some(&mut deferred)));
            match below::<u8>(3) {
                0 => read_body(deferred),
                _ => _ = noted(apus_complete(Some(deferred), result())),
            }
            true
        }
        None => false,
    }
}

fn read_body(mut deferred: Box<ApusDeferred>) {
    let status = noted(apus_deferred_read(
        Some(&mut deferred),
        number(),
        Some(take_part),
        null_mut(),
    ));
    match status {
        ApusStatus::Ok => DEFERRED.with_borrow_mut(|waiting| waiting.push((deferred, true))),
        _ => _ = noted(apus_complete(Some(deferred), result())),
    }
}

extern "C" fn take_part(
    deferred: *mut ApusDeferred,
    status: ApusStatus,
    _: *const c_char,
    _: usize,
    _: *mut c_void,
) -> c_int {
    if status == ApusStatus::Ok {
        return below(3);
    }
    let ended = DEFERRED.with_borrow_mut(|waiting| {
        let is_this = |(each, _): &(Box<ApusDeferred>, bool)| std::ptr::eq(&**each, deferred);
        let at = waiting.iter().position(is_this)?;
        Some(waiting.swap_remove(at).0)
    });
    noted(apus_complete(ended, result()));
    0
}

/// What a handler returns.
fn result() -> c_int {
    [0, 1, 404, 500, 99, -1, 700, 200][below::<usize>(8)]
}

fn start() -> Box<ApusWorker> {
    let mut app = apus_app_new();
    let add = |status: ApusStatus| assert_eq!(status, ApusStatus::Ok);
    let path = c"/place/{id}".as_ptr();
    add(apus_app_route(
        app.as_deref_mut(),
        c"*".as_ptr(),
        path,
        Some(handle),
        null_mut(),
    ));
    add(apus_app_before(app.as_deref_mut(), Some(ask), null_mut()));
    add(apus_app_after(app.as_deref_mut(), Some(change), null_mut()));
    add(apus_app_on_error(
        app.as_deref_mut(),
        Some(explain),
        null_mut(),
    ));
    let events = sockets::events(true);
    let path = c"/socket".as_ptr();
    add(apus_app_websocket(
        app.as_deref_mut(),
        path,
        Some(&events),
        null_mut(),
    ));
    let mut server = apus_server_new(app);
    add(apus_server_listen(
        server.as_deref_mut(),
        c"127.0.0.1:0".as_ptr(),
    ));
    add(apus_server_access_log(
        server.as_deref_mut(),
        Some(log_entry),
        null_mut(),
    ));
    apus_worker_new(server).expect("a worker of this thread")
}

extern "C" fn handle(
    request: *mut ApusRequest,
    response: *mut ApusResponse,
    _: *mut c_void,
) -> c_int {
    // SAFETY: both are valid, and used by this call alone, until it returns.
    let (mut request, mut response) = unsafe { (request.as_mut(), response.as_mut()) };
    use_messages(request.as_deref_mut(), response.as_deref_mut());
    match below::<u8>(8) {
        0 | 1 => return result(),
        2 | 3 => {
            let limit = below::<usize>(60);
            noted(apus_request_read_body(
                request,
                limit,
                Some(handle),
                null_mut(),
            ));
        }
        4..=6 => {
            // Its request and response are not used here any more.
            match made(apus_defer(request.as_deref_mut())) {
                Some(deferred) => {
                    DEFERRED.with_borrow_mut(|waiting| waiting.push((deferred, false)));
                }
                None => use_messages(request, response),
            }
            return result();
        }
        _ => {}
    }
    below(2)
}

/// A hook before handlers.
extern "C" fn ask(request: *mut ApusRequest, response: *mut ApusResponse, _: *mut c_void) -> c_int {
    // SAFETY: as in `handle`.
    let (request, response) = unsafe { (request.as_mut(), response.as_mut()) };
    if below::<u8>(4) == 0 {
        use_messages(request, response);
        return result();
    }
    0
}

/// A hook after handlers.
extern "C" fn change(response: *mut ApusResponse, _: *mut c_void) {
    // SAFETY: as in `handle`.
    use_messages(None, unsafe { response.as_mut() });
}

extern "C" fn explain(_: *const ApusError, response: *mut ApusResponse, _: *mut c_void) -> c_int {
    // SAFETY: as in `handle`.
    use_messages(None, unsafe { response.as_mut() });
    below(2)
}

extern "C" fn log_entry(_: *const ApusAccessEntry, _: *mut c_void) {}
extern "C" fn ignore_end(_: ApusOutcome, _: *mut c_void) {}
extern "C" fn ignore_task(_: *mut c_void) {}
extern "C" fn free_data(_: *mut c_void) {
    DATA.set(DATA.get() - 1);
}
extern "C" fn see_field(_: ApusStr, _: ApusStr, _: *mut c_void) -> bool {
    below::<u8>(4) != 0
}

/// Some calls with a request or a response, or with NULL in their place.
pub(super) fn use_messages(
    mut request: Option<&mut ApusRequest>,
    mut response: Option<&mut ApusResponse>,
) {
    for _ in 0..below::<u8>(8) {
        match below::<u8>(2) {
            0 => use_request(request.as_deref_mut()),
            _ => use_response(response.as_deref_mut()),
        }
    }
}

fn use_request(request: Option<&mut ApusRequest>) {
    let name = text();
    let field = name.pointer();
    match below::<u8>(14) {
        0 => _ = apus_request_query_value(request, field),
        1 => _ = apus_request_param(request.as_deref(), field),
        2 => {
            _ = noted(apus_request_param_i64(
                request.as_deref(),
                field,
                Some(&mut 0),
            ))
        }
        3 => _ = noted(apus_request_param_u64(request.as_deref(), field, None)),
        4 => _ = apus_request_header(request.as_deref(), field),
        5 => _ = apus_request_cookie(request.as_deref(), field),
        6 => apus_request_each_header(request.as_deref(), Some(see_field), null_mut()),
        7 => {
            apus_request_method(request.as_deref());
            apus_request_path(request.as_deref());
            apus_request_query(request.as_deref());
            apus_request_host(request.as_deref());
            apus_request_scheme(request.as_deref());
            apus_request_version(request.as_deref());
            apus_request_client_certificate(request.as_deref());
            apus_request_client(request);
        }
        8 => {
            let set = apus_request_set_data(request, null_mut(), Some(free_data));
            if noted(set) == ApusStatus::Ok {
                DATA.set(DATA.get() + 1);
            }
        }
        9 => {
            apus_request_data(request.as_deref());
            apus_request_body(request.as_deref());
            apus_request_trailer(request.as_deref(), field);
        }
        10 => _ = noted(apus_request_on_done(request, Some(ignore_end), null_mut())),
        11 => {
            let part = ApusStr {
                data: field,
                len: name.len(),
            };
            let fields = [ApusField {
                name: part,
                value: part,
            }];
            let code = 100 + below::<c_int>(8);
            noted(apus_request_interim(
                request,
                code,
                fields.as_ptr(),
                below(2),
            ));
        }
        12 => apus_timer_free(made(apus_timer_start(
            number(),
            1,
            Some(ignore_task),
            null_mut(),
        ))),
        _ => {
            let executor = made(apus_executor_current());
            noted(apus_executor_post(
                executor.as_deref(),
                Some(ignore_task),
                null_mut(),
            ));
            apus_executor_free(executor);
        }
    }
}

fn use_response(response: Option<&mut ApusResponse>) {
    let (name, value) = (text(), text());
    let (field, text, len) = (name.pointer(), value.pointer(), value.len());
    match below::<u8>(15) {
        0 => {
            _ = noted(apus_response_set_status(
                response,
                190 + c_int::from(below::<u8>(250)),
            ))
        }
        1 => _ = noted(apus_response_set_header(response, field, text, len)),
        2 => _ = noted(apus_response_add_header(response, field, text, APUS_NTS)),
        3 => _ = noted(apus_response_remove_header(response, field)),
        4 => _ = apus_response_header(response.as_deref(), field),
        5 => _ = noted(apus_response_body(response, text.cast(), len)),
        6 => {
            _ = noted(apus_response_body_static(
                response,
                c"static".as_ptr().cast(),
                below(7),
            ))
        }
        7 => {
            // Freed in any case.
            DATA.set(DATA.get() + 1);
            let bytes = c"owned".as_ptr().cast();
            let (len, owner) = (below(6), null_mut());
            noted(apus_response_body_owned(
                response,
                bytes,
                len,
                Some(free_data),
                owner,
            ));
        }
        8 => _ = noted(apus_response_text(response, text, APUS_NTS)),
        9 => _ = noted(apus_response_html(response, text, len)),
        10 => _ = noted(apus_response_json(response, text, len)),
        11 => {
            _ = noted(apus_response_redirect(
                response,
                300 + below::<c_int>(10),
                text,
            ))
        }
        12 => {
            let (fd, offset) = (below::<c_int>(4) - 1, number());
            noted(apus_response_sendfile(response, fd, offset, number()));
        }
        13 => {
            let sse = made(apus_response_sse(response));
            noted(apus_sse_send(
                sse.as_deref(),
                field,
                text,
                c"data".as_ptr(),
                below(5),
            ));
            apus_sse_is_closed(sse.as_deref());
            apus_sse_close(sse);
        }
        _ => {
            let Some(writer) = made(apus_response_stream(response, below(20))) else {
                return;
            };
            write_some(writer);
            noted(apus_writer_trailer(Some(known(&writer)), field, text, len));
            match below::<u8>(3) {
                0 => end(writer),
                1 => WRITERS.with_borrow_mut(|writers| writers.push(writer)),
                _ => match noted(apus_writer_on_ready(
                    Some(known(&writer)),
                    Some(write_ready),
                    null_mut(),
                )) {
                    ApusStatus::Ok => WRITERS.with_borrow_mut(|writers| writers.insert(0, writer)),
                    _ => end(writer),
                },
            }
        }
    }
}

/// A writer that was not finished yet: whoever finishes one takes it out of [`WRITERS`] before.
fn known(writer: &NonNull<ApusWriter>) -> &ApusWriter {
    // SAFETY: it is valid until it is finished.
    unsafe { writer.as_ref() }
}

fn write_some(writer: NonNull<ApusWriter>) {
    let writer = known(&writer);
    for _ in 0..below::<u8>(4) {
        noted(apus_writer_write(
            Some(writer),
            c"a part".as_ptr().cast(),
            below(7),
        ));
        apus_writer_is_closed(Some(writer));
    }
}

fn end(writer: NonNull<ApusWriter>) {
    match below::<u8>(4) {
        0 => apus_writer_abort(Some(writer)),
        _ => apus_writer_finish(Some(writer)),
    }
}

extern "C" fn write_ready(writer: *mut ApusWriter, status: ApusStatus, _: *mut c_void) {
    let found = WRITERS.with_borrow_mut(|writers| {
        let at = writers.iter().position(|each| each.as_ptr() == writer)?;
        Some(writers.swap_remove(at))
    });
    let Some(writer) = found else { return };
    if status == ApusStatus::Ok {
        write_some(writer);
    }
    end(writer);
}
