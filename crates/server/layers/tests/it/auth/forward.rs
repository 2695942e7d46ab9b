//! Forward authentication: what the authority gets, and what its responses mean.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_http::{
    Body, HeaderName, Network, RemoteUser, Request, Response, ServiceFactory, StatusCode,
    service_fn,
};
use apus_layers::auth::{AnswerKey, ForwardAuth};
use apus_layers::{AnyOf, NetworkAccess};
use apus_testkit::{LocalClient, RequestBuilder, ask, get};

use crate::harness::Routes;

/// What the authority was asked, as text.
#[derive(Clone, Default)]
struct Questions(Arc<Mutex<Vec<String>>>);

impl Questions {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn last(&self) -> String {
        self.0.lock().unwrap().last().unwrap().clone()
    }
}

/// An authority that admits whom the cookie `user` names, and responds as the cookie `status` says.
fn authority(questions: &Questions) -> impl ServiceFactory + 'static {
    let questions = questions.clone();
    move || {
        let questions = questions.clone();
        service_fn(move |request: Request| {
            let mut text = format!("{} {}", request.method(), request.target());
            for (name, value) in request.headers().iter() {
                text += &format!("\n{name}: {}", String::from_utf8_lossy(value));
            }
            assert!(!request.has_body());
            questions.0.lock().unwrap().push(text);
            let cookie = request.headers().get_str("cookie").unwrap_or_default();
            let value = |name: &str| {
                let mut pairs = cookie.split("; ").filter_map(|pair| pair.split_once('='));
                pairs.find_map(|(key, value)| (key == name).then_some(value))
            };
            let status = value("status").map_or(200, |status| status.parse().unwrap());
            let mut response = Response::new(StatusCode::from_u16(status).unwrap());
            let fields = response.headers_mut();
            if status == 200 {
                if let Some(user) = value("user") {
                    fields.try_append("remote-user", user).unwrap();
                    fields.try_append("x-groups", "a").unwrap();
                    fields.try_append("x-groups", "b").unwrap();
                }
                if value("renew").is_some() {
                    fields.try_append("set-cookie", "session=2").unwrap();
                }
            } else {
                for (name, value) in [
                    ("location", "https://login.example/?rd=1"),
                    ("www-authenticate", "Bearer"),
                    ("set-cookie", "csrf=1"),
                    ("x-internal", "secret"),
                ] {
                    fields.try_append(name, value).unwrap();
                }
            }
            *response.body_mut() = Body::from("body of the authority");
            response.into()
        })
    }
}

fn auth(questions: &Questions) -> ForwardAuth {
    let name = HeaderName::from_static;
    ForwardAuth::new(authority(questions), "/verify?a=b")
        .unwrap()
        .copy([name("x-groups")])
        .user_from(name("remote-user"))
}

/// The user and the groups that the application sees.
fn application() -> Routes {
    let who = async |request: Request| {
        let user = RemoteUser::of(&request).map(|user| format!("{} {}", user.name, user.scheme));
        let lines = request.headers().iter();
        let claims = lines.filter(|(name, _)| name.contains("groups") || name.contains("user"));
        let claims = claims.filter(|(name, _)| *name != "user-agent");
        let claims: Vec<_> = claims
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
            .collect();
        format!(
            "{} {}",
            user.unwrap_or("nobody".to_owned()),
            claims.join(" ")
        )
    };
    Routes::new().get("/", who).get("/{*rest}", who)
}

fn client(auth: ForwardAuth) -> LocalClient {
    LocalClient::of(&application().layer(auth))
}

fn with_cookie(cookie: &str) -> RequestBuilder {
    get("/").with("cookie", cookie)
}

#[test]
fn a_success_of_the_authority_admits_and_anything_but_a_refusal_is_an_error() {
    let questions = Questions::default();
    let client = client(auth(&questions));
    for (status, expected) in [
        (200, 200),
        (204, 200),
        (299, 200),
        (301, 301),
        (302, 302),
        (303, 303),
        (307, 307),
        (308, 308),
        (401, 401),
        (403, 403),
        (300, 500),
        (304, 500),
        (400, 500),
        (404, 500),
        (418, 500),
        (429, 500),
        (500, 500),
        (501, 500),
        (502, 502),
        (503, 503),
        (504, 504),
        (505, 500),
    ] {
        let reply = client.send(with_cookie(&format!("status={status}")));
        assert_eq!(reply.status, expected, "{status}");
        assert!(!reply.text().contains("of the authority"), "{status}");
        assert_eq!(reply.field("x-internal"), None, "{status}");
        let is_refusal = (300..500).contains(&expected);
        assert_eq!(reply.field("location").is_some(), is_refusal, "{status}");
        assert_eq!(reply.field("set-cookie").is_some(), is_refusal, "{status}");
        assert_eq!(
            reply.field("www-authenticate").is_some(),
            is_refusal,
            "{status}"
        );
        let is_permanent = matches!(status, 301 | 308);
        assert!(
            !is_permanent || reply.field("cache-control") == Some("no-store"),
            "{status}"
        );
    }
}

#[test]
fn the_authority_gets_the_request_without_its_body_and_only_some_of_its_fields() {
    let questions = Questions::default();
    let client = client(auth(&questions));
    let request = ask("POST", "/a/./b//..%2f%63?d=%2e")
        .lines(&[
            "Cookie: user=ada",
            "Cookie: more=1",
            "Authorization: Basic x",
            "X-Api-Key: key",
            "X-Original-URL: http://evil.example/",
            "X-Forwarded-Uri: /evil",
            "X-Forwarded-Method: OPTIONS",
            "X_Forwarded_Uri: /evil",
            "Content-Type: text/plain",
            "Range: bytes=0-1",
            "If-None-Match: \"a\"",
        ])
        .body("the body");
    client.send(request);
    let question = questions.last();
    assert!(question.starts_with("GET /verify?a=b\n"), "{question}");
    for line in [
        "cookie: user=ada",
        "cookie: more=1",
        "authorization: Basic x",
        "x-forwarded-method: POST",
        "x-forwarded-uri: /a/c?d=%2e",
        "x-original-url: http://example.com/a/c?d=%2e",
        "x-original-method: POST",
    ] {
        assert!(
            question.lines().any(|one| one == line),
            "{line} in {question}"
        );
    }
    for part in [
        "evil",
        "OPTIONS",
        "text/plain",
        "bytes=",
        "if-none",
        "x-api-key",
    ] {
        assert!(!question.contains(part), "{part} in {question}");
    }
    let all = LocalClient::of(&application().layer(auth(&questions).send_all()));
    let lines = [
        "X-Api-Key: key",
        "Content-Type: text/plain",
        "Range: bytes=0-1",
    ];
    all.send(get("/").lines(&lines));
    let question = questions.last();
    assert!(question.contains("x-api-key: key"), "{question}");
    assert!(
        !question.contains("text/plain") && !question.contains("bytes="),
        "{question}"
    );
}

#[test]
fn identity_fields_come_from_the_authority_alone_however_the_client_spells_them() {
    let questions = Questions::default();
    let office: Network = "192.0.2.0/24".parse().unwrap();
    let any = AnyOf::new(NetworkAccess::allow([office])).or(auth(&questions));
    let required = client(auth(&questions));
    let any = LocalClient::of(&application().layer(any));
    for forged in [
        "X-Groups: evil",
        "x_groups: evil",
        "X.Groups: evil",
        "Remote-User: evil",
        "remote_user: evil",
    ] {
        let send = |client: &LocalClient, ip: &str, cookie: &str| {
            let address = (ip.parse::<std::net::IpAddr>().unwrap(), 1);
            let request = get("/")
                .peer(address)
                .lines(&[forged])
                .with("cookie", cookie);
            let reply = client.send(request);
            (reply.status, reply.text().trim_end().to_owned())
        };
        let ada = (200, "ada FORWARD x-groups=a x-groups=b".to_owned());
        let nobody = (200, "nobody".to_owned());
        assert_eq!(send(&required, "192.0.2.1", "user=ada"), ada, "{forged}");
        // The authority admits without a name.
        assert_eq!(send(&required, "192.0.2.1", "a=b"), nobody, "{forged}");
        assert_eq!(send(&any, "192.0.2.1", "user=ada"), ada, "{forged}");
        // Admitted by the network, and refused by the authority.
        assert_eq!(send(&any, "192.0.2.1", "status=401"), nobody, "{forged}");
        assert_eq!(send(&any, "192.0.2.1", "status=500"), nobody, "{forged}");
        assert_eq!(send(&any, "203.0.113.1", "user=ada"), ada, "{forged}");
        assert_eq!(send(&any, "203.0.113.1", "status=302").0, 302, "{forged}");
        assert_eq!(send(&any, "203.0.113.1", "status=500").0, 500, "{forged}");
    }
}

#[test]
fn admissions_are_remembered_for_the_same_client_with_the_same_fields_only() {
    let clock = apus_clock::TestClock::default();
    let _entered = clock.enter();
    clock.freeze();
    let questions = Questions::default();
    let name = HeaderName::from_static;
    let remembering = auth(&questions)
        .copy_to_response([name("set-cookie")])
        .remember(Duration::from_secs(30), 100)
        .remember_by([AnswerKey::Host]);
    let client = client(remembering);
    let asked = AtomicUsize::new(0);
    let send = |request: RequestBuilder| {
        let reply = client.send(request);
        let now = questions.count();
        let is_asked = now > asked.swap(now, Ordering::Relaxed);
        (is_asked, reply)
    };
    let from = |ip: &str, cookie: &str| {
        let address = (ip.parse::<std::net::IpAddr>().unwrap(), 1);
        get("/").peer(address).with("cookie", cookie)
    };
    assert!(send(from("192.0.2.1", "user=ada")).0);
    let (is_asked, reply) = send(from("192.0.2.1", "user=ada"));
    assert!(!is_asked);
    assert_eq!(reply.text(), "ada FORWARD x-groups=a x-groups=b");
    // Another path is the same, as the key says.
    let other = get("/other")
        .peer(([192, 0, 2, 1], 2))
        .with("cookie", "user=ada");
    assert!(!send(other).0);
    for request in [
        from("192.0.2.2", "user=ada"),
        from("192.0.2.1", "user=bob"),
        from("192.0.2.1", "user=ada").with("authorization", "Basic x"),
        from("192.0.2.1", "user=ada").with("host", "b.example"),
    ] {
        assert!(send(request).0);
    }
    assert_eq!(
        send(from("192.0.2.1", "user=bob")).1.text(),
        "bob FORWARD x-groups=a x-groups=b"
    );
    // Refusals, errors and responses that set cookies are not remembered.
    for cookie in [
        "status=401",
        "status=302",
        "status=500",
        "user=ada; renew=1",
    ] {
        for _ in 0..2 {
            let (is_asked, reply) = send(from("192.0.2.1", cookie));
            assert!(is_asked, "{cookie}");
            let is_renewed = cookie.contains("renew");
            assert_eq!(
                reply.field("set-cookie") == Some("session=2"),
                is_renewed,
                "{cookie}"
            );
        }
    }
    clock.advance(Duration::from_nanos(29_999_999_999));
    assert!(!send(from("192.0.2.1", "user=ada")).0);
    clock.advance(Duration::from_nanos(1));
    assert!(send(from("192.0.2.1", "user=ada")).0);
}

#[test]
fn the_path_of_the_authority_is_checked_when_the_layer_is_made() {
    for (uri, is_valid) in [
        ("/", true),
        ("/verify?a=b", true),
        ("", false),
        ("verify", false),
        ("http://a.example/", false),
        ("/a b", false),
        ("/a#b", false),
    ] {
        let made = ForwardAuth::new(authority(&Questions::default()), uri);
        assert_eq!(made.is_ok(), is_valid, "{uri}");
    }
}
