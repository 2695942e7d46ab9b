//! Members, who are users with a password: all their SQL.

use apus::account::EmailAddress;
use apus::sql::{Db, sqlx};
use serde::Serialize;

/// A user who can log in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Member {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// In lower case.
    pub(crate) email: String,
    /// The hash of the password; `None` until the address is confirmed.
    #[serde(skip)]
    pub(crate) password: Option<String>,
    /// Counts the passwords: a session of an older one has ended.
    #[serde(skip)]
    pub(crate) generation: i64,
}

type Row = (i64, String, String, Option<String>, i64);

impl From<Row> for Member {
    fn from((id, name, email, password, generation): Row) -> Self {
        Self {
            id,
            name,
            email,
            password,
            generation,
        }
    }
}

/// All members.
#[derive(Clone)]
pub(crate) struct Members(Db);

impl Members {
    pub(crate) fn new(db: Db) -> Self {
        Self(db)
    }

    /// The member with this id.
    pub(crate) async fn find(&self, id: i64) -> sqlx::Result<Option<Member>> {
        let select = "SELECT id, name, email, password, generation FROM users WHERE id = ?";
        let row: Option<Row> = sqlx::query_as(self.0.sql(select))
            .bind(id)
            .fetch_optional(&self.0)
            .await?;
        Ok(row.map(Member::from))
    }

    /// The member with this address.
    pub(crate) async fn by_email(&self, email: &EmailAddress) -> sqlx::Result<Option<Member>> {
        let select = "SELECT id, name, email, password, generation FROM users WHERE email = ?";
        let row: Option<Row> = sqlx::query_as(self.0.sql(select))
            .bind(email.as_str())
            .fetch_optional(&self.0)
            .await?;
        Ok(row.map(Member::from))
    }

    /// The member with this address, who is added without a password if there is none.
    pub(crate) async fn sign_up(&self, email: &EmailAddress) -> sqlx::Result<Option<Member>> {
        if let Some(member) = self.by_email(email).await? {
            return Ok(Some(member));
        }
        let name = email.as_str().split('@').next().unwrap_or("");
        let insert = "INSERT INTO users (name, email) VALUES (?, ?)";
        let added = sqlx::query(self.0.sql(insert))
            .bind(name)
            .bind(email.as_str())
            .execute(&self.0)
            .await;
        match added {
            Ok(_) => {}
            // Another request was faster.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
            Err(error) => return Err(error),
        }
        self.by_email(email).await
    }

    /// Sets the hash of a password. All sessions of the member end. Returns the new generation.
    pub(crate) async fn set_password(&self, member: &Member, hash: &str) -> sqlx::Result<i64> {
        let update = "UPDATE users SET password = ?, generation = generation + 1 WHERE id = ?";
        sqlx::query(self.0.sql(update))
            .bind(hash)
            .bind(member.id)
            .execute(&self.0)
            .await?;
        let changed = self.find(member.id).await?;
        Ok(changed.map_or(member.generation, |member| member.generation))
    }
}
