// The sites: names, addresses, traffic, maintenance.
import { api } from "../api";
import { moment } from "../format";
import { action, badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const sites: View = {
  id: "sites", key: "s", title: () => t("Sites"),
  show(place, stop) {
    const again = watch(place, stop, 5, t("a list of its sites"), async (signal) => {
      const found = (await api("GET", "/sites", { signal })).sites as any[];
      const change = async (site: string, values: Record<string, string>) => {
        const body: any = { site, state: values.state };
        if (values.state === "on" && values.minutes) body.until = Math.floor(Date.now() / 1000) + Number(values.minutes) * 60;
        await api("PUT", "/maintenance", { body });
      };
      return table(t("Sites"), [
        { head: t("Site"), cell: (site) => site.name },
        { head: t("Names"), cell: (site) => site.server_names.join(", ") || t("any") },
        { head: t("Addresses"), cell: (site) => site.listening.join(" ") },
        {
          head: t("State"), cell: (site) => site.maintenance
            ? [badge("warn", t("maintenance")), site.maintenance_until ? ` ${t("until {time}", { time: moment(site.maintenance_until) })}` : null]
            : badge("good", t("in service")),
        },
        {
          head: t("Action"), cell: (site) => action({
            label: t("Maintenance…"), title: site.name, text: t("During maintenance, clients get the response 503 of the maintenance page. It holds over reloads and restarts."),
            fields: [
              { name: "state", label: t("Maintenance"), value: site.maintenance ? "off" : "on", options: [["on", t("on")], ["off", t("off")], ["configured", t("as the configuration says")]] },
              { name: "minutes", label: t("For how many minutes"), kind: "number", hint: t("Empty: until it is turned off.") },
            ],
            run: (values) => change(site.name, values), then: () => again(),
          }),
        },
      ], found, t("There are no sites."));
    });
  },
};
