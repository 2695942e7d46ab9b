// Limits with what they allowed, delayed and refused, and quotas with what clients have used.
import { api } from "../api";
import { h } from "../dom";
import { bytes, count, span } from "../format";
import { action, badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

function unitCount(quota: any): string {
  return quota.unit === "bytes" ? bytes(quota.units) : count(quota.units);
}

function unitName(unit: string): string {
  switch (unit) {
    case "bytes": return "";
    case "requests": return t("requests");
    default: return unit;
  }
}

function windowName(window: string): string {
  switch (window) {
    case "day": return t("day");
    case "month": return t("month");
    default: return window;
  }
}

export const limits: View = {
  id: "limits", key: "m", title: () => t("Limits"), needs: ["GET /limits"],
  show(place, stop) {
    const again = watch(place, stop, 4, async (signal) => {
      const [{ limits: list }, { quotas }] = await Promise.all([api("GET", "/status", { signal }), api("GET", "/limits", { signal })]);
      const reset = (name: string, key: string | null, text: string) => action({
        label: t("Reset"), title: key === null ? name : `${name}: ${key}`, text,
        run: () => api("POST", "/limits/reset", { body: key === null ? { name } : { name, key } }).then(() => undefined), then: () => again(),
      });
      return [
        table(t("Limits"), [
          { head: t("Limit"), cell: (one: any) => [one.name ?? "–", one.dry_run ? [" ", badge("off", t("only counts"))] : null] },
          { head: t("Site"), cell: (one) => `${one.site ?? ""} ${one.location ?? ""}` },
          { head: t("Key"), cell: (one) => one.key },
          { head: t("Allowed"), isNumber: true, cell: (one) => count(one.allowed) },
          { head: t("Delayed"), isNumber: true, cell: (one) => count(one.delayed + (one.would_delay ?? 0)) },
          { head: t("Refused"), isNumber: true, cell: (one) => count(one.refused + (one.would_refuse ?? 0)) },
          { head: t("Action"), cell: (one) => one.quota ? reset(one.name, null, t("Every client has the whole quota again.")) : "–" },
        ], list, t("The configuration has no limits.")),
        quotas.map((quota: any) => card(`${quota.site ?? t("all sites")} · ${quota.name}`, h("p", { class: "minor" }, t("{units} {unit} a {window}; the next window begins in {time}; {used} clients have used all", {
          units: unitCount(quota.quota), unit: unitName(quota.quota.unit), window: windowName(quota.quota.window), time: span(quota.quota.resets_in), used: count(quota.quota.used_up),
        })), table(t("Usage of {name}", { name: quota.name }), [
          { head: t("Key"), cell: (one: any) => one.key },
          { head: t("Used"), isNumber: true, cell: (one) => (quota.quota.unit === "bytes" ? bytes(one.used) : count(one.used)) },
          { head: t("Action"), cell: (one) => reset(quota.name, one.key, t("This client has the whole quota again.")) },
        ], quota.quota?.usage ?? [], t("Nobody has used it.")))),
      ];
    });
  },
};
