//! The history on the control thread: a record of each second, which another thread writes to the state folder.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_control::ServerHistory;
use apus_metrics::{
    CompactHistogram, HistoryColumn, HistoryFile, HistoryFileOrigin, HistoryRecord, HistoryStep,
};
use apus_sites::SiteActivity;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info, warn};

use crate::state_folder::StateFolder;

/// The file, in the state folder.
const FILE: &str = "history";

/// The seconds that wait for a disk that does not respond. The first of them are lost when there are more.
const MAX_WAITING: usize = 120;

/// How long the end of the server waits for the disk.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

const SECOND: Duration = Duration::from_secs(1);

/// Takes a record each second, while somebody can ask for them.
#[derive(Default)]
pub(crate) struct HistorySampler {
    history: ServerHistory,
    running: Option<HistoryRecording>,
}

struct HistoryRecording {
    folder: StateFolder,
    /// The counters at the last record.
    counters: HistoryRecord,
    taken: Instant,
    due: Instant,
    last_time: u64,
    waiting: Vec<Arc<HistoryRecord>>,
    /// `None` while it writes.
    writer: Option<HistoryWriter>,
    writing: Option<JoinHandle<HistoryWriter>>,
}

impl HistorySampler {
    /// What readers get.
    pub(crate) fn history(&self) -> ServerHistory {
        self.history.clone()
    }

    /// Writes to this folder from now on; `None`: takes no records.
    pub(crate) async fn configure(
        &mut self,
        folder: Option<StateFolder>,
        counters: impl FnOnce() -> HistoryRecord,
    ) {
        if self.running.as_ref().map(|running| &running.folder) == folder.as_ref() {
            return;
        }
        self.finish().await;
        self.running = None;
        self.history.close();
        let Some(folder) = folder else {
            return;
        };
        let (history, opened) = (self.history.clone(), folder.clone());
        self.running = Some(HistoryRecording {
            folder,
            counters: counters(),
            taken: Instant::now(),
            due: next_second(),
            last_time: 0,
            waiting: Vec::new(),
            writer: None,
            writing: Some(spawn_blocking(move || {
                HistoryWriter::open(&opened, &history)
            })),
        });
    }

    /// Waits until a second has ended.
    pub(crate) async fn next(&self) {
        match &self.running {
            Some(running) => sleep_until(running.due).await,
            None => std::future::pending().await,
        }
    }

    /// Takes a record of the time since the one before. `activity` is what happened at the sites, if that is counted.
    pub(crate) async fn take(&mut self, counters: HistoryRecord, activity: Option<SiteActivity>) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.due = next_second();
        // A timer may be a moment early or late.
        let now = unix_time() + SECOND / 2;
        let time = now.as_secs().saturating_sub(1);
        if time == running.last_time {
            return;
        }
        let mut record = counters.since(&running.counters);
        let since = running.taken.elapsed() + SECOND / 2;
        running.taken = Instant::now();
        running.last_time = time;
        running.counters = counters;
        record.time = time;
        record.seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX).max(1);
        if let Some(activity) = activity {
            add_activity(&activity, &mut record);
        }
        let record = Arc::new(record);
        self.history.publish(Arc::clone(&record));
        if running.waiting.len() >= MAX_WAITING {
            running.waiting.remove(0);
        }
        running.waiting.push(record);
        running.write().await;
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(&mut self) {
        if let Some(running) = &mut self.running
            && timeout(LAST_PATIENCE, running.finish()).await.is_err()
        {
            warn!("the last seconds of the history are lost: the disk does not respond");
        }
    }
}

impl HistoryRecording {
    /// Begins to write what waits, unless something is being written.
    async fn write(&mut self) {
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait().await;
        }
        if self.waiting.is_empty() {
            return;
        }
        if let Some(mut writer) = self.writer.take() {
            let records = std::mem::take(&mut self.waiting);
            self.writing = Some(spawn_blocking(move || {
                writer.write(&records);
                writer
            }));
        }
    }

    async fn wait(&mut self) {
        if let Some(writing) = &mut self.writing {
            let writer = writing.await;
            self.writing = None;
            self.writer = writer.ok();
        }
    }

    async fn finish(&mut self) {
        self.wait().await;
        self.write().await;
        self.wait().await;
    }
}

/// When this second ends.
fn next_second() -> Instant {
    let within = Duration::from_nanos(unix_time().subsec_nanos().into());
    Instant::now() + (SECOND - within)
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn add_activity(activity: &SiteActivity, record: &mut HistoryRecord) {
    let statuses = [
        HistoryColumn::WithoutResponse,
        HistoryColumn::Informational,
        HistoryColumn::Successful,
        HistoryColumn::Redirected,
        HistoryColumn::ClientErrors,
        HistoryColumn::ServerErrors,
    ];
    let cache_results = [
        HistoryColumn::CacheHits,
        HistoryColumn::CacheStale,
        HistoryColumn::CacheRevalidated,
        HistoryColumn::CacheExpired,
        HistoryColumn::CacheMisses,
        HistoryColumn::CacheBypassed,
    ];
    let statuses = statuses.into_iter().zip(activity.requests);
    let cache_results = cache_results.into_iter().zip(activity.cache_results);
    for (column, value) in statuses.chain(cache_results) {
        record.set(column, value);
    }
    record.set(HistoryColumn::InFlight, activity.in_flight);
    record.durations = CompactHistogram::from(&activity.durations);
    record.first_bytes = CompactHistogram::from(&activity.first_bytes);
    for site in &activity.sites {
        record.add_site(&site.site, site.requests, site.server_errors);
    }
}

/// Writes seconds, and the minute and the hour that they are in. It may block.
struct HistoryWriter {
    file: Option<Arc<HistoryFile>>,
    path: PathBuf,
    /// The last minute and the last hour.
    sums: [(HistoryStep, HistoryRecord); 2],
    has_failed: bool,
}

impl HistoryWriter {
    /// Opens the file of a folder, or has the history in memory if that is not possible. Readers get it.
    fn open(folder: &StateFolder, history: &ServerHistory) -> Self {
        let path = folder.path(FILE);
        let shown = path.display();
        let file = match open(folder) {
            Ok((file, origin)) => {
                if origin == HistoryFileOrigin::Replaced {
                    warn!(path = %shown, "the history of before the restart is damaged or of another version, and begins anew");
                }
                Some(file)
            }
            Err(error) => {
                error!(path = %shown, %error, "cannot store the history of the server: a restart forgets it");
                let memory = HistoryFile::in_memory();
                memory
                    .inspect_err(|error| error!(%error, "there is no history of the server"))
                    .ok()
            }
        };
        let file = file.map(Arc::new);
        history.set_file(file.clone());
        Self {
            file,
            path,
            sums: [HistoryStep::Minute, HistoryStep::Hour]
                .map(|step| (step, HistoryRecord::new(0, 0))),
            has_failed: false,
        }
    }

    fn write(&mut self, seconds: &[Arc<HistoryRecord>]) {
        let written = self.try_write(seconds);
        let path = self.path.display();
        match &written {
            Err(error) if !self.has_failed => {
                error!(%path, %error, "cannot store the history of the server: it has a gap until that is possible");
            }
            Ok(()) if self.has_failed => info!("the history of the server is stored again"),
            _ => {}
        }
        self.has_failed = written.is_err();
    }

    fn try_write(&mut self, seconds: &[Arc<HistoryRecord>]) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut result = Ok(());
        for second in seconds {
            result = result.and(file.write(HistoryStep::Second, second));
            for (step, sum) in &mut self.sums {
                let begin = step.begin(second.time);
                if sum.time != begin || sum.seconds == 0 {
                    let known = file.record(*step, begin).ok().flatten();
                    *sum = known.unwrap_or_else(|| HistoryRecord::new(begin, 0));
                }
                sum.add(second);
                result = result.and(file.write(*step, sum));
            }
        }
        result
    }
}

fn open(folder: &StateFolder) -> io::Result<(HistoryFile, HistoryFileOrigin)> {
    folder.create()?;
    let path = folder.path(FILE);
    // A pipe in its place would be waited for.
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is no file"));
    }
    let (file, origin) = HistoryFile::open(&path)?;
    file.rebuild(unix_time().as_secs())?;
    Ok((file, origin))
}

#[cfg(test)]
mod tests {
    use apus_metrics::HistoryQuery;

    use super::*;

    fn record(time: u64) -> Arc<HistoryRecord> {
        let mut record = HistoryRecord::new(time, 1);
        record.set(HistoryColumn::Requests, 2);
        record.add_site("shop", 2, 0);
        Arc::new(record)
    }

    /// The file, which is not being opened.
    fn file(history: &ServerHistory) -> Option<Arc<HistoryFile>> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(history.file())
    }

    fn requests(file: &HistoryFile, step: HistoryStep, time: u64) -> Option<u64> {
        let record = file.record(step, time).unwrap();
        record?.value(HistoryColumn::Requests)
    }

    #[test]
    fn minutes_and_hours_go_on_after_a_restart() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(&parent.path().join("state"));
        let hour = unix_time().as_secs() / 3600 * 3600;
        for start in [0, 70] {
            let history = ServerHistory::default();
            let mut writer = HistoryWriter::open(&folder, &history);
            let seconds: Vec<_> = (0..70)
                .map(|second| record(hour + start + second))
                .collect();
            writer.write(&seconds);
            assert!(!writer.has_failed);
            assert!(file(&history).unwrap().is_durable());
        }
        let history = ServerHistory::default();
        let _writer = HistoryWriter::open(&folder, &history);
        let file = file(&history).unwrap();
        let of = |step, time| requests(&file, step, hour + time);
        assert_eq!(of(HistoryStep::Second, 139), Some(2));
        assert_eq!(of(HistoryStep::Second, 140), None);
        assert_eq!(of(HistoryStep::Minute, 60), Some(120));
        assert_eq!(of(HistoryStep::Minute, 120), Some(40));
        assert_eq!(of(HistoryStep::Hour, 0), Some(280));
        let query = HistoryQuery {
            step: HistoryStep::Hour,
            from: hour,
            to: hour + 1,
            sites: Some(vec!["shop".to_owned()]),
        };
        let series = file.series(&query).unwrap();
        assert_eq!(series.sites.len(), 1);
    }

    #[test]
    fn without_a_folder_the_history_is_in_memory() {
        let parent = tempfile::tempdir().unwrap();
        let taken = parent.path().join("taken");
        fs::write(&taken, "").unwrap();
        for folder in [taken, parent.path().join("state")] {
            let folder = StateFolder::new(&folder);
            let _ = folder.create();
            let _ = fs::create_dir(folder.path(FILE));
            let history = ServerHistory::default();
            let mut writer = HistoryWriter::open(&folder, &history);
            writer.write(&[record(1_800_000_000)]);
            let file = file(&history).unwrap();
            assert!(!file.is_durable());
            let stored = requests(&file, HistoryStep::Second, 1_800_000_000);
            assert_eq!(stored, Some(2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_has_what_was_counted_since_the_one_before() {
        let parent = tempfile::tempdir().unwrap();
        let counters = |requests| {
            let mut record = HistoryRecord::new(0, 0);
            record.set(HistoryColumn::Requests, requests);
            record
        };
        let mut sampler = HistorySampler::default();
        let folder = StateFolder::new(parent.path());
        sampler
            .configure(Some(folder.clone()), || counters(100))
            .await;
        let mut watch = sampler.history().watch();
        sampler.next().await;
        sampler.take(counters(130), None).await;
        let record = watch.borrow_and_update().clone().unwrap();
        assert_eq!(record.value(HistoryColumn::Requests), Some(30));
        assert_eq!(record.value(HistoryColumn::Successful), None);
        sampler.finish().await;
        let file = sampler.history().file().await.unwrap();
        let stored = requests(&file, HistoryStep::Second, record.time);
        assert_eq!(stored, Some(30));
        // A reload keeps it, and one without the address ends it.
        sampler.configure(Some(folder), || unreachable!()).await;
        sampler.configure(None, || unreachable!()).await;
        assert!(sampler.running.is_none());
    }
}
