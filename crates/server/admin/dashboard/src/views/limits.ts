// Limits with what they allowed, delayed and refused, and quotas with what clients have used.
import { api, ApiError, status } from "../api";
import { count } from "../format";
import { action, badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const limits: View = {
  id: "limits", key: "m", title: () => t("Limits"),
  show(place, stop) {
    const again = watch(place, stop, 4, t("a list of its limits"), async (signal) => {
      const list = ((await status(signal)).limits ?? []) as any[];
      let quotas: any[] = [];
      try {
        const found = await api("GET", "/limits", { signal });
        quotas = found.quotas ?? [];
      } catch (error) {
        if (!(error instanceof ApiError && error.isMissing)) throw error;
      }
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
        quotas.map((quota) => card(quota.name, table(t("Usage of {name}", { name: quota.name }), [
          { head: t("Key"), cell: (one: any) => one.key },
          { head: t("Used"), isNumber: true, cell: (one) => count(one.used) },
          { head: t("Action"), cell: (one) => reset(quota.name, one.key, t("This client has the whole quota again.")) },
        ], quota.quota?.usage ?? [], t("Nobody has used it.")))),
      ];
    });
  },
};
