//! `RouteTable`: an application and its groups, flattened to one router for each host.

use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{RouteInfo, ServiceFactory};

use super::urls::NamedRoutes;
use super::{App, AppItemKind, DEFAULT_BODY_LIMIT, StateSource};
use crate::router::{Endpoint, RouteError, RouteErrorKind, RoutePattern, Router};
use apus_handler::error::ErrorRules;
use apus_handler::function::AnyHandler;
use apus_handler::middleware::AnyMiddleware;
use apus_http::path;
use apus_patterns::{ServerName, ServerNames};

/// The routes, mounts and fallbacks of an application and its groups.
pub(super) struct RouteTable {
    /// The layers of the whole application.
    pub(super) layers: Vec<Arc<dyn AnyMiddleware>>,
    /// The first entry is for all hosts.
    pub(super) hosts: Vec<HostRoutes>,
    pub(super) names_of_hosts: ServerNames,
    /// The first entry is the application itself.
    pub(super) groups: Vec<RouteGroup>,
    pub(super) named: NamedRoutes,
    pub(super) errors: Vec<RouteError>,
    /// Routes, and mounts with their services, in the order in which they were added.
    order: Vec<(RouteInfo, Option<Arc<dyn ServiceFactory>>)>,
}

/// The routes, mounts and fallbacks of a host.
#[derive(Default)]
pub(super) struct HostRoutes {
    name: Option<Rc<str>>,
    pub(super) router: Router,
    /// The longest path first.
    pub(super) mounts: Vec<MountEntry>,
    /// The longest path first.
    pub(super) fallbacks: Vec<FallbackEntry>,
}

/// A service that is mounted under a path.
pub(super) struct MountEntry {
    /// Without a slash at its end, in normal form.
    pub(super) path: Arc<str>,
    pub(super) service: Arc<dyn ServiceFactory>,
    pub(super) group: usize,
    at: &'static Location<'static>,
}

/// The handler of requests under a path that nothing else matches.
pub(super) struct FallbackEntry {
    pub(super) path: Box<str>,
    pub(super) handler: Arc<dyn AnyHandler>,
    pub(super) group: usize,
}

/// The layers and settings of a group.
pub(super) struct RouteGroup {
    pub(super) parent: Option<usize>,
    /// The layers of this group and the groups around it, outermost first; without those of the application.
    pub(super) layers: Arc<[Arc<dyn AnyMiddleware>]>,
    pub(super) states: Vec<StateSource>,
    pub(super) body_limit: u64,
    pub(super) errors: ErrorRules,
}

/// The host, path prefix and group that items are added to.
struct Placement<'a> {
    host: usize,
    prefix: &'a str,
    group: usize,
}

impl RouteTable {
    pub(super) fn of(app: &App) -> Self {
        let mut table = Self {
            layers: app.layers.clone(),
            hosts: vec![HostRoutes::default()],
            names_of_hosts: ServerNames::default(),
            groups: vec![RouteGroup {
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
        let placement = Placement {
            host: 0,
            prefix: "",
            group: 0,
        };
        table.add_items(app, &placement);
        for host in &mut table.hosts {
            let longest = |path: &str| std::cmp::Reverse(path.len());
            host.mounts.sort_by_key(|mount| longest(&mount.path));
            host.fallbacks
                .sort_by_key(|fallback| longest(&fallback.path));
        }
        table
    }

    /// All routes and mounts; the routes of a mounted service follow its mount.
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

    /// All errors, also those of mounted services.
    pub(super) fn all_errors(self) -> Vec<RouteError> {
        let mut errors = self.errors;
        for mount in self.hosts.iter().flat_map(|host| &host.mounts) {
            if let Err(error) = mount.service.check() {
                let why = RouteErrorKind::Mounted(error.to_string());
                errors.push(RouteError::new(&mount.path, mount.at, why));
            }
        }
        errors
    }

    /// Adds the items and the fallback of an application.
    fn add_items(&mut self, app: &App, placement: &Placement<'_>) {
        for item in &app.items {
            let added = match &item.what {
                AppItemKind::Route {
                    method,
                    path,
                    name,
                    handler,
                } => {
                    let endpoint = Endpoint {
                        method: method.clone(),
                        handler: handler.clone(),
                        layers: self.layers_of(placement.group, handler.layers()),
                        scope: placement.group,
                        name: name.clone(),
                        at: item.at,
                    };
                    self.route(path, endpoint, placement)
                }
                AppItemKind::Mount { path, service } => {
                    self.mount(path, service, placement, item.at)
                }
                AppItemKind::Group { prefix, app } => self.nest(prefix, app, placement, item.at),
                AppItemKind::Host { name, app } => self.host(name, app, placement, item.at),
                AppItemKind::Name(name) => Err(RouteError::new(
                    name,
                    item.at,
                    RouteErrorKind::NameOfNothing,
                )),
            };
            self.errors.extend(added.err());
        }
        if let (Some(handler), Some(host)) = (&app.fallback, self.hosts.get_mut(placement.host)) {
            host.fallbacks.push(FallbackEntry {
                path: placement.prefix.into(),
                handler: handler.clone(),
                group: placement.group,
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

    fn route(
        &mut self,
        path: &str,
        endpoint: Endpoint,
        placement: &Placement<'_>,
    ) -> Result<(), RouteError> {
        let at = endpoint.at;
        let invalid = |error| RouteError::new(path, at, RouteErrorKind::Pattern(error));
        let pattern = RoutePattern::parse(path).and_then(|pattern| pattern.under(placement.prefix));
        let pattern = pattern.map_err(invalid)?;
        let Some(host) = self.hosts.get_mut(placement.host) else {
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
        placement: &Placement<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let whole = join(placement.prefix, path)
            .ok_or_else(|| RouteError::new(path, at, RouteErrorKind::NotNormal))?;
        let Some(host) = self.hosts.get_mut(placement.host) else {
            return Ok(());
        };
        if let Some(other) = host.mounts.iter().find(|mount| *mount.path == *whole) {
            return Err(RouteError::new(
                path,
                at,
                RouteErrorKind::MountTwice(other.at),
            ));
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
        host.mounts.push(MountEntry {
            path: whole.into(),
            service: service.clone(),
            group: placement.group,
            at,
        });
        Ok(())
    }

    fn nest(
        &mut self,
        prefix: &str,
        app: &App,
        placement: &Placement<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let prefix = join(placement.prefix, prefix)
            .ok_or_else(|| RouteError::new(prefix, at, RouteErrorKind::NotNormal))?;
        let group = self.group(app, placement.group);
        let placement = Placement {
            prefix: &prefix,
            group,
            ..*placement
        };
        self.add_items(app, &placement);
        Ok(())
    }

    fn host(
        &mut self,
        name: &str,
        app: &App,
        placement: &Placement<'_>,
        at: &'static Location<'static>,
    ) -> Result<(), RouteError> {
        let error = |why: String| RouteError::new(name, at, RouteErrorKind::Host(why));
        let host: ServerName = name
            .parse()
            .map_err(|invalid: apus_patterns::InvalidServerName| error(invalid.to_string()))?;
        let index = self.hosts.len();
        // The items are added to a host of the same name.
        let index = match self.names_of_hosts.insert(&host, index) {
            Ok(()) => {
                self.hosts.push(HostRoutes {
                    name: Some(name.into()),
                    ..HostRoutes::default()
                });
                index
            }
            Err(known) => known,
        };
        let group = self.group(app, placement.group);
        let placement = Placement {
            host: index,
            group,
            ..*placement
        };
        self.add_items(app, &placement);
        Ok(())
    }

    /// Adds a group inside another group.
    fn group(&mut self, app: &App, parent: usize) -> usize {
        let layers = self.layers_of(parent, app.layers.clone());
        let outer = self.groups.get(parent);
        let limit = outer.map_or(DEFAULT_BODY_LIMIT, |group| group.body_limit);
        let errors = app.errors.or(outer.map(|group| &group.errors));
        self.groups.push(RouteGroup {
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
