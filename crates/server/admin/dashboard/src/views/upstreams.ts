// The upstream groups as pictures: the server at the left, each node at the right with its state, load and latency.
import { api } from "../api";
import { h, svg } from "../dom";
import { count, percent, span, time } from "../format";
import { action, badge, card, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

function kind(node: any): "good" | "warn" | "bad" | "off" {
  if (node.admin === "down") return "off";
  if (node.admin === "drain" || String(node.state).startsWith("starting") || node.state === "probing") return "warn";
  return node.state === "in" ? "good" : "bad";
}

function stateText(node: any): string {
  if (node.admin === "down") return t("taken out");
  if (node.admin === "drain") return t("drains");
  if (node.state === "in") return t("in service");
  if (node.state === "probing") return t("is tried with one request");
  const starting = /^starting, (.*)$/.exec(node.state);
  if (starting) return t("starts, {share}", { share: starting[1] });
  const left = node.seconds_left === null || node.seconds_left === undefined ? "" : `, ${span(node.seconds_left)}`;
  return `${outText(node.state)}${left}`;
}

/** Why a node is out. */
function outText(state: string): string {
  switch (state) {
    case "out, its checks fail": return t("out, its checks fail");
    case "out, its breaker is open": return t("out, its breaker is open");
    case "out, it is ejected": return t("out, it is ejected");
    case "out, requests failed": return t("out, requests failed");
    default: return state;
  }
}

function failures(node: any): number {
  return Object.values(node.failures ?? {}).reduce<number>((sum, value) => sum + Number(value), 0);
}

function short(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function picture(group: any): SVGElement {
  // On a phone, the same letters need a picture that is not as wide.
  const isNarrow = innerWidth < 640;
  const [width, hub, left, letters] = isNarrow ? [330, 54, 92, 32] : [560, 110, 262, 46];
  const row = 46;
  const height = Math.max(1, group.nodes.length) * row + 8;
  const most = Math.max(1, ...group.nodes.map((node: any) => node.requests));
  const middle = height / 2;
  const drawn = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, class: "map", role: "img",
    "aria-label": group.nodes.map((node: any) => `${node.name}: ${stateText(node)}`).join("; "),
  }, svg("rect", { x: 2, y: middle - 18, width: hub, height: 36, rx: 8, class: "hub" }), svg("text", { x: 2 + hub / 2, y: middle + 5, "text-anchor": "middle", class: "hub-name" }, "Apus"));
  group.nodes.forEach((node: any, index: number) => {
    const y = 4 + index * row + row / 2;
    const tone = kind(node);
    const between = (hub + 2 + left) / 2;
    const facts = [stateText(node), time(node.latency_seconds), ...(isNarrow ? [] : [t("{count} in flight", { count: count(node.in_flight) })])].join(" · ");
    drawn.append(
      svg("path", {
        d: `M${hub + 2} ${middle} C ${between} ${middle}, ${between} ${y}, ${left} ${y}`, class: `edge ${tone}`, "stroke-width": (1.5 + 4.5 * node.requests / most).toFixed(1),
      }),
      svg("rect", { x: left, y: y - 18, width: width - left - 4, height: 36, rx: 8, class: `node ${tone}` }),
      svg("circle", { cx: left + 16, cy: y, r: 5, class: `dot ${tone}` }),
      svg("text", { x: left + 30, y: y - 2 }, short(node.name, letters - 8)),
      svg("text", { x: left + 30, y: y + 13, class: "minor" }, short(facts, letters)));
  });
  return drawn;
}

export const upstreams: View = {
  id: "upstreams", key: "u", title: () => t("Upstreams"), needs: ["GET /upstreams"],
  show(place, stop) {
    const again = watch(place, stop, 2, async (signal) => {
      const groups = (await api("GET", "/upstreams", { signal })).upstreams as any[];
      if (groups.length === 0) return h("p", { class: "empty" }, t("The configuration has no upstream groups."));
      const change = (group: any, node: any, state: string, label: string, text: string, isDanger = false) => node.admin === state ? null : action({
        label, isDanger, title: `${group.name}: ${node.name}`, text,
        run: () => api("POST", "/upstreams", { body: { group: group.name, node: node.name, state } }).then(() => undefined), then: () => again(),
      });
      return groups.map((group) => card(group.name,
        h("p", { class: "minor" }, t("{requests} requests, {retries} retries, {waiting} wait, {none} found no node", {
          requests: count(group.requests), retries: count(group.retries), waiting: count(group.waiting), none: count(group.no_node),
        })),
        picture(group),
        table(t("Nodes of {name}", { name: group.name }), [
          { head: t("Node"), cell: (node: any) => [node.name, node.backup ? ` (${t("backup")})` : null] },
          { head: t("State"), cell: (node) => badge(kind(node), stateText(node)) },
          { head: t("Requests"), isNumber: true, cell: (node) => count(node.requests) },
          { head: t("Failures"), isNumber: true, cell: (node) => node.requests > 0 ? `${count(failures(node))} (${percent(failures(node) / node.requests)})` : count(failures(node)) },
          { head: t("Latency"), isNumber: true, cell: (node) => time(node.latency_seconds) },
          { head: t("Last check"), cell: (node) => node.last_check ? (node.last_check.fault ?? t("good, {time} ago", { time: span(node.last_check.seconds_ago) })) : "–" },
          {
            head: t("Action"), cell: (node) => h("span", { class: "buttons" },
              change(group, node, "up", t("Up"), t("The node gets requests again.")),
              change(group, node, "drain", t("Drain"), t("The node gets no new clients; those with its cookie stay, and requests in flight end.")),
              change(group, node, "down", t("Down"), t("The node gets no requests at all from now on."), true)),
          },
        ], group.nodes, t("There are no nodes."))));
    });
  },
};
