//! Paths that must not be found, and those that must.

use super::*;

#[tokio::test]
async fn never_leaves_the_root_by_its_path() {
    let site = site(&[("a/x", "x"), ("%2e%2e/x", "literal")], |files| files);
    fs::write(site.folder.path().join("secret"), "secret").unwrap();
    for (path, status) in [
        ("/../secret", 400),
        ("/a/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/%2E%2E%2Fsecret", 400),
        ("/..%2fsecret", 400),
        ("/a%2fx", 400),
        ("/%252e%252e/secret", 404),
        ("/%252e%252e%252fsecret", 404),
        ("/..\\secret", 404),
        ("/..%5csecret", 404),
        ("/%c0%ae%c0%ae/secret", 404),
        ("/%c0%ae%c0%ae%c0%afsecret", 404),
        ("/a/x%00.html", 400),
        ("/a/x%0a", 400),
        ("/%", 400),
        ("/%zz", 400),
        ("/....//secret", 404),
    ] {
        assert_eq!(site.get(path).await.status, status, "{path}");
    }
    assert_eq!(site.get("//a///x").await.text(), "x");
    assert_eq!(site.get("/b/../a/./x").await.text(), "x");
    // A path that is encoded twice is decoded once, also if the response is in memory.
    assert_eq!(site.get("/%252e%252e/x").await.text(), "literal");
    assert_eq!(site.get("/%252e%252e/x").await.text(), "literal");
    assert_eq!(
        site.get(&format!("/{}", "a".repeat(5000))).await.status,
        404
    );
}

#[tokio::test]
async fn follows_symbolic_links_only_where_allowed() {
    for (symlinks, inside, absolute, outside) in [
        (Symlinks::Refuse, 404, 404, 404),
        (Symlinks::Inside, 200, 200, 404),
        (Symlinks::Follow, 200, 200, 200),
    ] {
        let site = site(&[("a/x", "x")], |files| files.symlinks(symlinks));
        fs::write(site.folder.path().join("secret"), "secret").unwrap();
        symlink("a", site.path("inside")).unwrap();
        symlink(site.path("a"), site.path("absolute")).unwrap();
        symlink("../secret", site.path("outside")).unwrap();
        symlink("/", site.path("slash")).unwrap();
        assert_eq!(site.get("/a/x").await.status, 200);
        assert_eq!(site.get("/inside/x").await.status, inside, "{symlinks:?}");
        assert_eq!(
            site.get("/absolute/x").await.status,
            absolute,
            "{symlinks:?}"
        );
        assert_eq!(site.get("/outside").await.status, outside, "{symlinks:?}");
        assert_eq!(
            site.get("/slash/etc/passwd").await.status,
            outside,
            "{symlinks:?}"
        );
    }
}

#[tokio::test]
async fn hides_hidden_files_and_source() {
    let files = [
        (".env", "s"),
        (".git/config", "s"),
        ("a/.htpasswd", "s"),
        (".well-known/acme", "public"),
        (".well-known/.hidden", "s"),
        ("a/.well-known/x", "s"),
        ("index.php", "<?php"),
        ("x.PHP", "<?php"),
        ("x.php~", "<?php"),
        ("x.phtml", "<?php"),
    ];
    let hiding = site(&files, |files| files);
    for (path, _) in files {
        let expected = if path == ".well-known/acme" { 200 } else { 404 };
        assert_eq!(
            hiding.get(&format!("/{path}")).await.status,
            expected,
            "{path}"
        );
    }
    let showing = site(&files, |files| {
        files.hidden_files(true).source_extensions([""; 0])
    });
    for (path, _) in files {
        assert_eq!(showing.get(&format!("/{path}")).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn does_not_block_on_special_files() {
    let site = site(&[], |files| files);
    let path = site.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    for path in ["/fifo", "/socket"] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn serves_and_lists_names_that_are_not_utf8() {
    let site = site(&[], |files| files.listing(true));
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(site.path("").join(name), "latin").unwrap();
    assert_eq!(site.get("/caf%e9.txt").await.text(), "latin");
    let page = site.get("/").await;
    assert!(
        page.text().contains("href=\"./caf%E9.txt\""),
        "{}",
        page.text()
    );
}
