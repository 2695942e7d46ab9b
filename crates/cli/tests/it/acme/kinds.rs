//! Kinds of certificates: for each name, with several kinds of keys, with the key of the old one, and for addresses.

use std::process::Command;

use super::{CertificateTest, PebbleOptions};
use crate::harness::wait_until;

/// The public key and the names of the certificate that a client with these signature algorithms gets.
fn shown(test: &CertificateTest, name: &str, algorithms: &str) -> String {
    let server_name = match name.parse::<std::net::IpAddr>() {
        Ok(_) => "-noservername".to_owned(),
        Err(_) => format!("-servername {name}"),
    };
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{} {server_name} -sigalgs {algorithms} </dev/null 2>/dev/null | \
         openssl x509 -noout -pubkey -ext subjectAltName 2>&1",
        test.https
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

const ECDSA: &str = "ecdsa_secp256r1_sha256";
const RSA: &str = "rsa_pss_rsae_sha256";

#[test]
fn each_name_has_certificates_with_each_kind_of_key() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure(
        "",
        "[\"a.example.com\", \"b.example.com\"]",
        "[sites.tls]\nacme_certificate_per = \"name\"\nacme_key_type = [\"p256\", \"rsa2048\"]\n",
    );
    let apus = test.serve();
    for name in ["a.example.com", "b.example.com"] {
        wait_until("both kinds", || {
            shown(&test, name, ECDSA).contains("DNS:")
                && shown(&test, name, RSA).contains("DNS:")
                && shown(&test, name, RSA) != shown(&test, name, ECDSA)
        });
        for algorithm in [ECDSA, RSA] {
            let shown = shown(&test, name, algorithm);
            assert!(shown.contains(&format!("DNS:{name}\n")), "{shown}");
        }
        // A key of RSA is longer.
        assert!(shown(&test, name, RSA).len() > shown(&test, name, ECDSA).len() + 200);
        test.wait_until_served(name);
    }
    assert_eq!(test.pebble.orders(), 4, "{}", apus.log());
    let list = test.list();
    assert_eq!(
        list.matches("certificate a.example.com: expires").count(),
        2,
        "{list}"
    );
}

#[test]
fn a_private_key_is_used_again_until_it_is_revoked() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("acme_reuse_key = true", "\"shop.example.com\"", "");
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    let (serial, key) = (
        test.serial("shop.example.com"),
        shown(&test, "shop.example.com", ECDSA),
    );
    test.home.expect(&["cert", "renew", "shop.example.com"], 0);
    wait_until("the new certificate", || {
        test.serial("shop.example.com") != serial
    });
    assert_eq!(shown(&test, "shop.example.com", ECDSA), key);
    let revoke = [
        "cert",
        "revoke",
        "shop.example.com",
        "--config",
        "apus.toml",
    ];
    test.home.expect(&revoke, 0);
    wait_until("another key", || {
        let now = shown(&test, "shop.example.com", ECDSA);
        now.contains("DNS:") && now != key
    });
}

#[test]
fn an_address_gets_a_certificate_that_lives_a_few_days() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let test = CertificateTest::new(PebbleOptions::default());
        test.configure(
            &format!("acme_challenge = \"{challenge}\""),
            "\"127.0.0.1\"",
            "[sites.tls]\nacme = true\nacme_profile = \"shortlived\"\n",
        );
        let _apus = test.serve();
        test.wait_until_served("127.0.0.1");
        let shown = shown(&test, "127.0.0.1", ECDSA);
        assert!(
            shown.contains("IP Address:127.0.0.1"),
            "{challenge} {shown}"
        );
        let list = test.list();
        assert!(list.contains("expires in 5 d"), "{challenge} {list}");
    }
}
