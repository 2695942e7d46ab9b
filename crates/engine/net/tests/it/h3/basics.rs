//! Requests and their responses, which are the same as over HTTP/1.1 and HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apus_http::{
    Frame, Headers, Method, Response, ResponseFuture, ResponseOrigin, ServiceFactory, StatusCode,
};
use apus_net::tls::{ClientAuth, TlsSite, UnknownName};
use apus_net::{Http3Settings, Limits, ListenerPlan};
use apus_quic::{QuicClientTls, QuicCloseReason};
use apus_testkit::{CertificateAuthority, collect, ready_frames};
use bytes::Bytes;
use rustls::crypto::aws_lc_rs::kx_group;

use super::{H3Client, H3ClientOptions, H3Request, H3Server, h3_listener};
use crate::h2::client::Peer;
use crate::h2::described;
use crate::harness::{Server, connect, ok, paths, plan, service};
use crate::tls::{client_of, connect_tls, policies, site, tls_listener};

#[test]
fn responds_with_the_fields_of_other_versions() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    let response = client.get("/a");
    assert_eq!((response.status, response.text().as_str()), (200, "/a"));
    assert_eq!(response.field("content-length"), Some("2"));
    assert!(response.field("date").is_some());
    assert_eq!(client.get("/b").text(), "/b");
    let totals = server.server.totals();
    assert_eq!((totals.requests, totals.bad_requests), (2, 0));
    assert_eq!((totals.h3_connections, totals.handshakes), (1, 1));
    assert_eq!((totals.connections, totals.accepted), (1, 1));
    assert!(totals.bytes_in > 0 && totals.bytes_out > 0);
}

#[test]
fn the_service_sees_the_request_as_it_was_sent() {
    let server = H3Server::start(described());
    let mut client = server.open();
    let id = client.request(&H3Request {
        fields: &[("x-a", "1"), ("cookie", "a=b"), ("cookie", "c=d")],
        ..H3Request::get("/p?q")
    });
    assert_eq!(
        client.response(id).text(),
        "GET example.com /p?q\ncookie: a=b; c=d\nhost: example.com\nx-a: 1\n"
    );
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let server = H3Server::start(service(|request| {
        let status = StatusCode::from_bytes(&request.path().as_bytes()[1..]).unwrap();
        Response::text(status, "content").into()
    }));
    let mut client = server.open();
    for (method, path, length) in [
        (Method::HEAD, "/200", Some("7")),
        (Method::HEAD, "/404", Some("7")),
        (Method::GET, "/204", None),
        (Method::GET, "/304", None),
    ] {
        let id = client.request(&H3Request {
            method,
            ..H3Request::get(path)
        });
        let response = client.response(id);
        assert_eq!(format!("/{}", response.status), path);
        assert_eq!(
            (response.field("content-length"), response.body.len()),
            (length, 0)
        );
    }
    assert_eq!(client.get("/404").text(), "content");
}

#[test]
fn a_hundred_requests_share_a_connection() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    let paths: Vec<_> = (0..100).map(|number| format!("/{number}")).collect();
    let requests = paths.iter().map(|path| H3Request::get(path));
    let ids: Vec<_> = requests.map(|request| client.request(&request)).collect();
    for (id, path) in ids.into_iter().zip(&paths) {
        assert_eq!(client.response(id).text(), *path);
    }
    assert_eq!(server.server.totals().h3_connections, 1);
}

#[test]
fn interim_responses_precede_the_response() {
    let server = H3Server::start(service(|mut request| {
        let interim = request.interim().clone();
        let mut fields = Headers::new();
        fields.try_append("link", "</a.css>; rel=preload").unwrap();
        interim.send(StatusCode::EARLY_HINTS, fields);
        ResponseFuture::later(async move {
            let body = collect(&mut request.take_body()).await.unwrap();
            ok(body)
        })
    }));
    let mut client = server.open();
    let response = client.get("/");
    assert_eq!((response.status, response.informational), (200, vec![103]));
    let id = client.request(&H3Request {
        method: Method::POST,
        has_body: true,
        expects_continue: true,
        content_length: Some(5),
        ..H3Request::get("/")
    });
    client.wait("100 Continue", |connection| {
        connection
            .response_of(id)
            .is_some_and(|response| response.informational == [103, 100])
    });
    client.send_data(id, "hello", true);
    assert_eq!(client.response(id).text(), "hello");
}

#[test]
fn trailers_pass_in_both_directions() {
    let server = H3Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut body = request.take_body();
            let mut trailers = Headers::new();
            while let Some(frame) = body.frame().await {
                if let Frame::Trailers(received) = frame.unwrap() {
                    trailers = received;
                }
            }
            let body = Frame::Data(Bytes::from("body"));
            let frames = vec![Ok(body), Ok(Frame::Trailers(trailers))];
            Response::new(StatusCode::OK).with_body(ready_frames(None, frames))
        })
    }));
    let mut client = server.open();
    let id = client.request(&H3Request {
        method: Method::POST,
        has_body: true,
        ..H3Request::get("/")
    });
    client.send_data(id, "data", false);
    let mut trailers = Headers::new();
    trailers.try_append("x-sum", "17").unwrap();
    client.send_trailers(id, &trailers);
    let response = client.response(id);
    assert_eq!(response.text(), "body");
    assert_eq!(response.trailers.unwrap().get_str("x-sum"), Some("17"));
}

#[test]
fn heads_beyond_the_limits_are_refused_and_the_connection_lives_on() {
    let limits = Limits {
        target_bytes: 100,
        head_bytes: 2000,
        head_fields: 10,
        ..Limits::default()
    };
    let server = H3Server::with_limits(limits, paths());
    let options = H3ClientOptions {
        reads_settings: false,
        ..server.options.clone()
    };
    let mut client = H3Client::open(server.server.address(), &options);
    let long = "a".repeat(100);
    assert_eq!(client.get(&format!("/{long}")).status, 414);
    let value = "b".repeat(3000);
    let field = [("x-a", value.as_str())];
    let id = client.request(&H3Request {
        fields: &field,
        ..H3Request::get("/")
    });
    assert_eq!(client.response(id).status, 431);
    let fields = [("x-a", "1"); 11];
    let id = client.request(&H3Request {
        fields: &fields,
        ..H3Request::get("/")
    });
    assert_eq!(client.response(id).status, 431);
    assert_eq!(client.get("/well").text(), "/well");
    assert_eq!(server.server.totals().bad_requests, 3);
}

#[test]
fn a_handler_that_panics_costs_its_client_a_500() {
    let server = H3Server::start(service(|request| match request.path() {
        "/now" => panic!("now"),
        "/later" => ResponseFuture::later(async { panic!("later") }),
        _ => ok("well").into(),
    }));
    let mut client = server.open();
    assert_eq!(client.get("/now").status, 500);
    assert_eq!(client.get("/later").status, 500);
    assert_eq!(client.get("/").text(), "well");
    assert_eq!(server.server.totals().panics, 2);
}

#[test]
fn several_workers_share_the_connections() {
    let server = H3Server::run(Limits::default(), paths(), |plan| apus_net::EnginePlan {
        workers: 2.try_into().unwrap(),
        ..plan
    });
    let mut clients: Vec<_> = (0..40).map(|_| server.open()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").text(), "/a");
    }
    let status = server.server.engine.status();
    let connections = status
        .workers
        .iter()
        .map(|worker| worker.totals.h3_connections);
    let connections: Vec<_> = connections.collect();
    assert_eq!(connections.iter().sum::<u64>(), 40);
    assert!(
        connections.iter().all(|count| *count > 0),
        "{connections:?}"
    );
}

#[test]
fn open_connections_are_counted_by_protocol() {
    let server = H3Server::start(paths());
    let open = || {
        let totals = server.server.totals();
        (totals.h1_open, totals.h2_open, totals.h3_open)
    };
    assert_eq!(open(), (0, 0, 0));
    let mut first = server.open();
    let mut second = server.open();
    for client in [&mut first, &mut second] {
        assert_eq!(client.get("/a").text(), "/a");
    }
    let connect = |protocol: &[u8]| {
        let mut tls = server.tls.clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        connect_tls(server.server.address(), &tls, "example.com").unwrap()
    };
    let mut http1 = connect(b"http/1.1");
    assert_eq!(http1.get("/b").text(), "/b");
    let mut http2 = Peer::open(connect(b"h2").stream);
    assert_eq!(http2.fetch("/c").text(), "/c");
    assert_eq!(open(), (1, 1, 2));
    assert_eq!(server.server.totals().connections, 4);
    first.close();
    server
        .server
        .wait_for("the end of one", |totals| totals.h3_open == 1);
    drop((http1, http2));
    server
        .server
        .wait_for("the end of those over TCP", |totals| {
            totals.h1_open == 0 && totals.h2_open == 0
        });
    // A connection that survives a reload stays open.
    assert_eq!(second.get("/a").text(), "/a");
    assert_eq!(open(), (0, 0, 1));
}

/// RFC 9204 section 2.1: lines that the service makes anew for each response are sent once.
#[test]
fn fields_that_repeat_are_compressed_with_the_dynamic_table() {
    let value = "a value that repeats ".repeat(20);
    let server = H3Server::start(service(move |_| {
        let mut response = ok("body");
        response.headers_mut().try_append("x-long", &value).unwrap();
        response.into()
    }));
    let mut client = server.open();
    let mut sent = Vec::new();
    let mut before = server.server.totals().bytes_out;
    for _ in 0..4 {
        let response = client.get("/");
        assert!(response.field("x-long").unwrap().starts_with("a value"));
        assert_eq!(response.text(), "body");
        let now = server.server.totals().bytes_out;
        sent.push(now - before);
        before = now;
    }
    assert!(sent[0] > 300, "{sent:?}");
    assert!(sent[3] < 100, "{sent:?}");
}

#[test]
fn the_connection_is_that_of_the_client() {
    let server = H3Server::start(service(|request| {
        let connection = request.connection();
        let tls = connection.tls.as_ref().unwrap();
        let name = tls.server_name.as_deref().unwrap_or("-");
        let facts = format!(
            "{} {} {name} {} {}",
            connection.peer.ip().unwrap(),
            connection.local.ip().unwrap(),
            tls.version.as_str(),
            tls.cipher,
        );
        ok(facts).into()
    }));
    let response = server.open().get("/");
    let expected = "127.0.0.1 127.0.0.1 example.com TLSv1.3 TLS13_AES_256_GCM_SHA384";
    assert_eq!(response.text(), expected);
}

#[test]
fn sites_are_selected_by_the_server_name_and_unknown_ones_are_refused() {
    let authority = CertificateAuthority::generate();
    let names = [("a.example", true), ("b.example", false)];
    let sites: Vec<_> = names
        .iter()
        .map(|(name, http3)| TlsSite {
            http3: *http3,
            ..site(&[name], &[&authority.ecdsa(&[name])])
        })
        .collect();
    let listener = ListenerPlan {
        http3: Some(Http3Settings::default()),
        ..tls_listener(&sites, UnknownName::Reject, paths())
    };
    let server = Server::run(plan(vec![listener]));
    let options = H3ClientOptions::new(client_of(&authority));
    let named = |name| H3ClientOptions {
        name,
        ..options.clone()
    };
    let mut client = H3Client::open(server.address(), &named("a.example"));
    assert_eq!(client.get("/a").text(), "/a");
    for name in ["b.example", "c.example"] {
        let mut client = H3Client::begin(server.address(), &named(name));
        // The alert `unrecognized_name` (RFC 9001 section 4.8).
        match client.closed() {
            QuicCloseReason::Peer { code, .. } => assert_eq!(code, 0x100 + 112, "{name}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_that_knows_the_hybrid_group_alone_is_served() {
    let authority = CertificateAuthority::generate();
    let server = Server::run(plan(vec![h3_listener(&authority, paths())]));
    let groups = [kx_group::X25519MLKEM768];
    let tls = policies::client(&authority, &policies::TLS13, &groups);
    let options = H3ClientOptions::new(tls);
    let mut client = H3Client::open(server.address(), &options);
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn a_client_without_h3_in_its_alpn_is_refused() {
    let server = H3Server::start(paths());
    let mut tls = client_of(&CertificateAuthority::generate());
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let tls = QuicClientTls::new(Arc::new(tls)).unwrap();
    let options = H3ClientOptions::with_tls(tls);
    let mut client = H3Client::begin(server.server.address(), &options);
    match client.closed() {
        // `no_application_protocol`.
        QuicCloseReason::Peer { code, .. } => assert_eq!(code, 0x100 + 120),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_site_that_requires_certificates_gets_those_of_its_clients_only() {
    let authority = CertificateAuthority::generate();
    let required = TlsSite {
        client_auth: ClientAuth::Required {
            authorities: vec![authority.der.clone()],
            revoked: Vec::new(),
        },
        ..site(&["example.com"], &[&authority.ecdsa(&["example.com"])])
    };
    let listener = ListenerPlan {
        http3: Some(Http3Settings::default()),
        ..tls_listener(&[required], UnknownName::FirstSite, paths())
    };
    let server = Server::run(plan(vec![listener]));
    let options = H3ClientOptions::new(client_of(&authority));
    let mut client = H3Client::begin(server.address(), &options);
    match client.closed() {
        // `certificate_required`.
        QuicCloseReason::Peer { code, .. } => assert_eq!(code, 0x100 + 116),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.totals().requests, 0);
}

#[test]
fn observers_learn_when_the_client_has_the_response() {
    let complete = Arc::new(AtomicUsize::new(0));
    let gone = Arc::new(AtomicUsize::new(0));
    let counts = (Arc::clone(&complete), Arc::clone(&gone));
    let server = H3Server::start(service(move |_| {
        let (complete, gone) = counts.clone();
        let mut response = ok("x".repeat(100_000));
        response.on_complete(move |completion| match completion.outcome {
            apus_http::ResponseOutcome::Complete => {
                assert_eq!(completion.body_bytes, 100_000);
                complete.fetch_add(1, Ordering::SeqCst);
            }
            _ => {
                gone.fetch_add(1, Ordering::SeqCst);
            }
        });
        response.into()
    }));
    let mut client = server.open();
    assert_eq!(client.get("/").body.len(), 100_000);
    apus_testkit::wait_until("the completion", || {
        client.pause(Duration::from_millis(5));
        complete.load(Ordering::SeqCst) == 1
    });
    // A client that closes at once has the whole response, too.
    assert_eq!(client.get("/").body.len(), 100_000);
    client.close();
    apus_testkit::wait_until("the completion", || complete.load(Ordering::SeqCst) == 2);
    let mut client = server.open();
    let id = client.request(&H3Request::get("/"));
    client.leave_unread(id);
    client.wait("the request", |_| server.server.totals().requests == 3);
    client.cancel(id);
    client.get("/");
    apus_testkit::wait_until("the completions", || {
        client.pause(Duration::from_millis(5));
        complete.load(Ordering::SeqCst) + gone.load(Ordering::SeqCst) == 4
    });
}

/// Responds with fields for the server: as the program itself, or as an origin, whose response a service in between may
/// have cleared of them before it adds one of its own.
fn with_internal_fields() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let mut response = ok("x");
        let headers = response.headers_mut();
        for name in ["x-accel-redirect", "x-sendfile", "x-apus-events"] {
            headers.try_append(name, "/a").unwrap();
        }
        headers.try_append("x-other", "1").unwrap();
        if request.path() != "/own" {
            response.set_origin(ResponseOrigin {
                address: "origin".into(),
                status: StatusCode::OK,
                duration: Duration::ZERO,
            });
        }
        if request.path() == "/site" {
            response.remove_internal();
            let headers = response.headers_mut();
            headers.try_append("x-accel-buffering", "no").unwrap();
        }
        response.into()
    })
}

#[test]
fn no_client_sees_a_field_that_an_origin_has_for_the_server() {
    let server = Server::start(with_internal_fields());
    let h3 = H3Server::start(with_internal_fields());
    for (path, own) in [
        ("/origin", ""),
        ("/site", "x-accel-buffering"),
        ("/own", "all"),
    ] {
        let one = server.connect().get(path);
        let two = Peer::open(connect(server.address()).unwrap()).fetch(path);
        let three = h3.open().get(path);
        for name in [
            "x-accel-redirect",
            "x-sendfile",
            "x-apus-events",
            "x-accel-buffering",
            "x-other",
        ] {
            let is_expected = match own {
                "all" => name != "x-accel-buffering",
                own => name == own || name == "x-other",
            };
            assert_eq!(
                one.field(name).is_some(),
                is_expected,
                "HTTP/1.1 {path} {name}"
            );
            assert_eq!(
                two.field(name).is_some(),
                is_expected,
                "HTTP/2 {path} {name}"
            );
            assert_eq!(
                three.field(name).is_some(),
                is_expected,
                "HTTP/3 {path} {name}"
            );
        }
    }
}
