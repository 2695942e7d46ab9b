// Who changed what.
import { api } from "../api";
import { h } from "../dom";
import { moment } from "../format";
import { badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** The arguments of a command, which are JSON, in one line. */
function readable(text: string): string {
  try {
    const found = JSON.parse(text);
    const shown = (value: unknown) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
    return Object.entries(found).filter(([, value]) => value !== null && value !== false).map(([name, value]) => `${name}: ${shown(value)}`).join(", ");
  } catch {
    return text;
  }
}

export const audit: View = {
  id: "audit", key: "a", title: () => t("Audit log"), needs: ["GET /audit"], role: "configure",
  show(place, stop) {
    watch(place, stop, 10, async (signal) => {
      const found = await api("GET", "/audit", { signal });
      return table(t("Audit log"), [
        { head: t("Time"), cell: (one: any) => moment(one.time) }, { head: t("Who"), cell: (one) => one.by }, { head: t("Action"), cell: (one) => one.command.replaceAll("_", " ") },
        { head: t("Of what"), cell: (one) => h("span", { class: "long" }, readable(one.arguments) || "–") },
        { head: t("Outcome"), cell: (one) => one.error ? [badge("bad", t("fault")), " ", one.error] : badge("good", t("done")) },
      ], found.entries, t("There are no entries."));
    });
  },
};
