//! Formats of access log lines: combined, JSON, and templates with nginx's variables.

use std::fmt;
use std::sync::Arc;

use apus_sites::{RequestVariable, VariableDescription};

use crate::hidden::{HiddenParameters, QueryPlace};

/// The format of access log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    pub(crate) parts: Vec<FormatPart>,
    pub(crate) escape: Escape,
    /// What the parts that hide secrets hide.
    pub(crate) hidden: Arc<HiddenParameters>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatPart {
    Text(Box<str>),
    /// Known when the request arrives.
    Request(RequestVariable),
    /// The same with a query, whose secrets are hidden.
    Query(RequestVariable, QueryPlace),
    /// `$arg_NAME` of a parameter that is hidden.
    Secret(RequestVariable),
    /// `$remote_user`, whom a layer may find after the request has arrived.
    User,
    /// A variable that rules set after the request has arrived.
    Rule(Box<str>),
    /// Known when the response has ended.
    Response(ResponseVariable),
    /// `$sent_http_NAME`, a field of the response.
    Sent(Box<str>),
    /// The same with a URL, whose secrets are hidden.
    SentUrl(Box<str>),
}

/// How values are escaped, so that they cannot end a line or a quoted string, or control a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// `\xXX` for all but visible ASCII, and for `"` and `\`; `-` for missing values.
    Hexadecimal,
    /// JSON values; `null` for missing ones.
    Json,
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
    FirstByte,
    Completion,
    UpstreamAddr,
    UpstreamStatus,
    UpstreamDuration,
    UpstreamCacheStatus,
    SampleRate,
}

const RESPONSE_VARIABLES: &[(VariableDescription, ResponseVariable)] = &[
    (
        VariableDescription {
            name: "time_local",
            value: "the time of the end of the response: `06/Nov/1994:08:49:37 +0000`",
        },
        ResponseVariable::TimeLocal,
    ),
    (
        VariableDescription {
            name: "time_iso8601",
            value: "the same as `1994-11-06T08:49:37+00:00`",
        },
        ResponseVariable::TimeIso,
    ),
    (
        VariableDescription {
            name: "msec",
            value: "the same in seconds since 1970, with milliseconds",
        },
        ResponseVariable::Milliseconds,
    ),
    (
        VariableDescription {
            name: "status",
            value: "the status of the response; 499 if the client left before there was one",
        },
        ResponseVariable::Status,
    ),
    (
        VariableDescription {
            name: "body_bytes_sent",
            value: "the bytes of the body that were sent",
        },
        ResponseVariable::BodyBytes,
    ),
    (
        VariableDescription {
            name: "bytes_sent",
            value: "the bytes of head and body that were sent",
        },
        ResponseVariable::Bytes,
    ),
    (
        VariableDescription {
            name: "request_time",
            value: "the seconds from the head of the request to the end of the response, with milliseconds",
        },
        ResponseVariable::Duration,
    ),
    (
        VariableDescription {
            name: "first_byte_time",
            value: "the seconds from the head of the request to the head of the response, with milliseconds",
        },
        ResponseVariable::FirstByte,
    ),
    (
        VariableDescription {
            name: "request_completion",
            value: "`OK` if the whole response was sent",
        },
        ResponseVariable::Completion,
    ),
    (
        VariableDescription {
            name: "upstream_addr",
            value: "the address of the origin or PHP pool that responded",
        },
        ResponseVariable::UpstreamAddr,
    ),
    (
        VariableDescription {
            name: "upstream_status",
            value: "the status that it sent",
        },
        ResponseVariable::UpstreamStatus,
    ),
    (
        VariableDescription {
            name: "upstream_response_time",
            value: "the seconds until its head was there, with milliseconds",
        },
        ResponseVariable::UpstreamDuration,
    ),
    (
        VariableDescription {
            name: "upstream_cache_status",
            value: "what the cache did: `HIT`, `MISS` and so on",
        },
        ResponseVariable::UpstreamCacheStatus,
    ),
    (
        VariableDescription {
            name: "sample_rate",
            value: "the share of requests like this one that are logged: `1` without `sample`",
        },
        ResponseVariable::SampleRate,
    ),
];

impl LogFormat {
    fn of(parts: Vec<FormatPart>, escape: Escape) -> Self {
        Self {
            parts,
            escape,
            hidden: Arc::new(HiddenParameters::none()),
        }
    }

    /// Hides the values of these parameters of queries: in `$request`, `$request_uri`, `$args`, `$http_referer`, `$arg_NAME` and
    /// `$sent_http_location`.
    #[must_use]
    pub fn hiding(mut self, hidden: &HiddenParameters) -> Self {
        if hidden.is_none() {
            return self;
        }
        let of_names = |names: &[&str], variable: &RequestVariable| {
            let mut known = names.iter().filter_map(|name| RequestVariable::named(name));
            known.any(|known| known == *variable)
        };
        for part in &mut self.parts {
            let replacement = match part {
                FormatPart::Request(variable) => {
                    let is_secret = variable
                        .argument()
                        .is_some_and(|name| hidden.has(name.as_bytes()));
                    if of_names(&["request", "request_uri", "http_referer"], variable) {
                        FormatPart::Query(variable.clone(), QueryPlace::Url)
                    } else if of_names(&["args"], variable) {
                        FormatPart::Query(variable.clone(), QueryPlace::Query)
                    } else if is_secret {
                        FormatPart::Secret(variable.clone())
                    } else {
                        continue;
                    }
                }
                FormatPart::Sent(name) if matches!(&**name, "location" | "content-location") => {
                    FormatPart::SentUrl(name.clone())
                }
                _ => continue,
            };
            *part = replacement;
        }
        self.hidden = Arc::new(hidden.clone());
        self
    }

    /// The combined format of the Apache and nginx servers. The user is an authenticated one: a name that a client
    /// only claims is `-`.
    pub fn combined() -> Self {
        Self::template(
            "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
             \"$http_referer\" \"$http_user_agent\"",
        )
        .unwrap_or_else(|_| Self::of(Vec::new(), Escape::Hexadecimal))
    }

    /// A JSON object per line.
    pub fn json() -> Self {
        // The names that log readers know, where they differ from the names of variables.
        const MEMBERS: &[(&str, &str)] = &[
            ("time", "time_iso8601"),
            ("request_id", "request_id"),
            ("remote_addr", "remote_addr"),
            ("remote_port", "remote_port"),
            ("remote_user", "remote_user"),
            ("bot", "bot"),
            ("site", "server_name"),
            ("scheme", "scheme"),
            ("host", "host"),
            ("method", "request_method"),
            ("uri", "request_uri"),
            ("protocol", "server_protocol"),
            ("request_body_bytes", "content_length"),
            ("status", "status"),
            ("body_bytes_sent", "body_bytes_sent"),
            ("bytes_sent", "bytes_sent"),
            ("request_time", "request_time"),
            ("first_byte_time", "first_byte_time"),
            ("complete", "request_completion"),
            ("referer", "http_referer"),
            ("user_agent", "http_user_agent"),
            ("ssl_protocol", "ssl_protocol"),
            ("ssl_cipher", "ssl_cipher"),
            ("ssl_server_name", "ssl_server_name"),
            ("ssl_alpn_protocol", "ssl_alpn_protocol"),
            // A log alone does not have fingerprints taken, which costs each handshake.
            ("ssl_ja4", ""),
            ("ssl_client_s_dn", "ssl_client_s_dn"),
            ("upstream_addr", "upstream_addr"),
            ("upstream_status", "upstream_status"),
            ("upstream_response_time", "upstream_response_time"),
            ("upstream_cache_status", "upstream_cache_status"),
            ("sample_rate", "sample_rate"),
        ];
        let part = |name: &str| {
            if name.is_empty() {
                return Some(FormatPart::Request(RequestVariable::known_fingerprint()));
            }
            variable(name).ok()
        };
        let members = MEMBERS
            .iter()
            .filter_map(|(member, name)| Some((member, part(name)?)));
        let mut parts = Vec::new();
        for (name, part) in members {
            let before = if parts.is_empty() { "{" } else { "," };
            parts.push(FormatPart::Text(format!("{before}\"{name}\":").into()));
            parts.push(part);
        }
        parts.push(FormatPart::Text("}".into()));
        Self::of(parts, Escape::Json)
    }

    /// The fields that an entry of the journal has beside its message, as `NAME=value` with line feeds.
    pub(crate) fn journal_fields() -> Self {
        const FIELDS: &[(&str, &str)] = &[
            ("SITE", "server_name"),
            ("CLIENT", "remote_addr"),
            ("USER", "remote_user"),
            ("HOST", "host"),
            ("METHOD", "request_method"),
            ("PATH", "uri"),
            ("PROTOCOL", "server_protocol"),
            ("STATUS", "status"),
            ("BYTES_SENT", "bytes_sent"),
            ("REQUEST_TIME", "request_time"),
            ("REQUEST_ID", "request_id"),
            ("UPSTREAM", "upstream_addr"),
            ("CACHE", "upstream_cache_status"),
        ];
        let known = FIELDS
            .iter()
            .filter_map(|(field, name)| Some((field, variable(name).ok()?)));
        let mut parts = Vec::new();
        for (field, part) in known {
            let before = if parts.is_empty() { "" } else { "\n" };
            parts.push(FormatPart::Text(format!("{before}APUS_{field}=").into()));
            parts.push(part);
        }
        Self::of(parts, Escape::Hexadecimal)
    }

    /// The maps whose values lines have.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            FormatPart::Request(variable) => variable.map(),
            _ => None,
        })
    }

    /// The variables of rules that lines have.
    pub fn variables_of_rules(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            FormatPart::Rule(name) => Some(&**name),
            _ => None,
        })
    }

    /// Whether lines have fields of the response.
    pub(crate) fn has_sent_fields(&self) -> bool {
        (self.parts.iter()).any(|part| matches!(part, FormatPart::Sent(_) | FormatPart::SentUrl(_)))
    }

    /// Whether lines have the user.
    pub(crate) fn has_user(&self) -> bool {
        self.parts.contains(&FormatPart::User)
    }

    /// A line with variables, as in nginx's `log_format`: `$remote_addr "$request" $status`.
    /// `${status}` separates a name from letters after it. `$http_NAME` is a field of the request, `$sent_http_NAME` one of the response, `$cookie_NAME` a cookie, `$arg_NAME` a parameter of the query, `$map_NAME` the value of a map, `$var_NAME` a variable that rules set. `$$` is a dollar sign.
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
            if let Some(after) = after.strip_prefix('$') {
                parts.push(FormatPart::Text("$".into()));
                rest = after;
                continue;
            }
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
        Ok(Self::of(parts, Escape::Hexadecimal))
    }
}

fn variable(name: &str) -> Result<FormatPart, LogFormatError> {
    let of_response = RESPONSE_VARIABLES
        .iter()
        .find(|(known, _)| known.name == name);
    if let Some((_, variable)) = of_response {
        return Ok(FormatPart::Response(*variable));
    }
    if name == "remote_user" {
        return Ok(FormatPart::User);
    }
    if let Some(field) = name
        .strip_prefix("sent_http_")
        .filter(|name| !name.is_empty())
    {
        let field = field.to_ascii_lowercase().replace('_', "-");
        return Ok(FormatPart::Sent(field.into()));
    }
    RequestVariable::named(name)
        .map(|variable| match variable.of_rules() {
            Some(name) => FormatPart::Rule(name.into()),
            None => FormatPart::Request(variable),
        })
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

impl LogFormat {
    /// The variables of log lines that are known when the response has ended; the others are listed
    /// by [`RequestVariable`].
    pub fn response_variables() -> impl Iterator<Item = VariableDescription> {
        RESPONSE_VARIABLES.iter().map(|(known, _)| *known)
    }
}

impl LogFormatError {
    /// The names of the variables, without `http_NAME`.
    pub fn known_variables() -> impl Iterator<Item = &'static str> {
        let known = RequestVariable::all().chain(LogFormat::response_variables());
        known.map(|known| known.name)
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
                        f.write_str(
                            "there are $http_NAME, $sent_http_NAME, $cookie_NAME, $arg_NAME",
                        )?;
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
                FormatPart::Request(RequestVariable::named("uri").unwrap()),
                FormatPart::Text("b ".into()),
                FormatPart::Request(RequestVariable::field("x-y")),
            ]
        );
        assert_eq!(LogFormat::combined().parts.len(), 16);
        assert_eq!(
            LogFormat::template("$$1").unwrap().parts,
            [FormatPart::Text("$".into()), FormatPart::Text("1".into())]
        );
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_a_suggestion() {
        let error = LogFormat::template("$remote_adr").unwrap_err();
        assert!(
            error.to_string().contains("did you mean `$remote_addr`?"),
            "{error}"
        );
        let error = LogFormat::template("$document_name x").unwrap_err();
        assert!(error.to_string().contains("`$document_name`"), "{error}");
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
