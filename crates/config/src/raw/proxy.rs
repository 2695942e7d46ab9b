//! The keys of the handler `reverse_proxy`: `[sites.proxy]` and `[sites.locations.proxy]`.

use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::YEAR;
use super::upstream::SameSite;
use crate::keys::{
    ConfigReader, ConfigTable, KeyType, TableNode, TypeDescription, ValueNode, keys,
};
use crate::string_type::origin::{
    CookiePath, Domain, MediaRangeText, NewDomain, ProxyHost, SearchText, UpgradeName,
    UpstreamName, UriPrefix,
};
use crate::string_type::{BodyText, FieldName, SitePath};
use crate::value::{FilePath, Int, Kilobytes, Map, Megabytes, OneOrMore, Switch, Text, Time};

keys! {
    /// What is done with requests and answers on their way to origins and back. A location's own table
    /// changes the keys that it gives; the others are as in the site's.
    pub(crate) struct Proxy {
        /// The host that origins are asked for: `$http_host` for the one that the client used,
        /// `$proxy_host` for the one in a URL as `upstream`, or a name.
        host: ProxyHost = ProxyHost::Client,
        /// Whether origins are told of the client by `X-Forwarded-For`, `X-Forwarded-Proto`,
        /// `X-Forwarded-Host`, `X-Forwarded-Port` and `X-Real-IP`. What clients send of these themselves is
        /// removed; one that `request_headers` sets stays as it is set.
        x_forwarded: bool = true,
        /// Whether origins are told of the client by `Forwarded`.
        forwarded: bool = false,
        /// Whether `Via` is sent to origins.
        via: bool = true,
        /// Whether fields of requests are sent on whose names hold an underscore. Many applications take
        /// them for those with a hyphen.
        underscores: bool = false,
        /// The protocols to which clients may switch with `Upgrade`; by default `websocket`. `h2c` is never
        /// one of them: what follows it would go past locations, limits and cache.
        upgrade: OneOrMore<UpgradeName> = OneOrMore::default(),
        /// Fields of answers that are not sent on.
        hide: OneOrMore<FieldName> = OneOrMore::default(),
        /// Redirects in the terms of the site: from what `Location` starts with to what stands there
        /// instead. Redirects to the origin's own host need no such rule.
        redirects: Map<UriPrefix, UriPrefix> = Map::default(),
        /// How cookies that origins set are changed.
        cookies: Cookies,
        /// Texts of answers that are replaced, from one to another, if they are not compressed.
        replace: Map<SearchText, BodyText> = Map::default(),
        /// The media types of answers in which they are. `"*"`: all. By default `text/html`.
        replace_types: OneOrMore<MediaRangeText> = OneOrMore::default(),
        /// Whether the content of a request is taken in before an origin is asked, so that a slow client
        /// does not occupy it.
        hold_request: Switch<HoldRequest> = Switch::Off,
        /// Whether the content of an answer is taken in faster than the client reads, so that the origin
        /// is free sooner.
        hold_response: Switch<HoldResponse> = Switch::Off,
        /// How long a tunnel, as of WebSocket, may carry nothing, in seconds.
        tunnel_timeout: Time<YEAR> = Time::new(3600),
        /// Whether error responses of origins get the error pages of the site.
        intercept_errors: bool = false,
        /// Whether origins may have the site answer in their place, by a path in `X-Accel-Redirect` or a
        /// file in `X-Sendfile`.
        accel: Switch<Accel> = Switch::Off,
        /// Another group of origins, which gets copies of requests; its answers are thrown away, and
        /// nobody waits for them. The name of a group or a URL alone stands for the key `upstream` of the
        /// table.
        mirror: Mirror = Mirror::Off,
    }
}

keys! {
    /// How cookies that origins set are changed.
    pub(crate) struct Cookies {
        /// From a domain to another. An empty one leaves the attribute out.
        domains: Map<Domain, NewDomain> = Map::default(),
        /// From what a path starts with to what it starts with then.
        paths: Map<CookiePath, CookiePath> = Map::default(),
        /// Whether `Secure` is added.
        secure: bool = false,
        /// Whether `HttpOnly` is added.
        http_only: bool = false,
        /// The `SameSite` that is set.
        same_site: SameSite,
    }
}

keys! {
    /// Copies of requests for another group of origins. WebSocket is not copied, nor is what the cache
    /// answers.
    pub(crate) struct MirrorTable {
        /// The group, or the origin: its name or its URL, as in `upstream` of a location.
        upstream [required]: UpstreamName,
        /// Of how many in a hundred requests.
        percent: Int<1, 100> = Int(100),
        /// Whether also of requests with methods that may change something, such as POST. What they do is
        /// done by both groups then.
        unsafe_methods: bool = false,
        /// The most copies that a worker has under way at once. Others are left out, and counted.
        max_requests: Int<1, 100_000> = Int(100),
        /// How far a copy may be behind content that streams through, in KB. One that falls farther
        /// behind is broken off, and counted. What `hold_request` holds is copied whole.
        memory: Kilobytes<1, 1_000_000> = Kilobytes::new(256),
        /// How long a copy may take with its answer, in seconds.
        timeout: Time<YEAR> = Time::new(60),
    }
}

/// Who gets copies of requests. A string stands for a table that has only that.
#[derive(Clone, Debug)]
pub(crate) enum Mirror {
    Off,
    To(Box<MirrorTable>),
}

impl KeyType for Mirror {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(_) => {
                let span = &node.span.bytes;
                let name = Spanned::new(span.clone(), "upstream".into());
                let mut table = DeTable::new();
                table.insert(name, Spanned::new(span.clone(), node.value.clone()));
                let node = TableNode {
                    table: &table,
                    span: node.span.clone(),
                };
                MirrorTable::read_table(&node, reader).map(|table| Self::To(Box::new(table)))
            }
            DeValue::Table(_) => {
                MirrorTable::read(node, reader).map(|table| Self::To(Box::new(table)))
            }
            _ => {
                reader.wrong_type(node, "a group, a URL, a table, or false");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let table = MirrorTable::type_description();
        TypeDescription {
            expected: "the name of a group, a URL, a table, or `false`".to_owned(),
            schema: json!({"anyOf": [{"const": false}, {"type": "string"}, table.schema]}),
            ..table
        }
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::Off => false.into(),
            _ => serde_json::Value::Null,
        }
    }
}

keys! {
    /// How the content of requests is taken in.
    pub(crate) struct HoldRequest {
        /// What is held in memory, in KB; more goes into a file.
        memory: Kilobytes<0, 1_000_000> = Kilobytes::new(64),
        /// What is held in a file, in MB; what is still more is passed on as it comes.
        disk: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The folder of the files, which have no name and go when they are closed. By default
        /// `/var/tmp`.
        folder: FilePath,
    }
}

keys! {
    /// How the bodies of responses are taken in.
    pub(crate) struct HoldResponse {
        /// What is held in memory, in KB; more goes into a file.
        memory: Kilobytes<1, 1_000_000> = Kilobytes::new(256),
        /// What is held in a file, in MB; what is still more is taken in as fast as the client reads. 0 is
        /// no file. Nothing is written while less than a twentieth of the file system, or 1 GB, is free.
        disk: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The folder of the files, which have no name and go when they are closed. By default
        /// `/var/tmp`.
        folder: FilePath,
    }
}

keys! {
    /// What origins may have the site answer in their place.
    pub(crate) struct Accel {
        /// From what a file's name in `X-Sendfile` starts with to what its path in the site starts with.
        /// A file that fits none is not sent.
        files: Map<Text, SitePath> = Map::default(),
    }
}
