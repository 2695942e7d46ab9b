// The cache: how often it helps, what it holds, and purges.
import { api, ApiError, status } from "../api";
import { h } from "../dom";
import { bytes, count, moment, percent } from "../format";
import { action, card, facts, figure, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const cache: View = {
  id: "cache", key: "h", title: () => t("Cache"),
  show(place, stop) {
    const again = watch(place, stop, 4, t("a view of its cache"), async (signal) => {
      const own = (await status(signal)).cache;
      if (!own) return h("p", { class: "empty" }, t("The configuration has no cache."));
      let found: any = {};
      try {
        found = await api("GET", "/cache", { signal });
      } catch (error) {
        if (!(error instanceof ApiError && error.isMissing)) throw error;
      }
      const largest = found.largest as any[] | undefined;
      const all = own.hits + own.misses;
      const disk = own.disk;
      const purge = async (values: Record<string, string>) => {
        const what = values.kind === "all" ? "all" : { [values.kind]: values.value };
        const done = await api("POST", "/cache/purge", { body: { what, soft: values.soft === "yes", ...(values.site ? { site: values.site } : {}) } });
        return t("{count} responses were purged.", { count: count(done?.responses) });
      };
      const question = (kind: string, value: string) => ({
        title: t("Purge"), text: t("What is purged is fetched from the origin at the next request."),
        fields: [
          { name: "kind", label: t("What"), value: kind, options: [["url", t("one URL")], ["prefix", t("URLs that begin with")], ["tag", t("a tag")], ["all", t("everything")]] as [string, string][] },
          { name: "value", label: t("URL or tag"), value, hint: t("Empty for everything.") },
          { name: "site", label: t("Only of this site"), hint: t("Empty: all.") },
          { name: "soft", label: t("How"), value: "yes", options: [["yes", t("becomes stale, and is served while it is fetched anew")], ["no", t("is removed")]] as [string, string][] },
        ],
        run: purge, then: () => again(),
      });
      return [
        h("div", { class: "figures" },
          figure(t("Hit rate"), percent(all > 0 ? own.hits / all : null), t("{hits} of {all}", { hits: count(own.hits), all: count(all) })),
          figure(t("In memory"), bytes(own.memory_bytes), t("{count} responses", { count: count(own.memory_objects) })),
          disk ? figure(t("On disk"), bytes(disk.bytes ?? disk.used_bytes ?? disk.size_bytes), disk.objects === undefined ? null : t("{count} responses", { count: count(disk.objects) })) : null,
          figure(t("Waited for another"), count(own.collapsed)), figure(t("Evicted"), count(own.evictions))),
        h("p", { class: "bar" }, action({ label: t("Purge…"), isDanger: true, ...question("url", "https://") })),
        largest === undefined ? h("p", { class: "empty" }, t("This server does not offer {what}.", { what: t("a list of what its cache holds") }))
          : card(t("Largest responses"), table(t("Largest responses"), [
            { head: "URL", cell: (one: any) => h("span", { class: "long" }, one.url ?? one.key) },
            { head: t("Size"), isNumber: true, cell: (one) => bytes(one.bytes ?? one.size) },
            { head: t("Hits"), isNumber: true, cell: (one) => count(one.hits) },
            { head: t("Stored"), cell: (one) => moment(one.stored ?? one.stored_at) },
            { head: t("Action"), cell: (one) => action({ label: t("Purge…"), ...question("url", String(one.url ?? "")) }) },
          ], largest.slice(0, 50), t("The cache holds nothing."))),
        disk ? card(t("Disk"), facts(disk, t("Disk"))) : null,
      ];
    });
  },
};
