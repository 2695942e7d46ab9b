//! `apus status --top` on the control thread: requests are counted as long as somebody asks for them.

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use apus_control::MAX_TRAFFIC_SECONDS;
use apus_metrics::FrequentKey;
use apus_sites::{TrafficCounts, TrafficReading, TrafficWatch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

/// Until when requests are counted.
pub(crate) struct TrafficLease {
    watch: TrafficWatch,
    /// `None` while nobody watches. Otherwise a task ends counting then.
    end: Rc<Cell<Option<Instant>>>,
}

impl TrafficLease {
    pub(crate) fn new(watch: &TrafficWatch) -> Self {
        Self {
            watch: watch.clone(),
            end: Rc::default(),
        }
    }

    /// Whether requests are counted.
    pub(crate) fn is_counting(&self) -> bool {
        self.watch.is_on()
    }

    /// What was counted. Requests are counted for this many seconds more, if that is not 0.
    pub(crate) fn watch(&self, seconds: u64, anew: bool) -> Value {
        if seconds > 0 {
            let lease = Duration::from_secs(seconds.min(MAX_TRAFFIC_SECONDS));
            self.extend(Instant::now() + lease, anew);
        }
        match self.watch.reading() {
            Some(reading) => shown(&reading),
            None => json!({ "counting": false }),
        }
    }

    fn extend(&self, end: Instant, anew: bool) {
        let before = self.end.get();
        self.end.set(before.max(Some(end)));
        if before.is_none() || anew {
            self.watch.begin();
        }
        if before.is_none() {
            let (watch, end) = (self.watch.clone(), Rc::clone(&self.end));
            tokio::task::spawn_local(async move {
                while let Some(time) = end.get() {
                    if time <= Instant::now() {
                        end.set(None);
                        watch.end();
                    } else {
                        sleep_until(time).await;
                    }
                }
            });
        }
    }
}

fn shown(reading: &TrafficReading) -> Value {
    let paths = reading.paths.iter().map(|path| {
        entry(
            &path.value,
            path.error,
            json!({ "site": &*path.key.site, "path": &*path.key.path }),
        )
    });
    json!({
        "counting": true,
        "seconds": reading.time.as_secs_f64(),
        "total": entry(&reading.total, 0, json!({})),
        "sites": named(&reading.sites),
        "upstream_nodes": named(&reading.nodes),
        "clients": named(&reading.clients),
        "paths": paths.collect::<Value>(),
    })
}

fn named<K: Display>(keys: &[FrequentKey<K, TrafficCounts>]) -> Value {
    let named = keys.iter().map(|found| {
        let name = json!({ "name": found.key.to_string() });
        entry(&found.value, found.error, name)
    });
    named.collect()
}

/// Counts behind a name. There may have been as many requests more as `error` says.
fn entry(counts: &TrafficCounts, error: u64, mut entry: Value) -> Value {
    let [
        informational,
        successful,
        redirections,
        client_errors,
        server_errors,
    ] = counts.statuses;
    let counted = json!({
        "requests": counts.requests,
        "requests_at_most": counts.requests.saturating_add(error),
        "bytes_sent": counts.bytes,
        "statuses": {
            "1xx": informational,
            "2xx": successful,
            "3xx": redirections,
            "4xx": client_errors,
            "5xx": server_errors,
        },
        "time_seconds": counts.time.as_secs_f64(),
    });
    if let (Value::Object(entry), Value::Object(counted)) = (&mut entry, counted) {
        entry.extend(counted);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advances the paused time, so that the task runs if its time has come.
    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        tokio::task::yield_now().await;
    }

    #[test]
    fn requests_are_counted_until_nobody_asks() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let lease = TrafficLease::new(&TrafficWatch::default());
            assert_eq!(lease.watch(0, false), json!({ "counting": false }));
            assert!(!lease.is_counting());
            assert_eq!(lease.watch(10, false)["counting"], true);
            pass(8).await;
            // Who watches for a shorter time shortens nobody's.
            lease.watch(1, false);
            pass(1).await;
            assert!(lease.is_counting());
            pass(2).await;
            assert!(!lease.is_counting());
            lease.watch(MAX_TRAFFIC_SECONDS + 1, false);
            pass(MAX_TRAFFIC_SECONDS - 1).await;
            assert!(lease.is_counting());
            lease.watch(MAX_TRAFFIC_SECONDS, true);
            pass(MAX_TRAFFIC_SECONDS - 1).await;
            assert!(lease.is_counting());
            pass(2).await;
            assert!(!lease.is_counting());
            assert_eq!(lease.watch(0, true), json!({ "counting": false }));
        });
    }
}
