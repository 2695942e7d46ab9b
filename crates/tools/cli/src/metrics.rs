//! Converts the status of a server to metrics in the Prometheus text format.
//!
//! Every number in `apus status --json` becomes a metric, so that none is missing. The name of the metric is the path
//! to the number, and members of lists have labels. Figures of PHP processes, which come and go, are summed.

use std::collections::BTreeMap;

use apus_metrics::{MetricLabels, MetricType, PrometheusText};
use serde_json::{Map, Value};

/// A part of the status whose figures become metrics.
struct MetricFamily {
    /// The start of the metric names, after `apus_`.
    prefix: &'static str,
    /// The figures that go up and down. The others only grow, and are counters.
    gauges: &'static [&'static str],
}

const SERVER: MetricFamily = MetricFamily {
    prefix: "",
    gauges: &["uptime_seconds"],
};
const WORKER: MetricFamily = MetricFamily {
    prefix: "worker_",
    gauges: &["connections", "h1_open", "h2_open", "h3_open"],
};
const ACCESS_LOG: MetricFamily = MetricFamily {
    prefix: "access_log_",
    gauges: &[],
};
const RESPONSE_MEMORY: MetricFamily = MetricFamily {
    prefix: "response_memory_",
    gauges: &["limit_bytes", "used_bytes"],
};
const CACHE: MetricFamily = MetricFamily {
    prefix: "cache_",
    gauges: &["memory_objects", "memory_bytes"],
};
const CACHE_DISK: MetricFamily = MetricFamily {
    prefix: "cache_disk_",
    gauges: &["objects", "bytes"],
};
const PHP: MetricFamily = MetricFamily {
    prefix: "php_",
    gauges: &["max_workers", "waiting", "listeners", "sockets"],
};
const UPSTREAM: MetricFamily = MetricFamily {
    prefix: "upstream_",
    gauges: &["waiting"],
};
const UPSTREAM_NODE: MetricFamily = MetricFamily {
    prefix: "upstream_node_",
    gauges: &["in_flight", "latency_seconds"],
};

const LIMIT: MetricFamily = MetricFamily {
    prefix: "limit_",
    gauges: &[],
};

const CHALLENGE: MetricFamily = MetricFamily {
    prefix: "challenge_",
    gauges: &[],
};

const BOT: MetricFamily = MetricFamily {
    prefix: "bot_",
    gauges: &[],
};

const CERTIFICATE: MetricFamily = MetricFamily {
    prefix: "certificate_",
    gauges: &["expires_in_seconds", "failures"],
};

/// Figures that identify a part of the status, or that no metric needs.
const EXCLUDED: [&str; 4] = ["pid", "worker", "core", "seconds_left"];

/// The metrics by name, each with its type and samples.
#[derive(Default)]
struct MetricTable(BTreeMap<String, (MetricType, Vec<(MetricLabels, f64)>)>);

impl MetricTable {
    /// Adds every number of an object.
    fn add_figures(
        &mut self,
        family: &MetricFamily,
        labels: &MetricLabels,
        figures: &Map<String, Value>,
    ) {
        for (name, value) in figures {
            if let Some(value) = value.as_f64()
                && !EXCLUDED.contains(&name.as_str())
            {
                if family.gauges.contains(&name.as_str()) {
                    self.add_gauge(family, name, labels.clone(), value)
                } else {
                    self.add_counter(family, name, labels.clone(), value)
                }
            }
        }
    }

    fn add_gauge(&mut self, family: &MetricFamily, name: &str, labels: MetricLabels, value: f64) {
        let name = format!("apus_{}{name}", family.prefix);
        self.add(name, MetricType::Gauge, labels, value);
    }

    fn add_counter(&mut self, family: &MetricFamily, name: &str, labels: MetricLabels, value: f64) {
        let name = format!("apus_{}{name}_total", family.prefix);
        self.add(name, MetricType::Counter, labels, value);
    }

    fn add(&mut self, name: String, metric_type: MetricType, labels: MetricLabels, value: f64) {
        let (_, samples) = self.0.entry(name).or_insert((metric_type, Vec::new()));
        samples.push((labels, value));
    }

    fn to_text(&self) -> String {
        let mut text = PrometheusText::new();
        for (name, (metric_type, samples)) in &self.0 {
            text.metric(name, *metric_type, None);
            for (labels, value) in samples {
                text.sample(name, labels, value);
            }
        }
        text.into_string()
    }
}

/// The status of a server as metrics.
pub(crate) fn exposition(status: &Value) -> String {
    let mut metrics = MetricTable::default();
    let none = MetricLabels::new();
    if let Value::Object(figures) = status {
        let version = figures.get("version").and_then(Value::as_str);
        let version = none.clone().with("version", version.unwrap_or_default());
        metrics.add_gauge(&SERVER, "build_info", version, 1.0);
        metrics.add_figures(&SERVER, &none, figures);
        for (name, value) in figures {
            // The totals are the sums of the workers' figures.
            match (name.as_str(), value) {
                ("workers", Value::Array(workers)) => {
                    add_each(&mut metrics, &WORKER, workers, |worker| {
                        let index = worker.get("worker").unwrap_or(&Value::Null);
                        MetricLabels::new().with("worker", &index.to_string())
                    });
                }
                ("php", Value::Array(pools)) => {
                    pools.iter().for_each(|pool| add_pool(&mut metrics, pool));
                }
                ("upstreams", Value::Array(groups)) => {
                    groups
                        .iter()
                        .for_each(|group| add_group(&mut metrics, group));
                }
                ("limits", Value::Array(limits)) => {
                    add_each(&mut metrics, &LIMIT, limits, |limit| {
                        let labels = MetricLabels::new().with("site", text(limit, "site"));
                        let labels = labels.with("location", text(limit, "location"));
                        labels.with("limit", text(limit, "name"))
                    });
                }
                ("challenges", Value::Array(challenges)) => {
                    add_each(&mut metrics, &CHALLENGE, challenges, |challenge| {
                        MetricLabels::new().with("site", text(challenge, "site"))
                    });
                }
                ("bots", Value::Array(bots)) => {
                    add_each(&mut metrics, &BOT, bots, |bot| {
                        MetricLabels::new().with("bot", text(bot, "name"))
                    });
                }
                ("access_logs", Value::Array(logs)) => {
                    add_each(&mut metrics, &ACCESS_LOG, logs, |log| {
                        MetricLabels::new().with("path", text(log, "path"))
                    });
                }
                ("certificates", Value::Array(certificates)) => {
                    add_each(&mut metrics, &CERTIFICATE, certificates, |certificate| {
                        MetricLabels::new().with("names", &names(certificate))
                    });
                }
                ("response_memory", Value::Object(memory)) => {
                    metrics.add_figures(&RESPONSE_MEMORY, &none, memory);
                }
                ("cache", Value::Object(cache)) => {
                    metrics.add_figures(&CACHE, &none, cache);
                    if let Some(Value::Object(disk)) = cache.get("disk") {
                        metrics.add_figures(&CACHE_DISK, &none, disk);
                    }
                }
                ("last_reload_failure", failure) => {
                    let is_failing = f64::from(!failure.is_null());
                    metrics.add_gauge(&SERVER, "reload_failing", none.clone(), is_failing);
                }
                _ => {}
            }
        }
    }
    metrics.to_text()
}

/// The names of a certificate.
pub(crate) fn names(certificate: &Value) -> String {
    let names = certificate.get("names").and_then(Value::as_array);
    let names: Vec<&str> = names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    names.join(" ")
}

fn add_pool(metrics: &mut MetricTable, pool: &Value) {
    let Value::Object(figures) = pool else { return };
    let labels = MetricLabels::new().with("pool", text(pool, "name"));
    metrics.add_figures(&PHP, &labels, figures);
    let workers = figures.get("workers").and_then(Value::as_array);
    let workers = workers.map(Vec::as_slice).unwrap_or_default();
    let memory = workers
        .iter()
        .filter_map(|worker| worker["memory_bytes"].as_f64())
        .sum();
    let busy = workers
        .iter()
        .filter(|worker| worker["busy"] == true)
        .count();
    let is_failing = figures
        .get("last_error")
        .is_some_and(|error| !error.is_null());
    for (name, value) in [
        ("workers", workers.len() as f64),
        ("busy", busy as f64),
        ("memory_bytes", memory),
        ("failing", f64::from(is_failing)),
    ] {
        metrics.add_gauge(&PHP, name, labels.clone(), value);
    }
}

fn add_group(metrics: &mut MetricTable, group: &Value) {
    let Value::Object(figures) = group else {
        return;
    };
    let labels = MetricLabels::new().with("group", text(group, "name"));
    metrics.add_figures(&UPSTREAM, &labels, figures);
    let nodes = figures.get("nodes").and_then(Value::as_array);
    for node in nodes.into_iter().flatten() {
        let labels = labels.clone().with("node", text(node, "name"));
        if let Value::Object(figures) = node {
            metrics.add_figures(&UPSTREAM_NODE, &labels, figures);
        }
        let is_up = node["admin"] != "down"
            && node["state"]
                .as_str()
                .is_some_and(|state| !state.starts_with("out"));
        metrics.add_gauge(&UPSTREAM_NODE, "up", labels.clone(), f64::from(is_up));
        if let Value::Object(failures) = &node["failures"] {
            for (kind, count) in failures {
                let labels = labels.clone().with("kind", kind);
                let count = count.as_f64().unwrap_or_default();
                metrics.add_counter(&UPSTREAM_NODE, "failures", labels, count);
            }
        }
    }
}

fn add_each(
    metrics: &mut MetricTable,
    family: &MetricFamily,
    values: &[Value],
    labels: impl Fn(&Value) -> MetricLabels,
) {
    for value in values {
        if let Value::Object(figures) = value {
            metrics.add_figures(family, &labels(value), figures);
        }
    }
}

/// The text of a member, or nothing.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
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
            "workers": [{ "worker": 0, "core": 1, "requests": 1, "connections": 4, "h2_connections": 9, "h3_open": 3 },
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
                "apus_worker_h3_open{worker=\"0\"} 3",
                "apus_worker_requests_total{worker=\"0\"} 1",
                "apus_worker_requests_total{worker=\"1\"} 2",
            ]
        );
        assert!(text.contains("# TYPE apus_worker_connections gauge\n"));
        assert!(text.contains("# TYPE apus_worker_requests_total counter\n"));
    }
}
