//! The status endpoint of a server: what it says about its process in the text format of Prometheus.

use std::thread;
use std::time::Duration;

use crate::plan::{LoadLimit, LoadPlan};
use crate::prepared_load::fetch;
use crate::usage::ProcessReading;
use crate::{BenchError, BenchUrl};

/// How long the server may take to tell.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the client libraries of Prometheus call the CPU time, the resident memory and the descriptors of a process.
const CPU: &str = "process_cpu_seconds_total";
const MEMORY: &str = "process_resident_memory_bytes";
const DESCRIPTORS: &str = "process_open_fds";

/// The status endpoint of the server that is loaded.
#[derive(Clone, Debug)]
pub(crate) struct StatusPage {
    url: BenchUrl,
    /// One request for it.
    plan: LoadPlan,
}

impl StatusPage {
    /// The endpoint at a URL, for which TLS is as for the load.
    pub(crate) fn new(url: &BenchUrl, load: &LoadPlan) -> Result<Self, BenchError> {
        let mut plan = LoadPlan::new(url.clone());
        plan.limit = LoadLimit::Requests(1);
        plan.warm_up = Duration::ZERO;
        plan.timeout = PATIENCE;
        plan.tls = load.tls.clone();
        plan.may_load_others = load.may_load_others;
        let page = Self {
            url: url.clone(),
            plan,
        };
        page.ask().map(|_| page)
    }

    /// What the server says now. `None` if it does not respond any more.
    pub(crate) fn read(&self) -> Option<ProcessReading> {
        self.ask().ok()
    }

    fn ask(&self) -> Result<ProcessReading, BenchError> {
        let wrong = |cause: &str| {
            BenchError::Process(format!(
                "the status endpoint {} cannot be used: {cause}",
                self.url
            ))
        };
        let plan = self.plan.clone();
        // The request has a runtime of its own, and this thread may have one.
        let asked = thread::Builder::new().spawn(move || fetch(&plan))?.join();
        let response = asked.map_err(|_| wrong("the thread that asks failed"))??;
        if response.status != 200 {
            return Err(wrong(&format!("status {}", response.status)));
        }
        let text = String::from_utf8_lossy(&response.begin);
        parse(&text).ok_or_else(|| wrong(&format!("it lacks {CPU}, {MEMORY} or {DESCRIPTORS}")))
    }
}

fn parse(text: &str) -> Option<ProcessReading> {
    let value = |name: &str| -> Option<f64> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        // A time stamp may follow the value.
        let value = lines.find_map(|rest| rest.strip_prefix(' '))?;
        value.split_whitespace().next()?.parse().ok()
    };
    Some(ProcessReading {
        cpu: value(CPU)?,
        user_and_system: None,
        switches: None,
        memory_bytes: value(MEMORY)? as u64,
        peak_bytes: None,
        descriptors: value(DESCRIPTORS)? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_client_libraries_write() {
        let text = "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n\
                    # TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 12.5\n\
                    process_open_fds 9\nprocess_resident_memory_bytes 2.1225472e+07 1395066363000\n";
        let reading = parse(text).unwrap();
        assert_eq!((reading.cpu, reading.descriptors), (12.5, 9));
        assert_eq!(reading.memory_bytes, 21_225_472);
        assert_eq!(reading.user_and_system, None);
        assert!(parse("process_cpu_seconds_total 1\n").is_none() && parse("").is_none());
    }
}
