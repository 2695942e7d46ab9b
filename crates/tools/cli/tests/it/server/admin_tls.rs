//! The address of the operator over TLS, and accounts that ask by client certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use apus_testkit::CertificateAuthority;

use crate::harness::{Apus, Home, free_port, wait_until};

/// A server with TLS at the address of the operator, and two clients with certificates, of whom the first has an account.
struct TlsTest {
    home: Home,
    apus: Apus,
    port: u16,
    authority: CertificateAuthority,
}

impl TlsTest {
    fn new() -> Self {
        let home = Home::new();
        let authority = CertificateAuthority::generate();
        let clients = CertificateAuthority::named("Clients");
        let strangers = CertificateAuthority::named("Strangers");
        home.write("authority.pem", &authority.pem);
        home.write("clients.pem", &clients.pem);
        for (name, issuer) in [
            ("ana", &clients),
            ("bo", &clients),
            ("stranger", &strangers),
        ] {
            let issued = issuer.ecdsa(&[name]);
            home.write(&format!("{name}.pem"), &issued.pem);
            home.write(&format!("{name}.key"), &issued.key);
        }
        let (lines, _) = home.expect(
            &[
                "admin",
                "account",
                "ana",
                "--role",
                "operate",
                "--certificate",
                "ana.pem",
            ],
            0,
        );
        home.write("accounts.toml", lines);
        private(&home, "accounts.toml");
        let (site, port) = (free_port(), free_port());
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\nadmin_listen = [\"127.0.0.1:{port}\", \"unix:admin.sock\"]\nadmin_accounts = \"accounts.toml\"\n\
                 admin_tls = {{ cert = \"own.pem\", key = \"own.key\", client_ca = \"clients.pem\" }}\n\
                 [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
            ),
        );
        write_certificate(&home, &authority);
        let apus = home.serve(&["apus.toml"]);
        Self {
            home,
            apus,
            port,
            authority,
        }
    }

    /// The status of a request, and what was received. `arguments` are those of curl.
    fn ask(&self, path: &str, arguments: &[&str]) -> (String, String) {
        let authority = self.home.path("authority.pem");
        let url = format!("https://localhost:{}{path}", self.port);
        let options = [
            "--cacert",
            authority.to_str().unwrap(),
            "-w",
            "\n%{http_code}",
        ];
        let reply = curl(&[&options, arguments, &[&url]].concat());
        let (body, status) = reply.rsplit_once('\n').unwrap_or(("", &reply));
        (status.to_owned(), body.to_owned())
    }

    fn as_client(&self, name: &str, path: &str, more: &[&str]) -> String {
        let file = |end: &str| {
            self.home
                .path(&format!("{name}.{end}"))
                .to_str()
                .unwrap()
                .to_owned()
        };
        let (pem, key) = (file("pem"), file("key"));
        let arguments = [&["--cert", &pem, "--key", &key], more].concat();
        self.ask(path, &arguments).0
    }
}

/// What curl prints.
fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-q", "--silent", "--noproxy", "*", "--max-time", "30"]);
    let output = command.args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn private(home: &Home, name: &str) {
    fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn write_certificate(home: &Home, authority: &CertificateAuthority) {
    let own = authority.ecdsa(&["localhost"]);
    home.write("own.key", &own.key);
    home.write("own.pem", &own.pem);
    private(home, "own.key");
}

#[test]
fn accounts_ask_by_their_certificates_and_no_page_of_another_site_does() {
    let test = TlsTest::new();
    assert_eq!(test.ask("/metrics", &[]).0, "200");
    assert_eq!(test.ask("/api/v1/status", &[]).0, "401");
    for (name, path, more, expected) in [
        ("ana", "/api/v1/status", &[][..], "200"),
        // A role is a role.
        ("ana", "/api/v1/audit", &[], "403"),
        // A certificate of the authority alone is no account.
        ("bo", "/api/v1/status", &[], "401"),
        // A token that is wrong is not made right by a certificate.
        (
            "ana",
            "/api/v1/status",
            &["-H", "Authorization: Bearer x"],
            "401",
        ),
        (
            "ana",
            "/api/v1/status",
            &["-H", "Sec-Fetch-Site: same-origin"],
            "200",
        ),
        (
            "ana",
            "/api/v1/status",
            &["-H", "Sec-Fetch-Site: cross-site"],
            "401",
        ),
        (
            "ana",
            "/api/v1/status",
            &["-H", "Sec-Fetch-Site: same-site"],
            "401",
        ),
        (
            "ana",
            "/api/v1/reload",
            &["-X", "POST", "-H", "Origin: https://evil.test"],
            "403",
        ),
        ("ana", "/api/v1/reload", &["-X", "POST"], "200"),
        // One of another authority gets no connection.
        ("stranger", "/metrics", &[], "000"),
    ] {
        assert_eq!(
            test.as_client(name, path, more),
            expected,
            "{name} {path} {more:?}"
        );
    }
    let (entries, _) = test.home.expect(&["admin", "audit"], 0);
    assert!(entries.contains("ana from 127.0.0.1  reload"), "{entries}");
    let (login, _) = test.home.expect(&["admin", "login"], 0);
    assert!(
        login.contains(&format!("https://127.0.0.1:{}", test.port)),
        "{login}"
    );
}

#[test]
fn a_new_certificate_is_used_within_seconds_and_clear_text_is_refused() {
    let test = TlsTest::new();
    let clear = format!("http://127.0.0.1:{}/metrics", test.port);
    let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", &clear]);
    assert_ne!(code, "200");
    let authority = test.home.path("authority.pem");
    let url = format!("https://localhost:{}/metrics", test.port);
    let serial = || {
        let authority = authority.to_str().unwrap();
        curl(&[
            "--cacert",
            authority,
            "-o",
            "/dev/null",
            "-w",
            "%{certs}",
            &url,
        ])
    };
    let before = serial();
    write_certificate(&test.home, &test.authority);
    wait_until("the new certificate", || {
        let now = serial();
        !now.is_empty() && now != before
    });
    assert!(test.apus.log().contains("have changed, and are used now"));
}
