//! What quotas have counted, on the control thread of a running server: it is kept over restarts.
//!
//! Workers count in tables of their own memory. This writes them to a file, at most once a second, and less often when there are many keys, so
//! that it writes no more than about [`BYTES_PER_SECOND`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use apus_access::{LimitId, LimitStates, QuotaTable, QuotaUsage};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::saved_file::{SavedFile, SavedFileWords};
use crate::state_folder::StateFolder;

/// The file, in the state folder.
const FILE: &str = "quotas";
const HEADING: &str = "apus quotas, version 1";
const FOOTING: &str = "end";

/// The least time between two writes.
const INTERVAL: Duration = Duration::from_secs(1);

/// About how much is written: with ten thousand keys, the file is written each second.
const BYTES_PER_SECOND: usize = 500_000;

const WORDS: SavedFileWords = SavedFileWords {
    contents: "what quotas had counted before the restart",
    failed: "cannot store what quotas have counted: they stay in force, and a restart forgets what is counted until that is possible",
    works_again: "what quotas have counted is stored again",
};

/// The quotas of a running server.
pub(crate) struct QuotaControl {
    states: Arc<LimitStates>,
    file: SavedFile,
    tick: Interval,
    /// When it may be written again.
    next_write: Instant,
}

/// A limit in the file; its keys follow, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredQuota {
    site: Option<String>,
    location: Option<String>,
    name: String,
    key: String,
    seeds: [u64; 2],
    keys: usize,
}

/// A key in the file: its number, its value, and its name.
type StoredUsage = (u64, u64, Option<Box<str>>);

/// What a file holds.
type StoredQuotas = HashMap<LimitId, ([u64; 2], Vec<QuotaUsage>)>;

impl QuotaControl {
    /// Continues with what was stored, for the limits that there are. It has to be called before the first request.
    pub(crate) fn start(states: Arc<LimitStates>, folder: StateFolder) -> Self {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let control = Self {
            states,
            file: SavedFile::new(FILE, WORDS, folder),
            tick,
            next_write: Instant::now(),
        };
        control.restore();
        control
    }

    /// Puts the settings of a new configuration in force.
    pub(crate) fn configure(&mut self, folder: StateFolder) {
        self.file.set_folder(folder);
        if !self.states.quotas().is_empty() {
            self.file.mark_unsaved();
        }
    }

    fn restore(&self) {
        let quotas = self.states.quotas();
        if quotas.is_empty() {
            return;
        }
        let Some(stored) = self.file.read() else {
            return;
        };
        let Some(mut stored) = parse(&stored) else {
            let aside = self.file.put_aside();
            warn!(path = %aside.display(), "the file of quotas is damaged or not complete: it was put aside, and all quotas are whole");
            return;
        };
        let mut keys = 0_usize;
        for (id, table) in quotas {
            if let Some((seeds, usage)) = stored.remove(&id) {
                keys = keys.saturating_add(usage.len());
                table.restore(seeds, usage);
            }
        }
        info!(
            keys,
            "quotas continue with what was used before the restart"
        );
    }

    /// Waits until it is time to look whether something was used. Without quotas it waits for ever.
    pub(crate) async fn next(&mut self) {
        if self.states.quotas().is_empty() && self.file.is_settled() {
            return std::future::pending().await;
        }
        self.tick.tick().await;
    }

    /// Stores what was used.
    pub(crate) async fn handle(&mut self) {
        let quotas = self.states.quotas();
        // Each of them, so that no change is left for the next time.
        let changed = quotas.iter().filter(|(_, table)| table.take_changed());
        if changed.count() > 0 {
            self.file.mark_unsaved();
        }
        // A write that failed is looked at in any case.
        if Instant::now() < self.next_write {
            return;
        }
        let mut written = None;
        self.file
            .tick(|| {
                let text = text(&quotas);
                written = Some(text.len());
                text
            })
            .await;
        if let Some(bytes) = written {
            let seconds = u64::try_from(bytes / BYTES_PER_SECOND).unwrap_or(u64::MAX);
            self.next_write = Instant::now() + Duration::from_secs(seconds);
        }
    }

    /// Stores what was used before the end of the process.
    pub(crate) async fn finish(&mut self) {
        let quotas = self.states.quotas();
        let changed = quotas.iter().filter(|(_, table)| table.take_changed());
        if changed.count() > 0 || !self.file.is_settled() {
            let _ = self.file.save_now(|| text(&quotas)).await;
        }
    }

    /// Stores a change that a command made.
    ///
    /// # Errors
    /// It is in force, but it cannot be stored, in words for the operator.
    pub(crate) async fn save_now(&mut self) -> Result<(), String> {
        let quotas = self.states.quotas();
        let saved = self.file.save_now(|| text(&quotas)).await;
        saved.map_err(|fault| {
            format!(
                "it is reset, but a restart forgets that: cannot write to the state folder: {fault}"
            )
        })
    }

    /// Why what was used could not be stored.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.file.fault()
    }
}

/// The file for these quotas.
fn text(quotas: &[(LimitId, Arc<QuotaTable>)]) -> String {
    let mut text = format!("{HEADING}\n");
    let mut push = |line: serde_json::Result<String>| {
        // None of these types can fail.
        text.push_str(&line.unwrap_or_default());
        text.push('\n');
    };
    for (id, table) in quotas {
        let usage = table.usage();
        push(serde_json::to_string(&StoredQuota {
            site: id.site.clone(),
            location: id.location.clone(),
            name: id.name.clone(),
            key: id.key.clone(),
            seeds: table.seeds(),
            keys: usage.len(),
        }));
        for QuotaUsage { key, value, name } in usage {
            push(serde_json::to_string::<StoredUsage>(&(key, value, name)));
        }
    }
    text.push_str(FOOTING);
    text.push('\n');
    text
}

/// What a file holds; `None` if it is damaged or not complete.
fn parse(stored: &[u8]) -> Option<StoredQuotas> {
    let text = std::str::from_utf8(stored).ok()?;
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != HEADING {
        return None;
    }
    let mut quotas = StoredQuotas::new();
    loop {
        let line = lines.next()?;
        if line == FOOTING {
            return lines.next().is_none().then_some(quotas);
        }
        let quota: StoredQuota = serde_json::from_str(line).ok()?;
        let mut usage = Vec::new();
        for _ in 0..quota.keys {
            let (key, value, name): StoredUsage = serde_json::from_str(lines.next()?).ok()?;
            usage.push(QuotaUsage { key, name, value });
        }
        let id = LimitId {
            site: quota.site,
            location: quota.location,
            name: quota.name,
            key: quota.key,
        };
        quotas.insert(id, (quota.seeds, usage));
    }
}

#[cfg(test)]
mod tests {
    use apus_access::{LimitSize, QuotaCalendar, QuotaWindow, TimeZone};

    use super::*;

    fn id(name: &str) -> LimitId {
        LimitId {
            site: (name != "all").then(|| "a site\nof two lines".to_owned()),
            location: None,
            name: name.to_owned(),
            key: "client".to_owned(),
        }
    }

    fn states() -> (
        Arc<LimitStates>,
        Vec<Arc<QuotaTable>>,
        Vec<Arc<apus_access::LimitState>>,
    ) {
        let states = Arc::new(LimitStates::default());
        let size = LimitSize {
            rates: 0,
            quotas: Some(100),
        };
        let kept = ["all", "one"].map(|name| states.state(&id(name), size));
        let tables = kept.iter().filter_map(|state| state.quotas.clone());
        (states, tables.collect(), kept.into())
    }

    #[tokio::test]
    async fn what_was_used_is_stored_and_a_damaged_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let calendar = QuotaCalendar::new(QuotaWindow::Day, TimeZone::UTC);
        let period = calendar.period(Duration::from_secs(1_800_000_000));
        let (before, tables, _kept) = states();
        let mut control = QuotaControl::start(before, StateFolder::new(folder.path()));
        for (table, text) in tables.iter().zip(["a", "b"]) {
            let key = table.key(text.as_bytes());
            let _ = table.take((key, 7), 10, period, || Some("a \" name".to_owned()));
        }
        control.next().await;
        control.handle().await;
        while !control.file.is_settled() {
            control.next().await;
            control.handle().await;
        }
        let stored = std::fs::read(&path).unwrap();
        let (after, tables, _kept) = states();
        QuotaControl::start(after, StateFolder::new(folder.path()));
        for (table, text) in tables.iter().zip(["a", "b"]) {
            assert_eq!(table.used(table.key(text.as_bytes()), period), 7);
        }
        for end in 0..stored.len() {
            assert!(parse(&stored[..end]).is_none(), "{end}");
        }
        std::fs::write(&path, &stored[..stored.len() - 9]).unwrap();
        let (damaged, tables, _kept) = states();
        QuotaControl::start(damaged, StateFolder::new(folder.path()));
        assert!(tables.iter().all(|table| table.is_empty()));
        assert!(folder.path().join("quotas.damaged").exists() && !path.exists());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("state");
        // A file stands in the place of the folder.
        std::fs::write(&place, "").unwrap();
        let calendar = QuotaCalendar::new(QuotaWindow::Day, TimeZone::UTC);
        let period = calendar.period(Duration::from_secs(1_800_000_000));
        let (states, tables, _kept) = states();
        let mut control = QuotaControl::start(states, StateFolder::new(&place));
        let key = tables[0].key(b"a");
        let _ = tables[0].take((key, 1), 10, period, || None);
        while control.fault().is_none() {
            control.next().await;
            control.handle().await;
        }
        std::fs::remove_file(&place).unwrap();
        while control.fault().is_some() {
            control.next().await;
            control.handle().await;
        }
        assert!(place.join(FILE).exists());
    }
}
