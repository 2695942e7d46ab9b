//! Workers inside a loop of the program.

use std::cell::Cell;
use std::ffi::c_int;
use std::thread::ThreadId;
use std::time::Duration;

use apus_net::EmbeddedWorker;

use crate::background;
use crate::error::{ApusStatus, CallError};
use crate::executor::{finish_worker_of_thread, next_timer};
use crate::ffi::{attempt, object, status};
use crate::server::{ApusServer, start_error, tcp_addresses};

/// A worker that runs inside a loop of the program.
pub struct ApusWorker {
    worker: EmbeddedWorker,
    addresses: Vec<(String, u16)>,
    stop_timeout: Duration,
    thread: ThreadId,
}

thread_local! {
    /// Whether a worker of this thread runs, so that its callbacks do not start another step.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that the worker of this thread runs.
struct RunningMark;

impl RunningMark {
    fn set() -> Result<Self, CallError> {
        if IS_RUNNING.replace(true) {
            Err(CallError::state(
                "a call outside of the callbacks of the worker",
                "one inside of them",
                "return to the loop of the program first",
            ))
        } else {
            Ok(Self)
        }
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        IS_RUNNING.set(false);
    }
}

impl ApusWorker {
    fn check_thread(&self) -> Result<(), CallError> {
        if self.thread == std::thread::current().id() {
            Ok(())
        } else {
            Err(CallError::thread("the thread that made the worker"))
        }
    }
}

fn known(worker: Option<&mut ApusWorker>) -> Result<&mut ApusWorker, CallError> {
    let worker = worker.ok_or_else(|| CallError::null("worker"))?;
    worker.check_thread()?;
    Ok(worker)
}

/// Starts a server with this thread as its only worker, and takes the server over. Several processes of one user may listen on
/// one address. It accepts connections before this returns: what a handler needs, and what asks for a stop, is set up before.
/// NULL is an error (as of apus_server_start()).
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_new(server: Option<Box<ApusServer>>) -> Option<Box<ApusWorker>> {
    object("apus_worker_new", || {
        let server = server.ok_or_else(|| CallError::null("server"))?;
        let prepared = server.into_settings()?.prepare()?;
        let _mark = RunningMark::set()?;
        let worker = EmbeddedWorker::start(prepared.plan).map_err(|error| start_error(&error))?;
        Ok(ApusWorker {
            addresses: tcp_addresses(&worker.status().listening),
            worker,
            stop_timeout: prepared.stop_timeout,
            thread: std::thread::current().id(),
        })
    })
}

/// The descriptor that is readable when there is work. It belongs to the worker. -1 is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_fd(worker: Option<&ApusWorker>) -> c_int {
    attempt("apus_worker_fd", || {
        let worker = worker.ok_or_else(|| CallError::null("worker"))?;
        Ok(worker.worker.fd())
    })
}

/// The milliseconds after which apus_worker_step() has to be called, even if the descriptor is not readable. -1 is an error
/// (APUS_INVALID, APUS_THREAD).
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_timeout(worker: Option<&ApusWorker>) -> c_int {
    attempt("apus_worker_timeout", || {
        let worker = worker.ok_or_else(|| CallError::null("worker"))?;
        worker.check_thread()?;
        let next = next_timer().map_or(EmbeddedWorker::MAX_WAIT, |next| {
            next.min(EmbeddedWorker::MAX_WAIT)
        });
        // Rounded up, as the timers of the runtime are: a wait that is too short would be repeated.
        let milliseconds = next.as_micros().div_ceil(1000);
        Ok(c_int::try_from(milliseconds).unwrap_or(c_int::MAX))
    })
}

/// Does all that there is to do, without waiting. Returns APUS_OK, or APUS_END once a stop has ended.
/// Errors: APUS_INVALID, APUS_THREAD, APUS_STATE (inside a callback).
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_step(worker: Option<&mut ApusWorker>) -> ApusStatus {
    attempt("apus_worker_step", || {
        let worker = known(worker)?;
        let _mark = RunningMark::set()?;
        Ok(if worker.worker.step() {
            ApusStatus::Ok
        } else {
            ApusStatus::End
        })
    })
}

/// Begins to stop: no new connections, open requests end while apus_worker_step() is called. Errors: APUS_INVALID,
/// APUS_THREAD, APUS_STATE (inside a callback).
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_stop(worker: Option<&mut ApusWorker>) -> ApusStatus {
    status("apus_worker_stop", || {
        let worker = known(worker)?;
        let _mark = RunningMark::set()?;
        worker.worker.stop(worker.stop_timeout);
        Ok(())
    })
}

/// The port of an address of its server. 0 past the end.
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_port(worker: Option<&ApusWorker>, index: usize) -> u16 {
    attempt("apus_worker_port", || {
        let worker = worker.ok_or_else(|| CallError::null("worker"))?;
        Ok(worker.addresses.get(index).map_or(0, |(_, port)| *port))
    })
}

/// Closes all connections and frees the worker with its application. All deferred requests are completed before: the memory of
/// those that are completed later is freed when this thread makes its next worker. By the thread that made it, outside of its callbacks:
/// elsewhere it is an error, and the worker stays. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_worker_free(worker: Option<Box<ApusWorker>>) {
    status("apus_worker_free", || {
        let Some(worker) = worker else { return Ok(()) };
        let mark = worker.check_thread().and_then(|()| RunningMark::set());
        match mark {
            Ok(mark) => {
                drop(worker);
                finish_worker_of_thread();
                drop(mark);
                background::finish_access_logs();
                Ok(())
            }
            Err(error) => {
                std::mem::forget(worker);
                Err(error)
            }
        }
    });
}
