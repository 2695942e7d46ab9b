//! nghttp, the client of nghttp2: frames and settings that curl does not send.

use std::fs;

use super::{ExampleSite, example_site, program};

/// The output of nghttp with these arguments.
fn nghttp(arguments: &[&str], url: &str) -> Vec<u8> {
    let output = program("nghttp")
        .args(["--no-verify-peer", "--timeout=60"])
        .args(arguments)
        .arg(url)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} {url}: {errors}");
    assert!(errors.is_empty(), "{arguments:?} {url}: {errors}");
    output.stdout
}

#[test]
fn nghttp_gets_every_byte_with_any_settings() {
    let site = ExampleSite::serve();
    let whole = fs::read(example_site().join("public/gallery/noon.webp")).unwrap();
    for origin in site.origins() {
        let url = format!("{origin}/gallery/noon.webp");
        for arguments in [
            &[][..],
            &["--continuation"],
            &["--padding=200"],
            &["--window-bits=11", "--connection-window-bits=16"],
            &["--header-table-size=0"],
            &["--header-table-size=100", "--header-table-size=8192"],
            &["--encoder-header-table-size=65536"],
            &["--weight=256"],
            &["--no-dep"],
            &[
                "--hexdump",
                "--max-concurrent-streams=1",
                "--null-out",
                "--multiply=3",
            ],
        ] {
            let printed = nghttp(arguments, &url);
            if !arguments.contains(&"--null-out") {
                assert!(printed == whole, "{arguments:?} {url}");
            }
        }
        // The responses are interleaved, and nghttp prints them so.
        let printed = nghttp(&["--multiply=50"], &url);
        assert_eq!(printed.len(), 50 * whole.len(), "{url}");
    }
}

#[test]
fn nghttp_loads_a_page_with_its_parts_by_its_priorities() {
    let site = ExampleSite::serve();
    for origin in site.origins() {
        let url = format!("{origin}/gallery/");
        let printed = nghttp(&["--get-assets", "--null-out", "--stat"], &url);
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let succeeded: Vec<&str> = printed
            .lines()
            .filter(|line| line.contains(" 200 "))
            .collect();
        assert!(succeeded.len() > 3, "{printed}");
        assert!(printed.contains("site.css"), "{printed}");
    }
}

#[test]
fn nghttp_sends_a_body_and_trailers() {
    let site = ExampleSite::serve();
    let upload = site.home.write("upload", vec![b'x'; 20_000]);
    let data = format!("--data={}", upload.display());
    for origin in site.origins() {
        let arguments = [&data, "--trailer=x-sum: 7", "--verbose", "--null-out"];
        let printed = nghttp(&arguments, &format!("{origin}/"));
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(printed.contains(":status: 405"), "{printed}");
    }
}
