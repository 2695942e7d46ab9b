//! Users.

use apus::sql::Db;
use apus::sql::sqlx::any::AnyRow;
use apus::sql::sqlx::{self, FromRow, Row};
use serde::{Deserialize, Serialize};

/// A customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: String,
    /// The email address, which is unique.
    pub email: String,
}

/// A new user.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// See [`User::name`].
    pub name: String,
    /// See [`User::email`].
    pub email: String,
}

impl User {
    /// The user with this id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn find(db: &Db, id: i64) -> sqlx::Result<Option<Self>> {
        sqlx::query_as(db.sql("SELECT id, name, email FROM users WHERE id = ?"))
            .bind(id)
            .fetch_optional(db)
            .await
    }

    /// A number of users after this id, in order.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(db: &Db, after: i64, limit: i64) -> sqlx::Result<Vec<Self>> {
        sqlx::query_as(db.sql("SELECT id, name, email FROM users WHERE id > ? ORDER BY id LIMIT ?"))
            .bind(after)
            .bind(limit)
            .fetch_all(db)
            .await
    }

    /// Adds a user; `None` if another one has the email address.
    ///
    /// # Errors
    /// The database failed.
    pub async fn add(db: &Db, new: NewUser) -> sqlx::Result<Option<Self>> {
        // The databases do not agree whether `A@b.c` and `a@b.c` are the same.
        let email = new.email.to_lowercase();
        let added = sqlx::query_scalar(
            db.sql("INSERT INTO users (name, email) VALUES (?, ?) RETURNING id"),
        )
        .bind(&new.name)
        .bind(&email)
        .fetch_one(db)
        .await;
        match added {
            Ok(id) => Ok(Some(Self {
                id,
                name: new.name,
                email,
            })),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FromRow<'_, AnyRow> for User {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            email: row.try_get("email")?,
        })
    }
}
