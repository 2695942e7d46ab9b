//! `apus new`: the project that it makes, and what it refuses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Home, get, wait_until};

/// The root of this workspace.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// Runs Cargo in a project, offline and with the target folder of this workspace, so that the dependencies
/// are built already.
fn cargo(project: &Path, arguments: &[&str]) {
    let target = Path::new(env!("CARGO_BIN_EXE_apus")).ancestors().nth(2);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(arguments)
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target.unwrap())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_new_project_builds_and_passes_its_tests() {
    let home = Home::new();
    // The folder is the same in each run, so that Cargo replaces what it built before.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let project = folder.join("my-shop");
    if project.exists() {
        fs::remove_dir_all(&project).unwrap();
    }
    let output = home
        .command(&["new", "my-shop"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("cd my-shop"), "{out}");
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    cargo(&project, &["test", "--offline", "--quiet"]);
    cargo(&project, &["fmt", "--check"]);
    assert_project_runs(&home);
}

/// Expects that the program that `cargo test` has built serves, reports its status and stops on command.
fn assert_project_runs(home: &Home) {
    let program = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("my-shop");
    let mut child = Command::new(program)
        .env("LISTEN", "127.0.0.1:0")
        .env("CONTROL_SOCKET", home.path("control.sock"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = ["status", "--socket", "control.sock", "--json"];
    let mut report = Value::Null;
    wait_until("the application reports its status", || {
        let output = home.run(&status);
        report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success() || child.try_wait().unwrap().is_some()
    });
    let address = report["listening"][0].as_str().unwrap().parse().unwrap();
    assert!(get(address, "/").body.contains("<h1>my-shop</h1>"));
    let routes = report["routes"].as_array().unwrap();
    let home_page = routes.iter().find(|route| route["path"] == "/").unwrap();
    assert_eq!(home_page["handler"], "my_shop::home");
    assert!(
        home_page["at"].as_str().unwrap().starts_with("src/lib.rs:"),
        "{report}"
    );
    home.expect(&["stop", "--socket", "control.sock"], 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn all_files_of_a_new_project_have_its_name() {
    let home = Home::new();
    home.expect(&["new", "my-shop"], 0);
    let crates = workspace().join("crates/web");
    for (file, text) in [
        ("Cargo.toml", "name = \"my-shop\""),
        ("Cargo.toml", &*format!("path = \"{}\"", crates.display())),
        ("Cargo.toml", "features = [\"macros\", \"templates\"]"),
        ("Cargo.toml", "debug = \"line-tables-only\""),
        ("src/main.rs", "my_shop::app()"),
        ("templates/home.html", "<h1>my-shop</h1>"),
        ("tests/app.rs", "my_shop::app()"),
        ("Dockerfile", "/usr/local/bin/my-shop"),
        ("my-shop.service", "ExecStart=/usr/local/bin/my-shop"),
        ("my-shop.service", "ProtectSystem=strict"),
        ("my-shop.service", "CONTROL_SOCKET=%t/my-shop/control.sock"),
        (".gitignore", "/target"),
        ("README.md", "# my-shop"),
    ] {
        let file_text = home.read(&format!("my-shop/{file}"));
        assert!(
            file_text.contains(text),
            "{file} lacks {text}:\n{file_text}"
        );
        for left in ["@name@", "@crate@", "@apus@", "@checkout@"] {
            assert!(!file_text.contains(left), "{file} has {left}");
        }
    }
}

/// Cargo reads the manifests of all members of a workspace.
#[test]
fn the_dockerfile_copies_all_members_of_the_workspace() {
    let home = Home::new();
    home.expect(&["new", "my-shop"], 0);
    let image = home.read("my-shop/Dockerfile");
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest
        .lines()
        .find(|line| line.starts_with("members = ["))
        .unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"crates/*"), "{members:?}");
    for member in members {
        let folder = member.split('/').next().unwrap();
        let copied = format!("COPY --from=apus [\"{folder}\", ");
        assert!(image.contains(&copied), "{member} is missing:\n{image}");
    }
}

#[test]
fn the_path_option_sets_the_source_of_the_crate() {
    let home = Home::new();
    let workspace = workspace();
    for (name, path) in [
        ("one", workspace.clone()),
        ("two", workspace.join("crates/web")),
    ] {
        home.expect(&["new", name, "--path", path.to_str().unwrap()], 0);
        let manifest = home.read(&format!("{name}/Cargo.toml"));
        let path = format!("path = \"{}/crates/web\"", workspace.display());
        assert!(manifest.contains(&path), "{manifest}");
    }
    let (_, error) = home.expect(&["new", "three", "--path", "site"], 2);
    assert!(error.contains("not in site"), "{error}");
    assert!(!home.path("three").exists());
}

#[test]
fn existing_files_are_not_overwritten() {
    let home = Home::new();
    let (_, error) = home.expect(&["new", "site"], 1);
    assert!(error.contains("site exists already"), "{error}");
    assert_eq!(home.read("site/index.html"), "<h1>hello</h1>");
    assert!(!home.path("site/Cargo.toml").exists());
    home.write("file", "");
    home.expect(&["new", "file"], 1);
}

#[test]
fn a_name_that_no_package_can_have_is_refused() {
    let home = Home::new();
    for name in ["9lives", "../up", "a b", "fn", "test", "Über", ""] {
        let (_, error) = home.expect(&["new", name], 2);
        assert!(error.contains("NAME"), "{error}");
    }
    home.expect(&["new"], 2);
}

#[test]
fn a_folder_that_cannot_be_created_is_reported() {
    let home = Home::new();
    // Not even root can create a folder there.
    let output = home
        .command(&["new", "my-shop"])
        .current_dir("/proc")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot create my-shop"), "{error}");
}

#[test]
fn the_help_describes_the_default_source_of_the_crate() {
    let home = Home::new();
    let (help, _) = home.expect(&["new", "--help"], 0);
    // The lines are wrapped to any width.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["NAME", "--path", "was built from", "not published"] {
        assert!(help.contains(text), "{text} is missing:\n{help}");
    }
    let (page, _) = home.expect(&["man", "new"], 0);
    assert!(
        page.contains("apus\\-new") || page.contains("apus new"),
        "{page}"
    );
}
