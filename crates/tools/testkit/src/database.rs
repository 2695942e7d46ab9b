//! PostgreSQL, MariaDB and Redis of Debian's packages, each on a Unix socket in its own folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{ReadyProcess, process_folder};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// Redis.
    Redis,
}

/// A database server that runs until this is dropped.
pub struct DatabaseServer {
    kind: DatabaseKind,
    process: ReadyProcess,
    folder: PathBuf,
}

impl DatabaseServer {
    /// Starts a server without data.
    pub fn start(kind: DatabaseKind) -> Self {
        let folder = process_folder();
        Self {
            kind,
            process: Self::run(kind, &folder),
            folder,
        }
    }

    /// The server of this kind that the tests of a process share.
    pub fn shared(kind: DatabaseKind) -> &'static Self {
        static SERVERS: [OnceLock<DatabaseServer>; 3] = [const { OnceLock::new() }; 3];
        SERVERS[kind as usize].get_or_init(|| Self::start(kind))
    }

    fn run(kind: DatabaseKind, folder: &Path) -> ReadyProcess {
        let name = match kind {
            DatabaseKind::Postgres => "postgres",
            DatabaseKind::MariaDb => "mariadb",
            DatabaseKind::Redis => "redis",
        };
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/serve"));
        ReadyProcess::start(command.arg(name).arg(folder))
    }

    /// Stops it, and removes its data.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again at the same address, without data.
    pub fn restart(&mut self) {
        self.stop();
        self.process = Self::run(self.kind, &self.folder);
    }

    /// The address, with the database that each server has from the start.
    pub fn address(&self) -> String {
        match self.kind {
            DatabaseKind::Postgres => self.address_of("postgres"),
            DatabaseKind::MariaDb => self.address_of("mysql"),
            DatabaseKind::Redis => format!("redis+unix://{}/redis.sock", self.folder.display()),
        }
    }

    fn address_of(&self, database: &str) -> String {
        let folder = self.folder.display();
        match self.kind {
            DatabaseKind::Postgres => format!("postgres://apus@localhost/{database}?host={folder}"),
            DatabaseKind::MariaDb => {
                format!("mysql://root@localhost/{database}?socket={folder}/db.sock")
            }
            DatabaseKind::Redis => panic!("the databases of Redis have no names"),
        }
    }

    /// Creates an empty database, and returns its address.
    pub fn create_database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let charset = match self.kind {
            DatabaseKind::MariaDb => " CHARACTER SET utf8mb4",
            DatabaseKind::Postgres | DatabaseKind::Redis => "",
        };
        let mut client = self.client();
        client.arg(format!("CREATE DATABASE {name}{charset}"));
        let output = client.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        self.address_of(&name)
    }

    /// Its client for the command line, which takes a statement of SQL, or the words of a command of Redis, as arguments.
    pub fn client(&self) -> Command {
        let folder = &self.folder;
        let mut command;
        match self.kind {
            DatabaseKind::Postgres => {
                command = Command::new("psql");
                command.args(["--no-psqlrc", "--quiet", "-At", "-U", "apus"]);
                command.args(["-d", "postgres", "-h"]).arg(folder).arg("-c");
            }
            DatabaseKind::MariaDb => {
                command = Command::new("mariadb");
                command.args(["--no-defaults", "-uroot", "-BN", "-S"]);
                command.arg(folder.join("db.sock")).arg("-e");
            }
            DatabaseKind::Redis => {
                command = Command::new("redis-cli");
                command.arg("-s").arg(folder.join("redis.sock"));
            }
        }
        command
    }
}
