// The configuration: which file is in force, and a reload.
import { api } from "../api";
import { h, replace } from "../dom";
import { count, moment } from "../format";
import { action, badge, card, poll } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const config: View = {
  id: "config", key: "f", title: () => t("Configuration"), needs: ["POST /reload"],
  show(place, stop) {
    const state = h("div", { "aria-live": "polite" });
    const outcome = h("div", { "aria-live": "polite" });
    const again = poll(stop, 5, async () => {
      const found = await api("GET", "/status", { signal: stop });
      replace(state, h("dl", { class: "facts" },
        h("dt", {}, t("File")), h("dd", {}, h("code", {}, found.source)),
        h("dt", {}, t("State")), h("dd", {}, found.last_reload_failure ? badge("bad", t("the last reload failed")) : badge("good", t("in force"))),
        h("dt", {}, t("Reloads")), h("dd", {}, count(found.reloads)),
        h("dt", {}, t("Server started")), h("dd", {}, moment(found.started))),
        found.last_reload_failure ? h("pre", { class: "diff", tabindex: 0 }, found.last_reload_failure) : null);
    });
    const reload = action({
      label: t("Reload"), title: t("Reload"), text: t("The file is loaded again; one with mistakes changes nothing."),
      run: async () => {
        const done = await api("POST", "/reload", { body: {} });
        replace(outcome, h("h3", {}, t("The last reload")),
          done.changes.length === 0 ? h("p", {}, t("Nothing has changed.")) : h("ul", {}, done.changes.map((one: string) => h("li", {}, one))),
          done.warnings ? h("pre", { class: "diff", tabindex: 0 }, done.warnings) : null);
      },
      then: () => again(),
    });
    replace(place, card(t("In force"), state, h("p", { class: "bar" }, reload), outcome));
  },
};
