//! `apus upstream ... --wait`: waits until no request is under way at a node.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use apus_server::control::{ControlRequest, ControlResponse};
use serde_json::{Value, json};

use crate::arguments::RunningServer;
use crate::output::{print, print_error, print_json};
use crate::{CommandError, send};

/// The interval in which the state of the node is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often in a row the node has to be without requests: a worker may have chosen it just before.
const IDLE_POLLS: u32 = 2;

/// Changes the state of a node, and waits.
#[expect(
    clippy::disallowed_methods,
    reason = "the command has nothing else to do"
)]
pub(crate) fn run(
    running: &RunningServer,
    request: &ControlRequest,
    patience: Duration,
) -> Result<(), CommandError> {
    let started = Instant::now();
    let changed = ask(running, request)?;
    let name = |key: &str| changed.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, node) = (name("group"), name("node"));
    let mut progress = WaitProgress::default();
    let mut idle = 0;
    loop {
        let status = ask(running, &ControlRequest::Status)?;
        // A reload may remove the node, which then gets no requests.
        let under_way = requests(&status, group, node).unwrap_or_default();
        idle = if under_way == 0 { idle + 1 } else { 0 };
        if idle == IDLE_POLLS {
            progress.end();
            let seconds = started.elapsed().as_secs_f64();
            if running.json {
                print_json(&json!({ "in_flight": 0, "seconds": seconds }))
            } else {
                print(format!("{node}: no request is under way\n").as_bytes())
            }
            return Ok(());
        }
        if started.elapsed() >= patience && idle == 0 {
            progress.end();
            let seconds = started.elapsed().as_secs_f64();
            if running.json {
                print_json(&json!({ "in_flight": under_way, "seconds": seconds }));
                return Err(CommandError::Reported);
            }
            print_error(&format!(
                "{node}: after {} s, {} still under way; the node stays as it was set, and `apus upstream up` brings it back",
                patience.as_secs_f64(),
                counted(under_way)
            ));
            return Err(CommandError::Reported);
        }
        progress.show(node, under_way);
        thread::sleep(POLL_INTERVAL);
    }
}

/// The response of the running server, if it is none that failed.
pub(crate) fn ask(
    running: &RunningServer,
    request: &ControlRequest,
) -> Result<Value, CommandError> {
    match send(running, request)? {
        ControlResponse::Done(value) => Ok(value),
        ControlResponse::Failed { message, details } => {
            if running.json {
                print_json(&json!({ "error": message, "details": details }))
            } else {
                print_error(&message)
            }
            Err(CommandError::Reported)
        }
    }
}

/// The number of requests that are under way at a node.
fn requests(status: &Value, group: &str, node: &str) -> Option<u64> {
    let named = |list: &Value, name: &str| -> Vec<Value> {
        let all = list.as_array().into_iter().flatten();
        all.filter(|one| one.get("name").and_then(Value::as_str) == Some(name))
            .cloned()
            .collect()
    };
    let group = named(status.get("upstreams")?, group).into_iter().next()?;
    let nodes = named(group.get("nodes")?, node);
    let counts = nodes
        .iter()
        .filter_map(|node| node.get("in_flight")?.as_u64());
    Some(counts.sum())
}

fn counted(requests: u64) -> String {
    match requests {
        1 => "1 request is".to_owned(),
        many => format!("{many} requests are"),
    }
}

/// The line on a terminal that shows how many requests there are.
#[derive(Default)]
struct WaitProgress {
    is_shown: bool,
}

impl WaitProgress {
    fn show(&mut self, node: &str, requests: u64) {
        let mut output = io::stderr();
        if output.is_terminal() {
            self.is_shown = true;
            let _ = write!(output, "\r\x1b[K{node}: {} under way", counted(requests));
            let _ = output.flush();
        }
    }

    fn end(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
