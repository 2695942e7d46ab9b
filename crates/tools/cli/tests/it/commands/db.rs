//! `apus db` and `apus jobs`: the files that they create, and how they run the program of a project.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::Home;

#[test]
fn new_creates_the_files_of_the_next_migration() {
    let home = Home::new();
    let new = |arguments: &[&str]| {
        let output = home.command(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = new(&["db", "new", "Users"]);
    assert_eq!(
        first,
        "migrations/0001_users.sql\nmigrations/0001_users.down.sql\n"
    );
    let second = new(&["db", "new", "add-email"]);
    assert!(
        second.starts_with("migrations/0002_add_email.sql\n"),
        "{second}"
    );
    // Each system has its own file, of one number.
    fs::create_dir_all(home.path("own/sqlite")).unwrap();
    fs::create_dir_all(home.path("own/postgres")).unwrap();
    home.write("own/postgres/0007_a.sql", "");
    let third = new(&["db", "new", "b", "--folder", "own"]);
    for file in ["own/postgres/0008_b.sql", "own/sqlite/0008_b.down.sql"] {
        assert!(third.contains(file) && home.path(file).exists(), "{third}");
    }
    for name in ["", "a/b", "../a"] {
        let (_, errors) = home.expect(&["db", "new", name], 2);
        assert!(errors.contains("no name of a migration"), "{errors}");
    }
}

/// In place of cargo, a program that writes its arguments, and ends as the program of a project would.
#[test]
fn commands_run_the_program_of_the_project_and_keep_its_exit_code() {
    let home = Home::new();
    let script = "#!/bin/sh\necho \"$@\"\nexit \"$CODE\"\n";
    fs::create_dir_all(home.path("bin")).unwrap();
    home.write("bin/cargo", script);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(home.path("bin/cargo"), executable).unwrap();
    let run = |arguments: &[&str], code: &str| {
        let output = home
            .command(arguments)
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", home.path("bin").display()),
            )
            .env("CODE", code)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), out)
    };
    for (arguments, expected) in [
        (&["db", "migrate"][..], "run --quiet -- db migrate\n"),
        (
            &["db", "migrate", "--dry-run", "--release", "--bin", "shop"],
            "run --quiet --bin shop --release -- db migrate --dry-run\n",
        ),
        (
            &["db", "rollback", "--steps", "2", "--package", "shop"],
            "run --quiet --package shop -- db rollback --steps=2\n",
        ),
        (
            &["db", "status", "--json"],
            "run --quiet -- db status --json\n",
        ),
        (&["db", "seed"], "run --quiet -- db seed\n"),
        (
            &["jobs", "status", "--json", "--queue", "slow"],
            "run --quiet -- jobs status --queue=slow --json\n",
        ),
        (
            &["jobs", "list", "--package", "shop"],
            "run --quiet --package shop -- jobs list --limit=100\n",
        ),
        (
            &["jobs", "retry", "--all"],
            "run --quiet -- jobs retry --all\n",
        ),
        (
            &["jobs", "forget", "a", "b"],
            "run --quiet -- jobs forget a b\n",
        ),
    ] {
        assert_eq!(run(arguments, "0"), (0, expected.to_owned()));
    }
    assert_eq!(run(&["db", "status"], "1").0, 1);
    assert_eq!(run(&["db", "status"], "2").0, 2);
    // Cargo cannot build the project.
    assert_eq!(run(&["db", "status"], "101").0, 1);
    home.expect(&["jobs", "retry"], 2);
    home.expect(&["jobs", "forget", "a", "--all"], 2);
    let (_, errors) = home.expect(&["db", "rollback", "--steps", "0"], 2);
    assert!(!errors.is_empty());
    let output = home
        .command(&["db", "migrate"])
        .env("PATH", "/nowhere")
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("cargo cannot be run"), "{errors}");
}
