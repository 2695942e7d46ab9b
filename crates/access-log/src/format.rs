//! Formats of access log lines: combined, JSON, and templates with nginx's variables.

use std::fmt;

/// The format of access log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    pub(crate) parts: Vec<FormatPart>,
    pub(crate) escape: Escape,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatPart {
    Text(Box<str>),
    /// Known when the request arrives.
    Request(RequestVariable),
    /// Known when the response has ended.
    Response(ResponseVariable),
}

/// How values are escaped, so that they cannot end a line or a quoted string, or control a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// `\xXX` for all but visible ASCII, and for `"` and `\`; `-` for missing values.
    Hexadecimal,
    /// JSON values; `null` for missing ones.
    Json,
}

/// A variable of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestVariable {
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

/// A variable that is known when the response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseVariable {
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
const VARIABLES: &[(&str, FormatPart)] = &[
    (
        "remote_addr",
        FormatPart::Request(RequestVariable::RemoteAddr),
    ),
    (
        "remote_port",
        FormatPart::Request(RequestVariable::RemotePort),
    ),
    ("request", FormatPart::Request(RequestVariable::Request)),
    (
        "request_method",
        FormatPart::Request(RequestVariable::Method),
    ),
    (
        "request_uri",
        FormatPart::Request(RequestVariable::RequestUri),
    ),
    ("uri", FormatPart::Request(RequestVariable::Path)),
    ("args", FormatPart::Request(RequestVariable::Query)),
    ("query_string", FormatPart::Request(RequestVariable::Query)),
    (
        "server_protocol",
        FormatPart::Request(RequestVariable::Protocol),
    ),
    ("scheme", FormatPart::Request(RequestVariable::Scheme)),
    ("host", FormatPart::Request(RequestVariable::Host)),
    (
        "server_name",
        FormatPart::Request(RequestVariable::ServerName),
    ),
    (
        "server_addr",
        FormatPart::Request(RequestVariable::ServerAddr),
    ),
    (
        "server_port",
        FormatPart::Request(RequestVariable::ServerPort),
    ),
    (
        "connection",
        FormatPart::Request(RequestVariable::Connection),
    ),
    (
        "request_id",
        FormatPart::Request(RequestVariable::RequestId),
    ),
    (
        "ssl_protocol",
        FormatPart::Request(RequestVariable::SslProtocol),
    ),
    (
        "ssl_cipher",
        FormatPart::Request(RequestVariable::SslCipher),
    ),
    (
        "ssl_server_name",
        FormatPart::Request(RequestVariable::SslServerName),
    ),
    (
        "ssl_client_s_dn",
        FormatPart::Request(RequestVariable::SslClientSubject),
    ),
    (
        "ssl_client_serial",
        FormatPart::Request(RequestVariable::SslClientSerial),
    ),
    (
        "time_local",
        FormatPart::Response(ResponseVariable::TimeLocal),
    ),
    (
        "time_iso8601",
        FormatPart::Response(ResponseVariable::TimeIso),
    ),
    ("msec", FormatPart::Response(ResponseVariable::Milliseconds)),
    ("status", FormatPart::Response(ResponseVariable::Status)),
    (
        "body_bytes_sent",
        FormatPart::Response(ResponseVariable::BodyBytes),
    ),
    ("bytes_sent", FormatPart::Response(ResponseVariable::Bytes)),
    (
        "request_time",
        FormatPart::Response(ResponseVariable::Duration),
    ),
    (
        "request_completion",
        FormatPart::Response(ResponseVariable::Completion),
    ),
    (
        "upstream_addr",
        FormatPart::Response(ResponseVariable::UpstreamAddr),
    ),
    (
        "upstream_status",
        FormatPart::Response(ResponseVariable::UpstreamStatus),
    ),
    (
        "upstream_response_time",
        FormatPart::Response(ResponseVariable::UpstreamDuration),
    ),
    (
        "upstream_cache_status",
        FormatPart::Response(ResponseVariable::UpstreamCacheStatus),
    ),
];

impl LogFormat {
    /// The combined format of the Apache and nginx servers. The user is always `-`, because a
    /// name that a client claims is not authenticated.
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
        const MEMBERS: &[(&str, FormatPart)] = &[
            ("time", FormatPart::Response(ResponseVariable::TimeIso)),
            (
                "request_id",
                FormatPart::Request(RequestVariable::RequestId),
            ),
            (
                "remote_addr",
                FormatPart::Request(RequestVariable::RemoteAddr),
            ),
            ("site", FormatPart::Request(RequestVariable::ServerName)),
            ("scheme", FormatPart::Request(RequestVariable::Scheme)),
            ("host", FormatPart::Request(RequestVariable::Host)),
            ("method", FormatPart::Request(RequestVariable::Method)),
            ("uri", FormatPart::Request(RequestVariable::RequestUri)),
            ("protocol", FormatPart::Request(RequestVariable::Protocol)),
            ("status", FormatPart::Response(ResponseVariable::Status)),
            (
                "body_bytes_sent",
                FormatPart::Response(ResponseVariable::BodyBytes),
            ),
            ("bytes_sent", FormatPart::Response(ResponseVariable::Bytes)),
            (
                "request_time",
                FormatPart::Response(ResponseVariable::Duration),
            ),
            (
                "complete",
                FormatPart::Response(ResponseVariable::Completion),
            ),
        ];
        let fields = ["referer", "user-agent"].map(|name| {
            let member = name.replace('-', "_");
            (
                member,
                FormatPart::Request(RequestVariable::Field(name.into())),
            )
        });
        let tls = [
            (
                "ssl_protocol",
                FormatPart::Request(RequestVariable::SslProtocol),
            ),
            (
                "ssl_client_s_dn",
                FormatPart::Request(RequestVariable::SslClientSubject),
            ),
        ];
        let named = |(name, part): &(&str, FormatPart)| ((*name).to_owned(), part.clone());
        let members = MEMBERS
            .iter()
            .map(named)
            .chain(fields)
            .chain(tls.iter().map(named));
        let mut parts = Vec::new();
        for (name, part) in members {
            let before = if parts.is_empty() { "{" } else { "," };
            parts.push(FormatPart::Text(format!("{before}\"{name}\":").into()));
            parts.push(part);
        }
        parts.push(FormatPart::Text("}".into()));
        Self {
            parts,
            escape: Escape::Json,
        }
    }

    /// A line with variables, as in nginx's `log_format`: `$remote_addr "$request" $status`.
    /// `${status}` separates a name from letters after it. `$http_NAME` is a field of the request.
    ///
    /// # Errors
    /// A variable is unknown, or the text contains a control character.
    pub fn template(text: &str) -> Result<Self, LogFormatError> {
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(LogFormatError::ControlCharacter);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(FormatPart::Text(before.into()));
            }
            let after = after.get(1..).unwrap_or_default();
            let (name, following) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or(LogFormatError::Unclosed {
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
            rest = following;
        }
        if !rest.is_empty() {
            parts.push(FormatPart::Text(rest.into()));
        }
        Ok(Self {
            parts,
            escape: Escape::Hexadecimal,
        })
    }
}

fn variable(name: &str) -> Result<FormatPart, LogFormatError> {
    if let Some(field) = name.strip_prefix("http_").filter(|field| !field.is_empty()) {
        let field = field.to_ascii_lowercase().replace('_', "-");
        return Ok(FormatPart::Request(RequestVariable::Field(field.into())));
    }
    VARIABLES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, part)| part.clone())
        .ok_or_else(|| LogFormatError::UnknownVariable {
            name: name.to_owned(),
        })
}

/// Why a template is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormatError {
    /// The variable does not exist: a misspelling, or one that only nginx has.
    UnknownVariable {
        /// Its name without the `$`.
        name: String,
    },
    /// `${` has no `}`.
    Unclosed {
        /// The position of the `$`, in bytes.
        at: usize,
    },
    /// A line break or another control character, which would split or corrupt lines.
    ControlCharacter,
}

impl LogFormatError {
    /// The names of the variables, without `http_NAME`.
    pub fn known_variables() -> impl Iterator<Item = &'static str> {
        VARIABLES.iter().map(|(name, _)| *name)
    }
}

impl fmt::Display for LogFormatError {
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

impl std::error::Error for LogFormatError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_template_into_text_and_variables() {
        let format = LogFormat::template("a$status ${uri}b $http_X_Y").unwrap();
        assert_eq!(
            format.parts,
            [
                FormatPart::Text("a".into()),
                FormatPart::Response(ResponseVariable::Status),
                FormatPart::Text(" ".into()),
                FormatPart::Request(RequestVariable::Path),
                FormatPart::Text("b ".into()),
                FormatPart::Request(RequestVariable::Field("x-y".into())),
            ]
        );
        assert_eq!(LogFormat::combined().parts.len(), 14);
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_a_suggestion() {
        let error = LogFormat::template("$remote_adr").unwrap_err();
        assert!(
            error.to_string().contains("did you mean `$remote_addr`?"),
            "{error}"
        );
        let error = LogFormat::template("$remote_user x").unwrap_err();
        assert!(error.to_string().contains("`$remote_user`"), "{error}");
        assert!(LogFormat::template("costs $").is_err());
        assert!(LogFormat::template("$http_").is_err());
        assert_eq!(
            LogFormat::template("a ${uri"),
            Err(LogFormatError::Unclosed { at: 2 })
        );
        assert_eq!(
            LogFormat::template("a\nb"),
            Err(LogFormatError::ControlCharacter)
        );
    }
}
