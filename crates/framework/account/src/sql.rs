//! `SqlTokens`: tokens in a table of an SQL database.

use std::fmt;
use std::sync::Arc;

use apus_database::{Db, sqlx};
use sqlx::Row;
use sqlx::any::AnyRow;
use tokio::sync::OnceCell;

use crate::store::{AccountTokenStore, StoredToken, TokenError, TokenFuture};

/// Keeps tokens in the table `apus_tokens`, which it creates if it is missing.
#[derive(Clone)]
pub struct SqlTokens {
    db: Db,
    is_made: Arc<OnceCell<()>>,
}

/// The statement that creates the table, for every database. The digest is no `CHAR`, which the `Any` driver of sqlx does
/// not read from PostgreSQL.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS apus_tokens (digest VARCHAR(64) NOT NULL PRIMARY KEY, \
     purpose VARCHAR(40) NOT NULL, account BIGINT NOT NULL, note VARCHAR(500) NOT NULL, \
     issued BIGINT NOT NULL, expires BIGINT NOT NULL)";

impl SqlTokens {
    /// Tokens in a database.
    pub fn new(db: Db) -> Self {
        Self {
            db,
            is_made: Arc::default(),
        }
    }

    /// The database, once the table exists.
    async fn db(&self) -> Result<&Db, TokenError> {
        let make = async || {
            let made = sqlx::query(TABLE).execute(&self.db).await;
            match made {
                Ok(_) => Ok(()),
                // Another process created it, or this account is not allowed to.
                Err(error) => sqlx::query("SELECT digest FROM apus_tokens WHERE 1 = 0")
                    .fetch_optional(&self.db)
                    .await
                    .map(|_| ())
                    .map_err(|_| TokenError::new(error)),
            }
        };
        self.is_made.get_or_try_init(make).await?;
        Ok(&self.db)
    }
}

impl AccountTokenStore for SqlTokens {
    fn insert<'a>(&'a self, token: &'a StoredToken) -> TokenFuture<'a, ()> {
        Box::pin(async move {
            let statement = "INSERT INTO apus_tokens (digest, purpose, account, note, issued, expires) \
                             VALUES (?, ?, ?, ?, ?, ?)";
            sqlx::query(self.db.sql(statement))
                .bind(&token.digest)
                .bind(&token.purpose)
                .bind(token.account)
                .bind(token.note.chars().take(500).collect::<String>())
                .bind(number(token.issued))
                .bind(number(token.expires))
                .execute(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            Ok(())
        })
    }

    fn find<'a>(&'a self, digest: &'a str, now: u64) -> TokenFuture<'a, Option<StoredToken>> {
        Box::pin(async move {
            let statement = "SELECT digest, purpose, account, note, issued, expires FROM apus_tokens \
                             WHERE digest = ? AND expires > ?";
            let row = sqlx::query(self.db.sql(statement))
                .bind(digest)
                .bind(number(now))
                .fetch_optional(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            row.as_ref().map(stored).transpose()
        })
    }

    fn remove<'a>(&'a self, digest: &'a str) -> TokenFuture<'a, bool> {
        Box::pin(async move {
            let removed = sqlx::query(self.db.sql("DELETE FROM apus_tokens WHERE digest = ?"))
                .bind(digest)
                .execute(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            Ok(removed.rows_affected() == 1)
        })
    }

    fn remove_of<'a>(&'a self, purpose: &'a str, account: i64) -> TokenFuture<'a, ()> {
        Box::pin(async move {
            let statement = "DELETE FROM apus_tokens WHERE purpose = ? AND account = ?";
            sqlx::query(self.db.sql(statement))
                .bind(purpose)
                .bind(account)
                .execute(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            Ok(())
        })
    }

    fn of<'a>(
        &'a self,
        purpose: &'a str,
        account: i64,
        now: u64,
    ) -> TokenFuture<'a, Vec<StoredToken>> {
        Box::pin(async move {
            let statement = "SELECT digest, purpose, account, note, issued, expires FROM apus_tokens \
                             WHERE purpose = ? AND account = ? AND expires > ? ORDER BY issued DESC";
            let rows = sqlx::query(self.db.sql(statement))
                .bind(purpose)
                .bind(account)
                .bind(number(now))
                .fetch_all(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            rows.iter().map(stored).collect()
        })
    }

    fn sweep(&self, now: u64) -> TokenFuture<'_, ()> {
        Box::pin(async move {
            sqlx::query(self.db.sql("DELETE FROM apus_tokens WHERE expires <= ?"))
                .bind(number(now))
                .execute(self.db().await?)
                .await
                .map_err(TokenError::new)?;
            Ok(())
        })
    }
}

fn stored(row: &AnyRow) -> Result<StoredToken, TokenError> {
    let read = || {
        Ok(StoredToken {
            digest: row.try_get(0)?,
            purpose: row.try_get(1)?,
            account: row.try_get(2)?,
            note: row.try_get(3)?,
            issued: row.try_get::<i64, _>(4)?.unsigned_abs(),
            expires: row.try_get::<i64, _>(5)?.unsigned_abs(),
        })
    };
    read().map_err(|error: sqlx::Error| TokenError::new(error))
}

/// Converts to the integer type of databases.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl fmt::Debug for SqlTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTokens").finish_non_exhaustive()
    }
}
