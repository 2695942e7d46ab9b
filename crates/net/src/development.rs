//! The socket of `apus dev`, on which an application listens in place of its own addresses.

use std::env;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_http::{Network, Request, ResponseFuture, Service, ServiceFactory, TrustedProxies};

use crate::plan::{ListenAddress, ListenerPlan};

/// The variable with the path of the socket.
pub const DEVELOPMENT_SOCKET: &str = "APUS_DEV_SOCKET";

/// The listener of an application that `apus dev` has started; `None` for all others.
///
/// Only the first server of a process gets it. The service sees the clients, the scheme and the host of the requests to
/// `apus dev`.
pub fn development_listener(service: &Arc<dyn ServiceFactory>) -> Option<ListenerPlan> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let path = env::var_os(DEVELOPMENT_SOCKET).filter(|path| !path.is_empty())?;
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    Some(listener(path.into(), service))
}

fn listener(path: PathBuf, service: &Arc<dyn ServiceFactory>) -> ListenerPlan {
    // The folder of the socket is closed to other users.
    let address = ListenAddress::Unix { path, mode: 0o600 };
    let service = DevelopmentServiceFactory(Arc::clone(service));
    ListenerPlan::new(address, Arc::new(service))
}

/// The service behind `apus dev`, which is a proxy that tells of its clients.
struct DevelopmentServiceFactory(Arc<dyn ServiceFactory>);

impl ServiceFactory for DevelopmentServiceFactory {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(DevelopmentService {
            proxy: TrustedProxies::new([Network::Unix]),
            inner: self.0.service(),
        })
    }
}

struct DevelopmentService {
    proxy: TrustedProxies,
    inner: Rc<dyn Service>,
}

impl Service for DevelopmentService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        self.proxy.establish(&mut request);
        self.inner.call(request)
    }
}
