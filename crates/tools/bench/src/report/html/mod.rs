//! The result of a load as one page of HTML without scripts and without anything from elsewhere; and the pieces of such pages.

mod chart;

use std::fmt::{self, Write as _};

use self::chart::HeatMap;
pub use self::chart::{Chart, ChartLine};
use super::BenchReport;
use super::text::{bytes, count, format_rate, time};

/// The style of the page: light and dark by the reader's preference, dark text on white when it is printed.
pub const STYLE: &str = include_str!("style.css");

/// The most columns of the heat map and points of a course. More intervals are joined.
const COLUMNS: usize = 120;

/// The result as a page with plots: the rate over time, the curve of percentiles, a heat map of latencies, failures, and
/// the consumption of the server. Each plot has its numbers as a table, too.
pub fn to_html(report: &BenchReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(report, &mut out);
    out
}

fn write_page(report: &BenchReport, out: &mut String) -> fmt::Result {
    let title = report.urls.first().map_or("", |url| url.url.as_str());
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Load on {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>",
        EscapedText(title)
    )?;
    write_heading(report, out)?;
    write_summary(report, out)?;
    let joined = Joined::of(report);
    write_rate(&joined, out)?;
    write_percentiles(report, out)?;
    write_heat_map(report, &joined, out)?;
    write_failures(report, &joined, out)?;
    write_server(report, out)?;
    writeln!(
        out,
        "</main>\n<footer>Made by <code>apus bench</code> {}.</footer>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION")
    )
}

fn write_heading(report: &BenchReport, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "<h1>Load on {}</h1>",
        EscapedText(report.address.as_str())
    )?;
    out.push_str("<ul>\n");
    for url in &report.urls {
        let latency = url.latency.as_ref().filter(|latency| latency.count > 0);
        let latency = latency.map_or(String::new(), |latency| {
            format!(
                ", half below {}, 99% below {}",
                time(latency.p50_ms),
                time(latency.p99_ms)
            )
        });
        let name = url
            .name
            .as_ref()
            .map_or(String::new(), |name| format!("{name}: "));
        writeln!(
            out,
            "<li>{}<code>{} {}</code>: {} responses, {} failed{latency}</li>",
            EscapedText(&name),
            EscapedText(&url.method),
            EscapedText(&url.url),
            count(url.responses),
            count(url.failed)
        )?;
    }
    let kind = match &report.rate_plan {
        None => "a closed loop".to_owned(),
        Some(rate) => format!("an open loop with {rate}"),
    };
    writeln!(
        out,
        "</ul>\n<p>By {}, over {} connections from {} threads, {}, for {:.2} s after {} s of warm-up.</p>",
        EscapedText(&kind),
        count(report.connections as u64),
        report.threads,
        report.protocol,
        report.seconds,
        report.warm_up,
    )?;
    if let Some(why) = &report.generator.bottleneck {
        writeln!(
            out,
            "<p class=\"warning\"><strong>The generator was the bottleneck:</strong> {}. These figures are not the \
             server's.</p>",
            EscapedText(why)
        )?;
    }
    Ok(())
}

fn write_summary(report: &BenchReport, out: &mut String) -> fmt::Result {
    let latency = &report.latency;
    out.push_str("<h2>Summary</h2>\n");
    let at_least = if report.generator.bottleneck.is_some() {
        "at least "
    } else {
        ""
    };
    write_table(
        out,
        &["", ""],
        &[
            vec!["Responses".to_owned(), count(report.responses)],
            vec![
                "Rate".to_owned(),
                format!("{at_least}{}/s", format_rate(report.responses_per_second)),
            ],
            vec![
                "Bodies".to_owned(),
                format!("{}/s", bytes(report.body_bytes_per_second)),
            ],
            vec!["Failed".to_owned(), count(report.failed)],
            vec!["Latency, median".to_owned(), time(latency.p50_ms)],
            vec!["90% below".to_owned(), time(latency.p90_ms)],
            vec!["99% below".to_owned(), time(latency.p99_ms)],
            vec!["99.9% below".to_owned(), time(latency.p999_ms)],
            vec!["Longest".to_owned(), time(latency.max_ms)],
            vec![
                "Service time, median".to_owned(),
                time(report.service_time.p50_ms),
            ],
            vec![
                "Service time, 99% below".to_owned(),
                time(report.service_time.p99_ms),
            ],
            vec![
                "CPU of the generator".to_owned(),
                format!(
                    "{:.2} us per response",
                    report.generator.cpu_per_response_us
                ),
            ],
        ],
    )
}

/// Intervals, of which several are one if there are many.
struct Joined {
    /// Seconds.
    length: f64,
    intervals: Vec<JoinedInterval>,
    /// How long the last one is: the load may have ended within it.
    last: f64,
}

#[derive(Default)]
struct JoinedInterval {
    responses: u64,
    failed: u64,
    bands: Vec<u64>,
}

impl Joined {
    fn of(report: &BenchReport) -> Self {
        let factor = report.intervals.len().div_ceil(COLUMNS).max(1);
        let join = |chunk: &[super::IntervalReport]| {
            let mut all = JoinedInterval {
                bands: vec![0; report.band_starts_ms.len()],
                ..JoinedInterval::default()
            };
            for interval in chunk {
                all.responses += interval.responses;
                all.failed += interval.failed;
                for (sum, count) in all.bands.iter_mut().zip(&interval.bands) {
                    *sum += u64::from(*count);
                }
            }
            all
        };
        let length = report.interval * factor as f64;
        let intervals: Vec<_> = report.intervals.chunks(factor).map(join).collect();
        let before = length * intervals.len().saturating_sub(1) as f64;
        Self {
            length,
            intervals,
            last: (report.seconds - before).clamp(0.0, length),
        }
    }

    /// A value of each interval, per second, at its middle. A last one that is less than half of the others says nothing.
    fn per_second(&self, value: fn(&JoinedInterval) -> u64) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for (index, interval) in self.intervals.iter().enumerate() {
            let is_last = index + 1 == self.intervals.len();
            let length = if is_last { self.last } else { self.length };
            if length >= self.length / 2.0 {
                let middle = index as f64 * self.length + length / 2.0;
                points.push((middle, value(interval) as f64 / length));
            }
        }
        points
    }
}

fn write_rate(joined: &Joined, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Rate over time</h2>\n");
    let points = joined.per_second(|interval| interval.responses);
    let least = points
        .iter()
        .fold(f64::INFINITY, |least, point| least.min(point.1));
    let most = points
        .iter()
        .fold(0.0, |most: f64, point| most.max(point.1));
    let alternative = format!(
        "Responses per second over {:.0} seconds: between {} and {}.",
        joined.length * joined.intervals.len() as f64,
        format_rate(if least.is_finite() { least } else { 0.0 }),
        format_rate(most)
    );
    Chart {
        alternative: &alternative,
        x_label: "seconds",
        y_label: "responses per second",
        is_logarithmic: false,
        x_marks: None,
        series: &[ChartLine {
            points: &points,
            class: "line",
        }],
    }
    .write(out)?;
    let rows = points
        .iter()
        .map(|(at, rate)| vec![format!("{at:.1}"), format_rate(*rate)]);
    write_details(
        out,
        &["Second", "Responses per second"],
        &rows.collect::<Vec<_>>(),
    )
}

fn write_percentiles(report: &BenchReport, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Percentiles</h2>\n");
    // The distance from 100% in powers of ten.
    let nines = |percentile: f64| -((1.0 - percentile / 100.0).max(1e-7)).log10();
    let curve = |times: &super::LatencyReport| -> Vec<(f64, f64)> {
        times
            .percentiles
            .iter()
            .map(|(percentile, ms)| (nines(*percentile), *ms))
            .collect()
    };
    let (latency, service) = (curve(&report.latency), curve(&report.service_time));
    let alternative = format!(
        "Latency in milliseconds by percentile: {:.3} at 50%, {:.3} at 90%, {:.3} at 99%, {:.3} at 99.9%, {:.3} at most.",
        report.latency.p50_ms,
        report.latency.p90_ms,
        report.latency.p99_ms,
        report.latency.p999_ms,
        report.latency.max_ms
    );
    let mut series = vec![ChartLine {
        points: &latency,
        class: "line",
    }];
    if report.load == "open" {
        series.push(ChartLine {
            points: &service,
            class: "line second",
        });
        out.push_str("<p>The dashed line is the service time, from the time at which a request was sent.</p>\n");
    }
    Chart {
        alternative: &alternative,
        x_label: "percentile",
        y_label: "milliseconds, on a logarithmic scale",
        is_logarithmic: true,
        x_marks: Some(&[
            (0.0, "0%"),
            (1.0, "90%"),
            (2.0, "99%"),
            (3.0, "99.9%"),
            (4.0, "99.99%"),
            (5.0, "99.999%"),
        ]),
        series: &series,
    }
    .write(out)?;
    let rows = report.latency.percentiles.iter();
    let rows =
        rows.map(|(percentile, ms)| vec![format!("{percentile:.4}%"), format!("{ms:.3} ms")]);
    write_details(out, &["Percentile", "Latency"], &rows.collect::<Vec<_>>())
}

fn write_heat_map(report: &BenchReport, joined: &Joined, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Latencies over time</h2>\n");
    let columns: Vec<&[u64]> = joined
        .intervals
        .iter()
        .map(|one| one.bands.as_slice())
        .collect();
    let alternative = format!(
        "Heat map: how many responses had which latency in each {:.1} seconds, between {} and {}.",
        joined.length,
        time(report.band_starts_ms.first().copied().unwrap_or(0.0)),
        time(report.band_starts_ms.last().copied().unwrap_or(0.0))
    );
    HeatMap {
        alternative: &alternative,
        length: joined.length,
        starts_ms: &report.band_starts_ms,
        columns: &columns,
    }
    .write(out)?;
    let rows = report
        .band_starts_ms
        .iter()
        .enumerate()
        .map(|(band, start)| {
            let sum: u64 = columns.iter().filter_map(|column| column.get(band)).sum();
            vec![time(*start), count(sum)]
        });
    write_details(
        out,
        &["Latency from", "Responses"],
        &rows.collect::<Vec<_>>(),
    )
}

fn write_failures(report: &BenchReport, joined: &Joined, out: &mut String) -> fmt::Result {
    out.push_str("<h2>Failures</h2>\n");
    if report.failed == 0 {
        out.push_str("<p>No request failed.</p>\n");
        return Ok(());
    }
    let points = joined.per_second(|interval| interval.failed);
    let alternative = format!(
        "Failed requests per second; {} in all.",
        count(report.failed)
    );
    Chart {
        alternative: &alternative,
        x_label: "seconds",
        y_label: "failed per second",
        is_logarithmic: false,
        x_marks: None,
        series: &[ChartLine {
            points: &points,
            class: "line bad",
        }],
    }
    .write(out)?;
    let rows = report.failures.iter().map(|failure| {
        vec![
            failure.kind.words().to_owned(),
            count(failure.count),
            failure.cause.clone().unwrap_or_default(),
        ]
    });
    write_table(
        out,
        &["What happened", "Requests", "The first one"],
        &rows.collect::<Vec<_>>(),
    )
}

fn write_server(report: &BenchReport, out: &mut String) -> fmt::Result {
    let Some(server) = &report.server else {
        return Ok(());
    };
    let pid = server.pid.map_or(String::new(), |pid| format!(" ({pid})"));
    writeln!(out, "<h2>Server: {}{pid}</h2>", EscapedText(&server.name))?;
    let cores: Vec<_> = server
        .course
        .iter()
        .map(|point| (point.seconds, point.cores))
        .collect();
    let alternative = format!(
        "Cores that the server used over time; {:.2} on average.",
        server.cores
    );
    Chart {
        alternative: &alternative,
        x_label: "seconds",
        y_label: "cores",
        is_logarithmic: false,
        x_marks: None,
        series: &[ChartLine {
            points: &cores,
            class: "line",
        }],
    }
    .write(out)?;
    let mut rows = vec![vec![
        "CPU per response".to_owned(),
        format!("{:.2} us", server.cpu_per_response_us),
    ]];
    let known = |value: Option<f64>, digits: usize, unit: &str| {
        value.map(|value| format!("{value:.digits$}{unit}"))
    };
    for (name, value) in [
        ("In user mode", known(server.user_per_response_us, 2, " us")),
        (
            "In the kernel",
            known(server.system_per_response_us, 2, " us"),
        ),
        (
            "Voluntary context switches per response",
            known(server.voluntary_switches_per_response, 3, ""),
        ),
        (
            "Involuntary context switches per response",
            known(server.involuntary_switches_per_response, 3, ""),
        ),
        ("Memory at most", Some(bytes(server.memory_bytes as f64))),
        ("Descriptors at most", Some(count(server.descriptors))),
    ] {
        rows.extend(value.map(|value| vec![name.to_owned(), value]));
    }
    write_table(out, &["", ""], &rows)?;
    let rows = server.course.iter().map(|point| {
        vec![
            format!("{:.1}", point.seconds),
            format!("{:.2}", point.cores),
            bytes(point.memory_bytes as f64),
            count(point.descriptors),
        ]
    });
    write_details(
        out,
        &["Second", "Cores", "Memory", "Descriptors"],
        &rows.collect::<Vec<_>>(),
    )
}

/// Writes a table that is shown when the reader asks for it.
///
/// # Errors
/// Those of writing.
pub fn write_details(out: &mut String, heads: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    out.push_str("<details><summary>As a table</summary>\n");
    write_table(out, heads, rows)?;
    out.push_str("</details>\n");
    Ok(())
}

/// Writes a table; the first cell of a row is its head.
///
/// # Errors
/// Those of writing.
pub fn write_table(out: &mut String, heads: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    out.push_str("<table>\n");
    if heads.iter().any(|head| !head.is_empty()) {
        out.push_str("<tr>");
        for (index, head) in heads.iter().enumerate() {
            let below = rows.first().and_then(|row| row.get(index));
            let class = match below {
                Some(cell) if index > 0 && is_figure(cell) => " class=\"figure\"",
                _ => "",
            };
            write!(out, "<th scope=\"col\"{class}>{}</th>", EscapedText(head))?;
        }
        out.push_str("</tr>\n");
    }
    for row in rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            match index {
                0 => write!(out, "<th scope=\"row\">{}</th>", EscapedText(cell))?,
                // Figures one below the other.
                _ if is_figure(cell) => {
                    write!(out, "<td class=\"figure\">{}</td>", EscapedText(cell))?
                }
                _ => write!(out, "<td>{}</td>", EscapedText(cell))?,
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    Ok(())
}

/// Whether a cell is a number, with a unit or without.
fn is_figure(cell: &str) -> bool {
    let words = cell.split(' ').count();
    cell.starts_with(|first: char| first.is_ascii_digit()) && (words <= 3 || cell.contains(" per "))
}

/// Text in HTML, whose special characters are escaped.
#[derive(Clone, Copy, Debug)]
pub struct EscapedText<'a>(pub &'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                character => f.write_char(character)?,
            }
        }
        Ok(())
    }
}
