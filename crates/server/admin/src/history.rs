//! What the server did, second by second: as columns of some time, and as it happens.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_control::ServerHistory;
use apus_http::{EventLines, Response, StatusCode};
use apus_metrics::{HistoryQuery, HistoryRecord, HistorySeries, HistoryStep, HistoryValue};
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::authentication::{Caller, StreamAccess};
use crate::reply::{fresh, problem};
use crate::streams::{EventSource, StreamCounts, event_stream};

/// The requests that read the history at once. One can take some megabytes.
const MAX_READERS: usize = 2;

/// How long a request waits for a file that is being opened.
const PATIENCE: Duration = Duration::from_secs(10);

/// The steps of a response without `from`.
const DEFAULT_STEPS: u64 = 300;

/// The sites of a second that is sent as it ends: the busiest.
const MAX_LIVE_SITES: usize = 32;

/// No time is later: some thousand years from now.
const MAX_TIME: u64 = 1 << 37;

/// The history, for readers of the API.
#[derive(Clone, Debug)]
pub(crate) struct HistoryReader {
    history: ServerHistory,
    readers: Arc<Semaphore>,
    streams: StreamCounts,
}

impl HistoryReader {
    pub(crate) fn new(history: ServerHistory) -> Self {
        Self {
            history,
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            streams: StreamCounts::default(),
        }
    }

    /// The end of the last second that is known.
    fn end(&self) -> u64 {
        let watch = self.history.watch();
        let last = watch.borrow().as_ref().map(|last| last.time + 1);
        last.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.unwrap_or_default().as_secs()
        })
    }

    /// Each second as it ends, and at once the last one.
    pub(crate) fn live(
        &self,
        caller: &Caller,
        access: StreamAccess,
    ) -> Result<Response, Box<Response>> {
        let place = self.streams.begin(caller)?;
        let mut seconds = self.history.watch();
        seconds.mark_changed();
        let source = LiveSeconds {
            seconds,
            sites: caller.sites.clone(),
        };
        Ok(event_stream(source, access, place))
    }

    /// The columns that are asked for.
    pub(crate) async fn columns(
        &self,
        arguments: &Map<String, Value>,
        caller: &Caller,
    ) -> Result<Response, Box<Response>> {
        let unavailable = |detail: &str| problem(StatusCode::SERVICE_UNAVAILABLE, detail);
        let file = timeout(PATIENCE, self.history.file()).await;
        let Ok(Some(file)) = file else {
            return Err(Box::new(unavailable("there is no history")));
        };
        let query = query(arguments, self.end(), caller);
        let is_durable = file.is_durable();
        // The permit goes with the work, which goes on when the client leaves.
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let text = spawn_blocking(move || {
            let _permit = permit;
            let series = file.series(&query);
            series.map(|series| columns_text(&query, is_durable, &series))
        });
        match text.await {
            Ok(Ok(text)) => Ok(fresh("application/json", text)),
            Ok(Err(error)) => {
                let detail = format!("the history cannot be read: {error}");
                Err(Box::new(unavailable(&detail)))
            }
            Err(_) => Err(Box::new(unavailable("the server is stopping"))),
        }
    }
}

/// The seconds as they end. Those that end while the client does not read are left out.
struct LiveSeconds {
    seconds: watch::Receiver<Option<Arc<HistoryRecord>>>,
    /// The only sites that are shown, and nothing of the server; `None`: all.
    sites: Option<Vec<String>>,
}

impl EventSource for LiveSeconds {
    async fn next(mut self) -> Option<(Self, Bytes)> {
        loop {
            self.seconds.changed().await.ok()?;
            let second = self.seconds.borrow_and_update().clone();
            if let Some(second) = second {
                let mut event = EventLines::default();
                event.field("event", "sample");
                event.field("id", second.time);
                event.data(&second_text(&second, self.sites.as_deref()));
                return Some((self, event.finish()));
            }
        }
    }
}

fn second_text(second: &HistoryRecord, sites: Option<&[String]>) -> String {
    let mut text = String::new();
    let time = second.time;
    // Writing to a string does not fail.
    let _ = write!(text, r#"{{"step":"second","time":{time},"series":{{"#);
    let server = second.values().take_while(|_| sites.is_none());
    for (index, (name, value)) in server.enumerate() {
        write_name(&mut text, index, name);
        write_value(&mut text, value);
    }
    text.push_str(r#"},"sites":{"#);
    let busiest = second.busiest_sites(sites, MAX_LIVE_SITES);
    for (index, site) in busiest.into_iter().enumerate() {
        write_name(&mut text, index, &site.name);
        let (requests, errors) = (site.requests, site.server_errors);
        let _ = write!(
            text,
            r#"{{"requests":{requests},"server_errors":{errors}}}"#
        );
    }
    text.push_str("}}");
    text
}

/// What is asked for. Without a time it is the last one that is known.
fn query(arguments: &Map<String, Value>, end: u64, caller: &Caller) -> HistoryQuery {
    let time = |name: &str| arguments.get(name).and_then(Value::as_u64);
    let step = arguments.get("step").and_then(Value::as_str);
    let step = step.and_then(HistoryStep::named);
    let step = step.unwrap_or(HistoryStep::Second);
    let to = time("to").unwrap_or(end).min(MAX_TIME);
    let before = to.saturating_sub(DEFAULT_STEPS * step.seconds());
    HistoryQuery {
        step,
        from: time("from").unwrap_or(before).min(MAX_TIME),
        to,
        sites: caller.sites.clone(),
    }
}

fn columns_text(query: &HistoryQuery, is_durable: bool, series: &HistorySeries) -> String {
    let mut text = String::new();
    let (step, seconds) = (query.step.name(), query.step.seconds());
    let start = series.start;
    // Writing to a string does not fail.
    let _ = write!(
        text,
        r#"{{"step":"{step}","step_seconds":{seconds},"start":{start},"durable":{is_durable},"series":{{"#
    );
    for (index, (name, values)) in series.server.iter().enumerate() {
        write_column(&mut text, index, name, values);
    }
    text.push_str(r#"},"sites":{"#);
    for (index, (name, site)) in series.sites.iter().enumerate() {
        write_name(&mut text, index, name);
        text.push('{');
        write_column(&mut text, 0, "requests", &site.requests);
        write_column(&mut text, 1, "server_errors", &site.server_errors);
        text.push('}');
    }
    text.push_str("}}");
    text
}

fn write_column(text: &mut String, index: usize, name: &str, values: &[HistoryValue]) {
    write_name(text, index, name);
    text.push('[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_value(text, *value);
    }
    text.push(']');
}

fn write_name(text: &mut String, index: usize, name: &str) {
    if index > 0 {
        text.push(',');
    }
    let _ = write!(text, "{}:", Value::from(name));
}

fn write_value(text: &mut String, value: HistoryValue) {
    let _ = match value {
        HistoryValue::Unknown => write!(text, "null"),
        HistoryValue::Whole(value) => write!(text, "{value}"),
        // In whole microseconds, which is more than is known of percentiles.
        HistoryValue::Seconds(value) => write!(text, "{}", (value * 1e6).round() / 1e6),
    };
}
