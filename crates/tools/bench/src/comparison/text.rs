//! The result of a comparison as text for people.

use std::fmt::{self, Write as _};

use crate::comparison::figures::FIGURES;
use crate::comparison::result::{ComparedMetric, ComparisonReport, METRICS};

/// The result as text: the medians, and each server beside the reference.
pub fn to_comparison_text(report: &ComparisonReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(report, &mut out);
    out
}

fn write_text(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    writeln!(out, "{}", report.title)?;
    if let Some(note) = &report.note {
        writeln!(out, "{}", note.trim())?;
    }
    writeln!(
        out,
        "{} rounds in {:.0} s, until {}\n{}, {} processors, Linux {}\n",
        report.rounds,
        report.seconds,
        report.ended_by,
        report.environment.cpu,
        report.environment.processors,
        report.environment.kernel,
    )?;
    let width = report
        .servers
        .iter()
        .map(|server| server.name.chars().count())
        .max()
        .unwrap_or(0);
    for metric in &METRICS {
        if report
            .servers
            .iter()
            .all(|server| (metric.value)(&server.median).is_none())
        {
            continue;
        }
        writeln!(out, "{}", metric.name)?;
        for server in &report.servers {
            write!(out, "  {:<width$}  ", server.name)?;
            match (metric.value)(&server.median) {
                Some(value) => write!(out, "{:>12} {:<3}", metric.format(value), metric.unit)?,
                None => write!(out, "{:>16}", "unknown")?,
            }
            write_ratio(report, (metric, &server.name), out)?;
        }
        out.push('\n');
    }
    for published in &report.published {
        write!(out, "published of {}:", published.server)?;
        for figure in FIGURES {
            if let Some(value) = published.figures.get(figure.key) {
                write!(out, "  {} {}", figure.title, figure.format(*value))?;
            }
        }
        match &published.note {
            Some(note) => writeln!(out, "  ({note})")?,
            None => out.push('\n'),
        }
    }
    for goal in &report.goals {
        let verdict = if goal.is_reached { "reached" } else { "MISSED" };
        write!(out, "{verdict}: {}: {:.3}", goal.goal, goal.value)?;
        match &goal.reason {
            Some(reason) => writeln!(out, "; {}", reason.trim())?,
            None => out.push('\n'),
        }
    }
    for note in &report.notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn write_ratio(
    report: &ComparisonReport,
    (metric, server): (&ComparedMetric, &str),
    out: &mut String,
) -> fmt::Result {
    let ratio = report
        .ratios
        .iter()
        .find(|ratio| ratio.metric == metric.name && ratio.server == server);
    match ratio {
        Some(ratio) => {
            write!(out, "  {:.3}", ratio.ratio)?;
            if let Some((low, high)) = ratio.interval {
                write!(out, " ({low:.3} to {high:.3})")?;
            }
            writeln!(out, "  {}", ratio.verdict)
        }
        None if server == report.reference => writeln!(out, "  reference"),
        None => writeln!(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::figures::figure;

    #[test]
    fn rates_are_written_as_in_the_result_of_a_load() {
        let [rate, cpu, ..] = &METRICS;
        let rates = [0.0, 0.004, 0.5, 42.12, 1234.0];
        let expected = ["0", "0.004", "0.5", "42.1", "1,234"];
        assert_eq!(rates.map(|value| rate.format(value)), expected);
        for key in ["rate", "per-core", "per-core-behind"] {
            let figure = figure(key).unwrap();
            assert_eq!(rates.map(|value| figure.format(value)), expected, "{key}");
        }
        // Other values keep four digits.
        assert_eq!((rate.name, cpu.format(42.12)), ("rate", "42.12".to_owned()));
        assert_eq!(figure("cpu").unwrap().format(42.12), "42.12");
    }
}
