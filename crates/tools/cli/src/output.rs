//! What is printed: for people, or JSON for programs.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use apus_server::{Explanation, control};
use serde_json::Value;

use crate::site_list;

/// Prints to standard output. Ignores errors: a reader such as `head` may have closed it.
pub(crate) fn print(text: &[u8]) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(text).and_then(|()| output.flush());
}

/// Prints JSON to standard output.
pub(crate) fn print_json(value: &Value) {
    print(format!("{value:#}\n").as_bytes());
}

/// Prints to standard error.
pub(crate) fn print_error(text: &str) {
    let text = text.trim_end();
    // Rendered mistakes of a configuration have their own heading.
    let heading = if text.contains('\n') || text.starts_with("error") {
        ""
    } else {
        "error: "
    };
    let _ = writeln!(io::stderr().lock(), "{heading}{text}");
}

/// Text without characters that a terminal would obey, also those of C1, which JSON does not escape.
pub(crate) fn without_controls(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether colours may be written there.
pub(crate) fn has_colours(output: impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The response of a running server, as text.
pub(crate) fn response(request: &control::ControlRequest, value: &Value) -> String {
    match request {
        control::ControlRequest::Reload => {
            let warnings = value
                .get("warnings")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let mut text = match warnings.trim_end() {
                "" => String::new(),
                warnings => format!("{warnings}\n"),
            };
            let changes = value.get("changes").and_then(Value::as_array);
            match changes.map(Vec::as_slice) {
                None => {}
                Some([]) => text.push_str("nothing has changed\n"),
                Some(changes) => {
                    for change in changes.iter().filter_map(Value::as_str) {
                        let _ = writeln!(text, "{change}");
                    }
                }
            }
            text.push_str("reloaded\n");
            text
        }
        control::ControlRequest::Stop => "stopped\n".to_owned(),
        control::ControlRequest::Sites => site_list::list(value),
        control::ControlRequest::Maintenance { site, .. } => changed_site(value, site),
        control::ControlRequest::Upstream { .. } => "changed\n".to_owned(),
        control::ControlRequest::CachePurge { soft, .. } => purged(value, *soft),
        control::ControlRequest::RenewCertificate { .. } => {
            "ordering; `apus cert list` shows the result\n".to_owned()
        }
        _ => status(value),
    }
}

/// How often each rule applied, as a table.
pub(crate) fn rules(value: &Value) -> String {
    let rules: Vec<&Value> = value.as_array().into_iter().flatten().collect();
    if rules.is_empty() {
        return "there are no rules\n".to_owned();
    }
    let text = |rule: &Value, name: &str| {
        let text = rule.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let width = |name: &str| {
        let widths = rules.iter().map(|rule| text(rule, name).chars().count());
        widths.max().unwrap_or_default().max(name.len())
    };
    let (place_width, rule_width) = (width("place"), width("rule"));
    let mut out = format!(
        "{:<place_width$}  {:<rule_width$}  applied\n",
        "place", "rule"
    );
    for rule in &rules {
        let (place, name) = (text(rule, "place"), text(rule, "rule"));
        let applied = rule.get("applied").and_then(Value::as_u64).unwrap_or(0);
        let is_dry_run = rule.get("dry_run").and_then(Value::as_bool);
        let note = if is_dry_run.unwrap_or_default() {
            "  (dry run)"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "{place:<place_width$}  {name:<rule_width$}  {applied:>7}{note}"
        );
    }
    out
}

/// What a site is after a change.
fn changed_site(value: &Value, name: &str) -> String {
    let sites = value.get("sites").and_then(Value::as_array);
    let mut sites = sites.into_iter().flatten();
    let site = sites.find(|site| site.get("name").and_then(Value::as_str) == Some(name));
    let state = site.map(site_list::state).unwrap_or_default();
    format!("{name}: {state}\n")
}

/// What a purge did.
fn purged(value: &Value, is_soft: bool) -> String {
    let count = value.get("responses").and_then(Value::as_u64);
    let count = count.unwrap_or_default();
    let is_complete = value.get("is_complete").and_then(Value::as_bool);
    let least = if is_complete.unwrap_or_default() {
        ""
    } else {
        "at least "
    };
    let noun = match count {
        1 => "response",
        _ => "responses",
    };
    if is_soft {
        format!("made {least}{count} {noun} stale\n")
    } else {
        format!("purged {least}{count} {noun}\n")
    }
}

/// The state of a server, as a page to read.
fn status(value: &Value) -> String {
    let text = |name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    let list = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<14}{value}");
    };
    line("serving", &text("source"));
    line(
        "process",
        &format!("{}, apus {}", text("pid"), text("version")),
    );
    line("up for", &duration(number(value, "uptime_seconds")));
    if value.get("reloads").is_some() {
        line("reloads", &text("reloads"));
    }
    if let Some(failure) = value.get("last_reload_failure").and_then(Value::as_str) {
        line(
            "last reload",
            &format!("failed: {}", failure.replace('\n', "\n              ")),
        );
    }
    for address in list("listening").filter_map(Value::as_str) {
        line("listening", address);
    }
    for site in list("maintenance") {
        let name = site.get("name").and_then(Value::as_str).unwrap_or_default();
        line("site", &format!("{name}: {}", site_list::state(site)));
    }
    if let Some(bans) = value.get("bans") {
        let count = |name| number(bans, name);
        let (own, listed) = (count("bans"), count("networks_of_lists"));
        if own + listed + count("refused_requests") > 0 {
            line(
                "bans",
                &format!(
                    "{own}, and {listed} networks of lists; {} requests refused",
                    count("refused_requests")
                ),
            );
        }
        if let Some(fault) = value.get("quotas_fault").and_then(Value::as_str) {
            line("quotas", &format!("not stored: {fault}"));
        }
        if let Some(fault) = bans.get("fault").and_then(Value::as_str) {
            line("bans", &format!("not stored: {fault}"));
        }
    }
    if let Some(glitches) = glitches(value) {
        line("glitches", &glitches);
    }
    for log in list("access_logs") {
        let path = log.get("path").and_then(Value::as_str).unwrap_or_default();
        let (written, lost) = (number(log, "lines_written"), number(log, "lines_lost"));
        line(
            "access log",
            &format!("{path}: {written} lines written, {lost} lost"),
        );
    }
    if let Some(memory) = value.get("response_memory") {
        let bytes = |name| size(number(memory, name));
        let (used, limit) = (bytes("used_bytes"), bytes("limit_bytes"));
        let refused = number(memory, "refused");
        line(
            "responses",
            &format!("{used} of {limit} of memory used, exceeded {refused} times"),
        );
    }
    if let Some(totals) = value.get("totals").filter(|totals| totals.is_object()) {
        let count = |name| number(totals, name);
        line(
            "connections",
            &format!(
                "{} open: {} HTTP/1.1, {} HTTP/2, {} HTTP/3",
                count("connections"),
                count("h1_open"),
                count("h2_open"),
                count("h3_open"),
            ),
        );
    }
    if let Some(totals) = value.get("totals").and_then(Value::as_object) {
        out.push('\n');
        let width = totals.keys().map(String::len).max().unwrap_or(0);
        for (name, count) in totals {
            let count = count.as_u64().unwrap_or(0);
            let _ = write!(out, "{:<width$}{count:>14}", name.replace('_', " "));
            for worker in list("workers") {
                let _ = write!(out, "{:>14}", number(worker, name));
            }
            out.push('\n');
        }
        let workers = list("workers")
            .map(|worker| format!("{:>14}", format!("worker {}", number(worker, "worker"))));
        let heading = format!(
            "\n{:<width$}{:>14}{}",
            "",
            "all",
            workers.collect::<String>()
        );
        if let Some(at) = out.find("\n\n") {
            out.insert_str(at + 1, &heading);
        }
    }
    push_routes(&mut out, list("routes"));
    push_queues(&mut out, list("jobs"));
    for pool in list("php") {
        push_php(&mut out, pool);
    }
    for group in list("upstreams") {
        push_group(&mut out, group);
    }
    push_limits(&mut out, list("limits"));
    push_challenges(&mut out, list("challenges"));
    push_bots(&mut out, list("bots"));
    if list("certificates").next().is_some() {
        out.push('\n');
        out += &certificates(value);
    }
    if let Some(cache) = value.get("cache").filter(|cache| !cache.is_null()) {
        push_cache(&mut out, cache);
    }
    out
}

/// What clients did wrong, and how many connections were refused for it; `None` if there is nothing.
fn glitches(value: &Value) -> Option<String> {
    const KINDS: [(&str, &str); 5] = [
        ("protocol", "errors of protocols"),
        ("floods", "floods"),
        ("handshakes", "broken handshakes"),
        ("abandoned", "abandoned requests"),
        ("error_responses", "error responses"),
    ];
    let counted = value.get("glitches")?.get("counted")?;
    let refused = value.get("totals")?.get("refused_for_glitches");
    let kinds = KINDS.map(|(name, words)| (counted.get(name), words));
    let parts: Vec<String> = kinds
        .into_iter()
        .chain([(refused, "connections refused for them")])
        .filter_map(|(count, words)| {
            let count = count?.as_u64().filter(|count| *count > 0)?;
            Some(format!("{count} {words}"))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The routes of an application, a line each, in columns: method, host and path, handler, name, place.
fn push_routes<'a>(out: &mut String, routes: impl Iterator<Item = &'a Value>) {
    let text = |route: &Value, name: &str| {
        let text = route.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let rows: Vec<[String; 5]> = routes
        .map(|route| {
            let method = match text(route, "method") {
                method if method.is_empty() => "any".to_owned(),
                method => method,
            };
            let path = text(route, "host") + &text(route, "path");
            let (handler, name) = (text(route, "handler"), text(route, "name"));
            [method, path, handler, name, text(route, "at")]
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nroutes");
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [0, 1, 2, 3, 4].map(width);
    for row in &rows {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            let _ = write!(line, " {cell:<width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// The queues of jobs of an application, a line each. What a queue has is counted by its runner.
fn push_queues<'a>(out: &mut String, queues: impl Iterator<Item = &'a Value>) {
    let counts = |value: Option<&Value>, names: &[&str]| -> String {
        let count = |name: &&str| {
            let count = value
                .and_then(|value| value.get(*name))
                .and_then(Value::as_u64);
            format!("{} {name}", count.unwrap_or(0))
        };
        names.iter().map(count).collect::<Vec<_>>().join(", ")
    };
    for queue in queues {
        let name = queue
            .get("queue")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let jobs = queue.get("jobs").filter(|jobs| !jobs.is_null());
        let jobs = match jobs {
            Some(jobs) => counts(Some(jobs), &["ready", "delayed", "running", "dead"]),
            None => "not counted yet".to_owned(),
        };
        let attempts = counts(
            queue.get("attempts"),
            &["done", "retried", "dead", "given back"],
        );
        let _ = writeln!(out, "\njobs {name}: {jobs}; here: {attempts}");
    }
}

/// The limits on requests, a line each.
fn push_limits<'a>(out: &mut String, limits: impl Iterator<Item = &'a Value>) {
    for (at, limit) in limits.enumerate() {
        let text = |name: &str| limit.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| limit.get(name).and_then(Value::as_u64).unwrap_or(0);
        if at == 0 {
            out.push('\n');
        }
        let place = match text("location") {
            "" => String::new(),
            location => format!(" {location}"),
        };
        let _ = write!(
            out,
            "limit {}{place} {} by {}: {} allowed",
            match text("site") {
                "" => "of all sites",
                site => site,
            },
            text("name"),
            text("key"),
            number("allowed"),
        );
        let counts = if limit.get("dry_run").and_then(Value::as_bool) == Some(true) {
            ["would_delay", "would_refuse"]
        } else {
            ["delayed", "refused"]
        };
        for name in counts {
            let _ = write!(out, ", {} {}", number(name), name.replace('_', " "));
        }
        if let Some(quota) = limit.get("quota").filter(|quota| quota.is_object()) {
            let _ = write!(out, ", {}", self::quota(quota));
        }
        out.push('\n');
    }
}

/// A quota in words.
pub(crate) fn quota(quota: &Value) -> String {
    let number = |name: &str| quota.get(name).and_then(Value::as_u64).unwrap_or_default();
    let text = |name: &str| quota.get(name).and_then(Value::as_str).unwrap_or_default();
    format!(
        "{} {} in this {}: used by {} keys, used up by {}, whole again in {}",
        number("units"),
        text("unit"),
        text("window"),
        number("keys"),
        number("used_up"),
        duration(number("resets_in")),
    )
}

/// The challenges of sites, a line each.
fn push_challenges<'a>(out: &mut String, challenges: impl Iterator<Item = &'a Value>) {
    for (at, challenge) in challenges.enumerate() {
        let number = |name: &str| challenge.get(name).and_then(Value::as_u64).unwrap_or(0);
        if at == 0 {
            out.push('\n');
        }
        let site = challenge.get("site").and_then(Value::as_str);
        let _ = write!(out, "challenge {}:", site.unwrap_or_default());
        for level in 1..=3 {
            let sent = number(&format!("sent_{level}"));
            let passed = number(&format!("passed_{level}"));
            let _ = write!(out, " level {level} {sent} sent, {passed} passed;");
        }
        let _ = writeln!(
            out,
            " {} failed, {} programs refused",
            number("failed"),
            number("refused")
        );
    }
}

/// The bots that the server knows, a line each.
fn push_bots<'a>(out: &mut String, bots: impl Iterator<Item = &'a Value>) {
    for (at, bot) in bots.enumerate() {
        let number = |name: &str| bot.get(name).and_then(Value::as_u64);
        if at == 0 {
            out.push('\n');
        }
        let name = bot.get("name").and_then(Value::as_str);
        let count = |name: &str| number(name).unwrap_or(0);
        let _ = write!(
            out,
            "bot {}: {} requests verified, {} false, {} not proven",
            name.unwrap_or_default(),
            count("verified"),
            count("false"),
            count("unproven"),
        );
        if let Some(fetches) = number("fetches") {
            let failures = count("fetch_failures");
            let _ = write!(out, "; keys fetched {fetches} times, {failures} failed");
        }
        out.push('\n');
    }
}

/// PHP that stays in memory: its pool in a line, and one for each worker.
fn push_php(out: &mut String, pool: &Value) {
    let number = |name: &str| pool.get(name).and_then(Value::as_u64).unwrap_or(0);
    let workers = pool.get("workers").and_then(Value::as_array);
    let workers: Vec<&Value> = workers.into_iter().flatten().collect();
    let is_busy = |worker: &&&Value| worker.get("busy").and_then(Value::as_bool) == Some(true);
    let _ = writeln!(
        out,
        "\nphp {}: {} of {} workers, {} busy, {} waiting, {} requests, {} crashes, {} timeouts, \
         {} recycled",
        pool.get("name").and_then(Value::as_str).unwrap_or(""),
        workers.len(),
        number("max_workers"),
        workers.iter().filter(is_busy).count(),
        number("waiting"),
        number("requests"),
        number("crashes"),
        number("timeouts"),
        number("recycled"),
    );
    for worker in workers {
        let number = |name: &str| worker.get(name).and_then(Value::as_u64).unwrap_or(0);
        let _ = writeln!(
            out,
            "  {}: {} requests, {}, {} s old{}",
            number("pid"),
            number("requests"),
            size(number("memory_bytes")),
            number("age_seconds"),
            if is_busy(&&worker) { ", busy" } else { "" },
        );
    }
    if let Some(error) = pool.get("last_error").and_then(Value::as_str) {
        let first = error.lines().next().unwrap_or("");
        let _ = writeln!(out, "  last boot failure: {first}");
    }
}

/// What the cache has done and holds.
fn push_cache(out: &mut String, cache: &Value) {
    let number = |name: &str| cache.get(name).and_then(Value::as_u64).unwrap_or(0);
    let _ = writeln!(
        out,
        "\ncache: {} hits, {} misses, {} collapsed, {} stored, {} purges",
        number("hits"),
        number("misses"),
        number("collapsed"),
        number("stored"),
        number("purges"),
    );
    let _ = writeln!(
        out,
        "  memory: {} objects, {}, {} evicted",
        number("memory_objects"),
        size(number("memory_bytes")),
        number("evictions"),
    );
    let Some(disk) = cache.get("disk").filter(|disk| !disk.is_null()) else {
        return;
    };
    let number = |name: &str| disk.get(name).and_then(Value::as_u64).unwrap_or(0);
    let _ = write!(
        out,
        "  disk: {} objects, {}, {} evicted, {} read back, {} not written, {} damaged, {} errors",
        number("objects"),
        size(number("bytes")),
        number("evictions"),
        number("hits"),
        number("skipped"),
        number("damaged"),
        number("errors"),
    );
    let scanned = number("scanned");
    if scanned < 1000 {
        let _ = write!(out, "; {} % scanned", scanned / 10);
    }
    out.push('\n');
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

/// A group of origins and its nodes, a line each.
/// The certificates that a server orders by ACME, a line or two for each.
pub(crate) fn certificates(status: &Value) -> String {
    let mut out = String::new();
    let list = status.get("certificates").and_then(Value::as_array);
    for certificate in list.into_iter().flatten() {
        let text = |name: &str| certificate.get(name).and_then(Value::as_str);
        let seconds = certificate
            .get("expires_in_seconds")
            .and_then(Value::as_i64);
        let _ = write!(out, "certificate {}: ", names(certificate));
        let _ = match seconds {
            None => write!(out, "none yet"),
            Some(seconds @ ..0) => write!(out, "expired {} ago", duration(seconds.unsigned_abs())),
            Some(seconds) => write!(out, "expires in {}", duration(seconds.unsigned_abs())),
        };
        for (words, key) in [(", renewed at ", "renew_at"), (", issued by ", "issued_by")] {
            if let Some(value) = text(key) {
                let _ = write!(out, "{words}{value}");
            }
        }
        if certificate.get("revoked").and_then(Value::as_bool) == Some(true) {
            out += ", revoked";
        }
        if let Some(step) = text("step") {
            let _ = write!(out, "; {step}");
        }
        out.push('\n');
        if let Some(error) = text("last_error") {
            let failures = certificate
                .get("failures")
                .and_then(Value::as_u64)
                .unwrap_or(0);
            let next = text("next_attempt").unwrap_or("soon");
            let _ = match failures {
                // The authority was not asked.
                0 => writeln!(out, "  not ordered yet: {error}"),
                _ => writeln!(
                    out,
                    "  {failures} attempts failed, the next one is at {next}: {error}"
                ),
            };
        }
    }
    out
}

fn push_group(out: &mut String, group: &Value) {
    let text = |value: &Value, name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let _ = write!(
        out,
        "\nupstream {}: {} requests, {} retries, {} waiting",
        text(group, "name"),
        text(group, "requests"),
        text(group, "retries"),
        text(group, "waiting"),
    );
    let dropped = group.get("copies_dropped").and_then(Value::as_u64);
    if let Some(dropped @ 1..) = dropped {
        let _ = write!(out, ", {dropped} copies dropped");
    }
    out.push('\n');
    let nodes = group.get("nodes").and_then(Value::as_array);
    for node in nodes.into_iter().flatten() {
        let (name, address) = (text(node, "name"), text(node, "address"));
        let _ = write!(out, "  {name}");
        if name != address {
            let _ = write!(out, " ({address})");
        }
        let _ = write!(out, ": {}", text(node, "state"));
        let admin = text(node, "admin");
        if admin != "up" {
            let _ = write!(out, ", {admin}");
        }
        if node.get("backup").and_then(Value::as_bool) == Some(true) {
            out.push_str(", backup");
        }
        let failures: u64 = node
            .get("failures")
            .and_then(Value::as_object)
            .map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
        let _ = write!(
            out,
            "; {} requests, {} open, {failures} failures",
            text(node, "requests"),
            text(node, "in_flight"),
        );
        if let Some(latency) = node.get("latency_seconds").and_then(Value::as_f64) {
            let _ = write!(out, ", {:.1} ms", latency * 1000.0);
        }
        let check = node.get("last_check").filter(|check| !check.is_null());
        if let Some(fault) = check
            .map(|check| text(check, "fault"))
            .filter(|f| !f.is_empty())
        {
            let _ = write!(out, ", last check: {fault}");
        }
        out.push('\n');
    }
}

pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// The decisions about a request and its response, as text.
pub(crate) fn explanation(explanation: &Explanation) -> String {
    let mut out = format!("{:<10}{}\n", "listener", explanation.listener);
    for step in &explanation.steps {
        let _ = write!(out, "{:<10}{}", step.kind, step.what);
        if step.why.is_empty() {
            out.push('\n');
        } else {
            let _ = writeln!(out, "\n{:<10}because {}", "", step.why);
        }
    }
    match explanation.status {
        Some(status) => {
            let _ = writeln!(out, "{:<10}{status}", "status");
        }
        None => out.push_str("status    depends on the origin\n"),
    }
    for (name, value) in &explanation.headers {
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(out, "{:<10}{name}: {value}", "header");
    }
    if let Some(length) = explanation.content_length {
        let _ = writeln!(out, "{:<10}{length} bytes", "body");
    }
    out
}

/// The names of a certificate.
pub(crate) fn names(certificate: &Value) -> String {
    let names = certificate.get("names").and_then(Value::as_array);
    let names: Vec<&str> = names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_is_a_table_with_a_column_per_worker() {
        let text = status(&json!({
            "source": "/srv", "pid": 7, "version": "0.1.0", "uptime_seconds": 3700, "reloads": 0,
            "listening": ["127.0.0.1:80"], "last_reload_failure": null,
            "totals": {"bytes_in": 3, "stopped_field_block_floods": 0, "connections": 7, "h3_open": 4,
                "h2_open": 2}, "access_logs": [],
            "workers": [{"worker": 0, "bytes_in": 1}, {"worker": 1, "bytes_in": 2}],
        }));
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(lines[2], ["up", "for", "1", "h", "1", "min"]);
        assert!(
            text.contains("connections   7 open: 0 HTTP/1.1, 2 HTTP/2, 4 HTTP/3\n"),
            "{text}"
        );
        assert_eq!(lines[7], ["all", "worker", "0", "worker", "1"]);
        assert!(
            lines.contains(&vec!["bytes", "in", "3", "1", "2"]),
            "{text}"
        );
        assert!(lines.contains(&vec!["h3", "open", "4", "0", "0"]), "{text}");
        let last = ["stopped", "field", "block", "floods", "0", "0", "0"];
        assert!(lines.contains(&last.to_vec()), "{text}");
        let table = text.lines().skip(7).map(str::len).collect::<Vec<_>>();
        assert_eq!(table, [table[0]; 6], "the columns are not aligned:\n{text}");
    }

    #[test]
    fn the_status_lists_the_routes_of_an_application_in_columns() {
        let text = status(&json!({
            "source": "/srv/shop", "pid": 7, "version": "0.1.0", "uptime_seconds": 3,
            "routes": [
                { "method": "GET", "path": "/users/{id}", "host": null, "name": "user",
                  "handler": "shop::show", "at": "src/main.rs:7:10" },
                { "method": null, "path": "/static/{*}", "host": "a.com", "name": null,
                  "handler": "mount", "at": "src/main.rs:8:10" },
            ],
        }));
        assert!(!text.contains("reloads"), "{text}");
        assert!(
            text.ends_with(
                "\nroutes\n  \
                 GET /users/{id}      shop::show user src/main.rs:7:10\n  \
                 any a.com/static/{*} mount           src/main.rs:8:10\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn the_status_has_a_line_for_each_node() {
        let text = status(&json!({
            "upstreams": [{
                "name": "one/app", "requests": 7, "retries": 1, "waiting": 0,
                "copies_dropped": 2,
                "nodes": [{
                    "name": "app:80", "address": "10.0.0.1:80", "backup": false, "admin": "drain",
                    "state": "out, its checks fail", "in_flight": 2, "requests": 6,
                    "failures": {"connect": 2, "timed_out": 1}, "latency_seconds": 0.0125,
                    "last_check": {"seconds_ago": 1.0, "fault": "status 500"},
                }, {
                    "name": "10.0.0.2:80", "address": "10.0.0.2:80", "backup": true, "admin": "up",
                    "state": "in", "in_flight": 0, "requests": 1, "failures": {},
                    "latency_seconds": null, "last_check": null,
                }],
            }],
        }));
        assert!(
            text.ends_with(
                "\nupstream one/app: 7 requests, 1 retries, 0 waiting, 2 copies dropped\n  \
                 app:80 (10.0.0.1:80): out, its checks fail, drain; 6 requests, 2 open, 3 failures, \
                 12.5 ms, last check: status 500\n  \
                 10.0.0.2:80: in, backup; 1 requests, 0 open, 0 failures\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn the_status_tells_what_the_cache_holds() {
        let memory = json!({
            "hits": 5, "misses": 2, "collapsed": 1, "stored": 2, "purges": 0, "evictions": 0,
            "memory_objects": 2, "memory_bytes": 1536, "disk": null,
        });
        let text = status(&json!({ "cache": memory.clone() }));
        let in_memory = "\ncache: 5 hits, 2 misses, 1 collapsed, 2 stored, 0 purges\n  \
                         memory: 2 objects, 1.5 KB, 0 evicted\n";
        assert!(text.ends_with(in_memory), "{text}");
        let mut with_disk = memory;
        with_disk["disk"] = json!({
            "objects": 3, "bytes": 3_145_728, "scanned": 505, "hits": 1, "evictions": 0,
            "errors": 0, "damaged": 0, "skipped": 0,
        });
        let text = status(&json!({ "cache": with_disk }));
        let on_disk = "  disk: 3 objects, 3.0 MB, 0 evicted, 1 read back, 0 not written, \
                       0 damaged, 0 errors; 50 % scanned\n";
        assert!(text.ends_with(on_disk), "{text}");
        assert!(!status(&json!({ "cache": null })).contains("cache"));
    }
}
