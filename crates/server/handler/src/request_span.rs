//! `RequestSpan`: the span of `tracing` that all lines of a request are in.

use std::time::Duration;

use apus_http::Request;
use tracing::level_filters::LevelFilter;
use tracing::{Span, field};

/// The span of a request, an extension of the request.
///
/// It is named `request`, has the target `apus::request`, and the fields `method`, `path`, `route`,
/// `request_id`, `queries` and `query_us`, of which all but the first two are set when they are known. Its level is `ERROR`, so that the lines of
/// all levels have it. An application enters it around its layers and handlers, so the lines of libraries have it
/// too.
#[derive(Clone, Debug)]
pub struct RequestSpan(Span);

impl RequestSpan {
    /// The span of a request, which it begins, for the caller to enter. A span that does nothing if no
    /// subscriber wants it, or if the request has one already.
    pub fn begin(request: &mut Request) -> Span {
        if LevelFilter::current() < LevelFilter::ERROR || Self::of(request).is_some() {
            return Span::none();
        }
        let span = tracing::error_span!(
            target: "apus::request",
            "request",
            method = %request.method(),
            path = request.original_target().path(),
            route = field::Empty,
            request_id = %request.id(),
            queries = field::Empty,
            query_us = field::Empty,
        );
        if !span.is_disabled() {
            request.extensions_mut().insert(Self(span.clone()));
        }
        span
    }

    /// The span of a request, if there is one.
    pub fn of(request: &Request) -> Option<&Self> {
        if LevelFilter::current() < LevelFilter::ERROR {
            return None;
        }
        request.extensions().get()
    }

    /// Sets the path of the route, as it was written.
    pub fn record_route(&self, route: &str) {
        self.0.record("route", route);
    }

    /// Sets how many statements the request ran on databases, and the time that they took.
    pub fn record_queries(&self, count: u64, time: Duration) {
        self.0.record("queries", count);
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.record("query_us", microseconds);
    }
}
