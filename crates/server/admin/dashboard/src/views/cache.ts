// The cache: how often it helps, what it holds, and purges.
import { api, isForAllSites, may, offers } from "../api";
import { h, replace } from "../dom";
import { bytes, count, percent, span } from "../format";
import { Action, action, badge, card, facts, figure, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** The question what to purge, of these sites. */
export function purgeAction(sites: string[], then?: () => void, url = "https://"): Action {
  return {
    label: t("Purge…"), isDanger: true, title: t("Purge"), text: t("What is purged is fetched from the origin at the next request."),
    fields: [
      { name: "kind", label: t("What"), value: "url", options: [["url", t("one URL")], ["prefix", t("URLs that begin with")], ["tag", t("a tag")], ["all", t("everything")]] },
      { name: "value", label: t("URL or tag"), value: url, hint: t("Has no effect for everything.") },
      { name: "site", label: t("Of which site"), options: [...(isForAllSites() ? [["", t("all")] as [string, string]] : []), ...sites.map((name): [string, string] => [name, name])] },
      { name: "soft", label: t("How"), value: "yes", options: [["yes", t("becomes stale, and is served while it is fetched anew")], ["no", t("is removed")]] },
    ],
    run: async (values) => {
      const what = values.kind === "all" ? "all" : { [values.kind]: values.value.trim() };
      const done = await api("POST", "/cache/purge", { body: { what, soft: values.soft === "yes", ...(values.site ? { site: values.site } : {}) } });
      return done.is_complete ? t("{count} responses were purged.", { count: count(done.responses) }) : t("More than {count} responses were purged.", { count: count(done.responses) });
    },
    then,
  };
}

/** What is stored, the largest first. URLs may have secrets of clients, so that not everybody may read them. */
function list(place: HTMLElement, stop: AbortSignal) {
  const prefix = h("input", { id: "cache-prefix", type: "search", placeholder: "https://example.com/img/", spellcheck: "false", autocomplete: "off" });
  const found = h("div");
  replace(place,
    h("form", { class: "bar", role: "search", submit: (event: Event) => { event.preventDefault(); again(); } },
      h("label", { for: "cache-prefix" }, t("URLs that begin with")), prefix, h("button", { class: "primary" }, t("Show"))),
    found);
  const again = watch(found, stop, 10, async (signal) => {
    const wanted = prefix.value.trim();
    const { responses } = await api("GET", `/cache/responses?most=50${wanted ? `&prefix=${encodeURIComponent(wanted)}` : ""}`, { signal });
    return table(t("Largest responses"), [
      { head: "URL", cell: (one: any) => h("span", { class: "long" }, one.url) },
      { head: t("Status"), cell: (one) => String(one.status) },
      { head: t("Size"), isNumber: true, cell: (one) => bytes(one.bytes) },
      { head: t("Hits"), isNumber: true, cell: (one) => count(one.hits) },
      { head: t("Age"), isNumber: true, cell: (one) => span(one.age_seconds) },
      { head: t("State"), cell: (one) => (one.fresh_seconds > 0 ? badge("good", t("fresh for {time}", { time: span(one.fresh_seconds) })) : badge("warn", t("stale"))) },
      { head: t("Action"), cell: (one) => action(purgeAction([], () => again(), one.url)) },
    ], responses, t("The cache holds nothing."));
  });
}

export const cache: View = {
  id: "cache", key: "h", title: () => t("Cache"), needs: ["GET /cache"],
  show(place, stop) {
    const state = h("div");
    const stored = h("div");
    replace(place, state, may("operate") && offers("GET /cache/responses") ? card(t("Largest responses"), stored) : null);
    if (may("operate") && offers("GET /cache/responses")) list(stored, stop);
    const again = watch(state, stop, 4, async (signal) => {
      const [{ cache: found }, { sites }] = await Promise.all([api("GET", "/cache", { signal }), api("GET", "/sites", { signal })]);
      if (!found) return h("p", { class: "empty" }, t("The configuration has no cache."));
      const all = found.hits + found.misses;
      return [
        h("div", { class: "figures" },
          figure(t("Hit rate"), percent(all > 0 ? found.hits / all : null), t("{hits} of {all}", { hits: count(found.hits), all: count(all) })),
          figure(t("In memory"), bytes(found.memory_bytes), t("{count} responses", { count: count(found.memory_objects) })),
          found.disk ? figure(t("On disk"), bytes(found.disk.bytes), t("{count} responses", { count: count(found.disk.objects) })) : null,
          figure(t("Stored"), count(found.stored)), figure(t("Waited for another"), count(found.collapsed)), figure(t("Evicted"), count(found.evictions)), figure(t("Purges"), count(found.purges))),
        h("p", { class: "bar" }, action(purgeAction(sites.map((site: any) => site.name), () => again()))),
        found.disk ? card(t("Disk"), facts(found.disk, t("Disk"))) : null,
      ];
    });
  },
};
