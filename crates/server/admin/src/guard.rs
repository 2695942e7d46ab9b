//! Refuses requests that a page of another site can have a browser send.

use std::net::IpAddr;
use std::sync::Arc;

use apus_handler::{Middleware, Next};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

/// The layer.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// In lower case.
    names: Arc<[String]>,
}

impl Guard {
    pub(crate) fn new(names: Vec<String>) -> Self {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase());
        Self {
            names: names.collect(),
        }
    }

    /// Why a request is refused; `None`: it is not.
    fn refusal(&self, request: &Request) -> Option<&'static str> {
        let Some(host) = request.host() else {
            return Some("the request names no host");
        };
        if !self.is_own_name(host) {
            return Some(
                "the name in `Host` is no address, and not among `admin_names` of the configuration",
            );
        }
        let authority = request.authority().unwrap_or_default();
        let mut origins = request.headers().get_all("origin");
        let is_other = |origin: &[u8]| {
            let origin = std::str::from_utf8(origin).unwrap_or_default();
            let of_scheme = |scheme| origin.strip_prefix(scheme);
            let own = of_scheme("http://").or_else(|| of_scheme("https://"));
            own.is_none_or(|own| !own.eq_ignore_ascii_case(authority))
        };
        if origins.any(is_other) {
            return Some("the request is from a page of another site");
        }
        None
    }

    fn is_own_name(&self, host: &str) -> bool {
        let address = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        host == "localhost"
            || address.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|name| *name == host)
    }
}

impl Middleware<()> for Guard {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        match self.refusal(&request) {
            None => next.call(request),
            Some(why) => {
                Response::text(StatusCode::FORBIDDEN, format!("403 Forbidden: {why}\n")).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(host: &str, origin: Option<&str>) -> Option<&'static str> {
        let guard = Guard::new(vec!["Apus.internal".to_owned()]);
        let request = apus_testkit::get("/metrics").with("host", host);
        let request = match origin {
            Some(origin) => request.with("origin", origin),
            None => request,
        };
        guard.refusal(&request.request())
    }

    #[test]
    fn addresses_localhost_and_own_names_are_served() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9180",
            "[::1]",
            "[::1]:9180",
            "localhost",
            "LocalHost:9180",
            "localhost.",
            "apus.internal",
            "APUS.internal:9180",
        ] {
            assert_eq!(refusal(host, None), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "apus.internal.evil.example",
            "127.0.0.1.evil.example",
            "2130706433",
            "0x7f.1",
        ] {
            assert!(refusal(host, None).is_some(), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        assert_eq!(
            refusal("localhost:9180", Some("http://localhost:9180")),
            None
        );
        assert_eq!(
            refusal("apus.internal", Some("https://APUS.internal")),
            None
        );
        for origin in [
            "http://localhost",
            "http://localhost:9181",
            "http://evil.example",
            "null",
            "",
            "ftp://localhost:9180",
            "http://localhost:9180/",
            "http://localhost:9180@evil.example",
        ] {
            assert!(
                refusal("localhost:9180", Some(origin)).is_some(),
                "{origin}"
            );
        }
    }
}
