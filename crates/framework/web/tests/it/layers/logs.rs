//! Log lines of requests.

use std::io;

use apus::App;
use apus::layers::RequestIds;
use apus_testkit::logged;

/// All lines of a request, including lines of libraries, have its method, path, route and id.
#[test]
fn the_lines_of_a_request_are_in_its_span() {
    async fn failing() -> apus::Result<()> {
        tokio::task::yield_now().await;
        tracing::warn!(target: "some_library", "a line of a library");
        Err(io::Error::other("the disk is full"))?
    }
    let app = App::new()
        .layer(RequestIds::new())
        .get("/panic", async || -> &'static str { panic!("oh no") })
        .group("/api", |api| api.get("/users/{id}", failing));
    let inner = App::new().get("/deep/{id}", failing);
    let app = app.mount("/mounted", inner);
    for (path, route, lines) in [
        (
            "/api/users/7",
            "/api/users/{id}",
            ["a line of a library", "the disk is full"],
        ),
        (
            "/mounted/deep/7",
            "/mounted/deep/{id}",
            ["a line of a library", "the disk is full"],
        ),
        ("/panic", "/panic", ["oh no", "a handler failed"]),
    ] {
        let mut id = String::new();
        let log = logged(|| {
            let client = apus::testing::TestClient::new(app.clone());
            let response = client.get(path).query([("secret", "1")]).send();
            // The response to a panic does not pass the layers.
            id = response
                .header("x-request-id")
                .unwrap_or_default()
                .to_owned();
        });
        for text in lines {
            let line = log
                .lines()
                .find(|line| line.contains(text))
                .unwrap_or_else(|| panic!("{log}"));
            for part in [
                "request{method=GET".to_owned(),
                format!("path=\"{path}\""),
                format!("route=\"{route}\""),
                format!("request_id={id}"),
            ] {
                assert!(line.contains(&part), "{part}: {line}");
            }
            assert!(!line.contains("secret"), "{line}");
        }
    }
}
