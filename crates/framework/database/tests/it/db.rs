//! `Db`: its address, its types and its pools.

use apus_database::sqlx::{self, Connection};
use apus_database::{Db, DbError};
use apus_handler::{HandlerService, Json, Query, Result, State};
use apus_testkit::{EmptyDatabase, LocalClient, Reply, ask, block_on, get};
use serde::{Deserialize, Serialize};

use crate::harness::{migrations, open};

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

#[test]
fn handlers_run_statements_on_each_database_by_its_address() {
    #[derive(Deserialize)]
    struct UserId {
        id: i64,
    }
    let find = async |State(users): State<Users>,
                      Query(UserId { id }): Query<UserId>|
           -> Result<Option<Json<User>>> { Ok(users.find(id).await?.map(Json)) };
    let add = async |State(users): State<Users>, name: String| -> Result<Json<i64>> {
        Ok(Json(users.add(&name).await?))
    };
    let migrations = migrations();
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        db.migrate(migrations.path()).unwrap();
        let users = Users(db);
        let find = HandlerService::new(find).state(users.clone());
        let add = LocalClient::of(&HandlerService::new(add).state(users));
        let worker = LocalClient::of(&find);
        assert_eq!(
            serde_json::from_slice::<User>(&worker.send(get("/?id=1")).content).unwrap(),
            User {
                id: 1,
                name: "Apus apus".to_owned(),
            }
        );
        let id = add.send(ask("POST", "/").body("Łukasz's ?"));
        let target = format!("/?id={}", id.text());
        let is_found = |reply: Reply| {
            let user: User = serde_json::from_slice(&reply.content).unwrap();
            assert_eq!(user.name, "Łukasz's ?", "{}", fresh.address);
        };
        is_found(worker.send(get(&target)));
        // Another worker has its own connections.
        std::thread::scope(|scope| {
            scope.spawn(|| is_found(LocalClient::of(&find).send(get(&target))));
        });
        assert_eq!(worker.send(get("/?id=99")).status, 404);
    }
}

#[test]
fn errors_name_the_address_without_its_password() {
    for address in ["shop.db", "oracle://a", "sqlite::memory:"] {
        let error = Db::<sqlx::Any>::open(address).unwrap_err();
        assert!(matches!(error, DbError::Address { .. }), "{error:?}");
        assert!(error.to_string().contains(address), "{error}");
    }
    let db: Db = Db::open("postgres://me:secret@127.0.0.1:1/none").unwrap();
    let error = db.migrate(migrations().path()).unwrap_err();
    assert!(matches!(error, DbError::Unreachable { .. }), "{error:?}");
    for text in [error.to_string(), format!("{error:?}"), format!("{db:?}")] {
        assert!(
            text.contains("127.0.0.1:1") && !text.contains("secret"),
            "{text}"
        );
    }
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let migrations = migrations();
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        db.migrate(migrations.path()).unwrap();
        let count = block_on(async {
            let insert = "INSERT INTO users (name) VALUES (?)";
            let mut connection = db.acquire().await.unwrap();
            let mut one = connection.begin().await.unwrap();
            sqlx::query(db.sql(insert))
                .bind("kept")
                .execute(&mut *one)
                .await
                .unwrap();
            one.commit().await.unwrap();
            let mut other = connection.begin().await.unwrap();
            sqlx::query(db.sql(insert))
                .bind("lost")
                .execute(&mut *other)
                .await
                .unwrap();
            drop(other);
            drop(connection);
            sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM users")
                .fetch_one(&db)
                .await
                .unwrap()
        });
        assert_eq!(count, 2, "{}", fresh.address);
    }
}
