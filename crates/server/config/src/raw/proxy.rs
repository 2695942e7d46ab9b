//! The keys of the handler `reverse_proxy`: `[sites.proxy]` and `[sites.locations.proxy]`.

use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::YEAR;
use super::upstream::SameSite;
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, ConfigTable, KeyType, TableNode, ValueNode, choices, keys};
use crate::size::{Kilobytes, Megabytes};
use crate::string_type::origin::{
    CookiePath, Domain, MediaRangeText, NewDomain, ProxyHost, SearchText, UpgradeName,
    UpstreamName, UriPrefix,
};
use crate::string_type::{BodyText, FieldName, SitePath};
use crate::value::{FilePath, Int, Map, OneOrMore, Switch, Text, Time};

choices! {
    /// The form of paths that origins and scripts get.
    pub(crate) PathForm: "a form of paths" {
        /// `//` is one slash, and dot segments are resolved.
        Normalized = "normalized",
        /// As the client sent it.
        Raw = "raw",
    }
}

keys! {
    /// Changes of requests to origins and of their responses. A location's own table changes the
    /// keys that it gives; the others are as in the site's.
    pub(crate) struct Proxy {
        /// The `Host` that origins get: `$http_host` for the one that the client used, in lower case
        /// and without the default port, `raw` for the one that the client used exactly as it was
        /// sent, `$proxy_host` for the one in a URL as `upstream`, or a name.
        host: ProxyHost = ProxyHost::Client,
        /// The path that origins get: `normalized` for the one that the client sent with `//` as one
        /// slash and dot segments resolved, `raw` for exactly the one that it sent. With `raw`, paths
        /// with dot segments get 400, since rules for paths could be evaded by them.
        path: PathForm = PathForm::Normalized,
        /// Whether origins get `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`,
        /// `X-Forwarded-Port` and `X-Real-IP`. Such fields of clients are removed; one that
        /// `request_headers` sets stays.
        x_forwarded: bool = true,
        /// Whether origins get `Forwarded`.
        forwarded: bool = false,
        /// Whether origins get `Via`.
        via: bool = true,
        /// Whether request fields whose names have an underscore are forwarded. Many applications
        /// confuse them with those with a hyphen.
        underscores: bool = false,
        /// The protocols to which clients may switch with `Upgrade`; by default `websocket`. `h2c`
        /// is never one of them: the requests after it would bypass locations, limits and cache.
        upgrade: OneOrMore<UpgradeName> = OneOrMore::default(),
        /// Response fields that are removed.
        hide: OneOrMore<FieldName> = OneOrMore::default(),
        /// Replacements of the start of `Location`. Redirects to the origin's own host need no such
        /// rule.
        redirects: Map<UriPrefix, UriPrefix> = Map::default(),
        /// Changes of cookies that origins set.
        cookies: Cookies,
        /// Replacements of text in response bodies that are not compressed. A response with a type of `replace_types` is sent whole even if the client requests a range, and has a weak `ETag` and no `Last-Modified`.
        replace: Map<SearchText, BodyText> = Map::default(),
        /// The media types of these responses. `"*"`: all. By default `text/html`.
        replace_types: OneOrMore<MediaRangeText> = OneOrMore::default(),
        /// Whether a request body is buffered before the origin gets the request, so that a slow
        /// client does not occupy it.
        hold_request: Switch<HoldRequest> = Switch::Off,
        /// Whether a response body is read faster than the client reads it, so that the origin is
        /// free sooner.
        hold_response: Switch<HoldResponse> = Switch::Off,
        /// How long a tunnel, as of WebSocket, may be idle, in seconds.
        tunnel_timeout: Time<YEAR> = Time::new(3600),
        /// Whether error responses of origins are replaced by the error pages of the site.
        intercept_errors: bool = false,
        /// Whether origins may redirect internally, by a path in `X-Accel-Redirect` or a file in
        /// `X-Sendfile`. Otherwise such a response is a 500, unless it has a body.
        accel: Switch<Accel> = Switch::Off,
        /// Another group of origins, which gets copies of requests; its responses are discarded,
        /// and no client waits for them. The name of a group or a URL alone is short for the key
        /// `upstream` of the table.
        mirror: Mirror = Mirror::Off,
    }
}

keys! {
    /// Changes of cookies that origins set.
    pub(crate) struct Cookies {
        /// Replacements of domains. An empty one removes the attribute.
        domains: Map<Domain, NewDomain> = Map::default(),
        /// Replacements of the start of paths.
        paths: Map<CookiePath, CookiePath> = Map::default(),
        /// Whether `Secure` is added.
        secure: bool = false,
        /// Whether `HttpOnly` is added.
        http_only: bool = false,
        /// The `SameSite` attribute to set.
        same_site: SameSite,
    }
}

keys! {
    /// Copies of requests for another group of origins. WebSocket is not copied, nor are requests
    /// that the cache serves.
    pub(crate) struct MirrorTable {
        /// The group, or the origin: its name or its URL, as in `upstream` of a location.
        upstream [required]: UpstreamName,
        /// The percentage of requests that are copied.
        percent: Int<1, 100> = Int(100),
        /// Whether requests with unsafe methods, such as POST, are copied too. Both groups execute
        /// them.
        unsafe_methods: bool = false,
        /// The most concurrent copies of a worker. Others are skipped and counted.
        max_requests: Int<1, 100_000> = Int(100),
        /// How far a copy may be behind a body that is streamed, in KB. One that falls further
        /// behind is aborted and counted. A body that `hold_request` buffers is copied whole.
        memory: Kilobytes<1, 1_000_000> = Kilobytes::new(256),
        /// How long the response to a copy may take, in seconds.
        timeout: Time<YEAR> = Time::new(60),
    }
}

/// The mirror of requests. A string is short for a table with `upstream` alone.
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
    /// The buffer for request bodies.
    pub(crate) struct HoldRequest {
        /// The memory for a body, in KB; the rest goes into a file.
        memory: Kilobytes<0, 1_000_000> = Kilobytes::new(64),
        /// The size of the file, in MB; the rest is forwarded as it arrives.
        disk: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The folder of the files, which have no name and are removed when they are closed. By
        /// default `/var/tmp`.
        folder: FilePath,
    }
}

keys! {
    /// The buffer for response bodies.
    pub(crate) struct HoldResponse {
        /// The memory for a body, in KB; the rest goes into a file.
        memory: Kilobytes<1, 1_000_000> = Kilobytes::new(256),
        /// The size of the file, in MB; the rest is read as fast as the client reads. 0: no file.
        /// Nothing is written while less than a twentieth of the file system, or 1 GB, is free.
        disk: Megabytes<0, 1_000_000_000> = Megabytes::new(1024),
        /// The folder of the files, which have no name and are removed when they are closed. By
        /// default `/var/tmp`.
        folder: FilePath,
    }
}

keys! {
    /// Internal redirects of origins.
    pub(crate) struct Accel {
        /// Pairs of a file name prefix in `X-Sendfile` and the path of the site that replaces it. A
        /// file without a matching pair is not sent.
        files: Map<Text, SitePath> = Map::default(),
    }
}
