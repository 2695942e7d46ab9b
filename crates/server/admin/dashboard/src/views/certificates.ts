// Certificates, the one that ends first at the top.
import { api } from "../api";
import { h } from "../dom";
import { moment, span } from "../format";
import { action, badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const certificates: View = {
  id: "certificates", key: "t", title: () => t("Certificates"), needs: ["GET /certificates"],
  show(place, stop) {
    const again = watch(place, stop, 15, async (signal) => {
      const { certificates: list, certificate_files: files } = await api("GET", "/certificates", { signal });
      for (const found of [list, files]) found.sort((one: any, other: any) => (one.expires_in_seconds ?? -Infinity) - (other.expires_in_seconds ?? -Infinity));
      const left = (one: any) => {
        if (one.revoked) return badge("bad", t("revoked"));
        if (one.expires_in_seconds === null || one.expires_in_seconds === undefined) return badge("bad", t("none yet"));
        const days = one.expires_in_seconds / 86400;
        return badge(days < 3 ? "bad" : days < 14 ? "warn" : "good", days < 0 ? t("expired") : span(one.expires_in_seconds));
      };
      return [
        card(t("Ordered by the server"), table(t("Ordered by the server"), [
          { head: t("Names"), cell: (one: any) => one.names.join(", ") },
          { head: t("Time left"), cell: left },
          { head: t("Ends"), cell: (one) => moment(one.not_after) },
          { head: t("Renewal"), cell: (one) => one.step ? one.step : moment(one.renew_at) },
          { head: t("Issued by"), cell: (one) => one.issued_by ?? "–" },
          { head: t("Last fault"), cell: (one) => one.last_error ?? "–" },
          {
            head: t("Action"), cell: (one) => action({
              label: t("Renew"), title: one.names[0], text: t("A new certificate is ordered now. Authorities limit the orders of a week."),
              run: () => api("POST", "/certificates/renew", { body: { name: one.names[0] } }).then(() => t("The order has begun.")), then: () => again(),
            }),
          },
        ], list, t("The server orders no certificates by ACME."))),
        card(t("From files"), table(t("From files"), [
          { head: t("Names"), cell: (one: any) => h("span", { class: "long" }, one.names.join(", ")) },
          { head: t("Time left"), cell: left },
          { head: t("Ends"), cell: (one) => moment(one.not_after) },
          { head: t("File"), cell: (one) => h("code", {}, one.file) },
        ], files, t("No site names a certificate in a file."))),
      ];
    });
  },
};
