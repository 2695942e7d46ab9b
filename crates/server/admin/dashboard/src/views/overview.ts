// How much, how fast and with which statuses, now; and what needs attention.
import { api, offers } from "../api";
import { Child, h, replace } from "../dom";
import { bytes, count, percent, rate, span, time } from "../format";
import { badge, card, failure, figure, poll } from "../parts";
import { Line, plot } from "../plot";
import { history, live, Sample, STEPS, Stretch } from "../samples";
import { t } from "../text";
import type { View } from "../views";

/** What can be looked back at: name, step, seconds. The first is what happens now. */
const RANGES: [string, keyof typeof STEPS, number][] = [
  ["live", "second", 600], ["2h", "minute", 7200], ["2d", "minute", 172800], ["7d", "hour", 604800], ["30d", "hour", 2592000], ["1y", "hour", 31536000],
];

function rangeName(id: string): string {
  switch (id) {
    case "live": return t("Now");
    case "2h": return t("2 hours");
    case "2d": return t("2 days");
    case "7d": return t("7 days");
    case "30d": return t("30 days");
    default: return t("1 year");
  }
}

/** The classes of statuses with their colours; the worst are at the bottom, where small numbers can be compared. */
const CLASSES: [string, string, number][] = [["5xx", "bad", 4], ["4xx", "warn", 3], ["3xx", "calm", 2], ["2xx", "good", 1]];

/** The colours of sites. */
const TONES = ["main", "calm", "warn", "good", "bad"];

/** At most 300 values; one is the mean of those that it stands for, or the highest. */
function thin(values: (number | null)[], isHighest: boolean): (number | null)[] {
  const size = Math.ceil(values.length / 300);
  if (size <= 1) return values;
  return Array.from({ length: Math.ceil(values.length / size) }, (_, index) => {
    const known = values.slice(index * size, (index + 1) * size).filter((value): value is number => value !== null);
    if (known.length === 0) return null;
    return isHighest ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
  });
}

function plots({ samples, sites }: Stretch, step: number): Child {
  if (samples.length < 2) return h("p", { class: "empty" }, t("The first values come in a moment."));
  // The plot begins with two minutes, so that the first values do not stretch over all of it.
  const missing = Math.max(0, 120 / step - samples.length);
  const start = samples[0].time - missing * step;
  const pad = (values: (number | null)[]) => [...new Array(Math.floor(missing)).fill(null), ...values];
  const length = samples.length + Math.floor(missing);
  const width = step * Math.max(1, Math.ceil(length / 300));
  const line = (name: string, tone: string, get: (one: Sample) => number | null, isHighest = false) => ({ name, tone, values: thin(pad(samples.map(get)), isHighest) });
  const has = (get: (one: Sample) => number | null) => samples.some((one) => get(one) !== null);
  const drawn = (title: string, format: (value: number) => string, lines: Line[], isStack = false) => plot({ title, start, step: width, format, lines, isStack });
  return h("div", { class: "plots" },
    drawn(t("Requests per second"), rate, CLASSES.map(([name, tone, index]) => line(name, tone, (one) => one.statuses[index])), true),
    drawn(t("Response time"), time, has((one) => one.p99)
      ? [line("p50", "calm", (one) => one.p50, true), line("p90", "main", (one) => one.p90, true), line("p99", "warn", (one) => one.p99, true)]
      : [line(t("mean"), "main", (one) => one.mean)]),
    drawn(t("Bytes per second"), bytes, [line(t("sent"), "main", (one) => one.sent), line(t("received"), "calm", (one) => one.received)]),
    drawn(t("Open connections"), count, [line(t("open"), "main", (one) => one.connections, true)]),
    has((one) => one.cores) ? drawn(t("Processor cores in use"), rate, [line(t("cores"), "main", (one) => one.cores)]) : null,
    has((one) => one.memory) ? drawn(t("Memory"), bytes, [line(t("resident"), "main", (one) => one.memory, true)]) : null,
    sites.length > 1 ? drawn(t("Requests per second of the busiest sites"), rate, sites.slice(0, TONES.length).map(([name, values], index) => ({ name, tone: TONES[index], values: thin(pad(values), false) }))) : null);
}

/** The last values. Those of a single second jump, so it is the mean of the last five. */
function figures(samples: Sample[], step: number): Child {
  const recent = samples.slice(-Math.max(1, Math.round(5 / step)));
  const mean = (get: (one: Sample) => number | null) => {
    const known = recent.map(get).filter((value): value is number => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  };
  const last = samples[samples.length - 1];
  const hasPercentiles = samples.some((one) => one.p99 !== null);
  const errors = mean((one) => one.statuses[4]);
  const all = [0, 1, 2, 3, 4].reduce((sum, index) => sum + (mean((one) => one.statuses[index]) ?? 0), 0);
  return h("div", { class: "figures" },
    figure(t("Requests per second"), rate(mean((one) => one.requests))),
    figure(t("Server errors"), percent(errors === null ? null : all > 0 ? errors / all : 0), errors === null ? null : t("{count} a second", { count: rate(errors) }), errors ? "bad" : null),
    hasPercentiles ? figure(t("p99 response time"), time(Math.max(0, ...recent.map((one) => one.p99 ?? 0)) || null)) : figure(t("Mean response time"), time(mean((one) => one.mean))),
    figure(t("Open connections"), count(last?.connections)),
    figure(t("Sent per second"), bytes(mean((one) => one.sent))));
}

/** What needs an eye, from the status. */
function concerns(found: any): Child {
  const list: Child[] = [];
  const add = (kind: "warn" | "bad", view: string, text: string) => list.push(h("li", {}, badge(kind, kind === "bad" ? t("fault") : t("warning")), " ", h("a", { href: `#/${view}` }, text)));
  if (found.last_reload_failure) add("bad", "config", t("The last reload failed; the old configuration is in force."));
  for (const group of found.upstreams) {
    const out = group.nodes.filter((node: any) => node.admin === "up" && node.state.startsWith("out"));
    if (out.length > 0) add(out.length === group.nodes.length ? "bad" : "warn", "upstreams", t("{out} of {all} nodes of {group} are out", { out: out.length, all: group.nodes.length, group: group.name }));
  }
  for (const one of [...found.certificates, ...found.certificate_files]) {
    const name = one.names[0] ?? one.file;
    if (one.not_after === null) add("warn", "certificates", t("There is no certificate for {name} yet", { name }));
    else if (one.expires_in_seconds < 14 * 86400) add(one.expires_in_seconds < 3 * 86400 ? "bad" : "warn", "certificates", t("The certificate for {name} ends in {time}", { name, time: span(one.expires_in_seconds) }));
  }
  for (const pool of found.php) if (pool.last_error) add("warn", "php", t("PHP pool {name}: {error}", { name: pool.name, error: pool.last_error }));
  for (const log of found.access_logs) if (log.lines_lost > 0) add("warn", "", t("{count} lines of {path} were lost", { count: count(log.lines_lost), path: log.path }));
  for (const site of found.maintenance) add("warn", "sites", t("{site} is in maintenance", { site: site.site ?? site.name ?? String(site) }));
  if (found.bans?.fault) add("bad", "bans", t("Bans cannot be stored: {error}", { error: found.bans.fault }));
  if (found.quotas_fault) add("bad", "limits", t("Quotas cannot be stored: {error}", { error: found.quotas_fault }));
  if (found.totals.panics > 0) add("bad", "", t("{count} requests ended by a fault of the server; its log has them", { count: count(found.totals.panics) }));
  return list.length === 0
    ? h("p", { class: "calm-line" }, badge("good", t("good")), " ", t("Nothing needs attention."))
    : h("ul", { class: "concerns" }, list);
}

export const overview: View = {
  id: "overview", key: "o", title: () => t("Overview"), needs: ["GET /status"],
  show(place, stop, argument) {
    const range = RANGES.find(([id]) => id === argument && offers("GET /history")) ?? RANGES[0];
    const top = h("div");
    const bottom = h("div");
    const attention = h("div");
    const about = h("p", { class: "about" });
    replace(place,
      offers("GET /history") ? h("div", { class: "bar", role: "group", "aria-label": t("Stretch of time") },
        RANGES.map(([id]) => h("a", { href: `#/overview/${id}`, class: "tab", "data-key": id, "aria-current": id === range[0] ? "true" : null }, rangeName(id)))) : null,
      top, card(t("Attention"), attention), bottom, about);
    poll(stop, 5, async () => {
      try {
        const found = await api("GET", "/status", { signal: stop });
        replace(attention, concerns(found));
        replace(about, t("Apus {version}, process {pid}, up for {time}, {count} requests since then; {source}", {
          version: found.version, pid: found.pid, time: span(found.uptime_seconds), count: count(found.totals.requests), source: found.source,
        }));
      } catch (error) {
        if (!stop.aborted) replace(attention, failure(error));
      }
    });
    let samples: Sample[] = [];
    replace(top, figures(samples, 1));
    replace(bottom, plots({ samples, sites: [] }, 1));
    const isLive = range[0] === "live";
    live(stop, isLive ? range[2] : 10, (found, step) => {
      samples = [...samples, ...found].slice(-range[2] / step);
      // Before the server started there was nothing.
      samples = samples.slice(Math.max(0, samples.findIndex((one) => one.requests !== null)));
      if (document.hidden) return;
      replace(top, figures(samples, step));
      if (isLive) replace(bottom, plots({ samples, sites: [] }, step));
    });
    if (isLive) return;
    poll(stop, 60, async () => {
      try {
        replace(bottom, plots(await history(range[1], Date.now() / 1000 - range[2], stop), STEPS[range[1]]));
      } catch (error) {
        if (!stop.aborted) replace(bottom, failure(error));
      }
    });
  },
};
