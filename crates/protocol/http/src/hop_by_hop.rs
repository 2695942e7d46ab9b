//! Hop-by-hop fields, which are for one connection only (RFC 9110 section 7.6.1).

use http::Version;

use crate::grammar::trim;
use crate::{FieldSet, Headers, KnownField, is_identity_field, list};

/// The content of the hop-by-hop fields, except for persistence and the framing of the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopByHopFields {
    /// The protocols of `Upgrade`, if `Connection` names it.
    pub upgrade: Option<Box<str>>,
    /// Whether `TE` names `trailers`.
    pub accepts_trailers: bool,
    /// The other fields that `Connection` names, in lower case. They are removed from the trailer section,
    /// too.
    pub nominated: Vec<Box<[u8]>>,
}

impl HopByHopFields {
    /// Removes the hop-by-hop fields and the fields that `Connection` names from a field section.
    pub fn take(headers: &mut Headers, version: Version) -> Self {
        let mut reader = HopByHopReader::default();
        if headers.has_any(FieldSet::HOP_BY_HOP) {
            headers.retain_fields(|field, _, value| {
                let is_hop_by_hop = FieldSet::HOP_BY_HOP.has(field);
                if is_hop_by_hop {
                    reader.read(field, value);
                }
                !is_hop_by_hop
            });
        }
        reader.finish(headers, version)
    }
}

/// Collects the hop-by-hop fields of one head.
#[derive(Debug, Default)]
pub struct HopByHopReader {
    found: HopByHopFields,
    /// The protocols of all lines of `Upgrade`.
    offered: String,
    is_upgrade_named: bool,
    are_too_many: bool,
}

impl HopByHopReader {
    /// The most fields that `Connection` may name.
    const MAX_NOMINATED: usize = 32;

    /// Reads the value of a line with one of [`FieldSet::HOP_BY_HOP`].
    pub fn read(&mut self, field: KnownField, value: &[u8]) {
        match field {
            KnownField::Connection => self.options(value),
            KnownField::Upgrade => {
                let value = std::str::from_utf8(trim(value)).unwrap_or_default();
                if !self.offered.is_empty() && !value.is_empty() {
                    self.offered.push_str(", ");
                }
                self.offered.push_str(value);
            }
            KnownField::Te => self.found.accepts_trailers |= list::has_member(value, "trailers"),
            _ => {}
        }
    }

    fn options(&mut self, value: &[u8]) {
        for option in list::members(value) {
            if option.eq_ignore_ascii_case(b"upgrade") {
                self.is_upgrade_named = true;
            } else if !option.eq_ignore_ascii_case(b"close")
                && !FieldSet::HOP_BY_HOP.has(KnownField::named(option))
            {
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

    /// Whether `Connection` names more fields than allowed.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Removes the fields that `Connection` names from the message.
    ///
    /// `Host` and `Content-Length` stay because they are always end-to-end, and identity fields stay
    /// because a client must not remove what proxies write.
    pub fn finish(mut self, headers: &mut Headers, version: Version) -> HopByHopFields {
        let nominated = &self.found.nominated;
        if !nominated.is_empty() {
            headers.retain(|name| {
                !nominated.iter().any(|named| **named == *name)
                    || matches!(name, b"host" | b"content-length")
                    || is_identity_field(name)
            });
        }
        // HTTP/1.0 has no `Upgrade`.
        if self.is_upgrade_named && !self.offered.is_empty() && version >= Version::HTTP_11 {
            self.found.upgrade = Some(self.offered.into());
        }
        self.found
    }
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
    fn hop_by_hop_fields_are_removed() {
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
    fn an_upgrade_that_connection_does_not_name_is_ignored() {
        let (found, names) = taken(&[("upgrade", "websocket"), ("connection", "close")]);
        assert_eq!((found, names.len()), (HopByHopFields::default(), 0));
    }

    #[test]
    fn connection_cannot_remove_host_length_and_identity_fields() {
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
