//! The result of a load as text for people.

use std::fmt::Write as _;

use super::{BenchReport, LatencyReport};

/// The result as text of about twenty lines.
pub fn to_text(report: &BenchReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(report, &mut out);
    out
}

fn write_report(report: &BenchReport, out: &mut String) -> std::fmt::Result {
    write_heading(report, out)?;
    let is_limited = report.generator.bottleneck.is_some();
    let rate = if is_limited { "at least " } else { "" };
    writeln!(
        out,
        "responses    {}, {rate}{}/s, {}/s of bodies",
        count(report.responses),
        format_rate(report.responses_per_second),
        bytes(report.body_bytes_per_second),
    )?;
    write_times("latency", &report.latency, out)?;
    if report.load == "open" {
        write_times("service time", &report.service_time, out)?;
    }
    if report.statuses.len() > 1 || report.failed > 0 {
        let statuses: Vec<_> = report
            .statuses
            .iter()
            .map(|(status, seen)| format!("{status}: {}", count(*seen)))
            .collect();
        writeln!(out, "statuses     {}", statuses.join(", "))?;
    }
    write_failures(report, out)?;
    if report.urls.len() > 1 {
        for url in &report.urls {
            let (seen, failed) = (count(url.responses), count(url.failed));
            let name = url.name.as_deref();
            let name = name.map_or_else(|| format!("{} {}", url.method, url.url), str::to_owned);
            write!(out, "  {name}: {seen} responses, {failed} failed")?;
            match &url.latency {
                Some(latency) if latency.count > 0 => writeln!(
                    out,
                    ", p50 {}, p99 {}",
                    time(latency.p50_ms),
                    time(latency.p99_ms)
                )?,
                _ => out.push('\n'),
            }
        }
    }
    let connect = &report.connect_time;
    write!(
        out,
        "connections  {} opened, each in {} (median)",
        count(report.connections_opened),
        time(connect.p50_ms),
    )?;
    if report
        .urls
        .first()
        .is_some_and(|url| url.url.starts_with("https"))
    {
        write!(
            out,
            ", {} TLS sessions resumed",
            count(report.handshakes_resumed)
        )?;
    }
    if report.goaways > 0 {
        write!(out, ", {} GOAWAY", count(report.goaways))?;
    }
    out.push('\n');
    write_consumption(report, out)?;
    write_notes(report, out)
}

fn write_heading(report: &BenchReport, out: &mut String) -> std::fmt::Result {
    for url in &report.urls {
        let share = if report.urls.len() > 1 {
            format!(", weight {}", url.weight)
        } else {
            String::new()
        };
        writeln!(out, "{} {}{share}", url.method, url.url)?;
    }
    match &report.rate_plan {
        None => write!(out, "closed loop: ")?,
        Some(rate) => write!(out, "open loop: {rate} over at most ")?,
    }
    write!(out, "{} connections", count(report.connections as u64))?;
    match (report.keep_alive, report.in_flight) {
        (false, _) => write!(out, ", one request each")?,
        (true, 1) => {}
        (true, many) if report.protocol == "HTTP/1.1" => {
            write!(out, ", {many} pipelined requests each")?;
        }
        (true, many) if report.protocol.starts_with("WebSocket") => {
            write!(out, ", {many} messages in flight each")?;
        }
        (true, many) => write!(out, ", {many} streams each")?,
    }
    let threads = match report.threads {
        1 => "1 thread".to_owned(),
        many => format!("{many} threads"),
    };
    write!(
        out,
        ", {threads}, {}, {:.2} s",
        report.protocol, report.seconds
    )?;
    if report.warm_up > 0.0 {
        write!(out, " after {} s of warm-up", report.warm_up)?;
    }
    writeln!(
        out,
        "{}\n",
        if report.interrupted {
            ", interrupted"
        } else {
            ""
        }
    )
}

fn write_times(name: &str, times: &LatencyReport, out: &mut String) -> std::fmt::Result {
    if times.count == 0 {
        return writeln!(out, "{name:<13}none");
    }
    writeln!(
        out,
        "{name:<13}p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {}",
        time(times.p50_ms),
        time(times.p90_ms),
        time(times.p99_ms),
        time(times.p999_ms),
        time(times.max_ms),
        time(times.mean_ms),
    )
}

fn write_failures(report: &BenchReport, out: &mut String) -> std::fmt::Result {
    writeln!(out, "failed       {}", count(report.failed))?;
    for failure in &report.failures {
        write!(
            out,
            "  {:>10}  {}",
            count(failure.count),
            failure.kind.words()
        )?;
        match &failure.cause {
            Some(cause) => writeln!(out, " (first: {cause})")?,
            None => out.push('\n'),
        }
    }
    Ok(())
}

fn write_consumption(report: &BenchReport, out: &mut String) -> std::fmt::Result {
    let generator = &report.generator;
    write!(
        out,
        "generator    {:.2} us of CPU for each response, busiest thread {:.0}% busy",
        generator.cpu_per_response_us,
        generator.busiest_thread * 100.0,
    )?;
    match &generator.lag {
        Some(lag) => writeln!(
            out,
            ", behind its schedule by p50 {}, p99 {}",
            time(lag.p50_ms),
            time(lag.p99_ms)
        )?,
        None => out.push('\n'),
    }
    let Some(server) = &report.server else {
        return Ok(());
    };
    let pid = server.pid.map_or(String::new(), |pid| format!(" ({pid})"));
    write!(
        out,
        "server       {}{pid}: {:.2} us of CPU for each response",
        server.name, server.cpu_per_response_us,
    )?;
    if let (Some(user), Some(system)) = (server.user_per_response_us, server.system_per_response_us)
    {
        write!(out, " ({user:.2} user, {system:.2} system)")?;
    }
    write!(out, ", {:.2} cores,\n             ", server.cores)?;
    if let (Some(voluntary), Some(involuntary)) = (
        server.voluntary_switches_per_response,
        server.involuntary_switches_per_response,
    ) {
        write!(
            out,
            "{voluntary:.3} voluntary and {involuntary:.3} involuntary context switches for each response, "
        )?;
    }
    writeln!(
        out,
        "{}, {} descriptors",
        bytes(server.memory_bytes as f64),
        count(server.descriptors),
    )
}

fn write_notes(report: &BenchReport, out: &mut String) -> std::fmt::Result {
    if let Some(why) = &report.generator.bottleneck {
        writeln!(
            out,
            "\nThe generator was the bottleneck: {why}. These figures are not the server's; it may be faster. Use more \
             threads (-t), other cores or another machine{}.",
            if report.load == "open" {
                ", or a lower rate"
            } else {
                ""
            },
        )?;
    }
    if report.load == "closed" && report.responses > 0 {
        writeln!(
            out,
            "\nIn a closed loop each connection waits for its response before it sends the next request, so a slow server \
             gets fewer requests: the longest wait, {}, counts once for each connection, however many users would have \
             met it. Measure with --rate what users see who do not wait for one another.",
            time(report.latency.max_ms),
        )?;
    }
    Ok(())
}

/// A time in the unit that suits it.
pub(super) fn time(ms: f64) -> String {
    match ms {
        _ if ms < 0.001 => format!("{:.0} ns", ms * 1e6),
        _ if ms < 1.0 => format!("{:.0} us", ms * 1e3),
        _ if ms < 10.0 => format!("{ms:.2} ms"),
        _ if ms < 100.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}

pub(super) fn bytes(number: f64) -> String {
    match number {
        _ if number < 1e3 => format!("{number:.0} B"),
        _ if number < 1e6 => format!("{:.1} kB", number / 1e3),
        _ if number < 1e9 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} GB", number / 1e9),
    }
}

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate with three significant digits, or as a whole number with its thousands apart. Zeros at the end of the decimals
/// are left out.
pub fn format_rate(per_second: f64) -> String {
    if per_second <= 0.0 {
        return "0".to_owned();
    }
    if per_second >= 100.0 {
        return count(per_second.round() as u64);
    }
    // The logarithm of a number just below 100 is 2, which would leave no decimals.
    let decimals = (2.0 - per_second.log10().floor()).max(1.0) as usize;
    let text = format!("{per_second:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!((count(0), count(999)), ("0".to_owned(), "999".to_owned()));
        let times: Vec<_> = [0.0005, 0.25, 1.234, 56.78, 999.4, 1500.0].map(time).into();
        assert_eq!(
            times,
            ["500 ns", "250 us", "1.23 ms", "56.8 ms", "999 ms", "1.50 s"]
        );
        assert_eq!(bytes(1_500_000.0), "1.5 MB");
    }

    #[test]
    fn rates_below_one_per_second_are_not_written_as_zero() {
        for (per_second, expected) in [
            (0.0, "0"),
            (1.0 / 86_400.0, "0.0000116"),
            (0.004, "0.004"),
            (0.42, "0.42"),
            (0.5, "0.5"),
            (2.0 / 3.0, "0.667"),
            (0.999, "0.999"),
            (0.9999, "1"),
            (1.0, "1"),
            (3.7, "3.7"),
            (9.99, "9.99"),
            (9.999, "10"),
            (10.0, "10"),
            (12.34, "12.3"),
            (99.9, "99.9"),
            (99.99, "100"),
            (100.0_f64.next_down(), "100"),
            (100.0, "100"),
            (999.4, "999"),
            (999.9, "1,000"),
            (1000.0, "1,000"),
            (1_234_567.8, "1,234,568"),
        ] {
            assert_eq!(format_rate(per_second), expected, "{per_second}");
        }
    }
}
