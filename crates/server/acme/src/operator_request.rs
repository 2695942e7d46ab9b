//! Single requests to servers of the operator: who permits names, and who publishes DNS records.

use std::rc::Rc;
use std::time::Duration;

use apus_http::{HeaderName, HeaderValue, Headers, Method};
use http::Uri;
use serde_json::Value;

use crate::issue_error::{IssueError, causes};
use apus_client::{UrlClient, UrlRequest};

/// The most characters of a server's response in an error message.
const MAX_LINE: usize = 200;

/// A single request to a server of the operator.
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

thread_local! {
    /// The client of all requests to servers of the operator: it has read what the system trusts.
    static CLIENT: Rc<UrlClient> = Rc::new(UrlClient::new(None));
}

/// Sends a request, and returns the response.
pub(crate) async fn fetch(exchange: HttpExchange<'_>) -> Result<HttpResult, IssueError> {
    let url = exchange.url;
    let failed = |why: String| IssueError::new(format!("{url}: {why}"));
    let request = request(&exchange).map_err(failed)?;
    let client = CLIENT.with(Rc::clone);
    let response = tokio::time::timeout(exchange.patience, client.send(request))
        .await
        .map_err(|_| {
            failed(format!(
                "no response in {} seconds",
                exchange.patience.as_secs()
            ))
        })?
        .map_err(|error| failed(causes(&error)))?;
    let text = String::from_utf8_lossy(&response.body);
    let line = text.trim().lines().next().unwrap_or_default();
    let line = line
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_LINE);
    Ok(HttpResult {
        status: response.status.as_u16(),
        line: line.collect(),
    })
}

fn request(exchange: &HttpExchange<'_>) -> Result<UrlRequest, String> {
    let url = exchange.url.parse::<Uri>();
    let url = url.map_err(|error| error.to_string())?;
    let mut headers = Headers::new();
    let json = [("content-type", "application/json")];
    let described = exchange.json.iter().flat_map(|_| &json);
    for (name, value) in described.chain(exchange.fields) {
        let name = HeaderName::try_from(*name).map_err(|error| error.to_string())?;
        let value = HeaderValue::try_from(*value).map_err(|error| error.to_string())?;
        headers.append(&name, &value);
    }
    Ok(UrlRequest {
        method: match exchange.json {
            Some(_) => Method::POST,
            None => Method::GET,
        },
        url,
        headers,
        body: exchange
            .json
            .map(|json| json.to_string().into())
            .unwrap_or_default(),
    })
}
