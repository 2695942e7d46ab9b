//! Routing: groups, hosts, constraints, names, layers, hooks and error responses.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus::{
    App, Error, ErrorFormat, HandlerExt, HeaderValue, IntoResponse, Json, Method, Next, Path,
    Request, Response, ServiceFactory, State, StatusCode, Urls, header,
};

use apus_testkit::{ask, echo, get};

/// A layer that puts its name into the response.
fn named(name: &'static str) -> impl Fn(Request, Next) -> apus::ResponseFuture + Clone {
    move |request, next| {
        next.call(request).map(move |mut response| {
            let _ = response.headers_mut().try_append("x-layer", name);
            response
        })
    }
}

fn layers(reply: &apus_testkit::Reply) -> Vec<String> {
    let layers = reply.headers.get_all("x-layer");
    layers
        .map(|layer| String::from_utf8(layer.to_vec()).unwrap())
        .collect()
}

#[test]
fn a_group_has_prefix_layers_state_and_groups() {
    let app = App::new()
        .layer(named("app"))
        .state("outer")
        .get("/", async |State(state): State<&'static str>| state)
        .group("/api", |api| {
            api.layer(named("api"))
                .state("inner")
                .get("/", async |State(state): State<&'static str>| state)
                .group("/v{version:[0-9]+}", |v| {
                    v.layer(named("v")).get(
                        "/users/{id}",
                        async |Path((version, id)): Path<(u8, u32)>,
                               State(s): State<&'static str>| {
                            format!("{version} {id} {s}")
                        },
                    )
                })
                .mount("/echo", echo("echo"))
        });
    let service = app.service();
    let reply = get("/").of(&service);
    assert_eq!(
        (reply.text(), layers(&reply)),
        ("outer", vec!["app".to_owned()])
    );
    let reply = get("/api").of(&service);
    assert_eq!(
        (reply.text(), layers(&reply)),
        ("inner", vec!["api".into(), "app".into()])
    );
    let reply = get("/api/v2/users/7").of(&service);
    assert_eq!(reply.text(), "2 7 inner");
    assert_eq!(layers(&reply), ["v", "api", "app"]);
    let reply = get("/api/echo/x").of(&service);
    assert_eq!(
        (reply.text(), layers(&reply)),
        ("echo /x", vec!["api".into(), "app".into()])
    );
    // The layers of a group also apply to its 405 responses, but not to a 404 for a path without a route.
    let reply = ask("PUT", "/api/v2/users/7").of(&service);
    assert_eq!((reply.status, layers(&reply).len()), (405, 3));
    let reply = get("/api/vx/users/7").of(&service);
    assert_eq!((reply.status, layers(&reply).len()), (404, 1));
}

#[test]
fn layers_of_a_handler_are_innermost() {
    async fn page() -> &'static str {
        "page"
    }
    let app = App::new()
        .layer(named("app"))
        .get("/a", page.with(named("first")).with(named("second")))
        .get("/b", page);
    let service = app.service();
    assert_eq!(layers(&get("/a").of(&service)), ["second", "first", "app"]);
    assert_eq!(layers(&get("/b").of(&service)), ["app"]);
}

#[test]
fn constraints_choose_among_routes_of_one_shape() {
    let app = App::new()
        .get("/p/{name}", async |Path(name): Path<String>| {
            format!("name {name}")
        })
        .get("/p/{id:[0-9]+}", async |Path(id): Path<u32>| {
            format!("id {id}")
        })
        .get(
            "/p/{date:[0-9]{4}-[0-9]{2}}",
            async |Path(date): Path<String>| format!("date {date}"),
        )
        .get("/q/{id:[0-9]+}/x", async || "q")
        .get("/q/{*rest}", async |Path(rest): Path<String>| {
            format!("rest {rest}")
        });
    let service = app.service();
    for (path, text) in [
        ("/p/7", "id 7"),
        ("/p/2026-11", "date 2026-11"),
        ("/p/seven", "name seven"),
        ("/q/7/x", "q"),
        // The tree finds the route above, whose constraint does not match.
        ("/q/a/x", "rest a/x"),
    ] {
        assert_eq!(get(path).of(&service).text(), text, "{path}");
    }
}

#[test]
fn routes_of_a_host_have_priority() {
    let app = App::new()
        .get("/", async || "all")
        .get("/shared", async || "shared")
        .host("admin.example.com", |admin| {
            admin.get("/", async || "admin")
        })
        .host("*.example.org", |tenants| {
            tenants
                .get("/", async || "tenant")
                .fallback(async || (StatusCode::NOT_FOUND, "no such tenant page"))
        });
    let service = app.service();
    let at = |host: &str, path: &str| {
        let reply = get(path).with("host", host).of(&service);
        reply.text().to_owned()
    };
    assert_eq!(at("admin.example.com", "/"), "admin");
    assert_eq!(at("ADMIN.example.com:8080", "/"), "admin");
    assert_eq!(at("admin.example.com", "/shared"), "shared");
    assert_eq!(at("a.example.org", "/"), "tenant");
    assert_eq!(at("a.example.org", "/none"), "no such tenant page");
    assert_eq!(at("elsewhere.example", "/"), "all");
}

#[test]
fn named_routes_have_urls() {
    let app = App::new()
        .group("/users", |users| {
            users
                .get("/{id}", async || "")
                .name("user")
                .get("/{id}/files/{*path}", async || "")
                .name("file")
        })
        .get("/links", async |urls: Urls| {
            apus::Result::<_>::Ok(Json([
                urls.path("user", [("id", 7)])?,
                urls.path("user", [("id", "a b"), ("tab", "x&y z")])?,
                urls.path("file", [("id", "1"), ("path", "a/b c")])?,
                urls.url("user", [("id", 7)])?,
            ]))
        })
        .get("/wrong", async |urls: Urls| {
            apus::Result::<_>::Ok(urls.path("nobody", [("id", 7)])?)
        });
    let text = |app: &App, path: &str| get(path).to(app).text().to_owned();
    assert_eq!(
        text(&app, "/links"),
        r#"["/users/7","/users/a%20b?tab=x%26y+z","/users/1/files/a/b%20c","http://example.com/users/7"]"#
    );
    assert_eq!(get("/wrong").to(&app).status, 500);
    let outer = App::new().mount("/shop", app);
    assert!(text(&outer, "/shop/links").starts_with(r#"["/shop/users/7","#));
}

#[test]
fn each_worker_can_have_its_own_state() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let app = App::new()
        .state_per_worker(|| Rc::new(MADE.fetch_add(1, Ordering::Relaxed)))
        .get("/", async |State(number): State<Rc<usize>>| {
            number.to_string()
        });
    let first = app.service();
    assert_eq!(get("/").of(&first).text(), "0");
    assert_eq!(get("/").of(&first).text(), "0");
    assert_eq!(get("/").of(&app.service()).text(), "1");
}

#[test]
fn hooks_run_before_requests_and_after_responses() {
    let app = App::new()
        .before(|request| match request.path() {
            "/closed" => Err(StatusCode::FORBIDDEN.into_response()),
            _ => {
                request.extensions_mut().insert(7_u8);
                Ok(())
            }
        })
        .after(|response| {
            let _ = response.headers_mut().try_insert("x-after", "seen");
        })
        .get("/", |apus::Extension(number): apus::Extension<u8>| {
            number.to_string()
        })
        .get("/later", async || "later");
    let service = app.service();
    let reply = get("/").of(&service);
    assert_eq!((reply.text(), reply.field("x-after")), ("7", Some("seen")));
    assert_eq!(get("/later").of(&service).field("x-after"), Some("seen"));
    let reply = get("/closed").of(&service);
    assert_eq!((reply.status, reply.field("x-after")), (403, None));
    // Hooks need no future.
    assert!(matches!(
        service.call(get("/").request()),
        apus::ResponseFuture::Now(_)
    ));
}

#[test]
fn hooks_keep_their_place_among_other_layers() {
    let append = |name: &'static str| {
        move |response: &mut Response| {
            let _ = response.headers_mut().try_append("x-order", name);
        }
    };
    let group = App::new()
        .after(append("fourth"))
        .get("/now", || "now")
        .get("/later", async || "later");
    let app = App::new()
        .after(append("first"))
        .layer(async |request: Request, next: Next| {
            let mut response = next.run(request).await;
            let _ = response.headers_mut().try_append("x-order", "second");
            response
        })
        .after(append("third"))
        .nest("/group", group);
    let service = app.service();
    for path in ["/group/now", "/group/later"] {
        let reply = get(path).of(&service);
        let order: Vec<_> = reply.headers.get_all("x-order").collect();
        assert_eq!(order, [&b"fourth"[..], b"third", b"second", b"first"]);
    }
}

#[test]
fn a_hook_responds_to_panics() {
    let app = App::new()
        .on_panic(|message| {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("oh: {message}")).into_response()
        })
        .get("/now", || -> &'static str { panic!("at once") })
        .get("/later", async || -> &'static str { panic!("later") });
    let service = app.service();
    assert_eq!(get("/now").of(&service).text(), "oh: at once");
    assert_eq!(get("/later").of(&service).text(), "oh: later");
    assert_eq!(get("/none").of(&service).status, 404);
}

fn failing() -> App {
    App::new()
        .get("/taken", async || {
            Err::<(), _>(
                Error::new(StatusCode::CONFLICT, "the name <b> is taken")
                    .kind("https://example.com/taken")
                    .with("name", "b")
                    .header(header::RETRY_AFTER, HeaderValue::from_static("5")),
            )
        })
        .get("/secret", async || {
            Err::<(), Error>(std::io::Error::other("a secret").into())
        })
        .get("/number/{id}", async |Path(id): Path<u32>| id.to_string())
        .post("/json", async |Json(number): Json<u32>| number.to_string())
        .group("/layered", |group| {
            group
                .layer(async |_: Request, _: Next| {
                    Err::<Response, _>(Error::new(StatusCode::UNAUTHORIZED, "sign in"))
                })
                .get("/", async || "never")
        })
}

#[test]
fn errors_have_the_format_that_the_client_accepts() {
    let service = failing().service();
    let taken = |accept: &str| get("/taken").with("accept", accept).of(&service);
    let reply = taken("application/json");
    assert_eq!(
        (reply.status, reply.field("content-type")),
        (409, Some("application/problem+json"))
    );
    assert_eq!(reply.field("retry-after"), Some("5"));
    assert_eq!(
        reply.text(),
        r#"{"type":"https://example.com/taken","title":"Conflict","status":409,"detail":"the name <b> is taken","name":"b"}"#
    );
    let reply = taken("text/html,*/*;q=0.1");
    assert_eq!(
        reply.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(
        reply.text().contains("the name &lt;b&gt; is taken"),
        "{}",
        reply.text()
    );
    assert_eq!(taken("*/*").text(), "the name <b> is taken\n");

    let reply = get("/number/x")
        .with("accept", "application/json")
        .of(&service);
    assert_eq!(reply.status, 404);
    assert!(
        reply
            .text()
            .contains(r#""status":404,"detail":"the path does not fit"#),
        "{}",
        reply.text()
    );
    let reply = ask("POST", "/json")
        .with("accept", "application/json")
        .with("content-type", "application/json")
        .body("\"x\"")
        .of(&service);
    assert_eq!(
        (reply.status, reply.field("content-type")),
        (422, Some("application/problem+json"))
    );
    let reply = get("/layered")
        .with("accept", "application/json")
        .of(&service);
    assert!(
        reply.text().contains(r#""status":401,"detail":"sign in""#),
        "{}",
        reply.text()
    );
    // The cause of an internal error is only logged.
    let reply = get("/secret")
        .with("accept", "application/json")
        .of(&service);
    assert_eq!((reply.status, reply.text()), (500, ""));
}

#[test]
fn applications_and_groups_can_set_error_responses() {
    let app = App::new()
        .on_error(|error, format| {
            let text = format!("{} {format:?}", error.status_code().as_u16());
            Some((error.status_code(), text).into_response())
        })
        .nest("/plain", failing())
        .group("/quiet", |group| {
            group
                .on_error(|error, _| {
                    (error.source().is_some()).then(|| StatusCode::BAD_GATEWAY.into_response())
                })
                .nest("/", failing())
        });
    let service = app.service();
    assert_eq!(
        get("/plain/secret").of(&service).text(),
        format!("500 {:?}", ErrorFormat::Text)
    );
    assert_eq!(get("/plain/number/x").of(&service).text(), "404 Text");
    assert_eq!(get("/plain/layered").of(&service).text(), "401 Text");
    assert_eq!(get("/quiet/secret").of(&service).status, 502);
    assert_eq!(
        get("/quiet/taken").of(&service).text(),
        "the name <b> is taken\n"
    );
}

#[test]
fn a_layer_knows_the_route_of_a_request() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |seen: &Arc<std::sync::Mutex<Vec<_>>>| {
        let seen = seen.clone();
        move |request: Request, next: Next| {
            seen.lock()
                .unwrap()
                .push(next.route(&request).map(str::to_owned));
            next.call(request)
        }
    };
    let app = App::new().layer(note(&seen)).group("/a", |a| {
        a.layer(note(&seen))
            .get("/{id}", async || "")
            .mount("/files", echo("files"))
    });
    let service = app.service();
    get("/a/7").of(&service);
    get("/a/files/x").of(&service);
    get("/none").of(&service);
    let route = |text: &str| Some(text.to_owned());
    assert_eq!(
        *seen.lock().unwrap(),
        [
            route("/a/{id}"),
            route("/a/{id}"),
            route("/a/files"),
            route("/a/files"),
            None
        ]
    );
}

#[test]
fn the_layers_around_an_application_route_a_request_once_unless_one_of_them_changes_it() {
    type Change = fn(&mut Request);
    let same: Change = |_| {};
    let path: Change = |request| request.set_path_and_query("/b/8").unwrap();
    let method: Change = |request| request.set_method(Method::POST);
    for (change, is_same, before, text) in [
        (same, true, "/a/{id}", "a 7"),
        (path, false, "/a/{id}", "b 8"),
        (method, false, "/a/{id}", "post a 7"),
    ] {
        let asks = move |mut request: Request, next: Next| {
            assert_eq!(next.route(&request), Some(before));
            let routed = request.routed().cloned().unwrap();
            change(&mut request);
            let route = next.route(&request).map(str::to_owned);
            let again = request.routed().unwrap();
            assert_eq!(Rc::ptr_eq(&routed, again), is_same, "{route:?}");
            drop(routed);
            next.call(request)
        };
        let routed_before = move |request: Request, next: Next| {
            assert!(request.routed().is_some());
            next.call(request)
        };
        let routed_within = |request: Request, next: Next| {
            assert!(request.routed().is_none());
            next.call(request)
        };
        let inner = App::new()
            .layer(|request: Request, next: Next| {
                assert_eq!(next.route(&request), Some("/x/{id}"));
                next.call(request)
            })
            .get("/x/{id}", async |Path(id): Path<u8>| format!("inner {id}"));
        let app = App::new()
            .layer(asks)
            .layer(routed_before)
            .get("/a/{id}", async |Path(id): Path<u8>| format!("a {id}"))
            .post("/a/{id}", async |Path(id): Path<u8>| format!("post a {id}"))
            .group("/b", |group| {
                group
                    .layer(routed_within)
                    .get("/{id}", async |Path(id): Path<u8>| format!("b {id}"))
            });
        let service = app.service();
        for _ in 0..3 {
            assert_eq!(get("/a/7").of(&service).text(), text);
        }
        let mounting = App::new()
            .layer(|request: Request, next: Next| {
                assert_eq!(next.route(&request), Some(""));
                next.call(request)
            })
            .mount("", inner);
        assert_eq!(get("/x/9").to(&mounting).text(), "inner 9");
    }
}

#[test]
fn all_errors_are_reported_with_their_places() {
    let app = App::new()
        .name("nothing")
        .get("/users/{id}", async || "")
        .group("/users", |users| users.get("/{name}", async || ""))
        .get("/a", async || "")
        .name("a")
        .get("/b", async || "")
        .name("a")
        .get("/c/{x:(}", async || "")
        .host("not a host", |host| host);
    let errors = app.check().unwrap_err();
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 5, "{errors}");
    for (text, parts) in texts.iter().zip([
        ["nothing", "before any route"],
        ["GET /users/{name} already has a handler", "routing.rs:"],
        ["named \"a\"", "routing.rs:"],
        ["/c/{x:(}", "constraint of \"x\""],
        ["not a host", "not a valid name of a host"],
    ]) {
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("\n  at crates/framework/web/tests/it/app/routing.rs:"),
            "{text}"
        );
    }
}

#[test]
fn all_routes_can_be_listed() {
    async fn show() {}
    let app = App::new()
        .get("/", async || "home")
        .group("/users", |users| {
            users.post("/", show).name("new").any("/{id}", show)
        })
        .host("a.example", |host| host.mount("/files", echo("files")))
        .mount("/in", App::new().get("/x", show).name("inner"));
    let list: Vec<_> = app
        .routes()
        .into_iter()
        .map(|route| (route.method, route.path, route.host, route.name))
        .collect();
    let text = |text: &str| text.to_owned();
    assert_eq!(
        list,
        [
            (Some(Method::GET), text("/"), None, None),
            (Some(Method::POST), text("/users"), None, Some(text("new"))),
            (None, text("/users/{id}"), None, None),
            (None, text("/files/{*}"), Some(text("a.example")), None),
            (None, text("/in/{*}"), None, None),
            (Some(Method::GET), text("/in/x"), None, Some(text("inner"))),
        ]
    );
    assert!(
        app.routes()[1].handler.ends_with("show"),
        "{:?}",
        app.routes()
    );
    assert!(app.routes()[1].at.contains("routing.rs:"));
}
