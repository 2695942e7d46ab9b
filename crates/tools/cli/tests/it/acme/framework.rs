//! An application of the framework whose certificate is ordered.

use std::num::NonZeroUsize;
use std::process::Command;
use std::thread;

use apus::{Acme, App, Server};

use super::{CertificateTest, Pebble, PebbleOptions};
use crate::harness::{Home, get, is_open, is_root, wait_until};

impl CertificateTest {
    fn application(&self, certificate: Acme) -> Result<apus::Running, apus::StartError> {
        Server::new(App::new().get("/", async || "<h1>hello</h1>"))
            .workers(NonZeroUsize::MIN)
            .control_socket(self.home.path("application.sock"))
            .listen(("127.0.0.1", self.http))?
            .listen_acme(("127.0.0.1", self.https), certificate)?
            .start()
    }

    fn certificate(&self) -> Acme {
        Acme::for_names(["Shop.example.com"])
            .agree_to_terms()
            .resolver(([127, 0, 0, 1], self.pebble.dns_port()).into())
            .provider(self.pebble.directory())
            .provider_root(self.home.path("pebble/root.pem"))
            .folder(self.home.path("acme"))
    }
}

#[test]
fn an_application_orders_its_certificate_and_keeps_it_over_a_restart() {
    let test = CertificateTest::new(PebbleOptions::default());
    let running = test.application(test.certificate()).unwrap();
    test.wait_until_served("shop.example.com");
    let socket = test.home.path("application.sock");
    let list = ["cert", "list", "--socket", socket.to_str().unwrap()];
    let (list, _) = test.home.expect(&list, 0);
    assert!(
        list.contains("certificate shop.example.com: expires in "),
        "{list}"
    );
    let serial = test.serial("shop.example.com");
    running.stop();
    let running = test.application(test.certificate()).unwrap();
    assert_eq!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 1);
    running.stop();
    // With another folder and by TLS alone.
    let other = test
        .certificate()
        .by_tls()
        .rsa()
        .folder(test.home.path("other"));
    let running = test.application(other).unwrap();
    test.wait_until_served("shop.example.com");
    wait_until("another certificate", || {
        test.serial("shop.example.com") != serial
    });
    running.stop();
}

#[test]
fn an_application_prefers_a_chain_and_names_are_converted() {
    let test = CertificateTest::new(PebbleOptions {
        alternate_roots: 1,
        ..PebbleOptions::default()
    });
    let root = test.pebble.root_at(1);
    let subject = Command::new("openssl")
        .args(["x509", "-noout", "-subject", "-nameopt", "multiline", "-in"])
        .arg(&root)
        .output()
        .unwrap();
    let subject = String::from_utf8(subject.stdout).unwrap();
    let (_, name) = subject.split_once("commonName").unwrap();
    let certificate = Acme::for_names(["B\u{fc}cher.Example.com."])
        .agree_to_terms()
        .resolver(([127, 0, 0, 1], test.pebble.dns_port()).into())
        .provider(test.pebble.directory())
        .provider_root(test.home.path("pebble/root.pem"))
        .preferred_chain(name.trim_start_matches([' ', '=']).trim())
        .folder(test.home.path("acme"));
    let running = test.application(certificate).unwrap();
    wait_until("the certificate", || {
        test.is_served(&root, "xn--bcher-kva.example.com")
    });
    running.stop();
    let wrong = Acme::for_names(["my_site.example.com"]).agree_to_terms();
    let error = test
        .application(wrong)
        .map(|running| running.stop())
        .unwrap_err();
    assert!(error.to_string().contains("underscore"), "{error}");
}

/// Set for the process of a test that has its own network.
const OWN_NETWORK: &str = "APUS_TEST_OWN_NETWORK";

/// A command that runs its arguments in a separate network, in which all ports are free.
fn own_network() -> Command {
    let namespaces: &[&str] = if is_root() {
        &["--net"]
    } else {
        &["--user", "--map-current-user", "--keep-caps", "--net"]
    };
    let mut command = Command::new("unshare");
    command
        .args(namespaces)
        .args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command
}

/// Whether this system allows that.
fn has_own_network() -> bool {
    let output = own_network().arg("true").output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a test of this file again, in a process with its own network.
fn run_in_own_network(name: &str) {
    let output = own_network()
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("acme::framework::{name}"),
            "--nocapture",
        ])
        .env(OWN_NETWORK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}\n{errors}");
}

/// `App::serve_tls` needs the ports 80 and 443.
#[test]
fn an_application_is_served_at_the_ports_of_the_web() {
    // Without its own network, it takes the ports of this machine.
    if std::env::var_os(OWN_NETWORK).is_none() && has_own_network() {
        return run_in_own_network("an_application_is_served_at_the_ports_of_the_web");
    }
    let home = Home::new();
    let test = CertificateTest {
        pebble: Pebble::start(&home, (80, 443), PebbleOptions::default()),
        home,
        http: 80,
        https: 443,
    };
    let certificate = test.certificate();
    let app = App::new().get("/", async || "<h1>hello</h1>");
    // It ends with the process.
    thread::spawn(move || {
        if let Err(error) = app.serve_tls(certificate) {
            eprintln!("{error}");
        }
    });
    test.wait_until_served("shop.example.com");
    let redirect = get(([127, 0, 0, 1], 80).into(), "/a?b");
    assert!((300..400).contains(&redirect.status), "{redirect:?}");
    assert!(
        redirect.head.contains("location: https://localhost/a?b"),
        "{redirect:?}"
    );
    assert_eq!(test.pebble.orders(), 1);
    assert!(is_open(([0, 0, 0, 0, 0, 0, 0, 1], 443).into()));
}

#[test]
fn mistakes_in_a_certificate_are_found_before_an_application_listens() {
    let test = CertificateTest::new(PebbleOptions::default());
    let refused = |certificate: Acme| test.application(certificate).unwrap_err().to_string();
    let error = refused(Acme::for_names(["example.com"]));
    assert!(error.contains("agreed to the terms"), "{error}");
    let error = refused(Acme::for_names(["*.example.com"]).agree_to_terms());
    assert!(error.contains("needs Acme::dns_hook"), "{error}");
    let error = refused(
        Acme::for_names(["example.com"])
            .email("a@example.com")
            .provider("lets"),
    );
    assert!(error.contains("`lets` is none of letsencrypt"), "{error}");
    let error = refused(Acme::for_names::<String>([]).agree_to_terms());
    assert!(error.contains("needs a name"), "{error}");
}
