//! Listings of folders.

use super::*;

#[tokio::test]
async fn lists_folders_as_html() {
    let site = site(
        &[
            ("docs/b.txt", "123"),
            ("docs/a&<i>.txt", "1"),
            ("docs/\"onclick='x'.txt", ""),
            ("docs/javascript:x", ""),
            ("docs/sub/x", ""),
            ("docs/.hidden", ""),
            ("docs/secret.php", ""),
        ],
        |files| files.listing(true),
    );
    symlink("../../outside", site.path("docs/outside")).unwrap();
    fs::write(site.folder.path().join("outside"), "").unwrap();
    let got = site.get("/docs/").await;
    assert_eq!(got.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(got.header("vary"), Some("accept, accept-language"));
    let page = got.text();
    for part in [
        "<title>/docs/</title>",
        "href=\"./b.txt\"",
        "a&amp;&lt;i&gt;.txt",
        "&quot;onclick=&#39;x&#39;.txt",
        "href=\"./javascript:x\"",
        "href=\"./sub/\"",
        "href=\"../\"",
        "prefers-color-scheme: dark",
        "1 folder · 4 files",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for part in ["<i>", "hidden\"", "secret.php", "outside"] {
        assert!(!page.contains(part), "{part} in {page}");
    }
    let position = |page: &str, name: &str| page.find(name).unwrap();
    assert!(position(page, "./sub/") < position(page, "./b.txt"));
    let sorted = site.get("/docs/?sort=size&order=desc").await;
    assert!(position(sorted.text(), "./b.txt") < position(sorted.text(), "./a&amp;"));
    assert_eq!(site.get("/docs").await.status, 301);
}

#[tokio::test]
async fn a_listing_is_in_the_language_of_the_client() {
    let site = site(&[("a/b", "1"), ("c/d", "")], |files| files.listing(true));
    let chinese = [("accept-language", "zh-CN, en;q=0.5")];
    let got = site.get_with("/a/", &chinese).await;
    assert_eq!(got.header("vary"), Some("accept, accept-language"));
    for part in [
        "<html lang=\"zh-Hans\">",
        "0 个文件夹 · 1 个文件 · 1 B",
        "上级文件夹",
        "修改时间",
    ] {
        assert!(got.text().contains(part), "{part} in {}", got.text());
    }
    let english = site.get_with("/a/", &[("accept-language", "de")]).await;
    assert!(english.text().contains("<html lang=\"en\">"));
    let program = [("accept", "application/json"), chinese[0]];
    let json = site.get_with("/a/", &program).await;
    assert_eq!(json.header("vary"), Some("accept"));
}

#[tokio::test]
async fn lists_folders_as_json() {
    let site = site(&[("a b.txt", "123"), ("sub/x", "")], |files| {
        files.listing(true)
    });
    let expected = [
        "\"name\":\"a b.txt\"",
        "\"href\":\"./a%20b.txt\"",
        "\"size\":3",
        "\"directory\"",
    ];
    for (target, accept) in [("/", "application/json"), ("/?format=json", "text/html")] {
        let got = site.get_with(target, &[("accept", accept)]).await;
        assert_eq!(got.header("content-type"), Some("application/json"));
        for part in expected {
            assert!(got.text().contains(part), "{part} in {}", got.text());
        }
    }
}

#[tokio::test]
async fn uses_configured_media_types_and_charset() {
    let site = site(&[("a.foo", ""), ("b.txt", ""), ("c", "")], |files| {
        files
            .charset(None)
            .media_types([("foo", "application/x-foo")])
    });
    for (path, media_type) in [
        ("/a.foo", "application/x-foo"),
        ("/b.txt", "text/plain"),
        ("/c", "application/octet-stream"),
    ] {
        assert_eq!(
            site.get(path).await.header("content-type"),
            Some(media_type)
        );
    }
}

#[tokio::test]
async fn a_listing_has_numbers_in_their_order_and_the_zone_of_its_times() {
    let site = site(&[("file10", ""), ("file2", ""), ("File1", "")], |files| {
        files.listing(true)
    });
    let page = site.get("/").await;
    let at = |name: &str| page.text().find(&format!("./{name}\"")).unwrap();
    assert!(at("File1") < at("file2") && at("file2") < at("file10"));
    assert!(page.text().contains("Modified (UTC)"));
    // A phone shows the times, too.
    assert!(!page.text().contains(".modified { display: none"));
    let json = site.get("/?format=json").await;
    let at = |name: &str| json.text().find(name).unwrap();
    assert!(at("File1") < at("file2") && at("file2") < at("file10"));
}
