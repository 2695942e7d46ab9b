// Who and what has most requests, counted while somebody watches, with a ban at hand.
import { api } from "../api";
import { h } from "../dom";
import { bytes, count, rate, time } from "../format";
import { Action, action, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** The question whether to ban a client. */
export function banAction(network: string, then?: () => void): Action {
  return {
    label: t("Ban"), isDanger: true, title: t("Ban {network}", { network }), text: t("Requests and connections of this client are refused at once, at every site."),
    fields: [
      { name: "seconds", label: t("For how long"), value: "3600", options: [["600", t("10 minutes")], ["3600", t("1 hour")], ["86400", t("24 hours")], ["604800", t("7 days")], ["", t("until it is removed")]] },
      { name: "reason", label: t("Reason"), required: true },
    ],
    run: (values) => api("POST", "/bans", { body: { network, reason: values.reason, ...(values.seconds ? { seconds: Number(values.seconds) } : {}) } }).then(() => t("{network} is banned.", { network })),
    then,
  };
}

export const traffic: View = {
  id: "traffic", key: "c", title: () => t("Clients and paths"), needs: ["GET /traffic"],
  show(place, stop) {
    watch(place, stop, 2, async (signal) => {
      const found = await api("GET", "/traffic?seconds=30", { signal });
      if (!found.counting) return h("p", { class: "empty" }, t("Counting begins."));
      const columns = (head: string, name: (one: any) => string) => [
        { head, cell: (one: any) => h("span", { class: "long" }, name(one)) },
        { head: t("Requests"), isNumber: true, cell: (one: any) => count(one.requests) },
        { head: t("per second"), isNumber: true, cell: (one: any) => rate(one.requests / found.seconds) },
        { head: t("Errors"), isNumber: true, cell: (one: any) => count((one.statuses?.["4xx"] ?? 0) + (one.statuses?.["5xx"] ?? 0)) },
        { head: t("Sent"), isNumber: true, cell: (one: any) => bytes(one.bytes_sent) },
        { head: t("Mean time"), isNumber: true, cell: (one: any) => time(one.requests > 0 ? one.time_seconds / one.requests : null) },
      ];
      const none = t("No requests yet.");
      return [
        h("p", { class: "minor" }, t("Counted for {time}. Counting goes on while this view is open.", { time: time(found.seconds) })),
        card(t("Clients"), table(t("Clients with most requests"), [...columns(t("Client"), (one) => one.name), { head: t("Action"), cell: (one: any) => action(banAction(one.name)) }], found.clients.slice(0, 20), none)),
        card(t("Paths"), table(t("Paths with most requests"), columns(t("Path"), (one) => `${one.site} ${one.path}`), found.paths.slice(0, 20), none)),
        card(t("Sites"), table(t("Sites with most requests"), columns(t("Site"), (one) => one.name), found.sites.slice(0, 20), none)),
        card(t("Upstream nodes"), table(t("Upstream nodes with most requests"), columns(t("Node"), (one) => one.name), found.upstream_nodes.slice(0, 20), none)),
      ];
    });
  },
};
