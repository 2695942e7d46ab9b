//! The result of a load as one line of CSV (RFC 4180) under a line of names.

use super::BenchReport;

/// The result as two lines: names, and values. Times are in milliseconds.
pub fn to_csv(report: &BenchReport) -> String {
    let latency = &report.latency;
    let server = |value: fn(&super::ServerReport) -> f64| {
        report
            .server
            .as_ref()
            .map_or(String::new(), |server| value(server).to_string())
    };
    let urls: Vec<_> = report.urls.iter().map(|url| url.url.as_str()).collect();
    let columns: Vec<(&str, String)> = vec![
        ("url", quoted(&urls.join(" "))),
        ("protocol", report.protocol.to_owned()),
        ("load", report.load.to_owned()),
        ("connections", report.connections.to_string()),
        ("seconds", report.seconds.to_string()),
        ("responses", report.responses.to_string()),
        (
            "responses_per_second",
            report.responses_per_second.to_string(),
        ),
        (
            "body_bytes_per_second",
            report.body_bytes_per_second.to_string(),
        ),
        ("failed", report.failed.to_string()),
        ("mean_ms", latency.mean_ms.to_string()),
        ("p50_ms", latency.p50_ms.to_string()),
        ("p90_ms", latency.p90_ms.to_string()),
        ("p99_ms", latency.p99_ms.to_string()),
        ("p999_ms", latency.p999_ms.to_string()),
        ("max_ms", latency.max_ms.to_string()),
        ("service_p50_ms", report.service_time.p50_ms.to_string()),
        ("service_p99_ms", report.service_time.p99_ms.to_string()),
        (
            "generator_cpu_per_response_us",
            report.generator.cpu_per_response_us.to_string(),
        ),
        (
            "bottleneck",
            match report.generator.bottleneck {
                Some(_) => "generator".to_owned(),
                None => String::new(),
            },
        ),
        (
            "server_cpu_per_response_us",
            server(|server| server.cpu_per_response_us),
        ),
        (
            "server_memory_bytes",
            server(|server| server.memory_bytes as f64),
        ),
    ];
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let values: Vec<_> = columns.iter().map(|(_, value)| value.as_str()).collect();
    format!("{}\n{}\n", names.join(","), values.join(","))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
