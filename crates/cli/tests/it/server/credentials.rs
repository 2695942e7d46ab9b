//! Files of certificates that change while the server runs.

use std::process::Command;

use apus_testkit::{CertificateAuthority, IssuedCertificate};

use crate::harness::{Home, free_port, wait_until};

/// Replaces the certificate, which is for `localhost`, as a client of ACME does.
fn install(home: &Home, certificate: &IssuedCertificate) {
    for (name, text) in [
        ("key.pem", &certificate.key),
        ("cert.pem", &certificate.pem),
    ] {
        let new = home.write("new.pem", text);
        std::fs::rename(new, home.path(name)).unwrap();
    }
}

/// Whether clients that trust this authority accept the certificate.
fn is_trusted(home: &Home, authority: &CertificateAuthority, port: u16) -> bool {
    let root = home.write("root.pem", &authority.pem);
    let output = Command::new("curl")
        .args(["--silent", "--fail", "--cacert"])
        .arg(root)
        .arg(format!("https://localhost:{port}/"))
        .output()
        .unwrap();
    output.status.success()
}

#[test]
fn a_certificate_is_used_when_its_files_have_changed_unless_it_has_mistakes() {
    let home = Home::new();
    let authorities = [
        CertificateAuthority::generate(),
        CertificateAuthority::generate(),
    ];
    let port = free_port();
    install(&home, &authorities[0].ecdsa(&["localhost"]));
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten_tls = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
             tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    assert!(is_trusted(&home, &authorities[0], port));
    // The file of the configuration is not loaded again.
    home.write("apus.toml", "nonsense");
    install(&home, &authorities[1].ecdsa(&["localhost"]));
    wait_until("the new certificate", || {
        is_trusted(&home, &authorities[1], port)
    });
    home.write("cert.pem", "nothing");
    wait_until("the mistake is reported", || {
        apus.log().contains("cert.pem") && apus.log().contains("are not used")
    });
    assert!(is_trusted(&home, &authorities[1], port));
    install(&home, &authorities[0].ecdsa(&["localhost"]));
    wait_until("the certificate after that", || {
        is_trusted(&home, &authorities[0], port)
    });
    let reports = apus.log().matches("are not used").count();
    assert_eq!(reports, 1, "{}", apus.log());
}
