//! `apus ban`: its commands, and what they print.

use std::fmt::Write as _;

use apus_server::control::{ControlRequest, ControlResponse};
use serde_json::{Value, json};

use crate::arguments::{BanCommand, BanServer, RunningServer};
use crate::output::{duration, print, print_error, print_json};
use crate::{CommandError, send};

impl From<BanServer> for RunningServer {
    fn from(server: BanServer) -> Self {
        Self {
            source: server.config,
            socket: None,
            json: server.json,
        }
    }
}

pub(crate) fn run(command: BanCommand) -> Result<(), CommandError> {
    match command {
        BanCommand::List { running, config } => {
            let running = RunningServer {
                source: running.source.or(config),
                ..running
            };
            ask(&running, &ControlRequest::BanList, list)
        }
        BanCommand::Add {
            network,
            time,
            reason,
            force,
            server,
        } => {
            let request = ControlRequest::BanAdd {
                network,
                seconds: time.map(|time| time.as_secs()),
                reason,
                force,
            };
            ask(&server.into(), &request, |value| changed(value, "banned"))
        }
        BanCommand::Remove { network, server } => {
            let request = ControlRequest::BanRemove { network };
            ask(&server.into(), &request, |value| {
                changed(value, "no longer banned")
            })
        }
    }
}

pub(crate) fn ask(
    running: &RunningServer,
    request: &ControlRequest,
    text: impl FnOnce(&Value) -> String,
) -> Result<(), CommandError> {
    match send(running, request)? {
        ControlResponse::Done(value) => {
            if running.json {
                print_json(&value);
            } else {
                print(text(&value).as_bytes());
            }
            Ok(())
        }
        ControlResponse::Failed { message, .. } => {
            if running.json {
                print_json(&json!({ "error": message }));
            } else {
                print_error(&message);
            }
            Err(CommandError::Reported)
        }
    }
}

/// The network of a ban, and what became of it.
fn changed(value: &Value, what: &str) -> String {
    let network = value.get("network").and_then(Value::as_str);
    format!("{}: {what}\n", network.unwrap_or_default())
}

/// The bans, a line each, in columns: network, time that is left, how often, reason; and the lists.
pub(crate) fn list(value: &Value) -> String {
    let items = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let text = |item: &Value, name: &str| {
        let text = item.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let number = |item: &Value, name: &str| item.get(name).and_then(Value::as_u64);
    let rows: Vec<[String; 4]> = items("bans")
        .map(|ban| {
            let left = number(ban, "seconds_left").map(duration);
            [
                text(ban, "network"),
                left.unwrap_or_else(|| "until it is removed".to_owned()),
                match number(ban, "times") {
                    None | Some(0 | 1) => String::new(),
                    Some(times) => format!("{times} times"),
                },
                text(ban, "reason"),
            ]
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if rows.is_empty() {
        out.push_str("no client is banned\n");
    }
    for list in items("lists") {
        let count = number(list, "networks").unwrap_or_default();
        let _ = write!(out, "{}: {count} networks", text(list, "file"));
        match list.get("fault").and_then(Value::as_str) {
            Some(fault) => {
                let _ = writeln!(out, "; it {fault}");
            }
            None => out.push('\n'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_are_listed_in_columns() {
        let value = json!({
            "bans": [
                {"network": "198.51.100.0/24", "seconds_left": null, "times": 1, "reason": "a"},
                {"network": "192.0.2.1", "seconds_left": 61, "times": 3, "reason": "b"},
            ],
            "lists": [{"file": "drop.txt", "networks": 2, "fault": null}],
        });
        assert_eq!(
            list(&value),
            "198.51.100.0/24  until it is removed           a\n\
             192.0.2.1        1 min 1 s            3 times  b\n\
             drop.txt: 2 networks\n"
        );
        assert_eq!(
            list(&json!({"bans": [], "lists": []})),
            "no client is banned\n"
        );
    }
}
