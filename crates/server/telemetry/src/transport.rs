//! Requests of the OpenTelemetry protocol: over HTTP with protobuf or JSON, and gRPC.

use std::time::Duration;

use apus_client::{UrlClient, UrlRequest, UrlResponse};
use apus_http::{Headers, Method};
use bytes::{BufMut, Bytes, BytesMut};
use http::Uri;
use http::uri::PathAndQuery;
use rustls::pki_types::CertificateDer;

/// A protocol of collectors, by its standard name (`OTEL_EXPORTER_OTLP_PROTOCOL`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP/1.1.
    #[default]
    HttpProtobuf,
    /// JSON over HTTP/1.1.
    HttpJson,
    /// gRPC, over HTTP/2.
    Grpc,
}

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSettings {
    /// Its URL. Over HTTP, `/v1/metrics` or `/v1/traces` follows its path.
    pub endpoint: Uri,
    /// How it is spoken to.
    pub protocol: OtlpProtocol,
    /// Fields of each request, such as `Authorization`.
    pub headers: Headers,
    /// Who may sign its certificate; `None`: those whom the system trusts.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// What the resource is, by OpenTelemetry's names: `service.name` and others.
    pub resource: Vec<(String, String)>,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    Traces,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Traces => "/v1/traces",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum SendOutcome {
    Accepted,
    /// It can be sent again, after this time if the collector names one.
    Retry(String, Option<Duration>),
    /// It is not going to be accepted.
    Refused(String),
}

/// Sends messages to a collector. It belongs to one thread, as connections do.
pub(crate) struct OtlpTransport {
    settings: OtlpSettings,
    client: UrlClient,
}

impl OtlpTransport {
    pub(crate) fn new(settings: OtlpSettings) -> Self {
        let client = UrlClient::new(settings.authorities.clone());
        let client = match settings.protocol {
            OtlpProtocol::Grpc => client.http2(),
            _ => client,
        };
        Self { settings, client }
    }

    pub(crate) fn protocol(&self) -> OtlpProtocol {
        self.settings.protocol
    }

    /// Sends an encoded message.
    pub(crate) async fn send(&self, signal: Signal, message: &Bytes) -> SendOutcome {
        let request = match self.request(signal, message) {
            Ok(request) => request,
            Err(why) => return SendOutcome::Refused(why),
        };
        match self.client.send(request).await {
            Ok(response) if self.settings.protocol == OtlpProtocol::Grpc => of_grpc(&response),
            Ok(response) => of_http(&response),
            Err(error) => SendOutcome::Retry(error.to_string(), None),
        }
    }

    fn request(&self, signal: Signal, message: &Bytes) -> Result<UrlRequest, String> {
        let (path, media_type) = match self.settings.protocol {
            OtlpProtocol::Grpc => (signal.method().to_owned(), "application/grpc"),
            protocol => {
                let base = self.settings.endpoint.path().trim_end_matches('/');
                let media_type = match protocol {
                    OtlpProtocol::HttpJson => "application/json",
                    _ => "application/x-protobuf",
                };
                (format!("{base}{}", signal.path()), media_type)
            }
        };
        let mut parts = self.settings.endpoint.clone().into_parts();
        let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
        parts.path_and_query = Some(path);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        let mut headers = self.settings.headers.clone();
        for (name, value) in [
            ("content-type", media_type),
            ("user-agent", concat!("apus/", env!("CARGO_PKG_VERSION"))),
        ] {
            let added = headers.try_append(name, value);
            added.map_err(|error| error.to_string())?;
        }
        let body = if self.settings.protocol == OtlpProtocol::Grpc {
            length_prefixed(message)?
        } else {
            message.clone()
        };
        Ok(UrlRequest {
            method: Method::POST,
            url,
            headers,
            body,
        })
    }
}

/// A message of gRPC: not compressed, its length, its bytes.
fn length_prefixed(message: &[u8]) -> Result<Bytes, String> {
    let length = u32::try_from(message.len()).map_err(|error| error.to_string())?;
    let mut body = BytesMut::with_capacity(message.len().saturating_add(5));
    body.put_u8(0);
    body.put_u32(length);
    body.extend_from_slice(message);
    Ok(body.freeze())
}

fn of_http(response: &UrlResponse) -> SendOutcome {
    let status = response.status.as_u16();
    let why = || format!("status {status}");
    match status {
        200..=299 => SendOutcome::Accepted,
        // Those that the specification says can be sent again.
        429 | 502..=504 => SendOutcome::Retry(why(), retry_after(&response.headers)),
        _ => SendOutcome::Refused(why()),
    }
}

fn retry_after(headers: &Headers) -> Option<Duration> {
    let seconds = headers.get_str("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn of_grpc(response: &UrlResponse) -> SendOutcome {
    if response.status.as_u16() != 200 {
        return of_http(response);
    }
    // A response without a message has its status in the head.
    let field = |name: &str| {
        let trailer = response.trailers.get_str(name);
        trailer.or_else(|| response.headers.get_str(name))
    };
    let status = field("grpc-status").and_then(|text| text.trim().parse::<u32>().ok());
    let message = field("grpc-message").unwrap_or_default();
    match status {
        Some(0) => SendOutcome::Accepted,
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        Some(code @ (1 | 4 | 10 | 11 | 14 | 15)) => {
            SendOutcome::Retry(format!("gRPC status {code} {message}"), None)
        }
        Some(code) => SendOutcome::Refused(format!("gRPC status {code} {message}")),
        None => SendOutcome::Retry("the response has no gRPC status".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use apus_http::StatusCode;

    use super::*;

    fn response(status: u16, fields: &[(&str, &str)], trailers: &[(&str, &str)]) -> UrlResponse {
        let headers = |fields: &[(&str, &str)]| {
            let mut headers = Headers::new();
            for (name, value) in fields {
                headers.try_append(*name, *value).unwrap();
            }
            headers
        };
        UrlResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers(fields),
            body: Bytes::new(),
            trailers: headers(trailers),
        }
    }

    #[test]
    fn responses_say_whether_to_send_again() {
        let five = Some(Duration::from_secs(5));
        assert!(matches!(
            of_http(&response(200, &[], &[])),
            SendOutcome::Accepted
        ));
        let busy = response(429, &[("retry-after", "5")], &[]);
        assert!(matches!(of_http(&busy), SendOutcome::Retry(_, after) if after == five));
        assert!(matches!(
            of_http(&response(503, &[], &[])),
            SendOutcome::Retry(_, None)
        ));
        for status in [400, 401, 404, 500] {
            assert!(matches!(
                of_http(&response(status, &[], &[])),
                SendOutcome::Refused(_)
            ));
        }
        let grpc = |code| of_grpc(&response(200, &[], &[("grpc-status", code)]));
        assert!(matches!(grpc("0"), SendOutcome::Accepted));
        assert!(matches!(grpc("14"), SendOutcome::Retry(..)));
        assert!(matches!(grpc("16"), SendOutcome::Refused(_)));
        let at_once = response(200, &[("grpc-status", "3")], &[]);
        assert!(matches!(of_grpc(&at_once), SendOutcome::Refused(_)));
        assert!(matches!(
            of_grpc(&response(200, &[], &[])),
            SendOutcome::Retry(..)
        ));
        assert!(matches!(
            of_grpc(&response(502, &[], &[])),
            SendOutcome::Retry(..)
        ));
    }
}
