//! `apus explain`: the decisions about one request.
//!
//! The request goes through the services that the source makes, with a trace in which they note
//! their decisions.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use apus_http::trace::{Step, StepKind, Trace};
use apus_http::{
    Body, ConnectionInfo, Headers, InvalidField, InvalidTarget, Method, Peer, Request,
    RequestParts, StatusCode, Target, TlsInfo, TlsVersion, Version,
};
use apus_net::{ListenAddress, ListenerPlan};
use serde_json::json;

use crate::folder_config::{FolderConfig, ListenArgument};
use crate::load::{Certificates, LoadError, PlanLoader};
use crate::source::ConfigSource;
use crate::url::{InvalidUrl, Url};

/// A request to explain.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// The method.
    pub method: String,
    /// `http://host/path` or `https://host/path`.
    pub url: String,
    /// Fields of the request beside `Host`.
    pub headers: Vec<(String, String)>,
}

/// What became of the request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The address that it would have come to.
    pub listener: String,
    /// What was decided, in order.
    pub steps: Vec<Step>,
    /// The status of the answer; `None` if it is that of an origin, for none is asked.
    pub status: Option<StatusCode>,
    /// The field lines of the answer, but for those that the connection adds.
    pub headers: Vec<(String, String)>,
    /// The length of the answer's content, where it is known.
    pub content_length: Option<u64>,
}

impl Explanation {
    /// The explanation, for programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "listener": self.listener,
            "steps": self.steps.iter().map(|step| json!({
                "kind": step.kind.to_string(),
                "what": step.what,
                "why": step.why,
            })).collect::<Vec<_>>(),
            "status": self.status.map(|status| status.as_u16()),
            "headers": self.headers,
            "content_length": self.content_length,
        })
    }
}

/// Asks what `source` makes of a request.
///
/// # Errors
/// The source cannot be served, or nothing that it says can get such a request.
pub fn explain(
    source: ConfigSource,
    question: &ExplainRequest,
) -> Result<Explanation, ExplainError> {
    let url = Url::parse(&question.url).map_err(ExplainError::Url)?;
    // A folder is asked about as if it were served where the URL leads.
    let listen = ListenArgument::Port(url.port.unwrap_or(url.default_port()));
    let folder = FolderConfig::new(Some(listen), url.is_secure);
    let loader = PlanLoader::new(source, folder, Certificates::Passing, None);
    let loaded = loader.load(None).map_err(ExplainError::Load)?;
    let listener = (url.listener(&loaded.plan.listeners)).map_err(ExplainError::Url)?;
    let trace = Trace::default();
    let request = request(question, &url, listener, &trace)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(ExplainError::Runtime)?;
    let response =
        runtime.block_on(async { listener.service.service().call(request).wait().await });
    let steps = trace.steps();
    let is_of_origin = response.status() == StatusCode::OK
        && steps.iter().any(|step| step.kind == StepKind::Origins);
    Ok(Explanation {
        listener: listener.address.to_string(),
        steps,
        status: (!is_of_origin).then(|| response.status()),
        headers: response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()))
            .collect(),
        content_length: response.body().len().filter(|_| !is_of_origin),
    })
}

fn request(
    question: &ExplainRequest,
    url: &Url<'_>,
    listener: &ListenerPlan,
    trace: &Trace,
) -> Result<Request, ExplainError> {
    let method = Method::from_bytes(question.method.as_bytes())
        .map_err(|_| ExplainError::Method(question.method.clone()))?;
    let target = Target::parse(&method, &url.target()).map_err(ExplainError::Target)?;
    let mut headers = Headers::new();
    let fields = question
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in [("host", url.authority)].into_iter().chain(fields) {
        headers
            .try_append(name, value)
            .map_err(|error| ExplainError::Field(name.to_owned(), error))?;
    }
    let tls = match &listener.tls {
        None => None,
        Some(settings) => {
            let host = url.host.to_ascii_lowercase();
            // An address is never asked for by SNI (RFC 6066 section 3).
            let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
            let name = (!is_address).then_some(host.as_str());
            Some(TlsInfo {
                version: TlsVersion::Tls13,
                cipher: "TLS_AES_256_GCM_SHA384",
                server_name: name.map(Into::into),
                certificate_names: settings
                    .certificate_names(name)
                    .ok_or_else(|| ExplainError::RefusedName(host.clone()))?,
                client_certificate: None,
            })
        }
    };
    let local = match &listener.address {
        ListenAddress::Tcp { address, .. } => Peer::Ip(*address),
        _ => Peer::Unix,
    };
    let mut request = Request::new(RequestParts {
        method,
        target,
        version: Version::HTTP_11,
        headers,
        body: Body::Empty,
        connection: Rc::new(ConnectionInfo {
            id: 0,
            peer: Peer::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            local,
            tls,
        }),
        extensions: Default::default(),
    });
    request.extensions_mut().insert(trace.clone());
    Ok(request)
}

/// Why there is no explanation.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExplainError {
    /// The URL is none, or leads nowhere.
    Url(InvalidUrl),
    /// The text is no method.
    Method(String),
    /// The path cannot be sent.
    Target(InvalidTarget),
    /// A field cannot be sent.
    Field(String, InvalidField),
    /// The TLS handshake for this name is refused.
    RefusedName(String),
    /// The source cannot be served.
    Load(LoadError),
    /// The system refuses what a service needs.
    Runtime(io::Error),
}

impl ExplainError {
    /// Whether the question was wrong, rather than what was asked.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Url(InvalidUrl::Invalid(_)) | Self::Method(_) | Self::Target(_) | Self::Field(..)
        )
    }
}

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Method(text) => write!(f, "`{text}` is not a method; expected one such as GET"),
            Self::Target(error) => write!(f, "the path cannot be sent: {error}"),
            Self::Field(name, error) => write!(f, "the field `{name}` cannot be sent: {error}"),
            Self::RefusedName(name) => write!(
                f,
                "the TLS handshake for {name} is refused: no site has this name, and \
                 `ssl_reject_unknown` is set"
            ),
            Self::Load(error) => error.fmt(f),
            Self::Runtime(error) => write!(f, "a service cannot be run: {error}"),
        }
    }
}

impl std::error::Error for ExplainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Url(error) => Some(error),
            Self::Target(error) => Some(error),
            Self::Field(_, error) => Some(error),
            Self::Load(error) => Some(error),
            Self::Runtime(error) => Some(error),
            _ => None,
        }
    }
}
