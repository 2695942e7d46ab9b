//! Private keys, which are in no log, status, message or core dump, and which others cannot read.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use super::pebble::EXTERNAL_KEY;
use super::{CertificateTest, PebbleOptions};
use crate::harness::wait_until;

/// The secret texts in the files of a folder: lines of private keys, keys of accounts, and secrets of tickets.
fn secrets_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            secrets_in(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("PRIVATE KEY-----").skip(1).step_by(2) {
            found.extend(part.lines().map(str::to_owned));
        }
        for name in ["key_pkcs8", "secret"] {
            let mark = format!("\"{name}\":");
            for part in text.split(&mark).skip(1) {
                found.extend(part.split('"').nth(1).map(str::to_owned));
            }
        }
    }
    found.retain(|text| text.len() >= 24 && !text.starts_with("-----"));
}

#[test]
fn private_keys_are_in_no_log_status_or_message() {
    let test = CertificateTest::new(PebbleOptions {
        external_account: true,
        ..PebbleOptions::default()
    });
    let global = format!(
        "log_level = \"trace\"\ntls_tickets = \"stored\"\nacme_eab_id = \"kid-1\"\nacme_eab_key = \"{EXTERNAL_KEY}\"\n\
         acme_dns_hook = \"hook\"\nacme_challenge = [\"http-01\", \"dns-01\"]\n"
    );
    let name = "shop.example.com";
    test.pebble.write_hook(&test.home.path("hook"));
    test.configure(&global, &format!("\"{name}\""), "");
    let apus = test.serve();
    test.wait_until_served(name);
    let mut secrets = BTreeSet::from([EXTERNAL_KEY.to_owned()]);
    secrets_in(&test.home.path("acme"), &mut secrets);
    // Of the account, of the certificate and of tickets.
    assert!(secrets.len() >= 5, "{}", secrets.len());
    let mut outputs = Vec::new();
    let mut run = |arguments: &[&str]| {
        let output = test.home.run(arguments);
        let text = [output.stdout, output.stderr].concat();
        outputs.push(String::from_utf8(text).unwrap());
    };
    run(&["status"]);
    run(&["status", "--json"]);
    run(&["status", "--metrics"]);
    for command in ["list", "show", "renew", "revoke"] {
        match command {
            "list" => run(&["cert", "list", "--json"]),
            "show" => run(&["cert", "show", "--json"]),
            _ => run(&["cert", command, name]),
        }
    }
    secrets_in(&test.home.path("acme"), &mut secrets);
    run(&["check"]);
    run(&["explain", "GET", &format!("https://{name}/")]);
    // A damaged file is named, and not shown: a key that is cut off, and one of another certificate.
    let path = test
        .home
        .path("acme/certificates/shop.example.com/certificate.pem");
    let pem = fs::read_to_string(&path).unwrap();
    let at = pem.find("-----BEGIN PRIVATE KEY").unwrap();
    fs::create_dir_all(test.home.path("letsencrypt/live/other")).unwrap();
    test.home.write(
        "letsencrypt/live/other/fullchain.pem",
        test.home.read("pebble/cert.pem"),
    );
    test.home
        .write("letsencrypt/live/other/privkey.pem", &pem[at..]);
    run(&["cert", "import", "letsencrypt"]);
    fs::write(&path, &pem[..at + 80]).unwrap();
    run(&["cert", "show"]);
    run(&["cert", "list"]);
    run(&["check"]);
    test.home.write("wrong.pem", &pem[at..at + 80]);
    let site = "[sites.tls]\ncert = \"pebble/cert.pem\"\nkey = \"wrong.pem\"\n";
    test.configure(&global, &format!("\"{name}\""), site);
    run(&["check"]);
    run(&["reload"]);
    outputs.push(apus.wait_for_log("TRACE"));
    for secret in &secrets {
        let part = &secret[..24];
        let found = outputs.iter().find(|text| text.contains(part));
        assert_eq!(found, None, "{part}");
    }
}

#[test]
fn files_that_others_can_read_are_told_at_the_start() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    drop(apus);
    let apus = test.serve();
    assert!(
        !apus.log().contains("can read private keys"),
        "{}",
        apus.log()
    );
    drop(apus);
    let path = test
        .home
        .path("acme/certificates/shop.example.com/certificate.pem");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let apus = test.serve();
    wait_until("the warning", || {
        apus.log().contains("can read private keys")
    });
    let log = apus.log();
    let line = log
        .lines()
        .find(|line| line.contains("can read private keys"));
    assert!(line.unwrap().contains("certificate.pem"), "{log}");
}

#[test]
fn a_server_that_crashes_leaves_no_core_dump() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let unlimited = ["prlimit", "--core=unlimited"];
    let mut apus = test.home.serve_through(&unlimited, &["apus.toml"]);
    // The server, and the helper that stays root.
    let children = format!("/proc/{0}/task/{0}/children", apus.pid());
    let children = fs::read_to_string(children).unwrap();
    let pids = children.split_whitespace().map(str::to_owned);
    for pid in pids.chain([apus.pid().to_string()]) {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[4..6], ["0", "unlimited"], "{limits}");
    }
    apus.signal(Signal::ABORT);
    assert!(!apus.wait().core_dumped());
}
