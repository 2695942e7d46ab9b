//! A shop with an empty database, on the PostgreSQL and MariaDB of Debian's packages.

use apus::mail::Mailer;
use apus::sql::{Db, System};
use apus::testing::{TestClient, TestServer};
use apus_example_shop::Services;
use apus_testkit::{DatabaseKind, DatabaseServer, may_start_servers};
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
    /// A shop for each database that the tests may start.
    pub(crate) fn on_each() -> Vec<Self> {
        let mut systems = vec![System::Sqlite];
        if may_start_servers() {
            systems.extend([System::Postgres, System::MySql]);
        }
        systems.into_iter().map(Self::on).collect()
    }

    /// A shop for a test in which the database has no part.
    pub(crate) fn on_any() -> Self {
        Self::on(System::Sqlite)
    }

    pub(crate) fn on(system: System) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = match system {
            System::Sqlite => format!("sqlite:{}", folder.path().join("shop.db").display()),
            System::Postgres => DatabaseServer::shared(DatabaseKind::Postgres).create_database(),
            System::MySql => DatabaseServer::shared(DatabaseKind::MariaDb).create_database(),
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
