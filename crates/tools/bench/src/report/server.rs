//! What the server consumed during a load, and its course.

use std::time::{Duration, Instant};

use crate::usage::{EnergyMeter, MachineReading, MachineReport, ProcessReading};
use serde::Serialize;

/// The least share of a window from which the whole is told.
const MIN_SHARE: f64 = 0.5;

/// What a server consumed during the measurement: one of this machine, with all processes that it started, or another one, as
/// its status endpoint says.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// The number of its first process, if it is of this machine.
    pub pid: Option<u32>,
    /// The name of that process, or the URL of the status endpoint.
    pub name: String,
    /// CPU time for each good response, in microseconds.
    pub cpu_per_response_us: f64,
    /// The part of it in user mode. No status endpoint tells.
    pub user_per_response_us: Option<f64>,
    /// The part of it in the kernel.
    pub system_per_response_us: Option<f64>,
    /// Cores that it used on average.
    pub cores: f64,
    /// Context switches for each response because a thread waited. No status endpoint tells.
    pub voluntary_switches_per_response: Option<f64>,
    /// Context switches for each response because the time of a thread was over.
    pub involuntary_switches_per_response: Option<f64>,
    /// The most resident memory. Pages that processes share count for each.
    pub memory_bytes: u64,
    /// By how much the most resident memory grew: since the end of the warm-up or, without one, since before connections were opened.
    /// No status endpoint tells.
    pub growth_bytes: Option<u64>,
    /// The proportional set size at the end, with connections open: pages that processes share count once. No status endpoint tells.
    pub pss_bytes: Option<u64>,
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

/// The time in which responses were counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadWindow {
    pub(crate) begin: Instant,
    pub(crate) time: Duration,
}

/// What two readings tell of a window.
struct CoveredWindow {
    /// The time of load between the readings.
    time: Duration,
    /// The share of the load until the last reading that is between the two.
    share: f64,
}

impl LoadWindow {
    /// What readings at these times tell. The first one is later than the begin of the window, as the machine is busy, so that it misses
    /// what was consumed before. The server has nothing to do after the end.
    fn covered(&self, first: Instant, last: Instant) -> CoveredWindow {
        let until = last.min(self.begin + self.time);
        let time = until.saturating_duration_since(first);
        let whole = until.saturating_duration_since(self.begin);
        let share = if whole.is_zero() {
            1.0
        } else {
            time.as_secs_f64() / whole.as_secs_f64()
        };
        CoveredWindow {
            time,
            // Readings that cover less tell nothing of the rest.
            share: if share < MIN_SHARE { 1.0 } else { share },
        }
    }
}

/// Who tells what a server consumes: the kernel of this machine, or the server itself.
pub(crate) struct ReadingSource {
    /// The name of its first process, or the URL of its status endpoint.
    pub(crate) name: String,
    pub(crate) pid: Option<u32>,
    pub(crate) read: Box<dyn Fn() -> Option<ProcessReading>>,
    /// The proportional set size, which takes the kernel longer than the rest.
    pub(crate) pss: Box<dyn Fn() -> Option<u64>>,
}

/// Readings of the processes of a server during a load.
pub(crate) struct ServerReadings {
    source: Option<ReadingSource>,
    /// The most resident memory before the growth that is measured.
    peak_before: Option<u64>,
    pss: Option<u64>,
    energy: Option<EnergyMeter>,
    /// What the machine had done at the begin.
    machine_before: Option<MachineReading>,
    machine: Option<MachineReport>,
    /// Microjoules of the processors of this machine in the measurement.
    microjoules: Option<u64>,
    /// `None` if the process was gone.
    begin: Option<(Instant, Option<ProcessReading>)>,
    has_ended: bool,
    last: Option<(Instant, ProcessReading)>,
    course: Vec<ServerPoint>,
}

impl ServerReadings {
    /// Readings of a load that begins now with opening connections.
    pub(crate) fn new(source: Option<ReadingSource>, has_warm_up: bool) -> Self {
        let first = source.as_ref().filter(|_| !has_warm_up);
        Self {
            peak_before: first.and_then(|source| (source.read)()?.peak_bytes),
            pss: None,
            source,
            energy: EnergyMeter::new(),
            machine_before: None,
            machine: None,
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
        let asked = Instant::now();
        let reading = self.source.as_ref().and_then(|source| (source.read)());
        // A status endpoint takes a while, and says what was so in between.
        let now = asked + asked.elapsed() / 2;
        self.begin = Some((now, reading));
        self.peak_before = self
            .peak_before
            .or(reading.and_then(|reading| reading.peak_bytes));
        if let Some(meter) = &mut self.energy {
            meter.take();
        }
        self.machine_before = MachineReading::now();
        self.last = reading.map(|reading| (now, reading));
    }

    /// The end of the measurement.
    pub(crate) fn end(&mut self) {
        if self.has_begun() && !self.has_ended {
            self.add_point();
            self.has_ended = true;
            self.machine = self.machine_since_begin();
            self.microjoules = self.energy.as_mut().map(EnergyMeter::take);
            self.pss = self.source.as_ref().and_then(|source| (source.pss)());
        }
    }

    /// Reads the consumption now, during the measurement. A server that is gone keeps its last reading.
    pub(crate) fn add_point(&mut self) {
        let (Some((begin, _)), Some(source), false) = (self.begin, &self.source, self.has_ended)
        else {
            return;
        };
        let asked = Instant::now();
        let (Some((before, earlier)), Some(reading)) = (self.last, (source.read)()) else {
            return;
        };
        let now = asked + asked.elapsed() / 2;
        let time = (now - before).as_secs_f64().max(1e-3);
        // The end of the load soon after a reading: what was used in so short a time is less than the clock of the kernel tells.
        let usual = self.course.first().map_or(0.0, |first| first.seconds);
        if time >= usual * MIN_SHARE {
            self.course.push(ServerPoint {
                seconds: (now - begin).as_secs_f64(),
                cores: ((reading.cpu - earlier.cpu) / time).max(0.0),
                memory_bytes: reading.memory_bytes,
                descriptors: reading.descriptors,
            });
        }
        self.last = Some((now, reading));
    }

    fn machine_since_begin(&self) -> Option<MachineReport> {
        let (before, (begin, _)) = (self.machine_before?, self.begin?);
        Some(MachineReading::now()?.since(&before, begin.elapsed().as_secs_f64()))
    }

    /// What the whole machine did in the measurement.
    pub(crate) fn machine(&self) -> Option<MachineReport> {
        self.machine
    }

    /// Microjoules of the processors of this machine in the measurement, where the kernel tells.
    pub(crate) fn microjoules(&self) -> Option<u64> {
        self.microjoules
    }

    /// The report, for this number of good responses in this window.
    pub(crate) fn report(self, responses: u64, window: &LoadWindow) -> Option<ServerReport> {
        let source = self.source?;
        let (begin, Some(first)) = self.begin? else {
            return None;
        };
        let (end, last) = self.last?;
        let covered = window.covered(begin, end);
        let per_response =
            |consumed: f64| consumed.max(0.0) / covered.share / (responses.max(1) as f64);
        let cpu = last.cpu - first.cpu;
        let apart = last.user_and_system.zip(first.user_and_system);
        let switches = last.switches.zip(first.switches);
        let switched = |last: u64, first: u64| per_response(last.saturating_sub(first) as f64);
        let course = &self.course;
        Some(ServerReport {
            pid: source.pid,
            name: source.name,
            cpu_per_response_us: per_response(cpu * 1e6),
            user_per_response_us: apart.map(|(last, first)| per_response((last.0 - first.0) * 1e6)),
            system_per_response_us: apart
                .map(|(last, first)| per_response((last.1 - first.1) * 1e6)),
            cores: (cpu / covered.time.as_secs_f64().max(1e-3)).max(0.0),
            voluntary_switches_per_response: switches
                .map(|(last, first)| switched(last.0, first.0)),
            involuntary_switches_per_response: switches
                .map(|(last, first)| switched(last.1, first.1)),
            memory_bytes: course
                .iter()
                .map(|point| point.memory_bytes)
                .max()
                .unwrap_or(first.memory_bytes),
            growth_bytes: last
                .peak_bytes
                .zip(self.peak_before)
                .map(|(last, before)| last.saturating_sub(before)),
            pss_bytes: self.pss,
            descriptors: course
                .iter()
                .map(|point| point.descriptors)
                .max()
                .unwrap_or(first.descriptors),
            course: self.course,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_is_late_misses_no_cpu_time() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let window = LoadWindow {
            begin,
            time: Duration::from_millis(500),
        };
        let share = |first, last| window.covered(at(first), at(last)).share;
        assert_eq!(share(0, 500), 1.0);
        // The server has nothing to do after the end.
        assert_eq!(share(0, 700), 1.0);
        assert_eq!(share(5, 520), 0.99);
        // It was gone after 250 ms.
        assert_eq!(share(25, 250), 0.9);
        assert_eq!(share(250, 500), 0.5);
        // Too little, or nothing.
        assert_eq!(share(251, 500), 1.0);
        assert_eq!(share(600, 700), 1.0);
        assert_eq!(window.covered(at(100), at(700)).time, at(500) - at(100));
    }
}
