//! Request facts: client address, scheme, host and port have the same values for every consumer. Each source
//! is tested with each consumer, trusted and not trusted.

use crate::clients::certificate;
use crate::harness::{Apus, Home, free_port, wait_until};
use crate::php::stack::Stack;
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::wire::{Received, Wire};

/// The source of the request facts.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The socket and the request itself.
    Direct,
    /// A PROXY protocol header before the first request.
    ProxyProtocol,
    /// `X-Forwarded-For` and its relatives.
    XForwarded,
    /// `Forwarded`.
    Forwarded,
}

/// A server with every consumer of request facts.
struct Site {
    home: Home,
    apus: Apus,
    source: Source,
    origins: [ScriptedOrigin; 2],
}

/// The response of the origins.
const STORED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok";

const PROGRAM: &str = "<?php foreach (['REMOTE_ADDR', 'REQUEST_SCHEME', 'HTTPS', 'HTTP_HOST', \
                       'SERVER_PORT'] as $name) { echo $_SERVER[$name] ?? '-', ' '; } \
                       foreach ($_SERVER as $name => $value) { if (preg_match('/FORWARDED|REAL_IP/', \
                       $name)) { echo $name; } }";

impl Site {
    fn start(source: Source, is_trusted: bool) -> Self {
        let origins = [
            ScriptedOrigin::responding(STORED),
            ScriptedOrigin::responding(STORED),
        ];
        let stack = Stack::scripts();
        let name = format!("facts-{source:?}-{is_trusted}");
        stack.write(&format!("{name}/tell.php"), PROGRAM);
        let (global, listener) = match (source, is_trusted) {
            (Source::Direct, _) | (_, false) => ("", ""),
            (Source::ProxyProtocol, true) => ("", "proxy_protocol_from = \"127.0.0.0/8\""),
            (Source::XForwarded, true) => ("trusted_proxies = \"127.0.0.0/8\"", ""),
            (Source::Forwarded, true) => (
                "trusted_proxies = \"127.0.0.0/8\"\ntrusted_proxies_header = \"Forwarded\"",
                "",
            ),
        };
        // Without a trusted proxy in front, `force_https` requires a listener with TLS.
        let tls = match global {
            "" => format!(
                "listen_tls = \"127.0.0.1:{}\"\n\
                 tls = {{ cert = \"secure.pem\", key = \"secure.key\" }}\n",
                free_port()
            ),
            _ => String::new(),
        };
        let [one, two] = origins.each_ref().map(ScriptedOrigin::address);
        let port = free_port();
        let home = Home::new();
        certificate(&home, "secure", "secure.example");
        home.write(
            "apus.toml",
            format!(
                "[global]\n{global}\n\
                 [[sites]]\nserver_name = [\"outer.example\", \"_\"]\nlisten = \"127.0.0.1:{port}\"\n\
                 {listener}\nroot = \"{root}\"\nphp_fastcgi = \"{php}\"\n\
                 access_log = {{ path = \"log\", format = \"$remote_addr $scheme $host $server_port\" }}\n\
                 upstreams = [{{ name = \"hashed\", strategy = \"ip_hash\", nodes = [\"{one}\", \"{two}\"] }}]\n\
                 [[sites.locations]]\npath = \"= /variables\"\n\
                 return = {{ status = 200, text = \"$remote_addr $scheme $http_host $host $server_port\" }}\n\
                 [[sites.locations]]\npath = \"/origin\"\nupstream = \"http://{one}\"\n\
                 proxy = {{ forwarded = true, via = false }}\n\
                 [[sites.locations]]\npath = \"/hashed\"\nupstream = \"hashed\"\n\
                 [[sites.locations]]\npath = \"/stored\"\nupstream = \"http://{one}\"\ncache = true\n\
                 [[sites]]\nname = \"secure\"\nserver_name = \"secure.example\"\n\
                 listen = \"127.0.0.1:{port}\"\n{listener}\n{tls}force_https = true\n\
                 return = {{ status = 200, text = \"secure\" }}\n",
                root = stack.path(&name).display(),
                php = stack.socket().display(),
            ),
        );
        let apus = home.serve(&[]);
        Self {
            home,
            apus,
            source,
            origins,
        }
    }

    /// The response to a request of a client at this address, which reached the proxy in front as
    /// `https://HOST`.
    fn request(&self, path: &str, ip: &str, host: &str) -> Received {
        self.request_with(path, ip, "https", host)
    }

    fn request_with(&self, path: &str, ip: &str, scheme: &str, host: &str) -> Received {
        let mut wire = Wire::connect(self.apus.address());
        let (before, named, lines) = match self.source {
            Source::Direct => (String::new(), host, String::new()),
            Source::ProxyProtocol => (
                format!("PROXY TCP4 {ip} 198.51.100.1 4711 443\r\n"),
                host,
                String::new(),
            ),
            Source::XForwarded => (
                String::new(),
                "inner.example",
                format!(
                    "X-Forwarded-For: 127.0.0.1, {ip}\r\nX-Forwarded-Proto: {scheme}\r\n\
                     X-Forwarded-Host: {host}\r\nForwarded: for=192.0.2.99;proto=https;host=evil.example\r\n"
                ),
            ),
            Source::Forwarded => (
                String::new(),
                "inner.example",
                format!(
                    "Forwarded: for=127.0.0.1, for={ip};proto={scheme};host={host}\r\n\
                     X-Forwarded-For: 192.0.2.99\r\nX-Forwarded-Proto: https\r\n\
                     X-Forwarded-Host: evil.example\r\n"
                ),
            ),
        };
        wire.send(format!(
            "{before}GET {path} HTTP/1.1\r\nHost: {named}\r\n{lines}X-Real-IP: 192.0.2.98\r\n\
             Connection: close, X-Forwarded-For, Forwarded\r\n\r\n"
        ));
        wire.read()
    }

    /// Everything that the first origin has received.
    fn received(&self) -> String {
        self.origins[0].received()
    }
}

/// The expected facts of a request.
struct Facts {
    ip: &'static str,
    scheme: &'static str,
    authority: &'static str,
    port: u16,
}

#[test]
fn all_consumers_see_the_same_request_facts_from_each_source() {
    let ip = "203.0.113.7";
    let own = Facts {
        ip: "127.0.0.1",
        scheme: "http",
        authority: "inner.example",
        port: 80,
    };
    for (source, is_trusted, facts) in [
        (
            Source::Direct,
            false,
            Facts {
                authority: "outer.example",
                ..own
            },
        ),
        // The test below covers a PROXY header on a listener that does not expect one.
        (
            Source::ProxyProtocol,
            true,
            Facts {
                ip: "203.0.113.7",
                authority: "outer.example",
                ..own
            },
        ),
        (Source::XForwarded, false, Facts { ..own }),
        (Source::Forwarded, false, Facts { ..own }),
        (
            Source::XForwarded,
            true,
            Facts {
                ip: "203.0.113.7",
                scheme: "https",
                authority: "outer.example",
                port: 443,
            },
        ),
        (
            Source::Forwarded,
            true,
            Facts {
                ip: "203.0.113.7",
                scheme: "https",
                authority: "outer.example",
                port: 443,
            },
        ),
    ] {
        let case = format!("{source:?}, trusted: {is_trusted}");
        let site = Site::start(source, is_trusted);
        let Facts {
            ip: seen,
            scheme,
            authority,
            port,
        } = facts;
        // All consumers get the host in its normal form.
        let host = "OUTER.example:";
        let variables = site.request("/variables", ip, host).text();
        assert_eq!(
            variables,
            format!("{seen} {scheme} {authority} {authority} {port}"),
            "{case}"
        );
        wait_until("the access log is written", || {
            site.home.read("log") == format!("{seen} {scheme} {authority} {port}\n")
        });
        let https = if scheme == "https" { "on" } else { "-" };
        assert_eq!(
            site.request("/tell.php", ip, host).text(),
            format!("{seen} {scheme} {https} {authority} {port} "),
            "{case}"
        );
        assert_eq!(site.request("/origin", ip, host).status, 200, "{case}");
        let received = site.received();
        let behind = match (source, is_trusted) {
            (Source::XForwarded | Source::Forwarded, true) => ", 127.0.0.1",
            _ => "",
        };
        let elements = behind.replace(", ", ", for=");
        for (name, value) in [
            ("x-real-ip", seen.to_owned()),
            ("x-forwarded-for", format!("{seen}{behind}")),
            ("x-forwarded-proto", scheme.to_owned()),
            ("x-forwarded-host", authority.to_owned()),
            ("x-forwarded-port", port.to_string()),
            (
                "forwarded",
                format!("for={seen};host=\"{authority}\";proto={scheme}{elements}"),
            ),
        ] {
            let lines: Vec<_> = received
                .lines()
                .filter_map(|line| line.split_once(": "))
                .filter(|(line, _)| line.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
                .collect();
            assert_eq!(lines, [value], "{case}: {name}\n{received}");
        }
        let has_port = !matches!(
            (source, is_trusted),
            (Source::XForwarded | Source::Forwarded, true)
        );
        let is_redirected = |scheme| {
            let reply = site.request_with("/", ip, scheme, "secure.example");
            // Only the port of the server's own listener is known.
            let location = reply.field("location");
            let location = location.map(|location| match location.rsplit_once(':') {
                Some((origin, _)) if has_port => format!("{origin}/"),
                _ => location.to_owned(),
            });
            (reply.status, location)
        };
        let location = Some("https://secure.example/".to_owned());
        match (source, is_trusted) {
            (Source::XForwarded | Source::Forwarded, true) => {
                assert_eq!(is_redirected("https"), (200, None), "{case}");
                assert_eq!(is_redirected("http"), (301, location), "{case}");
            }
            // The site is not selected by the field of an untrusted client.
            (Source::XForwarded | Source::Forwarded, false) => {
                assert_ne!(is_redirected("https").1, location, "{case}");
            }
            _ => assert_eq!(is_redirected("https"), (301, location), "{case}"),
        }
        assert_hashed(&site, seen == ip, &case);
        assert_stored(&site, scheme == "https", &case);
    }
}

/// Expects that `ip_hash` distinguishes clients by their addresses, or that all share the address of the
/// proxy in front.
fn assert_hashed(site: &Site, are_distinguished: bool, case: &str) {
    let requests_to = |origin: &ScriptedOrigin| origin.received().matches("GET /hashed").count();
    for last in 1..=32 {
        let reply = site.request("/hashed", &format!("192.0.2.{last}"), "outer.example");
        assert_eq!(reply.status, 200, "{case}");
    }
    let requests = site.origins.each_ref().map(requests_to);
    assert_eq!(requests.iter().sum::<usize>(), 32, "{case}");
    assert_eq!(
        requests.iter().all(|requests| *requests > 0),
        are_distinguished,
        "{case}: {requests:?}"
    );
}

/// Expects that a response that is stored for one scheme and host is not served for another.
fn assert_stored(site: &Site, are_distinguished: bool, case: &str) {
    let requests = || site.received().matches("GET /stored").count();
    for (scheme, host) in [
        ("https", "outer.example"),
        ("http", "outer.example"),
        ("https", "other.example"),
        ("https", "outer.example"),
    ] {
        assert_eq!(
            site.request_with("/stored", "192.0.2.1", scheme, host)
                .status,
            200
        );
    }
    let expected = match site.source {
        _ if are_distinguished => 3,
        // The source has no scheme, but the request has its own host.
        Source::Direct | Source::ProxyProtocol => 2,
        Source::XForwarded | Source::Forwarded => 1,
    };
    assert_eq!(requests(), expected, "{case}");
}

#[test]
fn a_proxy_protocol_header_on_a_listener_that_expects_none_is_refused() {
    let site = Site::start(Source::ProxyProtocol, false);
    let reply = site.request("/variables", "203.0.113.7", "outer.example");
    assert_eq!(reply.status, 400);
}
