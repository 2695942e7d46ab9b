//! The installed library: versioned symbols, and what pkg-config and CMake read.

use std::path::Path;
use std::process::Command;

use crate::program::{crate_folder, library_folder};

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn compile_and_run(prefix: &Path, arguments: &[&str]) {
    let program = prefix.join("sizes");
    run(Command::new("cc")
        .arg(crate_folder().join("tests/c/sizes.c"))
        .args(arguments)
        .arg("-o")
        .arg(&program));
    let sizes = run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert!(sizes.starts_with("apus_str 16\n"), "{sizes}");
}

#[test]
fn the_installed_library_is_found_and_has_versioned_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path();
    run(Command::new(crate_folder().join("install/run"))
        .arg(prefix)
        .arg(library_folder()));
    let library = prefix.join("lib/libapus.so");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    assert!(symbols.contains(" apus_app_new@@APUS_1"), "{symbols}");
    assert!(
        symbols
            .lines()
            .all(|line| line.contains("apus_") || line.contains(" APUS_1")),
        "{symbols}"
    );
    let section = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(section.contains("[libapus.so.1]"), "{section}");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "apus"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    compile_and_run(prefix, &flags.split_whitespace().collect::<Vec<_>>());
    let include = format!("-I{}", prefix.join("include").display());
    let library = prefix.join("lib/libapus.a");
    compile_and_run(
        prefix,
        &[
            &include,
            library.to_str().unwrap(),
            "-lpthread",
            "-ldl",
            "-lm",
            "-lgcc_s",
        ],
    );
    let cmake = std::fs::read_to_string(prefix.join("lib/cmake/Apus/ApusConfig.cmake")).unwrap();
    assert!(cmake.contains("Apus::apus"));
    // The package is read by CMake where there is one.
    let project = prefix.join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(
        project.join("CMakeLists.txt"),
        format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(Sizes C)\nfind_package(Apus 0.1 REQUIRED)\nadd_executable(sizes {})\n\
             target_link_libraries(sizes PRIVATE Apus::apus)\n",
            crate_folder().join("tests/c/sizes.c").display()
        ),
    )
    .unwrap();
    run(Command::new("cmake")
        .args(["-S", "project", "-B", "project/build"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .current_dir(prefix));
    run(Command::new("cmake")
        .args(["--build", "project/build"])
        .current_dir(prefix));
    let sizes = run(&mut Command::new(project.join("build/sizes")));
    assert!(sizes.starts_with("apus_str 16\n"), "{sizes}");
}
