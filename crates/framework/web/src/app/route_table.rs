//! `RouteTable`: an application and its groups, flattened to one router for each host.

use std::any::TypeId;
use std::collections::HashSet;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{RouteInfo, ServiceFactory};

use super::urls::NamedRoutes;
use super::{App, AppItemKind, Declaration, StateSource};
use crate::router::{Endpoint, RouteError, RouteErrorKind, RoutePattern, Router};
use apus_handler::RouteCheck;
use apus_handler::function::AnyHandler;
use apus_handler::matched::DEFAULT_BODY_LIMIT;
use apus_handler::middleware::AnyMiddleware;
use apus_handler::rendering::ErrorRules;
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
    /// Whether a group has its own rules for errors.
    pub(super) has_group_errors: bool,
    /// Routes, and mounts with their services, in the order in which they were added.
    order: Vec<ListedItem>,
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
    /// The paths of the groups with their own rules for errors, the longest first.
    pub(super) group_paths: Vec<(Box<str>, usize)>,
}

/// A route or a mount.
struct ListedItem {
    info: RouteInfo,
    /// The service, if it is a mount.
    mounted: Option<Arc<dyn ServiceFactory>>,
    /// What the attribute of the handler tells.
    declared: Option<Declaration>,
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
    pub(super) at: &'static Location<'static>,
}

/// A handler of a route or a fallback, and what is around it.
struct CheckedHandler<'a> {
    handler: &'a dyn AnyHandler,
    parameters: &'a [Box<str>],
    layers: &'a [Arc<dyn AnyMiddleware>],
    group: usize,
    at: &'static Location<'static>,
}

/// The layers and settings of a group.
pub(super) struct RouteGroup {
    pub(super) parent: Option<usize>,
    /// The layers of this group and the groups around it, outermost first; without the layers of the application.
    pub(super) layers: Arc<[Arc<dyn AnyMiddleware>]>,
    pub(super) states: Vec<StateSource>,
    pub(super) body_limit: u64,
    pub(super) allows_encoded_slash: bool,
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
                allows_encoded_slash: app.allows_encoded_slash,
                errors: app.errors.clone(),
            }],
            named: NamedRoutes::default(),
            errors: Vec::new(),
            has_group_errors: false,
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
            host.group_paths.sort_by_key(|(path, _)| longest(path));
        }
        table
    }

    /// All routes and mounts; the routes of a mounted service follow its mount.
    pub(super) fn list(self) -> Vec<(RouteInfo, Option<Declaration>)> {
        let mut listed = Vec::with_capacity(self.order.len());
        for item in self.order {
            let ListedItem {
                info,
                mounted,
                declared,
            } = item;
            let path = info
                .path
                .strip_suffix("/{*}")
                .unwrap_or_default()
                .to_owned();
            let host = info.host.clone();
            listed.push((info, declared));
            let inner = mounted.iter().flat_map(|service| service.routes());
            let inner = inner.map(|inner| RouteInfo {
                path: format!("{path}{}", inner.path),
                host: inner.host.or_else(|| host.clone()),
                ..inner
            });
            listed.extend(inner.map(|inner| (inner, None)));
        }
        listed
    }

    /// All errors, including errors of handlers, of layers, and of mounted services. If the application is
    /// not the outermost service, layers around it may provide what handlers need.
    pub(super) fn all_errors(mut self, is_outermost: bool) -> Vec<RouteError> {
        let mut errors = std::mem::take(&mut self.errors);
        self.check_handlers(is_outermost, &mut errors);
        for mount in self.hosts.iter().flat_map(|host| &host.mounts) {
            if let Err(error) = mount.service.check() {
                let why = RouteErrorKind::Mounted(error.to_string());
                errors.push(RouteError::new(&mount.path, mount.at, why));
            }
        }
        errors
    }

    /// Checks all handlers and the layers around them.
    fn check_handlers(&self, is_outermost: bool, errors: &mut Vec<RouteError>) {
        // A layer of many routes is reported once.
        let mut known = HashSet::new();
        let mut check = |what: String, handler: &CheckedHandler<'_>| {
            let states = self.states_of(handler.group);
            let mut check = RouteCheck::new(handler.parameters, &states, is_outermost);
            for layer in self.layers.iter().chain(handler.layers) {
                layer.check(&mut check);
            }
            let of_layers = check.take_mistakes().into_iter();
            let mut mistakes: Vec<String> = of_layers
                .filter(|text| known.insert(text.clone()))
                .collect();
            handler.handler.check(&mut check);
            mistakes.extend(check.take_mistakes());
            errors.extend(
                mistakes
                    .into_iter()
                    .map(|text| RouteError::new(&what, handler.at, RouteErrorKind::Handler(text))),
            );
        };
        for host in &self.hosts {
            for route in host.router.routes() {
                for endpoint in &route.methods {
                    let path = route.pattern.as_str();
                    let what = match &endpoint.method {
                        Some(method) => format!("{method} {path}"),
                        None => path.to_owned(),
                    };
                    let handler = CheckedHandler {
                        handler: &*endpoint.handler,
                        parameters: route.pattern.names(),
                        layers: &endpoint.layers,
                        group: endpoint.scope,
                        at: endpoint.at,
                    };
                    check(what, &handler);
                }
            }
            for fallback in &host.fallbacks {
                let group = self.groups.get(fallback.group);
                let handler = CheckedHandler {
                    handler: &*fallback.handler,
                    parameters: &[],
                    layers: group.map_or(&[], |group| &group.layers),
                    group: fallback.group,
                    at: fallback.at,
                };
                check(format!("the fallback of {}/", fallback.path), &handler);
            }
        }
    }

    /// The types of the state of a group and the groups around it.
    fn states_of(&self, group: usize) -> Vec<TypeId> {
        let around = |group: &&RouteGroup| self.groups.get(group.parent?);
        let groups = std::iter::successors(self.groups.get(group), around);
        let states = groups.flat_map(|group| &group.states);
        states.map(StateSource::type_id).collect()
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
                    declared,
                } => {
                    let endpoint = Endpoint {
                        method: method.clone(),
                        handler: handler.clone(),
                        layers: self.layers_of(placement.group, handler.layers()),
                        scope: placement.group,
                        name: name.clone(),
                        at: item.at,
                    };
                    self.route((path, *declared), endpoint, placement)
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
        if let (Some((at, handler)), Some(host)) =
            (&app.fallback, self.hosts.get_mut(placement.host))
        {
            host.fallbacks.push(FallbackEntry {
                path: placement.prefix.into(),
                handler: handler.clone(),
                group: placement.group,
                at,
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
        if own.is_empty() {
            group
        } else {
            group.iter().cloned().chain(own).collect()
        }
    }

    fn route(
        &mut self,
        (path, declared): (&str, Option<Declaration>),
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
        self.order.push(ListedItem {
            info,
            mounted: None,
            declared,
        });
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
        self.order.push(ListedItem {
            info,
            mounted: Some(service.clone()),
            declared: None,
        });
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
        // A group at the path of the group around it has no paths of its own.
        if prefix != placement.prefix {
            self.add_group_path(app, &prefix, placement.host, group);
        }
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
        self.add_group_path(app, placement.prefix, index, group);
        let placement = Placement {
            host: index,
            group,
            ..*placement
        };
        self.add_items(app, &placement);
        Ok(())
    }

    /// Remembers the path of a group with its own rules for errors, which hold for unknown paths in it.
    fn add_group_path(&mut self, app: &App, prefix: &str, host: usize, group: usize) {
        if app.errors.is_default() {
            return;
        }
        self.has_group_errors = true;
        if let Some(host) = self.hosts.get_mut(host) {
            host.group_paths.push((prefix.into(), group));
        }
    }

    /// Adds a group inside another group.
    fn group(&mut self, app: &App, parent: usize) -> usize {
        let layers = self.layers_of(parent, app.layers.clone());
        let outer = self.groups.get(parent);
        let limit = outer.map_or(DEFAULT_BODY_LIMIT, |group| group.body_limit);
        let allows_encoded_slash =
            app.allows_encoded_slash || outer.is_some_and(|group| group.allows_encoded_slash);
        let errors = app.errors.or(outer.map(|group| &group.errors));
        self.groups.push(RouteGroup {
            parent: Some(parent),
            layers,
            states: app.states.clone(),
            body_limit: app.body_limit.unwrap_or(limit),
            allows_encoded_slash,
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
