//! A browser: every page of the example site loads whole, and a listing can be clicked through.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use super::{ExampleSite, program};
use crate::harness::wait_until;

/// The page as the browser has it in the end, and what it wrote to its console.
fn visit(profile: &Path, url: &str) -> (String, String) {
    let output = program("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .args(["--ignore-certificate-errors", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{url}");
    let console: String = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.contains(":CONSOLE"))
        .map(|line| format!("{line}\n"))
        .collect();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    (page, console)
}

/// What a page and its style sheets have the browser load, as paths of the site.
fn assets(page: &str) -> BTreeSet<String> {
    let mut assets = BTreeSet::new();
    for attribute in ["src=\"", "<link rel=\"stylesheet\" href=\""] {
        for part in page.split(attribute).skip(1) {
            let (target, _) = part.split_once('"').unwrap();
            assets.insert(target.to_owned());
        }
    }
    assets
}

#[test]
fn a_browser_loads_every_page_whole() {
    let site = ExampleSite::serve();
    for (origin, scheme) in [(&site.http, "http"), (&site.https, "https")] {
        let profile = site.home.path(scheme);
        for page in ["/", "/about.html", "/gallery/", "/downloads/"] {
            let (dom, console) = visit(&profile, &format!("{origin}{page}"));
            assert!(console.is_empty(), "{origin}{page}: {console}");
            assert!(dom.contains("</main>"), "{dom}");
            let assets = assets(&dom);
            assert!(!assets.is_empty(), "{page}");
            for asset in assets {
                assert!(asset.starts_with('/'), "{page}: {asset}");
                let line = format!("200 {scheme} {asset}\n");
                wait_until(&format!("{asset} of {page} was loaded"), || {
                    let log = site.home.read("access.log");
                    log.contains(&line) || log.contains(&line.replace("200", "304"))
                });
            }
        }
    }
    let log = site.home.read("access.log");
    assert!(log.contains(" /fonts/eb-garamond-regular.woff2"), "{log}");
    let failed: Vec<_> = log
        .lines()
        .filter(|line| !matches!(&line[..3], "200" | "206" | "304"))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
