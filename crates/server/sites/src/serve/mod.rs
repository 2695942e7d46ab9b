//! The service of a site on one worker: the steps of a request, from the rules of the site to the last field of its response.

mod accel;
mod complete;
mod compress_when;
mod handler;
mod layers;
mod locate;
mod location_state;
mod maintenance;
mod route;
mod rules;

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_access::{Bans, Glitches};
use apus_compress::Compression;
use apus_conditions::{
    Condition, FactKind, FactStage, RequestFacts, RequestLimits, RequestMaps, RequestVariables,
};
use apus_files::FilesOutcome;
use apus_handler::error_page::error_page;
use apus_handler::panic::poll_caught;
use apus_handler::rendering::ErrorRules;
use apus_http::fields::PageLanguage;
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_http::{
    ErrorFormat, RemoteUserSlot, Request, Response, ResponseCount, ResponseFuture, RouteInfo,
    Service, ServiceFactory, StatusCode, Version,
};
use apus_layers::{BrowserChallenge, ForceHttps, HstsField, Maintenance};

use super::location::LocationMatcher;
use super::observe::{ConditionalObserver, RequestObservation, WorkerObserver};
use super::request_counter::RequestCounter;
use super::rules::{Hold, WorkerRules};
use super::settings::ErrorPage;
use super::site::Site;
use super::template::Captures;
use super::traffic::{TrafficWatch, WorkerTraffic};
use compress_when::CompressWhen;
use layers::GateWalk;
use locate::LocationSearch;
use location_state::{LocationState, script_use};
use route::{RequestRoute, SpareRoutes};

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
    maintenance: Option<Maintenance>,
    challenge: Option<BrowserChallenge>,
    /// The page of its own that responses during maintenance have.
    maintenance_page: Option<ErrorPage>,
    hsts: Option<HstsField>,
    compression: Option<Compression>,
    compress_when: Option<CompressWhen>,
    observer: Option<Rc<dyn WorkerObserver>>,
    traffic: Option<WorkerTraffic>,
    counter: Option<RequestCounter>,
    /// For which requests the observer is called, if that is known only with their responses.
    observed_when: Option<Condition>,
    /// Whether layers may find users, and the observer needs them.
    observes_users: bool,
    /// Whether the observer needs the variables that rules set.
    observes_variables: bool,
    maps: Option<RequestMaps>,
    limits: Option<RequestLimits>,
    /// Whether requests get a place for their user or variables, or maps or limits.
    has_extensions: bool,
    /// Whether an error page is a path of the site, which needs a copy of the request.
    has_error_page_paths: bool,
    /// Whether `X-Accel-Redirect` of a service is followed, which needs a copy of the request.
    has_accel: bool,
    /// Whether the path of a prefix without its slash is redirected in any location.
    has_slash_redirects: bool,
    /// The rules that come before the location: of the whole server, and of the site.
    rules: Box<[WorkerRules]>,
    /// Whether there are rules, here or in a location.
    has_rules: bool,
    /// Whether there is a rule or a challenge before the location, or a copy of the request has to be made.
    has_first_steps: bool,
    /// Whether there is a rule for responses or a challenge, which need a copy of the request.
    has_last_steps: bool,
    /// How layers make responses to errors.
    layer_errors: ErrorRules,
    spare_routes: SpareRoutes,
    /// Where rules ban clients.
    bans: Option<Arc<Bans>>,
    /// Where error responses are counted.
    glitches: Option<Arc<Glitches>>,
}

/// The state of a request until its response is complete.
struct RequestState {
    route: Rc<RequestRoute>,
    /// The client whose error responses are counted.
    client: Option<IpAddr>,
    /// The format of errors that the client prefers.
    error_format: Option<ErrorFormat>,
    /// The language of the default error page, for a client that prefers HTML.
    language: Option<PageLanguage>,
    is_secure: bool,
    observation: Option<RequestObservation>,
    count: Option<ResponseCount>,
    trace: Option<Trace>,
    /// When the request began, if there are rules for responses, or a challenge, that were not asked yet.
    rules_since: Option<Instant>,
}

impl SiteService {
    pub(super) fn new(
        site: &Site,
        bans: Option<Arc<Bans>>,
        glitches: Option<Arc<Glitches>>,
    ) -> Self {
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
        let mut observer = site.observer.as_ref().map(|observer| observer.worker());
        let mut observed_when = site.observed_when.clone();
        if let (Some(observer), Some(condition)) = (
            &mut observer,
            observed_when.take_if(|condition| is_known_at_arrival(condition)),
        ) {
            *observer = Rc::new(ConditionalObserver {
                condition,
                observer: Rc::clone(observer),
            });
        }
        let observes_variables = observer
            .as_ref()
            .is_some_and(|observer| observer.needs_variables());
        let has_layers = |location: &LocationState| !location.layers.is_empty();
        let rules: Box<[WorkerRules]> = site.rules.iter().map(WorkerRules::new).collect();
        let has_rules =
            !rules.is_empty() || locations.iter().any(|location| !location.rules.is_empty());
        let mut all_rules = locations.iter().flat_map(|location| location.rules.iter());
        let has_response_rules = rules.iter().any(WorkerRules::are_for_responses)
            || all_rules.any(WorkerRules::are_for_responses);
        let is_logged = observer
            .as_ref()
            .is_some_and(|observer| observer.needs_user());
        // Rules for responses may ask for the user, too.
        let observes_users = (is_logged || has_response_rules)
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
            has_first_steps: !rules.is_empty()
                || has_response_rules
                || site.challenge.is_some()
                || observed_when.is_some(),
            has_last_steps: has_response_rules
                || site.challenge.is_some()
                || observed_when.is_some(),
            observed_when,
            maintenance: site.maintenance.clone(),
            challenge: site.challenge.clone(),
            maintenance_page: site
                .maintenance
                .as_ref()
                .and_then(|maintenance| maintenance.page_path())
                .map(|path| ErrorPage::Path(path.to_owned())),
            hsts: site.hsts.map(HstsField::from),
            compression: site.compression,
            compress_when: site.compress_when.clone().map(CompressWhen::new),
            observer,
            traffic: site.traffic.as_ref().map(TrafficWatch::worker),
            counter: RequestCounter::of(
                site.metrics.as_ref().map(|metrics| {
                    let patterns = site.locations.iter();
                    let patterns = patterns.map(|location| location.pattern.to_string());
                    metrics.worker(&site.name, patterns)
                }),
                (site.records.as_ref()).and_then(|records| records.recorder(site.recorded())),
            ),
            observes_users,
            observes_variables,
            has_extensions: observes_users
                || observes_variables
                || site.maps.is_some()
                || site.limits.is_some(),
            maps: site.maps.clone(),
            limits: site.limits.clone(),
            has_error_page_paths,
            has_accel,
            has_slash_redirects,
            rules,
            has_rules,
            layer_errors: ErrorRules {
                is_deferred: true,
                ..ErrorRules::default()
            },
            spare_routes: SpareRoutes::default(),
            bans,
            glitches,
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// The error page for a request, which the observer of the site sees too.
    pub(super) fn error_response(&self, request: &mut Request, status: StatusCode) -> Response {
        let mut response = error_page(request, status);
        if let Some(observation) = self.0.observe(request) {
            observation.attach(&mut response);
        }
        if let (Some(counter), Some(count)) = (&self.0.counter, self.0.count(request)) {
            counter.attach(count, None, &mut response);
        }
        response
    }
}

impl ServiceFactory for Site {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(SiteService::new(self, None, None))
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
        let count = site.count(&mut request);
        if let Some(maintenance) = &site.maintenance
            && let Some(response) = maintenance.response(&request)
        {
            return site.respond_in_maintenance(request, response, count);
        }
        if site.has_extensions {
            site.add_extensions(&mut request);
        }
        let redirect_copy = site.redirect_copy(&request);
        let context = RequestState {
            route: (site.spare_routes).begin(|route| route.redirect_copy.set(redirect_copy)),
            client: counted_client(&request),
            error_format: request.error_format(),
            language: request.error_page_language(),
            is_secure: request.is_secure(),
            observation: site.observe(&request),
            count,
            trace: Trace::of(&request),
            rules_since: site.rules_since(),
        };
        match site.respond(request, &context.route) {
            ResponseFuture::Now(response) => site.complete(context, response),
            ResponseFuture::Later(mut response) => {
                let site = site.clone();
                ResponseFuture::later(async move {
                    // Gates change the response to a panic, too.
                    let response = poll_fn(|cx| {
                        if context.route.has_gates() {
                            poll_caught(&mut response, cx)
                        } else {
                            response.as_mut().poll(cx)
                        }
                    });
                    let response = response.await;
                    site.complete(context, response).wait().await
                })
            }
        }
    }
}

impl SiteState {
    /// Gives a request what is found through it.
    fn add_extensions(&self, request: &mut Request) {
        if self.observes_users {
            request.extensions_mut().insert(RemoteUserSlot::default());
        }
        if self.observes_variables {
            RequestVariables::attach(request);
        }
        if let Some(limits) = &self.limits {
            limits.attach(request);
        }
        if let Some(maps) = &self.maps {
            maps.attach(request);
            if Trace::of(request).is_some() {
                note_maps(maps, request);
            }
        }
    }

    #[inline]
    fn observe(&self, request: &Request) -> Option<RequestObservation> {
        match &self.traffic {
            Some(traffic) if traffic.is_on() => Some(self.observe_counted(request, traffic)),
            _ => RequestObservation::begin(&**self.observer.as_ref()?, request),
        }
    }

    /// Begins to count a request. An explanation is no request of a client.
    #[inline]
    fn count(&self, request: &mut Request) -> Option<ResponseCount> {
        let counter = self.counter.as_ref()?;
        Trace::of(request).is_none().then(|| counter.begin(request))
    }

    /// Observes a request while somebody watches the traffic.
    #[cold]
    fn observe_counted(&self, request: &Request, traffic: &WorkerTraffic) -> RequestObservation {
        let count = traffic.begin(&self.name, request);
        RequestObservation::counted(self.observer.as_deref(), request, count)
    }

    /// The response to a request, before [`Self::complete`] gives it error pages and the fields of the site.
    fn respond(self: &Rc<Self>, mut request: Request, route: &Rc<RequestRoute>) -> ResponseFuture {
        let response = self.apply_site_rules(&mut request, route);
        let delay = self.take_delay(route);
        if !delay.is_zero() {
            return self.respond_after(request, delay, (response, route));
        }
        self.respond_behind_rules(request, response, route)
    }

    fn respond_behind_rules(
        self: &Rc<Self>,
        request: Request,
        response: Option<Response>,
        route: &Rc<RequestRoute>,
    ) -> ResponseFuture {
        match response {
            Some(response) => {
                route.location.set(None);
                self.respond_itself(request, response, route)
            }
            None => self.visit_locations(request, route),
        }
    }

    /// Holds a request as rules before its location say.
    #[cold]
    fn respond_after(
        self: &Rc<Self>,
        request: Request,
        delay: Duration,
        (response, route): (Option<Response>, &Rc<RequestRoute>),
    ) -> ResponseFuture {
        let hold = match Hold::begin(&request) {
            Ok(hold) => hold,
            Err(refusal) => return self.respond_behind_rules(request, Some(*refusal), route),
        };
        let (site, route) = (Rc::clone(self), Rc::clone(route));
        ResponseFuture::later(async move {
            hold.wait(delay).await;
            let response = site.respond_behind_rules(request, response, &route);
            response.wait().await
        })
    }

    /// Sends a request to its location, and to those that it is redirected to, until there is a response.
    fn visit_locations(
        self: &Rc<Self>,
        mut request: Request,
        route: &Rc<RequestRoute>,
    ) -> ResponseFuture {
        while route.count_visit() {
            let found = self.find_location(&mut request, route);
            let delay = self.take_delay(route);
            if !delay.is_zero() {
                return self.continue_after(request, delay, (found, route));
            }
            let captures = match found {
                LocationSearch::Found(captures) => captures,
                LocationSearch::Again => continue,
                LocationSearch::Response(response) => {
                    return self.respond_itself(request, response, route);
                }
            };
            if self.has_layers(route) {
                match self.enter_layers(&mut request, &captures, route) {
                    GateWalk::Passed => {}
                    // Behind other layers `call_behind_layers` continues with the handler.
                    walk => return self.follow_gates(walk, request, (captures, route)),
                }
            }
            match self.call_handler(request, &captures, route) {
                FilesOutcome::Response(response) => return response,
                FilesOutcome::Rewritten(redirected) => {
                    route.is_internal.set(true);
                    request = redirected;
                }
            }
        }
        tracing::error!(
            site = &*self.name,
            "rewrite rules or try_files redirect a request in a loop"
        );
        let response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        self.respond_itself(request, response, route)
    }

    /// Holds a request as the rules of its location say.
    #[cold]
    fn continue_after(
        self: &Rc<Self>,
        request: Request,
        delay: Duration,
        (found, route): (LocationSearch, &Rc<RequestRoute>),
    ) -> ResponseFuture {
        let hold = match Hold::begin(&request) {
            Ok(hold) => hold,
            Err(refusal) => return self.respond_itself(request, *refusal, route),
        };
        let (site, route) = (Rc::clone(self), Rc::clone(route));
        let mut request = request;
        ResponseFuture::later(async move {
            hold.wait(delay).await;
            let response = match found {
                LocationSearch::Again => site.visit_locations(request, &route),
                LocationSearch::Response(response) => {
                    site.respond_itself(request, response, &route)
                }
                LocationSearch::Found(captures) if site.has_layers(&route) => {
                    let walk = site.enter_layers(&mut request, &captures, &route);
                    site.follow_gates(walk, request, (captures, &route))
                }
                LocationSearch::Found(captures) => {
                    site.call_behind_rules(request, captures, &route)
                }
            };
            response.wait().await
        })
    }

    fn call_behind_rules(
        self: &Rc<Self>,
        request: Request,
        captures: Captures,
        route: &Rc<RequestRoute>,
    ) -> ResponseFuture {
        match self.call_handler(request, &captures, route) {
            FilesOutcome::Response(response) => response,
            FilesOutcome::Rewritten(redirected) => {
                route.is_internal.set(true);
                self.visit_locations(redirected, route)
            }
        }
    }

    /// Whether a request meets layers before the handler.
    fn has_layers(&self, route: &RequestRoute) -> bool {
        let has_any = !self.location(route).layers.is_empty()
            || self.has_rules && route.has_layers_of_rules();
        has_any && !route.skips_layers
    }

    /// The location of a request, or the site outside of all locations.
    fn location(&self, route: &RequestRoute) -> &LocationState {
        let location = route.location.get();
        location
            .and_then(|index| self.locations.get(index))
            .unwrap_or(&self.default_location)
    }
}

/// The client whose error responses are counted. What QUIC brings before its handshake is complete (early data, RFC 8470) may have
/// been sent in the name of another.
#[inline]
fn counted_client(request: &Request) -> Option<IpAddr> {
    if request.version() == Version::HTTP_3 && request.headers().get("early-data").is_some() {
        return None;
    }
    request.client().ip
}

/// Notes the values of the maps, for `apus explain`.
#[cold]
fn note_maps(maps: &RequestMaps, request: &Request) {
    let facts = RequestFacts::new(request);
    for name in maps.names() {
        trace::note(request, || {
            let what = match maps.value(name, &facts) {
                Some(value) => format!("map {name}: {value}"),
                None => format!("map {name} has no value"),
            };
            Step::new(StepKind::Variable, what, "for the request as it came")
        });
    }
}

/// Whether a condition is known before any rule was asked.
fn is_known_at_arrival(condition: &Condition) -> bool {
    let mut is_early = condition.stage() == FactStage::Request;
    // Rules set tags and variables, and change paths and fields that maps take values from.
    condition.each_fact(&mut |fact| {
        is_early &= !matches!(
            fact.kind(),
            FactKind::Tag | FactKind::MapValue | FactKind::RuleVariable
        );
    });
    is_early
}
