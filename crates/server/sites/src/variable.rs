//! The variables that are known when a request arrives, for templates and for the access log.

use std::fmt;

use apus_conditions::{BotClaim, RequestFacts, RequestMaps, RequestVariables};
use apus_http::fields::cookie_value;
use apus_http::{RemoteUser, Request, TlsFingerprints, Version};

/// A variable of a request: `$host`, `$http_NAME`, `$cookie_NAME`, `$arg_NAME`, `$map_NAME`, `$var_NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestVariable(KnownVariable);

#[derive(Clone, Debug, PartialEq, Eq)]
enum KnownVariable {
    Host,
    HttpHost,
    Scheme,
    ServerName,
    ServerAddr,
    ServerPort,
    ServerProtocol,
    Request,
    RequestMethod,
    RequestUri,
    Uri,
    Args,
    IsArgs,
    RemoteAddr,
    RemotePort,
    RemoteUser,
    Bot,
    Connection,
    RequestId,
    ContentLength,
    SslProtocol,
    SslCipher,
    SslServerName,
    SslAlpn,
    SslFingerprint,
    SslClientIssuer,
    SslClientSubject,
    SslClientSerial,
    Field(Box<str>),
    Cookie(Box<str>),
    Argument(Box<str>),
    Map(Box<str>),
    Rule(Box<str>),
}

/// The name of a variable and its value in words, for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct VariableDescription {
    /// The name without the `$`.
    pub name: &'static str,
    /// Its value in words.
    pub value: &'static str,
}

const VARIABLES: &[(VariableDescription, KnownVariable)] = {
    use KnownVariable as V;
    const fn described(
        name: &'static str,
        value: &'static str,
        variable: V,
    ) -> (VariableDescription, V) {
        (VariableDescription { name, value }, variable)
    }
    &[
        described(
            "host",
            "the host of the request in lower case, without port",
            V::Host,
        ),
        described(
            "http_host",
            "host and port that the client used, in their normal form",
            V::HttpHost,
        ),
        described("scheme", "`http` or `https`", V::Scheme),
        described("server_name", "the name of the site", V::ServerName),
        described(
            "server_addr",
            "the address of the server that the connection came to",
            V::ServerAddr,
        ),
        described(
            "server_port",
            "the port that the client used",
            V::ServerPort,
        ),
        described(
            "server_protocol",
            "the version of HTTP: `HTTP/1.1`, `HTTP/2.0`",
            V::ServerProtocol,
        ),
        described(
            "request",
            "method, target and version: `GET /a?b HTTP/1.1`",
            V::Request,
        ),
        described("request_method", "the method", V::RequestMethod),
        described(
            "request_uri",
            "path and query as they are forwarded, percent-encoded",
            V::RequestUri,
        ),
        described(
            "uri",
            "the path in its normal form, decoded; the path as it was sent if it has none",
            V::Uri,
        ),
        described("args", "the query without `?`", V::Args),
        described("query_string", "as `$args`", V::Args),
        described("is_args", "`?` if there is a query", V::IsArgs),
        described(
            "remote_addr",
            "the address of the client, as trusted proxies name it; `unix:` behind a Unix socket",
            V::RemoteAddr,
        ),
        described("remote_port", "the port of the client", V::RemotePort),
        described(
            "remote_user",
            "the user whom `basic_auth`, `jwt` (`sub`) or `forward_auth` authenticated, or the subject of the verified client certificate; \
             a name that was not checked is none",
            V::RemoteUser,
        ),
        described(
            "bot",
            "the name of the bot that has proven to send the request (`[[global.bots]]`)",
            V::Bot,
        ),
        described("connection", "the number of the connection", V::Connection),
        described(
            "request_id",
            "the id of the request: 32 hexadecimal digits, or what a trusted proxy sent",
            V::RequestId,
        ),
        described(
            "content_length",
            "the bytes of the body of the request, if they are known when it arrives",
            V::ContentLength,
        ),
        described(
            "ssl_protocol",
            "the version of TLS; none in clear text",
            V::SslProtocol,
        ),
        described("ssl_cipher", "the cipher suite of TLS", V::SslCipher),
        described(
            "ssl_server_name",
            "the server name of the TLS handshake (SNI)",
            V::SslServerName,
        ),
        described(
            "ssl_client_s_dn",
            "the subject of the verified client certificate",
            V::SslClientSubject,
        ),
        described(
            "ssl_alpn_protocol",
            "the protocol that ALPN selected",
            V::SslAlpn,
        ),
        described(
            "ssl_ja4",
            "the fingerprint JA4 of the client's TLS",
            V::SslFingerprint,
        ),
        described(
            "ssl_client_i_dn",
            "the issuer of the verified client certificate",
            V::SslClientIssuer,
        ),
        described(
            "ssl_client_serial",
            "the serial number of the verified client certificate",
            V::SslClientSerial,
        ),
    ]
};

/// Takes the value of a variable.
pub trait VariableSink {
    /// Text of a client, whatever its bytes.
    fn text(&mut self, value: &[u8]);

    /// Text that is part of a URI as it is: it is percent-encoded already, or has no characters that would be.
    fn uri(&mut self, value: fmt::Arguments<'_>);

    /// The whole path and query of the request, which is percent-encoded already. In the query of
    /// another URI, it is the value of one parameter.
    fn target(&mut self, value: &str) {
        self.uri(format_args!("{value}"));
    }

    /// A number.
    fn number(&mut self, value: u64);

    /// The variable has no value for this request.
    fn missing(&mut self);
}

impl RequestVariable {
    /// The variable with this name, without the `$`.
    pub fn named(name: &str) -> Option<Self> {
        let known = VARIABLES.iter().find(|(known, _)| known.name == name);
        if let Some((_, variable)) = known {
            if *variable == KnownVariable::SslFingerprint {
                TlsFingerprints::want();
            }
            return Some(Self(variable.clone()));
        }
        if let Some(variable) = name.strip_prefix("var_").filter(|name| !name.is_empty()) {
            return Some(Self(KnownVariable::Rule(variable.into())));
        }
        if let Some(map) = name.strip_prefix("map_").filter(|map| !map.is_empty()) {
            return Some(Self(KnownVariable::Map(map.into())));
        }
        if let Some(cookie) = name.strip_prefix("cookie_").filter(|name| !name.is_empty()) {
            return Some(Self(KnownVariable::Cookie(cookie.into())));
        }
        if let Some(argument) = name.strip_prefix("arg_").filter(|name| !name.is_empty()) {
            return Some(Self(KnownVariable::Argument(argument.into())));
        }
        let field = name
            .strip_prefix("http_")
            .filter(|field| !field.is_empty())?;
        Some(Self::field(field))
    }

    /// A field of the request, as `$http_NAME`: `_` stands for `-`.
    pub fn field(name: &str) -> Self {
        let name = name.to_ascii_lowercase().replace('_', "-");
        Self(KnownVariable::Field(name.into()))
    }

    /// The map whose value it is.
    pub fn map(&self) -> Option<&str> {
        match &self.0 {
            KnownVariable::Map(name) => Some(name),
            _ => None,
        }
    }

    /// The parameter of the query whose value it is, as `$arg_NAME`.
    pub fn argument(&self) -> Option<&str> {
        match &self.0 {
            KnownVariable::Argument(name) => Some(name),
            _ => None,
        }
    }

    /// The fingerprint JA4, as `$ssl_ja4`, if something else has it taken: this alone does not.
    pub fn known_fingerprint() -> Self {
        Self(KnownVariable::SslFingerprint)
    }

    /// The variable that rules set, if it is one.
    pub fn of_rules(&self) -> Option<&str> {
        match &self.0 {
            KnownVariable::Rule(name) => Some(name),
            _ => None,
        }
    }

    /// All variables but those with a name of their own, such as `$http_NAME`.
    pub fn all() -> impl Iterator<Item = VariableDescription> {
        VARIABLES.iter().map(|(description, _)| *description)
    }

    /// Whether the value depends only on the request target.
    pub(crate) fn depends_only_on_target(&self) -> bool {
        use KnownVariable as V;
        matches!(
            self.0,
            V::Host
                | V::HttpHost
                | V::Scheme
                | V::ServerName
                | V::RequestUri
                | V::Uri
                | V::Args
                | V::IsArgs
                | V::Argument(_)
        )
    }

    /// Writes the value for a request to the site of this name.
    pub fn write(&self, request: &Request, site: &str, out: &mut impl VariableSink) {
        use KnownVariable as V;
        let connection = request.connection();
        let tls = connection.tls.as_ref();
        let certificate = || tls.and_then(|tls| tls.client_certificate.as_deref());
        match &self.0 {
            V::Host => uri(request.host(), out),
            V::HttpHost => uri(request.authority(), out),
            V::Scheme => uri(Some(request.scheme()), out),
            V::ServerName => text(Some(site), out),
            V::ServerAddr => address(connection.local.ip(), out),
            V::ServerPort => number(request.port(), out),
            V::ServerProtocol => uri(Some(protocol(request.version())), out),
            V::Request => {
                let (method, target) = (request.method().as_str(), request.target().as_str());
                let line = format!("{method} {target} {}", protocol(request.version()));
                text(Some(&line), out);
            }
            V::RequestMethod => uri(Some(request.method().as_str()), out),
            V::RequestUri => out.target(request.target().path_and_query()),
            V::Uri => match request.normal_path() {
                Ok(path) => out.text(path),
                Err(_) => text(Some(request.path()), out),
            },
            V::Args => uri(request.query(), out),
            V::IsArgs => {
                let has_query = request.query().is_some_and(|query| !query.is_empty());
                uri(has_query.then_some("?"), out);
            }
            V::RemoteAddr => address(request.client().ip, out),
            V::RemotePort => number(request.client().port, out),
            V::RemoteUser => {
                let user = RemoteUser::of(request);
                text(user.as_ref().map(|user| &*user.name), out);
            }
            V::Bot => text(BotClaim::verified(request), out),
            V::Connection => out.number(connection.id),
            V::RequestId => out.uri(format_args!("{}", request.id())),
            V::ContentLength => match request.body().len() {
                Some(length) => out.number(length),
                None => out.missing(),
            },
            V::SslProtocol => uri(tls.map(|tls| tls.version.as_str()), out),
            V::SslCipher => uri(tls.map(|tls| tls.cipher), out),
            V::SslServerName => uri(tls.and_then(|tls| tls.server_name.as_deref()), out),
            V::SslAlpn => uri(tls.and_then(|tls| tls.alpn), out),
            V::SslFingerprint => uri(tls.and_then(|tls| tls.fingerprint.as_deref()), out),
            V::SslClientIssuer => text(certificate().map(|known| &*known.issuer), out),
            V::SslClientSubject => text(certificate().map(|known| &*known.subject), out),
            V::SslClientSerial => text(certificate().map(|known| &*known.serial), out),
            V::Field(name) => match request.headers().get(&**name) {
                Some(value) => out.text(value),
                None => out.missing(),
            },
            V::Cookie(name) => match cookie_value(request.headers(), name) {
                Some(value) => out.text(value),
                None => out.missing(),
            },
            V::Argument(name) => uri(argument(request.query(), name), out),
            V::Rule(name) => match RequestVariables::value(request, name) {
                Some(value) => out.text(&value),
                None => out.missing(),
            },
            V::Map(name) => {
                let maps = RequestMaps::of(request);
                let value = maps.and_then(|maps| maps.value(name, &RequestFacts::new(request)));
                text(value, out);
            }
        }
    }
}

/// The value of the first parameter of a query with this name, as it was sent.
fn argument<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?.split('&').find_map(|parameter| {
        let (found, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (found == name).then_some(value)
    })
}

fn text(value: Option<&str>, out: &mut impl VariableSink) {
    match value {
        Some(value) => out.text(value.as_bytes()),
        None => out.missing(),
    }
}

fn uri(value: Option<&str>, out: &mut impl VariableSink) {
    match value {
        Some(value) => out.uri(format_args!("{value}")),
        None => out.missing(),
    }
}

fn number(value: Option<u16>, out: &mut impl VariableSink) {
    match value {
        Some(value) => out.number(value.into()),
        None => out.missing(),
    }
}

fn address(ip: Option<std::net::IpAddr>, out: &mut impl VariableSink) {
    match ip {
        Some(ip) => out.uri(format_args!("{ip}")),
        None => out.uri(format_args!("unix:")),
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
