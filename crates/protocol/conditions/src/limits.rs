//! What is left of limits, as requests find it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use apus_http::Request;

/// Says what is left of a limit for a request, and counts nothing. `None`: the limit is not for this request.
pub type LimitReading = Arc<dyn Fn(&Request) -> Option<u64> + Send + Sync>;

/// The limits that conditions may ask for by `limit.NAME`. Clones share them.
#[derive(Clone, Default)]
pub struct RequestLimits(Arc<HashMap<Box<str>, LimitReading>>);

impl RequestLimits {
    /// Adds a limit. One of the same name is replaced.
    pub fn add(&mut self, name: &str, reading: LimitReading) {
        Arc::make_mut(&mut self.0).insert(name.into(), reading);
    }

    /// Gives a request these limits, for conditions.
    pub fn attach(&self, request: &mut Request) {
        request.extensions_mut().insert(self.clone());
    }

    /// What is left of the limit of this name for a request; `None` if the request has no such limit.
    pub fn left(request: &Request, name: &str) -> Option<u64> {
        let Self(limits) = request.extensions().get()?;
        limits.get(name)?(request)
    }
}

impl fmt::Debug for RequestLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
