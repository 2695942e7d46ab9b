// How much, how fast and with which statuses, now and back to last year.
import { status } from "../api";
import { Child, h, replace } from "../dom";
import { bytes, count, percent, rate, span, time } from "../format";
import { badge, card, failure, fault, figure, poll } from "../parts";
import { plot } from "../plot";
import { history, live, Sample, STEPS } from "../samples";
import { t } from "../text";
import type { View } from "../views";

/** What can be looked back at: name, step, seconds. */
const RANGES: [string, keyof typeof STEPS, number][] = [
  ["live", "second", 120], ["2h", "minute", 7200], ["24h", "minute", 86400], ["7d", "hour", 604800], ["30d", "hour", 2592000], ["1y", "hour", 31536000],
];

function rangeName(id: string): string {
  switch (id) {
    case "live": return t("Live");
    case "2h": return t("2 hours");
    case "24h": return t("24 hours");
    case "7d": return t("7 days");
    case "30d": return t("30 days");
    default: return t("1 year");
  }
}

/** At most so many points; the value of a point is the mean, or of times the highest. */
function thin(samples: Sample[], most = 300): Sample[] {
  const size = Math.ceil(samples.length / most);
  if (size <= 1) return samples;
  const parts: Sample[] = [];
  const of = (part: Sample[], get: (one: Sample) => number | null, isTime: boolean) => {
    const known = part.map(get).filter((value): value is number => value !== null);
    if (known.length === 0) return null;
    return isTime ? Math.max(...known) : known.reduce((sum, value) => sum + value, 0) / known.length;
  };
  for (let index = 0; index < samples.length; index += size) {
    const part = samples.slice(index, index + size);
    parts.push({
      time: part[0].time, requests: of(part, (one) => one.requests, false), statuses: [0, 1, 2, 3, 4].map((status) => of(part, (one) => one.statuses[status], false)),
      p50: of(part, (one) => one.p50, true), p90: of(part, (one) => one.p90, true), p99: of(part, (one) => one.p99, true),
      sent: of(part, (one) => one.sent, false), received: of(part, (one) => one.received, false), connections: of(part, (one) => one.connections, true),
    });
  }
  return parts;
}

function plots(samples: Sample[], step: number): Child {
  if (samples.length < 2) return h("p", { class: "empty" }, t("The first values come in a moment."));
  const start = samples[0].time;
  const has = (get: (one: Sample) => number | null) => samples.some((one) => get(one) !== null);
  const classes: [string, string][] = [["2xx", "good"], ["3xx", "calm"], ["4xx", "warn"], ["5xx", "bad"]];
  const hasStatuses = has((one) => one.statuses[1]);
  return h("div", { class: "plots" },
    plot({
      title: t("Requests per second"), start, step, format: rate, isStack: hasStatuses,
      lines: hasStatuses
        ? classes.map(([name, tone], index) => ({ name, tone, values: samples.map((one) => one.statuses[index + 1]) }))
        : [{ name: t("All"), tone: "main", values: samples.map((one) => one.requests) }],
    }),
    has((one) => one.p50) || has((one) => one.p99) ? plot({
      title: t("Response time"), start, step, format: time,
      lines: [
        { name: "p50", tone: "calm", values: samples.map((one) => one.p50) },
        { name: "p90", tone: "main", values: samples.map((one) => one.p90) },
        { name: "p99", tone: "warn", values: samples.map((one) => one.p99) },
      ].filter((line) => line.values.some((value) => value !== null)),
    }) : null,
    plot({
      title: t("Bytes per second"), start, step, format: bytes,
      lines: [
        { name: t("sent"), tone: "main", values: samples.map((one) => one.sent) },
        { name: t("received"), tone: "calm", values: samples.map((one) => one.received) },
      ],
    }),
    plot({ title: t("Open connections"), start, step, format: count, lines: [{ name: t("open"), tone: "main", values: samples.map((one) => one.connections) }] }));
}

function figures(last: Sample | undefined): Child {
  const all = last?.statuses.reduce<number>((sum, value) => sum + (value ?? 0), 0) ?? 0;
  const errors = last && last.statuses[4] !== null ? (all > 0 ? last.statuses[4] / all : 0) : null;
  return h("div", { class: "figures" },
    figure(t("Requests per second"), rate(last?.requests)),
    figure(t("Server errors"), percent(errors), last && last.statuses[4] !== null ? t("{count} a second", { count: rate(last.statuses[4]) }) : null),
    figure(t("p99 response time"), time(last?.p99)),
    figure(t("Open connections"), count(last?.connections)),
    figure(t("Sent per second"), bytes(last?.sent)));
}

/** What needs an eye, from the status. */
function concerns(found: any): Child {
  const list: Child[] = [];
  const add = (kind: "warn" | "bad", view: string, text: string) => list.push(h("li", {}, badge(kind, kind === "bad" ? t("fault") : t("warning")), " ", h("a", { href: `#/${view}` }, text)));
  if (found.last_reload_failure) add("bad", "config", t("The last reload failed; the old configuration is in force."));
  for (const group of found.upstreams ?? []) {
    const out = group.nodes.filter((node: any) => node.state !== "in" && !node.state.startsWith("starting"));
    if (out.length > 0) add(out.length === group.nodes.length ? "bad" : "warn", "upstreams", t("{out} of {all} nodes of {group} are out", { out: out.length, all: group.nodes.length, group: group.name }));
  }
  for (const one of found.certificates ?? []) {
    const name = one.names?.[0] ?? "";
    if (one.not_after === null) add("warn", "certificates", t("There is no certificate for {name} yet", { name }));
    else if (one.expires_in_seconds < 14 * 86400) add(one.expires_in_seconds < 3 * 86400 ? "bad" : "warn", "certificates", t("The certificate for {name} ends in {time}", { name, time: span(one.expires_in_seconds) }));
  }
  for (const pool of found.php ?? []) if (pool.last_error) add("warn", "php", t("PHP pool {name}: {error}", { name: pool.name, error: pool.last_error }));
  for (const log of found.access_logs ?? []) if (log.lines_lost > 0) add("warn", "overview", t("{count} lines of {path} were lost", { count: count(log.lines_lost), path: log.path ?? "" }));
  return list.length === 0
    ? h("p", { class: "calm-line" }, badge("good", t("good")), " ", t("Nothing needs attention."))
    : h("ul", { class: "concerns" }, list);
}

export const overview: View = {
  id: "overview", key: "o", title: () => t("Overview"),
  show(place, stop, argument) {
    const range = RANGES.find(([id]) => id === argument) ?? RANGES[0];
    const top = h("div");
    const bottom = h("div");
    const attention = h("div");
    const about = h("p", { class: "about" });
    replace(place,
      h("div", { class: "bar", role: "group", "aria-label": t("Stretch of time") },
        RANGES.map(([id]) => h("a", { href: `#/overview/${id}`, class: "tab", "aria-current": id === range[0] ? "true" : null }, rangeName(id)))),
      top, card(t("Attention"), attention), bottom, about);
    poll(stop, 5, async () => {
      try {
        const found = await status(stop);
        replace(attention, concerns(found));
        replace(about, t("Apus {version}, process {pid}, up for {time}, {count} requests since then; {source}", {
          version: found.version, pid: found.pid, time: span(found.uptime_seconds), count: count(found.totals?.requests), source: found.source,
        }));
      } catch (error) {
        if (!stop.aborted) replace(attention, failure(error, t("the status")));
      }
    });
    const samples: Sample[] = [];
    replace(top, figures(undefined));
    if (range[0] === "live") {
      const show = () => {
        replace(top, figures(samples[samples.length - 1]));
        replace(bottom, plots(samples, 1));
      };
      replace(bottom, plots(samples, 1));
      history("second", range[2], null, stop).then((past) => {
        samples.unshift(...past.filter((one) => samples.length === 0 || one.time < samples[0].time));
        if (!stop.aborted) show();
      }, () => {});
      void live(stop, (one) => {
        samples.push(one);
        if (samples.length > range[2]) samples.shift();
        if (!document.hidden) show();
      });
    } else {
      void live(stop, (one) => replace(top, figures(one)));
      poll(stop, 60, async () => {
        try {
          const found = thin(await history(range[1], range[2], null, stop));
          const step = found.length > 1 ? found[1].time - found[0].time : 60;
          replace(bottom, plots(found, step));
        } catch (error) {
          if (stop.aborted) return;
          replace(bottom, failure(error, t("a history")));
          if (!(error instanceof Error)) fault(error);
        }
      });
    }
  },
};
