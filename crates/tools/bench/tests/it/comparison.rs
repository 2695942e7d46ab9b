//! Comparisons of servers whose difference is known.

use std::fs;
use std::time::Duration;

use apus_bench::comparison::{
    ComparedCases, ComparisonChanges, ComparisonFile, ComparisonProgress, compare,
};
use apus_testkit::scripted::{Action, ScriptedServer, response};
use tempfile::TempDir;

/// A server that takes so long for each response.
fn slow(milliseconds: f64) -> ScriptedServer {
    let time = Duration::from_secs_f64(milliseconds / 1e3);
    ScriptedServer::start(move |_| Action::After(time, response(200, "x")))
}

/// A file in a folder of its own.
fn file(text: &str, changes: &ComparisonChanges) -> (ComparisonFile, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compare.toml");
    fs::write(&path, text).unwrap();
    (ComparisonFile::read(&path, changes).unwrap(), folder)
}

fn compared(file: &ComparisonFile) -> ComparedCases {
    compare(file, &mut |_| {}, &mut |_| {}).unwrap()
}

#[test]
fn a_server_that_is_slower_by_five_percent_is_said_to_be_slower() {
    let (one, other) = (slow(50.0), slow(52.5));
    // A round is so many requests, not a time: then its rate has no edges. If the machine is busy, there are more rounds.
    let text = format!(
        "[rounds]\nleast = 6\nmost = 30\nprecision = 0.015\nbudget = \"2m\"\n\
         [load]\nconnections = 8\nthreads = 1\nrequests = 80\n\
         [[server]]\nname = \"one\"\nurl = \"{}\"\n[[server]]\nname = \"other\"\nurl = \"{}\"\n",
        one.url("/"),
        other.url("/")
    );
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let result = compared(&file);
    let report = &result.reports[0];
    let of = |metric: &str| {
        let mut ratios = report.ratios.iter();
        ratios.find(|ratio| ratio.metric == metric).unwrap()
    };
    let rate = of("rate");
    assert!(rate.is_certain && rate.ratio < 1.0, "{rate:?}");
    assert!(rate.verdict.contains("slower than one"), "{rate:?}");
    assert!((0.93..0.98).contains(&rate.ratio), "{rate:?}");
    let latency = of("median latency");
    assert!(
        latency.is_certain && latency.verdict.contains("later"),
        "{latency:?}"
    );
}

/// Compares two servers so often, in at most so many short rounds each, and returns how often the first was found to be faster and
/// to be slower than the other.
fn verdicts(comparisons: usize, rounds: usize, urls: [String; 2]) -> (usize, usize) {
    let [one, other] = urls;
    let text = format!(
        "[rounds]\nleast = 6\nmost = {rounds}\nprecision = 0.015\n\
         [load]\nconnections = 4\nthreads = 1\nrequests = 80\n\
         [[server]]\nname = \"one\"\nurl = \"{one}\"\n[[server]]\nname = \"other\"\nurl = \"{other}\"\n"
    );
    let (mut faster, mut slower) = (0, 0);
    for _ in 0..comparisons {
        let (file, _folder) = file(&text, &ComparisonChanges::default());
        let report = &compared(&file).reports[0];
        let rate = report.ratios.iter().find(|ratio| ratio.metric == "rate");
        let rate = rate.unwrap();
        faster += usize::from(rate.is_certain && rate.ratio < 1.0);
        slower += usize::from(rate.is_certain && rate.ratio > 1.0);
    }
    (faster, slower)
}

/// The unit tests of the statistics have the same with ratios that were recorded.
#[test]
#[ignore = "takes three minutes on a machine that does nothing else: cargo test -p apus-bench --test it comparison -- --ignored"]
fn of_100_comparisons_of_a_server_with_itself_95_say_that_there_is_no_difference() {
    let server = slow(5.0);
    let (faster, slower) = verdicts(100, 6, [server.url("/"), server.url("/")]);
    assert!(faster + slower <= 5, "{faster} faster, {slower} slower");
}

#[test]
#[ignore = "takes a minute on a machine that does nothing else: cargo test -p apus-bench --test it comparison -- --ignored"]
fn of_20_comparisons_with_a_server_that_is_slower_by_five_percent_19_say_so() {
    let (server, slowed) = (slow(10.0), slow(10.5));
    let (faster, slower) = verdicts(20, 12, [server.url("/"), slowed.url("/")]);
    assert!(faster >= 19, "{faster} faster, {slower} slower");
}

#[test]
fn cases_goals_and_what_others_published_are_in_the_result() {
    let (one, other) = (slow(1.0), slow(2.0));
    let text = format!(
        "title = \"two\"\nnote = \"First.\\n\\nSecond.\"\n[values]\nword = \"never\"\n\
         prepared = \"${{work}}/made\"\n[files]\n\"sub/a.txt\" = \"${{word}}\"\n\
         [rounds]\nleast = 1\nmost = 1\n[load]\nconnections = 2\nrequests = 20\n\
         [[server]]\nname = \"one\"\nurl = \"{}\"\nprepare = [\"grep -q always ${{work}}/sub/a.txt\"]\n\
         [[server]]\nname = \"other\"\nurl = \"{}\"\n\
         [[server]]\nname = \"gone\"\nurl = \"http://127.0.0.1:1/\"\noptional = true\n\
         [[case]]\nname = \"a\"\ntitle = \"the first\"\n\
         goal = [{{ figure = \"p50\", server = \"other\", of = \"one\", most = 1.2, reason = \"it sleeps\" }},\
         {{ figure = \"failed\", server = \"one\", most = 0 }}]\n\
         published = [{{ server = \"one\", rate = 12273, p99 = 73, note = \"four cores\" }}, {{ server = \"kangle\", rate = 5 }}]\n\
         [[case]]\nname = \"b\"\nservers = [\"other\"]\nload = {{ path = \"/b\" }}\nfigures = [\"max\", \"goaways\"]\n\
         [[case]]\nname = \"c\"\nservers = [\"gone\"]\n",
        one.url("/"),
        other.url("/")
    );
    let changes = ComparisonChanges {
        values: [("word".to_owned(), "always".to_owned())].into(),
        ..ComparisonChanges::default()
    };
    let (file, _folder) = file(&text, &changes);
    let result = compared(&file);
    let [first, second] = &result.reports[..] else {
        panic!("{result:?}");
    };
    assert_eq!((first.rounds, first.servers.len()), (1, 2), "{first:?}");
    assert!(
        first
            .notes
            .iter()
            .any(|note| note.starts_with("gone was left out")),
        "{first:?}"
    );
    let [later, whole] = &first.goals[..] else {
        panic!("{first:?}");
    };
    assert!(!later.is_reached && later.value > 1.2, "{later:?}");
    assert_eq!(later.reason.as_deref(), Some("it sleeps"));
    assert!(whole.is_reached, "{whole:?}");
    assert_eq!(second.servers[0].url, other.url("/b"));
    assert_eq!(
        (&result.failures[0].case[..], result.failures.len()),
        ("c", 1)
    );

    let page = apus_bench::comparison::to_page(std::slice::from_ref(&result));
    for part in [
        "<p>First.</p>",
        "the first",
        "one, published (four cores)",
        "12273",
        "kangle, published",
        "One round, of each server",
        "it sleeps",
        "gone was left out",
        "Nothing was measured",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    // Of the case that asks for them alone, also if there was none.
    for title in ["longest, ms", "GOAWAYs"] {
        assert_eq!(page.matches(title).count(), 1, "{title}: {page}");
    }
    let mut other = result.clone();
    let both = apus_bench::comparison::to_page(&[result.clone(), other.clone()]);
    assert_eq!(both.matches("<section").count(), 1, "{both}");
    other.title = "elsewhere".to_owned();
    let apart = apus_bench::comparison::to_page(&[result.clone(), other]);
    assert_eq!(apart.matches("<section").count(), 2, "{apart}");
    assert!(
        apart.contains("<a href=\"#section-1\">elsewhere</a>"),
        "{apart}"
    );

    let text = apus_bench::comparison::to_comparison_text(first);
    assert!(
        text.contains("published of one:") && text.contains("MISSED: other"),
        "{text}"
    );

    // The report has what is needed to do the same again.
    let json = serde_json::json!({ "files": [result] }).to_string();
    let again = ComparisonFile::of_report(&json).unwrap();
    assert_eq!((again.len(), again[0].case_count()), (1, 2));
    let result = compared(&again[0]);
    assert_eq!(result.reports.len(), 2, "{result:?}");
}

/// Two servers under a short load in one round each, with lines at the begin of the file.
fn short(lines: &str, (one, other): (&ScriptedServer, &ScriptedServer)) -> String {
    format!(
        "{lines}\n[rounds]\nleast = 2\nmost = 2\n[load]\nconnections = 2\nrequests = 20\n\
         [[server]]\nname = \"one\"\nurl = \"{}\"\n[[server]]\nname = \"other\"\nurl = \"{}\"\n",
        one.url("/"),
        other.url("/")
    )
}

#[test]
fn a_server_without_a_good_response_counts_its_failures_and_the_comparison_goes_on() {
    let one = slow(1.0);
    // It is ready, and fails under load.
    let other = ScriptedServer::start(|request| {
        let status = if request.number == 0 { 200 } else { 503 };
        Action::Respond(response(status, "x"))
    });
    let goals = "\n[[goal]]\nfigure = \"rate\"\nserver = \"other\"\nof = \"one\"\nleast = 0.5\n\
                 [[goal]]\nfigure = \"p99\"\nserver = \"other\"\nof = \"one\"\nmost = 0.5\n";
    let text = short("", (&one, &other)) + goals;
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let result = compared(&file);
    let report = &result.reports[0];
    assert_eq!(report.rounds, 2, "{report:?}");
    let (good, silent) = (&report.servers[0], &report.servers[1]);
    assert!(
        good.figures["rate"] > 0.0 && good.figures["p99"] > 0.0,
        "{good:?}"
    );
    assert_eq!(silent.figures["rate"], 0.0, "{silent:?}");
    assert!(silent.figures["failed"] >= 40.0, "{silent:?}");
    assert_eq!(
        (silent.median.p99_ms, silent.figures.get("cpu")),
        (None, None)
    );
    assert!(
        report.ratios.iter().all(|ratio| ratio.metric != "rate"),
        "{report:?}"
    );
    // Nothing is as good as no response at all.
    let [rate] = &report.goals[..] else {
        panic!("{:?}", report.goals);
    };
    assert!(!rate.is_reached && rate.value == 0.0, "{rate:?}");
    for note in [
        "other sent no good response within 2 of 2 rounds, so its rate, CPU and latencies are not compared.",
        "requests to other failed: wrong status (",
    ] {
        let text = apus_bench::comparison::to_comparison_text(report);
        assert!(text.contains(note), "{note}: {text}");
    }
    assert!(
        apus_bench::comparison::to_page(std::slice::from_ref(&result))
            .contains("other sent no good response")
    );
}

#[test]
fn a_comparison_ends_if_a_server_ends_during_the_load() {
    let (one, other) = (slow(1.0), slow(1.0));
    let text = short("", (&one, &other))
        .replace("requests = 20", "duration = \"5s\"")
        .replace(
            "name = \"one\"",
            "name = \"one\"\ncommand = \"sh -c 'echo it is over; sleep 1; exit 3'\"",
        );
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let error = compare(&file, &mut |_| {}, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`one` ended during the load (exit status: 3)")
            && error.contains("it is over"),
        "{error}"
    );
}

#[test]
fn a_server_has_to_pass_the_check_before_it_is_measured() {
    let (one, other) = (by_path("bench"), by_path("nobody"));
    let check = "check = \"${work}/check.toml\"\n[files]\n\"check.toml\" = \"\"\"\n[[scenario]]\nname = \"pages\"\n\
                 [[scenario.step]]\nname = \"a page\"\npath = \"/page\"\n\
                 expect = { status = 200, headers = { x-by = { matches = \"^(bench|me)$\" } }, body_contains = \"page\" }\n\
                 [[scenario.step]]\nname = \"no page\"\npath = \"/none\"\nexpect = { status = 404 }\n\"\"\"\n";
    let text = short(check, (&one, &other));
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let error = compare(&file, &mut |_| {}, &mut |_| {})
        .unwrap_err()
        .to_string();
    for part in [
        "`other` does not pass the check ",
        "check.toml: pages: a page, GET http://127.0.0.1:",
        "/page: wrong header field (x-by: nobody instead of a match of ^(bench|me)$)",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    drop(file);

    // A server that may send something else is not checked.
    let excused = format!("{text}other_response = true\n");
    let (file, _folder) = self::file(&excused, &ComparisonChanges::default());
    assert_eq!(compared(&file).reports[0].rounds, 2);
    drop(file);

    for (from, to, expected) in [
        (
            "[[scenario.step]]\nname = \"no page\"",
            "[[scenario]]\n[[scenario.step]]",
            "expected one scenario",
        ),
        (
            "{ status = 404 }",
            "{ state = 404 }",
            "unknown field `state`",
        ),
        ("${work}/check.toml", "none.toml", "/none.toml: "),
    ] {
        let broken = excused.replace(from, to);
        let (file, _folder) = self::file(&broken, &ComparisonChanges::default());
        let error = compare(&file, &mut |_| {}, &mut |_| {}).unwrap_err();
        assert!(
            matches!(error, apus_bench::BenchError::Plan(_)),
            "{error:?}"
        );
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A server that has one page, and says who it is.
fn by_path(name: &'static str) -> ScriptedServer {
    ScriptedServer::start(move |request| {
        let (status, body) = if request.head.starts_with("GET /none ") {
            (404, "none")
        } else {
            (200, "a page")
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nx-by: {name}\r\ncontent-length: {}",
            body.len()
        );
        Action::Respond(format!("{head}\r\n\r\n{body}").into_bytes())
    })
}

#[test]
fn a_case_has_urls_and_a_limit_of_the_origin() {
    let (one, other) = (slow(1.0), slow(2.0));
    let cases = format!(
        "[[case]]\nname = \"a\"\nurls = {{ other = \"{}\" }}\nlimit = 1000\n\
         goal = [{{ figure = \"of-limit\", server = \"other\", least = 0.0001 }}, {{ figure = \"p99-of-p50\", server = \"one\", least = 1 }}]\n",
        one.url("/else")
    );
    let text = short("", (&one, &other)) + &cases;
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let result = compared(&file);
    let report = &result.reports[0];
    assert_eq!(report.servers[1].url, one.url("/else"));
    let figures = &report.servers[1].figures;
    assert!(
        (figures["of-limit"] - figures["rate"] / 1000.0).abs() < 0.1,
        "{figures:?}"
    );
    assert!(
        report.goals.len() == 2 && report.goals.iter().all(|goal| goal.is_reached),
        "{report:?}"
    );
    let page = apus_bench::comparison::to_page(std::slice::from_ref(&result));
    assert!(
        page.contains("share of the origin") && page.contains("p99 by the median"),
        "{page}"
    );
}

#[test]
fn idle_connections_need_a_server_whose_memory_is_known() {
    // This process is the server, which is not the generator's to measure.
    let (one, other) = (slow(0.0), slow(0.0));
    let text = short("", (&one, &other)).replace(
        "connections = 2\nrequests = 20",
        "idle = true\nconnections = 70\nduration = \"100ms\"",
    );
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let error = compare(&file, &mut |_| {}, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not tell the memory of `"), "{error}");
}

#[test]
fn helpers_run_as_long_as_the_comparison_and_count_for_their_server() {
    let server = slow(1.0);
    let pid = std::process::id();
    // The helper is ready when it has made a file; it burns CPU, and its command after it sees the file.
    let text = format!(
        "[rounds]\nleast = 1\nmost = 1\n[load]\nconnections = 1\nduration = \"600ms\"\nwarm_up = \"0s\"\n\
         [[helper]]\nname = \"behind\"\ncommand = [\"sh\", \"-c\", \"touch ${{work}}/ready; while :; do :; done\"]\n\
         ready = \"${{work}}/ready\"\nthen = [\"test -e ${{work}}/ready\"]\ncounts_for = [\"one\"]\napart = true\n\
         [[server]]\nname = \"one\"\nurl = \"{}\"\ncommand = \"sleep 600\"\n\
         [[server]]\nname = \"other\"\nurl = \"{}\"\nversion = [\"echo\", \"{pid}\"]\n",
        server.url("/"),
        server.url("/")
    );
    let (file, _folder) = file(&text, &ComparisonChanges::default());
    let result = compared(&file);
    let [one, other] = &result.reports[0].servers[..] else {
        panic!("{result:?}");
    };
    let behind = one.median.behind_per_response_us.unwrap();
    assert!(behind > 10.0, "{one:?}");
    assert_eq!(other.median.behind_per_response_us, None);
    assert_eq!(other.version, Some(pid.to_string()));

    let broken = text.replace("test -e", "test ! -e");
    drop(file);
    let (file, _folder) = self::file(&broken, &ComparisonChanges::default());
    let error = compare(&file, &mut |_| {}, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("fails"), "{error}");
}

/// PHP worked on requests of nginx's clients, who had gone, while the next server was measured.
#[test]
fn a_load_begins_when_helpers_have_worked_off_the_one_before() {
    let server = slow(1.0);
    let text = |work: &str, idle_within: &str| {
        format!(
            "[rounds]\nleast = 1\nmost = 1\n[load]\nconnections = 1\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
             [[helper]]\nname = \"behind\"\ncommand = [\"sh\", \"-c\", \"touch ${{work}}/ready; i=0; {work}; exec sleep 600\"]\n\
             ready = \"${{work}}/ready\"\nidle_within = \"{idle_within}\"\n\
             [[server]]\nname = \"one\"\nurl = \"{0}\"\n[[server]]\nname = \"other\"\nurl = \"{0}\"\n",
            server.url("/")
        )
    };
    let work = "while [ $i -lt 2000000 ]; do i=$((i+1)); done; touch done";
    let (file, folder) = file(&text(work, "60s"), &ComparisonChanges::default());
    let mut is_done = Vec::new();
    let mut observe = |_: &ComparisonProgress<'_>| {
        is_done.push(folder.path().join("done").exists());
    };
    let result = compare(&file, &mut observe, &mut |_| {}).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    assert_eq!(is_done, [true, true]);

    drop(file);
    let text = text("while :; do :; done", "600ms");
    let (file, _folder) = self::file(&text, &ComparisonChanges::default());
    let error = match compare(&file, &mut |_| {}, &mut |_| {}) {
        Ok(result) => format!("{:?}", result.failures),
        Err(error) => error.to_string(),
    };
    let expected = "the helper `behind` still works, 600ms after the load before";
    assert!(error.contains(expected), "{error}");
}

/// A shell ends at once when it is stopped, and what it started may take a moment: it still had its socket when the next server began.
#[test]
fn a_server_that_a_shell_started_is_gone_before_the_next_one_begins() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let command = "(mkdir lock || exit; trap 'sleep 0.5; rmdir lock; exit' TERM; while :; do sleep 0.1; done) & wait";
    let text = format!(
        "[rounds]\nleast = 3\nmost = 3\n[load]\nconnections = 1\nthreads = 1\nduration = \"300ms\"\nwarm_up = \"0s\"\n\
         [[server]]\nname = \"one\"\ncommand = [\"sh\", \"-c\", \"{command}\"]\nurl = \"{0}\"\n[[server]]\nname = \"other\"\nurl = \"{0}\"\n",
        server.url("/")
    );
    let (file, folder) = file(&text, &ComparisonChanges::default());
    let result = compared(&file);
    assert_eq!(result.reports.len(), 1, "{:?}", result.failures);
    let report = &result.reports[0];
    assert!(!report.has_failed, "{}", report.ended_by);
    assert_eq!(report.servers[0].rounds.len(), 3);
    assert!(!folder.path().join("lock").exists());
}
