//! The response fields that report what the cache did: `Cache-Status` (RFC 9211) and nginx's
//! `X-FastCGI-Cache`.

use apus_http::fields::{CacheStatus, Handling};
use apus_http::{Headers, Response};

use super::settings::CacheSettings;

/// The name of the cache in `Cache-Status`.
const CACHE_NAME: &str = "apus";

/// Writes what the cache did into the configured response fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheStatusWriter {
    status_field: bool,
    fastcgi_field: bool,
}

impl CacheSettings {
    pub(super) fn status_writer(&self) -> CacheStatusWriter {
        CacheStatusWriter {
            status_field: self.status_field,
            fastcgi_field: self.fastcgi_field,
        }
    }
}

impl CacheStatusWriter {
    /// Sets the result on a response that is made for one request, and adds the fields.
    pub(super) fn write(self, response: &mut Response, handling: Handling, ttl: Option<i64>) {
        response.set_cache(handling.result(ttl));
        if self.status_field || self.fastcgi_field {
            self.add_fields(response.headers_mut(), handling, ttl);
        }
    }

    /// Adds the fields.
    pub(super) fn add_fields(self, headers: &mut Headers, handling: Handling, ttl: Option<i64>) {
        if self.status_field {
            let status = CacheStatus {
                cache: CACHE_NAME,
                handling,
                ttl,
                key: None,
                detail: None,
            };
            status.append_to(headers);
        }
        if self.fastcgi_field {
            // A word is a valid field value.
            let _ = headers.try_insert("x-fastcgi-cache", handling.result(ttl).as_str());
        }
    }
}
