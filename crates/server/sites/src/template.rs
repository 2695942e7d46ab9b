//! Text with variables: `$host`, `${uri}`, `$1`.

use std::fmt;
use std::io::Write;

use apus_files::RewriteUri;
use apus_http::Request;
use regex::bytes::Regex;

use apus_http::path;

use crate::variable::{RequestVariable, VariableDescription, VariableSink};

/// Text with variables, which are expanded for each request: every [`RequestVariable`], and these.
///
/// | variable | value |
/// | --- | --- |
/// | `$document_root` | the root of the location, or of the site |
/// | `$request_filename` | the file of the path, below the root |
/// | `$map_NAME` | the value of the map `NAME` |
/// | `$var_NAME` | the variable `NAME` that a rule has set |
/// | `$1` to `$9`, `$name` | the captures of the regular expression |
/// | `$$` | a dollar sign |
#[derive(Clone, Debug)]
pub struct Template {
    parts: Box<[TemplatePart]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Request(RequestVariable),
    Location(LocationVariable),
    Capture(usize),
}

/// A variable of the location that a request is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocationVariable {
    DocumentRoot,
    RequestFilename,
}

const LOCATION_VARIABLES: &[(VariableDescription, LocationVariable)] = &[
    (
        VariableDescription {
            name: "document_root",
            value: "the root of the location, or of the site",
        },
        LocationVariable::DocumentRoot,
    ),
    (
        VariableDescription {
            name: "request_filename",
            value: "the file of the path, below the root",
        },
        LocationVariable::RequestFilename,
    ),
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
    /// Parses text; numbered groups refer to the location's regular expression, if it has one.
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

    /// The names of the variables in a text, which may be no template.
    pub fn names_in(text: &str) -> Vec<&str> {
        let mut names = Vec::new();
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('$') {
            if let Some(after) = after.strip_prefix('$') {
                rest = after;
                continue;
            }
            match name_of(after) {
                Some((name, after)) => {
                    names.push(name);
                    rest = after;
                }
                None => rest = after,
            }
        }
        names
    }

    /// The maps whose values it has.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Request(variable) => variable.map(),
            _ => None,
        })
    }

    /// The variables of rules that it has.
    pub fn variables_of_rules(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Request(variable) => variable.of_rules(),
            _ => None,
        })
    }

    /// Whether the text depends only on the request target.
    pub(super) fn depends_only_on_target(&self) -> bool {
        self.parts.iter().all(|part| match part {
            TemplatePart::Text(_) | TemplatePart::Capture(_) | TemplatePart::Location(_) => true,
            TemplatePart::Request(variable) => variable.depends_only_on_target(),
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
                TemplatePart::Request(variable) => {
                    let start = text.len();
                    let mut sink = EncodingSink {
                        text: &mut text,
                        encoding,
                    };
                    variable.write(scope.request, scope.site, &mut sink);
                    let written = text.get(start..).unwrap_or_default();
                    if encoding == ValueEncoding::Uri && written.contains(&b'?') {
                        encoding = ValueEncoding::Query;
                    }
                }
                TemplatePart::Location(LocationVariable::DocumentRoot) => {
                    push(&mut text, &scope.root.folder, encoding);
                }
                TemplatePart::Location(LocationVariable::RequestFilename) => {
                    push(&mut text, &scope.root.file(scope.path), encoding);
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
    /// All variables of templates but `$http_NAME`, `$map_NAME`, `$var_NAME` and captures.
    pub fn variables() -> impl Iterator<Item = VariableDescription> {
        let of_location = LOCATION_VARIABLES.iter().map(|(known, _)| *known);
        RequestVariable::all().chain(of_location)
    }

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

/// A template as the last path of `try_files`, in a location without captures.
#[derive(Clone, Debug)]
pub struct TryFilesTemplate {
    /// The path and query.
    pub template: Template,
    /// The name of the site.
    pub site: Box<str>,
    /// The root of the files.
    pub root: Box<[u8]>,
}

impl RewriteUri for TryFilesTemplate {
    fn uri(&self, request: &Request, path: &[u8]) -> Vec<u8> {
        let root = DocumentRoot {
            folder: self.root.clone(),
            prefix: Box::default(),
        };
        let scope = VariableScope {
            request,
            path,
            site: &self.site,
            root: &root,
            captures: &Captures::default(),
        };
        self.template.expand_uri(&scope)
    }

    fn depends_only_on_target(&self) -> bool {
        self.template.depends_only_on_target()
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
        return if regex.is_none_or(|regex| group < regex.captures_len()) {
            Ok(TemplatePart::Capture(group))
        } else {
            Err(unknown())
        };
    }
    let of_location = LOCATION_VARIABLES
        .iter()
        .find(|(known, _)| known.name == name);
    if let Some((_, variable)) = of_location {
        return Ok(TemplatePart::Location(*variable));
    }
    RequestVariable::named(name)
        .map(TemplatePart::Request)
        .ok_or_else(unknown)
}

/// Appends values to a text in its encoding. A value that is missing is empty.
struct EncodingSink<'a> {
    text: &'a mut Vec<u8>,
    encoding: ValueEncoding,
}

impl VariableSink for EncodingSink<'_> {
    fn text(&mut self, value: &[u8]) {
        push(self.text, value, self.encoding);
    }

    fn uri(&mut self, value: fmt::Arguments<'_>) {
        // Writing to a vector cannot fail.
        let _ = self.text.write_fmt(value);
    }

    fn target(&mut self, value: &str) {
        match self.encoding {
            ValueEncoding::Query => push(self.text, value.as_bytes(), self.encoding),
            _ => self.text.extend_from_slice(value.as_bytes()),
        }
    }

    fn number(&mut self, value: u64) {
        self.uri(format_args!("{value}"));
    }

    fn missing(&mut self) {}
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
            Self::Unknown(name) => match Template::variables()
                .map(|known| known.name)
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
        for text in [
            "$", "a$", "$-", "${host", "$http_", "$map_", "$var_", "$cookie_", "$arg_", "${}",
        ] {
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
