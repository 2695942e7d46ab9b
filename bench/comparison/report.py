"""What came out: a table for the terminal, Markdown and a plot for BENCHMARKS.md."""

from .cases import CASES, MB, MEMORY_CASES

TITLES = {case.name: case.title for case in (*CASES, *MEMORY_CASES)}
METRICS = {
    "cpu_us": "CPU",
    "per_core_second": "handshakes per second of a core",
    "p99_us": "p99",
    "errors": "errors",
    "bytes": "bytes",
}


def verdicts(case, result):
    """For each target: its words, what was reached, and whether that is enough."""
    found = []
    for target in case.targets:
        ours = result.get("apus", {}).get(target.metric)
        if ours is None:
            continue
        value = ours
        if target.versus:
            theirs = result.get(target.versus, {}).get(target.metric)
            if not theirs:
                continue
            value = ours / theirs
        found.append({
            "metric": target.metric,
            "versus": target.versus,
            "target": target.words(),
            "reached": value,
            "met": target.is_met(value),
        })
    return found


def verdict_words(verdict):
    what = METRICS[verdict["metric"]]
    if verdict["versus"]:
        what += f" / {verdict['versus']}"
    return f"{what} {verdict['reached']:.4g} ({verdict['target']}): " + ("met" if verdict["met"] else "MISSED")


def terminal(results):
    lines = [f"{'case':<14}{'server':<8}{'req/s':>10}{'CPU us':>10}{'p50 us':>10}{'p99 us':>10}"
             f"{'peak':>10}{'errors':>8}"]
    for name, entry in results["cases"].items():
        for server, row in entry["servers"].items():
            if "bytes" in row:
                lines.append(f"{name:<14}{server:<8}{row['bytes']:>20,.0f} bytes")
                continue
            lines.append(
                f"{name:<14}{server:<8}{row['requests_per_second']:>10.0f}{row['cpu_us']:>10.2f}"
                f"{row['p50_us']:>10.0f}{row['p99_us']:>10.0f}"
                f"{megabytes(row['peak_memory_bytes']):>10}{row['errors']:>8}")
        lines += [f"{'':<14}-> {verdict_words(verdict)}" for verdict in entry["verdicts"]]
    return "\n".join(lines)


def megabytes(value):
    return f"{value / MB:.1f} MB"


def markdown(results):
    host = results["host"]
    lines = [
        f"Measured {results['date']} at commit {host['commit']} on {host['cpu']} ({host['cores']} cores, "
        f"Linux {host['kernel']}), {host['nginx']}, {host['wrk']}: medians of {results['rounds']} "
        f"interleaved rounds of {results['seconds']} s.",
        "",
        "| load | server | requests/s | CPU per request | p50 | p99 | peak memory | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    memory = ["| memory | server | bytes |", "| --- | --- | ---: |"]
    goals = ["| load | goal | reached | |", "| --- | --- | ---: | --- |"]
    for name, entry in results["cases"].items():
        title = TITLES[name]
        for server, row in entry["servers"].items():
            if "bytes" in row:
                memory.append(f"| {title} | {server} | {row['bytes']:,.0f} |")
            else:
                lines.append(
                    f"| {title} | {server} | {row['requests_per_second']:,.0f} | {row['cpu_us']:.2f} us | "
                    f"{row['p50_us']:,.0f} us | {row['p99_us']:,.0f} us | "
                    f"{megabytes(row['peak_memory_bytes'])} | {row['errors']} |")
        for verdict in entry["verdicts"]:
            versus = f" of {verdict['versus']}'s" if verdict["versus"] else ""
            goals.append(f"| {title} | {METRICS[verdict['metric']]} {verdict['target']}{versus} | "
                         f"{_round(verdict['reached'])} | {'met' if verdict['met'] else '**missed**'} |")
    parts = [lines]
    if len(memory) > 2:
        parts.append(memory)
    if len(goals) > 2:
        parts.append(goals)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _round(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def svg(results):
    """CPU per request of each server as a share of nginx's, one group of bars for each load."""
    colours = {"apus": "#0f766e", "nginx": "#8b8f98", "floor": "#d4a72c"}
    left, scale, bar, y = 270, 360, 12, 56
    body = []
    for name, entry in results["cases"].items():
        nginx = entry["servers"].get("nginx", {}).get("cpu_us")
        if not nginx:
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
