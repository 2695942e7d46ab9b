// Opens each view of the mock server in Chromium, as a person with a new log-in would: `npm run browse -- [folder for pictures]`.
// Fails when the console has an error, when markup in data becomes elements, when a view is wider than the screen, or when a form field
// or button has no name.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const VIEWS = ["overview", "overview/24h", "traffic", "requests", "explain/4bf92f3577b34da6a3ce929d0e0e4736", "sites", "upstreams", "cache", "php", "certificates", "bans", "limits", "rules", "config", "audit"];
const MODES = [
  { name: "light", width: 1280, height: 900, theme: "light", language: "en" },
  { name: "dark", width: 1280, height: 900, theme: "dark", language: "en" },
  { name: "phone", width: 360, height: 780, theme: "light", language: "en" },
  { name: "chinese", width: 1280, height: 900, theme: "dark", language: "zh" },
];
const folder = process.argv.find((argument, index) => index > 1 && !argument.startsWith("--"));
const only = process.env.ONLY?.split(",");

const mock = spawn(process.execPath, ["mock.mjs", ...process.argv.filter((one) => one.startsWith("--"))], { cwd: import.meta.dirname, env: { ...process.env, PORT: "0" }, stdio: ["ignore", "pipe", "inherit"] });
const origin = await new Promise((resolve) => mock.stdout.once("data", (text) => resolve(String(text).split("/#")[0])));
const profile = mkdtempSync(join(tmpdir(), "dashboard-"));
const chromium = spawn("chromium", ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", `--user-data-dir=${profile}`], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });

const waiting = new Map();
const faults = [];
let rest = "";
let number = 0;
chromium.stdio[4].on("data", (part) => {
  rest += part;
  const messages = rest.split("\0");
  rest = messages.pop();
  for (const message of messages.map((one) => JSON.parse(one))) {
    if (message.id) waiting.get(message.id)?.(message);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") faults.push(`console: ${message.params.entry.text} ${message.params.entry.url ?? ""}`);
    if (message.method === "Runtime.consoleAPICalled" && message.params.type === "error") faults.push(`console: ${JSON.stringify(message.params.args)}`);
    if (message.method === "Runtime.exceptionThrown") faults.push(`exception: ${message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text}`);
  }
});
let sessionId;
const send = (method, params = {}) => new Promise((resolve, reject) => {
  const id = ++number;
  waiting.set(id, (message) => (message.error ? reject(new Error(`${method}: ${message.error.message}`)) : resolve(message.result)));
  chromium.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
});
const evaluate = async (expression) => {
  const found = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (found.exceptionDetails) throw new Error(found.exceptionDetails.exception?.description ?? found.exceptionDetails.text);
  return found.result.value;
};
const until = async (what, expression) => {
  for (let turn = 0; turn < 200; turn++) {
    if (await evaluate(expression).catch(() => false)) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  faults.push(`${what}: did not happen: ${await evaluate("document.body.innerText.slice(0, 300)")}`);
};

const { targetId } = await send("Target.createTarget", { url: "about:blank" });
({ sessionId } = await send("Target.attachToTarget", { targetId, flatten: true }));
for (const domain of ["Page", "Runtime", "Log"]) await send(`${domain}.enable`);

const picture = async (name) => {
  if (!folder) return;
  const { data } = await send("Page.captureScreenshot", { format: "webp", quality: 62 });
  writeFileSync(join(folder, `${name}.webp`), Buffer.from(data, "base64"));
  const png = await send("Page.captureScreenshot", { format: "png" });
  writeFileSync(join(folder, `${name}.png`), Buffer.from(png.data, "base64"));
};

/** Edits the configuration with a mistake, mends it, applies the change and confirms it. */
async function change(mode) {
  await evaluate('location.hash = "#/config"');
  await until("the editor", "!!document.querySelector('#config-text')");
  const write = (text) => evaluate(`(() => { const area = document.querySelector("#config-text"); area.value += ${JSON.stringify(text)}; area.dispatchEvent(new Event("input")); })()`);
  await write("proxy_pass = 1\n");
  await until("the mistake", "document.querySelector('#mistakes').innerText.includes('proxy_pass') && !!document.querySelector('.gutter .bad')");
  await picture(`${mode}-config-mistake`);
  await evaluate('document.querySelector("#config-text").value = document.querySelector("#config-text").value.replace("proxy_pass = 1", "gzip = true")');
  await evaluate("document.querySelector('.editor').closest('form').requestSubmit()");
  await until("the question with the diff", "!!document.querySelector('dialog .diff .plus')");
  await picture(`${mode}-config-diff`);
  await evaluate("document.querySelector('dialog button.primary').click()");
  await until("the trial", "!!document.querySelector('.trying')");
  await evaluate("[...document.querySelectorAll('.trying button')].at(-1).click()");
  await until("the question", "!!document.querySelector('dialog[open]')");
  await evaluate("document.querySelector('dialog button.primary').click()");
  await until("the end of the trial", "!document.querySelector('.trying')");
}

for (const mode of MODES.filter((mode) => !only || only.includes(mode.name))) {
  await send("Emulation.setDeviceMetricsOverride", { width: mode.width, height: mode.height, deviceScaleFactor: 1, mobile: mode.width < 500 });
  await send("Page.navigate", { url: `${origin}/` });
  await until("the log-in", "!!document.querySelector('#password')");
  await evaluate(`localStorage.setItem("apus.theme", "${mode.theme}"); localStorage.setItem("apus.language", "${mode.language}")`);
  await send("Page.reload");
  await until("the log-in", "!!document.querySelector('#password')");
  await picture(`${mode.name}-login`);
  await evaluate("document.querySelector('#name').value = 'ana'; document.querySelector('#password').value = 'password'; document.querySelector('form button').click()");
  await until("the overview", "!!document.querySelector('nav')");
  for (const view of VIEWS) {
    await evaluate(`location.hash = "#/${view}"`);
    const id = view.split("/")[0];
    await until(`${view} in ${mode.name}`, `document.querySelector('nav [aria-current=page]')?.dataset.key === "${id}" && !document.querySelector('[aria-busy]') && !!document.querySelector('main .view > *')`);
    await new Promise((done) => setTimeout(done, /overview|requests|config|explain/.test(view) ? 2500 : 300));
    await picture(`${mode.name}-${view.replace(/\/.*(?=.{32})|\/[0-9a-f]{32}/, "").replace("/", "-")}`);
    const found = JSON.parse(await evaluate(`JSON.stringify({
      injected: [...document.querySelectorAll("body img, body script, body iframe, [onerror], [style]")].length, title: document.title,
      width: document.documentElement.scrollWidth - innerWidth,
      nameless: [...document.querySelectorAll("input, select, textarea, button")].filter((one) => !(one.labels?.length || one.textContent.trim() || one.getAttribute("aria-label"))).length,
      headings: document.querySelectorAll("h1").length, text: document.querySelector("main").innerText.length,
    })`));
    if (found.injected > 0 || found.title.includes("XSS")) faults.push(`${view} in ${mode.name}: markup of data became elements`);
    if (found.width > 0) faults.push(`${view} in ${mode.name}: ${found.width} pixels too wide`);
    if (found.nameless > 0) faults.push(`${view} in ${mode.name}: ${found.nameless} fields or buttons without a name`);
    if (found.headings !== 1) faults.push(`${view} in ${mode.name}: ${found.headings} headings of the first level`);
    if (found.text < 20) faults.push(`${view} in ${mode.name}: is empty`);
  }
  if (!process.argv.includes("--landed")) await change(mode.name);
  await evaluate("sessionStorage.clear(); location.hash = ''");
}
chromium.kill();
mock.kill();
await new Promise((done) => chromium.once("exit", done));
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(faults.length > 0 ? faults.join("\n") : "every view is as it has to be");
process.exit(faults.length > 0 ? 1 : 0);
