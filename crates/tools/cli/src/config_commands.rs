//! `apus config`: shows the configuration of a running server, and changes it.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_server::control::{ConfigEdit, ControlRequest, KeyChange};
use serde_json::Value;

use crate::CommandError;
use crate::arguments::{ConfigCommand, RunningServer, TrialArguments};
use crate::ban_commands;
use crate::drain_wait::ask;
use crate::output::{duration, print, print_error, print_json, without_controls};

/// The interval in which a change that is tried is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) fn run(command: ConfigCommand) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Show { id: None, server } => {
            ban_commands::ask(&server.into(), &ControlRequest::Config, |config| {
                let text = config.get("text").and_then(Value::as_str);
                text.unwrap_or("# A folder is served, without a configuration file.\n")
                    .to_owned()
            })
        }
        ConfigCommand::Show {
            id: Some(id),
            server,
        } => ban_commands::ask(
            &server.into(),
            &ControlRequest::ConfigVersion { id },
            version,
        ),
        ConfigCommand::Try { file, trial } => {
            let text = fs::read_to_string(&file)
                .map_err(|error| CommandError::Failed(format!("{}: {error}", file.display())))?;
            change(ConfigEdit::Text(text), trial)
        }
        ConfigCommand::Set { keys, trial } => {
            let changes: Result<Vec<_>, _> = keys.iter().map(|key| key_change(key)).collect();
            change(ConfigEdit::Keys(changes?), trial)
        }
        ConfigCommand::Restore { id, trial } => change(ConfigEdit::Version(id), trial),
        ConfigCommand::Status { server } => {
            ban_commands::ask(&server.into(), &ControlRequest::ConfigTrial, status)
        }
        ConfigCommand::Confirm { server } => {
            ban_commands::ask(&server.into(), &ControlRequest::ConfigConfirm, status)
        }
        ConfigCommand::Rollback { server } => {
            ban_commands::ask(&server.into(), &ControlRequest::ConfigRollback, status)
        }
        ConfigCommand::Versions { server } => {
            ban_commands::ask(&server.into(), &ControlRequest::ConfigVersions, versions)
        }
    }
}

/// `global.workers=4` as a change of a key.
fn key_change(argument: &str) -> Result<KeyChange, CommandError> {
    let (key, value) = argument.split_once('=').ok_or_else(|| {
        CommandError::Misused(format!("`{argument}` has no `=`: expected KEY=VALUE"))
    })?;
    let value = match value {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    };
    Ok(KeyChange {
        key: key.split('.').map(str::to_owned).collect(),
        value,
    })
}

/// Tries a change, and waits for its end.
#[expect(
    clippy::disallowed_methods,
    reason = "the command has nothing else to do"
)]
fn change(edit: ConfigEdit, trial: TrialArguments) -> Result<(), CommandError> {
    let running: RunningServer = trial.server.into();
    let config = ask(&running, &ControlRequest::Config)?;
    let request = ControlRequest::ConfigChange {
        edit,
        version: number(&config, "version"),
        try_seconds: trial.seconds,
        keep: trial.keep,
        write: trial.write,
        note: trial.note,
    };
    let begun = ask(&running, &request)?;
    let warnings = begun.get("warnings").and_then(Value::as_str);
    if let Some(warnings) = warnings.filter(|text| !text.is_empty()) {
        print_error(&format!("warning: {}", without_controls(warnings)));
    }
    let mut seen = begun;
    let mut progress = TrialProgress::begin(&seen, trial.keep);
    while is_tried(&seen) {
        thread::sleep(POLL_INTERVAL);
        seen = ask(&running, &ControlRequest::ConfigTrial)?;
        progress.show(&seen);
    }
    progress.end();
    if running.json {
        print_json(&seen);
    } else {
        print(status(&seen).as_bytes());
    }
    match outcome(&seen) {
        Some("rolled_back" | "replaced") => Err(CommandError::Reported),
        _ => Ok(()),
    }
}

/// What is said while a change is tried, on standard error.
struct TrialProgress {
    is_terminal: bool,
    is_shown: bool,
}

impl TrialProgress {
    fn begin(begun: &Value, keep: bool) -> Self {
        if is_tried(begun) {
            let trial = begun.get("trial").unwrap_or(&Value::Null);
            let end = if keep {
                "it is kept then, unless it gets worse; `apus config rollback` ends it"
            } else {
                "`apus config confirm` keeps it, else it is rolled back then"
            };
            let _ = writeln!(
                io::stderr(),
                "version {} is tried for {} s: {end}",
                number(trial, "version"),
                number_of(trial, "seconds_left"),
            );
        }
        Self {
            is_terminal: io::stderr().is_terminal(),
            is_shown: false,
        }
    }

    fn show(&mut self, seen: &Value) {
        let trial = seen.get("trial").unwrap_or(&Value::Null);
        if self.is_terminal && is_tried(seen) {
            self.is_shown = true;
            let (requests, failures) = sums(trial);
            let left = number_of(trial, "seconds_left");
            let mut output = io::stderr();
            let _ = write!(
                output,
                "\r\x1b[K{left} s left, {failures} of {requests} requests failed"
            );
            let _ = output.flush();
        }
    }

    fn end(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A number that may have a fraction, as text without it.
fn number_of(value: &Value, name: &str) -> String {
    let number = value.get(name).and_then(Value::as_f64);
    format!("{:.0}", number.unwrap_or_default())
}

fn outcome(seen: &Value) -> Option<&str> {
    seen.get("trial")?.get("outcome")?.as_str()
}

fn is_tried(seen: &Value) -> bool {
    seen.get("trial").is_some_and(|trial| !trial.is_null()) && outcome(seen).is_none()
}

/// The requests and failures of all sites of a trial.
fn sums(trial: &Value) -> (u64, u64) {
    let sites = trial.get("sites").and_then(Value::as_array);
    let sites = sites.into_iter().flatten();
    sites.fold((0, 0), |(requests, failures), site| {
        (
            requests + number(site, "requests"),
            failures + number(site, "failures"),
        )
    })
}

/// A trial, or what became of the last one.
fn status(seen: &Value) -> String {
    let trial = seen.get("trial").unwrap_or(&Value::Null);
    let version = number(trial, "version");
    let reason = trial.get("reason").and_then(Value::as_str);
    let reason = without_controls(reason.unwrap_or_default());
    let mut out = match outcome(seen) {
        _ if trial.is_null() => {
            format!("Version {} is in force.\n", number(seen, "version"))
        }
        None => format!(
            "Version {version} is tried for {} s more.\n",
            number_of(trial, "seconds_left")
        ),
        Some("kept") => format!("Version {version} is kept.\n"),
        Some("rolled_back") => format!(
            "Version {version} is rolled back: {reason}. Version {} is in force.\n",
            number(seen, "version")
        ),
        Some(_) => format!(
            "Version {version} was replaced: {reason}. Version {} is in force.\n",
            number(seen, "version")
        ),
    };
    let sites = trial.get("sites").and_then(Value::as_array);
    for site in sites.into_iter().flatten() {
        let name = site.get("site").and_then(Value::as_str);
        let before = site.get("share_before").and_then(Value::as_f64);
        let _ = writeln!(
            out,
            "  {}: {} of {} requests failed, before {:.1}%",
            without_controls(name.unwrap_or_default()),
            number(site, "failures"),
            number(site, "requests"),
            before.unwrap_or_default() * 100.0,
        );
    }
    out
}

/// The versions, a line each, the last one first.
fn versions(value: &Value) -> String {
    let versions = value.get("versions").and_then(Value::as_array);
    let mut out = String::new();
    for version in versions.into_iter().flatten() {
        out += &version_line(version);
    }
    if out.is_empty() {
        out.push_str("A folder is served: there are no versions.\n");
    }
    out
}

fn version_line(version: &Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let ago = duration(now.saturating_sub(number(version, "time")));
    let text = |name: &str| {
        let text = version.get(name).and_then(Value::as_str);
        text.map(without_controls)
    };
    let state = match (version.get("in_force"), text("rolled_back")) {
        (Some(Value::Bool(true)), _) => "  in force".to_owned(),
        (_, Some(reason)) => format!("  rolled back: {reason}"),
        _ => String::new(),
    };
    let note = text("note").map_or_else(String::new, |note| format!("  {note}"));
    let by = text("by").unwrap_or_default();
    format!(
        "{:>5}  {ago} ago  {by}{note}{state}\n",
        number(version, "id")
    )
}

/// A version with what it changed.
fn version(version: &Value) -> String {
    let diff = version.get("diff").and_then(Value::as_str);
    let diff = diff.filter(|diff| !diff.is_empty());
    let mut out = format!("# {}", version_line(version).trim_start());
    match diff {
        Some(diff) => diff.lines().for_each(|line| {
            let _ = writeln!(out, "{}", without_controls(line));
        }),
        None => {
            let files = version.get("files").unwrap_or(&Value::Null);
            let text = files.get(0).and_then(|file| file.get("text"));
            out.push_str(text.and_then(Value::as_str).unwrap_or_default());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_keys_are_json_or_text() {
        for (argument, key, value) in [
            ("global.workers=4", &["global", "workers"][..], json!(4)),
            ("sites.0.root=a=b", &["sites", "0", "root"], json!("a=b")),
            (
                "sites.a.listen=[80]",
                &["sites", "a", "listen"],
                json!([80]),
            ),
            ("sites.a.cache=", &["sites", "a", "cache"], Value::Null),
        ] {
            let change = key_change(argument).unwrap_or_else(|_| panic!("{argument}"));
            assert_eq!(
                (change.key, change.value),
                (key.iter().map(|part| (*part).to_owned()).collect(), value)
            );
        }
        assert!(key_change("global.workers").is_err());
    }

    #[test]
    fn outcomes_are_told_with_their_sites() {
        let site =
            json!({ "site": "shop\u{1b}", "requests": 10, "failures": 6, "share_before": 0.015 });
        let rolled_back = json!({ "version": 1, "trial": { "version": 2, "outcome": "rolled_back", "reason": "worse", "sites": [site] } });
        assert_eq!(
            status(&rolled_back),
            "Version 2 is rolled back: worse. Version 1 is in force.\n  shop\\u{1b}: 6 of 10 requests failed, before 1.5%\n"
        );
        assert!(!is_tried(&rolled_back));
        let tried = json!({ "version": 2, "trial": { "version": 2, "outcome": null, "seconds_left": 30.0, "sites": [] } });
        assert!(is_tried(&tried));
        assert_eq!(status(&tried), "Version 2 is tried for 30 s more.\n");
        assert_eq!(
            status(&json!({ "version": 3, "trial": null })),
            "Version 3 is in force.\n"
        );
    }
}
