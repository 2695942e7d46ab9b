//! What the server consumed during a load, and its course.

use std::time::Instant;

use serde::Serialize;

use crate::energy::EnergyMeter;
use crate::process::{ProcessReading, ServerProcesses};

/// What a server of this machine consumed during the measurement, with all processes that it started.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// The number of its first process.
    pub pid: u32,
    /// The name of that process.
    pub name: String,
    /// CPU time for each good response, in microseconds.
    pub cpu_per_response_us: f64,
    /// The part of it in user mode.
    pub user_per_response_us: f64,
    /// The part of it in the kernel.
    pub system_per_response_us: f64,
    /// Cores that it used on average.
    pub cores: f64,
    /// Context switches for each response because a thread waited.
    pub voluntary_switches_per_response: f64,
    /// Context switches for each response because the time of a thread was over.
    pub involuntary_switches_per_response: f64,
    /// The most resident memory. Pages that processes share count for each.
    pub memory_bytes: u64,
    /// The most descriptors.
    pub descriptors: u64,
    /// The same over time.
    pub course: Vec<ServerPoint>,
}

/// What a server had consumed, and what it held, at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerPoint {
    /// Seconds since the begin of the measurement.
    pub seconds: f64,
    /// Cores used since the point before.
    pub cores: f64,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

/// Readings of the processes of a server during a load.
pub(crate) struct ServerReadings {
    processes: Option<ServerProcesses>,
    energy: Option<EnergyMeter>,
    /// Microjoules of the processors of this machine in the measurement.
    microjoules: Option<u64>,
    /// `None` if the process was gone.
    begin: Option<(Instant, Option<ProcessReading>)>,
    has_ended: bool,
    last: Option<(Instant, ProcessReading)>,
    course: Vec<ServerPoint>,
}

impl ServerReadings {
    pub(crate) fn new(processes: Option<ServerProcesses>) -> Self {
        Self {
            processes,
            energy: EnergyMeter::new(),
            microjoules: None,
            begin: None,
            has_ended: false,
            last: None,
            course: Vec::new(),
        }
    }

    /// Whether the measurement has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether the measurement has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The begin of the measurement.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        let reading = self.processes.as_ref().and_then(ServerProcesses::read);
        self.begin = Some((now, reading));
        if let Some(meter) = &mut self.energy {
            meter.take();
        }
        self.last = reading.map(|reading| (now, reading));
    }

    /// The end of the measurement.
    pub(crate) fn end(&mut self) {
        if self.has_begun() && !self.has_ended {
            self.add_point();
            self.has_ended = true;
            self.microjoules = self.energy.as_mut().map(EnergyMeter::take);
        }
    }

    /// Reads the consumption now, during the measurement. A server that is gone keeps its last reading.
    pub(crate) fn add_point(&mut self) {
        let (Some((begin, _)), Some(processes), false) =
            (self.begin, &self.processes, self.has_ended)
        else {
            return;
        };
        let (Some((before, earlier)), Some(reading)) = (self.last, processes.read()) else {
            return;
        };
        let now = Instant::now();
        let time = (now - before).as_secs_f64().max(1e-3);
        self.course.push(ServerPoint {
            seconds: (now - begin).as_secs_f64(),
            cores: ((reading.user + reading.system - earlier.user - earlier.system) / time)
                .max(0.0),
            memory_bytes: reading.memory_bytes,
            descriptors: reading.descriptors,
        });
        self.last = Some((now, reading));
    }

    /// Microjoules of the processors of this machine in the measurement, where the kernel tells.
    pub(crate) fn microjoules(&self) -> Option<u64> {
        self.microjoules
    }

    /// The report, for this number of good responses.
    pub(crate) fn report(self, responses: u64) -> Option<ServerReport> {
        let (name, pid) = self.processes.as_ref()?.name();
        let (begin, Some(first)) = self.begin? else {
            return None;
        };
        let (end, last) = self.last?;
        let per_response = |consumed: f64| consumed.max(0.0) / (responses.max(1) as f64);
        let (user, system) = (last.user - first.user, last.system - first.system);
        let switches = |last: u64, first: u64| per_response(last.saturating_sub(first) as f64);
        let course = &self.course;
        Some(ServerReport {
            pid,
            name,
            cpu_per_response_us: per_response((user + system) * 1e6),
            user_per_response_us: per_response(user * 1e6),
            system_per_response_us: per_response(system * 1e6),
            cores: ((user + system) / (end - begin).as_secs_f64().max(1e-3)).max(0.0),
            voluntary_switches_per_response: switches(
                last.voluntary_switches,
                first.voluntary_switches,
            ),
            involuntary_switches_per_response: switches(
                last.involuntary_switches,
                first.involuntary_switches,
            ),
            memory_bytes: course
                .iter()
                .map(|point| point.memory_bytes)
                .max()
                .unwrap_or(first.memory_bytes),
            descriptors: course
                .iter()
                .map(|point| point.descriptors)
                .max()
                .unwrap_or(first.descriptors),
            course: self.course,
        })
    }
}
