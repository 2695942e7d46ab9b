// A server with made-up data, to work on the dashboard without Apus: `npm run mock`, then http://127.0.0.1:9181/ (ana, password).
// Names, paths and lines have markup in them, which has to stay text. `--landed` offers only what the server of today does.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const isSmall = process.argv.includes("--landed");
const port = Number(process.env.PORT ?? 9181);
const built = (name) => readFileSync(join(import.meta.dirname, "built", name));
const POLICY = /CONTENT_POLICY: &str = "([^"]*)"/.exec(readFileSync(join(import.meta.dirname, "../src/dashboard.rs"), "utf8"))[1].replace(/\\\n\s*/g, "");
const PAGES = { "/": ["index.html", "text/html; charset=utf-8"], "/dashboard.js": ["dashboard.js", "text/javascript"], "/style.css": ["style.css", "text/css"], "/icon.svg": ["icon.svg", "image/svg+xml"] };
// `--plain`: nothing of the kind, for pictures.
const EVIL = process.argv.includes("--plain") ? "forum" : "<img src=x onerror=document.title='XSS'>";

const now = () => Math.floor(Date.now() / 1000);
const iso = (seconds) => new Date((now() + seconds) * 1000).toISOString();
const wave = (at, low, high, period) => low + (high - low) * (0.5 + 0.5 * Math.sin((at / period) * 6.283)) * (0.85 + 0.15 * Math.sin(at * 1.7));

function record(at) {
  const rate = wave(at, 600, 1900, 86400) + wave(at, 0, 300, 47);
  return {
    time: at, requests: rate, "1xx": 0, "2xx": rate * 0.9, "3xx": rate * 0.05, "4xx": rate * 0.04, "5xx": rate * (at % 50 < 6 ? 0.03 : 0.004),
    latency_p50: wave(at, 0.004, 0.007, 61), latency_p90: wave(at, 0.02, 0.035, 53), latency_p99: wave(at, 0.09, 0.2, 37),
    bytes_out: rate * 14000, bytes_in: rate * 900, connections: Math.round(wave(at, 300, 800, 300)),
  };
}

const node = (name, more) => ({
  name, address: name, backup: false, admin: "up", state: "in", seconds_left: null, in_flight: 4, requests: 120432, latency_seconds: 0.0043,
  failures: { body: 0, closed: 3, connect: 1, protocol: 0, status: 0, timed_out: 2, tls: 0 }, last_check: { seconds_ago: 2.1, fault: null }, ...more,
});
const upstreams = [
  { name: "shop/app", requests: 364000, retries: 41, hedges: 0, queued: 0, queue_full: 0, queue_timed_out: 0, no_node: 0, budget_spent: 0, reconnects: 2, copies_dropped: 0, waiting: 0, nodes: [
    node("10.0.0.11:3000", {}), node("10.0.0.12:3000", { requests: 98012, latency_seconds: 0.0061 }),
    node("10.0.0.13:3000", { admin: "drain", requests: 8011, in_flight: 1 }),
    node("10.0.0.14:3000", { state: "out, failed checks", seconds_left: 21, requests: 1200, latency_seconds: 0.8, last_check: { seconds_ago: 4, fault: `status 503 ${EVIL}` } }),
  ] },
  { name: "blog/static", requests: 11000, retries: 0, hedges: 0, queued: 0, queue_full: 0, queue_timed_out: 0, no_node: 0, budget_spent: 0, reconnects: 0, copies_dropped: 0, waiting: 0, nodes: [node("[::1]:8081", { requests: 11000, latency_seconds: 0.0009 }), node("10.0.0.20:80", { backup: true, requests: 0 })] },
];
const bans = [
  { network: "203.0.113.9/32", until: iso(3100), seconds_left: 3100, times: 2, reason: "guesses passwords" },
  { network: "2001:db8:bad::/48", until: null, seconds_left: null, times: 1, reason: `scans for ${EVIL}` },
];
const sites = ["shop", "blog", EVIL].map((name, index) => ({
  name, server_names: [index === 2 ? EVIL : `${name}.example`, `www.${name}.example`], listening: ["http://0.0.0.0:80/", "https://0.0.0.0:443/"],
  maintenance: index === 1, maintenance_until: index === 1 ? iso(1800) : null, maintenance_by_command: index === 1,
}));
const audit = [{ time: now() - 300, by: "ana from 127.0.0.1", command: "ban_add", arguments: `network=203.0.113.9 reason=${EVIL}`, error: null },
  { time: now() - 900, by: "deploy from 10.0.0.5", command: "reload", arguments: "", error: "unknown key `prox`" }];
const begun = now() - 273600;
let requests = 0;

function status() {
  requests += 1200;
  return {
    version: "0.1.0", pid: 5600, source: "/etc/apus/apus.toml", started: iso(begun - now()), uptime_seconds: now() - begun, listening: ["0.0.0.0:80", "0.0.0.0:443"], reloads: 3, last_reload_failure: null,
    totals: { accepted: 91234, requests: 48211034 + requests, bytes_in: 9e9 + requests * 900, bytes_out: 7e11 + requests * 14000, connections: 412, bad_requests: 311, handshake_failures: 92, timeouts: 44,
      stopped_reset_floods: 3, stopped_field_block_floods: 0, stopped_idle_floods: 1, stopped_reply_floods: 0, stopped_tiny_window_floods: 2, stalled_streams: 0, refused: 12, refused_for_glitches: 5, banned: 2841 },
    bans: { bans: bans.length, fault: null, lists: [], networks_of_lists: 1822, refused_requests: 2841, unlisted: 0 }, bots: [], challenges: [], counts_traffic: true, glitches: { clients: 4, counted: {} },
    cache: { hits: 912034, misses: 81203, stored: 40211, collapsed: 3122, evictions: 120, purges: 4, memory_bytes: 88e6, memory_objects: 5123, disk: null },
    certificates: [
      { names: ["shop.example", "www.shop.example"], not_after: iso(86400 * 61), expires_in_seconds: 86400 * 61, renew_at: iso(86400 * 31), issued_by: "Let's Encrypt", failures: 0, next_attempt: null, last_error: null, revoked: false, step: null, attempts: 2 },
      { names: [`${EVIL}.example`], not_after: iso(86400 * 6), expires_in_seconds: 86400 * 6, renew_at: iso(-86400), issued_by: "Let's Encrypt", failures: 3, next_attempt: iso(3600), last_error: `the authority cannot reach ${EVIL}`, revoked: false, step: null, attempts: 5 },
    ],
    limits: [{ site: "shop", location: "/api/", name: "api", key: "ip", dry_run: false, allowed: 812034, delayed: 120, refused: 3012, would_delay: 0, would_refuse: 0, quota: {} }, { site: "blog", location: "/", name: null, key: "ip", dry_run: true, allowed: 91233, delayed: 0, refused: 0, would_delay: 0, would_refuse: 12, quota: null }],
    php: [{ name: "shop", max_workers: 16, waiting: 0, listeners: 1, sockets: 3, last_error: null, requests: 81234, retries: 0, queued: 12, queue_full: 0, queue_timed_out: 1, crashes: 1, timeouts: 2, boots: 9, boot_failures: 0, recycled: 4, reloads: 3, tasks_dropped: 0,
      workers: [0, 1, 2].map((index) => ({ pid: 9001 + index, php: "8.4.11", sapi: "apus", busy: index === 0, requests: 4000 - index * 700, memory_bytes: 31e6 + index * 4e6, age_seconds: 7200 + index * 400 })) }],
    rules: [{ place: "shop", rule: 'path starts_with "/wp-" -> 404', applied: 8123, dry_run: false }, { place: "blog", rule: `user_agent contains "${EVIL}"`, applied: 12, dry_run: true }],
    upstreams, access_logs: [], maintenance: [], quotas_fault: null,
  };
}

const entry = (more, share) => ({ requests: Math.round(9000 * share), requests_at_most: Math.round(9000 * share), bytes_sent: 9e8 * share, time_seconds: 90 * share, statuses: { "1xx": 0, "2xx": 8000 * share, "3xx": 0, "4xx": Math.round(500 * share), "5xx": Math.round(40 * share) }, ...more });
const text = readFileSync(new URL("./mock.toml", import.meta.url), "utf8");
let change = null;
const check = (sent) => ({
  mistakes: sent.split("\n").flatMap((line, index) => /proxy_pass/.test(line) ? [{ severity: "error", file: "apus.toml", line: index + 1, column: 1, message: "unknown key `proxy_pass`", hint: "`proxy_pass` of nginx is here `upstream`" }] : []),
  diff: sent === text ? "" : `--- apus.toml\n+++ apus.toml\n${sent.split("\n").filter((line) => !text.split("\n").includes(line)).map((line) => `+${line}`).join("\n")}`,
});

function stream(response, name, each, milliseconds) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const timer = setInterval(() => response.write(`event: ${name}\ndata: ${JSON.stringify(each())}\n\n`), milliseconds);
  response.on("close", () => clearInterval(timer));
}

const LANDED = {
  "GET /session": () => ({ name: "ana", role: "configure", sites: null, seconds_left: 43000 }), "DELETE /session": () => ({}),
  "GET /status": status, "GET /sites": () => ({ sites }), "GET /upstreams": () => ({ upstreams }), "GET /cache": () => ({ cache: status().cache }),
  "GET /certificates": () => ({ certificates: status().certificates }), "GET /rules": () => ({ rules: status().rules }), "GET /audit": () => ({ entries: audit }),
  "GET /limits": () => ({ quotas: [{ site: "shop", location: "/api/", name: "api", key: "ip", quota: { usage: [{ key: "198.51.100.7", used: 91 }, { key: EVIL, used: 3 }] } }] }),
  "GET /bans": () => ({ bans, lists: [{ file: "/etc/apus/drop.txt", networks: 1822, fault: null }] }),
  "GET /traffic": () => ({ counting: true, seconds: 30, total: entry({}, 1), sites: [entry({ name: "shop" }, 0.8), entry({ name: EVIL }, 0.1)], upstream_nodes: [entry({ name: "10.0.0.11:3000" }, 0.5)],
    clients: [entry({ name: "198.51.100.7" }, 0.4), entry({ name: "2001:db8::7" }, 0.1)], paths: [entry({ site: "shop", path: "/api/cart" }, 0.3), entry({ site: "blog", path: `/${EVIL}` }, 0.1)] }),
  "POST /upstreams": (body) => { upstreams.find((one) => one.name === body.group).nodes.find((one) => one.name === body.node).admin = body.state; return {}; },
  "POST /cache/purge": () => ({ responses: 12, is_complete: true }), "POST /certificates/renew": () => ({ orders: 1 }),
  "POST /bans": (body) => { bans.push({ network: body.network, until: null, seconds_left: body.seconds ?? null, times: 1, reason: body.reason }); return { network: body.network }; },
  "DELETE /bans": (_, query) => { bans.splice(bans.findIndex((one) => one.network === query.get("network")), 1); return {}; },
  "POST /limits/reset": () => ({}), "PUT /maintenance": (body) => { sites.find((one) => one.name === body.site).maintenance = body.state === "on"; return { sites }; },
  "POST /reload": () => ({ changes: ["site `shop` changed"], warnings: "" }),
};
const PLANNED = {
  "GET /live": (_, __, response) => stream(response, "sample", () => record(now()), 1000),
  "GET /history": (_, query) => {
    const step = { second: 1, minute: 60, hour: 3600 }[query.get("step")];
    const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
    const at = Array.from({ length: Math.floor((to - from) / step) }, (_, index) => from + index * step);
    const series = {};
    for (const time of at) for (const [name, value] of Object.entries(record(time))) (series[name] ??= []).push(/latency|connections/.test(name) ? value : value * step);
    delete series.time;
    return { step, start: from, series, sites: {} };
  },
  "GET /requests": (_, __, response) => stream(response, "request", () => ({
    time: iso(0), request_id: "4bf92f3577b34da6a3ce929d0e0e4736", remote_addr: "198.51.100.7", site: "shop", host: "shop.example", method: "GET", uri: `/search?q=${EVIL}`,
    status: [200, 200, 304, 404, 502][Math.floor(Math.random() * 5)], bytes_sent: 5123, request_time: Math.random() / 5, user_agent: `Mozilla/5.0 ${EVIL}`,
  }), 400),
  "GET /requests/{id}": () => ({ site: "shop", location: "/api/", status: 502, rules: [], cache: { key: "GET shop.example/api", outcome: "MISS" },
    phases: [{ name: "rules", start_seconds: 0, seconds: 0.0002 }, { name: "cache", start_seconds: 0.0002, seconds: 0.0011 }, { name: "10.0.0.14:3000", start_seconds: 0.0013, seconds: 0.031 }, { name: "10.0.0.11:3000", start_seconds: 0.0323, seconds: 0.0041 }],
    attempts: [{ node: "10.0.0.14:3000", outcome: `timed out ${EVIL}`, seconds: 0.031 }, { node: "10.0.0.11:3000", outcome: "502", seconds: 0.0041 }] }),
  "GET /errors": () => ({ errors: [{ time: iso(-20), level: "error", site: "shop", message: `cannot connect to 10.0.0.14:3000 for ${EVIL}`, request: "4bf92f3577b34da6a3ce929d0e0e4736" }] }),
  "GET /config": () => ({ version: "7", text, files: ["/etc/apus/apus.toml"] }), "POST /config/check": (body) => check(body.text),
  "PUT /config": (body) => { change = body.try_seconds ? { id: "c8", state: "trying", ends: now() + body.try_seconds } : null; return { change: "c8" }; },
  "GET /config/change": () => change === null ? {} : { id: change.id, state: change.state, seconds_left: Math.max(0, change.ends - now()), before: { error_share: 0.0004 }, now: { error_share: 0.0006 } },
  "POST /config/change/confirm": () => { change = null; return {}; }, "POST /config/change/rollback": () => { change = null; return {}; },
  "GET /config/versions": () => ({ versions: [{ version: 7, time: iso(-8000), who: "ana", note: "more nodes" }, { version: 6, time: iso(-90000), who: "deploy", note: EVIL }] }),
  "GET /config/versions/{n}": () => ({ diff: '@@ [[sites.upstreams]] @@\n-nodes = [{ addr = "10.0.0.11:3000" }]\n+nodes = [{ addr = "10.0.0.11:3000" }, { addr = "10.0.0.12:3000" }]' }),
  "POST /config/versions/{n}/restore": () => ({}),
};
const OPERATIONS = isSmall ? LANDED : { ...LANDED, ...PLANNED };

function problem(response, status, detail, more = {}) {
  response.writeHead(status, { "Content-Type": "application/problem+json", ...more }).end(JSON.stringify({ title: "Problem", status, detail }));
}

createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (PAGES[pathname]) {
    const [name, type] = PAGES[pathname];
    return response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff" }).end(built(name));
  }
  if (pathname === "/status") return response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(status()));
  let sent = "";
  request.on("data", (part) => (sent += part));
  request.on("end", () => {
    const path = pathname.replace("/api/v1", "");
    const body = sent ? JSON.parse(sent) : null;
    const json = (value) => response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
    if (path === "/openapi.json") {
      const paths = {};
      for (const name of [...Object.keys(OPERATIONS), "POST /session"]) (paths[name.split(" ")[1]] ??= {})[name.split(" ")[0].toLowerCase()] = {};
      return json({ openapi: "3.1.0", paths });
    }
    if (request.method === "POST" && path === "/session") {
      return body.code || body.password === "password" ? json({ ...LANDED["GET /session"](), token: "mock" }) : problem(response, 401, "the name and the password do not belong together");
    }
    if (request.headers.authorization !== "Bearer mock") return problem(response, 401, "no known token");
    const found = Object.keys(OPERATIONS).find((name) => new RegExp(`^${name.replace(/\{[^}]*\}/, "[^/]+")}$`).test(`${request.method} ${path}`));
    if (!found) return problem(response, 404, "there is nothing at this path");
    const value = OPERATIONS[found](body, searchParams, response);
    if (value !== undefined) json(value);
  });
}).listen(port, "127.0.0.1", function () {
  console.log(`http://127.0.0.1:${this.address().port}/#code=1`);
});
