//! The result of a comparison as one page of HTML without scripts and without anything from elsewhere.

use std::fmt::{self, Write as _};

use crate::html::{Chart, ChartLine, EscapedText, STYLE, write_details, write_table};

use crate::comparison::figures::{FIGURES, FigureKind, TableFigure};
use crate::comparison::result::{ComparedCases, ComparedMetric, ComparisonReport, METRICS};

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
const LEFT: f64 = 200.0;
const RIGHT: f64 = 215.0;

/// The results as a page: for each comparison a table of figures, with what others have published, and verdicts in words. A
/// comparison that is a file of its own has a plot of the ratios with their intervals, and the rounds of each value, too. Each
/// plot has its numbers as a table.
pub fn to_page(files: &[ComparedCases]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(files, &mut out);
    out
}

fn write_page(files: &[ComparedCases], out: &mut String) -> fmt::Result {
    let title = match files {
        [file, others @ ..] if others.iter().all(|other| other.title == file.title) => {
            file.title.as_str()
        }
        _ => "Comparisons",
    };
    let title = EscapedText(title);
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>"
    )?;
    // Files with the same title after one another are one section.
    let sections: Vec<&[ComparedCases]> = files
        .chunk_by(|one, other| one.title == other.title)
        .collect();
    let titles = sections.iter().filter_map(|section| section.first());
    if sections.len() > 1 {
        out.push_str("<nav><ol>\n");
        for (index, file) in titles.enumerate() {
            let title = EscapedText(&file.title);
            writeln!(out, "<li><a href=\"#section-{index}\">{title}</a></li>")?;
        }
        out.push_str("</ol></nav>\n");
    }
    for (index, section) in sections.iter().enumerate() {
        writeln!(out, "<section class=\"sheet\" id=\"section-{index}\">")?;
        if let Some(file) = section.first().filter(|_| sections.len() > 1) {
            writeln!(out, "<h2>{}</h2>", EscapedText(&file.title))?;
        }
        for file in *section {
            write_file(file, out)?;
        }
        out.push_str("</section>\n");
    }
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        out,
        "</main>\n<footer>Made by <code>apus bench compare</code> {version}.</footer>\n</body>\n</html>"
    )
}

fn write_file(file: &ComparedCases, out: &mut String) -> fmt::Result {
    if let Some(note) = &file.note {
        write_paragraphs(note, out)?;
    }
    if file.is_interrupted {
        out.push_str("<p class=\"warning\">It was interrupted: cases are missing.</p>\n");
    }
    for report in &file.reports {
        if file.has_cases {
            write_case(report, out)?
        } else {
            write_report(report, out)?
        }
    }
    for failure in &file.failures {
        writeln!(
            out,
            "<h3>{}</h3>\n<p class=\"warning\">Nothing was measured: {}</p>",
            EscapedText(&failure.case),
            EscapedText(&failure.cause)
        )?;
    }
    match file.reports.first() {
        Some(report) if file.has_cases => write_machine(report, out),
        _ => Ok(()),
    }
}

/// Text whose paragraphs are apart by empty lines.
fn write_paragraphs(text: &str, out: &mut String) -> fmt::Result {
    for paragraph in text.split("\n\n").filter(|part| !part.trim().is_empty()) {
        writeln!(out, "<p>{}</p>", EscapedText(paragraph.trim()))?;
    }
    Ok(())
}

/// A case among others: a table.
fn write_case(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    writeln!(out, "<h3>{}</h3>", EscapedText(&report.title))?;
    if let Some(note) = &report.note {
        write_paragraphs(note, out)?;
    }
    write_figures(report, out)?;
    write_goals(report, out)?;
    for note in &report.notes {
        writeln!(out, "<p class=\"warning\">{}</p>", EscapedText(note))?;
    }
    if report.ratios.is_empty() {
        return Ok(());
    }
    let reference = EscapedText(&report.reference);
    writeln!(
        out,
        "<details><summary>Ratios to {reference}, and how sure they are</summary>"
    )?;
    write_ratio_table(report, out)?;
    out.push_str("</details>\n");
    Ok(())
}

/// All figures of all servers, each with what others have published about it.
fn write_figures(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    let columns: Vec<&TableFigure> = FIGURES
        .iter()
        .filter(|figure| {
            let is_asked_for = report.shown.contains(&figure.key)
                || report.goals.iter().any(|goal| goal.figure == figure.key)
                || report
                    .published
                    .iter()
                    .any(|one| one.figures.contains_key(figure.key));
            let measured = report.servers.iter();
            let mut measured = measured.filter_map(|server| server.figures.get(figure.key));
            is_asked_for
                || match figure.kind {
                    FigureKind::Usual | FigureKind::Failures => measured.next().is_some(),
                    FigureKind::Count => measured.any(|value| *value != 0.0),
                    FigureKind::OnDemand => false,
                }
        })
        .collect();
    let mut heads = vec![""];
    heads.extend(columns.iter().map(|figure| figure.title));
    let mut rows = Vec::new();
    let published = |name: &str, rows: &mut Vec<Vec<String>>| {
        for one in report.published.iter().filter(|one| one.server == name) {
            let note = one
                .note
                .as_ref()
                .map_or(String::new(), |note| format!(" ({note})"));
            let mut row = vec![format!("{name}, published{note}")];
            row.extend(columns.iter().map(|figure| {
                let value = one.figures.get(figure.key);
                value.map_or(String::new(), |value| figure.format(*value))
            }));
            rows.push(row);
        }
    };
    for server in &report.servers {
        let mut row = vec![server.name.clone()];
        row.extend(columns.iter().map(|figure| {
            let value = server.figures.get(figure.key);
            value.map_or(String::new(), |value| figure.format(*value))
        }));
        rows.push(row);
        published(&server.name, &mut rows);
    }
    let mut others: Vec<&str> = Vec::new();
    for one in &report.published {
        let is_measured = report
            .servers
            .iter()
            .any(|server| server.name == one.server);
        if !is_measured && !others.contains(&one.server.as_str()) {
            others.push(&one.server);
        }
    }
    for name in others {
        published(name, &mut rows);
    }
    write_table(out, &heads, &rows)?;
    let load = if report.seconds_of_load > 0.0 {
        format!(" of {} s", report.seconds_of_load)
    } else {
        String::new()
    };
    let rounds = match report.rounds {
        1 => format!("One round{load}, of each server"),
        many => format!("Medians of {many} rounds{load} of each server"),
    };
    writeln!(
        out,
        "<p>{rounds}, until {}; counts are sums.</p>",
        EscapedText(&report.ended_by)
    )
}

fn write_goals(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    if report.goals.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = report
        .goals
        .iter()
        .map(|goal| {
            vec![
                goal.goal.clone(),
                format!("{:.3}", goal.value),
                if goal.is_reached { "reached" } else { "missed" }.to_owned(),
                goal.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    write_table(out, &["Goal", "Value", "", "Why"], &rows)
}

/// A comparison that is a file of its own.
fn write_report(report: &ComparisonReport, out: &mut String) -> fmt::Result {
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
    out.push_str("<h2>Figures</h2>\n");
    write_figures(report, out)?;
    write_goals(report, out)?;
    write_verdicts(report, out)?;
    for metric in &METRICS {
        write_metric(report, metric, out)?;
    }
    write_machine(report, out)
}

fn write_verdicts(report: &ComparisonReport, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Verdicts</h2>\n");
    write_ratio_table(report, out)?;
    write_ratios(report, out)
}

fn write_ratio_table(report: &ComparisonReport, out: &mut String) -> fmt::Result {
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
    )
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
        "<figure><figcaption>Ratio to {1}: green is better than it, red is worse, and grey is not certain</figcaption><svg class=\"wide\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        EscapedText(&format!(
            "Ratios to {} with their intervals: {certain} of {} are certain to differ from 1.",
            report.reference,
            report.ratios.len()
        )),
        EscapedText(&report.reference)
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
        let class = match ratio.is_better() {
            Some(true) => "line better",
            Some(false) => "line worse",
            None => "line unsure",
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
        writeln!(
            out,
            "<text class=\"verdict {class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 14.0,
            y + 4.0,
            EscapedText(&ratio.verdict)
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
            format!("{} {}", metric.format(value), metric.unit)
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
        is_logarithmic: false,
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
                value.map_or("unknown".to_owned(), |value| metric.format(value))
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
