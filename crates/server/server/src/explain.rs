//! `apus explain`: sends one request through the services of a configuration with a trace of their
//! decisions.

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

use crate::certificate_report::{report, site_of};
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

/// The decisions about the request, and its response.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The address of the listener.
    pub listener: String,
    /// The decisions, in order.
    pub steps: Vec<Step>,
    /// The status of the response; `None` if it would come from an origin, because no request is
    /// sent there.
    pub status: Option<StatusCode>,
    /// The field lines of the response, without those that the connection adds.
    pub headers: Vec<(String, String)>,
    /// The length of the response body, if it is known.
    pub content_length: Option<u64>,
}

impl Explanation {
    /// The explanation as JSON.
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

/// Explains a request to `source`.
///
/// # Errors
/// The source cannot be loaded, or no listener accepts such a request.
pub fn explain(
    source: ConfigSource,
    question: &ExplainRequest,
) -> Result<Explanation, ExplainError> {
    let url = Url::parse(&question.url).map_err(ExplainError::Url)?;
    // A folder is explained as if it were served at the URL.
    let listen = ListenArgument::Port(url.port.unwrap_or(url.default_port()));
    let folder = FolderConfig::new(Some(listen), url.is_secure);
    // Services are explained with any certificate; certificates by what a server would do without `--tls`.
    let named = PlanLoader::new(source.clone(), folder.clone(), Certificates::Named, None);
    let loader = PlanLoader::new(source, folder, Certificates::Passing, None);
    let loaded = loader.load(None).map_err(ExplainError::Load)?;
    // Where only the server may read it, the site is explained as the configuration says.
    let state = loader.state_folder(&loaded.config);
    let _ = loader.maintenance().set_stored(&state);
    let listener = (url.listener(&loaded.plan.listeners)).map_err(ExplainError::Url)?;
    let trace = Trace::default();
    let request = request(question, &url, listener, &trace)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(ExplainError::Runtime)?;
    let response =
        runtime.block_on(async { listener.service.service().call(request).wait().await });
    let mut steps = trace.steps();
    if listener.tls.is_some() {
        let config = named.read_as_root().unwrap_or(loaded.config);
        let site = site_of(&config, &listener.address, &url.host.to_ascii_lowercase());
        if let Some(report) = site.and_then(|site| report(&config, site)) {
            let step = Step {
                kind: StepKind::Certificate,
                what: report.what,
                why: report
                    .why
                    .join("; ")
                    .trim_start_matches("because ")
                    .to_owned(),
            };
            steps.insert(0, step);
        }
    }
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
            // SNI never has an address (RFC 6066 section 3).
            let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
            let name = (!is_address).then_some(host.as_str());
            Some(TlsInfo {
                version: TlsVersion::Tls13,
                cipher: "TLS_AES_256_GCM_SHA384",
                alpn: None,
                fingerprint: None,
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
            kept: apus_http::KeptValue::default(),
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

/// A request cannot be explained.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExplainError {
    /// The URL is invalid, or no listener accepts it.
    Url(InvalidUrl),
    /// The method is invalid.
    Method(String),
    /// The request target is invalid.
    Target(InvalidTarget),
    /// A field is invalid.
    Field(String, InvalidField),
    /// The TLS handshake for this name is rejected.
    RefusedName(String),
    /// The source cannot be loaded.
    Load(LoadError),
    /// The runtime cannot be created.
    Runtime(io::Error),
}

impl ExplainError {
    /// Whether the arguments are wrong, rather than the configuration.
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
            Self::Target(error) => write!(f, "the path is invalid: {error}"),
            Self::Field(name, error) => write!(f, "the field `{name}` is invalid: {error}"),
            Self::RefusedName(name) => write!(
                f,
                "the TLS handshake for {name} is refused: no site has this name, and \
                 `ssl_reject_unknown` is set"
            ),
            Self::Load(error) => error.fmt(f),
            Self::Runtime(error) => write!(f, "the runtime cannot be started: {error}"),
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
