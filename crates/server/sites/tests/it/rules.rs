//! Rules of sites and locations: what happens to requests and responses that a condition holds for.

use apus_conditions::{Condition, Definitions, FactStage};
use std::rc::Rc;
use std::time::Duration;

use apus_http::{
    CacheBypass, NotCached, Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode,
};
use apus_layers::RateLimit;
use apus_sites::{
    ErrorPage, FieldChange, Location, LocationSettings, ReturnHandler, Rule, RuleAction,
    RuleCounters, Rules, Site,
};
use apus_testkit::{ask, echo, get};

fn when(text: &str) -> Condition {
    let compiled = Definitions::default().compile(text, FactStage::Response);
    compiled.unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))
}

fn rule(name: &str, condition: &str) -> Rule {
    Rule::new(name).when(when(condition))
}

fn deny(status: u16) -> RuleAction {
    RuleAction::deny(StatusCode::from_u16(status).unwrap())
}

fn everywhere() -> Location {
    Location::service("/".parse().unwrap(), "app", echo("app"))
}

fn site(rules: Rules) -> Site {
    Site::new("a").location(everywhere()).rules(rules)
}

#[test]
fn the_first_rule_that_ends_the_way_of_a_request_decides() {
    let rules = Rules::new("a")
        .rule(rule("friends", "header.key == \"1\"").then(RuleAction::Allow))
        .rule(rule("mark", "path starts_with \"/admin\"").then(RuleAction::Tag("admin".into())))
        .rule(rule("closed", "tag.admin and method == \"POST\"").then(deny(405)))
        .rule(rule("secret", "tag.admin").then(deny(403)));
    let service = site(rules).service();
    assert_eq!(get("/").of(&service).text(), "app /");
    assert_eq!(get("/admin").of(&service).status, 403);
    assert_eq!(ask("POST", "/admin").of(&service).status, 405);
    let friend = get("/admin").with("key", "1").of(&service);
    assert_eq!(friend.text(), "app /admin");
}

#[test]
fn an_allowed_request_meets_no_rule_of_its_location() {
    let closed = Rules::new("a /").rule(Rule::new("closed").then(deny(403)));
    let rules =
        Rules::new("a").rule(rule("friends", "header.key == \"1\"").then(RuleAction::Allow));
    let site = Site::new("a")
        .location(everywhere().rules(closed))
        .rules(rules);
    let service = site.service();
    assert_eq!(get("/x").of(&service).status, 403);
    let friend = get("/x").with("key", "1").of(&service);
    assert_eq!(friend.status, 200);
}

#[test]
fn a_chain_returns_to_the_rule_behind_the_jump() {
    let chain = [
        rule("own", "query.own == \"1\"").then(RuleAction::Leave),
        rule("refused", "query.no == \"1\"").then(deny(403)),
        rule("allowed", "query.yes == \"1\"").then(RuleAction::Allow),
    ];
    let rules = Rules::new("a")
        .rule(Rule::new("first").then(RuleAction::Jump("chain".into())))
        .rule(Rule::new("rest").then(deny(410)))
        .chain("chain", chain);
    let service = site(rules).service();
    for (path, status) in [
        ("/", 410),
        ("/?no=1", 403),
        ("/?yes=1", 200),
        ("/?own=1&yes=1&no=1", 410),
    ] {
        assert_eq!(get(path).of(&service).status, status, "{path}");
    }
}

#[test]
fn chains_that_jump_to_one_another_end_in_an_error() {
    let jump = |chain: &str| Rule::new("jump").then(RuleAction::Jump(chain.into()));
    let rules = Rules::new("a")
        .rule(jump("one"))
        .chain("one", [jump("two")])
        .chain("two", [jump("one")]);
    assert_eq!(get("/").of(&site(rules).service()).status, 500);
}

#[test]
fn a_rewrite_chooses_the_location_and_keeps_the_query() {
    let rules = Rules::new("a")
        .rule(rule("beta", "cookie.beta == \"1\"").then(RuleAction::rewrite("/beta$uri").unwrap()));
    let beta = Location::service("/beta/".parse().unwrap(), "beta", echo("beta"));
    let service = site(rules).location(beta).service();
    assert_eq!(get("/x?q=1").of(&service).text(), "app /x?q=1");
    let response = get("/x?q=1").with("cookie", "beta=1").of(&service);
    assert_eq!(response.text(), "beta /beta/x?q=1");
}

#[test]
fn a_location_can_send_its_requests_to_another_one() {
    let moved = Rules::new("a /old/")
        .rule(rule("moved", "method == \"GET\"").then(RuleAction::rewrite("/new/").unwrap()));
    let old = Location::service("/old/".parse().unwrap(), "old", echo("old")).rules(moved);
    let new = Location::service("/new/".parse().unwrap(), "new", echo("new")).internal();
    let service = Site::new("a").location(old).location(new).service();
    assert_eq!(get("/old/x").of(&service).text(), "new /new/");
    assert_eq!(ask("POST", "/old/x").of(&service).text(), "old /old/x");
    assert_eq!(get("/new/").of(&service).status, 404);
    // A location that sends its requests to itself is a loop.
    let circle =
        Rules::new("a /").rule(Rule::new("circle").then(RuleAction::rewrite("/again").unwrap()));
    let service = Site::new("a")
        .location(everywhere().rules(circle))
        .service();
    assert_eq!(get("/").of(&service).status, 500);
}

#[test]
fn fields_of_requests_and_responses_are_changed() {
    let set = |name: &str, value: &str| FieldChange::set(name, value).unwrap();
    let rules = Rules::new("a")
        .rule(
            rule("marked", "path == \"/x\"")
                .then(RuleAction::RequestField(set("x-from", "$uri")))
                .then(RuleAction::ResponseField(set("x-rule", "marked"))),
        )
        .rule(
            rule("seen", "header.x-from == \"/x\"")
                .then(RuleAction::ResponseField(set("x-seen", "$request_method"))),
        );
    let service = site(rules).service();
    let response = get("/x").of(&service);
    assert_eq!(response.field("x-rule"), Some("marked"));
    assert_eq!(response.field("x-seen"), Some("GET"));
    let response = get("/y").of(&service);
    assert_eq!(
        (response.field("x-rule"), response.field("x-seen")),
        (None, None)
    );
}

#[test]
fn rules_for_responses_see_what_the_handler_made_and_what_earlier_rules_marked() {
    let gone = ReturnHandler::status(StatusCode::NOT_FOUND);
    let set = FieldChange::set("x-rule", "missing").unwrap();
    let rules = Rules::new("a")
        .rule(rule("mark", "query.m == \"1\"").then(RuleAction::Tag("m".into())))
        .rule(
            rule("missing", "status == 404 and not tag.m")
                .then(RuleAction::ResponseField(set))
                .on_response(),
        )
        .rule(
            rule("hidden", "status == 404 and tag.m")
                .then(deny(403))
                .on_response(),
        );
    let site = site(rules).location(Location::respond("/gone".parse().unwrap(), gone));
    let service = site.service();
    let found = |path: &str| {
        let response = get(path).of(&service);
        (response.status, response.field("x-rule").map(str::to_owned))
    };
    assert_eq!(found("/"), (200, None));
    assert_eq!(found("/gone"), (404, Some("missing".to_owned())));
    assert_eq!(found("/gone?m=1"), (403, None));
}

#[test]
fn a_dry_run_counts_what_the_rule_would_refuse() {
    let run = |is_dry: bool| {
        let counters = RuleCounters::default();
        let mut limit = rule("limit", "query.n exists and share.query.n < 30%").then(deny(403));
        if is_dry {
            limit = limit.dry_run();
        }
        let rules = Rules::new("a").rule(limit).counters(&counters);
        let service = site(rules.clone()).service();
        let refused = (0..200)
            .filter(|number| get(&format!("/?n={number}")).of(&service).status == 403)
            .count() as u64;
        (refused, rules.counts()[0].applied)
    };
    let (refused, counted) = run(false);
    assert_eq!(refused, counted);
    assert!((30..100).contains(&refused), "{refused}");
    assert_eq!(run(true), (0, counted));
}

#[test]
fn counters_go_on_in_the_next_configuration_and_over_workers() {
    let counters = RuleCounters::default();
    let rules = || {
        Rules::new("a")
            .rule(Rule::new("all").then(RuleAction::Tag("t".into())))
            .counters(&counters)
    };
    let old = site(rules());
    let workers = [old.service(), old.service()];
    for worker in &workers {
        get("/").of(worker);
    }
    drop(workers);
    let new = site(rules());
    let worker = new.service();
    get("/").of(&worker);
    assert_eq!(rules().counts()[0].applied, 3);
}

#[test]
fn internal_requests_do_not_meet_the_rules_of_the_site_again() {
    let rules = Rules::new("a").rule(rule("closed", "path != \"/error\"").then(deny(403)));
    let settings =
        LocationSettings::new().error_page(StatusCode::FORBIDDEN, ErrorPage::Path("/error".into()));
    let page = Location::service("= /error".parse().unwrap(), "page", echo("page"))
        .rules(Rules::new("a /error").rule(Rule::new("closed").then(deny(404))));
    let service = site(rules).settings(settings).location(page).service();
    let response = get("/x").of(&service);
    assert_eq!((response.status, response.text()), (403, "page /error"));
}

#[test]
fn a_rule_sees_the_path_the_fields_and_the_tags_of_earlier_rules() {
    let set = FieldChange::set("x-plan", "gold").unwrap();
    let rules = Rules::new("a")
        .rule(rule("never", "path starts_with \"/never\"").then(deny(404)))
        .rule(rule("old", "path == \"/old\"").then(RuleAction::rewrite("/new").unwrap()))
        .rule(rule("new", "path == \"/new\"").then(RuleAction::RequestField(set)))
        .rule(rule("gold", "header.x-plan == \"gold\"").then(RuleAction::Tag("gold".into())))
        .rule(rule("chain", "tag.gold").then(RuleAction::Jump("chain".into())))
        .rule(rule("behind", "path == \"/chain\"").then(deny(410)))
        .chain(
            "chain",
            [rule("again", "path == \"/new\"").then(RuleAction::rewrite("/chain").unwrap())],
        );
    let service = site(rules).service();
    for (path, status) in [("/", 200), ("/old", 410), ("/new", 410), ("/never/x", 404)] {
        assert_eq!(get(path).of(&service).status, status, "{path}");
    }
}

#[test]
fn a_rule_holds_for_all_forms_of_what_it_names() {
    let rules = Rules::new("a")
        .rule(rule("script", "path == \"/login.php\"").then(deny(401)))
        .rule(rule("scripts", "path matches \"/admin/*.php\"").then(deny(402)))
        .rule(rule("host", "host == \"closed.example\"").then(deny(403)))
        .rule(rule("key", "header.x-key in [\"bad\", \"worse\"]").then(deny(404)))
        .rule(rule("network", "client in 192.0.2.0/24").then(deny(410)));
    let service = site(rules).service();
    for (path, status) in [
        ("/login.php", 401),
        ("/login.php/", 401),
        ("/login.php/a/b.php/c", 401),
        ("/%6cogin.php", 401),
        ("//login.php", 401),
        ("/x/../login.php", 401),
        ("/login.php?a=/x", 401),
        ("http://example.com/login.php", 401),
        ("/login.phpx", 410),
        ("/admin/a.php/b", 402),
        ("/admin/b/a.php", 410),
    ] {
        assert_eq!(get(path).of(&service).status, status, "{path}");
    }
    for host in [
        "closed.example",
        "CLOSED.example",
        "closed.example:80",
        "closed.example.",
    ] {
        let response = get("/").with("host", host).of(&service);
        assert_eq!(response.status, 403, "{host}");
    }
    let twice = get("/").lines(&["X-Key: good", "x-key: worse"]);
    assert_eq!(twice.of(&service).status, 404);
    for (client, status) in [
        ("192.0.2.1:1", 410),
        ("[::ffff:192.0.2.1]:1", 410),
        ("192.0.3.1:1", 200),
        ("[2001:db8::1]:1", 200),
    ] {
        let client: std::net::SocketAddr = client.parse().unwrap();
        assert_eq!(
            get("/").peer(client).of(&service).status,
            status,
            "{client}"
        );
    }
}

#[test]
fn a_rule_closes_the_connection_and_no_error_page_or_rule_for_responses_makes_a_response_of_it() {
    let page = ErrorPage::Path("/error".into());
    let settings = LocationSettings::new().error_page(StatusCode::from_u16(444).unwrap(), page);
    let rules = Rules::new("a")
        .rule(rule("closed", "query.close == \"1\"").then(RuleAction::Close))
        .rule(
            rule("own", "query.own == \"1\"")
                .then(RuleAction::Close)
                .on_response(),
        )
        .rule(Rule::new("other").then(deny(410)).on_response());
    let service = site(rules).settings(settings).service();
    for (path, is_unsent, status) in [
        ("/?close=1", true, 444),
        ("/?own=1", true, 444),
        ("/", false, 410),
    ] {
        let ResponseFuture::Now(response) = service.call(get(path).request()) else {
            panic!("{path}");
        };
        assert_eq!(response.is_unsent(), is_unsent, "{path}");
        assert_eq!(response.status().as_u16(), status, "{path}");
        assert_eq!(response.ends_connection(), is_unsent, "{path}");
    }
}

#[test]
fn a_rule_chooses_a_location_whatever_the_path_is() {
    let chosen = |name: &str| RuleAction::Location(name.into());
    let rules = Rules::new("a")
        .rule(rule("beta", "cookie.beta == \"1\"").then(chosen("= /beta")))
        .rule(rule("missing", "query.missing == \"1\"").then(chosen("/none")));
    let old =
        Rules::new("a /old/").rule(rule("moved", "method == \"GET\"").then(chosen("= /beta")));
    let closed = Rules::new("a = /beta").rule(rule("closed", "query.no == \"1\"").then(deny(403)));
    let beta = Location::service("= /beta".parse().unwrap(), "beta", echo("beta"))
        .internal()
        .rules(closed);
    let old = Location::service("/old/".parse().unwrap(), "old", echo("old")).rules(old);
    let service = site(rules).location(beta).location(old).service();
    let with = |path: &str| get(path).with("cookie", "beta=1").of(&service);
    assert_eq!(get("/x").of(&service).text(), "app /x");
    assert_eq!(with("/x?q=1").text(), "beta /x?q=1");
    // The rules of the chosen location are asked, and it stays closed to its own path.
    assert_eq!(with("/x?no=1").status, 403);
    assert_eq!(get("/beta").of(&service).status, 404);
    assert_eq!(get("/old/x").of(&service).text(), "beta /old/x");
    assert_eq!(ask("POST", "/old/x").of(&service).text(), "old /old/x");
    assert_eq!(get("/?missing=1").of(&service).status, 500);
}

#[test]
fn locations_that_choose_one_another_end_in_an_error() {
    let to =
        |name: &str| Rules::new("a").rule(Rule::new("to").then(RuleAction::Location(name.into())));
    let one = Location::service("/one".parse().unwrap(), "one", echo("one")).rules(to("/two"));
    let two = Location::service("/two".parse().unwrap(), "two", echo("two")).rules(to("/one"));
    let service = Site::new("a").location(one).location(two).service();
    assert_eq!(get("/one").of(&service).status, 500);
}

#[test]
fn a_rule_counts_a_request_against_a_limit_once_however_many_rules_name_it() {
    let limit = RuleAction::layer(RateLimit::per_hour(1).burst(2).name("posts"));
    let rules = Rules::new("a")
        .rule(rule("posts", "method == \"POST\"").then(limit.clone()))
        .rule(rule("again", "method == \"POST\"").then(limit.clone()))
        .rule(rule("chain", "query.chain == \"1\"").then(RuleAction::Jump("chain".into())))
        .chain("chain", [Rule::new("chained").then(limit.clone())]);
    let own = Rules::new("a /own").rule(Rule::new("own").then(limit));
    let own = Location::service("/own".parse().unwrap(), "own", echo("own")).rules(own);
    let service = site(rules).location(own).service();
    let statuses = |method: &str, path: &str| ask(method, path).of(&service).status;
    assert_eq!(statuses("GET", "/"), 200);
    assert_eq!(statuses("POST", "/own"), 200);
    assert_eq!(statuses("GET", "/?chain=1"), 200);
    for (method, path) in [("POST", "/"), ("GET", "/?chain=1"), ("GET", "/own")] {
        assert_eq!(statuses(method, path), 429, "{method} {path}");
    }
    assert_eq!(statuses("GET", "/"), 200);
}

#[test]
fn a_request_that_a_rule_keeps_from_caches_has_the_mark() {
    let marked = || {
        apus_http::service_fn(|request: Request| {
            let is_marked = NotCached::applies_to(&request) && CacheBypass::applies_to(&request);
            Response::text(StatusCode::OK, is_marked.to_string()).into()
        })
    };
    let rules =
        Rules::new("a").rule(rule("fresh", "cookie.editor exists").then(RuleAction::NoCache));
    let app = Location::service("/".parse().unwrap(), "app", marked);
    let service = Site::new("a").location(app).rules(rules).service();
    assert_eq!(get("/").of(&service).text(), "false");
    assert_eq!(
        get("/").with("cookie", "editor=1").of(&service).text(),
        "true"
    );
}

#[test]
fn a_rule_holds_requests_and_responses_for_the_sum_of_its_times_and_no_longer_than_a_minute() {
    let second = |seconds| RuleAction::Delay(Duration::from_secs(seconds));
    let inner = Rules::new("a /in").rule(Rule::new("inner").then(second(3)));
    let inner = Location::service("/in".parse().unwrap(), "in", echo("in")).rules(inner);
    let rules = Rules::new("a")
        .rule(rule("slow", "query.slow exists").then(second(2)))
        .rule(rule("slower", "query.slower exists").then(second(50)))
        .rule(
            rule("refused", "query.no exists")
                .then(second(1))
                .then(deny(403)),
        )
        .rule(
            rule("trial", "query.trial exists")
                .then(second(9))
                .dry_run(),
        )
        .rule(
            rule("late", "status == 200 and query.late exists")
                .then(second(4))
                .on_response(),
        );
    let service = site(rules).location(inner).service();
    for (path, status, seconds) in [
        ("/", 200, 0),
        ("/?trial", 200, 0),
        ("/?slow", 200, 2),
        ("/?slow&no", 403, 3),
        ("/in", 200, 3),
        ("/in?slow", 200, 5),
        ("/?late", 200, 4),
        ("/?late&slow", 200, 6),
        ("/in?slower&slow", 200, 55),
        ("/?slower&slow&no&late", 403, 53),
    ] {
        let (found, time) = timed(&service, path);
        assert_eq!((found, time), (status, seconds), "{path}");
    }
    let long = Rules::new("a").rule(Rule::new("long").then(second(50)).then(second(50)));
    assert_eq!(timed(&site(long).service(), "/"), (200, 60));
}

/// The status of the response, and after how many seconds of tokio's own time it comes.
fn timed(service: &Rc<dyn Service>, path: &str) -> (u16, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(async {
        let began = tokio::time::Instant::now();
        let response = service.call(get(path).request()).wait().await;
        (response.status().as_u16(), began.elapsed().as_secs())
    })
}
