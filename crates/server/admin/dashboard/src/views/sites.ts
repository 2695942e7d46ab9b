// The sites: names, addresses, traffic, maintenance.
import { api, isForAllSites } from "../api";
import { h, replace } from "../dom";
import { count, moment } from "../format";
import { action, badge, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";
import { purgeAction } from "./cache";

/** The sites that are shown at once. */
const SHOWN = 100;

async function change(site: string, values: Record<string, string>) {
  const body: any = { site, state: values.state };
  if (values.state === "on" && values.minutes) body.until = Math.floor(Date.now() / 1000) + Number(values.minutes) * 60;
  await api("PUT", "/maintenance", { body });
}

export const sites: View = {
  id: "sites", key: "s", title: () => t("Sites"), needs: ["GET /sites"], isForSomeSites: true,
  show(place, stop) {
    const list = h("div", { class: "card" });
    const filter = h("input", { id: "site-filter", type: "search", placeholder: "example.com", spellcheck: "false", autocomplete: "off", input: () => show() });
    const more = h("p", { class: "minor", role: "status" });
    const bar = h("p", { class: "bar" }, h("label", { for: "site-filter" }, t("Filter")), filter);
    let all: any[] = [];
    const show = () => {
      const wanted = filter.value.trim().toLowerCase();
      const found = all.filter((site) => [site.name, ...site.server_names, ...site.listening].some((text) => text.toLowerCase().includes(wanted)));
      bar.hidden = all.length < 8;
      const shown = found.length > SHOWN ? t("{shown} of {all} are shown.", { shown: SHOWN, all: count(found.length) }) : "";
      if (more.textContent !== shown) more.textContent = shown;
      replace(list, table(t("Sites"), [
        { head: t("Site"), cell: (site) => site.name },
        { head: t("Names"), cell: (site) => h("span", { class: "long" }, site.server_names.join(", ") || t("any")) },
        { head: t("Addresses"), cell: (site) => site.listening.join(" ") },
        {
          head: t("State"), cell: (site) => site.maintenance
            ? [badge("warn", t("maintenance")), site.maintenance_until ? ` ${t("until {time}", { time: moment(site.maintenance_until) })}` : null]
            : badge("good", t("in service")),
        },
        {
          head: t("Action"), cell: (site) => h("span", { class: "buttons" }, action({
            label: t("Maintenance…"), title: site.name, text: t("During maintenance, clients get the response 503 of the maintenance page. It holds over reloads and restarts."),
            fields: [
              { name: "state", label: t("Maintenance"), value: site.maintenance ? "off" : "on", options: [["on", t("on")], ["off", t("off")], ["configured", t("as the configuration says")]] },
              { name: "minutes", label: t("For how many minutes"), kind: "number", hint: t("Empty: until it is turned off.") },
            ],
            run: (values) => change(site.name, values), then: () => again(),
          }), isForAllSites() ? null : action(purgeAction([site.name]))),
        },
      ], found.slice(0, SHOWN), t("There are no sites.")));
    };
    replace(place, bar, more, list);
    const again = watch(list, stop, 5, async (signal) => {
      all = (await api("GET", "/sites", { signal })).sites;
      show();
      return [...list.childNodes];
    });
  },
};
