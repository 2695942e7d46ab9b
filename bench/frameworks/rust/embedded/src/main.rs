//! Bodies from memory with Apus in Rust: `bench-embedded PORT FOLDER`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;

use apus::{App, HeaderName, HeaderValue, Response, Server, StatusCode};
use bytes::Bytes;

static CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");

const HTML: &str = "text/html; charset=utf-8";
const BODIES: [(&str, &str); 4] = [
    ("/12b.html", HTML),
    ("/1k.html", HTML),
    ("/10k.html", HTML),
    ("/100k.bin", "application/octet-stream"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "bench-embedded PORT FOLDER";
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().ok_or(usage)?.parse()?;
    let folder = arguments.next().ok_or(usage)?;
    let mut app = App::new();
    for (path, media_type) in BODIES {
        let bytes = Bytes::from(std::fs::read(format!("{folder}{path}"))?);
        let media_type = HeaderValue::from_static(media_type);
        app = app.get(path, move || {
            let response = Response::new(StatusCode::OK).with_header(&CONTENT_TYPE, &media_type);
            std::future::ready(response.with_body(bytes.clone()))
        });
    }
    Server::new(app)
        .workers(NonZeroUsize::MIN)
        .listen((Ipv4Addr::LOCALHOST, port))?
        .run()?;
    Ok(())
}
