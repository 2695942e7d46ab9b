//! The memory of a connection and of a request: what `docs/c.md` says.

use std::fs;

use crate::program::{command, compile, crate_folder};

/// The first number behind these words of the document.
fn documented(document: &str, words: &str) -> f64 {
    let (_, rest) = document
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words:?}"));
    let number = rest.split_whitespace().next().unwrap();
    number.replace(',', "").parse().unwrap()
}

#[test]
fn connections_and_requests_take_the_memory_that_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(&compile("memory.c", folder.path()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    let found: Vec<f64> = line
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let [connection, request, allocations, left] = found[..] else {
        panic!("{line}")
    };
    let document = fs::read_to_string(crate_folder().join("../../../docs/c.md")).unwrap();
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let most = documented(&document, "An idle connection takes at most");
    assert!(connection <= most && connection > most / 4.0, "{line}");
    let most = documented(
        &document,
        "a request that its handler responds to at once at most",
    );
    assert!(request <= most && request > most / 4.0, "{line}");
    assert_eq!(left, 0.0, "{line}");
    println!("{allocations} allocations for each request");
}
