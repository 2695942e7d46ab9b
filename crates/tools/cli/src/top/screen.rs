//! The screen of `apus top`: what is shown of the readings, and what keys do.

use std::cmp::Ordering;

use apus_bench::format_rate;
use apus_server::control::ControlRequest;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::reading::{TopReading, items, number, text};
use super::tables::{TopQuestion, TopRow, TopTable};
use crate::output::{duration, size};
use crate::traffic_view::escaped;

/// What a key has the command do.
#[derive(Debug, PartialEq)]
pub(super) enum TopEffect {
    None,
    Quit,
    /// Asks the server for another reading now.
    Read,
    Ask(ControlRequest),
}

/// What is shown.
pub(super) struct TopScreen {
    now: TopReading,
    before: Option<TopReading>,
    table: TopTable,
    /// The column behind the names by which each table is sorted.
    sorts: [usize; TopTable::ALL.len()],
    /// The row that keys are about, by its key.
    selected: Option<String>,
    question: Option<TopQuestion>,
    note: Option<String>,
    /// Why there is no newer reading.
    fault: Option<String>,
}

impl TopScreen {
    pub(super) fn new(reading: TopReading) -> Self {
        Self {
            now: reading,
            before: None,
            table: TopTable::Sites,
            sorts: [0; TopTable::ALL.len()],
            selected: None,
            question: None,
            note: None,
            fault: None,
        }
    }

    /// Shows another reading.
    pub(super) fn update(&mut self, reading: TopReading) {
        self.before = Some(std::mem::replace(&mut self.now, reading));
        self.fault = None;
    }

    /// Says that there is no reading.
    pub(super) fn lose(&mut self, fault: String) {
        self.fault = Some(fault);
    }

    /// Says what became of something.
    pub(super) fn say(&mut self, note: String) {
        self.note = Some(note);
    }

    /// Does what a key means.
    pub(super) fn press(&mut self, key: KeyEvent) -> TopEffect {
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
            && matches!(key.code, KeyCode::Char('c' | 'd'));
        if is_interrupt {
            return TopEffect::Quit;
        }
        if let Some(question) = self.question.take() {
            let is_yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
            self.note = (!is_yes).then(|| "nothing was done".to_owned());
            return if is_yes {
                TopEffect::Ask(question.request)
            } else {
                TopEffect::None
            };
        }
        self.note = None;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return TopEffect::Quit,
            KeyCode::Char(' ') => return TopEffect::Read,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(TopTable::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='6') => {
                let tables = "123456".chars().zip(TopTable::ALL);
                if let Some((_, table)) = tables.into_iter().find(|(key, _)| *key == digit) {
                    self.show(table);
                }
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(|row| row.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.select(|row| row.saturating_sub(1)),
            KeyCode::PageDown => self.select(|row| row.saturating_add(10)),
            KeyCode::PageUp => self.select(|row| row.saturating_sub(10)),
            KeyCode::Home => self.select(|_| 0),
            KeyCode::Char('s') => {
                let columns = self.table.columns().len() - self.table.names();
                if let Some(sort) = self.sorts.get_mut(self.table as usize) {
                    *sort = (*sort + 1) % columns;
                }
            }
            KeyCode::Char(key) => {
                let rows = self.rows();
                let row = self.selected_row(&rows).and_then(|row| rows.get(row));
                self.question = row.and_then(|row| row.question(key));
            }
            _ => {}
        }
        TopEffect::None
    }

    fn turn(&mut self, by: usize) {
        let mut tables = TopTable::ALL.into_iter().cycle();
        if let Some(table) = tables.nth(self.table as usize + by) {
            self.show(table);
        }
    }

    fn show(&mut self, table: TopTable) {
        self.table = table;
        self.selected = None;
    }

    fn select(&mut self, change: impl FnOnce(usize) -> usize) {
        let rows = self.rows();
        let row = self.selected_row(&rows).map_or(0, change);
        let row = row.min(rows.len().saturating_sub(1));
        self.selected = rows.get(row).map(|row| row.key.clone());
    }

    fn sort(&self) -> usize {
        self.sorts.get(self.table as usize).copied().unwrap_or(0)
    }

    fn rows(&self) -> Vec<TopRow> {
        let mut rows = self.table.rows(&self.now, self.before.as_ref());
        let value = |row: &TopRow| row.values.get(self.sort()).copied().unwrap_or(0.0);
        rows.sort_by(|one, other| {
            let order = value(other).partial_cmp(&value(one));
            order
                .unwrap_or(Ordering::Equal)
                .then_with(|| one.key.cmp(&other.key))
        });
        rows
    }

    /// The selected row: the first one until another is chosen.
    fn selected_row(&self, rows: &[TopRow]) -> Option<usize> {
        let found = rows
            .iter()
            .position(|row| Some(&row.key) == self.selected.as_ref());
        found.or((!rows.is_empty()).then_some(0))
    }

    pub(super) fn render(&self, frame: &mut Frame<'_>) {
        let [head, tabs, table, foot] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(2),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(), head);
        frame.render_widget(self.tabs(), tabs);
        self.render_table(frame, table);
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self) -> Paragraph<'_> {
        let (status, traffic) = (&self.now.status, &self.now.traffic);
        let totals = status.get("totals").unwrap_or(&serde_json::Value::Null);
        let uptime = number(status, "uptime_seconds");
        let before = self.before.as_ref().map(|before| &before.status);
        let had = before.and_then(|status| status.get("totals"));
        let seconds = before.map_or(0.0, |before| uptime - number(before, "uptime_seconds"));
        let rate = |name: &str| match had {
            Some(had) if seconds > 0.0 => {
                (number(totals, name) - number(had, name)).max(0.0) / seconds
            }
            _ => 0.0,
        };
        let all = traffic.get("total").unwrap_or(&serde_json::Value::Null);
        let statuses = all.get("statuses").unwrap_or(&serde_json::Value::Null);
        let share = |class: &str| {
            let all = number(all, "requests").max(1.0);
            format!("{:.1}%", number(statuses, class) * 100.0 / all)
        };
        let errors = number(statuses, "5xx");
        let failed = format!("5xx {}", share("5xx"));
        Paragraph::new(vec![
            Line::from(vec![
                "apus top  ".bold(),
                Span::from(escaped(text(status, "source"))),
                Span::from(format!(
                    "  {}  up {}",
                    text(status, "version"),
                    duration(uptime as u64)
                )),
            ]),
            Line::from(vec![
                format!("{}/s", format_rate(rate("requests"))).bold().cyan(),
                Span::from(format!(
                    "  {} connections  {}/s sent  {}/s received  2xx {}  3xx {}  4xx {}  ",
                    number(totals, "connections"),
                    size(rate("bytes_out") as u64),
                    size(rate("bytes_in") as u64),
                    share("2xx"),
                    share("3xx"),
                    share("4xx"),
                )),
                if errors > 0.0 {
                    failed.red().bold()
                } else {
                    failed.into()
                },
            ]),
            self.concerns(),
        ])
    }

    /// What needs an eye.
    fn concerns(&self) -> Line<'_> {
        let status = &self.now.status;
        let mut concerns = Vec::new();
        if let Some(fault) = &self.fault {
            concerns.push(format!("no answer: {}", fault.lines().next().unwrap_or("")));
        }
        if status
            .get("last_reload_failure")
            .is_some_and(|fault| !fault.is_null())
        {
            concerns.push("the last reload failed".to_owned());
        }
        for group in items(status, "upstreams") {
            let nodes: Vec<_> = items(group, "nodes").collect();
            let out = nodes.iter().filter(|node| {
                text(node, "admin") == "up" && text(node, "state").starts_with("out")
            });
            let out = out.count();
            if out > 0 {
                let name = escaped(text(group, "name"));
                concerns.push(format!("{out} of {} nodes of {name} are out", nodes.len()));
            }
        }
        for site in items(status, "maintenance") {
            concerns.push(format!("{} is in maintenance", escaped(text(site, "name"))));
        }
        match concerns.is_empty() {
            true => Line::from("nothing needs attention".dim()),
            false => Line::from(concerns.join("; ").yellow().bold()),
        }
    }

    fn tabs(&self) -> Paragraph<'_> {
        let tabs = TopTable::ALL.iter().zip(1..).map(|(table, number)| {
            let name = format!(" {number} {} ", table.title());
            if *table == self.table {
                name.reversed().bold()
            } else {
                name.dim()
            }
        });
        Paragraph::new(Line::from(tabs.collect::<Vec<_>>()))
    }

    fn render_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows();
        if rows.is_empty() {
            let nothing = match self.table {
                TopTable::Nodes => "the configuration has no groups of origins",
                TopTable::Bans => "nobody is banned",
                TopTable::Errors => "the log has no warnings and errors",
                _ => "no requests yet",
            };
            return frame.render_widget(Paragraph::new(nothing.dim()), area);
        }
        let names = self.table.names();
        let columns = self.table.columns();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            let title = columns.get(column).map_or(0, |title| title.len() + 1);
            u16::try_from(longest.max(title)).unwrap_or(u16::MAX)
        };
        let widths = (0..columns.len()).map(|column| match column {
            // Names have what the numbers leave, and the first of several what it needs.
            column if column < names => Constraint::Max(width(column)),
            column => Constraint::Length(width(column)),
        });
        let sorted = names + self.sort();
        let titles = columns.iter().enumerate().map(|(column, title)| {
            let title = match column == sorted {
                true => format!("{title}▼"),
                false => (*title).to_owned(),
            };
            cell(title, column >= names)
        });
        let lines = rows.iter().map(|row| {
            let cells = row.cells.iter().enumerate();
            let cells = cells.map(|(column, text)| cell(text.clone(), column >= names));
            let style = row
                .colour
                .map_or(Style::new(), |colour| Style::new().fg(colour));
            Row::new(cells.collect::<Vec<_>>()).style(style)
        });
        let table = Table::new(lines, widths)
            .header(Row::new(titles.collect::<Vec<_>>()).style(Style::new().bold()))
            .column_spacing(2)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(self.selected_row(&rows));
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn foot(&self) -> Paragraph<'_> {
        let said = match (&self.question, &self.note) {
            (Some(question), _) => Line::from(vec![
                question.text.as_str().bold().fg(Color::Yellow),
                " y yes, any other key no".into(),
            ]),
            (None, Some(note)) => Line::from(escaped(note)),
            (None, None) => Line::default(),
        };
        let keys = format!(
            "↑↓ row  ←→ table  s sort  {}  space now  q quit",
            self.table.keys()
        );
        Paragraph::new(vec![said, Line::from(keys.dim())])
    }
}

/// A cell; numbers are at the right.
fn cell(text: String, is_number: bool) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(if is_number {
        line.right_aligned()
    } else {
        line
    })
}

#[cfg(test)]
mod tests {
    use apus_server::control::{NodeChange, PurgeScope};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::{Value, json};

    use super::*;

    fn counted(mut name: Value, requests: u64, errors: u64) -> Value {
        name["requests"] = json!(requests);
        name["bytes_sent"] = json!(requests * 2048);
        name["statuses"] = json!({ "2xx": requests - errors, "4xx": 0, "5xx": errors });
        name["time_seconds"] = json!(requests as f64 * 0.026);
        name
    }

    fn reading(seconds: f64, requests: u64) -> TopReading {
        let node = |name: &str, state: &str| {
            json!({
                "name": name, "admin": "up", "state": state, "requests": requests, "in_flight": 2, "failures": { "connect": 3, "tls": 1 },
                "latency_seconds": 0.0043, "last_check": { "seconds_ago": 1.0, "fault": "status 503" },
            })
        };
        TopReading {
            status: json!({
                "source": "/etc/apus.toml", "version": "0.1.0", "uptime_seconds": 100.0 + seconds, "last_reload_failure": null,
                "totals": { "requests": requests, "connections": 7, "bytes_out": requests * 2048, "bytes_in": 0 },
                "upstreams": [{ "name": "shop/app", "nodes": [node("10.0.0.1:80", "in"), node("10.0.0.2:80", "out, its checks fail")] }],
                "maintenance": [],
            }),
            traffic: json!({
                "counting": true, "seconds": seconds, "total": counted(json!({}), requests, 1),
                "sites": [counted(json!({ "name": "shop" }), requests, 1), counted(json!({ "name": "blog" }), 2, 0)],
                "clients": [counted(json!({ "name": "203.0.113.9" }), requests, 1)],
                "paths": [counted(json!({ "site": "shop", "path": "/a\u{1b}[2J\u{202e}" }), requests, 1)],
                "upstream_nodes": [],
            }),
            errors: json!({ "errors": [{ "time": 0.0, "level": "WARN", "site": "shop", "message": "tried another origin\u{1b}[2J", "fields": { "cause": "refused" } }] }),
            bans: json!({ "bans": [{ "network": "198.51.100.0/24", "reason": "scans", "seconds_left": 90, "times": 1 }] }),
        }
    }

    fn screen() -> TopScreen {
        let mut screen = TopScreen::new(reading(10.0, 100));
        screen.update(reading(12.0, 140));
        screen
    }

    fn shown(screen: &TopScreen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.render(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn press(screen: &mut TopScreen, keys: &str) -> TopEffect {
        let keys = keys.chars().map(|key| KeyEvent::from(KeyCode::Char(key)));
        keys.map(|key| screen.press(key)).last().unwrap()
    }

    #[test]
    fn the_head_says_what_happens_and_what_needs_attention() {
        let text = shown(&screen(), 110, 20);
        for part in [
            "/etc/apus.toml  0.1.0  up 1 min 52 s",
            "20/s  7 connections  40.0 KB/s sent",
            "5xx 0.7%",
            "1 of 2 nodes of shop/app are out",
            " 1 sites  2 clients  3 paths  4 nodes  5 bans  6 errors ",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let mut lost = screen();
        lost.lose("no server is running\nadvice".to_owned());
        assert!(shown(&lost, 110, 20).contains("no answer: no server is running;"));
    }

    #[test]
    fn each_table_has_its_rows_and_no_name_controls_the_terminal() {
        let mut screen = screen();
        for (key, parts) in [
            ('1', ["shop", "280.0 KB", "26 ms"]),
            ('2', ["203.0.113.9", "140", "20"]),
            ('3', [r"/a\u{1b}[2J\u{202e}", "shop", "requests▼"]),
            ('4', ["out, its checks fail", "status 503", "4.3 ms"]),
            ('5', ["198.51.100.0/24", "scans", "in 1 min 30 s"]),
            ('6', ["WARN", r"origin\u{1b}[2J cause=refused", "shop"]),
        ] {
            screen.press(KeyEvent::from(KeyCode::Char(key)));
            let text = shown(&screen, 120, 20);
            for part in parts {
                assert!(text.contains(part), "{part} is missing:\n{text}");
            }
        }
        // A long name leaves the numbers their place.
        let mut long = reading(12.0, 140);
        long.traffic["paths"][0]["path"] = "/long".repeat(80).into();
        screen.update(long);
        press(&mut screen, "3");
        let text = shown(&screen, 90, 20);
        assert!(
            text.contains("requests▼") && text.contains("280.0 KB"),
            "{text}"
        );
        for (width, height) in [(1, 1), (20, 5), (40, 12), (300, 90)] {
            shown(&screen, width, height);
        }
    }

    #[test]
    fn what_changes_something_is_asked_about_first() {
        let mut screen = screen();
        let purge = ControlRequest::CachePurge {
            site: Some("shop".to_owned()),
            what: PurgeScope::All,
            soft: false,
        };
        assert_eq!(press(&mut screen, "p"), TopEffect::None);
        assert!(shown(&screen, 100, 20).contains("responses of the site shop? y yes"));
        assert_eq!(press(&mut screen, "y"), TopEffect::Ask(purge));
        let ban = ControlRequest::BanAdd {
            network: "203.0.113.9".to_owned(),
            seconds: Some(3600),
            reason: "by apus top".to_owned(),
            force: false,
        };
        assert_eq!(press(&mut screen, "2by"), TopEffect::Ask(ban));
        let drain = ControlRequest::Upstream {
            group: "shop/app".to_owned(),
            node: "10.0.0.2:80".to_owned(),
            change: NodeChange::Drain,
        };
        assert_eq!(press(&mut screen, "4jdy"), TopEffect::Ask(drain));
        // Any other key is a no, also the one that quits.
        assert_eq!(press(&mut screen, "4xq"), TopEffect::None);
        assert!(shown(&screen, 100, 20).contains("nothing was done"));
        // A key that means nothing for the table asks nothing.
        assert_eq!(press(&mut screen, "3by"), TopEffect::None);
        assert_eq!(press(&mut screen, "q"), TopEffect::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(interrupt), TopEffect::Quit);
    }

    #[test]
    fn rows_are_sorted_by_a_column_and_the_selected_one_stays() {
        let mut screen = screen();
        let order = |screen: &TopScreen| {
            let text = shown(screen, 100, 20);
            text.find("shop ").unwrap() < text.find("blog ").unwrap()
        };
        assert!(order(&screen));
        screen.press(KeyEvent::from(KeyCode::Down));
        assert_eq!(press(&mut screen, "p"), TopEffect::None);
        assert!(shown(&screen, 100, 20).contains("of the site blog?"));
        press(&mut screen, "n");
        // By the time of a request, which is the same: then by name.
        press(&mut screen, "sssss");
        assert!(shown(&screen, 100, 20).contains("time▼"));
        assert!(!order(&screen));
        press(&mut screen, "p");
        assert!(shown(&screen, 100, 20).contains("of the site blog?"));
    }
}
