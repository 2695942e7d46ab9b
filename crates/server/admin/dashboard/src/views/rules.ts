// The rules with how often they applied.
import { api } from "../api";
import { h } from "../dom";
import { count } from "../format";
import { badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const rules: View = {
  id: "rules", key: "r", title: () => t("Rules"), needs: ["GET /rules"],
  show(place, stop) {
    watch(place, stop, 4, async (signal) => {
      const list = (await api("GET", "/rules", { signal })).rules as any[];
      return table(t("Rules"), [
        { head: t("Where"), cell: (one: any) => one.place },
        { head: t("Rule"), cell: (one) => h("code", {}, one.rule) },
        { head: t("Applied"), isNumber: true, cell: (one) => count(one.applied) },
        { head: t("State"), cell: (one) => one.dry_run ? badge("off", t("only counts")) : badge("good", t("in force")) },
      ], [...list].sort((one, other) => other.applied - one.applied), t("The configuration has no rules."));
    });
  },
};
