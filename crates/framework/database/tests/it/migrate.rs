//! Migrations: their order, their files, and what their errors say.

use std::collections::HashSet;
use std::fs;

use apus_database::sqlx::{self, Row};
use apus_database::{DbError, System};
use apus_testkit::{EmptyDatabase, block_on};

use crate::harness::{migrations, open};

#[test]
fn migrations_run_once_in_order() {
    let migrations = migrations();
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        db.migrate(migrations.path()).unwrap();
        db.migrate(migrations.path()).unwrap();
        let later = migrations.path().join(match db.system() {
            System::Sqlite => "sqlite/0003_more.sql",
            System::Postgres => "postgres/0003_more.sql",
            System::MySql => "mysql/0003_more.sql",
        });
        fs::write(&later, "INSERT INTO users (name) VALUES ('Apus pallidus');").unwrap();
        db.migrate(migrations.path()).unwrap();
        let count: i64 = block_on(async {
            sqlx::query_scalar("SELECT COUNT(*) FROM users")
                .fetch_one(&db)
                .await
                .unwrap()
        });
        assert_eq!(count, 2, "{}", fresh.address);
    }
}

#[test]
fn a_failed_migration_names_its_file_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = EmptyDatabase::sqlite();
    fs::write(
        folder.path().join("0001_good.sql"),
        "CREATE TABLE a (x INTEGER);",
    )
    .unwrap();
    fs::write(
        folder.path().join("0002_bad.sql"),
        "CREATE TABLE b (x INTEGER); CREATE TABEL c (x INTEGER);",
    )
    .unwrap();
    let error = open(&fresh).migrate(folder.path()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, DbError::Migration { .. }), "{error:?}");
    for part in [
        folder.path().join("0002_bad.sql:1").to_str().unwrap(),
        "test.db",
        "migration 2",
        "TABEL",
    ] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    let tables: HashSet<String> = block_on(async {
        let rows = sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table'")
            .fetch_all(&open(&fresh))
            .await
            .unwrap();
        rows.iter().map(|row| row.get::<String, _>(0)).collect()
    });
    assert!(tables.contains("a") && !tables.contains("b"), "{tables:?}");
}

#[test]
fn a_bad_migration_is_told_with_file_and_line() {
    let create =
        "-- The first; table\nCREATE TABLE a (x INTEGER);\n\nINSERT INTO a (x)\n  VALUES (1);\n";
    for fresh in EmptyDatabase::of_each() {
        for (bad, line) in [
            ("CREATE TABEL b (x INTEGER);", 6),
            ("INSERT INTO a (x)\n  SELEC 2;", 7),
            ("INSERT INTO nowhere (x) VALUES (1);", 6),
            // These errors name no place in the statement.
            ("SELECT 1;\nCREATE TABLE a (x INTEGER);", 7),
            (
                "CREATE UNIQUE INDEX i ON a (x);\nINSERT INTO a\nVALUES (1);",
                7,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("0001_a.sql"), format!("{create}{bad}")).unwrap();
            let fresh = fresh.another();
            let error = open(&fresh).migrate(folder.path()).unwrap_err().to_string();
            let place = format!("0001_a.sql:{line} ");
            assert!(
                error.contains(&place),
                "{}: {place}: {error}",
                fresh.address
            );
            // Neither a line in the sources of PostgreSQL, nor one of the statement alone.
            assert!(!error.contains(" at line "), "{error}");
        }
    }
}

#[test]
fn migrations_that_would_be_skipped_are_errors() {
    let sql = "CREATE TABLE a (x INTEGER);";
    let fresh = EmptyDatabase::sqlite();
    let told = |files: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, sql).unwrap();
        }
        let result = open(&fresh).migrate(folder.path());
        result.map_err(|error| {
            assert!(matches!(error, DbError::MigrationFiles { .. }), "{error:?}");
            error.to_string()
        })
    };
    for (files, parts) in [
        (
            &["users.sql", "0001_a.sql"][..],
            &["users.sql has no number"][..],
        ),
        (&["0001.sql"], &["0001.sql has no number"]),
        (&["v1_users.sql"], &["v1_users.sql has no number"]),
        (&["0_users.sql"], &["0_users.sql has no number"]),
        (
            &["sqlite/0001_a.sql", "0002_b.sql"],
            &["0002_b.sql is beside the folder", "sqlite"],
        ),
        (
            &["1_a.sql", "0001_b.sql"],
            &["0001_b.sql and ", "1_a.sql have the same number, 1"],
        ),
        (&["sqlite/users.sql"], &["users.sql has no number"]),
    ] {
        let told = told(files).unwrap_err();
        for part in parts {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    // Other files are none of migrations.
    told(&[
        "README.md",
        "sqlite/notes.txt",
        "sqlite/0001_a.up.sql",
        "sqlite/0001_a.down.sql",
    ])
    .unwrap();
}

#[test]
fn a_changed_migration_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = EmptyDatabase::sqlite();
    let file = folder.path().join("0001_a.sql");
    fs::write(&file, "CREATE TABLE a (x INTEGER);").unwrap();
    open(&fresh).migrate(folder.path()).unwrap();
    fs::write(&file, "CREATE TABLE a (y INTEGER);").unwrap();
    let error = open(&fresh).migrate(folder.path()).unwrap_err();
    assert!(error.to_string().contains("has been modified"), "{error}");
    let missing = open(&fresh).migrate("/nowhere/at/all").unwrap_err();
    assert!(missing.to_string().contains("/nowhere/at/all"), "{missing}");
}
