//! Bodies that are written in parts, from any thread, as fast as the client reads.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use apus::{Body, BodyError, BodyStream, Frame, HeaderName, HeaderValue, Headers};
use bytes::Bytes;

use crate::border::{attempt, object, protect, status};
use crate::error::{ApusStatus, CallError};
use crate::handles::ApusResponse;
use crate::request::{field_name, field_value};
use crate::response::{file_range, known};
use crate::text::{bytes, name};
use crate::user::UserPointer;

/// The body of a response that is written in parts.
pub struct ApusWriter {
    shared: Arc<Mutex<WriterQueue>>,
}

/// Is called on the worker when the client can take more of a body (APUS_OK), or is gone (APUS_CLOSED, the last call).
/// The writer still has to be finished after APUS_CLOSED.
pub type ApusReadyFn =
    Option<extern "C" fn(writer: *mut ApusWriter, status: ApusStatus, user: *mut c_void)>;

/// The callback of a writer.
#[derive(Clone, Copy)]
struct ReadyCallback {
    function: extern "C" fn(*mut ApusWriter, ApusStatus, *mut c_void),
    user: UserPointer,
    writer: UserPointer,
}

impl ReadyCallback {
    fn call(self, status: ApusStatus) {
        (self.function)(self.writer.0.cast(), status, self.user.0);
    }
}

/// What was written, and is not sent yet.
struct WriterQueue {
    frames: VecDeque<Frame>,
    waiting: u64,
    limit: u64,
    trailers: Vec<(HeaderName, HeaderValue)>,
    end: WriterEnd,
    /// Whether the client is gone.
    is_closed: bool,
    ready: Option<ReadyCallback>,
    /// Whether the callback has to be called when the queue is empty.
    is_ready_due: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterEnd {
    Open,
    Finished,
    Aborted,
    /// The end was sent.
    Sent,
}

impl WriterQueue {
    fn wake(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    fn push(&mut self, frame: Frame) -> Result<Option<Waker>, CallError> {
        if self.is_closed {
            return Err(CallError::closed("the connection of the response"));
        }
        if self.waiting >= self.limit {
            return Err(CallError::new(
                ApusStatus::Full,
                format!("less than {} bytes that wait", self.limit),
                format!("{} bytes", self.waiting),
                "write again in the callback of apus_writer_on_ready()",
            ));
        }
        let len = frame.len();
        if len > 0 {
            self.waiting = self.waiting.saturating_add(len);
            self.frames.push_back(frame);
            self.is_ready_due = true;
        }
        Ok(self.wake())
    }
}

fn lock(shared: &Mutex<WriterQueue>) -> MutexGuard<'_, WriterQueue> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body that the connection reads.
struct WriterBody(Arc<Mutex<WriterQueue>>);

impl BodyStream for WriterBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let mut queue = lock(&self.0);
            if let Some(frame) = queue.frames.pop_front() {
                queue.waiting = queue.waiting.saturating_sub(frame.len());
                return Poll::Ready(Some(Ok(frame)));
            }
            match queue.end {
                WriterEnd::Aborted => {
                    let error = "the program aborted the body";
                    return Poll::Ready(Some(Err(BodyError::Source(error.into()))));
                }
                WriterEnd::Finished if !queue.trailers.is_empty() => {
                    let mut trailers = Headers::new();
                    for (name, value) in std::mem::take(&mut queue.trailers) {
                        trailers.append(&name, &value);
                    }
                    return Poll::Ready(Some(Ok(Frame::Trailers(trailers))));
                }
                WriterEnd::Finished | WriterEnd::Sent => {
                    queue.end = WriterEnd::Sent;
                    return Poll::Ready(None);
                }
                WriterEnd::Open => {}
            }
            queue.waker = Some(cx.waker().clone());
            let ready = match std::mem::take(&mut queue.is_ready_due) {
                true => queue.ready,
                false => None,
            };
            drop(queue);
            match ready {
                Some(ready) => ready.call(ApusStatus::Ok),
                None => return Poll::Pending,
            }
        }
    }
}

impl Drop for WriterBody {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_closed = true;
        let frames = std::mem::take(&mut queue.frames);
        let ready = match queue.end {
            WriterEnd::Open => queue.ready.take(),
            _ => None,
        };
        drop(queue);
        drop(frames);
        if let Some(ready) = ready {
            ready.call(ApusStatus::Closed);
        }
    }
}

/// The limit of what waits, in bytes, if the program sets none.
const DEFAULT_LIMIT: u64 = 64 * 1024;

/// Makes the body one that is written in parts, and returns its writer, which has to be finished. `limit` is the most bytes
/// that wait for the client before a write returns APUS_FULL (0: 64 KiB). NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_response_stream(
    response: Option<&mut ApusResponse>,
    limit: usize,
) -> Option<Box<ApusWriter>> {
    object("apus_response_stream", || {
        let response = known(response)?;
        let shared = Arc::new(Mutex::new(WriterQueue {
            frames: VecDeque::new(),
            waiting: 0,
            limit: match limit {
                0 => DEFAULT_LIMIT,
                limit => limit as u64,
            },
            trailers: Vec::new(),
            end: WriterEnd::Open,
            is_closed: false,
            ready: None,
            is_ready_due: true,
            waker: None,
        }));
        *response.body_mut() = Body::stream(WriterBody(shared.clone()));
        Ok(ApusWriter { shared })
    })
}

fn queue_of(writer: Option<&ApusWriter>) -> Result<MutexGuard<'_, WriterQueue>, CallError> {
    let writer = writer.ok_or_else(|| CallError::null("writer"))?;
    Ok(lock(&writer.shared))
}

fn write(writer: Option<&ApusWriter>, frame: Frame) -> Result<(), CallError> {
    let mut queue = queue_of(writer)?;
    let waker = queue.push(frame)?;
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
    Ok(())
}

/// Appends bytes, which are copied. Errors: APUS_FULL: nothing was taken, as the limit or more waits already (a write that
/// goes past the limit is taken); APUS_CLOSED: the client is gone; APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_write(
    writer: Option<&ApusWriter>,
    data: *const c_void,
    len: usize,
) -> ApusStatus {
    status("apus_writer_write", || {
        let data = bytes(data, len)?;
        write(writer, Frame::Data(Bytes::copy_from_slice(data)))
    })
}

/// Appends a part of a file, which the kernel sends. The descriptor is duplicated. Errors: as apus_writer_write(), APUS_IO.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_sendfile(
    writer: Option<&ApusWriter>,
    fd: c_int,
    offset: u64,
    len: u64,
) -> ApusStatus {
    status("apus_writer_sendfile", || {
        write(writer, Frame::File(file_range(fd, offset, len)?))
    })
}

/// Adds a field to the trailer section. Errors: APUS_INVALID, APUS_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_trailer(
    writer: Option<&ApusWriter>,
    field: *const c_char,
    value: *const c_char,
    len: usize,
) -> ApusStatus {
    status("apus_writer_trailer", || {
        let field = field_name(name(field, "name")?.as_bytes())?;
        let value = field_value(bytes(value.cast(), len)?)?;
        let mut queue = queue_of(writer)?;
        if queue.is_closed {
            return Err(CallError::closed("the connection of the response"));
        }
        queue.trailers.push((field, value));
        Ok(())
    })
}

/// Calls a function on the worker whenever the client can take more and nothing waits, so that it writes, or finishes the
/// writer. It is not called again until something was written. Errors: APUS_INVALID; APUS_CLOSED: the client is gone, and
/// the function is not called.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_on_ready(
    writer: Option<&mut ApusWriter>,
    ready: ApusReadyFn,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_writer_on_ready", || {
        let writer = writer.ok_or_else(|| CallError::null("writer"))?;
        let function = ready.ok_or_else(|| CallError::null("ready"))?;
        let pointer: *mut ApusWriter = &raw mut *writer;
        let mut queue = lock(&writer.shared);
        if queue.is_closed {
            return Err(CallError::closed("the connection of the response"));
        }
        queue.ready = Some(ReadyCallback {
            function,
            user: UserPointer(user),
            writer: UserPointer(pointer.cast()),
        });
        queue.is_ready_due = true;
        let waker = queue.wake();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    })
}

/// Whether the client is gone.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_is_closed(writer: Option<&ApusWriter>) -> bool {
    attempt("apus_writer_is_closed", || Ok(queue_of(writer)?.is_closed))
}

fn end(writer: Option<Box<ApusWriter>>, end: WriterEnd) {
    let Some(writer) = writer else { return };
    let mut queue = lock(&writer.shared);
    queue.end = end;
    queue.ready = None;
    let waker = queue.wake();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Ends the body, and takes over the writer. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_finish(writer: Option<Box<ApusWriter>>) {
    protect("apus_writer_finish", || end(writer, WriterEnd::Finished));
}

/// Ends the body as incomplete, so that the client notices, and takes over the writer. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_abort(writer: Option<Box<ApusWriter>>) {
    protect("apus_writer_abort", || end(writer, WriterEnd::Aborted));
}
