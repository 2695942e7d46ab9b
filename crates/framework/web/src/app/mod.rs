//! `App`: an application of routes, groups, middleware and mounted services.

mod hooks;
mod outermost;
mod route_table;
mod service;
mod urls;

use std::fmt;
use std::net::ToSocketAddrs;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Method, Request, Response, RouteInfo, Service, ServiceFactory};

use crate::router::RouteErrors;
use crate::server::{Server, StartError};
use apus_handler::error::{Error, ErrorFormat};
use apus_handler::function::{self as handler, AnyHandler, Handler};
use apus_handler::middleware::{self, AnyMiddleware, Middleware};
use apus_handler::rendering::ErrorRules;
use apus_layers::CatchPanic;

pub use urls::{UrlError, Urls};

use apus_handler::state::StateSource;
use outermost::OutermostService;
use route_table::RouteTable;
use service::AppService;

/// An application: routes, groups of them, middleware, and services mounted under a path.
///
/// An application searches the routes first, then the mounts by the longest path, then the fallbacks.
/// Paths are matched in normal form (see [`crate::path`]). In the path of a route
///
/// - `{name}` matches one segment, or a part of one as in `/{name}.json`;
/// - `{name:[0-9]+}` matches a segment if the regular expression matches all of it;
/// - `{*name}` at the end matches the rest of the path.
///
/// Literal text has priority over parameters, and a parameter with a constraint over one without. Two
/// routes that match the same requests are an error, see [`App::check`].
///
/// An `App` is a [`ServiceFactory`], so it can be mounted in another `App`, or be a location of a site.
#[derive(Clone, Default)]
pub struct App {
    items: Vec<AppItem>,
    fallback: Option<(&'static Location<'static>, Arc<dyn AnyHandler>)>,
    layers: Vec<Arc<dyn AnyMiddleware>>,
    states: Vec<StateSource>,
    body_limit: Option<u64>,
    allows_encoded_slash: bool,
    errors: ErrorRules,
}

/// What the attribute of a route tells of it.
#[cfg(feature = "openapi")]
type Declaration = crate::operation::RouteDescription;

/// Without the feature, there are none.
#[cfg(not(feature = "openapi"))]
type Declaration = std::convert::Infallible;

/// A part of an application, and its place in the source.
#[derive(Clone)]
struct AppItem {
    at: &'static Location<'static>,
    what: AppItemKind,
}

#[derive(Clone)]
enum AppItemKind {
    Route {
        method: Option<Method>,
        path: String,
        name: Option<Box<str>>,
        handler: Arc<dyn AnyHandler>,
        declared: Option<Declaration>,
    },
    Mount {
        path: String,
        service: Arc<dyn ServiceFactory>,
    },
    Group {
        prefix: String,
        app: App,
    },
    Host {
        name: String,
        app: App,
    },
    /// A name that was given before any route.
    Name(Box<str>),
}

macro_rules! by_method {
    ($($(#[$doc:meta])* $name:ident: $method:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        #[track_caller]
        pub fn $name<M>(self, path: &str, handler: impl Handler<M>) -> Self
        where
            M: 'static,
        {
            self.route(Method::$method, path, handler)
        }
    )*};
}

impl App {
    /// An application without routes: it responds 404 to everything.
    pub fn new() -> Self {
        Self::default()
    }

    by_method! {
        /// Adds a route for GET, and for HEAD unless the path has a route for HEAD.
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
        /// Adds a route for OPTIONS. Without one, the response lists the methods of the path.
        options: OPTIONS;
    }

    /// Adds a route.
    #[must_use]
    #[track_caller]
    pub fn route<M: 'static>(self, method: Method, path: &str, handler: impl Handler<M>) -> Self {
        self.add_route(Some(method), path, handler, Location::caller())
    }

    /// Adds a route for all methods without their own route.
    #[must_use]
    #[track_caller]
    pub fn any<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.add_route(None, path, handler, Location::caller())
    }

    /// Adds a route with a given place in the source.
    #[must_use]
    pub fn add_route<M: 'static>(
        self,
        method: Option<Method>,
        path: &str,
        handler: impl Handler<M>,
        at: &'static Location<'static>,
    ) -> Self {
        let route = AppItemKind::Route {
            method,
            path: path.to_owned(),
            name: None,
            handler: Arc::new(handler::ErasedHandler::new(handler)),
            declared: None,
        };
        self.add(at, route)
    }

    /// Names the route that was added last, so that [`Urls`] can make its URL.
    #[must_use]
    #[track_caller]
    pub fn name(mut self, name: &str) -> Self {
        match self.items.last_mut().map(|item| &mut item.what) {
            Some(AppItemKind::Route { name: of, .. }) => {
                *of = Some(name.into());
                self
            }
            _ => self.add(Location::caller(), AppItemKind::Name(name.into())),
        }
    }

    fn add(mut self, at: &'static Location<'static>, what: AppItemKind) -> Self {
        self.items.push(AppItem { at, what });
        self
    }

    /// Adds a group of routes whose paths start with `prefix`. The layers and the state of the group
    /// apply to its routes only.
    ///
    /// ```
    /// # use apus::{App, Path, Request, Next, Response};
    /// async fn signed_in(request: Request, next: Next) -> Response { next.run(request).await }
    ///
    /// let app = App::new().group("/users", |users| {
    ///     users
    ///         .layer(signed_in)
    ///         .get("/", async || "all of them")
    ///         .get("/{id}", async |Path(id): Path<u32>| format!("user {id}"))
    /// });
    /// # app.check().unwrap();
    /// ```
    #[must_use]
    #[track_caller]
    pub fn group(self, prefix: &str, build: impl FnOnce(App) -> App) -> Self {
        self.nest(prefix, build(App::new()))
    }

    /// Adds another application as a group under a path. Its route `/` matches that path with and
    /// without a slash at the end. This application handles the requests that the group does not match.
    #[must_use]
    #[track_caller]
    pub fn nest(self, prefix: &str, app: App) -> Self {
        let prefix = prefix.to_owned();
        self.add(Location::caller(), AppItemKind::Group { prefix, app })
    }

    /// Adds routes for one host: `example.com`, `*.example.com`, `www.example.*` or `~regex`. They have
    /// priority over the routes for all hosts.
    #[must_use]
    #[track_caller]
    pub fn host(self, name: &str, build: impl FnOnce(App) -> App) -> Self {
        let (name, app) = (name.to_owned(), build(App::new()));
        self.add(Location::caller(), AppItemKind::Host { name, app })
    }

    /// Sets the handler of requests that no route and no mount matches.
    #[must_use]
    #[track_caller]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M>) -> Self {
        let handler = Arc::new(handler::ErasedHandler::new(handler));
        self.fallback = Some((Location::caller(), handler));
        self
    }

    /// Mounts a service under a path. The service gets paths without that prefix, which
    /// [`apus_http::mount_prefix`] returns. The path itself is redirected to the path with a slash.
    #[must_use]
    #[track_caller]
    pub fn mount(self, path: &str, service: impl ServiceFactory + 'static) -> Self {
        let mount = AppItemKind::Mount {
            path: path.to_owned(),
            service: Arc::new(service),
        };
        self.add(Location::caller(), mount)
    }

    /// Adds a layer around everything in this application, also what is added later. The first layer is
    /// the outermost.
    ///
    /// A layer of a whole application also gets requests without a route. A layer of a group gets only
    /// the requests of the group.
    #[must_use]
    pub fn layer<M: 'static>(mut self, middleware: impl Middleware<M>) -> Self {
        self.layers
            .push(Arc::new(middleware::ErasedMiddleware::new(middleware)));
        self
    }

    /// Adds a layer that runs before each request. It can change the request, or respond with `Err`.
    #[must_use]
    pub fn before(
        self,
        hook: impl Fn(&mut Request) -> Result<(), Response> + Send + Sync + 'static,
    ) -> Self {
        self.layer(hooks::BeforeHook(hook))
    }

    /// Adds a layer that runs after each response and can change it.
    #[must_use]
    pub fn after(self, hook: impl Fn(&mut Response) + Send + Sync + 'static) -> Self {
        self.layer(Arc::new(hooks::AfterHook(hook)))
    }

    /// Sets the function that makes responses to errors: errors of handlers, extractors and layers, unknown
    /// paths and methods, invalid paths, panics, and all other responses with a status of 400 or above that
    /// have no body. It is called once for each. If it returns `None`, the response has the format that the
    /// client accepts: a page, text, or problem details (RFC 9457). Its response keeps the header fields of
    /// the error, such as `Allow` and `Retry-After`.
    ///
    /// In a group, the function applies to the group and to unknown paths in it.
    #[must_use]
    pub fn on_error(
        mut self,
        hook: impl Fn(&Error, ErrorFormat) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        self.errors.on_error = Some(Arc::new(hook));
        self
    }

    /// Sets the format of responses to all errors (see [`App::on_error`]). By default, each client gets the
    /// format that it accepts.
    ///
    /// In a group, the format applies to the group and to unknown paths in it: for example JSON for `/api`,
    /// pages for the rest.
    #[must_use]
    pub fn error_format(mut self, format: ErrorFormat) -> Self {
        self.errors.format = Some(format);
        self
    }

    /// Adds a layer that catches panics. The hook makes the response from the message of the panic, which
    /// is meant for the log. Without this layer or [`CatchPanic`], a panic is an error with status 500, which
    /// passes only layers that set fields of all responses. The connection and the worker continue in both cases.
    #[must_use]
    pub fn on_panic(self, hook: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        self.layer(CatchPanic::new().respond_with(hook))
    }

    /// Adds a value that handlers take as [`crate::State`], one of each type. All workers share it, and
    /// each extraction clones it: an [`Arc`] is usual.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.push(StateSource::shared(value));
        self
    }

    /// Like [`App::state`], but each worker makes its own value on its own thread, which needs no locks:
    /// an [`Rc`] is usual.
    #[must_use]
    pub fn state_per_worker<T: Clone + 'static>(
        mut self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        self.states.push(StateSource::made(make));
        self
    }

    /// The most bytes of a body that an extractor keeps in memory; a longer body is rejected with 413. The
    /// default is 2 MiB. Extractors that read the body as a stream are not limited.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Allows `%2F` in the rest of a path, which a route takes as `{*name}`: the keys of an object store, for
    /// example. The parameter then has a slash there. A mounted service gets the rest of the path as it was
    /// sent. Elsewhere in a path, and without this, an encoded slash is rejected with 400, since servers
    /// disagree about its meaning.
    ///
    /// In a group, this applies to the routes and mounts of the group.
    #[must_use]
    pub fn allow_encoded_slashes(mut self) -> Self {
        self.allows_encoded_slash = true;
        self
    }

    /// All routes and mounts in the order in which they were added; the routes of a mounted application
    /// follow its mount. `apus status` shows them if the server has a [`Server::control_socket`].
    pub fn routes(&self) -> Vec<RouteInfo> {
        let listed = RouteTable::of(self).list().into_iter();
        listed.map(|(route, _)| route).collect()
    }

    /// As [`App::routes`], with what the attribute of each tells.
    #[cfg(feature = "openapi")]
    pub(crate) fn declared_routes(&self) -> Vec<(RouteInfo, Option<Declaration>)> {
        RouteTable::of(self).list()
    }

    /// Notes what the attribute of the routes tells that a function adds.
    #[cfg(feature = "openapi")]
    pub(crate) fn declare(self, declared: Declaration, add: fn(Self) -> Self) -> Self {
        let count = self.items.len();
        let mut app = add(self);
        for item in app.items.iter_mut().skip(count) {
            if let AppItemKind::Route { declared: of, .. } = &mut item.what {
                *of = Some(declared);
            }
        }
        app
    }

    /// Checks the application: that all routes, mounts and names are valid, that each route can match a
    /// request, and that handlers get their arguments: a [`crate::Path`] of the parameters of the path, each
    /// [`crate::State`], templates, and the layers that they need, as `Sessions`. [`App::serve`] and
    /// [`Server`] check it before they listen.
    ///
    /// # Errors
    /// All mistakes, each with its place in the source.
    pub fn check(&self) -> Result<(), RouteErrors> {
        self.check_as(true)
    }

    fn check_as(&self, is_outermost: bool) -> Result<(), RouteErrors> {
        let errors = RouteTable::of(self).all_errors(is_outermost);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(RouteErrors(errors))
        }
    }

    /// The application of a worker.
    fn start(&self) -> Rc<AppService> {
        crate::declared_errors::recognise();
        let mut table = RouteTable::of(self);
        for error in std::mem::take(&mut table.errors) {
            tracing::error!(%error, "a part of the application is invalid and is left out");
        }
        service::start(table)
    }

    /// Serves on an address, as `127.0.0.1:8080`, until SIGTERM or SIGINT, with one worker for each core
    /// and the default limits of the server. [`Server`] has more settings.
    ///
    /// # Errors
    /// A route is invalid, or the server cannot listen on the address.
    pub fn serve(self, address: impl ToSocketAddrs) -> Result<(), StartError> {
        Server::new(self).listen(address)?.run()
    }

    /// Serves over HTTPS at port 443 of all addresses, with a certificate that is ordered and renewed by ACME, until SIGTERM or
    /// SIGINT. Port 80 redirects to it. [`Server::listen_acme`] serves at other addresses.
    ///
    /// # Errors
    /// A route is invalid, the certificate has mistakes, or the server cannot listen at these ports.
    #[cfg(feature = "acme")]
    pub fn serve_tls(self, certificate: crate::server::Acme) -> Result<(), StartError> {
        let redirected = self.layer(apus_layers::ForceHttps::default());
        let mut server = Server::new(redirected)
            .listen("0.0.0.0:80")?
            .listen_acme("0.0.0.0:443", certificate.clone())?;
        if std::path::Path::new("/proc/net/if_inet6").exists() {
            server = server
                .listen("[::]:80")?
                .listen_acme("[::]:443", certificate)?;
        }
        server.run()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl ServiceFactory for App {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(OutermostService {
            app: self.start(),
            is_served: false,
        })
    }

    fn outermost_service(&self) -> Option<Rc<dyn Service>> {
        Some(Rc::new(OutermostService {
            app: self.start(),
            is_served: true,
        }))
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.check_as(false)?)
    }

    fn check_outermost(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.check_as(true)?)
    }

    fn routes(&self) -> Vec<RouteInfo> {
        App::routes(self)
    }
}
