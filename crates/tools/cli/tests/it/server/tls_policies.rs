//! Named policies of TLS, as OpenSSL sees them.

use std::collections::BTreeSet;
use std::process::Command;

use apus_testkit::CertificateAuthority;

use crate::harness::{Apus, Home, free_port};

/// A server with a policy.
struct PolicyTest {
    _home: Home,
    _apus: Apus,
    port: u16,
}

impl PolicyTest {
    fn new(policy: &str) -> Self {
        let home = Home::new();
        let authority = CertificateAuthority::generate();
        for (name, made) in [
            ("ecdsa", authority.ecdsa(&["localhost"])),
            ("rsa", authority.rsa(&["localhost"])),
        ] {
            home.write(&format!("{name}.pem"), &made.pem);
            home.write(&format!("{name}.key"), &made.key);
        }
        let port = free_port();
        let text = format!(
            "[[sites]]\nserver_name = \"localhost\"\nlisten_tls = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
             [sites.tls]\n{policy}\ncertificates = [{{ cert = \"ecdsa.pem\", key = \"ecdsa.key\" }}, \
             {{ cert = \"rsa.pem\", key = \"rsa.key\" }}]\n"
        );
        home.write("apus.toml", text);
        let apus = home.serve(&["apus.toml"]);
        Self {
            _home: home,
            _apus: apus,
            port,
        }
    }

    /// What OpenSSL shows of a handshake; `None` if there is none.
    fn handshake(&self, arguments: &[&str]) -> Option<String> {
        let address = format!("127.0.0.1:{}", self.port);
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &address, "-servername", "localhost"])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && text.contains("BEGIN CERTIFICATE")).then_some(text)
    }

    /// The cipher suites of TLS 1.2 that are accepted, of all that OpenSSL has.
    fn suites_of_tls12(&self) -> BTreeSet<String> {
        let list = Command::new("openssl")
            .args(["ciphers", "-s", "-tls1_2", "ALL:!PSK:!SRP:@SECLEVEL=0"])
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let suites: Vec<&str> = list.trim().split(':').collect();
        assert!(suites.len() > 30, "{list}");
        let is_accepted = |suite: &&str| {
            let suite = format!("{suite}:@SECLEVEL=0");
            self.handshake(&["-tls1_2", "-cipher", &suite]).is_some()
        };
        let accepted = suites.into_iter().filter(is_accepted);
        accepted.map(str::to_owned).collect()
    }

    fn accepts(&self, version: &str) -> bool {
        let old = ["-cipher", "ALL:@SECLEVEL=0"];
        self.handshake(&[&[version], &old[..]].concat()).is_some()
    }
}

/// Mozilla's policy "intermediate" without `DHE-*`, which rustls has not.
const INTERMEDIATE: [&str; 6] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
];
const VERSIONS: [&str; 4] = ["-tls1", "-tls1_1", "-tls1_2", "-tls1_3"];

#[test]
fn policies_have_the_versions_cipher_suites_and_groups_of_their_names() {
    for (policy, versions, suites) in [
        ("", &VERSIONS[2..], &INTERMEDIATE[..]),
        (
            "policy = \"intermediate\"",
            &VERSIONS[2..],
            &INTERMEDIATE[..],
        ),
        ("policy = \"modern\"", &VERSIONS[3..], &[]),
        ("policy = \"legacy\"", &VERSIONS[2..], &INTERMEDIATE[..]),
        ("min_version = \"1.3\"", &VERSIONS[3..], &[]),
    ] {
        let test = PolicyTest::new(policy);
        let accepted: Vec<&str> = VERSIONS
            .into_iter()
            .filter(|one| test.accepts(one))
            .collect();
        assert_eq!(accepted, versions, "{policy}");
        // The list is long, and the same for most.
        if policy.starts_with("policy") {
            let found = test.suites_of_tls12();
            let expected: BTreeSet<_> = suites.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(found, expected, "{policy}");
        }
        for (group, shown) in [
            ("X25519", Some("X25519, 253 bits")),
            ("P-256", Some("ECDH, prime256v1, 256 bits")),
            ("P-384", Some("ECDH, secp384r1, 384 bits")),
            ("P-521", None),
            ("X448", None),
        ] {
            let text = test.handshake(&["-groups", group]);
            match shown {
                Some(shown) => assert!(text.unwrap().contains(shown), "{policy} {group}"),
                None => assert_eq!(text, None, "{policy} {group}"),
            }
        }
    }
}

/// A client that prefers ChaCha20 because its processor has no AES gets it, but with the order of the server.
#[test]
fn the_order_of_cipher_suites_is_that_of_the_client_unless_the_policy_is_legacy() {
    let suites = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256";
    for (policy, expected) in [
        ("intermediate", "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("legacy", "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"),
    ] {
        let test = PolicyTest::new(&format!("policy = \"{policy}\""));
        let text = test.handshake(&["-tls1_2", "-cipher", suites]).unwrap();
        assert!(text.contains(expected), "{policy}: {text}");
    }
}
