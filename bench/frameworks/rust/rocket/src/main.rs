//! The application with Rocket: `bench-rocket PORT`.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::net::Ipv4Addr;

use rocket::config::{Config, Ident, LogLevel};
use rocket::fairing::AdHoc;
use rocket::http::Header;
use rocket::request::{FromRequest, Outcome};
use rocket::serde::Serialize;
use rocket::serde::json::Json;
use rocket::shield::Shield;
use rocket::{Data, Request, Response, get, routes};

/// What the client reads, as a fairing finds out.
#[derive(Clone, Copy)]
struct Language(&'static str);

impl Language {
    fn accepted(request: &Request<'_>) -> Self {
        let accepted = request.headers().get_one("accept-language");
        Self(
            if accepted.is_some_and(|accepted| accepted.starts_with("zh")) {
                "zh"
            } else {
                "en"
            },
        )
    }
}

#[rocket::async_trait]
impl<'r> FromRequest<'r> for Language {
    type Error = Infallible;

    async fn from_request(request: &'r Request<'_>) -> Outcome<Self, Infallible> {
        Outcome::Success(*request.local_cache(|| Self("en")))
    }
}

fn language(request: &mut Request<'_>) {
    request.local_cache(|| Language::accepted(request));
}

fn served_by(response: &mut Response<'_>) {
    response.set_header(Header::new("x-served-by", "bench"));
}

#[get("/hello/<name>")]
fn hello(language: Language, name: &str) -> String {
    match language {
        Language("zh") => format!("你好，{name}！"),
        _ => format!("Hello, {name}!"),
    }
}

#[derive(Serialize)]
#[serde(crate = "rocket::serde")]
struct Swift {
    id: u32,
    name: &'static str,
    language: &'static str,
}

#[get("/json/<id>")]
fn json(language: Language, id: u32) -> Json<Swift> {
    Json(Swift {
        id,
        name: "Apus apus",
        language: language.0,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args()
        .nth(1)
        .ok_or("bench-rocket PORT")?
        .parse()?;
    // Without the fields and lines of log that others do not have either.
    let config = Config {
        port,
        address: Ipv4Addr::LOCALHOST.into(),
        workers: 1,
        ident: Ident::none(),
        log_level: LogLevel::Off,
        ..Config::release_default()
    };
    let launched = rocket::custom(config)
        .attach(Shield::new())
        .attach(AdHoc::on_request(
            "language",
            |request: &mut Request<'_>, _: &Data<'_>| Box::pin(async move { language(request) }),
        ))
        .attach(AdHoc::on_response("served by", |_, response| {
            Box::pin(async move { served_by(response) })
        }))
        .mount("/", routes![hello, json])
        .launch();
    rocket::execute(launched)?;
    Ok(())
}
