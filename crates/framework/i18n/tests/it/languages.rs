//! The language of a request: cookies, fields, and what an application chooses.

use apus_handler::{HandlerService, Layered};
use apus_http::{Method, Request};
use apus_i18n::{Language, Translations};
use apus_testkit::{LocalClient, get};

const ENGLISH: &str = "hello = Hello, { $name }!
cart = { $count ->
    [one] one bird
   *[other] { $count } birds
}
price = { NUMBER($value, minimumFractionDigits: 2) }
only-english = English
";

const POLISH: &str = "hello = Cześć, { $name }!
cart = { $count ->
    [one] jeden ptak
    [few] { $count } ptaki
   *[many] { $count } ptaków
}
validation-email = to nie jest adres
";

pub(crate) fn translations() -> Translations {
    let files = [("pl.ftl", POLISH), ("en.ftl", ENGLISH)];
    Translations::embedded("en", files).unwrap()
}

/// What the path names, in the language of the request.
async fn respond(language: Language, request: Request) -> String {
    match request.path() {
        "/tag" => language.tag().to_owned(),
        "/price" => language.text_with("price", [("value", 2.5.into())]),
        "/only" => language.text("only-english"),
        "/none" => language.text("no-such-key"),
        path => {
            let count: u32 = path[1..].parse().unwrap();
            let hello = language.text_with("hello", [("name", "Ada".into())]);
            let cart = language.text_with("cart", [("count", count.into())]);
            format!("{hello} {cart}")
        }
    }
}

fn service() -> Layered {
    Layered::new(HandlerService::new(respond)).layer(translations())
}

#[test]
fn each_request_has_its_language_on_every_worker() {
    let service = service();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let worker = LocalClient::of(&service);
                for (accepted, path, expected, language) in [
                    ("pl-PL, en;q=0.5", "/22", "Cześć, Ada! 22 ptaki", "pl"),
                    ("en-GB, pl;q=0.5", "/22", "Hello, Ada! 22 birds", "en"),
                    ("fr", "/22", "Hello, Ada! 22 birds", "en"),
                    ("pl", "/1", "Cześć, Ada! jeden ptak", "pl"),
                    ("pl", "/25", "Cześć, Ada! 25 ptaków", "pl"),
                ] {
                    let reply = worker.send(get(path).with("accept-language", accepted));
                    let text = reply.text().replace(['\u{2068}', '\u{2069}'], "");
                    assert_eq!(text, expected);
                    assert_eq!(reply.field("content-language"), Some(language));
                    assert_eq!(reply.field("vary"), Some("accept-language, cookie"));
                }
            });
        }
    });
}

#[test]
fn the_cookie_of_a_visitor_is_before_the_field_of_the_browser() {
    let worker = LocalClient::of(&service());
    let tag = || get("/tag").with("accept-language", "en");
    assert_eq!(worker.send(tag()).text(), "en");
    for (cookie, expected) in [
        ("language=pl", "pl"),
        // A language that the application does not have, and what is no tag, do not count.
        ("language=fr", "en"),
        ("language=..%2F..%2Fetc%2Fpasswd", "en"),
        ("language=../../etc/passwd", "en"),
    ] {
        assert_eq!(worker.send(tag().with("cookie", cookie)).text(), expected);
    }
}

#[test]
fn responses_that_need_no_language_do_not_vary() {
    let plain = HandlerService::new(|| "plain");
    let reply = LocalClient::of(&Layered::new(plain).layer(translations())).send(get("/plain"));
    assert_eq!(reply.text(), "plain");
    assert_eq!(reply.field("vary"), None);
    assert_eq!(reply.field("content-language"), None);
}

#[test]
fn a_text_that_a_language_lacks_is_that_of_the_first() {
    let worker = LocalClient::of(&service());
    for (path, expected) in [
        ("/only", "English"),
        ("/none", "no-such-key"),
        ("/price", "2.50"),
    ] {
        let reply = worker.send(get(path).with("accept-language", "pl"));
        assert_eq!(reply.text(), expected);
    }
    let missing = translations().missing();
    assert!(
        missing.contains(&"pl: only-english".to_owned()),
        "{missing:?}"
    );
    assert!(
        missing.contains(&"en: validation-email".to_owned()),
        "{missing:?}"
    );
}

#[test]
fn a_language_that_the_application_chooses_is_before_that_of_the_client() {
    // The choice is a method here, and in a session elsewhere.
    let chosen = translations().chosen_by(async |method: Method| match method.as_str() {
        "PUT" => Some("en".to_owned()),
        "PATCH" => Some("fr".to_owned()),
        _ => None,
    });
    let worker = LocalClient::of(&Layered::new(HandlerService::new(respond)).layer(chosen));
    for (method, expected) in [("GET", "pl"), ("PUT", "en"), ("PATCH", "pl")] {
        let request = apus_testkit::ask(method, "/tag").with("accept-language", "pl");
        let reply = worker.send(request);
        assert_eq!(reply.text(), expected, "{method}");
        assert_eq!(reply.field("content-language"), Some(expected));
    }
}
