//! The path prefix under which a service is mounted.

use std::sync::Arc;

use crate::Request;

/// The prefix that was removed from the path before the mounted service got the request; an extension of
/// the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPrefix(pub Arc<str>);

/// The percent-encoded prefix of the paths of this service: empty, or `/prefix` without a trailing
/// slash. A redirect within the service starts with it.
pub fn mount_prefix(request: &Request) -> &str {
    request
        .extensions()
        .get::<MountPrefix>()
        .map_or("", |mounted| &mounted.0)
}
