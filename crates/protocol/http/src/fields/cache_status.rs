//! `Cache-Status`: how a cache handled a request (RFC 9211).

use std::fmt;

use http::StatusCode;

use crate::Headers;

/// The member of `Cache-Status` of one cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheStatus<'a> {
    /// The name of the cache.
    pub cache: &'a str,
    /// How it handled the request.
    pub handling: Handling,
    /// Seconds for which the response stays fresh; negative once it is stale.
    pub ttl: Option<i64>,
    /// The cache key of the request.
    pub key: Option<&'a str>,
    /// Details that only this cache defines.
    pub detail: Option<&'a str>,
}

/// Where a response came from (RFC 9211 sections 2.1 to 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// From the cache.
    Hit,
    /// From the origin.
    Forwarded {
        /// The reason.
        reason: ForwardReason,
        /// The status that the origin sent, if it is not the response's.
        status: Option<StatusCode>,
        /// Whether the response is stored now.
        stored: bool,
        /// Whether it is the response to another request, for which this one waited.
        collapsed: bool,
    },
}

/// Why a request was forwarded (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForwardReason {
    /// The cache is configured not to handle the request.
    Bypass,
    /// The method requires the origin.
    Method,
    /// Nothing is stored for the target.
    UriMiss,
    /// Something is stored for the target, but for other values of the fields in `Vary`.
    VaryMiss,
    /// No stored response could be used.
    Miss,
    /// A stored response is fresh, but the request does not allow it.
    Request,
    /// A stored response is stale.
    Stale,
    /// A part of the representation is stored, but not the whole requested range.
    Partial,
}

impl ForwardReason {
    /// The token in the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// The result of a cache for a request, as nginx names it in `$upstream_cache_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheResult {
    /// The response was stored, or was received for another request.
    Hit,
    /// A stored response was sent although it is stale.
    Stale,
    /// The origin confirmed a stale response.
    Revalidated,
    /// The origin replaced a stale response.
    Expired,
    /// No stored response could be used.
    Miss,
    /// The cache was not used.
    Bypass,
}

impl CacheResult {
    /// The name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "HIT",
            Self::Stale => "STALE",
            Self::Revalidated => "REVALIDATED",
            Self::Expired => "EXPIRED",
            Self::Miss => "MISS",
            Self::Bypass => "BYPASS",
        }
    }
}

impl Handling {
    /// The result in the terms of nginx, for a response that stays fresh for `ttl` seconds.
    pub fn result(self, ttl: Option<i64>) -> CacheResult {
        match self {
            Self::Hit if ttl.is_some_and(|ttl| ttl < 0) => CacheResult::Stale,
            Self::Hit
            | Self::Forwarded {
                collapsed: true, ..
            } => CacheResult::Hit,
            Self::Forwarded { reason, status, .. } => match reason {
                ForwardReason::Bypass | ForwardReason::Method | ForwardReason::Request => {
                    CacheResult::Bypass
                }
                ForwardReason::Stale if status == Some(StatusCode::NOT_MODIFIED) => {
                    CacheResult::Revalidated
                }
                // The origin failed, and the stored response was sent.
                ForwardReason::Stale if status.is_some() => CacheResult::Stale,
                ForwardReason::Stale => CacheResult::Expired,
                ForwardReason::UriMiss
                | ForwardReason::VaryMiss
                | ForwardReason::Miss
                | ForwardReason::Partial => CacheResult::Miss,
            },
        }
    }
}

impl CacheStatus<'_> {
    /// Adds this cache after those that are nearer to the origin.
    pub fn append_to(&self, headers: &mut Headers) {
        // A displayed value holds visible ASCII and spaces only.
        let _ = headers.try_append("cache-status", self.to_string());
    }
}

impl fmt::Display for CacheStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_token(self.cache) {
            f.write_str(self.cache)?;
        } else {
            string(self.cache, f)?;
        }
        match self.handling {
            Handling::Hit => f.write_str("; hit")?,
            Handling::Forwarded {
                reason,
                status,
                stored,
                collapsed,
            } => {
                write!(f, "; fwd={}", reason.as_str())?;
                if let Some(status) = status {
                    write!(f, "; fwd-status={}", status.as_u16())?;
                }
                if stored {
                    f.write_str("; stored")?;
                }
                if collapsed {
                    f.write_str("; collapsed")?;
                }
            }
        }
        if let Some(ttl) = self.ttl {
            // Integers of structured fields have 15 digits (RFC 9651 section 3.3.1).
            let ttl = ttl.clamp(-999_999_999_999_999, 999_999_999_999_999);
            write!(f, "; ttl={ttl}")?;
        }
        if let Some(key) = self.key {
            f.write_str("; key=")?;
            string(key, f)?;
        }
        if let Some(detail) = self.detail {
            f.write_str("; detail=")?;
            string(detail, f)?;
        }
        Ok(())
    }
}

/// Whether the text is a token, which needs no quotation marks (RFC 9651 section 3.3.4).
fn is_token(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '*')
        && text
            .bytes()
            .all(|byte| crate::grammar::is_token(byte) || matches!(byte, b':' | b'/'))
}

/// Writes a string of structured fields. Characters other than printable ASCII become `?`.
fn string(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write;
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            ' '..='~' => f.write_char(character)?,
            _ => f.write_char('?')?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_rfc_9211_shows() {
        let hit = CacheStatus {
            cache: "apus",
            handling: Handling::Hit,
            ttl: Some(376),
            key: None,
            detail: None,
        };
        assert_eq!(hit.to_string(), "apus; hit; ttl=376");
        let forwarded = CacheStatus {
            cache: "an \"edge\"",
            handling: Handling::Forwarded {
                reason: ForwardReason::Stale,
                status: Some(StatusCode::NOT_MODIFIED),
                stored: true,
                collapsed: true,
            },
            ttl: Some(i64::MIN),
            key: Some("http://a/\\b"),
            detail: Some("\u{e9}\r\n"),
        };
        assert_eq!(
            forwarded.to_string(),
            "\"an \\\"edge\\\"\"; fwd=stale; fwd-status=304; stored; collapsed; \
             ttl=-999999999999999; key=\"http://a/\\\\b\"; detail=\"???\""
        );
        let mut headers = Headers::new();
        headers.try_append("cache-status", "origin; hit").unwrap();
        hit.append_to(&mut headers);
        forwarded.append_to(&mut headers);
        assert_eq!(headers.get_all("cache-status").count(), 3);
    }

    #[test]
    fn the_results_are_those_of_nginx() {
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
            (
                forwarded(ForwardReason::Stale, Some(StatusCode::BAD_GATEWAY), false),
                Some(-5),
                "STALE",
            ),
        ] {
            assert_eq!(handling.result(ttl).as_str(), expected, "{handling:?}");
        }
    }
}
