//! Files that the process keeps private, wherever they are.

use apus_private_files::{PrivateFiles, register};

use super::*;

#[tokio::test]
async fn private_files_are_sent_by_no_name_and_are_in_no_listing() {
    for symlinks in [Symlinks::Inside, Symlinks::Follow] {
        let site = site(
            &[
                ("page.txt", "page"),
                ("keys/key.pem", "secret"),
                ("keys/key.pem.bak", "secret"),
                ("keys/public.pem", "public"),
                ("indexed/x", ""),
                ("certificates/account/key", "secret"),
                ("certificates.txt", "public"),
            ],
            |files| {
                files
                    .listing(true)
                    .hidden_files(true)
                    .symlinks(symlinks)
                    .index(["index.html", "key.pem"])
            },
        );
        let outside = site.folder.path().join("outside.key");
        fs::write(&outside, "secret").unwrap();
        symlink("keys/key.pem", site.path("link")).unwrap();
        symlink("../outside.key", site.path("outside")).unwrap();
        symlink("keys", site.path("folder")).unwrap();
        symlink("../keys/key.pem", site.path("indexed/index.html")).unwrap();
        symlink("keys/key.pem", site.path("page.txt.gz")).unwrap();
        fs::hard_link(site.path("keys/key.pem"), site.path("hard")).unwrap();
        let private = PrivateFiles::default()
            .file(site.path("keys/key.pem"))
            .file(&outside)
            .file(site.path("later.log"))
            .folder(site.path("certificates"));
        // What is in memory is not sent either, once it is compared with the file system.
        assert_eq!(site.get("/keys/key.pem").await.text(), "secret");
        register(private);
        pass(REVALIDATION);
        fs::write(site.path("later.log"), "secret").unwrap();
        for path in [
            "/keys/key.pem",
            "//keys/./key.pem",
            "/keys/key.pem.bak",
            "/link",
            "/outside",
            "/folder/key.pem",
            "/indexed/",
            "/hard",
            "/later.log",
            "/certificates",
            "/certificates/",
            "/certificates/account/",
            "/certificates/account/key",
        ] {
            for (method, lines) in [
                (Method::GET, &[][..]),
                (Method::HEAD, &[]),
                (Method::GET, &[("range", "bytes=0-2")]),
                (Method::GET, &[("accept-encoding", "gzip")]),
            ] {
                let got = site.send(method, path, lines).await;
                let is_listing = path == "/indexed/" && got.status == 200;
                assert!(got.status == 404 || is_listing, "{path}: {}", got.status);
                assert!(
                    !got.body.windows(6).any(|bytes| bytes == b"secret"),
                    "{path}"
                );
            }
        }
        for (path, text) in [
            ("/page.txt", "page"),
            ("/keys/public.pem", "public"),
            ("/certificates.txt", "public"),
        ] {
            let lines = [("accept-encoding", "gzip")];
            assert_eq!(site.get_with(path, &lines).await.text(), text, "{path}");
        }
        for (folder, names, hidden) in [
            (
                "/",
                &["page.txt", "keys"][..],
                &["hard", "later.log", "\"certificates\"", "link"][..],
            ),
            ("/keys/", &["public.pem"], &["key.pem\"", "key.pem.bak"]),
            ("/folder/", &["public.pem"], &["key.pem\"", "key.pem.bak"]),
        ] {
            let listing = site.get(&format!("{folder}?format=json")).await;
            for name in names {
                assert!(listing.text().contains(name), "{name} in {folder}");
            }
            for name in hidden {
                assert!(
                    !listing.text().contains(name),
                    "{name} in {}",
                    listing.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn a_private_file_that_is_replaced_stays_private() {
    let site = site(&[("live/x", ""), ("archive/key1.pem", "secret")], |files| {
        files
    });
    symlink("../archive/key1.pem", site.path("live/key.pem")).unwrap();
    register(PrivateFiles::default().file(site.path("live/key.pem")));
    assert_eq!(site.get("/live/key.pem").await.status, 404);
    // As certbot renews a certificate.
    site.write("archive/key2.pem", "secret");
    fs::remove_file(site.path("live/key.pem")).unwrap();
    symlink("../archive/key2.pem", site.path("live/key.pem")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/live/key.pem").await.status, 404);
    assert_eq!(site.get("/archive/key1.pem").await.status, 404);
}
