//! How migrations run: which of them are pending, one process at a time, and where one fails.

use std::collections::HashMap;
use std::time::Instant;

use apus_tokens::Hexadecimal;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

use super::Migrations;
use super::files::{self, MigrationFile, MigrationFiles, SqlFile};
use super::lock::MigrationLock;
use crate::db::Db;
use crate::driver::{Driver, System};
use crate::error::DbError;

/// The table of the migrations that ran.
const TABLE: &str = "_sqlx_migrations";

/// A migration, and whether it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub number: i64,
    /// The name of its file; empty if that is missing.
    pub name: String,
    /// Whether it ran.
    pub state: MigrationState,
}

/// The state of a migration in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// It ran.
    Applied,
    /// It did not run yet.
    Pending,
    /// It ran, and its file was changed afterwards.
    Changed,
    /// It ran, and there is no file of it.
    Missing,
    /// It failed after some of its statements, which MariaDB cannot roll back.
    Failed,
}

impl MigrationState {
    /// The word for it: `applied`, `pending`, `changed`, `missing` or `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Pending => "pending",
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

/// What the table says.
#[derive(Default)]
struct AppliedMigrations {
    checksums: HashMap<i64, Vec<u8>>,
    failed: Option<i64>,
}

impl<D: Driver> Db<D> {
    /// Runs the migrations that did not run yet, in the order of their numbers, from a folder by its path, or from
    /// [`migrations!`](crate::migrations!). While they run, no other process migrates this database.
    ///
    /// It blocks until they have run, so call it before the workers start.
    ///
    /// # Errors
    /// The database cannot be reached; an SQL file has no number, has the number of another one, or is beside the
    /// folder of the system; a file cannot be read; a statement fails, which is told with file and line; or
    /// a migration that ran before has changed or is missing.
    pub fn migrate(&self, migrations: impl Into<Migrations>) -> Result<(), DbError> {
        for migration in self.apply_pending(&migrations.into())? {
            tracing::info!(migration, "a migration has run");
        }
        Ok(())
    }

    /// Undoes the migrations that ran last, the latest one first, and returns the names of their files.
    ///
    /// # Errors
    /// One of them has no file that undoes it, and then none is undone; or as [`Db::migrate`].
    pub fn rollback(
        &self,
        migrations: impl Into<Migrations>,
        steps: usize,
    ) -> Result<Vec<String>, DbError> {
        let migrations = migrations.into();
        let files = self.files(&migrations)?;
        self.apart(async || {
            let (mut connection, _lock) = self.connect_locked(&migrations).await?;
            let undone = self.to_undo(&mut connection, &migrations, &files, steps);
            let undone = undone.await?;
            for (file, down) in &undone {
                self.undo(&mut connection, file, down).await?;
            }
            let _ = connection.close().await;
            Ok(undone
                .iter()
                .map(|(file, _)| file.name().to_owned())
                .collect())
        })
    }

    /// The migrations, in the order of their numbers, and whether they ran.
    ///
    /// # Errors
    /// The files are not valid, or the database cannot be reached.
    pub fn migration_status(
        &self,
        migrations: impl Into<Migrations>,
    ) -> Result<Vec<MigrationStatus>, DbError> {
        let migrations = migrations.into();
        let files = self.files(&migrations)?;
        self.apart(async || {
            let mut connection = self.connect().await?;
            let applied = self.applied(&mut connection, &migrations).await?;
            let _ = connection.close().await;
            let state = |file: &MigrationFile| match applied.checksums.get(&file.number) {
                _ if applied.failed == Some(file.number) => MigrationState::Failed,
                None => MigrationState::Pending,
                Some(checksum) if *checksum == *self.migration(file).checksum => {
                    MigrationState::Applied
                }
                Some(_) => MigrationState::Changed,
            };
            let mut all: Vec<_> = files
                .iter()
                .map(|file| MigrationStatus {
                    number: file.number,
                    name: file.name().to_owned(),
                    state: state(file),
                })
                .collect();
            let missing = applied
                .checksums
                .keys()
                .filter(|number| files.get(**number).is_none());
            all.extend(missing.map(|number| MigrationStatus {
                number: *number,
                name: String::new(),
                state: MigrationState::Missing,
            }));
            all.sort_by_key(|status| status.number);
            Ok(all)
        })
    }

    /// Runs the pending migrations, and returns the names of their files.
    pub(crate) fn apply_pending(&self, migrations: &Migrations) -> Result<Vec<String>, DbError> {
        let files = self.files(migrations)?;
        self.apart(async || {
            let (mut connection, _lock) = self.connect_locked(migrations).await?;
            let failed = |cause| self.failed(migrations.place(), cause);
            let migrator = D::migrator(&mut connection);
            migrator
                .ensure_migrations_table(TABLE)
                .await
                .map_err(failed)?;
            let applied = self.applied(&mut connection, migrations).await?;
            self.check_applied(&applied, &files).map_err(failed)?;
            let mut names = Vec::new();
            for file in files.iter() {
                if !applied.checksums.contains_key(&file.number) {
                    self.apply(&mut connection, file).await?;
                    names.push(file.name().to_owned());
                }
            }
            // The migrations are done; an error on closing does not matter.
            let _ = connection.close().await;
            Ok(names)
        })
    }

    /// The texts of the pending migrations with the paths of their files.
    pub(crate) fn pending(
        &self,
        migrations: &Migrations,
    ) -> Result<Vec<(String, String)>, DbError> {
        let files = self.files(migrations)?;
        self.apart(async || {
            let mut connection = self.connect().await?;
            let applied = self.applied(&mut connection, migrations).await?;
            let _ = connection.close().await;
            self.check_applied(&applied, &files)
                .map_err(|cause| self.failed(migrations.place(), cause))?;
            let pending = files.iter();
            let pending = pending.filter(|file| !applied.checksums.contains_key(&file.number));
            Ok(pending
                .map(|file| (file.up.path.clone(), file.up.text.clone()))
                .collect())
        })
    }

    /// The texts that would undo the last migrations with the paths of their files.
    pub(crate) fn undoing(
        &self,
        migrations: &Migrations,
        steps: usize,
    ) -> Result<Vec<(String, String)>, DbError> {
        let files = self.files(migrations)?;
        self.apart(async || {
            let mut connection = self.connect().await?;
            let undone = self.to_undo(&mut connection, migrations, &files, steps);
            let undone = undone.await?;
            let _ = connection.close().await;
            let texts = undone.into_iter().map(|(_, down)| (down.path, down.text));
            Ok(texts.collect())
        })
    }

    /// Like [`Db::migrate`], with migrations that `sqlx::migrate!` embedded in the program.
    ///
    /// # Errors
    /// As [`Db::migrate`].
    pub fn migrate_with(&self, migrator: &Migrator) -> Result<(), DbError> {
        self.apart(async || {
            let mut connection = self.connect().await?;
            let result = D::migrate(&mut connection, migrator).await;
            let _ = connection.close().await;
            result.map_err(|cause| self.failed("the program".to_owned(), cause))
        })
    }

    fn files(&self, migrations: &Migrations) -> Result<MigrationFiles, DbError> {
        let files = migrations.files(self.system());
        files.map_err(|error| DbError::MigrationFiles {
            problem: error.to_string(),
        })
    }

    fn failed(&self, from: String, cause: MigrateError) -> DbError {
        DbError::Migration {
            from,
            address: self.shown().to_owned(),
            cause: Box::new(cause),
        }
    }

    /// A connection, and the right to migrate as long as both exist.
    async fn connect_locked(
        &self,
        migrations: &Migrations,
    ) -> Result<(D::Connection, Option<MigrationLock>), DbError> {
        let mut connection = self.connect().await?;
        let failed = |cause| self.failed(migrations.place(), cause);
        let lock = match (self.system(), self.file()) {
            (System::Sqlite, Some(file)) => {
                let lock = MigrationLock::of(file);
                let lock = lock.map_err(|error| failed(sqlx::Error::Io(error).into()))?;
                Some(lock)
            }
            (System::Sqlite, None) => None,
            (System::Postgres, _) => {
                let locked = D::migrator(&mut connection).lock().await;
                locked.map_err(failed)?;
                None
            }
            // sqlx's lock has a negative time-out, which MariaDB does not take as an endless one.
            (System::MySql, _) => {
                let lock = "SELECT GET_LOCK(CONCAT('apus.', MD5(DATABASE())), 31536000)";
                let locked = D::run(&mut connection, lock).await;
                locked.map_err(|error| failed(error.into()))?;
                None
            }
        };
        Ok((connection, lock))
    }

    /// The migrations that ran; none if the table does not exist.
    async fn applied(
        &self,
        connection: &mut D::Connection,
        migrations: &Migrations,
    ) -> Result<AppliedMigrations, DbError> {
        let probe = "SELECT version FROM _sqlx_migrations WHERE 1 = 0";
        if D::run(connection, probe).await.is_err() {
            return Ok(AppliedMigrations::default());
        }
        let failed = |cause| self.failed(migrations.place(), cause);
        let migrator = D::migrator(connection);
        let applied = migrator.list_applied_migrations(TABLE).await;
        let applied = applied.map_err(failed)?.into_iter();
        Ok(AppliedMigrations {
            checksums: applied
                .map(|one| (one.version, one.checksum.into_owned()))
                .collect(),
            failed: migrator.dirty_version(TABLE).await.map_err(failed)?,
        })
    }

    /// Whether the files are still those that ran.
    fn check_applied(
        &self,
        applied: &AppliedMigrations,
        files: &MigrationFiles,
    ) -> Result<(), MigrateError> {
        if let Some(number) = applied.failed {
            return Err(MigrateError::Dirty(number));
        }
        for (number, checksum) in &applied.checksums {
            let Some(file) = files.get(*number) else {
                return Err(MigrateError::VersionMissing(*number));
            };
            if *checksum != *self.migration(file).checksum {
                return Err(MigrateError::VersionMismatch(*number));
            }
        }
        Ok(())
    }

    /// The last migrations with the files that undo them, the latest one first.
    async fn to_undo(
        &self,
        connection: &mut D::Connection,
        migrations: &Migrations,
        files: &MigrationFiles,
        steps: usize,
    ) -> Result<Vec<(MigrationFile, SqlFile)>, DbError> {
        let applied = self.applied(connection, migrations).await?;
        let mut numbers: Vec<i64> = applied.checksums.into_keys().collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let mut undone = Vec::new();
        for number in numbers.into_iter().take(steps) {
            let Some(file) = files.get(number) else {
                let missing = MigrateError::VersionMissing(number);
                return Err(self.failed(migrations.place(), missing));
            };
            let Some(down) = file.down.clone() else {
                let name = file.up.path.strip_suffix(".sql").unwrap_or(&file.up.path);
                let name = name.strip_suffix(".up").unwrap_or(name);
                return Err(DbError::MigrationFiles {
                    problem: format!(
                        "{} cannot be undone, since there is no {name}.down.sql",
                        file.up.path
                    ),
                });
            };
            undone.push((file.clone(), down));
        }
        Ok(undone)
    }

    fn migration(&self, file: &MigrationFile) -> Migration {
        Self::migration_of(file, &file.up.text)
    }

    fn migration_of(file: &MigrationFile, text: &str) -> Migration {
        Migration::new(
            file.number,
            file.description().into(),
            MigrationType::Simple,
            AssertSqlSafe(text.to_owned()).into_sql_str(),
            is_without_transaction(text),
        )
    }

    async fn apply(
        &self,
        connection: &mut D::Connection,
        file: &MigrationFile,
    ) -> Result<(), DbError> {
        let migration = self.migration(file);
        if self.system() == System::MySql {
            let text = migration
                .description
                .replace('\\', r"\\")
                .replace('\'', "''");
            let checksum = Hexadecimal(&migration.checksum);
            let number = file.number;
            let before = format!(
                "INSERT INTO {TABLE} (version, description, success, checksum, execution_time) \
                 VALUES ({number}, '{text}', FALSE, X'{checksum}', -1)"
            );
            return self.run_counted(connection, file, &file.up, &before, &|took| {
                format!(
                    "UPDATE {TABLE} SET success = TRUE, execution_time = {took} WHERE version = {number}"
                )
            })
            .await;
        }
        let applied = D::migrator(connection).apply(TABLE, &migration).await;
        match applied {
            Ok(_) => Ok(()),
            Err(cause) => Err(self.failed_at(&file.up, cause, None).await),
        }
    }

    async fn undo(
        &self,
        connection: &mut D::Connection,
        file: &MigrationFile,
        down: &SqlFile,
    ) -> Result<(), DbError> {
        let number = file.number;
        if self.system() == System::MySql {
            let before = format!("UPDATE {TABLE} SET success = FALSE WHERE version = {number}");
            let after = |_| format!("DELETE FROM {TABLE} WHERE version = {number}");
            return self
                .run_counted(connection, file, down, &before, &after)
                .await;
        }
        let migration = Self::migration_of(file, &down.text);
        match D::migrator(connection).revert(TABLE, &migration).await {
            Ok(_) => Ok(()),
            Err(cause) => Err(self.failed_at(down, cause, None).await),
        }
    }

    /// Runs a file of MariaDB, which commits at each statement that changes a table, between two statements on the table
    /// of migrations. It counts the statements that ran, and so knows the one that failed.
    async fn run_counted(
        &self,
        connection: &mut D::Connection,
        file: &MigrationFile,
        sql: &SqlFile,
        before: &str,
        after: &dyn Fn(u128) -> String,
    ) -> Result<(), DbError> {
        let wrong = |error: sqlx::Error| self.failed(sql.path.clone(), error.into());
        D::run(connection, "START TRANSACTION")
            .await
            .map_err(wrong)?;
        D::run(connection, before).await.map_err(wrong)?;
        let started = Instant::now();
        if let Err((done, error)) = D::run_all(connection, &sql.text).await {
            let _ = D::run(connection, "ROLLBACK").await;
            let cause = MigrateError::ExecuteMigration(error, file.number);
            return Err(self.failed_at(sql, cause, Some(done)).await);
        }
        let after = after(started.elapsed().as_nanos());
        D::run(connection, &after).await.map_err(wrong)?;
        D::run(connection, "COMMIT").await.map_err(wrong)
    }

    /// The error with the file and, if it is known, the line of the statement that failed.
    async fn failed_at(&self, file: &SqlFile, cause: MigrateError, done: Option<usize>) -> DbError {
        let MigrateError::ExecuteMigration(error, _) = &cause else {
            return self.failed(file.path.clone(), cause);
        };
        let text = &file.text;
        let offset = match (D::error_offset(error, text), done) {
            (Some(offset), _) => Some(offset),
            (None, Some(done)) => {
                let statements = files::statements(text, self.system());
                statements.get(done).map(|(at, statement)| {
                    let inside = files::quoted_offset(statement, &error.to_string());
                    at.saturating_add(inside.unwrap_or(0))
                })
            }
            (None, None) => self.replay(text).await,
        };
        let place = match offset {
            Some(offset) => format!("{}:{}", file.path, files::line_of(text, offset)),
            None => file.path.clone(),
        };
        self.failed(place, cause)
    }

    /// The offset of the first statement of a migration that fails. The statements run one by one in a
    /// transaction that is rolled back.
    async fn replay(&self, text: &str) -> Option<usize> {
        let statements = files::statements(text, self.system());
        if let [(offset, _)] = statements[..] {
            return Some(offset);
        }
        // The statements of such a file could take effect a second time, or already have on SQLite.
        let is_partial = self.system() == System::Sqlite && is_without_transaction(text);
        if is_partial || files::ends_transactions(&statements) {
            return None;
        }
        let mut connection = self.connect().await.ok()?;
        D::run(&mut connection, "BEGIN").await.ok()?;
        let mut failed = None;
        for (offset, statement) in statements {
            if let Err(error) = D::run(&mut connection, statement).await {
                let inside = files::quoted_offset(statement, &error.to_string());
                failed = Some(offset.saturating_add(inside.unwrap_or(0)));
                break;
            }
        }
        let _ = D::run(&mut connection, "ROLLBACK").await;
        let _ = connection.close().await;
        failed
    }
}

/// Whether the file says that it cannot run in a transaction.
fn is_without_transaction(text: &str) -> bool {
    text.starts_with("-- no-transaction")
}
