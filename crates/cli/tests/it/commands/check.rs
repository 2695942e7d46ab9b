//! `apus check`.

use crate::harness::Home;

#[test]
fn a_file_without_mistakes_passes() {
    let home = Home::new();
    home.write("apus.toml", "[[sites]]\nroot = \"site\"\nlisten = [0]\n");
    let (out, _) = home.expect(&["check"], 0);
    assert_eq!(out, "apus.toml: good\n");
}

#[test]
fn every_mistake_is_reported_with_its_position() {
    let home = Home::new();
    home.write(
        "bad.toml",
        "[global]\nworker_thread = 2\n[[sites]]\nroot = \"site\"\nlisten = [\"nowhere\"]\n",
    );
    let (_, errors) = home.expect(&["check", "bad.toml"], 1);
    for text in ["bad.toml:2:1", "worker_threads", "bad.toml:5:"] {
        assert!(errors.contains(text), "{text} is missing:\n{errors}");
    }
    let (json, _) = home.expect(&["check", "bad.toml", "--json"], 1);
    assert!(json.contains("worker_thread"), "{json}");
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
}

#[test]
fn check_and_explain_create_no_file() {
    let home = Home::new();
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = [0]\naccess_log = \"access.log\"\n",
    );
    home.expect(&["check"], 0);
    home.expect(&["explain", "GET", "http://localhost/"], 0);
    assert!(!home.path("access.log").exists());
}

#[test]
fn the_certificates_that_would_be_ordered_are_shown() {
    let home = Home::new();
    home.write(
        "apus.toml",
        "[global]\nacme_email = \"a@example.com\"\nacme_provider = [\"zerossl\", \"letsencrypt\"]\n\
         [[sites]]\nroot = \"site\"\nlisten_tls = 0\nserver_name = [\"example.com\", \"www.example.com\"]\n",
    );
    let (out, _) = home.expect(&["check"], 0);
    assert_eq!(
        out,
        "a certificate for example.com www.example.com is ordered from zerossl or letsencrypt, by http-01 or tls-alpn-01\n\
         apus.toml: good\n"
    );
}
