//! Fuzz target of the client's identity behind trusted proxies.

use std::rc::Rc;

use apus::layers::{ClientInfo, TrustedProxies};
use apus::{
    App, Body, ConnectionInfo, Headers, Method, Peer, Request, ResponseFuture, Service,
    ServiceFactory, Target, Version,
};
use apus_http::{Head, HopByHopFields};

/// Fields that a client may have sent, to which a proxy adds.
const PREFIXES: [&str; 6] = [
    "6.6.6.6",
    "\"",
    "for=6.6.6.6",
    "for=\"6.6.6.6",
    "for=\"6.6.6.6;proto=https",
    "\\\"",
];

/// Lines of `X-Forwarded-For`, or of `Forwarded` if the first byte is `f`. Untrusted peers are ignored, the
/// number of lines of a list makes no difference, and entries before the nearest untrusted one do not
/// change the client.
pub fn forwarded(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let reader = match first {
        b'f' => Reader::forwarded(),
        _ => Reader::x_forwarded(),
    };
    let text = String::from_utf8_lossy(rest);
    let is_value = |line: &&str| Headers::new().try_append("x", line).is_ok();
    let lines: Vec<String> = text
        .split('\n')
        .filter(is_value)
        .map(str::to_owned)
        .collect();
    assert_eq!(
        reader.client("192.0.2.1:1", &lines),
        "Some(192.0.2.1) false"
    );
    let client = reader.client("127.0.0.1:1", &lines);
    let is_balanced = |line: &String| line.matches('"').count().is_multiple_of(2);
    if *first == b'f' && !lines.iter().all(is_balanced) {
        return;
    }
    assert_eq!(reader.client("127.0.0.1:1", &[lines.join(", ")]), client);
    // If all proxies are trusted, the client controls the entries before them.
    if client.starts_with("Some(127.") || lines.is_empty() {
        return;
    }
    for prefix in PREFIXES {
        let before = [&[prefix.to_owned()], &lines[..]].concat();
        assert_eq!(reader.client("127.0.0.1:1", &before), client, "{prefix}");
        let mut joined = lines.clone();
        if let Some(first) = joined.first_mut() {
            *first = format!("{prefix}, {first}");
        }
        assert_eq!(reader.client("127.0.0.1:1", &joined), client, "{prefix}");
    }
}

/// An application that trusts proxies on loopback and returns the address of its client.
struct Reader {
    field: &'static str,
    service: Rc<dyn Service>,
}

impl Reader {
    fn x_forwarded() -> Self {
        Self::new("x-forwarded-for", |proxies| proxies)
    }

    fn forwarded() -> Self {
        Self::new("forwarded", TrustedProxies::forwarded)
    }

    fn new(field: &'static str, set: impl Fn(TrustedProxies) -> TrustedProxies) -> Self {
        let network = "127.0.0.0/8".parse().expect("a network");
        let say = |client: ClientInfo| format!("{:?} {}", client.ip, client.is_secure);
        let app = App::new()
            .layer(set(TrustedProxies::new([network])))
            .get("/", say);
        Self {
            field,
            service: app.service(),
        }
    }

    fn client(&self, peer: &str, lines: &[String]) -> String {
        let mut headers = Headers::new();
        for line in lines {
            headers.try_append(self.field, line).expect("a valid value");
        }
        let head = Head {
            method: Method::GET,
            target: Target::parse(&Method::GET, "/").expect("a valid target"),
            version: Version::HTTP_11,
            headers,
            hop_by_hop: HopByHopFields::default(),
        };
        let connection = ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id: 1,
            peer: Peer::Ip(peer.parse().expect("an address")),
            local: Peer::Unix,
            tls: None,
        };
        let request = Request::from_head(Box::new(head), Body::Empty, Rc::new(connection));
        let ResponseFuture::Now(response) = self.service.call(request) else {
            panic!("a handler that does not wait responds at once");
        };
        let body = response.body().in_memory().expect("text");
        String::from_utf8_lossy(body).into_owned()
    }
}
