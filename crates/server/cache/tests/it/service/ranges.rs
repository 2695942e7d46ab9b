//! Ranges of stored objects, and fetching the missing ones.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use apus_cache::service::{Cache, CacheSettings, CachedService, PurgeAccess};
use apus_cache::store::{DiskSettings, StoreSettings};
use apus_http::fields::Ranges;
use apus_http::{
    Body, BodyError, BodyStream, Frame, Headers, Method, Response, ResponseFuture, Service,
    ServiceFactory, StatusCode, service_fn,
};
use bytes::Bytes;
use proptest::prelude::*;

use apus_testkit::{Reply, RequestBuilder, ask, block_on, cases, get};

/// Bytes that differ from the bytes near and far, and from the same bytes of other versions.
fn bytes_of(version: u64, range: std::ops::Range<u64>) -> Vec<u8> {
    let byte = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(8) as u8;
    range.map(|at| byte(at + (version << 40))).collect()
}

type Twist = dyn Fn(u64, &Headers, Response) -> Response + Send + Sync;

/// An origin with one resource, which supports range requests as in RFC 9110, unless its twist
/// changes the response.
#[derive(Clone)]
struct Origin {
    len: u64,
    version: Arc<AtomicU64>,
    requests: Arc<Mutex<Vec<Headers>>>,
    count: Arc<AtomicU64>,
    /// Whether bodies continue after their first pieces.
    open: Arc<AtomicBool>,
    twist: Arc<Twist>,
}

/// The bytes of a response that are sent immediately.
const PIECE: usize = 10_000;

impl Origin {
    fn new(len: u64) -> Self {
        Self::twisted(len, |_, _, response| response)
    }

    fn twisted(
        len: u64,
        twist: impl Fn(u64, &Headers, Response) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self {
            len,
            version: Arc::new(AtomicU64::new(1)),
            requests: Arc::default(),
            count: Arc::default(),
            open: Arc::new(AtomicBool::new(true)),
            twist: Arc::new(twist),
        }
    }

    fn body(&self) -> Vec<u8> {
        bytes_of(self.version.load(Ordering::Relaxed), 0..self.len)
    }

    fn part(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let range = range.start as u64..range.end as u64;
        bytes_of(self.version.load(Ordering::Relaxed), range)
    }

    /// The `Range` of each request since the last call, or an empty string.
    fn requested_ranges(&self) -> Vec<String> {
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        let range = |headers: &Headers| headers.get_str("range").unwrap_or("").to_owned();
        requests.iter().map(range).collect()
    }

    fn respond(&self, headers: &Headers) -> Response {
        let tag = format!("\"v{}\"", self.version.load(Ordering::Relaxed));
        let may = headers
            .get("if-range")
            .is_none_or(|is| is == tag.as_bytes());
        let mut response = Response::new(StatusCode::OK);
        let mut set = |name: &str, value: &str| {
            response.headers_mut().try_insert(name, value).unwrap();
        };
        set("etag", &tag);
        set("accept-ranges", "bytes");
        set("cache-control", "max-age=60");
        set("content-type", "video/mp4");
        if headers.get("if-none-match") == Some(tag.as_bytes()) {
            response.set_status(StatusCode::NOT_MODIFIED);
            return response;
        }
        let ranges = headers.get("range").filter(|_| may);
        let body = match ranges.map(|range| Ranges::parse(range, self.len)) {
            Some(Ranges::Parts(parts)) => {
                let value = parts[0].content_range(self.len).to_string();
                set("content-range", &value);
                response.set_status(StatusCode::PARTIAL_CONTENT);
                self.part(parts[0].start as usize..parts[0].end() as usize)
            }
            Some(Ranges::Unsatisfiable) => {
                response.set_status(StatusCode::RANGE_NOT_SATISFIABLE);
                Vec::new()
            }
            Some(Ranges::Whole) | None => self.body(),
        };
        *response.body_mut() = self.pieces(body.into(), None);
        response
    }

    /// A streamed body, which may break off at a position.
    fn pieces(&self, body: Bytes, breaks_at: Option<usize>) -> Body {
        Body::stream(Pieces {
            left: body,
            breaks_at,
            open: self.open.clone(),
            sent: 0,
            waits: false,
        })
    }

    fn service(&self) -> impl ServiceFactory + Clone + 'static {
        let origin = self.clone();
        move || {
            let origin = origin.clone();
            service_fn(move |request| {
                if *request.method() == Method::GET {
                    let mut requests = origin.requests.lock().unwrap();
                    requests.push(request.headers().clone());
                }
                let number = origin.count.fetch_add(1, Ordering::Relaxed) + 1;
                let honest = origin.respond(request.headers());
                let response = (origin.twist)(number, request.headers(), honest);
                ResponseFuture::later(async move {
                    tokio::task::yield_now().await;
                    response
                })
            })
        }
    }

    fn cached(&self) -> Rc<dyn Service> {
        self.cached_in(&Cache::new(StoreSettings {
            memory_bytes: 256 << 20,
            memory_object_bytes: 16 << 20,
            ..StoreSettings::default()
        }))
    }

    fn cached_in(&self, cache: &Cache) -> Rc<dyn Service> {
        let settings = CacheSettings {
            purge: Some(PurgeAccess { token: "t".into() }),
            ..CacheSettings::default()
        };
        CachedService::new(cache, "site", settings, self.service()).service()
    }
}

struct Pieces {
    left: Bytes,
    breaks_at: Option<usize>,
    open: Arc<AtomicBool>,
    sent: usize,
    waits: bool,
}

impl BodyStream for Pieces {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let is_held = self.sent > 0 && !self.left.is_empty() && !self.open.load(Ordering::Relaxed);
        self.waits = !self.waits || is_held;
        if self.waits {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let until = self.breaks_at.unwrap_or(usize::MAX);
        let len = PIECE.min(self.left.len()).min(until - self.sent);
        Poll::Ready(if self.left.is_empty() {
            None
        } else if len == 0 {
            Some(Err(BodyError::Disconnected))
        } else {
            self.sent += len;
            Some(Ok(Frame::Data(self.left.split_to(len))))
        })
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.left.len() as u64)
    }
}

async fn read(request: RequestBuilder, service: &Rc<dyn Service>) -> Reply {
    Reply::read(service.call(request.request()).wait().await).await
}

/// The bytes of a body, and whether it broke off.
async fn read_until_broken(
    request: RequestBuilder,
    service: &Rc<dyn Service>,
) -> (u16, Vec<u8>, bool) {
    let mut response = service.call(request.request()).wait().await;
    let mut body = Vec::new();
    loop {
        match response.body_mut().frame().await {
            Some(Ok(Frame::Data(bytes))) => body.extend_from_slice(&bytes),
            Some(Ok(Frame::File(range))) => {
                use std::os::unix::fs::FileExt;
                let mut bytes = vec![0; range.len as usize];
                range.file.read_exact_at(&mut bytes, range.offset).unwrap();
                body.extend_from_slice(&bytes);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) => return (response.status().as_u16(), body, true),
            None => return (response.status().as_u16(), body, false),
        }
    }
}

fn part(range: &str) -> RequestBuilder {
    get("/").with("range", &format!("bytes={range}"))
}

#[test]
fn only_missing_ranges_are_fetched() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    block_on(async {
        let first = read(part("1000-1999"), &service).await;
        assert_eq!(first.status, 206);
        assert!(first.content == origin.part(1000..2000));
        assert_eq!(first.field("content-range"), Some("bytes 1000-1999/100000"));
        assert_eq!(origin.requested_ranges(), ["bytes=1000-1999"]);
        let again = read(part("1200-1299"), &service).await;
        assert!(again.content == origin.part(1200..1300));
        assert_eq!(origin.requested_ranges(), [""; 0]);

        assert!(
            again
                .field("cache-status")
                .unwrap()
                .starts_with("apus; hit")
        );

        let more = read(part("1500-2499"), &service).await;
        assert!(more.content == origin.part(1500..2500));
        // It was not stored completely.
        let status = more.field("cache-status").unwrap();
        assert!(status.starts_with("apus; fwd=partial; stored"), "{status}");
        let headers = origin.requests.lock().unwrap()[0].clone();
        assert_eq!(headers.get_str("if-range"), Some("\"v1\""));
        assert_eq!(origin.requested_ranges(), ["bytes=2000-2499"]);
        let end = read(part("-500"), &service).await;
        assert!(end.content == origin.part(99_500..100_000));
        assert_eq!(origin.requested_ranges(), ["bytes=99500-99999"]);

        let head = service.call(ask("HEAD", "/").request()).wait().await;
        assert_eq!(head.headers().get_str("content-length"), Some("100000"));
        let whole = read(get("/"), &service).await;
        assert_eq!(whole.status, 200);
        assert_eq!(whole.field("content-length"), Some("100000"));
        assert!(whole.content == origin.body());
        assert_eq!(
            origin.requested_ranges(),
            ["bytes=0-999", "bytes=2500-99499"]
        );
        let whole = read(get("/"), &service).await;
        assert!(whole.content == origin.body());
        assert!(whole.field("cache-status").unwrap().contains("hit"));
        let none = read(part("100000-"), &service).await;
        assert_eq!(none.status, 416);
        assert_eq!(origin.requested_ranges(), [""; 0]);
    });
}

#[test]
fn a_client_with_the_current_version_gets_304_from_an_incomplete_object() {
    let origin = Origin::new(1000);
    let service = origin.cached();
    block_on(async {
        read(part("100-199"), &service).await;
        origin.requested_ranges();
        let reply = read(get("/").with("if-none-match", "\"v1\""), &service).await;
        assert_eq!(reply.status, 304);
        let only = |request: RequestBuilder| request.with("cache-control", "only-if-cached");
        assert_eq!(read(only(part("150-160")), &service).await.status, 206);
        assert_eq!(read(only(part("150-200")), &service).await.status, 504);
        // A range of another version is useless for this client, which gets the complete response.
        let other = part("100-199").with("if-range", "\"v0\"");
        assert_eq!(read(other, &service).await.content, origin.body());
        assert_eq!(origin.requested_ranges(), ["bytes=0-99", "bytes=200-999"]);
    });
}

#[test]
fn partial_responses_without_a_strong_validator_are_not_stored() {
    for (name, value) in [
        ("etag", "W/\"v1\""),
        ("etag", ""),
        ("cache-control", "private"),
    ] {
        let origin = Origin::twisted(1000, move |_, _, mut response| {
            response.headers_mut().remove(name);
            if !value.is_empty() {
                response.headers_mut().try_insert(name, value).unwrap();
            }
            response
        });
        let service = origin.cached();
        block_on(async {
            for _ in 0..2 {
                let reply = read(part("100-199"), &service).await;
                assert_eq!((reply.status, reply.content), (206, origin.part(100..200)));
                assert_eq!(origin.requested_ranges(), ["bytes=100-199"]);
            }
            // It says nothing about the complete response, which is fetched, and stored if that is
            // allowed.
            assert_eq!(read(get("/"), &service).await.content, origin.body());
            assert_eq!(origin.requested_ranges(), [""]);
            let reply = read(get("/"), &service).await;
            assert_eq!(reply.content, origin.body());
            assert_eq!(
                origin.requested_ranges().is_empty(),
                name == "etag",
                "{value}"
            );
        });
    }
}

#[test]
fn an_interrupted_body_is_resumed_where_it_broke_off() {
    // For the client whose response was interrupted, and for later clients.
    let origin = Origin::new(100_000);
    let pieces = origin.clone();
    let origin = Origin {
        twist: Arc::new(move |number, headers, mut response| {
            if headers.get("range").is_none() || number == 2 {
                let at = if number == 1 { 30_000 } else { 5_000 };
                let start = if number == 1 { 0 } else { 30_000 };
                let body = Bytes::from(pieces.body()).slice(start..);
                *response.body_mut() = pieces.pieces(body, Some(at));
            }
            response
        }),
        ..origin.clone()
    };
    let service = origin.cached();
    block_on(async {
        let reply = read(get("/"), &service).await;
        assert!(reply.content == origin.body());
        let expected = ["", "bytes=30000-99999", "bytes=35000-99999"];
        assert_eq!(origin.requested_ranges(), expected);
        assert!(read(get("/"), &service).await.content == origin.body());
        assert_eq!(origin.requested_ranges(), [""; 0]);
    });
}

#[test]
fn an_origin_that_never_sends_the_rest_is_retried_finitely() {
    let origin = Origin::twisted(100_000, |number, _, mut response| {
        if number > 1 {
            response.take_body();
        }
        response
    });
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        let (status, body, is_broken) = read_until_broken(part("1500-2999"), &service).await;
        assert_eq!((status, is_broken), (206, true));
        assert!(body == origin.part(1500..2000));
        let ranges = origin.requested_ranges();
        assert!(ranges.len() <= 6, "{ranges:?}");
    });
}

#[test]
fn versions_are_never_mixed() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    let gap = |number: usize| format!("{}-{}", number * 10_000, number * 10_000 + 4999);
    block_on(async {
        for number in 1..5 {
            read(part(&gap(number)), &service).await;
        }
        origin.requested_ranges();
        // It changes before the first gap: all clients get the new version.
        origin.version.store(2, Ordering::Relaxed);
        let reply = read(part("10000-29999"), &service).await;
        assert_eq!(reply.field("etag"), Some("\"v2\""));
        assert_eq!(reply.status, 206);
        assert!(reply.content == origin.part(10_000..30_000));
        // No bytes of the old version are left.
        assert!(read(get("/"), &service).await.content == origin.body());
    });
}

#[test]
fn a_change_between_two_gaps_aborts_the_response() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    block_on(async {
        for range in ["1000-1999", "50000-59999"] {
            read(part(range), &service).await;
        }
        let old = origin.body();
        let mut response = service.call(get("/").request()).wait().await;
        assert_eq!(response.headers().get_str("etag"), Some("\"v1\""));
        // The first gap is being fetched; the second is requested when the client gets to it.
        origin.version.store(2, Ordering::Relaxed);
        let mut read_bytes = Vec::new();
        let end = loop {
            match response.body_mut().frame().await {
                Some(Ok(Frame::Data(bytes))) => read_bytes.extend_from_slice(&bytes),
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(_))), "{end:?}");
        assert!(read_bytes == old[..read_bytes.len()]);
        let reply = read(get("/"), &service).await;
        assert_eq!(reply.field("etag"), Some("\"v2\""));
        assert!(reply.content == origin.body());
    });
}

/// Sets or removes a field of a 206.
fn lie(mut response: Response, name: &str, value: &str) -> Response {
    if response.status() == StatusCode::PARTIAL_CONTENT {
        response.headers_mut().remove(name);
        if !value.is_empty() {
            response.headers_mut().try_insert(name, value).unwrap();
        }
    }
    response
}

const LIES: [(&str, &str); 9] = [
    ("content-range", ""),
    ("content-range", "bytes 2001-2999/100000"),
    ("content-range", "bytes 0-999/100000"),
    ("content-range", "bytes 2000-2999/99999"),
    ("content-range", "bytes 2000-2999/*"),
    ("content-range", "bytes 2000-3999/100000"),
    ("content-range", "lines 2000-2999/100000"),
    ("etag", "\"v2\""),
    ("etag", "W/\"v1\""),
];

#[test]
fn a_range_that_was_not_requested_is_not_stored() {
    for (name, value) in LIES {
        // The response to a gap is wrong: the stored object is removed.
        let origin = Origin::twisted(100_000, move |number, _, response| match number {
            2 => lie(response, name, value),
            _ => response,
        });
        let service = origin.cached();
        block_on(async {
            read(part("1000-1999"), &service).await;
            let reply = read(part("1500-2999"), &service).await;
            assert!(reply.content == origin.part(1500..3000), "{name}: {value}");
            let expected = ["bytes=1000-1999", "bytes=2000-2999", "bytes=1500-2999"];
            assert_eq!(origin.requested_ranges(), expected, "{name}: {value}");
            assert!(read(get("/"), &service).await.content == origin.body());
            assert_eq!(
                origin.requested_ranges(),
                ["bytes=0-1499", "bytes=3000-99999"]
            );
        });
    }
    for (name, value) in &LIES[..7] {
        // The first response is wrong: it is forwarded, and not stored for the next request.
        let origin = Origin::twisted(100_000, move |_, _, response| lie(response, name, value));
        let service = origin.cached();
        block_on(async {
            read(part("2000-2999"), &service).await;
            read(part("2000-2999"), &service).await;
            // An error that only shows in a later response is found then.
            let count = if value.ends_with("/99999") { 1 } else { 2 };
            assert_eq!(origin.requested_ranges().len(), count, "{name}: {value}");
            assert!(read(get("/"), &service).await.content == origin.body());
        });
    }
}

#[test]
fn a_partial_body_longer_than_its_range_is_cut() {
    let origin = Origin::twisted(100_000, |_, headers, mut response| {
        if headers.contains("range") {
            *response.body_mut() = Body::from(vec![b'x'; 5000]);
            let start = response.headers().get_str("content-range").unwrap();
            assert!(start.starts_with("bytes "));
        }
        response
    });
    let service = origin.cached();
    block_on(async {
        let reply = read(part("2000-2999"), &service).await;
        assert_eq!(reply.content.len(), 1000);
        let next = read(part("3000-3999"), &service).await;
        assert_eq!(next.content.len(), 1000);
        assert_eq!(
            origin.requested_ranges(),
            ["bytes=2000-2999", "bytes=3000-3999"]
        );
    });
}

#[test]
fn an_origin_that_says_416_for_a_gap_has_another_version() {
    let origin = Origin::twisted(100_000, |number, headers, mut response| {
        if number == 2 && headers.contains("range") {
            response = Response::new(StatusCode::RANGE_NOT_SATISFIABLE);
        }
        response
    });
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        let reply = read(part("1500-2499"), &service).await;
        assert_eq!(reply.status, 206);
        assert!(reply.content == origin.part(1500..2500));
        let expected = ["bytes=1000-1999", "bytes=2000-2499", "bytes=1500-2499"];
        assert_eq!(origin.requested_ranges(), expected);
    });
}

#[test]
fn a_failing_origin_does_not_remove_stored_ranges() {
    let origin = Origin::twisted(100_000, |number, _, response| match number {
        2 => Response::new(StatusCode::BAD_GATEWAY),
        _ => response,
    });
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        assert_eq!(read(part("1500-2499"), &service).await.status, 502);
        let reply = read(part("1500-2499"), &service).await;
        assert!(reply.content == origin.part(1500..2500));
        let expected = ["bytes=1000-1999", "bytes=2000-2499", "bytes=2000-2499"];
        assert_eq!(origin.requested_ranges(), expected);
    });
}

#[test]
fn a_private_response_fills_no_gap() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        let own = || part("1500-2499").with("authorization", "Basic eA==");
        for _ in 0..2 {
            let reply = read(own(), &service).await;
            assert!(reply.content == origin.part(1500..2500));
        }
        origin.requested_ranges();
        read(part("1500-2499"), &service).await;
        assert_eq!(origin.requested_ranges(), ["bytes=2000-2499"]);
    });
}

#[test]
fn a_far_range_does_not_wait_for_the_running_fetch() {
    let origin = Origin::new(4 << 20);
    let service = origin.cached();
    block_on(async {
        let whole = tokio::task::spawn_local({
            let service = service.clone();
            async move { read(get("/"), &service).await }
        });
        while origin.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // The complete response does not continue before the range is there.
        origin.open.store(false, Ordering::Relaxed);
        let reply = read(part("3000000-3004999"), &service).await;
        assert!(reply.content == origin.part(3_000_000..3_005_000));
        origin.open.store(true, Ordering::Relaxed);
        assert!(whole.await.unwrap().content == origin.body());
        let expected = ["", "bytes=3000000-3004999", "bytes=3005000-4194303"];
        assert_eq!(origin.requested_ranges(), expected);
    });
}

#[test]
fn a_far_range_without_a_validator_does_not_wait_for_the_running_fetch() {
    let origin = Origin::twisted(4 << 20, |_, _, mut response| {
        response.headers_mut().remove("etag");
        response
    });
    let service = origin.cached();
    block_on(async {
        let whole = tokio::task::spawn_local({
            let service = service.clone();
            async move { read(get("/"), &service).await }
        });
        while origin.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        origin.open.store(false, Ordering::Relaxed);
        let reply = read(part("3000000-3004999"), &service).await;
        assert!(reply.content == origin.part(3_000_000..3_005_000));
        origin.open.store(true, Ordering::Relaxed);
        assert!(whole.await.unwrap().content == origin.body());
        assert_eq!(origin.requested_ranges(), ["", "bytes=3000000-3004999"]);
    });
}

#[test]
fn an_object_purged_while_it_is_completed_is_not_stored() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        origin.open.store(false, Ordering::Relaxed);
        let whole = service.call(get("/").request()).wait().await;
        let purge = ask("PURGE", "/").with("authorization", "Bearer t");
        assert_eq!(read(purge, &service).await.status, 204);
        origin.open.store(true, Ordering::Relaxed);
        assert!(Reply::read(whole).await.content == origin.body());
        origin.requested_ranges();
        assert!(read(part("500-1499"), &service).await.content == origin.part(500..1500));
        assert_eq!(origin.requested_ranges(), ["bytes=500-1499"]);
    });
}

#[test]
fn ranges_fetched_for_a_disconnected_client_are_stored() {
    let origin = Origin::new(100_000);
    let service = origin.cached();
    block_on(async {
        let mut response = service.call(part("20000-79999").request()).wait().await;
        assert!(response.body_mut().frame().await.unwrap().is_ok());
        drop(response);
        let reply = read(part("20000-79999"), &service).await;
        assert!(reply.content == origin.part(20_000..80_000));
        assert_eq!(origin.requested_ranges(), ["bytes=20000-79999"]);
    });
}

#[test]
fn a_stale_incomplete_object_is_validated_and_completed() {
    let origin = Origin::twisted(100_000, |_, _, mut response| {
        let stale = "max-age=0";
        response
            .headers_mut()
            .try_insert("cache-control", stale)
            .unwrap();
        response
    });
    let service = origin.cached();
    block_on(async {
        read(part("1000-1999"), &service).await;
        let reply = read(part("1500-2499"), &service).await;
        assert_eq!(reply.status, 206);
        assert!(reply.content == origin.part(1500..2500));
        // One request validates it, and one fetches the gap.
        assert_eq!(
            origin.requested_ranges(),
            ["bytes=1000-1999", "", "bytes=2000-2499"]
        );
    });
}

#[test]
fn ranges_on_disk_are_found_again_and_completed() {
    let origin = Origin::new(3 << 20);
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let disk = DiskSettings {
            min_free_bytes: 0,
            ..DiskSettings::new(directory.path(), 1 << 30)
        };
        Cache::open(StoreSettings::default(), disk).unwrap()
    };
    let cache = open();
    block_on(async {
        let service = origin.cached_in(&cache);
        for number in 1..40 {
            let start = number * 50_000;
            let reply = read(part(&format!("{start}-{}", start + 999)), &service).await;
            assert!(reply.content == origin.part(start..start + 1000));
        }
        origin.requested_ranges();
    });
    cache.close().unwrap();
    drop(cache);
    let cache = open();
    block_on(async {
        let service = origin.cached_in(&cache);
        let reply = read(part("1000200-1000299"), &service).await;
        assert!(reply.content == origin.part(1_000_200..1_000_300));
        assert_eq!(origin.requested_ranges(), [""; 0]);
        assert!(read(get("/"), &service).await.content == origin.body());
        let ranges = origin.requested_ranges();
        assert_eq!(ranges.len(), 40, "{ranges:?}");
        assert!(read(get("/"), &service).await.content == origin.body());
        assert_eq!(origin.requested_ranges(), [""; 0]);
    });
}

#[test]
fn damaged_objects_on_disk_are_fetched_again_or_aborted() {
    const LEN: u64 = 3_000_000;
    // In the first piece, before anything is sent; after it; and at the end.
    for (requested, altered, is_anew) in [
        ("0-", 0, true),
        ("0-", 65_535, true),
        ("0-", 65_536, false),
        ("0-", LEN - 1, false),
        ("2000000-", 2_000_000, true),
        ("2000000-", LEN - 1, false),
        ("2000000-", 0, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let origin = Origin::new(LEN);
        let open = || {
            let settings = StoreSettings {
                memory_object_bytes: 64 << 10,
                ..StoreSettings::default()
            };
            Cache::open(settings, DiskSettings::new(directory.path(), 1 << 30)).unwrap()
        };
        block_on(async {
            let cache = open();
            let reply = read(get("/"), &origin.cached_in(&cache)).await;
            assert!(reply.content == origin.body());
            cache.close().unwrap();
        });
        flip(directory.path(), LEN, altered);
        origin.requested_ranges();
        block_on(async {
            let cache = open();
            let service = origin.cached_in(&cache);
            let context = format!("{requested} {altered}");
            let from: usize = requested.trim_end_matches('-').parse().unwrap();
            let (status, body, is_broken) = read_until_broken(part(requested), &service).await;
            assert_eq!(status, 206, "{context}");
            let whole = origin.part(from..LEN as usize);
            assert!(whole.starts_with(&body), "{context}");
            if is_anew {
                assert!(!is_broken && body == whole, "{context}");
                assert_eq!(origin.requested_ranges().len(), 1, "{context}");
            } else if altered >= from as u64 {
                assert!(is_broken && body.len() < whole.len(), "{context}");
                assert_eq!(origin.requested_ranges(), [""; 0], "{context}");
            } else {
                // The sent bytes are correct.
                assert!(!is_broken && body == whole, "{context}");
                assert_eq!(origin.requested_ranges(), [""; 0], "{context}");
            }
            // The next client gets all of it.
            let reply = read(get("/"), &service).await;
            assert!(reply.content == origin.body(), "{context}");
            assert_eq!(cache.statistics().disk_damaged, 1, "{context}");
            cache.close().unwrap();
        });
    }
}

/// Changes a bit in the body of the only object below `directory`, at the end of its file.
fn flip(directory: &std::path::Path, len: u64, at: u64) {
    use std::os::unix::fs::FileExt;
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .unwrap();
            if let Some(start) = file.metadata().unwrap().len().checked_sub(len) {
                let mut byte = [0];
                file.read_exact_at(&mut byte, start + at).unwrap();
                file.write_all_at(&[byte[0] ^ 1], start + at).unwrap();
            }
        }
    }
}

#[test]
fn the_number_of_ranges_of_an_object_is_limited() {
    let origin = Origin::new(1_000_000);
    let service = origin.cached();
    block_on(async {
        let range = |number: u64| format!("{}-{}", number * 1000, number * 1000 + 9);
        for number in 1..100 {
            let reply = read(part(&range(number)), &service).await;
            let start = number as usize * 1000;
            assert!(reply.content == origin.part(start..start + 10));
        }
        assert_eq!(origin.requested_ranges().len(), 99);
        read(part(&range(10)), &service).await;
        assert_eq!(
            origin.requested_ranges(),
            [""; 0],
            "the first ones are stored"
        );
        read(part(&range(90)), &service).await;
        assert_eq!(origin.requested_ranges(), ["bytes=90000-90009"]);
        // Existing ranges still grow.
        for expected in [&["bytes=10010-10999"][..], &[]] {
            read(part("10000-10999"), &service).await;
            assert_eq!(origin.requested_ranges(), expected);
        }
        assert!(read(get("/"), &service).await.content == origin.body());
    });
}

#[test]
fn ranges_of_objects_too_large_to_store_are_forwarded() {
    let origin = Origin::new(500_000);
    let service = origin.cached_in(&Cache::new(StoreSettings {
        memory_object_bytes: 10_000,
        window_bytes: 20_000,
        ..StoreSettings::default()
    }));
    block_on(async {
        let ranges = [(1000, 200_000), (1000, 200_000), (150_000, 300_000), (1, 2)];
        let clients: Vec<_> = ranges
            .iter()
            .map(|(start, end)| {
                let service = service.clone();
                let range = format!("{start}-{}", end - 1);
                tokio::task::spawn_local(async move { read(part(&range), &service).await })
            })
            .collect();
        for (client, (start, end)) in clients.into_iter().zip(ranges) {
            assert!(client.await.unwrap().content == origin.part(start..end));
        }
        assert!(read(get("/"), &service).await.content == origin.body());
    });
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn concurrent_overlapping_ranges_are_correct(
        ranges in prop::collection::vec((0_u64..60_000, 1_u64..40_000), 1..12),
        breaks_at in prop::collection::vec(prop::option::of(1_usize..30_000), 6),
    ) {
        let pieces = Origin::new(60_000);
        let origin = Origin {
            twist: Arc::new({
                let pieces = pieces.clone();
                move |number, headers, mut response| {
                    let breaks_at = breaks_at.get(number as usize).copied().flatten();
                    let range = headers.get("range").map(|range| Ranges::parse(range, 60_000));
                    if let (Some(Ranges::Parts(parts)), Some(_)) = (range, breaks_at) {
                        let (start, end) = (parts[0].start as usize, parts[0].end() as usize);
                        let part = Bytes::from(pieces.part(start..end));
                        *response.body_mut() = pieces.pieces(part, breaks_at);
                    }
                    response
                }
            }),
            ..pieces.clone()
        };
        let service = origin.cached();
        block_on(async {
            let clients: Vec<_> = ranges
                .iter()
                .map(|(start, len)| {
                    let service = service.clone();
                    let range = format!("{start}-{}", start + len - 1);
                    tokio::task::spawn_local(async move {
                        read_until_broken(part(&range), &service).await
                    })
                })
                .collect();
            for (client, (start, len)) in clients.into_iter().zip(&ranges) {
                let (status, body, is_broken) = client.await.unwrap();
                let end = (start + len).min(60_000);
                let expected = origin.part(*start as usize..end as usize);
                assert_eq!(status, 206);
                assert!(!is_broken || body.len() < expected.len());
                assert!(body == expected[..body.len()]);
                assert!(is_broken || body.len() == expected.len());
            }
            // Whatever broke off, the complete response is right afterwards, and remains stored.
            while read_until_broken(get("/"), &service).await.2 {}
            origin.requested_ranges();
            assert!(read(get("/"), &service).await.content == origin.body());
            assert!(origin.requested_ranges().is_empty());
        });
    }

    #[test]
    fn every_response_has_one_version_while_versions_change(
        steps in prop::collection::vec((0_u64..60_000, 1_u64..60_000, 0..4), 1..16),
    ) {
        let origin = Origin::new(60_000);
        let service = origin.cached();
        block_on(async {
            let clients: Vec<_> = steps
                .iter()
                .map(|(start, len, change)| {
                    let (start, end) = (*start, (start + len).min(60_000));
                    let (service, origin, change) = (service.clone(), origin.clone(), *change);
                    tokio::task::spawn_local(async move {
                        for _ in 0..change * 3 {
                            tokio::task::yield_now().await;
                        }
                        if change == 3 {
                            origin.version.fetch_add(1, Ordering::Relaxed);
                        }
                        let request = part(&format!("{start}-{}", end - 1));
                        let mut response = service.call(request.request()).wait().await;
                        let tag = response.headers().get_str("etag").unwrap();
                        let version = tag.trim_matches(['"', 'v']).parse().unwrap();
                        assert_eq!(response.status().as_u16(), 206);
                        let mut received = Vec::new();
                        while let Some(Ok(Frame::Data(bytes))) = response.body_mut().frame().await {
                            received.extend_from_slice(&bytes);
                        }
                        let until = start + received.len() as u64;
                        assert!(until <= end);
                        assert!(received == bytes_of(version, start..until));
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            // The stored response has one version in the end, if not the latest one.
            let reply = read(get("/"), &service).await;
            let version = reply.field("etag").unwrap().trim_matches(['"', 'v']);
            assert!(reply.content == bytes_of(version.parse().unwrap(), 0..60_000));
        });
    }
}
