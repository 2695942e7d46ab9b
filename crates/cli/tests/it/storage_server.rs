//! Redis and PostgreSQL of Debian's packages, in which machines share their certificates.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageServerKind {
    Redis,
    Postgres,
}

/// A server of a storage, on a Unix socket.
pub(crate) struct StorageServer {
    kind: StorageServerKind,
    process: Child,
    folder: PathBuf,
}

impl StorageServer {
    pub(crate) fn start(kind: StorageServerKind) -> Self {
        // The script removes the folder.
        let folder = tempfile::Builder::new().prefix("apus-db-").tempdir();
        let folder = folder.unwrap().keep();
        // Servers that were started as root run as another user.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/tests/it/sql/serve");
        let name = match kind {
            StorageServerKind::Redis => "redis",
            StorageServerKind::Postgres => "postgres",
        };
        let mut process = Command::new(script)
            .arg(name)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.trim() != "ready" {
            let mut errors = String::new();
            let _ = process.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("`make tools` installs {name}, which does not start:\n{errors}");
        }
        if kind == StorageServerKind::Redis {
            let socket = folder.join("redis.sock");
            fs::set_permissions(socket, Permissions::from_mode(0o777)).unwrap();
        }
        Self {
            kind,
            process,
            folder,
        }
    }

    /// Its address in a configuration.
    pub(crate) fn address(&self) -> String {
        let folder = self.folder.display();
        match self.kind {
            StorageServerKind::Redis => format!("redis+unix://{folder}/redis.sock"),
            StorageServerKind::Postgres => {
                format!("postgres://apus@localhost/postgres?host={folder}")
            }
        }
    }

    /// The reply of Redis to a command.
    fn command(&self, words: &[&str]) -> String {
        let mut client = Command::new("redis-cli");
        client.arg("-s").arg(self.folder.join("redis.sock"));
        Self::output(client.args(words))
    }

    /// What PostgreSQL responds to a statement; nothing if that fails.
    fn statement(&self, text: &str) -> String {
        let mut client = Command::new("psql");
        client.args(["--no-psqlrc", "--quiet", "-At", "-U", "apus", "-h"]);
        Self::output(client.arg(&self.folder).args(["-c", text, "postgres"]))
    }

    fn output(command: &mut Command) -> String {
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A file, or nothing.
    pub(crate) fn file(&self, name: &str) -> String {
        match self.kind {
            StorageServerKind::Redis => self.command(&["GET", &format!("apus:acme:file:{name}")]),
            StorageServerKind::Postgres => self.statement(&format!(
                "SELECT convert_from(bytes, 'UTF8') FROM apus_acme_files WHERE name = '{name}'"
            )),
        }
    }

    /// Replaces a file.
    pub(crate) fn set_file(&self, name: &str, text: &str) {
        match self.kind {
            StorageServerKind::Redis => {
                self.command(&["SET", &format!("apus:acme:file:{name}"), text])
            }
            StorageServerKind::Postgres => self.statement(&format!(
                "UPDATE apus_acme_files SET bytes = convert_to('{text}', 'UTF8') WHERE name = '{name}'"
            )),
        };
        assert_eq!(self.file(name), text);
    }

    /// How many challenges are open.
    pub(crate) fn challenges(&self) -> String {
        match self.kind {
            StorageServerKind::Redis => self.command(&["HLEN", "apus:acme:challenges"]),
            StorageServerKind::Postgres => {
                self.statement("SELECT count(*) FROM apus_acme_challenges")
            }
        }
    }

    /// Ends the time of a lock that somebody has.
    pub(crate) fn expire_lock(&self, name: &str) {
        match self.kind {
            StorageServerKind::Redis => {
                let key = format!("apus:acme:lock:{name}");
                assert_eq!(self.command(&["PEXPIRE", &key, "1"]), "1");
            }
            StorageServerKind::Postgres => {
                let owner = self.statement(&format!(
                    "UPDATE apus_acme_locks SET expires = now() - interval '1 second' \
                     WHERE name = '{name}' AND expires > now() RETURNING owner"
                ));
                assert!(!owner.is_empty());
            }
        }
    }

    /// Ends all sessions of clients, as an administrator does.
    pub(crate) fn end_sessions(&self) {
        match self.kind {
            StorageServerKind::Redis => self.command(&["CLIENT", "KILL", "TYPE", "normal"]),
            StorageServerKind::Postgres => self.statement(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'apus'",
            ),
        };
    }

    pub(crate) fn stop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Drop for StorageServer {
    fn drop(&mut self) {
        self.stop();
    }
}
