//! Files and folders that the server may not read.

use std::os::unix::fs::PermissionsExt;

use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use super::*;

const ROOT: Uid = Uid::ROOT;

/// This thread without the right of root to read everything, until it is dropped.
struct Unprivileged(bool);

impl Unprivileged {
    fn enter() -> Self {
        let is_root = geteuid().is_root();
        if is_root {
            let other = Uid::from_raw(65534);
            set_thread_res_uid(ROOT, other, ROOT).unwrap();
        }
        Self(is_root)
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        if self.0 {
            set_thread_res_uid(ROOT, ROOT, ROOT).unwrap();
        }
    }
}

fn set_mode(path: impl AsRef<std::path::Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_file_that_the_server_may_not_read_is_forbidden() {
    let long = "x".repeat(600 * 1024);
    let list = || TryFiles::parse(["$uri", "/open.txt"]).unwrap();
    for try_files in [false, true] {
        let site = site(
            &[
                ("open.txt", "open"),
                ("closed.txt", "closed"),
                ("long.txt", &long),
                ("sibling.txt", "plain"),
                ("sibling.txt.gz", "gz"),
                ("no-search/a.txt", "a"),
                ("search-only/a.txt", "a"),
                ("indexed/index.html", "index"),
                ("closed-index/index.html", "index"),
                ("was-open.txt", "open"),
            ],
            |files| {
                if try_files {
                    files.listing(true).try_files(list())
                } else {
                    files.listing(true)
                }
            },
        );
        set_mode(site.folder.path(), 0o755);
        assert_eq!(site.get("/was-open.txt").await.status, 200);
        for file in [
            "closed.txt",
            "long.txt",
            "sibling.txt.gz",
            "closed-index/index.html",
            "was-open.txt",
        ] {
            set_mode(site.path(file), 0o000);
        }
        set_mode(site.path("no-search"), 0o644);
        set_mode(site.path("search-only"), 0o711);
        set_mode(site.path("indexed"), 0o711);
        pass(REVALIDATION);
        let unprivileged = Unprivileged::enter();
        for (path, status) in [
            ("/open.txt", 200),
            ("/closed.txt", 403),
            ("/long.txt", 403),
            ("/was-open.txt", 403),
            ("/no-search/a.txt", 403),
            ("/search-only/a.txt", 200),
        ] {
            for (method, lines) in [
                (Method::GET, &[][..]),
                (Method::HEAD, &[]),
                (Method::GET, &[("range", "bytes=0-1")]),
                (Method::GET, &[("if-none-match", "\"x\"")]),
                (Method::GET, &[("accept-encoding", "gzip, br")]),
            ] {
                let got = site.send(method, path, lines).await.status;
                let expected = match (status, lines) {
                    (200, [("range", _)]) => 206,
                    _ => status,
                };
                assert_eq!(got, expected, "{path} {lines:?}");
            }
        }
        let lines = [("accept-encoding", "gzip")];
        let got = site.get_with("/sibling.txt", &lines).await;
        assert_eq!((got.status, got.text()), (200, "plain"));
        if !try_files {
            for (path, status) in [
                ("/no-search/", 403),
                ("/search-only/", 403),
                ("/indexed/", 200),
                ("/closed-index/", 403),
                ("/search-only", 301),
            ] {
                assert_eq!(site.get(path).await.status, status, "{path}");
            }
        }
        drop(unprivileged);
        assert_eq!(site.get("/open.txt").await.status, 200);
    }
}

#[tokio::test]
async fn a_root_that_the_server_may_not_enter_is_forbidden() {
    let site = site(&[("a.txt", "a")], |files| files);
    set_mode(site.folder.path(), 0o600);
    let unprivileged = Unprivileged::enter();
    assert_eq!(site.get("/a.txt").await.status, 403);
    drop(unprivileged);
    set_mode(site.folder.path(), 0o700);
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.status, 200);
}

#[tokio::test]
async fn names_that_no_file_can_have_are_missing() {
    let site = site(&[("a.txt", "a")], |files| files);
    symlink("loop", site.path("loop")).unwrap();
    let long = format!("/{}", "n".repeat(256));
    for path in ["/loop", "/loop/x", "/a.txt/x", "/a.txt/", &long] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
}
