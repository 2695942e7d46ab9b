//! Redis and PostgreSQL, in which machines share their certificates.

use std::process::Command;

use apus_testkit::{DatabaseKind, DatabaseServer};

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageServerKind {
    Redis,
    Postgres,
}

/// A server of a storage, on a Unix socket.
pub(crate) struct StorageServer {
    kind: StorageServerKind,
    server: DatabaseServer,
}

impl StorageServer {
    pub(crate) fn start(kind: StorageServerKind) -> Self {
        Self {
            kind,
            server: DatabaseServer::start(match kind {
                StorageServerKind::Redis => DatabaseKind::Redis,
                StorageServerKind::Postgres => DatabaseKind::Postgres,
            }),
        }
    }

    /// Its address in a configuration.
    pub(crate) fn address(&self) -> String {
        self.server.address()
    }

    /// The reply of Redis to a command; nothing if that fails.
    fn command(&self, words: &[&str]) -> String {
        Self::output(self.server.client().args(words))
    }

    /// What PostgreSQL responds to a statement; nothing if that fails.
    fn statement(&self, text: &str) -> String {
        Self::output(self.server.client().arg(text))
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
        self.server.stop();
    }
}
