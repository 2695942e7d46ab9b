// The last warnings and errors of the server's log, and requests as they end.
import { api, ApiError, events, offers } from "../api";
import { Child, h, replace } from "../dom";
import { bytes, moment, time } from "../format";
import { badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** The requests that are shown. */
const KEPT = 200;

function explainLink(id: string | null): Child {
  return id && offers("GET /requests/explain") ? h("a", { href: `#/explain/${encodeURIComponent(id)}` }, t("Explain")) : "–";
}

/** The fields of a line: `host=example.com cause=refused`. */
function fields(found: Record<string, unknown> | null): string {
  const shown = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(found ?? {}).map(([name, value]) => `${name}=${shown(value)}`).join(" ");
}

function errors(place: HTMLElement, stop: AbortSignal) {
  watch(place, stop, 5, async (signal) => table(t("Warnings and errors"), [
    { head: t("Time"), cell: (one: any) => moment(one.time) },
    { head: t("Level"), cell: (one) => badge(one.level === "ERROR" ? "bad" : "warn", one.level) },
    { head: t("Site"), cell: (one) => one.site ?? "–" },
    { head: t("Message"), cell: (one) => h("span", { class: "long" }, one.message, " ", h("small", {}, fields(one.fields))) },
    { head: t("Request"), cell: (one) => explainLink(one.request_id) },
  ], (await api("GET", "/errors", { signal })).errors.slice(0, 100), t("There are none.")));
}

function tone(status: number | null): "good" | "warn" | "bad" | "off" {
  return status === null || status >= 500 ? "bad" : status >= 400 ? "warn" : status >= 300 ? "off" : "good";
}

function row(one: any): HTMLElement {
  const url = `${one.method} ${one.host}${one.path}${one.query === null ? "" : `?${one.query}`}`;
  const cells: [string, Child, string?][] = [
    [t("Time"), moment(one.time)], [t("Status"), badge(tone(one.status), String(one.status ?? one.outcome))], [t("Request"), h("span", { class: "long" }, url)],
    [t("Site"), one.site], [t("Client"), one.client ?? "–"], [t("Duration"), time(one.seconds), "number"], [t("Sent"), bytes(one.bytes_sent), "number"],
    [t("Cache"), one.cache ?? "–"], [t("Explain"), explainLink(one.id)],
  ];
  return h("tr", {}, cells.map(([head, value, kind]) => h("td", { "data-label": head, class: kind }, h("span", {}, value))));
}

function tail(place: HTMLElement, stop: AbortSignal) {
  const body = h("tbody");
  const state = h("p", { class: "minor", role: "status" });
  let reading = new AbortController();
  let isHeld = false;
  const input = h("input", { id: "filter", name: "filter", placeholder: "status >= 500", spellcheck: "false", autocomplete: "off" });
  const hold: HTMLButtonElement = h("button", { type: "button", "aria-pressed": "false", click: () => {
    isHeld = !isHeld;
    hold.setAttribute("aria-pressed", String(isHeld));
    hold.textContent = isHeld ? t("Go on") : t("Hold");
  } }, t("Hold"));
  const open = async () => {
    reading.abort();
    reading = new AbortController();
    const signal = AbortSignal.any([reading.signal, stop]);
    body.replaceChildren();
    const filter = input.value.trim();
    while (!signal.aborted) {
      state.textContent = t("Waits for requests…");
      try {
        await events(`/requests${filter ? `?filter=${encodeURIComponent(filter)}` : ""}`, signal, (name, one) => {
          if (name !== "request" || isHeld) return;
          body.prepend(row(one));
          while (body.rows.length > KEPT) body.deleteRow(-1);
          const kept = t("The newest is at the top; the last {count} are kept.", { count: KEPT });
          if (state.textContent !== kept) state.textContent = kept;
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status !== 0) {
          state.textContent = error.message;
          return;
        }
      }
      if (signal.aborted) return;
      state.textContent = t("The connection is lost; it is tried again.");
      await new Promise((done) => setTimeout(done, 2000));
    }
  };
  replace(place,
    h("form", { class: "bar", role: "search", submit: (event: Event) => { event.preventDefault(); void open(); } },
      h("label", { for: "filter" }, t("Filter")), input, h("button", { class: "primary" }, t("Apply")), hold),
    state,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("Requests as they end") }, h("table", { class: "log" },
      h("caption", {}, t("Requests as they end")),
      h("thead", {}, h("tr", {}, [t("Time"), t("Status"), t("Request"), t("Site"), t("Client"), t("Duration"), t("Sent"), t("Cache"), t("Explain")].map((head) => h("th", { scope: "col" }, head)))), body)));
  void open();
}

export const log: View = {
  id: "log", key: "l", title: () => t("Log"), needs: ["GET /errors", "GET /requests"], isForSomeSites: true,
  show(place, stop) {
    const [requests, lines] = [h("div"), h("div")];
    replace(place, offers("GET /requests") ? card(t("Requests as they end"), requests) : null, offers("GET /errors") ? card(t("Warnings and errors"), lines) : null);
    if (offers("GET /requests")) tail(requests, stop);
    if (offers("GET /errors")) errors(lines, stop);
  },
};
