//! The fields about one connection (RFC 9110 section 7.6.1), which nobody behind it gets to see.

use http::Version;

use crate::grammar::trim;
use crate::{Headers, is_identity_field, list};

/// What the fields about the connection ask for, beside its persistence and the framing of the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopByHopFields {
    /// The protocols of `Upgrade`, if `Connection` names it.
    pub upgrade: Option<Box<str>>,
    /// Whether `TE` names `trailers`.
    pub accepts_trailers: bool,
    /// The other fields that `Connection` names, in lower case: none of them stands in a trailer section
    /// either.
    pub nominated: Vec<Box<[u8]>>,
}

impl HopByHopFields {
    /// Takes the fields about the connection out of a field section, with all that `Connection` names.
    pub fn take(headers: &mut Headers, version: Version) -> Self {
        let mut reader = HopByHopReader::default();
        let mut found = false;
        for (name, value) in headers.iter() {
            found |= reader.take(name.as_bytes(), value);
        }
        if found {
            headers.retain(|name| !is_hop_by_hop(name.as_bytes()));
        }
        reader.finish(headers, version)
    }
}

/// Gathers what the field lines of one head say of the connection.
#[derive(Debug, Default)]
pub struct HopByHopReader {
    found: HopByHopFields,
    /// The protocols of all lines of `Upgrade`.
    offered: String,
    is_upgrade_named: bool,
    are_too_many: bool,
}

impl HopByHopReader {
    /// More fields than anybody has reason to nominate.
    const MAX_NOMINATED: usize = 32;

    /// Takes a field line into account; tells whether it is about the connection, and does not belong to
    /// the fields of the message.
    pub fn take(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !is_hop_by_hop(name) {
            return false;
        }
        if name.eq_ignore_ascii_case(b"connection") {
            self.options(value);
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            let value = std::str::from_utf8(trim(value)).unwrap_or_default();
            if !self.offered.is_empty() && !value.is_empty() {
                self.offered.push_str(", ");
            }
            self.offered.push_str(value);
        } else if name.eq_ignore_ascii_case(b"te") {
            self.found.accepts_trailers |= list::has_member(value, "trailers");
        }
        true
    }

    fn options(&mut self, value: &[u8]) {
        for option in list::members(value) {
            if option.eq_ignore_ascii_case(b"upgrade") {
                self.is_upgrade_named = true;
            } else if !option.eq_ignore_ascii_case(b"close") && !is_hop_by_hop(option) {
                if self.found.nominated.len() == Self::MAX_NOMINATED {
                    self.are_too_many = true;
                    return;
                }
                self.found
                    .nominated
                    .push(option.to_ascii_lowercase().into());
            }
        }
    }

    /// Whether `Connection` names more fields than any honest client does.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Removes the fields that `Connection` names from those of the message.
    ///
    /// `Host` and `Content-Length` are never meant for one connection alone, and what proxies write of
    /// clients is not for a client to take away.
    pub fn finish(mut self, headers: &mut Headers, version: Version) -> HopByHopFields {
        let nominated = &self.found.nominated;
        if !nominated.is_empty() {
            headers.retain(|name| {
                !nominated.iter().any(|named| **named == *name.as_bytes())
                    || matches!(name, "host" | "content-length")
                    || is_identity_field(name)
            });
        }
        // HTTP/1.0 has no switching of protocols.
        if self.is_upgrade_named && !self.offered.is_empty() && version >= Version::HTTP_11 {
            self.found.upgrade = Some(self.offered.into());
        }
        self.found
    }
}

/// Whether a field is about one connection (RFC 9110 section 7.6.1), in whatever case.
fn is_hop_by_hop(name: &[u8]) -> bool {
    // Most names are told apart by their length alone.
    let known: &[u8] = match name.len() {
        2 => b"te",
        7 => b"upgrade",
        10 if matches!(name.first(), Some(b'k' | b'K')) => b"keep-alive",
        10 => b"connection",
        14 => b"http2-settings",
        16 => b"proxy-connection",
        17 => b"transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[(&str, &str)]) -> (HopByHopFields, Vec<String>) {
        let mut headers = Headers::new();
        for (name, value) in lines {
            headers.try_append(name, value).unwrap();
        }
        let found = HopByHopFields::take(&mut headers, Version::HTTP_11);
        let names = headers.iter().map(|(name, _)| name.to_owned()).collect();
        (found, names)
    }

    #[test]
    fn what_belongs_to_the_connection_is_taken_out() {
        let (found, names) = taken(&[
            ("host", "a"),
            ("x-hop", "1"),
            ("connection", "keep-alive, X-Hop, upgrade"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("accept", "*/*"),
            ("x-hop", "2"),
        ]);
        assert_eq!(names, ["host", "accept"]);
        assert_eq!(found.upgrade.as_deref(), Some("websocket"));
        assert!(found.accepts_trailers);
    }

    #[test]
    fn an_upgrade_that_connection_does_not_name_is_none() {
        let (found, names) = taken(&[("upgrade", "websocket"), ("connection", "close")]);
        assert_eq!((found, names.len()), (HopByHopFields::default(), 0));
    }

    #[test]
    fn host_length_and_what_proxies_tell_cannot_be_nominated_away() {
        let lines = [
            ("host", "a"),
            ("content-length", "5"),
            ("x-forwarded-for", "192.0.2.7"),
            ("cookie", "a=b"),
            (
                "connection",
                "host, content-length, x-forwarded-for, cookie",
            ),
        ];
        let (_, names) = taken(&lines);
        assert_eq!(names, ["host", "content-length", "x-forwarded-for"]);
    }
}
