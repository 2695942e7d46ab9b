//! Static files: answers, revalidation, negotiation, ranges, paths and listings.

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use apus::files::{Compression, Files, FilesService, Glob, Symlinks, TryFiles};
use apus::{
    Answer, Body, ConnectionInfo, Frame, HeaderValue, Headers, Method, Peer, Request, Response,
    Service, Target, Version, service_fn,
};
use apus_http::RequestParts;
use tempfile::TempDir;

thread_local! {
    static LATER: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A clock that a test moves on.
fn clock() -> Instant {
    thread_local! {
        static START: Instant = Instant::now();
    }
    START.with(|start| *start + LATER.get())
}

fn pass(time: Duration) {
    LATER.set(LATER.get() + time);
}

const REVALIDATION: Duration = Duration::from_millis(1100);

struct Site {
    folder: TempDir,
    service: FilesService,
}

/// A site from `(path, content)`, as of an hour ago.
fn site(files: &[(&str, &str)], change: impl FnOnce(Files) -> Files) -> Site {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let root = folder.path().join("root");
    let site = Site {
        service: change(Files::new(root).clock(clock)).build(),
        folder,
    };
    for (path, content) in files {
        site.write(path, content);
    }
    site
}

fn hour_ago() -> SystemTime {
    SystemTime::now() - Duration::from_secs(3600)
}

impl Site {
    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.set_modified(&path, hour_ago());
    }

    fn set_modified(&self, path: &PathBuf, time: SystemTime) {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }

    async fn send(&self, method: Method, target: &str, lines: &[(&str, &str)]) -> Got {
        Got::from(self.service.call(request(method, target, lines))).await
    }

    async fn get(&self, target: &str) -> Got {
        self.send(Method::GET, target, &[]).await
    }

    async fn get_with(&self, target: &str, lines: &[(&str, &str)]) -> Got {
        self.send(Method::GET, target, lines).await
    }

    /// Asks until a background thread has made what is wanted.
    async fn get_coded(&self, target: &str, coding: &str) -> Got {
        loop {
            let got = self.get_with(target, &[("accept-encoding", coding)]).await;
            if got.header("content-encoding").is_some() {
                return got;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn request(method: Method, target: &str, lines: &[(&str, &str)]) -> Request {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.try_append(name, value).unwrap();
    }
    let peer = Peer::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));
    Request::new(RequestParts {
        target: Target::parse(&method, target).unwrap(),
        method,
        version: Version::HTTP_11,
        headers,
        body: Body::Empty,
        connection: Rc::new(ConnectionInfo {
            id: 1,
            peer,
            local: peer,
            tls: None,
        }),
        extensions: Default::default(),
    })
}

struct Got {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
    was_now: bool,
}

impl Got {
    async fn from(answer: Answer) -> Self {
        let was_now = matches!(answer, Answer::Now(_));
        let mut response: Response = answer.wait().await;
        let mut content = response.take_body();
        let announced = content.len();
        let mut body = Vec::new();
        while let Some(frame) = content.frame().await {
            match frame.unwrap() {
                Frame::Data(bytes) => body.extend_from_slice(&bytes),
                Frame::File(range) => {
                    use std::os::unix::fs::FileExt;
                    let mut part = vec![0; usize::try_from(range.len).unwrap()];
                    range.file.read_exact_at(&mut part, range.offset).unwrap();
                    body.extend_from_slice(&part);
                }
                Frame::Trailers(_) => panic!("trailers"),
            }
        }
        assert_eq!(announced, Some(body.len() as u64));
        if let Some(len) = response.headers().get_str("content-length") {
            assert_eq!(len, body.len().to_string());
        }
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body,
            was_now,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn etag(&self) -> String {
        self.header("etag").unwrap().to_owned()
    }
}

fn text() -> String {
    "The quick brown fox jumps over the lazy dog. ".repeat(100)
}

#[tokio::test]
async fn answers_with_all_that_is_known_of_a_file() {
    let site = site(&[("a/hello.html", "<p>hello")], |files| {
        let mut extra = Headers::new();
        extra
            .try_append("x-content-type-options", "nosniff")
            .unwrap();
        files.headers(extra).cache_control([
            (
                Glob::parse("*.css").unwrap(),
                HeaderValue::from_static("no-store"),
            ),
            (
                Glob::parse("/a/**").unwrap(),
                HeaderValue::from_static("max-age=60"),
            ),
        ])
    });
    for _ in 0..2 {
        let got = site.get("/a/hello.html?x=y").await;
        assert_eq!((got.status, got.text()), (200, "<p>hello"));
        assert_eq!(got.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(got.header("accept-ranges"), Some("bytes"));
        assert_eq!(got.header("cache-control"), Some("max-age=60"));
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert!(got.header("last-modified").is_some());
        assert!(got.etag().starts_with('"'));
        assert_eq!(got.header("vary"), None, "too short to be compressed");
    }
    assert!(site.get("/a/hello.html").await.was_now);
}

#[tokio::test]
async fn answers_only_methods_that_read() {
    let site = site(&[("a", "x")], |files| files);
    assert_eq!(site.send(Method::HEAD, "/a", &[]).await.status, 200);
    let options = site.send(Method::OPTIONS, "/a", &[]).await;
    assert_eq!(
        (options.status, options.header("allow")),
        (204, Some("GET, HEAD, OPTIONS"))
    );
    assert_eq!(site.send(Method::OPTIONS, "*", &[]).await.status, 204);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::TRACE] {
        let got = site.send(method, "/a", &[]).await;
        assert_eq!(
            (got.status, got.header("allow")),
            (405, Some("GET, HEAD, OPTIONS"))
        );
    }
}

#[tokio::test]
async fn serves_large_files_as_file_ranges() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let site = site(&[], |files| files);
    site.write("big.bin", &content);
    let Answer::Now(response) = site.service.call(request(Method::GET, "/big.bin", &[])) else {
        panic!("not at once");
    };
    assert!(matches!(response.body(), Body::File(range) if range.len == 3_000_000));
    let got = site
        .get_with("/big.bin", &[("range", "bytes=1000000-1000009")])
        .await;
    assert_eq!(
        (got.status, &*got.body),
        (206, &content[1_000_000..1_000_010])
    );
    let got = site
        .get_with("/big.bin", &[("range", "bytes=0-1,2999999-")])
        .await;
    assert_eq!(got.status, 206);
    assert!(
        got.header("content-type")
            .unwrap()
            .starts_with("multipart/byteranges")
    );
}

#[tokio::test]
async fn reads_what_is_not_in_memory_without_blocking() {
    let site = site(&[], |files| files);
    for round in 0..5 {
        let path = format!("{round}.bin");
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        site.write(&path, &content);
        let file = fs::File::open(site.path(&path)).unwrap();
        file.sync_all().unwrap();
        // Where the file system heeds this, the disk has to be waited for.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let target = format!("/{path}");
        let call = || site.service.call(request(Method::GET, &target, &[]));
        let (given_up, one, two) = (call(), call(), call());
        drop(given_up);
        for answer in [one, two] {
            let got = Got::from(answer).await;
            assert_eq!((got.status, &got.body), (200, &content));
        }
        assert!(call().wait().await.status().is_success());
        assert!(site.get(&target).await.was_now);
    }
}

// What is kept stays true.

#[tokio::test]
async fn keeps_an_answer_for_a_second_and_notices_every_kind_of_change() {
    let site = site(
        &[("a.txt", "one"), ("old/b.txt", "old"), ("new/b.txt", "new")],
        |files| files,
    );
    symlink("old", site.path("current")).unwrap();
    assert_eq!(site.get("/a.txt").await.text(), "one");
    assert_eq!(site.get("/current/b.txt").await.text(), "old");

    // An edit in place of the same length, with the modification time set back.
    fs::write(site.path("a.txt"), "two").unwrap();
    site.set_modified(&site.path("a.txt"), hour_ago());
    assert_eq!(site.get("/a.txt").await.text(), "one", "within the second");
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.text(), "two");

    // An atomic rename.
    site.write("a.tmp", "three");
    fs::rename(site.path("a.tmp"), site.path("a.txt")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.text(), "three");

    // A folder swapped by its symbolic link.
    symlink("new", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("current")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/current/b.txt").await.text(), "new");

    // Deletion.
    fs::remove_file(site.path("a.txt")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.status, 404);
}

#[tokio::test]
async fn does_not_trust_metadata_of_a_file_changed_just_now() {
    let site = site(&[("a.txt", "one")], |files| files);
    let path = site.path("a.txt");
    // Edits that follow each other faster than the clock of the file system ticks leave no trace:
    // whatever the metadata say, what was written just now is read again.
    for round in 0..20 {
        fs::write(&path, format!("{round:03}")).unwrap();
        pass(REVALIDATION);
        assert_eq!(site.get("/a.txt").await.text(), format!("{round:03}"));
    }
}

#[tokio::test]
async fn follows_a_root_that_is_swapped() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        fs::write(folder.path().join(release).join("index.html"), release).unwrap();
    }
    let root = folder.path().join("current");
    symlink("one", &root).unwrap();
    let site = Site {
        service: Files::new(&root).clock(clock).build(),
        folder,
    };
    assert_eq!(site.get("/").await.text(), "one");
    symlink("two", site.folder.path().join("next")).unwrap();
    fs::rename(site.folder.path().join("next"), &root).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/").await.text(), "two");
}

#[tokio::test]
async fn gives_contents_of_one_length_different_entity_tags() {
    let site = site(&[("a.txt", "one")], |files| files);
    let one = site.get("/a.txt").await.etag();
    site.write("a.txt", "two");
    pass(REVALIDATION);
    let got = site.get_with("/a.txt", &[("if-none-match", &one)]).await;
    assert_eq!((got.status, got.text()), (200, "two"));
}

#[tokio::test]
async fn stays_within_its_bounds_of_memory() {
    let site = site(&[], |files| files.cache(100_000));
    for at in 0..50 {
        site.write(&format!("{at}.bin"), vec![at; 10_000]);
    }
    for _ in 0..2 {
        for at in 0..50_u8 {
            let got = site.get(&format!("/{at}.bin")).await;
            assert_eq!(got.body, vec![at; 10_000]);
        }
    }
}

#[tokio::test]
async fn works_without_memory() {
    let site = site(&[("a.txt", &text())], |files| files.cache(0));
    for _ in 0..20 {
        let lines = [("accept-encoding", "br, gzip")];
        let got = site.get_with("/a.txt", &lines).await;
        assert_eq!((got.status, got.text()), (200, &*text()));
        assert_eq!(
            got.header("content-encoding"),
            None,
            "there is no room to keep it"
        );
    }
}

// Conditions and ranges.

#[tokio::test]
async fn answers_conditional_requests() {
    let site = site(&[("a.txt", "hello")], |files| {
        files.cache_control([(
            Glob::parse("*").unwrap(),
            HeaderValue::from_static("max-age=1"),
        )])
    });
    let first = site.get("/a.txt").await;
    let (etag, modified) = (
        first.etag(),
        first.header("last-modified").unwrap().to_owned(),
    );
    let weak = format!("W/{etag}");
    let list = format!("\"other\", {weak}");
    for (name, value, status) in [
        ("if-none-match", &*etag, 304),
        ("if-none-match", &weak, 304),
        ("if-none-match", &list, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", &modified, 304),
        ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("if-match", &etag, 200),
        ("if-match", &weak, 412),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", &modified, 200),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ] {
        let got = site.get_with("/a.txt", &[(name, value)]).await;
        assert_eq!(got.status, status, "{name}: {value}");
        if status == 304 {
            assert_eq!(got.header("etag"), Some(&*etag));
            assert_eq!(got.header("cache-control"), Some("max-age=1"));
            assert_eq!(got.header("content-length"), None);
            assert_eq!(got.header("content-type"), None);
            assert!(got.body.is_empty());
        }
    }
}

#[tokio::test]
async fn answers_ranges() {
    let site = site(&[("a.txt", "0123456789")], |files| files);
    let etag = site.get("/a.txt").await.etag();
    for (range, status, body, content_range) in [
        ("bytes=0-0", 206, "0", Some("bytes 0-0/10")),
        ("bytes=5-", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=8-100", 206, "89", Some("bytes 8-9/10")),
        ("bytes=0-3,2-5", 206, "012345", Some("bytes 0-5/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=3-2", 200, "0123456789", None),
        (
            "bytes=0-0,2-2,4-4,6-6,8-8,0-0,0-0,0-0,0-0",
            200,
            "0123456789",
            None,
        ),
        (
            "bytes=0-18446744073709551615",
            206,
            "0123456789",
            Some("bytes 0-9/10"),
        ),
    ] {
        let got = site.get_with("/a.txt", &[("range", range)]).await;
        assert_eq!((got.status, got.text()), (status, body), "{range}");
        assert_eq!(got.header("content-range"), content_range, "{range}");
    }
    let head = site
        .send(Method::HEAD, "/a.txt", &[("range", "bytes=0-0")])
        .await;
    assert_eq!(head.status, 200);
    for (if_range, status) in [
        (&*etag, 206),
        ("\"other\"", 200),
        (&*format!("W/{etag}"), 200),
    ] {
        let lines = [("range", "bytes=0-0"), ("if-range", if_range)];
        assert_eq!(
            site.get_with("/a.txt", &lines).await.status,
            status,
            "{if_range}"
        );
    }
    let lines = [("range", "bytes=0-0"), ("if-none-match", &*etag)];
    assert_eq!(site.get_with("/a.txt", &lines).await.status, 304);
}

#[tokio::test]
async fn answers_many_ranges_in_parts() {
    let site = site(&[("a.txt", "0123456789")], |files| files);
    let got = site
        .get_with("/a.txt", &[("range", "bytes=8-9, 0-1")])
        .await;
    assert_eq!(got.status, 206);
    assert_eq!(got.header("content-range"), None);
    let content_type = got.header("content-type").unwrap();
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let part = |range, body| {
        format!(
            "\r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let expected = format!(
        "{}{}\r\n--{boundary}--\r\n",
        part("8-9", "89"),
        part("0-1", "01")
    );
    assert_eq!(got.text(), expected);
}

// Negotiation.

#[tokio::test]
async fn answers_at_once_and_compresses_for_later() {
    let text = text();
    let site = site(&[("a.txt", &text)], |files| files);
    let first = site
        .get_with("/a.txt", &[("accept-encoding", "gzip, br, zstd")])
        .await;
    assert_eq!((first.status, first.text()), (200, &*text));
    assert_eq!(first.header("content-encoding"), None);
    assert_eq!(first.header("vary"), Some("accept-encoding"));
    let mut tags = vec![first.etag()];
    for (accept, coding) in [
        ("gzip, br, zstd", "br"),
        ("gzip;q=0.5, zstd", "zstd"),
        ("gzip", "gzip"),
    ] {
        let got = site.get_coded("/a.txt", accept).await;
        assert_eq!(got.header("content-encoding"), Some(coding));
        assert_eq!(got.header("vary"), Some("accept-encoding"));
        assert_eq!(
            got.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(decode(&got.body, coding), text.as_bytes());
        let lines = [("accept-encoding", accept), ("if-none-match", &*got.etag())];
        let not_modified = site.get_with("/a.txt", &lines).await;
        assert_eq!(not_modified.status, 304);
        assert_eq!(not_modified.header("vary"), Some("accept-encoding"));
        // A part of this form, and only of this form.
        let etag = got.etag();
        let lines = [
            ("accept-encoding", accept),
            ("range", "bytes=0-4"),
            ("if-range", &*etag),
        ];
        let part = site.get_with("/a.txt", &lines).await;
        assert_eq!((part.status, &*part.body), (206, &got.body[..5]));
        assert_eq!(part.header("content-encoding"), Some(coding));
        let lines = [("range", "bytes=0-4"), ("if-range", &*etag)];
        assert_eq!(site.get_with("/a.txt", &lines).await.status, 200);
        tags.push(etag);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{tags:?}");
    for accept in [
        "identity",
        "deflate",
        "",
        "br;q=0",
        "*;q=0.1, br;q=0, identity;q=0.9",
    ] {
        let got = site
            .get_with("/a.txt", &[("accept-encoding", accept)])
            .await;
        assert_eq!(got.header("content-encoding"), None, "{accept}");
    }
    assert_eq!(site.get("/a.txt").await.header("content-encoding"), None);
}

fn decode(body: &[u8], coding: &str) -> Vec<u8> {
    use std::io::Read;
    let mut decoded = Vec::new();
    match coding {
        "br" => brotli::Decompressor::new(body, 4096)
            .read_to_end(&mut decoded)
            .unwrap(),
        "zstd" => zstd::Decoder::new(body)
            .unwrap()
            .read_to_end(&mut decoded)
            .unwrap(),
        _ => flate2::read::GzDecoder::new(body)
            .read_to_end(&mut decoded)
            .unwrap(),
    };
    decoded
}

#[tokio::test]
async fn honours_a_refusal_of_identity() {
    let text = text();
    let site = site(&[("a.txt", &text), ("b.png", &text)], |files| files);
    let got = site
        .get_with("/a.txt", &[("accept-encoding", "gzip, identity;q=0")])
        .await;
    assert_eq!(
        (got.status, got.header("content-encoding")),
        (200, Some("gzip"))
    );
    assert_eq!(decode(&got.body, "gzip"), text.as_bytes());
    for accept in ["identity;q=0", "*;q=0", "deflate, *;q=0"] {
        let got = site
            .get_with("/a.txt", &[("accept-encoding", accept)])
            .await;
        assert_eq!(
            (got.status, got.header("vary")),
            (406, Some("accept-encoding"))
        );
        // What is not negotiated is sent as it is.
        let got = site
            .get_with("/b.png", &[("accept-encoding", accept)])
            .await;
        assert_eq!((got.status, got.header("vary")), (200, None));
    }
}

#[tokio::test]
async fn never_compresses_what_is_compressed_or_short() {
    let long = text();
    let site = site(
        &[("a.png", &long), ("a.woff2", &long), ("a.txt", "short")],
        |files| files,
    );
    for path in ["/a.png", "/a.woff2", "/a.txt"] {
        for _ in 0..20 {
            let got = site
                .get_with(path, &[("accept-encoding", "br, gzip, zstd")])
                .await;
            assert_eq!(got.header("content-encoding"), None, "{path}");
            assert_eq!(got.header("vary"), None, "{path}");
        }
    }
}

#[tokio::test]
async fn sends_siblings_that_are_not_older() {
    let only_siblings = |files: Files| files.compression(Compression::NONE);
    let site = site(
        &[
            ("a.css", "plain"),
            ("a.css.br", "as br"),
            ("a.css.gz", "as gzip"),
            ("a.css.zst", "as zstd"),
            ("b.css", "plain"),
            ("b.css.gz", "stale"),
        ],
        only_siblings,
    );
    for name in ["a.css", "b.css"] {
        site.set_modified(&site.path(name), hour_ago() - Duration::from_secs(60));
    }
    site.set_modified(&site.path("b.css.gz"), hour_ago() - Duration::from_secs(61));
    for (path, accept, coding, body) in [
        ("/a.css", "br, gzip, zstd", Some("br"), "as br"),
        ("/a.css", "gzip", Some("gzip"), "as gzip"),
        ("/a.css", "zstd, gzip;q=0.9", Some("zstd"), "as zstd"),
        ("/a.css", "identity", None, "plain"),
        ("/b.css", "gzip", None, "plain"),
    ] {
        let got = site.get_with(path, &[("accept-encoding", accept)]).await;
        assert_eq!(got.header("content-encoding"), coding, "{path} {accept}");
        assert_eq!(got.text(), body, "{path} {accept}");
    }
    // A sibling that goes away is noticed.
    fs::remove_file(site.path("a.css.br")).unwrap();
    pass(REVALIDATION);
    let got = site.get_with("/a.css", &[("accept-encoding", "br")]).await;
    assert_eq!(got.text(), "plain");
    // And asked for by its own name it is a file like any other.
    assert_eq!(site.get("/a.css.gz").await.header("content-encoding"), None);
}

#[tokio::test]
async fn does_not_send_an_old_variant_of_a_changed_file() {
    let site = site(&[("a.txt", &text())], |files| files);
    site.get_coded("/a.txt", "gzip").await;
    let changed = text().replace("fox", "cat");
    site.write("a.txt", &changed);
    pass(REVALIDATION);
    let got = site.get_coded("/a.txt", "gzip").await;
    assert_eq!(decode(&got.body, "gzip"), changed.as_bytes());
}

#[tokio::test]
async fn shares_variants_between_workers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), text()).unwrap();
    let files = Files::new(folder.path());
    let one = Site {
        service: files.build(),
        folder,
    };
    let made = one.get_coded("/a.txt", "zstd").await;
    let another = files.build();
    let request = request(Method::GET, "/a.txt", &[("accept-encoding", "zstd")]);
    let got = Got::from(another.call(request)).await;
    assert_eq!(got.header("content-encoding"), Some("zstd"));
    assert_eq!(got.etag(), made.etag());
}

#[tokio::test]
async fn shares_a_store_of_variants_with_other_files() {
    let variants = Arc::new(apus::files::Variants::new(1 << 20));
    let site = site(&[("a.txt", &text())], |files| {
        files.variants(variants.clone())
    });
    site.get_coded("/a.txt", "zstd").await;
    let next = Files::new(site.path("")).variants(variants).build();
    let request = request(Method::GET, "/a.txt", &[("accept-encoding", "zstd")]);
    let got = Got::from(next.call(request)).await;
    assert_eq!(got.header("content-encoding"), Some("zstd"));
}

// Folders.

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
            Response::text(apus::StatusCode::OK, text).into()
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
async fn shows_the_page_of_an_application_for_pages_only() {
    let site = site(&[("index.html", "app"), ("app.js", "js")], |files| {
        files.spa("/index.html")
    });
    for path in ["/", "/users/7", "/users/jane.doe", "/old.html", "/users/"] {
        let got = site.get(path).await;
        assert_eq!((got.status, got.text()), (200, "app"), "{path}");
    }
    assert_eq!(site.get("/app.js").await.text(), "js");
    for path in ["/missing.js", "/logo.png"] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
    site.write("index.html", "changed");
    pass(REVALIDATION);
    assert_eq!(site.get("/users/8").await.text(), "changed");
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

// Paths.

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
    // What is encoded twice is decoded once, also when the answer is in memory.
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
async fn does_not_wait_for_what_is_no_file() {
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

// Listings.

#[tokio::test]
async fn lists_folders_for_people() {
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
    assert_eq!(got.header("vary"), Some("accept"));
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
async fn lists_folders_for_programs() {
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
async fn names_types_as_told() {
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
