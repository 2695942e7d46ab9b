//! The result of a comparison as one page of HTML without scripts and without anything from elsewhere.

use std::fmt::{self, Write as _};

use super::result::{ComparedMetric, ComparisonReport, METRICS};
use super::text::number;
use crate::report::html::{Chart, ChartLine, EscapedText, STYLE, write_details, write_table};

/// The classes of the lines of servers.
const LINES: [&str; 6] = [
    "line",
    "line second",
    "line third",
    "line fourth",
    "line fifth",
    "line sixth",
];

/// The height of a row in the plot of ratios, and its width.
const ROW: f64 = 34.0;
const WIDTH: f64 = 720.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 20.0;

/// The result as a page: verdicts in words, a plot of the ratios with their intervals, and the rounds of each value. Each plot
/// has its numbers as a table, too.
pub fn to_page(report: &ComparisonReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(report, &mut out);
    out
}

fn write_page(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    let title = EscapedText(&report.title);
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>"
    )?;
    writeln!(
        out,
        "<p>{} rounds in {:.0} s, until {}.</p>",
        report.rounds,
        report.seconds,
        EscapedText(&report.ended_by)
    )?;
    for note in &report.notes {
        writeln!(out, "<p class=\"warning\">{}</p>", EscapedText(note))?;
    }
    write_verdicts(report, out)?;
    for metric in &METRICS {
        write_metric(report, metric, out)?;
    }
    write_machine(report, out)?;
    writeln!(
        out,
        "</main>\n<footer>Made by <code>apus bench compare</code> {}.</footer>\n</body>\n</html>",
        report.environment.generator
    )
}

fn write_verdicts(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Verdicts</h2>\n");
    let rows: Vec<_> = report
        .ratios
        .iter()
        .map(|ratio| {
            let interval = ratio.interval.map_or("unknown".to_owned(), |(low, high)| {
                format!("{low:.3} to {high:.3}")
            });
            vec![
                format!("{}: {}", ratio.server, ratio.metric),
                ratio.verdict.clone(),
                format!("{:.3}", ratio.ratio),
                interval,
                format!("{:.3}", ratio.noise),
            ]
        })
        .collect();
    write_table(
        out,
        &["", "Verdict", "Ratio", "Interval", "Probability of noise"],
        &rows,
    )?;
    writeln!(
        out,
        "<p>Ratios are the value of the server by that of {}, round by round (estimate of Hodges and Lehmann). {:.0}% of such \
         intervals contain the true ratio (signed ranks of Wilcoxon).</p>",
        EscapedText(&report.reference),
        report.confidence * 100.0
    )?;
    write_ratios(report, out)
}

/// The ratios as points with their intervals.
fn write_ratios(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    if report.ratios.is_empty() {
        return Ok(());
    }
    let bounds = report.ratios.iter().map(|ratio| {
        let (low, high) = ratio.interval.unwrap_or((ratio.ratio, ratio.ratio));
        (low.min(ratio.ratio), high.max(ratio.ratio))
    });
    let (low, high) = bounds.fold((0.9_f64, 1.1_f64), |(low, high), one| {
        (low.min(one.0), high.max(one.1))
    });
    let (from, to) = ((low * 0.97).ln(), (high * 1.03).ln());
    let x = |ratio: f64| LEFT + (ratio.ln() - from) / (to - from) * (WIDTH - LEFT - RIGHT);
    let height = ROW * (report.ratios.len() as f64 + 1.0);
    let certain = report
        .ratios
        .iter()
        .filter(|ratio| ratio.is_certain)
        .count();
    writeln!(
        out,
        "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        EscapedText(&format!(
            "Ratios to {} with their intervals: {certain} of {} are certain to differ from 1.",
            report.reference,
            report.ratios.len()
        ))
    )?;
    let one = x(1.0);
    writeln!(
        out,
        "<line class=\"axis\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"4\" y2=\"{:.1}\"/>\
         <text class=\"x\" x=\"{one:.1}\" y=\"{:.1}\">1</text>",
        height - ROW + 6.0,
        height - ROW + 20.0
    )?;
    for (row, ratio) in report.ratios.iter().enumerate() {
        let y = ROW * (row as f64 + 0.5);
        writeln!(
            out,
            "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
            LEFT - 10.0,
            y + 4.0,
            EscapedText(&format!("{}: {}", ratio.server, ratio.metric))
        )?;
        let class = if ratio.is_certain {
            "line"
        } else {
            "line unsure"
        };
        if let Some((low, high)) = ratio.interval {
            writeln!(
                out,
                "<line class=\"{class} interval\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                x(low),
                x(high)
            )?;
        }
        writeln!(
            out,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
             <text class=\"x\" x=\"{:.1}\" y=\"{:.1}\">{:.3}</text>",
            x(ratio.ratio),
            x(ratio.ratio),
            y - 8.0,
            ratio.ratio
        )?;
    }
    out.push_str("</svg></figure>\n");
    Ok(())
}

/// The rounds of a value.
fn write_metric(
    report: &ComparisonReport,
    metric: &ComparedMetric,
    out: &mut String,
) -> fmt::Result {
    let courses: Vec<Vec<(f64, f64)>> = report
        .servers
        .iter()
        .map(|server| {
            let rounds = server.rounds.iter().enumerate();
            rounds
                .filter_map(|(index, round)| Some(((index + 1) as f64, (metric.value)(round)?)))
                .collect()
        })
        .collect();
    if courses.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let name = metric.name;
    let mut letters = name.chars();
    let heading: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect();
    writeln!(out, "<h2>{heading}</h2>")?;
    out.push_str("<p>");
    let mut medians = Vec::new();
    for (index, server) in report.servers.iter().enumerate() {
        let class = LINES.get(index % LINES.len()).copied().unwrap_or("line");
        let median = (metric.value)(&server.median);
        let median = median.map_or("unknown".to_owned(), |value| {
            format!("{} {}", number(value), metric.unit)
        });
        write!(
            out,
            "<svg class=\"key\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><polyline class=\"{class}\" points=\"0,4 24,4\"/></svg> \
             {}: {median}&ensp;",
            EscapedText(&server.name)
        )?;
        medians.push(format!("{} {median}", server.name));
    }
    out.push_str("</p>\n");
    let series: Vec<_> = courses
        .iter()
        .enumerate()
        .map(|(index, points)| ChartLine {
            points,
            class: LINES.get(index % LINES.len()).copied().unwrap_or("line"),
        })
        .collect();
    Chart {
        alternative: &format!("{heading} in each round; medians: {}.", medians.join(", ")),
        x_label: "round",
        y_label: metric.unit,
        x_marks: None,
        series: &series,
    }
    .write(out)?;
    let mut heads = vec!["Round"];
    heads.extend(report.servers.iter().map(|server| server.name.as_str()));
    let rows: Vec<_> = (0..report.rounds)
        .map(|round| {
            let mut row = vec![(round + 1).to_string()];
            row.extend(report.servers.iter().map(|server| {
                let sample = server.rounds.get(round);
                let value = sample.and_then(|sample| (metric.value)(sample));
                value.map_or("unknown".to_owned(), number)
            }));
            row
        })
        .collect();
    write_details(out, &heads, &rows)
}

fn write_machine(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Machine and servers</h2>\n");
    let machine = &report.environment;
    let mut rows = vec![
        vec!["Processor".to_owned(), machine.cpu.clone()],
        vec!["Processors".to_owned(), machine.processors.to_string()],
        vec!["Linux".to_owned(), machine.kernel.clone()],
    ];
    if let Some(governor) = &machine.governor {
        rows.push(vec!["Frequency".to_owned(), governor.clone()]);
    }
    for server in &report.servers {
        let version = server.version.as_deref().unwrap_or("");
        rows.push(vec![
            server.name.clone(),
            format!("{} {} {version}", server.url, server.command.join(" ")),
        ]);
    }
    write_table(out, &["", ""], &rows)?;
    if !machine.mitigations.is_empty() {
        let rows: Vec<_> = machine
            .mitigations
            .iter()
            .map(|one| vec![one.clone()])
            .collect();
        out.push_str("<details><summary>Mitigations</summary>\n");
        write_table(out, &[""], &rows)?;
        out.push_str("</details>\n");
    }
    writeln!(
        out,
        "<details><summary>Configuration</summary>\n<pre>{}</pre></details>",
        EscapedText(&report.configuration)
    )
}
