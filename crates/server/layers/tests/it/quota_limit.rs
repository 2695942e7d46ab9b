//! Quotas of an hour, a day and a month of the calendar.

use std::time::{Duration, UNIX_EPOCH};

use apus_clock::TestClock;
use apus_conditions::{Definitions, FactStage};
use apus_handler::TrustedProxies;
use apus_http::HeaderName;
use apus_layers::{LimitKey, QuotaLimit, TimeZone};
use apus_testkit::LocalClient;

use crate::harness::{Routes, head};

fn app(limit: QuotaLimit) -> Routes {
    let local = "127.0.0.0/8".parse().unwrap();
    Routes::new()
        .layer(TrustedProxies::new([local]))
        .layer(limit)
        .get("/", async || "well")
}

fn utc(limit: QuotaLimit) -> QuotaLimit {
    limit.zone(TimeZone::UTC)
}

/// The status and the fields of a limit in the response to a client at this address, with a field.
fn reply(client: &LocalClient, lines: &[&str]) -> (u16, [Option<String>; 3]) {
    let reply = client.send(head("GET", "/", lines));
    let fields = ["ratelimit", "ratelimit-policy", "retry-after"];
    (
        reply.status,
        fields.map(|name| reply.field(name).map(str::to_owned)),
    )
}

fn status(client: &LocalClient, address: &str) -> u16 {
    reply(client, &[&format!("X-Forwarded-For: {address}")]).0
}

/// A clock that stands at ten seconds before the end of a month.
fn end_of_november() -> TestClock {
    let clock = TestClock::default();
    // 2026-12-01T00:00:00Z.
    let end = Duration::from_secs(1_796_083_200);
    clock.freeze_at(UNIX_EPOCH + end - Duration::from_secs(10));
    clock
}

#[test]
fn a_quota_is_whole_again_when_the_window_of_the_calendar_begins() {
    let clock = end_of_november();
    let _entered = clock.enter();
    for (limit, seconds) in [
        (QuotaLimit::per_hour(2), 3600),
        (QuotaLimit::per_day(2), 86_400),
        (QuotaLimit::per_month(2), 30 * 86_400),
    ] {
        let client = LocalClient::of(&app(utc(limit).name("plan")));
        let line = "X-Forwarded-For: 192.0.2.1";
        let policy = Some(format!("\"plan\";q=2;w={seconds}"));
        for left in ["1", "0"] {
            let state = Some(format!("\"plan\";r={left};t=10"));
            assert_eq!(
                reply(&client, &[line]),
                (200, [state, policy.clone(), None])
            );
        }
        let state = Some("\"plan\";r=0;t=10".to_owned());
        let wait = Some("10".to_owned());
        assert_eq!(reply(&client, &[line]), (429, [state, policy, wait]));
        assert_eq!(status(&client, "192.0.2.2"), 200);
        clock.advance(Duration::from_millis(9_999));
        assert_eq!(status(&client, "192.0.2.1"), 429);
        clock.advance(Duration::from_millis(1));
        assert_eq!(
            [(); 3].map(|()| status(&client, "192.0.2.1")),
            [200, 200, 429]
        );
        clock.freeze_at(clock.now() - Duration::from_secs(10));
    }
}

#[test]
fn plans_have_their_quotas_and_made_up_keys_count_for_the_client() {
    let clock = end_of_november();
    let _entered = clock.enter();
    let key = LimitKey::header(&HeaderName::from_static("x-api-key"));
    let limit = utc(QuotaLimit::per_day(1)).by_key(key).tier("ada", 3);
    let client = LocalClient::of(&app(limit.clone()));
    let with = |key: &str| {
        let lines = ["X-Forwarded-For: 192.0.2.1", &*format!("X-Api-Key: {key}")];
        reply(&client, &lines).0
    };
    assert_eq!([(); 4].map(|()| with("ada")), [200, 200, 200, 429]);
    assert_eq!([with("made"), with("up")], [200, 429]);
    // The key may be a secret, so it is not shown; the client is.
    let report = limit.handle().quota_report().unwrap();
    let shown: Vec<_> = report
        .keys
        .iter()
        .map(|key| (&*key.key, key.used))
        .collect();
    let [(hidden, 3), ("192.0.2.1", 1)] = shown[..] else {
        panic!("{shown:?}");
    };
    assert!(hidden.starts_with('#') && !hidden.contains("ada"));
    assert_eq!(limit.handle().reset_quota(Some("unknown")), 0);
    assert_eq!(limit.handle().reset_quota(Some("ada")), 1);
    assert_eq!(limit.handle().reset_quota(Some("192.0.2.1")), 1);
    assert_eq!([with("ada"), with("made"), with("up")], [200, 200, 429]);
    assert_eq!(limit.handle().reset_quota(None), 2);
    assert!(limit.handle().quota_report().unwrap().keys.is_empty());
}

#[test]
fn bytes_of_responses_and_chosen_responses_are_counted() {
    let clock = end_of_november();
    let _entered = clock.enter();
    // A response of four bytes is sent whole, and the next request is refused.
    let bytes = LocalClient::of(&app(utc(QuotaLimit::per_month(6)).count_bytes(None)));
    let field = "X-Forwarded-For: 192.0.2.1";
    let policy = "\"default\";q=6;qu=\"content-bytes\";w=2592000";
    assert_eq!(reply(&bytes, &[field]).1[1].as_deref(), Some(policy));
    assert_eq!([(); 2].map(|()| status(&bytes, "192.0.2.1")), [200, 429]);
    let failed = Definitions::default()
        .compile("status == 404", FactStage::Response)
        .unwrap();
    let client = LocalClient::of(&app(utc(QuotaLimit::per_day(1)).count_responses(failed)));
    let missing = || {
        let line = "X-Forwarded-For: 192.0.2.1";
        client.send(head("GET", "/missing", &[line])).status
    };
    assert_eq!([(); 3].map(|()| status(&client, "192.0.2.1")), [200; 3]);
    assert_eq!([missing(), missing()], [404, 429]);
}

#[test]
fn a_dry_run_refuses_nothing_and_says_nothing() {
    let limit = QuotaLimit::per_month(1).dry_run();
    let client = LocalClient::of(&app(limit.clone()));
    for _ in 0..3 {
        let (status, fields) = reply(&client, &["X-Forwarded-For: 192.0.2.1"]);
        assert_eq!((status, fields), (200, [None, None, None]));
    }
    assert_eq!(limit.handle().counts().would_refuse, 2);
}
