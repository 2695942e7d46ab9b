//! `ClientInfo`: the client behind trusted proxies (RFC 7239).

use apus_handler::{ClientInfo, TrustedProxies};
use apus_testkit::LocalClient;

use crate::harness::{Routes, get, head};

async fn who(client: ClientInfo) -> String {
    let ip = client.ip.map_or("-".to_owned(), |ip| ip.to_string());
    format!("{ip} {}", client.is_secure)
}

fn app(proxies: &[&str]) -> Routes {
    let networks = proxies.iter().map(|network| network.parse().unwrap());
    Routes::new()
        .layer(TrustedProxies::new(networks))
        .get("/", who)
}

#[test]
fn the_client_is_the_last_address_that_is_not_a_trusted_proxy() {
    let client = LocalClient::of(&app(&["127.0.0.0/8", "10.0.0.0/8", "fd00::/8"]));
    for (lines, expected) in [
        (&[][..], "127.0.0.1 false"),
        (&["X-Forwarded-For: 203.0.113.5"], "203.0.113.5 false"),
        (
            &["X-Forwarded-For: 1.2.3.4, 203.0.113.5, 10.0.0.1"],
            "203.0.113.5 false",
        ),
        (
            &[
                "X-Forwarded-For: 1.2.3.4, 203.0.113.5",
                "X-Forwarded-For: fd00::1",
            ],
            "203.0.113.5 false",
        ),
        (&["X-Forwarded-For: 10.0.0.2, 10.0.0.1"], "10.0.0.2 false"),
        (&["X-Forwarded-For: 203.0.113.5:4711"], "203.0.113.5 false"),
        (&["X-Forwarded-For: 2001:db8::7"], "2001:db8::7 false"),
        (&["X-Forwarded-For: [2001:db8::7]:80"], "2001:db8::7 false"),
        (&["X-Forwarded-For: [2001:db8::7]"], "2001:db8::7 false"),
        (&["X-Forwarded-For: ::ffff:192.0.2.1"], "192.0.2.1 false"),
        // An invalid member hides the members before it.
        (
            &["X-Forwarded-For: 1.2.3.4, unknown, 10.0.0.1"],
            "10.0.0.1 false",
        ),
        (&["X-Forwarded-For: "], "127.0.0.1 false"),
        // A quotation mark of the client does not hide what the proxy appended.
        (
            &["X-Forwarded-For: \"1.2.3.4, 203.0.113.5"],
            "203.0.113.5 false",
        ),
        (
            &["X-Forwarded-For: \", 203.0.113.5, 10.0.0.1"],
            "203.0.113.5 false",
        ),
        (&["X-Forwarded-Proto: https"], "127.0.0.1 true"),
        (&["X-Forwarded-Proto: https, http"], "127.0.0.1 false"),
        (
            &["X-Forwarded-For: 203.0.113.5", "X-Forwarded-Proto: HTTPS"],
            "203.0.113.5 true",
        ),
        // `Forwarded` comes from the client and is ignored.
        (&["Forwarded: for=1.2.3.4;proto=https"], "127.0.0.1 false"),
    ] {
        let reply = client.send(head("GET", "/", lines));
        assert_eq!(reply.text(), expected, "{lines:?}");
    }
}

#[test]
fn forwarded_is_parsed_as_in_rfc_7239() {
    let local = "127.0.0.0/8".parse().unwrap();
    let ours = "10.0.0.0/8".parse().unwrap();
    let proxies = TrustedProxies::new([local, ours]).forwarded();
    let client = LocalClient::of(&Routes::new().layer(proxies).get("/", who));
    for (line, expected) in [
        ("Forwarded: for=203.0.113.5", "203.0.113.5 false"),
        (
            "Forwarded: For=\"[2001:db8::7]:4711\";Proto=https",
            "2001:db8::7 true",
        ),
        (
            "Forwarded: for=1.2.3.4;proto=http, for=203.0.113.5;proto=https;by=\"a,b\", for=10.0.0.1",
            "203.0.113.5 true",
        ),
        ("Forwarded: for=_hidden;proto=https", "127.0.0.1 true"),
        ("Forwarded: for=unknown", "127.0.0.1 false"),
        ("Forwarded: by=203.0.113.9", "127.0.0.1 false"),
        ("Forwarded: \"", "127.0.0.1 false"),
        (
            "Forwarded: for=\"1.2.3.4, for=203.0.113.5",
            "203.0.113.5 false",
        ),
        (
            "Forwarded: \", for=203.0.113.5;by=\"a,b\", for=10.0.0.1",
            "203.0.113.5 false",
        ),
        ("X-Forwarded-For: 1.2.3.4", "127.0.0.1 false"),
    ] {
        let reply = client.send(head("GET", "/", &[line]));
        assert_eq!(reply.text(), expected, "{line}");
    }
}

#[test]
fn untrusted_peers_cannot_set_the_address() {
    let lines = ["X-Forwarded-For: 203.0.113.5", "X-Forwarded-Proto: https"];
    let reply = get(app(&["10.0.0.0/8"]), "/", &lines);
    assert_eq!(reply.text(), "127.0.0.1 false");
    let reply = get(Routes::new().get("/", who), "/", &lines);
    assert_eq!(reply.text(), "127.0.0.1 false");
}
