//! Laravel, Symfony and Slim as Debian packages them, with one small application on each.

use super::compare::assert_same_response;
use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor, between};

const LOCATIONS: &str = "location / { try_files $uri $uri/ /index.php?$query_string; }";

struct Framework {
    apus: Server,
    nginx: Server,
    name: &'static str,
}

fn all() -> Vec<Framework> {
    let stack = Stack::shared();
    ["laravel", "symfony", "slim"]
        .map(|name| {
            let site = Site {
                host: "app.test",
                root: &stack.path(&format!("frameworks/{name}/public")),
                socket: &stack.socket(),
                apus: "preset = \"laravel\"",
                nginx: LOCATIONS,
            };
            Framework {
                apus: Server::apus(&site),
                nginx: Server::nginx(&site),
                name,
            }
        })
        .into()
}

#[test]
fn frameworks_keep_sessions_and_refuse_forged_forms() {
    for Framework { apus, nginx, name } in all() {
        for (server, protocols) in [
            (&apus, &ClientProtocol::ALL[..]),
            (&nginx, &[ClientProtocol::Http1]),
        ] {
            for &protocol in protocols {
                let visitor = Visitor::new(protocol);
                let greeting = || visitor.get(server, "/greeting").text();
                assert_eq!(
                    greeting(),
                    "Hello, stranger! first visit",
                    "{name} {protocol:?}"
                );
                let page = visitor.get(server, "/").text();
                let token = between(&page, "_token\" value=\"", "\"");
                let forged = visitor.post(server, "/greet", &[("name", "Mallory")]);
                assert_eq!(forged.status, 419, "{name} {protocol:?}");
                let form = [("name", "Ada & Émilie"), ("_token", token)];
                let reply = visitor.post(server, "/greet", &form);
                assert_eq!(reply.status, 302, "{name} {protocol:?}");
                let scheme = if protocol == ClientProtocol::Tls {
                    "https"
                } else {
                    "http"
                };
                let location = reply.field("location");
                assert_eq!(location, format!("{scheme}://app.test/greeting"), "{name}");
                assert_eq!(
                    greeting(),
                    "Hello, Ada &amp; Émilie! yes",
                    "{name} {protocol:?}"
                );
            }
        }
    }
}

#[test]
fn frameworks_get_uploads_whole() {
    let stack = Stack::shared();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let file = stack.write("tmp/content.bin", &content);
    let hash = super::sha256(&file);
    for Framework { apus, name, .. } in all() {
        for protocol in ClientProtocol::ALL {
            let visitor = Visitor::new(protocol);
            let page = visitor.get(&apus, "/").text();
            let token = format!("_token={}", between(&page, "_token\" value=\"", "\""));
            let upload = format!("file=@{};filename=\"ü 1.bin\"", file.display());
            let arguments = ["--form", &token, "--form", "note=a b", "--form", &upload];
            let reply = visitor.request(&apus, "/upload", &arguments);
            assert_eq!(reply.status, 200, "{name} {protocol:?}: {}", reply.text());
            let seen: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(seen["name"], "ü 1.bin", "{name} {protocol:?}");
            assert_eq!(seen["size"], content.len(), "{name} {protocol:?}");
            assert_eq!(seen["sha256"], hash.as_str(), "{name} {protocol:?}");
            assert_eq!(seen["note"], "a b", "{name} {protocol:?}");
        }
    }
}

#[test]
fn frameworks_respond_as_behind_nginx() {
    for Framework { apus, nginx, name } in all() {
        let visitor = Visitor::new(ClientProtocol::Http1);
        // From now on, both servers know the session.
        visitor.get(&nginx, "/greeting");
        let same = |path, arguments: &[&str]| {
            assert_same_response(&visitor, &apus, &nginx, path, arguments)
        };
        let reply = same("/users/7?a=b%20c&d[]=1&d[]=%3F&e", &[]);
        let seen: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(seen["url"], "http://app.test/users/7", "{name}");
        assert_eq!(seen["query"]["d"][1], "?", "{name}");
        same("/users/a%20b", &[]);
        same("/index.php/users/8", &[]);
        assert_eq!(same("/nothing/here", &[]).status, 404, "{name}");
        assert_eq!(
            same("/users/7", &["--request", "DELETE"]).status,
            405,
            "{name}"
        );
        let json = ["--request", "PUT", "--json", "{\"of\": [1, \"ü\"]}"];
        assert_eq!(same("/users/7", &json).status, 201, "{name}");
        assert_eq!(same("/stream", &[]).body.len(), 100_000, "{name}");
        assert_eq!(same("/users/7", &["--head"]).status, 200, "{name}");
    }
}

#[test]
fn frameworks_see_that_a_request_came_over_tls() {
    for Framework { apus, name, .. } in all() {
        let reply = Visitor::new(ClientProtocol::Tls).get(&apus, "/users/7");
        let seen: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(seen["secure"], true, "{name}");
        assert_eq!(seen["url"], "https://app.test/users/7", "{name}");
        assert_eq!(seen["ip"], "127.0.0.1", "{name}");
    }
}
