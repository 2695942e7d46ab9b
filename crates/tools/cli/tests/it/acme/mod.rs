//! Certificates by ACME, from a real certificate authority (pebble) over real sockets.

mod commands;
mod dns;
mod faults;
mod framework;
mod kinds;
mod on_demand;
mod pebble;
mod secrets;
mod shared;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use rustix::process::Signal;

use self::pebble::{EXTERNAL_KEY, Pebble, PebbleOptions};
use crate::harness::{Apus, Ends, Home, free_port, get, wait_until};

/// A server whose site gets a certificate, and the authority that issues it.
struct CertificateTest {
    home: Home,
    pebble: Pebble,
    http: u16,
    https: u16,
}

impl CertificateTest {
    fn new(options: PebbleOptions) -> Self {
        Self::in_home(Home::new(), options)
    }

    fn in_home(home: Home, options: PebbleOptions) -> Self {
        let (http, https) = (free_port(), free_port());
        Self {
            pebble: Pebble::start(&home, (http, https), options),
            home,
            http,
            https,
        }
    }

    /// Writes the configuration of one site, with further keys of `[global]` and of the site.
    fn configure(&self, global: &str, names: &str, site: &str) {
        self.configure_as("apus.toml", (self.http, self.https), global, names, site);
    }

    fn configure_as(
        &self,
        file: &str,
        (http, https): (u16, u16),
        global: &str,
        names: &str,
        site: &str,
    ) {
        let keys = self.pebble.keys();
        let text = format!(
            "[global]\n{keys}{global}\n[[sites]]\nserver_name = {names}\nlisten = \"127.0.0.1:{http}\"\n\
             listen_tls = \"127.0.0.1:{https}\"\nroot = \"site\"\nforce_https = true\n{site}\n"
        );
        self.home.write(file, text);
    }

    fn serve(&self) -> Apus {
        self.home.serve(&["apus.toml"])
    }

    /// A request over HTTPS, whose certificate has to be right.
    fn fetch(&self, root: &Path, name: &str) -> Output {
        self.fetch_at(self.https, root, name)
    }

    fn fetch_at(&self, port: u16, root: &Path, name: &str) -> Output {
        let resolve = format!("{name}:{port}:127.0.0.1");
        Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--resolve", &resolve])
            .arg("--cacert")
            .arg(root)
            .arg(format!("https://{name}:{port}/"))
            .output()
            .unwrap()
    }

    fn is_served(&self, root: &Path, name: &str) -> bool {
        let output = self.fetch(root, name);
        output.status.success() && output.stdout == b"<h1>hello</h1>"
    }

    fn wait_until_served(&self, name: &str) {
        let root = self.pebble.root();
        wait_until("the certificate", || self.is_served(&root, name));
    }

    /// The serial number of the certificate that clients get.
    fn serial(&self, name: &str) -> String {
        let resolve = format!("127.0.0.1:{}", self.https);
        let script = format!(
            "openssl s_client -connect {resolve} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -serial"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn list(&self) -> String {
        self.home.expect(&["cert", "list"], 0).0
    }
}

#[test]
fn a_site_without_a_certificate_gets_one_and_keeps_it_over_a_restart() {
    let test = CertificateTest::new(PebbleOptions {
        accepts_nonces: true,
        ..PebbleOptions::default()
    });
    // Without this, pebble takes a profile at random.
    let relay = test.pebble.relay();
    test.configure(
        "acme_profile = \"default\"",
        "[\"shop.example.com\", \"www.example.com\"]",
        &format!("[sites.tls]\nacme_provider = \"{}\"\n", relay.directory),
    );
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    test.wait_until_served("www.example.com");
    // The order uses one for all its requests. Another may have come already, which asks when to renew.
    assert!((1..=2).contains(&relay.connections()));
    let list = test.list();
    assert!(
        list.starts_with("certificate shop.example.com www.example.com: expires in "),
        "{list}"
    );
    let renewal = list.split("renewed at 20").nth(1).unwrap();
    assert_eq!(renewal.find('Z'), Some("26-12-31T08:12:51".len()), "{list}");
    // Other requests of port 80 are still redirected.
    let redirect = get(
        ([127, 0, 0, 1], test.http).into(),
        "/.well-known/acme-challenge/a",
    );
    assert_eq!(redirect.status, 301, "{redirect:?}");
    let metrics = test.home.expect(&["status", "--metrics"], 0).0;
    let metric =
        "apus_certificate_expiry_timestamp_seconds{names=\"shop.example.com www.example.com\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(metric));
    let expiry: u64 = line.expect(&metrics).parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    assert!(expiry > now.unwrap().as_secs(), "{expiry}");
    // Private keys are for their user alone, and in no message.
    let mut files = vec![test.home.path("acme")];
    let mut keys = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path:?}: {mode:o}");
        keys += usize::from(
            std::fs::read_to_string(path)
                .unwrap()
                .contains("PRIVATE KEY"),
        );
    }
    assert_eq!(keys, 1);
    assert!(!apus.log().contains("PRIVATE"), "{}", apus.log());
    let serial = test.serial("shop.example.com");
    drop(apus);
    let _apus = test.serve();
    assert_eq!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 1);
}

#[test]
fn until_there_is_a_certificate_clients_get_an_alert_and_other_sites_are_served() {
    let test = CertificateTest::new(PebbleOptions {
        hesitates: true,
        ..PebbleOptions::default()
    });
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    let output = test.fetch(&test.pebble.root(), "shop.example.com");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("alert internal error"), "{error}");
    assert_eq!(apus.get("/").status, 301);
    assert!(test.list().contains("none yet"), "{}", test.list());
    test.wait_until_served("shop.example.com");
}

#[test]
fn a_name_is_verified_in_a_handshake_beside_http3() {
    let test = CertificateTest::new(PebbleOptions::default());
    let keys =
        "acme_challenge = \"tls-alpn-01\"\nacme_profile = \"shortlived\"\nacme_key_type = \"p384\"";
    test.configure(keys, "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    // The certificate of a challenge is for that alone.
    assert!(!apus.log().contains("ERROR"), "{}", apus.log());
    let list = test.list();
    assert!(
        list.contains("expires in 5 d") || list.contains("expires in 6 d"),
        "{list}"
    );
}

#[test]
fn a_name_is_verified_in_a_handshake_of_a_site_that_requires_client_certificates() {
    let test = CertificateTest::new(PebbleOptions::default());
    let site = "[sites.tls]\nacme_challenge = \"tls-alpn-01\"\nclient_auth = \"required\"\nclient_ca = \"pebble/root.pem\"\n";
    test.configure("", "\"shop.example.com\"", site);
    let apus = test.serve();
    wait_until("the certificate", || {
        test.serial("shop.example.com").contains("serial=")
    });
    let output = test.fetch(&test.pebble.root(), "shop.example.com");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("certificate required"), "{error}");
    assert!(!apus.log().contains("ERROR"), "{}", apus.log());
}

#[test]
fn a_wildcard_is_verified_by_dns() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure(
        "acme_dns_hook = \"hook\"",
        "[\"example.com\", \"*.example.com\"]",
        "",
    );
    test.pebble.write_hook(&test.home.path("hook"));
    test.home.write("hook.log", "");
    std::fs::set_permissions(
        test.home.path("hook.log"),
        std::fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    let _apus = test.serve();
    test.wait_until_served("a.example.com");
    test.wait_until_served("example.com");
    // A nonce that the authority refuses repeats an attempt, and so a call of the hook.
    let calls = |action: &str| -> Vec<String> {
        let log = test.home.read("hook.log");
        let found = log.lines().filter_map(|line| line.strip_prefix(action));
        found.map(str::to_owned).collect()
    };
    let presented = calls("present ");
    let records: BTreeSet<_> = presented.iter().collect();
    assert_eq!(records.len(), 2, "{presented:?}");
    for record in records {
        assert!(
            record.starts_with("_acme-challenge.example.com "),
            "{record}"
        );
    }
    wait_until("the records are removed", || {
        let removed = calls("cleanup ");
        removed.len() == presented.len() && presented.iter().all(|record| removed.contains(record))
    });
}

/// What was published is removed, also when the authority cannot be told that it may look.
#[test]
fn a_record_is_removed_when_the_authority_cannot_be_told_of_it() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("acme_dns_hook = \"hook\"", "\"*.example.com\"", "");
    // The program waits until the authority is gone: from then on, each attempt fails before it calls the program.
    let script = format!(
        "#!/bin/sh\ncd {}\necho \"$@\" >> hook.log\nwhile [ ! -e is-gone ]; do sleep 0.05; done\n",
        test.home.path("").display()
    );
    test.home.write("hook", script);
    test.home.write("hook.log", "");
    for (file, mode) in [("hook", 0o755), ("hook.log", 0o666)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(test.home.path(file), mode).unwrap();
    }
    let _apus = test.serve();
    wait_until("the record is published", || {
        test.home.read("hook.log").starts_with("present ")
    });
    test.pebble.pause();
    test.home.write("is-gone", "");
    wait_until("the record is removed", || {
        let log = test.home.read("hook.log");
        let calls: Vec<_> = log.lines().collect();
        matches!(calls[..], [present, cleanup]
            if present.strip_prefix("present") == cleanup.strip_prefix("cleanup"))
    });
}

#[test]
fn a_certificate_is_renewed_without_a_failed_handshake() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    let (root, before) = (test.pebble.root(), test.serial("shop.example.com"));
    let (has_ended, handshakes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        for _ in 0..3 {
            scope.spawn(|| {
                while !has_ended.load(Ordering::SeqCst) {
                    let output = test.fetch(&root, "shop.example.com");
                    assert!(output.status.success(), "{output:?}");
                    handshakes.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        test.home
            .expect(&["cert", "renew", "shop.example.com", "--no-wait"], 0);
        wait_until("the new certificate", || {
            test.serial("shop.example.com") != before
        });
        let so_far = handshakes.load(Ordering::SeqCst);
        wait_until("handshakes with it", || {
            handshakes.load(Ordering::SeqCst) > so_far + 3
        });
    });
    assert_eq!(test.pebble.orders(), 2);
    let (_, error) = test.home.expect(&["cert", "renew", "other.example.com"], 1);
    assert!(error.contains("`other.example.com`"), "{error}");
}

/// An authority suggests a time that has passed before it revokes certificates.
#[test]
fn a_certificate_is_replaced_when_its_authority_suggests_it() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    let serial = test.serial("shop.example.com");
    let (chain, _) = test.pair("shop.example.com");
    test.pebble
        .suggest_renewal(&chain, "2026-01-02T00:00:00Z", "2026-01-02T23:00:00Z");
    drop(apus);
    // The authority is asked at the start, at the latest.
    let apus = test.serve();
    wait_until("the suggestion", || {
        test.list().contains("renewed at 2026-01-02")
    });
    // A certificate that was issued within the hour is not replaced.
    assert_eq!(test.pebble.orders(), 1);
    drop(apus);
    let state = "acme/certificates/shop.example.com/state.json";
    let mut json: serde_json::Value = serde_json::from_str(&test.home.read(state)).unwrap();
    assert!(json["next_attempt"].is_string(), "{json}");
    json["next_attempt"] = serde_json::Value::Null;
    test.home.write(state, json.to_string());
    let _apus = test.serve();
    wait_until("the new certificate", || {
        test.serial("shop.example.com") != serial
    });
    test.wait_until_served("shop.example.com");
    assert_eq!(test.pebble.orders(), 2);
}

/// A renewal uses the configuration that is in force, not what its file has become since.
#[test]
fn a_renewal_does_not_apply_a_changed_file() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    let before = test.serial("shop.example.com");
    test.home.write("apus.toml", "[[sites]]\nnonsense = true\n");
    let socket = ["cert", "renew", "shop.example.com", "--config", "apus.toml"];
    test.home.expect(&socket, 0);
    wait_until("the new certificate", || {
        test.serial("shop.example.com") != before
    });
}

#[test]
fn an_order_continues_after_the_server_was_killed() {
    let test = CertificateTest::new(PebbleOptions {
        hesitates: true,
        ..PebbleOptions::default()
    });
    test.configure("", "\"shop.example.com\"", "");
    let state = || {
        let path = test
            .home
            .path("acme/certificates/shop.example.com/state.json");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let mut apus = test.serve();
    wait_until("the order", || state().contains("/my-order/"));
    apus.signal(Signal::KILL);
    apus.wait();
    let before = test.pebble.steps();
    let mut apus = test.serve();
    // An order that became invalid meanwhile has been replaced by then, and the new one is stored.
    wait_until("the new server goes on with the order", || {
        test.pebble.steps() > before
    });
    apus.signal(Signal::KILL);
    apus.wait();
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    assert_eq!(test.pebble.valid_orders(), 1, "{}", test.pebble.log());
}

#[test]
fn two_servers_with_one_folder_order_one_certificate() {
    let test = CertificateTest::new(PebbleOptions {
        hesitates: true,
        ..PebbleOptions::default()
    });
    test.configure("", "\"shop.example.com\"", "");
    let others = (free_port(), free_port());
    test.configure_as("other.toml", others, "", "\"shop.example.com\"", "");
    let _apus = test.serve();
    let _other = test.home.serve(&["other.toml"]);
    test.wait_until_served("shop.example.com");
    let root = test.pebble.root();
    wait_until("the other server uses it, too", || {
        test.fetch_at(others.1, &root, "shop.example.com")
            .status
            .success()
    });
    assert_eq!(test.pebble.orders(), 1);
}

#[test]
fn an_authority_that_cannot_be_reached_is_told_and_asked_again() {
    let test = CertificateTest::new(PebbleOptions::default());
    let dead = format!("acme_provider = \"https://localhost:{}/dir\"", free_port());
    test.configure("", "\"shop.example.com\"", &format!("[sites.tls]\n{dead}"));
    let apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let list = test.list();
    assert!(list.contains("refused"), "{list}");
    assert_eq!(apus.get("/").status, 301);
    // With a second authority, the certificate comes from there.
    let keys = test.pebble.keys();
    let own = keys
        .lines()
        .find(|line| line.starts_with("acme_provider ="))
        .unwrap();
    let own = own.trim_start_matches("acme_provider = ");
    let both = format!(
        "[sites.tls]\nacme_provider = [{}, {own}]",
        dead.trim_start_matches("acme_provider = ")
    );
    test.configure("", "\"shop.example.com\"", &both);
    // Other settings are tried at once.
    test.home.expect(&["reload"], 0);
    test.wait_until_served("shop.example.com");
}

#[test]
fn a_name_that_points_elsewhere_is_told_in_the_words_of_the_authority() {
    let test = CertificateTest::new(PebbleOptions::default());
    let elsewhere = (free_port(), free_port());
    // The authority looks at other ports than the server has.
    test.configure_as("apus.toml", elsewhere, "", "\"shop.example.com\"", "");
    let _apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let list = test.list();
    assert!(
        list.contains("shop.example.com: ") && list.contains("connection refused"),
        "{list}"
    );
}

#[test]
fn an_external_account_is_bound() {
    let test = CertificateTest::new(PebbleOptions {
        external_account: true,
        ..PebbleOptions::default()
    });
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    assert!(
        test.list().contains("externalAccountRequired"),
        "{}",
        test.list()
    );
    drop(apus);
    let keys = format!("acme_eab_id = \"kid-1\"\nacme_eab_key = \"{EXTERNAL_KEY}\"");
    test.configure(&keys, "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    assert!(!apus.log().contains(EXTERNAL_KEY));
}
