// Who changed what.
import { api } from "../api";
import { h } from "../dom";
import { moment } from "../format";
import { badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const audit: View = {
  id: "audit", key: "a", title: () => t("Audit log"),
  show(place, stop) {
    watch(place, stop, 10, t("an audit log"), async (signal) => {
      const found = await api("GET", "/audit", { signal });
      return table(t("Audit log"), [
        { head: t("Time"), cell: (one: any) => moment(one.time) }, { head: t("Who"), cell: (one) => one.by }, { head: t("Action"), cell: (one) => one.command },
        { head: t("Of what"), cell: (one) => h("span", { class: "long" }, one.arguments || "–") },
        { head: t("Outcome"), cell: (one) => one.error ? [badge("bad", t("fault")), " ", one.error] : badge("good", t("done")) },
      ], found.entries, t("There are no entries."));
    });
  },
};
