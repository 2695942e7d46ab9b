//! Formats of access log lines: combined, JSON, and templates in nginx's vocabulary.

use std::fmt;

/// What a line of an access log looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub(crate) parts: Vec<Part>,
    pub(crate) escape: Escape,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Box<str>),
    /// Known when the request comes.
    Early(Early),
    /// Known when the response has ended.
    Late(Late),
}

/// How values are written so that they cannot end a line, a quoted string, or reach a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// `\xXX` for what is not visible ASCII, and for `"` and `\`; `-` for what is missing.
    Hexadecimal,
    /// Values are JSON values; `null` for what is missing.
    Json,
}

/// A variable that the request gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    RemoteAddr,
    RemotePort,
    Request,
    Method,
    RequestUri,
    Path,
    Query,
    Protocol,
    Scheme,
    Host,
    ServerName,
    ServerAddr,
    ServerPort,
    Connection,
    RequestId,
    SslProtocol,
    SslCipher,
    SslServerName,
    SslClientSubject,
    SslClientSerial,
    /// A field of the request, in lower case with hyphens.
    Field(Box<str>),
}

/// A variable that the end of the response gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    TimeLocal,
    TimeIso,
    Milliseconds,
    Status,
    BodyBytes,
    Bytes,
    Duration,
    Completion,
    UpstreamAddr,
    UpstreamStatus,
    UpstreamDuration,
    UpstreamCacheStatus,
}

/// The variables of templates, by name.
const VARIABLES: &[(&str, Part)] = &[
    ("remote_addr", Part::Early(Early::RemoteAddr)),
    ("remote_port", Part::Early(Early::RemotePort)),
    ("request", Part::Early(Early::Request)),
    ("request_method", Part::Early(Early::Method)),
    ("request_uri", Part::Early(Early::RequestUri)),
    ("uri", Part::Early(Early::Path)),
    ("args", Part::Early(Early::Query)),
    ("query_string", Part::Early(Early::Query)),
    ("server_protocol", Part::Early(Early::Protocol)),
    ("scheme", Part::Early(Early::Scheme)),
    ("host", Part::Early(Early::Host)),
    ("server_name", Part::Early(Early::ServerName)),
    ("server_addr", Part::Early(Early::ServerAddr)),
    ("server_port", Part::Early(Early::ServerPort)),
    ("connection", Part::Early(Early::Connection)),
    ("request_id", Part::Early(Early::RequestId)),
    ("ssl_protocol", Part::Early(Early::SslProtocol)),
    ("ssl_cipher", Part::Early(Early::SslCipher)),
    ("ssl_server_name", Part::Early(Early::SslServerName)),
    ("ssl_client_s_dn", Part::Early(Early::SslClientSubject)),
    ("ssl_client_serial", Part::Early(Early::SslClientSerial)),
    ("time_local", Part::Late(Late::TimeLocal)),
    ("time_iso8601", Part::Late(Late::TimeIso)),
    ("msec", Part::Late(Late::Milliseconds)),
    ("status", Part::Late(Late::Status)),
    ("body_bytes_sent", Part::Late(Late::BodyBytes)),
    ("bytes_sent", Part::Late(Late::Bytes)),
    ("request_time", Part::Late(Late::Duration)),
    ("request_completion", Part::Late(Late::Completion)),
    ("upstream_addr", Part::Late(Late::UpstreamAddr)),
    ("upstream_status", Part::Late(Late::UpstreamStatus)),
    ("upstream_response_time", Part::Late(Late::UpstreamDuration)),
    (
        "upstream_cache_status",
        Part::Late(Late::UpstreamCacheStatus),
    ),
];

impl Format {
    /// The combined format of the Apache and nginx servers. The user is always `-`: a name that a
    /// client claims is not an identity.
    pub fn combined() -> Self {
        Self::template(
            "$remote_addr - - [$time_local] \"$request\" $status $body_bytes_sent \
             \"$http_referer\" \"$http_user_agent\"",
        )
        .unwrap_or_else(|_| Self {
            parts: Vec::new(),
            escape: Escape::Hexadecimal,
        })
    }

    /// A JSON object per line.
    pub fn json() -> Self {
        const MEMBERS: &[(&str, Part)] = &[
            ("time", Part::Late(Late::TimeIso)),
            ("request_id", Part::Early(Early::RequestId)),
            ("remote_addr", Part::Early(Early::RemoteAddr)),
            ("site", Part::Early(Early::ServerName)),
            ("scheme", Part::Early(Early::Scheme)),
            ("host", Part::Early(Early::Host)),
            ("method", Part::Early(Early::Method)),
            ("uri", Part::Early(Early::RequestUri)),
            ("protocol", Part::Early(Early::Protocol)),
            ("status", Part::Late(Late::Status)),
            ("body_bytes_sent", Part::Late(Late::BodyBytes)),
            ("bytes_sent", Part::Late(Late::Bytes)),
            ("request_time", Part::Late(Late::Duration)),
            ("complete", Part::Late(Late::Completion)),
        ];
        let fields = ["referer", "user-agent"].map(|name| {
            let member = name.replace('-', "_");
            (member, Part::Early(Early::Field(name.into())))
        });
        let tls = [
            ("ssl_protocol", Part::Early(Early::SslProtocol)),
            ("ssl_client_s_dn", Part::Early(Early::SslClientSubject)),
        ];
        let named = |(name, part): &(&str, Part)| ((*name).to_owned(), part.clone());
        let members = MEMBERS
            .iter()
            .map(named)
            .chain(fields)
            .chain(tls.iter().map(named));
        let mut parts = Vec::new();
        for (name, part) in members {
            let before = if parts.is_empty() { "{" } else { "," };
            parts.push(Part::Text(format!("{before}\"{name}\":").into()));
            parts.push(part);
        }
        parts.push(Part::Text("}".into()));
        Self {
            parts,
            escape: Escape::Json,
        }
    }

    /// A line with variables, as nginx's `log_format` has them: `$remote_addr "$request" $status`.
    /// `${status}` sets a name off from letters after it. `$http_NAME` is a field of the request.
    ///
    /// # Errors
    /// A variable is not known, or the text holds a control character.
    pub fn template(text: &str) -> Result<Self, FormatError> {
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(FormatError::ControlCharacter);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            let after = after.get(1..).unwrap_or_default();
            let (name, behind) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or(FormatError::Unclosed {
                    at: at.saturating_add(text.len() - rest.len()),
                })?,
                None => {
                    let end = after
                        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .unwrap_or(after.len());
                    after.split_at(end)
                }
            };
            parts.push(variable(name)?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(Self {
            parts,
            escape: Escape::Hexadecimal,
        })
    }
}

fn variable(name: &str) -> Result<Part, FormatError> {
    if let Some(field) = name.strip_prefix("http_").filter(|field| !field.is_empty()) {
        let field = field.to_ascii_lowercase().replace('_', "-");
        return Ok(Part::Early(Early::Field(field.into())));
    }
    VARIABLES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, part)| part.clone())
        .ok_or_else(|| FormatError::UnknownVariable {
            name: name.to_owned(),
        })
}

/// Why a template was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// There is no such variable: a misspelling, or a variable that only nginx has.
    UnknownVariable {
        /// Its name without the `$`.
        name: String,
    },
    /// `${` has no `}`.
    Unclosed {
        /// Where the `$` stands, in bytes.
        at: usize,
    },
    /// A line break or another control character would break the log into more lines.
    ControlCharacter,
}

impl FormatError {
    /// The names that `$` can stand before, without `http_NAME`.
    pub fn known_variables() -> impl Iterator<Item = &'static str> {
        VARIABLES.iter().map(|(name, _)| *name)
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVariable { name } => {
                let nearest = Self::known_variables()
                    .map(|known| (strsim::damerau_levenshtein(known, name), known))
                    .min()
                    .filter(|(distance, known)| *distance <= known.len() / 3);
                write!(f, "a log line has no variable `${name}`; ")?;
                match nearest {
                    Some((_, known)) => write!(f, "did you mean `${known}`?"),
                    None => {
                        f.write_str("there are $http_NAME")?;
                        Self::known_variables().try_for_each(|known| write!(f, ", ${known}"))
                    }
                }
            }
            Self::Unclosed { .. } => f.write_str("`${` needs a `}` after the name of the variable"),
            Self::ControlCharacter => {
                f.write_str("a log format is one line without control characters")
            }
        }
    }
}

impl std::error::Error for FormatError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_template_into_text_and_variables() {
        let format = Format::template("a$status ${uri}b $http_X_Y").unwrap();
        assert_eq!(
            format.parts,
            [
                Part::Text("a".into()),
                Part::Late(Late::Status),
                Part::Text(" ".into()),
                Part::Early(Early::Path),
                Part::Text("b ".into()),
                Part::Early(Early::Field("x-y".into())),
            ]
        );
        assert_eq!(Format::combined().parts.len(), 14);
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_a_suggestion() {
        let error = Format::template("$remote_adr").unwrap_err();
        assert!(
            error.to_string().contains("did you mean `$remote_addr`?"),
            "{error}"
        );
        let error = Format::template("$remote_user x").unwrap_err();
        assert!(error.to_string().contains("`$remote_user`"), "{error}");
        assert!(Format::template("costs $").is_err());
        assert!(Format::template("$http_").is_err());
        assert_eq!(
            Format::template("a ${uri"),
            Err(FormatError::Unclosed { at: 2 })
        );
        assert_eq!(Format::template("a\nb"), Err(FormatError::ControlCharacter));
    }
}
