//! Errors: statuses, error types of applications, and formats.

use std::fmt;

use apus::testing::TestClient;
use apus::{
    App, Error, ErrorFormat, HttpError, Next, Path, Request, Response, StatusCode, http_error,
};
use serde_json::Value;

#[derive(Debug)]
enum ShopError {
    NoProduct(u32),
    Broken,
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProduct(id) => write!(f, "there is no product {id}"),
            Self::Broken => f.write_str("the shelf broke down"),
        }
    }
}

impl std::error::Error for ShopError {}

#[http_error]
impl HttpError for ShopError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoProduct(_) => StatusCode::NOT_FOUND,
            Self::Broken => StatusCode::BAD_GATEWAY,
        }
    }
}

fn product(id: u32) -> Result<&'static str, ShopError> {
    match id {
        1 => Ok("tea"),
        2 => Err(ShopError::Broken),
        id => Err(ShopError::NoProduct(id)),
    }
}

async fn kept(Path(id): Path<u32>) -> apus::Result<&'static str> {
    product(id).map_err(HttpError::into_error)
}

/// `?` keeps the status of a declared type.
async fn asked(Path(id): Path<u32>) -> apus::Result<&'static str> {
    Ok(product(id)?)
}

#[derive(Debug)]
struct Undeclared;

impl fmt::Display for Undeclared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("undeclared")
    }
}

impl std::error::Error for Undeclared {}

async fn lost(Path(_): Path<u32>) -> apus::Result<&'static str> {
    Err(Undeclared)?
}

#[test]
fn an_error_type_sets_status_and_detail() {
    let seen = |error: &Error| {
        let source = error.source();
        source.is_some_and(|source| source.is::<ShopError>() || source.is::<Undeclared>())
    };
    let app = App::new()
        .on_error(move |error, _| {
            assert!(seen(error));
            None
        })
        .get("/{id}", async |Path(id): Path<u32>| product(id))
        .get("/kept/{id}", kept)
        .get("/asked/{id}", asked)
        .get("/lost/{id}", lost);
    let client = TestClient::new(app);
    client.get("/1").send().assert_text("tea");
    for path in ["/7", "/kept/7", "/asked/7"] {
        let mut response = client.get(path).send();
        response
            .assert_status(404)
            .assert_text("there is no product 7\n");
    }
    let mut broken = client.get("/2").send();
    assert_eq!(broken.status(), StatusCode::BAD_GATEWAY);
    assert!(!broken.text().contains("shelf"));
    // A type that is not declared is a 500, as any other error.
    client.get("/lost/7").send().assert_status(500);
}

#[test]
fn an_application_sets_the_format_of_errors() {
    async fn refusing(_: Request, _: Next) -> apus::Result<Response> {
        Err(Error::forbidden("not you"))
    }
    let app = App::new()
        .get("/page", async || Error::gone("it was moved"))
        .group("/api", |api| {
            api.error_format(ErrorFormat::Json)
                .get("/users/{id}", async |Path(id): Path<u32>| id.to_string())
                .get("/nobody", async || StatusCode::NOT_FOUND)
                .get("/told", async || Error::conflict("taken"))
                .fallback(async || StatusCode::NOT_FOUND)
                .group("/closed", |closed| {
                    closed.layer(refusing).get("/", async || "open")
                })
        });
    let client = TestClient::new(app.clone());
    let browser = client.clone().header("accept", "text/html");
    for (path, status) in [
        ("/api/users/x", 404),
        ("/api/nobody", 404),
        ("/api/told", 409),
        ("/api/else", 404),
        ("/api/closed", 403),
    ] {
        let mut response = browser.get(path).send();
        response
            .assert_status(status)
            .assert_header("content-type", "application/problem+json");
        assert_eq!(response.json::<Value>()["status"], status, "{path}");
    }
    let mut refused = browser.delete("/api/told").send();
    refused
        .assert_status(405)
        .assert_header("allow", "GET, HEAD, OPTIONS")
        .assert_header("content-type", "application/problem+json");
    browser
        .get("/page")
        .send()
        .assert_status(410)
        .assert_header("content-type", "text/html; charset=utf-8");
    // The format of the whole application also applies to requests without a route.
    let client = TestClient::new(app.error_format(ErrorFormat::Json));
    for path in ["/page", "/nowhere"] {
        client
            .get(path)
            .send()
            .assert_header("content-type", "application/problem+json");
    }
}
