//! `apus status --top`: the busiest sites, upstream nodes, clients and paths.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use apus_bench::format_rate;
use apus_server::control::{ControlRequest, MAX_TRAFFIC_SECONDS};
use ratatui::crossterm::terminal;
use serde_json::Value;

use crate::CommandError;
use crate::arguments::RunningServer;
use crate::drain_wait::ask;
use crate::output::{print, print_json, size};

/// How long requests are counted before the first numbers are shown, if they were not counted already.
const FIRST_TIME: Duration = Duration::from_secs(3);

/// The interval in which a terminal is refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// The longest time between two requests to the server, which ends counting if there are none.
const LONGEST_PAUSE: Duration = Duration::from_secs(MAX_TRAFFIC_SECONDS / 2);

/// The lines of each table, except on a terminal, where it depends on its height.
const ROWS: usize = 10;

/// The longest line, except on a terminal.
const WIDTH: usize = 240;

/// The tables: their name in the response, and the heading of their names.
const TABLES: [(&str, &str); 4] = [
    ("sites", "site"),
    ("upstream_nodes", "upstream node"),
    ("clients", "client"),
    ("paths", "path"),
];

/// Shows what was counted: on a terminal again and again, otherwise once, after the time that is asked for.
pub(crate) fn run(running: &RunningServer, time: Option<Duration>) -> Result<(), CommandError> {
    let first = watch(running, time.is_some())?;
    if time.is_none() && !running.json && io::stdout().is_terminal() {
        return refresh(running, first);
    }
    let counted = Duration::try_from_secs_f64(number(&first, "seconds")).unwrap_or_default();
    let reading = match time.unwrap_or_else(|| FIRST_TIME.saturating_sub(counted)) {
        Duration::ZERO => first,
        rest => watch_for(running, rest)?,
    };
    if running.json {
        print_json(&reading);
    } else {
        let screen = TrafficScreen {
            rows: ROWS,
            width: WIDTH,
        };
        print(screen.text(&reading, None).as_bytes());
    }
    Ok(())
}

/// Has requests counted for some time more, and returns what was counted until now.
fn watch(running: &RunningServer, anew: bool) -> Result<Value, CommandError> {
    let seconds = MAX_TRAFFIC_SECONDS;
    ask(running, &ControlRequest::Traffic { seconds, anew })
}

/// What was counted until this time has passed.
fn watch_for(running: &RunningServer, time: Duration) -> Result<Value, CommandError> {
    let mut rest = time;
    loop {
        let pause = rest.min(LONGEST_PAUSE);
        sleep(pause);
        rest = rest.saturating_sub(pause);
        let reading = watch(running, false)?;
        if rest.is_zero() {
            return Ok(reading);
        }
    }
}

/// Refreshes the terminal until the command is interrupted, or the server ends.
fn refresh(running: &RunningServer, first: Value) -> Result<(), CommandError> {
    let mut before = first;
    let mut start = "\x1b[2J";
    loop {
        sleep(REFRESH_INTERVAL);
        let reading = watch(running, false)?;
        let (width, height) = terminal::size().unwrap_or((80, 24));
        let screen = TrafficScreen::of_terminal(usize::from(width), usize::from(height));
        let text = screen.text(&reading, Some(&before));
        let lines = text.lines().take(usize::from(height).saturating_sub(1));
        let mut frame = format!("{start}\x1b[H");
        for line in lines {
            let _ = write!(frame, "{line}\x1b[K\r\n");
        }
        frame.push_str("\x1b[J");
        print(frame.as_bytes());
        before = reading;
        start = "";
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command has nothing else to do"
)]
fn sleep(time: Duration) {
    thread::sleep(time);
}

/// How much can be shown.
struct TrafficScreen {
    /// The lines of each table below its heading.
    rows: usize,
    width: usize,
}

/// The columns before the name.
const COLUMNS: [&str; 8] = ["requests", "/s", "sent", "2xx", "3xx", "4xx", "5xx", "time"];

impl TrafficScreen {
    fn of_terminal(width: usize, height: usize) -> Self {
        // The first line, two and a note for each table, and the line of the cursor.
        let taken = 2 + 3 * TABLES.len();
        Self {
            rows: (height.saturating_sub(taken) / TABLES.len()).max(1),
            width,
        }
    }

    /// What was counted, and the requests per second since `before`, or else since counting began.
    fn text(&self, reading: &Value, before: Option<&Value>) -> String {
        let seconds = number(reading, "seconds");
        // Somebody else may have begun anew.
        let before = before.filter(|before| number(before, "seconds") < seconds);
        let Some(total) = reading
            .get("total")
            .filter(|total| number(total, "requests") > 0.0)
        else {
            return format!("no requests in {seconds:.1} s\n");
        };
        let since = before.map_or(seconds, |before| seconds - number(before, "seconds"));
        let had = before.and_then(|before| before.get("total"));
        let mut out = self.line(format!(
            "{} requests in {seconds:.1} s, {}/s, {} sent",
            number(total, "requests"),
            rate(total, had, since),
            bytes(total),
        ));
        let has_sites = items(reading, "sites").nth(1).is_some();
        for (table, heading) in TABLES {
            let rows: Vec<_> = items(reading, table)
                .take(self.rows)
                .map(|item| {
                    let mut had = before.into_iter().flat_map(|before| items(before, table));
                    let had = had.find(|other| key(other) == key(item));
                    let cells = cells(item, rate(item, had, since));
                    (cells, name(item, has_sites))
                })
                .collect();
            if rows.is_empty() {
                continue;
            }
            out.push('\n');
            self.push_table(&mut out, heading, &rows);
            let error = items(reading, table)
                .take(self.rows)
                .map(|item| number(item, "requests_at_most") - number(item, "requests"))
                .fold(0.0, f64::max);
            if error > 0.0 {
                out += &self.line(format!(
                    "there were more than could be counted: each may have had up to {error} requests more"
                ));
            }
        }
        out
    }

    fn push_table(&self, out: &mut String, heading: &str, rows: &[([String; 8], String)]) {
        let headings = (COLUMNS.map(str::to_owned), heading.to_owned());
        let all = || [&headings].into_iter().chain(rows);
        let widths: [usize; 8] = std::array::from_fn(|column| {
            let cells = all().filter_map(|(cells, _)| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        });
        for (cells, name) in all() {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                let _ = write!(line, "{cell:>width$}  ");
            }
            *out += &self.line(line + name);
        }
    }

    /// A line that is no wider than the screen.
    fn line(&self, text: String) -> String {
        let mut line = match text.char_indices().nth(self.width) {
            None => text,
            Some(_) => {
                let kept = text.chars().take(self.width.saturating_sub(1));
                kept.chain(['…']).collect()
            }
        };
        line.push('\n');
        line
    }
}

fn cells(item: &Value, rate: String) -> [String; 8] {
    let status = |class: &str| {
        let counts = item.get("statuses");
        counts
            .map_or(0.0, |counts| number(counts, class))
            .to_string()
    };
    let requests = number(item, "requests");
    let milliseconds = number(item, "time_seconds") * 1000.0 / requests.max(1.0);
    [
        requests.to_string(),
        rate,
        bytes(item),
        status("2xx"),
        status("3xx"),
        status("4xx"),
        status("5xx"),
        match milliseconds {
            0.0..10.0 => format!("{milliseconds:.1} ms"),
            10.0..1000.0 => format!("{milliseconds:.0} ms"),
            _ => format!("{:.1} s", milliseconds / 1000.0),
        },
    ]
}

/// The requests per second of a time at whose beginning there were `had`.
fn rate(item: &Value, had: Option<&Value>, seconds: f64) -> String {
    let had = had.map_or(0.0, |had| number(had, "requests"));
    // A key that lost its place begins with 0 when it gets one again.
    let requests = number(item, "requests") - had;
    format_rate(requests.max(0.0) / seconds.max(0.001))
}

fn bytes(item: &Value) -> String {
    let sent = item.get("bytes_sent").and_then(Value::as_u64);
    size(sent.unwrap_or_default())
}

/// What an item is called, without anything that could control a terminal: clients choose paths.
fn name(item: &Value, has_sites: bool) -> String {
    let (site, name) = key(item);
    if has_sites && !site.is_empty() {
        escaped(site) + " " + &escaped(name)
    } else {
        escaped(name)
    }
}

/// The site of a path, and the path; otherwise the name.
fn key(item: &Value) -> (&str, &str) {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let name = text("path").or(text("name"));
    (text("site").unwrap_or_default(), name.unwrap_or_default())
}

/// A text without anything that could control a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '\'' | '"' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    out
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let items = value.get(name).and_then(Value::as_array);
    items.into_iter().flatten()
}

fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(name: Value, requests: u64) -> Value {
        let mut counts = name;
        for (name, value) in [
            ("requests", json!(requests)),
            ("requests_at_most", json!(requests)),
            ("bytes_sent", json!(requests * 2048)),
            (
                "statuses",
                json!({"1xx": 0, "2xx": requests - 1, "3xx": 0, "4xx": 1, "5xx": 0}),
            ),
            ("time_seconds", json!(requests as f64 * 0.026)),
        ] {
            counts[name] = value;
        }
        counts
    }

    fn reading(seconds: f64, requests: u64) -> Value {
        json!({
            "counting": true,
            "seconds": seconds,
            "total": counts(json!({}), requests),
            "sites": [counts(json!({"name": "shop"}), requests)],
            "upstream_nodes": [],
            "clients": [counts(json!({"name": "2001:db8::/64"}), requests)],
            "paths": [
                counts(json!({"site": "shop", "path": "/a"}), requests - 1),
                counts(json!({"site": "shop", "path": "/b\u{1b}[2J\u{202e}"}), 1),
            ],
        })
    }

    const SCREEN: TrafficScreen = TrafficScreen {
        rows: 10,
        width: 100,
    };

    #[test]
    fn the_tables_are_aligned_and_no_name_controls_the_terminal() {
        let text = SCREEN.text(&reading(10.0, 100), None);
        let expected = "100 requests in 10.0 s, 10/s, 200.0 KB sent\n\
            \n\
            requests  /s      sent  2xx  3xx  4xx  5xx   time  site\n\
            \x20    100  10  200.0 KB   99    0    1    0  26 ms  shop\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("upstream"), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.ends_with(r"  /b\u{1b}[2J\u{202e}"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.find("/a").or(line.find("/b")))
            .collect();
        assert_eq!(names, [names[0]; 2], "{text}");
    }

    #[test]
    fn rates_are_since_the_refresh_before_and_lines_end_at_the_width() {
        let (before, now) = (reading(10.0, 100), reading(12.0, 140));
        let rates = |text: &str| {
            let line = text.lines().nth(3).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(rates(&SCREEN.text(&now, Some(&before))), "20");
        // Somebody else has begun anew.
        assert_eq!(rates(&SCREEN.text(&reading(2.0, 10), Some(&now))), "5");
        let narrow = TrafficScreen::of_terminal(40, 24);
        let text = narrow.text(&now, Some(&before));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(text.contains('…'), "{text}");
        assert!(text.lines().count() < 24, "{text}");
    }

    #[test]
    fn what_is_not_certain_is_said_and_no_requests_are_none() {
        let mut reading = reading(3.0, 5);
        reading["paths"][1]["requests_at_most"] = json!(8);
        let text = SCREEN.text(&reading, None);
        assert!(text.ends_with("up to 7 requests more\n"), "{text}");
        let none = json!({ "counting": true, "seconds": 3.0, "total": { "requests": 0 } });
        assert_eq!(SCREEN.text(&none, None), "no requests in 3.0 s\n");
    }
}
