//! Capturing the stack of another thread: the signal, and its handler.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, mem, ptr, thread};

use crate::stack::Stack;

/// Nothing else uses it, and a process that has no handler ignores it. The runtime of Go interrupts its threads by it, too.
const SIGNAL: c_int = libc::SIGURG;

/// The most frames of a stack. Further ones are left out.
const MAX_FRAMES: usize = 512;

/// How long a thread may take to note where it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// The value of [`COUNT`] while a thread is asked for its stack.
const ASKED: usize = usize::MAX;

/// The addresses of the frames of the thread that is interrupted: one at a time, since there is one watchdog.
static FRAMES: [AtomicUsize; MAX_FRAMES] = [const { AtomicUsize::new(0) }; MAX_FRAMES];
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A thread that can be interrupted.
#[derive(Clone, Copy)]
pub(crate) struct ThreadHandle(libc::pthread_t);

impl ThreadHandle {
    pub(crate) fn current() -> Self {
        // SAFETY: the function has no preconditions.
        Self(unsafe { libc::pthread_self() })
    }

    /// The stack of the thread, which has to exist; `None` if it does not respond.
    #[expect(
        clippy::disallowed_methods,
        reason = "the watchdog has a thread of its own"
    )]
    pub(crate) fn capture(self) -> Option<Stack> {
        COUNT.store(ASKED, Ordering::Release);
        // SAFETY: the thread exists, as the caller ensures.
        if unsafe { libc::pthread_kill(self.0, SIGNAL) } != 0 {
            return None;
        }
        let asked = Instant::now();
        loop {
            let count = COUNT.load(Ordering::Acquire);
            if let Some(frames) = FRAMES.get(..count) {
                let frames = frames.iter().map(|frame| frame.load(Ordering::Relaxed));
                return Some(Stack::of_addresses(frames.collect()));
            }
            if asked.elapsed() > PATIENCE {
                // A late response is none.
                COUNT.store(0, Ordering::Release);
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sets the handler of the signal.
pub(crate) fn install() -> io::Result<()> {
    // What the unwinder allocates, it allocates here rather than in the handler.
    drop(backtrace::Backtrace::new_unresolved());
    // SAFETY: all bits zero is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int) = capture_this_thread;
    action.sa_sigaction = handler as usize;
    // Calls of the kernel go on.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is valid, and its handler does only what a handler may: see there.
    match unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Notes where this thread is, if the watchdog has asked for it. It allocates nothing and waits for nothing.
extern "C" fn capture_this_thread(_: c_int) {
    if COUNT.load(Ordering::Acquire) != ASKED {
        return;
    }
    // SAFETY: the location of `errno` of this thread is valid for reads and writes.
    let errno = unsafe { *libc::__errno_location() };
    let mut count = 0;
    // SAFETY: no other thread uses the crate's functions that need its lock at this time: symbols are found by the watchdog,
    // which waits for this one.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let Some(slot) = FRAMES.get(count) else {
                return false;
            };
            slot.store(frame.ip() as usize, Ordering::Relaxed);
            count += 1;
            true
        });
    }
    COUNT.store(count, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
