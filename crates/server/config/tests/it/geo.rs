//! Databases of places.

use std::fs;

use crate::documents::{folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

#[test]
fn a_database_that_is_missing_or_damaged_and_a_fact_without_one_are_mistakes() {
    let folder = folder();
    fs::write(folder.path().join("damaged.mmdb"), "damaged").unwrap();
    let limit = "limits = [{ name = \"a\", rate = \"5/s\", key = \"geo.asn\" }]";
    let rule = "rules = [{ deny = 403, when = 'geo.country == \"DE\"' }]";
    for (global, site, expected) in [
        ("geo_databases = \"geo.mmdb\"", rule, None),
        (
            "geo_databases = \"geo.mmdb\"",
            limit,
            Some("no database of places has `geo.asn`"),
        ),
        (
            "geo_databases = [\"geo.mmdb\", \"none.mmdb\"]",
            limit,
            Some("there is no such file"),
        ),
        (
            "geo_databases = \"damaged.mmdb\"",
            "",
            Some("no MaxMind DB"),
        ),
        ("", rule, Some("`geo.country` needs a database of places")),
        ("", limit, Some("no database of places has `geo.asn`")),
    ] {
        let text = format!("[global]\n{global}\n{SITE}{site}\n");
        let found = parse_in(folder.path(), &text)
            .err()
            .map(|error| error.to_string());
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(part)) if found.contains(part) => {}
            (found, _) => panic!("{text}\n{found:?}"),
        }
    }
}

#[test]
fn configurations_share_a_database_until_its_file_changes() {
    let folder = folder();
    let text = format!("[global]\ngeo_databases = \"geo.mmdb\"\n{SITE}");
    let plan = || parse_in(folder.path(), &text).unwrap();
    let address = |plan: &apus_config::ServerPlan| {
        let database = plan.global.geo_databases.databases().next().unwrap();
        std::ptr::from_ref(database)
    };
    let (one, two) = (plan(), plan());
    assert_eq!(address(&one), address(&two));
    let path = folder.path().join("geo.mmdb");
    fs::copy(
        folder.path().join("other-geo.mmdb"),
        folder.path().join("new"),
    )
    .unwrap();
    fs::rename(folder.path().join("new"), path).unwrap();
    assert_ne!(address(&one), address(&plan()));
}
