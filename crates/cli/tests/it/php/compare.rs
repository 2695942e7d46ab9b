//! Whether two servers answer alike, but for what has to differ.

use super::server::Server;
use super::visitor::{PageResponse, Visitor};

/// Fields that say how an answer was sent, or when, not what it is.
const OF_THE_SERVER: [&str; 9] = [
    "accept-ranges",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
    // Presets send these with everything.
    "referrer-policy",
    "x-content-type-options",
];

/// Fields that each server has in its own way for a file.
const OF_A_FILE: [&str; 3] = ["cache-control", "content-type", "etag"];

/// Parts of lines that tell what time it is, in DokuWiki and in WordPress.
const HAS_THE_TIME: [&str; 2] = ["/lib/exe/taskrunner.php?", "var userSettings = "];

/// Both answers to a request, which have to be the same; that of `one`.
pub(super) fn same(
    visitor: &Visitor,
    one: &Server,
    other: &Server,
    path: &str,
    arguments: &[&str],
) -> PageResponse {
    let first = visitor.ask(one, path, arguments);
    let second = visitor.ask(other, path, arguments);
    assert_eq!(first.status, second.status, "{path}");
    assert_eq!(fields(&first, path), fields(&second, path), "{path}");
    // What curl prints of an answer to HEAD is its head.
    if !arguments.contains(&"--head") {
        let (mine, theirs) = (first.text(), second.text());
        for (mine, theirs) in mine.lines().zip(theirs.lines()) {
            let has_the_time = HAS_THE_TIME.iter().any(|part| mine.contains(part));
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
fn fields(answer: &PageResponse, path: &str) -> Vec<(String, Vec<String>)> {
    let is_file = [".css", ".js", ".png", ".svg"]
        .iter()
        .any(|end| path.ends_with(end));
    let is_own = |name: &str| OF_THE_SERVER.contains(&name) || is_file && OF_A_FILE.contains(&name);
    let compared = answer.head.iter().filter(|(name, _)| !is_own(name));
    let compared = compared.map(|(name, values)| {
        let values: Vec<_> = match name.as_str() {
            "set-cookie" => values.iter().map(|value| cookie(value)).collect(),
            // PHP's own is long ago; others count from now.
            "expires" if !values[0].contains(" 1981 ") => vec!["soon".to_owned()],
            // The time at which phpMyAdmin made the page, which it does not write as an HTTP date.
            "last-modified" if values[0].ends_with(" +0000") => vec!["now".to_owned()],
            // Servers that compress say so.
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

/// The name and the attributes of a cookie, without what changes: its value, which may be encrypted
/// anew each time, and how long it lasts, which counts from now.
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
