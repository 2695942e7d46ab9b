//! A request of a load.

use apus_http::{Headers, Method};
use bytes::Bytes;

use crate::BenchUrl;

/// A request of a load.
#[derive(Clone, Debug)]
pub struct PlannedRequest {
    /// What it is called in the report, beside its URL.
    pub name: Option<String>,
    /// Where it is sent to.
    pub url: BenchUrl,
    /// How often it is sent, relative to the others.
    pub weight: u32,
    /// The method.
    pub method: Method,
    /// The fields, without `Host` and `Content-Length`. A `host` field replaces the host of the URL.
    pub headers: Headers,
    /// The body, which may be empty.
    pub body: Bytes,
}

impl PlannedRequest {
    /// A GET request without further fields.
    pub fn get(url: BenchUrl) -> Self {
        Self {
            name: None,
            url,
            weight: 1,
            method: Method::GET,
            headers: Headers::new(),
            body: Bytes::new(),
        }
    }

    /// The value of `Host`.
    pub(crate) fn host(&self) -> &str {
        self.headers.get_str("host").unwrap_or(self.url.authority())
    }
}
