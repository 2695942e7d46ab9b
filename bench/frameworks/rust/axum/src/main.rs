//! The application with axum, sqlx and minijinja: `bench-axum PORT [DATABASE [no-ping]]`.

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
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
        .route("/json/{id}", get(json));
    if let Some(database) = arguments.next() {
        app = app.merge(pages(&database, arguments.next().is_none()).await?);
    }
    let app = app
        .layer(middleware::map_response(served_by))
        .layer(middleware::map_request(language));
    axum::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?, app).await?;
    Ok(())
}
