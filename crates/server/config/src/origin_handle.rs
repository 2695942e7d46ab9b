//! Groups of origins to which layers send requests of their own.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use apus_http::{Response, Service, ServiceFactory, StatusCode, service_fn};
use apus_proxy::ProxySettings;

/// The service for requests that a layer sends to a group of origins. The layers of a plan are made before there are groups: whoever
/// assembles the services connects the two.
#[derive(Clone)]
pub struct OriginHandle(Arc<HandleState>);

struct HandleState {
    group: String,
    settings: ProxySettings,
    service: OnceLock<Arc<dyn ServiceFactory>>,
}

impl OriginHandle {
    /// For requests to a group.
    pub(crate) fn new(group: String, settings: ProxySettings) -> Self {
        Self(Arc::new(HandleState {
            group,
            settings,
            service: OnceLock::new(),
        }))
    }

    /// The name of the group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// How requests are sent.
    pub fn settings(&self) -> &ProxySettings {
        &self.0.settings
    }

    /// Connects it to the service. Only the first call has an effect.
    pub fn connect(&self, service: Arc<dyn ServiceFactory>) {
        let _ = self.0.service.set(service);
    }
}

impl ServiceFactory for OriginHandle {
    fn service(&self) -> Rc<dyn Service> {
        match self.0.service.get() {
            Some(service) => service.service(),
            None => Rc::new(service_fn(|_| {
                Response::new(StatusCode::SERVICE_UNAVAILABLE).into()
            })),
        }
    }
}

impl fmt::Debug for OriginHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OriginHandle").field(&self.0.group).finish()
    }
}
