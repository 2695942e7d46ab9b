//! An application on one worker: it routes requests and calls their handlers.

mod errors;

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    HeaderValue, Method, Request, Response, ResponseFuture, Service, StatusCode, header,
};

use super::route_table::{FallbackEntry, RouteTable};
use crate::router::{Ranges, Route, RouteMatch, Router};
use apus_handler::matched::RouteScope;
use apus_handler::middleware::{
    AnyMiddleware, Chain, Hook, Next, Position, run_after_hook, run_gate,
};
use apus_handler::rendering::{ErrorRules, Rendering};
use apus_handler::state::States;
use apus_handler::{Error, IntoResponse, Matched, RequestSpan};
use apus_http::path::{self, InvalidPath};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{MountPrefix, mount_prefix};
use apus_patterns::ServerNames;

/// The application on one worker.
pub(super) struct AppService {
    layers: Vec<Arc<dyn AnyMiddleware>>,
    hosts: Vec<HostService>,
    names_of_hosts: ServerNames,
    groups: Vec<GroupService>,
    /// Whether a group has its own rules for errors.
    pub(super) has_group_errors: bool,
    /// Whether a group allows encoded slashes.
    allows_encoded_slash: bool,
    /// The rules for an unknown group, which does not occur.
    no_rules: ErrorRules,
    /// The memory of a target that a layer has asked for, for the next one.
    spare_target: Cell<Option<Rc<RoutedTarget>>>,
}

struct HostService {
    router: Router,
    mounts: Vec<MountService>,
    fallbacks: Vec<FallbackEntry>,
    /// The paths of the groups, the longest first.
    group_paths: Vec<(Box<str>, usize)>,
}

struct MountService {
    path: Arc<str>,
    service: Rc<dyn Service>,
    group: usize,
}

struct GroupService {
    layers: Arc<[Arc<dyn AnyMiddleware>]>,
    allows_encoded_slash: bool,
    scope: Rc<RouteScope>,
}

pub(super) use errors::RequestPath;

/// The target that a request was routed to.
#[derive(Default)]
pub(crate) struct RouteTarget {
    host: usize,
    /// The host that the request names, if it has its own routes.
    named_host: Option<usize>,
    what: RouteTargetKind,
    /// The path in normal form, if the path of the request is not.
    decoded: Option<String>,
}

#[derive(Default)]
enum RouteTargetKind {
    /// A route, one of its endpoints, and the parameters.
    Endpoint(usize, usize, Ranges),
    /// A route without this method.
    NoMethod(usize),
    /// A mount, and the length of its path.
    Mount(usize, usize),
    Fallback(usize),
    #[default]
    Nothing,
}

/// What an application notes in a request whose target a layer around the application asked for.
struct RoutedTarget {
    /// The application: the request may come to another one that is mounted in it.
    app: *const AppService,
    target: RouteTarget,
}

/// Makes the application of a worker. Layers share its ownership while they wait.
pub(super) fn start(table: RouteTable) -> Rc<AppService> {
    let named = Rc::new(table.named);
    let mut groups: Vec<GroupService> = Vec::with_capacity(table.groups.len());
    for group in table.groups {
        let outer = group.parent.and_then(|parent| groups.get(parent));
        let outer = outer.map_or_else(States::default, |outer| outer.scope.states.clone());
        groups.push(GroupService {
            layers: group.layers,
            allows_encoded_slash: group.allows_encoded_slash,
            scope: Rc::new(RouteScope {
                states: outer.with(&group.states).and(named.clone()),
                body_limit: group.body_limit,
                errors: group.errors,
            }),
        });
    }
    let hosts = table.hosts.into_iter().map(|host| HostService {
        router: host.router,
        group_paths: host.group_paths,
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
    Rc::new(AppService {
        layers: table.layers,
        hosts: hosts.collect(),
        names_of_hosts: table.names_of_hosts,
        allows_encoded_slash: groups.iter().any(|group| group.allows_encoded_slash),
        groups,
        has_group_errors: table.has_group_errors,
        no_rules: ErrorRules::default(),
        spare_target: Cell::default(),
    })
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
                routed = self.routed_target(request).ok()?;
                &routed.target
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

    fn errors(&self, position: &Position, request: &Request) -> &ErrorRules {
        match position {
            Position::Outer(_) => self.errors_of_request(request),
            Position::Inner(_, target) => match target.downcast_ref() {
                Some(target) => self.errors_of_target(target, request.path()),
                None => &self.no_rules,
            },
        }
    }

    fn with_matched(
        &self,
        position: &Position,
        request: &mut Request,
        run: &mut dyn FnMut(&mut Request, &Matched<'_>),
    ) {
        let routed;
        let target = match position {
            Position::Inner(_, target) => target.downcast_ref(),
            Position::Outer(_) => {
                routed = self.routed_target(request).ok();
                routed.as_deref().map(|routed| &routed.target)
            }
        };
        let group = target.map_or(0, |target| self.group_of(target));
        let Some(group) = self.groups.get(group) else {
            return run(request, &Matched::unknown(&RouteScope::default()));
        };
        let unknown = Matched::unknown(&group.scope);
        let Some(RouteTarget {
            host,
            what: RouteTargetKind::Endpoint(route, _, ranges),
            decoded,
            ..
        }) = target
        else {
            return run(request, &unknown);
        };
        let host = self.hosts.get(*host);
        let route = host.and_then(|host| host.router.route(*route));
        let names = route.map_or(&[][..], |route| route.pattern.names());
        run(
            request,
            &Matched {
                names,
                ranges,
                decoded: decoded.as_deref(),
                ..unknown
            },
        );
    }
}

impl AppService {
    /// Passes a request to the layer of the application at this position, or routes it behind the last one.
    pub(super) fn call_outer(
        self: &Rc<Self>,
        index: usize,
        mut request: Request,
    ) -> ResponseFuture {
        let Some(layer) = self.layers.get(index) else {
            return Self::route(self, request);
        };
        let next = index.saturating_add(1);
        match layer.hook() {
            Some(Hook::Before(hook)) => match hook(&mut request) {
                Ok(()) => self.call_outer(next, request),
                Err(response) => self.form_outer(&request, response).into(),
            },
            Some(Hook::After(_)) => run_after_hook(layer, || self.call_outer(next, request)),
            Some(Hook::Gate(_)) => {
                let service = Rc::clone(self);
                let rendering = |request: &Request| {
                    Rendering::of(request, self.errors(&Position::Outer(next), request))
                };
                run_gate(layer, (request, &rendering), move |request| {
                    service.call_outer(next, request)
                })
            }
            None => layer.call(request, Next::new(self.clone(), Position::Outer(next))),
        }
    }

    /// Finds the target of a request, and passes the request through the layers around it.
    fn route(this: &Rc<Self>, mut request: Request) -> ResponseFuture {
        let known = this.take_routed_target(&mut request);
        let target = match known.map_or_else(|| this.target(&request), Ok) {
            Ok(target) => target,
            Err(response) => {
                let rules = this.errors_of_path(&RequestPath::of(&request));
                let rendering = Rendering::of(&request, rules);
                return rendering.apply(response).into();
            }
        };
        if this.layers_of(&target).is_empty() {
            this.finish(request, &target)
        } else {
            this.clone()
                .call(Position::Inner(0, Box::new(target)), request)
        }
    }

    /// As [`Self::target`], for layers around the application. The request keeps the target, so that it is routed once,
    /// however many layers ask; if one of them changes the path, it is routed again.
    fn routed_target(&self, request: &Request) -> Result<Rc<RoutedTarget>, Response> {
        let noted = request.routed().cloned();
        let noted = noted.and_then(|noted| noted.downcast::<RoutedTarget>().ok());
        if let Some(noted) = noted.filter(|noted| std::ptr::eq(noted.app, self)) {
            return Ok(noted);
        }
        let target = self.target(request)?;
        let mut routed = self.spare_target.take().unwrap_or_else(|| {
            Rc::new(RoutedTarget {
                app: self,
                target: RouteTarget::default(),
            })
        });
        // A spare one has no other owner.
        if let Some(routed) = Rc::get_mut(&mut routed) {
            routed.target = target;
        }
        request.set_routed(Rc::clone(&routed) as Rc<dyn Any>);
        Ok(routed)
    }

    /// The target that a layer asked for.
    fn take_routed_target(&self, request: &mut Request) -> Option<RouteTarget> {
        let noted = request.routed()?.downcast_ref::<RoutedTarget>()?;
        if !std::ptr::eq(noted.app, self) {
            return None;
        }
        let mut noted = request.take_routed()?.downcast::<RoutedTarget>().ok()?;
        let target = std::mem::take(&mut Rc::get_mut(&mut noted)?.target);
        self.spare_target.set(Some(noted));
        Some(target)
    }

    /// The target of a request, or the response if the path is `*` or not valid.
    fn target(&self, request: &Request) -> Result<RouteTarget, Response> {
        let decoded = match request.plain_path() {
            Ok(path) if path == request.path().as_bytes() => None,
            Ok(path) => match std::str::from_utf8(path) {
                Ok(path) => Some(path.to_owned()),
                Err(_) => return Err(Error::bad_request("the path is not UTF-8").into_response()),
            },
            Err(InvalidPath::EncodedSlash)
                if let Some(target) = self.target_with_encoded_slash(request) =>
            {
                return Ok(target);
            }
            Err(error) => {
                let status = request.invalid_path_status();
                return Err(if status.is_client_error() {
                    Error::new(status, error).into_response()
                } else {
                    Response::new(status)
                });
            }
        };
        let path = decoded.as_deref().unwrap_or(request.path());
        let mut target = self.find(request.host(), request.method(), path);
        target.decoded = decoded;
        Ok(target)
    }

    /// The target of a path with an encoded slash: a route whose last parameter is the rest of the path, or a mounted
    /// service, if its group allows such slashes, and no other part of the path has one.
    fn target_with_encoded_slash(&self, request: &Request) -> Option<RouteTarget> {
        if !self.allows_encoded_slash {
            return None;
        }
        let path = std::str::from_utf8(request.normal_path().ok()?).ok()?;
        let mut target = self.find(request.host(), request.method(), path);
        let rest = match &target.what {
            RouteTargetKind::Endpoint(route, _, ranges) => {
                let route = self.hosts.get(target.host)?.router.route(*route)?;
                ranges.last().filter(|_| route.pattern.takes_rest())?.start
            }
            // The slash behind the path of the mount is not encoded either.
            RouteTargetKind::Mount(_, length) => length.checked_add(1)?,
            _ => return None,
        };
        if !self
            .groups
            .get(self.group_of(&target))?
            .allows_encoded_slash
        {
            return None;
        }
        let encoded = request.forwarded_path().ok()?;
        let encoded_rest = path::strip_decoded_prefix(encoded, path.get(..rest)?.as_bytes())?;
        let before = encoded.strip_suffix(encoded_rest)?;
        if before.to_ascii_lowercase().contains("%2f") {
            return None;
        }
        target.decoded = Some(path.to_owned());
        Some(target)
    }

    /// The target of a path in normal form.
    fn find(&self, host: Option<&str>, method: &Method, path: &str) -> RouteTarget {
        let mut place = (0, RouteTargetKind::Nothing);
        let mut named_host = None;
        if self.hosts.len() > 1
            && let Some(host) = host
            && let Some((index, _)) = self.names_of_hosts.find(host)
            && let Some(host) = self.hosts.get(index)
        {
            named_host = Some(index);
            place = (index, host.find(method, path));
        }
        if matches!(
            place.1,
            RouteTargetKind::Nothing | RouteTargetKind::Fallback(_)
        ) && let Some(host) = self.hosts.first()
        {
            let found = host.find(method, path);
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
        RouteTarget {
            host,
            named_host,
            what,
            decoded: None,
        }
    }

    /// The layers around a target, inside the layers of the application.
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
        let group = self.groups.get(self.group_of(target));
        let scope = group.map(|group| &group.scope);
        match (&target.what, scope) {
            (RouteTargetKind::Endpoint(route, endpoint, ranges), Some(scope)) => {
                let route = host.router.route(*route);
                let endpoint = route.and_then(|route| Some((route, route.methods.get(*endpoint)?)));
                if let Some((route, endpoint)) = endpoint {
                    trace::note(&request, || {
                        Step::new(StepKind::Handler, "route", route.pattern.as_str())
                    });
                    if let Some(span) = RequestSpan::of(&request) {
                        match mount_prefix(&request) {
                            "" => span.record_route(route.pattern.as_str()),
                            prefix => {
                                span.record_route(&format!("{prefix}{}", route.pattern.as_str()))
                            }
                        }
                    }
                    let matched = Matched {
                        names: route.pattern.names(),
                        ranges,
                        decoded: target.decoded.as_deref(),
                        scope,
                        errors: &scope.errors,
                        at: Some(endpoint.at),
                    };
                    return endpoint.handler.call(request, &matched);
                }
            }
            (RouteTargetKind::NoMethod(route), _) => {
                if let Some(route) = host.router.route(*route) {
                    return self.own_response(
                        &request,
                        target,
                        no_method(&host.router, route, &request),
                    );
                }
            }
            (RouteTargetKind::Mount(mount, rest), _) => {
                if let Some(mount) = host.mounts.get(*mount) {
                    let rules = self.errors_of_target(target, request.path());
                    let rendering = (!rules.is_default()).then(|| Rendering::of(&request, rules));
                    let response = mount.call(request, target.decoded.as_deref(), *rest);
                    return match rendering {
                        Some(rendering) => response.map(move |response| rendering.apply(response)),
                        None => response,
                    };
                }
            }
            (RouteTargetKind::Fallback(fallback), Some(scope)) => {
                if let Some(fallback) = host.fallbacks.get(*fallback) {
                    let matched = Matched {
                        names: &[],
                        ranges: &Ranges::new(),
                        decoded: target.decoded.as_deref(),
                        scope,
                        errors: self.errors_of_target(target, request.path()),
                        at: Some(fallback.at),
                    };
                    return fallback.handler.call(request, &matched);
                }
            }
            _ => {}
        }
        self.own_response(&request, target, Response::new(StatusCode::NOT_FOUND))
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
/// 9.3.7 and 15.5.6). A method that another route has is known.
fn no_method(router: &Router, route: &Route, request: &Request) -> Response {
    let (method, allow) = (request.method(), route.allow());
    let is_known = || {
        let mut routes = router.routes();
        routes.any(|route| route.has_method(method))
    };
    let response = Response::refuse_method(method, &allow);
    match response.status() {
        StatusCode::NOT_IMPLEMENTED if is_known() => {
            Response::new(StatusCode::METHOD_NOT_ALLOWED).with_header(&header::ALLOW, &allow)
        }
        _ => response,
    }
}

impl MountService {
    /// Calls the service with the rest of the path.
    fn call(&self, mut request: Request, decoded: Option<&str>, rest: usize) -> ResponseFuture {
        if self.path.is_empty() {
            return self.service.call(request);
        }
        let path = decoded.unwrap_or(request.path());
        if path.len() <= rest {
            return add_slash(&request);
        }
        let Some(rest) = self.encoded_rest(&request) else {
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
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

impl MountService {
    /// The rest of a path behind the path of the mount, in the encoding of the client: a proxy forwards it as it was
    /// sent.
    fn encoded_rest(&self, request: &Request) -> Option<String> {
        let rest_of = |encoded| {
            let rest = path::strip_decoded_prefix(encoded, self.path.as_bytes())?;
            rest.starts_with('/').then(|| rest.to_owned())
        };
        let sent = request.path();
        let rest = match path::has_dot_segment(sent) {
            Ok(false) => rest_of(sent).filter(|rest| !rest.starts_with("//")),
            _ => None,
        };
        rest.or_else(|| rest_of(request.forwarded_path().ok()?))
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
