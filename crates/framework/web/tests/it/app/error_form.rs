//! The form of all error responses: the error format and `on_error` of an application and its groups.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus::layers::{CatchPanic, Cors, Hsts, RateLimit, RequestIds, SecurityHeaders};
use apus::sites::{Location, Site};
use apus::testing::{TestClient, TestResponse, TestServer};
use apus::{
    App, Error, ErrorFormat, Files, HeaderName, HeaderValue, IntoResponse, Json, Next, Path,
    Request, Response, Service, ServiceFactory, StatusCode,
};
use serde_json::Value;

/// Asserts problem details with this status.
#[track_caller]
fn assert_problem(mut response: TestResponse, status: u16) {
    response
        .assert_status(status)
        .assert_header("content-type", "application/problem+json");
    assert_eq!(response.json::<Value>()["status"], status);
}

fn browser(server: &TestServer) -> TestClient {
    server.client().header("accept", "text/html")
}

#[test]
fn the_format_of_a_group_holds_for_unknown_paths_in_it() {
    let api = |api: App| {
        api.error_format(ErrorFormat::Json)
            .get("/users", async || "all")
            .group("/pages", |pages| {
                pages
                    .error_format(ErrorFormat::Html)
                    .get("/", async || "pages")
            })
    };
    let server = TestServer::start(
        App::new()
            .get("/", async || "home")
            .host("api.example.com", |host| {
                host.error_format(ErrorFormat::Json)
                    .get("/status", async || "well")
            })
            .group("/api", api),
    );
    let client = browser(&server);
    for path in ["/api/nowhere", "/api/users/7", "/api/", "/api"] {
        assert_problem(client.get(path).send(), 404);
    }
    assert_problem(client.post("/api/users").send(), 405);
    for path in ["/apis", "/nowhere", "/api/pages/7"] {
        let mut page = client.get(path).send();
        page.assert_status(404)
            .assert_header("content-type", "text/html; charset=utf-8");
    }
    let on_host = client.clone().header("host", "api.example.com");
    assert_problem(on_host.get("/nowhere").send(), 404);
    on_host
        .get("/api/pages/7")
        .send()
        .assert_header("content-type", "text/html; charset=utf-8");
}

#[test]
fn the_format_of_a_group_holds_for_the_fallback_around_it_and_for_mounts() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(App::new().fallback(async || StatusCode::NOT_FOUND).group(
        "/api",
        |api| {
            api.error_format(ErrorFormat::Json)
                .get("/users", async || "all")
                .mount("/files", Files::new(folder.path()))
        },
    ));
    let client = browser(&server);
    assert_problem(client.get("/api/nowhere").send(), 404);
    assert_problem(client.get("/api/files/nothing.txt").send(), 404);
}

/// A layer of the application refuses requests of all groups.
#[test]
fn refusals_of_layers_around_an_application_have_the_form_of_the_group() {
    async fn closed(request: Request, next: Next) -> Response {
        if request.headers().contains("x-key") {
            next.run(request).await
        } else {
            StatusCode::FORBIDDEN.into_response()
        }
    }
    let app = App::new()
        .layer(Cors::new().origin("https://shop.example"))
        .layer(closed)
        .before(|request| {
            if request.headers().contains("x-blocked") {
                Err(Response::new(StatusCode::NOT_ACCEPTABLE))
            } else {
                Ok(())
            }
        })
        .layer(RateLimit::per_minute(1).by_header(HeaderName::from_static("x-key")))
        .get("/page", async || "page")
        .group("/api", |api| {
            api.error_format(ErrorFormat::Json)
                .get("/users", async || "all")
                .get("/panic", async || -> &'static str { panic!("oh") })
        });
    let server = TestServer::start(app);
    let client = browser(&server);
    let preflight = |path: &str| {
        client
            .options(path)
            .header("origin", "https://other.example")
            .header("access-control-request-method", "POST")
            .send()
    };
    preflight("/page")
        .assert_status(403)
        .assert_header("content-type", "text/html; charset=utf-8");
    let refused = preflight("/api/users");
    assert!(refused.header("vary").is_some());
    assert_problem(refused, 403);
    assert_problem(client.get("/api/users").send(), 403);
    let keyed = |path: &str, key: &str| client.get(path).header("x-key", key);
    assert_problem(
        keyed("/api/users", "a").header("x-blocked", "1").send(),
        406,
    );
    keyed("/api/users", "b").send().assert_ok();
    let limited = keyed("/api/users", "b").send();
    assert!(limited.header("retry-after").is_some());
    assert_problem(limited, 429);
    assert_problem(keyed("/api/panic", "c").send(), 500);
}

#[test]
fn the_response_to_a_panic_has_the_fields_of_all_responses() {
    let year = Duration::from_secs(31_536_000);
    let panicking = |app: App| {
        app.get("/well", async || "well")
            .get("/now", || -> &'static str { panic!("at once") })
            .get("/later", async || -> &'static str {
                tokio::task::yield_now().await;
                panic!("later")
            })
    };
    let with_layers = |app: App| {
        app.layer(RequestIds::new())
            .layer(SecurityHeaders::new().hsts(year))
            .layer(Cors::any_origin())
            .after(|response| {
                let value = HeaderValue::from_static("1");
                response
                    .headers_mut()
                    .insert(&HeaderName::from_static("x-after"), &value);
            })
    };
    let layered = [
        "strict-transport-security",
        "content-security-policy",
        "x-frame-options",
        "x-request-id",
        "access-control-allow-origin",
        "x-after",
    ];
    let hsts = &layered[..1];
    let app = || panicking(with_layers(App::new()));
    let site = |app: App| {
        let location = Location::service("/".parse().unwrap(), "app", app);
        Site::new("site").hsts(Hsts::new(year)).location(location)
    };
    let served = |app: App| app.outermost_service().unwrap();
    let doors: Vec<(&str, Rc<dyn Service>, &[&str])> = vec![
        ("an application", served(app()), &layered),
        ("one in a site", site(app()).service(), &layered),
        (
            "one without layers",
            site(panicking(App::new())).service(),
            hsts,
        ),
        (
            "a group",
            served(App::new().group("/", |group| panicking(with_layers(group)))),
            &layered,
        ),
        (
            "one that is mounted",
            served(with_layers(App::new()).mount("/", panicking(App::new()))),
            &layered,
        ),
        (
            "a layer alone",
            served(panicking(App::new().layer(Hsts::new(year)))),
            hsts,
        ),
        (
            "panics caught outside",
            served(panicking(with_layers(App::new().layer(CatchPanic::new())))),
            &layered,
        ),
        (
            "panics caught inside",
            served(panicking(with_layers(App::new()).layer(CatchPanic::new()))),
            &layered,
        ),
    ];
    for (door, service, fields) in doors {
        for (path, status) in [("/well", 200), ("/now", 500), ("/later", 500)] {
            let request = apus_testkit::get(path).tls(&["example.com"]);
            let reply = request.with("accept", "application/json").of(&service);
            assert_eq!(reply.status, status, "{door}: {path}");
            for field in fields {
                assert!(reply.field(field).is_some(), "{door}: {path}: {field}");
            }
            if status == 500 {
                let text = reply.text();
                assert!(text.contains("\"status\":500"), "{door}: {path}: {text}");
                assert!(!text.contains("at once"), "{door}: {path}: {text}");
            }
        }
    }
}

#[test]
fn on_panic_makes_the_response_also_where_a_layer_further_in_has_set_its_fields() {
    let app = App::new()
        .on_panic(|message| Response::text(StatusCode::BAD_GATEWAY, format!("ours: {message}")))
        .layer(SecurityHeaders::new())
        .get("/", async || -> &'static str { panic!("oh") });
    let mut response = TestClient::new(app).get("/").send();
    response
        .assert_status(502)
        .assert_header("x-frame-options", "SAMEORIGIN")
        .assert_text("ours: oh");
}

/// The statuses and details that `on_error` has seen.
type Seen = Arc<Mutex<Vec<(u16, Option<String>)>>>;

fn recording(app: App, seen: &Seen) -> App {
    let seen = seen.clone();
    app.on_error(move |error, _| {
        let detail = error.detail().map(str::to_owned);
        seen.lock()
            .unwrap()
            .push((error.status_code().as_u16(), detail));
        let text = format!("ours: {}", error.status_code().as_u16());
        (error.status_code() != StatusCode::GONE).then(|| Response::text(error.status_code(), text))
    })
}

fn every_error() -> App {
    async fn refusing(_: Request, _: Next) -> StatusCode {
        StatusCode::PAYMENT_REQUIRED
    }
    App::new()
        .layer(Cors::new().origin("https://shop.example"))
        .get("/status", async || StatusCode::IM_A_TEAPOT)
        .get("/now", || StatusCode::IM_A_TEAPOT)
        .get("/gone", async || StatusCode::GONE)
        .get("/none", async || None::<&str>)
        .get("/error", async || Error::conflict("taken"))
        .get("/failed", async || {
            Err::<(), Error>(std::io::Error::other("a secret").into())
        })
        .get("/panic", || -> &'static str { panic!("at once") })
        .get("/panic/later", async || -> &'static str {
            tokio::task::yield_now().await;
            panic!("later")
        })
        .get("/number/{id}", async |Path(id): Path<u32>| id.to_string())
        .post("/json", async |Json(_): Json<u32>| "a number")
        .post("/short", async |text: String| text)
        .body_limit(10)
        .group("/refusing", |group| {
            group.layer(refusing).get("/", || "never")
        })
        .group("/caught", |group| {
            group
                .layer(CatchPanic::new())
                .get("/", async || -> &'static str { panic!("caught") })
        })
}

#[test]
fn on_error_sees_every_error_once() {
    let seen = Seen::default();
    let server = TestServer::start(recording(every_error(), &seen));
    let client = server.client();
    for (path, status) in [
        ("/unknown", 404),
        ("/status", 418),
        ("/now", 418),
        ("/gone", 410),
        ("/none", 404),
        ("/error", 409),
        ("/failed", 500),
        ("/panic", 500),
        ("/panic/later", 500),
        ("/number/x", 404),
        ("/refusing", 402),
        ("/caught", 500),
    ] {
        let mut response = client.get(path).send();
        response.assert_status(status);
        let ours = format!("ours: {status}");
        assert_eq!(response.text() == ours, status != 410, "{path}");
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(seen.len(), 1, "{path}: {seen:?}");
        assert_eq!(seen[0].0, status, "{path}");
    }
    let expect = |mut response: TestResponse, status: u16| {
        response.assert_status(status);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(
            seen.iter().map(|(status, _)| *status).collect::<Vec<_>>(),
            [status]
        );
    };
    let not_allowed = client.delete("/status").send();
    assert_eq!(not_allowed.header("allow"), Some("GET, HEAD, OPTIONS"));
    expect(not_allowed, 405);
    expect(client.post("/json").body("?").send(), 415);
    expect(client.post("/short").body("0123456789+").send(), 413);
    let preflight = client
        .options("/status")
        .header("origin", "https://other.example")
        .header("access-control-request-method", "POST");
    expect(preflight.send(), 403);
    client.post("/short").body("0123456789").send().assert_ok();
    client.options("/status").send().assert_status(204);
    assert!(seen.lock().unwrap().is_empty());
}

/// A mounted application without rules leaves its errors to the application around it.
#[test]
fn on_error_sees_the_errors_of_mounted_applications_without_rules() {
    let (outer, inner) = (Seen::default(), Seen::default());
    let plain = App::new().get("/", async || "plain");
    let own = recording(App::new().get("/", async || StatusCode::GONE), &inner);
    let app = App::new().mount("/plain", plain).mount("/own", own);
    let server = TestServer::start(recording(app, &outer));
    let client = server.client();
    client.get("/plain/nothing").send().assert_text("ours: 404");
    client.get("/own/nothing").send().assert_text("ours: 404");
    client.get("/own/").send().assert_status(410);
    let statuses = |seen: &Seen| {
        seen.lock()
            .unwrap()
            .iter()
            .map(|(status, _)| *status)
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(&outer), [404]);
    assert_eq!(statuses(&inner), [404, 410]);
}

#[test]
fn the_response_of_on_error_keeps_the_fields_of_the_error_and_of_layers() {
    let app = App::new()
        .on_error(|error, _| Some(Response::text(error.status_code(), "ours")))
        .get("/busy", async || {
            Error::unavailable("later")
                .header(apus::header::RETRY_AFTER, HeaderValue::from_static("7"))
        })
        .get("/marked", async || {
            ([("x-mark", "1")], Err::<&str, _>(Error::gone("away")))
        });
    let server = TestServer::start(app);
    let client = server.client();
    client
        .get("/busy")
        .send()
        .assert_status(503)
        .assert_text("ours")
        .assert_header("retry-after", "7");
    client
        .get("/marked")
        .send()
        .assert_status(410)
        .assert_header("x-mark", "1")
        .assert_header("content-type", "text/plain; charset=utf-8");
}
