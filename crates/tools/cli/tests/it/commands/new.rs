//! `apus new`: the project that it makes, and what it refuses.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Home, get, wait_until};

/// The root of this workspace.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(3).unwrap().to_owned()
}

/// Runs Cargo in a project, offline and with the target folder of this workspace, so that the dependencies
/// are built already. Returns what it says, which must not be a warning.
fn cargo(project: &Path, arguments: &[&str]) -> String {
    let target = Path::new(env!("CARGO_BIN_EXE_apus")).ancestors().nth(2);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(arguments)
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target.unwrap())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{out}\n{errors}");
    assert!(!errors.contains("warning"), "{arguments:?}\n{errors}");
    out
}

/// A project in a folder that is the same in each run, so that Cargo replaces what it built before. It is of this test
/// until the file is closed.
fn create(home: &Home, name: &str, arguments: &[&str]) -> (PathBuf, File) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let project = folder.join(name);
    if project.exists() {
        fs::remove_dir_all(&project).unwrap();
    }
    let checkout = workspace();
    let output = home
        .command(&["new", name, "--path", checkout.to_str().unwrap()])
        .args(arguments)
        .current_dir(&folder)
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains(&format!("cd {name}")), "{out}");
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    (project, lock)
}

#[test]
fn a_new_project_builds_and_passes_its_tests() {
    let home = Home::new();
    let (project, _lock) = create(&home, "my-shop", &[]);
    cargo(&project, &["test", "--offline", "--quiet"]);
    cargo(&project, &["fmt", "--check"]);
    assert_project_runs(&home);
}

/// The projects with one part have the features of all, so that the framework is built once.
#[test]
fn a_project_with_parts_builds_and_passes_its_tests() {
    let home = Home::new();
    let mut features = String::new();
    for (name, parts, tests) in [
        ("my-blog", "login,api,db", 16),
        ("my-login", "login", 15),
        ("my-api", "api", 2),
        ("my-db", "db", 2),
    ] {
        let (project, _lock) = create(&home, name, &["--with", parts]);
        cargo(&project, &["fmt", "--check"]);
        if features.is_empty() {
            let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
            let (_, list) = manifest.split_once("features = [").unwrap();
            let (list, _) = list.split_once(']').unwrap();
            let all = list.split(", ").map(|name| name.trim_matches('"'));
            let all: Vec<_> = all.map(|name| format!("apus/{name}")).collect();
            features = all.join(",");
        }
        let out = cargo(&project, &["test", "--offline", "--features", &features]);
        let passed: u32 = out
            .lines()
            .filter_map(|line| line.strip_prefix("test result: ok. "))
            .map(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap())
            .sum();
        assert_eq!(passed, tests, "{parts}\n{out}");
        assert_clippy_is_silent(&project, &features);
        match parts {
            "db" => assert_program_contains_its_migrations(&home, &project),
            "login" => assert_program_runs_with_the_files_of_its_image(&home, &project),
            _ => {}
        }
    }
    let (project, _lock) = create(&home, "my-shop", &[]);
    assert_clippy_is_silent(&project, &features);
}

/// Expects that a project has no warning of clippy as it was created, also of the pedantic ones. With the same features of the
/// framework for all projects, it is checked once.
fn assert_clippy_is_silent(project: &Path, features: &str) {
    let lints = ["--", "-D", "warnings", "-W", "clippy::pedantic"];
    let all = [
        "clippy",
        "--offline",
        "--all-targets",
        "--features",
        features,
    ];
    cargo(project, &[&all[..], &lints].concat());
}

/// Expects that a program runs its migrations and undoes them where the project is not.
fn assert_program_contains_its_migrations(home: &Home, project: &Path) {
    fs::rename(project.join("migrations"), project.join("moved")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("my-db");
    let run = |arguments: &[&str]| {
        let output = Command::new(&program)
            .arg("db")
            .args(arguments)
            .current_dir(home.path("site"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    for (command, state) in [
        ("migrate", "applied "),
        ("status", "applied "),
        ("rollback", "rolled back "),
        ("status", "pending "),
    ] {
        let output = run(&[command]);
        let is_told = output.starts_with(state) && output.ends_with("0001_notes.sql\n");
        assert!(is_told, "{command}: {output}");
    }
    // The log is on standard error, so that programs can read the output.
    let output = Command::new(&program)
        .args(["db", "status", "--json"])
        .env("RUST_LOG", "trace")
        .current_dir(home.path("site"))
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status[0]["state"], "pending", "{status}");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains(" TRACE ") || log.contains(" DEBUG "), "{log}");
}

/// Expects that a program runs with the variables of its Dockerfile and of its file of settings, read as Docker reads it, and
/// writes its database to the volume and nothing to the folder that it runs in.
fn assert_program_runs_with_the_files_of_its_image(home: &Home, project: &Path) {
    let read = |file: &str| fs::read_to_string(project.join(file)).unwrap();
    let image = read("Dockerfile");
    let example = read(".env.example");
    let volume = home.path("volume");
    let folder = home.path("empty");
    for folder in [&volume, &folder] {
        fs::create_dir(folder).unwrap();
    }
    let lines = image.lines().filter_map(|line| line.strip_prefix("ENV "));
    // The README says to remove the `#`.
    let settings = example.lines().filter_map(|line| line.strip_prefix("# "));
    let settings = settings.filter(|line| {
        ["APP_PUBLIC_URL=", "APP_MAIL__"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    // Docker takes all that follows the first `=` as the value.
    let variables: Vec<(&str, String)> = lines
        .chain(settings)
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| {
            (
                name,
                value.replace("/var/lib/my-login", volume.to_str().unwrap()),
            )
        })
        .collect();
    assert_eq!(variables.len(), 5, "{variables:?}");

    let program = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("my-login");
    let mut child = Command::new(program)
        .env_clear()
        .envs(variables)
        .env("LISTEN", "127.0.0.1:0")
        .env("CONTROL_SOCKET", home.path("control.sock"))
        .current_dir(&folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let address = address_in(&wait_for_status(home, &mut child));
    assert!(get(address, "/log-in").body.contains("<form"));
    // Mails are sent, and not caught for a page.
    assert_eq!(get(address, "/dev/mails/").status, 404);
    home.expect(&["stop", "--socket", "control.sock"], 0);
    assert!(child.wait().unwrap().success());
    assert!(volume.join("my-login.db").exists());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

/// The words of a command as a shell passes them to a program.
fn shell_words(command: &str) -> Vec<String> {
    let script = format!("docker() {{ printf '%s\\n' \"$@\"; }}\n{command}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{command}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_dockerfile_and_the_readme_show_the_same_commands_with_what_the_parts_need() {
    let home = Home::new();
    let plain = "--rm --read-only --tmpfs /tmp --cap-drop ALL ";
    for (name, parts, options) in [
        ("one", &[][..], ""),
        ("two", &["--with", "api"], ""),
        ("three", &["--with", "db"], "-v three:/var/lib/three "),
        (
            "four",
            &["--with", "login,api,db"],
            "--env-file four.env -v four:/var/lib/four ",
        ),
    ] {
        home.expect(&[&["new", name], parts].concat(), 0);
        let build = format!("docker build -t {name} .");
        let run = format!("docker run {plain}{options}-p 8080:8080 {name}");
        let image = home.read(&format!("{name}/Dockerfile"));
        assert!(
            image.starts_with(&format!("# {build}\n# {run}\nFROM ")),
            "{image}"
        );
        let readme = home.read(&format!("{name}/README.md"));
        assert!(readme.contains(&format!("\n{build}\n{run}\n")), "{readme}");
        let has_volume = options.contains("-v ");
        assert_eq!(
            image.contains(&format!(
                "ENV APP_DATABASE=sqlite:/var/lib/{name}/{name}.db\n"
            )),
            has_volume
        );
        assert_eq!(
            image.contains(&format!(
                "RUN install -d -o 65534 -g 65534 /var/lib/{name}\n"
            )),
            has_volume
        );
        // Neither the image nor the repository gets what is in it.
        for file in [".gitignore", ".dockerignore"] {
            let is_ignored = home.read(&format!("{name}/{file}")).contains("\n*.env\n");
            assert!(is_ignored || options.is_empty(), "{name}/{file}");
        }
        let unit = home.read(&format!("{name}/{name}.service"));
        assert!(
            unit.contains(&format!("\nEnvironmentFile=-/etc/{name}.env\n")),
            "{unit}"
        );
        let example = home.read(&format!("{name}/.env.example"));
        for setting in example
            .lines()
            .filter_map(|line| line.strip_prefix("# APP_"))
        {
            let (_, value) = setting.split_once('=').unwrap();
            assert!(!value.contains(['"', '\'', ' ', '$', '#']), "{setting}");
        }
    }
    let page = fs::read_to_string(workspace().join("docs/guide/production.md")).unwrap();
    let of_guide = home.read("four/Dockerfile");
    let of_guide = of_guide.lines().nth(1).unwrap().replace("four", "my-shop");
    assert!(
        page.contains(of_guide.trim_start_matches("# ")),
        "{of_guide}"
    );
}

#[test]
fn a_checkout_with_spaces_and_quotes_in_its_path_is_one_word_of_docker_build() {
    let home = Home::new();
    let checkout = home.path("ada's own $apus");
    assert!(fs::create_dir_all(checkout.join("crates/framework/web")).is_ok());
    let (_, error) = home.expect(&["new", "one", "--path", checkout.to_str().unwrap()], 2);
    assert!(error.contains("not in"), "{error}");
    fs::write(
        checkout.join("crates/framework/web/Cargo.toml"),
        "name = \"apus\"\n",
    )
    .unwrap();
    // A variable of a Dockerfile.
    let (_, error) = home.expect(&["new", "one", "--path", checkout.to_str().unwrap()], 2);
    assert!(error.contains("cannot be written"), "{error}");

    let moved = home.path("ada's own `apus`");
    fs::rename(checkout, &moved).unwrap();
    home.expect(&["new", "one", "--path", moved.to_str().unwrap()], 0);
    let moved = moved.canonicalize().unwrap();
    let image = home.read("one/Dockerfile");
    let build = image.lines().next().unwrap().trim_start_matches("# ");
    let context = format!("apus={}", moved.display());
    let expected = ["build", "--build-context", &context, "-t", "one", "."];
    assert_eq!(shell_words(build), expected);
    let readme = home.read("one/README.md");
    assert!(readme.contains(&format!("\n{build}\n")), "{readme}");
}

#[test]
fn a_project_has_the_files_and_features_of_its_parts() {
    let home = Home::new();
    for (parts, features, present, absent) in [
        (
            "api",
            "\"macros\", \"openapi\", \"settings\", \"templates\", \"validate\"",
            &["src/api.rs", "src/notes.rs", ".env.example"][..],
            &["migrations", "src/accounts", "src/services.rs"][..],
        ),
        (
            "db",
            "\"macros\", \"settings\", \"sql\", \"templates\", \"validate\"",
            &[
                "migrations/sqlite/0001_notes.sql",
                "migrations/mysql/0001_notes.down.sql",
                "src/pages.rs",
                "build.rs",
            ],
            &[
                "src/accounts",
                "src/api.rs",
                "migrations/sqlite/0002_users.sql",
            ],
        ),
        (
            "login",
            "\"account\", \"macros\", \"mail\", \"password\", \"rate-limit\", \"settings\", \"sql\", \"templates\", \
             \"validate\"",
            &[
                "src/accounts/mod.rs",
                "templates/mail/reset.txt",
                "migrations/mysql/0002_users.sql",
            ],
            &["src/api.rs"],
        ),
    ] {
        let name = format!("with-{parts}");
        home.expect(&["new", &name, "--with", parts], 0);
        let manifest = home.read(&format!("{name}/Cargo.toml"));
        assert!(
            manifest.contains(&format!("features = [{features}]")),
            "{manifest}"
        );
        for file in present {
            assert!(
                home.path(&format!("{name}/{file}")).exists(),
                "{parts}: {file}"
            );
        }
        for file in absent {
            assert!(
                !home.path(&format!("{name}/{file}")).exists(),
                "{parts}: {file}"
            );
        }
        let mut folders = vec![home.path(&name)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                for left in [
                    "@if",
                    "@end",
                    "@name@",
                    "@crate@",
                    "@features@",
                    "@apus@",
                    "@docker",
                ] {
                    assert!(!text.contains(left), "{} has {left}", path.display());
                }
            }
        }
    }
    let (_, error) = home.expect(&["new", "other", "--with", "login,blog"], 2);
    for part in ["blog", "login", "api", "db"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!home.path("other").exists());
}

/// The status of a program whose control socket is `control.sock`.
fn wait_for_status(home: &Home, child: &mut Child) -> Value {
    let status = ["status", "--socket", "control.sock", "--json"];
    let mut report = Value::Null;
    wait_until("the application reports its status", || {
        let output = home.run(&status);
        report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success() || child.try_wait().unwrap().is_some()
    });
    report
}

/// The address in a status.
fn address_in(report: &Value) -> SocketAddr {
    report["listening"][0].as_str().unwrap().parse().unwrap()
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
    let report = wait_for_status(home, &mut child);
    let address = address_in(&report);
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

    // What is wrong is told in words, not as a value of Rust.
    let program = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("my-shop");
    let output = Command::new(program)
        .env("LISTEN", "nonsense")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.starts_with("my-shop: the address to listen on is not valid: "),
        "{error}"
    );
}

#[test]
fn all_files_of_a_new_project_have_its_name() {
    let home = Home::new();
    home.expect(&["new", "my-shop"], 0);
    for (file, text) in [
        ("Cargo.toml", "name = \"my-shop\""),
        (
            "Cargo.toml",
            concat!("version = \"", env!("CARGO_PKG_VERSION"), "\","),
        ),
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
        for left in ["@name@", "@crate@", "@apus@", "@checkout@", "@docker"] {
            assert!(!file_text.contains(left), "{file} has {left}");
        }
    }
}

/// Cargo reads the manifests of all members of a workspace.
#[test]
fn the_dockerfile_copies_all_members_of_the_workspace() {
    let home = Home::new();
    home.expect(
        &["new", "my-shop", "--path", workspace().to_str().unwrap()],
        0,
    );
    let image = home.read("my-shop/Dockerfile");
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest
        .lines()
        .find(|line| line.starts_with("members = ["))
        .unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.contains(&"crates/*/*"), "{members:?}");
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
        ("two", workspace.join("crates/framework/web")),
    ] {
        home.expect(&["new", name, "--path", path.to_str().unwrap()], 0);
        let manifest = home.read(&format!("{name}/Cargo.toml"));
        let path = format!("path = \"{}/crates/framework/web\"", workspace.display());
        assert!(manifest.contains(&path), "{manifest}");
    }
    let (_, error) = home.expect(&["new", "three", "--path", "site"], 2);
    assert!(error.contains("not in site"), "{error}");
    assert!(!home.path("three").exists());
}

/// All files of a project, one after another.
fn project_text(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        text += &if path.is_dir() {
            project_text(&path)
        } else {
            fs::read_to_string(&path).unwrap()
        };
    }
    text
}

#[test]
fn a_new_project_has_no_path_of_this_machine_by_default() {
    let home = Home::new();
    let (out, _) = home.expect(&["new", "one"], 0);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        out.contains(&format!("apus {version} of crates.io")),
        "{out}"
    );
    // How to go on until it is published.
    assert!(
        out.contains(&format!("--path {}", workspace().display())),
        "{out}"
    );
    home.expect(
        &["new", "two", "--git", "https://git.example.com/apus.git"],
        0,
    );
    let checkout = workspace().display().to_string();
    for name in ["one", "two"] {
        let text = project_text(&home.path(name));
        assert!(!text.contains(&checkout), "{text}");
        assert!(!text.contains("path = \""), "{text}");
        let image = home.read(&format!("{name}/Dockerfile"));
        assert!(!image.contains("--from=apus"), "{image}");
        assert!(
            image.starts_with(&format!("# docker build -t {name} .")),
            "{image}"
        );
    }
}

/// The dependency on the framework, as Cargo reads it.
fn framework_dependency(project: &Path) -> Value {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(project)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let dependencies = metadata["packages"][0]["dependencies"].as_array().unwrap();
    let framework = dependencies
        .iter()
        .find(|dependency| dependency["name"] == "apus");
    framework.unwrap().clone()
}

#[test]
fn the_source_of_the_framework_is_named_as_with_cargo_add() {
    let home = Home::new();
    let url = "https://git.example.com/apus.git";
    let ssh = "ssh://git@git.example.com/apus.git";
    let cases: [(&[&str], &str, String); 6] = [
        (&["--version-req", "0.1"], "^0.1", String::new()),
        (
            &["--version-req", ">=0.1, <0.3"],
            ">=0.1, <0.3",
            String::new(),
        ),
        (&["--git", ssh], "*", format!("git+{ssh}")),
        (
            &["--git", url, "--tag", "v1"],
            "*",
            format!("git+{url}?tag=v1"),
        ),
        (
            &["--git", url, "--branch", "next"],
            "*",
            format!("git+{url}?branch=next"),
        ),
        (
            &["--git", url, "--rev", "08964e0"],
            "*",
            format!("git+{url}?rev=08964e0"),
        ),
    ];
    for (number, (options, requirement, source)) in cases.iter().enumerate() {
        let name = format!("shop-{number}");
        home.expect(&[&["new", &*name], *options].concat(), 0);
        let dependency = framework_dependency(&home.path(&name));
        assert_eq!(dependency["req"], *requirement, "{options:?}");
        if source.is_empty() {
            assert!(
                dependency["source"]
                    .as_str()
                    .unwrap()
                    .starts_with("registry+")
            )
        } else {
            assert_eq!(dependency["source"], *source, "{options:?}")
        }
    }
    for (options, message) in [
        (&["--version-req", "latest"][..], "unexpected character"),
        (&["--git", url, "--path", "."], "cannot be used with"),
        (&["--tag", "v1"], "--git"),
        (
            &["--git", url, "--tag", "v1", "--rev", "08964e0"],
            "cannot be used with",
        ),
        (&["--git", "a\"b"], "cannot be written"),
    ] {
        let (_, error) = home.expect(&[&["new", "refused"], options].concat(), 2);
        assert!(error.contains(message), "{options:?}: {error}");
        assert!(!home.path("refused").exists());
    }
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
fn the_help_describes_the_sources_of_the_crate() {
    let home = Home::new();
    let (help, _) = home.expect(&["new", "--help"], 0);
    // The lines are wrapped to any width.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        "NAME",
        "--path",
        "--git",
        "--version-req",
        "the version of this apus",
    ] {
        assert!(help.contains(text), "{text} is missing:\n{help}");
    }
    let (page, _) = home.expect(&["man", "new"], 0);
    assert!(
        page.contains("apus\\-new") || page.contains("apus new"),
        "{page}"
    );
}
