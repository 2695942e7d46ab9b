//! `App`: an application of routes, middleware and mounted services.

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    Answer, HeaderValue, Method, Request, Response, Service, ServiceFactory, StatusCode, header,
};
use apus_net::{Engine, Limits, ListenAddress, Listener, Plan};
use http::Extensions;
use smallvec::SmallVec;
use tokio::signal::unix::{SignalKind, signal};

use crate::extract::Matched;
use crate::handler::{self, AnyHandler, Handler};
use crate::middleware::{self, AnyMiddleware, Middleware, Next};
use crate::path::{self, MountedAt};
use crate::router::{RouteError, Router};
use crate::sites::{Location, Pattern, Site};
use crate::trace::{self, Step, StepKind};

/// Content that an extractor keeps in memory, in bytes, unless [`App::body_limit`] says otherwise.
const DEFAULT_BODY_LIMIT: u64 = 2 * 1024 * 1024;

/// An application: routes, middleware, and services mounted under a path.
///
/// A route is looked for first, then the longest path that something is mounted under, then the
/// fallback. In a route, `{name}` stands for one segment of the path and `{*name}` at its end for
/// all that is left. Paths are matched in normal form (see [`crate::path`]).
///
/// An `App` is a [`ServiceFactory`], so it can be mounted in another, or be a location of a site.
#[derive(Clone)]
pub struct App {
    routes: Router,
    mounts: Vec<Mount<Arc<dyn ServiceFactory>>>,
    fallback: Option<Arc<dyn AnyHandler>>,
    layers: Vec<Arc<dyn AnyMiddleware>>,
    state: Extensions,
    body_limit: u64,
    /// The first mistake in what was added.
    error: Option<RouteError>,
}

#[derive(Clone)]
struct Mount<S> {
    /// Without a slash at its end, in normal form.
    path: Arc<str>,
    /// Whether the path without a slash behind it is redirected to the one with it.
    needs_slash: bool,
    service: S,
}

impl Default for App {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! by_method {
    ($($(#[$doc:meta])* $name:ident: $method:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name<M>(self, path: &str, handler: impl Handler<M>) -> Self
        where
            M: 'static,
        {
            self.route(Method::$method, path, handler)
        }
    )*};
}

impl App {
    /// An application that answers 404 to everything.
    pub fn new() -> Self {
        Self {
            routes: Router::default(),
            mounts: Vec::new(),
            fallback: None,
            layers: Vec::new(),
            state: Extensions::new(),
            body_limit: DEFAULT_BODY_LIMIT,
            error: None,
        }
    }

    by_method! {
        /// Adds a route for GET, and for HEAD if it gets none of its own.
        get: GET;
        /// Adds a route for POST.
        post: POST;
        /// Adds a route for PUT.
        put: PUT;
        /// Adds a route for PATCH.
        patch: PATCH;
        /// Adds a route for DELETE.
        delete: DELETE;
        /// Adds a route for HEAD.
        head: HEAD;
        /// Adds a route for OPTIONS; without one, the methods that the path has are listed.
        options: OPTIONS;
    }

    /// Adds a route.
    #[must_use]
    pub fn route<M: 'static>(self, method: Method, path: &str, handler: impl Handler<M>) -> Self {
        self.add(
            Some(method),
            path,
            Arc::new(handler::Unmarked::new(handler)),
        )
    }

    /// Adds a route for all methods that the path has no other for.
    #[must_use]
    pub fn any<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.add(None, path, Arc::new(handler::Unmarked::new(handler)))
    }

    fn add(mut self, method: Option<Method>, path: &str, handler: Arc<dyn AnyHandler>) -> Self {
        if let Err(error) = self.routes.add(method, path, handler) {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Answers what no route and no mount does.
    #[must_use]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M>) -> Self {
        self.fallback = Some(Arc::new(handler::Unmarked::new(handler)));
        self
    }

    /// Puts a service under a path. It sees paths without that front part, which
    /// [`path::mounted_at`] tells it. The path itself is redirected to the one with a slash behind.
    #[must_use]
    pub fn mount(self, path: &str, service: impl ServiceFactory + 'static) -> Self {
        self.attach(path, true, Arc::new(service))
    }

    /// Puts another application under a path; its `/` is that path, with and without a slash.
    #[must_use]
    pub fn nest(self, path: &str, app: App) -> Self {
        self.attach(path, false, Arc::new(app))
    }

    fn attach(mut self, path: &str, needs_slash: bool, service: Arc<dyn ServiceFactory>) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_normal = path.is_empty()
            || (!path.ends_with('/')
                && path::normalise(path).is_ok_and(|normal| *normal == *path.as_bytes()));
        if !is_normal {
            self.error.get_or_insert(RouteError::not_absolute(path));
        } else if self.mounts.iter().any(|mount| &*mount.path == path) {
            self.error.get_or_insert(RouteError::twice(path));
        } else {
            self.mounts.push(Mount {
                path: path.into(),
                needs_slash: needs_slash && !path.is_empty(),
                service,
            });
            self.mounts
                .sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        }
        self
    }

    /// Puts a function around everything that was and will be added; the first one is outermost.
    #[must_use]
    pub fn layer<M: 'static>(mut self, middleware: impl Middleware<M>) -> Self {
        self.layers
            .push(Arc::new(middleware::Unmarked::new(middleware)));
        self
    }

    /// Gives handlers a value to take as [`crate::State`], one of each type. Each request that takes
    /// it clones it, and all workers share it: an [`Arc`] is usual.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// The longest content in bytes that an extractor keeps in memory; past it 413. It is 2 MiB
    /// unless set. What takes the content as a stream is not bound by it.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Whether all routes and mounts could be added.
    ///
    /// # Errors
    /// The first that could not.
    pub fn check(&self) -> Result<(), RouteError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Serves on an address, as `127.0.0.1:8080`, until the process is told to stop: one worker for
    /// each core, with the limits of the server's default configuration.
    ///
    /// # Errors
    /// A route is not possible, or the address cannot be listened on.
    pub fn serve(self, address: impl ToSocketAddrs) -> io::Result<()> {
        self.check().map_err(invalid)?;
        let site = Site::new("app").location(Location::service(Pattern::everywhere(), "app", self));
        let service: Arc<dyn ServiceFactory> = Arc::new(site);
        let limits = Limits::default();
        let stop_timeout = limits.stop_timeout;
        let control = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let stop = {
            let _entered = control.enter();
            told_to_stop()?
        };
        let engine = Engine::start(Plan {
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limits,
            server_field: None,
            listeners: address
                .to_socket_addrs()?
                .map(|address| Listener {
                    address: ListenAddress::Tcp {
                        address,
                        ipv6_only: true,
                    },
                    tls: None,
                    http2: true,
                    proxy_protocol_from: Vec::new(),
                    service: service.clone(),
                })
                .collect(),
        })
        .map_err(io::Error::other)?;
        control.block_on(async {
            stop.await;
            engine.stop(stop_timeout).await;
        });
        Ok(())
    }
}

/// SIGTERM or SIGINT from now on.
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl ServiceFactory for App {
    fn service(&self) -> Rc<dyn Service> {
        if let Some(error) = &self.error {
            tracing::error!(%error, "a part of the application is missing");
        }
        let mounts = self.mounts.iter();
        Rc::new(Handle(Rc::new(AppService {
            mounts: mounts
                .map(|mount| Mount {
                    path: mount.path.clone(),
                    needs_slash: mount.needs_slash,
                    service: mount.service.service(),
                })
                .collect(),
            app: self.clone(),
        })))
    }
}

/// The application on one worker.
pub(crate) struct AppService {
    app: App,
    mounts: Vec<Mount<Rc<dyn Service>>>,
}

/// What the worker holds; layers hold on to the inside while they wait.
struct Handle(Rc<AppService>);

impl Service for Handle {
    fn call(&self, request: Request) -> Answer {
        if self.0.app.layers.is_empty() {
            self.0.dispatch(request)
        } else {
            AppService::layered(self.0.clone(), 0, request)
        }
    }
}

impl AppService {
    /// Runs the layer at this place, and from it those further in.
    pub(crate) fn layered(this: Rc<Self>, layer: usize, request: Request) -> Answer {
        let service = this.clone();
        match service.app.layers.get(layer) {
            Some(middleware) => middleware.call(
                request,
                Next {
                    app: this,
                    layer: layer.saturating_add(1),
                },
            ),
            None => this.dispatch(request),
        }
    }

    fn dispatch(&self, request: Request) -> Answer {
        let decoded = match path::normalise(request.path()) {
            Ok(std::borrow::Cow::Borrowed(_)) => None,
            Ok(std::borrow::Cow::Owned(path)) => match String::from_utf8(path) {
                Ok(path) => Some(path),
                Err(_) => return Response::new(StatusCode::BAD_REQUEST).into(),
            },
            Err(_) if request.path() == "*" => {
                return Response::new(StatusCode::NO_CONTENT).into();
            }
            Err(_) => return Response::new(StatusCode::BAD_REQUEST).into(),
        };
        let path = decoded.as_deref().unwrap_or(request.path());
        if let Some((route, parameters)) = self.app.routes.find(path) {
            let parameters = parameters
                .iter()
                .map(|(name, value)| {
                    let start = (value.as_ptr() as usize).saturating_sub(path.as_ptr() as usize);
                    (name, start..start.saturating_add(value.len()))
                })
                .collect();
            if let Some(handler) = route.handler(request.method()) {
                return self.hand_over(handler, request, parameters, decoded);
            }
            let status = match *request.method() {
                Method::OPTIONS => StatusCode::NO_CONTENT,
                _ => StatusCode::METHOD_NOT_ALLOWED,
            };
            return Response::new(status)
                .with_header(&header::ALLOW, &route.allow())
                .into();
        }
        let mount = self.mounts.iter().find(|mount| {
            path.strip_prefix(&*mount.path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if let Some(mount) = mount {
            let rest = path.get(mount.path.len()..).unwrap_or("");
            if rest.is_empty() && mount.needs_slash {
                return add_slash(&request);
            }
            let rest = path::encode(rest.as_bytes());
            return mount.call(request, &rest);
        }
        match &self.app.fallback {
            Some(fallback) => self.hand_over(&**fallback, request, SmallVec::new(), decoded),
            None => Response::new(StatusCode::NOT_FOUND).into(),
        }
    }

    fn hand_over<'a>(
        &'a self,
        handler: &dyn AnyHandler,
        request: Request,
        parameters: SmallVec<[(&'a str, std::ops::Range<usize>); 4]>,
        decoded: Option<String>,
    ) -> Answer {
        trace::note(&request, || {
            Step::new(StepKind::Handler, "route", format!("of {}", request.path()))
        });
        let matched = Matched {
            parameters,
            decoded,
            state: &self.app.state,
            body_limit: self.app.body_limit,
        };
        handler.call(request, &matched)
    }
}

impl Mount<Rc<dyn Service>> {
    /// Calls the service with what is left of the path.
    fn call(&self, mut request: Request, rest: &str) -> Answer {
        if self.path.is_empty() {
            return self.service.call(request);
        }
        trace::note(&request, || {
            Step::new(
                StepKind::Handler,
                format!("mount {}", self.path),
                "the longest path that something is mounted under",
            )
        });
        let slash = if rest.is_empty() { "/" } else { "" };
        let target = match request.query() {
            Some(query) => format!("{rest}{slash}?{query}"),
            None => format!("{rest}{slash}"),
        };
        if request.set_path_and_query(&target).is_err() {
            return Response::new(StatusCode::BAD_REQUEST).into();
        }
        let outer = path::mounted_at(&request);
        let mounted = MountedAt(match outer {
            "" => path::encode(self.path.as_bytes()).into(),
            outer => format!("{outer}{}", path::encode(self.path.as_bytes())).into(),
        });
        request.extensions_mut().insert(mounted);
        self.service.call(request)
    }
}

/// Redirects to the same path with a slash behind it.
fn add_slash(request: &Request) -> Answer {
    let query = request
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let location = format!("{}{}/{query}", path::mounted_at(request), request.path());
    // Two slashes at the front would name another host.
    let location = format!("/{}", location.trim_start_matches('/'));
    match HeaderValue::from_str(&location) {
        Ok(location) => Response::new(StatusCode::PERMANENT_REDIRECT)
            .with_header(&header::LOCATION, &location)
            .into(),
        Err(_) => Response::new(StatusCode::BAD_REQUEST).into(),
    }
}
