//! Accounts: tokens in links and cookies, remembered log-ins, rules of passwords and addresses.

pub use apus_account::*;

#[cfg(feature = "sql")]
impl From<crate::sql::Db> for TokenDatabase {
    fn from(db: crate::sql::Db) -> Self {
        let is_postgres = db.system() == crate::sql::System::Postgres;
        let acquire = move || {
            let db = db.clone();
            Box::pin(async move { db.acquire().await }) as _
        };
        Self::new(acquire, is_postgres)
    }
}
