//! The tables of `apus top`: their columns, and the rows that are made of a reading.

use std::time::{SystemTime, UNIX_EPOCH};

use apus_bench::format_rate;
use apus_server::control::{ControlRequest, NodeChange, PurgeScope};
use ratatui::style::Color;
use serde_json::Value;

use super::reading::{TopReading, items, number, text};
use crate::output::{duration, size};
use crate::traffic_view::escaped;

/// For how long a client is banned.
const BAN_SECONDS: u64 = 3600;

/// The tables, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopTable {
    Sites,
    Clients,
    Paths,
    Nodes,
    Bans,
    Errors,
}

/// A row: what it shows, by what it is sorted, and what it is about.
#[derive(Clone, Debug)]
pub(super) struct TopRow {
    /// Finds it again in the next reading.
    pub(super) key: String,
    pub(super) cells: Vec<String>,
    /// The numbers of the columns behind the names, by which rows are sorted.
    pub(super) values: Vec<f64>,
    pub(super) colour: Option<Color>,
    subject: RowSubject,
}

/// What can be done something about.
#[derive(Clone, Debug)]
enum RowSubject {
    Site(String),
    Client(String),
    Nothing,
    Node { group: String, node: String },
    Ban(String),
}

/// Something that is done once somebody has said yes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopQuestion {
    pub(super) text: String,
    pub(super) request: ControlRequest,
}

impl TopTable {
    pub(super) const ALL: [Self; 6] = [
        Self::Sites,
        Self::Clients,
        Self::Paths,
        Self::Nodes,
        Self::Bans,
        Self::Errors,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sites => "sites",
            Self::Clients => "clients",
            Self::Paths => "paths",
            Self::Nodes => "nodes",
            Self::Bans => "bans",
            Self::Errors => "errors",
        }
    }

    /// The columns, those with names first.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Sites | Self::Clients => {
                &["name", "requests", "/s", "4xx", "5xx", "sent", "time"]
            }
            Self::Paths => &[
                "site", "path", "requests", "/s", "4xx", "5xx", "sent", "time",
            ],
            Self::Nodes => &[
                "group",
                "node",
                "state",
                "last check",
                "requests",
                "/s",
                "in flight",
                "failures",
                "latency",
            ],
            Self::Bans => &["network", "reason", "times", "ends"],
            Self::Errors => &["level", "site", "message", "ago"],
        }
    }

    /// How many columns have names, which are at the left.
    pub(super) fn names(self) -> usize {
        match self {
            Self::Sites | Self::Clients => 1,
            Self::Paths | Self::Bans => 2,
            Self::Errors => 3,
            Self::Nodes => 4,
        }
    }

    /// The keys that do something about a row.
    pub(super) fn keys(self) -> &'static str {
        match self {
            Self::Sites => "p purge",
            Self::Clients => "b ban",
            Self::Paths | Self::Errors => "",
            Self::Nodes => "d drain  u up  x down",
            Self::Bans => "r remove",
        }
    }

    /// The rows of a reading, with rates since the one before.
    pub(super) fn rows(self, now: &TopReading, before: Option<&TopReading>) -> Vec<TopRow> {
        let counted = |name: &str| -> Vec<TopRow> {
            let rows = items(&now.traffic, name);
            rows.map(|item| self.traffic_row(item, name, now, before))
                .collect()
        };
        match self {
            Self::Sites => counted("sites"),
            Self::Clients => counted("clients"),
            Self::Paths => counted("paths"),
            Self::Nodes => {
                let groups = items(&now.status, "upstreams");
                groups
                    .flat_map(|group| {
                        let nodes = items(group, "nodes");
                        nodes.map(move |node| node_row(group, node, now, before))
                    })
                    .collect()
            }
            Self::Bans => items(&now.bans, "bans").map(ban_row).collect(),
            Self::Errors => items(&now.errors, "errors").map(error_row).collect(),
        }
    }

    fn traffic_row(
        self,
        item: &Value,
        list: &str,
        now: &TopReading,
        before: Option<&TopReading>,
    ) -> TopRow {
        let is_same = |other: &&Value| {
            ["site", "name", "path"].map(|name| text(other, name))
                == ["site", "name", "path"].map(|name| text(item, name))
        };
        let had = before.and_then(|before| items(&before.traffic, list).find(is_same));
        let requests = number(item, "requests");
        let seconds = now.seconds() - before.map_or(0.0, TopReading::seconds);
        // Somebody else may have begun to count anew.
        let (had, seconds) = if seconds > 0.0 {
            (had.map_or(0.0, |had| number(had, "requests")), seconds)
        } else {
            (0.0, now.seconds())
        };
        let rate = (requests - had).max(0.0) / seconds.max(0.001);
        let statuses = item.get("statuses").unwrap_or(&Value::Null);
        let [client_errors, server_errors] = ["4xx", "5xx"].map(|class| number(statuses, class));
        let sent = number(item, "bytes_sent");
        let time = number(item, "time_seconds") / requests.max(1.0);
        let (site, name, path) = (text(item, "site"), text(item, "name"), text(item, "path"));
        let mut cells = match self {
            Self::Paths => vec![escaped(site), escaped(path)],
            _ => vec![escaped(name)],
        };
        cells.extend([
            requests.to_string(),
            format_rate(rate),
            client_errors.to_string(),
            server_errors.to_string(),
            size(sent as u64),
            milliseconds(time),
        ]);
        TopRow {
            key: format!("{site} {name} {path}"),
            cells,
            values: vec![requests, rate, client_errors, server_errors, sent, time],
            colour: (server_errors > 0.0).then_some(Color::Red),
            subject: match self {
                Self::Sites => RowSubject::Site(name.to_owned()),
                Self::Clients => RowSubject::Client(name.to_owned()),
                _ => RowSubject::Nothing,
            },
        }
    }
}

fn node_row(group: &Value, node: &Value, now: &TopReading, before: Option<&TopReading>) -> TopRow {
    let (group_name, name) = (text(group, "name"), text(node, "name"));
    let had = before.and_then(|before| {
        let mut groups = items(&before.status, "upstreams");
        let group = groups.find(|group| text(group, "name") == group_name)?;
        items(group, "nodes").find(|node| text(node, "name") == name)
    });
    let uptime = |reading: &TopReading| number(&reading.status, "uptime_seconds");
    let seconds = before.map_or(0.0, |before| uptime(now) - uptime(before));
    let requests = number(node, "requests");
    let rate = match had {
        Some(had) if seconds > 0.0 => (requests - number(had, "requests")).max(0.0) / seconds,
        _ => 0.0,
    };
    let failures = node.get("failures").and_then(Value::as_object);
    let failures = failures.map_or(0.0, |kinds| kinds.values().filter_map(Value::as_f64).sum());
    let in_flight = number(node, "in_flight");
    let latency = node.get("latency_seconds").and_then(Value::as_f64);
    let (state, admin) = (text(node, "state"), text(node, "admin"));
    let (shown, colour) = match (admin, state) {
        ("down", _) => ("down".to_owned(), Some(Color::DarkGray)),
        ("drain", _) => ("drains".to_owned(), Some(Color::Yellow)),
        (_, "in") => ("in".to_owned(), None),
        (_, state) if state.starts_with("out") => (state.to_owned(), Some(Color::Red)),
        (_, state) => (state.to_owned(), Some(Color::Yellow)),
    };
    let check = node.get("last_check").filter(|check| !check.is_null());
    let check = check.map_or("-".to_owned(), |check| match text(check, "fault") {
        "" => "good".to_owned(),
        fault => escaped(fault),
    });
    TopRow {
        key: format!("{group_name} {name}"),
        cells: vec![
            escaped(group_name),
            escaped(name),
            shown,
            check,
            requests.to_string(),
            format_rate(rate),
            in_flight.to_string(),
            failures.to_string(),
            latency.map_or("-".to_owned(), milliseconds),
        ],
        values: vec![
            requests,
            rate,
            in_flight,
            failures,
            latency.unwrap_or_default(),
        ],
        colour,
        subject: RowSubject::Node {
            group: group_name.to_owned(),
            node: name.to_owned(),
        },
    }
}

fn ban_row(ban: &Value) -> TopRow {
    let network = text(ban, "network");
    let left = ban.get("seconds_left").and_then(Value::as_u64);
    TopRow {
        key: network.to_owned(),
        cells: vec![
            escaped(network),
            escaped(text(ban, "reason")),
            number(ban, "times").to_string(),
            left.map_or("never".to_owned(), |left| format!("in {}", duration(left))),
        ],
        values: vec![
            number(ban, "times"),
            left.map_or(f64::INFINITY, |left| left as f64),
        ],
        colour: None,
        subject: RowSubject::Ban(network.to_owned()),
    }
}

/// A line of the server's log, with its fields.
fn error_row(line: &Value) -> TopRow {
    let time = number(line, "time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ago = (now.unwrap_or_default().as_secs_f64() - time).max(0.0);
    let fields = line.get("fields").and_then(Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, value)| {
        let shown = value.as_str().map(str::to_owned);
        format!(" {name}={}", shown.unwrap_or_else(|| value.to_string()))
    });
    let said = text(line, "message").to_owned() + &fields.collect::<String>();
    TopRow {
        key: format!("{time} {said}"),
        cells: vec![
            escaped(text(line, "level")),
            escaped(text(line, "site")),
            escaped(&said),
            duration(ago as u64),
        ],
        // The newest is the first.
        values: vec![time],
        colour: (text(line, "level") == "ERROR").then_some(Color::Red),
        subject: RowSubject::Nothing,
    }
}

impl TopRow {
    /// What a key asks about the row, if it means anything for it.
    pub(super) fn question(&self, key: char) -> Option<TopQuestion> {
        let (text, request) = match (&self.subject, key) {
            (RowSubject::Site(site), 'p') => (
                format!("Purge all stored responses of the site {}?", escaped(site)),
                ControlRequest::CachePurge {
                    site: Some(site.clone()),
                    what: PurgeScope::All,
                    soft: false,
                },
            ),
            (RowSubject::Client(client), 'b') => (
                format!("Ban {} for an hour, at every site?", escaped(client)),
                ControlRequest::BanAdd {
                    network: client.clone(),
                    seconds: Some(BAN_SECONDS),
                    reason: "by apus top".to_owned(),
                    force: false,
                },
            ),
            (RowSubject::Ban(network), 'r') => (
                format!("Remove the ban of {}?", escaped(network)),
                ControlRequest::BanRemove {
                    network: network.clone(),
                },
            ),
            (RowSubject::Node { group, node }, 'd' | 'u' | 'x') => {
                let (verb, change) = match key {
                    'd' => ("Drain", NodeChange::Drain),
                    'u' => ("Enable", NodeChange::Up),
                    _ => ("Disable", NodeChange::Down),
                };
                (
                    format!("{verb} {} of {}?", escaped(node), escaped(group)),
                    ControlRequest::Upstream {
                        group: group.clone(),
                        node: node.clone(),
                        change,
                    },
                )
            }
            _ => return None,
        };
        Some(TopQuestion { text, request })
    }
}

fn milliseconds(seconds: f64) -> String {
    let milliseconds = seconds * 1000.0;
    match milliseconds {
        0.0..10.0 => format!("{milliseconds:.1} ms"),
        10.0..1000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{seconds:.1} s"),
    }
}
