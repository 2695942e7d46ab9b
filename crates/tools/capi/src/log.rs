//! The log of the library: lines for standard error, or for a function of the program.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::io::Write as _;

use apus_log_limit::LogLimit;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{ApusStatus, CallError};
use crate::ffi::status;
use crate::text::ApusStr;
use crate::user::UserPointer;

/// Takes a line of the log. `level` is 1 (error) to 5 (trace). It may be called by any thread.
pub type ApusLogFn = Option<extern "C" fn(level: c_int, message: ApusStr, user: *mut c_void)>;

/// Where lines go.
enum LineSink {
    Stderr,
    Function(extern "C" fn(c_int, ApusStr, *mut c_void), UserPointer),
}

/// Makes one line of each event.
struct LineLayer(LineSink);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = LineText::default();
        event.record(&mut line);
        let text = line.message + &line.fields;
        let level = match *event.metadata().level() {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            Level::DEBUG => 4,
            Level::TRACE => 5,
        };
        match &self.0 {
            LineSink::Stderr => {
                let line = format!("apus {}: {text}\n", event.metadata().level());
                // Nobody can be told.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            LineSink::Function(function, user) => {
                function(level, ApusStr::of(text.as_bytes()), user.0);
            }
        }
    }
}

#[derive(Default)]
struct LineText {
    message: String,
    fields: String,
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

fn start(level: c_int, sink: LineSink) -> Result<(), CallError> {
    let filter = match level {
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        5 => LevelFilter::TRACE,
        other => {
            return Err(CallError::invalid(
                "a level of 1 (errors) to 5 (trace)",
                other.to_string(),
                "2 is for warnings, 3 for information",
            ));
        }
    };
    let libraries = match filter {
        // rustls warns in each handshake in which a client sends a name that is none.
        LevelFilter::WARN | LevelFilter::INFO => LevelFilter::ERROR,
        filter => filter,
    };
    let filter = Targets::new()
        .with_default(filter)
        .with_target("rustls", libraries);
    let started = tracing_subscriber::registry()
        .with(LogLimit::new())
        .with(LineLayer(sink).with_filter(filter))
        .try_init();
    started.map_err(|_| {
        CallError::state(
            "a process without a log of the library",
            "a second log",
            "set the log once",
        )
    })
}

/// Sends the log to a function, from level `level` (1 errors, 2 warnings, 3 information, 4 debug, 5 trace). Without it, and
/// without apus_log_stderr(), nothing is logged. Errors: APUS_STATE if a log is set already; APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_log_callback(level: c_int, log: ApusLogFn, user: *mut c_void) -> ApusStatus {
    status("apus_log_callback", || {
        let log = log.ok_or_else(|| CallError::null("log"))?;
        start(level, LineSink::Function(log, UserPointer(user)))
    })
}

/// Writes the log to standard error, from level `level` (1 to 5). Errors: as apus_log_callback().
#[unsafe(no_mangle)]
pub extern "C" fn apus_log_stderr(level: c_int) -> ApusStatus {
    status("apus_log_stderr", || start(level, LineSink::Stderr))
}
