//! The application with axum, sqlx and minijinja: `bench-axum PORT [DATABASE [no-ping]]`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::{Extension, FromRequest, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use garde::Validate;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tokio::net::TcpListener;

/// What the client reads, as a layer finds out.
#[derive(Clone, Copy)]
struct Language(&'static str);

async fn language(mut request: Request) -> Request {
    let accepted = request.headers().get(header::ACCEPT_LANGUAGE);
    let is_chinese = accepted.is_some_and(|accepted| accepted.as_bytes().starts_with(b"zh"));
    request
        .extensions_mut()
        .insert(Language(if is_chinese { "zh" } else { "en" }));
    request
}

async fn served_by(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert("x-served-by", HeaderValue::from_static("bench"));
    response
}

async fn hello(Extension(language): Extension<Language>, Path(name): Path<String>) -> String {
    match language {
        Language("zh") => format!("你好，{name}！"),
        _ => format!("Hello, {name}!"),
    }
}

#[derive(Serialize)]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

async fn json(
    Extension(Language(language)): Extension<Language>,
    Path(id): Path<u32>,
) -> Json<Swift> {
    Json(Swift {
        id,
        name: "Apus apus",
        language,
    })
}

#[derive(Deserialize, Validate)]
struct Order {
    #[garde(length(chars, min = 1, max = 80))]
    customer: String,
    #[garde(email, length(max = 254))]
    email: String,
    #[garde(length(min = 1, max = 20), dive)]
    items: Vec<Item>,
}

#[derive(Deserialize, Validate)]
struct Item {
    #[garde(length(min = 1, max = 40), ascii)]
    product: String,
    #[garde(range(min = 1, max = 100))]
    quantity: u32,
    #[garde(range(min = 1, max = 1_000_000))]
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    customer: String,
    email: String,
    products: Vec<String>,
    cents: u64,
    language: &'static str,
}

impl Receipt {
    fn new(order: Order, language: &'static str) -> Self {
        let items = order.items.iter();
        Self {
            cents: items.map(|item| u64::from(item.quantity) * item.cents).sum(),
            customer: order.customer,
            email: order.email,
            products: order.items.into_iter().map(|item| item.product).collect(),
            language,
        }
    }
}

/// A body in JSON whose fields follow their rules.
struct Valid<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Validate<Context = ()>> FromRequest<S> for Valid<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Json(value) = Json::<T>::from_request(request, state)
            .await
            .map_err(|rejection| Failure(rejection.status(), rejection.body_text()))?;
        match value.validate() {
            Ok(()) => Ok(Self(value)),
            Err(report) => Err(Failure(
                StatusCode::UNPROCESSABLE_ENTITY,
                report.to_string(),
            )),
        }
    }
}

async fn order(
    Extension(Language(language)): Extension<Language>,
    Valid(order): Valid<Order>,
) -> Json<Receipt> {
    Json(Receipt::new(order, language))
}

#[derive(Serialize, sqlx::FromRow)]
struct User {
    id: i64,
    name: String,
    email: String,
    joined: String,
}

#[derive(Clone)]
struct Site {
    database: MySqlPool,
    templates: Arc<Environment<'static>>,
}

async fn user(
    State(site): State<Site>,
    Extension(Language(language)): Extension<Language>,
    Path(id): Path<i64>,
) -> Result<Html<String>, Failure> {
    let user: Option<User> =
        sqlx::query_as("SELECT id, name, email, joined FROM users WHERE id = ?")
            .bind(id)
            .fetch_optional(&site.database)
            .await?;
    let user = user.ok_or(Failure(
        StatusCode::NOT_FOUND,
        "there is no such user".into(),
    ))?;
    let page = site
        .templates
        .get_template("user.html")?
        .render(context! { user => Serde(user), language })?;
    Ok(Html(page))
}

struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// sqlx tries a connection before each use, unless the pool is configured otherwise.
async fn pages(database: &str, tries: bool) -> Result<Router, Box<dyn Error>> {
    let mut templates = Environment::new();
    templates.add_template("layout.html", include_str!("../../views/layout.html"))?;
    templates.add_template("user.html", include_str!("../../views/user.html"))?;
    let site = Site {
        database: MySqlPoolOptions::new()
            .max_connections(10)
            .test_before_acquire(tries)
            .connect(database)
            .await?,
        templates: Arc::new(templates),
    };
    Ok(Router::new()
        .route("/users/{id}", get(user))
        .with_state(site))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments
        .next()
        .ok_or("bench-axum PORT [DATABASE]")?
        .parse()?;
    let mut app = Router::new()
        .route("/hello/{name}", get(hello))
        .route("/json/{id}", get(json))
        .route("/orders", post(order));
    if let Some(database) = arguments.next() {
        app = app.merge(pages(&database, arguments.next().is_none()).await?);
    }
    let app = app
        .layer(middleware::map_response(served_by))
        .layer(middleware::map_request(language));
    axum::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?, app).await?;
    Ok(())
}
