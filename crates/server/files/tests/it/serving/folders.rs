//! Folders, indexes and `try_files`.

use super::*;

#[tokio::test]
async fn serves_indexes_and_redirects_to_the_slash() {
    let site = site(
        &[
            ("index.html", "top"),
            ("a b/home.htm", "home"),
            ("c/x", ""),
            (":/home.htm", ""),
        ],
        |files| files.index(["index.html", "home.htm"]),
    );
    assert_eq!(site.get("/").await.text(), "top");
    let got = site.get("/a%20b?q=1&r").await;
    assert_eq!(
        (got.status, got.header("location")),
        (301, Some("/a%20b/?q=1&r"))
    );
    assert_eq!(site.get("/a%20b/").await.text(), "home");
    assert_eq!(site.get("/:").await.header("location"), Some("/:/"));
    assert_eq!(site.get("/c/").await.status, 403);
    assert_eq!(site.get("/index.html/").await.status, 404);
    assert_eq!(site.get("/index.html/x.php").await.status, 404);
}

#[tokio::test]
async fn never_redirects_to_another_host() {
    let site = site(&[("evil.com/x", ""), ("a/evil.com/x", "")], |files| files);
    for target in [
        "//evil.com",
        "/%2e/evil.com",
        "///evil.com",
        "/./evil.com",
        "/a/..//evil.com",
    ] {
        let got = site.get(target).await;
        assert_eq!(
            (got.status, got.header("location")),
            (301, Some("/evil.com/")),
            "{target}"
        );
    }
}

#[tokio::test]
async fn tries_files_in_turn() {
    let list = TryFiles::parse(["$uri", "$uri.html", "$uri/", "/fallback.html"]).unwrap();
    let site = site(
        &[
            ("a", "a"),
            ("b.html", "b"),
            ("c/index.html", "c"),
            ("d/x", ""),
            ("fallback.html", "f"),
        ],
        |files| files.try_files(list),
    );
    for (path, body) in [
        ("/a", "a"),
        ("/b", "b"),
        ("/c/", "c"),
        ("/d/", "f"),
        ("/nothing", "f"),
        ("/nothing/at/all", "f"),
        ("/a/", "f"),
    ] {
        let got = site.get(path).await;
        assert_eq!((got.status, got.text()), (200, body), "{path}");
    }
    assert_eq!(site.get("/c").await.header("location"), Some("/c/"));
}

#[tokio::test]
async fn ends_try_files_with_a_status_or_another_service() {
    let only_files = TryFiles::parse(["$uri", "=410"]).unwrap();
    let gone = site(&[("a", "a")], |files| files.try_files(only_files));
    assert_eq!(gone.get("/a").await.status, 200);
    assert_eq!(gone.get("/b").await.status, 410);

    let to_program = TryFiles::parse(["$uri", "$uri/", "/index.php?$args"]).unwrap();
    let echo = || {
        service_fn(|request: Request| {
            let text = format!("{} {}", request.method(), request.target().path_and_query());
            Response::text(apus_http::StatusCode::OK, text).into()
        })
    };
    let site = site(&[("a", "a"), ("index.php", "<?php secret")], |files| {
        files.try_files(to_program).fallback(Arc::new(echo))
    });
    assert_eq!(site.get("/a").await.text(), "a");
    assert_eq!(site.get("/b?c=d").await.text(), "GET /index.php?c=d");
    assert_eq!(site.get("/index.php").await.text(), "GET /index.php?");
    let post = site.send(Method::POST, "/b", &[]).await;
    assert_eq!(post.text(), "POST /index.php?");
    assert_eq!(site.send(Method::POST, "/a", &[]).await.status, 405);
}

#[tokio::test]
async fn the_page_of_an_application_is_for_every_path_without_a_file_and_for_no_missing_script() {
    let site = site(&[("index.html", "app"), ("app.js", "js")], |files| {
        files.spa("/index.html")
    });
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for lines in [
        &[("accept", BROWSER)][..],
        &[("accept", "*/*"), ("sec-fetch-dest", "document")],
        &[("sec-fetch-dest", "iframe")],
        &[("accept", BROWSER), ("sec-fetch-dest", "empty")],
        &[("accept", "TEXT/HTML;q=0.1, image/png")],
    ] {
        for path in [
            "/",
            "/users/7",
            "/users/jane.doe",
            "/old.html",
            "/users/",
            "/v1.2/notes.md",
            "/posts/app.js",
            "/shop.com",
            "/assets/gone.css",
            "/logo.png",
        ] {
            for method in [Method::GET, Method::HEAD] {
                let got = site.send(method, path, lines).await;
                assert_eq!(
                    (got.status, got.header("content-length")),
                    (200, Some("3")),
                    "{path} {lines:?}"
                );
            }
        }
        assert_eq!(site.get_with("/app.js", lines).await.text(), "js");
    }
    for lines in [
        &[("accept", "*/*"), ("sec-fetch-dest", "script")][..],
        &[("accept", BROWSER), ("sec-fetch-dest", "image")],
        &[("accept", "text/css,*/*;q=0.1")],
        &[("accept", "application/json, text/plain, */*")],
        &[
            ("accept", "image/avif,image/webp,*/*;q=0.8"),
            ("sec-fetch-dest", "empty"),
        ],
        &[("accept", "text/html;q=0, */*")],
    ] {
        for path in ["/users/7", "/missing.js", "/missing", "/old.html"] {
            let got = site.get_with(path, lines).await;
            assert_eq!(got.status, 404, "{path} {lines:?}");
            // A cache in front must not send it for a page.
            assert_eq!(got.header("vary"), Some("accept, sec-fetch-dest"));
        }
        assert_eq!(site.get_with("/app.js", lines).await.status, 200);
    }
    // Clients that say nothing of it: the name decides.
    for lines in [
        &[][..],
        &[("accept", "*/*")],
        &[("accept", "*/*"), ("sec-fetch-dest", "empty")],
    ] {
        for path in ["/", "/users/7", "/users/jane.doe", "/old.html", "/users/"] {
            let got = site.get_with(path, lines).await;
            assert_eq!((got.status, got.text()), (200, "app"), "{path}");
        }
        for path in ["/missing.js", "/logo.png", "/data.ndjson", "/app.js.map"] {
            assert_eq!(site.get_with(path, lines).await.status, 404, "{path}");
        }
    }
    let got = site.get("/users/7").await;
    assert_eq!(
        got.headers.get_all("vary").collect::<Vec<_>>(),
        [b"accept, sec-fetch-dest"]
    );
    assert_eq!(site.get("/index.html").await.header("vary"), None);
    let etag = got.etag();
    let got = site.get_with("/users/8", &[("if-none-match", &etag)]).await;
    assert_eq!(
        (got.status, got.header("vary")),
        (304, Some("accept, sec-fetch-dest"))
    );
    site.write("index.html", "changed");
    pass(REVALIDATION);
    assert_eq!(site.get("/users/8").await.text(), "changed");
}

#[tokio::test]
async fn a_path_cannot_add_parameters_to_the_last_path_of_try_files() {
    let echo = || {
        service_fn(|request: Request| {
            let text = request.target().path_and_query().to_owned();
            Response::text(apus_http::StatusCode::OK, text).into()
        })
    };
    for (last, target, expected) in [
        (
            "/i.php?q=$uri&$args",
            "/a%26admin=1?x=2",
            "/i.php?q=/a%26admin%3D1&x=2",
        ),
        (
            "/i.php?q=$uri",
            "/a;b=c+d%3Fe%23f",
            "/i.php?q=/a%3Bb%3Dc%2Bd%3Fe%23f",
        ),
        ("/i.php$is_args$args", "/a?x=$uri", "/i.php?x=$uri"),
        ("/i.php?q=$uri", "/$args?x=1", "/i.php?q=/$args"),
        ("/x$uri", "/a%3Fb=c&d", "/x/a%3Fb=c&d"),
        ("/i.php", "/a?x=1", "/i.php"),
    ] {
        let list = TryFiles::parse(["/none", last]).unwrap();
        let site = site(&[], |files| files.try_files(list).fallback(Arc::new(echo)));
        assert_eq!(site.get(target).await.text(), expected, "{last}");
    }
}

#[tokio::test]
async fn strips_a_prefix_of_whole_segments_only() {
    let site = site(&[("a.txt", "a"), ("index.html", "i")], |files| {
        files.strip_prefix("/img")
    });
    fs::write(site.folder.path().join("secret"), "s").unwrap();
    assert_eq!(site.get("/img/a.txt").await.text(), "a");
    assert_eq!(site.get("/img/").await.text(), "i");
    assert_eq!(site.get("/img").await.header("location"), Some("/img/"));
    for path in [
        "/a.txt",
        "/imga.txt",
        "/img../secret",
        "/img..%5csecret",
        "/IMG/a.txt",
    ] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
}
