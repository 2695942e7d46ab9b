//! Layers around mounted files and handlers.

use crate::harness::{Client, Server, head};
use apus::layers::{Compression, Cors, SecurityHeaders};
use apus::{App, Certificate, Files};
use apus_testkit::CertificateAuthority;

#[test]
fn layers_apply_to_mounted_files() {
    let folder = tempfile::tempdir().unwrap();
    let style = "a { color: green }\n".repeat(200);
    std::fs::create_dir(folder.path().join("css")).unwrap();
    std::fs::write(folder.path().join("css/site.css"), &style).unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>the index").unwrap();
    let app = App::new()
        .layer(SecurityHeaders::new())
        .layer(Cors::any_origin())
        .layer(Compression::default())
        .mount("/assets", Files::new(folder.path()))
        .get("/", async || "the handler")
        .get("/assets/made", async || "a route goes first");
    let server = Server::start(app);
    let mut client = Client::connect(server.address());
    let mut get = |path: &str, lines: &[&str]| client.request(&head("GET", path, lines));
    assert_eq!(get("/", &[]).text(), "the handler");
    assert_eq!(get("/assets/made", &[]).text(), "a route goes first");
    assert_eq!(get("/assets/", &[]).text(), "<p>the index");
    let reply = get("/assets", &[]);
    assert_eq!(
        (reply.status, reply.field("location")),
        (308, Some("/assets/"))
    );
    let reply = get("/assets/css/site.css", &[]);
    assert_eq!((reply.status, reply.text()), (200, &*style));
    assert_eq!(reply.field("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
    assert_eq!(reply.members("vary"), ["accept-encoding"]);
    let tag = format!("If-None-Match: {}", reply.field("etag").unwrap());
    assert_eq!(get("/assets/css/site.css", &[&tag]).status, 304);
    let reply = get("/assets/css/site.css", &["Range: bytes=0-0"]);
    assert_eq!((reply.status, reply.text()), (206, "a"));
    for path in [
        "/assets/nothing.css",
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/x",
    ] {
        assert_eq!(get(path, &[]).status, 404, "{path}");
    }
}

#[test]
fn the_key_of_a_certificate_is_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let issued = CertificateAuthority::generate().ecdsa(&["localhost"]);
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&chain, &issued.pem).unwrap();
    std::fs::write(&key, &issued.key).unwrap();
    std::fs::hard_link(&key, folder.path().join("copy")).unwrap();
    Certificate::from_files(&chain, &key).unwrap();
    let app = App::new().mount("/files", Files::new(folder.path()).listing(true));
    let server = Server::start(app);
    let mut client = Client::connect(server.address());
    let mut get = |path: &str| client.request(&head("GET", path, &[]));
    assert_eq!(get("/files/chain.pem").status, 200);
    for path in ["/files/key.pem", "/files//key.pem", "/files/copy"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    let listing = get("/files/");
    assert!(listing.text().contains("chain.pem") && !listing.text().contains("key.pem"));
}
