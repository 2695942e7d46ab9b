//! What every server tells of itself: its process, since when it runs, and what its engine does.

use std::time::{Instant, SystemTime};

use apus_http::ResponseMemory;
use apus_net::Engine;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// When a server started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    at: SystemTime,
    since: Instant,
}

impl Started {
    /// Now.
    pub fn now() -> Self {
        Self {
            at: SystemTime::now(),
            since: Instant::now(),
        }
    }
}

/// The answer to [`Request::Status`](crate::Request::Status), with what only this server has to tell added to
/// what all tell.
///
/// `source` is what it serves: a configuration, a folder, or the program of an application.
pub fn status(
    source: &str,
    started: Started,
    engine: &Engine,
    own: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    let status = engine.status();
    let workers: Vec<Value> = status
        .workers
        .iter()
        .map(|worker| {
            let mut counted = totals(&worker.totals);
            counted.insert("worker".to_owned(), worker.index.into());
            counted.insert("core".to_owned(), worker.core.into());
            counted.insert("restarts".to_owned(), worker.restarts.into());
            counted.into()
        })
        .collect();
    let memory = ResponseMemory::of_process();
    let mut told = json!({
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
    if let Value::Object(told) = &mut told {
        told.extend(
            own.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    told
}

fn totals(totals: &apus_net::WorkerTotals) -> Map<String, Value> {
    let named = totals.iter();
    named
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}
