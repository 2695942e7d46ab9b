//! A browser: every page of the example site loads completely, and every link of a listing works.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::{Curl, ExampleSite, certificate, program};
use crate::commands::dev::DevProject;
use crate::harness::{Home, free_port, wait_until};

/// The DOM of the loaded page and the messages of the console.
fn visit(profile: &Path, url: &str) -> (String, String) {
    visit_with(profile, url, &["--disable-quic"])
}

/// The same with further arguments.
fn visit_with(profile: &Path, url: &str, arguments: &[&str]) -> (String, String) {
    let output = program("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(arguments)
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

/// The style sheets and the `src` attributes of a page, as paths of the site.
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
fn a_browser_loads_every_page_completely() {
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

/// The number of images of a page.
const PARTS: usize = 100;

fn part(number: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"><!--{number}{}--></svg>",
        "x".repeat(number * 200)
    )
}

/// Writes a page with many images, which shows the protocol and the size of each; the page.
fn write_page_with_parts(home: &Home) -> String {
    let mut page = String::from("<!doctype html><title>parts</title><p id=\"found\"></p>");
    for number in 0..PARTS {
        home.write(&format!("site/{number}.svg"), part(number));
        page += &format!("<img src=\"{number}.svg\" onerror=\"console.error({number})\">");
    }
    page += "<script>onload = () => {\
             const all = [...performance.getEntriesByType('navigation'),\
             ...performance.getEntriesByType('resource')];\
             document.getElementById('found').textContent =\
             all.map(entry => entry.nextHopProtocol + ':' + entry.decodedBodySize).join(' ');\
             }</script>";
    home.write("site/page.html", &page);
    page
}

/// Checks that a browser loaded that page and all its parts over this protocol.
fn assert_loaded_whole(page: &str, (dom, console): &(String, String), expected_protocol: &str) {
    assert!(console.is_empty(), "{console}");
    let (_, found) = dom.split_once("<p id=\"found\">").unwrap();
    let (found, _) = found.split_once("</p>").unwrap();
    let mut sizes: Vec<usize> = Vec::new();
    for entry in found.split(' ') {
        let (protocol, size) = entry.split_once(':').unwrap();
        assert_eq!(protocol, expected_protocol, "{found}");
        sizes.push(size.parse().unwrap());
    }
    sizes.sort_unstable();
    let mut expected: Vec<usize> = (0..PARTS).map(|number| part(number).len()).collect();
    expected.push(page.len());
    expected.sort_unstable();
    assert_eq!(sizes, expected);
}

#[test]
fn a_browser_loads_a_hundred_parts_of_a_page_over_http_2() {
    let home = Home::new();
    let page = write_page_with_parts(&home);
    let apus = home.serve(&["site", "--tls", "--listen", "127.0.0.1:0"]);
    let url = format!("{}page.html", apus.urls()[0]);
    let visited = visit(&home.path("profile"), &url);
    assert_loaded_whole(&page, &visited, "h2");
}

#[test]
fn a_browser_loads_a_hundred_parts_of_a_page_over_http_3() {
    let home = Home::new();
    let page = write_page_with_parts(&home);
    certificate(&home, "site", "localhost");
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten_tls = [\"127.0.0.1:{port}\"]\nroot = \"site\"\n\
             tls = {{ cert = \"site.pem\", key = \"site.key\" }}\n"
        ),
    );
    let _apus = home.serve(&[]);
    // For QUIC, the browser trusts certificates that it cannot verify by their key only.
    let arguments = [
        format!("--origin-to-force-quic-on=localhost:{port}"),
        format!(
            "--ignore-certificate-errors-spki-list={}",
            key_digest(&home)
        ),
        "--host-resolver-rules=MAP localhost 127.0.0.1".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let url = format!("https://localhost:{port}/page.html");
    let visited = visit_with(&home.path("profile"), &url, &arguments);
    assert_loaded_whole(&page, &visited, "h3");
}

/// The SHA-256 digest of the public key of `site.pem`, in Base64.
fn key_digest(home: &Home) -> String {
    let pipeline = "openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform DER |\
                    openssl dgst -sha256 -binary | openssl base64";
    let output = program("sh")
        .args(["-c", pipeline])
        .arg(home.path("site.pem"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_listing_shows_any_name_as_text_and_each_link_leads_to_its_file() {
    let home = Home::new();
    fs::create_dir(home.path("site/list")).unwrap();
    let names = [
        "with space.txt",
        "quote\"double.txt",
        "it's.txt",
        "<script>console.error(1)<\u{2215}script>.txt",
        "<img src=x onerror=console.error(2)>.txt",
        "a&amp;b.txt",
        "percent%20.txt",
        "hash#query?.txt",
        "colon:c.txt",
        "back\\slash.txt",
        "雨燕.txt",
    ];
    for name in names {
        home.write(&format!("site/list/{name}"), name);
    }
    home.write(
        "apus.toml",
        "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\nlisting = true\n",
    );
    let apus = home.serve(&[]);
    let url = format!("{}list/", apus.urls()[0]);
    let (dom, console) = visit(&home.path("profile"), &url);
    assert!(console.is_empty(), "{console}");
    assert!(!dom.contains("<img") && !dom.contains("<script"), "{dom}");
    let mut found = BTreeSet::new();
    for part in dom.split("href=\"").skip(1) {
        let (target, _) = part.split_once('"').unwrap();
        if target.starts_with("./") {
            let file = Curl::new()
                .run(&(url.clone() + &target.replace("&amp;", "&")))
                .unwrap();
            assert_eq!(file.status, 200, "{target}");
            found.insert(file.text());
        }
    }
    assert_eq!(found, names.iter().map(|name| (*name).to_owned()).collect());
}

/// A browser that shows a page until it is dropped.
struct OpenBrowser {
    child: std::process::Child,
    /// Where it tells which pages it shows.
    pages: String,
}

impl OpenBrowser {
    fn show(profile: &Path, url: &str) -> Self {
        let port = free_port();
        let child = program("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            .arg(format!("--remote-debugging-port={port}"))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pages = format!("http://127.0.0.1:{port}/json/list");
        Self { child, pages }
    }

    /// The title of the page; empty while there is none.
    fn title(&self) -> String {
        let listed = Curl::new().run(&self.pages).map(|reply| reply.text());
        let listed: serde_json::Value = listed
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let pages = listed.as_array().cloned().unwrap_or_default();
        let page = pages.iter().find(|page| page["type"] == "page");
        let title = page.and_then(|page| page["title"].as_str());
        title.unwrap_or_default().to_owned()
    }
}

impl Drop for OpenBrowser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_page_under_development_is_loaded_again_and_shows_mistakes() {
    let project = DevProject::new();
    let apus = project.develop();
    let browser = OpenBrowser::show(&project.home.path("profile"), &apus.urls()[0]);
    let shows = |title: &str| wait_until(title, || browser.title() == title);
    shows("one");
    project.change("two");
    shows("two");
    project.change("a mistake");
    shows("The project does not compile: 1 error");
    project.change("three");
    shows("three");
    project.change("end");
    shows("shop has ended: exit status: 3");
    project.change("four");
    shows("four");
}

#[test]
fn the_response_to_a_form_under_development_is_not_asked_for_again() {
    let project = DevProject::new();
    let apus = project.develop();
    let url = format!("{}form", apus.urls()[0]);
    let browser = OpenBrowser::show(&project.home.path("profile"), &url);
    let shows = |title: &str| wait_until(title, || browser.title() == title);
    shows("form 1");
    project.change("two");
    shows("\u{21bb} form 1");
    // The new process has not got the form.
    wait_until("the new version responds", || {
        apus.get("/").body.contains("<h1>two</h1>")
    });
    assert_eq!(apus.get("/forms").body, "0");
}
