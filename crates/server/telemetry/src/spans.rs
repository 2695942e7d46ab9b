//! Requests as spans of the OpenTelemetry protocol.

use std::time::{Duration, SystemTime};

use apus_http::{OriginAttempt, OriginResult, RequestEvent, RequestReport, Version};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use crate::message::{attribute, nanoseconds, resource, scope};

/// The flag of a span whose trace is sampled (W3C Trace Context).
const SAMPLED: u32 = 1;

/// The message for requests that have ended.
pub(crate) fn message(
    reports: &[RequestReport],
    from: &[(String, String)],
) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource(from)),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: reports.iter().flat_map(spans).collect(),
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

/// The span of a request, and those of its attempts at origins below it.
fn spans(report: &RequestReport) -> Vec<Span> {
    let Some(trace) = &report.trace else {
        return Vec::new();
    };
    let own = trace.context.span_id().get();
    let mut spans = vec![request_span(report)];
    for event in &report.events {
        match event {
            RequestEvent::Attempt(attempt) => {
                let number = u64::try_from(spans.len()).unwrap_or(u64::MAX);
                // One after the other is another number, and the parent has the first one.
                let id = own.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let mut span = attempt_span(report, attempt);
                span.trace_id = trace.context.trace_id().get().to_be_bytes().to_vec();
                span.parent_span_id = own.to_be_bytes().to_vec();
                span.span_id = id.max(1).to_be_bytes().to_vec();
                spans.push(span);
            }
            RequestEvent::OriginBody { at, is_complete } => {
                if let Some(span) = spans.get_mut(1..).and_then(<[Span]>::last_mut) {
                    span.end_time_unix_nano = nanoseconds(after(report, *at));
                    if !is_complete {
                        span.status = Some(failed("the body broke off"));
                    }
                }
            }
            _ => {}
        }
    }
    spans
}

fn request_span(report: &RequestReport) -> Span {
    let location = report.location();
    let end = report.end.as_ref();
    let status = end.and_then(|end| end.status).map(|status| status.as_u16());
    let mut attributes = vec![
        attribute("http.request.method", report.method.as_str()),
        attribute(
            "url.scheme",
            if report.is_secure { "https" } else { "http" },
        ),
        attribute("url.path", &report.path),
        attribute("server.address", &report.host),
        attribute("network.protocol.name", "http"),
        attribute("network.protocol.version", version(report.version)),
        attribute("apus.site", &report.site.name),
        attribute("apus.request.id", &report.id.to_string()),
    ];
    if let Some(query) = &report.query {
        attributes.push(attribute("url.query", query));
    }
    if let Some(client) = report.client {
        attributes.push(attribute("client.address", &client.to_string()));
    }
    if let Some(location) = location {
        attributes.push(attribute("http.route", &location.pattern));
        attributes.push(attribute("apus.handler", &location.handler));
    }
    if let Some(status) = status {
        attributes.push(number("http.response.status_code", status.into()));
    }
    if let Some(cache) = report.cache {
        attributes.push(attribute("apus.cache.result", cache.as_str()));
    }
    if let Some(end) = end {
        let bytes = i64::try_from(end.bytes).unwrap_or(i64::MAX);
        attributes.push(number("http.response.size", bytes));
        if let Some(first) = end.first_byte {
            attributes.push(seconds("apus.first_byte", first));
        }
    }
    let name = match location {
        Some(location) => format!("{} {}", report.method, location.pattern),
        None => report.method.to_string(),
    };
    let (trace_id, span_id, parent, state) = match &report.trace {
        Some(trace) => (
            trace.context.trace_id().get().to_be_bytes().to_vec(),
            trace.context.span_id().get().to_be_bytes().to_vec(),
            trace
                .parent
                .map(|parent| parent.get().to_be_bytes().to_vec()),
            trace.context.state().unwrap_or_default().to_owned(),
        ),
        None => Default::default(),
    };
    Span {
        trace_id,
        span_id,
        trace_state: state,
        parent_span_id: parent.unwrap_or_default(),
        flags: SAMPLED,
        name,
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanoseconds(report.time),
        end_time_unix_nano: nanoseconds(report.time + report.duration()),
        attributes,
        events: report
            .events
            .iter()
            .filter_map(|one| event(report, one))
            .collect(),
        dropped_events_count: report.omitted_events,
        status: match status {
            Some(500..) => Some(failed("")),
            None => Some(failed("there was no response")),
            _ => None,
        },
        ..Span::default()
    }
}

/// What was decided, as an event of the span. The times of these are not recorded: they are between the arrival and the first byte.
fn event(report: &RequestReport, event: &RequestEvent) -> Option<Event> {
    let (name, attributes) = match event {
        RequestEvent::Rule {
            place,
            name,
            is_dry_run,
        } => {
            let mut attributes = vec![
                attribute("apus.rule.place", place),
                attribute("apus.rule.name", name),
            ];
            if *is_dry_run {
                attributes.push(attribute("apus.rule.dry_run", "true"));
            }
            ("rule", attributes)
        }
        RequestEvent::Limit { name, outcome } => (
            "limit",
            vec![
                attribute("apus.limit.name", name),
                attribute("apus.limit.outcome", outcome),
            ],
        ),
        RequestEvent::Decided { by, why } => (
            "decided",
            vec![
                attribute("apus.decided.by", by),
                attribute("apus.decided.why", why),
            ],
        ),
        RequestEvent::CacheKey { hash } => (
            "cache",
            vec![attribute("apus.cache.key", &format!("{hash:016x}"))],
        ),
        _ => return None,
    };
    Some(Event {
        time_unix_nano: nanoseconds(report.time),
        name: name.to_owned(),
        attributes,
        ..Event::default()
    })
}

fn attempt_span(report: &RequestReport, attempt: &OriginAttempt) -> Span {
    let began = after(report, attempt.began);
    let mut attributes = vec![
        attribute("http.request.method", report.method.as_str()),
        attribute("server.address", &attempt.node),
        attribute("network.peer.address", &attempt.address),
    ];
    if let Some(connect) = attempt.connect {
        attributes.push(seconds("apus.connect", connect));
    }
    let status = match &attempt.result {
        OriginResult::Status(status) => {
            attributes.push(number("http.response.status_code", status.as_u16().into()));
            (status.as_u16() >= 400).then(|| failed(""))
        }
        OriginResult::Failed { phase, cause } => {
            attributes.push(attribute("error.type", phase));
            Some(failed(cause))
        }
    };
    Span {
        flags: SAMPLED,
        name: report.method.to_string(),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: nanoseconds(began),
        end_time_unix_nano: nanoseconds(began + attempt.took),
        attributes,
        status,
        ..Span::default()
    }
}

/// The time of something that happened to a request.
fn after(report: &RequestReport, at: std::time::Instant) -> SystemTime {
    report.time + report.since_arrival(at)
}

fn failed(message: &str) -> Status {
    Status {
        message: message.to_owned(),
        code: StatusCode::Error.into(),
    }
}

fn number(name: &str, value: i64) -> KeyValue {
    of_value(name, Value::IntValue(value))
}

fn seconds(name: &str, time: Duration) -> KeyValue {
    of_value(
        &format!("{name}.seconds"),
        Value::DoubleValue(time.as_secs_f64()),
    )
}

fn of_value(name: &str, value: Value) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}
