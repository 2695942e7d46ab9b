//! Sessions in a cookie.

use std::time::Duration;

use apus::session::{EncryptedCookie, Key, SessionBackend, Sessions, SignedCookie};
use apus::testing::TestClient;

use super::{Clock, app};

fn key(byte: u8) -> Key {
    Key::new([byte; 32]).unwrap()
}

/// Both kinds of cookie. The first key is current, the others are old.
fn both(keys: &[u8]) -> [SessionBackend; 2] {
    let (first, old) = keys.split_first().unwrap();
    let encrypted = EncryptedCookie::new(&key(*first));
    let signed = SignedCookie::new(&key(*first));
    [
        old.iter()
            .fold(encrypted, |cookie, one| cookie.accept(&key(*one)))
            .into(),
        old.iter()
            .fold(signed, |cookie, one| cookie.accept(&key(*one)))
            .into(),
    ]
}

fn visitor(backend: impl Into<SessionBackend>) -> TestClient {
    TestClient::new(app(Sessions::new(backend)))
}

#[test]
fn values_in_a_cookie_can_be_read_changed_and_removed() {
    for backend in both(&[1]) {
        let visitor = visitor(backend);
        visitor
            .get("/get?name=a")
            .send()
            .assert_text("")
            .assert_no_header("set-cookie");
        visitor
            .get("/set?name=a&value=%C3%BC")
            .send()
            .assert_status(204);
        visitor.get("/set?name=b&value=2").send();
        visitor
            .get("/get?name=a")
            .send()
            .assert_text("ü")
            .assert_no_header("set-cookie");
        visitor
            .get("/set?name=a&value=%C3%BC")
            .send()
            .assert_no_header("set-cookie");
        visitor.get("/renew").send();
        visitor.get("/get?name=b").send().assert_text("2");
        visitor.get("/switch").send().assert_text("");
        visitor.get("/get?name=b").send().assert_text("");
        visitor.get("/destroy").send();
        assert_eq!(visitor.cookie("session"), None);
    }
}

#[test]
fn changed_cookies_are_rejected() {
    let is_readable = both(&[1]).map(|backend| {
        let visitor = visitor(backend);
        visitor.get("/set?name=secret&value=hidden").send();
        let cookie = visitor.cookie("session").unwrap();
        for at in 0..cookie.len() {
            let mut changed = cookie.clone().into_bytes();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            visitor.set_cookie("session", &String::from_utf8(changed).unwrap());
            visitor.get("/get?name=secret").send().assert_text("");
        }
        let text = cookie.split('.').next().unwrap();
        let decode =
            base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text);
        String::from_utf8_lossy(&decode.unwrap()).contains("hidden")
    });
    assert_eq!(is_readable, [false, true]);
}

#[test]
fn keys_are_replaced_without_ending_a_session() {
    for ((old, both), new) in both(&[1]).into_iter().zip(both(&[2, 1])).zip(both(&[2])) {
        let visitor_of_old = visitor(old);
        visitor_of_old.get("/set?name=a&value=1").send();
        let cookie = visitor_of_old.cookie("session").unwrap();
        let visitor_of_both = visitor(both);
        visitor_of_both.set_cookie("session", &cookie);
        visitor_of_both.get("/get?name=a").send().assert_text("1");
        visitor_of_both.get("/set?name=b&value=2").send();
        let renewed = visitor_of_both.cookie("session").unwrap();
        let visitor_of_new = visitor(new);
        visitor_of_new.set_cookie("session", &renewed);
        visitor_of_new.get("/get?name=a").send().assert_text("1");
        visitor_of_new.set_cookie("session", &cookie);
        visitor_of_new.get("/get?name=a").send().assert_text("");
    }
}

#[test]
fn a_session_in_a_cookie_expires() {
    for backend in both(&[1]) {
        let clock = Clock::new();
        let sessions = Sessions::new(backend)
            .idle(Duration::from_secs(100))
            .absolute(Duration::from_secs(150));
        let visitor = TestClient::new(app(clock.of(sessions)));
        visitor.get("/set?name=a&value=1").send();
        let first = visitor.cookie("session").unwrap();
        clock.forward(99);
        visitor.get("/get?name=a").send().assert_text("1");
        let used = visitor.cookie("session").unwrap();
        assert_ne!(first, used, "the cookie contains the time of its last use");
        clock.forward(1);
        visitor.set_cookie("session", &first);
        visitor.get("/get?name=a").send().assert_text("");
        visitor.set_cookie("session", &used);
        visitor.get("/get?name=a").send().assert_text("1");
        clock.forward(50);
        visitor.get("/get?name=a").send().assert_text("");
    }
}

#[test]
fn a_too_long_cookie_is_an_error() {
    for backend in both(&[1]) {
        let visitor = visitor(backend);
        let long = "x".repeat(4000);
        visitor
            .get(&format!("/set?name=a&value={long}"))
            .send()
            .assert_status(500)
            .assert_no_header("set-cookie");
    }
}
