//! Who responds to a request, as rules chose.

use std::sync::Arc;

use crate::Request;

/// An extension of a request for which rules chose the group of origins or the location: other requests for the same target get another
/// response, so the keys of caches have it.
#[derive(Clone, Debug, Default)]
pub struct RuleChoice {
    upstream: Option<Arc<str>>,
    location: Option<Arc<str>>,
}

impl RuleChoice {
    /// What rules chose for a request.
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// Sends a request to this group of origins, if the location proxies and has it to choose from.
    pub fn set_upstream(request: &mut Request, name: &Arc<str>) {
        Self::change(request, |choice| choice.upstream = Some(Arc::clone(name)));
    }

    /// Notes that a request is served by this location, whatever its path is.
    pub fn set_location(request: &mut Request, pattern: &Arc<str>) {
        Self::change(request, |choice| {
            choice.location = Some(Arc::clone(pattern))
        });
    }

    /// The name of the group of origins.
    pub fn upstream(&self) -> Option<&str> {
        self.upstream.as_deref()
    }

    /// The location.
    pub fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    fn change(request: &mut Request, change: impl FnOnce(&mut Self)) {
        let mut choice = Self::of(request).cloned().unwrap_or_default();
        change(&mut choice);
        request.extensions_mut().insert(choice);
    }
}
