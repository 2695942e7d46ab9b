//! The result of a comparison as text for people.

use std::fmt::{self, Write as _};

use super::figures::FIGURES;
use super::result::{ComparedMetric, ComparisonReport, METRICS};

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
                Some(value) => write!(out, "{:>12} {:<3}", number(value), metric.unit)?,
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
                write!(out, "  {} {}", figure.title, number(*value))?;
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

/// A number with about four digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if value == 0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
