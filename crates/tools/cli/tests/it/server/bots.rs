//! Bots that prove who they are: what rules, limits, challenges and logs know of them, over each protocol.

use std::time::SystemTime;

use apus_testkit::TestNameServer;
use apus_testkit::scripted::{Action, ScriptedServer, response};
use aws_lc_rs::digest;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::clients::certificate;
use crate::harness::{Apus, Home, free_port};
use crate::wire::{Received, Wire};

/// A key of a bot, for these tests only.
pub(super) struct BotKey(Ed25519KeyPair);

impl BotKey {
    pub(super) fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn encoded(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    pub(super) fn directory(&self) -> String {
        let x = self.encoded();
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}","use":"sig"}}]}}"#)
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }

    /// The fields of a request to this authority that is signed for a minute, whose keys are at the origin.
    pub(super) fn fields(&self, authority: &str, origin: &str) -> [String; 3] {
        let x = self.encoded();
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, members.as_bytes()));
        let created = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let expires = created + 60;
        let input = format!(
            "(\"@authority\" \"signature-agent\";key=\"s\");created={created};expires={expires};keyid=\"{id}\";tag=\"web-bot-auth\""
        );
        let base = format!(
            "\"@authority\": {authority}\n\"signature-agent\";key=\"s\": \"{origin}\"\n\"@signature-params\": {input}"
        );
        let signature = STANDARD.encode(self.sign(base.as_bytes()));
        [
            format!("Signature-Agent: s=\"{origin}\""),
            format!("Signature-Input: s={input}"),
            format!("Signature: s=:{signature}:"),
        ]
    }
}

fn send(apus: &Apus, path: &str, fields: &[String]) -> Received {
    let mut wire = Wire::connect(apus.address());
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n"
    ));
    wire.read()
}

#[test]
fn bots_that_prove_who_they_are_by_signatures_are_known_to_rules_limits_challenges_and_logs() {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let (search, archive) = (BotKey::new(1), BotKey::new(2));
    let directory = search.directory();
    let operator = ScriptedServer::start(move |request| {
        let head = request.head.to_ascii_lowercase();
        assert!(
            head.starts_with("get /.well-known/http-message-signatures-directory http/1.1\r\n")
        );
        Action::Respond(response(200, &directory))
    });
    let origin = format!("http://127.0.0.1:{}", operator.port);
    home.write("archive.jwks", archive.directory());
    let ports = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            r#"
[[global.bots]]
name = "search"
directory = "{origin}/.well-known/http-message-signatures-directory"

[[global.bots]]
name = "archive"
keys_file = "archive.jwks"

[[sites]]
listen = "127.0.0.1:{}"
listen_tls = "127.0.0.1:{}"
tls = {{ cert = "site.pem", key = "site.key" }}
root = "site"
access_log = {{ path = "log", format = "$uri $status bot=$bot" }}
challenge.weights = [{{ add = 10 }}]

[[sites.rules]]
name = "closed to the archive"
when = 'bot == "archive" and path == "/closed"'
deny = 410

[[sites.rules]]
name = "false bots"
when = "bot.false and bot.claimed exists"
deny = 401

[[sites.locations]]
path = "/limited/"
return = {{ status = 200, text = "served" }}

[[sites.locations.limits]]
name = "by-bot"
key = "bot"
rate = "2/h"
"#,
            ports[0], ports[1]
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let (search_fields, archive_fields) = (
        search.fields("a.example", &origin),
        archive.fields("a.example", "https://archive.example"),
    );
    let status = |path: &str, fields: &[String]| send(&apus, path, fields).status;
    // Everybody is challenged but the bots.
    assert_eq!(status("/", &[]), 403);
    assert_eq!(status("/", &search_fields), 200);
    assert_eq!(status("/", &archive_fields), 200);
    assert_eq!(status("/closed", &archive_fields), 410);
    assert_eq!(status("/closed", &search_fields), 404);
    // Who has copied the fields of another request, or signs with another key, is not the bot.
    assert_eq!(status("/", &search.fields("b.example", &origin)), 401);
    let stranger = BotKey::new(3);
    assert_eq!(status("/", &stranger.fields("a.example", &origin)), 403);
    // Each bot has a limit of its own.
    for expected in [200, 200, 429] {
        assert_eq!(status("/limited/", &search_fields), expected);
    }
    assert_eq!(status("/limited/", &archive_fields), 200);
    // The other protocols know the same.
    let authority = format!("localhost:{}", ports[1]);
    let url = format!("https://{authority}/");
    let fields = search.fields(&authority, &origin);
    for protocol in [&["--http3"][..], &["--http2"], &[]] {
        let mut arguments = vec!["bench", &url, "--insecure", "-n", "2", "-c", "1"];
        for field in &fields {
            arguments.extend(["--header", field]);
        }
        arguments.extend(protocol);
        home.expect(&arguments, 0);
    }
    // A reload keeps the keys that were fetched.
    drop(operator);
    home.expect(&["reload"], 0);
    assert_eq!(status("/", &search_fields), 200);
    // All is counted, and a reload forgets nothing.
    let json = home.expect(&["status", "--json"], 0).0;
    let json: Value = serde_json::from_str(&json).unwrap();
    let [of_search, of_archive] = [&json["bots"][0], &json["bots"][1]];
    let number = |name: &str| of_search[name].as_u64().unwrap();
    assert_eq!((number("false"), number("fetch_failures")), (1, 0));
    assert!(number("verified") >= 12 && number("fetches") >= 1, "{json}");
    assert_eq!(
        *of_archive,
        json!({
            "name": "archive", "verified": 3, "false": 0, "unproven": 0,
            "fetches": null, "fetch_failures": null,
        })
    );
    let text = home.expect(&["status"], 0).0;
    let line = "bot archive: 3 requests verified, 0 false, 0 not proven\n";
    assert!(text.contains(line), "{text}");
    let metrics = home.expect(&["status", "--metrics"], 0).0;
    let metric = "apus_bot_requests_total{bot=\"search\",result=\"false\"} 1\n";
    assert!(metrics.contains(metric), "{metrics}");
    drop(apus);
    let log = home.read("log");
    for line in [
        "/ 403 bot=-",
        "/ 200 bot=search",
        "/ 200 bot=archive",
        "/closed 410 bot=archive",
        "/ 401 bot=-",
        "/limited/ 429 bot=search",
    ] {
        assert!(log.lines().any(|logged| logged == line), "{line}\n{log}");
    }
}

/// The same over each protocol: the status of a crawler from an address, as a trusted proxy names it.
#[test]
fn crawlers_are_known_by_the_names_of_their_addresses_also_after_a_reload() {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let names = TestNameServer::new();
    let crawler = "192.0.2.1".parse().unwrap();
    names.name(crawler, "a.crawl.example");
    names.host("a.crawl.example", crawler);
    let ports = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            r#"
[global]
trusted_proxies = "127.0.0.1"
bots_resolver = "{}"

[[global.bots]]
name = "crawler"
hosts = "*.crawl.example"
user_agent = "CrawlBot"

[[sites]]
listen = "127.0.0.1:{}"
listen_tls = "127.0.0.1:{}"
tls = {{ cert = "site.pem", key = "site.key" }}
root = "site"

[[sites.rules]]
name = "false crawlers"
when = "bot.false"
deny = 410

[[sites.rules]]
name = "crawlers"
when = 'not bot == "crawler"'
deny = 401
"#,
            names.address(),
            ports[0],
            ports[1]
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let status = |from: &str, agent: &str| {
        let fields = [
            format!("X-Forwarded-For: {from}"),
            format!("User-Agent: {agent}"),
        ];
        send(&apus, "/", &fields).status
    };
    assert_eq!(status("192.0.2.1", "crawlbot/1"), 200);
    assert_eq!(status("192.0.2.1", "curl/8"), 401);
    assert_eq!(status("192.0.2.2", "crawlbot/1"), 410);
    names.set_silent(true);
    assert_eq!(status("192.0.2.3", "crawlbot/1"), 401);
    // What was found before is known over each protocol, and after a reload.
    home.expect(&["reload"], 0);
    let url = format!("https://localhost:{}/", ports[1]);
    for protocol in [&["--http3"][..], &["--http2"], &[]] {
        for (from, expected) in [("192.0.2.1", "200"), ("192.0.2.2", "410")] {
            let from = format!("x-forwarded-for: {from}");
            let arguments = [
                "bench",
                &url,
                "--insecure",
                "-n",
                "2",
                "-c",
                "1",
                "--status",
                expected,
                "--header",
                &from,
                "--header",
                "user-agent: CrawlBot",
            ];
            home.expect(&[&arguments, protocol].concat(), 0);
        }
    }
}

#[test]
fn explain_shows_which_bot_a_request_is_from() {
    let home = Home::new();
    let key = BotKey::new(1);
    home.write("bot.jwks", key.directory());
    home.write(
        "apus.toml",
        "[[global.bots]]\nname = \"search\"\nkeys_file = \"bot.jwks\"\n\
         [[sites]]\nlisten = 80\nroot = \"site\"\n",
    );
    let explain = |authority: &str| {
        let fields = key.fields(authority, "https://search.example");
        let mut arguments = vec!["explain", "GET", "http://a.example/"];
        for field in &fields {
            arguments.extend(["--header", field]);
        }
        home.expect(&arguments, 0).0
    };
    let text = explain("a.example");
    assert!(text.contains("is from the bot search"), "{text}");
    assert!(text.contains("its key has signed the request"), "{text}");
    let text = explain("b.example");
    assert!(
        text.contains("is not from the bot search, as it says"),
        "{text}"
    );
}
