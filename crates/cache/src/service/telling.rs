//! What answers tell of the cache: `Cache-Status` (RFC 9211), and the word that nginx has for it.

use apus_http::fields::{CacheStatus, Handling};
use apus_http::{Headers, Response};

use super::settings::CacheSettings;

/// The name in `Cache-Status`.
const CACHE: &str = "apus";

/// In which fields answers tell what the cache did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    status_field: bool,
    fastcgi_field: bool,
}

impl CacheSettings {
    pub(super) fn telling(&self) -> Telling {
        Telling {
            status_field: self.status_field,
            fastcgi_field: self.fastcgi_field,
        }
    }
}

impl Telling {
    /// Tells what the cache did, with a response that is made for this one request.
    pub(super) fn tell(self, response: &mut Response, handling: Handling, ttl: Option<i64>) {
        response.set_cache(handling.result(ttl));
        if self.status_field || self.fastcgi_field {
            self.add_fields(response.headers_mut(), handling, ttl);
        }
    }

    /// Adds what the cache did.
    pub(super) fn add_fields(self, headers: &mut Headers, handling: Handling, ttl: Option<i64>) {
        if self.status_field {
            let status = CacheStatus {
                cache: CACHE,
                handling,
                ttl,
                key: None,
                detail: None,
            };
            status.append_to(headers);
        }
        if self.fastcgi_field {
            // A word is a valid value.
            let _ = headers.try_insert("x-fastcgi-cache", handling.result(ttl).as_str());
        }
    }
}
