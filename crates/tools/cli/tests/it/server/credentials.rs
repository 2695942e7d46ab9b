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

/// The status of a request of a client with this certificate; `None` without a connection.
fn status_for(home: &Home, client: &IssuedCertificate, port: u16) -> Option<String> {
    home.write("client.pem", client.pem.clone() + &client.key);
    let output = Command::new("curl")
        .args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ])
        .arg("--cacert")
        .arg(home.path("authority.pem"))
        .arg("--cert")
        .arg(home.path("client.pem"))
        .arg(format!("https://localhost:{port}/"))
        .output()
        .unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(status)
}

#[test]
fn authorities_of_clients_and_what_they_revoked_are_used_when_their_files_have_changed() {
    let home = Home::new();
    // A revocation list applies to all authorities with the same name.
    let [authority, other] = ["One", "Other"].map(CertificateAuthority::named);
    let (alice, bob) = (authority.ecdsa(&["alice"]), authority.ecdsa(&["bob"]));
    let carol = other.ecdsa(&["carol"]);
    let port = free_port();
    install(&home, &authority.ecdsa(&["localhost"]));
    home.write("authority.pem", &authority.pem);
    home.write("clients.pem", &authority.pem);
    home.write("revoked.pem", authority.revocation_list(&[]));
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"localhost\"\nlisten_tls = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
             tls = {{ cert = \"cert.pem\", key = \"key.pem\", client_auth = \"required\", client_ca = \"clients.pem\", \
             client_crl = \"revoked.pem\" }}\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let is_accepted = |client: &IssuedCertificate| status_for(&home, client, port).is_some();
    assert!(is_accepted(&alice) && is_accepted(&bob) && !is_accepted(&carol));
    home.write("revoked.pem", authority.revocation_list(&[&bob]));
    wait_until("the new list", || !is_accepted(&bob));
    assert!(is_accepted(&alice));
    home.write("revoked.pem", "nothing");
    wait_until("the mistake is reported", || {
        apus.log().contains("revoked.pem") && apus.log().contains("are not used")
    });
    assert!(is_accepted(&alice) && !is_accepted(&bob));
    home.write("revoked.pem", authority.revocation_list(&[&bob]));
    home.write("clients.pem", authority.pem.clone() + &other.pem);
    wait_until("the new authority", || is_accepted(&carol));
    assert!(is_accepted(&alice) && !is_accepted(&bob));
}
