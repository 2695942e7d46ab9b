//! Single HTTP requests to servers of the operator, over TLS or in clear text.

use std::sync::OnceLock;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::issue_error::{IssueError, causes};

/// The most bytes of a response that are read, for error messages.
const MAX_BYTES: usize = 64 * 1024;

/// A request.
pub(crate) struct HttpExchange<'a> {
    pub(crate) url: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The body of a POST request; a GET request has none.
    pub(crate) json: Option<&'a Value>,
    /// How long the server may take.
    pub(crate) patience: Duration,
}

/// The parts of the response that the callers use.
pub(crate) struct HttpResult {
    pub(crate) status: u16,
    /// The first line of the body, without control characters.
    pub(crate) line: String,
}

/// Sends a request, and returns the response.
pub(crate) async fn fetch(exchange: HttpExchange<'_>) -> Result<HttpResult, IssueError> {
    let HttpExchange {
        url,
        fields,
        json,
        patience,
    } = exchange;
    let failed = |why: String| IssueError::new(format!("{url}: {why}"));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector().map_err(|error| failed(error.to_string()))?);
    let mut request = match json {
        Some(_) => Request::post(url).header("content-type", "application/json"),
        None => Request::get(url),
    };
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let body = json.map(ToString::to_string).unwrap_or_default();
    let request = request
        .body(Full::from(body))
        .map_err(|error| failed(error.to_string()))?;
    let exchange = async {
        let response = client
            .request(request)
            .await
            .map_err(|error| failed(causes(&error)))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect();
        let body = body.await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let line = text.trim().lines().next().unwrap_or_default();
        let line = line.chars().filter(|char| !char.is_control()).take(200);
        Ok(HttpResult {
            status,
            line: line.collect(),
        })
    };
    tokio::time::timeout(patience, exchange)
        .await
        .map_err(|_| failed(format!("no response in {} seconds", patience.as_secs())))?
}

/// The connector of all requests: it has read the root certificates of the system.
fn connector() -> Result<HttpsConnector<HttpConnector>, rustls::Error> {
    static CONNECTOR: OnceLock<HttpsConnector<HttpConnector>> = OnceLock::new();
    if let Some(connector) = CONNECTOR.get() {
        return Ok(connector.clone());
    }
    let connector = HttpsConnectorBuilder::new()
        .try_with_platform_verifier()?
        .https_or_http()
        .enable_http1()
        .build();
    Ok(CONNECTOR.get_or_init(|| connector).clone())
}
