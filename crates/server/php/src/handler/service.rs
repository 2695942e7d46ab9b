//! The PHP service: runs the script of a request over FastCGI or by resident workers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::WorkerPool;
use crate::wire::RequestFrame;
use apus_client::{ClientRequestHead, ClientResponse, Stderr};
use apus_codec::fastcgi::Params;
use apus_http::{
    Body, Headers, Method, Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode,
};
use apus_upstream::Upstreams;
use bytes::Bytes;

use super::resident::ResidentWorkers;
use super::script::{ScriptError, Scripts};
use super::settings::PhpSettings;
use super::variables::{Variables, content_length, has_repeated_field};
use apus_http::path;
use apus_http::trace::{self, Step, StepKind};
use apus_proxy::log_rate_limiter::LogRateLimiter;
use apus_proxy::{HoldSettings, PathForm, UpstreamClient};

/// How much of a body of unknown length is buffered, to find its length.
const UNKNOWN_LENGTH_MEMORY: u64 = 64 << 10;
const UNKNOWN_LENGTH_DISK: u64 = 1 << 30;

/// PHP: runs the script that the path of a request names.
///
/// It handles requests for which there is no file; see [`Files::programs`](apus_files::Files::programs).
#[derive(Clone, Debug)]
pub struct Php {
    /// The upstreams that run scripts; `None` if requests are only traced.
    upstreams: Option<Upstreams>,
    group: Arc<str>,
    pub(super) settings: Arc<PhpSettings>,
    workers: Option<WorkerPool>,
}

impl Php {
    /// Runs scripts by a group of `upstreams` whose protocol is FastCGI. Without such a group every response is a
    /// 503.
    pub fn new(upstreams: &Upstreams, group: &str, settings: PhpSettings) -> Self {
        Self {
            upstreams: Some(upstreams.clone()),
            ..Self::named(group, settings)
        }
    }

    /// Runs no scripts, and notes in the [`Trace`](apus_http::trace::Trace) of a request what would run.
    pub fn named(group: &str, settings: PhpSettings) -> Self {
        Self {
            upstreams: None,
            group: group.into(),
            settings: Arc::new(settings),
            workers: None,
        }
    }

    /// Adds resident workers, which run the front controller, or in classic mode all scripts. Other scripts run over
    /// FastCGI.
    #[must_use]
    pub fn with_workers(self, workers: WorkerPool) -> Self {
        Self {
            workers: Some(workers),
            ..self
        }
    }
}

impl ServiceFactory for Php {
    fn service(&self) -> Rc<dyn Service> {
        let client = (self.upstreams.as_ref()).map(|upstreams| {
            UpstreamClient::new(upstreams, &self.group)
                .of_site(&self.settings.site)
                .with_stderr(stderr(&self.group))
        });
        let front = self.settings.front_controller.as_deref();
        let workers = self.workers.clone();
        Rc::new(PhpService(Rc::new(PhpServiceInner {
            client,
            resident: workers.map(|workers| ResidentWorkers::new(workers, front)),
            group: Arc::clone(&self.group),
            scripts: Scripts::new(&self.settings),
            variables: Variables::new(&self.settings),
            settings: Arc::clone(&self.settings),
        })))
    }
}

/// The PHP service of one worker of the server.
struct PhpService(Rc<PhpServiceInner>);

struct PhpServiceInner {
    client: Option<UpstreamClient>,
    resident: Option<ResidentWorkers>,
    group: Arc<str>,
    scripts: Scripts,
    variables: Variables,
    settings: Arc<PhpSettings>,
}

impl Service for PhpService {
    fn call(&self, request: Request) -> ResponseFuture {
        let inner = &self.0;
        if let Some(response) = refusal(&request) {
            return response.into();
        }
        let path = match inner.settings.path_form {
            PathForm::Normalized => request.plain_path(),
            PathForm::Raw => path::check_raw(request.original_target().path())
                .and_then(|()| request.normal_path()),
        };
        let Ok(path) = path else {
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
        let script = match inner.scripts.find(path, &inner.settings) {
            Ok(script) => script,
            Err(error) => return inner.not_found(&request, error).into(),
        };
        trace::note(&request, || {
            let file = [&*script.root, &*script.path].concat();
            Step::new(StepKind::Script, String::from_utf8_lossy(&file), script.why)
        });
        let (variables, settings) = (&inner.variables, &inner.settings);
        let is_resident = (inner.resident.as_ref())
            .is_some_and(|resident| resident.handles(&script.path, &request));
        if is_resident && inner.client.is_some() {
            let message = variables.message(&request, &script, settings);
            let inner = Rc::clone(inner);
            return ResponseFuture::later(
                async move { inner.run_resident(request, message).await },
            );
        }
        let params = variables.params(&request, &script, settings);
        if inner.client.is_none() {
            return inner.trace_params(&request, &params).into();
        }
        let inner = Rc::clone(inner);
        inner.run_fastcgi(request, params)
    }
}

impl PhpServiceInner {
    /// The response to a request without a script.
    fn not_found(&self, request: &Request, error: ScriptError) -> Response {
        trace::note(request, || {
            Step::new(StepKind::Script, "none", error.as_str())
        });
        if matches!(
            error,
            ScriptError::NotInstalled | ScriptError::Unreadable(_)
        ) {
            tracing::error!(
                site = &*self.settings.site,
                path = request.path(),
                "no PHP is run: {}",
                error.as_str()
            );
        }
        Response::new(error.status())
    }

    /// Notes the parameters of a script in the trace of the request.
    fn trace_params(&self, request: &Request, params: &Params) -> Response {
        for (name, value) in params.iter() {
            trace::note(request, || {
                let [name, value] = [name, value].map(String::from_utf8_lossy);
                Step::new(StepKind::Variable, format!("{name} = {value}"), "")
            });
        }
        trace::note(request, || {
            Step::new(
                StepKind::Origins,
                &*self.group,
                "the response of PHP is not known here",
            )
        });
        Response::new(StatusCode::OK)
    }

    async fn run_resident(&self, mut request: Request, mut message: RequestFrame) -> Response {
        let (Some(client), Some(resident)) = (&self.client, &self.resident) else {
            return Response::new(StatusCode::SERVICE_UNAVAILABLE);
        };
        let settings = &self.settings;
        let hold = settings.hold_request.as_ref();
        let body = match client.request_body(&mut request, hold).await {
            Ok(body) => body,
            Err(response) => return response,
        };
        if let Some(length) = body.len()
            && (length > 0 || request.headers().contains("content-length"))
        {
            content_length(&mut message, length, settings);
        }
        match resident.respond(&request, message, body).await {
            Ok(response) => self.finish_response(response),
            Err(error_response) => error_response,
        }
    }

    /// Runs a script over FastCGI. What the block captures stays where it is; the parameters of an `async fn` would
    /// be moved once more.
    fn run_fastcgi(self: Rc<Self>, mut request: Request, mut params: Params) -> ResponseFuture {
        ResponseFuture::later(async move {
            let Some(client) = &self.client else {
                return Response::new(StatusCode::SERVICE_UNAVAILABLE);
            };
            let settings = &self.settings;
            let is_unknown = request.body_mut().len().is_none();
            let unknown = is_unknown.then(|| HoldSettings {
                memory: UNKNOWN_LENGTH_MEMORY,
                disk: UNKNOWN_LENGTH_DISK,
                folder: "/var/tmp".into(),
            });
            let hold = settings.hold_request.as_ref().or(unknown.as_ref());
            let body = match client.request_body(&mut request, hold).await {
                Ok(body) => body,
                Err(response) => return response,
            };
            match body.len() {
                // PHP reads no body without a Content-Length.
                None => return Response::new(StatusCode::PAYLOAD_TOO_LARGE),
                Some(0) if !request.headers().contains("content-length") => {}
                Some(length) => content_length(&mut params, length, settings),
            }
            if let Some(name) = params.oversized() {
                return Response::new(match name {
                    b"REQUEST_URI" | b"QUERY_STRING" => StatusCode::URI_TOO_LONG,
                    _ => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                });
            }
            let head = Rc::new(ClientRequestHead {
                method: request.method().clone(),
                scheme: request.scheme(),
                authority: request.authority().unwrap_or("").into(),
                target: request.original_target().path_and_query().into(),
                headers: identity(&request),
                upgrade: None,
                te_trailers: false,
                expects_continue: false,
                params: Some(params),
            });
            let (upstream, source) = match client.send(&request, &head, body).await {
                Ok(received) => received,
                Err(response) => return response,
            };
            let mut response = self.response(upstream.response);
            response.set_origin(source);
            if let Some(cookie) = upstream.set_cookie {
                // It cannot fail: the plan was validated.
                let _ = response.headers_mut().try_append("set-cookie", cookie);
            }
            response
        })
    }

    fn response(&self, response: ClientResponse) -> Response {
        self.finish_response(Response::with_headers(
            response.status,
            response.headers,
            response.body,
        ))
    }

    /// Removes hidden header fields from a response of PHP, and buffers its body.
    fn finish_response(&self, mut response: Response) -> Response {
        for name in &self.settings.hidden {
            if response.headers().contains(name) {
                response.headers_mut().remove(name);
            }
        }
        let body = match response.take_body() {
            // An empty body is the script's response: no error page replaces it.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => match &self.settings.hold_response {
                Some(hold) => hold.read_ahead(body),
                None => body,
            },
        };
        *response.body_mut() = body;
        response
    }
}

/// The response to a request that no script may get: TRACE, whose response would show the client its own fields with
/// all cookies (RFC 9110 section 9.3.8), and a field that can have one value, with several.
fn refusal(request: &Request) -> Option<Response> {
    match *request.method() {
        Method::TRACE | Method::CONNECT => {
            let mut response = Response::new(StatusCode::METHOD_NOT_ALLOWED);
            // It cannot fail: name and value are valid.
            let _ = response.headers_mut().try_append("allow", ALLOW);
            Some(response)
        }
        _ => has_repeated_field(request.headers()).then(|| Response::new(StatusCode::BAD_REQUEST)),
    }
}

/// The methods that scripts may get. They may also get others that are not registered.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The header field with the request ID, which logs need. It is not sent, as FastCGI has parameters instead.
const REQUEST_ID: &str = "x-request-id";

fn identity(request: &Request) -> Headers {
    let mut headers = Headers::new();
    headers.push(REQUEST_ID.as_bytes(), request.id().to_string().as_bytes());
    headers
}

/// Logs the standard error of a script with its request.
fn stderr(group: &Arc<str>) -> Stderr {
    let (group, rate) = (Arc::clone(group), LogRateLimiter::default());
    Rc::new(move |head: &ClientRequestHead, text: &[u8]| {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let Some(withheld) = rate.allow(Instant::now()) else {
                continue;
            };
            let line = line.strip_prefix(b"PHP message: ").unwrap_or(line);
            tracing::warn!(
                group = &*group,
                method = head.method.as_str(),
                host = &*head.authority,
                path = &*head.target,
                client = &*String::from_utf8_lossy(client(head)),
                request_id = head.headers.get_str(REQUEST_ID).unwrap_or_default(),
                withheld,
                "{}",
                String::from_utf8_lossy(line).escape_debug()
            );
        }
    })
}

/// The client's address in the parameters of a request.
fn client(head: &ClientRequestHead) -> &[u8] {
    let mut params = head.params.iter().flat_map(Params::iter);
    params
        .find(|(name, _)| *name == b"REMOTE_ADDR")
        .map_or(b"", |(_, value)| value)
}
