//! Servers for tests: PostgreSQL, MariaDB and Redis of Debian's packages.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use apus::sql::sqlx::{self, AssertSqlSafe};
use apus::sql::{Db, Driver, System};

use apus_testkit::block_on;

/// A server that runs until this is dropped.
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// Starts a server of this kind.
    pub(crate) fn start(kind: &str) -> Self {
        // The script removes the folder, since the servers that all tests share are never dropped.
        let folder = tempfile::Builder::new().prefix("apus-db-").tempdir();
        let folder = folder.unwrap().keep();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sql/serve");
        let mut child = Command::new(script)
            .arg(kind)
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.trim() != "ready" {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("run `make tools`; {kind} does not start:\n{errors}");
        }
        Self { child, folder }
    }

    pub(crate) fn redis_address(&self) -> String {
        format!("redis+unix://{}/redis.sock", self.folder.display())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The Redis server that all tests share.
pub(crate) fn redis() -> &'static Running {
    static REDIS: OnceLock<Running> = OnceLock::new();
    REDIS.get_or_init(|| Running::start("redis"))
}

fn postgres() -> &'static Running {
    static POSTGRES: OnceLock<Running> = OnceLock::new();
    POSTGRES.get_or_init(|| Running::start("postgres"))
}

fn mariadb() -> &'static Running {
    static MARIADB: OnceLock<Running> = OnceLock::new();
    MARIADB.get_or_init(|| Running::start("mariadb"))
}

/// A new, empty database.
pub(crate) struct Fresh {
    pub(crate) address: String,
    /// The folder of a database file.
    _folder: Option<tempfile::TempDir>,
}

impl Fresh {
    pub(crate) fn of(system: System) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fresh{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let address = |name: &str| match system {
            System::Postgres => {
                let folder = postgres().folder.display();
                format!("postgres://apus@localhost/{name}?host={folder}")
            }
            _ => {
                let folder = mariadb().folder.display();
                format!("mysql://root@localhost/{name}?socket={folder}/db.sock")
            }
        };
        if system == System::Sqlite {
            let folder = tempfile::tempdir().unwrap();
            let address = format!("sqlite:{}", folder.path().join("test.db").display());
            return Self {
                address,
                _folder: Some(folder),
            };
        }
        let (default_database, charset) = match system {
            System::Postgres => ("postgres", ""),
            _ => ("mysql", "CHARACTER SET utf8mb4"),
        };
        let db: Db = Db::open(&address(default_database)).unwrap();
        block_on(async {
            sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name} {charset}")))
                .execute(&db)
                .await
                .unwrap();
            db.close().await;
        });
        Self {
            address: address(&name),
            _folder: None,
        }
    }

    /// A database of each system.
    pub(crate) fn of_each() -> [Self; 3] {
        [System::Sqlite, System::Postgres, System::MySql].map(Self::of)
    }

    pub(crate) fn db(&self) -> Db {
        Db::open(&self.address).unwrap()
    }

    /// The same by a driver of its system.
    pub(crate) fn typed<D: Driver>(&self) -> Db<D> {
        Db::open(&self.address).unwrap()
    }
}
