// Why one request of the last minutes got its response, and where its time went.
import { api } from "../api";
import { Child, h, replace, svg } from "../dom";
import { time } from "../format";
import { card, facts, failure } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** The names that a list of the parts of the time may have. */
const TIMES = ["phases", "timeline", "times", "spans"];

/** The parts of the time, if the explanation has any: objects with a name, a start and a duration. */
function parts(found: any): { name: string; start: number; length: number }[] {
  for (const list of TIMES.map((name) => found[name])) {
    if (!Array.isArray(list)) continue;
    const read = list.map((one: any) => ({
      name: String(one.name ?? one.phase ?? one.what ?? ""),
      start: Number(one.start_seconds ?? one.start ?? one.offset_seconds ?? 0), length: Number(one.seconds ?? one.duration_seconds ?? one.duration ?? 0),
    })).filter((one) => isFinite(one.start) && isFinite(one.length));
    if (read.length > 0) return read;
  }
  return [];
}

function bars(list: { name: string; start: number; length: number }[]): SVGElement {
  const end = Math.max(...list.map((one) => one.start + one.length)) || 1;
  const height = list.length * 26 + 4;
  return svg("svg", { viewBox: `0 0 640 ${height}`, class: "map", role: "img", "aria-label": list.map((one) => `${one.name}: ${time(one.length)}`).join("; ") },
    list.flatMap((one, index) => [
      svg("text", { x: 0, y: index * 26 + 18 }, one.name.slice(0, 24)),
      svg("rect", { x: 170 + (one.start / end) * 370, y: index * 26 + 5, width: Math.max(2, (one.length / end) * 370), height: 16, rx: 3, class: "area main" }),
      svg("text", { x: 636, y: index * 26 + 18, "text-anchor": "end" }, time(one.length)),
    ]));
}

export const explain: View = {
  id: "explain", key: "e", title: () => t("Explain a request"),
  show(place, stop, argument) {
    const result = h("div", { "aria-live": "polite" });
    const input = h("input", { id: "request-id", name: "id", value: argument, required: true, spellcheck: "false", autocomplete: "off", size: 36 });
    const look = async (id: string) => {
      replace(result, h("p", { class: "empty" }, t("Looks it up…")));
      let shown: Child;
      try {
        const found = await api("GET", `/requests/${encodeURIComponent(id)}`, { signal: stop });
        const list = parts(found);
        const rest = Object.fromEntries(Object.entries(found).filter(([name]) => list.length === 0 || !TIMES.includes(name)));
        shown = [list.length > 0 ? card(t("Where the time went"), bars(list)) : null, card(t("What happened"), facts(rest, t("What happened")))];
      } catch (error: any) {
        if (stop.aborted) return;
        shown = error.status === 404 && !error.isMissing
          ? h("p", { class: "empty" }, t("The server does not remember this request: only those of the last minutes are kept.")) : failure(error, t("explanations of requests"));
      }
      replace(result, shown);
    };
    replace(place,
      h("form", { class: "bar", submit: (event: Event) => { event.preventDefault(); location.hash = `#/explain/${encodeURIComponent(input.value.trim())}`; } },
        h("label", { for: "request-id" }, t("Id of the request")), input, h("button", { class: "primary" }, t("Explain"))),
      h("p", { class: "minor" }, t("The id is in the response field X-Request-Id, on error pages and in each line of the log.")), result);
    if (argument) void look(argument);
    else input.focus();
  },
};
