//! The application with actix-web: `bench-actix PORT`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::future::{Ready, ready};
use std::net::Ipv4Addr;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{Json, Path};
use actix_web::{App, FromRequest, HttpMessage, HttpRequest, HttpServer, get};
use serde::Serialize;

/// What the client reads, as a layer finds out.
#[derive(Clone, Copy)]
struct Language(&'static str);

impl FromRequest for Language {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(request
            .extensions()
            .get()
            .copied()
            .unwrap_or(Self("en"))))
    }
}

async fn language(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let accepted = request.headers().get(header::ACCEPT_LANGUAGE);
    let is_chinese = accepted.is_some_and(|accepted| accepted.as_bytes().starts_with(b"zh"));
    request
        .extensions_mut()
        .insert(Language(if is_chinese { "zh" } else { "en" }));
    next.call(request).await
}

async fn served_by(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let mut response = next.call(request).await?;
    let name = HeaderName::from_static("x-served-by");
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static("bench"));
    Ok(response)
}

#[get("/hello/{name}")]
async fn hello(language: Language, name: Path<String>) -> String {
    match language {
        Language("zh") => format!("你好，{name}！"),
        _ => format!("Hello, {name}!"),
    }
}

#[derive(Serialize)]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

#[get("/json/{id}")]
async fn json(Language(language): Language, id: Path<u32>) -> Json<Swift> {
    Json(Swift {
        id: *id,
        name: "Apus apus",
        language,
    })
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("bench-actix PORT")?.parse()?;
    let application = || {
        App::new()
            .wrap(from_fn(served_by))
            .wrap(from_fn(language))
            .service(hello)
            .service(json)
    };
    HttpServer::new(application)
        .workers(1)
        .bind((Ipv4Addr::LOCALHOST, port))?
        .run()
        .await?;
    Ok(())
}
