//! `db migrate`, `rollback`, `status` and `seed`.

use std::fs;
use std::path::Path;

use apus_database::sqlx;
use apus_database::{Commands, Db, MigrationState, Migrations, migrations};
use apus_testkit::{EmptyDatabase, block_on};

use crate::harness::open;

/// The migrations beside this file.
const EMBEDDED: Migrations = migrations!("tests/it/migrations");

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
}

/// Two migrations, of which both can be undone.
fn reversible() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            (
                "0001_a.sql",
                "CREATE TABLE a (x INTEGER);\nINSERT INTO a (x) VALUES (1);",
            ),
            ("0001_a.down.sql", "DROP TABLE a;"),
            ("0002_b.up.sql", "CREATE TABLE b (x INTEGER);"),
            ("0002_b.down.sql", "DROP TABLE b;"),
        ],
    );
    folder
}

/// The exit code, the output and the errors of a command.
fn run(commands: Commands<sqlx::Any>, arguments: &[&str]) -> (i32, String, String) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    let code = commands.run(arguments, &mut output, &mut errors);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(output), text(errors))
}

fn exists(db: &Db, table: &'static str) -> bool {
    let select = match table {
        "a" => "SELECT x FROM a",
        "b" => "SELECT x FROM b",
        _ => "SELECT version FROM _sqlx_migrations",
    };
    block_on(async { sqlx::query(select).fetch_all(db).await.is_ok() })
}

#[test]
fn migrations_are_applied_listed_and_rolled_back_on_each_database() {
    let folder = reversible();
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        let run = |arguments: &[&str]| run(db.commands(folder.path()), arguments);
        let (code, output, _) = run(&["status"]);
        let pending = "pending  0001_a.sql\npending  0002_b.up.sql\n";
        assert_eq!((code, &*output), (0, pending), "{}", fresh.address);
        let (code, output, _) = run(&["migrate", "--dry-run"]);
        assert_eq!(code, 0);
        assert!(output.contains("INSERT INTO a (x) VALUES (1);"), "{output}");
        assert!(!exists(&db, "a") && !exists(&db, "_sqlx_migrations"));
        let (code, output, errors) = run(&["migrate"]);
        let applied = "applied 0001_a.sql\napplied 0002_b.up.sql\n";
        assert_eq!((code, &*output), (0, applied), "{errors}");
        assert!(exists(&db, "a") && exists(&db, "b"));
        assert!(run(&["migrate"]).1.starts_with("nothing to do"));
        let (code, output, _) = run(&["rollback", "--dry-run", "--steps", "2"]);
        assert_eq!(code, 0);
        assert!(
            output.find("DROP TABLE b") < output.find("DROP TABLE a"),
            "{output}"
        );
        let (code, output, errors) = run(&["rollback"]);
        assert_eq!(
            (code, &*output),
            (0, "rolled back 0002_b.up.sql\n"),
            "{errors}"
        );
        assert!(exists(&db, "a") && !exists(&db, "b"), "{}", fresh.address);
        let (code, output, _) = run(&["status", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&output).unwrap();
        let expected = serde_json::json!([
            { "number": 1, "name": "0001_a.sql", "state": "applied" },
            { "number": 2, "name": "0002_b.up.sql", "state": "pending" },
        ]);
        assert_eq!((code, listed), (0, expected));
        assert_eq!(run(&["migrate"]).1, "applied 0002_b.up.sql\n");
        let (_, output, _) = run(&["rollback", "--steps=9"]);
        assert_eq!(
            output,
            "rolled back 0002_b.up.sql\nrolled back 0001_a.sql\n"
        );
        assert!(!exists(&db, "a") && !exists(&db, "b"), "{}", fresh.address);
        assert!(run(&["rollback"]).1.starts_with("nothing to do"));
    }
}

#[test]
fn wrong_arguments_exit_with_2_and_failures_with_1() {
    let folder = reversible();
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    for (arguments, part) in [
        (&[][..], "a command is missing"),
        (&["dance"], "no command \"dance\""),
        (&["new", "users"], "apus db new NAME"),
        (&["migrate", "--json"], "does not take \"--json\""),
        (&["rollback", "--steps", "0"], "a number from 1"),
        (&["rollback", "--steps"], "a number from 1"),
    ] {
        let (code, output, errors) = run(db.commands(folder.path()), arguments);
        assert_eq!((code, &*output), (2, ""), "{arguments:?}");
        assert!(
            errors.contains(part) && errors.contains("Usage"),
            "{errors}"
        );
    }
    assert_eq!(run(db.commands(folder.path()), &["--help"]).0, 0);
    let (code, _, errors) = run(db.commands("/nowhere/at/all"), &["migrate"]);
    assert_eq!(code, 1);
    assert!(errors.contains("/nowhere/at/all"), "{errors}");
    let down: Db = Db::open("postgres://me@127.0.0.1:1/none").unwrap();
    for command in ["migrate", "rollback", "status"] {
        let (code, _, errors) = run(down.commands(folder.path()), &[command]);
        assert_eq!(code, 1);
        assert!(errors.contains("cannot be reached"), "{errors}");
    }
}

#[test]
fn a_migration_without_a_file_that_undoes_it_is_not_rolled_back() {
    let folder = reversible();
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    db.migrate(folder.path()).unwrap();
    fs::remove_file(folder.path().join("0001_a.down.sql")).unwrap();
    let error = db.rollback(folder.path(), 2).unwrap_err().to_string();
    assert!(
        error.contains("there is no") && error.contains("0001_a.down.sql"),
        "{error}"
    );
    // Neither the first.
    assert!(exists(&db, "b"));
    fs::rename(
        folder.path().join("0002_b.down.sql"),
        folder.path().join("0003_b.down.sql"),
    )
    .unwrap();
    let error = db.migrate(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("undoes a migration that does not exist"),
        "{error}"
    );
}

#[test]
fn a_changed_or_missing_migration_is_told_by_its_status() {
    let folder = reversible();
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    db.migrate(folder.path()).unwrap();
    write(
        folder.path(),
        &[("0001_a.sql", "CREATE TABLE a (y INTEGER);")],
    );
    fs::remove_file(folder.path().join("0002_b.up.sql")).unwrap();
    fs::remove_file(folder.path().join("0002_b.down.sql")).unwrap();
    let states: Vec<_> = db
        .migration_status(folder.path())
        .unwrap()
        .into_iter()
        .map(|status| (status.number, status.state))
        .collect();
    let expected = [(1, MigrationState::Changed), (2, MigrationState::Missing)];
    assert_eq!(states, expected);
    let (code, output, errors) = run(db.commands(folder.path()), &["status"]);
    assert_eq!((code, output.lines().count()), (1, 2));
    let expected = "error: 2 migrations were changed, are missing or failed\n";
    assert_eq!(errors, expected);
}

#[test]
fn several_processes_that_migrate_at_once_run_each_migration_once() {
    let folder = reversible();
    for fresh in EmptyDatabase::of_each() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // Each has its own pools, as another process has.
                let db = open(&fresh);
                let folder = folder.path();
                scope.spawn(move || db.migrate(folder).unwrap());
            }
        });
        let count: i64 = block_on(async {
            sqlx::query_scalar("SELECT COUNT(*) FROM a")
                .fetch_one(&open(&fresh))
                .await
                .unwrap()
        });
        assert_eq!(count, 1, "{}", fresh.address);
    }
}

#[test]
fn the_seed_of_an_application_is_a_command() {
    let folder = reversible();
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    db.migrate(folder.path()).unwrap();
    let (code, _, errors) = run(db.commands(folder.path()), &["seed"]);
    assert_eq!(code, 1);
    assert!(errors.contains("has no seed"), "{errors}");
    let seeded = db.commands(folder.path()).seed(async |db: Db| {
        sqlx::query("INSERT INTO a (x) VALUES (7)")
            .execute(&db)
            .await?;
        Ok::<_, sqlx::Error>(())
    });
    assert_eq!(run(seeded, &["seed"]).0, 0);
    let failing = db
        .commands(folder.path())
        .seed(async |_: Db| Err::<(), _>("no products"));
    let (code, _, errors) = run(failing, &["seed"]);
    assert_eq!(code, 1);
    assert!(errors.contains("no products"), "{errors}");
    let sum: i64 = block_on(async {
        sqlx::query_scalar("SELECT SUM(x) FROM a")
            .fetch_one(&db)
            .await
            .unwrap()
    });
    assert_eq!(sum, 8);
}

#[test]
fn migrations_are_embedded_in_the_program() {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        db.migrate(EMBEDDED).unwrap();
        let states = db.migration_status(&EMBEDDED).unwrap();
        assert!(
            states
                .iter()
                .all(|one| one.state == MigrationState::Applied)
        );
        assert_eq!(states.len(), 1, "{}", fresh.address);
        assert_eq!(db.rollback(EMBEDDED, 1).unwrap(), ["0001_models.sql"]);
    }
    // As in a program that is moved away from its source.
    let moved = Migrations::embedded(
        "/nowhere/at/all",
        &[
            ("0001_a.sql", b"CREATE TABLE a (x INTEGER);"),
            ("0001_a.down.sql", b"DROP TABLE a;"),
            ("README.md", b"\xff"),
        ],
        true,
    );
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    db.migrate(&moved).unwrap();
    assert!(exists(&db, "a"));
    assert_eq!(db.rollback(&moved, 1).unwrap(), ["0001_a.sql"]);
}
