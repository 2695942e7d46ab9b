//! `apus cert`: certificates that are shown, renewed, revoked, imported and forgotten.

use std::fs;

use serde_json::Value;

use super::{CertificateTest, PebbleOptions};
use crate::harness::{free_port, wait_until};

impl CertificateTest {
    /// What `apus cert show` knows of a certificate.
    fn shown(&self, name: &str) -> Value {
        let arguments = ["cert", "show", name, "--json"];
        let (json, _) = self.home.expect(&arguments, 0);
        serde_json::from_str::<Value>(&json).unwrap()[0].clone()
    }

    /// The chain and the private key of a certificate that was ordered.
    pub(super) fn pair(&self, id: &str) -> (String, String) {
        let path = format!("acme/certificates/{id}/certificate.pem");
        let pem = self.home.read(&path);
        let at = pem.find("-----BEGIN PRIVATE KEY").unwrap();
        (pem[..at].to_owned(), pem[at..].to_owned())
    }
}

#[test]
fn a_revoked_certificate_is_replaced_at_once_by_one_with_another_key() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    let before = test.shown("shop.example.com");
    assert_eq!(before["key"], "ECDSA, 256 bits");
    assert_eq!(before["names"][0], "shop.example.com");
    let serial = test.serial("shop.example.com").to_lowercase();
    let shown = before["serial"].as_str().unwrap();
    assert!(serial.trim().ends_with(shown), "{serial} {shown}");
    let (_, key) = test.pair("shop.example.com");
    let revoke = [
        "cert",
        "revoke",
        "shop.example.com",
        "--reason",
        "key-compromise",
    ];
    let (out, _) = test.home.expect(&revoke, 0);
    assert!(out.starts_with("revoked\n"), "{out}");
    wait_until("the new certificate", || {
        let output = test.fetch(&test.pebble.root(), "shop.example.com");
        assert!(output.status.success(), "{output:?}");
        test.serial("shop.example.com").to_lowercase() != serial
    });
    let after = test.shown("shop.example.com");
    assert_ne!(after["fingerprint"], before["fingerprint"]);
    assert_eq!(after["revoked"], false);
    assert_ne!(test.pair("shop.example.com").1, key);
    assert_eq!(test.pebble.orders(), 2);
    assert!(!apus.log().contains("PRIVATE"));
    let (out, _) = test.home.expect(&["cert", "show"], 0);
    assert!(
        out.contains("issuer") && !out.contains("PRIVATE KEY"),
        "{out}"
    );
    let (_, error) = test.home.expect(&["cert", "revoke", "a.example.com"], 1);
    assert!(error.contains("is for `a.example.com`"), "{error}");
}

#[test]
fn a_certificate_of_certbot_is_imported_and_served_without_an_order() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let apus = test.serve();
    test.wait_until_served("shop.example.com");
    let serial = test.serial("shop.example.com");
    drop(apus);
    let live = test.home.path("letsencrypt/live/shop.example.com");
    fs::create_dir_all(&live).unwrap();
    let (chain, key) = test.pair("shop.example.com");
    fs::write(live.join("fullchain.pem"), chain).unwrap();
    fs::write(live.join("privkey.pem"), key).unwrap();
    let text = test.home.read("apus.toml");
    let text = text.replace("acme_folder = \"acme\"", "acme_folder = \"other\"");
    test.home.write("apus.toml", text);
    let (out, _) = test.home.expect(&["cert", "import", "letsencrypt"], 0);
    assert!(out.contains("shop.example.com: imported from "), "{out}");
    let (json, _) = test
        .home
        .expect(&["cert", "import", "letsencrypt", "--json"], 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["certificates"][0]["result"], "kept");
    let _apus = test.serve();
    assert_eq!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 1);
    // It is renewed as one of the own.
    let (out, _) = test.home.expect(&["cert", "renew", "shop.example.com"], 0);
    assert_eq!(out, "renewed\n");
    wait_until("the new certificate", || {
        test.serial("shop.example.com") != serial
    });
    let list = ["cert", "list", "--config", "apus.toml"];
    let (list, _) = test.home.expect(&list, 0);
    assert!(
        list.contains("certificate shop.example.com: expires in "),
        "{list}"
    );
    let (_, error) = test.home.expect(&["cert", "import", "site"], 1);
    assert!(error.contains("expected a folder of certbot"), "{error}");
}

#[test]
fn a_certificate_is_forgotten_when_no_site_has_it_any_more() {
    let test = CertificateTest::new(PebbleOptions::default());
    test.configure("", "\"shop.example.com\"", "");
    let _apus = test.serve();
    test.wait_until_served("shop.example.com");
    let forget = ["cert", "forget", "shop.example.com"];
    let (_, error) = test.home.expect(&forget, 1);
    assert!(error.contains("remove its site first"), "{error}");
    test.configure("", "\"blog.example.com\"", "");
    test.home.expect(&["reload"], 0);
    test.wait_until_served("blog.example.com");
    let (out, _) = test.home.expect(&forget, 0);
    assert!(out.starts_with("removed\n"), "{out}");
    assert!(
        !test
            .home
            .path("acme/certificates/shop.example.com")
            .exists()
    );
    let (_, error) = test.home.expect(&["cert", "show", "shop.example.com"], 1);
    assert!(error.contains("is for `shop.example.com`"), "{error}");
    assert!(test.is_served(&test.pebble.root(), "blog.example.com"));
}

#[test]
fn a_renewal_that_fails_is_told_in_the_words_of_the_authority() {
    let test = CertificateTest::new(PebbleOptions::default());
    let elsewhere = (free_port(), free_port());
    test.configure_as("apus.toml", elsewhere, "", "\"shop.example.com\"", "");
    let _apus = test.serve();
    wait_until("the failure", || test.list().contains("1 attempts failed"));
    let renew = ["cert", "renew", "shop.example.com"];
    let (out, error) = test.home.expect(&renew, 1);
    assert!(
        out.is_empty() && error.contains("shop.example.com") && error.contains("connect"),
        "{out} {error}"
    );
    assert!(test.list().contains("2 attempts failed"), "{}", test.list());
    let renew = ["cert", "renew", "shop.example.com", "--json"];
    let (json, _) = test.home.expect(&renew, 1);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(
        json["error"].as_str().unwrap().contains("shop.example.com"),
        "{json}"
    );
}
