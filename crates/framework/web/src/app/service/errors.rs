//! The rules for the errors of a request, which the application sets, or the group that the path is in.

use apus_handler::rendering::{ErrorRules, Rendering};
use apus_http::{Method, Request, Response, ResponseFuture};

use super::{AppService, RouteTarget, RouteTargetKind, is_under};

impl AppService {
    /// The rules of a group for errors; the application has the number 0.
    pub(in crate::app) fn errors_of(&self, group: usize) -> &ErrorRules {
        let group = self.groups.get(group);
        group.map_or(&self.no_rules, |group| &group.scope.errors)
    }

    /// The rules for the errors of layers around the application, which the group that the path is in sets.
    pub(in crate::app) fn errors_of_request(&self, request: &Request) -> &ErrorRules {
        if !self.has_group_errors {
            return self.errors_of(0);
        }
        match self.routed_target(request) {
            Ok(routed) => self.errors_of_target(&routed.target, request.path()),
            Err(_) => self.errors_of_path(&RequestPath::of(request)),
        }
    }

    /// As [`Self::errors_of_request`].
    pub(in crate::app) fn errors_of_path(&self, of: &RequestPath) -> &ErrorRules {
        match &of.path {
            Some(path) => {
                let target = self.find(of.host.as_deref(), &of.method, path);
                self.errors_of_target(&target, path)
            }
            None => self.errors_of(0),
        }
    }

    /// Whether the application or a group of it has rules for errors.
    pub(in crate::app) fn has_error_rules(&self) -> bool {
        self.has_group_errors || !self.errors_of(0).is_default()
    }

    /// The rules for the errors of a target. A path without a route belongs to the group whose path it begins
    /// with.
    pub(in crate::app) fn errors_of_target(&self, target: &RouteTarget, path: &str) -> &ErrorRules {
        let group = self.group_of(target);
        if !self.has_group_errors
            || !matches!(
                target.what,
                RouteTargetKind::Fallback(_) | RouteTargetKind::Nothing
            )
        {
            return self.errors_of(group);
        }
        let path = target.decoded.as_deref().unwrap_or(path);
        let hosts = target.named_host.into_iter().chain([0]);
        let hosts = hosts.filter_map(|host| self.hosts.get(host));
        let paths = hosts.filter_map(|host| {
            let mut paths = host.group_paths.iter();
            paths.find(|(prefix, _)| is_under(path, prefix))
        });
        // Of two paths of one length, the path of the host counts.
        let around = paths.reduce(|one, other| {
            if one.0.len() < other.0.len() {
                other
            } else {
                one
            }
        });
        self.errors_of(around.map_or(group, |(_, group)| *group))
    }

    /// A response of a layer around the application, in the form of the group that the path is in.
    pub(in crate::app) fn form_outer(&self, request: &Request, response: Response) -> Response {
        if Rendering::changes(&response) {
            Rendering::of(request, self.errors_of_request(request)).apply(response)
        } else {
            response
        }
    }

    /// A response of the application itself, in the form that the group chose.
    pub(in crate::app) fn own_response(
        &self,
        request: &Request,
        target: &RouteTarget,
        response: Response,
    ) -> ResponseFuture {
        if !Rendering::changes(&response) {
            return response.into();
        }
        let rules = self.errors_of_target(target, request.path());
        Rendering::of(request, rules).apply(response).into()
    }
}

/// What the router needs of a request.
pub(in crate::app) struct RequestPath {
    method: Method,
    host: Option<Box<str>>,
    /// In normal form; `None` if it has none.
    path: Option<Box<str>>,
}

impl RequestPath {
    pub(in crate::app) fn of(request: &Request) -> Self {
        let path = request.normal_path().ok();
        let path = path.and_then(|path| std::str::from_utf8(path).ok());
        Self {
            method: request.method().clone(),
            host: request.host().map(Box::from),
            path: path.map(Box::from),
        }
    }
}
