//! Cookies of requests and responses (RFC 6265).

use apus_handler::extract::Cookies;
use apus_handler::extract::cookie::{Cookie, SameSite, time::Duration};
use apus_handler::{Redirect, TrustedProxies};
use apus_testkit::{LocalClient, ask};

use crate::harness::{Routes, get, head};

async fn list(cookies: Cookies) -> String {
    let pairs = cookies.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("|")
}

#[test]
fn cookies_are_read_from_several_lines() {
    let client = LocalClient::of(&Routes::new().get("/", list));
    for (lines, expected) in [
        (&[][..], ""),
        (&["Cookie: a=1"], "a=1"),
        (&["Cookie: a=1; b=2;c=3 ; d="], "a=1|b=2|c=3|d="),
        (&["Cookie: a=1", "Cookie: b=2"], "a=1|b=2"),
        (&["Cookie: a=1; a=2"], "a=1"),
        (&["Cookie: a=\"quoted\""], "a=quoted"),
        (&["Cookie: a=%C3%A9%20%3B%2"], "a=é ;%2"),
        (&["Cookie: a=%FF"], "a=%FF"),
        (&["Cookie: a=b=c"], "a=b=c"),
        (&["Cookie: no-value; =no-name; ; a=1"], "a=1"),
        (&["Cookie: a=\u{e9}"], "a=é"),
    ] {
        let reply = client.send(head("GET", "/", lines));
        assert_eq!((reply.status, reply.text()), (200, expected), "{lines:?}");
    }
}

/// Comparing each name with all others would take many minutes.
#[test]
fn cookies_are_parsed_in_linear_time() {
    const COUNT: usize = 300_000;
    let line: String = (0..COUNT).map(|number| format!("{number:x}=1; ")).collect();
    let request = ask("GET", "/").with("cookie", &line).request();
    assert_eq!(Cookies::of(&request).iter().count(), COUNT);
}

/// The `Set-Cookie` lines of a handler that makes these changes.
fn set(
    change: impl Fn(&mut Cookies) + Clone + Send + Sync + 'static,
    lines: &[&str],
) -> Vec<String> {
    let app = Routes::new()
        .layer(TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]))
        .get("/", move |mut cookies: Cookies| {
            change(&mut cookies);
            (cookies, Redirect::to("/elsewhere"))
        });
    let reply = get(app, "/", lines);
    assert_eq!(
        (reply.status, reply.field("location")),
        (303, Some("/elsewhere"))
    );
    reply.fields("set-cookie").map(str::to_owned).collect()
}

#[test]
fn new_cookies_have_secure_defaults() {
    let plain = |cookies: &mut Cookies| cookies.add(("theme", "dark"));
    assert_eq!(
        set(plain, &[]),
        ["theme=dark; HttpOnly; SameSite=Lax; Path=/"]
    );
    assert_eq!(
        set(plain, &["X-Forwarded-Proto: https"]),
        ["theme=dark; HttpOnly; SameSite=Lax; Secure; Path=/"]
    );
    let open = |cookies: &mut Cookies| {
        let cookie = Cookie::build(("a", "b"))
            .http_only(false)
            .same_site(SameSite::Strict)
            .path("/shop")
            .domain("example.com")
            .max_age(Duration::hours(1));
        cookies.add(cookie);
    };
    assert_eq!(
        set(open, &[]),
        ["a=b; SameSite=Strict; Path=/shop; Domain=example.com; Max-Age=3600"]
    );
    let cross = |cookies: &mut Cookies| {
        cookies.add(Cookie::build(("a", "b")).same_site(SameSite::None));
        cookies.add(("__Host-id", "c"));
    };
    assert_eq!(
        set(cross, &[]),
        [
            "a=b; HttpOnly; SameSite=None; Secure; Path=/",
            "__Host-id=c; HttpOnly; SameSite=Lax; Secure; Path=/"
        ]
    );
}

#[test]
fn values_cannot_inject_attributes_or_lines() {
    let lines = set(
        |cookies| {
            cookies.add(("a", "x; Domain=evil.example\r\nSet-Cookie: b=c, é\""));
            cookies.add(Cookie::build(("b", "c")).path("/; Domain=evil.example"));
            cookies.add(Cookie::build(("c", "d")).domain("a\r\nb"));
            cookies.add(("", "no name"));
        },
        &[],
    );
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let value = line.split("; ").next().unwrap();
    assert_eq!(
        value,
        "a=x%3B%20Domain%3Devil.example%0D%0ASet-Cookie%3A%20b%3Dc%2C%20%C3%A9%22"
    );
    let reply = get(
        Routes::new().get("/", list),
        "/",
        &[&format!("Cookie: {value}")],
    );
    assert_eq!(
        reply.text(),
        "a=x; Domain=evil.example\r\nSet-Cookie: b=c, é\""
    );
}

#[test]
fn a_cookie_is_removed_as_it_was_set() {
    let lines = set(
        |cookies| {
            assert_eq!(cookies.get("a"), Some("1"));
            cookies.remove("a");
            assert_eq!(cookies.get("a"), None);
            cookies.remove(Cookie::build("b").path("/shop"));
        },
        &["Cookie: a=1"],
    );
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("a=; ") && lines[0].contains("Path=/; Max-Age=0; Expires="));
    assert!(lines[1].starts_with("b=; ") && lines[1].contains("Path=/shop; Max-Age=0;"));
}

#[test]
fn the_last_change_of_a_cookie_applies() {
    let lines = set(
        |cookies| {
            cookies.add(("a", "1"));
            cookies.remove("a");
            cookies.add(("a", "2"));
            assert_eq!(cookies.get("a"), Some("2"));
            cookies.add(Cookie::build(("a", "3")).path("/other"));
        },
        &["Cookie: a=0"],
    );
    assert_eq!(
        lines,
        [
            "a=2; HttpOnly; SameSite=Lax; Path=/",
            "a=3; HttpOnly; SameSite=Lax; Path=/other"
        ]
    );
}
