//! Variables that rules set, for later rules, templates and logs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use apus_http::Request;

/// The variables of a request, which rules set and nothing that a client sends: an extension of the request. Clones are the same
/// variables, so that a log that began with the request finds those that were set later.
#[derive(Clone, Default)]
pub struct RequestVariables(Arc<Mutex<Vec<Variable>>>);

/// A name and its value.
type Variable = (Arc<str>, Arc<[u8]>);

impl RequestVariables {
    /// The variables of a request, if it has a place for them.
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// Gives a request a place for variables, if it has none.
    pub fn attach(request: &mut Request) {
        if Self::of(request).is_none() {
            request.extensions_mut().insert(Self::default());
        }
    }

    /// Sets a variable of a request.
    pub fn set(request: &mut Request, name: &Arc<str>, value: Vec<u8>) {
        Self::attach(request);
        let Some(Self(variables)) = Self::of(request) else {
            return;
        };
        let mut variables = variables.lock().unwrap_or_else(PoisonError::into_inner);
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.into(),
            None => variables.push((Arc::clone(name), value.into())),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<Arc<[u8]>> {
        let variables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = variables.iter().find(|(known, _)| **known == *name);
        found.map(|(_, value)| Arc::clone(value))
    }

    /// The value of a variable of a request.
    pub fn value(request: &Request, name: &str) -> Option<Arc<[u8]>> {
        Self::of(request)?.get(name)
    }
}

impl fmt::Debug for RequestVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestVariables").finish_non_exhaustive()
    }
}
