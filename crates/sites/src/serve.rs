//! A site at work on one worker: the steps from a request to its handler, in their order.

mod accel;
mod complete;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::path::{self, InvalidPath};
use apus_http::{
    Answer, HeaderValue, Request, Response, RouteInfo, Service, ServiceFactory, StatusCode, header,
};

use super::fields::{FieldChange, Hsts};
use super::location::{Matcher, Pattern};
use super::observe::{Observed, WorkerObserver};
use super::respond::Return;
use super::rewrite::{self, Rewrite, Rewritten};
use super::settings::{Accel, ErrorPage, Settings};
use super::site::{Handler, Location, Site};
use super::template::{Captures, Root, Scope};
use apus_compress::Compression;
use apus_compress::EncodingNegotiation;
use apus_error_page::{ErrorFormat, error_page};
use apus_files::{Files, FilesService, Handled};
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_layers::ForceHttps;

/// How often a request may be sent to another location before it is taken to go in a circle.
const MAX_REWRITES: usize = 10;

/// The service of a [`Site`].
#[derive(Clone)]
pub(super) struct SiteService(Rc<Inner>);

struct Inner {
    name: Arc<str>,
    matcher: Matcher,
    locations: Box<[Place]>,
    /// What holds where no location does.
    outside: Place,
    force_https: Option<ForceHttps>,
    hsts: Option<HeaderValue>,
    compression: Option<Compression>,
    observer: Option<Rc<dyn WorkerObserver>>,
    /// Whether an error page is another answer of the site, so that requests have to be kept.
    replays: bool,
    /// Whether services may have the site answer in their place.
    accelerates: bool,
}

/// A location, or the site outside of all locations, with all that holds there.
struct Place {
    pattern: Option<Pattern>,
    action: Action,
    rewrites: Vec<Rewrite>,
    request_fields: Vec<FieldChange>,
    response_fields: Vec<FieldChange>,
    /// Whether a response field depends on the request.
    has_variables: bool,
    body_limit: u64,
    root: Root,
    error_pages: HashMap<StatusCode, ErrorPage>,
    intercepts_errors: bool,
    accel: Option<Accel>,
    is_internal: bool,
    takes_encoded_slash: bool,
}

enum Action {
    NotFound,
    Return(Return),
    Files {
        name: &'static str,
        files: Box<FilesService>,
    },
    Service {
        name: Arc<str>,
        service: Rc<dyn Service>,
    },
}

/// What is kept of a request until its response is there.
struct Exchange {
    /// The location, unless none was found.
    location: Option<usize>,
    /// Whether the site itself sends the request where it goes.
    is_internal: bool,
    format: ErrorFormat,
    is_secure: bool,
    /// Changes of response fields that depend on the request, resolved.
    changes: Option<Vec<FieldChange>>,
    compression: Option<EncodingNegotiation>,
    observer: Option<Observed>,
    /// The request once more, for another answer of the site in the place of the one it gets.
    again: Option<Request>,
    trace: Option<Trace>,
}

impl SiteService {
    pub(super) fn new(site: &Site) -> Self {
        let locations: Box<[Place]> = site
            .locations
            .iter()
            .map(|location| Place::of_location(location, site))
            .collect();
        let outside = Place::new(&site.settings);
        let replays = locations.iter().chain([&outside]).any(|place| {
            let mut pages = place.error_pages.values();
            pages.any(|page| matches!(page, ErrorPage::Path(_)))
        });
        let accelerates = locations.iter().any(|place| place.accel.is_some());
        Self(Rc::new(Inner {
            name: site.name.clone(),
            matcher: Matcher::new(site.locations.iter().map(|location| &location.pattern)),
            locations,
            outside,
            force_https: site.force_https,
            hsts: site.hsts.and_then(Hsts::value),
            compression: site.compression,
            observer: site.observer.as_ref().map(|observer| observer.worker()),
            replays,
            accelerates,
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// Answers with an error, and lets those who watch the site know.
    pub(super) fn refuse(&self, request: &Request, status: StatusCode) -> Response {
        let mut response = error_page(request, status);
        if let Some(observed) = self.0.observe(request) {
            observed.hand_over(&mut response);
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
    fn call(&self, request: Request) -> Answer {
        let site = &self.0;
        let mut exchange = Exchange {
            location: None,
            is_internal: false,
            format: ErrorFormat::of(&request),
            is_secure: request.is_secure(),
            changes: None,
            compression: None,
            observer: site.observe(&request),
            again: site.kept(&request),
            trace: Trace::of(&request),
        };
        match site.route(request, &mut exchange) {
            Answer::Now(response) => site.complete(exchange, response),
            Answer::Later(response) => {
                let site = site.clone();
                Answer::later(async move {
                    let response = response.await;
                    site.complete(exchange, response).wait().await
                })
            }
        }
    }
}

impl Inner {
    fn observe(&self, request: &Request) -> Option<Observed> {
        Observed::begin(&**self.observer.as_ref()?, request)
    }

    /// From the request to the answer of its handler.
    fn route(&self, mut request: Request, exchange: &mut Exchange) -> Answer {
        if let Some(force) = &self.force_https
            && !request.is_secure()
        {
            trace::note(&request, || {
                Step::new(StepKind::Handler, "redirect to https", "force_https is set")
            });
            return force.redirect(&request).into();
        }
        if !self.outside.rewrites.is_empty()
            && let Rewritten::Answer(response) = self.rewrite(&self.outside, &mut request)
        {
            return response.into();
        }
        for _ in 0..MAX_REWRITES {
            let path = match request.normal_path() {
                Ok(path) => path,
                Err(error) => return refuse(&request, error).into(),
            };
            let Some((location, how)) = self.matcher.find(path) else {
                trace::note(&request, || {
                    Step::new(StepKind::Location, "none", "no location matches the path")
                });
                return Response::new(StatusCode::NOT_FOUND).into();
            };
            let Some(place) = self.locations.get(location) else {
                return Response::new(StatusCode::NOT_FOUND).into();
            };
            if !place.takes_encoded_slash
                && let Err(error) = request.plain_path()
            {
                return refuse(&request, error).into();
            }
            if place.is_internal && !exchange.is_internal {
                trace::note(&request, || {
                    Step::new(StepKind::Location, "none", "the location is internal")
                });
                return Response::new(StatusCode::NOT_FOUND).into();
            }
            exchange.location = Some(location);
            trace::note(&request, || {
                let pattern = place.pattern.as_ref().map(ToString::to_string);
                Step::new(
                    StepKind::Location,
                    pattern.unwrap_or_default(),
                    how.to_string(),
                )
            });
            let captures = match (&place.action, &place.pattern) {
                (Action::Return(answer), Some(pattern)) if answer.has_captures() => {
                    pattern.captures(path)
                }
                _ => Captures::default(),
            };
            if !place.rewrites.is_empty() {
                match self.rewrite(place, &mut request) {
                    Rewritten::No | Rewritten::Break => {}
                    Rewritten::Path => {
                        exchange.is_internal = true;
                        continue;
                    }
                    Rewritten::Answer(response) => return response.into(),
                }
            }
            match self.hand_over(place, request, &captures, exchange) {
                Handled::Answer(answer) => return answer,
                Handled::Elsewhere(other) => {
                    exchange.is_internal = true;
                    request = other;
                }
            }
        }
        tracing::error!(
            site = &*self.name,
            "rewrite rules or try_files send a request in a circle"
        );
        Response::new(StatusCode::INTERNAL_SERVER_ERROR).into()
    }

    fn rewrite(&self, place: &Place, request: &mut Request) -> Rewritten {
        rewrite::run(&place.rewrites, request, &self.name, &place.root)
    }

    /// To the handler of the location that was found.
    fn hand_over(
        &self,
        place: &Place,
        mut request: Request,
        captures: &Captures,
        exchange: &mut Exchange,
    ) -> Handled {
        if place.body_limit > 0 {
            match request.body_mut().len() {
                Some(0) => {}
                Some(len) if len > place.body_limit => {
                    return Response::new(StatusCode::PAYLOAD_TOO_LARGE).into();
                }
                _ => request.limit_body(place.body_limit),
            }
        }
        // What another location said before counts no more.
        exchange.changes = place.has_variables.then(|| {
            self.with_scope(place, &request, captures, |scope| {
                let changes = place.response_fields.iter();
                changes.map(|change| change.resolve(scope)).collect()
            })
        });
        // A request that goes on elsewhere has the fields there that it came with.
        let may_go_on =
            matches!(place.action, Action::Files { .. }) && !place.request_fields.is_empty();
        let original = may_go_on.then(|| request.headers().clone());
        for change in &place.request_fields {
            if change.has_variables() {
                let change =
                    self.with_scope(place, &request, captures, |scope| change.resolve(scope));
                change.apply(request.headers_mut());
            } else {
                change.apply(request.headers_mut());
            }
        }
        match &place.action {
            Action::NotFound => Response::new(StatusCode::NOT_FOUND).into(),
            Action::Return(answer) => {
                trace::note(&request, || {
                    Step::new(
                        StepKind::Handler,
                        answer.to_string(),
                        "the location says so",
                    )
                });
                self.with_scope(place, &request, captures, |scope| answer.respond(scope))
                    .into()
            }
            Action::Files { name, files } => {
                trace::note(&request, || {
                    Step::new(StepKind::Handler, *name, "the location says so")
                });
                let mut handled = files.handle(request);
                if let (Handled::Elsewhere(request), Some(headers)) = (&mut handled, original) {
                    *request.headers_mut() = headers;
                }
                handled
            }
            Action::Service { name, service } => {
                if let Some(compression) = self.compression {
                    exchange.compression = Some(EncodingNegotiation::of(&request, compression));
                }
                trace::note(&request, || {
                    Step::new(StepKind::Handler, &**name, "the location says so")
                });
                Handled::Answer(service.call(request))
            }
        }
    }

    fn with_scope<T>(
        &self,
        place: &Place,
        request: &Request,
        captures: &Captures,
        then: impl FnOnce(&Scope<'_>) -> T,
    ) -> T {
        then(&Scope {
            request,
            path: request.normal_path().unwrap_or_default(),
            site: &self.name,
            root: &place.root,
            captures,
        })
    }

    fn place(&self, exchange: &Exchange) -> &Place {
        exchange
            .location
            .and_then(|location| self.locations.get(location))
            .unwrap_or(&self.outside)
    }
}

impl Place {
    fn new(settings: &Settings) -> Self {
        let root = settings.root.as_deref().unwrap_or(Path::new(""));
        Self {
            pattern: None,
            action: Action::NotFound,
            rewrites: settings.rewrites.clone(),
            request_fields: settings.request_fields.clone(),
            has_variables: settings
                .response_fields
                .iter()
                .any(FieldChange::has_variables),
            response_fields: settings.response_fields.clone(),
            body_limit: settings.body_limit.unwrap_or(0),
            root: Root {
                folder: OsStr::as_bytes(root.as_os_str()).into(),
                prefix: Box::default(),
            },
            error_pages: settings.error_pages.iter().cloned().collect(),
            intercepts_errors: settings.intercepts_errors.unwrap_or(false),
            accel: settings.accel.clone(),
            is_internal: false,
            takes_encoded_slash: false,
        }
    }

    fn of_location(location: &Location, site: &Site) -> Self {
        let settings = site.settings.refined(&location.settings);
        let action = match &location.handler {
            Handler::Return(answer) => Action::Return(answer.clone()),
            Handler::Service { name, factory } => Action::Service {
                name: name.clone(),
                service: factory.service(),
            },
            Handler::Files(files) => Action::Files {
                name: match files.runs_programs() {
                    true => "files and programs",
                    false => "static files",
                },
                files: Box::new(with_fields(files, &settings, site).build()),
            },
        };
        let mut place = Self {
            pattern: Some(location.pattern.clone()),
            action,
            is_internal: location.is_internal,
            takes_encoded_slash: location.takes_encoded_slash,
            ..Self::new(&settings)
        };
        if let Handler::Files(files) = &location.handler {
            place.root.prefix = files.prefix().into();
        }
        place
    }
}

/// The files with the lines that every response gets, so that they are in memory with them.
fn with_fields(files: &Files, settings: &Settings, site: &Site) -> Files {
    let mut files = files.clone();
    for change in &settings.response_fields {
        if let Some((name, value)) = change.as_static_line() {
            files = files.field(name, value);
        }
    }
    // Where clear text is redirected, all files go over TLS.
    if site.force_https.is_some()
        && let Some(hsts) = site.hsts.and_then(Hsts::value)
    {
        files = files.field(&header::STRICT_TRANSPORT_SECURITY, &hsts);
    }
    files
}

/// The response to a request whose path has no normal form.
fn refuse(request: &Request, error: InvalidPath) -> Response {
    trace::note(request, || {
        Step::new(StepKind::Location, "none", error.to_string())
    });
    Response::new(path::refusal(request))
}
