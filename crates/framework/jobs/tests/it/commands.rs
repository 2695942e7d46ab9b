//! The commands of queues, as an operator runs them.

use apus_clock::TestClock;
use apus_jobs::{JobRunner, Jobs};
use apus_testkit::block_on;
use serde_json::Value;

use crate::harness::{Tried, counts, of_each, runner, task};

/// The exit code, the output and the errors of a command.
fn run(jobs: &Jobs, arguments: &[&str]) -> (i32, String, String) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    let code = jobs.commands().run(arguments, &mut output, &mut errors);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(output), text(errors))
}

/// Runs a job of this name until it is dead.
fn kill(jobs: &Jobs, runner: &JobRunner, clock: &TestClock, name: &str) {
    block_on(jobs.push(&task(name, u32::MAX))).unwrap();
    for _ in 0..3 {
        block_on(runner.run_due()).unwrap();
        clock.advance(std::time::Duration::from_secs(120));
    }
}

#[test]
fn dead_jobs_are_listed_retried_and_forgotten_by_commands() {
    for (jobs, _fresh) in of_each("commands").into_iter().skip(1) {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let runner = runner(&jobs, &Tried::default());
        for name in ["a", "b\n\u{1b}[31m", "c"] {
            kill(&jobs, &runner, &clock, name);
        }
        let found = format!("{}: 0 ready, 0 delayed, 0 running, 3 dead\n", jobs.name());
        assert_eq!(run(&jobs, &["status"]), (0, found, String::new()));

        let (code, list, _) = run(&jobs, &["list"]);
        assert_eq!((code, list.lines().count()), (0, 3), "{list}");
        let lines: Vec<&str> = list.lines().collect();
        assert!(
            lines[0].ends_with("  c fails") && lines[2].ends_with("  a fails"),
            "{list}"
        );
        assert!(lines[1].ends_with("  b  [31m fails"), "{list}");
        assert_eq!(run(&jobs, &["list", "--limit", "2"]).1.lines().count(), 2);
        let (_, json, _) = run(&jobs, &["list", "--json", "--limit=1"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json[0]["payload"]["name"], "c");
        assert_eq!(json[0]["attempts"], 3);
        assert_eq!(
            run(&jobs, &["list", "--queue", "other"]),
            (0, String::new(), String::new())
        );

        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        let [c, b] = [id(lines[0]), id(lines[1])];
        assert_eq!(run(&jobs, &["retry", &c]).1, "1 due again\n");
        assert_eq!(block_on(jobs.counts()).unwrap(), counts(1, 0, 0, 2));
        assert_eq!(run(&jobs, &["forget", &b]).1, "1 removed\n");
        let (code, output, errors) = run(&jobs, &["forget", &b]);
        let expected = format!("error: there is no dead job {b}\n");
        assert_eq!((code, &*output, errors), (1, "0 removed\n", expected));
        assert_eq!(run(&jobs, &["retry", "--all"]).1, "1 due again\n");
        assert_eq!(run(&jobs, &["forget", "--all"]).1, "0 removed\n");
        assert_eq!(block_on(jobs.counts()).unwrap(), counts(2, 0, 0, 0));
    }
}

#[test]
fn wrong_commands_are_explained() {
    let jobs = Jobs::in_memory();
    for (arguments, expected) in [
        (&[][..], "a command is missing"),
        (&["frobnicate"], "there is no command \"frobnicate\""),
        (&["retry"], "`retry` takes the identities of jobs, or --all"),
        (&["forget", "7"], "\"7\" is no identity of a job"),
        (
            &["forget", "--all", "0199d1c0a3e15f0b7c9d2e4f6a8b1c3d"],
            "not both",
        ),
        (&["list", "--limit", "x"], "--limit takes a number"),
        (&["list", "--queue"], "--queue takes the name of a queue"),
        (&["status", "--all"], "`status` does not take \"--all\""),
    ] {
        let (code, output, errors) = run(&jobs, arguments);
        assert_eq!((code, &*output), (2, ""), "{arguments:?}");
        assert!(
            errors.contains(expected) && errors.contains("Usage: jobs"),
            "{errors}"
        );
    }
    let (code, usage, _) = run(&jobs, &["--help"]);
    assert!(code == 0 && usage.starts_with("Usage: jobs"), "{usage}");
    let (code, _, errors) = run(&jobs, &["list"]);
    assert_eq!(code, 1);
    assert!(errors.contains("in the memory of the server"), "{errors}");
}
