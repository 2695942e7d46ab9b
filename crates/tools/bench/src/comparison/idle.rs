//! Connections that had a response each and are left alone: what each costs in memory.

use std::num::NonZeroUsize;

use crate::{BenchError, BenchReport, HttpVersion, LoadLimit, LoadPlan, run, server_pss};

use crate::comparison::clock::ComparisonClock;
use crate::comparison::samples::RoundSample;

/// The connections that are opened before, as what the first ones of a process allocate once is not what one costs.
pub(crate) const IDLE_FIRST: usize = 64;

/// Measures the memory of a server at rest with this number of connections. `None` if the user has interrupted it.
pub(crate) fn measure_idle(
    server: &str,
    (load, connections): (LoadPlan, usize),
    clock: &mut ComparisonClock,
) -> Result<Option<RoundSample>, BenchError> {
    let unknown = || {
        BenchError::Process(format!(
            "the kernel does not tell the memory of `{server}` (/proc/PID/smaps_rollup): it has to run on this machine, as this user"
        ))
    };
    if connections == 0 {
        if let LoadLimit::Time(time) = load.limit
            && clock.wait(time)
        {
            return Ok(None);
        }
        let pss = server_pss(load)?.ok_or_else(unknown)?;
        return Ok(Some(RoundSample {
            pss_bytes: Some(pss as f64),
            ..RoundSample::default()
        }));
    }
    let mut first = load.clone();
    first.connections = NonZeroUsize::MIN.saturating_add(IDLE_FIRST - 1);
    let Some((_, before)) = hold(server, first)? else {
        return Ok(None);
    };
    let Some((report, with)) = hold(server, load)? else {
        return Ok(None);
    };
    let (before, with) = (before.ok_or_else(unknown)?, with.ok_or_else(unknown)?);
    let further = connections.saturating_sub(IDLE_FIRST).max(1);
    Ok(Some(RoundSample {
        bytes_per_connection: Some((with as f64 - before as f64) / further as f64),
        ..RoundSample::of_idle(&report)
    }))
}

/// Holds the connections of a load, and reads the memory of the server at the end.
fn hold(server: &str, load: LoadPlan) -> Result<Option<(BenchReport, Option<u64>)>, BenchError> {
    let connections = load.connections.get() as u64;
    let has_descriptors = load.version != HttpVersion::Http3;
    let report = run(load, &mut |_| {})?;
    if report.interrupted {
        return Ok(None);
    }
    let failed = |cause: String| {
        Err(BenchError::Server(format!(
            "{connections} idle connections to `{server}` cannot be measured: {cause}"
        )))
    };
    if report.responses != connections || report.connections_opened != connections {
        let cause = report.failures.first();
        return failed(format!(
            "{} were opened, and over them came {} good responses{}",
            report.connections_opened,
            report.responses,
            cause.map_or(String::new(), |cause| format!("; {cause}"))
        ));
    }
    let readings = report.server.as_ref();
    let last = readings.and_then(|server| server.course.last());
    // None at all: the kernel does not tell this user.
    let is_closed = |descriptors: u64| has_descriptors && (1..connections).contains(&descriptors);
    if let Some(last) = last.filter(|last| is_closed(last.descriptors)) {
        return failed(format!(
            "the server closed them: it has {} descriptors after {:.0} s",
            last.descriptors, report.seconds
        ));
    }
    let pss = readings.and_then(|server| server.pss_bytes);
    Ok(Some((report, pss)))
}
