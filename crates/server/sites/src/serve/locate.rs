//! The location of a request: rewrites of the site, the pattern that matches, and the rules for entering the location.

use apus_http::path::{self, InvalidPath};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Method, Request, RequestEvent, Response, RuleChoice, StatusCode, mount_prefix};

use super::SiteState;
use super::location_state::LocationState;
use super::route::RequestRoute;
use super::rules::LocationRules;
use crate::location::LocationMatch;
use crate::rewrite::{self, RewriteResult};
use crate::template::Captures;

/// What comes of the search for the location of a request.
pub(super) enum LocationSearch {
    /// The request is in its location; these are the captures of the pattern.
    Found(Captures),
    /// A rewrite of the location gave the request another path: the search begins again.
    Again,
    /// The site responds itself.
    Response(Response),
}

impl SiteState {
    /// Applies the rules of the site to a request that is in no location yet. A response ends it.
    pub(super) fn apply_site_rules(
        &self,
        request: &mut Request,
        route: &RequestRoute,
    ) -> Option<Response> {
        if let Some(force) = &self.force_https
            && !request.is_secure()
        {
            trace::note(request, || {
                Step::new(StepKind::Handler, "redirect to https", "force_https is set")
            });
            request.note(|| RequestEvent::decided("force_https", "the request is in clear text"));
            return Some(force.redirect(request));
        }
        if self.has_first_steps
            && let Some(response) = self.apply_first_rules(request, route)
        {
            return Some(response);
        }
        if self.default_location.rewrites.is_empty() {
            return None;
        }
        match self.rewrite(&self.default_location, request) {
            RewriteResult::Response(response) => return Some(response),
            // As in nginx, a path that a rule of the site made may match an internal location.
            RewriteResult::Path | RewriteResult::Break { is_changed: true } => {
                route.is_internal.set(true);
            }
            RewriteResult::No | RewriteResult::Break { is_changed: false } => {}
        }
        None
    }

    /// Finds the location of a request, sets it in the route, and applies the rewrites of the location.
    pub(super) fn find_location(
        &self,
        request: &mut Request,
        route: &RequestRoute,
    ) -> LocationSearch {
        // Until there is a location, responses get the settings of the site.
        route.location.set(None);
        let path = match request.normal_path() {
            Ok(path) => path,
            Err(error) => return LocationSearch::Response(invalid_path(request, error)),
        };
        let chosen = if self.has_rules {
            route.take_chosen_location()
        } else {
            None
        };
        if chosen.is_none()
            && let Some(response) = self.slash_redirect(request, path)
        {
            return LocationSearch::Response(response);
        }
        let found = match chosen {
            None => self.matcher.find(path),
            Some(chosen) => match self.location_of_rule(&chosen) {
                Some(index) => {
                    RuleChoice::set_location(request, &chosen);
                    Some((index, LocationMatch::Rule))
                }
                None => return LocationSearch::Response(self.missing_location(&chosen)),
            },
        };
        let Some((index, how)) = found else {
            trace::note(request, || {
                Step::new(StepKind::Location, "none", "no location matches the path")
            });
            return if self.default_location.layers.is_empty() || route.skips_layers {
                LocationSearch::Response(Response::new(StatusCode::NOT_FOUND))
            } else {
                LocationSearch::Found(Captures::default())
            };
        };
        let Some(location) = self.locations.get(index) else {
            return LocationSearch::Response(Response::new(StatusCode::NOT_FOUND));
        };
        if let Some(response) = self.refuse_entry(request, (index, how), route) {
            return LocationSearch::Response(response);
        }
        route.location.set(Some(index));
        trace::note(request, || {
            Step::new(StepKind::Location, location.title(), how.to_string())
        });
        match self.apply_location_rules(request, route) {
            LocationRules::Stay => {}
            LocationRules::Again => {
                route.is_internal.set(true);
                return LocationSearch::Again;
            }
            LocationRules::Respond(response) => return LocationSearch::Response(response),
        }
        let path = request.normal_path().unwrap_or_default();
        let captures = match &location.pattern {
            Some(pattern) if location.has_captures => pattern.captures(path),
            _ => Captures::default(),
        };
        if !location.rewrites.is_empty() {
            match self.rewrite(location, request) {
                RewriteResult::No => {}
                RewriteResult::Break { is_changed } => {
                    route.is_internal.set(route.is_internal.get() || is_changed);
                }
                RewriteResult::Path => {
                    route.is_internal.set(true);
                    return LocationSearch::Again;
                }
                RewriteResult::Response(response) => return LocationSearch::Response(response),
            }
        }
        LocationSearch::Found(captures)
    }

    /// The location that a rule names by its pattern.
    fn location_of_rule(&self, pattern: &str) -> Option<usize> {
        let mut patterns = self.locations.iter().map(|location| &location.pattern);
        patterns.position(|other| {
            other
                .as_ref()
                .is_some_and(|other| other.as_str() == pattern)
        })
    }

    #[cold]
    fn missing_location(&self, pattern: &str) -> Response {
        tracing::error!(
            site = &*self.name,
            location = pattern,
            "a rule chooses a location that does not exist"
        );
        Response::new(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The response to a request that may not enter the location that its path matches.
    fn refuse_entry(
        &self,
        request: &Request,
        (index, how): (usize, LocationMatch),
        route: &RequestRoute,
    ) -> Option<Response> {
        let location = self.locations.get(index)?;
        if !location.allows_encoded_slash
            && let Err(error) = request.plain_path()
        {
            route.location.set(Some(index));
            return Some(invalid_path(request, error));
        }
        if location.allows_encoded_slash && self.leads_to_closed_location(request, index) {
            return Some(invalid_path(request, InvalidPath::DotSegment));
        }
        if location.is_internal && !route.is_internal.get() && how != LocationMatch::Rule {
            trace::note(request, || {
                Step::new(StepKind::Location, "none", "the location is internal")
            });
            return Some(Response::new(StatusCode::NOT_FOUND));
        }
        None
    }

    /// The redirect to a location's prefix for its path without the slash at its end.
    fn slash_redirect(&self, request: &Request, path: &[u8]) -> Option<Response> {
        if !self.has_slash_redirects || path.ends_with(b"/") {
            return None;
        }
        let found = self.locations.get(self.matcher.find_with_slash(path)?)?;
        if !found.redirects_to_slash || found.is_internal {
            return None;
        }
        trace::note(request, || {
            Step::new(
                StepKind::Location,
                found.title(),
                "the path is redirected to the one with a slash",
            )
        });
        let mut location = mount_prefix(request).to_owned();
        path::encode_onto(&mut location, path);
        location.push('/');
        if let Some(query) = request.query() {
            location.push('?');
            location.push_str(query);
        }
        let mut response = Response::new(match *request.method() {
            Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
            _ => StatusCode::PERMANENT_REDIRECT,
        });
        // The path is encoded and the query is visible ASCII, so that the value is valid.
        let _ = response.headers_mut().try_append("location", location);
        Some(response)
    }

    /// Whether an application that removes parameters, or takes `\` for a slash, reads a path of another location
    /// that has its own rules.
    fn leads_to_closed_location(&self, request: &Request, index: usize) -> bool {
        let path = request.normal_path().unwrap_or_default();
        let Some(other) = path::reading_without_parameters(path) else {
            return false;
        };
        let found = self
            .matcher
            .find(&other)
            .filter(|(found, _)| *found != index);
        found
            .and_then(|(found, _)| self.locations.get(found))
            .is_some_and(|other| other.has_own_rules)
    }

    fn rewrite(&self, location: &LocationState, request: &mut Request) -> RewriteResult {
        rewrite::run(&location.rewrites, request, &self.name, &location.root)
    }
}

/// The response to a request whose path has no normal form.
fn invalid_path(request: &Request, error: InvalidPath) -> Response {
    trace::note(request, || {
        Step::new(StepKind::Location, "none", error.to_string())
    });
    Response::new(request.invalid_path_status())
}
