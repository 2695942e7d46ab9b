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

/// Of the chains that the authority offers (RFC 8555 section 7.4.2), the one that is issued by the named root.
#[test]
fn the_chain_of_the_preferred_authority_is_used() {
    let test = CertificateTest::new(PebbleOptions {
        alternate_roots: 2,
        ..PebbleOptions::default()
    });
    let roots = [0, 1, 2].map(|number| test.pebble.root_at(number));
    let names = roots.each_ref().map(|root| {
        let output = Command::new("openssl")
            .args(["x509", "-noout", "-subject", "-nameopt", "multiline", "-in"])
            .arg(root)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, name) = text.split_once("commonName").unwrap();
        name.trim_start_matches([' ', '=']).trim().to_owned()
    });
    for (name, root) in names.iter().zip(&roots) {
        let key = format!(
            "acme_preferred_chain = \"{name}\"\nacme_folder = \"{root}\"",
            root = root.file_stem().unwrap().display()
        );
        test.configure("", "\"shop.example.com\"", "");
        let text = test.home.read("apus.toml");
        let text = text.replace("acme_folder = \"acme\"", &key);
        test.home.write("apus.toml", text);
        let apus = test.serve();
        wait_until("the certificate", || {
            test.is_served(root, "shop.example.com")
        });
        for other in roots.iter().filter(|other| *other != root) {
            assert!(!test.is_served(other, "shop.example.com"), "{name}");
        }
        assert!(!apus.log().contains("offers no chain"), "{}", apus.log());
    }
    // An authority that is not among them: the usual chain, and a warning. A site has its own choice.
    let key = "acme_preferred_chain = \"Nobody\"\nacme_folder = \"nobody\"";
    test.configure("", "\"shop.example.com\"", "");
    let text = test.home.read("apus.toml");
    let text = text.replace("acme_folder = \"acme\"", key);
    test.home.write("apus.toml", &text);
    let apus = test.serve();
    wait_until("the certificate", || {
        test.is_served(&roots[0], "shop.example.com")
    });
    apus.wait_for_log("offers no chain");
    drop(apus);
    let text = text.replace("acme_folder = \"nobody\"", "acme_folder = \"site-key\"")
        + &format!("[sites.tls]\nacme_preferred_chain = \"{}\"\n", names[1]);
    test.home.write("apus.toml", text);
    let _apus = test.serve();
    wait_until("the certificate", || {
        test.is_served(&roots[1], "shop.example.com")
    });
}
