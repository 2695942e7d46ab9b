//! A dashboard: what a machine does, live in every page that is open, by server-sent events.

use std::fs;

use apus::sse::{Broadcast, BroadcastSettings, Event, LastEventId};
use apus::{App, Html, Sse, State};
use serde::Serialize;

/// What is measured.
#[derive(Debug, Serialize)]
struct Figures {
    /// Processes that run or want to, on average over the last minute.
    load: f64,
    /// Memory that is used, in bytes.
    memory: u64,
    /// All memory there is, in bytes.
    memory_total: u64,
    /// Pages that are open.
    pages: usize,
}

/// The last minute.
const KEPT: usize = 60;

/// Figures for all pages. A page that opens gets those of the last minute first, one that comes back those that
/// it missed.
pub fn figures() -> Broadcast {
    Broadcast::new(BroadcastSettings {
        kept: KEPT,
        replay: KEPT,
        ..BroadcastSettings::default()
    })
}

/// The application.
pub fn app(figures: Broadcast) -> App {
    App::new()
        .get("/", async || Html(include_str!("page.html")))
        .get("/figures", follow)
        .state(figures)
}

async fn follow(State(figures): State<Broadcast>, last: LastEventId) -> Sse {
    Sse::new(figures.subscribe(&last))
}

/// Measures once, and tells all pages.
pub fn measure(figures: &Broadcast) {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| -> u64 {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let total = kilobytes("MemTotal") * 1024;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let found = Figures {
        load: load
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or(0.0),
        memory: total.saturating_sub(kilobytes("MemAvailable") * 1024),
        memory_total: total,
        pages: figures.waiting(),
    };
    if let Ok(event) = Event::new().event("figures").json(&found) {
        figures.publish(event);
    }
}
