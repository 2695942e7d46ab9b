//! Fields that are looked for in most messages, as numbers.

use smallvec::SmallVec;

use crate::identity::is_identity_field;

/// Defines the fields and their names.
macro_rules! known_fields {
    ($($field:ident = $name:literal,)*) => {
        /// A field that is looked for in most messages. Each line of [`Headers`](crate::Headers) knows the one
        /// that it has, so that a search compares no names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is named after its field")]
        pub enum KnownField {
            $($field,)*
            /// `X-Accel-*`, `X-Sendfile` and `X-Apus-*`, by which applications tell the server what to do.
            Internal,
            /// An identity field that is none of the others.
            Identity,
            /// A name with an underscore that is none of the others.
            Underscored,
            /// None of them.
            Other,
        }

        impl KnownField {
            /// The field with this name, which consists of letters in lower case and hyphens.
            pub(crate) fn of_letters(name: &[u8]) -> Self {
                match name {
                    $($name => Self::$field,)*
                    name if is_internal_field(name) => Self::Internal,
                    name if is_identity_field(name) => Self::Identity,
                    _ => Self::Other,
                }
            }
        }
    };
}

known_fields! {
    Accept = b"accept",
    AltSvc = b"alt-svc",
    Authorization = b"authorization",
    CacheControl = b"cache-control",
    Connection = b"connection",
    ContentDigest = b"content-digest",
    ContentEncoding = b"content-encoding",
    ContentLength = b"content-length",
    ContentLocation = b"content-location",
    ContentRange = b"content-range",
    ContentType = b"content-type",
    Date = b"date",
    Digest = b"digest",
    Expect = b"expect",
    Forwarded = b"forwarded",
    Host = b"host",
    Http2Settings = b"http2-settings",
    KeepAlive = b"keep-alive",
    Location = b"location",
    Proxy = b"proxy",
    ProxyConnection = b"proxy-connection",
    Refresh = b"refresh",
    ReprDigest = b"repr-digest",
    Server = b"server",
    SetCookie = b"set-cookie",
    Te = b"te",
    TransferEncoding = b"transfer-encoding",
    Upgrade = b"upgrade",
    Vary = b"vary",
    Via = b"via",
    XForwardedFor = b"x-forwarded-for",
    XForwardedHost = b"x-forwarded-host",
    XForwardedPort = b"x-forwarded-port",
    XForwardedProto = b"x-forwarded-proto",
    XRealIp = b"x-real-ip",
}

/// Whether a field is one by which an application tells the server what to do; `name` is in lower case.
pub(crate) fn is_internal_field(name: &[u8]) -> bool {
    name.starts_with(b"x-accel-") || name.starts_with(b"x-apus-") || name == b"x-sendfile"
}

impl KnownField {
    /// The field with this name, which is in lower case.
    pub(crate) fn of(name: &[u8]) -> Self {
        match Self::of_letters(name) {
            // Byte by byte, this took more instructions than the names of most fields.
            Self::Other if memchr::memchr(b'_', name).is_some() => Self::Underscored,
            field => field,
        }
    }

    /// The field with this name, in upper or lower case.
    pub fn named(name: &[u8]) -> Self {
        let lower: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
        Self::of(&lower)
    }
}

/// A set of known fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u64);

impl FieldSet {
    /// The fields of one connection (RFC 9110 section 7.6.1): only its codec writes them.
    pub const CONNECTION: Self = Self::of(&[
        KnownField::Connection,
        KnownField::KeepAlive,
        KnownField::ProxyConnection,
        KnownField::Te,
        KnownField::TransferEncoding,
        KnownField::Upgrade,
    ]);

    /// The fields of a request that are for one connection only (RFC 9110 section 7.6.1, RFC 7540 section 3.2.1).
    pub const HOP_BY_HOP: Self = Self::CONNECTION.with(KnownField::Http2Settings);

    /// Identity fields, in which proxies describe the client.
    pub const IDENTITY: Self = Self::of(&[
        KnownField::Forwarded,
        KnownField::Identity,
        KnownField::XForwardedFor,
        KnownField::XForwardedHost,
        KnownField::XForwardedPort,
        KnownField::XForwardedProto,
        KnownField::XRealIp,
    ]);

    /// The fields of a request that its codec writes from other data.
    pub const REQUEST_FRAMING: Self = Self::CONNECTION.and(Self::of(&[
        KnownField::ContentLength,
        KnownField::Expect,
        KnownField::Host,
    ]));

    /// The set of these fields.
    pub const fn of(fields: &[KnownField]) -> Self {
        let mut set = 0;
        let mut rest = fields;
        while let [first, others @ ..] = rest {
            set |= 1 << *first as u8;
            rest = others;
        }
        Self(set)
    }

    /// The union of these fields and `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These fields, and this one.
    #[must_use]
    pub const fn with(self, field: KnownField) -> Self {
        self.and(Self::of(&[field]))
    }

    /// These fields, without this one.
    #[must_use]
    pub const fn without(self, field: KnownField) -> Self {
        Self(self.0 & !Self::of(&[field]).0)
    }

    /// Whether the field is in the set.
    pub const fn has(self, field: KnownField) -> bool {
        self.has_any(Self::of(&[field]))
    }

    /// Whether any field is in both sets.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn add(&mut self, field: KnownField) {
        *self = self.with(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_head::is_connection_field;

    #[test]
    fn a_field_is_known_by_its_whole_name() {
        for (name, field) in [
            ("content-type", KnownField::ContentType),
            ("content-typ", KnownField::Other),
            ("content-types", KnownField::Other),
            ("x-accel-", KnownField::Internal),
            ("x-accel-redirect", KnownField::Internal),
            ("x-accel", KnownField::Other),
            ("x-sendfile", KnownField::Internal),
            ("x-sendfile-type", KnownField::Other),
            ("x-apus-events", KnownField::Internal),
            ("x-apus", KnownField::Other),
            ("x-remote-user", KnownField::Identity),
            ("x_real_ip", KnownField::Identity),
            ("x.forwarded.for", KnownField::Identity),
            ("x_accel_redirect", KnownField::Underscored),
            ("content_type", KnownField::Underscored),
            ("a-long-name-of-many-bytes_", KnownField::Underscored),
            ("", KnownField::Other),
        ] {
            assert_eq!(KnownField::of(name.as_bytes()), field, "{name}");
        }
    }

    #[test]
    fn a_field_is_known_in_upper_and_lower_case() {
        for (name, field) in [
            ("HOST", KnownField::Host),
            ("Transfer-Encoding", KnownField::TransferEncoding),
            ("Transfer-Encoding2", KnownField::Other),
            ("Transfer-Encoding-More", KnownField::Other),
            ("X-Accel-Redirect-And-More", KnownField::Internal),
            ("X-Original-Forwarded-For", KnownField::Identity),
            ("", KnownField::Other),
        ] {
            assert_eq!(KnownField::named(name.as_bytes()), field, "{name}");
        }
    }

    #[test]
    fn the_set_of_connection_fields_has_what_is_one_by_name() {
        for name in [
            "te",
            "upgrade",
            "connection",
            "keep-alive",
            "proxy-connection",
            "transfer-encoding",
            "host",
            "expect",
            "x-other",
        ] {
            let is_in_set = FieldSet::CONNECTION.has(KnownField::of(name.as_bytes()));
            assert_eq!(is_in_set, is_connection_field(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_set_of_identity_fields_has_what_is_one_by_name() {
        for name in [
            "forwarded",
            "x-forwarded",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded-server",
            "x-real-ip",
            "ssl-client-s-dn",
            "via",
            "x-request-id",
            "x_request_id",
            "host",
        ] {
            let is_in_set = FieldSet::IDENTITY.has(KnownField::of(name.as_bytes()));
            assert_eq!(is_in_set, is_identity_field(name), "{name}");
        }
    }

    #[test]
    fn sets_gain_and_lose_fields() {
        let set = FieldSet::REQUEST_FRAMING.without(KnownField::Host);
        assert!(set.has(KnownField::Expect) && set.has(KnownField::Te));
        assert!(!set.has(KnownField::Host) && !set.has(KnownField::Other));
        assert_eq!(set.with(KnownField::Host), FieldSet::REQUEST_FRAMING);
        assert!(!FieldSet::default().has_any(set) && set.has_any(set));
    }
}
