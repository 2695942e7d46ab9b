//! curl: each kind of request, in clear text and over TLS.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::{ExampleSite, LARGE, example_site, program};

/// A command line of curl.
pub(crate) struct Curl(Command);

/// The response that curl received.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) version: String,
    head: BTreeMap<String, Vec<String>>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.head.get(name).map_or("", |values| &values[0])
    }
}

impl Curl {
    pub(crate) fn new() -> Self {
        let mut command = program("curl");
        command
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--path-as-is",
            ])
            .args([
                "--write-out",
                "%{stderr}@@%{http_code} %{http_version} %{header_json}",
            ]);
        Self(command)
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.0.args(arguments);
        self
    }

    /// The response, or the error that curl reports.
    pub(crate) fn run(mut self, url: &str) -> Result<Reply, String> {
        let output = self.0.arg(url).output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(report);
        }
        let (_, report) = report.split_once("@@").expect(&report);
        let mut parts = report.splitn(3, ' ');
        Ok(Reply {
            status: parts.next().unwrap().parse().unwrap(),
            version: parts.next().unwrap().to_owned(),
            head: serde_json::from_str(parts.next().unwrap()).unwrap(),
            body: output.stdout,
        })
    }

    pub(crate) fn get(self, url: &str) -> Reply {
        self.run(url)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

#[test]
fn curl_loads_every_file_of_the_example_site() {
    let site = ExampleSite::serve();
    let root = example_site().join("public");
    for file in [
        "about.html",
        "assets/site.css",
        "assets/icon.png",
        "fonts/eb-garamond-regular.woff2",
        "gallery/index.html",
        "gallery/dawn.webp",
    ] {
        for origin in site.origins() {
            // With TLS, ALPN selects the best version that both support.
            let best = if origin.starts_with("https:") {
                "2"
            } else {
                "1.1"
            };
            for (arguments, version) in [
                (&[][..], best),
                (&["--http1.1"], "1.1"),
                (&["--http2-prior-knowledge"], "2"),
            ] {
                let reply = site.curl().args(arguments).get(&format!("{origin}/{file}"));
                let got = (reply.status, reply.version.as_str());
                assert_eq!(got, (200, version), "{origin}/{file}");
                assert!(reply.body == fs::read(root.join(file)).unwrap(), "{file}");
            }
        }
    }
    for origin in site.origins() {
        let reply = site.curl().get(&format!("{origin}/nowhere"));
        assert_eq!(reply.status, 404);
        assert!(reply.body == fs::read(root.join("404.html")).unwrap());
    }
}

#[test]
fn curl_gets_a_page_over_http_1_0() {
    let site = ExampleSite::serve();
    for origin in site.origins() {
        let reply = site.curl().args(&["--http1.0"]).get(&format!("{origin}/"));
        assert_eq!((reply.status, reply.field("connection")), (200, "close"));
        assert!(reply.body == fs::read(example_site().join("public/index.html")).unwrap());
    }
}

#[test]
fn curl_loads_ranges_and_resumes_a_download() {
    let site = ExampleSite::serve();
    let url = format!("{}/large.csv", site.downloads);
    let whole = fs::read(site.home.path("site/large.csv")).unwrap();
    for (range, part) in [
        ("0-0", &whole[..1]),
        ("1000-1999", &whole[1000..2000]),
        ("-100", &whole[LARGE - 100..]),
        ("10000000-", &whole[10_000_000..]),
    ] {
        let reply = site.curl().args(&["--range", range]).get(&url);
        assert_eq!(reply.status, 206);
        assert!(reply.body == part, "{range}");
    }
    let reply = site.curl().args(&["--range", "0-9,20-29"]).get(&url);
    assert!(
        reply
            .field("content-type")
            .starts_with("multipart/byteranges")
    );
    let past = format!("{LARGE}-");
    assert_eq!(site.curl().args(&["--range", &past]).get(&url).status, 416);

    let part = site.home.write("part.csv", &whole[..7_654_321]);
    let resume = ["--continue-at", "-", "--output", part.to_str().unwrap()];
    assert_eq!(site.curl().args(&resume).get(&url).status, 206);
    assert!(fs::read(part).unwrap() == whole);
}

#[test]
fn curl_decodes_each_coding_and_revalidates_it() {
    let site = ExampleSite::serve();
    let whole = fs::read(example_site().join("public/assets/site.css")).unwrap();
    for origin in site.origins() {
        let url = format!("{origin}/assets/site.css");
        let mut tags = Vec::new();
        for coding in ["identity", "gzip", "br", "zstd"] {
            let accept = format!("Accept-Encoding: {coding}");
            let curl = || site.curl().args(&["--compressed", "--header", &accept]);
            let mut reply = curl().get(&url);
            assert!(reply.body == whole, "{coding}");
            crate::harness::wait_until("the compressed form is stored", || {
                reply = curl().get(&url);
                coding == "identity" || reply.field("content-encoding") == coding
            });
            assert!(reply.body == whole, "{coding}");
            assert!(reply.field("vary").eq_ignore_ascii_case("accept-encoding"));
            let tag = reply.field("etag").to_owned();
            let condition = format!("If-None-Match: {tag}");
            let reply = curl().args(&["--header", &condition]).get(&url);
            assert_eq!((reply.status, reply.body.len()), (304, 0), "{coding}");
            assert_eq!(reply.field("etag"), tag);
            tags.push(tag);
        }
        tags.sort();
        tags.dedup();
        assert_eq!(
            tags.len(),
            4,
            "representations share an entity tag: {tags:?}"
        );
        let since = site.curl().get(&url).field("last-modified").to_owned();
        let reply = site.curl().args(&["--time-cond", &since]).get(&url);
        assert_eq!(reply.status, 304);
    }
}

#[test]
fn curl_loads_a_large_file_over_http_2_whole_and_in_parts() {
    let site = ExampleSite::serve();
    let url = format!("{}/large.csv", site.downloads);
    let whole = fs::read(site.home.path("site/large.csv")).unwrap();
    let curl = || site.curl().args(&["--http2-prior-knowledge"]);
    let reply = curl().get(&url);
    assert_eq!((reply.status, reply.version.as_str()), (200, "2"));
    assert!(reply.body == whole);
    let reply = curl().args(&["--range", "10000000-"]).get(&url);
    assert_eq!(reply.status, 206);
    assert!(reply.body == whole[10_000_000..]);
    let reply = curl().args(&["--limit-rate", "20M"]).get(&url);
    assert!(reply.body == whole);
    let reply = curl().args(&["--head"]).get(&url);
    assert_eq!(
        (reply.status, reply.field("content-length")),
        (200, "20971520")
    );
}

#[test]
fn curl_that_uploads_gets_a_405_with_and_without_100_continue() {
    let site = ExampleSite::serve();
    let upload = format!("@{}", site.home.path("site/large.csv").display());
    for (origin, version) in [
        (&site.http, "--http1.1"),
        (&site.http, "--http2-prior-knowledge"),
        (&site.https, "--http1.1"),
        (&site.https, "--http2"),
    ] {
        let upload_with = |expect| {
            let arguments = [version, "--header", expect, "--data-binary", &upload];
            let reply = site.curl().args(&arguments).get(&format!("{origin}/"));
            assert_eq!(reply.status, 405, "{origin} {version}");
            assert!(reply.field("allow").contains("GET"));
        };
        upload_with("Expect: 100-continue");
        if version == "--http1.1" {
            // Without 100-continue, curl gets the same response, however much it sends. Over HTTP/2, curl
            // 7.88 loses a response that comes with RST_STREAM(NO_ERROR), from any server.
            upload_with("Expect:");
        }
    }
}

#[test]
fn curl_that_sends_a_small_body_gets_a_405_over_http_2() {
    let site = ExampleSite::serve();
    let upload = site.home.write("little", vec![b'x'; 20_000]);
    let upload = format!("@{}", upload.display());
    for _ in 0..10 {
        let arguments = ["--http2", "--header", "Expect:", "--data-binary", &upload];
        let reply = site
            .curl()
            .args(&arguments)
            .get(&format!("{}/", site.https));
        assert_eq!((reply.status, reply.version.as_str()), (405, "2"));
    }
}

#[test]
fn curl_loads_many_in_parallel() {
    let site = ExampleSite::serve();
    // In clear text, curl 7.88 cannot do this with prior knowledge, with any server.
    for (origin, version) in [
        (&site.http, "--http1.1"),
        (&site.https, "--http1.1"),
        (&site.https, "--http2"),
    ] {
        let output = program("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "60"])
            .arg(version)
            .args(["--parallel", "--parallel-max", "50", "--parallel-immediate"])
            .args([
                "--insecure",
                "--write-out",
                "%{http_code} %{size_download}\n",
            ])
            .args(["--output", "/dev/null"])
            .arg(format!("{origin}/gallery/dusk.webp?[1-300]"))
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        let size = fs::metadata(example_site().join("public/gallery/dusk.webp"))
            .unwrap()
            .len();
        let expected = format!("200 {size}");
        let good = report.lines().filter(|line| **line == *expected).count();
        assert_eq!(
            good,
            300,
            "{report}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
