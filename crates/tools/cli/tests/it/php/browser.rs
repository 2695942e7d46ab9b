//! WordPress in a browser: an author logs in by typing, and publishes from the editor.

use std::process::Command;

use super::server::Server;
use super::source;
use super::wordpress::{AUTHOR, PASSWORD, SharedBlog, blog};
use crate::clients::program;

/// What the author saw, as `author.py` prints it.
fn write_in_a_browser(server: &Server, scheme: &str) -> serde_json::Value {
    let address = if scheme == "https" {
        server.tls()
    } else {
        server.clear()
    };
    let mut command: Command = program("/usr/bin/python3");
    let output = command
        .arg(source("author.py"))
        .arg(program("chromium").get_program())
        .arg(format!("{scheme}://{}", server.host()))
        .arg(address.to_string())
        .args([AUTHOR, PASSWORD])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_author_logs_in_and_publishes_in_a_browser() {
    let _blog = SharedBlog::lock();
    let server = blog("");
    for (scheme, protocol) in [("http", "http/1.1"), ("https", "h2")] {
        let saw = write_in_a_browser(&server, scheme);
        assert_eq!(saw["dashboard"], "Dashboard", "{saw}");
        assert_eq!(saw["known"], AUTHOR, "{saw}");
        assert_eq!(saw["bar"], true, "{saw}");
        assert!(
            saw["post"].as_str().unwrap().starts_with("From a browser"),
            "{saw}"
        );
        assert_eq!(saw["errors"], serde_json::json!([]), "{saw}");
        assert!(
            saw["protocols"]
                .as_array()
                .unwrap()
                .contains(&protocol.into()),
            "{saw}"
        );
    }
}
