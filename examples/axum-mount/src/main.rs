//! An application that moves from axum to Apus step by step: the axum router is mounted unchanged.
//!
//! `cargo run -p apus-example-axum-mount`, then `curl 127.0.0.1:8080/api/hello/you` and `curl 127.0.0.1:8080/hello/you`.

#![forbid(unsafe_code)]

use apus::tower::TowerMount;
use apus::{App, Path};
use axum::Router;
use axum::routing::get;

/// The old application, in axum.
fn router() -> Router {
    Router::new().route(
        "/hello/{name}",
        get(
            async |axum::extract::Path(name): axum::extract::Path<String>| {
                format!("Hello from axum, {name}!\n")
            },
        ),
    )
}

/// The new application, with the old one under `/api`.
fn app() -> App {
    App::new()
        .get("/hello/{name}", async |Path(name): Path<String>| {
            format!("Hello from Apus, {name}!\n")
        })
        .mount("/api", TowerMount::new(router()))
}

fn main() -> Result<(), apus::StartError> {
    app().serve("127.0.0.1:8080")
}

#[cfg(test)]
mod tests {
    use apus::testing::{TestClient, TestServer};
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn both_respond_side_by_side() {
        let server = TestServer::start(app());
        for client in [TestClient::new(app()), server.client()] {
            client
                .get("/hello/you")
                .send()
                .assert_ok()
                .assert_text("Hello from Apus, you!\n");
            client
                .get("/api/hello/you")
                .send()
                .assert_ok()
                .assert_text("Hello from axum, you!\n");
        }
    }

    #[tokio::test]
    async fn axum_serves_an_application_of_apus() {
        let service = app().into_send_tower().unwrap();
        let outer = Router::new().fallback_service(service);
        for (path, text) in [
            ("/hello/you", "Hello from Apus, you!\n"),
            ("/api/hello/you", "Hello from axum, you!\n"),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = outer.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let body = to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(body, text);
        }
    }

    #[tokio::test]
    async fn tests_of_axum_are_tests_of_apus() {
        let request = Request::get("/hello/you").body(Body::empty()).unwrap();
        let response = app().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}
