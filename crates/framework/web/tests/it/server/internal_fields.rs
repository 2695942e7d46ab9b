//! Fields by which an origin tells the server what to do, which no client of an application sees.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use apus::cached::{Cache, CacheSettings, Cached};
use apus::php::Php;
use apus::proxy::Proxy;
use apus::testing::{TestClient, TestServer};
use apus::tower::TowerMount;
use apus::{App, Headers, IntoResponse, Request, Response, StatusCode};
use apus_cache::store::StoreSettings;
use apus_testkit::wait_until;

const FIELDS: [&str; 5] = [
    "x-accel-buffering",
    "x-accel-expires",
    "x-accel-limit-rate",
    "x-apus-other",
    "x-other",
];

/// Responds with fields for a server in front of it, with a status that is the path.
fn origin() -> App {
    App::new().get("/{status}", |request: Request| {
        let mut hints = Headers::new();
        hints.try_append("x-accel-buffering", "no").unwrap();
        request.interim().send(StatusCode::EARLY_HINTS, hints);
        let status = StatusCode::from_bytes(&request.path().as_bytes()[1..]).unwrap();
        let mut response = Response::new(status);
        if status.is_success() {
            response = response.with_body("of the origin");
        }
        for name in FIELDS {
            response.headers_mut().try_append(name, "60").unwrap();
        }
        response
    })
}

const SCRIPT: &str =
    "<?php foreach (['Buffering', 'Expires', 'Limit-Rate'] as $name) header(\"X-Accel-$name: 60\");
    header('X-Apus-Other: 60'); header('X-Other: 60'); echo 'of the origin';";

/// A FastCGI server, which ends with the test.
struct PhpCgi(Child);

impl PhpCgi {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new("php-cgi8.2");
        let command = command.arg("-b").arg(socket).stderr(Stdio::null());
        let this = Self(command.spawn().unwrap());
        wait_until("php-cgi listens", || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        this
    }
}

impl Drop for PhpCgi {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An application in front of these origins.
fn app(origin: &str, php: &Path, root: &Path) -> App {
    let proxy = || Proxy::to(origin).unwrap();
    let cached = Cached::new(
        &Cache::new(StoreSettings::default()),
        "site",
        CacheSettings::default(),
        proxy(),
    );
    App::new()
        .mount("/proxy", proxy())
        .mount("/cached", cached)
        .mount("/php", Php::fpm(php, root))
        .mount(
            "/tower",
            TowerMount::new(App::new().mount("/", proxy()).into_send_tower().unwrap()),
        )
        .group("/hook", |group| {
            group
                .on_error(|error, _| Some(Response::text(error.status_code(), "of the hook")))
                .mount("/", proxy())
        })
        .get("/own", || {
            let mut response = "of the program".into_response();
            for name in FIELDS {
                response.headers_mut().try_append(name, "60").unwrap();
            }
            response
        })
}

#[test]
fn no_client_of_an_application_sees_a_field_that_an_origin_has_for_the_server() {
    let origin = TestServer::start(origin());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.php"), SCRIPT).unwrap();
    let socket = folder.path().join("php.sock");
    let _php = PhpCgi::start(&socket);
    let url = origin.url("");
    let app = || app(url.trim_end_matches('/'), &socket, folder.path());
    let server = TestServer::start(app());
    for client in [TestClient::new(app()), server.client()] {
        for (path, status) in [
            ("/proxy/200", 200),
            ("/proxy/404", 404),
            // The second is a hit.
            ("/cached/200", 200),
            ("/cached/200", 200),
            ("/cached/404", 404),
            ("/php/index.php", 200),
            ("/tower/200", 200),
            ("/tower/503", 503),
            ("/hook/200", 200),
            ("/hook/404", 404),
        ] {
            for request in [client.get(path), client.head(path)] {
                let mut reply = request.send();
                reply.assert_status(status).assert_header("x-other", "60");
                for name in &FIELDS[..4] {
                    reply.assert_no_header(name);
                }
            }
        }
        // A program may have them for a server in front of it.
        let mut reply = client.get("/own").send();
        for name in FIELDS {
            reply.assert_header(name, "60");
        }
    }
}
