//! A folder: symbolic links, and the service of its files.

use std::time::Duration;

use apus_clock::TestClock;
use apus_handler::{Layered, Next};
use apus_http::Request;
use apus_layers::auth::{Key, SignedUrls};
use apus_storage::Storage;
use apus_testkit::{LocalClient, block_on, get};

use crate::harness::key;

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
    // As where an application mounts them.
    let mounted = async |mut request: Request, next: Next| {
        let target = request.target().path_and_query().to_owned();
        let rest = target.strip_prefix("/files").unwrap();
        request.set_path_and_query(rest).unwrap();
        next.run(request).await
    };
    let clock = TestClock::new();
    let _entered = clock.enter();
    let worker = LocalClient::of(&Layered::new(files).layer(urls).layer(mounted));
    let url = storage
        .signed_url(&script, Duration::from_secs(60))
        .unwrap();
    let page = worker.send(get(&url));
    assert_eq!(page.status, 200);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert!(page.text().contains("<script>"));
    let part = worker.send(get(&url).with("range", "bytes=1-6"));
    assert_eq!((part.status, part.text()), (206, "script"));
    let policy = part.field("content-security-policy").unwrap();
    assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"));
    assert_eq!(worker.send(get("/files/a%20b/page.html")).status, 403);
    clock.advance(Duration::from_secs(62));
    assert_eq!(worker.send(get(&url)).status, 403);
}
