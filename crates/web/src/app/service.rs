//! An application on one worker: it routes requests and calls their handlers.

use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    HeaderValue, Method, Request, Response, ResponseFuture, Service, StatusCode, header,
};

use super::route_table::{FallbackEntry, RouteTable};
use crate::router::{Ranges, Route, RouteMatch, Router};
use apus_handler::Matched;
use apus_handler::error::{ErrorRules, Rendering};
use apus_handler::matched::RouteScope;
use apus_handler::middleware::{AnyMiddleware, Chain, Hook, Next, Position, run_after_hook};
use apus_handler::state::States;
use apus_http::path;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{MountPrefix, mount_prefix};
use apus_patterns::ServerNames;

/// The application on one worker.
pub(super) struct AppService {
    layers: Vec<Arc<dyn AnyMiddleware>>,
    hosts: Vec<HostService>,
    names_of_hosts: ServerNames,
    groups: Vec<GroupService>,
    /// The rules for an unknown group, which does not occur.
    no_rules: ErrorRules,
}

struct HostService {
    router: Router,
    mounts: Vec<MountService>,
    fallbacks: Vec<FallbackEntry>,
}

struct MountService {
    path: Arc<str>,
    service: Rc<dyn Service>,
    group: usize,
}

struct GroupService {
    layers: Arc<[Arc<dyn AnyMiddleware>]>,
    scope: Rc<RouteScope>,
}

/// The target that a request was routed to.
pub(crate) struct RouteTarget {
    host: usize,
    what: RouteTargetKind,
    /// The path in normal form, if it is another than that of the request.
    decoded: Option<String>,
}

enum RouteTargetKind {
    /// A route, one of its endpoints, and the parameters.
    Endpoint(usize, usize, Ranges),
    /// A route without this method.
    NoMethod(usize),
    /// A mount, and the length of its path.
    Mount(usize, usize),
    Fallback(usize),
    Nothing,
}

/// The service of the worker. Layers share the ownership of the application while they wait.
struct AppHandle(Rc<AppService>);

impl Service for AppHandle {
    fn call(&self, request: Request) -> ResponseFuture {
        self.0.call_outer(0, request)
    }
}

/// Makes the service of a worker.
pub(super) fn start(table: RouteTable) -> Rc<dyn Service> {
    let named = Rc::new(table.named);
    let mut groups: Vec<GroupService> = Vec::with_capacity(table.groups.len());
    for group in table.groups {
        let outer = group.parent.and_then(|parent| groups.get(parent));
        let outer = outer.map_or_else(States::default, |outer| outer.scope.states.clone());
        groups.push(GroupService {
            layers: group.layers,
            scope: Rc::new(RouteScope {
                states: outer.with(&group.states).and(named.clone()),
                body_limit: group.body_limit,
                errors: group.errors,
            }),
        });
    }
    let hosts = table.hosts.into_iter().map(|host| HostService {
        router: host.router,
        fallbacks: host.fallbacks,
        mounts: host
            .mounts
            .into_iter()
            .map(|mount| MountService {
                path: mount.path,
                service: mount.service.service(),
                group: mount.group,
            })
            .collect(),
    });
    Rc::new(AppHandle(Rc::new(AppService {
        layers: table.layers,
        hosts: hosts.collect(),
        names_of_hosts: table.names_of_hosts,
        groups,
        no_rules: ErrorRules::default(),
    })))
}

impl Chain for AppService {
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture {
        match position {
            Position::Outer(index) => self.call_outer(index, request),
            Position::Inner(index, target) => {
                let Some(found) = target.downcast_ref() else {
                    return Response::new(StatusCode::NOT_FOUND).into();
                };
                match self.layers_of(found).get(index).cloned() {
                    Some(layer) => {
                        let position = Position::Inner(index.saturating_add(1), target);
                        layer.call(request, Next::new(self, position))
                    }
                    None => self.finish(request, found),
                }
            }
        }
    }

    fn route<'c>(&'c self, position: &'c Position, request: &Request) -> Option<&'c str> {
        let routed;
        let target: &RouteTarget = match position {
            Position::Inner(_, target) => target.downcast_ref()?,
            Position::Outer(_) => {
                routed = self.target(request).ok()?;
                &routed
            }
        };
        match target.what {
            RouteTargetKind::Endpoint(route, ..) | RouteTargetKind::NoMethod(route) => {
                let route = self.hosts.get(target.host)?.router.route(route)?;
                Some(route.pattern.as_str())
            }
            RouteTargetKind::Mount(mount, _) => {
                Some(&self.hosts.get(target.host)?.mounts.get(mount)?.path)
            }
            RouteTargetKind::Fallback(_) | RouteTargetKind::Nothing => None,
        }
    }

    fn errors(&self, position: &Position) -> &ErrorRules {
        self.errors_of(match position {
            Position::Outer(_) => 0,
            Position::Inner(_, target) => match target.downcast_ref() {
                Some(target) => self.group_of(target),
                None => 0,
            },
        })
    }
}

impl AppService {
    /// Passes a request to the layer of the application at this position, or routes it behind the last one.
    fn call_outer(self: &Rc<Self>, index: usize, mut request: Request) -> ResponseFuture {
        let Some(layer) = self.layers.get(index) else {
            return Self::route(self, request);
        };
        let next = index.saturating_add(1);
        match layer.hook() {
            Some(Hook::Before(hook)) => match hook(&mut request) {
                Ok(()) => self.call_outer(next, request),
                Err(response) => response.into(),
            },
            Some(Hook::After(_)) => run_after_hook(layer, self.call_outer(next, request)),
            None => layer.call(request, Next::new(self.clone(), Position::Outer(next))),
        }
    }

    fn errors_of(&self, group: usize) -> &ErrorRules {
        let group = self.groups.get(group);
        group.map_or(&self.no_rules, |group| &group.scope.errors)
    }

    /// A response of the application itself, in the format that the group chose.
    fn own_response(&self, request: &Request, group: usize, response: Response) -> ResponseFuture {
        let rules = self.errors_of(group);
        match rules.format {
            Some(_) => Rendering::of(request, rules).apply(response).into(),
            None => response.into(),
        }
    }

    /// Finds the target of a request, and passes the request through the layers around it.
    fn route(this: &Rc<Self>, request: Request) -> ResponseFuture {
        let target = match this.target(&request) {
            Ok(target) => target,
            Err(response) => return response,
        };
        match this.layers_of(&target).is_empty() {
            true => this.finish(request, &target),
            false => this
                .clone()
                .call(Position::Inner(0, Box::new(target)), request),
        }
    }

    /// The target of a request, or the response if the path is `*` or not valid.
    fn target(&self, request: &Request) -> Result<RouteTarget, ResponseFuture> {
        let decoded = match request.plain_path() {
            Ok(path) if path == request.path().as_bytes() => None,
            Ok(path) => match std::str::from_utf8(path) {
                Ok(path) => Some(path.to_owned()),
                Err(_) => {
                    let refused = Response::new(StatusCode::BAD_REQUEST);
                    return Err(self.own_response(request, 0, refused));
                }
            },
            Err(_) if request.path() == "*" => {
                return Err(Response::new(StatusCode::NO_CONTENT).into());
            }
            Err(_) => {
                let refused = Response::new(StatusCode::BAD_REQUEST);
                return Err(self.own_response(request, 0, refused));
            }
        };
        let path = decoded.as_deref().unwrap_or(request.path());
        let mut place = (0, RouteTargetKind::Nothing);
        if self.hosts.len() > 1
            && let Some(host) = request.host()
            && let Some((index, _)) = self.names_of_hosts.find(host)
            && let Some(host) = self.hosts.get(index)
        {
            place = (index, host.find(request.method(), path));
        }
        if matches!(
            place.1,
            RouteTargetKind::Nothing | RouteTargetKind::Fallback(_)
        ) && let Some(host) = self.hosts.first()
        {
            let found = host.find(request.method(), path);
            // The fallback of the host has priority.
            if !matches!(
                (&place.1, &found),
                (
                    RouteTargetKind::Fallback(_),
                    RouteTargetKind::Nothing | RouteTargetKind::Fallback(_)
                )
            ) {
                place = (0, found);
            }
        }
        let (host, what) = place;
        Ok(RouteTarget {
            host,
            what,
            decoded,
        })
    }

    /// The layers around a target, inside those of the application.
    fn layers_of(&self, target: &RouteTarget) -> &[Arc<dyn AnyMiddleware>] {
        if let RouteTargetKind::Endpoint(route, endpoint, _) = target.what {
            let host = self.hosts.get(target.host);
            let endpoint = host
                .and_then(|host| host.router.route(route))
                .and_then(|route| route.methods.get(endpoint));
            return endpoint.map_or(&[], |endpoint| &endpoint.layers);
        }
        let group = self.groups.get(self.group_of(target));
        group.map_or(&[], |group| &group.layers)
    }

    fn group_of(&self, target: &RouteTarget) -> usize {
        let group = self.hosts.get(target.host).and_then(|host| {
            Some(match target.what {
                RouteTargetKind::Endpoint(route, endpoint, _) => {
                    host.router.route(route)?.methods.get(endpoint)?.scope
                }
                RouteTargetKind::NoMethod(route) => {
                    host.router.route(route)?.methods.first()?.scope
                }
                RouteTargetKind::Mount(mount, _) => host.mounts.get(mount)?.group,
                RouteTargetKind::Fallback(fallback) => host.fallbacks.get(fallback)?.group,
                RouteTargetKind::Nothing => return None,
            })
        });
        group.unwrap_or(0)
    }

    /// Responds to a request that passed all layers.
    fn finish(&self, request: Request, target: &RouteTarget) -> ResponseFuture {
        let Some(host) = self.hosts.get(target.host) else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        let number = self.group_of(target);
        let group = self.groups.get(number);
        let scope = group.map(|group| &group.scope);
        match (&target.what, scope) {
            (RouteTargetKind::Endpoint(route, endpoint, ranges), Some(scope)) => {
                let route = host.router.route(*route);
                let endpoint = route.and_then(|route| Some((route, route.methods.get(*endpoint)?)));
                if let Some((route, endpoint)) = endpoint {
                    trace::note(&request, || {
                        Step::new(StepKind::Handler, "route", route.pattern.as_str())
                    });
                    let matched = Matched {
                        names: route.pattern.names(),
                        ranges,
                        decoded: target.decoded.as_deref(),
                        scope,
                    };
                    return endpoint.handler.call(request, &matched);
                }
            }
            (RouteTargetKind::NoMethod(route), _) => {
                if let Some(route) = host.router.route(*route) {
                    return self.own_response(&request, number, no_method(route, &request));
                }
            }
            (RouteTargetKind::Mount(mount, rest), _) => {
                if let Some(mount) = host.mounts.get(*mount) {
                    return mount.call(request, target.decoded.as_deref(), *rest);
                }
            }
            (RouteTargetKind::Fallback(fallback), Some(scope)) => {
                if let Some(fallback) = host.fallbacks.get(*fallback) {
                    let matched = Matched {
                        names: &[],
                        ranges: &Ranges::new(),
                        decoded: target.decoded.as_deref(),
                        scope,
                    };
                    return fallback.handler.call(request, &matched);
                }
            }
            _ => {}
        }
        self.own_response(&request, number, Response::new(StatusCode::NOT_FOUND))
    }
}

impl HostService {
    fn find(&self, method: &Method, path: &str) -> RouteTargetKind {
        match self.router.find(method, path) {
            RouteMatch::Endpoint(route, endpoint, ranges) => {
                return RouteTargetKind::Endpoint(route, endpoint, ranges);
            }
            RouteMatch::NoMethod(route) => return RouteTargetKind::NoMethod(route),
            RouteMatch::Nothing => {}
        }
        let mut mounts = self.mounts.iter();
        if let Some(mount) = mounts.position(|mount| is_under(path, &mount.path)) {
            let length = self.mounts.get(mount).map_or(0, |mount| mount.path.len());
            return RouteTargetKind::Mount(mount, length);
        }
        let mut fallbacks = self.fallbacks.iter();
        match fallbacks.position(|fallback| is_under(path, &fallback.path)) {
            Some(fallback) => RouteTargetKind::Fallback(fallback),
            None => RouteTargetKind::Nothing,
        }
    }
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Responds to OPTIONS, and rejects the other methods that a route does not have (RFC 9110 sections
/// 9.3.7 and 15.5.6).
fn no_method(route: &Route, request: &Request) -> Response {
    let status = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    Response::new(status).with_header(&header::ALLOW, &route.allow())
}

impl MountService {
    /// Calls the service with the rest of the path.
    fn call(&self, mut request: Request, decoded: Option<&str>, rest: usize) -> ResponseFuture {
        if self.path.is_empty() {
            return self.service.call(request);
        }
        let path = decoded.unwrap_or(request.path());
        let rest = path.get(rest..).unwrap_or("");
        if rest.is_empty() {
            return add_slash(&request);
        }
        let rest = path::encode(rest.as_bytes());
        trace::note(&request, || {
            Step::new(
                StepKind::Handler,
                format!("mount {}", self.path),
                "the longest path that something is mounted under",
            )
        });
        let target = match request.query() {
            Some(query) => format!("{rest}?{query}"),
            None => rest,
        };
        if request.set_path_and_query(&target).is_err() {
            return Response::new(StatusCode::BAD_REQUEST).into();
        }
        let outer = mount_prefix(&request);
        let mounted = MountPrefix(match outer {
            "" => path::encode(self.path.as_bytes()).into(),
            outer => format!("{outer}{}", path::encode(self.path.as_bytes())).into(),
        });
        request.extensions_mut().insert(mounted);
        self.service.call(request)
    }
}

/// Redirects to the same path with a slash at the end.
fn add_slash(request: &Request) -> ResponseFuture {
    let query = request
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let location = format!("{}{}/{query}", mount_prefix(request), request.path());
    // Two slashes at the start would name another host.
    let location = format!("/{}", location.trim_start_matches('/'));
    match HeaderValue::from_str(&location) {
        Ok(location) => Response::new(StatusCode::PERMANENT_REDIRECT)
            .with_header(&header::LOCATION, &location)
            .into(),
        Err(_) => Response::new(StatusCode::BAD_REQUEST).into(),
    }
}
