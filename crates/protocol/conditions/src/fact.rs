//! The facts that conditions are about, each with its name, its type and when it is known.

use std::fmt;

/// What the cache can have done ([`apus_http::fields::CacheResult`]).
const CACHE_RESULTS: &[&str] = &["hit", "stale", "revalidated", "expired", "miss", "bypass"];

/// A fact of a request or a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fact {
    kind: FactKind,
    /// The name after the first dot, for facts that have one: of a field, a cookie, a parameter, a map.
    name: Option<Box<str>>,
    /// When it is known, for facts that are made of others.
    known_from: Option<FactStage>,
}

/// When a fact is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactStage {
    /// From the head of the request on.
    Request,
    /// From the authentication of the user on.
    Authentication,
    /// From the head of the response on.
    Response,
}

/// What the values of a fact are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Bytes, compared as they are.
    Text,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// A path, in its normal form.
    Path,
    /// A host, in lower case.
    Host,
    /// An address of a client.
    Address,
    /// A whole number.
    Number(Unit),
    /// True or false.
    Flag,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of something, or a code.
    Count,
    /// Bytes: `10`, `10kb`, `1mb`.
    Bytes,
    /// Milliseconds: `250ms`, `2s`, `1m`, `1h`.
    Time,
    /// Hundredths of a percent: `50%`.
    Share,
    /// Minutes since midnight: `08:30`.
    Clock,
}

macro_rules! facts {
    ($($variant:ident $name:literal $type:expr, $stage:ident, $named:literal, $about:literal;)*) => {
        /// The facts, without the names of fields, cookies and parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FactKind {
            $(#[doc = $about] $variant,)*
        }

        /// All facts.
        pub const FACTS: &[FactKind] = &[$(FactKind::$variant,)*];

        impl FactKind {
            /// The name in conditions; for facts with a name, the part before it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What its values are.
            pub fn value_type(self) -> ValueType {
                match self { $(Self::$variant => $type,)* }
            }

            /// When it is known.
            pub fn stage(self) -> FactStage {
                match self { $(Self::$variant => FactStage::$stage,)* }
            }

            /// Whether a name follows, as in `header.accept`.
            pub fn is_named(self) -> bool {
                match self { $(Self::$variant => $named,)* }
            }

            /// What it is, in words.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

use ValueType::{Address, Flag, Host, Number, Path, Text, Word};

facts! {
    Client "client" Address, Request, false, "The address of the client, as trusted proxies name it.";
    GeoCountry "geo.country" Text, Request, false, "The country of the client, by its code of ISO 3166-1: `DE`. Facts of places need `geo_databases`.";
    GeoContinent "geo.continent" Word(&["AF", "AN", "AS", "EU", "NA", "OC", "SA"]), Request, false, "The continent of the client.";
    GeoSubdivision "geo.subdivision" Text, Request, false, "The part of the country, by its code of ISO 3166-2 without the country: `BE`.";
    GeoCity "geo.city" Text, Request, false, "The city of the client, by its English name.";
    GeoSystem "geo.asn" Number(Unit::Count), Request, false, "The number of the autonomous system of the client.";
    GeoSystemName "geo.as_organization" Text, Request, false, "The organization of the autonomous system of the client.";
    Scheme "scheme" Word(&["http", "https"]), Request, false, "The scheme of the request.";
    RequestHost "host" Host, Request, false, "The host of the request, in lower case and without port.";
    Method "method" Text, Request, false, "The method, which is case-sensitive (RFC 9110 section 9.1).";
    RequestPath "path" Path, Request, false, "The path in its normal form, decoded. A path with `PATH_INFO` behind a script, as `/login.php/a`, has the path of the script as a second value.";
    QueryText "query" Text, Request, false, "The whole query, as it was sent.";
    QueryParameter "query." Text, Request, true, "A parameter of the query, decoded. Each value counts if it is there several times.";
    RequestField "header." Text, Request, true, "A header field of the request. Each line counts if there are several.";
    Cookie "cookie." Text, Request, true, "A cookie.";
    UserAgent "user_agent" Text, Request, false, "The field `User-Agent`.";
    Referer "referer" Text, Request, false, "The field `Referer`.";
    RequestType "content_type" Text, Request, false, "The media type of the request's body, in lower case and without parameters.";
    RequestLength "content_length" Number(Unit::Bytes), Request, false, "The length of the request's body, if it is known.";
    Protocol "protocol" Word(&["http/1.0", "http/1.1", "h2", "h3"]), Request, false, "The protocol of the request.";
    IsTls "tls" Flag, Request, false, "Whether the connection has TLS.";
    TlsVersion "tls.version" Word(&["1.2", "1.3"]), Request, false, "The version of TLS.";
    TlsCipher "tls.cipher" Text, Request, false, "The cipher suite of TLS, as IANA names it.";
    TlsAlpn "tls.alpn" Word(&["http/1.0", "http/1.1", "h2", "h3"]), Request, false, "The protocol that ALPN selected (RFC 7301).";
    TlsFingerprint "tls.ja4" Text, Request, false, "The fingerprint JA4 of the client's TLS: the same for each connection of one kind of client.";
    ServerNameIndication "tls.sni" Host, Request, false, "The server name of the TLS handshake (RFC 6066 section 3).";
    CertificateSubject "certificate.subject" Text, Request, false, "The subject of the verified client certificate (RFC 4514).";
    CertificateSerial "certificate.serial" Text, Request, false, "The serial number of the verified client certificate, in hexadecimal digits.";
    Bot "bot" Text, Request, false, "The name in `[[global.bots]]` of the bot that has proven to send the request.";
    BotClaimed "bot.claimed" Text, Request, false, "The name of the bot that the request says it is from, proven or not.";
    BotFalse "bot.false" Flag, Request, false, "Whether the request says that it is from a bot, and a check has shown that it is not.";
    CertificateIssuer "certificate.issuer" Text, Request, false, "The issuer of the verified client certificate (RFC 4514).";
    CertificateName "certificate.san" Text, Request, false, "The alternative names of the verified client certificate: hosts, mail addresses, URIs and IP addresses. Each counts.";
    Claim "claim." Text, Authentication, true, "A claim of the token that `jwt` verified; of an array, each element counts. `claim.a.b` is `b` within the object `a`.";
    User "user" Text, Authentication, false, "The user whom `basic_auth` or `jwt` authenticated, or the subject of the verified client certificate.";
    Load "load" Number(Unit::Share), Request, false, "The share of their time in which the workers of the server were busy, in the last seconds.";
    Connections "connections" Number(Unit::Count), Request, false, "How many connections to the server are open.";
    Glitches "glitches" Number(Unit::Count), Request, false, "What the client did wrong lately: breaches of HTTP and TLS, requests that it abandoned, responses of 400 to 499.";
    TimeOfDay "time" Number(Unit::Clock), Request, false, "The time of day, in the zone of the configuration.";
    Weekday "weekday" Word(&["mon", "tue", "wed", "thu", "fri", "sat", "sun"]), Request, false, "The day of the week.";
    Share "share." Number(Unit::Share), Request, true, "The share in which a value of a fact falls, as in `share.client < 10%`: always the same for the same value. `share.request` is another one for each request.";
    Tag "tag." Flag, Request, true, "Whether an earlier rule has set this tag.";
    RuleVariable "var." Text, Request, true, "A variable that an earlier rule has set.";
    LimitLeft "limit." Number(Unit::Count), Request, true, "What is left of a rate or quota of this name before the request: requests, or what else it counts. A limit of the server or the site.";
    MapValue "map." Text, Request, true, "The value of the map of this name, in `[global.maps]`.";
    Status "status" Number(Unit::Count), Response, false, "The status code of the response.";
    ResponseField "response." Text, Response, true, "A header field of the response.";
    ResponseType "response_type" Text, Response, false, "The media type of the response, in lower case and without parameters.";
    ResponseLength "response_length" Number(Unit::Bytes), Response, false, "The length of the response's body, if it is known.";
    TimeTaken "time_taken" Number(Unit::Time), Response, false, "The time from the head of the request to the head of the response.";
    CacheOutcome "cache" Word(CACHE_RESULTS), Response, false, "What the cache did.";
    Upstream "upstream" Text, Response, false, "The address of the origin or PHP pool that responded.";
}

impl FactKind {
    /// Whether databases of places have it, by the address of the client.
    pub fn is_geo(self) -> bool {
        matches!(
            self,
            Self::GeoCountry
                | Self::GeoContinent
                | Self::GeoSubdivision
                | Self::GeoCity
                | Self::GeoSystem
                | Self::GeoSystemName
        )
    }
}

impl Fact {
    /// The fact of this name, such as `path` or `header.accept`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(kind) = FACTS
            .iter()
            .find(|kind| !kind.is_named() && kind.name() == text)
        {
            return Some(Self {
                kind: *kind,
                name: None,
                known_from: None,
            });
        }
        FACTS
            .iter()
            .filter(|kind| kind.is_named())
            .find_map(|kind| {
                let name = text.strip_prefix(kind.name())?;
                // Names of fields are case-insensitive (RFC 9110 section 5.1); others are not.
                let is_field = matches!(kind, FactKind::RequestField | FactKind::ResponseField);
                let name = if is_field {
                    name.to_ascii_lowercase()
                } else {
                    name.to_owned()
                };
                (!name.is_empty()).then(|| Self {
                    kind: *kind,
                    name: Some(name.into()),
                    known_from: None,
                })
            })
    }

    /// The fact without its name.
    pub fn kind(&self) -> FactKind {
        self.kind
    }

    /// When it is known.
    pub fn stage(&self) -> FactStage {
        self.known_from.unwrap_or_else(|| self.kind.stage())
    }

    /// The same fact, known at the stage of what it is made of.
    pub(crate) fn known_from(mut self, stage: FactStage) -> Self {
        self.known_from = Some(stage);
        self
    }

    /// The name of a field, a cookie, a parameter or a map.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether a request can have several values of it at once.
    pub fn is_multiple(&self) -> bool {
        matches!(
            self.kind,
            FactKind::QueryParameter
                | FactKind::RequestField
                | FactKind::ResponseField
                | FactKind::Cookie
                | FactKind::CertificateName
                | FactKind::Claim
        )
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.kind.name(),
            self.name.as_deref().unwrap_or_default()
        )
    }
}
