//! Compression of dynamic responses.

use std::io::Read;
use std::task::{Context, Poll, Waker};

use apus_compress::{CompressedFactory, Compression};
use apus_http::{
    Body, Frame, HeaderValue, Request, Response, ServiceFactory, StatusCode, header, service_fn,
};
use apus_testkit::{PieceStream, Reply, ask, get};

fn text(length: usize) -> String {
    "All swifts are birds, and some birds are swifts.\n".repeat(length / 49 + 1)
}

fn decoded(reply: &Reply) -> String {
    let mut text = String::new();
    let body = &reply.content[..];
    match reply.field("content-encoding") {
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut text),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .unwrap()
            .read_to_string(&mut text),
        Some("gzip") => flate2::read::MultiGzDecoder::new(body).read_to_string(&mut text),
        _ => (&mut &*body).read_to_string(&mut text),
    }
    .unwrap();
    text
}

/// A service that compresses the responses of `make`.
fn site(
    make: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> CompressedFactory<impl ServiceFactory> {
    let factory = move || {
        let make = make.clone();
        service_fn(move |_: Request| make().into())
    };
    CompressedFactory::new(Compression::default(), factory)
}

#[test]
fn takes_the_coding_that_the_client_prefers() {
    for length in [2_000, 30_000, 500_000] {
        let site = site(move || Response::text(StatusCode::OK, text(length)));
        for (accept, coding) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip, zstd", Some("zstd")),
            ("gzip", Some("gzip")),
            ("gzip;q=1, br;q=0.5", Some("gzip")),
            ("br;q=0", None),
            ("deflate", None),
        ] {
            let reply = get("/").with("accept-encoding", accept).to(&site);
            assert_eq!(reply.field("content-encoding"), coding, "{accept}");
            assert_eq!(reply.field("vary"), Some("accept-encoding"), "{accept}");
            assert_eq!(decoded(&reply), text(length), "{accept} {length}");
        }
        assert_eq!(get("/").to(&site).field("content-encoding"), None);
    }
}

#[test]
fn does_not_compress_small_coded_partial_or_binary_bodies() {
    let long = || Response::text(StatusCode::OK, text(5_000));
    let field = |name, value| long().with_header(&name, &HeaderValue::from_static(value));
    for (name, before) in [
        ("small", Response::text(StatusCode::OK, "small")),
        ("coded", field(header::CONTENT_ENCODING, "br")),
        ("image", field(header::CONTENT_TYPE, "image/png")),
        ("kept", field(header::CACHE_CONTROL, "public, No-Transform")),
        ("negotiated", field(header::VARY, "Accept-Encoding")),
        (
            "partial",
            Response::text(StatusCode::PARTIAL_CONTENT, text(5_000)),
        ),
    ] {
        let (status, headers) = (before.status(), before.headers().clone());
        let Body::Bytes(body) = before.body() else {
            panic!("not in memory");
        };
        let body = body.clone();
        let made = headers.clone();
        let site = site(move || {
            let mut response = Response::new(status).with_body(body.clone());
            *response.headers_mut() = made.clone();
            response
        });
        let reply = get("/").with("accept-encoding", "br").to(&site);
        assert_eq!(reply.headers, headers, "{name}");
    }
}

#[test]
fn a_compressed_response_has_a_weak_entity_tag_and_no_stale_length() {
    let site = site(|| {
        let body = text(5_000);
        let length = HeaderValue::from(body.len());
        Response::text(StatusCode::OK, body)
            .with_header(&header::ETAG, &HeaderValue::from_static("\"x\""))
            .with_header(&header::CONTENT_LENGTH, &length)
            .with_header(&header::ACCEPT_RANGES, &HeaderValue::from_static("bytes"))
    });
    let reply = get("/").with("accept-encoding", "gzip").to(&site);
    assert_eq!(reply.field("etag"), Some("W/\"x\""));
    assert_eq!(reply.field("content-length"), None);
    assert_eq!(reply.field("accept-ranges"), None);
    let head = ask("HEAD", "/").with("accept-encoding", "gzip").to(&site);
    assert_eq!(head.field("content-encoding"), Some("gzip"));
    assert_eq!(head.field("content-length"), None);
    let plain = get("/").to(&site);
    assert_eq!(plain.field("etag"), Some("\"x\""));
}

#[test]
fn every_event_of_a_stream_is_flushed() {
    for accept in ["br", "zstd", "gzip"] {
        let factory = || {
            service_fn(|_: Request| {
                Response::new(StatusCode::OK)
                    .with_header(
                        &header::CONTENT_TYPE,
                        &HeaderValue::from_static("text/event-stream"),
                    )
                    .with_body(Body::stream(PieceStream::of(&[
                        "data: 1\n\n",
                        "data: 2\n\n",
                    ])))
                    .into()
            })
        };
        let service = CompressedFactory::new(Compression::default(), factory).service();
        let apus_http::ResponseFuture::Now(mut response) =
            service.call(get("/").with("accept-encoding", accept).request())
        else {
            panic!("not at once");
        };
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(Frame::Data(first)))) = response.body_mut().poll_frame(&mut cx)
        else {
            panic!("no first frame");
        };
        let mut seen = [0; 9];
        let mut reader: Box<dyn Read> = match accept {
            "br" => Box::new(brotli::Decompressor::new(&first[..], 4096)),
            "zstd" => Box::new(zstd::stream::read::Decoder::new(&first[..]).unwrap()),
            _ => Box::new(flate2::read::GzDecoder::new(&first[..])),
        };
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"data: 1\n\n", "{accept}");
    }
}

#[test]
fn the_level_is_that_of_the_configuration() {
    // Random words, whose compressed size depends on the level.
    let mut state = 1_u64;
    let words: String = (0..20_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            format!("word{} ", (state >> 33) % 3000)
        })
        .collect();
    for accept in ["br", "zstd", "gzip"] {
        let sizes = [1, 9].map(|level| {
            let compression = Compression {
                gzip_level: level,
                brotli_level: level,
                zstd_level: level,
                ..Compression::DEFAULT
            };
            let text = words.clone();
            let factory = move || {
                let text = text.clone();
                service_fn(move |_: Request| Response::text(StatusCode::OK, text.clone()).into())
            };
            let compressed = CompressedFactory::new(compression, factory);
            let reply = get("/").with("accept-encoding", accept).to(&compressed);
            assert!(decoded(&reply) == words);
            reply.content.len()
        });
        assert!(sizes[1] < sizes[0], "{accept}: {sizes:?}");
    }
}
