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
//! let api = OpenApi::new("Users", "1.0.0").describe(routes![show]);
//! let app = App::new().register(routes![show]).openapi(api);
//!
//! let client = TestClient::new(app);
//! let api: serde_json::Value = client.get("/openapi.json").send().assert_ok().json();
//! assert_eq!(api["paths"]["/users/{id}"]["get"]["summary"], "One user.");
//! client.get("/openapi").send().assert_ok().assert_contains("One user.");
//! ```
//!
//! Arguments and responses are described by the types of a handler that implement [`JsonSchema`]. Derive it
//! beside serde's traits; it follows their attributes. If schemars is not a dependency of the application,
//! set `#[schemars(crate = ..)]`. `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, texts and bytes are described as
//! arguments and responses, and a `Result` adds an error response. The doc comment of a handler is its
//! summary (the first paragraph) and description, and its module is its group. Routes without attributes are
//! listed with method, path and parameters. Types without [`JsonSchema`] are left out.

mod describe;
mod page;
pub mod probe;

use apus_http::{HeaderValue, Response, RouteInfo, StatusCode, header};
use bytes::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

pub use self::describe::{DescribeArgument, DescribeResponse, UnnamedResponse};
pub use crate::operation::Operation;
pub use schemars::{self, JsonSchema};

use crate::app::App;
use crate::attributes::{self, DeclaredRoute};
use crate::operation::path_of;

/// A description of routes; see [`crate::openapi`].
#[derive(Debug)]
#[must_use]
pub struct OpenApi {
    info: Map<String, Value>,
    servers: Vec<Value>,
    paths: Map<String, Value>,
    generator: SchemaGenerator,
    page: String,
    document: String,
    /// Whether routes that are not described are left out.
    only_described: bool,
}

impl OpenApi {
    /// An empty description with the title and version of an API.
    pub fn new(title: &str, version: &str) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let mut info = Map::new();
        info.insert("title".into(), title.into());
        info.insert("version".into(), version.into());
        Self {
            info,
            servers: Vec::new(),
            paths: Map::new(),
            generator: settings.into_generator(),
            page: "/openapi".into(),
            document: "/openapi.json".into(),
            only_described: false,
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

    /// Leaves out routes of the application that are not described here.
    pub fn only_described(mut self) -> Self {
        self.only_described = true;
        self
    }

    /// Lists a route of which only method, path and handler are known.
    fn list(&mut self, route: &RouteInfo) {
        let (None, Some(method)) = (&route.host, &route.method) else {
            return;
        };
        let (path, parameters) = path_of(&route.path);
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        let key = method.as_str().to_ascii_lowercase();
        if let Some(item) = item.as_object_mut().filter(|item| !item.contains_key(&key)) {
            let operation = Operation::listed(&route.handler, &parameters, &mut self.generator);
            item.insert(key, operation.into_value());
        }
    }

    /// Describes routes that attributes declare: `routes![list, show]`.
    pub fn describe(mut self, routes: impl IntoIterator<Item = DeclaredRoute>) -> Self {
        for route in routes {
            let (path, parameters) = path_of(route.path());
            let item = self.paths.entry(path).or_insert_with(|| json!({}));
            for method in route.methods() {
                let id = match route.methods() {
                    [_] => route.function().to_owned(),
                    _ => format!("{}_{}", route.function(), method.to_ascii_lowercase()),
                };
                let (module, generator) = (route.module(), &mut self.generator);
                let mut operation = Operation::new(id, module, &parameters, generator);
                route.describe(&mut operation);
                let described = operation.into_value();
                if let Some(item) = item.as_object_mut() {
                    item.insert(method.to_ascii_lowercase(), described);
                }
            }
        }
        self
    }

    /// Describes all routes that attributes of the program declare, as [`App::collect`] adds them.
    pub fn describe_collected(self) -> Self {
        self.describe(attributes::collected())
    }

    /// The description as JSON.
    pub fn to_value(&self) -> Value {
        let mut generator = self.generator.clone();
        let mut document = json!({
            "openapi": "3.1.0",
            "info": self.info,
            "paths": self.paths,
            "components": { "schemas": generator.take_definitions(true) },
        });
        if let Some(document) = document.as_object_mut()
            && !self.servers.is_empty()
        {
            document.insert("servers".into(), self.servers.clone().into());
        }
        document
    }
}

impl App {
    /// Adds a description of routes at `/openapi.json`, and a page that shows it at `/openapi`. The page
    /// needs no scripts and no other resources.
    ///
    /// Routes that the application already has and that are not described are listed with method, path and
    /// parameters, except those for a host or for all methods.
    #[must_use]
    pub fn openapi(self, mut api: OpenApi) -> Self {
        if !api.only_described {
            self.routes().iter().for_each(|route| api.list(route));
        }
        let document = api.to_value();
        let page = Bytes::from(page::html(&document, &api.document));
        let document = Bytes::from(document.to_string());
        self.get(&api.document, move || {
            ok("application/json", document.clone())
        })
        .get(&api.page, move || {
            ok("text/html; charset=utf-8", page.clone())
        })
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
