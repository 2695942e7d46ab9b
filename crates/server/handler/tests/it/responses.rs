//! Errors and responses of handlers.

use std::pin::Pin;
use std::task::{Context, Poll};

use apus_handler::{
    Error, ErrorFormat, ErrorTemplate, Html, IntoResponse, Json, OrNotFound, Redirect, Streaming,
};
use apus_http::{Headers, Response, ServiceFactory, StatusCode};
use apus_testkit::{LocalClient, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::harness::Routes;

#[test]
fn errors_have_the_names_of_their_statuses() {
    for (error, status) in [
        (Error::bad_request("a"), 400),
        (Error::unauthorized("a"), 401),
        (Error::forbidden("a"), 403),
        (Error::not_found("a"), 404),
        (Error::conflict("a"), 409),
        (Error::gone("a"), 410),
        (Error::unprocessable("a"), 422),
        (Error::too_many_requests("a"), 429),
        (Error::unavailable("a"), 503),
    ] {
        assert_eq!(error.status_code().as_u16(), status);
        assert_eq!(error.detail(), Some("a"));
    }
    assert_eq!(Some(1).or_404().unwrap(), 1);
    let error = None::<u8>.or_404().unwrap_err();
    assert_eq!((error.status_code().as_u16(), error.detail()), (404, None));
    let error = None::<u8>.or_not_found("no user").unwrap_err();
    assert_eq!(error.detail(), Some("no user"));
}

#[test]
fn the_errors_of_a_template_are_as_if_each_was_made_by_itself() {
    let made = || {
        Error::too_many_requests("wait")
            .kind("https://example.com/limit")
            .title("Too much")
            .with("policies", ["a"])
    };
    let template = ErrorTemplate::new(made());
    type Change = fn(Error) -> Error;
    let changes: [Change; 4] = [
        |error| error,
        |error| error.status(StatusCode::SERVICE_UNAVAILABLE),
        |error| error.with("policies", ["b"]).title("Other"),
        |error| error.header(http::header::RETRY_AFTER, 7.into()),
    ];
    let formats = [ErrorFormat::Html, ErrorFormat::Json, ErrorFormat::Text];
    // Twice, because the first error makes the bodies.
    for format in formats.into_iter().chain(formats) {
        for change in changes {
            let sent = |error| {
                let rendering = apus_handler::Rendering::for_client(Some(format));
                let mut response = rendering.respond(change(error));
                let body = response.take_body();
                (
                    response.status(),
                    response.headers().clone(),
                    format!("{body:?}"),
                )
            };
            assert_eq!(sent(template.error()), sent(made()));
        }
    }
    assert_eq!(template.error().detail(), Some("wait"));
    assert_eq!(
        template.error().member("policies"),
        made().member("policies")
    );
}

#[test]
fn any_response_can_have_fields() {
    let app = Routes::new()
        .get("/", async || {
            Json([1]).with("cache-control", "no-store").with("x-a", "b")
        })
        .get("/bad", async || "text".with("x-a", "b\r\nx-c: d"));
    let client = LocalClient::of(&app);
    let reply = client.send(get("/"));
    assert_eq!(reply.text(), "[1]");
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(reply.field("x-a"), Some("b"));
    let reply = client.send(get("/bad"));
    assert_eq!((reply.status, reply.field("x-c")), (500, None));
}

struct Numbers(u8);

impl futures_core::Stream for Numbers {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0 += 1;
        Poll::Ready((self.0 <= 3).then(|| Ok(Bytes::from(self.0.to_string()))))
    }
}

#[test]
fn handlers_can_return_many_types() {
    #[derive(Debug)]
    struct Teapot;
    impl IntoResponse for Teapot {
        fn into_response(self) -> Response {
            (StatusCode::IM_A_TEAPOT, "short and stout").into_response()
        }
    }
    async fn fails() -> apus_handler::Result<&'static str> {
        Err(std::io::Error::other("secret"))?;
        Ok("never")
    }
    let app = Routes::new()
        .get("/html", async || Html("<p>hi"))
        .get("/status", async || StatusCode::ACCEPTED)
        .get("/fields", async || {
            ([("x-a", "1"), ("content-type", "a/b")], "x")
        })
        .get("/bad", async || ([("x-a", "1\n2")], "x"))
        .get("/err", async || Err::<(), _>(Teapot))
        .get("/none", async || None::<String>)
        .get("/fails", fails)
        .get("/away", async || Redirect::to("/html"))
        .get("/nothing", async || ())
        .get("/stream", async || Streaming(Numbers(0)))
        .get("/explicit", async || {
            Err::<Response, Error>(std::fmt::Error.into())
        });
    let service = app.service();
    let reply = get("/html").of(&service);
    assert_eq!(
        reply.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(get("/status").of(&service).status, 202);
    let reply = get("/fields").of(&service);
    assert_eq!(
        (reply.field("x-a"), reply.field("content-type")),
        (Some("1"), Some("a/b"))
    );
    assert_eq!(get("/bad").of(&service).status, 500);
    let reply = get("/err").of(&service);
    assert_eq!((reply.status, reply.text()), (418, "short and stout"));
    assert_eq!(get("/none").of(&service).status, 404);
    let reply = get("/fails").of(&service);
    assert_eq!((reply.status, reply.text()), (500, ""));
    let reply = get("/away").of(&service);
    assert_eq!(
        (reply.status, reply.field("location")),
        (303, Some("/html"))
    );
    assert_eq!(get("/nothing").of(&service).status, 204);
    assert_eq!(get("/stream").of(&service).text(), "123");
    assert_eq!(get("/explicit").of(&service).status, 500);
}

#[test]
fn fields_and_a_status_are_set_on_any_response() {
    fn fields() -> HeaderMap {
        let mut fields = HeaderMap::new();
        fields.append("x-kind", HeaderValue::from_static("a"));
        fields.append("x-kind", HeaderValue::from_static("b"));
        fields.insert("content-type", HeaderValue::from_static("text/csv"));
        fields
    }
    fn own_fields() -> Headers {
        let mut headers = Headers::new();
        headers.try_append("X-Kind", "a").unwrap();
        headers.try_append("x-kind", "b").unwrap();
        headers.try_append("Content-Type", "text/csv").unwrap();
        headers
    }
    let app = Routes::new()
        .get("/map", async || (fields(), "1;2"))
        .get("/map/202", async || (StatusCode::ACCEPTED, fields(), "1;2"))
        .get("/own", async || (own_fields(), "1;2"))
        .get("/own/202", async || {
            (
                StatusCode::ACCEPTED,
                own_fields(),
                Ok::<_, StatusCode>("1;2"),
            )
        });
    for path in ["/map", "/own"] {
        for (path, status) in [(path.to_owned(), 200), (format!("{path}/202"), 202)] {
            let reply = crate::harness::get(app.clone(), &path, &[]);
            assert_eq!((reply.status, reply.text()), (status, "1;2"));
            let found: Vec<_> = reply.fields("x-kind").collect();
            assert_eq!(found, ["a", "b"]);
            let found: Vec<_> = reply.fields("content-type").collect();
            assert_eq!(found, ["text/csv"]);
        }
    }
}
