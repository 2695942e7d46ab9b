//! The route of a request, and the group of the application that the route is in.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

use apus_http::Request;

use crate::rendering::{ErrorRules, Rendering};
use crate::state::States;

/// How many bytes of a body an extractor keeps in memory if nothing else is set.
pub const DEFAULT_BODY_LIMIT: u64 = 2 * 1024 * 1024;

/// The settings and the state of a group.
#[derive(Debug, Default)]
pub struct RouteScope {
    /// The values of the state.
    pub states: States,
    /// The most bytes of a body that an extractor keeps in memory.
    pub body_limit: u64,
    /// The form of the responses to errors.
    pub errors: ErrorRules,
}

/// The route that a request matched, and the state of the application.
pub struct Matched<'a> {
    /// The names of the path parameters.
    pub names: &'a [Box<str>],
    /// The ranges of their values in the path.
    pub ranges: &'a [Range<usize>],
    /// The path in normal form, if the path of the request is not.
    pub decoded: Option<&'a str>,
    /// The group that the route is in.
    pub scope: &'a RouteScope,
    /// The form of the responses to errors, which the group decides, or the group that a path without a
    /// route is in.
    pub errors: &'a ErrorRules,
    /// Where the route was added.
    pub at: Option<&'static Location<'static>>,
}

impl<'a> Matched<'a> {
    /// No route, in this group.
    pub fn unknown(scope: &'a RouteScope) -> Self {
        Self {
            names: &[],
            ranges: &[],
            decoded: None,
            scope,
            errors: &scope.errors,
            at: None,
        }
    }
    /// The path parameters in order, decoded.
    pub fn parameters<'r>(
        &'r self,
        request: &'r Request,
    ) -> impl Iterator<Item = (&'r str, &'r str)> {
        let path = self.decoded.unwrap_or(request.path());
        let parameters = self.names.iter().zip(self.ranges);
        parameters.map(move |(name, value)| (&**name, path.get(value.clone()).unwrap_or("")))
    }

    /// A value of the application's state.
    pub fn state<T: 'static>(&self) -> Option<&T> {
        self.scope.states.get::<T>()
    }

    /// The most bytes of a body that an extractor keeps in memory.
    pub fn body_limit(&self) -> u64 {
        self.scope.body_limit
    }

    /// The form of the response to an error.
    pub fn rendering(&self, request: &Request) -> Rendering {
        Rendering::of(request, self.errors)
    }
}

impl fmt::Debug for Matched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matched")
            .field("names", &self.names)
            .field("ranges", &self.ranges)
            .finish_non_exhaustive()
    }
}
