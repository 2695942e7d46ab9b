//! The `Makefile` and the `CMakeLists.txt` of the examples: they build all of them with an installed library.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{programs_folder, repository};

/// A prefix with the library of this build and what `make install-c` puts beside it.
fn install() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path();
    let sources = repository().join("crates/tools/capi");
    let cmake = prefix.join("lib/cmake/Apus");
    fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
    fs::create_dir_all(&cmake).unwrap();
    symlink(
        sources.canonicalize().unwrap().join("include"),
        prefix.join("include"),
    )
    .unwrap();
    for name in ["libapus.so", "libapus.so.1"] {
        symlink(programs_folder().join(name), prefix.join("lib").join(name)).unwrap();
    }
    let install = sources.join("install");
    let filled = |name: &str| {
        let text = fs::read_to_string(install.join(name)).unwrap();
        text.replace("@PREFIX@", prefix.to_str().unwrap())
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
    };
    fs::write(prefix.join("lib/pkgconfig/apus.pc"), filled("apus.pc.in")).unwrap();
    fs::write(
        cmake.join("ApusConfigVersion.cmake"),
        filled("ApusConfigVersion.cmake.in"),
    )
    .unwrap();
    fs::copy(
        install.join("ApusConfig.cmake"),
        cmake.join("ApusConfig.cmake"),
    )
    .unwrap();
    folder
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn check_programs(folder: &Path) {
    for entry in fs::read_dir(repository().join("examples/c")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let program = match name.rsplit_once('.') {
            Some((program, "c")) => program.to_owned(),
            Some((program, "cpp")) => format!("{program}-cpp"),
            _ => continue,
        };
        assert!(folder.join(&program).is_file(), "{program}");
    }
    // The program finds the library, which says what is wrong with the address.
    let output = Command::new(folder.join("hello"))
        .arg("nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stderr.is_empty());
}

#[test]
fn makefile_builds_all_examples() {
    let prefix = install();
    let copy = prefix.path().join("examples");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(repository().join("examples/c")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let is_source = ["c", "cpp"].map(|end| path.extension().is_some_and(|found| found == end));
        if is_source.contains(&true) || name == "Makefile" {
            fs::copy(&path, copy.join(name)).unwrap();
        }
    }
    let mut make = Command::new("make");
    run(make
        .arg("-C")
        .arg(&copy)
        // As a shell would start it, not from inside another make.
        .env_remove("MAKEFLAGS")
        .env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig")));
    check_programs(&copy);
}

#[test]
fn cmake_builds_all_examples() {
    let prefix = install();
    let build = prefix.path().join("build");
    let mut configure = Command::new("cmake");
    run(configure
        .arg("-S")
        .arg(repository().join("examples/c"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    check_programs(&build);
}
