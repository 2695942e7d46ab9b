//! Web cache deception.

use apus_cache::policy::{CacheRules, StoreRefusal};

use super::{TestRequest, TestResponse, try_store};

fn store(path: &str, content_type: &str, rules: &CacheRules) -> Result<(), StoreRefusal> {
    let lines = [
        ("cache-control", "max-age=60"),
        ("content-type", content_type),
    ];
    try_store(
        &TestRequest::target(path),
        &TestResponse::with(200, &lines),
        rules,
    )
    .map(|_| ())
}

#[test]
fn refuses_pages_at_the_path_of_a_file() {
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
            let refused = store(path, content_type, &CacheRules::default());
            // Archives have many media types.
            if !(path == "/a.zip" && content_type == "application/json") {
                assert_eq!(
                    refused,
                    Err(StoreRefusal::UnexpectedType),
                    "{path} {content_type}"
                );
            }
        }
    }
}

#[test]
fn stores_files_and_pages_at_matching_paths() {
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
            store(path, content_type, &CacheRules::default()),
            Ok(()),
            "{path}"
        );
    }
    // A page that says that the file is missing.
    let missing = TestResponse::with(
        404,
        &[
            ("cache-control", "max-age=60"),
            ("content-type", "text/html"),
        ],
    );
    assert!(
        try_store(
            &TestRequest::target("/x.css"),
            &missing,
            &CacheRules::default()
        )
        .is_ok()
    );
    let rules = CacheRules {
        refuse_disguised: false,
        ..CacheRules::default()
    };
    assert_eq!(store("/account/x.css", "text/html", &rules), Ok(()));
}
