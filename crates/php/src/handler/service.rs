//! One request and its answer by way of PHP.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::Pool;
use crate::wire::Message;
use apus_codec::fastcgi::Params;
use apus_http::{Answer, Body, Headers, Request, Response, Service, ServiceFactory, StatusCode};
use apus_net::client::{ClientResponse, RequestHead, Stderr};
use apus_upstream::Upstreams;
use bytes::Bytes;

use super::resident::Resident;
use super::script::{NoScript, Scripts};
use super::settings::PhpSettings;
use super::variables::{Variables, content_length};
use apus_http::trace::{self, Step, StepKind};
use apus_proxy::log_rate::LogRate;
use apus_proxy::{Exchange, Hold};

/// What of content whose length is not known is taken in, to tell it.
const UNKNOWN_MEMORY: u64 = 64 << 10;
const UNKNOWN_DISK: u64 = 1 << 30;

/// PHP over FastCGI: requests are answered by the programs that their paths mean.
///
/// It is for requests for which there is no file; see [`Files::programs`](apus_files::Files::programs).
#[derive(Clone, Debug)]
pub struct Php {
    /// Who runs the programs; `None`: it is only told what would be run.
    upstreams: Option<Upstreams>,
    group: Arc<str>,
    pub(super) settings: Arc<PhpSettings>,
    workers: Option<Pool>,
}

impl Php {
    /// Has a group of `upstreams`, whose protocol is FastCGI, run programs. Without such a group every
    /// answer is a 503.
    pub fn new(upstreams: &Upstreams, group: &str, settings: PhpSettings) -> Self {
        Self {
            upstreams: Some(upstreams.clone()),
            ..Self::named(group, settings)
        }
    }

    /// Runs nothing, and notes in the [`Trace`](apus_http::trace::Trace) of a request what would be run.
    pub fn named(group: &str, settings: PhpSettings) -> Self {
        Self {
            upstreams: None,
            group: group.into(),
            settings: Arc::new(settings),
            workers: None,
        }
    }

    /// Has workers that have the application in memory answer: for the front controller, or for all
    /// programs where they include what a request means. What is left is run over FastCGI.
    #[must_use]
    pub fn with_workers(self, workers: Pool) -> Self {
        Self {
            workers: Some(workers),
            ..self
        }
    }
}

impl ServiceFactory for Php {
    fn service(&self) -> Rc<dyn Service> {
        let exchange = (self.upstreams.as_ref()).map(|upstreams| {
            Exchange::new(upstreams, &self.group).with_stderr(stderr(&self.group))
        });
        let front = self.settings.front_controller.as_deref();
        let workers = self.workers.clone();
        Rc::new(PhpService(Rc::new(Inner {
            exchange,
            resident: workers.map(|workers| Resident::new(workers, front)),
            group: Arc::clone(&self.group),
            scripts: Scripts::new(&self.settings),
            variables: Variables::new(&self.settings),
            settings: Arc::clone(&self.settings),
        })))
    }
}

/// PHP at work on one worker.
struct PhpService(Rc<Inner>);

struct Inner {
    exchange: Option<Exchange>,
    resident: Option<Resident>,
    group: Arc<str>,
    scripts: Scripts,
    variables: Variables,
    settings: Arc<PhpSettings>,
}

impl Service for PhpService {
    fn call(&self, request: Request) -> Answer {
        let inner = &self.0;
        let Ok(path) = request.plain_path() else {
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
        let script = match inner.scripts.find(path, &inner.settings) {
            Ok(script) => script,
            Err(none) => return inner.refuse(&request, none).into(),
        };
        trace::note(&request, || {
            let file = [&*script.root, &*script.path].concat();
            Step::new(StepKind::Script, String::from_utf8_lossy(&file), script.why)
        });
        let (variables, settings) = (&inner.variables, &inner.settings);
        let is_resident = (inner.resident.as_ref())
            .is_some_and(|resident| resident.answers(&script.path, &request));
        if is_resident && inner.exchange.is_some() {
            let message = variables.message(&request, &script, settings);
            let inner = Rc::clone(inner);
            return Answer::later(async move { inner.answer_resident(request, message).await });
        }
        let params = variables.params(&request, &script, settings);
        if inner.exchange.is_none() {
            return inner.tell(&request, &params).into();
        }
        let inner = Rc::clone(inner);
        Answer::later(async move { inner.answer(request, params).await })
    }
}

impl Inner {
    /// The answer where no program is run.
    fn refuse(&self, request: &Request, none: NoScript) -> Response {
        trace::note(request, || {
            Step::new(StepKind::Script, "none", none.as_str())
        });
        if matches!(none, NoScript::NotInstalled | NoScript::Unreadable) {
            tracing::error!(
                site = &*self.settings.site,
                path = request.path(),
                "no PHP is run: {}",
                none.as_str()
            );
        }
        Response::new(StatusCode::NOT_FOUND)
    }

    /// Notes what a program would be told.
    fn tell(&self, request: &Request, params: &Params) -> Response {
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
                "what PHP answers is not known here",
            )
        });
        Response::new(StatusCode::OK)
    }

    async fn answer_resident(&self, mut request: Request, mut message: Message) -> Response {
        let (Some(exchange), Some(resident)) = (&self.exchange, &self.resident) else {
            return Response::new(StatusCode::SERVICE_UNAVAILABLE);
        };
        let settings = &self.settings;
        let hold = settings.hold_request.as_ref();
        let body = match exchange.content(&mut request, hold).await {
            Ok(body) => body,
            Err(response) => return response,
        };
        if let Some(length) = body.len()
            && (length > 0 || request.headers().contains("content-length"))
        {
            content_length(&mut message, length, settings);
        }
        match resident.answer(&request, message, body).await {
            Ok(response) => self.dress(response),
            Err(refusal) => refusal,
        }
    }

    async fn answer(&self, mut request: Request, mut params: Params) -> Response {
        let Some(exchange) = &self.exchange else {
            return Response::new(StatusCode::SERVICE_UNAVAILABLE);
        };
        let settings = &self.settings;
        let is_unknown = request.body_mut().len().is_none();
        let unknown = is_unknown.then(|| Hold {
            memory: UNKNOWN_MEMORY,
            disk: UNKNOWN_DISK,
            folder: "/var/tmp".into(),
        });
        let hold = settings.hold_request.as_ref().or(unknown.as_ref());
        let body = match exchange.content(&mut request, hold).await {
            Ok(body) => body,
            Err(response) => return response,
        };
        match body.len() {
            // PHP reads no content whose length it is not told.
            None => return Response::new(StatusCode::PAYLOAD_TOO_LARGE),
            Some(0) if !request.headers().contains("content-length") => {}
            Some(length) => content_length(&mut params, length, settings),
        }
        let head = Rc::new(RequestHead {
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
        let (delivered, source) = match exchange.ask(&request, &head, body).await {
            Ok(answered) => answered,
            Err(response) => return response,
        };
        let mut response = self.response(delivered.response);
        response.set_source(source);
        if let Some(cookie) = delivered.set_cookie {
            // A cookie of a plan that was checked.
            let _ = response.headers_mut().try_append("set-cookie", cookie);
        }
        response
    }

    fn response(&self, answer: ClientResponse) -> Response {
        let headers = Rc::new(answer.headers);
        self.dress(Response::with_shared_headers(
            answer.status,
            headers,
            answer.body,
        ))
    }

    /// The answer of a program as the client gets it.
    fn dress(&self, mut response: Response) -> Response {
        for name in &self.settings.hidden {
            if response.headers().contains(name) {
                response.headers_mut().remove(name);
            }
        }
        let body = match response.take_body() {
            // A program that says nothing means it: no page of ours takes its place.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => match &self.settings.hold_response {
                Some(hold) => hold.run_ahead(body),
                None => body,
            },
        };
        *response.body_mut() = body;
        response
    }
}

/// The name of the field that a request is told apart by in logs. Nobody is sent it: FastCGI has parameters.
const REQUEST_ID: &str = "x-request-id";

fn identity(request: &Request) -> Headers {
    let mut headers = Headers::with_capacity(64);
    // Such a name and such a value are valid.
    let _ = headers.try_insert(REQUEST_ID, format!("{:016x}", request.id()));
    headers
}

/// Logs what programs write to their standard error, with the request that they write it for.
fn stderr(group: &Arc<str>) -> Stderr {
    let (group, rate) = (Arc::clone(group), LogRate::default());
    Rc::new(move |head: &RequestHead, text: &[u8]| {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let Some(withheld) = rate.allows(Instant::now()) else {
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

/// The client of a request, as the program was told.
fn client(head: &RequestHead) -> &[u8] {
    let mut params = head.params.iter().flat_map(Params::iter);
    params
        .find(|(name, _)| *name == b"REMOTE_ADDR")
        .map_or(b"", |(_, value)| value)
}
