//! The blocks of code in `docs/c.md`: each compiles without a warning, alone or behind the usual headers.

use std::fs;
use std::process::Command;

use crate::harness::{include_folders, repository};

/// What a block that has no `#include` of its own finds.
const PRELUDE: &str = "#define _POSIX_C_SOURCE 200809L
#include <apus.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
";

/// The blocks of a language in a document.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("\n```{language}\n");
    document
        .split(&opening)
        .skip(1)
        .map(|rest| rest.split("\n```").next().unwrap())
        .collect()
}

fn check(compiler: &[&str], extension: &str, block: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(format!("block.{extension}"));
    let prelude = if block.starts_with("#include") {
        ""
    } else {
        PRELUDE
    };
    fs::write(&source, format!("{prelude}{block}\n")).unwrap();
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-Wno-unused-function", "-fsyntax-only"])
        .args(include_folders())
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{block}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn blocks_of_the_document_compile() {
    let document = fs::read_to_string(repository().join("docs/c.md")).unwrap();
    let in_c = blocks(&document, "c");
    assert!(in_c.len() >= 8, "{} blocks", in_c.len());
    for block in in_c {
        check(&["cc", "-std=c11"], "c", block);
    }
    let in_cpp = blocks(&document, "cpp");
    assert!(!in_cpp.is_empty());
    for block in in_cpp {
        check(&["g++", "-std=c++17"], "cpp", block);
    }
}

#[test]
fn the_first_block_of_the_document_is_the_example() {
    let document = fs::read_to_string(repository().join("docs/c.md")).unwrap();
    let example = fs::read_to_string(repository().join("examples/c/hello.c")).unwrap();
    let handler = "static int hello(";
    let of = |text: &str| {
        let rest = &text[text.find(handler).unwrap()..];
        rest[..rest.find("\n}\n").unwrap()].to_owned()
    };
    assert_eq!(of(blocks(&document, "c")[0]), of(&example));
}

#[test]
fn every_example_is_in_the_document_and_in_both_build_files() {
    let folder = repository().join("examples/c");
    let document = fs::read_to_string(repository().join("docs/c.md")).unwrap();
    let makefile = fs::read_to_string(folder.join("Makefile")).unwrap();
    let cmake = fs::read_to_string(folder.join("CMakeLists.txt")).unwrap();
    let mut examples = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if ![".c", ".cpp", ".py"].iter().any(|end| name.ends_with(end)) {
            continue;
        }
        examples += 1;
        assert!(document.contains(&format!("examples/c/{name}")), "{name}");
        if let Some(program) = name.strip_suffix(".c") {
            let is_named = |text: &str| text.split_whitespace().any(|word| word == program);
            assert!(
                is_named(&makefile) && is_named(&cmake.replace(')', " ")),
                "{name}"
            );
        }
    }
    assert!(examples >= 15, "{examples}");
}
