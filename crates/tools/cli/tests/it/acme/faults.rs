//! Faults of DNS, clocks, disks, authorities and this process: nothing is asked for in vain or twice, and everything goes on.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;

use rustix::process::Signal;

use super::pebble::{BLOCKED, Pebble};
use super::{CertificateTest, PebbleOptions};
use crate::disk::PreparedDisk;
use crate::harness::{Home, free_port, wait_until};

/// A DNS server that knows every name, and no address of any.
pub(super) fn empty_resolver() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut message) {
            // A response (RFC 1035 section 4.1.1) with recursion.
            message[2] |= 0x80;
            message[3] = 0x80;
            let _ = socket.send_to(&message[..length], client);
        }
    });
    port
}

#[test]
fn no_certificate_is_ordered_for_a_name_that_does_not_point_here() {
    let test = CertificateTest::new(PebbleOptions::default());
    let configure = |site: &str| {
        test.configure("", "\"shop.example.com\"", site);
        let own = format!("acme_resolver = \"127.0.0.1:{}\"", test.pebble.dns_port());
        let other = format!("acme_resolver = \"127.0.0.1:{}\"", empty_resolver());
        let text = test.home.read("apus.toml").replace(&own, &other);
        test.home.write("apus.toml", text);
    };
    configure("");
    let apus = test.serve();
    wait_until("the reason", || test.list().contains("not ordered yet"));
    let list = test.list();
    assert!(
        list.contains("shop.example.com has no address in DNS"),
        "{list}"
    );
    apus.wait_for_log("a certificate is not ordered yet");
    assert_eq!(test.pebble.orders(), 0);
    // The check can be turned off, and other settings are tried at once.
    configure("[sites.tls]\nacme_check_dns = false\n");
    test.home.expect(&["reload"], 0);
    test.wait_until_served("shop.example.com");
}

#[test]
fn no_certificate_is_ordered_while_the_clock_is_wrong() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let in_three_days = [
        "env",
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1",
        "FAKETIME=+3d",
    ];
    let apus = test.home.serve_through(&in_three_days, &["apus.toml"]);
    wait_until("the reason", || test.list().contains("not ordered yet"));
    let list = test.list();
    assert!(
        list.contains("the clock of this machine is wrong: it is 7"),
        "{list}"
    );
    assert_eq!((test.pebble.accounts(), test.pebble.orders()), (0, 0));
    drop(apus);
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
}

#[test]
fn no_certificate_is_ordered_that_a_full_disk_could_not_store() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("control_socket = \"apus.sock\"", "\"shop.example.com\"", "");
    let text = test.home.read("apus.toml");
    let text = text.replace("acme_folder = \"acme\"", "acme_folder = \"disk/acme\"");
    test.home.write("apus.toml", text);
    let disk = PreparedDisk::new(&test.home, "2m", true);
    let apus = test.home.serve_through(&disk.program(), &["apus.toml"]);
    let disk = disk.of(&test.home, apus.pid());
    let socket = test.home.path("apus.sock");
    let socket = socket.to_str().unwrap();
    let list = || test.home.expect(&["cert", "list", "--socket", socket], 0).0;
    let is_full = |list: &str| list.contains("No space left") || list.contains("File too large");
    wait_until("the reason", || is_full(&list()));
    assert_eq!((test.pebble.accounts(), test.pebble.orders()), (0, 0));
    assert_eq!(apus.get("/").status, 301);
    disk.empty();
    let renew = ["cert", "renew", "shop.example.com", "--config", "apus.toml"];
    test.home.expect(&renew, 0);
    test.wait_until_served("shop.example.com");
    let serial = test.serial("shop.example.com");
    // The next one is not ordered either, and the old one stays in use.
    disk.fill();
    test.home.expect(&renew, 1);
    assert!(is_full(&list()), "{}", list());
    let root = test.pebble.root();
    assert!(test.is_served(&root, "shop.example.com"));
    assert_eq!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 1);
    disk.empty();
    test.home.expect(&renew, 0);
    wait_until("the new certificate", || {
        test.serial("shop.example.com") != serial
    });
}

#[test]
fn while_an_authority_is_down_its_certificate_is_served_and_then_it_is_renewed() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    let (root, serial) = (test.pebble.root(), test.serial("shop.example.com"));
    test.pebble.pause();
    let renew = ["cert", "renew", "shop.example.com"];
    let (_, error) = test.home.expect(&renew, 1);
    assert!(error.contains("refused"), "{error}");
    assert!(test.list().contains("1 attempts failed"), "{}", test.list());
    assert!(test.is_served(&root, "shop.example.com"));
    assert_eq!(test.serial("shop.example.com"), serial);
    // It does not know the account any more.
    test.pebble.resume();
    test.home.expect(&renew, 0);
    test.wait_until_served("shop.example.com");
    assert_ne!(test.serial("shop.example.com"), serial);
    assert_eq!((test.pebble.accounts(), test.pebble.orders()), (1, 1));
}

#[test]
fn an_authority_that_refuses_a_name_is_told_in_its_words() {
    let test = CertificateTest::new(PebbleOptions {
        blocks: true,
        ..PebbleOptions::default()
    });
    test.configure("", &format!("\"{BLOCKED}\""), "");
    let apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let list = test.list();
    assert!(list.contains("(rejectedIdentifier)"), "{list}");
    assert_eq!(apus.get("/").status, 301);
}

#[test]
fn an_authority_that_limits_rates_is_left_alone_for_as_long_as_it_says() {
    let test = CertificateTest::new(PebbleOptions::default());
    let port = free_port();
    let url = format!("https://localhost:{port}");
    let directory = [
        "newNonce",
        "newAccount",
        "newOrder",
        "revokeCert",
        "keyChange",
    ]
    .map(|name| format!("\"{name}\":\"{url}/{name}\""))
    .join(",");
    // Another server takes the place of the authority.
    let text = format!(
        "[global]\ncontrol_socket = \"authority.sock\"\n[[sites]]\nserver_name = \"localhost\"\n\
         listen_tls = \"127.0.0.1:{port}\"\n\
         tls = {{ cert = \"pebble/cert.pem\", key = \"pebble/key.pem\" }}\n\
         headers = {{ set = {{ Replay-Nonce = \"bm9uY2U\", Retry-After = \"7200\" }} }}\n\
         [[sites.locations]]\npath = \"/dir\"\n\
         return = {{ status = 200, content_type = \"application/json\", text = '{{{directory}}}' }}\n\
         [[sites.locations]]\npath = \"/newNonce\"\nreturn = {{ status = 200, text = \"\" }}\n\
         [[sites.locations]]\npath = \"/newAccount\"\n\
         return = {{ status = 429, content_type = \"application/problem+json\", text = \
         '{{\"type\": \"urn:ietf:params:acme:error:rateLimited\", \"detail\": \"too many accounts\", \"status\": 429}}' }}\n"
    );
    test.home.write("authority.toml", text);
    let authority = test.home.serve(&["authority.toml"]);
    test.configure(
        "",
        "\"shop.example.com\"",
        &format!("[sites.tls]\nacme_provider = \"{url}/dir\"\n"),
    );
    let _apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let list = test.list();
    assert!(list.contains("too many accounts (rateLimited)"), "{list}");
    let next = list.split("the next one is at ").nth(1).unwrap();
    let output = Command::new("date")
        .args(["--utc", "+%Y-%m-%dT%H:%M:%S", "--date", "+7000 seconds"])
        .output()
        .unwrap();
    let least = String::from_utf8(output.stdout).unwrap();
    assert!(next > least.trim(), "{next} {least}");
    drop(authority);
}

#[test]
fn after_three_failures_orders_are_tried_at_a_staging_directory_first() {
    let test = CertificateTest::new(PebbleOptions::default());
    let staging = Pebble::start_in(
        &test.home,
        "staging",
        (test.http, test.https),
        PebbleOptions::default(),
    );
    let roots = test.home.read("pebble/root.pem") + &test.home.read("staging/root.pem");
    test.home.write("roots.pem", roots);
    let key = format!("acme_staging_provider = \"{}\"\n", staging.directory());
    let configure = |ports: (u16, u16)| {
        test.configure_as("apus.toml", ports, &key, "\"shop.example.com\"", "");
        let text = test.home.read("apus.toml");
        let text = text.replace("\"pebble/root.pem\"", "\"roots.pem\"");
        test.home.write("apus.toml", text);
    };
    // The authorities look at other ports than the server has.
    configure((free_port(), free_port()));
    let _apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let renew = ["cert", "renew", "shop.example.com"];
    for _ in 0..2 {
        test.home.expect(&renew, 1);
    }
    assert_eq!((staging.orders(), test.pebble.orders()), (0, 3));
    test.home.expect(&renew, 1);
    assert_eq!((staging.orders(), test.pebble.orders()), (1, 3));
    configure((test.http, test.https));
    test.home.expect(&["reload"], 0);
    test.home.expect(&renew, 0);
    // What clients get is not the certificate of the trial.
    test.wait_until_served("shop.example.com");
    assert_eq!((staging.orders(), test.pebble.orders()), (2, 4));
    assert_eq!(staging.valid_orders(), 1);
}

#[test]
fn an_order_that_cannot_be_looked_at_for_a_while_is_not_replaced() {
    let test = CertificateTest::new(PebbleOptions::default());
    // Another server is between this one and the authority.
    let port = free_port();
    let between = |location: &str| {
        let authority = test.pebble.directory().trim_end_matches("/dir");
        let text = format!(
            "[global]\ncontrol_socket = \"between.sock\"\n\
             [[sites]]\nserver_name = \"localhost\"\nlisten_tls = \"127.0.0.1:{port}\"\n\
             tls = {{ cert = \"pebble/cert.pem\", key = \"pebble/key.pem\" }}\n\
             [[sites.upstreams]]\nname = \"authority\"\nnodes = [\"{authority}\"]\n\
             tls = {{ ca = \"pebble/root.pem\" }}\n\
             [[sites.locations]]\npath = \"/\"\nupstream = \"authority\"\n{location}"
        );
        test.home.write("between.toml", text);
        test.home.serve(&["between.toml"])
    };
    let refuses = |path: &str| {
        between(&format!(
            "[[sites.locations]]\npath = \"{path}\"\nreturn = {{ status = 503, text = \"\" }}\n"
        ))
    };
    let provider = format!("[sites.tls]\nacme_provider = \"https://localhost:{port}/dir\"\n");
    test.configure("", "\"shop.example.com\"", &provider);
    let authority = refuses("/authZ/");
    let _apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    assert_eq!(test.pebble.orders(), 1);
    drop(authority);
    let renew = ["cert", "renew", "shop.example.com"];
    let authority = refuses("/my-order/");
    test.home.expect(&renew, 1);
    assert_eq!(test.pebble.orders(), 1);
    drop(authority);
    let authority = between("");
    test.home.expect(&renew, 0);
    test.wait_until_served("shop.example.com");
    assert_eq!(test.pebble.orders(), 1);
    // The next one is given up after three failures.
    drop(authority);
    let authority = refuses("/my-order/");
    for orders in [2, 2, 2, 3] {
        test.home.expect(&renew, 1);
        assert_eq!(test.pebble.orders(), orders, "{}", test.list());
    }
    drop(authority);
    let _authority = between("");
    test.home.expect(&renew, 0);
    assert_eq!(test.pebble.orders(), 3);
}

/// A certificate with the key identifier of the authority and a serial number that begins with a zero byte in DER, for which the
/// authority finds no order.
fn with_serial_that_begins_with_zero(chain: &str, key: &str, home: &Home) -> String {
    home.write("chain.pem", chain);
    home.write("key.pem", key);
    let script = r#"
        identifier=$(openssl x509 -in chain.pem -noout -ext authorityKeyIdentifier | tail -n 1 | tr -d ' :')
        length=$(printf '%02x' $((${#identifier} / 2)))
        outer=$(printf '%02x' $((${#identifier} / 2 + 2)))
        openssl req -x509 -key key.pem -days 30 -subj / -set_serial 0xffeeddccbbaa99 \
            -addext subjectAltName=DNS:shop.example.com -addext "2.5.29.35=DER:30${outer}80${length}${identifier}"
    "#;
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(home.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_authority_that_fails_at_finding_the_certificate_before_issues_the_next_one() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    drop(apus);
    let (chain, key) = test.pair("shop.example.com");
    let leaf = with_serial_that_begins_with_zero(&chain, &key, &test.home);
    let pair = "acme/certificates/shop.example.com/certificate.pem";
    test.home.write(pair, leaf + &key);
    let _apus = test.serve();
    let serial = test.serial("shop.example.com");
    assert_eq!(serial.trim(), "serial=FFEEDDCCBBAA99");
    test.home.expect(&["cert", "renew", "shop.example.com"], 0);
    test.wait_until_served("shop.example.com");
    assert_ne!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 2);
}

#[test]
fn an_order_survives_sigkill_in_each_of_its_steps() {
    let test = CertificateTest::new(PebbleOptions {
        hesitates: true,
        ..PebbleOptions::default()
    });
    test.configure("acme_challenge = \"http-01\"", "\"shop.example.com\"", "");
    let folder = test.home.path("acme/certificates/shop.example.com");
    let state = || fs::read_to_string(folder.join("state.json")).unwrap_or_default();
    let kill_when = |step: &str, is_reached: &dyn Fn() -> bool| {
        let mut apus = test.serve();
        wait_until(step, is_reached);
        apus.signal(Signal::KILL);
        apus.wait();
    };
    kill_when("the account", &|| {
        fs::read_dir(test.home.path("acme/accounts")).is_ok_and(|files| {
            files
                .flatten()
                .any(|file| file.path().extension().is_some_and(|end| end == "json"))
        })
    });
    // Whether the order was stored, or never made, or its response was on the way.
    let lost = if state().contains("/my-order/") {
        0
    } else {
        test.pebble.orders()
    };
    // What became invalid while nobody responded is replaced first, and no server is killed before the new order is stored.
    let steps = test.pebble.steps();
    kill_when("the order", &|| test.pebble.steps() > steps);
    let steps = test.pebble.steps();
    kill_when("the challenge", &|| {
        test.pebble.steps() > steps && test.pebble.log().contains("/chalZ/")
    });
    kill_when("the private key", &|| folder.join("pending.key").exists());
    kill_when("the request", &|| {
        test.pebble.log().contains("/finalize-order/")
    });
    kill_when("the certificate", &|| {
        folder.join("certificate.pem").exists()
    });
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    assert_eq!(test.pebble.accounts(), 1);
    // An order that was lost can share what becomes invalid.
    let orders = test.pebble.valid_orders();
    assert!((1..=lost + 1).contains(&orders), "{}", test.pebble.log());
}
