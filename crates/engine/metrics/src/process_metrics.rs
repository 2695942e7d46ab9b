//! What this process consumes, under the names that the client libraries of Prometheus use.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::definition::{MetricDefinition, MetricUnit};
use crate::samples::MetricSamples;

static CPU: MetricDefinition =
    MetricDefinition::counter("process_cpu", "CPU time in user mode and in the kernel.")
        .unit(MetricUnit::Seconds);
static MEMORY: MetricDefinition =
    MetricDefinition::gauge("process_resident_memory", "Resident memory.").unit(MetricUnit::Bytes);
static DESCRIPTORS: MetricDefinition =
    MetricDefinition::gauge("process_open_fds", "Open file descriptors.");

/// The metrics of the process.
pub static PROCESS_METRICS: &[&MetricDefinition] = &[&CPU, &MEMORY, &DESCRIPTORS];

/// Adds the CPU time, the resident memory and the open descriptors of this process.
pub fn add_process_metrics(samples: &mut MetricSamples) {
    samples.add(&CPU, cpu_time().as_secs_f64());
    if let Some(bytes) = resident_memory() {
        samples.add(&MEMORY, bytes);
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        // One of them reads the folder.
        samples.add(&DESCRIPTORS, descriptors.count().saturating_sub(1));
    }
}

/// The CPU time that this process has used, in user mode and in the kernel.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The resident memory of this process in bytes.
pub fn resident_memory() -> Option<u64> {
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
    use crate::MetricFormat;

    #[test]
    fn this_process_has_used_cpu_and_memory() {
        let mut samples = MetricSamples::new();
        add_process_metrics(&mut samples);
        let text = MetricFormat::Prometheus.write(samples);
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
