// Attacks that were stopped, and bans.
import { api } from "../api";
import { h } from "../dom";
import { count, moment, span } from "../format";
import { action, card, figure, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";
import { banAction } from "./traffic";

/** The counters of attacks in the totals, with their names. */
function attacks(totals: any, glitches: any): [string, number][] {
  return [
    [t("Bad requests"), totals.bad_requests], [t("Failed handshakes"), totals.handshake_failures], [t("Requests that took too long"), totals.timeouts],
    [t("Floods of resets"), totals.stopped_reset_floods], [t("Floods of field blocks"), totals.stopped_field_block_floods],
    [t("Floods of idle frames"), totals.stopped_idle_floods], [t("Floods that ask for replies"), totals.stopped_reply_floods],
    [t("Tiny windows"), totals.stopped_tiny_window_floods], [t("Stalled streams"), totals.stalled_streams],
    [t("Refused connections"), totals.refused], [t("Refused for glitches"), totals.refused_for_glitches],
    [t("Clients with glitches"), glitches?.clients],
  ].filter((one): one is [string, number] => typeof one[1] === "number");
}

export const bans: View = {
  id: "bans", key: "b", title: () => t("Attacks and bans"), needs: ["GET /bans"],
  show(place, stop) {
    const again = watch(place, stop, 4, async (signal) => {
      const [own, found] = await Promise.all([api("GET", "/status", { signal }), api("GET", "/bans", { signal })]);
      const counted = attacks(own.totals, own.glitches);
      return [
        h("div", { class: "figures" },
          figure(t("Bans"), count(own.bans.bans)), figure(t("Refused for a ban"), count(own.bans.refused_requests + own.totals.banned)),
          figure(t("Networks of lists"), count(own.bans.networks_of_lists)), figure(t("Stopped attacks"), count(counted.reduce((sum, [, value]) => sum + value, 0)))),
        h("p", { class: "bar" }, action({
          ...banAction("", () => again()), title: t("Ban a network"), label: t("Ban…"),
          fields: [{ name: "network", label: t("Address or network"), required: true, hint: "203.0.113.9, 2001:db8::/48" }, ...banAction("").fields!,
            { name: "force", label: t("Also what is never banned otherwise, such as loopback and proxies"), value: "", options: [["", t("no")], ["yes", t("yes")]] }],
          run: (values) => api("POST", "/bans", { body: {
            network: values.network.trim(), reason: values.reason, force: values.force === "yes", ...(values.seconds ? { seconds: Number(values.seconds) } : {}),
          } }).then(() => t("{network} is banned.", { network: values.network })),
        })),
        card(t("Bans"), table(t("Bans"), [
          { head: t("Network"), cell: (one: any) => one.network },
          { head: t("Ends"), cell: (one) => one.until ? `${moment(one.until)} (${span(one.seconds_left)})` : t("never") },
          { head: t("Times"), isNumber: true, cell: (one) => count(one.times) },
          { head: t("Reason"), cell: (one) => h("span", { class: "long" }, one.reason) },
          { head: t("Action"), cell: (one) => action({
            label: t("Remove"), title: one.network, text: t("The client can send requests again."),
            run: () => api("DELETE", `/bans?network=${encodeURIComponent(one.network)}`).then(() => undefined), then: () => again(),
          }) },
        ], found.bans, t("Nobody is banned."))),
        found.lists.length ? card(t("Lists of networks"), table(t("Lists of networks"), [
          { head: t("File"), cell: (one: any) => one.file }, { head: t("Networks"), isNumber: true, cell: (one) => count(one.networks) }, { head: t("Fault"), cell: (one) => one.fault ?? "–" },
        ], found.lists, "")) : null,
        card(t("Stopped since the start"), h("dl", { class: "counts" }, [...counted].sort((one, other) => other[1] - one[1]).map(([name, value]) =>
          h("div", {}, h("dt", {}, name), h("dd", { class: value === 0 ? "none" : null }, count(value)))))),
      ];
    });
  },
};
