//! Which clients are admitted: by their network, their certificate, the page they come from, and by one of several ways.

use std::rc::Rc;
use std::sync::Arc;

use apus_handler::Extension;
use apus_http::{
    ClientCertificate, ConnectionInfo, Network, Peer, RemoteUser, Request, RequestParts,
    ServiceFactory, Target, TlsInfo, TlsVersion,
};
use apus_layers::auth::{BasicAuth, BearerAuth, Claims, JwtAuth};
use apus_layers::{AnyOf, NetworkAccess, Referers, RequireClientCertificate};
use apus_testkit::{LocalClient, Reply, RequestBuilder, block_on, get};

use crate::harness::Routes;

fn networks(text: &str) -> Vec<Network> {
    text.split_whitespace()
        .map(|network| network.parse().unwrap())
        .collect()
}

fn from(ip: &str) -> RequestBuilder {
    get("/").peer((ip.parse::<std::net::IpAddr>().unwrap(), 50_000))
}

/// The request on another connection.
fn on(request: RequestBuilder, change: impl FnOnce(&mut ConnectionInfo)) -> Request {
    let parts = request.request().into_parts();
    let mut connection = (*parts.connection).clone();
    change(&mut connection);
    Request::new(RequestParts {
        connection: Rc::new(connection),
        target: Target::parse(&parts.method, "/").unwrap(),
        ..parts
    })
}

fn with_certificate(connection: &mut ConnectionInfo, subject: Option<&str>) {
    connection.tls = Some(TlsInfo {
        version: TlsVersion::Tls13,
        cipher: "TLS13_AES_128_GCM_SHA256",
        alpn: None,
        fingerprint: None,
        server_name: None,
        certificate_names: [].into(),
        client_certificate: subject.map(|subject| {
            Arc::new(ClientCertificate {
                der: Box::new([]),
                subject: subject.to_owned(),
                serial: "0a".to_owned(),
                issuer: String::new(),
                names: Vec::new(),
            })
        }),
    });
}

#[test]
fn clients_are_admitted_by_their_network() {
    let allow = |text| NetworkAccess::allow(networks(text));
    let deny = |text| NetworkAccess::deny(networks(text));
    for (access, client, is_admitted) in [
        (allow("192.0.2.0/24"), "192.0.2.0", true),
        (allow("192.0.2.0/24"), "192.0.2.255", true),
        (allow("192.0.2.0/24"), "192.0.1.255", false),
        (allow("192.0.2.0/24"), "192.0.3.0", false),
        (allow("192.0.2.0/24"), "::ffff:192.0.2.7", true),
        (allow("::ffff:192.0.2.7"), "192.0.2.7", true),
        (allow("192.0.2.0/24"), "::192.0.2.7", false),
        (allow("2001:db8::/32"), "2001:db8:ffff::1", true),
        (allow("2001:db8::/32"), "2001:db9::", false),
        (allow("0.0.0.0/0"), "2001:db8::1", false),
        (allow("::/0"), "192.0.2.1", false),
        (allow(""), "192.0.2.1", false),
        (allow("unix:"), "192.0.2.1", false),
        (deny("192.0.2.0/24"), "192.0.2.1", false),
        (deny("192.0.2.0/24"), "::ffff:192.0.2.1", false),
        (deny("192.0.2.0/24"), "192.0.3.0", true),
        (deny("192.0.2.0/24"), "2001:db8::1", true),
        (deny(""), "192.0.2.1", true),
        (
            allow("192.0.2.0/24").except(networks("192.0.2.66")),
            "192.0.2.65",
            true,
        ),
        (
            allow("192.0.2.0/24").except(networks("192.0.2.66")),
            "192.0.2.66",
            false,
        ),
        // What is excepted is rejected, also where it is the larger network.
        (
            allow("192.0.2.66").except(networks("192.0.2.0/24")),
            "192.0.2.66",
            false,
        ),
    ] {
        let client_of = LocalClient::of(&Routes::new().layer(access).get("/", async || "in"));
        let reply = client_of.send(from(client));
        let expected = if is_admitted { 200 } else { 403 };
        assert_eq!(reply.status, expected, "{client}");
    }
}

#[test]
fn clients_of_unix_sockets_are_a_network_of_their_own() {
    for (access, expected) in [
        (NetworkAccess::allow(networks("unix:")), 200),
        (NetworkAccess::allow(networks("0.0.0.0/0 ::/0")), 403),
        (NetworkAccess::deny(networks("unix:")), 403),
        (NetworkAccess::deny(networks("0.0.0.0/0 ::/0")), 200),
    ] {
        let service = Routes::new()
            .layer(access)
            .get("/", async || "in")
            .service();
        let request = on(get("/"), |connection| connection.peer = Peer::Unix);
        let reply = block_on(async { Reply::read(service.call(request).wait().await).await });
        assert_eq!(reply.status, expected);
    }
}

#[test]
fn fields_that_a_client_sends_do_not_change_its_network() {
    let access = NetworkAccess::allow(networks("10.0.0.0/8 127.0.0.1"));
    let client = LocalClient::of(&Routes::new().layer(access).get("/", async || "in"));
    for (name, value) in [
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("x-real-ip", "10.0.0.1"),
        ("cf-connecting-ip", "10.0.0.1"),
        ("true-client-ip", "127.0.0.1"),
        ("x-client-ip", "10.0.0.1"),
        ("host", "127.0.0.1"),
    ] {
        let reply = client.send(from("192.0.2.1").with(name, value));
        assert_eq!(reply.status, 403, "{name}");
    }
}

#[test]
fn only_connections_with_a_verified_certificate_are_admitted() {
    let layer = RequireClientCertificate::new();
    let service = Routes::new().layer(layer).get("/", async || "in").service();
    let forged = || {
        get("/")
            .with("x-ssl-client-verify", "SUCCESS")
            .with("client-cert", ":MIIB:")
    };
    for (connection, expected) in [
        (None, 403),
        (Some(None), 403),
        (Some(Some("CN=alice")), 200),
    ] {
        let request = on(forged(), |info| {
            if let Some(subject) = connection {
                with_certificate(info, subject);
            }
        });
        let reply = block_on(async { Reply::read(service.call(request).wait().await).await });
        assert_eq!(reply.status, expected, "{connection:?}");
    }
}

#[test]
fn requests_are_admitted_by_the_page_they_come_from() {
    let layer = Referers::new()
        .none()
        .same_host()
        .host("*.example.com")
        .host("Friend.example.");
    let client = LocalClient::of(&Routes::new().layer(layer).get("/", async || "in"));
    let from_page = |page: &str| {
        client
            .send(
                get("/")
                    .with("host", "shop.test:8080")
                    .with("referer", page),
            )
            .status
    };
    for (page, expected) in [
        ("http://shop.test/a", 200),
        ("https://SHOP.test.:9090/a", 200),
        ("https://www.example.com/", 200),
        ("https://a.b.example.com/", 200),
        ("https://example.com/", 403),
        ("https://.example.com/", 403),
        ("https://badexample.com/", 403),
        ("https://www.example.com.evil.example/", 403),
        ("https://friend.example/", 200),
        ("https://friend.example:8443/?a=b", 200),
        ("https://www.friend.example/", 403),
        ("https://friend.example@evil.example/", 403),
        ("https://evil.example/?https://friend.example/", 403),
        ("xxx", 403),
        ("", 200),
    ] {
        assert_eq!(from_page(page), expected, "{page}");
    }
    assert_eq!(client.send(get("/")).status, 200);
    let two = get("/").lines(&[
        "Referer: https://friend.example/",
        "Referer: https://friend.example/",
    ]);
    assert_eq!(client.send(two).status, 403);
    let strict = Referers::new().blocked();
    let client = LocalClient::of(&Routes::new().layer(strict).get("/", async || "in"));
    assert_eq!(client.send(get("/")).status, 403);
    assert_eq!(client.send(get("/").with("referer", "xxx")).status, 200);
}

/// A name and a password, a token, and the office without either.
fn any() -> LocalClient {
    let tokens = BearerAuth::new(async |token: String| (token == "t").then_some("token"));
    let access = AnyOf::new(NetworkAccess::allow(networks("192.0.2.0/24")))
        .or(RequireClientCertificate::new())
        .or(BasicAuth::user("a", "ada", "correct"))
        .or(tokens);
    let who = async |request: Request| match RemoteUser::of(&request) {
        Some(user) => format!("{} {}", user.name, user.scheme),
        None => "nobody".to_owned(),
    };
    LocalClient::of(&Routes::new().layer(access).get("/", who))
}

#[test]
fn one_of_several_ways_admits_a_client() {
    let client = any();
    // "ada:correct" and "ada:wrong".
    let (right, wrong) = ("Basic YWRhOmNvcnJlY3Q=", "Basic YWRhOndyb25n");
    for (ip, authorization, status, user) in [
        ("192.0.2.1", "", 200, "nobody"),
        // Right credentials name the user, although nobody asked for them; wrong ones do no harm.
        ("192.0.2.1", right, 200, "ada Basic"),
        ("192.0.2.1", wrong, 200, "nobody"),
        ("192.0.2.1", "Bearer x", 200, "nobody"),
        ("203.0.113.1", right, 200, "ada Basic"),
        ("203.0.113.1", "Bearer t", 200, "nobody"),
        ("203.0.113.1", wrong, 401, ""),
        ("203.0.113.1", "Bearer x", 401, ""),
        ("203.0.113.1", "", 401, ""),
    ] {
        let request = match authorization {
            "" => from(ip),
            value => from(ip).with("authorization", value),
        };
        let reply = client.send(request);
        assert_eq!(reply.status, status, "{ip} {authorization}");
        if status == 200 {
            assert_eq!(reply.text(), user, "{ip} {authorization}");
            continue;
        }
        let challenges: Vec<_> = reply.headers.get_all("www-authenticate").collect();
        assert_eq!(challenges.len(), 2, "{challenges:?}");
        assert_eq!(challenges[0], b"Basic realm=\"a\", charset=\"UTF-8\"");
        assert!(challenges[1].starts_with(b"Bearer"));
    }
}

#[test]
fn a_client_that_cannot_log_in_gets_403_from_several_ways() {
    let access = AnyOf::new(NetworkAccess::allow(networks("192.0.2.0/24")))
        .or(RequireClientCertificate::new());
    let service = Routes::new()
        .layer(access)
        .get("/", async || "in")
        .service();
    let send =
        |request| block_on(async { Reply::read(service.call(request).wait().await).await }).status;
    assert_eq!(send(from("203.0.113.1").request()), 403);
    assert_eq!(send(from("192.0.2.1").request()), 200);
    let with = on(from("203.0.113.1"), |info| {
        with_certificate(info, Some("CN=a"))
    });
    assert_eq!(send(with), 200);
    let nobody = AnyOf::of([]);
    let client = LocalClient::of(&Routes::new().layer(nobody).get("/", async || "in"));
    assert_eq!(client.send(get("/")).status, 403);
}

#[test]
fn handlers_behind_several_ways_take_what_the_one_found() {
    let auth = JwtAuth::<serde_json::Value>::hs256(&[7; 32]).unwrap();
    let access = AnyOf::new(auth).or(BearerAuth::new(async |token: String| {
        (token == "t").then_some("of a function")
    }));
    let app = Routes::new()
        .layer(access)
        .get("/", async |Extension(owner): Extension<&'static str>| owner)
        .get(
            "/claims",
            async |claims: Option<Claims<serde_json::Value>>| claims.is_some().to_string(),
        );
    let client = LocalClient::of(&app);
    let reply = client.send(get("/").with("authorization", "Bearer t"));
    assert_eq!(reply.text(), "of a function");
    let reply = client.send(get("/claims").with("authorization", "Bearer t"));
    assert_eq!(reply.text(), "false");
}
