//! Static files: responses, revalidation, negotiation, ranges, paths and listings.

mod cache;
mod conditions;
mod folders;
mod listings;
mod negotiation;
mod paths;
mod private_files;
mod unreadable;
mod versions;

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use apus_compress::Compression;
use apus_files::{Files, FilesService, Symlinks, TryFiles};
use apus_http::RequestParts;
use apus_http::{
    Body, ConnectionInfo, Frame, HeaderValue, Headers, Method, Peer, Request, Response,
    ResponseFuture, Service, Target, Version, service_fn,
};
use apus_patterns::Glob;
use tempfile::TempDir;

thread_local! {
    static LATER: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A clock that a test advances.
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

    /// Repeats the request until a background thread has made the variant.
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
            kept: apus_http::KeptValue::default(),
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
    async fn from(future: ResponseFuture) -> Self {
        let was_now = matches!(future, ResponseFuture::Now(_));
        let mut response: Response = future.wait().await;
        let mut source = response.take_body();
        let announced = source.len();
        let mut body = Vec::new();
        while let Some(frame) = source.frame().await {
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
        if let Some(announced) = announced {
            assert_eq!(announced, body.len() as u64);
        }
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
async fn responds_with_all_header_fields_of_a_file() {
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
async fn allows_only_safe_methods() {
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
async fn a_method_that_the_server_does_not_know_is_501_rfc_9110_section_9_1() {
    let site = site(&[("a", "x")], |files| files);
    for name in ["BREW", "get", "PROPFIND", "GETS"] {
        let method = Method::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(site.send(method, "/a", &[]).await.status, 501, "{name}");
    }
    assert_eq!(site.send(Method::PATCH, "/a", &[]).await.status, 405);
}

#[tokio::test]
async fn serves_large_files_as_file_ranges() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let site = site(&[], |files| files);
    site.write("big.bin", &content);
    let ResponseFuture::Now(response) = site.service.call(request(Method::GET, "/big.bin", &[]))
    else {
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
async fn reads_from_disk_without_blocking() {
    let site = site(&[], |files| files);
    for round in 0..5 {
        let path = format!("{round}.bin");
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        site.write(&path, &content);
        let file = fs::File::open(site.path(&path)).unwrap();
        file.sync_all().unwrap();
        // If the file system honours this, the file has to be read from disk.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let target = format!("/{path}");
        let call = || site.service.call(request(Method::GET, &target, &[]));
        let (given_up, one, two) = (call(), call(), call());
        drop(given_up);
        for response in [one, two] {
            let got = Got::from(response).await;
            assert_eq!((got.status, &got.body), (200, &content));
        }
        assert!(call().wait().await.status().is_success());
        assert!(site.get(&target).await.was_now);
    }
}
