//! Assets: static files with hashed names.

use std::fs;
use std::time::{Duration, SystemTime};

use apus::App;
use apus::assets::Assets;
use apus::testing::TestClient;
use tempfile::TempDir;

const FOREVER: &str = "public, max-age=31536000, immutable";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("js")).unwrap();
    fs::write(folder.path().join("app.css"), "body {}").unwrap();
    fs::write(folder.path().join("js/app.min.js"), "1").unwrap();
    fs::write(folder.path().join("a b.txt"), "text").unwrap();
    fs::write(folder.path().join(".secret"), "x").unwrap();
    folder
}

fn client(assets: &Assets) -> TestClient {
    TestClient::new(App::new().mount("/assets", assets.clone()))
}

#[test]
fn hashed_names_are_immutable_and_plain_names_revalidated() {
    let folder = folder();
    let assets = Assets::folder(folder.path()).reload(false).load().unwrap();
    let address = assets.url("app.css").unwrap().into_owned();
    // The hash in the name is the first four bytes of the SHA-256 of the file.
    assert_eq!(address, "/assets/app.62368a1a.css");
    let client = client(&assets);
    let mut reply = client.get(&address).send();
    reply
        .assert_ok()
        .assert_text("body {}")
        .assert_header("content-type", "text/css; charset=utf-8")
        .assert_header("cache-control", FOREVER);
    let tag = reply.header("etag").unwrap().to_owned();
    client
        .get(&address)
        .header("if-none-match", &tag)
        .send()
        .assert_status(304)
        .assert_header("cache-control", FOREVER);
    client
        .get("/assets/app.css")
        .send()
        .assert_ok()
        .assert_header("cache-control", "no-cache");
    client
        .get("/assets/app.css")
        .header("if-none-match", &tag)
        .send()
        .assert_status(304);
}

#[test]
fn every_file_has_a_url() {
    let folder = folder();
    let assets = Assets::folder(folder.path())
        .at("/static/")
        .reload(false)
        .load()
        .unwrap();
    let client = TestClient::new(App::new().mount("/static", assets.clone()));
    let mut names: Vec<_> = assets.manifest().collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3, "{names:?}");
    for (name, address) in names {
        assert_eq!(assets.url(name).as_deref(), Some(address));
        client
            .get(address)
            .send()
            .assert_ok()
            .assert_header("cache-control", FOREVER);
    }
    assert_eq!(assets.url("nothing.css"), None);
    assert_eq!(assets.url(".secret"), None);
    client.get("/static/nothing.css").send().assert_status(404);
    client.get("/static/.secret").send().assert_status(404);
}

#[test]
fn a_name_with_an_old_hash_is_not_cached() {
    let folder = folder();
    let assets = Assets::folder(folder.path()).reload(false).load().unwrap();
    let client = client(&assets);
    client
        .get("/assets/app.00000000.css")
        .send()
        .assert_ok()
        .assert_text("body {}")
        .assert_header("cache-control", "no-cache");
    client
        .get("/assets/other.00000000.css")
        .send()
        .assert_status(404);
}

#[test]
fn a_replaced_file_is_not_cached_under_its_old_hash() {
    let folder = folder();
    let path = folder.path().join("app.css");
    let before = SystemTime::now() - Duration::from_secs(100);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(before).unwrap();
    let assets = Assets::folder(folder.path()).reload(false).load().unwrap();
    let address = assets.url("app.css").unwrap().into_owned();
    fs::write(&path, "body { margin: 0 }").unwrap();
    client(&assets)
        .get(&address)
        .send()
        .assert_ok()
        .assert_text("body { margin: 0 }")
        .assert_header("cache-control", "no-cache");
}

#[test]
fn development_urls_are_plain() {
    let folder = folder();
    let assets = Assets::folder(folder.path()).reload(true).load().unwrap();
    assert_eq!(assets.url("app.css").as_deref(), Some("/assets/app.css"));
    assert_eq!(assets.url("a b.txt").as_deref(), Some("/assets/a%20b.txt"));
    assert_eq!(assets.url("../x"), None);
    assert_eq!(assets.url("new.css"), None);
    fs::write(folder.path().join("new.css"), "").unwrap();
    assert_eq!(assets.url("new.css").as_deref(), Some("/assets/new.css"));
    client(&assets)
        .get("/assets/new.css")
        .send()
        .assert_ok()
        .assert_header("cache-control", "no-cache");
}

#[test]
fn a_missing_folder_is_an_error_at_the_start() {
    assert!(Assets::folder("/nowhere/at/all").load().is_err());
}
