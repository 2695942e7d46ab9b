//! A certificate authority for tests: pebble, with its own DNS server (pebble-challtestsrv), from Let's Encrypt.

use std::fs::{self, File};
use std::net::{Shutdown, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use apus_testkit::CertificateAuthority;
use serde_json::json;

use crate::harness::{Home, connect, free_port, is_open, wait_until};

/// A certificate authority that verifies names at these ports of this machine.
pub(crate) struct Pebble {
    resolver: Child,
    /// The authority itself, while it runs.
    authority: Mutex<Option<Child>>,
    options: PebbleOptions,
    folder: PathBuf,
    directory: String,
    listen: u16,
    management: u16,
    dns: u16,
    dns_management: u16,
}

/// What is special about an authority.
#[derive(Clone, Copy, Default)]
pub(crate) struct PebbleOptions {
    /// An external account is required: `kid-1` with the key `ZWFiLWtleS1vZi10aGlydHktdHdvLWJ5dGVzLSEhISE`.
    pub(crate) external_account: bool,
    /// It waits a moment before it verifies names.
    pub(crate) hesitates: bool,
    /// It refuses no nonce, so that no attempt is repeated, for tests that count.
    pub(crate) accepts_nonces: bool,
    /// It refuses [`BLOCKED`].
    pub(crate) blocks: bool,
    /// Roots beside the first one, for alternative chains.
    pub(crate) alternate_roots: usize,
    /// The port of the name server that it asks, in place of its own.
    pub(crate) name_server: Option<u16>,
}

/// A port that leads to the authority.
pub(crate) struct AuthorityRelay {
    /// The URL of the directory there. The authority names its other URLs after the host of the request.
    pub(crate) directory: String,
    connections: Arc<AtomicUsize>,
}

impl AuthorityRelay {
    /// How many connections have come.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The management of the DNS server.
pub(crate) struct RecordManagement(u16);

impl RecordManagement {
    /// Changes a record: `set-txt`, `clear-txt`, `set-cname`.
    pub(crate) fn change(&self, action: &str, body: &serde_json::Value) {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--data"])
            .arg(body.to_string())
            .arg(format!("http://127.0.0.1:{}/{action}", self.0))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A name for which the authority issues no certificate.
pub(crate) const BLOCKED: &str = "blocked.example.com";

pub(crate) const EXTERNAL_KEY: &str = "ZWFiLWtleS1vZi10aGlydHktdHdvLWJ5dGVzLSEhISE";

impl Pebble {
    pub(crate) fn start(home: &Home, ports: (u16, u16), options: PebbleOptions) -> Self {
        Self::start_in(home, "pebble", ports, options)
    }

    /// As [`Self::start`], with the files of the authority in this folder.
    pub(crate) fn start_in(
        home: &Home,
        name: &str,
        ports: (u16, u16),
        options: PebbleOptions,
    ) -> Self {
        let folder = home.path(name);
        fs::create_dir(&folder).unwrap();
        let authority = CertificateAuthority::generate();
        let https = authority.ecdsa(&["localhost"]);
        fs::write(folder.join("root.pem"), &authority.pem).unwrap();
        fs::write(folder.join("cert.pem"), &https.pem).unwrap();
        fs::write(folder.join("key.pem"), &https.key).unwrap();
        let [listen, management, dns, dns_management] = [(); 4].map(|()| free_port());
        let blocked = if options.blocks {
            format!("\"{BLOCKED}\"")
        } else {
            // With one, it crashes for names with two labels.
            String::new()
        };
        let config = format!(
            r#"{{"pebble": {{
                "listenAddress": "127.0.0.1:{listen}", "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "cert.pem", "privateKey": "key.pem",
                "httpPort": {}, "tlsPort": {}, "ocspResponderURL": "",
                "externalAccountBindingRequired": {},
                "externalAccountMACKeys": {{ "kid-1": "{EXTERNAL_KEY}" }},
                "retryAfter": {{ "authz": 1, "order": 1 }},
                "keyAlgorithm": "ecdsa", "domainBlocklist": [{blocked}],
                "profiles": {{
                    "default": {{ "description": "three months", "validityPeriod": 7776000 }},
                    "shortlived": {{ "description": "six days", "validityPeriod": 518400 }}
                }}
            }}}}"#,
            ports.0, ports.1, options.external_account
        );
        fs::write(folder.join("pebble.json"), config).unwrap();
        let mut resolver = tool("pebble-challtestsrv");
        resolver.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        for off in ["-http01", "-https01", "-tlsalpn01", "-doh"] {
            resolver.args([off, ""]);
        }
        resolver.args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        resolver.args(["-management", &format!("127.0.0.1:{dns_management}")]);
        let pebble = Self {
            resolver: start(resolver, &folder, "dns.log"),
            authority: Mutex::default(),
            options,
            directory: format!("https://localhost:{listen}/dir"),
            listen,
            management,
            dns,
            dns_management,
            folder,
        };
        wait_until_open(dns_management);
        pebble.resume();
        pebble
    }

    /// Ends the authority. It forgets its accounts, and the root of its certificates.
    pub(crate) fn pause(&self) {
        if let Some(mut authority) = self.authority.lock().unwrap().take() {
            let _ = authority.kill();
            let _ = authority.wait();
        }
    }

    /// Starts the authority, with a new log.
    pub(crate) fn resume(&self) {
        let nonces_refused = if self.options.accepts_nonces {
            "0"
        } else {
            "20"
        };
        let mut pebble = tool("pebble");
        pebble
            .args(["-config", "pebble.json", "-strict"])
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_port())])
            // Some nonces are refused at random: clients have to try again.
            .env("PEBBLE_WFE_NONCEREJECT", nonces_refused)
            .env(
                "PEBBLE_ALTERNATE_ROOTS",
                self.options.alternate_roots.to_string(),
            );
        if self.options.hesitates {
            pebble.env("PEBBLE_VA_SLEEPTIME", "4")
        } else {
            pebble.env("PEBBLE_VA_NOSLEEP", "1")
        };
        let authority = start(pebble, &self.folder, "pebble.log");
        *self.authority.lock().unwrap() = Some(authority);
        for port in [self.listen, self.management] {
            wait_until_open(port);
        }
    }

    /// The keys of `[global]` that name this authority.
    pub(crate) fn keys(&self) -> String {
        format!(
            "acme_agree = true\nacme_provider = \"{}\"\nacme_provider_root = \"pebble/root.pem\"\n\
             acme_folder = \"acme\"\n",
            self.directory,
        ) + &format!("acme_resolver = \"127.0.0.1:{}\"\n", self.dns_port())
    }

    /// The management of its DNS server.
    pub(crate) fn records(&self) -> RecordManagement {
        RecordManagement(self.dns_management)
    }

    /// The port of the DNS server that it asks.
    pub(crate) fn dns_port(&self) -> u16 {
        self.options.name_server.unwrap_or(self.dns)
    }

    /// Passes connections on to the authority from another port, and counts them.
    pub(crate) fn relay(&self) -> AuthorityRelay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let authority = self.listen;
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let server = connect(([127, 0, 0, 1], authority).into());
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        AuthorityRelay {
            directory: format!("https://localhost:{port}/dir"),
            connections,
        }
    }

    /// The URL of its directory.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// Suggests a time of renewal for a certificate, from `start` to `end` (RFC 9773).
    pub(crate) fn suggest_renewal(&self, chain: &str, start: &str, end: &str) {
        let window = json!({ "suggestedWindow": { "start": start, "end": end } });
        let body = json!({ "Certificate": chain, "ARIResponse": window.to_string() });
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--cacert"])
            .arg(self.folder.join("root.pem"))
            .args(["--data", &body.to_string()])
            .arg(format!(
                "https://localhost:{}/set-renewal-info/",
                self.management
            ))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The root that clients of the sites have to trust.
    pub(crate) fn root(&self) -> PathBuf {
        self.root_at(0)
    }

    /// One of several roots.
    pub(crate) fn root_at(&self, number: usize) -> PathBuf {
        let path = self.folder.join(format!("issuer-{number}.pem"));
        let url = format!("https://localhost:{}/roots/{number}", self.management);
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--cacert"])
            .arg(self.folder.join("root.pem"))
            .arg(url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::write(&path, output.stdout).unwrap();
        path
    }

    /// A program that publishes TXT records at the DNS server.
    pub(crate) fn write_hook(&self, path: &Path) {
        let base = format!("http://127.0.0.1:{}", self.dns_management);
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {log}\n\
             case $1 in present) action=set-txt ;; cleanup) action=clear-txt ;; esac\n\
             exec curl --silent --fail --data \"{{\\\"host\\\": \\\"$2.\\\", \\\"value\\\": \\\"$3\\\"}}\" {base}/$action\n",
            log = path.with_extension("log").display()
        );
        fs::write(path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }

    /// What the authority has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("pebble.log")).unwrap()
    }

    /// How many accounts were created.
    pub(crate) fn accounts(&self) -> usize {
        self.log().matches("accounts in memory").count()
    }

    /// How many orders it got.
    pub(crate) fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }

    /// How many requests it got for a step of an order that was created before.
    pub(crate) fn steps(&self) -> usize {
        let log = self.log();
        log.matches("POST /authZ/").count() + log.matches("POST /finalize-order/").count()
    }

    /// The orders that did not become invalid. They do when the authority comes to verify a name while nobody responds.
    pub(crate) fn valid_orders(&self) -> usize {
        let is_invalid =
            |line: &&str| line.contains(" order ") && line.contains(" set INVALID by ");
        self.orders() - self.log().lines().filter(is_invalid).count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.pause();
        let _ = self.resolver.kill();
        let _ = self.resolver.wait();
    }
}

fn start(mut program: Command, folder: &Path, log: &str) -> Child {
    let log = File::create(folder.join(log)).unwrap();
    program
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("`make test` installs pebble into .tools")
}

fn wait_until_open(port: u16) {
    wait_until("the certificate authority", || {
        is_open(([127, 0, 0, 1], port).into())
    });
}

fn tool(name: &str) -> Command {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/bin");
    Command::new(tools.join(name))
}
