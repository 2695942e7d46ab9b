// PHP pools and their processes.
import { api } from "../api";
import { h } from "../dom";
import { bytes, count, span } from "../format";
import { badge, card, figure, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

export const php: View = {
  id: "php", key: "p", title: () => t("PHP"), needs: ["GET /status"],
  show(place, stop) {
    watch(place, stop, 2, async (signal) => {
      const pools = (await api("GET", "/status", { signal })).php as any[];
      if (pools.length === 0) return h("p", { class: "empty" }, t("The configuration has no PHP pools."));
      return pools.map((pool) => {
        const busy = pool.workers.filter((worker: any) => worker.busy).length;
        return card(pool.name,
          pool.last_error ? h("p", {}, badge("bad", t("fault")), " ", pool.last_error) : null,
          h("div", { class: "figures" },
            figure(t("Busy"), `${busy} / ${pool.workers.length}`, t("at most {count}", { count: count(pool.max_workers) })),
            figure(t("Wait"), count(pool.waiting), t("{count} found no place", { count: count(pool.queue_full + pool.queue_timed_out) })),
            figure(t("Requests"), count(pool.requests)),
            figure(t("Crashes"), count(pool.crashes), t("{count} timeouts", { count: count(pool.timeouts) }))),
          table(t("Processes of {name}", { name: pool.name }), [
            { head: t("Process"), cell: (worker: any) => String(worker.pid) },
            { head: "PHP", cell: (worker) => `${worker.php ?? "–"} ${worker.sapi ?? ""}` },
            { head: t("State"), cell: (worker) => worker.busy ? badge("warn", t("busy")) : badge("good", t("idle")) },
            { head: t("Requests"), isNumber: true, cell: (worker) => count(worker.requests) },
            { head: t("Memory"), isNumber: true, cell: (worker) => bytes(worker.memory_bytes) },
            { head: t("Age"), isNumber: true, cell: (worker) => span(worker.age_seconds) },
          ], pool.workers, t("No process runs.")));
      });
    });
  },
};
