//! What a rule does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use apus_handler::middleware::{Layer, Middleware};
use apus_http::StatusCode;

use crate::fields::FieldChange;
use crate::respond::ReturnHandler;
use crate::template::{InvalidTemplate, Template};

/// What a rule does.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// No other rule is asked, also none of the location.
    Allow,
    /// The client gets this response.
    Respond(ReturnHandler),
    /// The client gets no response: the stream is reset, and the connection ends, unless it is one of a trusted proxy.
    Close,
    /// The request is held for this time, at most a minute for all rules together, before it is served or its response is
    /// sent. A client that has a hundred requests held on a worker gets 429 for more, and 503 if a thousand are.
    Delay(Duration),
    /// The request is served by the location of the site whose path is written like this, whatever its own path is. The location
    /// may be internal.
    Location(Arc<str>),
    /// A location that proxies sends the request to this group of origins, if it has it to choose from
    /// ([`Proxy::choice`](https://docs.rs/apus-proxy)). Keys of caches have it.
    Upstream(Arc<str>),
    /// The request meets this layer, before those of its location: a limit, say.
    Layer(Layer),
    /// The request goes past every cache, and its response is not stored.
    NoCache,
    /// The request gets another path.
    Rewrite(RewriteTarget),
    /// A field of the request is changed.
    RequestField(FieldChange),
    /// A field of the response is changed.
    ResponseField(FieldChange),
    /// Later conditions find this tag.
    Tag(Arc<str>),
    /// A variable of the request gets a value: the fact `var.NAME` of later conditions, and `$var_NAME` in templates and logs.
    Set(VariableChange),
    /// The client is banned for this time, and longer if it was banned before. A client without an address is not.
    Ban(Duration),
    /// Browsers are challenged by the site's challenge, and other clients refused. Where there is none, all are refused with 403.
    Challenge,
    /// The request is not logged.
    NoLog,
    /// The rules of this chain are asked next.
    Jump(Arc<str>),
    /// No other rule of this chain is asked; outside of chains, no other rule of this place.
    Leave,
}

/// A variable and its value, which may hold other variables.
#[derive(Clone, Debug)]
pub struct VariableChange {
    pub(super) name: Arc<str>,
    pub(super) value: Template,
}

/// A path with variables, and the query that it may have.
#[derive(Clone, Debug)]
pub struct RewriteTarget {
    pub(super) target: Template,
    pub(super) has_query: bool,
}

impl RuleAction {
    /// Refuses a request.
    pub fn deny(status: StatusCode) -> Self {
        Self::Respond(ReturnHandler::status(status))
    }

    /// A layer for the requests that the rule applies to, as a limit.
    pub fn layer(middleware: impl Middleware<()>) -> Self {
        Self::Layer(Layer::new(middleware))
    }

    /// Sets a variable, whose name is letters, digits and `_`. The value may hold variables.
    ///
    /// # Errors
    /// It is no name, or the value names an unknown variable.
    pub fn set(name: &str, value: &str) -> Result<Self, InvalidRule> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(InvalidRule::VariableName);
        }
        Ok(Self::Set(VariableChange {
            name: name.into(),
            value: Template::parse(value).map_err(InvalidRule::Template)?,
        }))
    }

    /// Another path, which may hold variables. The query of the request stays, unless the target has one.
    ///
    /// # Errors
    /// The target does not begin with `/`, or names an unknown variable.
    pub fn rewrite(target: &str) -> Result<Self, InvalidRule> {
        if !target.starts_with('/') && !target.starts_with('$') {
            return Err(InvalidRule::NotAbsolute);
        }
        Ok(Self::Rewrite(RewriteTarget {
            target: Template::parse(target).map_err(InvalidRule::Template)?,
            has_query: target.contains('?'),
        }))
    }

    /// The action in a few words, for `apus explain`.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Allow => "allow".to_owned(),
            Self::Respond(handler) => handler.to_string(),
            Self::Close => "close without a response".to_owned(),
            Self::Delay(time) => format!("delay by {time:?}"),
            Self::Location(location) => format!("choose the location {location}"),
            Self::Upstream(name) => format!("choose the upstream {name}"),
            Self::Layer(layer) => format!("layer {}", layer.name()),
            Self::NoCache => "do not cache".to_owned(),
            Self::Rewrite(_) => "rewrite".to_owned(),
            Self::RequestField(_) => "change the request".to_owned(),
            Self::ResponseField(_) => "change the response".to_owned(),
            Self::Tag(tag) => format!("tag {tag}"),
            Self::Set(change) => format!("set {}", change.name),
            Self::Ban(_) => "ban".to_owned(),
            Self::Challenge => "challenge".to_owned(),
            Self::NoLog => "do not log".to_owned(),
            Self::Jump(chain) => format!("jump to {chain}"),
            Self::Leave => "leave".to_owned(),
        }
    }
}

/// A rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRule {
    /// The target of a rewrite does not begin with a slash.
    NotAbsolute,
    /// The name of a variable has other characters than letters, digits and `_`.
    VariableName,
    /// A variable does not exist.
    Template(InvalidTemplate),
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("the target of a rewrite begins with a slash"),
            Self::VariableName => f.write_str("the name of a variable is letters, digits and `_`"),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidRule {}
