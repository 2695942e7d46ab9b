//! An application with its groups, laid out flat: all routes of a host in one router.

use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{RouteInfo, ServiceFactory};

use super::urls::NamedRoutes;
use super::{App, DEFAULT_BODY_LIMIT, Source, What};
use crate::router::{Endpoint, Pattern, RouteError, Router, Why};
use apus_handler::error::ErrorRules;
use apus_handler::function::AnyHandler;
use apus_handler::middleware::AnyMiddleware;
use apus_http::path;
use apus_patterns::{ServerName, ServerNames};

/// A flat application.
pub(super) struct Table {
    /// Around everything.
    pub(super) layers: Vec<Arc<dyn AnyMiddleware>>,
    /// The first is for all hosts.
    pub(super) hosts: Vec<Host>,
    pub(super) names_of_hosts: ServerNames,
    /// The first is the application itself.
    pub(super) groups: Vec<Group>,
    pub(super) named: NamedRoutes,
    pub(super) errors: Vec<RouteError>,
    /// Routes, and mounts with what is mounted.
    order: Vec<(RouteInfo, Option<Arc<dyn ServiceFactory>>)>,
}

/// What there is for a host.
#[derive(Default)]
pub(super) struct Host {
    name: Option<Rc<str>>,
    pub(super) router: Router,
    /// The longest path first.
    pub(super) mounts: Vec<Mount>,
    /// The longest path first.
    pub(super) fallbacks: Vec<Fallback>,
}

/// A service under a path.
pub(super) struct Mount {
    /// Without a slash at its end, in normal form.
    pub(super) path: Arc<str>,
    pub(super) service: Arc<dyn ServiceFactory>,
    pub(super) group: usize,
    at: &'static Location<'static>,
}

/// What answers under a path that nothing else does.
pub(super) struct Fallback {
    pub(super) path: Box<str>,
    pub(super) handler: Arc<dyn AnyHandler>,
    pub(super) group: usize,
}

/// What holds for the routes of a group.
pub(super) struct Group {
    pub(super) parent: Option<usize>,
    /// Of this group and those around it but the outermost, outermost first.
    pub(super) layers: Arc<[Arc<dyn AnyMiddleware>]>,
    pub(super) states: Vec<Source>,
    pub(super) body_limit: u64,
    pub(super) errors: ErrorRules,
}

/// Where an application is laid.
struct Spot<'a> {
    host: usize,
    prefix: &'a str,
    group: usize,
}

impl Table {
    pub(super) fn of(app: &App) -> Self {
        let mut table = Self {
            layers: app.layers.clone(),
            hosts: vec![Host::default()],
            names_of_hosts: ServerNames::default(),
            groups: vec![Group {
                parent: None,
                layers: Arc::new([]),
                states: app.states.clone(),
                body_limit: app.body_limit.unwrap_or(DEFAULT_BODY_LIMIT),
                errors: app.errors.clone(),
            }],
            named: NamedRoutes::default(),
            errors: Vec::new(),
            order: Vec::new(),
        };
        let spot = Spot {
            host: 0,
            prefix: "",
            group: 0,
        };
        table.lay(app, &spot);
        for host in &mut table.hosts {
            let longest = |path: &str| std::cmp::Reverse(path.len());
            host.mounts.sort_by_key(|mount| longest(&mount.path));
            host.fallbacks
                .sort_by_key(|fallback| longest(&fallback.path));
        }
        table
    }

    /// All routes and mounts, and behind each mount what is known of what it answers.
    pub(super) fn list(self) -> Vec<RouteInfo> {
        let mut listed = Vec::with_capacity(self.order.len());
        for (info, mounted) in self.order {
            let path = info
                .path
                .strip_suffix("/{*}")
                .unwrap_or_default()
                .to_owned();
            let host = info.host.clone();
            listed.push(info);
            let inner = mounted.iter().flat_map(|service| service.routes());
            listed.extend(inner.map(|inner| RouteInfo {
                path: format!("{path}{}", inner.path),
                host: inner.host.or_else(|| host.clone()),
                ..inner
            }));
        }
        listed
    }

    /// All that cannot be, also of what is mounted.
    pub(super) fn faults(self) -> Vec<RouteError> {
        let mut errors = self.errors;
        for mount in self.hosts.iter().flat_map(|host| &host.mounts) {
            if let Err(error) = mount.service.check() {
                let why = Why::Mounted(error.to_string());
                errors.push(RouteError::new(&mount.path, mount.at, why));
            }
        }
        errors
    }

    /// Adds what an application has.
    fn lay(&mut self, app: &App, spot: &Spot<'_>) {
        for item in &app.items {
            let added = match &item.what {
                What::Route {
                    method,
                    path,
                    name,
                    handler,
                } => {
                    let endpoint = Endpoint {
                        method: method.clone(),
                        handler: handler.clone(),
                        layers: self.layers_of(spot.group, handler.layers()),
                        scope: spot.group,
                        name: name.clone(),
                        at: item.at,
                    };
                    self.route(path, endpoint, spot)
                }
                What::Mount { path, service } => self.mount(path, service, spot, item.at),
                What::Group { prefix, app } => self.nest(prefix, app, spot, item.at),
                What::Host { name, app } => self.host(name, app, spot, item.at),
                What::Name(name) => Err(RouteError::new(name, item.at, Why::NameOfNothing)),
            };
            self.errors.extend(added.err());
        }
        if let (Some(handler), Some(host)) = (&app.fallback, self.hosts.get_mut(spot.host)) {
            host.fallbacks.push(Fallback {
                path: spot.prefix.into(),
                handler: handler.clone(),
                group: spot.group,
            });
        }
    }

    fn layers_of(
        &self,
        group: usize,
        own: Vec<Arc<dyn AnyMiddleware>>,
    ) -> Arc<[Arc<dyn AnyMiddleware>]> {
        let group = self.groups.get(group).map(|group| group.layers.clone());
        let group = group.unwrap_or_else(|| Arc::new([]));
        match own.is_empty() {
            true => group,
            false => group.iter().cloned().chain(own).collect(),
        }
    }

    fn route(&mut self, path: &str, endpoint: Endpoint, spot: &Spot<'_>) -> Result<(), RouteError> {
        let at = endpoint.at;
        let invalid = |error| RouteError::new(path, at, Why::Pattern(error));
        let pattern = Pattern::parse(path).and_then(|pattern| pattern.under(spot.prefix));
        let pattern = pattern.map_err(invalid)?;
        let Some(host) = self.hosts.get_mut(spot.host) else {
            return Ok(());
        };
        let info = RouteInfo {
            method: endpoint.method.clone(),
            path: pattern.as_str().to_owned(),
            host: host.name.as_deref().map(str::to_owned),
            name: endpoint.name.as_deref().map(str::to_owned),
            handler: endpoint.handler.name().to_owned(),
            at: at.to_string(),
        };
        let name = endpoint.name.clone();
        host.router.add(pattern.clone(), endpoint)?;
        self.order.push((info, None));
        match name {
            Some(name) => self.named.add(name, pattern, at),
            None => Ok(()),
        }
    }

    fn mount(
        &mut self,
        path: &str,
        service: &Arc<dyn ServiceFactory>,
        spot: &Spot<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let whole =
            join(spot.prefix, path).ok_or_else(|| RouteError::new(path, at, Why::NotNormal))?;
        let Some(host) = self.hosts.get_mut(spot.host) else {
            return Ok(());
        };
        if let Some(other) = host.mounts.iter().find(|mount| *mount.path == *whole) {
            return Err(RouteError::new(path, at, Why::MountTwice(other.at)));
        }
        let info = RouteInfo {
            method: None,
            path: format!("{whole}/{{*}}"),
            host: host.name.as_deref().map(str::to_owned),
            name: None,
            handler: "mount".to_owned(),
            at: at.to_string(),
        };
        self.order.push((info, Some(service.clone())));
        host.mounts.push(Mount {
            path: whole.into(),
            service: service.clone(),
            group: spot.group,
            at,
        });
        Ok(())
    }

    fn nest(
        &mut self,
        prefix: &str,
        app: &App,
        spot: &Spot<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let prefix =
            join(spot.prefix, prefix).ok_or_else(|| RouteError::new(prefix, at, Why::NotNormal))?;
        let group = self.group(app, spot.group);
        let spot = Spot {
            prefix: &prefix,
            group,
            ..*spot
        };
        self.lay(app, &spot);
        Ok(())
    }

    fn host(
        &mut self,
        name: &str,
        app: &App,
        spot: &Spot<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let error = |why: String| RouteError::new(name, at, Why::Host(why));
        let host: ServerName = name
            .parse()
            .map_err(|invalid: apus_patterns::InvalidServerName| error(invalid.to_string()))?;
        let index = self.hosts.len();
        // A host that was named before gets more.
        let index = match self.names_of_hosts.insert(&host, index) {
            Ok(()) => {
                self.hosts.push(Host {
                    name: Some(name.into()),
                    ..Host::default()
                });
                index
            }
            Err(known) => known,
        };
        let group = self.group(app, spot.group);
        let spot = Spot {
            host: index,
            group,
            ..*spot
        };
        self.lay(app, &spot);
        Ok(())
    }

    /// A group inside of another.
    fn group(&mut self, app: &App, parent: usize) -> usize {
        let layers = self.layers_of(parent, app.layers.clone());
        let outer = self.groups.get(parent);
        let limit = outer.map_or(DEFAULT_BODY_LIMIT, |group| group.body_limit);
        let errors = app.errors.or(outer.map(|group| &group.errors));
        self.groups.push(Group {
            parent: Some(parent),
            layers,
            states: app.states.clone(),
            body_limit: app.body_limit.unwrap_or(limit),
            errors,
        });
        self.groups.len().saturating_sub(1)
    }
}

/// A path under a prefix, without a slash at its end; `None` if it is not in normal form.
fn join(prefix: &str, path: &str) -> Option<String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_normal = path.is_empty()
        || (!path.ends_with('/')
            && path::normalise(path).is_ok_and(|normal| *normal == *path.as_bytes()));
    is_normal.then(|| format!("{prefix}{path}"))
}
