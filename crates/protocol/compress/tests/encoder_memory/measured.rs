//! The memory of an encoder compared with its reservation.

use std::fs;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_compress::{CompressedFactory, Compression};
use apus_http::{
    Body, ConnectionInfo, Frame, Headers, Method, Peer, Request, RequestParts, Response,
    ResponseFuture, ResponseMemory, ServiceFactory, StatusCode, Target, Version, service_fn,
};
use bytes::Bytes;

/// The number of encoders that are measured together, so that other pages count little.
const BODIES: u64 = 4;

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<u64>().unwrap() << 10
}

/// Varied text that is longer than the windows of the encoders.
fn text() -> Bytes {
    let mut state = 1_u64;
    let mut text = String::new();
    while text.len() < 400 << 10 {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text += &format!(
            "line {} word{} <b>{}</b>\n",
            state % 1000,
            state % 317,
            state % 77_777
        );
    }
    text.into()
}

fn get(id: u64, accept: &str) -> Request {
    let mut headers = Headers::new();
    headers.try_append("accept-encoding", accept).unwrap();
    Request::new(RequestParts {
        method: Method::GET,
        target: Target::parse(&Method::GET, "/").unwrap(),
        version: Version::HTTP_11,
        headers,
        body: Body::Empty,
        connection: Rc::new(ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id,
            peer: Peer::Unix,
            local: Peer::Unix,
            tls: None,
        }),
        extensions: Default::default(),
    })
}

/// Polls a response until nearly all of its body is compressed.
fn begun(mut response: Response) -> Response {
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..12 {
        match response.body_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(Frame::Data(_)))) | Poll::Pending => {}
            other => panic!("{other:?}"),
        }
    }
    response
}

#[test]
fn an_encoder_takes_no_more_memory_than_reserved() {
    let memory = ResponseMemory::of_process();
    memory.set_limit(1 << 30);
    let text = text();
    let levels = [
        ("br", 0),
        ("br", 2),
        ("br", 4),
        ("br", 5),
        ("br", 9),
        ("br", 10),
        ("zstd", 1),
        ("zstd", 3),
        ("zstd", 9),
        ("zstd", 19),
        ("gzip", 5),
    ];
    for (coding, level) in levels {
        let compression = Compression {
            gzip_level: level,
            brotli_level: level,
            zstd_level: level,
            ..Compression::DEFAULT
        };
        let text = text.clone();
        let factory = move || {
            let text = text.clone();
            service_fn(move |_: Request| Response::text(StatusCode::OK, text.clone()).into())
        };
        let service = CompressedFactory::new(compression, factory).service();
        let before = resident();
        let responses: Vec<_> = (0..BODIES)
            .map(|id| match service.call(get(id, coding)) {
                ResponseFuture::Now(response) => begun(response),
                ResponseFuture::Later(_) => panic!("not at once"),
            })
            .collect();
        let taken = resident().saturating_sub(before) / BODIES;
        let reserved = memory.used() / BODIES;
        eprintln!(
            "{coding} {level}: {} KB of {} KB",
            taken >> 10,
            reserved >> 10
        );
        assert!(
            taken <= reserved,
            "{coding} {level}: {taken} of {reserved} bytes"
        );
        drop(responses);
        assert_eq!(memory.used(), 0);
    }
}
