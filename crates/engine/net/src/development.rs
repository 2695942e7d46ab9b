//! The socket of `apus dev`, on which an application listens in place of its own addresses.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_http::{Network, Request, ResponseFuture, Service, ServiceFactory, TrustedProxies};

use crate::plan::{ListenAddress, ListenerPlan};

/// The variable with the path of the socket.
pub const DEVELOPMENT_SOCKET: &str = "APUS_DEV_SOCKET";

/// Whether a server of this process has the socket.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The socket of `apus dev`, which one server of a process has while it runs.
#[derive(Debug)]
pub struct DevelopmentSocket {
    path: PathBuf,
}

impl DevelopmentSocket {
    /// The socket, in an application that `apus dev` has started; `None` in all others.
    ///
    /// # Errors
    /// Another server of this process has it.
    pub fn take() -> Result<Option<Self>, DevelopmentSocketTaken> {
        let path = env::var_os(DEVELOPMENT_SOCKET).filter(|path| !path.is_empty());
        let Some(path) = path else {
            return Ok(None);
        };
        if IS_TAKEN.swap(true, Ordering::Relaxed) {
            Err(DevelopmentSocketTaken)
        } else {
            Ok(Some(Self { path: path.into() }))
        }
    }

    /// The listener on it. The service sees the clients, the scheme and the host of the requests to `apus dev`.
    pub fn listener(&self, service: &Arc<dyn ServiceFactory>) -> ListenerPlan {
        // The folder of the socket is closed to other users.
        let address = ListenAddress::Unix {
            path: self.path.clone(),
            mode: 0o600,
        };
        let service = DevelopmentServiceFactory(Arc::clone(service));
        ListenerPlan::new(address, Arc::new(service))
    }

    /// Shows the URLs that the application serves beside the socket, on the terminal of the developer.
    pub fn announce(&self, urls: &[String]) {
        for url in urls {
            // `apus dev` may be gone, which ends this process.
            let _ = writeln!(io::stderr(), "The application also serves {url}");
        }
    }
}

impl Drop for DevelopmentSocket {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Relaxed);
    }
}

/// Why a server cannot run under `apus dev`: it is not the only one of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevelopmentSocketTaken;

impl fmt::Display for DevelopmentSocketTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "`apus dev` forwards requests to one server of a program, and this program starts a second one beside it: \
             serve the application of the second one by `Server::also` of the first",
        )
    }
}

impl std::error::Error for DevelopmentSocketTaken {}

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
