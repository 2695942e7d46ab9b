//! Session tickets that outlive the server, and that all servers with the same folder accept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use apus_testkit::CertificateAuthority;

use crate::harness::{Home, free_port};

/// A folder with a certificate for `localhost`, and servers that use it.
struct TicketTest {
    home: Home,
}

impl TicketTest {
    fn new() -> Self {
        let home = Home::new();
        let certificate = CertificateAuthority::generate().ecdsa(&["localhost"]);
        home.write("cert.pem", &certificate.pem);
        home.write("key.pem", &certificate.key);
        Self { home }
    }

    /// Writes the configuration of a server at this port.
    fn configure(&self, file: &str, port: u16, global: &str) {
        let text = format!(
            "[global]\nacme_folder = \"acme\"\n{global}\n[[sites]]\nserver_name = \"localhost\"\n\
             listen_tls = \"127.0.0.1:{port}\"\nroot = \"site\"\ntls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n"
        );
        self.home.write(file, text);
    }

    /// Whether a client resumes its session, which is kept for the next time.
    fn resumes(&self, version: &str, port: u16) -> bool {
        let session = self.home.path(version).display().to_string();
        let arguments = match self.home.path(version).exists() {
            true => format!("-sess_in {session} -sess_out {session}"),
            false => format!("-sess_out {session}"),
        };
        let script = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | \
             openssl s_client -connect 127.0.0.1:{port} -servername localhost -{version} -ign_eof {arguments} 2>&1"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("<h1>hello</h1>"), "{text}");
        assert!(self.home.path(version).exists(), "{text}");
        text.contains("Reused, ")
    }
}

const VERSIONS: [&str; 2] = ["tls1_2", "tls1_3"];

#[test]
fn sessions_are_resumed_after_a_restart_and_at_another_server_with_the_same_folder() {
    let test = TicketTest::new();
    let (first, second) = (free_port(), free_port());
    test.configure("apus.toml", first, "tls_tickets = \"stored\"");
    test.configure(
        "second.toml",
        second,
        "tls_tickets = \"stored\"\ncontrol_socket = \"second.sock\"",
    );
    let apus = test.home.serve(&["apus.toml"]);
    for version in VERSIONS {
        assert!(!test.resumes(version, first), "{version}");
        assert!(test.resumes(version, first), "{version}");
    }
    drop(apus);
    let apus = test.home.serve(&["apus.toml"]);
    let _second = test.home.serve(&["second.toml"]);
    for version in VERSIONS {
        assert!(test.resumes(version, first), "{version}");
        assert!(test.resumes(version, second), "{version}");
        assert!(test.resumes(version, first), "{version}");
    }
    let secrets = test.home.path("acme/tickets/secrets.json");
    let mode = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&secrets).unwrap();
    let secret = text.split("\"secret\": \"").nth(1).unwrap();
    assert!(!apus.log().contains(&secret[..16]), "{}", apus.log());
}

#[test]
fn sessions_end_with_the_server_if_their_secrets_are_not_stored() {
    let test = TicketTest::new();
    let port = free_port();
    test.configure("apus.toml", port, "");
    let apus = test.home.serve(&["apus.toml"]);
    for version in VERSIONS {
        assert!(!test.resumes(version, port), "{version}");
        assert!(test.resumes(version, port), "{version}");
    }
    drop(apus);
    let _apus = test.home.serve(&["apus.toml"]);
    for version in VERSIONS {
        assert!(!test.resumes(version, port), "{version}");
    }
    assert!(!test.home.path("acme").exists());
}
