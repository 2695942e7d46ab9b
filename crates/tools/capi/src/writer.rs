//! Bodies that are written in parts, from any thread, as fast as the client reads.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use apus::{Body, BodyError, BodyStream, Frame, HeaderName, HeaderValue, Headers};
use bytes::Bytes;

use crate::error::{ApusStatus, CallError};
use crate::ffi::{attempt, status};
use crate::handles::ApusResponse;
use crate::request::{field_name, field_value};
use crate::response::{file_range, known};
use crate::text::{bytes, name};
use crate::user::{ApusDestroyFn, UserData, UserPointer};

/// The body of a response that is written in parts.
///
/// It is counted: the program has it until it finishes it, and the connection until the end of the body. The pointer that a
/// callback gets is therefore valid until that returns, whatever other threads do meanwhile.
pub struct ApusWriter {
    queue: Mutex<WriterQueue>,
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
}

impl ReadyCallback {
    fn call(self, writer: &Arc<ApusWriter>, status: ApusStatus) {
        (self.function)(Arc::as_ptr(writer).cast_mut(), status, self.user.0);
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
    /// What the program attached.
    data: Option<UserData>,
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
    /// Fails if the client is gone, or another thread has finished the writer.
    fn check_open(&self) -> Result<(), CallError> {
        if self.is_closed {
            return Err(CallError::closed("the connection of the response"));
        }
        if self.end != WriterEnd::Open {
            return Err(CallError::closed("the writer"));
        }
        Ok(())
    }

    fn wake(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    fn push(&mut self, frame: Frame) -> Result<Option<Waker>, CallError> {
        self.check_open()?;
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

impl ApusWriter {
    fn lock(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body that the connection reads.
struct WriterBody(Arc<ApusWriter>);

impl BodyStream for WriterBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let mut queue = self.0.lock();
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
            let ready = if std::mem::take(&mut queue.is_ready_due) {
                queue.ready
            } else {
                None
            };
            drop(queue);
            match ready {
                Some(ready) => ready.call(&self.0, ApusStatus::Ok),
                None => return Poll::Pending,
            }
        }
    }
}

impl Drop for WriterBody {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        let frames = std::mem::take(&mut queue.frames);
        let ready = match queue.end {
            WriterEnd::Open => queue.ready.take(),
            _ => None,
        };
        drop(queue);
        drop(frames);
        if let Some(ready) = ready {
            ready.call(&self.0, ApusStatus::Closed);
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
) -> Option<NonNull<ApusWriter>> {
    attempt("apus_response_stream", || {
        let response = known(response)?;
        let writer = Arc::new(ApusWriter {
            queue: Mutex::new(WriterQueue {
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
                data: None,
            }),
        });
        *response.body_mut() = Body::stream(WriterBody(writer.clone()));
        Ok(NonNull::new(Arc::into_raw(writer).cast_mut()))
    })
}

fn of(writer: Option<&ApusWriter>) -> Result<&ApusWriter, CallError> {
    writer.ok_or_else(|| CallError::null("writer"))
}

fn write(writer: Option<&ApusWriter>, frame: Frame) -> Result<(), CallError> {
    let mut queue = of(writer)?.lock();
    let waker = queue.push(frame)?;
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
    Ok(())
}

/// Appends bytes, which are copied. From any thread. Errors: APUS_FULL: nothing was taken, as the limit or more waits already
/// (a write that goes past the limit is taken); APUS_CLOSED: the client is gone, or the writer was finished; APUS_INVALID.
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

/// Appends a part of a file, which the kernel sends. The descriptor is duplicated. From any thread. Errors: as
/// apus_writer_write(), APUS_IO.
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

/// Adds a field to the trailer section. From any thread. Errors: APUS_INVALID, APUS_CLOSED.
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
        let mut queue = of(writer)?.lock();
        queue.check_open()?;
        queue.trailers.push((field, value));
        Ok(())
    })
}

/// Calls a function on the worker whenever the client can take more and nothing waits, so that it writes, or finishes the
/// writer. It is not called again until something was written. From any thread. Errors: APUS_INVALID; APUS_CLOSED: the client
/// is gone, or the writer was finished, and the function is not called.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_on_ready(
    writer: Option<&ApusWriter>,
    ready: ApusReadyFn,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_writer_on_ready", || {
        let writer = of(writer)?;
        let function = ready.ok_or_else(|| CallError::null("ready"))?;
        let mut queue = writer.lock();
        queue.check_open()?;
        queue.ready = Some(ReadyCallback {
            function,
            user: UserPointer(user),
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

/// Whether the client is gone, or the writer was finished. From any thread.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_is_closed(writer: Option<&ApusWriter>) -> bool {
    attempt("apus_writer_is_closed", || {
        Ok(of(writer)?.lock().check_open().is_err())
    })
}

/// Attaches a pointer to the writer, which `destroy` (may be NULL) frees once the writer was finished and its body has ended, by
/// the thread that comes last: no callback of the writer runs any more then. It replaces, and frees, an earlier one. From any
/// thread. Errors: APUS_INVALID; the data stays with the caller then.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_set_data(
    writer: Option<&ApusWriter>,
    data: *mut c_void,
    destroy: ApusDestroyFn,
) -> ApusStatus {
    status("apus_writer_set_data", || {
        let replaced = of(writer)?
            .lock()
            .data
            .replace(UserData::new(data, destroy));
        // Its function may use the writer.
        drop(replaced);
        Ok(())
    })
}

/// The pointer that was attached. From any thread. NULL if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_data(writer: Option<&ApusWriter>) -> *mut c_void {
    attempt("apus_writer_data", || {
        let queue = of(writer)?.lock();
        let data = queue.data.as_ref();
        Ok(data.map_or(std::ptr::null_mut(), UserData::pointer))
    })
}

fn end(writer: Option<NonNull<ApusWriter>>, end: WriterEnd) -> Result<(), CallError> {
    let Some(writer) = writer else { return Ok(()) };
    // SAFETY: the program passes what apus_response_stream() returned, and finishes it once, or a callback passes what it was
    // called with, which the body holds.
    let known = unsafe { writer.as_ref() };
    let mut queue = known.lock();
    if queue.end != WriterEnd::Open {
        return Err(CallError::state(
            "a writer that is not finished",
            "one that is",
            "finish it once, by one thread",
        ));
    }
    queue.end = end;
    queue.ready = None;
    let waker = queue.wake();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
    // SAFETY: this is the count of the program, which gives it up by the first call of those that finish a writer.
    drop(unsafe { Arc::from_raw(writer.as_ptr().cast_const()) });
    Ok(())
}

/// Ends the body, and takes over the writer. From any thread, once. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_finish(writer: Option<NonNull<ApusWriter>>) {
    attempt("apus_writer_finish", || end(writer, WriterEnd::Finished));
}

/// Ends the body as incomplete, so that the client notices, and takes over the writer. From any thread, once. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_writer_abort(writer: Option<NonNull<ApusWriter>>) {
    attempt("apus_writer_abort", || end(writer, WriterEnd::Aborted));
}
