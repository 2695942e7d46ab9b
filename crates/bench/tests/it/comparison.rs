//! Comparisons of servers whose difference is known.

use std::fs;
use std::time::Duration;

use apus_bench::{ComparedCases, ComparisonChanges, ComparisonFile, compare};
use tempfile::TempDir;

use crate::server::{Action, ScriptedServer, response};

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
#[ignore = "takes three minutes on a machine that does nothing else: cargo test -p apus-bench --test it -- --ignored"]
fn of_100_comparisons_of_a_server_with_itself_95_say_that_there_is_no_difference() {
    let server = slow(5.0);
    let (faster, slower) = verdicts(100, 6, [server.url("/"), server.url("/")]);
    assert!(faster + slower <= 5, "{faster} faster, {slower} slower");
}

#[test]
#[ignore = "takes a minute on a machine that does nothing else: cargo test -p apus-bench --test it -- --ignored"]
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
         [[case]]\nname = \"b\"\nservers = [\"other\"]\nload = {{ path = \"/b\" }}\n\
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

    let page = apus_bench::to_page(std::slice::from_ref(&result));
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
    let mut other = result.clone();
    let both = apus_bench::to_page(&[result.clone(), other.clone()]);
    assert_eq!(both.matches("<section").count(), 1, "{both}");
    other.title = "elsewhere".to_owned();
    let apart = apus_bench::to_page(&[result.clone(), other]);
    assert_eq!(apart.matches("<section").count(), 2, "{apart}");
    assert!(
        apart.contains("<a href=\"#section-1\">elsewhere</a>"),
        "{apart}"
    );

    let text = apus_bench::to_comparison_text(first);
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
