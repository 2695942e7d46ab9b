// The log, live, with a filter of the server; and the last faults.
import { api, ApiError, events } from "../api";
import { h, replace } from "../dom";
import { bytes, moment, time } from "../format";
import { badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

const KEPT = 200;

function tone(status: number): "good" | "warn" | "bad" | "off" {
  return status >= 500 ? "bad" : status >= 400 ? "warn" : status >= 300 ? "off" : "good";
}

function first(record: any, ...names: string[]): any {
  return names.map((name) => record[name]).find((value) => value !== undefined && value !== null && value !== "");
}

function row(record: any): HTMLElement {
  const id = first(record, "request_id", "id");
  const status = Number(first(record, "status") ?? 0);
  const duration = first(record, "request_time", "duration", "time_seconds");
  const cells: [string, any, string?][] = [
    [t("Time"), moment(first(record, "time", "timestamp"))],
    [t("Status"), badge(tone(status), String(status))],
    [t("Request"), h("span", { class: "long" }, `${first(record, "method", "request_method") ?? ""} ${first(record, "host", "site") ?? ""}${first(record, "uri", "path", "request_uri") ?? ""}`)],
    [t("Client"), first(record, "remote_addr", "client") ?? "–"],
    [t("Duration"), time(duration === undefined ? null : Number(duration)), "number"],
    [t("Sent"), bytes(Number(first(record, "bytes_sent", "body_bytes_sent") ?? NaN)), "number"],
    [t("User agent"), h("span", { class: "long" }, first(record, "user_agent") ?? "–")],
    [t("Explain"), id === undefined ? "–" : h("a", { href: `#/explain/${encodeURIComponent(String(id))}` }, t("Explain"))],
  ];
  return h("tr", {}, cells.map(([head, value, kind]) => h("td", { "data-label": head, class: kind }, h("span", {}, value))));
}

export const requests: View = {
  id: "requests", key: "l", title: () => t("Log"),
  show(place, stop, argument) {
    const body = h("tbody");
    const state = h("p", { class: "minor", role: "status" });
    const errors = h("div");
    let reading = new AbortController();
    let isHeld = false;
    const input = h("input", { id: "filter", name: "filter", value: argument, placeholder: "status >= 500", spellcheck: "false", autocomplete: "off" });
    const hold: HTMLButtonElement = h("button", { type: "button", "aria-pressed": "false", click: () => {
      isHeld = !isHeld;
      hold.setAttribute("aria-pressed", String(isHeld));
      hold.textContent = isHeld ? t("Go on") : t("Hold");
    } }, t("Hold"));
    const open = async () => {
      reading.abort();
      const own = (reading = new AbortController());
      const signal = AbortSignal.any([own.signal, stop]);
      body.replaceChildren();
      const filter = input.value.trim();
      while (!signal.aborted) {
        state.textContent = t("Waits for requests…");
        try {
          await events(`/requests${filter ? `?filter=${encodeURIComponent(filter)}` : ""}`, signal, (name, record) => {
            if (name !== "request" || isHeld) return;
            body.prepend(row(record));
            while (body.rows.length > KEPT) body.deleteRow(-1);
            const kept = t("The newest is at the top; the last {count} are kept.", { count: KEPT });
            if (state.textContent !== kept) state.textContent = kept;
          });
        } catch (error: any) {
          if (signal.aborted) return;
          if (error instanceof ApiError && error.status !== 0) {
            state.textContent = error.isMissing ? t("This server does not offer {what}.", { what: t("a live log") }) : error.message;
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
      h("p", { class: "minor" }, t("A filter is a condition as in the configuration, for example:"), " ", h("code", {}, "status >= 500"), ", ", h("code", {}, 'host == "shop.example"'), ", ", h("code", {}, 'path starts_with "/api/"')),
      state,
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("Log") }, h("table", { class: "log" },
        h("caption", {}, t("Requests as they end")),
        h("thead", {}, h("tr", {}, [t("Time"), t("Status"), t("Request"), t("Client"), t("Duration"), t("Sent"), t("User agent"), t("Explain")].map((head) => h("th", { scope: "col" }, head)))), body)),
      card(t("Recent errors"), errors));
    void open();
    watch(errors, stop, 5, t("a list of recent errors"), async (signal) => {
      const found = await api("GET", "/errors", { signal });
      return table(t("Recent errors"), [
        { head: t("Time"), cell: (one: any) => moment(one.time) },
        { head: t("Level"), cell: (one) => badge(/error/i.test(one.level) ? "bad" : "warn", String(one.level)) },
        { head: t("Site"), cell: (one) => one.site ?? "–" },
        { head: t("Message"), cell: (one) => h("span", { class: "long" }, one.message) },
        { head: t("Explain"), cell: (one) => {
          const id = one.request?.id ?? one.request_id ?? (typeof one.request === "string" ? one.request : null);
          return id ? h("a", { href: `#/explain/${encodeURIComponent(String(id))}` }, t("Explain")) : "–";
        } },
      ], (found.errors as any[]).slice(0, 50), t("There are none."));
    });
  },
};
