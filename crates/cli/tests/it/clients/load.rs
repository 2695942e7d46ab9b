//! wrk and ab: no request fails under load.

use super::{ExampleSite, program};

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
