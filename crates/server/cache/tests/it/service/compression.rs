//! Compressed forms of stored responses.

use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_cache::service::{Cache, CacheSettings, CachedService, PurgeAccess};
use apus_compress::CompressedFactory;
use apus_compress::Compression;
use apus_http::{Response, Service, ServiceFactory, StatusCode, service_fn};
use bytes::Bytes;

use apus_testkit::{Reply, RequestBuilder, ask, block_on, get};

const COMPRESSION: Compression = Compression {
    gzip: true,
    brotli: true,
    zstd: true,
    min_length: 1000,
    ..Compression::DEFAULT
};

const FIELDS: [(&str, &str); 3] = [
    ("content-type", "text/css"),
    ("cache-control", "max-age=60"),
    ("etag", "\"v1\""),
];

/// A site with compression and a cache, in front of an origin with this body.
fn site(body: String, fields: &[(&'static str, &'static str)]) -> Site {
    let calls = Arc::new(AtomicUsize::new(0));
    let (fields, counted) = (fields.to_vec(), calls.clone());
    let body = Bytes::from(body);
    let origin = move || {
        let (fields, counted, body) = (fields.clone(), counted.clone(), body.clone());
        service_fn(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut response = Response::new(StatusCode::OK);
            for (name, value) in &fields {
                response.headers_mut().try_insert(name, value).unwrap();
            }
            *response.body_mut() = body.clone().into();
            response.into()
        })
    };
    let cache = Cache::new(apus_cache::store::StoreSettings::default());
    let settings = CacheSettings {
        purge: Some(PurgeAccess { token: "t".into() }),
        ..CacheSettings::default()
    };
    let cached = CachedService::new(&cache, "site", settings, origin).compression(COMPRESSION);
    let factory = CompressedFactory::new(COMPRESSION, cached);
    Site {
        cache,
        calls,
        workers: [factory.service(), factory.service()],
    }
}

struct Site {
    cache: Cache,
    calls: Arc<AtomicUsize>,
    workers: [Rc<dyn Service>; 2],
}

impl Site {
    async fn read(&self, request: RequestBuilder) -> Reply {
        Reply::read(self.workers[0].call(request.request()).wait().await).await
    }
}

fn text(len: usize) -> String {
    "some text that can be made shorter; ".repeat(len / 36 + 1)[..len].to_owned()
}

fn accepting(codings: &str) -> RequestBuilder {
    get("/").with("accept-encoding", codings)
}

fn unzipped(body: &[u8]) -> String {
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(body);
    decoder.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn each_compressed_form_is_made_once_for_all_workers() {
    let body = text(20_000);
    let site = site(body.clone(), &FIELDS);
    block_on(async {
        let plain = site.read(get("/")).await;
        assert_eq!(plain.text(), body);
        assert_eq!(plain.field("vary"), Some("accept-encoding"));
        assert_eq!(plain.field("etag"), Some("\"v1\""));
        let before = site.cache.statistics().memory_bytes;
        let compressed = |worker: usize| {
            let service = site.workers[worker].clone();
            async move {
                let mut response = service.call(accepting("gzip").request()).wait().await;
                match response.take_body() {
                    apus_http::Body::Bytes(bytes) => (bytes, response.headers().clone()),
                    other => panic!("{other:?}"),
                }
            }
        };
        let (first, headers) = compressed(0).await;
        assert_eq!(unzipped(&first), body);
        assert_eq!(headers.get_str("content-encoding"), Some("gzip"));
        assert_eq!(headers.get_str("etag"), Some("W/\"v1\""));
        assert_eq!(headers.get_all("vary").count(), 1);
        assert_eq!(headers.get("content-length"), None);
        assert_eq!(
            site.cache.statistics().memory_bytes,
            before + first.len() as u64
        );
        for worker in [0, 1, 1] {
            let (again, _) = compressed(worker).await;
            assert_eq!(again.as_ptr(), first.as_ptr(), "made anew");
        }
        let other = site.read(accepting("zstd")).await;
        assert_eq!(other.field("content-encoding"), Some("zstd"));
        assert_eq!(site.read(get("/")).await.text(), body);
        assert_eq!(site.calls.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn conditions_and_ranges_apply_to_the_form_that_the_client_has() {
    let body = text(20_000);
    let site = site(body.clone(), &FIELDS);
    block_on(async {
        site.read(get("/")).await;
        for tag in ["\"v1\"", "W/\"v1\""] {
            let reply = site.read(accepting("br").with("if-none-match", tag)).await;
            assert_eq!(reply.status, 304);
            assert_eq!(reply.field("etag"), Some("W/\"v1\""));
            assert_eq!(reply.field("vary"), Some("accept-encoding"));
            let reply = site.read(get("/").with("if-none-match", tag)).await;
            assert_eq!((reply.status, reply.field("etag")), (304, Some("\"v1\"")));
        }
        // A range applies to the uncompressed body, and not to the form that the client has.
        let part = || accepting("gzip").with("range", "bytes=100-199");
        let reply = site.read(part()).await;
        assert_eq!((reply.status, reply.text()), (206, &body[100..200]));
        assert_eq!(reply.field("content-encoding"), None);
        let reply = site.read(part().with("if-range", "W/\"v1\"")).await;
        assert_eq!(reply.status, 200);
        assert_eq!(unzipped(&reply.content), body);
        let head = ask("HEAD", "/").with("accept-encoding", "gzip");
        let head = site.workers[0].call(head.request()).wait().await;
        assert_eq!(head.headers().get_str("content-encoding"), Some("gzip"));
        assert_eq!(head.headers().get_str("etag"), Some("W/\"v1\""));
        assert_eq!(head.headers().get("content-length"), None);
        assert_eq!(head.headers().get_str("vary"), Some("accept-encoding"));
    });
}

#[test]
fn a_long_body_is_compressed_on_another_thread() {
    let body = text(300_000);
    let site = site(body.clone(), &FIELDS);
    block_on(async {
        // It is compressed while it is sent until the form is ready.
        loop {
            let service = &site.workers[0];
            let mut response = service.call(accepting("gzip").request()).wait().await;
            let headers = response.headers().clone();
            assert_eq!(headers.get_str("content-encoding"), Some("gzip"));
            assert_eq!(headers.get_str("etag"), Some("W/\"v1\""));
            assert_eq!(headers.get_str("vary"), Some("accept-encoding"));
            let is_made = matches!(response.body_mut(), apus_http::Body::Bytes(_));
            assert_eq!(unzipped(&Reply::read(response).await.content), body);
            if is_made {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(site.calls.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn compressed_forms_are_purged_with_their_object() {
    let site = site(text(5_000), &FIELDS);
    block_on(async {
        site.read(accepting("gzip")).await;
        let purge = ask("PURGE", "/").with("authorization", "Bearer t");
        assert_eq!(site.read(purge).await.status, 204);
        site.read(accepting("gzip")).await;
        assert_eq!(site.calls.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn responses_not_worth_compressing_are_sent_unchanged() {
    let gzip_only = [FIELDS[0], FIELDS[1], ("vary", "accept-encoding")];
    let coded = [FIELDS[0], FIELDS[1], ("content-encoding", "gzip")];
    let no_transform = [FIELDS[0], ("cache-control", "max-age=60, no-transform")];
    let image = [("content-type", "image/png"), FIELDS[1]];
    for (len, fields) in [
        (5_000, &gzip_only[..]),
        (5_000, &coded),
        (5_000, &no_transform),
        (5_000, &image),
        (999, &FIELDS),
    ] {
        let body = text(len);
        let site = site(body.clone(), fields);
        block_on(async {
            for _ in 0..2 {
                let reply = site.read(accepting("gzip, br")).await;
                assert_eq!(reply.text(), body, "{fields:?}");
            }
        });
        assert_eq!(site.calls.load(Ordering::Relaxed), 1, "{fields:?}");
    }
}

#[test]
fn unknown_codings_make_no_forms() {
    let site = site(text(5_000), &FIELDS);
    block_on(async {
        site.read(get("/")).await;
        let before = site.cache.statistics();
        for number in 0..100 {
            let invented = format!("x-{number}, gzip;q=0, identity");
            let reply = site.read(accepting(&invented)).await;
            assert_eq!(reply.field("content-encoding"), None);
        }
        let after = site.cache.statistics();
        assert_eq!(after.memory_bytes, before.memory_bytes);
        assert_eq!(after.memory_objects, before.memory_objects);
    });
}

/// The fields that depend on the coding.
fn described(headers: &apus_http::Headers) -> [Option<String>; 5] {
    let names = [
        "vary",
        "etag",
        "content-encoding",
        "accept-ranges",
        "content-length",
    ];
    names.map(|name| headers.get_str(name).map(ToOwned::to_owned))
}

#[test]
fn head_206_and_304_of_a_stored_response_vary_as_its_200() {
    for (length, kind, varies) in [
        (999, "text/css", false),
        (1000, "text/css", true),
        (20_000, "text/css", true),
        (300_000, "text/css", true),
        (20_000, "image/png", false),
    ] {
        let fields = [("content-type", kind), FIELDS[1], FIELDS[2]];
        let site = site(text(length), &fields);
        block_on(async {
            site.read(get("/")).await;
            for accept in ["br", "zstd", "gzip", "identity"] {
                let name = format!("{length} {kind} {accept}");
                let request = |method: &str| ask(method, "/").with("accept-encoding", accept);
                let expected = varies.then_some("accept-encoding");
                // A long form is made on another thread: GET has the length of that form then.
                let get = loop {
                    let service = site.workers[0].clone();
                    let mut response = service.call(request("GET").request()).wait().await;
                    let length = response.take_body().len();
                    let is_coded = response.headers().contains("content-encoding");
                    if !is_coded || length.is_some() {
                        break (described(response.headers()), length);
                    }
                    tokio::task::yield_now().await;
                };
                let service = site.workers[0].clone();
                let mut head = service.call(request("HEAD").request()).wait().await;
                let length = head.take_body().len();
                assert_eq!((described(head.headers()), length), get, "{name}");
                assert_eq!(get.0[0].as_deref(), expected, "{name}");
                let part = site.read(request("GET").with("range", "bytes=0-9")).await;
                assert_eq!((part.status, part.field("vary")), (206, expected), "{name}");
                let tag = get.0[1].clone().unwrap();
                let same = site.read(request("GET").with("if-none-match", &tag)).await;
                assert_eq!((same.status, same.field("vary")), (304, expected), "{name}");
                assert_eq!(same.field("etag"), Some(&*tag), "{name}");
            }
        });
    }
}

#[test]
fn the_date_in_if_range_does_not_resume_another_form_of_a_stored_response() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (kind, accept, status) in [
        ("text/css", "gzip", 200),
        ("text/css", "identity", 206),
        ("image/png", "gzip", 206),
    ] {
        let fields = [("content-type", kind), FIELDS[1], ("last-modified", date)];
        let site = site(text(20_000), &fields);
        block_on(async {
            site.read(get("/")).await;
            let request = accepting(accept).with("range", "bytes=5-9");
            let reply = site.read(request.with("if-range", date)).await;
            assert_eq!(reply.status, status, "{kind} {accept}");
        });
    }
}
