//! The application by hand, on hyper: `bench-hyper PORT`.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// What the client reads.
#[derive(Clone, Copy)]
struct Language(&'static str);

async fn respond(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    language(&mut request);
    let mut response = route(&request);
    served_by(&mut response);
    Ok(response)
}

fn language(request: &mut Request<Incoming>) {
    let accepted = request.headers().get(header::ACCEPT_LANGUAGE);
    let is_chinese = accepted.is_some_and(|accepted| accepted.as_bytes().starts_with(b"zh"));
    request
        .extensions_mut()
        .insert(Language(if is_chinese { "zh" } else { "en" }));
}

fn served_by(response: &mut Response<Full<Bytes>>) {
    response
        .headers_mut()
        .insert("x-served-by", HeaderValue::from_static("bench"));
}

fn route(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let Language(language) = *request.extensions().get().unwrap_or(&Language("en"));
    let mut segments = request.uri().path().splitn(3, '/').skip(1);
    match (request.method(), segments.next(), segments.next()) {
        (&Method::GET, Some("hello"), Some(name)) => hello(language, name),
        (&Method::GET, Some("json"), Some(id)) => match id.parse() {
            Ok(id) => json(language, id),
            Err(_) => empty(StatusCode::BAD_REQUEST),
        },
        _ => empty(StatusCode::NOT_FOUND),
    }
}

fn hello(language: &str, name: &str) -> Response<Full<Bytes>> {
    let text = match language {
        "zh" => format!("你好，{name}！"),
        _ => format!("Hello, {name}!"),
    };
    with_body("text/plain; charset=utf-8", text.into())
}

#[derive(Serialize)]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

fn json(language: &'static str, id: u32) -> Response<Full<Bytes>> {
    match serde_json::to_vec(&Swift {
        id,
        name: "Apus apus",
        language,
    }) {
        Ok(json) => with_body("application/json", json.into()),
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn with_body(content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("bench-hyper PORT")?.parse()?;
    Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            loop {
                let (connection, _) = listener.accept().await?;
                tokio::spawn(
                    http1::Builder::new()
                        .serve_connection(TokioIo::new(connection), service_fn(respond)),
                );
            }
        })
}
