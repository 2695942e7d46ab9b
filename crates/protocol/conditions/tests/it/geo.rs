//! Facts of places, by databases that a test wrote.

use std::net::IpAddr;
use std::sync::Arc;

use apus_conditions::{Definitions, FactKind, FactStage, GeoDatabase, GeoDatabases};
use apus_testkit::geo_database;
use serde_json::{Value, json};

use crate::TestFacts;

fn database(kind: &str, networks: &[(&str, Value)]) -> Arc<GeoDatabase> {
    Arc::new(GeoDatabase::parse(geo_database(kind, networks)).unwrap())
}

fn cities() -> Arc<GeoDatabase> {
    let germany = json!({"country": {"iso_code": "DE"}, "continent": {"code": "EU"}});
    let berlin = json!({
        "country": {"iso_code": "DE"},
        "continent": {"code": "EU"},
        "subdivisions": [{"iso_code": "BE"}],
        "city": {"names": {"de": "Berlin (Stadt)", "en": "Berlin"}},
    });
    database(
        "GeoLite2-City",
        &[
            ("192.0.2.0/24", germany),
            ("192.0.2.128/25", berlin),
            ("2001:db8::/32", json!({"country": {"iso_code": "JP"}})),
        ],
    )
}

fn systems() -> Arc<GeoDatabase> {
    let example =
        json!({"autonomous_system_number": 64500, "autonomous_system_organization": "Example"});
    database("GeoLite2-ASN", &[("192.0.2.0/24", example)])
}

fn holds(text: &str, client: &str) -> bool {
    let mut definitions = Definitions::default();
    definitions.set_geo_databases(Arc::new(GeoDatabases::new([cities(), systems()])));
    let condition = definitions.compile(text, FactStage::Request).unwrap();
    let facts = TestFacts {
        client: client.parse().ok(),
        ..TestFacts::default()
    };
    let holds = condition.holds(&facts);
    if !holds {
        assert!(!condition.why_not(&facts).is_empty());
    }
    holds
}

#[test]
fn a_client_is_in_its_country_city_and_system() {
    for (text, client, expected) in [
        ("geo.country == \"DE\"", "192.0.2.1", true),
        ("geo.country == \"DE\"", "::ffff:192.0.2.1", true),
        ("geo.country == \"DE\"", "2001:db8::1", false),
        ("geo.country in [\"DE\", \"JP\"]", "2001:db8::1", true),
        ("geo.country != \"DE\"", "198.51.100.1", true),
        ("geo.country exists", "198.51.100.1", false),
        ("not geo.country exists", "unix:", true),
        ("geo.continent == \"EU\"", "192.0.2.1", true),
        ("geo.continent exists", "2001:db8::1", false),
        ("geo.city == \"Berlin\"", "192.0.2.200", true),
        ("geo.city exists", "192.0.2.1", false),
        ("geo.subdivision == \"BE\"", "192.0.2.200", true),
        ("geo.asn == 64500", "192.0.2.200", true),
        ("geo.asn in [1, 64496..64511]", "192.0.2.1", true),
        ("geo.asn exists", "2001:db8::1", false),
        ("geo.as_organization ~ \"(?i)^exam\"", "192.0.2.1", true),
    ] {
        assert_eq!(holds(text, client), expected, "{text} for {client}");
    }
}

#[test]
fn flat_databases_are_read_too() {
    let record = json!({"country_code": "FR", "continent_code": "EU", "asn": "AS64501", "as_name": "Exemple"});
    let flat = GeoDatabases::new([database(
        "ipinfo generic_lite.mmdb",
        &[("198.51.100.0/24", record)],
    )]);
    let ip: IpAddr = "198.51.100.7".parse().unwrap();
    assert_eq!(flat.text(FactKind::GeoCountry, ip), Some("FR"));
    assert_eq!(flat.text(FactKind::GeoContinent, ip), Some("EU"));
    assert_eq!(flat.text(FactKind::GeoSystemName, ip), Some("Exemple"));
    assert_eq!(flat.system(ip), Some(64501));
}

#[test]
fn a_fact_of_places_needs_a_database_that_has_it() {
    let mistake = |databases: Option<GeoDatabases>, text: &str| {
        let mut definitions = Definitions::default();
        if let Some(databases) = databases {
            definitions.set_geo_databases(Arc::new(databases));
        }
        let found = definitions.compile(text, FactStage::Request).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        (
            text[found[0].place.clone()].to_owned(),
            found[0].message.clone(),
        )
    };
    for (databases, text, place, part) in [
        (
            None,
            "tls and geo.city exists",
            "geo.city",
            "`geo_databases`",
        ),
        (
            Some(GeoDatabases::default()),
            "geo.asn == 1",
            "geo.asn",
            "`geo_databases`",
        ),
        (
            Some(GeoDatabases::new([systems()])),
            "geo.country == \"DE\"",
            "geo.country",
            "no database",
        ),
        (
            Some(GeoDatabases::new([cities()])),
            "geo.country == \"de\"",
            "\"de\"",
            "capital letters",
        ),
        (
            Some(GeoDatabases::new([cities()])),
            "geo.country in [\"DE\", \"Japan\"]",
            "\"Japan\"",
            "capital letters",
        ),
        (
            Some(GeoDatabases::new([cities()])),
            "geo.continent == \"XX\"",
            "\"XX\"",
            "one of AF",
        ),
        (
            Some(GeoDatabases::new([cities()])),
            "share.geo.city < 1%",
            "share.geo.city",
            "no share",
        ),
    ] {
        let (found, message) = mistake(databases, text);
        assert_eq!(found, place, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn damaged_databases_are_mistakes_or_know_nothing() {
    let whole = geo_database(
        "GeoLite2-Country",
        &[("192.0.2.0/24", json!({"country": {"iso_code": "DE"}}))],
    );
    assert!(GeoDatabase::parse(Vec::new()).is_err());
    assert!(GeoDatabase::parse(whole[..whole.len() / 2].to_vec()).is_err());
    let ip: IpAddr = "192.0.2.1".parse().unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        if let Ok(database) = GeoDatabase::parse(damaged) {
            GeoDatabases::new([Arc::new(database)]).text(FactKind::GeoCountry, ip);
        }
    }
}
