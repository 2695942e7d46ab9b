//! A check that can admit clients.

use std::fmt::Debug;
use std::sync::Arc;

use apus_handler::ResponseMarker;
use apus_handler::middleware::{Layer, Middleware};
use apus_layers::AccessCheck;

use crate::source::SourceSpan;

/// A check that can admit clients, alone as a layer and as one of several.
#[derive(Clone)]
pub(super) struct AdmissionCheck {
    pub(super) layer: Layer,
    pub(super) check: Arc<dyn AccessCheck>,
    pub(super) settings: Arc<str>,
    /// Where it says that clients without credentials are admitted, too.
    pub(super) admits_everybody: Option<SourceSpan>,
}

impl AdmissionCheck {
    pub(super) fn new(
        settings: &dyn Debug,
        check: impl AccessCheck + Middleware<ResponseMarker> + Clone,
    ) -> Self {
        Self {
            layer: Layer::named(check.name(), settings, check.clone()),
            check: Arc::new(check),
            settings: format!("{settings:?}").into(),
            admits_everybody: None,
        }
    }
}

impl Debug for AdmissionCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.layer.fmt(f)
    }
}
