//! Scenarios: log in, then browse, with cookies, captured values, rows, checks and think time.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_bench::{
    BenchError, BenchReport, ClientSpeed, ConnectionLife, LoadFailure, LoadLimit, LoadPlan,
    ScenarioPlan, to_html, to_text,
};
use apus_http::Headers;
use apus_testkit::scripted::{Action, Received, ScriptedServer, response};

use crate::harness::{failures, plan, run};

const SHOP: &str = r#"
[data.users]
file = "users.csv"

[[scenario]]
name = "buy"

[[scenario.step]]
name = "log in"
path = "/login"
form = { user = "${users.name}", password = "${users.password}" }
expect = { status = 303, headers = { location = "/", set-cookie = true } }
capture = { token = { header = "x-token" } }

[[scenario.step]]
name = "order"
path = "/orders?number=${counter}&page=${random:1..3}"
headers = { x-token = "${token}" }
json = { article = "${letters:5}" }
expect = { status = "200-201", json = { "/state" = "open" } }
capture = { id = { json = "/id" } }

[[scenario.step]]
name = "look"
path = "/orders/${id}"
expect = { body_contains = ["order", "total"], length = 11 }
"#;

const USERS: &str = "name,password\nanna,\"a&b c\"\nbert,x\n";

/// A scenario in a folder of its own.
fn scenario(text: &str, url: &str) -> (tempfile::TempDir, LoadPlan) {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("load.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("users.csv"), USERS).unwrap();
    let scenario = ScenarioPlan::read(&file, Some(url.parse().unwrap()), &Headers::new()).unwrap();
    let mut plan = plan(url, 3, 30);
    plan.set_scenario(Arc::new(scenario));
    (folder, plan)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A shop that checks what it gets: who logs in, with which cookie and token orders come.
fn shop(request: &Received<'_>) -> Vec<u8> {
    let body = String::from_utf8_lossy(request.body);
    let line = request.head.lines().next().unwrap();
    let reply = |status: u16, fields: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status} X\r\n{fields}content-length: {length}\r\n\r\n{body}")
            .into_bytes()
    };
    match line.split(' ').nth(1).unwrap() {
        "/login" => match body.as_ref() {
            "password=a%26b%20c&user=anna" | "password=x&user=bert" => {
                let user = &body[body.len() - 4..];
                let fields = format!(
                    "location: /\r\nset-cookie: user={user}; Path=/\r\nset-cookie: old=1; Max-Age=0\r\nx-token: t-{user}\r\n"
                );
                reply(303, &fields, "")
            }
            _ => reply(400, "", &body),
        },
        path if path.starts_with("/orders?number=") => {
            let cookie =
                field(request.head, "cookie").and_then(|value| value.strip_prefix("user="));
            let token = field(request.head, "x-token").and_then(|value| value.strip_prefix("t-"));
            let is_json = field(request.head, "content-type") == Some("application/json");
            let good = cookie.is_some() && cookie == token && is_json;
            let good = good && body.starts_with("{\"article\":\"") && body.len() == 19;
            if good {
                reply(201, "", r#"{"state":"open","id":77}"#)
            } else {
                reply(400, "", "")
            }
        }
        "/orders/77" => reply(200, "", "order total"),
        _ => reply(404, "", ""),
    }
}

fn by_step(report: &BenchReport) -> Vec<(u64, u64)> {
    let steps = report.urls.iter();
    steps.map(|url| (url.responses, url.failed)).collect()
}

#[test]
fn a_user_logs_in_and_browses_with_what_the_server_sent() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = ScriptedServer::start(move |request| {
        let line = request.head.lines().next().unwrap().to_owned();
        log.lock().unwrap().push(line);
        Action::Respond(shop(request))
    });
    let (_folder, plan) = scenario(SHOP, &server.url("/"));
    let report = run(plan);
    assert_eq!(
        (report.responses, report.failed),
        (30, 0),
        "{:?}",
        report.failures
    );
    let steps = by_step(&report);
    assert_eq!(steps.iter().map(|step| step.0).sum::<u64>(), 30);
    // Three users with ten requests each: four log in, three order, three look.
    assert!(
        steps[0].0 >= steps[1].0 && steps[1].0 >= steps[2].0,
        "{steps:?}"
    );
    assert!(steps[2].0 >= 7, "{steps:?}");
    let latency = report.urls[1].latency.as_ref().unwrap();
    assert_eq!(latency.count, report.urls[1].responses);
    let text = to_text(&report);
    assert!(text.contains("  buy: log in: "), "{text}");
    assert!(to_html(&report).contains("buy: order: <code>POST"));
    // No two orders have the same number.
    let seen = seen.lock().unwrap();
    let orders: Vec<_> = seen
        .iter()
        .filter_map(|line| line.split("number=").nth(1)?.split('&').next())
        .collect();
    let distinct: HashSet<_> = orders.iter().collect();
    assert!(
        !orders.is_empty() && distinct.len() == orders.len(),
        "{orders:?}"
    );
}

#[test]
fn mistakes_of_responses_are_failures_by_name_that_end_the_run() {
    let server = ScriptedServer::start(|request| {
        let bytes = shop(request);
        let text = String::from_utf8(bytes).unwrap();
        Action::Respond(match request.number {
            4 => text.replace("x-token", "x-other").into_bytes(),
            _ => text.into_bytes(),
        })
    });
    let (_folder, mut plan) = scenario(SHOP, &server.url("/"));
    plan.connections = std::num::NonZeroUsize::MIN;
    plan.limit = LoadLimit::Requests(12);
    let report = run(plan);
    // After the request before the load and a run of three, a log-in has no token.
    assert_eq!((report.responses, report.failed), (11, 1), "{report:?}");
    assert_eq!(failures(&report), [(LoadFailure::NothingCaptured, 1)]);
    assert_eq!(by_step(&report)[0].1, 1);
    let text = to_text(&report);
    assert!(
        text.contains("nothing to capture (first: no x-token)"),
        "{text}"
    );
}

#[test]
fn checks_of_scenarios_have_names() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, r#"{"a":1}"#)));
    for (expect, kind) in [
        ("{ status = 201 }", LoadFailure::WrongStatus),
        (
            "{ headers = { location = \"/\" } }",
            LoadFailure::WrongHeader,
        ),
        ("{ length = 8 }", LoadFailure::WrongLength),
        ("{ body_contains = \"b\" }", LoadFailure::WrongBody),
        ("{ json = { \"/a\" = 2 } }", LoadFailure::WrongValue),
    ] {
        let text = format!("[[scenario]]\n[[scenario.step]]\npath = \"/\"\nexpect = {expect}\n");
        let (_folder, mut plan) = scenario(&text, &server.url("/"));
        plan.limit = LoadLimit::Requests(5);
        let report = run(plan);
        assert_eq!(failures(&report), [(kind, 5)], "{expect}");
    }
}

#[test]
fn scenarios_are_chosen_by_weight_and_steps_wait() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let text = "[[scenario]]\nname = \"a\"\nweight = 3\nthink_time = \"10ms\"\n[[scenario.step]]\npath = \"/a\"\n\
                [[scenario]]\nname = \"b\"\n[[scenario.step]]\npath = \"/b\"\nthink_time = \"1ms..2ms\"\n";
    let (_folder, mut plan) = scenario(text, &server.url("/"));
    plan.connections = std::num::NonZeroUsize::MIN;
    plan.limit = LoadLimit::Requests(80);
    let report = run(plan);
    let steps = by_step(&report);
    assert!((45..=72).contains(&steps[0].0), "{steps:?}");
    assert_eq!(steps[0].0 + steps[1].0, 80);
    let thought = (steps[0].0 - 1) as f64 * 0.01;
    assert!(report.seconds >= thought, "{} {steps:?}", report.seconds);
}

#[test]
fn scenarios_with_mistakes_and_loads_that_do_not_fit_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("load.toml");
    let none = ScenarioPlan::read(&file, None, &Headers::new()).unwrap_err();
    assert!(none.to_string().contains("load.toml"), "{none}");
    std::fs::write(
        &file,
        "url = \"http://127.0.0.1\"\n[[scenario]]\nsteps = []\n",
    )
    .unwrap();
    let error = ScenarioPlan::read(&file, None, &Headers::new()).unwrap_err();
    assert!(
        error.to_string().contains("unknown field `steps`"),
        "{error}"
    );

    let (_folder, mut plan) = scenario(SHOP, "http://127.0.0.1:1/");
    plan.in_flight = std::num::NonZeroUsize::new(2).unwrap();
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Plan(_)), "{error}");
}

#[test]
fn connections_end_after_requests_and_time() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/"), 2, 20);
    plan.life.requests = NonZeroU64::new(5);
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (20, 0));
    assert_eq!(report.connections_opened, 4);

    plan.in_flight = std::num::NonZeroUsize::new(4).unwrap();
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (20, 0));
    assert_eq!(report.connections_opened, 4);

    plan.in_flight = std::num::NonZeroUsize::MIN;
    plan.life = ConnectionLife {
        requests: None,
        time: Some(Duration::from_millis(100)),
    };
    plan.limit = LoadLimit::Time(Duration::from_millis(550));
    let report = run(plan);
    assert_eq!(report.failed, 0);
    let opened = report.connections_opened;
    assert!((6..=14).contains(&opened), "{opened}");
}

#[test]
fn slow_clients_take_their_time() {
    let body = "x".repeat(20_000);
    let server = ScriptedServer::start(move |request| {
        let length = request.body.len().max(1);
        Action::Respond(response(200, &body[..20_000 / length.min(2)]))
    });
    let mut reading = plan(&server.url("/"), 1, 1);
    reading.speed = ClientSpeed {
        receive: NonZeroU32::new(40_000),
        send: None,
    };
    let report = run(reading.clone());
    assert_eq!((report.responses, report.failed), (1, 0));
    assert!(report.latency.max_ms >= 350.0, "{}", report.latency.max_ms);

    let mut sending = plan(&server.url("/"), 1, 1);
    sending.requests[0].method = apus_http::Method::POST;
    sending.requests[0].body = vec![b'y'; 8_000].into();
    sending.speed.send = NonZeroU32::new(20_000);
    let report = run(sending);
    assert_eq!((report.responses, report.failed), (1, 0));
    assert!(report.latency.max_ms >= 280.0, "{}", report.latency.max_ms);
}
