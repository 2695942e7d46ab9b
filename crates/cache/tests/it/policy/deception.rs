//! ATTACKS.md, Cache: web cache deception.

use apus_cache::policy::{Refusal, Rules};

use super::{Ask, Reply, try_store};

fn store(path: &str, content_type: &str, rules: &Rules) -> Result<(), Refusal> {
    let lines = [
        ("cache-control", "max-age=60"),
        ("content-type", content_type),
    ];
    try_store(&Ask::target(path), &Reply::with(200, &lines), rules).map(|_| ())
}

#[test]
fn refuses_pages_under_the_address_of_a_file() {
    for path in [
        "/account/x.css",
        "/account/x.CSS",
        "/account;x.js",
        "/account%2fx.png",
        "/account%00.jpg",
        "/a.woff2",
        "/a.mp4",
        "/a.mp3",
        "/a.pdf",
        "/a.zip",
        "/a.txt",
        "/a.wasm",
    ] {
        for content_type in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "application/json",
            "",
        ] {
            let refused = store(path, content_type, &Rules::default());
            // Archives have types of all kinds.
            if !(path == "/a.zip" && content_type == "application/json") {
                assert_eq!(refused, Err(Refusal::Disguised), "{path} {content_type}");
            }
        }
    }
}

#[test]
fn stores_files_and_pages_under_their_own_addresses() {
    for (path, content_type) in [
        ("/x.css", "text/css; charset=utf-8"),
        ("/x.js", "text/javascript"),
        ("/x.mjs", "Application/JavaScript"),
        ("/x.png", "image/webp"),
        ("/x.woff2", "font/woff2"),
        ("/x.zip", "application/zip"),
        ("/x.png", "application/octet-stream"),
        ("/account", "text/html"),
        ("/index.html", "text/html"),
        ("/v1.2/account", "text/html"),
        ("/page.php", "text/html"),
        ("/", "text/html"),
    ] {
        assert_eq!(
            store(path, content_type, &Rules::default()),
            Ok(()),
            "{path}"
        );
    }
    // A page that tells that the file is missing.
    let missing = Reply::with(
        404,
        &[
            ("cache-control", "max-age=60"),
            ("content-type", "text/html"),
        ],
    );
    assert!(try_store(&Ask::target("/x.css"), &missing, &Rules::default()).is_ok());
    let rules = Rules {
        refuse_disguised: false,
        ..Rules::default()
    };
    assert_eq!(store("/account/x.css", "text/html", &rules), Ok(()));
}
