//! The status of a call, and why it failed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt;

/// The result of a function.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusStatus {
    /// Done.
    Ok = 0,
    /// An argument is not valid: a caller's mistake.
    Invalid = 1,
    /// The object is in a state in which this is not possible, such as a route that is added after the start.
    State = 2,
    /// There is nothing of that name.
    NotFound = 3,
    /// The system refused: an address is in use, a file cannot be read.
    Io = 4,
    /// The configuration text has mistakes.
    Config = 5,
    /// There is no room: the client reads slowly. Wait for the callback.
    Full = 6,
    /// The client is gone, or the object is closed.
    Closed = 7,
    /// The body is larger than its limit.
    TooLarge = 8,
    /// The peer broke the protocol.
    Malformed = 9,
    /// The peer was too slow.
    TimedOut = 10,
    /// The end of a body; or the end of a worker that was stopped.
    End = 11,
    /// It was called by a thread on which this is not possible.
    Thread = 12,
    /// A fault of the library, which was logged. Please report it.
    Internal = 13,
}

/// Why a call failed: what was expected, what came, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    pub(crate) status: ApusStatus,
    pub(crate) expected: Cow<'static, str>,
    pub(crate) got: Cow<'static, str>,
    pub(crate) advice: Cow<'static, str>,
}

impl CallError {
    pub(crate) fn new(
        status: ApusStatus,
        expected: impl Into<Cow<'static, str>>,
        got: impl Into<Cow<'static, str>>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            expected: expected.into(),
            got: got.into(),
            advice: advice.into(),
        }
    }

    /// An argument is not valid.
    pub(crate) fn invalid(
        expected: impl Into<Cow<'static, str>>,
        got: impl Into<Cow<'static, str>>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ApusStatus::Invalid, expected, got, advice)
    }

    /// An object is NULL.
    pub(crate) fn null(what: &'static str) -> Self {
        Self::invalid(
            format!("`{what}`"),
            "NULL",
            "pass a valid object; if a function returned NULL for it, see apus_last_error() after that call",
        )
    }

    /// Whether an object of the library is NULL, which a function has returned in its place.
    fn is_missing_object(&self) -> bool {
        const OBJECTS: [&str; 6] = [
            "`app`",
            "`certificate`",
            "`config`",
            "`service`",
            "`tls`",
            "`upstream`",
        ];
        self.got == "NULL" && OBJECTS.contains(&&*self.expected)
    }

    /// An object does not allow this now.
    pub(crate) fn state(
        expected: impl Into<Cow<'static, str>>,
        got: impl Into<Cow<'static, str>>,
        advice: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ApusStatus::State, expected, got, advice)
    }

    /// The system refused.
    pub(crate) fn io(expected: impl Into<Cow<'static, str>>, error: &dyn fmt::Display) -> Self {
        Self::new(
            ApusStatus::Io,
            expected,
            error.to_string(),
            "see the message of the system",
        )
    }

    /// The client is gone.
    pub(crate) fn closed(what: &'static str) -> Self {
        Self::new(
            ApusStatus::Closed,
            "a client that is connected",
            format!("{what} is closed"),
            "end the work for this client",
        )
    }

    /// The calling thread is not the one that is needed.
    pub(crate) fn thread(expected: &'static str) -> Self {
        Self::new(
            ApusStatus::Thread,
            expected,
            "another thread",
            "use apus_executor_post() to run a function on the worker",
        )
    }
}

/// The first call that set an object up and failed. A program that looks only at the status of apus_server_run() learns there
/// what was wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstFailure(Option<(&'static str, CallError)>);

impl FirstFailure {
    /// Remembers a call that failed, unless another one failed before. If it failed because it was passed NULL, that is the call
    /// that returned NULL.
    fn remember(&mut self, function: &'static str, error: &CallError) {
        if self.0.is_some() {
            return;
        }
        let lost = if error.is_missing_object() {
            LOST.try_with(|lost| lost.take()).ok().flatten()
        } else {
            None
        };
        self.0 = Some(lost.unwrap_or_else(|| (function, error.clone())));
    }

    /// Takes over the failure of an object which becomes a part of this one.
    pub(crate) fn take_over(&mut self, other: Self) {
        if self.0.is_none() {
            self.0 = other.0;
        }
    }

    /// Forgets the call.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// The result of a start: an error if a call before it failed.
    pub(crate) fn check<T>(self, started: Result<T, CallError>) -> Result<T, CallError> {
        let Some((function, error)) = self.0 else {
            return started;
        };
        let also = match started {
            Ok(_) => String::new(),
            Err(error) => format!("; and {error}"),
        };
        Err(CallError::new(
            error.status,
            "that each call before it succeeded",
            format!("{function}: {error}"),
            format!("correct that call, the first one that failed{also}"),
        ))
    }
}

/// An object that a program sets up before its server starts.
pub(crate) trait SetUp {
    /// Its name in the functions.
    const NAME: &'static str;

    /// The first call on it that failed; `None` if it cannot be set up any more.
    fn first_failure(&mut self) -> Option<&mut FirstFailure>;
}

thread_local! {
    /// The last function of this thread that returned NULL in place of an object.
    static LOST: RefCell<Option<(&'static str, CallError)>> = const { RefCell::new(None) };
}

/// Remembers why a function returned NULL in place of an object. One that was passed NULL itself is explained by the one before.
pub(crate) fn lose(function: &'static str, error: &CallError) {
    // A destructor of C may run while the thread ends.
    let _ = LOST.try_with(|lost| {
        let mut lost = lost.borrow_mut();
        if !error.is_missing_object() || lost.is_none() {
            *lost = Some((function, error.clone()));
        }
    });
}

/// Runs the body of a function that sets an object up, and remembers on the object that it failed.
pub(crate) fn remembered<T: SetUp, R>(
    function: &'static str,
    object: Option<&mut T>,
    body: impl FnOnce(&mut T) -> Result<R, CallError>,
) -> Result<R, CallError> {
    let object = object.ok_or_else(|| CallError::null(T::NAME))?;
    let result = body(object);
    if let (Err(error), Some(failure)) = (&result, object.first_failure()) {
        failure.remember(function, error);
    }
    result
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            expected,
            got,
            advice,
            ..
        } = self;
        write!(f, "expected {expected}; got {got}")?;
        if advice.is_empty() {
            Ok(())
        } else {
            write!(f, "; {advice}")
        }
    }
}

/// The name of a status, such as "APUS_INVALID". It is static; "unknown" for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn apus_status_name(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"APUS_OK",
        1 => c"APUS_INVALID",
        2 => c"APUS_STATE",
        3 => c"APUS_NOT_FOUND",
        4 => c"APUS_IO",
        5 => c"APUS_CONFIG",
        6 => c"APUS_FULL",
        7 => c"APUS_CLOSED",
        8 => c"APUS_TOO_LARGE",
        9 => c"APUS_MALFORMED",
        10 => c"APUS_TIMED_OUT",
        11 => c"APUS_END",
        12 => c"APUS_THREAD",
        13 => c"APUS_INTERNAL",
        _ => c"unknown",
    };
    name.as_ptr()
}
