//! The definition of a site: its names, its locations and their settings.

use std::fmt;
use std::sync::{Arc, OnceLock};

use apus_conditions::{Condition, RequestLimits, RequestMaps};
use apus_http::{RecordedLocation, RecordedSite, RequestRecords, ServiceFactory};
use apus_layers::ForceHttps;

use super::location::LocationPattern;
use super::observe::Observer;
use super::respond::ReturnHandler;
use super::rules::Rules;
use super::settings::LocationSettings;
use super::site_metrics::SiteMetrics;
use super::traffic::TrafficWatch;
use apus_compress::Compression;
use apus_files::Files;
use apus_layers::{BrowserChallenge, Hsts, Maintenance};
use apus_patterns::ServerName;

/// A virtual host: its names, its locations, and the settings for all of them.
#[derive(Clone)]
pub struct Site {
    pub(super) name: Arc<str>,
    pub(super) server_names: Vec<ServerName>,
    pub(super) locations: Vec<Location>,
    pub(super) settings: LocationSettings,
    pub(super) force_https: Option<ForceHttps>,
    pub(super) maintenance: Option<Maintenance>,
    pub(super) challenge: Option<BrowserChallenge>,
    pub(super) hsts: Option<Hsts>,
    pub(super) compression: Option<Compression>,
    pub(super) compress_when: Option<Condition>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) observed_when: Option<Condition>,
    pub(super) traffic: Option<TrafficWatch>,
    pub(super) metrics: Option<SiteMetrics>,
    pub(super) records: Option<RequestRecords>,
    /// What records need of the site, made for the first service.
    recorded: Arc<OnceLock<Arc<RecordedSite>>>,
    pub(super) rules: Vec<Rules>,
    pub(super) maps: Option<RequestMaps>,
    pub(super) limits: Option<RequestLimits>,
}

/// A location of a site and its handler.
#[derive(Clone)]
pub struct Location {
    pub(super) pattern: LocationPattern,
    pub(super) handler: LocationHandler,
    pub(super) settings: LocationSettings,
    pub(super) is_internal: bool,
    pub(super) allows_encoded_slash: bool,
    pub(super) redirects_to_slash: bool,
    pub(super) rules: Option<Rules>,
}

#[derive(Clone)]
pub(super) enum LocationHandler {
    Return(ReturnHandler),
    Files(Box<Files>),
    Service {
        name: Arc<str>,
        factory: Arc<dyn ServiceFactory>,
    },
}

impl Site {
    /// A site without locations; the name is for logs.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            server_names: Vec::new(),
            locations: Vec::new(),
            settings: LocationSettings::new(),
            force_https: None,
            maintenance: None,
            challenge: None,
            hsts: None,
            compression: None,
            compress_when: None,
            observer: None,
            observed_when: None,
            traffic: None,
            metrics: None,
            records: None,
            recorded: Arc::default(),
            rules: Vec::new(),
            maps: None,
            limits: None,
        }
    }

    /// The name in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a name by which requests find the site.
    #[must_use]
    pub fn server_name(mut self, name: ServerName) -> Self {
        self.server_names.push(name);
        self
    }

    /// Adds a location; one for the same paths that was added before is replaced.
    #[must_use]
    pub fn location(mut self, location: Location) -> Self {
        self.locations
            .retain(|other| !other.pattern.is_same(&location.pattern));
        self.recorded = Arc::default();
        self.locations.push(location);
        self
    }

    /// The settings for the whole site.
    #[must_use]
    pub fn settings(mut self, settings: LocationSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Redirects clear-text requests to `https`.
    #[must_use]
    pub fn force_https(mut self, force: ForceHttps) -> Self {
        self.force_https = Some(force);
        self
    }

    /// Responds with 503 to all requests during maintenance.
    #[must_use]
    pub fn maintenance(mut self, maintenance: Maintenance) -> Self {
        self.maintenance = Some(maintenance);
        self
    }

    /// Challenges browsers, behind the rules of the site. Its clearances are for the name of the site.
    #[must_use]
    pub fn challenge(mut self, challenge: BrowserChallenge) -> Self {
        self.challenge = Some(challenge.site(&self.name));
        self
    }

    /// Sends `Strict-Transport-Security` over TLS.
    #[must_use]
    pub fn hsts(mut self, hsts: Hsts) -> Self {
        self.hsts = Some(hsts);
        self
    }

    /// Compresses responses of services; files have [`Files::compression`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Compresses only responses, also of files, for which a condition holds. It may be about the user and about the status, the fields,
    /// the type and the length of the response. With a condition that is about the request alone, the handlers of others get no
    /// `Accept-Encoding`.
    #[must_use]
    pub fn compress_when(mut self, condition: Condition) -> Self {
        self.compress_when = Some(condition);
        self
    }

    /// Adds rules that are asked before the location is looked for, behind those that were added before.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules.push(rules);
        self
    }

    /// Sets the maps whose values conditions, variables and keys of limits may have.
    #[must_use]
    pub fn maps(mut self, maps: RequestMaps) -> Self {
        self.maps = Some(maps);
        self
    }

    /// Sets the limits whose state conditions may ask for. They limit nothing here: limits are layers of locations.
    #[must_use]
    pub fn limits(mut self, limits: RequestLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// The service factories of its locations.
    pub(super) fn factories(&self) -> impl Iterator<Item = &dyn ServiceFactory> {
        let handlers = self.locations.iter().map(|location| &location.handler);
        handlers.filter_map(|handler| match handler {
            LocationHandler::Service { factory, .. } => Some(&**factory),
            LocationHandler::Return(_) | LocationHandler::Files(_) => None,
        })
    }

    /// Sets the observer of the site's requests.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Limits the observer to the requests for which a condition holds, which may be about the response, too. Requests that end before
    /// there is one are observed then.
    #[must_use]
    pub fn observed_when(mut self, condition: Condition) -> Self {
        self.observed_when = Some(condition);
        self
    }

    /// Counts the site's requests there while somebody watches, whether the observer sees them or not.
    #[must_use]
    pub fn traffic(mut self, watch: &TrafficWatch) -> Self {
        self.traffic = Some(watch.clone());
        self
    }

    /// Records what happens to the last requests of the site, for `apus explain --id`.
    #[must_use]
    pub fn records(mut self, records: &RequestRecords) -> Self {
        self.records = Some(records.clone());
        self
    }

    /// What records need of the site.
    pub(super) fn recorded(&self) -> &Arc<RecordedSite> {
        self.recorded.get_or_init(|| {
            let locations = self.locations.iter().map(|location| RecordedLocation {
                pattern: location.pattern.to_string().into(),
                handler: match &location.handler {
                    LocationHandler::Return(_) => "return".into(),
                    LocationHandler::Files(_) => "files".into(),
                    LocationHandler::Service { name, .. } => Arc::clone(name),
                },
            });
            Arc::new(RecordedSite {
                name: Arc::clone(&self.name),
                locations: locations.collect(),
            })
        })
    }

    /// Counts the site's requests for metrics.
    #[must_use]
    pub fn metrics(mut self, metrics: &SiteMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("name", &self.name)
            .field("server_names", &self.server_names)
            .field("locations", &self.locations)
            .finish_non_exhaustive()
    }
}

impl Location {
    /// A location with a service. `name` is what `apus explain` calls it.
    pub fn service(
        pattern: LocationPattern,
        name: &str,
        factory: impl ServiceFactory + 'static,
    ) -> Self {
        Self {
            pattern,
            handler: LocationHandler::Service {
                name: name.into(),
                factory: Arc::new(factory),
            },
            settings: LocationSettings::new(),
            is_internal: false,
            allows_encoded_slash: false,
            redirects_to_slash: false,
            rules: None,
        }
    }

    /// A location of static files.
    pub fn files(pattern: LocationPattern, files: Files) -> Self {
        Self {
            pattern,
            handler: LocationHandler::Files(Box::new(files)),
            settings: LocationSettings::new(),
            is_internal: false,
            allows_encoded_slash: false,
            redirects_to_slash: false,
            rules: None,
        }
    }

    /// A location with a `return` handler.
    pub fn respond(pattern: LocationPattern, handler: ReturnHandler) -> Self {
        Self {
            pattern,
            handler: LocationHandler::Return(handler),
            settings: LocationSettings::new(),
            is_internal: false,
            allows_encoded_slash: false,
            redirects_to_slash: false,
            rules: None,
        }
    }

    /// The settings of the location, which refine the settings of the site.
    #[must_use]
    pub fn settings(mut self, settings: LocationSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Allows paths with an encoded slash, which get 400 otherwise: for services that forward paths
    /// unchanged to applications for which `%2F` is not a slash. Locations are matched as if it were one.
    ///
    /// Such an application may also remove parameters behind `;`, or take `\` for a slash. A path gets 400 if that leads
    /// to another location that has layers, is internal, or has a fixed response.
    #[must_use]
    pub fn allow_encoded_slash(mut self) -> Self {
        self.allows_encoded_slash = true;
        self
    }

    /// Redirects the path of the location's prefix without its slash to the one with it, for prefixes that end with a slash:
    /// by a 301 for GET and HEAD, by a 308 for other methods. A location with exactly that path takes precedence.
    #[must_use]
    pub fn redirect_to_slash(mut self) -> Self {
        self.redirects_to_slash = true;
        self
    }

    /// Sets the rules that are asked in the location, behind those of the site.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Limits the location to internal redirects: by a rewrite, `try_files`, an error page or
    /// `X-Accel-Redirect`. Clients get 404.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.is_internal = true;
        self
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location")
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}
