//! wrk, ab and h2load: no request fails under load.

use super::{ExampleSite, program};

/// Runs h2load to its end and expects that every request succeeds. Returns the number of responses.
pub(crate) fn h2load(arguments: &[&str], url: &str) -> u64 {
    let report = report("h2load", arguments, url);
    let line = |start: &str| {
        let mut lines = report.lines();
        lines.find(|line| line.starts_with(start)).expect(&report)
    };
    let number = |line: &str, what: &str| {
        let before = line.split(what).next().unwrap().trim_end();
        let number = before.rsplit([' ', ':']).next().unwrap();
        number.parse::<u64>().expect(line)
    };
    let requests = line("requests:");
    let total = number(requests, "total");
    assert_eq!(number(requests, "succeeded"), total, "{report}");
    assert_eq!(number(line("status codes:"), "2xx"), total, "{report}");
    assert!(report.contains("Application protocol: h2"), "{report}");
    total
}

fn report(name: &str, arguments: &[&str], url: &str) -> String {
    let output = program(name).args(arguments).arg(url).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {url}: {report}{errors}");
    report
}

#[test]
fn wrk_gets_no_error() {
    let site = ExampleSite::serve();
    for origin in site.origins() {
        for path in ["/", "/assets/site.css", "/gallery/noon.webp"] {
            let url = format!("{origin}{path}");
            let report = report("wrk", &["-t1", "-c64", "-d1s"], &url);
            assert!(report.contains("requests in"), "{report}");
            for error in ["Socket errors", "Non-2xx"] {
                assert!(!report.contains(error), "{url}: {report}");
            }
        }
    }
}

#[test]
fn ab_gets_no_error_with_and_without_keep_alive() {
    let site = ExampleSite::serve();
    for origin in site.origins() {
        for keep in [&["-k"][..], &[]] {
            let arguments = [keep, &["-q", "-n", "500", "-c", "20"]].concat();
            let report = report("ab", &arguments, &format!("{origin}/about.html"));
            let number = |name: &str| {
                let line = report.lines().find(|line| line.starts_with(name));
                line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
            };
            assert_eq!(
                number("Complete requests:").as_deref(),
                Some("500"),
                "{report}"
            );
            assert_eq!(number("Failed requests:").as_deref(), Some("0"), "{report}");
            assert_eq!(number("Non-2xx responses:"), None, "{report}");
        }
    }
}

#[test]
fn h2load_gets_no_error() {
    let site = ExampleSite::serve();
    for origin in site.origins() {
        let url = format!("{origin}/about.html");
        assert_eq!(h2load(&["-n20000", "-c20", "-m100", "-t1"], &url), 20_000);
        let url = format!("{origin}/gallery/noon.webp");
        assert_eq!(h2load(&["-n1000", "-c10", "-m32", "-t1"], &url), 1000);
        // Small windows, then a large one.
        let arguments = ["-n200", "-c4", "-m10", "-t1", "-w11", "-W12"];
        assert_eq!(h2load(&arguments, &url), 200);
        let arguments = ["-n1000", "-c1", "-m200", "-t1", "-w30", "-W30"];
        assert_eq!(h2load(&arguments, &url), 1000);
    }
}
