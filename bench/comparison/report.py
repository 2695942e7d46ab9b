"""What came out: a table for the terminal, Markdown and a plot for BENCHMARKS.md."""

from .cases import ALL, CASES, FRAMEWORK_CASES, MB, PHP_CASES, PROXY_CASES, QUEUE_CASES

TITLES = {case.name: case.title for case in ALL}
HTTP2 = {case.name for case in CASES if case.is_http2}
PROXIED = {case.name for case in (*PROXY_CASES, *QUEUE_CASES)}
PHP = {case.name for case in PHP_CASES}
FRAMEWORK = {case.name for case in FRAMEWORK_CASES}
QUEUED = {case.name for case in QUEUE_CASES}
METRICS = {
    "cpu_us": "CPU",
    "requests_per_second": "requests per second",
    "php_cpu_us": "CPU of PHP",
    "php_per_core_second": "requests per second of a core of PHP",
    "p99_us": "p99",
    "errors": "errors",
    "bytes": "bytes",
    "bytes_per_second": "bytes per second",
    "growth_bytes": "growth of memory, in bytes,",
    "p99_of_mean": "p99 / mean",
    "of_limit": "share of the origin's limit",
}


def verdicts(case, result):
    """For each target: its words, what was reached, and whether that is enough."""
    found = []
    for target in case.targets:
        ours = result.get(target.of, {}).get(target.metric)
        if ours is None:
            continue
        value, versus = ours, target.versus
        if versus:
            if isinstance(versus, tuple):
                rivals = [name for name in versus if name in result]
                if not rivals:
                    continue
                versus = (max if target.at_least else min)(rivals, key=lambda name: result[name][target.metric])
            theirs = result.get(versus, {}).get(target.metric)
            if not theirs:
                continue
            value = ours / theirs
        found.append({
            "of": target.of,
            "metric": target.metric,
            "versus": versus,
            "best": versus != target.versus,
            "target": target.words(),
            "reached": value,
            "met": target.is_met(value),
        })
    return found


def metric_words(name, metric):
    if metric == "per_core_second":
        return ("requests" if name in PHP | FRAMEWORK else "handshakes") + " per second of a core"
    return METRICS[metric]


def verdict_words(name, verdict):
    what = metric_words(name, verdict["metric"])
    if verdict["of"] != "apus":
        what = f"{verdict['of']}: {what}"
    if verdict["versus"]:
        what += f" / {verdict['versus']}" + (", the best" if verdict.get("best") else "")
    return f"{what} {verdict['reached']:.4g} ({verdict['target']}): " + ("met" if verdict["met"] else "MISSED")


def terminal(results):
    lines = [f"{'case':<23}{'server':<16}{'req/s':>10}{'CPU us':>10}{'/ nginx':>9}{'/ h2o':>8}{'busy':>6}"
             f"{'p50 us':>10}{'p99 us':>10}{'peak':>10}{'errors':>8}"]
    for name, entry in results["cases"].items():
        for server, row in entry["servers"].items():
            if "bytes" in row:
                errors = f"{row['errors']:>8} errors" if "errors" in row else ""
                lines.append(f"{name:<23}{server:<16}{row['bytes']:>20,.0f} bytes{errors}")
                continue
            if "growth_bytes" in row:
                lines.append(f"{name:<23}{server:<16}{row['bytes_per_second'] / MB:>15,.0f} MB/s"
                             f"{row['growth_bytes']:>16,.0f} bytes more{row['errors']:>8} errors")
                continue
            lines.append(
                f"{name:<23}{server:<16}{row['requests_per_second']:>10.0f}{row['cpu_us']:>10.2f}"
                f"{share(entry, row, 'nginx'):>9}{share(entry, row, 'h2o'):>8}{row['busy']:>6.0%}"
                f"{microseconds(row, 'p50_us'):>10}{microseconds(row, 'p99_us'):>10}"
                f"{megabytes(row['peak_memory_bytes']):>10}{row['errors']:>8}{of_php(row)}")
        lines += [f"{'':<23}-> {verdict_words(name, verdict)}" for verdict in entry["verdicts"]]
    return "\n".join(lines)


def of_php(row):
    if "php_cpu_us" not in row:
        return ""
    return f"  PHP {row['php_cpu_us']:.1f} us, p99 / mean {row['p99_of_mean']:.2f}"


def share(entry, row, versus):
    """CPU per request, as a share of that of another server."""
    other = entry["servers"].get(versus, {}).get("cpu_us")
    return f"{row['cpu_us'] / other:.2f}" if other else ""


def microseconds(row, metric, unit=""):
    return f"{row[metric]:,.0f}{unit}" if metric in row else ""


def megabytes(value):
    return f"{value / MB:.1f} MB"


def markdown(results):
    host = results["host"]
    lines = [
        f"Measured {results['date']} at commit {host['commit']} on {host['cpu']} ({host['cores']} cores, "
        f"Linux {host['kernel']}), {host['nginx']}, {host['h2o']}, {host['haproxy']}, {host['varnish']}, {host['wrk']}, {host['h2load']}: medians of "
        f"{results['rounds']} interleaved rounds of {results['seconds']} s.",
    ]
    if FRAMEWORK & results["cases"].keys():
        lines.append(f"Frameworks: {host['frameworks']}.")
    earlier = {}
    for name, entry in results["cases"].items():
        earlier.setdefault(entry["date"], []).append(TITLES[name])
    earlier.pop(results["date"], None)
    lines += [f"Measured {date}: {'; '.join(titles)}." for date, titles in earlier.items()]
    http1 = [
        "| load | server | requests/s | CPU per request | p50 | p99 | peak memory | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    http2 = [
        "| load, TLS 1.3 | server | requests/s | CPU per request | of nginx's | of H2O's | server's core busy | p50 | p99 "
        "| peak memory | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    proxied = [
        "| load, in front of an origin | server | requests/s | CPU per request | of nginx's | server's core busy | p50 "
        "| p99 | peak memory | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    php = [
        "| load, PHP | server | requests/s | CPU per request, server | of nginx's | PHP | p50 | p99 | p99 / mean | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    frameworks = [
        "| load, frameworks | server | requests/s | CPU per request | requests per second of a core | of raw tokio's | p50 | p99 "
        "| peak memory | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    downloads = ["| load | server | MB/s | growth of memory | errors |", "| --- | --- | ---: | ---: | ---: |"]
    memory = ["| memory | server | bytes |", "| --- | --- | ---: |"]
    goals = ["| load | goal | reached | |", "| --- | --- | ---: | --- |"]
    for name, entry in results["cases"].items():
        title = TITLES[name]
        for server, row in entry["servers"].items():
            start = f"| {title} | {server} |"
            if "bytes" in row:
                memory.append(f"{start} {row['bytes']:,.0f} |")
                continue
            if "growth_bytes" in row:
                downloads.append(f"{start} {row['bytes_per_second'] / MB:,.0f} | {megabytes(row['growth_bytes'])} | "
                                 f"{row['errors']} |")
                continue
            if name in PHP:
                php.append(f"{start} {row['requests_per_second']:,.0f} | {row['cpu_us']:,.1f} us | {share(entry, row, 'nginx')} | "
                           f"{row['php_cpu_us']:,.0f} us | {microseconds(row, 'p50_us', ' us')} | "
                           f"{microseconds(row, 'p99_us', ' us')} | {row['p99_of_mean']:.2f} | {row['errors']} |")
                continue
            start += f" {row['requests_per_second']:,.0f} | {row['cpu_us']:.2f} us |"
            end = (f" {microseconds(row, 'p50_us', ' us')} | {microseconds(row, 'p99_us', ' us')} | "
                   f"{megabytes(row['peak_memory_bytes'])} | {row['errors']} |")
            if name in HTTP2:
                shares = f" {share(entry, row, 'nginx')} | {share(entry, row, 'h2o')} | {row['busy']:.0%} |"
                http2.append(start + shares + end)
            elif name in PROXIED:
                proxied.append(f"{start} {share(entry, row, 'nginx')} | {row['busy']:.0%} |{end}")
            elif name in FRAMEWORK:
                raw = entry["servers"].get("raw", {}).get("per_core_second")
                of_raw = f"{row['per_core_second'] / raw:.2f}" if raw else ""
                frameworks.append(f"{start} {row['per_core_second']:,.0f} | {of_raw} |{end}")
            else:
                http1.append(start + end)
        for verdict in entry["verdicts"]:
            versus = f" of {verdict['versus']}'s" if verdict["versus"] else ""
            versus += ", the best" if verdict.get("best") else ""
            of = "" if verdict.get("of", "apus") == "apus" else f"{verdict['of']}: "
            goals.append(f"| {title} | {of}{metric_words(name, verdict['metric'])} {verdict['target']}{versus} | "
                         f"{_round(verdict['reached'])} | {'met' if verdict['met'] else '**missed**'} |")
    parts = [lines, *(table for table in (http1, http2, proxied, php, frameworks, downloads, memory, goals) if len(table) > 2)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _round(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def svg(results):
    """CPU per request of each server as a share of nginx's, one group of bars for each load."""
    colours = {"apus": "#0f766e", "nginx": "#8b8f98", "h2o": "#3b6fb6", "haproxy": "#8b5cf6", "varnish": "#be4b6e", "floor": "#d4a72c"}
    left, scale, bar, y = 270, 360, 12, 56
    body = []
    for name, entry in results["cases"].items():
        nginx = entry["servers"].get("nginx", {}).get("cpu_us")
        if not nginx or name in QUEUED or name in PHP:
            continue
        rows = [(server, row["cpu_us"] / nginx) for server, row in entry["servers"].items()]
        middle = y + len(rows) * bar / 2 + 4
        body.append(f'<text x="{left - 10}" y="{middle:.0f}" text-anchor="end">{TITLES[name]}</text>')
        for server, share in rows:
            width = min(share, 1.5) * scale
            body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{bar - 2}" rx="2" '
                        f'fill="{colours[server]}"/>')
            body.append(f'<text class="n" x="{left + width + 6:.1f}" y="{y + 9}">{server} {share:.2f}</text>')
            y += bar
        y += 12
    one = left + scale
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {y + 8}" role="img" '
        'aria-label="CPU per request as a share of nginx">\n'
        "<style>text{font:12px system-ui,sans-serif;fill:#334155}.n{font-size:10px}.t{font-weight:600;"
        "font-size:14px}.r{stroke:#94a3b8;stroke-dasharray:3 3}@media(prefers-color-scheme:dark){text{fill:#cbd5e1}}"
        "</style>\n"
        f'<text class="t" x="12" y="24">CPU per request, nginx = 1 (shorter is better)</text>\n'
        f'<line class="r" x1="{one}" x2="{one}" y1="44" y2="{y}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )
