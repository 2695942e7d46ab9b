//! `Referers`: requests only from pages of some sites (RFC 9110 section 10.1.3).

use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::{Request, ResponseFuture};

use crate::access::{self, AccessCheck, AccessDecision};

/// A layer that rejects requests of browsers from pages of other sites with 403: pictures and downloads that others embed.
///
/// ```
/// use apus_layers::Referers;
///
/// let images = Referers::new().none().same_host().host("*.example.com");
/// # let _ = images;
/// ```
///
/// It is no protection of secrets: any program can send any `Referer`, and readers can leave it out.
#[derive(Clone, Debug, Default)]
pub struct Referers {
    allows_none: bool,
    allows_blocked: bool,
    allows_same_host: bool,
    /// Names in lower case without a dot at the end.
    hosts: Vec<Box<str>>,
    /// What subdomains end with, and their dot.
    suffixes: Vec<Box<str>>,
}

/// What a `Referer` names.
#[derive(Debug, PartialEq, Eq)]
enum RefererHost {
    /// There is none, or the page has no URL.
    None,
    /// No URL of a site: a proxy or a browser replaced it.
    Blocked,
    /// The host, in lower case and without a dot at its end.
    Host(String),
    /// Two fields, of which readers might take either.
    Ambiguous,
}

impl Referers {
    /// A layer that rejects all requests, until it is told which to allow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows requests without `Referer`: URLs that were typed or stored, programs, readers who hide it.
    #[must_use]
    pub fn none(mut self) -> Self {
        self.allows_none = true;
        self
    }

    /// Allows requests whose `Referer` is no URL with `http` or `https`, because something between replaced it.
    #[must_use]
    pub fn blocked(mut self) -> Self {
        self.allows_blocked = true;
        self
    }

    /// Allows requests from pages of the host that is requested.
    #[must_use]
    pub fn same_host(mut self) -> Self {
        self.allows_same_host = true;
        self
    }

    /// Allows requests from pages of this host, `example.com`, or of all its subdomains, `*.example.com`; on any port.
    #[must_use]
    pub fn host(mut self, name: &str) -> Self {
        match name.strip_prefix('*') {
            Some(suffix) => self.suffixes.push(normal(suffix).into()),
            None => self.hosts.push(normal(name).into()),
        }
        self
    }

    fn allows(&self, request: &Request) -> bool {
        match RefererHost::of(request) {
            RefererHost::None => self.allows_none,
            RefererHost::Blocked => self.allows_blocked,
            RefererHost::Ambiguous => false,
            RefererHost::Host(host) => {
                let is_subdomain = |suffix: &str| {
                    host.strip_suffix(suffix)
                        .is_some_and(|label| !label.is_empty())
                };
                self.hosts.iter().any(|allowed| **allowed == *host)
                    || self.suffixes.iter().any(|suffix| is_subdomain(suffix))
                    || self.allows_same_host
                        && request.host().is_some_and(|own| normal(own) == host)
            }
        }
    }
}

impl RefererHost {
    fn of(request: &Request) -> Self {
        let mut lines = request.headers().get_all("referer");
        let Some(line) = lines.next() else {
            return Self::None;
        };
        if lines.next().is_some() {
            return Self::Ambiguous;
        }
        if line.is_empty() || line.eq_ignore_ascii_case(b"about:blank") {
            return Self::None;
        }
        let host = std::str::from_utf8(line).ok().and_then(host_of_url);
        host.map_or(Self::Blocked, Self::Host)
    }
}

/// The host of a URL with `http` or `https`, as browsers read it.
fn host_of_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '\\', '?', '#']).next()?;
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = match host.find(']') {
        Some(end) => host.get(..=end)?,
        None => host.split(':').next()?,
    };
    Some(normal(host)).filter(|host| !host.is_empty())
}

/// A name in lower case and without the dot at its end.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl AccessCheck for Referers {
    fn name(&self) -> &'static str {
        "referers"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        if self.allows(request) {
            return AccessDecision::ADMITTED;
        }
        let detail = "this is not for pages of other sites";
        AccessDecision::refused(Error::forbidden(detail))
    }
}

impl Middleware<ResponseMarker> for Referers {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

#[cfg(test)]
mod tests {
    use apus_testkit::ask;

    use super::*;

    #[test]
    fn the_host_of_a_referer_is_the_one_that_browsers_read() {
        let host = |host: &str| RefererHost::Host(host.to_owned());
        for (referer, expected) in [
            ("https://example.com/a", host("example.com")),
            ("HTTPS://EXAMPLE.com", host("example.com")),
            ("http://example.com.:8080/", host("example.com")),
            ("https://[2001:DB8::1]:8443/a", host("[2001:db8::1]")),
            (
                "https://evil.example/https://example.com/",
                host("evil.example"),
            ),
            ("https://evil.example?//example.com/", host("evil.example")),
            ("https://evil.example#@example.com/", host("evil.example")),
            ("https://evil.example\\@example.com/", host("evil.example")),
            ("https://example.com@evil.example/", host("evil.example")),
            ("https://example.com:80@evil.example/", host("evil.example")),
            ("", RefererHost::None),
            ("about:blank", RefererHost::None),
            ("xxxx", RefererHost::Blocked),
            ("example.com/a", RefererHost::Blocked),
            ("//example.com/", RefererHost::Blocked),
            ("ftp://example.com/", RefererHost::Blocked),
            ("https://", RefererHost::Blocked),
            ("https:///example.com", RefererHost::Blocked),
            ("https://@/", RefererHost::Blocked),
        ] {
            let request = ask("GET", "/").with("referer", referer).request();
            assert_eq!(RefererHost::of(&request), expected, "{referer}");
        }
        let two = [
            "Referer: https://example.com/",
            "Referer: https://evil.example/",
        ];
        let request = ask("GET", "/").lines(&two).request();
        assert_eq!(RefererHost::of(&request), RefererHost::Ambiguous);
        assert_eq!(
            RefererHost::of(&ask("GET", "/").request()),
            RefererHost::None
        );
    }
}
