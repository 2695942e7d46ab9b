//! The challenge of a site, on a clock of the test.

use std::time::Duration;

use apus_clock::{ClockGuard, TestClock};
use apus_http::{HeaderValue, StatusCode};
use apus_sites::{
    BrowserChallenge, ChallengeKey, ErrorPage, FieldChange, Location, LocationSettings,
    ReturnHandler, Rule, RuleAction, Rules, Site,
};
use apus_testkit::{Reply, RequestBuilder, ask, get};

const SECRET: &str = "a secret of at least thirty-two bytes";

fn responds(path: &str, text: &str) -> Location {
    let handler =
        ReturnHandler::text(StatusCode::OK, HeaderValue::from_static("text/plain"), text).unwrap();
    Location::respond(path.parse().unwrap(), handler)
}

fn served(name: &str, challenge: BrowserChallenge) -> Site {
    Site::new(name)
        .challenge(challenge.key(ChallengeKey::new(SECRET)))
        .location(responds("/", "served"))
        .location(responds("= /script", "served"))
}

/// A challenge of the first level for everybody.
fn refresh() -> BrowserChallenge {
    BrowserChallenge::new().weight(10)
}

fn browser(request: RequestBuilder) -> RequestBuilder {
    request.with("accept", "text/html,application/xhtml+xml,*/*;q=0.8")
}

fn from(request: RequestBuilder, address: &str) -> RequestBuilder {
    request.peer((address.parse::<std::net::IpAddr>().unwrap(), 50_000))
}

/// The value of a cookie that a response sets.
fn cookie(reply: &Reply, name: &str) -> Option<String> {
    let lines = reply.fields("set-cookie");
    let values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values
        .map(|value| value.split(';').next().unwrap().to_owned())
        .next()
}

fn with_cookie(request: RequestBuilder, name: &str, value: &str) -> RequestBuilder {
    request.with("cookie", &format!("other=1; {name}={value}"))
}

/// The ticket in the data of the script of a page.
fn ticket(page: &Reply) -> String {
    let (_, after) = page.text().split_once("data-ticket=\"").unwrap();
    after.split('"').next().unwrap().to_owned()
}

/// What the script of level 2 computes.
fn script_answer(ticket: &str) -> String {
    let hash = ticket.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:x}")
}

struct Clock {
    clock: TestClock,
    _guard: ClockGuard,
}

impl Clock {
    fn frozen() -> Self {
        let clock = TestClock::new();
        let _guard = clock.enter();
        clock.freeze();
        Self { clock, _guard }
    }

    fn advance(&self, milliseconds: u64) {
        self.clock.advance(Duration::from_millis(milliseconds));
    }
}

/// The clearance of a browser at 192.0.2.7 that has passed the first level.
fn pass(clock: &Clock, site: &Site) -> String {
    let page = browser(get("/")).to(site);
    let ticket = cookie(&page, "apus_challenge").unwrap();
    clock.advance(1000);
    let request = browser(get("/?apus-challenge=1"));
    let reply = with_cookie(request, "apus_challenge", &ticket).to(site);
    assert_eq!(reply.status, 303);
    cookie(&reply, "apus_clearance").unwrap()
}

#[test]
fn a_browser_passes_the_first_level_by_a_refresh_and_comes_to_what_it_asked_for() {
    let clock = Clock::frozen();
    let site = served("shop", refresh());
    let page = browser(get("/a?b=c&d=<")).to(&site);
    assert_eq!(page.status, 403);
    let refresh =
        "<meta http-equiv=\"refresh\" content=\"1; url=/a?b=c&amp;d=&lt;&amp;apus-challenge=1\">";
    assert!(page.text().contains(refresh), "{}", page.text());
    assert!(!page.text().contains("<script"));
    assert_eq!(page.field("cache-control"), Some("no-store"));
    let ticket = cookie(&page, "apus_challenge").unwrap();
    let answer = |target: &str| {
        let request = browser(get(target));
        with_cookie(request, "apus_challenge", &ticket).to(&site)
    };
    // Not at once: the page itself waits a second.
    clock.advance(899);
    assert_eq!(answer("/a?b=c&d=<&apus-challenge=1").status, 403);
    clock.advance(1);
    let reply = answer("/a?b=c&d=<&apus-challenge=1");
    assert_eq!(
        (reply.status, reply.field("location")),
        (303, Some("/a?b=c&d=<"))
    );
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    let lines: Vec<&str> = reply.fields("set-cookie").collect();
    assert!(
        lines[0].ends_with("; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"),
        "{lines:?}"
    );
    let clearance = cookie(&reply, "apus_clearance").unwrap();
    let reply = with_cookie(browser(get("/a")), "apus_clearance", &clearance).to(&site);
    assert_eq!((reply.status, reply.text()), (200, "served"));
    // All requests of the browser pass then, also those that are none for pages.
    let reply = with_cookie(ask("POST", "/a"), "apus_clearance", &clearance).to(&site);
    assert_eq!(reply.status, 200);
    // The ticket is used up.
    assert_eq!(answer("/a?apus-challenge=1").status, 403);
}

#[test]
fn cookies_are_for_secure_connections_where_the_request_came_over_tls() {
    let site = served("shop", refresh());
    let page = browser(get("/").tls(&["example.com"])).to(&site);
    let line = page.fields("set-cookie").next().unwrap();
    assert!(line.ends_with("; HttpOnly; SameSite=Lax; Secure"), "{line}");
}

#[test]
fn a_clearance_is_for_one_address_site_and_time_and_no_byte_of_it_can_be_changed() {
    let clock = Clock::frozen();
    let site = served("shop", refresh().lifetime(Duration::from_secs(3600)));
    let clearance = pass(&clock, &site);
    let status = |value: &str, address: &str, site: &Site| {
        let request = from(browser(get("/")), address);
        with_cookie(request, "apus_clearance", value)
            .to(site)
            .status
    };
    assert_eq!(status(&clearance, "192.0.2.7", &site), 200);
    assert_eq!(status(&clearance, "::ffff:192.0.2.7", &site), 200);
    assert_eq!(status(&clearance, "192.0.2.8", &site), 403);
    assert_eq!(
        status(&clearance, "192.0.2.7", &served("blog", refresh())),
        403
    );
    for at in 0..clearance.len() {
        let mut changed = clearance.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(status(&changed, "192.0.2.7", &site), 403, "{at}");
    }
    // Another server with the key accepts it; one with another key does not.
    assert_eq!(
        status(&clearance, "192.0.2.7", &served("shop", refresh())),
        200
    );
    let other = Site::new("shop")
        .challenge(refresh())
        .location(responds("/", "served"));
    assert_eq!(status(&clearance, "192.0.2.7", &other), 403);
    // The hour begins with the ticket, a second ago.
    clock.advance(3_599_000);
    assert_eq!(status(&clearance, "192.0.2.7", &site), 200);
    clock.advance(1000);
    assert_eq!(status(&clearance, "192.0.2.7", &site), 403);
}

#[test]
fn an_ipv6_network_of_64_bits_is_one_client() {
    let clock = Clock::frozen();
    let site = served("shop", refresh());
    let page = from(browser(get("/")), "2001:db8::1").to(&site);
    let ticket = cookie(&page, "apus_challenge").unwrap();
    clock.advance(1000);
    let answer = |address: &str| {
        let request = from(browser(get("/?apus-challenge=1")), address);
        with_cookie(request, "apus_challenge", &ticket).to(&site)
    };
    assert_eq!(answer("2001:db8:0:1::1").status, 403);
    assert_eq!(answer("2001:db8::ffff").status, 303);
}

#[test]
fn a_ticket_is_for_one_address_site_and_two_minutes_and_is_used_once() {
    let clock = Clock::frozen();
    let everybody = || BrowserChallenge::new().weight(20);
    let site = served("shop", everybody());
    let new_ticket = || ticket(&browser(get("/")).to(&site));
    let status = |ticket: &str, answer: &str, address: &str, site: &Site| {
        let request = from(browser(get("/")), address);
        let value = format!("{ticket}.{answer}");
        with_cookie(request, "apus_challenge", &value)
            .to(site)
            .status
    };
    let first = new_ticket();
    let answer = script_answer(&first);
    assert_eq!(status(&first, &answer, "192.0.2.8", &site), 403);
    assert_eq!(
        status(&first, &answer, "192.0.2.7", &served("blog", everybody())),
        403
    );
    assert_eq!(status(&first, "0", "192.0.2.7", &site), 403);
    assert_eq!(status(&first, &answer, "192.0.2.7", &site), 303);
    assert_eq!(status(&first, &answer, "192.0.2.7", &site), 403);
    // An answer to another ticket is none.
    let second = new_ticket();
    assert_ne!(first, second);
    assert_eq!(status(&second, &answer, "192.0.2.7", &site), 403);
    clock.advance(120_000);
    let answer = script_answer(&second);
    assert_eq!(status(&second, &answer, "192.0.2.7", &site), 303);
    let third = new_ticket();
    clock.advance(120_001);
    let answer = script_answer(&third);
    assert_eq!(status(&third, &answer, "192.0.2.7", &site), 403);
}

#[test]
fn a_clearance_of_a_lower_level_is_not_enough_for_a_higher_one() {
    let clock = Clock::frozen();
    let challenge = refresh().weight_when("path == \"/script\"".parse().unwrap(), 10);
    let site = served("shop", challenge);
    let clearance = pass(&clock, &site);
    let request = |target: &str| with_cookie(browser(get(target)), "apus_clearance", &clearance);
    assert_eq!(request("/").to(&site).status, 200);
    let page = request("/script").to(&site);
    assert_eq!(page.status, 403);
    assert!(page.text().contains("data-level=\"2\""), "{}", page.text());
}

#[test]
fn programs_get_an_explanation_and_browsers_a_page() {
    let site = served("shop", refresh());
    let refused = |request: RequestBuilder| {
        let reply = request.to(&site);
        assert_eq!(reply.status, 403);
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        reply.field("content-type") == Some("application/problem+json")
    };
    assert!(refused(get("/")));
    assert!(refused(get("/").with("accept", "*/*")));
    assert!(refused(
        get("/").with("accept", "application/json, text/plain")
    ));
    assert!(refused(ask("POST", "/").body("a=b")));
    // A script of a page that asks for HTML is a program, too: it cannot show a page.
    assert!(refused(browser(get("/")).with("sec-fetch-dest", "empty")));
    assert!(refused(browser(get("/")).with("sec-fetch-dest", "image")));
    assert!(!refused(
        browser(get("/")).with("sec-fetch-dest", "document")
    ));
    assert!(!refused(browser(get("/"))));
    assert!(!refused(get("/").with("accept", "TEXT/HTML;q=0.1")));
    let reply = get("/").to(&site);
    assert!(
        reply.text().contains("\"challenge-level\":1"),
        "{}",
        reply.text()
    );
}

#[test]
fn a_form_is_not_lost_silently_and_can_be_sent_again() {
    let clock = Clock::frozen();
    let site = served("shop", refresh());
    let page = browser(ask("POST", "/a").body("a=b")).to(&site);
    assert_eq!(page.status, 403);
    let text = page.text();
    assert!(
        text.contains("What you have sent was not accepted yet."),
        "{text}"
    );
    assert!(!text.contains("http-equiv=\"refresh\""), "{text}");
    let ticket = cookie(&page, "apus_challenge").unwrap();
    clock.advance(1000);
    // The reload sends it again with the ticket, and it is processed.
    let again = browser(ask("POST", "/a").body("a=b"));
    let reply = with_cookie(again, "apus_challenge", &ticket).to(&site);
    assert_eq!((reply.status, reply.text()), (200, "served"));
    assert!(cookie(&reply, "apus_clearance").is_some());
}

#[test]
fn a_browser_without_cookies_is_told_so_and_does_not_refresh_for_ever() {
    let site = served("shop", refresh());
    let reply = browser(get("/a?apus-challenge=1")).to(&site);
    assert_eq!(reply.status, 403);
    assert!(
        reply.text().contains("Cookies are needed"),
        "{}",
        reply.text()
    );
    assert!(!reply.text().contains("http-equiv=\"refresh\""));
    assert!(reply.text().contains("href=\"/a\""));
    // Where there is no challenge any more, the mark is removed.
    let site = served("shop", BrowserChallenge::new());
    let reply = browser(get("/a?b&apus-challenge=1")).to(&site);
    assert_eq!((reply.status, reply.field("location")), (303, Some("/a?b")));
}

#[test]
fn what_programs_need_and_who_is_allowed_is_not_challenged() {
    let challenge = refresh()
        .allow(["10.0.0.0/8".parse().unwrap()])
        .except("path starts_with \"/api/\"".parse().unwrap());
    let site = served("shop", challenge);
    for (target, expected) in [
        ("/robots.txt", 200),
        ("/favicon.ico", 200),
        ("/.well-known/acme-challenge/token", 200),
        ("/.well-known/../private", 403),
        ("/.well-known/%2e%2e/private", 403),
        ("/x/robots.txt", 403),
        ("/robots.txt/", 403),
        ("/robots.txt/x", 403),
        ("/api/a", 200),
        ("/api/../a", 403),
    ] {
        assert_eq!(browser(get(target)).to(&site).status, expected, "{target}");
    }
    assert_eq!(from(browser(get("/")), "10.1.2.3").to(&site).status, 200);
    assert_eq!(from(browser(get("/")), "11.1.2.3").to(&site).status, 403);
}

#[test]
fn the_page_has_its_own_policy_and_no_error_page_of_the_site_replaces_it() {
    let settings = LocationSettings::new()
        .response_field(FieldChange::set("content-security-policy", "default-src 'self'").unwrap())
        .intercept_errors(true)
        .error_page(StatusCode::FORBIDDEN, ErrorPage::Path("/script".into()));
    let site = served("shop", BrowserChallenge::new().weight(30)).settings(settings);
    for (language, expected) in [("en", "Please wait."), ("zh-CN", "请稍候。")] {
        let page = browser(get("/"))
            .with("accept-language", language)
            .to(&site);
        let policies: Vec<&str> = page.fields("content-security-policy").collect();
        let nonce = policies[0].split("'nonce-").nth(1).unwrap();
        let nonce = nonce.split('\'').next().unwrap();
        assert_eq!(policies.len(), 1);
        assert!(
            policies[0].starts_with("default-src 'none'; "),
            "{policies:?}"
        );
        let text = page.text();
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains(&format!("<script nonce=\"{nonce}\"")),
            "{text}"
        );
        assert!(
            text.contains(&format!("<style nonce=\"{nonce}\"")),
            "{text}"
        );
    }
    assert_eq!(
        get("/").to(&site).field("content-type"),
        Some("application/problem+json")
    );
}

#[test]
fn a_rule_asks_for_a_challenge_and_its_clients_go_on_to_the_next_rule() {
    let clock = Clock::frozen();
    let rules = || {
        let challenge = Rule::new("log-in")
            .when("path == \"/script\"".parse().unwrap())
            .then(RuleAction::Challenge);
        Rules::new("shop")
            .rule(challenge)
            .rule(Rule::new("next").then(RuleAction::ResponseField(
                FieldChange::set("x-next", "1").unwrap(),
            )))
    };
    let locations = Site::new("shop").location(responds("= /script", "served").rules(rules()));
    for site in [
        served("shop", BrowserChallenge::new()).rules(rules()),
        locations
            .challenge(BrowserChallenge::new().key(ChallengeKey::new(SECRET)))
            .location(responds("/", "served")),
    ] {
        assert_eq!(browser(get("/")).to(&site).status, 200);
        let page = browser(get("/script")).to(&site);
        assert_eq!((page.status, page.field("x-next")), (403, None));
        assert_eq!(get("/script").to(&site).status, 403);
        let ticket = cookie(&page, "apus_challenge").unwrap();
        clock.advance(1000);
        let answer = browser(get("/script?apus-challenge=1"));
        let reply = with_cookie(answer, "apus_challenge", &ticket).to(&site);
        assert_eq!(
            (reply.status, reply.field("location")),
            (303, Some("/script"))
        );
        let clearance = cookie(&reply, "apus_clearance").unwrap();
        let reply = with_cookie(get("/script"), "apus_clearance", &clearance).to(&site);
        assert_eq!((reply.status, reply.field("x-next")), (200, Some("1")));
    }
    // A rule that allows a request exempts it from the weights of the site.
    let allow = Rule::new("feed")
        .when("path == \"/feed\"".parse().unwrap())
        .then(RuleAction::Allow);
    let site = served("shop", refresh()).rules(Rules::new("shop").rule(allow));
    assert_eq!(browser(get("/feed")).to(&site).status, 200);
    assert_eq!(browser(get("/")).to(&site).status, 403);
    // Without a challenge of the site, nobody gets past the rule.
    let site = Site::new("shop")
        .location(responds("/", "served"))
        .rules(rules());
    assert_eq!(browser(get("/script")).to(&site).status, 403);
}

#[test]
fn an_application_asks_for_a_challenge_by_a_field_that_nobody_else_sees_or_sends() {
    let clock = Clock::frozen();
    let asking = |value: &str| {
        let field = FieldChange::set("x-apus-challenge", value).unwrap();
        let application = Site::new("application")
            .settings(LocationSettings::new().response_field(field))
            .location(responds("/", "of the application"));
        Site::new("shop")
            .challenge(BrowserChallenge::new().key(ChallengeKey::new(SECRET)))
            .location(Location::service(
                "/".parse().unwrap(),
                "application",
                application,
            ))
    };
    for (value, level) in [
        ("required", 1),
        ("1", 1),
        ("2", 2),
        ("3", 3),
        ("4", 1),
        ("", 1),
    ] {
        let site = asking(value);
        let reply = get("/").to(&site);
        assert_eq!(reply.status, 403, "{value}");
        let member = format!("\"challenge-level\":{level}");
        assert!(reply.text().contains(&member), "{value}: {}", reply.text());
        assert_eq!(reply.field("x-apus-challenge"), None);
    }
    let site = asking("required");
    let page = browser(get("/a")).to(&site);
    let ticket = cookie(&page, "apus_challenge").unwrap();
    clock.advance(1000);
    let answer = browser(get("/a?apus-challenge=1"));
    let reply = with_cookie(answer, "apus_challenge", &ticket).to(&site);
    let clearance = cookie(&reply, "apus_clearance").unwrap();
    let reply = with_cookie(get("/a"), "apus_clearance", &clearance).to(&site);
    assert_eq!((reply.status, reply.text()), (200, "of the application"));
    assert_eq!(reply.field("x-apus-challenge"), None);
    // A client that sends the field asks for nothing.
    let site = served("shop", BrowserChallenge::new());
    let reply = get("/").with("x-apus-challenge", "required").to(&site);
    assert_eq!(reply.status, 200);
}

#[test]
fn thresholds_of_a_site_raise_the_level_for_a_minute() {
    let clock = Clock::frozen();
    let challenge = BrowserChallenge::new().rate(10, Duration::from_secs(1));
    let site = served("shop", challenge);
    let second = |requests: usize| {
        let statuses: Vec<u16> = (0..requests).map(|_| get("/").to(&site).status).collect();
        clock.advance(1000);
        statuses
    };
    second(1);
    assert!(second(10).iter().all(|status| *status == 200));
    assert!(second(11).iter().all(|status| *status == 200));
    let reply = get("/").to(&site);
    assert_eq!(
        (reply.status, reply.field("retry-after")),
        (429, Some("60"))
    );
    assert_eq!(browser(get("/")).to(&site).status, 429);
    clock.advance(59_999);
    assert_eq!(get("/").to(&site).status, 429);
    clock.advance(1);
    assert_eq!(get("/").to(&site).status, 200);
}

#[test]
fn weights_add_up_and_take_away_before_they_decide() {
    let when = |text: &str| text.parse().unwrap();
    let challenge = BrowserChallenge::new()
        .weight_when(when("user_agent ~ \"python\""), 10)
        .weight_when(when("not header.accept-language exists"), 5)
        .weight_when(when("query contains \"sort=\""), 5)
        .weight_when(when("cookie.session exists"), -10);
    let site = served("shop", challenge);
    for (target, agent, language, session, level) in [
        ("/", "Mozilla/5.0", "en", "", 0),
        ("/", "Mozilla/5.0", "", "", 0),
        ("/?sort=a", "Mozilla/5.0", "en", "", 0),
        ("/?sort=a", "Mozilla/5.0", "", "", 1),
        ("/", "python", "en", "", 1),
        ("/?sort=a", "python", "", "", 2),
        ("/?sort=a", "python", "", "session=1", 1),
        ("/?sort=a", "Mozilla/5.0", "", "session=1", 0),
    ] {
        let mut request = get(target).with("user-agent", agent);
        if !language.is_empty() {
            request = request.with("accept-language", language);
        }
        let reply = request.with("cookie", session).to(&site);
        let expected = if level == 0 { 200 } else { 403 };
        assert_eq!(
            reply.status, expected,
            "{target} {agent} {language} {session}"
        );
        if level > 0 {
            let member = format!("\"challenge-level\":{level}");
            assert!(reply.text().contains(&member), "{}", reply.text());
        }
    }
    let levels = BrowserChallenge::new().weight(5).levels([1, 5, 6]);
    let reply = get("/").to(&served("shop", levels));
    assert!(
        reply.text().contains("\"challenge-level\":2"),
        "{}",
        reply.text()
    );
    let attacked = get("/").to(&served("shop", BrowserChallenge::under_attack()));
    assert!(
        attacked.text().contains("\"challenge-level\":2"),
        "{}",
        attacked.text()
    );
}
