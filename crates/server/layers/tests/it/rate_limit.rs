//! Limits on the rate of requests.

use std::time::Duration;

use apus_clock::TestClock;
use apus_handler::TrustedProxies;
use apus_handler::middleware::Layer;
use apus_http::HeaderName;
use apus_layers::{
    ConditionalLayer, LimitFacts, LimitKey, Maintenance, QuotaLimit, RateLimit, Timeout,
};
use apus_testkit::{LocalClient, SocketClient, request_text, wait_until};

use crate::harness::{Routes, Server, head};

fn app(limit: RateLimit) -> Routes {
    let local = "127.0.0.0/8".parse().unwrap();
    Routes::new()
        .layer(TrustedProxies::new([local]))
        .layer(limit)
        .get("/", async || "well")
}

/// The status of a request of a client at this address.
fn status(client: &LocalClient, address: &str) -> u16 {
    let line = format!("X-Forwarded-For: {address}");
    client.send(head("GET", "/", &[&line])).status
}

#[test]
fn a_client_above_its_quota_gets_429() {
    let server = Server::start(app(RateLimit::per_hour(60).burst(3)));
    let mut client = SocketClient::connect(server.address());
    for left in ["2", "1", "0"] {
        let reply = client.request(&request_text("GET", "/", &[]));
        assert_eq!((reply.status, reply.text()), (200, "well"));
        let field = reply.field("ratelimit").unwrap();
        assert!(
            field.starts_with(&format!("\"default\";r={left};t=")),
            "{field}"
        );
        let policy = reply.field("ratelimit-policy");
        assert_eq!(policy, Some("\"default\";q=3;w=180"));
    }
    let reply = client.request(&request_text("GET", "/", &[]));
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.field("retry-after").unwrap().parse().unwrap();
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(reply.field("ratelimit"), Some("\"default\";r=0;t=180"));
    // Over another connection it is the same client.
    let mut other = SocketClient::connect(server.address());
    assert_eq!(other.request(&request_text("GET", "/", &[])).status, 429);
}

#[test]
fn the_quota_refills_evenly() {
    let client = LocalClient::of(&app(RateLimit::new(1, Duration::from_millis(50))));
    let mut accepted = 0;
    wait_until("the next request", || {
        accepted += u32::from(status(&client, "192.0.2.1") == 200);
        accepted == 3
    });
}

#[test]
fn addresses_are_clients_and_an_ipv6_network_is_one() {
    let client = LocalClient::of(&app(RateLimit::per_hour(1)));
    for (address, expected) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("192.0.2.2", 200),
        ("::ffff:192.0.2.2", 429),
        ("2001:db8:0:1::1", 200),
        ("2001:db8:0:1:ffff::2", 429),
        ("2001:db8:0:2::1", 200),
        ("spoofed, 192.0.2.1", 429),
        ("192.0.2.77, 192.0.2.1", 429),
    ] {
        assert_eq!(status(&client, address), expected, "{address}");
    }
}

#[test]
fn clients_can_be_distinguished_by_a_field_or_a_function() {
    let by_header = RateLimit::per_hour(1).by_header(HeaderName::from_static("x-api-key"));
    let by_function = RateLimit::per_hour(1).by(|request| {
        let key = request.headers().get_str("x-api-key")?;
        Some(key.to_lowercase())
    });
    for (limit, without) in [(by_header, 429), (by_function, 200)] {
        let client = LocalClient::of(&app(limit));
        let status_with = |line: &str| client.send(head("GET", "/", &[line])).status;
        assert_eq!(status_with("X-Api-Key: a"), 200);
        assert_eq!(status_with("X-Api-Key: b"), 200);
        assert_eq!(status_with("X-Api-Key: a"), 429);
        assert_eq!(status_with("X-Other: a"), 200);
        assert_eq!(status_with("X-Other: a"), without);
    }
}

#[test]
fn several_limits_each_have_their_fields() {
    let app = app(RateLimit::per_hour(5).name("all")).nest(
        "/login",
        Routes::new()
            .layer(RateLimit::per_minute(1).name("log\"in"))
            .get("/", async || "well"),
    );
    let client = LocalClient::of(&app);
    let reply = client.send(head("GET", "/login", &[]));
    assert_eq!(reply.status, 200);
    let policies: Vec<_> = reply.fields("ratelimit-policy").collect();
    assert_eq!(policies, ["\"login\";q=1;w=60", "\"all\";q=5;w=3600"]);
    let reply = client.send(head("GET", "/login", &[]));
    assert_eq!(reply.status, 429);
    assert_eq!(reply.fields("ratelimit").count(), 2);
    assert_eq!(status(&client, "127.0.0.1"), 200);
}

#[test]
fn rare_clients_are_forgotten_first() {
    let client = LocalClient::of(&app(RateLimit::per_hour(1).remembered_clients(64)));
    let mut again = 0;
    for number in 0..2000 {
        let address = format!("10.{}.{}.1", number / 250, number % 250);
        assert_eq!(status(&client, &address), 200);
        assert_eq!(status(&client, &address), 429, "known at once");
        again += u32::from(status(&client, "10.0.0.1") == 200);
    }
    assert!(
        again < 10,
        "a client that keeps coming is remembered: {again}"
    );
    let forgotten = (0..250).filter(|number| {
        let address = format!("10.0.{number}.1");
        *number > 0 && status(&client, &address) == 200
    });
    assert!(forgotten.count() > 200);
}

#[test]
fn all_workers_count_together() {
    let limit = RateLimit::per_hour(2);
    let server = Server::with_workers(2, app(limit));
    let statuses: Vec<u16> = (0..20)
        .map(|_| {
            let request = request_text("GET", "/", &["X-Forwarded-For: 192.0.2.1"]);
            SocketClient::connect(server.address())
                .request(&request)
                .status
        })
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2);
}

#[test]
fn errors_have_the_format_that_the_client_accepts() {
    let app = Routes::new()
        .layer(Timeout::new(Duration::from_millis(20)))
        .get("/slow", async || std::future::pending::<()>().await)
        .nest(
            "/limited",
            Routes::new()
                .layer(RateLimit::per_hour(1))
                .get("/", async || "well"),
        );
    let client = LocalClient::of(&app);
    assert_eq!(client.send(head("GET", "/limited", &[])).status, 200);
    for (path, status, detail) in [
        ("/slow", 503, "the response took too long"),
        ("/limited", 429, "there were too many requests"),
    ] {
        let reply = client.send(head("GET", path, &["Accept: application/json"]));
        let content_type = reply.field("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_str(reply.text()).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().starts_with(detail));
        if status == 429 {
            let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
            assert_eq!(problem["type"], kind);
            assert_eq!(problem["violated-policies"][0], "default");
        }
        let reply = client.send(head("GET", path, &["Accept: text/html"]));
        let content_type = reply.field("content-type");
        assert_eq!(content_type, Some("text/html; charset=utf-8"));
        assert_eq!(reply.status, status);
    }
}

#[test]
fn attempts_are_counted_by_name_and_apart_from_clients() {
    let limit = RateLimit::per_hour(60).burst(2);
    let client = LocalClient::of(&app(limit.clone()));
    for _ in 0..2 {
        assert!(limit.attempt("ada@example.com").is_ok());
    }
    let error = limit.attempt("ada@example.com").unwrap_err();
    assert_eq!(error.status_code(), 429);
    assert!(limit.attempt("bob@example.com").is_ok());
    assert_eq!(status(&client, "192.0.2.1"), 200);
}

#[test]
fn rate_limits_follow_the_clock() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    let client = LocalClient::of(&app(RateLimit::per_minute(2)));
    let send = || status(&client, "192.0.2.1");
    assert_eq!([(); 4].map(|()| send()), [200, 200, 429, 429]);
    clock.advance(Duration::from_secs(30));
    assert_eq!([(); 2].map(|()| send()), [200, 429]);
}

#[test]
fn of_fifty_clients_as_many_pass_in_each_second_as_the_limit_says() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    let client = LocalClient::of(&app(RateLimit::per_second(100).by_key(LimitKey::all())));
    for second in 0..4 {
        let mut allowed = 0_u32;
        for step in 0..200 {
            let address = format!("192.0.2.{}", step % 50);
            allowed += u32::from(status(&client, &address) == 200);
            clock.advance(Duration::from_millis(5));
        }
        // The first second has the burst, too.
        let expected = if second == 0 { 199 } else { 100 };
        assert!(allowed.abs_diff(expected) <= 2, "{second}: {allowed}");
    }
}

#[test]
fn a_client_at_a_hundred_times_its_share_gets_no_other_client_refused() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    let limit = RateLimit::per_second(10).burst(2).remembered_clients(20);
    let client = LocalClient::of(&app(limit));
    for round in 0..100 {
        let allowed = (0..100).filter(|_| status(&client, "192.0.2.1") == 200);
        assert!(allowed.count() <= 2, "{round}");
        for other in 2..10 {
            assert_eq!(status(&client, &format!("192.0.2.{other}")), 200, "{round}");
        }
        clock.advance(Duration::from_millis(100));
    }
}

#[test]
fn requests_beyond_the_burst_wait_for_their_time_and_no_longer_than_the_delay() {
    let pause = Duration::from_millis(30);
    let client = LocalClient::of(&app(RateLimit::new(1, pause).delay(2 * pause)));
    let began = std::time::Instant::now();
    let statuses = client.run(async {
        let send = |_| {
            let request = head("GET", "/", &["X-Forwarded-For: 192.0.2.1"]).request();
            client.service().call(request)
        };
        let [one, two, three, four] = [0, 1, 2, 3].map(send);
        let responses = tokio::join!(one.wait(), two.wait(), three.wait(), four.wait());
        [responses.0, responses.1, responses.2, responses.3]
            .map(|response| response.status().as_u16())
    });
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert!(began.elapsed() >= 2 * pause);
}

#[test]
fn a_key_that_is_missing_or_there_twice_counts_for_the_client() {
    let key = |names: &[&str]| LimitKey::parse(names.iter().copied()).unwrap();
    let limited = |names: &[&str]| LocalClient::of(&app(RateLimit::per_hour(1).by_key(key(names))));
    let by_header = limited(&["header.x-api-key"]);
    let of = |client: &LocalClient, lines: &[&str]| client.send(head("GET", "/", lines)).status;
    for (lines, expected) in [
        (&["X-Api-Key: a"][..], 200),
        (&["X-Api-Key: a"], 429),
        (&["X-Api-Key: a", "X-Api-Key: b"], 200),
        (&["X-Api-Key: b", "X-Api-Key: c"], 429),
        (&["X-Api-Key: "], 429),
        (&[], 429),
        (&["X-Api-Key: b"], 200),
    ] {
        assert_eq!(of(&by_header, lines), expected, "{lines:?}");
    }
    let by_cookie = limited(&["cookie.id"]);
    for (lines, expected) in [
        (&["Cookie: a=1; id=7"][..], 200),
        (&["Cookie: id=7"], 429),
        (&["Cookie: id=8; id=9"], 200),
        (&["Cookie: id=9", "Cookie: id=8"], 429),
        (&["Cookie: ID=7"], 429),
    ] {
        assert_eq!(of(&by_cookie, lines), expected, "{lines:?}");
    }
    let by_both = limited(&["client", "header.x-api-key"]);
    for (lines, expected) in [
        (&["X-Forwarded-For: 192.0.2.1", "X-Api-Key: a"][..], 200),
        (&["X-Forwarded-For: 192.0.2.1", "X-Api-Key: b"], 200),
        (&["X-Forwarded-For: 192.0.2.2", "X-Api-Key: a"], 200),
        (&["X-Forwarded-For: 192.0.2.1", "X-Api-Key: a"], 429),
    ] {
        assert_eq!(of(&by_both, lines), expected, "{lines:?}");
    }
    let by_network = limited(&["network"]);
    for (address, expected) in [
        ("192.0.2.1", 200),
        ("192.0.2.200", 429),
        ("::ffff:192.0.2.9", 429),
        ("192.0.3.1", 200),
        ("2001:db8:1::1", 200),
        ("2001:db8:1:ffff::1", 429),
        ("2001:db8:2::1", 200),
    ] {
        assert_eq!(status(&by_network, address), expected, "{address}");
    }
}

#[test]
fn plans_have_their_own_rates_and_an_unknown_key_counts_for_the_client() {
    let limit = RateLimit::per_hour(1)
        .by_header(HeaderName::from_static("x-api-key"))
        .tier("gold", &RateLimit::per_hour(3))
        .name("api");
    let client = LocalClient::of(&app(limit));
    let send = |lines: &[&str]| client.send(head("GET", "/", lines));
    for left in [2, 1, 0] {
        let reply = send(&["X-Api-Key: gold"]);
        assert_eq!(reply.status, 200);
        let field = reply.field("ratelimit").unwrap();
        assert!(
            field.starts_with(&format!("\"api\";r={left};t=")),
            "{field}"
        );
        // A partition that says nothing of the key.
        assert!(
            field.contains(";pk=:") && !field.contains("gold"),
            "{field}"
        );
        let policy = reply.field("ratelimit-policy").unwrap();
        assert!(policy.starts_with("\"api\";q=3;w=3600;pk=:"), "{policy}");
    }
    assert_eq!(send(&["X-Api-Key: gold"]).status, 429);
    assert_eq!(send(&["X-Api-Key: made-up-1"]).status, 200);
    assert_eq!(send(&["X-Api-Key: made-up-2"]).status, 429);
    assert_eq!(send(&[]).status, 429);
}

#[test]
fn a_dry_run_counts_what_the_limits_would_refuse_and_does_nothing() {
    let counts = |is_dry: bool| {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let limits = [
            RateLimit::per_second(3)
                .name("outer")
                .by_key(LimitKey::all()),
            RateLimit::new(1, Duration::from_secs(10)).name("inner"),
        ];
        let [outer, inner] = limits.map(|limit| if is_dry { limit.dry_run() } else { limit });
        let (one, other) = (outer.handle().clone(), inner.handle().clone());
        let app = Routes::new()
            .layer(TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]))
            .layer(outer)
            .layer(inner)
            .get("/", async || "well");
        let client = LocalClient::of(&app);
        let mut refused = 0;
        for step in 0..400 {
            let address = format!("192.0.2.{}", step * 7 % 5);
            let line = format!("X-Forwarded-For: {address}");
            let reply = client.send(head("GET", "/", &[&line]));
            refused += u64::from(reply.status == 429);
            assert_eq!(reply.field("ratelimit").is_some(), !is_dry);
            clock.advance(Duration::from_millis(step * step % 90));
        }
        let counts = [one.counts(), other.counts()];
        let real: u64 = counts.iter().map(|counts| counts.refused).sum();
        assert_eq!(real, refused);
        (
            counts.map(|counts| counts.allowed),
            counts.map(|counts| counts.refused + counts.would_refuse),
        )
    };
    let (real, dry) = (counts(false), counts(true));
    assert_eq!(real, dry);
    assert!(real.1.iter().all(|refused| *refused > 10), "{real:?}");
}

#[test]
fn conditions_ask_what_is_left_and_count_nothing() {
    let all = || LimitKey::parse(["all"]).unwrap();
    let rate = RateLimit::per_hour(60).burst(3).name("pages").by_key(all());
    let quota = QuotaLimit::per_month(10).name("month").by_key(all());
    let facts = LimitFacts::new().rate(&rate).quota(&quota);
    let used_up = "limit.pages == 0 and limit.month < 8 and not limit.other exists";
    let closed = ConditionalLayer::around(used_up.parse().unwrap(), Layer::new(Maintenance::new()));
    let app = Routes::new()
        .layer(facts)
        .layer(closed)
        .layer(rate.clone())
        .layer(quota.clone())
        .get("/", async || "well");
    let (client, request) = (LocalClient::of(&app), apus_testkit::get("/").request());
    for (left, expected) in [(3, 200), (2, 200), (1, 200), (0, 503), (0, 503)] {
        assert_eq!([(); 2].map(|()| rate.left(&request)), [Some(left); 2]);
        assert_eq!(quota.left(&request), Some(left + 7));
        assert_eq!(client.send(head("GET", "/", &[])).status, expected);
    }
}
