//! Storage in a folder, and in an object store (s3rver).

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use apus::storage::{ObjectInfo, S3Settings, Storage, StorageError, StorageKey};
use apus::testing::{TestClient, TestServer};
use apus::{
    App, Body, BodyError, Frame, HttpError, OrNotFound, Path as PathOf, Readiness, State,
    StatusCode,
};
use apus_testkit::{ReadyProcess, block_on, body_bytes, free_port, process_folder, ready_frames};
use bytes::{Bytes, BytesMut};

/// An object store.
struct ObjectStore {
    endpoint: String,
    /// Until the end of the tests.
    _process: ReadyProcess,
}

/// The object store of all tests.
fn object_store() -> &'static ObjectStore {
    static STORE: OnceLock<ObjectStore> = OnceLock::new();
    STORE.get_or_init(|| {
        let port = free_port();
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/s3rver");
        // It ends with these tests, since it reads their end of a pipe.
        let script = "process.stdin.on('end', () => { require('fs').rmSync(process.argv[3], {recursive: true}); process.exit() });
            process.stdin.resume();
            const S3rver = require('s3rver');
            new S3rver({port: +process.argv[2], address: '127.0.0.1', silent: true, directory: process.argv[3],
                configureBuckets: [{name: 'files'}, {name: 'contract'}]}).run().then(() => console.log('ready'))";
        let mut command = Command::new("node");
        command.args(["-e", script, "--", "-", &port.to_string()]);
        command.arg(process_folder()).current_dir(&tools);
        ObjectStore {
            endpoint: format!("http://127.0.0.1:{port}"),
            _process: ReadyProcess::start(&mut command),
        }
    })
}

fn settings(bucket: &str) -> S3Settings {
    S3Settings::new(&object_store().endpoint, bucket).keys("S3RVER", "S3RVER")
}

fn of_each(bucket: &str) -> [(Storage, Option<tempfile::TempDir>); 2] {
    let folder = tempfile::tempdir().unwrap();
    [
        (
            Storage::folder(folder.path().join("a")).unwrap(),
            Some(folder),
        ),
        (Storage::s3(settings(bucket)).unwrap(), None),
    ]
}

fn key(text: &str) -> StorageKey {
    text.parse().unwrap()
}

/// A body that is not in memory at once.
fn streamed(bytes: &[u8]) -> Body {
    let frames = bytes.chunks(100_000);
    let frames = frames.map(|chunk| Ok(Frame::Data(Bytes::copy_from_slice(chunk))));
    ready_frames(None, frames.collect())
}

async fn content(storage: &Storage, key: &StorageKey) -> Option<Bytes> {
    let mut object = storage.get(key).await.unwrap()?;
    let mut whole = BytesMut::new();
    while let Some(frame) = object.body.frame().await {
        match frame.unwrap() {
            Frame::Data(bytes) => whole.extend_from_slice(&bytes),
            Frame::File(range) => {
                let mut bytes = vec![0; usize::try_from(range.len).unwrap()];
                std::os::unix::fs::FileExt::read_exact_at(&*range.file, &mut bytes, range.offset)
                    .unwrap();
                whole.extend_from_slice(&bytes);
            }
            Frame::Trailers(_) => {}
        }
    }
    assert_eq!(object.info.bytes, whole.len() as u64);
    Some(whole.freeze())
}

#[test]
fn objects_are_stored_read_listed_and_removed() {
    for (storage, _folder) in of_each("contract") {
        block_on(async {
            let name = key("notes/ä +&=?#%.txt");
            assert_eq!(content(&storage, &name).await, None);
            assert_eq!(storage.info(&name).await.unwrap(), None);
            storage.delete(&name).await.unwrap();

            let before = SystemTime::now() - Duration::from_secs(2);
            let stored = storage.put(&name, "a note").await.unwrap();
            assert_eq!((&stored.key, stored.bytes), (&name, 6));
            assert_eq!(content(&storage, &name).await.unwrap(), "a note");
            let info = storage.info(&name).await.unwrap().unwrap();
            assert_eq!((info.bytes, &info.tag), (6, &stored.tag));
            assert!(info.modified >= before, "{info:?}");

            let again = storage.put(&name, streamed(b"another note")).await.unwrap();
            assert_ne!(again.tag, stored.tag);
            assert_eq!(content(&storage, &name).await.unwrap(), "another note");
            storage.put(&key("empty"), Body::Empty).await.unwrap();
            assert_eq!(content(&storage, &key("empty")).await.unwrap(), "");

            for name in ["b", "b/1", "b/2", "b2", "c/d/e.txt"] {
                // A folder has no file and folder of the same name.
                if name != "b" {
                    storage.put(&key(name), "x").await.unwrap();
                }
            }
            let names = |list: Vec<ObjectInfo>| {
                let names = list.into_iter().map(|object| object.key.to_string());
                names.collect::<Vec<_>>()
            };
            assert_eq!(
                names(storage.list("", None).await.unwrap()),
                ["b/1", "b/2", "b2", "c/d/e.txt", "empty", name.as_str()]
            );
            assert_eq!(
                names(storage.list("b/", None).await.unwrap()),
                ["b/1", "b/2"]
            );
            let after = key("b/1");
            assert_eq!(
                names(storage.list("b", Some(&after)).await.unwrap()),
                ["b/2", "b2"]
            );
            assert!(storage.list("none/", None).await.unwrap().is_empty());

            storage.delete(&key("b/1")).await.unwrap();
            assert_eq!(content(&storage, &key("b/1")).await, None);
            assert!(content(&storage, &name).await.is_some());
            storage.ping().await.unwrap();
        });
    }
}

#[test]
fn a_large_object_is_streamed_in_parts() {
    let large = body_bytes(20 * 1024 * 1024 + 7);
    for (storage, _folder) in of_each("files") {
        block_on(async {
            let name = key("large.bin");
            let stored = storage.put(&name, streamed(&large)).await.unwrap();
            assert_eq!(stored.bytes, large.len() as u64);
            let read = content(&storage, &name).await.unwrap();
            assert!(read == large, "another content");
            // Exactly one part.
            let part = &large[..8 * 1024 * 1024];
            storage.put(&name, streamed(part)).await.unwrap();
            assert!(content(&storage, &name).await.unwrap() == part);
        });
    }
}

#[test]
fn an_object_that_breaks_off_or_is_too_large_is_not_stored() {
    let nine = 9 * 1024 * 1024;
    for (storage, folder) in of_each("files") {
        let storage = storage.max_bytes(10 * 1024 * 1024);
        block_on(async {
            let name = key("broken.bin");
            storage.put(&name, "old").await.unwrap();
            // One that is sent in parts, and one that is not.
            for length in [nine, 10] {
                let frames = vec![
                    Ok(Frame::Data(vec![1_u8; length].into())),
                    Err(BodyError::Disconnected),
                ];
                let error = storage.put(&name, ready_frames(None, frames)).await;
                let error = error.unwrap_err();
                assert!(matches!(error, StorageError::Body(_)), "{error:?}");
            }
            let error = storage.put(&name, streamed(&vec![1_u8; nine * 2])).await;
            let error = error.unwrap_err();
            assert_eq!(error.status(), 413, "{error:?}");
            let error = storage.put(&name, vec![1_u8; nine * 2]).await.unwrap_err();
            assert_eq!(error.status(), 413, "{error:?}");
            assert_eq!(content(&storage, &name).await.unwrap(), "old");
        });
        if let Some(folder) = folder {
            let left = std::fs::read_dir(folder.path().join("a/.incoming")).unwrap();
            assert_eq!(left.count(), 0);
        }
    }
}

#[test]
fn a_signed_url_of_an_object_store_is_for_everyone_for_a_time() {
    let storage = Storage::s3(settings("files")).unwrap();
    let name = key("a b/ü.txt");
    block_on(storage.put(&name, "content")).unwrap();
    let url = storage.signed_url(&name, Duration::from_secs(60)).unwrap();
    let get = |url: &str| {
        let output = Command::new("curl")
            .args(["--silent", url])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(get(&url), "content");
    let week = Duration::from_secs(7 * 24 * 3600);
    assert!(storage.signed_url(&name, week).is_ok());
    assert!(
        storage
            .signed_url(&name, week + Duration::from_secs(1))
            .is_err()
    );
}

#[test]
fn a_bucket_that_is_missing_and_a_store_that_is_down_are_errors() {
    let none = Storage::s3(settings("none")).unwrap();
    let error = block_on(none.get(&key("a"))).unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");

    let url = format!("http://127.0.0.1:{}", free_port());
    let down = Storage::s3(S3Settings::new(url, "files")).unwrap();
    async fn get(
        State(files): State<Storage>,
        PathOf(name): PathOf<String>,
    ) -> apus::Result<String> {
        let info = files.info(&name.parse()?).await?.or_404()?;
        Ok(info.bytes.to_string())
    }
    let ready = down.clone();
    let app = App::new().state(down).get("/files/{*name}", get).get(
        "/ready",
        Readiness::new().check("files", async move || ready.ping().await),
    );
    let client = TestClient::new(app);
    client.get("/files/a").send().assert_status(503);
    client.get("/files/.a").send().assert_status(400);
    client.get("/ready").send().assert_status(503);

    for endpoint in [
        "files.example.com",
        "ftp://example.com",
        "http://",
        "http://a/b",
        "http://a:b",
    ] {
        assert!(
            Storage::s3(S3Settings::new(endpoint, "files")).is_err(),
            "{endpoint}"
        );
    }
    for bucket in ["", "a/b", "..", "a b"] {
        assert!(
            Storage::s3(S3Settings::new("http://a", bucket)).is_err(),
            "{bucket}"
        );
    }
}

#[test]
fn a_request_to_a_busy_object_store_is_sent_again() {
    async fn object(State(requests): State<Arc<AtomicU32>>) -> (StatusCode, &'static str) {
        match requests.fetch_add(1, Ordering::SeqCst) {
            0 => (
                StatusCode::SERVICE_UNAVAILABLE,
                "<Error><Code>SlowDown</Code></Error>",
            ),
            1 => (StatusCode::TOO_MANY_REQUESTS, ""),
            _ => (StatusCode::OK, "content"),
        }
    }
    let requests = Arc::new(AtomicU32::new(0));
    let app = App::new()
        .state(requests.clone())
        .get("/files/{*name}", object);
    let server = TestServer::start(app);
    let storage = Storage::s3(S3Settings::new(server.url(""), "files")).unwrap();
    let info = block_on(storage.info(&key("a.txt"))).unwrap().unwrap();
    assert_eq!((info.bytes, requests.load(Ordering::SeqCst)), (7, 3));
}

#[test]
fn a_folder_follows_no_symbolic_links() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "secret").unwrap();
    let root = folder.path().join("root");
    let storage = Storage::folder(&root).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret.txt"), root.join("file.txt")).unwrap();
    block_on(async {
        for name in ["link/secret.txt", "file.txt"] {
            assert!(storage.get(&key(name)).await.unwrap().is_none(), "{name}");
        }
        assert!(storage.put(&key("link/new.txt"), "x").await.is_err());
        assert!(storage.list("", None).await.unwrap().is_empty());
        storage.delete(&key("link/secret.txt")).await.unwrap();
        // The link is replaced, and not what it points to.
        storage.put(&key("file.txt"), "new").await.unwrap();
    });
    let secret = std::fs::read_to_string(outside.join("secret.txt")).unwrap();
    assert_eq!(secret, "secret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_folder_is_served_with_ranges_and_without_rights() {
    use apus::auth::SignedUrls;
    use apus::session::Key;

    let folder = tempfile::tempdir().unwrap();
    let urls = SignedUrls::new(&Key::random().unwrap());
    let storage = Storage::folder(folder.path()).unwrap();
    assert!(
        storage
            .signed_url(&key("a"), Duration::from_secs(9))
            .is_err()
    );
    let storage = storage.served_at("/files/", &urls);
    let script = key("a b/page.html");
    block_on(storage.put(&script, "<script>alert(1)</script>")).unwrap();
    let files = storage.files().unwrap();
    let app = App::new().group("/files", |group| group.layer(urls).mount("/", files));
    let server = TestServer::start(app);
    let client = server.client();
    let url = storage
        .signed_url(&script, Duration::from_secs(60))
        .unwrap();
    client
        .get(&url)
        .send()
        .assert_ok()
        .assert_header("content-type", "text/html; charset=utf-8")
        .assert_header("x-content-type-options", "nosniff")
        .assert_contains("<script>");
    let mut response = client.get(&url).header("range", "bytes=1-6").send();
    response.assert_status(206).assert_text("script");
    let policy = response.header("content-security-policy").unwrap();
    assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"));
    client
        .get("/files/a%20b/page.html")
        .send()
        .assert_status(403);
    client.clock().advance(Duration::from_secs(62));
    client.get(&url).send().assert_status(403);
}
