//! Compares the responses of two servers, except for what has to differ.

use super::server::Server;
use super::visitor::{PageResponse, Visitor};

/// Fields that describe how or when a response was sent, not its representation.
const SERVER_FIELDS: [&str; 9] = [
    "accept-ranges",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
    // Presets send these with every response.
    "referrer-policy",
    "x-content-type-options",
];

/// Fields that each server sets differently for a file.
const FILE_FIELDS: [&str; 3] = ["cache-control", "content-type", "etag"];

/// Parts of lines that contain the current time, in DokuWiki and in WordPress.
const TIME_MARKERS: [&str; 2] = ["/lib/exe/taskrunner.php?", "var userSettings = "];

/// Sends a request to both servers, asserts that the responses are the same, and returns the response of `one`.
pub(super) fn assert_same_response(
    visitor: &Visitor,
    one: &Server,
    other: &Server,
    path: &str,
    arguments: &[&str],
) -> PageResponse {
    let first = visitor.request(one, path, arguments);
    let second = visitor.request(other, path, arguments);
    assert_eq!(first.status, second.status, "{path}");
    assert_eq!(fields(&first, path), fields(&second, path), "{path}");
    // For a response to HEAD, curl prints its head as the body.
    if !arguments.contains(&"--head") {
        let (mine, theirs) = (first.text(), second.text());
        for (mine, theirs) in mine.lines().zip(theirs.lines()) {
            let has_the_time = TIME_MARKERS.iter().any(|part| mine.contains(part));
            assert!(
                mine == theirs || has_the_time,
                "{path}: {mine:?} is not {theirs:?}"
            );
        }
        assert_eq!(mine.lines().count(), theirs.lines().count(), "{path}");
    }
    first
}

/// The fields that have to be the same.
fn fields(response: &PageResponse, path: &str) -> Vec<(String, Vec<String>)> {
    let is_file = [".css", ".js", ".png", ".svg"]
        .iter()
        .any(|end| path.ends_with(end));
    let may_differ =
        |name: &str| SERVER_FIELDS.contains(&name) || is_file && FILE_FIELDS.contains(&name);
    let compared = response.head.iter().filter(|(name, _)| !may_differ(name));
    let compared = compared.map(|(name, values)| {
        let values: Vec<_> = match name.as_str() {
            "set-cookie" => values.iter().map(|value| cookie(value)).collect(),
            // PHP's own date is long past; others are relative to now.
            "expires" if !values[0].contains(" 1981 ") => vec!["soon".to_owned()],
            // The time at which phpMyAdmin generated the page, which is not an HTTP date.
            "last-modified" if values[0].ends_with(" +0000") => vec!["now".to_owned()],
            // Servers that compress name `accept-encoding`.
            "vary" => {
                let names = values.iter().flat_map(|value| value.split(','));
                let names = names.map(|name| name.trim().to_ascii_lowercase());
                names.filter(|name| name != "accept-encoding").collect()
            }
            _ => values.clone(),
        };
        (name.clone(), values)
    });
    compared.filter(|(_, values)| !values.is_empty()).collect()
}

/// The name and the attributes of a cookie without what changes: its value, which may be encrypted
/// differently each time, and its lifetime, which is relative to now.
fn cookie(value: &str) -> String {
    let mut parts = value.split("; ");
    let mut kept = parts.next().unwrap().split('=').next().unwrap().to_owned();
    for attribute in parts {
        let name = attribute.split('=').next().unwrap();
        if !["expires", "max-age"].contains(&name.to_ascii_lowercase().as_str()) {
            kept += "; ";
            kept += attribute;
        }
    }
    kept
}
