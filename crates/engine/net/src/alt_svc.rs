//! The offer of HTTP/3 over HTTP/1.1 and HTTP/2 (`Alt-Svc`, RFC 7838).

use apus_http::Headers;

use crate::worker::WorkerListener;

/// How long clients remember the offer, in seconds.
// The default of RFC 7838 section 3.1.
const MAX_AGE: u32 = 86_400;

/// The port of `https` (RFC 9110 section 4.2.2).
const DEFAULT_PORT: u16 = 443;

/// The offer of HTTP/3 on one connection, at the port of the origin: that is the port which the client reached, also
/// where a router maps it to another one.
#[derive(Default)]
pub(crate) struct AltSvc {
    is_offered: bool,
    value: Option<(u16, Box<str>)>,
}

impl AltSvc {
    /// Whether to offer HTTP/3.
    pub(crate) fn new(is_offered: bool) -> Self {
        Self {
            is_offered,
            value: None,
        }
    }

    /// Takes the authority of a request, whose response will have the offer if the listener still has HTTP/3.
    pub(crate) fn prepare(&mut self, request: &Headers, listener: &WorkerListener) {
        if self.is_offered {
            let authority = request.get("host").filter(|_| listener.has_http3());
            self.prepare_for(authority);
        }
    }

    fn prepare_for(&mut self, authority: Option<&[u8]>) {
        let port = authority.map(port_of);
        if self.value.as_ref().map(|(known, _)| *known) != port {
            self.value = port.map(|port| {
                let value = format!("h3=\":{port}\"; ma={MAX_AGE}");
                (port, value.into())
            });
        }
    }

    /// The value of the field.
    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_ref().map(|(_, value)| &**value)
    }
}

/// The port in an authority (RFC 3986 section 3.2), or the default port of `https`.
fn port_of(authority: &[u8]) -> u16 {
    let digits = authority.rsplit(|byte| *byte == b':').next();
    digits
        .filter(|digits| digits.len() < authority.len())
        .and_then(|digits| str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(DEFAULT_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_authority() {
        for (authority, port) in [
            ("a.example", 443),
            ("a.example:8443", 8443),
            ("a.example:", 443),
            ("a.example:99999", 443),
            ("[2001:db8::1]", 443),
            ("[2001:db8::1]:444", 444),
            ("192.0.2.1:1", 1),
            ("8443", 443),
            ("", 443),
        ] {
            assert_eq!(port_of(authority.as_bytes()), port, "{authority}");
        }
    }

    #[test]
    fn the_offer_follows_the_port_of_the_requests() {
        let mut offer = AltSvc::new(true);
        for (authority, value) in [
            (None, None),
            (Some("a.example:8443"), Some("h3=\":8443\"; ma=86400")),
            (Some("b.example:8443"), Some("h3=\":8443\"; ma=86400")),
            (Some("a.example"), Some("h3=\":443\"; ma=86400")),
            (None, None),
        ] {
            offer.prepare_for(authority.map(str::as_bytes));
            assert_eq!(offer.value(), value);
        }
    }
}
