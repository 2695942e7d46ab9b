//! Pushes metrics and traces to a collector by the OpenTelemetry protocol (OTLP 1.x).
//!
//! # How data passes
//!
//! The control thread hands over metrics, and records of requests that have ended ([`apus_http::RequestRecords`]), of which `metrics` and `spans` make messages of the protocol. A thread of its own (`exporter`) sends the
//! messages, one after the other, as `transport` puts them into requests: protobuf or JSON over HTTP, or gRPC over HTTP/2.
//!
//! # Decisions
//!
//! - **The messages are those of `opentelemetry-proto`**, and the requests those of [`apus_client::UrlClient`]: the SDK would bring a second
//!   client of HTTP with its own TLS, and its own registry of metrics beside [`apus_metrics`].
//! - **Spans are made of the records of requests, when these have ended.** So whether a request failed or was slow is known when it is
//!   decided whether its trace is sent, a request that is not sent costs no span, and what `apus explain --id` says and a trace are the same.
//! - **What cannot be sent is lost and counted**: a queue of a few messages, each tried for half a minute. A collector that is gone takes no
//!   memory and holds up nobody.
//! - **Names are those of the scrape**: a collector that adds units and `_total` makes of them what Prometheus reads at `/metrics`.
//!
//! # Tests
//!
//! Unit tests stand at the end of the modules; `exporter` sends to recording servers over HTTP and gRPC. The server is tested from outside in
//! `crates/tools/cli/tests/it/server/otlp.rs`.

#![forbid(unsafe_code)]

mod exporter;
mod message;
mod metrics;
mod spans;
mod transport;

pub use exporter::{ExportCounters, ExportCounts, Exporter};
pub use metrics::MetricsExport;
pub use transport::{OtlpProtocol, OtlpSettings};
