//! The status of a server: its process, its start time, and the counters of its engine.

use std::time::{Instant, SystemTime};

use apus_http::ResponseMemory;
use apus_net::Engine;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The start time of a server.
#[derive(Clone, Copy, Debug)]
pub struct StartTime {
    at: SystemTime,
    since: Instant,
}

impl StartTime {
    /// The current time.
    pub fn now() -> Self {
        Self {
            at: SystemTime::now(),
            since: Instant::now(),
        }
    }

    /// As the clock of the system said.
    pub fn time(self) -> SystemTime {
        self.at
    }

    /// In seconds since 1970.
    pub(crate) fn unix_seconds(self) -> f64 {
        let since = self.at.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    }
}

/// The response to [`ControlRequest::Status`](crate::ControlRequest::Status): the status of any server, and
/// `own` members of this one.
///
/// `source` is the path of the configuration, of the served folder, or of the application's program.
pub fn status(
    source: &str,
    started: StartTime,
    engine: &Engine,
    own: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    let status = engine.status();
    let workers: Vec<Value> = status
        .workers
        .iter()
        .map(|worker| {
            let mut counters = totals(&worker.totals);
            counters.insert("worker".to_owned(), worker.index.into());
            counters.insert("core".to_owned(), worker.core.into());
            counters.insert("restarts".to_owned(), worker.restarts.into());
            counters.into()
        })
        .collect();
    let memory = ResponseMemory::of_process();
    let mut members = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "source": source,
        "started": OffsetDateTime::from(started.at).format(&Rfc3339).unwrap_or_default(),
        "uptime_seconds": started.since.elapsed().as_secs(),
        "listening": status.listening.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "totals": totals(&status.totals()),
        "response_memory": {
            "limit_bytes": memory.limit(),
            "used_bytes": memory.used(),
            "refused": memory.refused(),
        },
        "workers": workers,
    });
    if let Value::Object(members) = &mut members {
        members.extend(
            own.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    members
}

fn totals(totals: &apus_net::WorkerTotals) -> Map<String, Value> {
    let named = totals.iter();
    named
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}
