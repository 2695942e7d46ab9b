//! The signals of the control thread, and those that are ignored.

use std::io;

use apus_net::StopSignals;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

/// The signals of the control thread.
pub(crate) struct ServerSignals {
    /// The first one waits for open requests, the next one aborts them.
    pub(crate) stop: StopSignals,
    pub(crate) hangup: Signal,
    pub(crate) reopen: Signal,
}

/// Signals whose default action would end the process. SIGXFSZ is sent for a log file at the size
/// limit of the system; the write fails then.
const IGNORED: [(Number, &str, &str); 6] = [
    (
        Number::USR2,
        "SIGUSR2",
        "a new version of the program needs a restart",
    ),
    (Number::ALARM, "SIGALRM", "the server does not use it"),
    (Number::VTALARM, "SIGVTALRM", "the server does not use it"),
    (Number::PROF, "SIGPROF", "the server does not use it"),
    (Number::IO, "SIGIO", "the server does not use it"),
    (
        Number::XFSZ,
        "SIGXFSZ",
        "a file has reached the size limit of the system",
    ),
];

impl ServerSignals {
    /// Installs the handlers. Requires a local runtime.
    pub(crate) fn install() -> io::Result<Self> {
        for (number, name, meaning) in IGNORED {
            let mut received = signal(SignalKind::from_raw(number.as_raw()))?;
            tokio::task::spawn_local(async move {
                while received.recv().await.is_some() {
                    warn!(signal = name, "a signal is ignored: {meaning}");
                }
            });
        }
        Ok(Self {
            stop: StopSignals::with_quit()?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }
}
