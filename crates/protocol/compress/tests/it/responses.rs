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
fn does_not_compress_small_coded_protected_or_binary_bodies() {
    let long = || Response::text(StatusCode::OK, text(5_000));
    let field = |name, value| long().with_header(&name, &HeaderValue::from_static(value));
    let digested = |name: &str| {
        let mut response = long();
        response
            .headers_mut()
            .try_append(name, "sha-256=:x:")
            .unwrap();
        response
    };
    for (name, before) in [
        ("small", Response::text(StatusCode::OK, "small")),
        ("coded", field(header::CONTENT_ENCODING, "br")),
        ("image", field(header::CONTENT_TYPE, "image/png")),
        ("kept", field(header::CACHE_CONTROL, "public, No-Transform")),
        ("negotiated", field(header::VARY, "Accept-Encoding")),
        ("protected", digested("content-digest")),
        ("protected in all codings", digested("repr-digest")),
        ("protected by the older field", digested("digest")),
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

/// A stream without a length.
fn stream(text: String) -> Body {
    Body::stream(PieceStream::of(&[&text]))
}

#[test]
fn head_has_the_fields_of_get_under_compression() {
    // The lengths are around the minimum and around what is compressed at once.
    for length in [0, 1, 1023, 1024, 1025, 32_767, 32_768, 32_769, 200_000] {
        for is_known in [true, false] {
            let body = text(length)[..length].to_owned();
            let made = body.clone();
            let handler = site(move || {
                let body = if is_known {
                    made.clone().into()
                } else {
                    stream(made.clone())
                };
                let tag = HeaderValue::from_static("\"x\"");
                Response::text(StatusCode::OK, "")
                    .with_header(&header::ETAG, &tag)
                    .with_body(body)
            });
            // What a proxy has of the origin: the length, and no body.
            let origin = site(move || {
                let tag = HeaderValue::from_static("\"x\"");
                let mut response =
                    Response::text(StatusCode::OK, "").with_header(&header::ETAG, &tag);
                if is_known {
                    let length = HeaderValue::from(length);
                    response
                        .headers_mut()
                        .insert(&header::CONTENT_LENGTH, &length);
                }
                *response.body_mut() = Body::Bytes(Default::default());
                response
            });
            for accept in ["br", "zstd", "gzip", "identity"] {
                let of = |method: &str, site: &dyn Fn(_) -> Reply| {
                    let reply = site(ask(method, "/").with("accept-encoding", accept));
                    let field = |name| reply.field(name).map(ToOwned::to_owned);
                    ["vary", "content-encoding", "etag", "accept-ranges"].map(field)
                };
                let get = of("GET", &|request: apus_testkit::RequestBuilder| {
                    request.to(&handler)
                });
                let name = format!("{accept}, {length} bytes, known: {is_known}");
                let by_handler = of("HEAD", &|request| request.to(&handler));
                if is_known || length > 0 {
                    assert_eq!(by_handler, get, "{name}");
                }
                let by_origin = of("HEAD", &|request| request.to(&origin));
                assert_eq!(by_origin, get, "{name}");
                let head = ask("HEAD", "/").with("accept-encoding", accept).to(&origin);
                let is_coded = get[1].is_some();
                assert_eq!(
                    head.field("content-length").is_some(),
                    is_known && !is_coded
                );
            }
        }
    }
}

#[test]
fn a_304_and_a_206_vary_as_the_complete_response() {
    type Lines = &'static [(&'static str, &'static str)];
    const PART: (&str, &str) = ("content-range", "bytes 0-9/5000");
    const HTML: (&str, &str) = ("content-type", "text/html");
    let cases: [(u16, Lines, bool); 11] = [
        (304, &[], true),
        (304, &[HTML], true),
        (304, &[("content-type", "image/png")], false),
        (304, &[("cache-control", "no-transform"), HTML], false),
        (206, &[HTML, PART], true),
        (206, &[HTML, ("content-range", "bytes 0-9/1024")], true),
        (206, &[HTML, ("content-range", "bytes 0-9/1023")], false),
        (206, &[HTML, ("content-range", "bytes 0-9/*")], true),
        (206, &[("content-type", "image/png"), PART], false),
        (206, &[HTML, PART, ("content-encoding", "br")], false),
        (206, &[HTML, PART, ("vary", "*")], false),
    ];
    for (status, lines, varies) in cases {
        let site = site(move || {
            let mut response = Response::new(StatusCode::from_u16(status).unwrap());
            for (name, value) in lines {
                response.headers_mut().try_append(name, value).unwrap();
            }
            response.headers_mut().try_append("etag", "\"x\"").unwrap();
            response.with_body(Body::Bytes("0123456789".into()))
        });
        for accept in ["br", "zstd", "gzip", "identity"] {
            let request = || get("/").with("accept-encoding", accept);
            let reply = request().to(&site);
            let vary: Vec<_> = reply.headers.get_all("vary").collect();
            let expected = if varies {
                vec![&b"accept-encoding"[..]]
            } else {
                vary.iter().copied().filter(|line| line == b"*").collect()
            };
            assert_eq!(vary, expected, "{status} {lines:?}");
            // The tag is that which the client has.
            assert_eq!(reply.field("etag"), Some("\"x\""), "{status} {lines:?}");
            let weak = request().with("if-none-match", "\"a\", W/\"x\"").to(&site);
            let expected = if varies && status == 304 {
                "W/\"x\""
            } else {
                "\"x\""
            };
            assert_eq!(weak.field("etag"), Some(expected), "{status} {lines:?}");
        }
    }
}

#[test]
fn the_date_in_if_range_does_not_resume_another_coding() {
    let factory = || {
        service_fn(|request: Request| {
            let is_text = request.path() == "/text";
            let is_part = request.headers().contains("range");
            let mut response = Response::text(StatusCode::OK, text(5_000));
            if !is_text {
                let png = HeaderValue::from_static("image/png");
                response.headers_mut().insert(&header::CONTENT_TYPE, &png);
            }
            if is_part {
                let mut part = Response::new(StatusCode::PARTIAL_CONTENT);
                *part.headers_mut() = response.headers().clone();
                let range = "bytes 10-19/5000";
                part.headers_mut()
                    .try_insert("content-range", range)
                    .unwrap();
                response = part.with_body(Body::Bytes(text(5_000)[10..20].to_owned().into()));
            }
            assert_eq!(request.headers().contains("if-range"), is_part);
            response.into()
        })
    };
    let site = CompressedFactory::new(Compression::default(), factory);
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (path, if_range, accept, status) in [
        ("/text", date, "gzip", 200),
        ("/text", date, "identity", 206),
        ("/text", "\"x\"", "gzip", 206),
        ("/image", date, "gzip", 206),
    ] {
        let request = get(path).with("range", "bytes=10-19");
        let request = request.with("if-range", if_range);
        let reply = request.with("accept-encoding", accept).to(&site);
        assert_eq!(reply.status, status, "{path} {if_range} {accept}");
        if status == 200 {
            assert_eq!(decoded(&reply), text(5_000));
        }
    }
}
