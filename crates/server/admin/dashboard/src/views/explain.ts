// Why one request of the last minutes got its response, and where its time went.
import { api, ApiError } from "../api";
import { Child, h, replace, svg } from "../dom";
import { bytes, moment, time } from "../format";
import { badge, card, failure, table } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** A part of the time, in seconds since the first byte of the request. */
interface Stretch {
  name: string;
  from: number;
  to: number;
  tone: string;
}

/** What took how long, in the order in which it began. */
function stretches(found: any): Stretch[] {
  const list: Stretch[] = [];
  for (const one of found.attempts) {
    const begin = one.after_seconds ?? 0;
    // The time of an attempt begins with its connection.
    const connected = begin + (one.connect_seconds ?? 0);
    const head = Math.max(connected, begin + (one.seconds ?? 0));
    if (one.connect_seconds) list.push({ name: t("connect to {node}", { node: one.node }), from: begin, to: connected, tone: "calm" });
    list.push({ name: one.node, from: connected, to: head, tone: one.status === null ? "bad" : "main" });
    if (one.body_ended_after_seconds) list.push({ name: t("body of {node}", { node: one.node }), from: head, to: Math.max(head, one.body_ended_after_seconds), tone: "good" });
  }
  return [{ name: t("whole request"), from: 0, to: found.seconds, tone: "main" }, ...list];
}

function bars(list: Stretch[]): SVGElement {
  const isNarrow = innerWidth < 640;
  const [width, left, letters] = isNarrow ? [360, 130, 18] : [720, 220, 32];
  const end = Math.max(...list.map((one) => one.to)) || 1;
  const x = (seconds: number) => left + (seconds / end) * (width - left - 70);
  return svg("svg", { viewBox: `0 0 ${width} ${list.length * 26 + 4}`, class: "map", role: "img", "aria-label": list.map((one) => `${one.name}: ${time(one.to - one.from)}`).join("; ") },
    list.flatMap((one, index) => [
      svg("text", { x: 0, y: index * 26 + 18 }, one.name.length > letters ? `${one.name.slice(0, letters - 1)}…` : one.name),
      svg("rect", { x: x(one.from), y: index * 26 + 5, width: Math.max(2, x(one.to) - x(one.from)), height: 16, rx: 3, class: `area ${one.tone}` }),
      svg("text", { x: width - 4, y: index * 26 + 18, "text-anchor": "end" }, time(one.to - one.from)),
    ]));
}

function tone(status: number | null): "good" | "warn" | "bad" | "off" {
  return status === null || status >= 500 ? "bad" : status >= 400 ? "warn" : status >= 300 ? "off" : "good";
}

function explained(found: any): Child {
  const fact = (name: string, ...value: Child[]) => [h("dt", {}, name), h("dd", {}, ...value)];
  const url = `${found.method} ${found.scheme}://${found.host}${found.path}${found.query === null ? "" : `?${found.query}`}`;
  return [
    card(t("What happened"), h("dl", { class: "facts" },
      fact(t("Request"), h("code", {}, url)),
      fact(t("Status"), badge(tone(found.status), String(found.status ?? "–")), ` ${found.outcome}`, found.bytes_sent === null ? null : `, ${bytes(found.bytes_sent)}`),
      fact(t("Time"), moment(found.time)),
      fact(t("Client"), `${found.client ?? t("a Unix socket")}, ${found.protocol}`),
      fact(t("Site"), found.site),
      found.location === null ? null : fact(t("Location"), `${found.location} (${found.handler})`),
      found.rules.length === 0 ? null : fact(t("Rules"), found.rules.map((one: any) => h("div", {}, `${one.place}: ${one.rule}`, one.dry_run ? [" ", badge("off", t("only counts"))] : null))),
      found.limits.length === 0 ? null : fact(t("Limits"), found.limits.map((one: any) => h("div", {}, `${one.limit}: ${one.outcome}`))),
      found.decided === null ? null : fact(t("Decided"), `${found.decided.by}: ${found.decided.why}`),
      found.cache === null && found.cache_key === null ? null : fact(t("Cache"), found.cache ?? "–", found.cache_key === null ? null : [", ", t("key {key}", { key: found.cache_key })]))),
    card(t("Where the time went"), bars(stretches(found))),
    found.attempts.length === 0 ? null : card(t("Attempts at origins"), table(t("Attempts at origins"), [
      { head: t("Node"), cell: (one: any) => (one.address && one.address !== one.node ? `${one.node} (${one.address})` : one.node) },
      { head: t("Outcome"), cell: (one) => (one.status === null ? [badge("bad", one.phase), ` ${one.cause}`] : badge(tone(one.status), String(one.status))) },
      { head: t("Begun after"), isNumber: true, cell: (one) => time(one.after_seconds) },
      { head: t("Connect"), isNumber: true, cell: (one) => time(one.connect_seconds) },
      { head: t("Response"), isNumber: true, cell: (one) => time(one.seconds) },
    ], found.attempts, "")),
    (found.errors ?? []).length === 0 ? null : card(t("Lines of the log"), table(t("Lines of the log"), [
      { head: t("Level"), cell: (one: any) => badge(one.level === "ERROR" ? "bad" : "warn", one.level) }, { head: t("Message"), cell: (one) => h("span", { class: "long" }, one.message) },
    ], found.errors, "")),
  ];
}

export const explain: View = {
  id: "explain", key: "e", title: () => t("Explain a request"), needs: ["GET /requests/explain"], isForSomeSites: true,
  show(place, stop, argument) {
    const result = h("div", { "aria-live": "polite" });
    const input = h("input", { id: "request-id", name: "id", value: argument, required: true, spellcheck: "false", autocomplete: "off", size: 36 });
    const look = async (id: string) => {
      let shown: Child;
      try {
        shown = explained(await api("GET", `/requests/explain?id=${encodeURIComponent(id)}`, { signal: stop }));
      } catch (error) {
        if (stop.aborted) return;
        shown = error instanceof ApiError && error.status === 404
          ? h("p", { class: "empty" }, t("The server does not remember this request: only those of the last minutes are kept.")) : failure(error);
      }
      replace(result, shown);
    };
    replace(place,
      h("form", { class: "bar", submit: (event: Event) => { event.preventDefault(); location.hash = `#/explain/${encodeURIComponent(input.value.trim())}`; } },
        h("label", { for: "request-id" }, t("Id of the request")), input, h("button", { class: "primary" }, t("Explain"))),
      h("p", { class: "minor" }, t("The id is $request_id in access logs, request_id in the server's log and, with request_id = true, the response field X-Request-Id.")), result);
    if (argument) void look(argument);
  },
};
