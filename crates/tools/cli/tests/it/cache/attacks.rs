//! Attacks on caches: no client gets a response that belongs to another, and no client can poison the cache.

use super::{MINUTE, cached, configured, configured_with, get, is_hit, numbered, requests_to};
use crate::proxy::scripted_origin::ScriptedOrigin;

#[test]
fn each_scheme_host_port_and_query_has_its_own_stored_response() {
    let origin = numbered(|head| {
        let lower = head.to_ascii_lowercase();
        let line = |name: &str| {
            let line = lower.lines().find(|line| line.starts_with(name));
            line.unwrap_or_default().replace(": ", "=")
        };
        let (host, scheme) = (line("host: "), line("x-forwarded-proto: "));
        format!("{MINUTE}X-For: {host} {scheme}\r\n")
    });
    let front = configured(&origin).tls().serve();
    let field_for = |host: &str, target: &str| {
        let reply = front.request(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        reply.field("x-for").unwrap().to_owned()
    };
    for _ in 0..2 {
        for host in ["localhost", "a.test", "b.test", "a.test:8080"] {
            let field = field_for(host, "/page");
            assert!(
                field.starts_with(&format!("host={host} ")),
                "{host}: {field}"
            );
        }
    }
    assert_eq!(requests_to(&origin), 4);
    // Host names are compared without case.
    assert!(field_for("A.test", "/page").starts_with("host=a.test "));
    let authority = front.authority_file();
    for version in crate::proxy::VERSIONS {
        let version = version.replace("-prior-knowledge", "");
        let reply = crate::proxy::curl(&version)
            .args(&["--cacert", authority.to_str().unwrap()])
            .get(&format!("https://{}/page", front.tls_authority()));
        assert!(reply.field("x-for").contains("proto=https"), "{version}");
    }
    for query in [
        "/page?",
        "/page?a=1",
        "/page?a=2",
        "/page?b=1&a=1",
        "/page?a=1&b=1",
    ] {
        assert_eq!(get(&front, query, "").text(), "answer 1", "{query}");
    }
}

#[test]
fn a_stored_response_of_one_site_is_not_served_for_another() {
    let origins = [
        numbered(|_| MINUTE.to_owned()),
        numbered(|_| MINUTE.to_owned()),
    ];
    let other = format!(
        "[[sites]]\nserver_name = \"other.test\"\nlisten = [\"127.0.0.1:0\"]\n\
         [[sites.locations]]\npath = \"/\"\nupstream = \"http://{}\"\ncache = true",
        origins[1].address()
    );
    let front = configured(&origins[0]).after(&other).serve();
    for _ in 0..2 {
        assert_eq!(front.get("/page").text(), "answer 1");
        // The name of the second site is requested on the addresses of both.
        for url in front.apus.urls() {
            let address = crate::harness::address_of(url);
            let mut wire = crate::wire::Wire::connect(address);
            wire.send("GET /page HTTP/1.1\r\nHost: other.test\r\n\r\n");
            assert_eq!(wire.read().status, 200);
        }
    }
    assert!(requests_to(&origins[0]) >= 1 && requests_to(&origins[1]) == 1);
}

#[test]
fn responses_to_requests_with_credentials_are_not_shared() {
    let origin = numbered(|_| MINUTE.to_owned());
    let front = cached(&origin);
    let mine = get(&front, "/", "Authorization: Basic bWU6bWU=\r\n");
    assert_eq!(mine.text(), "answer 1");
    assert_eq!(front.get("/").text(), "answer 2");
    // A request with credentials may get the stored response only if that permits it (section 3.5).
    let theirs = get(&front, "/", "Authorization: Basic eW91OnlvdQ==\r\n");
    assert!(["answer 2", "answer 3"].contains(&theirs.text().as_str()));
    let next = front.get("/").text();
    assert_eq!(
        next, "answer 2",
        "a response to a request with credentials was stored"
    );
}

#[test]
fn responses_that_set_cookies_are_not_stored() {
    let origin = numbered(|_| format!("{MINUTE}Set-Cookie: session=secret\r\n"));
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "answer 1");
    let second = front.get("/");
    assert_eq!(second.text(), "answer 2");
}

#[test]
fn vary_selects_among_stored_responses() {
    let origin = numbered(|head| {
        let lower = head.to_ascii_lowercase();
        let language = lower.split("accept-language: ").nth(1).unwrap_or("none");
        let language = language.lines().next().unwrap().to_owned();
        format!("{MINUTE}Vary: Accept-Language\r\nContent-Language: {language}\r\n")
    });
    let front = cached(&origin);
    for _ in 0..2 {
        for language in ["de", "en", "zh"] {
            let reply = get(&front, "/", &format!("Accept-Language: {language}\r\n"));
            assert_eq!(reply.field("content-language"), Some(language));
        }
        assert_eq!(front.get("/").field("content-language"), Some("none"));
    }
    assert_eq!(requests_to(&origin), 4);
}

#[test]
fn responses_with_vary_star_are_not_stored() {
    let origin = numbered(|_| format!("{MINUTE}Vary: *\r\n"));
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "answer 1");
    assert_eq!(front.get("/").text(), "answer 2");
}

#[test]
fn endless_variants_take_bounded_memory() {
    let origin = numbered(|_| {
        format!(
            "{MINUTE}Vary: Accept-Language\r\nX-Filler: {}\r\n",
            "x".repeat(4000)
        )
    });
    let front = cached(&origin);
    let mut wire = front.connect();
    for number in 0..5000 {
        wire.send(format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nAccept-Language: l{number}\r\n\r\n"
        ));
        assert_eq!(wire.read().status, 200);
    }
    front.assert_memory_is_bounded();
    assert_eq!(front.get("/").status, 200);
}

#[test]
fn a_page_whose_path_looks_like_a_file_is_not_stored() {
    // Web cache deception: the application responds to /account/x.css with the account page.
    let origin = numbered(|_| "Content-Type: text/html\r\n".to_owned());
    let front = cached(&origin);
    for path in [
        "/account/x.css",
        "/account;x.js",
        "/account%2fx.css",
        "/account/x.css?a=b",
    ] {
        let first = get(&front, path, "Cookie: session=mine\r\n");
        let second = get(&front, path, "");
        if first.status == 200 {
            assert_ne!(first.text(), second.text(), "{path}");
        }
    }
}

#[test]
fn equivalent_paths_share_one_stored_response_and_other_paths_do_not() {
    let origin = numbered(|_| MINUTE.to_owned());
    let front = cached(&origin);
    assert_eq!(front.get("/a/b").text(), "answer 1");
    for spelled in [
        "/a/x/../b",
        "/a//b",
        "/./a/./b",
        "/%61/../a/b",
        "/a/x/%2e%2E/b",
        "/x%2f..%2fa/b",
    ] {
        assert!(is_hit(&front, spelled), "{spelled}");
    }
    for other in ["/a/b/", "/A/b", "/a%2fb", "/a/b;x", "/a/b?", "/a/b%20"] {
        assert!(!is_hit(&front, other), "{other}");
    }
    // The origin receives the normalized path of the cache key.
    let received = origin.received();
    assert_eq!(received.matches("GET /a/b HTTP").count(), 1, "{received}");
}

#[test]
fn errors_that_a_crafted_request_causes_are_not_stored() {
    let origin = numbered(|head| {
        let evil = head.to_ascii_lowercase().contains("x-oversized: ");
        if evil {
            "X-Evil: yes\r\n".to_owned()
        } else {
            MINUTE.to_owned()
        }
    });
    let front = cached(&origin);
    for status in [400, 403, 404, 413, 431, 500, 502, 503] {
        let target = format!("/?status={status}");
        let crafted = get(&front, &target, "X-Oversized: 1\r\n");
        assert_eq!(
            (crafted.status, crafted.text()),
            (status, "answer 1".into())
        );
        let honest = get(&front, &target, "");
        assert_eq!(honest.field("x-evil"), None, "{status}");
    }
    // Responses to requests that the server rejects itself are not stored.
    for crafted in [
        "GET /page HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n".to_owned(),
        format!(
            "GET /page HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(50_000)
        ),
        "GET /page HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n".to_owned(),
    ] {
        assert!(front.request(crafted).status >= 400);
        assert_eq!(front.get("/page").status, 200);
    }
}

#[test]
fn fields_outside_the_cache_key_do_not_poison_stored_responses() {
    for field in [
        "X-Forwarded-Host: evil.test",
        "X_Forwarded_Host: evil.test",
        "X-Host: evil.test",
        "X-Original-Host: evil.test",
        "X-Forwarded-Server: evil.test",
        "X-Forwarded-Port: 666",
        "X-Forwarded-Prefix: /evil",
        "X-Real-IP: 10.9.9.9",
        "True-Client-IP: 10.9.9.9",
        "X-Forwarded-Scheme: http",
        "X-Forwarded-Proto: https",
        "X-Original-URL: /evil",
        "X-Rewrite-URL: /evil",
        "X-HTTP-Method-Override: POST",
        "Forwarded: host=evil.test",
    ] {
        // The application trusts each of these fields and reports so in its response.
        let name = field.split(':').next().unwrap().to_ascii_lowercase();
        let value = field.split(": ").nth(1).unwrap();
        let origin = numbered(move |head| {
            let lower = head.to_ascii_lowercase();
            let is_poisoned = lower
                .lines()
                .any(|line| line.starts_with(&name) && line.ends_with(value));
            format!("{MINUTE}X-Poisoned: {is_poisoned}\r\n")
        });
        let front = cached(&origin);
        assert_eq!(get(&front, "/", &format!("{field}\r\n")).status, 200);
        let honest = front.get("/");
        assert_ne!(honest.field("x-poisoned"), Some("true"), "{field}");
    }
}

#[test]
fn the_response_to_a_get_with_a_body_is_not_served_to_others() {
    let origin = numbered(|head| {
        let fat = head.to_ascii_lowercase().contains("content-length: 4");
        format!("{MINUTE}X-Fat: {fat}\r\n")
    });
    let front = cached(&origin);
    front.request("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nevil");
    let honest = front.get("/");
    assert_eq!(honest.field("x-fat"), Some("false"));
}

#[test]
fn the_response_to_head_is_not_served_to_get() {
    let origin = numbered(|_| MINUTE.to_owned());
    let front = cached(&origin);
    let mut wire = front.connect();
    wire.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(wire.read_head().status, 200);
    let whole = front.get("/");
    assert!(whole.text().starts_with("answer "), "{:?}", whole.text());
    // The stored response to GET is served to HEAD, without its body.
    wire.send("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(wire.read_head().field("content-length"), Some("8"));
    wire.assert_closed();
}

#[test]
fn a_partial_response_is_not_served_as_the_whole() {
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(head) = connection.read_request() {
            let lower = head.to_ascii_lowercase();
            let lines = format!("{MINUTE}ETag: \"one\"\r\n");
            if lower.contains("range: bytes=0-3\r\n") {
                connection.send(format!(
                    "HTTP/1.1 206 Partial Content\r\n{lines}Content-Range: bytes 0-3/8\r\n\
                     Content-Length: 4\r\n\r\nhalf"
                ));
            } else if lower.contains("range: bytes=4-") {
                connection.send(format!(
                    "HTTP/1.1 206 Partial Content\r\n{lines}Content-Range: bytes 4-7/8\r\n\
                     Content-Length: 4\r\n\r\nrest"
                ));
            } else {
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{lines}Content-Length: 8\r\n\r\nhalfrest"
                ));
            }
        }
    });
    let front = cached(&origin);
    let part = get(&front, "/", "Range: bytes=0-3\r\n");
    assert_eq!((part.status, part.text()), (206, "half".into()));
    let whole = front.get("/");
    assert_eq!((whole.status, whole.text()), (200, "halfrest".into()));
    let other = get(&front, "/", "Range: bytes=2-5\r\n");
    assert_eq!((other.status, other.text()), (206, "lfre".into()));
}

#[test]
fn a_truncated_response_is_not_stored_as_complete() {
    for cut in [
        "Content-Length: 100\r\n\r\npart",
        "Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            let first = connection.number() == 0;
            while connection.read_request().is_some() {
                if first {
                    connection.send(format!("HTTP/1.1 200 OK\r\n{MINUTE}{cut}"));
                    return;
                }
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{MINUTE}Content-Length: 5\r\n\r\nwhole"
                ));
            }
        });
        let front = cached(&origin);
        assert!(
            crate::proxy::curl("--http1.1")
                .run(&front.url("/"))
                .is_err()
        );
        for _ in 0..2 {
            assert_eq!(front.get("/").text(), "whole", "{cut:?}");
        }
    }
}

#[test]
fn clients_without_the_token_cannot_purge() {
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(head) = connection.read_request() {
            if head.starts_with("GET ") {
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{MINUTE}Content-Length: 4\r\n\r\ngood"
                ));
            } else {
                connection.send("HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let front = configured_with(
        &origin,
        "cache = { purge_token = \"a-long-secret-that-nobody-knows\" }",
    )
    .serve();
    assert_eq!(front.get("/").text(), "good");
    for request in [
        "PURGE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PURGE / HTTP/1.1\r\nHost: localhost\r\nPurge-Prefix: 1\r\n\r\n",
        "PURGE / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\n\r\n",
        "PURGE / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-long-secret\r\n\r\n",
        "PURGE / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n",
        "BAN / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "REFRESH / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let status = front.request(request).status;
        assert!((400..500).contains(&status), "{request} {status}");
    }
    assert_eq!(front.get("/").text(), "good");
    let requests = origin.received().matches("GET / HTTP").count();
    assert_eq!(requests, 1, "something was purged");
}
