//! An OpenAPI 3.1 description of an application's routes, and a page that shows it.
//!
//! ```
//! use apus::openapi::{JsonSchema, OpenApi};
//! use apus::testing::TestClient;
//! use apus::{App, Json, Path, get, routes};
//! use serde::Serialize;
//!
//! #[derive(Serialize, JsonSchema)]
//! #[schemars(crate = "apus::openapi::schemars")]
//! struct User {
//!     id: u32,
//!     name: String,
//! }
//!
//! /// One user.
//! #[get("/users/{id}")]
//! async fn show(Path(id): Path<u32>) -> Json<User> {
//!     Json(User { id, name: "Ada".into() })
//! }
//!
//! let app = App::new()
//!     .group("/api", |api| api.register(routes![show]))
//!     .openapi(OpenApi::new("Users", "1.0.0"));
//!
//! let client = TestClient::new(app);
//! let api: serde_json::Value = client.get("/openapi.json").send().assert_ok().json();
//! assert_eq!(api["paths"]["/api/users/{id}"]["get"]["summary"], "One user.");
//! client.get("/openapi").send().assert_ok().assert_contains("One user.");
//! ```
//!
//! Arguments and responses are described by the types of a handler that implement [`JsonSchema`]. Derive it
//! beside serde's traits; it follows their attributes. If schemars is not a dependency of the application,
//! set `#[schemars(crate = ..)]`. `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `MultipartForm<T>`, texts and bytes
//! are described as arguments and responses, also with a status and fields, as in `([..], T)` and
//! `(StatusCode, [..], T)`. A status that is only known at run time is `2XX`, and the status of [`crate::Created`]
//! is 201. A `Result` adds an error response. The doc comment of a handler is its summary (the first paragraph)
//! and description, and its module is its group. Routes without attributes are listed with method, path and
//! parameters. Types without [`JsonSchema`] are left out. [`OpenApi::operation`] sets what types do not tell.

mod describe;
mod page;
pub mod probe;

use std::collections::HashSet;
use std::fmt;

use apus_http::{HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

pub use self::describe::{DescribeArgument, DescribeResponse, UnnamedResponse};
pub use crate::operation::Operation;
pub use schemars::{self, JsonSchema};

use crate::app::App;
use crate::attributes::{self, DeclaredRoute};
use crate::operation::{RouteDescription, path_of};

/// A description of routes; see [`crate::openapi`].
#[must_use]
pub struct OpenApi {
    info: Map<String, Value>,
    servers: Vec<Value>,
    described: Vec<DeclaredRoute>,
    changes: Vec<OperationChange>,
    security_schemes: Map<String, Value>,
    security: Vec<Value>,
    page: String,
    document: String,
    /// Whether routes without an attribute are left out.
    only_described: bool,
    /// The path that the routes are below; empty for all.
    below: String,
}

/// A change of the operations of some routes.
struct OperationChange {
    /// `None` stands for all methods.
    method: Option<Method>,
    path: String,
    /// Whether it applies to all routes below the path, too.
    is_prefix: bool,
    change: Box<dyn Fn(&mut Operation<'_>)>,
}

impl OperationChange {
    fn applies(&self, route: &ApiRoute) -> bool {
        let is_method = (self.method.as_ref()).is_none_or(|method| method.as_str() == route.method);
        let is_below = self.is_prefix && route.is_below(&self.path);
        is_method && (route.path == self.path || is_below)
    }
}

/// A route of the description.
pub(crate) struct ApiRoute {
    pub(crate) method: String,
    /// As it is registered, with the paths of its groups.
    pub(crate) path: String,
    /// The type name of the handler.
    pub(crate) handler: String,
    pub(crate) declared: Option<RouteDescription>,
}

impl ApiRoute {
    /// Whether it is at a path or below it.
    fn is_below(&self, path: &str) -> bool {
        let rest = self.path.strip_prefix(path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl OpenApi {
    /// An empty description with the title and version of an API.
    pub fn new(title: &str, version: &str) -> Self {
        let mut info = Map::new();
        info.insert("title".into(), title.into());
        info.insert("version".into(), version.into());
        Self {
            info,
            servers: Vec::new(),
            described: Vec::new(),
            changes: Vec::new(),
            security_schemes: Map::new(),
            security: Vec::new(),
            page: "/openapi".into(),
            document: "/openapi.json".into(),
            only_described: false,
            below: String::new(),
        }
    }

    /// Sets the description of the API.
    pub fn description(mut self, text: &str) -> Self {
        self.info.insert("description".into(), text.into());
        self
    }

    /// Sets the URL of the server, as `https://api.example.com`. Default: the server of the description.
    pub fn server(mut self, url: &str) -> Self {
        self.servers.push(json!({ "url": url }));
        self
    }

    /// The path of the page. Default: `/openapi`.
    pub fn page_at(mut self, path: &str) -> Self {
        self.page = path.into();
        self
    }

    /// The path of the description. Default: `/openapi.json`.
    pub fn document_at(mut self, path: &str) -> Self {
        self.document = path.into();
        self
    }

    /// Leaves out routes of the application without an attribute.
    pub fn only_described(mut self) -> Self {
        self.only_described = true;
        self
    }

    /// Leaves out routes of the application that are neither at this path nor below it, such as the pages of an application that
    /// has an API below `/api`.
    pub fn only_below(mut self, path: &str) -> Self {
        self.below = path.into();
        self
    }

    /// Requires a token in the field `Authorization` for all operations that name no other scheme, as
    /// [`BearerAuth`](crate::auth::BearerAuth) and `Jwt` do. The scheme has this name.
    pub fn bearer_auth(self, name: &str) -> Self {
        let scheme = json!({ "type": "http", "scheme": "bearer" });
        self.security_scheme(name, scheme).security(name)
    }

    /// Adds a way to authenticate (OpenAPI 3.1 section 4.8.27): a name, and an object as
    /// `json!({"type": "http", "scheme": "bearer"})`. Operations name it by [`Operation::security`].
    pub fn security_scheme(mut self, name: &str, scheme: Value) -> Self {
        self.security_schemes.insert(name.into(), scheme);
        self
    }

    /// Requires a security scheme for all operations that name no other.
    pub fn security(mut self, scheme: &str) -> Self {
        self.security.push(json!({ scheme: [] }));
        self
    }

    /// Changes the description of one route: its method, and its path with the paths of its groups, as
    /// `/api/users/{id}`. The function can set what the types of the handler do not tell: status, summary, tags,
    /// security, examples and responses to errors.
    ///
    /// ```
    /// use apus::openapi::OpenApi;
    /// use apus::{Json, Method, StatusCode, post, routes};
    /// use serde_json::json;
    ///
    /// #[post("/users")]
    /// async fn create(Json(name): Json<String>) -> (StatusCode, Json<String>) {
    ///     (StatusCode::CREATED, Json(name))
    /// }
    ///
    /// let api = OpenApi::new("Users", "1.0.0")
    ///     .describe(routes![create])
    ///     .security_scheme("token", json!({ "type": "http", "scheme": "bearer" }))
    ///     .operation(Method::POST, "/users", |operation| {
    ///         operation.status(201);
    ///         operation.tags(["accounts"]);
    ///         operation.security("token");
    ///         operation.request_example(json!("Ada"));
    ///         operation.problem(422, "the name is taken");
    ///     });
    /// let responses = &api.to_value()["paths"]["/users"]["post"]["responses"];
    /// assert!(responses["201"].is_object() && responses["422"].is_object());
    /// ```
    pub fn operation(
        mut self,
        method: Method,
        path: &str,
        change: impl Fn(&mut Operation<'_>) + 'static,
    ) -> Self {
        self.changes.push(OperationChange {
            method: Some(method),
            path: path.to_owned(),
            is_prefix: false,
            change: Box::new(change),
        });
        self
    }

    /// As [`OpenApi::operation`], for all routes at a path and below it, such as the routes of a group.
    pub fn operations_below(
        mut self,
        path: &str,
        change: impl Fn(&mut Operation<'_>) + 'static,
    ) -> Self {
        self.changes.push(OperationChange {
            method: None,
            path: path.to_owned(),
            is_prefix: true,
            change: Box::new(change),
        });
        self
    }

    /// Describes routes that attributes declare, `routes![list, show]`, for [`OpenApi::to_value`]. An application
    /// needs no list: [`App::openapi`] describes the routes that it has.
    pub fn describe(mut self, routes: impl IntoIterator<Item = DeclaredRoute>) -> Self {
        self.described.extend(routes);
        self
    }

    /// Describes all routes that attributes of the program declare, as [`App::collect`] adds them.
    pub fn describe_collected(self) -> Self {
        self.describe(attributes::collected())
    }

    /// The description as JSON, of the routes that were given to [`OpenApi::describe`].
    pub fn to_value(&self) -> Value {
        let declared = self.described.iter().flat_map(|route| {
            route.methods().iter().map(|method| ApiRoute {
                method: (*method).to_owned(),
                path: route.path().to_owned(),
                handler: String::new(),
                declared: Some(route.description()),
            })
        });
        self.value_of(declared)
    }

    /// The description of these routes as JSON.
    fn value_of(&self, routes: impl IntoIterator<Item = ApiRoute>) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let mut generator = settings.into_generator();
        let mut paths: Map<String, Value> = Map::new();
        let mut ids = HashSet::new();
        for route in routes {
            let (path, parameters) = path_of(&route.path);
            let item = paths.entry(path).or_insert_with(|| json!({}));
            let key = route.method.to_ascii_lowercase();
            let Some(item) = item.as_object_mut().filter(|item| !item.contains_key(&key)) else {
                continue;
            };
            let mut operation = match &route.declared {
                Some(declared) => {
                    let id = match declared.methods {
                        [_] => declared.function.to_owned(),
                        _ => format!("{}_{key}", declared.function),
                    };
                    let mut operation =
                        Operation::new(id, declared.module, &parameters, &mut generator);
                    (declared.describe)(&mut operation);
                    operation
                }
                None => Operation::listed(&route.handler, &parameters, &mut generator),
            };
            for change in self.changes.iter().filter(|change| change.applies(&route)) {
                (change.change)(&mut operation);
            }
            operation.make_id_unique(&mut ids);
            item.insert(key, operation.into_value());
        }
        let mut components = Map::new();
        components.insert("schemas".into(), generator.take_definitions(true).into());
        if !self.security_schemes.is_empty() {
            let schemes = self.security_schemes.clone();
            components.insert("securitySchemes".into(), schemes.into());
        }
        let mut document = Map::new();
        document.insert("openapi".into(), "3.1.0".into());
        document.insert("info".into(), self.info.clone().into());
        document.insert("paths".into(), paths.into());
        document.insert("components".into(), components.into());
        for (key, list) in [("servers", &self.servers), ("security", &self.security)] {
            if !list.is_empty() {
                document.insert(key.into(), list.clone().into());
            }
        }
        document.into()
    }
}

impl fmt::Debug for OpenApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApi")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl App {
    /// Adds a description of the routes at `/openapi.json`, and a page that shows it at `/openapi`. The page
    /// needs no scripts and no other resources.
    ///
    /// It describes the routes that the application already has, each at the path that it is registered at, with
    /// the paths of its groups. Routes that attributes declare are described by the types of their handlers, the
    /// others are listed with method, path and parameters. Routes for a host or for all methods are left out; pages are, too, if
    /// [`OpenApi::only_below`] names the path of the API.
    #[must_use]
    pub fn openapi(self, api: OpenApi) -> Self {
        let mut routes = self.api_routes();
        if api.only_described {
            routes.retain(|route| route.declared.is_some());
        }
        routes.retain(|route| route.is_below(&api.below));
        let document = api.value_of(routes);
        let page = Bytes::from(page::html(&document, &api.document));
        let document = Bytes::from(document.to_string());
        self.get(&api.document, move || {
            ok("application/json", document.clone())
        })
        .get(&api.page, move || {
            ok("text/html; charset=utf-8", page.clone())
        })
    }

    /// The routes of the application and its groups, in the order in which they were added.
    fn api_routes(&self) -> Vec<ApiRoute> {
        let routes = self.declared_routes().into_iter();
        let listed = routes.filter_map(|(route, declared)| {
            let method = route.method.filter(|_| route.host.is_none())?;
            Some(ApiRoute {
                method: method.to_string(),
                path: route.path,
                handler: route.handler,
                declared,
            })
        });
        listed.collect()
    }
}

fn ok(content_type: &'static str, body: Bytes) -> Response {
    Response::new(StatusCode::OK)
        .with_header(
            &header::CONTENT_TYPE,
            &HeaderValue::from_static(content_type),
        )
        .with_body(body)
}
