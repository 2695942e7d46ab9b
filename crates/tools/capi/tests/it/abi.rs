//! The binary interface: the symbols of the library, and the sizes of its structures, beside a recorded list.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::program::{command, compile, crate_folder, library_folder};

/// The functions that the library exports.
fn symbols() -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library_folder().join("libapus_capi.so"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    symbols
        .filter(|symbol| symbol.starts_with("apus_"))
        .map(str::to_owned)
        .collect()
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_folder().join("include/apus.h")).unwrap();
    let from = header.find("extern \"C\"").unwrap();
    let mut found = BTreeSet::new();
    let declarations = header[from..].split("*/").flat_map(|part| part.lines());
    for line in declarations.filter(|line| !line.trim_start().starts_with(['/', '*', ' '])) {
        let Some((before, _)) = line.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap();
        if name.starts_with("apus_") {
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn the_binary_interface_is_the_recorded_one() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = command(&compile("sizes.c", folder.path()))
        .output()
        .unwrap();
    let mut text = String::from_utf8(sizes.stdout).unwrap();
    for symbol in symbols() {
        writeln!(text, "{symbol}").unwrap();
    }
    let path = crate_folder().join("abi.txt");
    if std::env::var_os("APUS_WRITE_ABI").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, recorded,
        "abi.txt differs from this build. What programs use must stay: a removed function or another size needs another \
         soname. Record it by `APUS_WRITE_ABI=1 cargo test -p apus-capi --test it -- abi`"
    );
}

#[test]
fn the_library_has_each_function_of_the_header_and_no_other() {
    assert_eq!(symbols(), declared());
    assert!(symbols().len() > 100);
}
