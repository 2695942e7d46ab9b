//! The service of a site on one worker: rewrites, the location of a request, and its handler.

mod accel;
mod complete;
mod layers;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::path::{self, InvalidPath};
use apus_http::{
    ErrorFormat, HeaderValue, Method, RemoteUserSlot, Request, Response, ResponseFuture, RouteInfo,
    Service, ServiceFactory, StatusCode, header, mount_prefix,
};

use super::fields::FieldChange;
use super::location::{LocationMatcher, LocationPattern, ScriptUse};
use super::observe::{RequestObservation, WorkerObserver};
use super::respond::ReturnHandler;
use super::rewrite::{self, RewriteResult, RewriteRule};
use super::settings::{AccelSettings, ErrorPage, LocationSettings};
use super::site::{Location, LocationHandler, Site};
use super::template::{Captures, DocumentRoot, VariableScope};
use apus_compress::Compression;
use apus_compress::EncodingNegotiation;
use apus_files::{Files, FilesOutcome, FilesService};
use apus_handler::error_page::error_page;
use apus_handler::middleware::Layer;
use apus_handler::rendering::ErrorRules;
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_layers::{ForceHttps, Hsts};

/// How often a request may be sent to another location before it is rejected as a loop.
const MAX_REWRITES: usize = 10;

/// The service of a [`Site`].
#[derive(Clone)]
pub(super) struct SiteService(Rc<SiteState>);

struct SiteState {
    name: Arc<str>,
    matcher: LocationMatcher,
    locations: Box<[LocationState]>,
    /// For requests that match no location.
    default_location: LocationState,
    force_https: Option<ForceHttps>,
    hsts: Option<HeaderValue>,
    compression: Option<Compression>,
    observer: Option<Rc<dyn WorkerObserver>>,
    /// Whether layers may find users, and the observer needs them.
    observes_users: bool,
    /// Whether an error page is a path of the site, which needs a copy of the request.
    has_error_page_paths: bool,
    /// Whether `X-Accel-Redirect` of a service is followed, which needs a copy of the request.
    has_accel: bool,
    /// Whether the path of a prefix without its slash is redirected in any location.
    has_slash_redirects: bool,
    /// How layers make responses to errors.
    layer_errors: ErrorRules,
}

/// A location on one worker, or the site outside of all locations, with the settings of both.
struct LocationState {
    pattern: Option<LocationPattern>,
    handler: WorkerHandler,
    rewrites: Vec<RewriteRule>,
    request_fields: Vec<FieldChange>,
    response_fields: Vec<FieldChange>,
    /// Whether a response field depends on the request.
    has_variables: bool,
    /// Whether the handler or a field refers to the groups of the pattern.
    has_captures: bool,
    body_limit: u64,
    root: DocumentRoot,
    error_pages: HashMap<StatusCode, ErrorPage>,
    intercepts_errors: bool,
    accel: Option<AccelSettings>,
    layers: Rc<[Layer]>,
    is_internal: bool,
    allows_encoded_slash: bool,
    redirects_to_slash: bool,
    /// Whether it has layers of its own, is internal, or has a fixed response.
    has_own_rules: bool,
}

/// The handler of a location on one worker.
enum WorkerHandler {
    NotFound,
    Return(ReturnHandler),
    Files {
        name: &'static str,
        files: Box<FilesService>,
    },
    Service {
        name: Arc<str>,
        service: Rc<dyn Service>,
    },
}

/// The state of a request until its response is complete.
struct RequestState {
    route: RequestRoute,
    /// The format of errors that the client prefers.
    error_format: Option<ErrorFormat>,
    is_secure: bool,
    observation: Option<RequestObservation>,
    trace: Option<Trace>,
}

/// The location of a request, and what the response needs of it.
#[derive(Default)]
struct RequestRoute {
    /// The index of the location, if one matched.
    location: Option<usize>,
    /// Whether the request was redirected internally.
    is_internal: bool,
    /// The number of locations that the request was sent to.
    visits: usize,
    /// The changes of response fields, if they depend on the request.
    changes: Option<Vec<FieldChange>>,
    compression: Option<EncodingNegotiation>,
    /// A copy of the request without its body, for an internal redirect.
    redirect_copy: Option<Box<Request>>,
    /// Whether no layer sees the request, because it is for an error page.
    skips_layers: bool,
    /// The layers that the request has passed.
    passed_layers: Vec<Layer>,
    /// The route behind the layers of the location, if it has any. They may wait before they pass the request.
    behind_layers: Option<Rc<RefCell<RequestRoute>>>,
}

impl SiteService {
    pub(super) fn new(site: &Site) -> Self {
        let locations: Box<[LocationState]> = site
            .locations
            .iter()
            .map(|location| LocationState::of_location(location, site))
            .collect();
        let default_location = LocationState::new(&site.settings);
        let has_error_page_paths = locations.iter().chain([&default_location]).any(|location| {
            let mut pages = location.error_pages.values();
            pages.any(|page| matches!(page, ErrorPage::Path(_)))
        });
        let has_accel = locations.iter().any(|location| location.accel.is_some());
        let observer = site.observer.as_ref().map(|observer| observer.worker());
        let has_layers = |location: &LocationState| !location.layers.is_empty();
        let observes_users = observer
            .as_ref()
            .is_some_and(|observer| observer.needs_user())
            && (locations.iter().any(has_layers) || has_layers(&default_location));
        let mut redirecting = locations.iter();
        let has_slash_redirects = redirecting.any(|location| location.redirects_to_slash);
        Self(Rc::new(SiteState {
            name: site.name.clone(),
            matcher: LocationMatcher::new(
                site.locations
                    .iter()
                    .map(|location| (&location.pattern, script_use(location))),
            ),
            locations,
            default_location,
            force_https: site.force_https,
            hsts: site.hsts.map(Hsts::value),
            compression: site.compression,
            observer,
            observes_users,
            has_error_page_paths,
            has_accel,
            has_slash_redirects,
            layer_errors: ErrorRules {
                is_deferred: true,
                ..ErrorRules::default()
            },
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// The error page for a request, which the observer of the site sees too.
    pub(super) fn error_response(&self, request: &Request, status: StatusCode) -> Response {
        let mut response = error_page(request, status);
        if let Some(observation) = self.0.observe(request) {
            observation.attach(&mut response);
        }
        response
    }
}

impl ServiceFactory for Site {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(SiteService::new(self))
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.factories().try_for_each(|factory| factory.check())
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.factories()
            .flat_map(|factory| factory.routes())
            .collect()
    }
}

impl Service for SiteService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let site = &self.0;
        if site.observes_users {
            request.extensions_mut().insert(RemoteUserSlot::default());
        }
        let mut context = RequestState {
            route: RequestRoute {
                redirect_copy: site.redirect_copy(&request),
                ..RequestRoute::default()
            },
            error_format: request.error_format(),
            is_secure: request.is_secure(),
            observation: site.observe(&request),
            trace: Trace::of(&request),
        };
        match site.route(request, &mut context.route) {
            ResponseFuture::Now(response) => site.complete(context, response),
            ResponseFuture::Later(response) => {
                let site = site.clone();
                ResponseFuture::later(async move {
                    let response = response.await;
                    site.complete(context, response).wait().await
                })
            }
        }
    }
}

impl SiteState {
    fn observe(&self, request: &Request) -> Option<RequestObservation> {
        RequestObservation::begin(&**self.observer.as_ref()?, request)
    }

    /// Applies the rules of the site to a request, finds its location, and calls the handler of that.
    fn route(self: &Rc<Self>, mut request: Request, route: &mut RequestRoute) -> ResponseFuture {
        if let Some(force) = &self.force_https
            && !request.is_secure()
        {
            trace::note(&request, || {
                Step::new(StepKind::Handler, "redirect to https", "force_https is set")
            });
            let response = force.redirect(&request);
            return self.respond_itself(None, request, route, response);
        }
        if !self.default_location.rewrites.is_empty() {
            match self.rewrite(&self.default_location, &mut request) {
                RewriteResult::Response(response) => {
                    return self.respond_itself(None, request, route, response);
                }
                // As in nginx, a path that a rule of the site made may be that of an internal location.
                RewriteResult::Path | RewriteResult::Break { is_changed: true } => {
                    route.is_internal = true;
                }
                RewriteResult::No | RewriteResult::Break { is_changed: false } => {}
            }
        }
        self.visit_locations(request, route)
    }

    /// Finds the location of a request and calls its handler, until one gives a response.
    fn visit_locations(
        self: &Rc<Self>,
        mut request: Request,
        route: &mut RequestRoute,
    ) -> ResponseFuture {
        while route.visits < MAX_REWRITES {
            route.visits = route.visits.saturating_add(1);
            let path = match request.normal_path() {
                Ok(path) => path,
                Err(error) => {
                    let response = invalid_path(&request, error);
                    return self.respond_itself(None, request, route, response);
                }
            };
            if let Some(response) = self.slash_redirect(&request, path) {
                return response.into();
            }
            let Some((index, how)) = self.matcher.find(path) else {
                trace::note(&request, || {
                    Step::new(StepKind::Location, "none", "no location matches the path")
                });
                if self.default_location.layers.is_empty() || route.skips_layers {
                    let response = Response::new(StatusCode::NOT_FOUND);
                    return self.respond_itself(None, request, route, response);
                }
                return self.pass_layers(None, request, Captures::default(), route);
            };
            let Some(location) = self.locations.get(index) else {
                return Response::new(StatusCode::NOT_FOUND).into();
            };
            if !location.allows_encoded_slash
                && let Err(error) = request.plain_path()
            {
                let response = invalid_path(&request, error);
                return self.respond_itself(Some(index), request, route, response);
            }
            if location.allows_encoded_slash && self.leads_to_closed_location(path, index) {
                return invalid_path(&request, InvalidPath::DotSegment).into();
            }
            if location.is_internal && !route.is_internal {
                trace::note(&request, || {
                    Step::new(StepKind::Location, "none", "the location is internal")
                });
                let response = Response::new(StatusCode::NOT_FOUND);
                return self.respond_itself(None, request, route, response);
            }
            route.location = Some(index);
            trace::note(&request, || {
                let pattern = location.pattern.as_ref().map(ToString::to_string);
                Step::new(
                    StepKind::Location,
                    pattern.unwrap_or_default(),
                    how.to_string(),
                )
            });
            let captures = match &location.pattern {
                Some(pattern) if location.has_captures => pattern.captures(path),
                _ => Captures::default(),
            };
            if !location.rewrites.is_empty() {
                match self.rewrite(location, &mut request) {
                    RewriteResult::No => {}
                    RewriteResult::Break { is_changed } => route.is_internal |= is_changed,
                    RewriteResult::Path => {
                        route.is_internal = true;
                        continue;
                    }
                    RewriteResult::Response(response) => {
                        return self.respond_itself(Some(index), request, route, response);
                    }
                }
            }
            if !location.layers.is_empty() && !route.skips_layers {
                return self.pass_layers(Some(index), request, captures, route);
            }
            match self.call_handler(location, request, &captures, route) {
                FilesOutcome::Response(response) => return response,
                FilesOutcome::Rewritten(redirected) => {
                    route.is_internal = true;
                    request = redirected;
                }
            }
        }
        tracing::error!(
            site = &*self.name,
            "rewrite rules or try_files redirect a request in a loop"
        );
        let response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        self.respond_itself(route.location, request, route, response)
    }

    /// The redirect to a location's prefix for its path without the slash at its end.
    fn slash_redirect(&self, request: &Request, path: &[u8]) -> Option<Response> {
        if !self.has_slash_redirects || path.ends_with(b"/") {
            return None;
        }
        let found = self.locations.get(self.matcher.find_with_slash(path)?)?;
        if !found.redirects_to_slash || found.is_internal {
            return None;
        }
        trace::note(request, || {
            let pattern = found.pattern.as_ref().map(ToString::to_string);
            Step::new(
                StepKind::Location,
                pattern.unwrap_or_default(),
                "the path is redirected to the one with a slash",
            )
        });
        let mut location = mount_prefix(request).to_owned();
        path::encode_onto(&mut location, path);
        location.push('/');
        if let Some(query) = request.query() {
            location.push('?');
            location.push_str(query);
        }
        let mut response = Response::new(match *request.method() {
            Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
            _ => StatusCode::PERMANENT_REDIRECT,
        });
        // The path is encoded and the query is visible ASCII, so that the value is valid.
        let _ = response.headers_mut().try_append("location", location);
        Some(response)
    }

    /// Whether an application that removes parameters, or takes `\` for a slash, reads a path of another location
    /// that has rules of its own.
    fn leads_to_closed_location(&self, path: &[u8], index: usize) -> bool {
        let Some(other) = path::reading_without_parameters(path) else {
            return false;
        };
        let found = self
            .matcher
            .find(&other)
            .filter(|(found, _)| *found != index);
        found
            .and_then(|(found, _)| self.locations.get(found))
            .is_some_and(|other| other.has_own_rules)
    }

    fn rewrite(&self, location: &LocationState, request: &mut Request) -> RewriteResult {
        rewrite::run(&location.rewrites, request, &self.name, &location.root)
    }

    /// Applies the settings of a location to a request and calls its handler.
    fn call_handler(
        &self,
        location: &LocationState,
        mut request: Request,
        captures: &Captures,
        route: &mut RequestRoute,
    ) -> FilesOutcome {
        // The changes of a location that redirected the request here do not apply.
        route.changes = self.resolve_changes(location, &request, captures);
        if location.body_limit > 0 {
            match request.body_mut().len() {
                Some(0) => {}
                Some(len) if len > location.body_limit => {
                    return Response::new(StatusCode::PAYLOAD_TOO_LARGE).into();
                }
                _ => request.limit_body(location.body_limit),
            }
        }
        // A request that is redirected internally gets its original fields back.
        let may_redirect = matches!(location.handler, WorkerHandler::Files { .. })
            && !location.request_fields.is_empty();
        let original = may_redirect.then(|| request.headers().clone());
        for change in &location.request_fields {
            if change.has_variables() {
                let change =
                    self.with_scope(location, &request, captures, |scope| change.resolve(scope));
                change.apply(request.headers_mut());
            } else {
                change.apply(request.headers_mut());
            }
        }
        match &location.handler {
            WorkerHandler::NotFound => Response::new(StatusCode::NOT_FOUND).into(),
            WorkerHandler::Return(handler) => {
                trace::note(&request, || {
                    Step::new(
                        StepKind::Handler,
                        handler.to_string(),
                        "the handler of the location",
                    )
                });
                self.with_scope(location, &request, captures, |scope| handler.respond(scope))
                    .into()
            }
            WorkerHandler::Files { name, files } => {
                trace::note(&request, || {
                    Step::new(StepKind::Handler, *name, "the handler of the location")
                });
                let mut handled = files.handle(request);
                if let (FilesOutcome::Rewritten(request), Some(headers)) = (&mut handled, original)
                {
                    *request.headers_mut() = headers;
                }
                handled
            }
            WorkerHandler::Service { name, service } => {
                route.compression = self
                    .compression
                    .map(|compression| EncodingNegotiation::of(&request, compression));
                trace::note(&request, || {
                    Step::new(StepKind::Handler, &**name, "the handler of the location")
                });
                FilesOutcome::Response(match route.compression {
                    Some(negotiation) => negotiation.call(service, request),
                    None => service.call(request),
                })
            }
        }
    }

    /// The changes of response fields, if they depend on the request.
    fn resolve_changes(
        &self,
        location: &LocationState,
        request: &Request,
        captures: &Captures,
    ) -> Option<Vec<FieldChange>> {
        location.has_variables.then(|| {
            self.with_scope(location, request, captures, |scope| {
                let changes = location.response_fields.iter();
                changes.map(|change| change.resolve(scope)).collect()
            })
        })
    }

    fn with_scope<T>(
        &self,
        location: &LocationState,
        request: &Request,
        captures: &Captures,
        then: impl FnOnce(&VariableScope<'_>) -> T,
    ) -> T {
        then(&VariableScope {
            request,
            path: request.normal_path().unwrap_or_default(),
            site: &self.name,
            root: &location.root,
            captures,
        })
    }

    fn location(&self, context: &RequestState) -> &LocationState {
        context
            .route
            .location
            .and_then(|index| self.locations.get(index))
            .unwrap_or(&self.default_location)
    }
}

impl LocationState {
    fn new(settings: &LocationSettings) -> Self {
        let root = settings.root.as_deref().unwrap_or(Path::new(""));
        Self {
            pattern: None,
            handler: WorkerHandler::NotFound,
            rewrites: settings.rewrites.clone(),
            request_fields: settings.request_fields.clone(),
            has_variables: settings
                .response_fields
                .iter()
                .any(FieldChange::has_variables),
            response_fields: settings.response_fields.clone(),
            has_captures: false,
            body_limit: settings.body_limit.unwrap_or(0),
            root: DocumentRoot {
                folder: OsStr::as_bytes(root.as_os_str()).into(),
                prefix: Box::default(),
            },
            error_pages: settings.error_pages.iter().cloned().collect(),
            intercepts_errors: settings.intercepts_errors.unwrap_or(false),
            accel: settings.accel.clone(),
            layers: settings.layers.clone().into(),
            is_internal: false,
            allows_encoded_slash: false,
            redirects_to_slash: false,
            has_own_rules: false,
        }
    }

    fn of_location(location: &Location, site: &Site) -> Self {
        let settings = site.settings.refined(&location.settings);
        let handler = match &location.handler {
            LocationHandler::Return(handler) => WorkerHandler::Return(handler.clone()),
            LocationHandler::Service { name, factory } => WorkerHandler::Service {
                name: name.clone(),
                service: factory.service(),
            },
            LocationHandler::Files(files) => WorkerHandler::Files {
                name: if files.runs_programs() {
                    "files and programs"
                } else {
                    "static files"
                },
                files: Box::new(with_response_fields(files, &settings, site).build()),
            },
        };
        let mut fields = (settings.request_fields.iter()).chain(&settings.response_fields);
        let has_captures = fields.any(FieldChange::has_captures)
            || matches!(&handler, WorkerHandler::Return(handler) if handler.has_captures());
        let mut state = Self {
            pattern: Some(location.pattern.clone()),
            handler,
            has_captures,
            is_internal: location.is_internal,
            allows_encoded_slash: location.allows_encoded_slash,
            redirects_to_slash: location.redirects_to_slash,
            has_own_rules: location.is_internal
                || !location.settings.layers.is_empty()
                || matches!(location.handler, LocationHandler::Return(_)),
            ..Self::new(&settings)
        };
        if let LocationHandler::Files(files) = &location.handler {
            state.root.prefix = files.prefix().into();
        }
        state
    }
}

/// Which paths run the script of a location, besides its own path.
fn script_use(location: &Location) -> ScriptUse {
    match &location.handler {
        LocationHandler::Return(_) => ScriptUse::None,
        // An index in an internal location is run for its folder, as the path of the client is another one.
        LocationHandler::Files(files) if files.runs_programs() && !location.is_internal => {
            ScriptUse::PathInfoAndFolder
        }
        _ => ScriptUse::PathInfo,
    }
}

/// The files with the field lines that every response gets, so that they are cached with the files.
fn with_response_fields(files: &Files, settings: &LocationSettings, site: &Site) -> Files {
    let mut files = files.clone();
    for change in &settings.response_fields {
        if let Some((name, value)) = change.as_static_line() {
            files = files.field(name, value);
        }
    }
    // Where clear text is redirected, all files are sent over TLS.
    if site.force_https.is_some()
        && let Some(hsts) = site.hsts.map(Hsts::value)
    {
        files = files.field(&header::STRICT_TRANSPORT_SECURITY, &hsts);
    }
    files
}

/// The response to a request whose path has no normal form.
fn invalid_path(request: &Request, error: InvalidPath) -> Response {
    trace::note(request, || {
        Step::new(StepKind::Location, "none", error.to_string())
    });
    Response::new(request.invalid_path_status())
}
