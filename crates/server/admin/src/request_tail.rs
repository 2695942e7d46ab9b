//! Requests as they end, for who watches.

use std::time::Duration;

use apus_control::request_line;
use apus_http::{EventLines, RecordCursor, RequestRecords, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::authentication::{Caller, StreamAccess};
use crate::request_filter::RequestFilter;
use crate::streams::{EventSource, StreamCounts, event_stream};

/// How often the records are read. Nobody who reads along sees more at once.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// The most requests of one reading that are sent. The others are counted.
const MAX_REQUESTS: usize = 100;

/// The requests, for readers of the API.
#[derive(Clone, Debug)]
pub(crate) struct RequestTail {
    records: RequestRecords,
    streams: StreamCounts,
}

impl RequestTail {
    pub(crate) fn new(records: RequestRecords) -> Self {
        Self {
            records,
            streams: StreamCounts::default(),
        }
    }

    /// Each request that ends from now on, and that the filter wants.
    pub(crate) fn follow(
        &self,
        filter: RequestFilter,
        caller: &Caller,
        access: StreamAccess,
    ) -> Result<Response, Box<Response>> {
        let place = self.streams.begin(caller)?;
        let mut cursor = RecordCursor::default();
        // It only sets the cursor.
        self.records.ended_of(&mut cursor, &|_| false);
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let source = EndedRequests {
            records: self.records.clone(),
            cursor,
            filter,
            sites: caller.sites.clone(),
            ticks,
        };
        Ok(event_stream(source, access, place))
    }
}

/// The requests as they end. Those that end while the client does not read give way to newer ones, and are counted.
struct EndedRequests {
    records: RequestRecords,
    cursor: RecordCursor,
    filter: RequestFilter,
    /// The only sites whose requests are shown; `None`: all.
    sites: Option<Vec<String>>,
    ticks: Interval,
}

impl EndedRequests {
    /// What is to be sent of what has ended since the last time.
    fn read(&mut self) -> Bytes {
        let (reports, missed) = self.records.ended(&mut self.cursor);
        let mut events = Vec::new();
        let mut left_out = if self.sites.is_none() { missed } else { 0 };
        let mut sent = 0;
        for report in &reports {
            let is_own = |sites: &Vec<String>| sites.iter().any(|site| **site == *report.site.name);
            if !self.sites.as_ref().is_none_or(is_own) {
                continue;
            }
            let line = request_line(report);
            if !self.filter.wants(&line) {
                continue;
            }
            if sent == MAX_REQUESTS {
                left_out += 1;
                continue;
            }
            sent += 1;
            append(&mut events, "request", &line);
        }
        if left_out > 0 {
            append(&mut events, "missed", &json!({ "requests": left_out }));
        }
        events.into()
    }
}

fn append(events: &mut Vec<u8>, name: &str, value: &Value) {
    let mut event = EventLines::default();
    event.field("event", name);
    event.data(&value.to_string());
    events.extend_from_slice(&event.finish());
}

impl EventSource for EndedRequests {
    async fn next(mut self) -> Option<(Self, Bytes)> {
        loop {
            self.ticks.tick().await;
            let events = self.read();
            if !events.is_empty() {
                return Some((self, events));
            }
        }
    }
}

/// The filter of the arguments.
pub(crate) fn filter(arguments: &Map<String, Value>) -> Result<RequestFilter, String> {
    let text = arguments.get("filter").and_then(Value::as_str);
    RequestFilter::parse(text.unwrap_or_default())
}
