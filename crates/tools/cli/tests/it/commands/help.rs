//! Help, completions, manual pages and exit statuses.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::Home;

#[test]
fn help_has_examples_and_exit_statuses() {
    let home = Home::new();
    let (help, _) = home.expect(&["--help"], 0);
    for text in ["Examples:", "apus serve public", "Exit status:", "APUS_LOG"] {
        assert!(help.contains(text), "{text} is missing:\n{help}");
    }
    for command in [
        "serve",
        "check",
        "reload",
        "stop",
        "status",
        "explain",
        "dev",
        "bench",
        "completions",
        "man",
    ] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command} is missing:\n{help}"
        );
        home.expect(&[command, "--help"], 0);
    }
}

#[test]
fn misuse_exits_with_2_and_failure_with_1() {
    let home = Home::new();
    home.write("a.toml", "[[sites]]\nroot = \"site\"\nlisten = [0]\n");
    home.write("mistaken.toml", "[[sites]]\n");
    for misuse in [
        &[][..],
        &["dance"],
        &["serve", "--workers", "0"],
        &["serve", "site", "--listen", "nowhere"],
        &["serve", "no-such-folder"],
        &["serve", "a.toml", "--listen", "8080"],
        &["explain", "GET"],
        &["explain", "GET", "/path"],
        &["explain", "GET", "http://a/", "--header", "no colon"],
        &["man", "dance"],
        &["completions", "dance"],
        // There is no apus.toml.
        &["check"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
    for failure in [
        &["check", "mistaken.toml"][..],
        &["stop", "site"],
        &["status", "a.toml"],
    ] {
        let (_, errors) = home.expect(failure, 1);
        assert!(!errors.is_empty(), "{failure:?}");
    }
}

#[test]
fn completions_are_scripts_that_bash_accepts() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (script, _) = home.expect(&["completions", shell], 0);
        assert!(script.contains("explain"), "{shell}");
    }
    let (script, _) = home.expect(&["completions", "bash"], 0);
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(bash.wait().unwrap().success());
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let home = Home::new();
    let (page, _) = home.expect(&["man"], 0);
    assert!(page.contains(".TH apus 1"), "{page}");
    let (page, _) = home.expect(&["man", "serve"], 0);
    assert!(
        page.contains("apus serve public") && page.contains("\\-\\-workers"),
        "{page}"
    );
}

#[test]
fn a_closed_standard_output_causes_no_panic() {
    let home = Home::new();
    let mut child = home
        .command(&["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}
