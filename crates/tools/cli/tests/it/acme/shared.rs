//! Servers with their own folders, as on several machines, that share certificates through Redis or PostgreSQL; and servers
//! with one folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use super::faults::empty_resolver;
use super::{CertificateTest, PebbleOptions};
use crate::harness::{Apus, Home, free_port, wait_until};
use crate::storage_server::StorageServer;
use crate::storage_server::StorageServerKind::{self, Postgres, Redis};

const NAME: &str = "shop.example.com";
const STATE: &str = "certificates/shop.example.com/state.json";

/// Two machines with the same site, of which the authority reaches the first one.
struct Machines {
    test: CertificateTest,
    storage: StorageServer,
    second: (u16, u16),
}

impl Machines {
    fn new(kind: StorageServerKind, keys: &str) -> Self {
        let home = Home::new();
        let storage = StorageServer::start(kind);
        let test = CertificateTest::in_home(
            home,
            PebbleOptions {
                hesitates: true,
                ..PebbleOptions::default()
            },
        );
        let machines = Self {
            test,
            storage,
            second: (free_port(), free_port()),
        };
        machines.configure(NAME, keys);
        machines
    }

    fn configure(&self, name: &str, keys: &str) {
        let test = &self.test;
        let storage = format!("acme_storage = \"{}\"\n{keys}", self.storage.address());
        let name = format!("\"{name}\"");
        test.configure(&storage, &name, "");
        let other = format!("control_socket = \"second.sock\"\n{storage}");
        test.configure_as("second.toml", self.second, &other, &name, "");
        let text = test.home.read("second.toml");
        let text = text.replace("acme_folder = \"acme\"", "acme_folder = \"second\"");
        test.home.write("second.toml", text);
    }

    fn serve_second(&self) -> Apus {
        self.test.home.serve(&["second.toml"])
    }

    /// Waits until the second machine has the lock, and has stored an order.
    fn wait_until_second_orders(&self) {
        wait_until("the order of the second machine", || {
            self.storage.file(STATE).contains("/my-order/")
        });
    }

    fn wait_until_both_serve(&self) {
        self.test.wait_until_served(NAME);
        let root = self.test.pebble.root();
        wait_until("the other machine", || {
            let output = self.test.fetch_at(self.second.1, &root, NAME);
            output.status.success()
        });
    }
}

/// The second machine orders, and the first one responds to the authority.
fn one_orders_and_all_respond_and_serve(kind: StorageServerKind, challenge: &str) {
    let machines = Machines::new(kind, &format!("acme_challenge = \"{challenge}\"\n"));
    let second = machines.serve_second();
    machines.wait_until_second_orders();
    let first = machines.test.serve();
    machines.wait_until_both_serve();
    let pebble = &machines.test.pebble;
    assert_eq!((pebble.accounts(), pebble.valid_orders()), (1, 1));
    for apus in [&first, &second] {
        assert!(!apus.log().contains("ERROR"), "{}", apus.log());
    }
    wait_until("the challenge is removed", || {
        machines.storage.challenges() == "0"
    });
    // A machine with a new folder serves at once, and a renewal of one is a renewal of all.
    drop(first);
    fs::remove_dir_all(machines.test.home.path("acme")).unwrap();
    let first = machines.test.serve();
    machines.wait_until_both_serve();
    assert_eq!(pebble.orders(), 1);
    // Connections to the storage that have ended are opened again.
    machines.storage.end_sessions();
    let serial = machines.test.serial(NAME);
    let renew = ["cert", "renew", NAME, "--config", "second.toml"];
    machines.test.home.expect(&renew, 0);
    wait_until("the renewed certificate at the first machine", || {
        machines.test.serial(NAME) != serial
    });
    assert_eq!(pebble.orders(), 2, "{}", first.log());
}

#[test]
fn machines_share_orders_by_http_and_certificates() {
    one_orders_and_all_respond_and_serve(Redis, "http-01");
}

#[test]
fn machines_share_orders_by_tls_and_certificates() {
    one_orders_and_all_respond_and_serve(Redis, "tls-alpn-01");
}

#[test]
fn machines_share_orders_and_certificates_through_postgresql() {
    one_orders_and_all_respond_and_serve(Postgres, "http-01");
}

#[test]
fn another_machine_takes_an_order_over_after_a_crash() {
    for kind in [Redis, Postgres] {
        let machines = Machines::new(kind, "");
        let mut second = machines.serve_second();
        machines.wait_until_second_orders();
        second.signal(Signal::KILL);
        second.wait();
        let _first = machines.test.serve();
        // The minute after which the lock expires is over.
        machines
            .storage
            .expire_lock("certificates/shop.example.com");
        machines.test.wait_until_served(NAME);
        let pebble = &machines.test.pebble;
        assert_eq!(
            (pebble.accounts(), pebble.valid_orders()),
            (1, 1),
            "{kind:?}"
        );
    }
}

#[test]
fn without_the_shared_storage_certificates_are_served_and_none_is_ordered() {
    for kind in [Redis, Postgres] {
        let mut machines = Machines::new(kind, "");
        let apus = machines.test.serve();
        machines.test.wait_until_served(NAME);
        let serial = machines.test.serial(NAME);
        machines.storage.stop();
        let (_, error) = machines.test.home.expect(&["cert", "renew", NAME], 1);
        assert!(error.contains("the storage that machines share"), "{error}");
        let root = machines.test.pebble.root();
        assert!(machines.test.is_served(&root, NAME));
        drop(apus);
        let _apus = machines.test.serve();
        assert!(machines.test.is_served(&root, NAME));
        assert_eq!(machines.test.serial(NAME), serial);
        assert_eq!(machines.test.pebble.orders(), 1);
        // What this machine has is shown, and nothing is changed.
        let (out, error) = machines.test.home.expect(&["cert", "show", NAME], 0);
        assert!(out.contains("ECDSA, 256 bits"), "{out}");
        assert!(error.contains("the storage that machines share"), "{error}");
        let (_, error) = machines.test.home.expect(&["cert", "revoke", NAME], 1);
        assert!(error.contains("the storage that machines share"), "{error}");
    }
}

/// Commands at a machine whose server does not run change what all machines use.
fn commands_change_the_certificates_of_all_machines(kind: StorageServerKind) {
    let machines = Machines::new(kind, "");
    let test = &machines.test;
    let _first = test.serve();
    test.wait_until_served(NAME);
    let at_second = |command: &str, status: i32| {
        let arguments = ["cert", command, NAME, "--config", "second.toml", "--json"];
        test.home.expect(&arguments, status)
    };
    let (json, error) = at_second("show", 0);
    let shown: Value = serde_json::from_str(&json).unwrap();
    let serial = test.serial(NAME).to_lowercase();
    let shown = shown[0]["serial"].as_str().unwrap().to_owned();
    assert!(serial.trim().ends_with(&shown), "{serial} {shown} {error}");
    // The running server replaces a certificate that was revoked elsewhere.
    let (json, _) = at_second("revoke", 0);
    let revoked: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(revoked[0]["revoked"], true, "{json}");
    wait_until("the new certificate", || {
        let now = test.serial(NAME).to_lowercase();
        !now.trim().is_empty() && now != serial
    });
    assert_eq!(test.pebble.orders(), 2);
    wait_until("the new certificate in the storage", || {
        let (json, _) = at_second("show", 0);
        let shown: Value = serde_json::from_str(&json).unwrap();
        shown[0]["revoked"] == false && serial != shown[0]["serial"].as_str().unwrap()
    });
    // It is removed when no site has it any more, from the storage as well.
    let (_, error) = at_second("forget", 1);
    assert!(error.contains("remove its site first"), "{error}");
    machines.configure("blog.example.com", "");
    test.home.expect(&["reload"], 0);
    test.wait_until_served("blog.example.com");
    at_second("forget", 0);
    assert_eq!(machines.storage.file(STATE), "");
    at_second("show", 1);
}

#[test]
fn commands_change_the_certificates_of_all_machines_through_redis() {
    commands_change_the_certificates_of_all_machines(Redis);
}

#[test]
fn commands_change_the_certificates_of_all_machines_through_postgresql() {
    commands_change_the_certificates_of_all_machines(Postgres);
}

/// Two servers with one folder: the second one orders, and the authority reaches the first one.
struct OneFolder {
    test: CertificateTest,
    first: Apus,
    second: Apus,
    second_ports: (u16, u16),
}

impl OneFolder {
    fn serve(challenge: &str) -> Self {
        let test = CertificateTest::new(PebbleOptions::default());
        let second_ports = (free_port(), free_port());
        let key = format!("acme_challenge = \"{challenge}\"\n");
        let name = format!("\"{NAME}\"");
        test.configure(&key, &name, "");
        let other = format!("control_socket = \"second.sock\"\nacme_check_dns = false\n{key}");
        test.configure_as("second.toml", second_ports, &other, &name, "");
        // The first one finds no address of the name, and so does not order.
        let own = format!("acme_resolver = \"127.0.0.1:{}\"", test.pebble.dns_port());
        let none = format!("acme_resolver = \"127.0.0.1:{}\"", empty_resolver());
        let text = test.home.read("apus.toml").replace(&own, &none);
        test.home.write("apus.toml", text);
        let first = test.serve();
        wait_until("the first server waits", || {
            test.list().contains("not ordered yet")
        });
        let second = test.home.serve(&["second.toml"]);
        Self {
            test,
            first,
            second,
            second_ports,
        }
    }

    /// Whether a file with open challenges has this text; there is none before the first challenge.
    fn challenges_are(&self, is: impl Fn(&str) -> bool) -> bool {
        let path = self.test.home.path("acme/challenges/open.json");
        fs::read_to_string(path).is_ok_and(|text| is(&text))
    }
}

fn servers_with_one_folder_respond_to_the_same_challenges(challenge: &str) {
    let servers = OneFolder::serve(challenge);
    let test = &servers.test;
    test.wait_until_served(NAME);
    let root = test.pebble.root();
    wait_until("the second server", || {
        let output = test.fetch_at(servers.second_ports.1, &root, NAME);
        output.status.success()
    });
    let logs = servers.first.log() + &servers.second.log();
    assert!(!logs.contains("ERROR"), "{logs}");
    assert_eq!(test.pebble.orders(), 1, "{logs}");
    wait_until("the challenge is removed", || {
        servers.challenges_are(|text| text == "{}")
    });
    let files =
        ["acme/challenges/open.json", "acme/challenges/lock"].map(|name| test.home.path(name));
    let machines = fs::read_dir(test.home.path("acme/machines")).unwrap();
    let machines: Vec<_> = machines.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(machines.len(), 2);
    for path in files.iter().chain(&machines) {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path:?}");
    }
    drop(servers.second);
    wait_until("the second server has left", || {
        fs::read_dir(test.home.path("acme/machines"))
            .unwrap()
            .count()
            == 1
    });
}

#[test]
fn servers_with_one_folder_respond_to_the_same_challenges_by_http() {
    servers_with_one_folder_respond_to_the_same_challenges("http-01");
}

#[test]
fn servers_with_one_folder_respond_to_the_same_challenges_by_tls() {
    servers_with_one_folder_respond_to_the_same_challenges("tls-alpn-01");
}

/// What was published is removed, also when the authority cannot be told that it may look.
fn a_shared_challenge_is_removed_when_the_authority_cannot_be_told_of_it(challenge: &str) {
    let servers = OneFolder::serve(challenge);
    // The authority is told three seconds later. On a machine that is too busy for that it is told, and the challenge is removed, too.
    wait_until("the challenge is shared", || {
        servers.challenges_are(|text| text.len() > 2)
    });
    servers.test.pebble.pause();
    wait_until("the challenge is removed", || {
        servers.challenges_are(|text| text == "{}")
    });
}

#[test]
fn a_shared_challenge_is_removed_when_the_authority_cannot_be_told_of_it_by_http() {
    a_shared_challenge_is_removed_when_the_authority_cannot_be_told_of_it("http-01");
}

#[test]
fn a_shared_challenge_is_removed_when_the_authority_cannot_be_told_of_it_by_tls() {
    a_shared_challenge_is_removed_when_the_authority_cannot_be_told_of_it("tls-alpn-01");
}
