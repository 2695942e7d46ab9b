//! The authority of a request in its normal form (RFC 3986 section 6.2, RFC 9110 section 4.2.3).

use std::fmt;

use smallvec::SmallVec;

use crate::grammar::split_authority;

/// `host [":" port]` in lower case, without the dot of the root, and without a port that is empty or the
/// default of the scheme. Equal authorities have the same normal form.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Authority {
    text: SmallVec<[u8; 40]>,
    host_len: usize,
}

impl Authority {
    /// The normal form of an authority; `None` if the text is no authority.
    pub fn normalise(text: &[u8], is_secure: bool) -> Option<Self> {
        let (host, port) = split_authority(text)?;
        let host = match host.strip_suffix(b".") {
            Some(host) if !host.is_empty() => host,
            _ => host,
        };
        let zeros = port.iter().take_while(|digit| **digit == b'0').count();
        let port = port.get(zeros..).unwrap_or_default();
        let default: &[u8] = if is_secure { b"443" } else { b"80" };
        let has_port = !port.is_empty() && port != default;
        let length = host.len().saturating_add(1).saturating_add(port.len());
        let mut normal = if has_port && length == text.len() {
            // As most clients send it: nothing has to be taken out.
            SmallVec::from_slice(text)
        } else {
            let mut normal = SmallVec::from_slice(host);
            if has_port {
                normal.push(b':');
                normal.extend_from_slice(port);
            }
            normal
        };
        if host.iter().any(u8::is_ascii_uppercase) {
            normal.make_ascii_lowercase();
        }
        let host_len = host.len();
        Some(Self {
            text: normal,
            host_len,
        })
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        // An authority is ASCII.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// The host. An IPv6 address has its brackets.
    pub fn host(&self) -> &str {
        self.as_str().get(..self.host_len).unwrap_or_default()
    }

    /// The bytes of the host, for who needs no text.
    pub(crate) fn host_bytes(&self) -> &[u8] {
        self.text.get(..self.host_len).unwrap_or_default()
    }

    /// The port, if it is not the default of the scheme.
    pub fn port(&self) -> Option<u16> {
        let port = self.as_str().get(self.host_len..)?.strip_prefix(':')?;
        port.parse().ok()
    }

    /// The same host with this port, if the authority has none.
    #[must_use]
    pub(crate) fn or_port(mut self, port: Option<u16>, is_secure: bool) -> Self {
        let default = if is_secure { 443 } else { 80 };
        if let Some(port) = port.filter(|port| *port != 0 && *port != default)
            && self.text.len() == self.host_len
            && !self.is_empty()
        {
            self.text.push(b':');
            self.text.extend_from_slice(port.to_string().as_bytes());
        }
        self
    }

    /// Whether there is no authority.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.as_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_authorities_have_one_form() {
        for (sent, is_secure, normal, host, port) in [
            ("example.com", false, "example.com", "example.com", None),
            ("EXAMPLE.com:80", false, "example.com", "example.com", None),
            ("example.com:", true, "example.com", "example.com", None),
            ("example.com:0443", true, "example.com", "example.com", None),
            (
                "example.com:443",
                false,
                "example.com:443",
                "example.com",
                Some(443),
            ),
            (
                "example.com:080",
                true,
                "example.com:80",
                "example.com",
                Some(80),
            ),
            ("example.com.", false, "example.com", "example.com", None),
            (
                "example.com.:8080",
                false,
                "example.com:8080",
                "example.com",
                Some(8080),
            ),
            ("[::A]", false, "[::a]", "[::a]", None),
            ("[::a]:8443", true, "[::a]:8443", "[::a]", Some(8443)),
            (".", false, ".", ".", None),
        ] {
            let authority = Authority::normalise(sent.as_bytes(), is_secure).unwrap();
            assert_eq!(authority.as_str(), normal, "{sent}");
            assert_eq!(authority.host(), host, "{sent}");
            assert_eq!(authority.port(), port, "{sent}");
            let again = Authority::normalise(normal.as_bytes(), is_secure).unwrap();
            assert_eq!(again, authority);
        }
        for text in ["", ":80", "a b", "a/b", "user@a", "a:99999"] {
            assert_eq!(Authority::normalise(text.as_bytes(), false), None, "{text}");
        }
    }
}
