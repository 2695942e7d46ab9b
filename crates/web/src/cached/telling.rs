//! What answers tell of the cache: `Cache-Status` (RFC 9211), and the word that nginx has for it.

use apus_http::Headers;
use apus_http::fields::{CacheStatus, ForwardReason, Handling};
use http::StatusCode;

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
    /// Whether there is such a field.
    pub(super) fn is_any(self) -> bool {
        self.status_field || self.fastcgi_field
    }

    /// Adds what the cache did.
    pub(super) fn tell(self, headers: &mut Headers, handling: Handling, ttl: Option<i64>) {
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
            let _ = headers.try_insert("x-fastcgi-cache", word(handling, ttl));
        }
    }
}

/// What nginx has in `$upstream_cache_status`.
fn word(handling: Handling, ttl: Option<i64>) -> &'static str {
    match handling {
        Handling::Hit if ttl.is_some_and(|ttl| ttl < 0) => "STALE",
        Handling::Hit
        | Handling::Forwarded {
            collapsed: true, ..
        } => "HIT",
        Handling::Forwarded {
            status: Some(StatusCode::NOT_MODIFIED),
            ..
        } => "REVALIDATED",
        Handling::Forwarded { reason, .. } => match reason {
            ForwardReason::Bypass | ForwardReason::Method | ForwardReason::Request => "BYPASS",
            ForwardReason::Stale => "EXPIRED",
            ForwardReason::UriMiss
            | ForwardReason::VaryMiss
            | ForwardReason::Miss
            | ForwardReason::Partial => "MISS",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_nginx() {
        let forwarded = |reason, status, collapsed| Handling::Forwarded {
            reason,
            status,
            stored: false,
            collapsed,
        };
        let not_modified = Some(StatusCode::NOT_MODIFIED);
        for (handling, ttl, expected) in [
            (Handling::Hit, Some(5), "HIT"),
            (Handling::Hit, Some(-5), "STALE"),
            (forwarded(ForwardReason::UriMiss, None, true), None, "HIT"),
            (forwarded(ForwardReason::UriMiss, None, false), None, "MISS"),
            (
                forwarded(ForwardReason::Bypass, None, false),
                None,
                "BYPASS",
            ),
            (
                forwarded(ForwardReason::Method, None, false),
                None,
                "BYPASS",
            ),
            (
                forwarded(ForwardReason::Stale, None, false),
                None,
                "EXPIRED",
            ),
            (
                forwarded(ForwardReason::Stale, not_modified, false),
                None,
                "REVALIDATED",
            ),
        ] {
            assert_eq!(word(handling, ttl), expected, "{handling:?}");
        }
    }
}
