//! Users and their notes: all SQL is here.

use apus::sql::Db;
use apus::sql::sqlx;
use serde::{Deserialize, Serialize};

/// A registered user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) id: i64,
    pub(crate) name: String,
}

/// All registered users.
#[derive(Clone)]
pub(crate) struct Users(Db);

impl Users {
    pub(crate) fn new(db: Db) -> Self {
        Self(db)
    }

    /// Adds a user; `None` if the name is taken.
    pub(crate) async fn add(&self, name: &str, password: &str) -> sqlx::Result<Option<User>> {
        let insert = "INSERT INTO users (name, password, note) VALUES (?, ?, '') RETURNING id";
        let added = sqlx::query_scalar(self.0.sql(insert))
            .bind(name)
            .bind(password)
            .fetch_one(&self.0)
            .await;
        match added {
            Ok(id) => Ok(Some(User {
                id,
                name: name.to_owned(),
            })),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The user with this name, and the hash of the password.
    pub(crate) async fn by_name(&self, name: &str) -> sqlx::Result<Option<(User, String)>> {
        let select = "SELECT id, name, password FROM users WHERE name = ?";
        let row: Option<(i64, String, String)> = sqlx::query_as(self.0.sql(select))
            .bind(name)
            .fetch_optional(&self.0)
            .await?;
        Ok(row.map(|(id, name, password)| (User { id, name }, password)))
    }

    pub(crate) async fn note(&self, id: i64) -> sqlx::Result<String> {
        sqlx::query_scalar(self.0.sql("SELECT note FROM users WHERE id = ?"))
            .bind(id)
            .fetch_one(&self.0)
            .await
    }

    pub(crate) async fn write(&self, id: i64, text: &str) -> sqlx::Result<()> {
        sqlx::query(self.0.sql("UPDATE users SET note = ? WHERE id = ?"))
            .bind(text)
            .bind(id)
            .execute(&self.0)
            .await?;
        Ok(())
    }
}
