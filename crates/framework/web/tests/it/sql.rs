//! Databases as the state of an application.

use std::fs;
use std::time::{Duration, Instant};

use apus::sql::sqlx;
use apus::sql::{Db, System, Tx};
use apus::testing::{TestClient, TestServer};
use apus::{App, Json, Path, State, StatusCode};
use apus_testkit::EmptyDatabase;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
struct User {
    id: i64,
    name: String,
}

/// The SQL statements of the application.
#[derive(Clone)]
struct Users(Db);

impl Users {
    async fn find(&self, id: i64) -> sqlx::Result<Option<User>> {
        sqlx::query_as(self.0.sql("SELECT id, name FROM users WHERE id = ?"))
            .bind(id)
            .fetch_optional(&self.0)
            .await
    }

    async fn add(&self, name: &str) -> sqlx::Result<i64> {
        sqlx::query_scalar(
            self.0
                .sql("INSERT INTO users (name) VALUES (?) RETURNING id"),
        )
        .bind(name)
        .fetch_one(&self.0)
        .await
    }
}

fn app(db: Db) -> App {
    App::new()
        .state(Users(db))
        .get(
            "/users/{id}",
            async |State(users): State<Users>, Path(id): Path<i64>| -> apus::Result<_> {
                Ok(users.find(id).await?.map(Json))
            },
        )
        .post(
            "/users",
            async |State(users): State<Users>, name: String| -> apus::Result<_> {
                let id = users.add(&name).await?;
                Ok((StatusCode::CREATED, id.to_string()))
            },
        )
}

/// A table with a first row, for each system.
fn migrations(db: &Db) -> tempfile::TempDir {
    let id = match db.system() {
        System::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
        System::Postgres => "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        System::MySql => "BIGINT AUTO_INCREMENT PRIMARY KEY",
    };
    let folder = tempfile::tempdir().unwrap();
    let users = format!(
        "CREATE TABLE users (id {id}, name VARCHAR(80) NOT NULL);
        INSERT INTO users (name) VALUES ('Apus apus');"
    );
    fs::write(folder.path().join("0001_users.sql"), users).unwrap();
    folder
}

#[test]
fn an_application_runs_on_each_database_by_its_address() {
    for fresh in EmptyDatabase::of_each() {
        let db: Db = Db::open(&fresh.address).unwrap();
        db.migrate(migrations(&db).path()).unwrap();
        let server = TestServer::with_workers(app(db), 2);
        let client = server.client();
        client.get("/users/1").send().assert_json(User {
            id: 1,
            name: "Apus apus".to_owned(),
        });
        let id = client
            .post("/users")
            .body("Łukasz's ?")
            .send()
            .assert_status(201)
            .text();
        for _ in 0..4 {
            // New connections reach both workers sooner or later.
            let mut reply = server.client().get(&format!("/users/{id}")).send();
            assert_eq!(reply.json::<User>().name, "Łukasz's ?", "{}", fresh.address);
        }
        client.get("/users/99").send().assert_status(404);
    }
}

async fn count(State(db): State<Db>) -> apus::Result<String> {
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM users")
        .fetch_one(&db)
        .await?;
    Ok(count.to_string())
}

#[test]
fn a_handler_whose_database_is_down_responds_503_at_once() {
    for address in [
        "postgres://me@127.0.0.1:1/none",
        "mysql://me@127.0.0.1:1/none",
    ] {
        let db: Db = Db::open(address).unwrap();
        let app = App::new().state(db.acquire_timeout(Duration::from_secs(300)));
        let client = TestClient::new(app.get("/", count));
        let started = Instant::now();
        let mut response = client.get("/").send();
        response
            .assert_status(503)
            .assert_header("retry-after", "5");
        assert!(started.elapsed() < Duration::from_secs(60), "{address}");
    }
}

#[test]
fn a_handler_with_a_transaction_needs_the_layer() {
    let app = App::new().post("/", async |_: Tx| "");
    let error = app.check().unwrap_err().to_string();
    assert!(
        error.contains("no layer `Transactions` is around it"),
        "{error}"
    );
}
