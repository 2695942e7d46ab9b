// The rules with how often they applied.
import { api, ApiError, status } from "../api";
import { h } from "../dom";
import { count } from "../format";
import { badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const rules: View = {
  id: "rules", key: "r", title: () => t("Rules"),
  show(place, stop) {
    watch(place, stop, 4, t("a list of its rules"), async (signal) => {
      let found: any;
      try {
        found = await api("GET", "/rules", { signal });
      } catch (error) {
        if (!(error instanceof ApiError && error.isMissing)) throw error;
        found = await status(signal);
      }
      const list = (Array.isArray(found) ? found : found.rules) as any[];
      return table(t("Rules"), [
        { head: t("Where"), cell: (one: any) => one.place ?? one.site ?? "–" },
        { head: t("Rule"), cell: (one) => h("code", {}, one.rule ?? one.name) },
        { head: t("Applied"), isNumber: true, cell: (one) => count(one.applied ?? one.hits) },
        { head: t("State"), cell: (one) => one.dry_run ? badge("off", t("only counts")) : badge("good", t("in force")) },
      ], [...list].sort((one, other) => (other.applied ?? 0) - (one.applied ?? 0)), t("The configuration has no rules."));
    });
  },
};
