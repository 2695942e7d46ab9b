//! A dashboard: the load of a machine, live in every open page by server-sent events.

#![forbid(unsafe_code)]

use std::fs;

use apus::sse::{Broadcast, BroadcastSettings, Event, LastEventId};
use apus::{App, Html, Sse, State};
use serde::Serialize;

/// The measured values.
#[derive(Debug, Serialize)]
struct Figures {
    /// The load average of the last minute.
    load: f64,
    /// Used memory, in bytes.
    memory: u64,
    /// Total memory, in bytes.
    memory_total: u64,
    /// The number of open pages.
    pages: usize,
}

/// The number of values in a minute.
const KEPT: usize = 60;

/// The broadcast of values to all pages. A new page gets the values of the last minute first, a page
/// that reconnects the values that it missed.
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

/// Measures once, and sends the values to all pages.
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
