//! The address of the operator and metrics: plans, and mistakes with their places.

use crate::documents::{folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = \"127.0.0.1:8080\"\nroot = \"public\"\n";

#[test]
fn the_address_is_for_this_machine_unless_networks_are_named() {
    let folder = folder();
    let plan = |lines: &str| parse_in(folder.path(), &format!("[global]\n{lines}{SITE}")).unwrap();
    let none = plan("").global;
    assert!(none.admin.is_none() && none.metrics.is_none());
    let global =
        plan("admin_listen = [\"127.0.0.1:9180\", \"127.0.0.1:9180\", \"unix:a.sock\"]\n").global;
    let admin = global.admin.unwrap();
    let this_machine = ["127.0.0.0/8", "::1", "unix:"];
    for (allowed, expected) in admin.allowed.iter().zip(this_machine) {
        assert_eq!(*allowed, expected.parse().unwrap());
    }
    assert_eq!(admin.allowed.len(), 3);
    assert_eq!((admin.addresses.len(), admin.names.len()), (2, 0));
    assert_eq!(global.metrics.unwrap().max_sites, 100);
    let global = plan("admin_listen = \"0.0.0.0:9180\"\nadmin_allow = \"10.0.0.0/8\"\nadmin_names = [\"Apus.internal\"]\nmetrics = false\n").global;
    let admin = global.admin.unwrap();
    assert_eq!(admin.allowed, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(admin.names, ["Apus.internal"]);
    assert!(global.metrics.is_none());
    let listen = "admin_listen = \"127.0.0.1:9180\"\n";
    for (lines, expected) in [
        (String::new(), 0),
        (listen.to_owned(), 1024),
        ("explain_requests = 7\n".to_owned(), 7),
        (format!("{listen}explain_requests = 0\n"), 0),
    ] {
        assert_eq!(plan(&lines).global.explained_requests, expected, "{lines}");
    }
    for (metrics, expected) in [("true", 100), ("{}", 100), ("{ sites = 7 }", 7)] {
        let global = plan(&format!("metrics = {metrics}\n")).global;
        assert_eq!(global.metrics.unwrap().max_sites, expected, "{metrics}");
    }
}

#[test]
fn mistakes_of_the_address_are_told_with_their_places() {
    let folder = folder();
    for (lines, expected) in [
        (
            "explain_requests = 100000",
            ["from 0 to 65536", "apus.toml:2:20"],
        ),
        ("admin_listen = 9180", ["a port alone", "apus.toml:2:16"]),
        (
            "admin_listen = \"9180\"",
            ["\"127.0.0.1:9180\"", "apus.toml:2:16"],
        ),
        (
            "admin_listen = \"0.0.0.0:9180\"",
            ["`admin_allow` names the networks", "apus.toml:2:16"],
        ),
        (
            "admin_listen = [\"127.0.0.1:9180\", \"192.0.2.1:9180\"]",
            ["only clients of this machine", "apus.toml:2:35"],
        ),
        (
            "admin_listen = \"127.0.0.1:8080\"",
            ["a site listens on this address", "apus.toml:2:16"],
        ),
        (
            "admin_listen = \"[::]:8080\"\nadmin_allow = \"::1\"",
            ["a site listens on this address", "apus.toml:2:16"],
        ),
        (
            "admin_allow = \"10.0.0.0/8\"",
            ["`admin_allow` has no effect", "apus.toml:2:15"],
        ),
        (
            "admin_names = \"a.example\"",
            ["`admin_names` has no effect", "apus.toml:2:15"],
        ),
        (
            "admin_listen = \"127.0.0.1:9180\"\nadmin_names = \"*.example\"",
            ["a domain", "apus.toml:3:15"],
        ),
        (
            "metrics = { sites = 0 }",
            ["from 1 to 100000", "apus.toml:2:21"],
        ),
        ("metrics = 5", ["true, false, or a table", "apus.toml:2:11"]),
    ] {
        let found = parse_in(folder.path(), &format!("[global]\n{lines}\n{SITE}"));
        let found = found.map(|_| ()).unwrap_err().to_string();
        for expected in expected {
            assert!(found.contains(expected), "{lines}: {found}");
        }
    }
}

#[test]
fn mistakes_of_the_collector_are_told_with_their_places() {
    let folder = folder();
    for (lines, expected) in [
        ("otlp = {}", ["`endpoint`", "apus.toml:2:8"]),
        (
            "otlp = { endpoint = \"localhost:4317\" }",
            ["http://", "apus.toml:2:21"],
        ),
        (
            "otlp = { endpoint = \"http://a\", protocol = \"http\" }",
            ["http/protobuf", "apus.toml:2:44"],
        ),
        (
            "otlp = { endpoint = \"http://a\", headers = { Content-Type = \"a\" } }",
            ["set by the protocol", "apus.toml:2:45"],
        ),
        (
            "otlp = { endpoint = \"https://a\", metrics = false }",
            ["nothing is pushed", "apus.toml:2:44"],
        ),
        (
            "otlp = { endpoint = \"https://a\", traces = { percent = 101 } }",
            ["from 0 to 100", "apus.toml:2:55"],
        ),
        (
            "otlp = { endpoint = \"https://a\", ca = \"none.pem\" }",
            ["none.pem", "apus.toml:2:39"],
        ),
    ] {
        let text = format!("[global]\n{lines}\n{SITE}");
        let mistakes = parse_in(folder.path(), &text).unwrap_err().to_string();
        for part in expected {
            assert!(mistakes.contains(part), "no {part} in {mistakes}");
        }
    }
    let text = format!("[global]\notlp = {{ endpoint = \"http://a:4318\" }}\n{SITE}");
    let global = parse_in(folder.path(), &text).unwrap().global;
    assert_eq!(global.metrics.unwrap().max_sites, 100);
    let otlp = global.otlp.unwrap();
    assert_eq!((otlp.interval.unwrap().as_secs(), otlp.traces), (60, None));
}
