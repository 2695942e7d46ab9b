//! What this process consumes, under the names that the client libraries of Prometheus use.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{MetricLabels, MetricType, PrometheusText};

/// Writes the CPU time, the resident memory and the open descriptors of this process.
pub fn write_process_metrics(text: &mut PrometheusText) {
    let none = MetricLabels::new();
    let name = "process_cpu_seconds_total";
    let help = "CPU time in user mode and in the kernel.";
    text.metric(name, MetricType::Counter, Some(help));
    text.sample(name, &none, cpu_time().as_secs_f64());
    if let Some(bytes) = resident_memory() {
        let name = "process_resident_memory_bytes";
        text.metric(name, MetricType::Gauge, Some("Resident memory."));
        text.sample(name, &none, bytes);
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        let name = "process_open_fds";
        text.metric(name, MetricType::Gauge, Some("Open file descriptors."));
        // One of them reads the folder.
        text.sample(name, &none, descriptors.count().saturating_sub(1));
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_cpu_and_memory() {
        let mut text = PrometheusText::new();
        write_process_metrics(&mut text);
        let text = text.into_string();
        let value = |name: &str| -> f64 {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")));
            line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") > 0.0, "{text}");
        assert!(value("process_resident_memory_bytes") > 100_000.0, "{text}");
        assert!(value("process_open_fds") >= 3.0, "{text}");
    }
}
