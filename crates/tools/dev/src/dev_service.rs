//! The service of `apus dev`: forwards requests to the application, or shows why there is none.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_handler::error_page::{DEFAULT_FORMAT, ErrorDetails, ErrorFormat, write_body};
use apus_http::{
    DevelopmentHosts, HeaderValue, Method, Request, Response, ResponseFuture, Service,
    ServiceFactory, StatusCode, escape_html, header,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::page::DevPage;
use crate::panics::ReportedPanic;
use crate::script::{self, ReloadScript};
use crate::state::{DevPhase, DevState, ReadyApplication};

/// How long a request waits for an application.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long a request that the application did not respond to waits for the news that it has ended.
const END_WAIT: Duration = Duration::from_secs(1);

/// Makes the service of each worker.
pub(crate) struct DevServiceFactory {
    /// The name of the program.
    pub(crate) name: String,
    /// What no other run of `apus dev` has, so that pages of another one are loaded again.
    pub(crate) run: String,
    pub(crate) state: watch::Receiver<DevState>,
    pub(crate) hosts: DevelopmentHosts,
}

impl ServiceFactory for DevServiceFactory {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(DevService(Rc::new(WorkerService {
            name: self.name.clone(),
            run: self.run.clone(),
            state: self.state.clone(),
            hosts: self.hosts.clone(),
            upstream: RefCell::default(),
        })))
    }
}

struct DevService(Rc<WorkerService>);

struct WorkerService {
    name: String,
    run: String,
    state: watch::Receiver<DevState>,
    hosts: DevelopmentHosts,
    /// The proxy to the application with this number.
    upstream: RefCell<Option<(u64, Rc<dyn Service>)>>,
}

impl Service for DevService {
    fn call(&self, request: Request) -> ResponseFuture {
        let service = Rc::clone(&self.0);
        if !service.hosts.contain(&request) {
            return refuse(&request).into();
        }
        match request.path() {
            script::SCRIPT_PATH => script::script().into(),
            script::EVENTS_PATH => {
                script::events(service.run.clone(), service.state.clone()).into()
            }
            _ => ResponseFuture::later(service.respond(request)),
        }
    }
}

impl WorkerService {
    async fn respond(self: Rc<Self>, mut request: Request) -> Response {
        let client = DevClient::of(&request);
        client.prepare(&mut request);
        loop {
            let state = self.wait_for_result(&client).await;
            let version = format!("{}-{}", self.run, state.version);
            let script = ReloadScript::new(version, client.authority.clone(), client.sends_form);
            let DevPhase::Ready(application) = &state.phase else {
                return self.explain(&state.phase, &client, &script);
            };
            // Such a request can be sent again to the next process.
            let is_repeatable = !request.has_body() && request.method().is_idempotent();
            let again = is_repeatable.then(|| request.without_body());
            let unanswered = again.is_none().then(|| application.requests.begin());
            if unanswered.is_some() && !self.is_current(application.number) {
                // The process is about to end, and no longer waits for this request.
                continue;
            }
            let start = Instant::now();
            let mut response = self.upstream(application).call(request).wait().await;
            drop(unanswered);
            if response.origin().is_none() && response.status().is_server_error() {
                // The process may have ended, which the supervisor learns a moment later.
                if self.is_replaced(application.number).await {
                    match again {
                        Some(again) => request = again,
                        None => return self.interrupted(&client),
                    }
                    continue;
                }
                return response;
            }
            if response.status() == StatusCode::INTERNAL_SERVER_ERROR
                && let Some(panic) = application.output.take_panic_since(start)
            {
                show_panic(&panic, client.format, &mut response);
            }
            if client.wants_document {
                script.add_to(&mut response);
            }
            return response;
        }
    }

    /// The next state that a request need not wait for, or the last one after the longest time.
    async fn wait_for_result(&self, client: &DevClient) -> DevState {
        let mut state = self.state.clone();
        let is_result = |state: &DevState| match state.phase {
            // A page shows that the application is built, and is loaded again then.
            DevPhase::Building => client.wants_document && !client.sends_form,
            DevPhase::Starting => false,
            DevPhase::Ready(_) | DevPhase::BuildFailed(_) | DevPhase::Failed(_) => true,
        };
        if let Ok(Ok(result)) = timeout(MAX_WAIT, state.wait_for(is_result)).await {
            return result.clone();
        }
        self.state.borrow().clone()
    }

    /// Whether requests are sent to the application with this number.
    fn is_current(&self, number: u64) -> bool {
        match &self.state.borrow().phase {
            DevPhase::Ready(application) => application.number == number,
            _ => false,
        }
    }

    /// The proxy to an application.
    fn upstream(&self, application: &ReadyApplication) -> Rc<dyn Service> {
        let mut upstream = self.upstream.borrow_mut();
        if let Some((number, service)) = &*upstream
            && *number == application.number
        {
            return Rc::clone(service);
        }
        let service = application.proxy.service();
        *upstream = Some((application.number, Rc::clone(&service)));
        service
    }

    /// Whether another state follows the application with this number within a moment.
    async fn is_replaced(&self, number: u64) -> bool {
        let mut state = self.state.clone();
        let is_other = |state: &DevState| match &state.phase {
            DevPhase::Ready(application) => application.number != number,
            _ => true,
        };
        matches!(timeout(END_WAIT, state.wait_for(is_other)).await, Ok(Ok(_)))
    }

    /// The response in place of one of the application.
    fn explain(&self, phase: &DevPhase, client: &DevClient, script: &ReloadScript) -> Response {
        let (status, title, text, page) = match phase {
            DevPhase::BuildFailed(failure) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                failure.title(),
                failure.text(),
                DevPage::of_build_failure(failure),
            ),
            DevPhase::Failed(failure) => (
                StatusCode::BAD_GATEWAY,
                failure.title.clone(),
                failure.output.clone(),
                DevPage::of_application_failure(failure),
            ),
            DevPhase::Building | DevPhase::Starting | DevPhase::Ready(_) => {
                let title = format!("{} is being built", self.name);
                let text = "The page is loaded again when it is ready.".to_owned();
                let page = DevPage::new(&title, &format!("<p>{}</p>", escape_html(&text)));
                (StatusCode::SERVICE_UNAVAILABLE, title, text, page)
            }
        };
        let mut response = Response::new(status);
        match client.format {
            ErrorFormat::Html => {
                page.replace(&mut response);
                if client.wants_document {
                    script.add_to(&mut response);
                }
            }
            format => {
                let detail = match format {
                    ErrorFormat::Text => format!("{title}\n\n{text}"),
                    _ => text,
                };
                let details = ErrorDetails {
                    title: Some(&title),
                    detail: Some(detail.trim_end()),
                    ..ErrorDetails::default()
                };
                write_body(&mut response, format, details);
            }
        }
        let headers = response.headers_mut();
        headers.insert(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(&header::RETRY_AFTER, &HeaderValue::from_static("1"));
        }
        response
    }

    /// The response to a request that a process took and did not finish.
    fn interrupted(&self, client: &DevClient) -> Response {
        let mut response = Response::new(StatusCode::BAD_GATEWAY);
        let detail = format!("{} ended before it had responded.", self.name);
        let details = ErrorDetails {
            detail: Some(&detail),
            ..ErrorDetails::default()
        };
        write_body(&mut response, client.format, details);
        response
    }
}

/// Shows a panic in place of the body that the application sent: as a page, as problem details where that is what the application or
/// the client wants, and else as text.
fn show_panic(panic: &ReportedPanic, format: ErrorFormat, response: &mut Response) {
    let media_type = response.headers().get_str("content-type");
    let is_json = media_type.is_some_and(|media_type| media_type.contains("json"));
    let format = match format {
        ErrorFormat::Html => return DevPage::of_panic(panic).replace(response),
        _ if is_json => ErrorFormat::Json,
        format => format,
    };
    let ReportedPanic { place, message, .. } = panic;
    let title = "A handler panicked";
    let backtrace = panic.backtrace.trim_end();
    let (detail, members) = match format {
        ErrorFormat::Json => {
            let frames: serde_json::Value = backtrace.lines().collect();
            let members = [("place", place.as_str().into()), ("backtrace", frames)];
            let members = members.map(|(name, value)| (name.to_owned(), value));
            (message.clone(), members.into_iter().collect())
        }
        _ => {
            let text = format!("{title} at {place}\n\n{message}\n\n{backtrace}");
            (text, serde_json::Map::new())
        }
    };
    for name in ["etag", "last-modified"] {
        response.headers_mut().remove(name);
    }
    let details = ErrorDetails {
        title: Some(title),
        detail: Some(detail.trim_end()),
        members,
        ..ErrorDetails::default()
    };
    write_body(response, format, details);
}

/// The response to a request under a name that is not of this machine: a page of that name must not read the application, its sources
/// and its mails (DNS rebinding).
fn refuse(request: &Request) -> Response {
    let host = request.host().unwrap_or("no host");
    let mut response = Response::new(StatusCode::MISDIRECTED_REQUEST);
    let detail = format!(
        "`apus dev` responds at localhost, loopback addresses and the address that it listens on, and not for {host}. If that is a name of \
         this machine, start it with `--host {host}`."
    );
    let details = ErrorDetails {
        detail: Some(&detail),
        ..ErrorDetails::default()
    };
    write_body(
        &mut response,
        request.error_format().unwrap_or(DEFAULT_FORMAT),
        details,
    );
    response
}

/// What a request says about its client.
struct DevClient {
    format: ErrorFormat,
    /// Whether the response is shown as a page, which can load itself again.
    wants_document: bool,
    /// Whether the request sends a form, and so must not be repeated by itself.
    sends_form: bool,
    /// The scheme, host and port: `http://127.0.0.1:8080`.
    authority: String,
}

impl DevClient {
    fn of(request: &Request) -> Self {
        let headers = request.headers();
        let format = request.error_format().unwrap_or(DEFAULT_FORMAT);
        // Without the field, the browser is an old one, or the page is not on a trustworthy origin.
        let destination = headers.get_str("sec-fetch-dest").unwrap_or("document");
        let is_fragment = headers.contains("hx-request") || headers.contains("x-requested-with");
        let sends_form = request.method() == Method::POST;
        let wants_document = (sends_form || request.method() == Method::GET)
            && format == ErrorFormat::Html
            && matches!(destination, "document" | "iframe" | "frame")
            && !is_fragment
            && request.upgrade().is_none();
        Self {
            format,
            wants_document,
            sends_form,
            authority: format!(
                "{}://{}",
                request.scheme(),
                request.authority().unwrap_or_default()
            ),
        }
    }

    /// Asks the application for a whole page that is not compressed, if the response is shown as one.
    fn prepare(&self, request: &mut Request) {
        if self.wants_document {
            let headers = request.headers_mut();
            headers.retain(|name| {
                !matches!(
                    name,
                    b"accept-encoding"
                        | b"if-none-match"
                        | b"if-modified-since"
                        | b"range"
                        | b"if-range"
                )
            });
        }
    }
}
