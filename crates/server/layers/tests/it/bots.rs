//! Bots that prove who they are: by signatures of their requests (RFC 9421), and by the names of their addresses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_http::{Body, Request, Response, ServiceFactory, StatusCode, service_fn};
use apus_layers::auth::{KeySet, RemoteKeySet};
use apus_layers::{BotClaim, BotProof, Bots, KnownBot};
use apus_testkit::{LocalClient, RequestBuilder, TestNameServer, get};
use aws_lc_rs::digest;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key for these tests only.
struct BotKey(Ed25519KeyPair);

impl BotKey {
    fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "use": "sig"})
    }

    fn thumbprint(&self) -> String {
        let jwk = self.jwk();
        let members = json!({"crv": "Ed25519", "kty": "OKP", "x": jwk["x"]}).to_string();
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, members.as_bytes()))
    }

    /// A request to `a.example` that is signed for a minute.
    fn signed(&self, agent: Option<&str>) -> RequestBuilder {
        self.signed_with(agent, (0, 60))
    }

    /// As [`Self::signed`], created some seconds ago and for some seconds.
    fn signed_with(&self, agent: Option<&str>, (ago, lifetime): (u64, u64)) -> RequestBuilder {
        let created = apus_clock::unix_time().as_secs() - ago;
        let (mut components, mut base) = (
            "\"@authority\"".to_owned(),
            "\"@authority\": a.example\n".to_owned(),
        );
        if let Some(agent) = agent {
            components += " \"signature-agent\";key=\"s\"";
            base += &format!("\"signature-agent\";key=\"s\": \"{agent}\"\n");
        }
        let input = format!(
            "({components});created={created};expires={};keyid=\"{}\";tag=\"web-bot-auth\"",
            created + lifetime,
            self.thumbprint()
        );
        base += &format!("\"@signature-params\": {input}");
        let signature = STANDARD.encode(self.0.sign(base.as_bytes()));
        let request = get("/")
            .with("host", "a.example")
            .with("signature-input", &format!("s={input}"))
            .with("signature", &format!("s=:{signature}:"));
        match agent {
            Some(agent) => request.with("signature-agent", &format!("s=\"{agent}\"")),
            None => request,
        }
    }
}

fn directory(keys: &[&BotKey]) -> Vec<u8> {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json!({ "keys": keys }).to_string().into_bytes()
}

fn key_set(keys: &[&BotKey]) -> KeySet {
    KeySet::parse(&directory(keys)).unwrap()
}

/// Says which bot a request is from.
fn client(bots: Bots) -> LocalClient {
    let says = || {
        service_fn(|request: Request| {
            let text = match BotClaim::of(&request) {
                None => "nobody".to_owned(),
                Some(claim) => match claim.proof {
                    BotProof::Verified => claim.name.to_string(),
                    BotProof::Refuted => format!("not {}", claim.name),
                    BotProof::Unknown => format!("perhaps {}", claim.name),
                },
            };
            let mut response = Response::new(StatusCode::OK);
            *response.body_mut() = Body::from(text);
            response.into()
        })
    };
    LocalClient::of(&apus_handler::Layered::new(says).layer(bots))
}

#[test]
fn a_signed_request_is_from_the_bot_that_has_the_key() {
    let (one, two, stranger) = (BotKey::new(1), BotKey::new(2), BotKey::new(3));
    let bots = Bots::new()
        .bot(KnownBot::new("one").key_set(key_set(&[&one])))
        .bot(KnownBot::new("two").key_set(key_set(&[&two])));
    let client = client(bots);
    let says = |request: RequestBuilder| client.send(request).text().to_owned();
    assert_eq!(says(get("/")), "nobody");
    assert_eq!(says(one.signed(None)), "one");
    assert_eq!(says(two.signed(None)), "two");
    assert_eq!(says(two.signed(Some("https://two.example"))), "two");
    assert_eq!(says(stranger.signed(None)), "nobody");
    for times in [(31, 0), (60, 86_401), (100, 60)] {
        assert_eq!(says(one.signed_with(None, times)), "not one", "{times:?}");
    }
    assert_eq!(says(one.signed_with(None, (80, 60))), "one");
    // Another request than the one that was signed.
    assert_eq!(says(one.signed(None).with("x", "y")), "one");
    let elsewhere = get("http://b.example/");
    let signed = one.signed(None);
    let request = signed.request();
    let moved = ["signature-input", "signature"]
        .into_iter()
        .fold(elsewhere, |moved, name| {
            moved.with(name, request.headers().get_str(name).unwrap())
        });
    assert_eq!(says(moved), "not one");
}

#[test]
fn a_key_is_used_in_the_time_that_its_directory_says() {
    let key = BotKey::new(1);
    let now = apus_clock::unix_time().as_secs();
    for (times, expected) in [
        (json!({}), "bot"),
        (json!({"nbf": now - 10, "exp": now + 1000}), "bot"),
        (
            json!({"nbf": (now - 10) * 1000, "exp": (now + 1000) * 1000}),
            "bot",
        ),
        (json!({"nbf": now + 1000}), "not bot"),
        (json!({"exp": now - 10}), "not bot"),
        (json!({"exp": (now - 10) * 1000}), "not bot"),
    ] {
        let mut jwk = key.jwk();
        for (name, value) in times.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        let keys = KeySet::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
        let client = client(Bots::new().bot(KnownBot::new("bot").key_set(keys)));
        assert_eq!(client.send(key.signed(None)).text(), expected, "{times}");
    }
}

#[test]
fn nobody_is_a_bot_by_the_key_that_everybody_has() {
    let seed = URL_SAFE_NO_PAD
        .decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU")
        .unwrap();
    let key = BotKey(Ed25519KeyPair::from_seed_unchecked(&seed).unwrap());
    assert_eq!(key.thumbprint(), Bots::TEST_KEY);
    let client = client(Bots::new().bot(KnownBot::new("bot").key_set(key_set(&[&key]))));
    assert_eq!(client.send(key.signed(None)).text(), "nobody");
}

/// The site of a bot, with its directory of keys.
#[derive(Clone, Default)]
struct Operator {
    requests: Arc<AtomicUsize>,
    response: Arc<Mutex<(u16, Vec<u8>)>>,
}

impl Operator {
    fn responds(&self, status: u16, body: Vec<u8>) {
        *self.response.lock().unwrap() = (status, body);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn bot(&self, name: &str) -> KnownBot {
        let url = format!("https://{name}.example/.well-known/http-message-signatures-directory");
        KnownBot::new(name).remote_key_set(RemoteKeySet::new(self.factory(), &url).unwrap())
    }

    fn factory(&self) -> impl ServiceFactory + 'static {
        let operator = self.clone();
        move || {
            let operator = operator.clone();
            service_fn(move |request: Request| {
                operator.requests.fetch_add(1, Ordering::SeqCst);
                let accept = request.headers().get_str("accept").unwrap();
                assert!(accept.contains("application/http-message-signatures-directory+json"));
                let (status, body) = operator.response.lock().unwrap().clone();
                let mut response = Response::new(StatusCode::from_u16(status).unwrap());
                *response.body_mut() = Body::from(body);
                response.into()
            })
        }
    }
}

#[test]
fn the_keys_of_a_directory_are_fetched_for_the_first_request_and_for_a_new_key() {
    let clock = apus_clock::TestClock::default();
    let _entered = clock.enter();
    clock.freeze();
    let (old, new) = (BotKey::new(1), BotKey::new(2));
    let operator = Operator::default();
    let client = client(Bots::new().bot(operator.bot("bot")));
    let agent = Some("https://bot.example");
    let says = |request: RequestBuilder| client.send(request).text().to_owned();
    assert_eq!((says(get("/")), operator.requests()), ("nobody".into(), 0));
    // Without keys nothing is proven, and nothing is disproven.
    operator.responds(500, Vec::new());
    assert_eq!(says(old.signed(agent)), "perhaps bot");
    assert_eq!(says(old.signed(None)), "nobody");
    assert_eq!(operator.requests(), 1);
    clock.advance(Duration::from_secs(2));
    operator.responds(200, directory(&[&old]));
    assert_eq!(says(old.signed(agent)), "bot");
    assert_eq!(says(old.signed(None)), "bot");
    assert_eq!(operator.requests(), 2);
    // Nobody makes the server fetch often, and who names no directory does not at all.
    assert_eq!(says(new.signed(agent)), "perhaps bot");
    assert_eq!(operator.requests(), 2);
    clock.advance(Duration::from_secs(30));
    assert_eq!(says(new.signed(None)), "nobody");
    assert_eq!(operator.requests(), 2);
    operator.responds(200, directory(&[&old, &new]));
    assert_eq!(says(new.signed(agent)), "bot");
    assert_eq!(operator.requests(), 3);
}

#[test]
fn a_key_in_the_directory_of_another_bot_does_not_make_requests_its_own() {
    let key = BotKey::new(1);
    let (thief, owner) = (Operator::default(), Operator::default());
    thief.responds(200, directory(&[&key]));
    owner.responds(200, directory(&[&key]));
    let client = client(Bots::new().bot(thief.bot("thief")).bot(owner.bot("owner")));
    let says = |agent: &str| client.send(key.signed(Some(agent))).text().to_owned();
    assert_eq!(says("https://owner.example"), "owner");
    assert_eq!(says("https://OWNER.example:443/"), "owner");
    assert_eq!(says("https://nobody.example"), "nobody");
    assert_eq!((thief.requests(), owner.requests()), (0, 1));
}

#[test]
fn a_directory_that_does_not_respond_holds_a_request_for_a_second() {
    let key = BotKey::new(1);
    let silent = || service_fn(|_| apus_http::ResponseFuture::later(std::future::pending()));
    let remote = RemoteKeySet::new(silent, "https://bot.example/keys").unwrap();
    let client = client(Bots::new().bot(KnownBot::new("bot").remote_key_set(remote)));
    let began = std::time::Instant::now();
    let text = client
        .send(key.signed(Some("https://bot.example")))
        .text()
        .to_owned();
    assert_eq!(text, "perhaps bot");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

fn address(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

/// A request from an address by a program that says it is the crawler.
fn crawler(from: &str) -> RequestBuilder {
    get("/")
        .with("user-agent", "Mozilla/5.0 (compatible; CrawlBot/2.1)")
        .peer((address(from), 50_000))
}

fn crawl_bot(server: &TestNameServer) -> Bots {
    let bot = KnownBot::new("crawlbot").host("*.crawl.example".parse().unwrap());
    Bots::new().bot(bot).name_servers([server.address()])
}

#[test]
fn a_crawler_is_known_by_the_name_of_its_address_which_has_the_address() {
    let server = TestNameServer::new();
    for (ip, name, back) in [
        ("192.0.2.1", "a.crawl.example", "192.0.2.1"),
        ("2001:db8::1", "b.crawl.example", "2001:db8::1"),
        // A name that anybody can give an address of his own.
        ("203.0.113.1", "c.crawl.example", "192.0.2.1"),
        ("203.0.113.2", "a.crawl.example.evil.example", "203.0.113.2"),
        ("203.0.113.3", "crawl.example", "203.0.113.3"),
    ] {
        server.name(address(ip), name);
        server.host(name, address(back));
    }
    server.name(address("203.0.113.4"), "nowhere.crawl.example");
    let client = client(crawl_bot(&server));
    let says = |request: RequestBuilder| client.send(request).text().to_owned();
    for (ip, expected) in [
        ("192.0.2.1", "crawlbot"),
        ("::ffff:192.0.2.1", "crawlbot"),
        ("2001:db8::1", "crawlbot"),
        ("203.0.113.1", "not crawlbot"),
        ("203.0.113.2", "not crawlbot"),
        ("203.0.113.3", "not crawlbot"),
        ("203.0.113.4", "not crawlbot"),
        ("203.0.113.5", "not crawlbot"),
    ] {
        assert_eq!(says(crawler(ip)), expected, "{ip}");
        // The second time it is known.
        let queries = server.queries();
        assert_eq!(says(crawler(ip)), expected, "{ip}");
        assert_eq!(server.queries(), queries, "{ip}");
    }
    // Others are not looked up.
    let queries = server.queries();
    for agent in ["Mozilla/5.0", "", "crawl-bot"] {
        let other = get("/").with("user-agent", agent);
        assert_eq!(says(other.peer((address("192.0.2.9"), 1))), "nobody");
    }
    assert_eq!(server.queries(), queries);
}

#[test]
fn the_names_of_addresses_are_kept_until_they_are_old_and_a_failure_disproves_nothing() {
    let clock = apus_clock::TestClock::default();
    let _entered = clock.enter();
    clock.freeze();
    let server = TestNameServer::new();
    let ip = address("192.0.2.1");
    server.name(ip, "a.crawl.example");
    server.host("a.crawl.example", ip);
    let bots = crawl_bot(&server);
    let client = client(bots.clone());
    let says = |from: &str| client.send(crawler(from)).text().to_owned();
    assert_eq!(says("192.0.2.1"), "crawlbot");
    server.set_failed(true);
    assert_eq!(says("203.0.113.1"), "perhaps crawlbot");
    // It is not looked up again at once.
    let queries = server.queries();
    assert_eq!(says("203.0.113.1"), "perhaps crawlbot");
    assert_eq!(server.queries(), queries);
    server.set_failed(false);
    clock.advance(Duration::from_secs(30));
    assert_eq!(says("203.0.113.1"), "not crawlbot");
    // The next configuration knows the names, if it is about the same hosts.
    let next = crawl_bot(&server);
    next.continue_from(&bots);
    let queries = server.queries();
    assert_eq!(
        self::client(next).send(crawler("192.0.2.1")).text(),
        "crawlbot"
    );
    assert_eq!(server.queries(), queries);
    // After an hour the name is old. While DNS does not respond, it is valid for another hour.
    server.set_failed(true);
    clock.advance(Duration::from_secs(3599));
    assert_eq!(says("192.0.2.1"), "crawlbot");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(says("192.0.2.1"), "perhaps crawlbot");
    server.set_failed(false);
    clock.advance(Duration::from_secs(30));
    assert_eq!(says("192.0.2.1"), "crawlbot");
}

#[test]
fn a_name_server_that_is_silent_holds_requests_for_a_second_and_few_clients_are_looked_up_at_once()
{
    let server = TestNameServer::new();
    server.set_silent(true);
    let client = client(crawl_bot(&server));
    let began = std::time::Instant::now();
    assert_eq!(
        client.send(crawler("2001:db8::1")).text(),
        "perhaps crawlbot"
    );
    assert_eq!(
        client.send(crawler("2001:db8::2")).text(),
        "perhaps crawlbot"
    );
    assert!(began.elapsed() >= Duration::from_secs(2));
    // Two addresses of the network are looked up, and a third does not wait for them.
    for host in 3..1000 {
        let request = crawler(&format!("2001:db8::{host:x}"));
        assert_eq!(client.send(request).text(), "perhaps crawlbot");
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}
