//! Text with variables: `$host`, `${uri}`, `$1`.

use std::fmt;

use apus_http::Request;
use regex::bytes::Regex;

use apus_http::path;

/// Text with variables, which are expanded for each request.
///
/// | variable | value |
/// | --- | --- |
/// | `$host` | the host of the request in lower case, without port |
/// | `$http_host` | host and port that the client used, in their normal form |
/// | `$scheme` | `http` or `https` |
/// | `$server_name` | the name of the site |
/// | `$server_port` | the port that the client used |
/// | `$request_method` | the method |
/// | `$request_uri` | path and query as they are forwarded, percent-encoded |
/// | `$uri` | the path in normal form, decoded |
/// | `$args`, `$query_string` | the query without `?` |
/// | `$is_args` | `?` if there is a query |
/// | `$remote_addr` | the address of the client |
/// | `$remote_port` | the port of the client |
/// | `$document_root` | the root of the location, or of the site |
/// | `$request_filename` | the file of the path, below the root |
/// | `$ssl_protocol` | the version of TLS, empty in clear text |
/// | `$ssl_client_s_dn` | the subject of the verified client certificate, or empty |
/// | `$http_NAME` | the request field `NAME`, `_` for `-`; no connection field |
/// | `$1` to `$9`, `$name` | the captures of the regular expression |
/// | `$$` | a dollar sign |
#[derive(Clone, Debug)]
pub struct Template {
    parts: Box<[TemplatePart]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Variable(Variable),
    Field(Box<str>),
    Capture(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Host,
    HttpHost,
    Scheme,
    ServerName,
    ServerPort,
    RequestMethod,
    RequestUri,
    Uri,
    Args,
    IsArgs,
    RemoteAddr,
    RemotePort,
    DocumentRoot,
    RequestFilename,
    SslProtocol,
    SslClientSubject,
}

const VARIABLES: &[(&str, Variable)] = &[
    ("host", Variable::Host),
    ("http_host", Variable::HttpHost),
    ("scheme", Variable::Scheme),
    ("server_name", Variable::ServerName),
    ("server_port", Variable::ServerPort),
    ("request_method", Variable::RequestMethod),
    ("request_uri", Variable::RequestUri),
    ("uri", Variable::Uri),
    ("args", Variable::Args),
    ("query_string", Variable::Args),
    ("is_args", Variable::IsArgs),
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("document_root", Variable::DocumentRoot),
    ("request_filename", Variable::RequestFilename),
    ("ssl_protocol", Variable::SslProtocol),
    ("ssl_client_s_dn", Variable::SslClientSubject),
];

/// The values of variables.
pub(super) struct VariableScope<'a> {
    pub(super) request: &'a Request,
    /// The path in normal form.
    pub(super) path: &'a [u8],
    pub(super) site: &'a str,
    pub(super) root: &'a DocumentRoot,
    pub(super) captures: &'a Captures,
}

/// The document root of a location.
#[derive(Clone, Debug, Default)]
pub(super) struct DocumentRoot {
    pub(super) folder: Box<[u8]>,
    /// The prefix of a path that the folder replaces.
    pub(super) prefix: Box<[u8]>,
}

impl DocumentRoot {
    /// The file of a path, which may not exist.
    fn file(&self, path: &[u8]) -> Vec<u8> {
        let rest = path.strip_prefix(&*self.prefix).unwrap_or(path);
        [&self.folder, rest].concat()
    }
}

/// The captures of a regular expression; group 0 is the whole match.
#[derive(Clone, Debug, Default)]
pub(super) struct Captures(Vec<Vec<u8>>);

impl Captures {
    /// The captures of `regex` in `path`, if it matches.
    pub(super) fn of(regex: &Regex, path: &[u8]) -> Option<Self> {
        let captures = regex.captures(path)?;
        let group = |found: Option<regex::bytes::Match<'_>>| {
            found.map_or_else(Vec::new, |found| found.as_bytes().to_vec())
        };
        Some(Self(captures.iter().map(group).collect()))
    }
}

/// The encoding of variables in an expanded template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueEncoding {
    /// No encoding, for a field value, a file name or a body.
    Plain,
    /// Percent-encoding, for the path of a URI.
    Uri,
    /// Percent-encoding of separators too, for the query of a URI, so that a value cannot add
    /// parameters.
    Query,
}

impl Template {
    /// Parses text; numbered groups are those of the location's regular expression, if it has one.
    ///
    /// # Errors
    /// A variable does not exist, or a `$` has no name.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        Self::parse_for(text, None)
    }

    /// Parses text that may refer to the groups of `regex`.
    ///
    /// # Errors
    /// As [`Template::parse`]; or the expression has no such group.
    pub(super) fn parse_for(text: &str, regex: Option<&Regex>) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }
            let (name, after) = name_of(after).ok_or(InvalidTemplate::Dollar)?;
            let part = part_named(name, regex)?;
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(part);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal.into()));
        }
        Ok(Self {
            parts: parts.into(),
        })
    }

    /// The text, if it is the same for every request.
    pub fn as_text(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the text depends only on the request target.
    pub(super) fn depends_only_on_target(&self) -> bool {
        self.parts.iter().all(|part| match part {
            TemplatePart::Text(_) | TemplatePart::Capture(_) => true,
            TemplatePart::Field(_) => false,
            TemplatePart::Variable(variable) => variable.depends_only_on_target(),
        })
    }

    /// Whether it refers to captures of a regular expression.
    pub(super) fn has_captures(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Capture(_)))
    }

    /// The text for this request.
    pub(super) fn expand(&self, scope: &VariableScope<'_>, mut encoding: ValueEncoding) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(literal) => {
                    text.extend_from_slice(literal.as_bytes());
                    if encoding == ValueEncoding::Uri && literal.contains('?') {
                        encoding = ValueEncoding::Query;
                    }
                }
                TemplatePart::Variable(variable) => variable.write(&mut text, scope, encoding),
                TemplatePart::Field(name) => {
                    let value = scope.request.headers().get(name).unwrap_or_default();
                    push(&mut text, value, encoding);
                }
                TemplatePart::Capture(group) => {
                    let value = scope.captures.0.get(*group).map_or(&[][..], |value| value);
                    push(&mut text, value, encoding);
                }
            }
        }
        text
    }
}

impl Template {
    /// The text for a request in a service, without captures of the location.
    pub fn text(&self, request: &Request, site: &str, folder: &[u8]) -> Vec<u8> {
        let root = DocumentRoot {
            folder: folder.into(),
            prefix: Box::default(),
        };
        let scope = VariableScope {
            request,
            path: request.normal_path().unwrap_or_default(),
            site,
            root: &root,
            captures: &Captures::default(),
        };
        self.expand(&scope, ValueEncoding::Plain)
    }

    /// The URI for this request. A variable cannot make it refer to another host: it starts with
    /// two slashes only if the template does.
    pub(super) fn expand_uri(&self, scope: &VariableScope<'_>) -> Vec<u8> {
        let mut uri = self.expand(scope, ValueEncoding::Uri);
        let is_written =
            matches!(self.parts.first(), Some(TemplatePart::Text(text)) if text.starts_with("//"));
        if !is_written {
            let slashes = uri.iter().take_while(|byte| **byte == b'/').count();
            uri.drain(..slashes.saturating_sub(1));
        }
        uri
    }
}

/// The name after a `$`, and the rest of the text.
fn name_of(text: &str) -> Option<(&str, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        return braced.split_once('}');
    }
    let end = match text.bytes().next() {
        Some(b'1'..=b'9') => 1,
        _ => text
            .bytes()
            .position(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
            .unwrap_or(text.len()),
    };
    text.split_at_checked(end).filter(|_| end > 0)
}

fn part_named(name: &str, regex: Option<&Regex>) -> Result<TemplatePart, InvalidTemplate> {
    let unknown = || InvalidTemplate::Unknown(name.to_owned());
    let named = regex.and_then(|regex| {
        let mut names = regex.capture_names();
        names.position(|group| group == Some(name))
    });
    if let Some(group) = named {
        return Ok(TemplatePart::Capture(group));
    }
    if let Ok(group @ 0..=9) = name.parse::<usize>() {
        // Without an expression, a missing group is empty.
        return match regex.is_none_or(|regex| group < regex.captures_len()) {
            true => Ok(TemplatePart::Capture(group)),
            false => Err(unknown()),
        };
    }
    if let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(TemplatePart::Variable(*variable));
    }
    match name.strip_prefix("http_") {
        Some(field) if !field.is_empty() => Ok(TemplatePart::Field(field.replace('_', "-").into())),
        _ => Err(unknown()),
    }
}

impl Variable {
    fn depends_only_on_target(self) -> bool {
        match self {
            Self::Host
            | Self::HttpHost
            | Self::Scheme
            | Self::ServerName
            | Self::RequestUri
            | Self::Uri
            | Self::Args
            | Self::IsArgs
            | Self::DocumentRoot
            | Self::RequestFilename => true,
            Self::ServerPort
            | Self::RequestMethod
            | Self::RemoteAddr
            | Self::RemotePort
            | Self::SslProtocol
            | Self::SslClientSubject => false,
        }
    }

    fn write(self, text: &mut Vec<u8>, scope: &VariableScope<'_>, encoding: ValueEncoding) {
        let request = scope.request;
        let connection = request.connection();
        match self {
            Self::Host => text.extend_from_slice(request.host().unwrap_or("").as_bytes()),
            Self::HttpHost => text.extend_from_slice(request.authority().unwrap_or("").as_bytes()),
            Self::Scheme => text.extend_from_slice(request.scheme().as_bytes()),
            Self::ServerName => text.extend_from_slice(scope.site.as_bytes()),
            Self::ServerPort => port(text, request.port()),
            Self::RequestMethod => text.extend_from_slice(request.method().as_str().as_bytes()),
            Self::RequestUri => {
                text.extend_from_slice(request.target().path_and_query().as_bytes());
            }
            Self::Uri => push(text, scope.path, encoding),
            Self::Args => text.extend_from_slice(request.query().unwrap_or("").as_bytes()),
            Self::IsArgs => {
                text.extend_from_slice(if request.query().is_some_and(|q| !q.is_empty()) {
                    b"?"
                } else {
                    b""
                })
            }
            Self::RemoteAddr => match request.client().ip {
                Some(address) => text.extend_from_slice(address.to_string().as_bytes()),
                None => text.extend_from_slice(b"unix:"),
            },
            Self::RemotePort => port(text, request.client().port),
            Self::DocumentRoot => push(text, &scope.root.folder, encoding),
            Self::RequestFilename => push(text, &scope.root.file(scope.path), encoding),
            Self::SslProtocol => {
                if let Some(tls) = &connection.tls {
                    text.extend_from_slice(tls.version.as_str().as_bytes());
                }
            }
            Self::SslClientSubject => {
                if let Some(certificate) = connection
                    .tls
                    .as_ref()
                    .and_then(|tls| tls.client_certificate.as_ref())
                {
                    push(text, certificate.subject.as_bytes(), encoding);
                }
            }
        }
    }
}

fn port(text: &mut Vec<u8>, port: Option<u16>) {
    if let Some(port) = port {
        text.extend_from_slice(port.to_string().as_bytes());
    }
}

fn push(text: &mut Vec<u8>, value: &[u8], encoding: ValueEncoding) {
    match encoding {
        ValueEncoding::Plain => text.extend_from_slice(value),
        ValueEncoding::Uri => text.extend_from_slice(path::encode(value).as_bytes()),
        ValueEncoding::Query => {
            for byte in path::encode(value).bytes() {
                match byte {
                    b'&' => text.extend_from_slice(b"%26"),
                    b'+' => text.extend_from_slice(b"%2B"),
                    b';' => text.extend_from_slice(b"%3B"),
                    b'=' => text.extend_from_slice(b"%3D"),
                    byte => text.push(byte),
                }
            }
        }
    }
}

/// A template is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTemplate {
    /// A `$` has no name; `$$` is a dollar sign.
    Dollar,
    /// There is no such variable, nor such a group in the regular expression.
    Unknown(String),
}

impl fmt::Display for InvalidTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dollar => {
                f.write_str("a $ must be followed by a name; write $$ for a dollar sign")
            }
            Self::Unknown(name) => match VARIABLES
                .iter()
                .map(|(known, _)| *known)
                .find(|known| known.starts_with(name.as_str()) || name.starts_with(known))
            {
                Some(known) => write!(f, "there is no variable ${name}; is ${known} meant?"),
                None => write!(f, "there is no variable ${name}, and no group of that name"),
            },
        }
    }
}

impl std::error::Error for InvalidTemplate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_unknown_variables_and_lone_dollars() {
        assert_eq!(
            Template::parse("a$nope").err(),
            Some(InvalidTemplate::Unknown("nope".into()))
        );
        for text in ["$", "a$", "$-", "${host", "$http_", "${}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        let regex = Regex::new("^/(?<year>[0-9]+)/(.*)$").unwrap();
        assert!(Template::parse_for("$year/$2", Some(&regex)).is_ok());
        assert!(Template::parse_for("$3", Some(&regex)).is_err());
    }

    #[test]
    fn text_without_variables_is_known_beforehand() {
        assert_eq!(Template::parse("5$$").unwrap().as_text(), Some("5$"));
        assert_eq!(Template::parse("").unwrap().as_text(), Some(""));
        assert_eq!(Template::parse("$host").unwrap().as_text(), None);
    }
}
