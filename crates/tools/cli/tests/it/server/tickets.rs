//! Session tickets that outlive the server, and that all servers with the same folder accept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use apus_testkit::CertificateAuthority;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::harness::{Apus, Home, free_port, wait_until};
use crate::storage_server::StorageServer;
use crate::storage_server::StorageServerKind::{self, Postgres, Redis};

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
        let resumed = self.connect(version, version, port);
        assert!(self.home.path(version).exists());
        resumed
    }

    /// As [`Self::resumes`], with the session in this file.
    fn connect(&self, file: &str, version: &str, port: u16) -> bool {
        let session = self.home.path(file).display().to_string();
        let arguments = if self.home.path(file).exists() {
            format!("-sess_in {session} -sess_out {session}")
        } else {
            format!("-sess_out {session}")
        };
        let script = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | \
             openssl s_client -connect 127.0.0.1:{port} -servername localhost -{version} -ign_eof {arguments} 2>&1"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("<h1>hello</h1>"), "{text}");
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
    // The secret of HTTP/3 is no secret of tickets.
    assert!(!test.home.path("acme/tickets/secrets.json").exists());
}

/// Two machines with their own folders, whose secrets are in one storage.
struct TicketMachines {
    test: TicketTest,
    storage: StorageServer,
    ports: [u16; 2],
}

const FILE: &str = "tickets/secrets.json";
const FILES: [&str; 2] = ["apus.toml", "second.toml"];

impl TicketMachines {
    fn new(kind: StorageServerKind) -> Self {
        let test = TicketTest::new();
        let storage = StorageServer::start(kind);
        let ports = [free_port(), free_port()];
        let keys = format!(
            "tls_tickets = \"stored\"\nacme_storage = \"{}\"\n",
            storage.address()
        );
        test.configure(FILES[0], ports[0], &keys);
        let second = format!("control_socket = \"second.sock\"\n{keys}");
        test.configure(FILES[1], ports[1], &second);
        let text = test.home.read(FILES[1]);
        let text = text.replace("acme_folder = \"acme\"", "acme_folder = \"second\"");
        test.home.write(FILES[1], text);
        Self {
            test,
            storage,
            ports,
        }
    }

    /// Starts both, and waits until they have read the secrets.
    fn serve(&self) -> [Apus; 2] {
        let servers = FILES.map(|file| self.test.home.serve(&[file]));
        for port in self.ports {
            // Without secrets, there is no ticket, and so no file with a session of TLS 1.3.
            wait_until("the secrets", || {
                self.test.connect("first", "tls1_3", port);
                fs::remove_file(self.test.home.path("first")).is_ok()
            });
        }
        servers
    }

    /// Whether a server resumes the session of `version`.
    fn resumes(&self, version: &str, at: usize) -> bool {
        self.test.resumes(version, self.ports[at])
    }

    /// The secrets, each with its age in hours.
    fn set_secrets(&self, secrets: &[(&str, i64)]) {
        let secrets = secrets.iter().map(|(secret, hours)| {
            let created = OffsetDateTime::now_utc() - Duration::hours(*hours);
            let created = created.format(&Rfc3339).unwrap();
            format!("{{\"created\":\"{created}\",\"secret\":\"{secret}\"}}")
        });
        let secrets: Vec<_> = secrets.collect();
        let text = format!("{{\"secrets\":[{}]}}", secrets.join(","));
        self.storage.set_file(FILE, &text);
    }

    fn secrets(&self) -> Vec<String> {
        let text = self.storage.file(FILE);
        let found = text.split("\"secret\":").skip(1);
        found
            .filter_map(|rest| rest.split('"').nth(1))
            .map(str::to_owned)
            .collect()
    }
}

/// The ticket of one machine is accepted by the other one, also after the secrets have rotated, until its secret is too old.
fn sessions_are_resumed_at_machines_with_one_storage(kind: StorageServerKind) {
    let machines = TicketMachines::new(kind);
    let servers = machines.serve();
    for version in VERSIONS {
        assert!(!machines.resumes(version, 0), "{version}");
        assert!(machines.resumes(version, 1), "{version}");
        assert!(machines.resumes(version, 0), "{version}");
    }
    let secrets = machines.secrets();
    assert_eq!(secrets.len(), 1);
    for server in &servers {
        assert!(!server.log().contains(&secrets[0]), "{}", server.log());
    }
    drop(servers);
    // One of them makes a new secret, by which tickets are encrypted when all have read it.
    machines.set_secrets(&[(&secrets[0], 13)]);
    let servers = machines.serve();
    wait_until("the new secret", || machines.secrets().len() == 2);
    let rotated = machines.secrets();
    assert_eq!(rotated[0], secrets[0]);
    drop(servers);
    let servers = machines.serve();
    assert_eq!(machines.secrets(), rotated);
    for version in VERSIONS {
        assert!(machines.resumes(version, 0), "{version}");
        assert!(machines.resumes(version, 1), "{version}");
    }
    drop(servers);
    // The tickets of the old one are refused when it is too old.
    machines.set_secrets(&[(&rotated[0], 25), (&rotated[1], 1)]);
    let _servers = machines.serve();
    for version in VERSIONS {
        assert!(!machines.resumes(version, 0), "{version}");
        assert!(machines.resumes(version, 1), "{version}");
        assert!(machines.resumes(version, 0), "{version}");
    }
}

#[test]
fn sessions_are_resumed_at_another_machine_through_redis() {
    sessions_are_resumed_at_machines_with_one_storage(Redis);
}

#[test]
fn sessions_are_resumed_at_another_machine_through_postgresql() {
    sessions_are_resumed_at_machines_with_one_storage(Postgres);
}
