//! Protection against cross-site request forgery.

use apus::App;
use apus::auth::{Csrf, CsrfToken};
use apus::session::{Key, MemoryStore, Session, Sessions};
use apus::testing::{TestClient, TestRequest};

use apus_testkit::PieceStream;

fn app(csrf: Csrf) -> App {
    App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .layer(csrf)
        .get("/token", async |token: CsrfToken| -> apus::Result<_> {
            Ok(token.token().await?)
        })
        .get("/field", async |token: CsrfToken| -> apus::Result<_> {
            Ok(token.field().await?)
        })
        .get("/plain", async || "plain")
        .get("/renew", async |session: Session| session.renew())
        .post("/", async |body: String| body)
        .delete("/", async || "deleted")
}

fn both() -> [TestClient; 2] {
    let key = Key::new([1; 32]).unwrap();
    [Csrf::new(), Csrf::with_cookie(key)].map(|csrf| TestClient::new(app(csrf)))
}

fn token(client: &TestClient) -> String {
    client.get("/token").send().assert_ok().text()
}

const FORM: &str = "application/x-www-form-urlencoded";

fn form(client: &TestClient, body: impl Into<String>) -> TestRequest {
    client
        .post("/")
        .header("content-type", FORM)
        .body(body.into())
}

#[test]
fn a_form_with_token_reaches_the_handler_unchanged() {
    for client in both() {
        let token = token(&client);
        let body = format!("a=b&csrf_token={token}&c=d");
        form(&client, body.clone()).send().assert_text(&body);
        let head = "--B\r\nContent-Disposition: form-data; name=";
        let body = format!(
            "{head}\"csrf_token\"\r\n\r\n{token}\r\n\
             {head}\"file\"; filename=\"a\"\r\n\r\n{}\r\n--B--\r\n",
            "x".repeat(100_000)
        );
        client
            .post("/")
            .header("content-type", "multipart/form-data; boundary=\"B\"")
            .body(body.clone())
            .send()
            .assert_text(&body);
    }
}

#[test]
fn a_form_in_pieces_reaches_the_handler_unchanged() {
    for client in both() {
        let token = token(&client);
        let (start, end) = token.split_at(10);
        let body = ["a=b&csrf_", "token=", start, end, "&c=", "d"];
        client
            .post("/")
            .header("content-type", FORM)
            .body(apus::Body::stream(PieceStream::of(&body)))
            .send()
            .assert_text(&body.concat());
    }
}

#[test]
fn a_form_in_tiny_pieces_is_searched_in_linear_time() {
    let client = TestClient::new(app(Csrf::new()));
    let token = token(&client);
    let body = format!("x={}&csrf_token={token}", "y".repeat(60_000));
    let pieces: Vec<&str> = body.split_inclusive(|_| true).collect();
    client
        .post("/")
        .header("content-type", FORM)
        .body(apus::Body::stream(PieceStream::of(&pieces)))
        .send()
        .assert_text(&body);
}

#[test]
fn a_script_with_the_token_in_a_field_is_accepted() {
    for client in both() {
        let token = token(&client);
        client
            .delete("/")
            .header("x-csrf-token", &token)
            .send()
            .assert_text("deleted");
        client
            .post("/")
            .header("x-csrf-token", &token)
            .header("content-type", "application/json")
            .body("{}")
            .send()
            .assert_text("{}");
    }
}

#[test]
fn requests_without_the_token_of_the_visitor_are_rejected() {
    for (client, stranger) in both().into_iter().zip(both()) {
        form(&client, "a=b").send().assert_status(403);
        client.delete("/").send().assert_status(403);
        let own = token(&client);
        let others = token(&stranger);
        for wrong in ["", "x", &others, &own[1..], &own.to_lowercase()] {
            form(&client, format!("csrf_token={wrong}"))
                .send()
                .assert_status(403);
            client
                .delete("/")
                .header("x-csrf-token", wrong)
                .send()
                .assert_status(403);
        }
        // A body that is not a form is not searched.
        client
            .post("/")
            .header("content-type", "text/plain")
            .body(format!("csrf_token={own}"))
            .send()
            .assert_status(403);
        client.clear_cookies();
        form(&client, format!("csrf_token={own}"))
            .send()
            .assert_status(403);
    }
}

#[test]
fn pages_of_other_sites_are_rejected_even_with_token() {
    for client in both() {
        let token = token(&client);
        let from = |fields: &[(&str, &str)]| {
            let mut request = client.delete("/").header("x-csrf-token", &token);
            for (name, value) in fields {
                request = request.header(name, value);
            }
            request
                .header("host", "shop.example:8080")
                .send()
                .status()
                .as_u16()
        };
        for (fields, status) in [
            (&[("sec-fetch-site", "same-origin")][..], 200),
            (&[("sec-fetch-site", "none")], 200),
            (&[("sec-fetch-site", "cross-site")], 403),
            (&[("sec-fetch-site", "same-site")], 403),
            (&[("sec-fetch-site", "new-word")], 403),
            (&[("origin", "http://shop.example:8080")], 200),
            (&[("origin", "http://SHOP.example:8080")], 200),
            (&[("origin", "https://shop.example:8080")], 403),
            (&[("origin", "http://shop.example")], 403),
            (&[("origin", "http://evil.example")], 403),
            (&[("origin", "http://shop.example:8080.evil.example")], 403),
            (&[("origin", "null")], 403),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "http://shop.example:8080"),
                ],
                403,
            ),
        ] {
            assert_eq!(from(fields), status, "{fields:?}");
        }
    }
}

#[test]
fn a_trusted_origin_needs_the_token() {
    let client = TestClient::new(app(Csrf::new().trust_origin("https://admin.example")));
    let token = token(&client);
    let cross = || {
        let request = client.delete("/").header("sec-fetch-site", "cross-site");
        request.header("origin", "https://admin.example")
    };
    cross().send().assert_status(403);
    cross().header("x-csrf-token", &token).send().assert_ok();
    let other = cross().header("origin", "https://other.example");
    other
        .header("x-csrf-token", &token)
        .send()
        .assert_status(403);
}

#[test]
fn requests_can_be_exempt() {
    let csrf = Csrf::new().exempt(|request| request.headers().contains("authorization"));
    let client = TestClient::new(app(csrf));
    client.delete("/").bearer("token").send().assert_ok();
    client.delete("/").send().assert_status(403);
}

#[test]
fn tokens_differ_each_time_and_are_valid_until_log_in() {
    let client = TestClient::new(app(Csrf::new()));
    let (one, other) = (token(&client), token(&client));
    assert_ne!(one, other);
    for token in [&one, &other] {
        client
            .delete("/")
            .header("x-csrf-token", token)
            .send()
            .assert_ok();
    }
    client.get("/renew").send();
    client
        .delete("/")
        .header("x-csrf-token", &one)
        .send()
        .assert_status(403);
    let new = token(&client);
    client
        .delete("/")
        .header("x-csrf-token", &new)
        .send()
        .assert_ok();
}

#[test]
fn a_page_without_a_form_sets_no_cookie() {
    for client in both() {
        client.get("/plain").send().assert_no_header("set-cookie");
        let mut page = client.get("/field").send();
        assert!(page.headers().contains("set-cookie"));
        let text = page.text();
        let start = "<input type=\"hidden\" name=\"csrf_token\" value=\"";
        assert!(text.starts_with(start) && text.ends_with("\">"), "{text}");
        client.get("/field").send().assert_no_header("set-cookie");
    }
}

#[test]
fn a_cookie_of_another_site_is_rejected() {
    let client = TestClient::new(app(Csrf::with_cookie(Key::new([1; 32]).unwrap())));
    let attacker = TestClient::new(app(Csrf::with_cookie(Key::new([2; 32]).unwrap())));
    let token = token(&attacker);
    client.set_cookie("csrf", &attacker.cookie("csrf").unwrap());
    client
        .delete("/")
        .header("x-csrf-token", &token)
        .send()
        .assert_status(403);
}

#[test]
fn a_form_is_searched_up_to_a_limit() {
    let client = TestClient::new(app(Csrf::new().form_limit(1000)));
    let token = token(&client);
    let pieces = |before: usize| {
        let parts = ["x=", &"y".repeat(before), "&csrf_token=", &token, "&", "z"];
        let body = apus::Body::stream(PieceStream::of(&parts));
        client.post("/").header("content-type", FORM).body(body)
    };
    pieces(500).send().assert_ok();
    pieces(2000).send().assert_status(403);
}

#[test]
fn without_the_layers_requests_are_rejected() {
    let app = App::new().get("/", async |_: CsrfToken| "never");
    TestClient::of(app).get("/").send().assert_status(500);
    let app = App::new().layer(Csrf::new()).post("/", async || "done");
    let client = TestClient::of(app);
    client
        .post("/")
        .header("x-csrf-token", "x")
        .send()
        .assert_status(403);
}

#[test]
fn a_test_sends_the_token_of_a_page() {
    for client in both() {
        let sent = client.post("/").token_of("/field").form([("a", "b")]);
        sent.send().assert_text("a=b");
        client.delete("/").token_of("/field").send().assert_ok();
        client.delete("/").send().assert_status(403);
    }
}

#[test]
#[should_panic(expected = "has no field csrf_token")]
fn a_page_without_a_token_fails_the_test() {
    let _ = both()[0].post("/").token_of("/plain");
}

/// A page with a token that no request could send back is worse than none.
#[test]
fn a_token_without_or_outside_of_sessions_is_a_500() {
    let sessions = || Sessions::new(MemoryStore::new());
    let page = async |token: CsrfToken| token.field().await.map_err(apus::Error::from);
    let outside = App::new()
        .layer(Csrf::new())
        .layer(sessions())
        .get("/", page);
    for app in [App::new().layer(Csrf::new()).get("/", page), outside] {
        assert!(app.check().is_err());
        let mut response = TestClient::of(app).get("/").send();
        assert!(!response.assert_status(500).text().contains("csrf_token"));
    }
    let app = App::new()
        .layer(sessions())
        .layer(Csrf::new())
        .get("/", page);
    TestClient::new(app)
        .get("/")
        .send()
        .assert_ok()
        .assert_contains("csrf_token");
}
