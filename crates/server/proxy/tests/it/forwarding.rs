//! The proxy with origins on real sockets: the requests that they get, and the responses of the proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use apus_client::Address;
use apus_http::{Body, Frame, Headers, RuleChoice, Service, ServiceFactory};
use apus_proxy::{
    CookieRules, Forwarding, HoldSettings, HostHeader, PathChange, Proxy, ProxySettings,
    RedirectRule, Substitution, Substitutions,
};
use apus_upstream::Upstreams;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};

use apus_testkit::scripted::{Action, ScriptedServer};
use apus_testkit::{Reply, ask, block_on, get};

/// An origin with one request per connection, which always sends the same bytes and passes on the requests.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) received: mpsc::Receiver<String>,
}

impl Origin {
    pub(crate) fn sending(response: impl Into<Vec<u8>>) -> Self {
        Self::new(response.into(), drop)
    }

    /// An origin that closes a connection when the next request arrives over it.
    pub(crate) fn closing_late(response: impl Into<Vec<u8>>) -> Self {
        Self::new(response.into(), |mut socket| {
            let _ = socket.read(&mut [0]);
        })
    }

    /// An origin that does this with a connection after it has responded.
    fn new(response: Vec<u8>, close: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = mpsc::channel();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (response, sender) = (response.clone(), sender.clone());
                thread::spawn(move || close(serve(socket, &response, &sender)));
            }
        });
        Self { address, received }
    }

    fn received(&self) -> String {
        self.received.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

fn serve(mut socket: TcpStream, response: &[u8], sender: &mpsc::Sender<String>) -> TcpStream {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let Ok(read @ 1..) = socket.read(&mut buffer) else {
            return socket;
        };
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let whole = match head.to_ascii_lowercase() {
            head if head.contains("transfer-encoding") => body.ends_with("\r\n\r\n"),
            head => match head.split_once("content-length: ") {
                Some((_, rest)) => {
                    body.len() >= rest.lines().next().unwrap().parse::<usize>().unwrap()
                }
                None => true,
            },
        };
        if whole {
            let _ = sender.send(text);
            let _ = socket.write_all(response);
            return socket;
        }
    }
}

fn proxy(nodes: &[SocketAddr], settings: ProxySettings) -> Rc<dyn Service> {
    let upstreams = Upstreams::new();
    let nodes = nodes
        .iter()
        .map(|address| {
            NodePlan::new(
                address.to_string(),
                NodeTarget::Address(Address::Ip(*address)),
            )
        })
        .collect();
    upstreams.apply(vec![GroupPlan::new("app", nodes)]);
    Proxy::new(&upstreams, "app", settings).service()
}

fn response_of(origin: &Origin, settings: ProxySettings) -> Reply {
    get("/a%20b?c=d").of(&proxy(&[origin.address], settings))
}

pub(crate) const SIMPLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: yes\r\n\r\nhello";

#[test]
fn one_origin_is_reached_by_its_address() {
    let origin = Origin::sending("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for (address, line) in [
        (format!("http://{}", origin.address), "GET /a?b HTTP/1.1"),
        (
            format!("http://localhost:{}/v1/", origin.address.port()),
            "GET /v1/a?b HTTP/1.1",
        ),
    ] {
        let proxy = Proxy::to(&address).unwrap().configure(|settings| {
            settings.hidden = vec!["x-none".into()];
        });
        assert_eq!(get("/a?b").to(&proxy).text(), "ok");
        let got = origin.received();
        assert!(got.starts_with(line), "{got}");
        assert!(got.contains("host: example.com\r\n"), "{got}");
    }
    for (address, why) in [
        ("127.0.0.1:80", "has to begin with http://"),
        ("ftp://a", "has to begin with http://"),
        ("http://a?b", "query is not allowed"),
        ("http://u@a", "user is not allowed"),
        ("http://no.invalid", "cannot be looked up"),
        ("http:// a", "not a URL"),
    ] {
        let error = Proxy::to(address).unwrap_err().to_string();
        assert!(error.contains(why), "{address}: {error}");
    }
}

#[test]
fn forwards_a_request_and_its_response() {
    let origin = Origin::sending(SIMPLE);
    let reply = response_of(&origin, ProxySettings::default());
    assert_eq!((reply.status, reply.text()), (200, "hello"));
    assert_eq!(reply.field("x-own"), Some("yes"));
    let got = origin.received();
    let mut lines = got.lines();
    assert_eq!(lines.next(), Some("GET /a%20b?c=d HTTP/1.1"));
    for line in [
        "host: example.com",
        "via: 1.1 apus",
        "x-forwarded-proto: http",
    ] {
        assert!(
            got.to_ascii_lowercase().contains(&format!("{line}\r\n")),
            "{got}"
        );
    }
}

#[test]
fn changes_host_and_path_by_the_settings() {
    let origin = Origin::sending(SIMPLE);
    let settings = ProxySettings {
        host: HostHeader::Fixed("internal:81".into()),
        path: Some(PathChange {
            strip: "/api/".into(),
            put: "/v1/".into(),
        }),
        forwarding: Forwarding {
            x_forwarded: false,
            via: false,
            ..Forwarding::default()
        },
        ..ProxySettings::default()
    };
    let service = proxy(&[origin.address], settings);
    get("/api/x/%2e%2e/y?q").of(&service);
    let got = origin.received();
    assert!(got.starts_with("GET /v1/y?q HTTP/1.1\r\n"), "{got}");
    assert!(
        got.to_ascii_lowercase().contains("host: internal:81\r\n"),
        "{got}"
    );
    assert!(!got.to_ascii_lowercase().contains("x-forwarded"), "{got}");
}

#[test]
fn streams_a_body_with_its_length_or_in_chunks() {
    let origin = Origin::sending(SIMPLE);
    let service = proxy(&[origin.address], ProxySettings::default());
    let reply = ask("POST", "/").body("content").of(&service);
    assert_eq!(reply.status, 200);
    let got = origin.received().to_ascii_lowercase();
    assert!(
        got.contains("content-length: 7\r\n") && got.ends_with("\r\n\r\ncontent"),
        "{got}"
    );
}

/// A body with a trailer section.
struct WithTrailers(Vec<Frame>);

impl WithTrailers {
    fn new(lines: &[(&str, &str)]) -> Self {
        let mut trailers = Headers::new();
        for (name, value) in lines {
            trailers.try_append(name, value).unwrap();
        }
        Self(vec![Frame::Trailers(trailers), Frame::Data("hello".into())])
    }
}

impl apus_http::BodyStream for WithTrailers {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, apus_http::BodyError>>> {
        std::task::Poll::Ready(self.0.pop().map(Ok))
    }
}

#[test]
fn filters_request_trailers_as_headers() {
    let lines = [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1"),
        ("x-original-url", "/admin"),
        ("x_note", "1"),
        ("authorization", "Basic eDp5"),
        ("content-length", "0"),
        ("transfer-encoding", "chunked"),
        ("host", "evil.test"),
        ("x-note", "seven"),
    ];
    for (underscores, passed) in [
        (false, "x-note: seven\r\n"),
        (true, "x_note: 1\r\nx-note: seven\r\n"),
    ] {
        let origin = Origin::sending(SIMPLE);
        let settings = ProxySettings {
            forwarding: Forwarding {
                underscores,
                ..Forwarding::default()
            },
            ..ProxySettings::default()
        };
        let body = Body::stream(WithTrailers::new(&lines));
        let reply = ask("POST", "/")
            .body(body)
            .of(&proxy(&[origin.address], settings));
        assert_eq!(reply.status, 200);
        let got = origin.received().to_ascii_lowercase();
        let (_, body) = got.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, format!("5\r\nhello\r\n0\r\n{passed}\r\n"));
    }
}

#[test]
fn filters_hidden_response_trailers() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\n\r\n\
        5\r\nhello\r\n0\r\nX-Secret: 1\r\nSet-Cookie: a=b\r\nX-Hop: 1\r\nX-Sum: 7\r\n\r\n";
    let origin = Origin::sending(response);
    let settings = ProxySettings {
        hidden: vec!["x-secret".into()],
        ..ProxySettings::default()
    };
    let service = proxy(&[origin.address], settings);
    let trailers = block_on(async {
        let mut body = service.call(get("/").request()).wait().await.take_body();
        loop {
            match body.frame().await.unwrap().unwrap() {
                Frame::Trailers(trailers) => return trailers,
                Frame::Data(_) | Frame::File(_) => {}
            }
        }
    });
    assert_eq!(trailers.wire(), b"x-sum: 7\r\n");
}

#[test]
fn changes_redirects_and_cookies_and_hides_headers() {
    let response = "HTTP/1.1 302 Found\r\nLocation: http://internal/base/x\r\nServer: Old/1.0\r\n\
        Set-Cookie: a=1; Path=/base/\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nContent-Length: 0\r\n\r\n";
    let origin = Origin::sending(response);
    let settings = ProxySettings {
        redirects: vec![RedirectRule {
            from: "http://internal/base/".into(),
            to: "/shop/".into(),
        }],
        cookies: CookieRules {
            paths: vec![("/base/".into(), "/shop/".into())],
            secure: true,
            ..CookieRules::default()
        },
        hidden: vec!["server".into()],
        ..ProxySettings::default()
    };
    let reply = response_of(&origin, settings);
    assert_eq!(reply.field("location"), Some("/shop/x"));
    assert_eq!(reply.field("set-cookie"), Some("a=1; Path=/shop/; Secure"));
    for gone in ["server", "x-hop", "connection"] {
        assert_eq!(reply.field(gone), None, "{gone}");
    }
}

#[test]
fn replaces_texts_and_requests_uncompressed_responses() {
    let response = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 23\r\n\r\n\
        <a href=http://inside/>";
    let origin = Origin::sending(response);
    let rule = Substitution {
        from: (*b"http://inside").into(),
        to: (*b"https://example.com").into(),
    };
    let settings = ProxySettings {
        substitutions: Substitutions::new(vec![rule], Vec::new()),
        ..ProxySettings::default()
    };
    let service = proxy(&[origin.address], settings);
    let reply = get("/").with("accept-encoding", "br, gzip").of(&service);
    assert_eq!(reply.text(), "<a href=https://example.com/>");
    assert_eq!(reply.field("content-length"), None);
    assert!(
        !origin
            .received()
            .to_ascii_lowercase()
            .contains("accept-encoding")
    );
}

/// An origin with an HTML page and an image of the same bytes, which responds to `Range` and to conditions.
fn origin_with_ranges() -> ScriptedServer {
    const BODY: &str = "<a href=http://inside/>0123456789</a>";
    ScriptedServer::start(|request| {
        let head = request.head.to_ascii_lowercase();
        let kind = if head.starts_with("get /image") || head.starts_with("head /image") {
            "image/png"
        } else {
            "text/html; charset=utf-8"
        };
        let own = "ETag: \"v1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let lines = format!(
            "{own}Content-Type: {kind}\r\nAccept-Ranges: bytes\r\nContent-MD5: x\r\n\
             Content-Digest: x\r\nRepr-Digest: x\r\nDigest: x\r\n"
        );
        let length = BODY.len();
        let range = |first: &str| {
            let range = head
                .split_once("\r\nrange: bytes=")?
                .1
                .split_once("\r\n")?
                .0;
            range.starts_with(first).then_some(())
        };
        let response = if head.contains("if-none-match") {
            format!("HTTP/1.1 304 Not Modified\r\n{own}\r\n")
        } else if range("900").is_some() {
            format!(
                "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{length}\r\n\
                 Content-Length: 0\r\n\r\n"
            )
        } else if range("0-1,").is_some() {
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\
             Content-Type: multipart/byteranges; boundary=b\r\n\r\nparts"
                .to_owned()
        } else if range("").is_some() {
            format!(
                "HTTP/1.1 206 Partial Content\r\n{lines}Content-Length: 5\r\n\
                 Content-Range: bytes 10-14/{length}\r\n\r\n{}",
                &BODY[10..15]
            )
        } else {
            let body = if head.starts_with("head") { "" } else { BODY };
            format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {length}\r\n\r\n{body}")
        };
        Action::Respond(response.into_bytes())
    })
}

#[test]
fn a_range_of_a_body_with_replaced_texts_is_not_that_of_the_origin() {
    let origin = origin_with_ranges();
    let address = SocketAddr::from(([127, 0, 0, 1], origin.port));
    let rule = Substitution {
        from: (*b"http://inside").into(),
        to: (*b"https://a-longer.example").into(),
    };
    let settings = ProxySettings {
        substitutions: Substitutions::new(vec![rule], Vec::new()),
        ..ProxySettings::default()
    };
    let service = proxy(&[address], settings);
    let whole = "<a href=https://a-longer.example/>0123456789</a>";
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for range in ["bytes=10-14", "bytes=0-1,3-4", "bytes=900-"] {
        for if_range in ["", "\"v1\"", "W/\"v1\"", date] {
            let mut request = get("/page").with("range", range);
            if !if_range.is_empty() {
                request = request.with("if-range", if_range);
            }
            let reply = request.of(&service);
            assert_eq!(
                (reply.status, reply.text()),
                (200, whole),
                "{range} {if_range}"
            );
            // What describes the bytes of the origin is gone, and nothing resumes them.
            assert_eq!(reply.field("etag"), Some("W/\"v1\""));
            for gone in [
                "last-modified",
                "accept-ranges",
                "content-range",
                "content-length",
                "content-md5",
                "content-digest",
                "repr-digest",
                "digest",
            ] {
                assert_eq!(reply.field(gone), None, "{range} {if_range} {gone}");
            }
        }
    }
    // HEAD has the fields of GET.
    let head = ask("HEAD", "/page").of(&service);
    assert_eq!((head.status, head.field("etag")), (200, Some("W/\"v1\"")));
    assert_eq!(
        (head.field("content-length"), head.field("last-modified")),
        (None, None)
    );
    // Parts of other types stay parts, with their validators.
    let part = get("/image").with("range", "bytes=10-14").of(&service);
    assert_eq!((part.status, part.text()), (206, "tp://"));
    assert_eq!(part.field("etag"), Some("\"v1\""));
    assert_eq!(part.field("last-modified"), Some(date));
    let beyond = get("/image").with("range", "bytes=900-").of(&service);
    assert_eq!(
        (beyond.status, beyond.field("content-range")),
        (416, Some("bytes */37"))
    );
    // A 304 has the tag that the client has.
    for (tag, date) in [("W/\"v1\"", None), ("\"v1\"", Some(date))] {
        let same = get("/page").with("if-none-match", tag).of(&service);
        assert_eq!((same.status, same.field("etag")), (304, Some(tag)));
        assert_eq!(same.field("last-modified"), date);
    }
}

#[test]
fn retries_at_another_node() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let origin = Origin::sending(SIMPLE);
    let service = proxy(&[gone, origin.address], ProxySettings::default());
    for _ in 0..4 {
        assert_eq!(get("/").of(&service).text(), "hello");
    }
}

#[test]
fn responds_with_an_error_status_if_the_origin_fails() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(
        get("/")
            .of(&proxy(&[gone], ProxySettings::default()))
            .status,
        502
    );
    let nonsense = Origin::sending("SSH-2.0-x\r\n\r\n");
    assert_eq!(response_of(&nonsense, ProxySettings::default()).status, 502);
    let none = Proxy::new(&Upstreams::new(), "app", ProxySettings::default()).service();
    assert_eq!(get("/").of(&none).status, 503);
    let empty = proxy(&[], ProxySettings::default());
    let reply = get("/").of(&empty);
    assert_eq!(reply.status, 503);
    assert!(reply.field("retry-after").is_some());
}

#[test]
fn rejects_a_proxy_loop() {
    let origin = Origin::sending(SIMPLE);
    let service = proxy(&[origin.address], ProxySettings::default());
    let hops = ["1.1 apus"; 20].join(", ");
    assert_eq!(get("/").with("via", &hops).of(&service).status, 508);
}

#[test]
fn does_not_complete_a_response_that_breaks_off() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    for hold in [None, Some(1000)] {
        let origin = Origin::sending(response);
        let folder = tempfile::tempdir().unwrap();
        let settings = ProxySettings {
            hold_response: hold.map(|memory| HoldSettings {
                memory,
                disk: 0,
                folder: folder.path().into(),
            }),
            ..ProxySettings::default()
        };
        let service = proxy(&[origin.address], settings);
        block_on(async {
            let mut response = service.call(get("/").request()).wait().await;
            assert_eq!(response.body().len(), Some(100));
            let end = loop {
                match response.body_mut().frame().await {
                    Some(Ok(_)) => {}
                    end => break end,
                }
            };
            assert!(matches!(end, Some(Err(_))), "{end:?}");
        });
    }
}

#[test]
fn keeps_an_empty_error_response_empty() {
    let origin = Origin::sending("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let service = proxy(&[origin.address], ProxySettings::default());
    let response = block_on(async { service.call(get("/").request()).wait().await });
    assert!(matches!(response.body(), Body::Bytes(_)));
}

#[test]
fn buffers_a_request_until_it_is_complete() {
    struct Slow(usize);
    impl apus_http::BodyStream for Slow {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame, apus_http::BodyError>>> {
            self.0 += 1;
            std::task::Poll::Ready(match self.0 {
                1..=10 => Some(Ok(Frame::Data(vec![b'x'; 1000].into()))),
                _ => None,
            })
        }
    }
    for (memory, disk) in [(100_000, 0), (2500, 100_000), (2500, 0), (2500, 3000)] {
        let origin = Origin::sending(SIMPLE);
        let folder = tempfile::tempdir().unwrap();
        let settings = ProxySettings {
            hold_request: Some(HoldSettings {
                memory,
                disk,
                folder: folder.path().into(),
            }),
            ..ProxySettings::default()
        };
        let service = proxy(&[origin.address], settings);
        let reply = ask("POST", "/").body(Body::stream(Slow(0))).of(&service);
        assert_eq!(reply.status, 200);
        let got = origin.received().to_ascii_lowercase();
        let is_held_whole = memory + disk >= 10_000;
        assert_eq!(
            got.contains("content-length: 10000"),
            is_held_whole,
            "{memory} {disk}"
        );
        assert!(got.matches('x').count() >= 10_000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_request_goes_to_the_group_that_was_chosen_for_it_if_the_proxy_has_it() {
    let origins = ["one", "two"].map(|name| {
        Origin::sending(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{name}"
        ))
    });
    let upstreams = Upstreams::new();
    let group = |name: &str, origin: &Origin| {
        let target = NodeTarget::Address(Address::Ip(origin.address));
        GroupPlan::new(name, vec![NodePlan::new(name, target)])
    };
    upstreams.apply(vec![group("one", &origins[0]), group("two", &origins[1])]);
    let fixed = ProxySettings {
        host: HostHeader::Fixed("two.internal".into()),
        ..ProxySettings::default()
    };
    let proxy = Proxy::new(&upstreams, "one", ProxySettings::default()).choice("two", fixed);
    let service = proxy.service();
    assert_eq!(get("/").of(&service).text(), "one");
    for (chosen, name) in [("two", "two"), ("one", "one"), ("three", "one")] {
        let mut request = get("/").request();
        RuleChoice::set_upstream(&mut request, &chosen.into());
        let choice = RuleChoice::of(&request).unwrap().clone();
        let reply = get("/").extension(choice).of(&service);
        assert_eq!(reply.text(), name, "{chosen}");
    }
    let got = origins[1].received();
    assert!(got.contains("host: two.internal\r\n"), "{got}");
}
