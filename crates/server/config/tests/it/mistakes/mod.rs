//! The mistakes that a file may have, by topic, each of which is reported with its position.

mod access;
mod limits;
mod locations;
mod responses;
mod rules;
mod server;
mod sites;
mod sources;
mod tls;

use crate::documents::{SITE, findings};

#[test]
fn reports_each_mistake_with_its_position() {
    let topics = [
        server::MISTAKES,
        sites::MISTAKES,
        tls::MISTAKES,
        access::MISTAKES,
        limits::MISTAKES,
        responses::MISTAKES,
        rules::MISTAKES,
        locations::MISTAKES,
        sources::MISTAKES,
    ];
    let mut failed = Vec::new();
    for (text, expected) in topics.into_iter().flatten() {
        let text = text.replace("SITE\n", SITE);
        let found = findings(&text);
        if found.len() != 1 || !found.iter().all(|found| found.starts_with(expected)) {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
