//! Under which path a service is mounted.

use std::sync::Arc;

use crate::Request;

/// What was taken off the front of the path before the service below saw it; an extension of the
/// request, set where a service is mounted under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPrefix(pub Arc<str>);

/// The percent-encoded path under which the client knows this service: empty, or `/prefix` without a
/// slash at its end. What a service redirects to within itself starts with it.
pub fn mount_prefix(request: &Request) -> &str {
    request
        .extensions()
        .get::<MountPrefix>()
        .map_or("", |mounted| &mounted.0)
}
