//! Deferred responses: a request leaves its handler, and any thread completes it.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use apus::{Body, BodyError, Frame, Response, ResponseFuture};

use crate::callback::APUS_PAUSE;
use crate::callback_name::CallbackName;
use crate::error::{ApusStatus, CallError};
use crate::executor::{ApusExecutor, current_worker};
use crate::ffi::{attempt, object, status};
use crate::handles::{ApusOutcome, ApusRequest, ApusResponse, DoneCallbacks, Handles};
use crate::request::body_is_taken;
use crate::user::UserPointer;

/// A request whose response comes later, from any thread.
pub struct ApusDeferred {
    handles: Handles,
    shared: Arc<DeferredShared>,
    /// Only the worker uses it.
    reading: Rc<RefCell<Option<BodyReading>>>,
    worker: ApusExecutor,
}

/// Takes a part of the body of a request, on the worker. `status` is APUS_OK with a part (valid during the call), or
/// APUS_END at the end, or APUS_TOO_LARGE, APUS_CLOSED, APUS_MALFORMED, APUS_TIMED_OUT, APUS_IO: nothing comes after it.
/// It returns 0 to continue or APUS_PAUSE. It may complete the deferred request; nothing comes after that either.
pub type ApusBodyFn = Option<
    extern "C" fn(
        deferred: *mut ApusDeferred,
        status: ApusStatus,
        data: *const c_char,
        len: usize,
        user: *mut c_void,
    ) -> c_int,
>;

/// What the future of a response and the program share.
struct DeferredShared {
    phase: Mutex<DeferredPhase>,
    is_cancelled: AtomicBool,
    is_resumed: AtomicBool,
    /// Whether the program has completed it, which counts once.
    is_given_back: AtomicBool,
}

/// Where a deferred request is.
enum DeferredPhase {
    /// The program has it; the connection waits.
    Waiting(Option<Waker>),
    /// The program has completed it.
    Completed(CompletedRequest, i32),
    /// The client is gone.
    Cancelled,
    /// The response is made.
    Ended,
}

/// A request on its way back to its worker.
struct CompletedRequest(Box<ApusDeferred>);

// SAFETY: what belongs to the worker in it (reference counts of the connection, the reader of the body) is only touched there:
// other threads read and write the messages, one thread at a time, as the header says, and pass the whole on by the lock of the
// phase or the queue of the executor. It is dropped on the worker, or once that has ended where nothing of it is left, by one thread
// at a time.
unsafe impl Send for CompletedRequest {}

impl CompletedRequest {
    /// Empties and frees it, on its worker.
    fn retire(self) {
        let mut deferred = self.0;
        deferred.handles.retire();
        deferred.reading.take();
        #[cfg(debug_assertions)]
        {
            let ApusDeferred { handles, .. } = *deferred;
            crate::lifetime::retire(Box::new(handles));
        }
    }

    /// As `retire`, from any thread.
    fn give_back(self) {
        let worker = self.0.worker.clone();
        if worker.is_here() {
            return self.retire();
        }
        worker.give_back(Box::new(move || self.retire()));
    }
}

impl DeferredShared {
    fn lock(&self) -> MutexGuard<'_, DeferredPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let waker = match &mut *self.lock() {
            DeferredPhase::Waiting(waker) => waker.take(),
            _ => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The reader of a body, which passes it to the program.
struct BodyReading {
    body: Body,
    chunk: extern "C" fn(*mut ApusDeferred, ApusStatus, *const c_char, usize, *mut c_void) -> c_int,
    user: UserPointer,
    deferred: *mut ApusDeferred,
    is_paused: bool,
}

impl BodyReading {
    fn call(&self, status: ApusStatus, data: &[u8]) -> c_int {
        let pointer = if data.is_empty() {
            std::ptr::null()
        } else {
            data.as_ptr().cast()
        };
        (self.chunk)(self.deferred, status, pointer, data.len(), self.user.0)
    }
}

/// The response of a deferred request.
struct DeferredFuture {
    shared: Arc<DeferredShared>,
    reading: Rc<RefCell<Option<BodyReading>>>,
    done: Rc<DoneCallbacks>,
    owner: Arc<CallbackName>,
}

impl DeferredFuture {
    /// Passes on what there is of the body.
    fn poll_reading(&self, cx: &mut Context<'_>) {
        loop {
            let Some(mut reading) = self.reading.take() else {
                return;
            };
            if reading.is_paused && !self.shared.is_resumed.swap(false, Ordering::AcqRel) {
                self.reading.replace(Some(reading));
                return;
            }
            reading.is_paused = false;
            let result = match reading.body.poll_frame(cx) {
                Poll::Pending => {
                    self.reading.replace(Some(reading));
                    return;
                }
                Poll::Ready(Some(Ok(Frame::Data(data)))) => reading.call(ApusStatus::Ok, &data),
                Poll::Ready(Some(Ok(Frame::Trailers(trailers)))) => {
                    // SAFETY: the reader is dropped with the deferred request, and the program does not use that on another
                    // thread while the worker reads its body.
                    unsafe { (*reading.deferred).handles.request.trailers = Some(trailers) };
                    0
                }
                Poll::Ready(last) => {
                    let status = match last {
                        None => ApusStatus::End,
                        Some(Ok(_)) => ApusStatus::Io,
                        Some(Err(BodyError::TooLarge)) => ApusStatus::TooLarge,
                        Some(Err(BodyError::TimedOut)) => ApusStatus::TimedOut,
                        Some(Err(BodyError::Disconnected)) => ApusStatus::Closed,
                        Some(Err(BodyError::Malformed)) => ApusStatus::Malformed,
                        Some(Err(_)) => ApusStatus::Io,
                    };
                    reading.call(status, &[]);
                    return;
                }
            };
            if !matches!(*self.shared.lock(), DeferredPhase::Waiting(_)) {
                return;
            }
            reading.is_paused = result == APUS_PAUSE;
            self.reading.replace(Some(reading));
        }
    }
}

impl Future for DeferredFuture {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let this = self.get_mut();
        this.poll_reading(cx);
        let mut phase = this.shared.lock();
        match std::mem::replace(&mut *phase, DeferredPhase::Ended) {
            DeferredPhase::Completed(mut completed, result) => {
                drop(phase);
                let response = completed.0.handles.finish(result, &this.owner);
                completed.retire();
                Poll::Ready(response)
            }
            DeferredPhase::Waiting(_) | DeferredPhase::Cancelled | DeferredPhase::Ended => {
                *phase = DeferredPhase::Waiting(Some(cx.waker().clone()));
                drop(phase);
                if this.shared.is_resumed.load(Ordering::Acquire) && this.reading.borrow().is_some()
                {
                    // It was resumed before there was a waker.
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for DeferredFuture {
    fn drop(&mut self) {
        let mut phase = self.shared.lock();
        if matches!(*phase, DeferredPhase::Ended) {
            return;
        }
        self.shared.is_cancelled.store(true, Ordering::Release);
        let last = std::mem::replace(&mut *phase, DeferredPhase::Cancelled);
        drop(phase);
        self.done.finish(ApusOutcome::ClientGone);
        let reading = self.reading.take();
        match last {
            DeferredPhase::Completed(completed, _) => completed.retire(),
            _ => {
                if let Some(reading) = reading {
                    reading.call(ApusStatus::Closed, &[]);
                }
            }
        }
    }
}

fn known(deferred: Option<&mut ApusDeferred>) -> Result<&mut ApusDeferred, CallError> {
    deferred.ok_or_else(|| CallError::null("deferred"))
}

/// Takes the request and its response out of a handler, which returns 0 after this. On the worker, in a handler. Every
/// deferred request has to be completed exactly once, also when its client is gone. NULL is an error (APUS_INVALID,
/// APUS_STATE).
#[unsafe(no_mangle)]
pub extern "C" fn apus_defer(request: Option<&mut ApusRequest>) -> Option<Box<ApusDeferred>> {
    object("apus_defer", || {
        let request = request.ok_or_else(|| CallError::null("request"))?;
        request.request()?;
        let worker = current_worker()?;
        let shared = Arc::new(DeferredShared {
            phase: Mutex::new(DeferredPhase::Waiting(None)),
            is_cancelled: AtomicBool::new(false),
            is_resumed: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
        });
        let reading = Rc::default();
        let done = request.done_callbacks().clone();
        // The route has the name of the handler, which is known when the continuation runs.
        request.continue_with(Box::new({
            let (shared, reading) = (shared.clone(), Rc::clone(&reading));
            move |_, owner| {
                ResponseFuture::later(DeferredFuture {
                    shared,
                    reading,
                    done,
                    owner: owner.clone(),
                })
            }
        }))?;
        let handles = request.take_handles()?;
        Ok(ApusDeferred {
            handles,
            shared,
            reading,
            worker,
        })
    })
}

/// Its request. Valid until apus_complete().
#[unsafe(no_mangle)]
pub extern "C" fn apus_deferred_request(
    deferred: Option<&mut ApusDeferred>,
) -> Option<&mut ApusRequest> {
    attempt("apus_deferred_request", || {
        Ok(Some(&mut known(deferred)?.handles.request))
    })
}

/// Its response. Valid until apus_complete().
#[unsafe(no_mangle)]
pub extern "C" fn apus_deferred_response(
    deferred: Option<&mut ApusDeferred>,
) -> Option<&mut ApusResponse> {
    attempt("apus_deferred_response", || {
        Ok(Some(&mut known(deferred)?.handles.response))
    })
}

/// Whether its client is gone, so that the work can end. From any thread.
#[unsafe(no_mangle)]
pub extern "C" fn apus_deferred_is_cancelled(deferred: Option<&ApusDeferred>) -> bool {
    attempt("apus_deferred_is_cancelled", || {
        let deferred = deferred.ok_or_else(|| CallError::null("deferred"))?;
        Ok(deferred.shared.is_cancelled.load(Ordering::Acquire))
    })
}

/// Reads the body of the request in parts, at most `limit` bytes (0: no limit). On the worker.
/// Errors: APUS_INVALID; APUS_STATE if the body is being read already; APUS_THREAD; APUS_CLOSED if the client is gone: the
/// function is not called then.
#[unsafe(no_mangle)]
pub extern "C" fn apus_deferred_read(
    deferred: Option<&mut ApusDeferred>,
    limit: u64,
    chunk: ApusBodyFn,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_deferred_read", || {
        let deferred = known(deferred)?;
        let chunk = chunk.ok_or_else(|| CallError::null("chunk"))?;
        if !deferred.worker.is_here() {
            return Err(CallError::thread("the worker of the request"));
        }
        if deferred.handles.request.is_body_taken {
            return Err(body_is_taken());
        }
        if deferred.shared.is_cancelled.load(Ordering::Acquire) {
            return Err(CallError::closed("the connection of the request"));
        }
        let body = deferred.handles.request.request_mut()?.take_body();
        deferred.handles.request.is_body_taken = true;
        let reading = BodyReading {
            body: match limit {
                0 => body,
                limit => body.limit(limit),
            },
            chunk,
            user: UserPointer(user),
            deferred: &raw mut *deferred,
            is_paused: false,
        };
        deferred.reading.replace(Some(reading));
        deferred.shared.wake();
        Ok(())
    })
}

/// Continues after APUS_PAUSE. From any thread. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_deferred_resume(deferred: Option<&ApusDeferred>) -> ApusStatus {
    status("apus_deferred_resume", || {
        let deferred = deferred.ok_or_else(|| CallError::null("deferred"))?;
        deferred.shared.is_resumed.store(true, Ordering::Release);
        deferred.shared.wake();
        Ok(())
    })
}

/// Sends the response, and takes over `deferred`. `result` is as the return value of a handler. From any thread, once.
/// Errors: APUS_INVALID; APUS_CLOSED if the client is gone; APUS_STATE in a callback, if another thread has completed it
/// meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn apus_complete(deferred: Option<Box<ApusDeferred>>, result: c_int) -> ApusStatus {
    status("apus_complete", || {
        let deferred = deferred.ok_or_else(|| CallError::null("deferred"))?;
        let shared = deferred.shared.clone();
        if shared.is_given_back.swap(true, Ordering::AcqRel) {
            // A callback has it, so that the worker frees it later.
            std::mem::forget(deferred);
            return Err(CallError::state(
                "a deferred request that is not completed",
                "one that is",
                "complete it once, by one thread",
            ));
        }
        let completed = CompletedRequest(deferred);
        let mut phase = shared.lock();
        if matches!(*phase, DeferredPhase::Cancelled) {
            drop(phase);
            completed.give_back();
            return Err(CallError::closed("the connection of the request"));
        }
        let last = std::mem::replace(&mut *phase, DeferredPhase::Completed(completed, result));
        drop(phase);
        if let DeferredPhase::Waiting(Some(waker)) = last {
            waker.wake();
        }
        Ok(())
    })
}
