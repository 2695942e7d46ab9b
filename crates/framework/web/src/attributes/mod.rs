//! Routes that attributes declare at their handlers.
//!
//! ```
//! use apus::{App, Json, Path, StatusCode, get, post, routes};
//!
//! #[get("/users/{id}")]
//! async fn show(Path(id): Path<u32>) -> String {
//!     format!("user {id}")
//! }
//!
//! #[post("/users")]
//! async fn create(Json(name): Json<String>) -> (StatusCode, String) {
//!     (StatusCode::CREATED, name)
//! }
//!
//! let app = App::new().register(routes![show, create]);
//! # app.check().unwrap();
//! # let client = apus::testing::TestClient::new(app);
//! # client.get("/users/7").send().assert_ok().assert_text("user 7");
//! # client.post("/users").json("Ada").send().assert_status(201);
//! ```
//!
//! The attribute does not change the function. It adds a type of the same name, from which
//! [`routes!`](crate::routes) takes the route: `routes![users::show]` works wherever the function is visible.
//!
//! [`App::collect`] adds all routes of the program in an order that does not depend on their places in the
//! source. Two conflicting routes are an error at start, which names the file and line of both.
//!
//! | attribute | |
//! | --- | --- |
//! | `#[get("/users/{id}")]` | and `post`, `put`, `patch`, `delete` |
//! | `#[route("/users", methods = [GET, POST])]` | for several methods |
//! | `#[ws("/chat")]` | an `async fn` whose first argument is a [`WebSocket`](crate::WebSocket) |
//!
//! `#[handler]` checks the arguments of a handler without a route, which `App::get` adds, and `#[handler(blocking)]` runs a
//! function that is not `async` on another thread, by [`crate::blocking`].
//!
//! `#[http_error]` above `impl HttpError for` a type declares the type, so that `?` keeps its status in a function
//! that returns [`crate::Result`].
//!
//! The compiler reports an invalid handler at the argument: one that is not an extractor, one that reads the
//! body and is not the last, or a `Path<T>` that does not match the path.

pub mod check;
#[doc(hidden)]
pub use apus_handler::requirement;

use std::fmt;

use crate::app::App;
#[doc(hidden)]
pub use crate::declared_errors::DeclaredHttpError;
#[cfg(feature = "openapi")]
use crate::operation::{Operation, RouteDescription};

#[cfg(feature = "websocket")]
pub use apus_macros::ws;
pub use apus_macros::{delete, embedded, get, handler, http_error, patch, post, put, route};

#[doc(hidden)]
pub use inventory;

/// A function with an attribute that makes it a route.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no route",
    label = "this has no attribute of a route",
    note = "write `#[get(\"/path\")]` above the function, or add it by `App::get` instead"
)]
pub trait RouteFunction {
    /// The route.
    const ROUTE: DeclaredRoute;
}

/// A route that an attribute declares.
#[derive(Clone, Copy)]
pub struct DeclaredRoute {
    declaration: RouteDeclaration,
}

/// The fields of a [`DeclaredRoute`], which attributes fill in.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct RouteDeclaration {
    pub methods: &'static [&'static str],
    pub path: &'static str,
    pub function: &'static str,
    pub module: &'static str,
    pub file: &'static str,
    pub line: u32,
    pub add: fn(App) -> App,
    #[cfg(feature = "openapi")]
    pub describe: fn(&mut Operation<'_>),
}

inventory::collect!(DeclaredRoute);

impl DeclaredRoute {
    #[doc(hidden)]
    pub const fn new(declaration: RouteDeclaration) -> Self {
        Self { declaration }
    }

    /// The methods, at least one.
    pub fn methods(&self) -> &'static [&'static str] {
        self.declaration.methods
    }

    /// The path, as it is written.
    pub fn path(&self) -> &'static str {
        self.declaration.path
    }

    /// The name of the function.
    pub fn function(&self) -> &'static str {
        self.declaration.function
    }

    /// The module of the function.
    pub fn module(&self) -> &'static str {
        self.declaration.module
    }

    /// Its place in the source: the file, as the compiler names it, and the line.
    pub fn place(&self) -> (&'static str, u32) {
        (self.declaration.file, self.declaration.line)
    }

    #[cfg(feature = "openapi")]
    pub(crate) fn description(&self) -> RouteDescription {
        RouteDescription {
            methods: self.declaration.methods,
            function: self.declaration.function,
            module: self.declaration.module,
            describe: self.declaration.describe,
        }
    }

    #[cfg(feature = "openapi")]
    fn add_to(&self, app: App) -> App {
        app.declare(self.description(), self.declaration.add)
    }

    #[cfg(not(feature = "openapi"))]
    fn add_to(&self, app: App) -> App {
        (self.declaration.add)(app)
    }
}

/// All routes that attributes of the program declare, by path, method and place.
pub fn collected() -> Vec<DeclaredRoute> {
    let mut routes: Vec<DeclaredRoute> = inventory::iter::<DeclaredRoute>
        .into_iter()
        .copied()
        .collect();
    routes.sort_by_key(|route| (route.path(), route.methods(), route.place()));
    routes
}

impl App {
    /// Adds routes that attributes declare: `app.register(routes![list, show])`.
    #[must_use]
    pub fn register(self, routes: impl IntoIterator<Item = DeclaredRoute>) -> Self {
        let routes = routes.into_iter();
        routes.fold(self, |app, route| route.add_to(app))
    }

    /// Adds all routes that attributes of the program and its libraries declare, ordered by path, method
    /// and place.
    #[must_use]
    pub fn collect(self) -> Self {
        self.register(collected())
    }

    /// An application of all routes that attributes of the program declare.
    pub fn collected() -> Self {
        Self::new().collect()
    }
}

/// The routes of functions with attributes, for [`App::register`]: `routes![show, users::list]`.
#[macro_export]
macro_rules! routes {
    ($($function:ty),* $(,)?) => {
        [$(<$function as $crate::attributes::RouteFunction>::ROUTE),*] as [$crate::attributes::DeclaredRoute; _]
    };
}

impl fmt::Debug for DeclaredRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods().join(", ");
        let (file, line) = self.place();
        write!(
            f,
            "{methods} {} {}::{} {file}:{line}",
            self.path(),
            self.module(),
            self.function()
        )
    }
}
