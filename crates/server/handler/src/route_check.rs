//! `RouteCheck`: what the layers and the handler of a route need, which is checked before a server listens.

use std::any::TypeId;

/// The facts of a route that its layers and its handler are checked against, and the mistakes that were found.
///
/// The layers add what they provide, outermost first; then the handler's arguments are checked.
#[derive(Debug)]
pub struct RouteCheck<'a> {
    parameters: &'a [Box<str>],
    states: &'a [TypeId],
    /// The types of the extensions that layers add to the request.
    provided: Vec<TypeId>,
    /// Whether all layers are known: no other service is around the application.
    is_complete: bool,
    mistakes: Vec<String>,
}

impl<'a> RouteCheck<'a> {
    /// For a route with these path parameters and types of state.
    pub fn new(parameters: &'a [Box<str>], states: &'a [TypeId], is_complete: bool) -> Self {
        Self {
            parameters,
            states,
            provided: Vec::new(),
            is_complete,
            mistakes: Vec::new(),
        }
    }

    /// The names of the path parameters, in order.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parameters.iter().map(|name| &**name)
    }

    /// Whether the application has a state of this type.
    pub fn has_state<T: 'static>(&self) -> bool {
        self.states.contains(&TypeId::of::<T>())
    }

    /// Notes that a layer adds an extension of this type to requests.
    pub fn provide<T: 'static>(&mut self) {
        self.provided.push(TypeId::of::<T>());
    }

    /// Whether no layer adds an extension of this type. It is `false` if the layers are not all known, because the
    /// application is mounted in another service.
    pub fn lacks<T: 'static>(&self) -> bool {
        self.is_complete && !self.provided.contains(&TypeId::of::<T>())
    }

    /// Adds a mistake: a sentence without a full stop.
    pub fn mistake(&mut self, text: impl Into<String>) {
        self.mistakes.push(text.into());
    }

    /// Takes the mistakes that were found until now.
    pub fn take_mistakes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.mistakes)
    }
}
