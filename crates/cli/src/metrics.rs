//! What a server does as metrics: the Prometheus text format, version 0.0.4.
//!
//! Whatever `apus status --json` counts becomes one, so that none is forgotten: its name is the way to it, and
//! what there is several of has labels. Processes of PHP come and go, and are summed.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

/// Figures that go up and down, by the last part of their names; the others only grow.
const GAUGES: [&str; 18] = [
    "connections",
    "waiting",
    "busy",
    "in_flight",
    "up",
    "max_workers",
    "workers",
    "listeners",
    "sockets",
    "uptime_seconds",
    "latency_seconds",
    "memory_bytes",
    "memory_objects",
    "objects",
    "bytes",
    "limit_bytes",
    "used_bytes",
    "failing",
];

/// What is left out: it says of whom figures are, not how much.
const NAMES: [&str; 4] = ["pid", "worker", "core", "seconds_left"];

/// Samples by the name of their metric: labels, and the value.
type Samples = BTreeMap<String, Vec<(String, f64)>>;

/// The status of a server as metrics.
pub(crate) fn exposition(status: &Value) -> String {
    let mut samples = Samples::new();
    if let Value::Object(figures) = status {
        let version = figures.get("version").and_then(Value::as_str);
        let version = label("version", version.unwrap_or_default());
        samples.insert("apus_build_info".to_owned(), vec![(version, 1.0)]);
        add(&mut samples, "", "", figures);
        for (name, value) in figures {
            // Totals are what the workers have counted, each its part.
            match (name.as_str(), value) {
                ("workers", Value::Array(workers)) => {
                    each(&mut samples, "worker", workers, |worker| {
                        label(
                            "worker",
                            &worker.get("worker").unwrap_or(&Value::Null).to_string(),
                        )
                    });
                }
                ("php", Value::Array(pools)) => {
                    pools.iter().for_each(|one| pool(&mut samples, one))
                }
                ("upstreams", Value::Array(groups)) => {
                    groups.iter().for_each(|one| group(&mut samples, one));
                }
                ("access_logs", Value::Array(logs)) => {
                    each(&mut samples, "access_log", logs, |log| {
                        named(log, "path", "path")
                    });
                }
                ("response_memory", Value::Object(memory)) => {
                    add(&mut samples, "response_memory", "", memory);
                }
                ("cache", Value::Object(cache)) => {
                    add(&mut samples, "cache", "", cache);
                    if let Some(Value::Object(disk)) = cache.get("disk") {
                        add(&mut samples, "cache_disk", "", disk);
                    }
                }
                ("last_reload_failure", failure) => {
                    one(
                        &mut samples,
                        "reload",
                        "failing",
                        "",
                        f64::from(!failure.is_null()),
                    );
                }
                _ => {}
            }
        }
    }
    render(&samples)
}

fn pool(samples: &mut Samples, pool: &Value) {
    let Value::Object(figures) = pool else { return };
    let labels = named(pool, "pool", "name");
    add(samples, "php", &labels, figures);
    let workers = figures.get("workers").and_then(Value::as_array);
    let workers = workers.map(Vec::as_slice).unwrap_or_default();
    let sum = |name: &str| {
        workers
            .iter()
            .filter_map(|worker| worker[name].as_f64())
            .sum()
    };
    let busy = workers
        .iter()
        .filter(|worker| worker["busy"] == true)
        .count();
    one(samples, "php", "workers", &labels, workers.len() as f64);
    one(samples, "php", "busy", &labels, busy as f64);
    one(samples, "php", "memory_bytes", &labels, sum("memory_bytes"));
    let failing = figures
        .get("last_error")
        .is_some_and(|error| !error.is_null());
    one(samples, "php", "failing", &labels, f64::from(failing));
}

fn group(samples: &mut Samples, group: &Value) {
    let Value::Object(figures) = group else {
        return;
    };
    let labels = named(group, "group", "name");
    add(samples, "upstream", &labels, figures);
    let nodes = figures.get("nodes").and_then(Value::as_array);
    for node in nodes.into_iter().flatten() {
        let labels = format!("{labels},{}", named(node, "node", "name"));
        if let Value::Object(figures) = node {
            add(samples, "upstream_node", &labels, figures);
        }
        let is_up = node["admin"] != "down"
            && node["state"]
                .as_str()
                .is_some_and(|s| !s.starts_with("out"));
        one(samples, "upstream_node", "up", &labels, f64::from(is_up));
        if let Value::Object(failures) = &node["failures"] {
            for (kind, count) in failures {
                let labels = format!("{labels},{}", label("kind", kind));
                one(
                    samples,
                    "upstream_node",
                    "failures",
                    &labels,
                    count.as_f64().unwrap_or_default(),
                );
            }
        }
    }
}

fn each(samples: &mut Samples, prefix: &str, values: &[Value], labels: impl Fn(&Value) -> String) {
    for value in values {
        if let Value::Object(figures) = value {
            add(samples, prefix, &labels(value), figures);
        }
    }
}

/// Adds every number of an object.
fn add(samples: &mut Samples, prefix: &str, labels: &str, figures: &Map<String, Value>) {
    for (name, value) in figures {
        if let Some(value) = value.as_f64()
            && !NAMES.contains(&name.as_str())
        {
            one(samples, prefix, name, labels, value);
        }
    }
}

fn one(samples: &mut Samples, prefix: &str, name: &str, labels: &str, value: f64) {
    let joint = if prefix.is_empty() { "" } else { "_" };
    let total = if GAUGES.contains(&name) { "" } else { "_total" };
    let metric = format!("apus_{prefix}{joint}{name}{total}");
    let samples = samples.entry(metric).or_default();
    samples.push((labels.to_owned(), value));
}

/// A label with the text that a value has under a name.
fn named(value: &Value, as_label: &str, name: &str) -> String {
    label(as_label, value[name].as_str().unwrap_or_default())
}

fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn render(samples: &Samples) -> String {
    let mut text = String::new();
    for (name, samples) in samples {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = match labels.as_str() {
                "" => writeln!(text, "{name} {value}"),
                labels => writeln!(text, "{name}{{{labels}}} {value}"),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_figure_has_a_name_a_type_and_its_labels() {
        let text = exposition(&json!({
            "version": "1.0", "pid": 7, "uptime_seconds": 5, "reloads": 2, "last_reload_failure": null,
            "totals": { "requests": 3 },
            "workers": [{ "worker": 0, "core": 1, "requests": 1, "connections": 4, "h2_connections": 9 },
                { "worker": 1, "core": null, "requests": 2, "connections": 0 }],
            "access_logs": [{ "path": "a \"b\".log", "lines_written": 9, "lines_lost": 0 }],
            "php": [{ "name": "app", "waiting": 1, "requests": 8, "last_error": "it \"broke\"", "workers":
                [{ "pid": 5, "busy": true, "requests": 3, "memory_bytes": 100 },
                { "pid": 6, "busy": false, "requests": 5, "memory_bytes": 20 }] }],
            "upstreams": [{ "name": "s/app", "requests": 4, "nodes": [{ "name": "n", "admin": "up",
                "state": "in", "requests": 4, "in_flight": 1, "latency_seconds": 0.25, "failures": { "connect": 2 } }] }],
            "cache": { "hits": 6, "memory_bytes": 10, "disk": { "bytes": 3, "errors": 1 } },
        }));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "apus_access_log_lines_lost_total{path=\"a \\\"b\\\".log\"} 0",
                "apus_access_log_lines_written_total{path=\"a \\\"b\\\".log\"} 9",
                "apus_build_info{version=\"1.0\"} 1",
                "apus_cache_disk_bytes 3",
                "apus_cache_disk_errors_total 1",
                "apus_cache_hits_total 6",
                "apus_cache_memory_bytes 10",
                "apus_php_busy{pool=\"app\"} 1",
                "apus_php_failing{pool=\"app\"} 1",
                "apus_php_memory_bytes{pool=\"app\"} 120",
                "apus_php_requests_total{pool=\"app\"} 8",
                "apus_php_waiting{pool=\"app\"} 1",
                "apus_php_workers{pool=\"app\"} 2",
                "apus_reload_failing 0",
                "apus_reloads_total 2",
                "apus_upstream_node_failures_total{group=\"s/app\",node=\"n\",kind=\"connect\"} 2",
                "apus_upstream_node_in_flight{group=\"s/app\",node=\"n\"} 1",
                "apus_upstream_node_latency_seconds{group=\"s/app\",node=\"n\"} 0.25",
                "apus_upstream_node_requests_total{group=\"s/app\",node=\"n\"} 4",
                "apus_upstream_node_up{group=\"s/app\",node=\"n\"} 1",
                "apus_upstream_requests_total{group=\"s/app\"} 4",
                "apus_uptime_seconds 5",
                "apus_worker_connections{worker=\"0\"} 4",
                "apus_worker_connections{worker=\"1\"} 0",
                "apus_worker_h2_connections_total{worker=\"0\"} 9",
                "apus_worker_requests_total{worker=\"0\"} 1",
                "apus_worker_requests_total{worker=\"1\"} 2",
            ]
        );
        assert!(text.contains("# TYPE apus_worker_connections gauge\n"));
        assert!(text.contains("# TYPE apus_worker_requests_total counter\n"));
    }
}
