//! The recipes of docs/recipes-access.md, run from the text of the page.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use apus_testkit::TestNameServer;

use super::bots::BotKey;
use crate::harness::{Home, connect};
use crate::proxy::scripted_origin::ScriptedOrigin;

const PAGE: &str = include_str!("../../../../../../docs/recipes-access.md");

/// The title and the configuration of each recipe.
fn recipes() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").skip(1);
    sections
        .map(|section| {
            let (title, rest) = section.split_once('\n').unwrap();
            let (_, toml) = rest.split_once("```toml\n").unwrap();
            (title, toml.split_once("```").unwrap().0)
        })
        .collect()
}

/// A request of a client behind the trusted proxy.
struct Client<'a> {
    server: SocketAddr,
    host: &'a str,
    address: &'a str,
}

impl Client<'_> {
    /// The head and the body of the response; empty if there is none.
    fn send(&self, request: &str, fields: &str) -> String {
        let (host, address) = (self.host, self.address);
        let mut stream = connect(self.server);
        let request = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {address}\r\nContent-Length: 0\r\n{fields}Connection: close\r\n\r\n"
        );
        // A connection that is closed without a response may be reset.
        let mut response = Vec::new();
        let sent = stream.write_all(request.as_bytes());
        if let Err(error) = sent.and_then(|()| stream.read_to_end(&mut response).map(drop)) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "no end of {request:?}");
        }
        String::from_utf8(response).unwrap()
    }

    fn get(&self, path: &str, fields: &str) -> String {
        self.send(&format!("GET {path}"), fields)
    }

    fn status(&self, path: &str, fields: &str) -> u16 {
        status(&self.get(path, fields))
    }
}

/// The status of a response; 0 if there is none.
fn status(response: &str) -> u16 {
    let status = response.get(9..12).unwrap_or("0");
    status.parse().unwrap_or_else(|_| panic!("{response}"))
}

#[test]
fn each_recipe_does_what_its_page_promises() {
    let home = Home::new();
    for (file, text) in [
        ("public/index.html", "home"),
        ("public/maintenance.html", "back soon"),
        ("public/robots.txt", "User-agent: *"),
        ("public/images/a.png", "picture"),
        ("public/m/index.html", "small"),
        ("public/static/a.css", "css"),
        ("public/account/index.html", "account"),
        ("public/admin/index.html", "admin"),
        ("new/index.html", "new home"),
        (
            "plans.map",
            "# plans.map\nkey-of-ada  gold\nkey-of-lin  free\n~^trial-    free\n",
        ),
        // The password is `secret`.
        (
            "htpasswd",
            "ada:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1\n",
        ),
    ] {
        fs::create_dir_all(home.path(file).parent().unwrap()).unwrap();
        home.write(file, text);
    }
    home.write("public/large.bin", "x".repeat(1_100_000));
    let names = TestNameServer::new();
    let google = "66.249.66.1".parse().unwrap();
    names.name(google, "crawl-66-249-66-1.googlebot.com");
    names.host("crawl-66-249-66-1.googlebot.com", google);
    let origins = ["current", "next"].map(|version| {
        ScriptedOrigin::responding(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{version}",
            version.len()
        ))
    });
    let sites: String = recipes().iter().map(|(_, toml)| *toml).collect();
    assert_eq!(sites.matches("listen = 80\n").count(), recipes().len());
    home.write(
        "apus.toml",
        format!(
            "[global]\ntrusted_proxies = \"127.0.0.1\"\nstate_folder = \"state\"\nbots_resolver = \"{}\"\n{}",
            names.address(),
            sites
                .replace("listen = 80\n", "listen = \"127.0.0.1:0\"\n")
                .replace("127.0.0.1:3000", &origins[0].address().to_string())
                .replace("127.0.0.1:3001", &origins[1].address().to_string())
        ),
    );
    home.make_folder("state");
    home.write("assistant.jwks", BotKey::new(1).directory());
    let apus = home.serve(&[]);
    let server = apus.address();
    for (title, _) in recipes() {
        let at = |host, address| Client {
            server,
            host,
            address,
        };
        match title {
            "Log-in pages of WordPress" => wordpress(&at("blog.example", "203.0.113.1")),
            "API keys with plans" => plans(&at("api.example", "203.0.113.1")),
            "Plans of API keys in a file" => {
                plans_of_a_file(&at("plans.example", "203.0.113.1"));
            }
            "A staging site" => {
                staging(&at("staging.example", "203.0.113.1"));
                assert_eq!(at("staging.example", "192.0.2.7").status("/", ""), 200);
                assert_eq!(at("staging.example", "2001:db8::1").status("/", ""), 200);
            }
            "Maintenance" => {
                let (stranger, operator) = (
                    at("shop.example", "203.0.113.1"),
                    at("shop.example", "192.0.2.7"),
                );
                assert_eq!(stranger.status("/", ""), 200);
                home.expect(
                    &["site", "maintenance", "shop.example", "on", "--until", "2h"],
                    0,
                );
                let response = stranger.get("/", "");
                assert_eq!(status(&response), 503, "{response}");
                assert!(
                    response.to_lowercase().contains("\r\nretry-after: "),
                    "{response}"
                );
                assert!(response.ends_with("back soon"), "{response}");
                assert_eq!(operator.status("/", ""), 200);
            }
            "Pictures on other sites" => hotlinks(&at("photos.example", "203.0.113.1")),
            "A/B tests" => groups(server),
            "A/B tests and canaries between upstreams" => versions(server, &origins),
            "AI crawlers that prove who they are" => proven_crawlers(server),
            "AI crawlers" => crawlers(&at("texts.example", "203.0.113.1")),
            "Languages" => languages(&at("languages.example", "203.0.113.1")),
            "Scanners" => {
                let scanner = at("scanned.example", "203.0.113.66");
                assert_eq!(scanner.status("/none", ""), 404);
                assert_eq!(scanner.status("/.git/config", ""), 0);
                assert_eq!(scanner.status("/", ""), 403);
                assert_eq!(at("scanned.example", "203.0.113.67").status("/", ""), 200);
            }
            "Kangle: control of requests" => {
                kangle(&at("kangle.example", "203.0.113.1"));
                let office = at("kangle.example", "192.0.2.7");
                assert_eq!(office.status("/admin/", ""), 200);
                let moved = at("old.kangle.example", "203.0.113.1").get("/x?y", "");
                assert!(
                    moved.contains("ocation: http://kangle.example/x?y\r\n"),
                    "{moved}"
                );
            }
            "Kangle: control of responses" => responses(&at("answers.example", "203.0.113.1")),
            other => panic!("the recipe {other:?} has no test"),
        }
    }
}

fn wordpress(client: &Client<'_>) {
    for path in [
        "/xmlrpc.php",
        "//xmlrpc.php",
        "/xmlrpc.php/x",
        "/%78mlrpc.php",
    ] {
        assert_eq!(client.status(path, ""), 0, "{path}");
    }
    for path in [
        "/wp-login.php",
        "/wp-login.php/x",
        "//wp-login.php",
        "/wp-login.php?a",
        "/./wp-login.php",
    ] {
        let response = client.send(&format!("POST {path}"), "");
        assert!(![0, 429].contains(&status(&response)), "{path}: {response}");
    }
    assert_eq!(status(&client.send("POST /wp-login.php", "")), 429);
    assert_ne!(client.status("/wp-login.php", ""), 429);
}

fn plans_of_a_file(client: &Client<'_>) {
    let with = |key: &str| client.get("/", &format!("X-Api-Key: {key}\r\n"));
    assert!(client.get("/", "").ends_with("This key has no plan.\n"));
    assert_eq!(status(&with("key-of-bob")), 403);
    assert!(with("key-of-ada").ends_with("data of gold"));
    let statuses = |key: &str| [(); 3].map(|()| status(&with(key)));
    assert_eq!(statuses("key-of-ada"), [200, 200, 200]);
    assert_eq!(status(&with("key-of-ada")), 429);
    for key in ["key-of-lin", "trial-7", "trial-8"] {
        assert_eq!(statuses(key), [200, 200, 429], "{key}");
    }
}

fn plans(client: &Client<'_>) {
    for (key, passing) in [
        ("", 2),
        ("X-Api-Key: made-up\r\n", 0),
        ("X-Api-Key: key-of-ada\r\n", 5),
        ("X-Api-Key: key-of-lin\r\n", 20),
    ] {
        for _ in 0..passing {
            assert_eq!(client.status("/", key), 200, "{key}");
        }
        assert_eq!(client.status("/", key), 429, "{key}");
    }
}

fn staging(client: &Client<'_>) {
    let response = client.get("/", "");
    assert_eq!(status(&response), 401, "{response}");
    assert!(response.contains("x-robots-tag: noindex\r\n"), "{response}");
    assert_eq!(
        client.status("/", "Authorization: Basic YWRhOnNlY3JldA==\r\n"),
        200
    );
    assert_eq!(
        client.status("/", "Authorization: Basic YWRhOm90aGVy\r\n"),
        401
    );
}

fn hotlinks(client: &Client<'_>) {
    for (referer, status) in [
        ("", 200),
        ("Referer: http://photos.example/a\r\n", 200),
        ("Referer: https://www.partner.example/\r\n", 200),
        ("Referer: https://other.example/\r\n", 403),
        ("Referer: https://other.example/photos.example/\r\n", 403),
    ] {
        assert_eq!(client.status("/images/a.png", referer), status, "{referer}");
    }
}

fn groups(server: SocketAddr) {
    let page = |address: &str, fields: &str| {
        let host = "ab.example";
        let client = Client {
            server,
            host,
            address,
        };
        client.get("/", fields)
    };
    let mut new = 0;
    for number in 0..100 {
        let address = format!("203.0.113.{number}");
        let response = page(&address, "");
        let is_new = response.ends_with("\r\n\r\nnew home");
        assert_eq!(
            is_new,
            response.contains("set-cookie: group=new"),
            "{response}"
        );
        assert_eq!(
            page(&address, "").ends_with("\r\n\r\nnew home"),
            is_new,
            "{address}"
        );
        assert!(page(&address, "Cookie: group=new\r\n").ends_with("\r\n\r\nnew home"));
        assert!(page(&address, "Cookie: group=old\r\n").ends_with("\r\n\r\nhome"));
        new += u32::from(is_new);
    }
    assert!((1..35).contains(&new), "{new} of 100");
    let host = "ab.example";
    let address = "203.0.113.1";
    assert_eq!(
        Client {
            server,
            host,
            address
        }
        .status("/new/index.html", "Cookie: group=old\r\n"),
        404
    );
}

fn versions(server: SocketAddr, origins: &[ScriptedOrigin]) {
    let page = |address: &str, fields: &str| {
        let host = "versions.example";
        let client = Client {
            server,
            host,
            address,
        };
        client.get("/", fields)
    };
    let mut next = 0;
    for number in 0..200 {
        let address = format!("203.0.113.{number}");
        let response = page(&address, "");
        let is_next = response.ends_with("\r\n\r\nnext");
        assert!(is_next || response.ends_with("\r\n\r\ncurrent"));
        assert_eq!(is_next, response.contains("set-cookie: version=next"));
        assert!(page(&address, "Cookie: version=next\r\n").ends_with("\r\n\r\nnext"));
        let other = page(&address, "Cookie: version=current\r\n");
        assert!(other.ends_with("\r\n\r\ncurrent"), "{other}");
        next += u32::from(is_next);
    }
    assert!((1..40).contains(&next), "{next} of 200");
    for origin in origins {
        assert_eq!(origin.received().matches("GET / ").count(), 1);
    }
}

fn crawlers(client: &Client<'_>) {
    let agent = |name: &str| format!("User-Agent: Mozilla/5.0 (compatible; {name}/1.0)\r\n");
    for name in ["GPTBot", "claudebot", "CCBot"] {
        assert_eq!(client.status("/", &agent(name)), 403, "{name}");
        assert_eq!(client.status("/robots.txt", &agent(name)), 200, "{name}");
    }
    let statuses: Vec<_> = (0..4)
        .map(|_| client.status("/", &agent("OAI-SearchBot")))
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(client.status("/", &agent("Firefox")), 200);
}

fn proven_crawlers(server: SocketAddr) {
    let host = "essays.example";
    let status = |address, path: &str, fields: &str| {
        let client = Client {
            server,
            host,
            address,
        };
        client.status(path, fields)
    };
    let google = "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";
    let (googlebot, assistant, stranger) = ("66.249.66.1", "203.0.113.21", "203.0.113.22");
    assert_eq!(status(googlebot, "/", google), 200);
    assert_eq!(status(googlebot, "/", "User-Agent: curl/8\r\n"), 403);
    let signed = BotKey::new(1).fields(host, "https://assistant.example");
    let signed = format!("{}\r\nUser-Agent: AssistantBot/1\r\n", signed.join("\r\n"));
    let statuses = [(); 4].map(|()| status(assistant, "/", &signed));
    assert_eq!(statuses, [200, 200, 200, 429]);
    let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\n";
    assert_eq!(status(stranger, "/", browser), 200);
    assert_eq!(status(stranger, "/", "User-Agent: AssistantBot/1\r\n"), 403);
    assert_eq!(status(stranger, "/robots.txt", google), 200);
    assert_eq!(status(stranger, "/", google), 403);
    assert_eq!(status(stranger, "/", browser), 403, "it is banned");
}

fn languages(client: &Client<'_>) {
    for (language, location) in [
        ("de-CH, en;q=0.5", "/de/"),
        ("zh", "/zh/"),
        ("ZH-hant", "/zh/"),
    ] {
        let response = client.get("/", &format!("Accept-Language: {language}\r\n"));
        assert_eq!(status(&response), 302, "{language}");
        assert!(
            response.contains(&format!("ocation: {location}\r\n")),
            "{language}: {response}"
        );
        assert!(response.contains("vary: Accept-Language\r\n"), "{response}");
    }
    for fields in [
        "",
        "Accept-Language: en, de\r\n",
        "Accept-Language: den\r\n",
    ] {
        assert_eq!(client.status("/", fields), 200, "{fields}");
    }
    assert_eq!(client.status("/robots.txt", "Accept-Language: de\r\n"), 200);
}

fn kangle(client: &Client<'_>) {
    for path in [
        "/upload/a.php",
        "/upload/a/b.php",
        "/upload/a.php/x",
        "/admin/",
        "/admin/x",
    ] {
        assert_eq!(client.status(path, ""), 403, "{path}");
    }
    let phone = client.get("/", "User-Agent: iPhone\r\n");
    assert!(phone.ends_with("\r\n\r\nsmall"), "{phone}");
    let statuses: Vec<_> = (0..4).map(|_| client.status("/", "")).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(client.status("/static/a.css", ""), 200);
}

fn responses(client: &Client<'_>) {
    let account = client.get("/account/", "");
    assert!(account.contains("cache-control: no-store\r\n"), "{account}");
    assert!(!client.get("/", "").contains("no-store"));
    assert_eq!(client.status("/large.bin", ""), 403);
    let broken = client.get("/broken", "");
    assert_eq!(status(&broken), 503);
    assert!(broken.ends_with("\r\n\r\nCome back later."), "{broken}");
}
