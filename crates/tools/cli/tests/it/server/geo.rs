//! Databases of places of a running server, which are read again when they change.

use std::fs;

use apus_testkit::geo_database;
use serde_json::json;

use crate::harness::{Apus, Home, wait_until};
use crate::wire::Wire;

const CONFIG: &str = r#"
[global]
trusted_proxies = "127.0.0.1"
geo_databases = ["country.mmdb", "asn.mmdb"]
[[sites]]
listen = "127.0.0.1:0"
return = { status = 200, text = "welcome" }
limits = [{ name = "systems", key = "geo.asn", rate = "1/h", by_rules = true }]
[[sites.rules]]
when = 'geo.country == "DE"'
return = { status = 200, text = "willkommen" }
[[sites.rules]]
when = "geo.asn in [64496..64511]"
limit = "systems"
"#;

fn ask(apus: &Apus, client: &str) -> (u16, String) {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n"
    ));
    let received = wire.read();
    (received.status, received.text())
}

/// Replaces a file at once, as geoipupdate does.
fn replace(home: &Home, name: &str, bytes: &[u8]) {
    fs::write(home.path("new"), bytes).unwrap();
    fs::rename(home.path("new"), home.path(name)).unwrap();
}

#[test]
fn the_country_and_the_system_of_clients_decide_and_changed_databases_are_read_again() {
    let home = Home::new();
    let country = |network: &str| {
        let record = json!({"country": {"iso_code": "DE"}});
        geo_database("GeoLite2-Country", &[(network, record)])
    };
    let system = json!({"autonomous_system_number": 64500});
    let systems = geo_database("GeoLite2-ASN", &[("203.0.113.0/24", system)]);
    replace(&home, "country.mmdb", &country("192.0.2.0/24"));
    replace(&home, "asn.mmdb", &systems);
    home.write("apus.toml", CONFIG);
    let apus = home.serve(&[]);
    let text = |client: &str| ask(&apus, client).1;
    assert_eq!(text("192.0.2.1"), "willkommen");
    assert_eq!(text("::ffff:192.0.2.1"), "willkommen");
    assert_eq!(text("198.51.100.1"), "welcome");
    // All clients of a system count together.
    assert_eq!(ask(&apus, "203.0.113.1").0, 200);
    assert_eq!(ask(&apus, "203.0.113.2").0, 429);

    replace(&home, "country.mmdb", &country("198.51.100.0/24"));
    wait_until("the database is read again", || {
        text("198.51.100.1") == "willkommen"
    });
    assert_eq!(text("192.0.2.1"), "welcome");
    // What was counted is still there.
    assert_eq!(ask(&apus, "203.0.113.3").0, 429);

    replace(&home, "country.mmdb", b"damaged");
    apus.wait_for_log("no MaxMind DB");
    assert_eq!(text("198.51.100.1"), "willkommen");
    let (_, error) = home.expect(&["check"], 1);
    assert!(
        error.contains("country.mmdb: it is no MaxMind DB"),
        "{error}"
    );
    home.expect(&["reload"], 1);
    assert_eq!(text("198.51.100.1"), "willkommen");
}
