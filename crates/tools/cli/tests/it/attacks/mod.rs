//! Attacks on the shipped binary, with the defaults and with a short configuration. Each test checks that
//! honest requests are served during the attack, that memory stays within a bound, and that the counters
//! report what was rejected.

mod bodies;
mod floods;
mod framing;
mod http2;
mod identity;
mod logs;
mod memory;
mod paths;
mod slow;

use std::fs;

use serde_json::Value;

use crate::harness::{Apus, Home};
use crate::wire::Wire;

/// The text of files that must not be served.
const SECRET: &str = "the secret";

/// The bytes of memory by which the server may grow during an attack.
const MEMORY: u64 = 64 << 20;

/// A server under attack.
struct Victim {
    home: Home,
    apus: Apus,
    /// The argument that names the server to `apus status`.
    source: &'static str,
    /// Resident bytes after the first request.
    at_start: u64,
}

impl Victim {
    /// `apus serve site`, without a configuration.
    fn with_defaults() -> Self {
        let home = Home::new();
        fill(&home);
        let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
        Self::new(home, apus, "site")
    }

    /// A site with these lines in `[global]` and in `[[sites]]`.
    fn configured(global: &str, site: &str) -> Self {
        let home = Home::new();
        fill(&home);
        home.write(
            "apus.toml",
            format!(
                "[global]\n{global}\n[[sites]]\nserver_name = [\"localhost\", \"_\"]\n\
                 listen = [\"127.0.0.1:0\"]\nroot = \"site\"\n{site}\n"
            ),
        );
        let apus = home.serve(&[]);
        Self::new(home, apus, "apus.toml")
    }

    fn new(home: Home, apus: Apus, source: &'static str) -> Self {
        let mut victim = Self {
            home,
            apus,
            source,
            at_start: 0,
        };
        // The worker allocates its long-lived state for the first request.
        victim.assert_serves();
        victim.at_start = victim.resident();
        victim
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.apus.address())
    }

    /// The first response to these bytes, over a new connection.
    fn request(&self, request: impl AsRef<[u8]>) -> crate::wire::Received {
        let mut wire = self.connect();
        wire.send(request);
        wire.read()
    }

    /// The response to `GET target` with these field lines, each with its CRLF.
    fn get(&self, target: &str, fields: &str) -> crate::wire::Received {
        self.request(format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
        ))
    }

    fn status(&self) -> Value {
        let (json, _) = self.home.expect(&["status", self.source, "--json"], 0);
        serde_json::from_str(&json).unwrap()
    }

    /// A counter of the whole server.
    fn total(&self, name: &str) -> u64 {
        let status = self.status();
        status["totals"][name].as_u64().expect(name)
    }

    /// Resident bytes of the server.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.apus.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes: u64 = line
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap();
        kilobytes << 10
    }

    /// CPU time that the server has used, in clock ticks.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.apus.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Expects a response to an honest request.
    fn assert_serves(&self) {
        let reply = self.apus.get("/");
        assert_eq!((reply.status, reply.body.as_str()), (200, "<h1>hello</h1>"));
    }

    /// Expects a response to an honest request, memory within its bound, and no panic of a handler.
    fn assert_healthy(&self) {
        self.assert_serves();
        let grown = self.resident().saturating_sub(self.at_start);
        assert!(grown < MEMORY, "{} MB more than at start", grown >> 20);
        assert_eq!(self.total("panics"), 0);
    }
}

/// Writes files to serve and files that must not be served.
fn fill(home: &Home) {
    for folder in ["site/files", "site/.git", "outside"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    let text: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    home.write("site/text.txt", &text);
    home.write("site/large.bin", vec![b'x'; 4 << 20]);
    home.write("site/smuggled", "what was smuggled");
    home.write("site/files/a.txt", "a");
    for secret in [
        "outside/secret.txt",
        "secret.txt",
        "site/.env",
        "site/.htaccess",
        "site/.git/config",
        "site/page.php",
        "site/files/run.PHP",
        "site/page.phtml",
    ] {
        home.write(secret, SECRET);
    }
}
