"""What came out: whether the goals are met, and a table for the terminal."""

from .servers import MB

METRICS = {
    "cpu_us": "CPU",
    "requests_per_second": "requests/s",
    "per_core_second": "requests/s of a core",
    "php_cpu_us": "CPU of PHP",
    "php_per_core_second": "requests/s of a core of PHP",
    "p99_us": "p99",
    "errors": "errors",
    "bytes": "memory",
    "bytes_per_second": "bytes/s",
    "growth_bytes": "growth of memory",
    "p99_of_mean": "p99 / mean",
    "p99_of_p50": "p99 / median",
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
            "at_least": target.at_least,
            "bound": target.bound,
            "reached": value,
            "met": target.is_met(value),
        })
    return found


def verdict_words(verdict):
    what = METRICS[verdict["metric"]]
    if verdict["of"] != "apus":
        what = f"{verdict['of']}: {what}"
    if verdict["versus"]:
        what += f" / {verdict['versus']}" + (", the best" if verdict.get("best") else "")
    return f"{what} {verdict['reached']:.4g} ({verdict['target']}): " + ("met" if verdict["met"] else "MISSED")


def terminal(results):
    lines = [f"{'case':<23}{'server':<22}{'req/s':>10}{'CPU us':>10}{'/ nginx':>9}{'/ h2o':>8}{'busy':>6}"
             f"{'p50 us':>10}{'p99 us':>10}{'peak':>10}{'errors':>8}"]
    for name, entry in results["cases"].items():
        for server, row in entry["servers"].items():
            line = f"{name:<23}{server:<22}"
            if "bytes" in row:
                lines.append(f"{line}{row['bytes']:>20,.0f} bytes{row.get('errors', 0):>8} errors")
            elif "growth_bytes" in row:
                lines.append(f"{line}{row['bytes_per_second'] / MB:>15,.0f} MB/s{row['growth_bytes']:>16,.0f} bytes more{row['errors']:>8} errors")
            elif "cpu_us" not in row:
                lines.append(f"{line}{row['requests_per_second']:>10.0f}{row['errors']:>71}")
            else:
                lines.append(
                    f"{line}{row['requests_per_second']:>10.0f}{row['cpu_us']:>10.2f}"
                    f"{share(entry, row, 'nginx'):>9}{share(entry, row, 'h2o'):>8}{row['busy']:>6.0%}"
                    f"{microseconds(row, 'p50_us'):>10}{microseconds(row, 'p99_us'):>10}"
                    f"{megabytes(row['peak_memory_bytes']):>10}{row['errors']:>8}{of_php(row)}")
        lines += [f"{'':<23}-> {verdict_words(verdict)}" for verdict in entry["verdicts"]]
    return "\n".join(lines)


def of_php(row):
    if "php_cpu_us" not in row:
        return ""
    return f"  PHP {row['php_cpu_us']:.1f} us, p99 / mean {row['p99_of_mean']:.2f}"


def share(entry, row, versus):
    """CPU per request, as a share of the CPU of another server."""
    other = entry["servers"].get(versus, {}).get("cpu_us")
    return f"{row['cpu_us'] / other:.2f}" if other else ""


def microseconds(row, metric):
    return f"{row[metric]:,.0f}" if metric in row else ""


def megabytes(value):
    return f"{value / MB:.1f} MB"
