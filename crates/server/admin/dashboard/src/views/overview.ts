// How much, how fast and with which statuses, now; and what needs attention.
import { api } from "../api";
import { Child, h, replace } from "../dom";
import { bytes, count, percent, rate, span, time } from "../format";
import { badge, card, failure, figure, poll } from "../parts";
import { plot } from "../plot";
import { live, PACE, Sample } from "../samples";
import { t } from "../text";
import type { View } from "../views";

/** How many samples are kept: ten minutes. */
const KEPT = 300;

/** The classes of statuses with their colours; the worst are at the bottom, where small numbers can be compared. */
const CLASSES: [string, string, number][] = [["5xx", "bad", 4], ["4xx", "warn", 3], ["3xx", "calm", 2], ["2xx", "good", 1]];

function plots(samples: Sample[]): Child {
  if (samples.length < 2) return h("p", { class: "empty" }, t("The first values come in a moment."));
  // The plot begins with two minutes, so that the first values do not stretch over all of it.
  const missing = Math.max(0, 60 - samples.length);
  const start = samples[0].time - missing * PACE;
  const values = (get: (one: Sample) => number | null) => [...new Array(missing).fill(null), ...samples.map(get)];
  return h("div", { class: "plots" },
    plot({
      title: t("Requests per second"), start, step: PACE, format: rate, isStack: true,
      lines: CLASSES.map(([name, tone, index]) => ({ name, tone, values: values((one) => one.statuses[index]) })),
    }),
    plot({
      title: t("Response time"), start, step: PACE, format: time,
      lines: [{ name: t("mean"), tone: "main", values: values((one) => one.mean) }],
    }),
    plot({
      title: t("Bytes per second"), start, step: PACE, format: bytes,
      lines: [{ name: t("sent"), tone: "main", values: values((one) => one.sent) }, { name: t("received"), tone: "calm", values: values((one) => one.received) }],
    }),
    plot({ title: t("Open connections"), start, step: PACE, format: count, lines: [{ name: t("open"), tone: "main", values: values((one) => one.connections) }] }));
}

function figures(last: Sample | undefined): Child {
  const errors = last?.statuses[4] ?? null;
  const all = last?.statuses.reduce<number>((sum, value) => sum + (value ?? 0), 0) ?? 0;
  return h("div", { class: "figures" },
    figure(t("Requests per second"), rate(last?.requests)),
    figure(t("Server errors"), percent(errors === null ? null : all > 0 ? errors / all : 0), errors === null ? null : t("{count} a second", { count: rate(errors) }), errors ? "bad" : null),
    figure(t("Mean response time"), time(last?.mean)),
    figure(t("Open connections"), count(last?.connections)),
    figure(t("Sent per second"), bytes(last?.sent)));
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
  show(place, stop) {
    const top = h("div");
    const bottom = h("div");
    const attention = h("div");
    const about = h("p", { class: "about" });
    replace(place, top, card(t("Attention"), attention), bottom, about);
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
    const samples: Sample[] = [];
    const show = () => {
      replace(top, figures(samples[samples.length - 1]));
      replace(bottom, plots(samples));
    };
    show();
    live(stop, (one) => {
      samples.push(one);
      if (samples.length > KEPT) samples.shift();
      show();
    });
  },
};
