//! A shop with an empty database, on the PostgreSQL and MariaDB of Debian's packages.

use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use apus::mail::Mailer;
use apus::sql::sqlx::{self, AssertSqlSafe};
use apus::sql::{Db, System};
use apus::testing::{TestClient, TestServer};
use apus_example_shop::Services;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A shop with two workers.
pub(crate) struct Shop {
    pub(crate) db: Db,
    pub(crate) server: TestServer,
    pub(crate) mailer: Mailer,
    /// The folder of the pictures, and of the database if it is a file.
    _folder: TempDir,
}

impl Shop {
    /// A shop for each database.
    pub(crate) fn on_each() -> [Self; 3] {
        [System::Sqlite, System::Postgres, System::MySql].map(Self::on)
    }

    pub(crate) fn on(system: System) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = match system {
            System::Sqlite => format!("sqlite:{}", folder.path().join("shop.db").display()),
            _ => fresh(system),
        };
        let db = Db::open(&address).unwrap();
        let mailer = Mailer::open("memory:", "The shop <shop@example.com>").unwrap();
        let services = Services {
            db: db.clone(),
            mailer: mailer.clone(),
            public_url: "https://shop.example".to_owned(),
            pictures: folder.path().join("pictures"),
        };
        let app = apus_example_shop::app(services).unwrap();
        Self {
            db,
            server: TestServer::with_workers(app, 2),
            mailer,
            _folder: folder,
        }
    }

    pub(crate) fn client(&self) -> TestClient {
        self.server.client()
    }

    /// Adds an entry and returns its id.
    pub(crate) fn add(&self, path: &str, value: Value) -> i64 {
        let mut reply = self.client().post(path).json(&value).send();
        reply.assert_status(201);
        reply.json::<Value>()["id"].as_i64().unwrap()
    }

    pub(crate) fn add_product(&self, name: &str, price_cents: i64, stock: i64) -> i64 {
        let product = json!({ "name": name, "price_cents": price_cents, "stock": stock });
        self.add("/products", product)
    }

    pub(crate) fn stock(&self, product: i64) -> i64 {
        let mut reply = self.client().get(&format!("/products/{product}")).send();
        reply.assert_ok().json::<Value>()["stock"].as_i64().unwrap()
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// The address of a new database on a server.
fn fresh(system: System) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static POSTGRES: OnceLock<Server> = OnceLock::new();
    static MARIADB: OnceLock<Server> = OnceLock::new();
    let address = |name: &str| match system {
        System::Postgres => {
            let folder = &POSTGRES.get_or_init(|| Server::start("postgres")).folder;
            format!("postgres://apus@localhost/{name}?host={}", folder.display())
        }
        _ => {
            let folder = &MARIADB.get_or_init(|| Server::start("mariadb")).folder;
            let socket = folder.join("db.sock");
            format!("mysql://root@localhost/{name}?socket={}", socket.display())
        }
    };
    let home = if system == System::Postgres {
        "postgres"
    } else {
        "mysql"
    };
    let name = format!("shop{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let db: Db = Db::open(&address(home)).unwrap();
    block_on(async {
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&db)
            .await
            .unwrap();
        db.close().await;
    });
    address(&name)
}

/// A database server that ends with this process, because its standard input closes.
struct Server {
    folder: PathBuf,
    _child: Child,
}

impl Server {
    fn start(kind: &str) -> Self {
        // The script removes the folder, since a static is never dropped.
        let folder = tempfile::Builder::new().prefix("apus-shop-").tempdir();
        let folder = folder.unwrap().keep();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/web/tests/it/sql/serve"
        );
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
        Self {
            folder,
            _child: child,
        }
    }
}
