//! `App`: an application of routes, groups, middleware and mounted services.

mod hooks;
mod service;
mod table;
mod urls;

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Method, Request, Response, RouteInfo, Service, ServiceFactory};

use crate::router::RouteErrors;
use crate::server::Server;
use apus_handler::error::{Error, ErrorFormat, ErrorRules};
use apus_handler::function::{self as handler, AnyHandler, Handler};
use apus_handler::middleware::{self, AnyMiddleware, Middleware};
use apus_layers::CatchPanic;

pub use urls::{UrlError, Urls};

use apus_handler::state::Source;
use table::Table;

/// What a handler may keep of the content of a request, in bytes, unless [`App::body_limit`] says otherwise.
const DEFAULT_BODY_LIMIT: u64 = 2 * 1024 * 1024;

/// An application: routes, groups of them, middleware, and services mounted under a path.
///
/// A route is looked for first, then the longest path that something is mounted under, then the
/// fallback. Paths are matched in normal form (see [`crate::path`]). In the path of a route
///
/// - `{name}` stands for one segment, or a part of one as in `/{name}.json`;
/// - `{name:[0-9]+}` for one that a regular expression matches as a whole;
/// - `{*name}` at its end for all that is left.
///
/// What is written out goes before what is a parameter, and what has a constraint before what has
/// none. Two routes that would be met by the same requests are an error, see [`App::check`].
///
/// An `App` is a [`ServiceFactory`], so it can be mounted in another, or be a location of a site.
#[derive(Clone, Default)]
pub struct App {
    items: Vec<Item>,
    fallback: Option<Arc<dyn AnyHandler>>,
    layers: Vec<Arc<dyn AnyMiddleware>>,
    states: Vec<Source>,
    body_limit: Option<u64>,
    errors: ErrorRules,
}

/// What was added to an application, and where in its source.
#[derive(Clone)]
struct Item {
    at: &'static Location<'static>,
    what: What,
}

#[derive(Clone)]
enum What {
    Route {
        method: Option<Method>,
        path: String,
        name: Option<Box<str>>,
        handler: Arc<dyn AnyHandler>,
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
    /// A name for which there is no route.
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
    /// An application that answers 404 to everything.
    pub fn new() -> Self {
        Self::default()
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
    #[track_caller]
    pub fn route<M: 'static>(self, method: Method, path: &str, handler: impl Handler<M>) -> Self {
        self.add_route(Some(method), path, handler, Location::caller())
    }

    /// Adds a route for all methods that the path has no other for.
    #[must_use]
    #[track_caller]
    pub fn any<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.add_route(None, path, handler, Location::caller())
    }

    /// Adds a route that was written at another place than that of the call.
    #[must_use]
    pub fn add_route<M: 'static>(
        self,
        method: Option<Method>,
        path: &str,
        handler: impl Handler<M>,
        at: &'static Location<'static>,
    ) -> Self {
        let route = What::Route {
            method,
            path: path.to_owned(),
            name: None,
            handler: Arc::new(handler::Unmarked::new(handler)),
        };
        self.add(at, route)
    }

    /// Names the route that was added last, so that [`Urls`] can make its address.
    #[must_use]
    #[track_caller]
    pub fn name(mut self, name: &str) -> Self {
        match self.items.last_mut().map(|item| &mut item.what) {
            Some(What::Route { name: of, .. }) => {
                *of = Some(name.into());
                self
            }
            _ => self.add(Location::caller(), What::Name(name.into())),
        }
    }

    fn add(mut self, at: &'static Location<'static>, what: What) -> Self {
        self.items.push(Item { at, what });
        self
    }

    /// Adds routes that share the front of their paths, and what else is given to the group: its
    /// middleware stands around its routes only, its state is seen by them only.
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

    /// Adds all of another application under a path, as a group; its `/` is that path, with and
    /// without a slash. What it has no route, mount or fallback for is this application's to answer.
    #[must_use]
    #[track_caller]
    pub fn nest(self, prefix: &str, app: App) -> Self {
        let prefix = prefix.to_owned();
        self.add(Location::caller(), What::Group { prefix, app })
    }

    /// Adds routes for one host: `example.com`, `*.example.com`, `www.example.*` or `~regex`. They go
    /// before those for all hosts.
    #[must_use]
    #[track_caller]
    pub fn host(self, name: &str, build: impl FnOnce(App) -> App) -> Self {
        let (name, app) = (name.to_owned(), build(App::new()));
        self.add(Location::caller(), What::Host { name, app })
    }

    /// Answers what no route and no mount does.
    #[must_use]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M>) -> Self {
        self.fallback = Some(Arc::new(handler::Unmarked::new(handler)));
        self
    }

    /// Puts a service under a path. It sees paths without that front part, which
    /// [`apus_http::mounted_at`] tells it. The path itself is redirected to the one with a slash behind.
    #[must_use]
    #[track_caller]
    pub fn mount(self, path: &str, service: impl ServiceFactory + 'static) -> Self {
        let mount = What::Mount {
            path: path.to_owned(),
            service: Arc::new(service),
        };
        self.add(Location::caller(), mount)
    }

    /// Puts a function around everything that was and will be added; the first one is outermost.
    ///
    /// Around a whole application it also sees what meets no route; in a group it stands around what
    /// the group has.
    #[must_use]
    pub fn layer<M: 'static>(mut self, middleware: impl Middleware<M>) -> Self {
        self.layers
            .push(Arc::new(middleware::Unmarked::new(middleware)));
        self
    }

    /// Runs before each request, as a layer that only looks inwards: it may change the request, or
    /// answer it with `Err`.
    #[must_use]
    pub fn before(
        self,
        hook: impl Fn(&mut Request) -> Result<(), Response> + Send + Sync + 'static,
    ) -> Self {
        self.layer(hooks::Before(hook))
    }

    /// Runs after each response, as a layer that only looks outwards: it may change the response.
    #[must_use]
    pub fn after(self, hook: impl Fn(&mut Response) + Send + Sync + 'static) -> Self {
        self.layer(Arc::new(hooks::After(hook)))
    }

    /// Answers errors: what handlers and layers return as [`Error`], and requests that do not hold
    /// what a handler takes. What it gives `None` for is answered in the form that the client accepts:
    /// a page, text, or problem details (RFC 9457).
    #[must_use]
    pub fn on_error(
        mut self,
        hook: impl Fn(&Error, ErrorFormat) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        self.errors.on_error = Some(Arc::new(hook));
        self
    }

    /// Answers errors in this form, whatever the client accepts: of handlers and layers, and of requests that
    /// meet no route or none of its methods. Unless it is set, each client gets what it accepts.
    ///
    /// In a group it holds for what the group has: `/api` for programs, the rest for people.
    #[must_use]
    pub fn error_format(mut self, format: ErrorFormat) -> Self {
        self.errors.format = Some(format);
        self
    }

    /// Answers panics of what was and will be added, as a layer that catches them: it is given the message,
    /// which is meant for the log. Without it, or [`CatchPanic`], the engine answers 500, and connection and
    /// worker go on.
    #[must_use]
    pub fn on_panic(self, hook: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        self.layer(CatchPanic::new().answer(hook))
    }

    /// Gives handlers a value to take as [`crate::State`], one of each type. Each request that takes
    /// it clones it, and all workers share it: an [`Arc`] is usual.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.push(Source::shared(value));
        self
    }

    /// As [`App::state`], but each worker makes a value for itself, on its own thread. It needs no
    /// locks: an [`Rc`] is usual.
    #[must_use]
    pub fn state_per_worker<T: Clone + 'static>(
        mut self,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        self.states.push(Source::made(make));
        self
    }

    /// The longest content in bytes that an extractor keeps in memory; past it 413. It is 2 MiB
    /// unless set. What takes the content as a stream is not bound by it.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// All routes and mounts, in the order in which they were added; the routes of an application that is
    /// mounted come behind its mount. `apus status` shows them of a server with
    /// [`Server::control_socket`].
    pub fn routes(&self) -> Vec<RouteInfo> {
        Table::of(self).list()
    }

    /// Whether all that was added can be.
    ///
    /// # Errors
    /// All that cannot, each with the place in the source where it was written.
    pub fn check(&self) -> Result<(), RouteErrors> {
        let errors = Table::of(self).faults();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(RouteErrors(errors)),
        }
    }

    /// Serves on an address, as `127.0.0.1:8080`, until the process is told to stop: one worker for
    /// each core, with the limits of the server's default configuration. [`Server`] has more to choose.
    ///
    /// # Errors
    /// A route is not possible, or the address cannot be listened on.
    pub fn serve(self, address: impl ToSocketAddrs) -> io::Result<()> {
        Server::new(self).listen(address)?.run()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl ServiceFactory for App {
    fn service(&self) -> Rc<dyn Service> {
        let mut table = Table::of(self);
        for error in std::mem::take(&mut table.errors) {
            tracing::error!(%error, "a part of the application is missing");
        }
        service::start(table)
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(App::check(self)?)
    }

    fn routes(&self) -> Vec<RouteInfo> {
        App::routes(self)
    }
}
