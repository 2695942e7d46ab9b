//! What happened to a request, as JSON.

use std::time::{Duration, SystemTime};

use apus_http::{
    OriginAttempt, OriginResult, RecordedEnd, RequestEvent, RequestReport, ResponseOutcome, Version,
};
use serde_json::{Map, Value, json};

/// A request as one line of the live tail: what is known of it without what was decided on its way.
pub fn request_line(report: &RequestReport) -> Value {
    let location = report.location();
    let end = report.end.as_ref();
    let time = report.time.duration_since(SystemTime::UNIX_EPOCH);
    let origin = report.origin.as_ref().map(|origin| {
        json!({
            "address": &*origin.address,
            "status": origin.status.as_u16(),
            "seconds": seconds(origin.duration),
        })
    });
    json!({
        "id": report.id.to_string(),
        "time": time.unwrap_or_default().as_secs_f64(),
        "site": &*report.site.name,
        "location": location.map(|location| &*location.pattern),
        "handler": location.map(|location| &*location.handler),
        "client": report.client.map(|client| client.to_string()),
        "method": report.method.as_str(),
        "scheme": if report.is_secure { "https" } else { "http" },
        "protocol": protocol(report.version),
        "host": &*report.host,
        "path": &*report.path,
        "query": report.query.as_deref(),
        "status": end.and_then(|end| end.status).map(|status| status.as_u16()),
        "outcome": outcome(end),
        "bytes_sent": end.map(|end| end.bytes),
        "first_byte_seconds": end.filter(|end| end.status.is_some()).map(|end| seconds(end.first_byte.unwrap_or(end.duration))),
        "seconds": seconds(report.duration()),
        "cache": report.cache.map(|cache| cache.as_str()),
        "origin": origin,
    })
}

/// All that is known of a request.
pub fn request_report(report: &RequestReport) -> Value {
    let (mut rules, mut limits, mut attempts) = (Vec::new(), Vec::new(), Vec::<Value>::new());
    let mut decided = Value::Null;
    let mut cache_key = Value::Null;
    for event in &report.events {
        match event {
            RequestEvent::Rule {
                place,
                name,
                is_dry_run,
            } => rules.push(json!({ "place": &**place, "rule": &**name, "dry_run": is_dry_run })),
            RequestEvent::Limit { name, outcome } => {
                limits.push(json!({ "limit": &**name, "outcome": outcome }));
                if *outcome == "refused" && decided.is_null() {
                    let by = format!("limit {name}");
                    decided = json!({ "by": by, "why": "the limit is exceeded" });
                }
            }
            RequestEvent::Decided { by, why } => decided = json!({ "by": by, "why": why }),
            RequestEvent::CacheKey { hash } => cache_key = format!("{hash:016x}").into(),
            RequestEvent::Attempt(made) => attempts.push(attempt(report, made)),
            RequestEvent::OriginBody { at, is_complete } => {
                if let Some(last) = attempts.last_mut().and_then(Value::as_object_mut) {
                    let ended = seconds(report.since_arrival(*at));
                    last.insert("body_ended_after_seconds".to_owned(), ended.into());
                    last.insert("is_body_complete".to_owned(), (*is_complete).into());
                }
            }
            _ => {}
        }
    }
    let mut line = request_line(report);
    if let Some(fields) = line.as_object_mut() {
        fields.extend(Map::from_iter([
            ("rules".to_owned(), rules.into()),
            ("limits".to_owned(), limits.into()),
            ("decided".to_owned(), decided),
            ("cache_key".to_owned(), cache_key),
            ("attempts".to_owned(), attempts.into()),
            ("omitted_events".to_owned(), report.omitted_events.into()),
        ]));
    }
    line
}

fn attempt(report: &RequestReport, attempt: &OriginAttempt) -> Value {
    let (status, phase, cause) = match &attempt.result {
        OriginResult::Status(status) => (Some(status.as_u16()), None, None),
        OriginResult::Failed { phase, cause } => (None, Some(*phase), Some(&**cause)),
    };
    json!({
        "node": &*attempt.node,
        "address": &*attempt.address,
        "after_seconds": seconds(report.since_arrival(attempt.began)),
        "connect_seconds": attempt.connect.map(seconds),
        "seconds": seconds(attempt.took),
        "status": status,
        "phase": phase,
        "cause": cause,
    })
}

fn outcome(end: Option<&RecordedEnd>) -> &'static str {
    match end {
        None => "in progress",
        Some(RecordedEnd { status: None, .. }) => "no response",
        Some(end) => match end.outcome {
            ResponseOutcome::Complete => "complete",
            ResponseOutcome::ClientGone => "client gone",
            ResponseOutcome::SourceFailed => "source failed",
        },
    }
}

/// In whole microseconds, so that the number has no digits that say nothing.
fn seconds(time: Duration) -> f64 {
    let microseconds = u32::try_from(time.as_micros()).map(f64::from);
    microseconds.map_or_else(|_| time.as_secs_f64(), |count| count / 1e6)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
