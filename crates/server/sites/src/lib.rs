//! Virtual hosts (RFC 9110 section 7.4): sites, their locations, and what responds there.
//!
//! # A request
//!
//! 1. `site` finds the site by the host: exact name, `*.name`, `name.*`, regular expression, default. It responds 421
//!    if the certificate of the connection belongs to other sites.
//! 2. `serve` calls the other steps in this order, and `serve::route` is what is known of the request until its response
//!    is complete. `serve::locate` redirects clear text to `https`, applies the rules (`rules`, `serve::rules`), applies the rewrites (`rewrite`), and selects the
//!    location (`location`), in the order of nginx; a rewrite or `try_files` may begin this step again.
//!    During maintenance, `serve::maintenance` responds before that; the challenge of the site comes behind its rules.
//! 3. `template` and `variable` expand `$variable` in targets, fields and paths. (`${NAME}` of the environment is
//!    expanded in the file by apus-config.)
//! 4. `serve::layers` passes the request through the layers of the location.
//! 5. `serve::handler` calls the handler: files, a proxy, PHP, an application, or a fixed response (`respond`).
//!    `serve::accel` replaces a response with `X-Accel-Redirect` or `X-Sendfile`.
//! 6. `serve::complete` adds the fields of the site (`fields`), such as HSTS, and replaces the body of an error by its
//!    error page.
//!
//! `bot_sites` finds out before all this which bot a request is from.
//!
//! `preset` has the presets (for PHP applications: `preset::php`). `observe` tells the access log of the end of a
//! response, `site_metrics` counts it, and so does `traffic` while somebody watches.
//!
//! # Decisions
//!
//! - **Rules come before the location and the layers** (`rules`, `serve::rules`): those of the whole server, of the site, then
//!   of the location, so that they can choose it. What is known after the authentication is for rules of responses. Conditions
//!   of rewrites are tests of files (`rewrite`).
//! - **A request has one `RequestRoute`**, which the part of the site that has the request and the part that completes
//!   the response own together. Layers may keep a request, or respond themselves at any time; before, each location with
//!   layers had a separate route around the route of the next one, and the response had to look for the innermost. Its
//!   memory is used by the next request, so that it costs no allocation where there are no layers.
//! - **Layers that only decide are called in a loop** (`serve::layers`): limits are gates of apus-handler. The request is not moved for them, they have no `Next`
//!   and no future, and what they do to the response stands in the `RequestRoute` until it is complete. As any other layer, a limit was two thousand
//!   instructions of a request.
//! - **Responses of the site itself have the fields of its handlers**, and pass the layers that change only fields
//!   (`respond_itself`): redirects to `https` or to the path with a slash, 400 and 404. Layers that may reject a request
//!   do not see them, as in nginx, where rewriting comes before access rules.
//! - **Requests are counted by client and path only while somebody watches** (`traffic`): otherwise a request reads one flag, which
//!   nobody writes. Then each worker counts in its own tables, and takes their lock, for which only a reader may make it wait.
//! - **A variable has one definition** (`variable`) for templates and log formats. `docs/variables.md` is made of it,
//!   and of what is known at the end of a response (`crates/server/access-log/src/format.rs`).
//!
//! # Tests
//!
//! `tests/it`, by topic: `routing`, `rewrite`, `own_responses`, `error_pages`, `layers`, `accel`.

#![forbid(unsafe_code)]

#[cfg(feature = "bots")]
mod bot_sites;
mod fields;
mod forwarded_streams;
mod location;
mod observe;
mod preset;
mod request_counter;
mod respond;
mod rewrite;
mod rules;
mod serve;
mod settings;
mod site;
mod site_metrics;
mod template;
mod traffic;
mod variable;

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus_http::{
    Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
    TrustedProxies,
};

pub use apus_access::{BanResult, Bans, Glitches};
pub use apus_layers::{
    BrowserChallenge, ChallengeKey, ChallengeLevel, ChallengeStates, ForceHttps, Hsts, Maintenance,
    MaintenanceState, MaintenanceSwitch,
};
pub use apus_patterns::{InvalidServerName, ServerName};
pub use fields::{FieldChange, InvalidChange};
pub use location::{InvalidLocationPattern, LocationPattern};
pub use observe::{Observer, OnCompletion, RequestObservation, WorkerObserver};
pub use preset::{Preset, UnknownPreset};
pub use respond::{InvalidReturn, ReturnHandler};
pub use rewrite::{
    FileCondition, InvalidFileCondition, InvalidRewrite, RewriteFlag, RewriteRule, UnknownFlag,
};
pub use rules::{InvalidRule, Rule, RuleAction, RuleCount, RuleCounters, Rules};
pub use settings::{AccelSettings, ErrorPage, LocationSettings};
pub use site::{Location, Site};
pub use site_metrics::{SITE_METRICS, SiteActivity, SiteMetrics, SiteRequests, SiteTotals};
pub use template::{InvalidTemplate, Template, TryFilesTemplate};
pub use traffic::{TrafficClient, TrafficCounts, TrafficPath, TrafficReading, TrafficWatch};
pub use variable::{RequestVariable, VariableDescription, VariableSink};

use apus_handler::error_page;
use apus_http::trace::{self, Step, StepKind, Trace};
use apus_patterns::{ServerNames, certificate_covers};
use forwarded_streams::until_banned;
use serve::SiteService;

/// The sites of one or more listeners; the host of a request selects one.
#[derive(Clone)]
pub struct Sites {
    sites: Arc<Vec<Site>>,
    names: Arc<ServerNames>,
    trusted_proxies: Arc<TrustedProxies>,
    bans: Option<Arc<Bans>>,
    glitches: Option<Arc<Glitches>>,
    #[cfg(feature = "bots")]
    bots: Option<apus_layers::Bots>,
    fallback: Option<usize>,
    /// Equal for clones, and unique otherwise: listeners that share their sites share the services
    /// of a worker too.
    identity: u64,
}

impl Default for Sites {
    fn default() -> Self {
        Self::new()
    }
}

impl Sites {
    /// No sites.
    pub fn new() -> Self {
        Self {
            sites: Arc::default(),
            names: Arc::default(),
            trusted_proxies: Arc::default(),
            bans: None,
            glitches: None,
            #[cfg(feature = "bots")]
            bots: None,
            fallback: None,
            identity: fresh_identity(),
        }
    }

    /// Adds a site.
    ///
    /// # Errors
    /// Another site has one of its names.
    pub fn site(mut self, site: Site) -> Result<Self, NameTaken> {
        let index = self.sites.len();
        for name in &site.server_names {
            if let Err(owner) = Arc::make_mut(&mut self.names).insert(name, index) {
                return Err(NameTaken {
                    name: name.to_string(),
                    owner: self.sites.get(owner).map_or("", Site::name).to_owned(),
                    other: site.name().to_owned(),
                });
            }
        }
        Arc::make_mut(&mut self.sites).push(site);
        self.identity = fresh_identity();
        Ok(self)
    }

    /// Trusts the fields of these proxies about the client. By default no proxy is trusted.
    #[must_use]
    pub fn trusted_proxies(mut self, trusted: TrustedProxies) -> Self {
        self.trusted_proxies = Arc::new(trusted);
        self.identity = fresh_identity();
        self
    }

    /// Responds with 403 to banned clients, and ends their connections. The client behind a trusted proxy counts.
    #[must_use]
    pub fn bans(mut self, bans: Arc<Bans>) -> Self {
        self.bans = Some(bans);
        self.identity = fresh_identity();
        self
    }

    /// Counts error responses (400 to 499) as glitches of the client, whom trusted proxies name.
    #[must_use]
    pub fn glitches(mut self, glitches: Arc<Glitches>) -> Self {
        self.glitches = Some(glitches);
        self.identity = fresh_identity();
        self
    }

    /// Adds a site that also serves hosts without a site. Without one, the first site does.
    pub fn fallback(mut self, site: Site) -> Result<Self, NameTaken> {
        self.fallback = Some(self.sites.len());
        self.site(site)
    }
}

fn fresh_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sites.iter()).finish()
    }
}

/// Two sites have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTaken {
    /// The name.
    pub name: String,
    /// The site that has it already.
    pub owner: String,
    /// The site that was added.
    pub other: String,
}

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the sites {} and {} are both named {} on one listener",
            self.owner, self.other, self.name
        )
    }
}

impl std::error::Error for NameTaken {}

impl ServiceFactory for Sites {
    fn service(&self) -> Rc<dyn Service> {
        thread_local! {
            static LIVE: RefCell<Vec<(u64, Weak<SitesService>)>> = const { RefCell::new(Vec::new()) };
        }
        let live = LIVE.with_borrow_mut(|live| {
            live.retain(|(_, service)| service.strong_count() > 0);
            let known = live.iter().find(|(identity, _)| *identity == self.identity);
            known.and_then(|(_, service)| service.upgrade())
        });
        if let Some(service) = live {
            return self.behind_bots(service);
        }
        let service = Rc::new(SitesService {
            trusted_proxies: Arc::clone(&self.trusted_proxies),
            bans: self.bans.clone(),
            names: self.names.clone(),
            sites: self
                .sites
                .iter()
                .map(|site| SiteService::new(site, self.bans.clone(), self.glitches.clone()))
                .collect(),
            fallback: self.fallback.unwrap_or(0),
        });
        LIVE.with_borrow_mut(|live| live.push((self.identity, Rc::downgrade(&service))));
        self.behind_bots(service)
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.sites.iter().try_for_each(|site| site.check())
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.sites.iter().flat_map(|site| site.routes()).collect()
    }
}

#[cfg(not(feature = "bots"))]
impl Sites {
    fn behind_bots(&self, sites: Rc<SitesService>) -> Rc<dyn Service> {
        sites
    }
}

/// The response to a banned client, which is in no access log.
#[cold]
pub(crate) fn refuse_banned(request: &Request, bans: &Bans) -> Response {
    trace::note(request, || {
        Step::new(StepKind::Site, "none", "the client is banned")
    });
    bans.count_refused_request();
    let mut response = error_page(request, StatusCode::FORBIDDEN);
    // The connection of a proxy has other clients, too.
    if !request.is_forwarded() {
        response.set_ends_connection();
    }
    response
}

struct SitesService {
    trusted_proxies: Arc<TrustedProxies>,
    bans: Option<Arc<Bans>>,
    names: Arc<ServerNames>,
    sites: Box<[SiteService]>,
    fallback: usize,
}

impl Service for SitesService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        match self.admit(&mut request) {
            Some(refusal) => refusal.into(),
            None => self.select(request),
        }
    }
}

impl SitesService {
    /// Establishes the client; the response to one that is banned.
    #[inline]
    fn admit(&self, request: &mut Request) -> Option<Response> {
        self.trusted_proxies.establish(request);
        // A client behind a proxy, or one that was banned after it connected.
        if let Some(bans) = &self.bans
            && bans.has_any()
            && request.client().ip.is_some_and(|ip| bans.is_banned(ip))
        {
            return Some(refuse_banned(request, bans));
        }
        None
    }

    /// Passes a request to its site.
    #[inline]
    fn select(&self, request: Request) -> ResponseFuture {
        if let Some(bans) = &self.bans
            && request.is_forwarded()
            && let Some(client) = request.client().ip
        {
            let bans = Arc::clone(bans);
            return self
                .select_site(request)
                .map(move |response| until_banned(response, bans, client));
        }
        self.select_site(request)
    }

    #[inline]
    fn select_site(&self, mut request: Request) -> ResponseFuture {
        if let [only] = &*self.sites
            && request.connection().tls.is_none()
            && Trace::of(&request).is_none()
        {
            // There is one site, and no trace.
            return only.call(request);
        }
        let host = request.host().unwrap_or("");
        if let Some(tls) = &request.connection().tls
            && !host.is_empty()
            && !tls.certificate_names.is_empty()
            && !certificate_covers(&tls.certificate_names, host)
        {
            trace::note(&request, || {
                Step::new(
                    StepKind::Site,
                    "none",
                    format!("the certificate of the connection is not for {host}"),
                )
            });
            let status = StatusCode::MISDIRECTED_REQUEST;
            // The request is logged with the fallback site.
            return match self.sites.get(self.fallback) {
                Some(site) => site.error_response(&mut request, status).into(),
                None => error_page(&request, status).into(),
            };
        }
        let found = self.names.find(host);
        let index = found.map_or(self.fallback, |(site, _)| site);
        let Some(site) = self.sites.get(index) else {
            return error_page(&request, StatusCode::NOT_FOUND).into();
        };
        trace::note(&request, || {
            let why = match found {
                Some((_, how)) => format!("{host} is {how}"),
                None => format!("no site is named {host}; this one serves all other hosts"),
            };
            Step::new(StepKind::Site, site.name(), why)
        });
        site.call(request)
    }
}
