//! The classes of attack on servers and programs, against the binary as it is shipped: with the
//! defaults, and with a configuration of a few lines. Honest requests beside it are answered, memory
//! stays within a bound, and the counters tell what was stopped.

mod content;
mod floods;
mod framing;
mod http2;
mod identity;
mod memory;
mod paths;
mod slow;

use std::fs;

use serde_json::Value;

use crate::harness::{Apus, Home};
use crate::wire::Wire;

/// What no client may see. It lies in files that are not to be served.
const SECRET: &str = "the secret";

/// Bytes of memory that no attack of these tests may have the server take, above what it has at its
/// start.
const MEMORY: u64 = 64 << 20;

/// A server under attack.
struct Victim {
    home: Home,
    apus: Apus,
    /// What `apus status` is told.
    source: &'static str,
    at_start: u64,
}

impl Victim {
    /// `apus serve site`: nothing is configured.
    fn with_defaults() -> Self {
        let home = Home::new();
        fill(&home);
        let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
        Self::new(home, apus, "site")
    }

    /// A site with a few lines of configuration: some of `[global]`, some of its own.
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
        // The first request has the worker make what it keeps.
        victim.assert_serves();
        victim.at_start = victim.resident();
        victim
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.apus.address())
    }

    /// The answer to these bytes over a new connection, whatever follows it.
    fn ask(&self, request: impl AsRef<[u8]>) -> crate::wire::Received {
        let mut wire = self.connect();
        wire.send(request);
        wire.read()
    }

    /// The answer to `GET target` with these field lines, each with its line end.
    fn get(&self, target: &str, fields: &str) -> crate::wire::Received {
        self.ask(format!(
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

    /// Bytes of memory that the server takes.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.apus.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes: u64 = line
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap();
        kilobytes << 10
    }

    /// Seconds of processor time that the server has used, in clock ticks.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.apus.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// An honest request is answered.
    fn assert_serves(&self) {
        let reply = self.apus.get("/");
        assert_eq!((reply.status, reply.body.as_str()), (200, "<h1>hello</h1>"));
    }

    /// Honest requests are answered, memory is within its bound, no handler panicked.
    fn assert_stands(&self) {
        self.assert_serves();
        let grown = self.resident().saturating_sub(self.at_start);
        assert!(grown < MEMORY, "{} MB more than at start", grown >> 20);
        assert_eq!(self.total("panics"), 0);
    }
}

/// Files to serve, and such as are not.
fn fill(home: &Home) {
    for folder in ["site/files", "site/.git", "outside"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    let text: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    home.write("site/text.txt", &text);
    home.write("site/large.bin", vec![b'x'; 4 << 20]);
    home.write("site/smuggled", "what was smuggled");
    home.write("site/files/a.txt", "a");
    for hidden in [
        "outside/secret.txt",
        "secret.txt",
        "site/.env",
        "site/.htaccess",
        "site/.git/config",
        "site/page.php",
        "site/files/run.PHP",
        "site/page.phtml",
    ] {
        home.write(hidden, SECRET);
    }
}
