// The configuration: what is in force, an editor that finds mistakes while one writes, the change that is tried, and the versions.
import { api, ApiError, may, offers } from "../api";
import { Child, h, replace } from "../dom";
import { count, moment, percent, span } from "../format";
import { action, ask, badge, card, failure, fault, poll, say, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** Lines of a difference, with their signs for those who do not see the colours. */
function difference(text: string): Child {
  if (!text) return h("p", { class: "empty" }, t("Nothing changes."));
  const kind = (line: string) => (/^(@|--- |\+\+\+ )/.test(line) ? "place" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : null);
  return h("pre", { class: "diff", tabindex: 0 }, text.split("\n").map((line) => h("span", { class: kind(line) }, `${line}\n`)));
}

/** How long a change is tried. */
function trialTimes(): [string, string][] {
  return [["60", span(60)], ["300", span(300)], ["1800", span(1800)], ["0", t("not at all: it is kept at once")]];
}

function trialFields() {
  return [
    { name: "seconds", label: t("Try it for"), value: "60", options: trialTimes() },
    { name: "keep", label: t("When nobody confirms it in time"), value: "", options: [["", t("the version before comes back")], ["yes", t("it is kept, unless errors have become more")]] as [string, string][] },
    { name: "write", label: t("When it is kept"), value: "", options: [["", t("the file stays, and has the old one after a restart")], ["yes", t("it is written to the file")]] as [string, string][] },
    { name: "note", label: t("Note for the list of versions") },
  ];
}

function terms(values: Record<string, string>) {
  return { try_seconds: Number(values.seconds), keep: values.keep === "yes", write: values.write === "yes", ...(values.note ? { note: values.note } : {}) };
}

/** What the reload or the change has done. */
function outcomeOf(done: any): string {
  return [...(done.changes ?? []), ...(done.warnings ? [t("There are warnings.")] : [])].join("; ") || t("Nothing has changed.");
}

/** The change that is tried, or what became of the last one. */
function trialCard(trial: any, again: () => void): Child {
  if (!trial) return null;
  const sites = trial.sites.length === 0 ? h("p", { class: "minor" }, t("No requests yet.")) : table(t("Requests since the change"), [
    { head: t("Site"), cell: (one: any) => one.site },
    { head: t("Requests"), isNumber: true, cell: (one) => count(one.requests) },
    { head: t("Server errors"), isNumber: true, cell: (one) => h("span", { class: one.share > one.share_before ? "bad" : null }, `${count(one.failures)} (${percent(one.share)})`) },
    { head: t("before"), isNumber: true, cell: (one) => percent(one.share_before) },
  ], trial.sites, "");
  if (trial.outcome) {
    const [tone, word] = trial.outcome === "kept" ? ["good", t("kept")] as const : trial.outcome === "rolled_back" ? ["bad", t("rolled back")] as const : ["off", t("replaced by a reload")] as const;
    return h("p", {}, t("The last change, version {version}:", { version: trial.version }), " ", badge(tone, word), trial.reason ? ` ${trial.reason}` : null);
  }
  return h("section", { class: "card trying", "aria-label": t("A change is being tried") },
    h("h2", {}, t("Version {version} is being tried", { version: trial.version })),
    h("p", {}, trial.keep ? t("It is kept in {time}, unless errors become more.", { time: span(trial.seconds_left) })
      : t("Version {before} comes back in {time}, unless somebody confirms this one.", { before: trial.before, time: span(trial.seconds_left) })),
    trial.reason ? h("p", { class: "bad" }, trial.reason) : null, sites,
    h("p", { class: "actions" },
      action({ label: t("Roll back"), role: "configure", isDanger: true, title: t("Roll back"), text: t("The version before is in force again."), run: () => api("POST", "/config/rollback", { body: {} }).then(() => t("The change is rolled back.")), then: again }),
      action({ label: t("Confirm"), role: "configure", title: t("Confirm"), text: t("The change stays."), run: () => api("POST", "/config/confirm", { body: {} }).then(() => t("The change is kept.")), then: again })));
}

/** The editor of the text, which checks it while one writes. */
class Editor {
  readonly element = h("div");
  private readonly gutter = h("pre", { class: "gutter", "aria-hidden": "true" });
  private readonly area = h("textarea", { id: "config-text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: 24, "aria-describedby": "mistakes" });
  private readonly mistakes = h("div", { id: "mistakes", role: "status", "aria-live": "polite" });
  private marked = new Map<number, string>();
  private version = 0;
  private file = "";
  private original = "";
  private checks = 0;
  private timer = 0;

  constructor(private readonly stop: AbortSignal, private readonly changed: () => void) {
    this.area.addEventListener("input", () => {
      this.number();
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.check().catch(fault), 500);
    });
    this.area.addEventListener("scroll", () => { this.gutter.scrollTop = this.area.scrollTop; });
    void this.load();
  }

  /** Loads the text in force; `isRefresh`: unless somebody has begun to change it. */
  async load(isRefresh = false) {
    let found: any;
    try {
      found = await api("GET", "/config", { signal: this.stop });
    } catch (error) {
      if (!this.stop.aborted) replace(this.element, failure(error));
      return;
    }
    if (isRefresh && this.area.value !== this.original) return;
    this.version = found.version;
    if (found.text === null) return replace(this.element, h("p", { class: "empty" }, t("The server serves a folder, and has no configuration file.")));
    this.file = found.file ?? "";
    this.area.value = found.text;
    // A text area has its own line ends.
    this.original = this.area.value;
    this.marked = new Map();
    replace(this.mistakes);
    const included = found.files.length > 1 ? t("With {files}.", { files: found.files.slice(1).map((one: any) => one.path).join(", ") }) : "";
    replace(this.element, card(t("Version {version}", { version: found.version }),
      found.is_in_file ? null : h("p", {}, badge("warn", t("not in the file")), " ", t("A restart or a reload brings back what the file says.")),
      h("p", { class: "minor" }, [t("Secrets are hidden, and stay as they are."), included].join(" ")),
      h("form", { submit: (event: Event) => { event.preventDefault(); this.apply().catch((error) => this.refused(error)); } },
        h("label", { for: "config-text", class: "hidden" }, t("Text of the configuration")),
        h("div", { class: "editor" }, this.gutter, this.area), this.mistakes,
        h("p", { class: "actions" },
          h("button", { type: "button", "data-key": "load", click: () => void this.load() }, t("Load anew")),
          h("button", { type: "button", "data-key": "check", click: () => this.check().catch(fault) }, t("Check")),
          h("button", { class: "primary", "data-key": "try" }, t("Try…"))))));
    this.number();
  }

  private number() {
    const lines = this.area.value.split("\n");
    replace(this.gutter, lines.map((_, index) => h("span", { class: this.marked.get(index + 1) ?? null }, `${index + 1}\n`)));
    this.gutter.scrollTop = this.area.scrollTop;
  }

  private async check(): Promise<any> {
    const turn = ++this.checks;
    const found = await api("POST", "/config/check", { body: { text: this.area.value }, signal: this.stop });
    if (turn !== this.checks) return found;
    const tone = (one: any) => (one.severity === "error" ? "bad" : "warn");
    this.marked = new Map(found.mistakes.filter((one: any) => one.file === this.file).map((one: any) => [one.line, tone(one)]));
    this.number();
    replace(this.mistakes, found.valid ? h("p", {}, badge("good", t("no mistakes"))) : null, found.mistakes.length === 0 ? null : h("ul", { class: "mistakes" }, found.mistakes.map((one: any) => h("li", {},
      one.file === this.file ? h("button", { type: "button", class: "plain", click: () => this.jump(one.line, one.column) }, t("line {line}", { line: one.line })) : h("code", {}, `${one.file}:${one.line}`),
      " ", badge(tone(one), one.severity === "error" ? t("mistake") : t("warning")), ` ${one.message}`, one.label ? `: ${one.label}` : null, one.help ? h("small", {}, ` ${one.help}`) : null))));
    return found;
  }

  private jump(line: number, column: number) {
    const before = this.area.value.split("\n").slice(0, line - 1);
    const at = before.reduce((sum, one) => sum + one.length + 1, 0) + Math.max(0, column - 1);
    this.area.focus();
    this.area.setSelectionRange(at, at);
    this.area.scrollTop = Math.max(0, (line - 6) * 20);
  }

  private async apply() {
    const found = await this.check();
    if (!found.valid) return say(t("The configuration has mistakes."), true);
    const values = await ask(t("Try this change?"), found.changes.join("; ") || t("Nothing changes."), t("Try"), trialFields(), false, difference(found.diff));
    if (!values) return;
    const done = await api("PUT", "/config", { body: { text: this.area.value, version: this.version, ...terms(values) } });
    say(done.trial?.outcome === null ? t("The change is being tried. Confirm it above.") : outcomeOf(done));
    await this.load();
    this.changed();
  }

  refused(error: unknown) {
    if (error instanceof ApiError && error.status === 409) say(`${error.message}. ${t("Copy your text, load the one in force anew, and make your change again.")}`, true);
    else fault(error);
  }

  /** Brings back a version. */
  async restore(id: number, values: Record<string, string>): Promise<string> {
    const done = await api("POST", "/config/restore", { body: { id, version: this.version, ...terms(values) } });
    return done.trial?.outcome === null ? t("The change is being tried. Confirm it above.") : outcomeOf(done);
  }
}

function versionState(one: any): Child {
  if (one.in_force) return badge("good", t("in force"));
  return one.rolled_back ? [badge("bad", t("rolled back")), " ", one.rolled_back] : "–";
}

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
    let loaded = () => {};
    const reload = action({
      label: t("Reload"), title: t("Reload"), text: t("The file is loaded again; one with mistakes changes nothing."),
      run: async () => {
        const done = await api("POST", "/reload", { body: {} });
        replace(outcome, h("h3", {}, t("The last reload")),
          done.changes.length === 0 ? h("p", {}, t("Nothing has changed.")) : h("ul", {}, done.changes.map((one: string) => h("li", {}, one))),
          done.warnings ? h("pre", { class: "diff", tabindex: 0 }, done.warnings) : null);
      },
      then: () => { again(); loaded(); },
    });
    const logLevel = offers("PUT /log-level") ? action({
      label: t("Level of the log…"), title: t("Level of the log"), text: t("The server's log says more or less for some time, then as much as the configuration says."),
      fields: [
        { name: "level", label: t("Level"), value: "debug", options: [["", t("as the configuration says")], ...["error", "warn", "info", "debug", "trace"].map((one): [string, string] => [one, one])] },
        { name: "seconds", label: t("For how long"), value: "600", options: [["60", span(60)], ["600", span(600)], ["3600", span(3600)]] },
      ],
      run: (values) => api("PUT", "/log-level", { body: values.level ? { level: values.level, seconds: Number(values.seconds) } : {} }).then((done) => t("The level is {level}.", { level: done.level })),
    }) : null;
    const inForce = card(t("In force"), state, h("p", { class: "bar" }, reload, logLevel), outcome);
    if (!may("configure") || !offers("GET /config")) return replace(place, inForce);

    const trial = h("div", { "aria-live": "polite" });
    const versions = h("div");
    const renew = () => { readTrial(); readVersions(); again(); };
    const editor = new Editor(stop, renew);
    let last: string | null = null;
    const readTrial = poll(stop, 1, async () => {
      const found = (await api("GET", "/config/trial", { signal: stop })).trial;
      replace(trial, trialCard(found, () => { void editor.load(true); renew(); }));
      // The text is another one when a change has ended.
      const now = found && `${found.version} ${found.outcome}`;
      if (last !== null && last !== now && found?.outcome) renew();
      last = now ?? "";
    });
    loaded = () => { void editor.load(true); renew(); };
    const readVersions = watch(versions, stop, 15, async (signal) => table(t("Versions"), [
      { head: t("Version"), isNumber: true, cell: (one: any) => one.id }, { head: t("Time"), cell: (one) => moment(one.time) }, { head: t("Who"), cell: (one) => one.by },
      { head: t("Note"), cell: (one) => h("span", { class: "long" }, one.note ?? "–") }, { head: t("State"), cell: versionState },
      { head: t("Action"), cell: (one) => h("span", { class: "buttons" },
        h("button", { class: "small", "data-key": `show ${one.id}`, click: async () => {
          try {
            const whole = await api("GET", `/config/version?id=${one.id}`);
            await ask(t("Version {version}", { version: one.id }), t("What it changed:"), t("Close"), [], false, difference(whole.diff));
          } catch (error) { fault(error); }
        } }, t("Show")),
        one.in_force ? null : action({
          label: t("Restore…"), role: "configure", title: t("Version {version}", { version: one.id }), text: t("This version is in force again, and tried like a change."), fields: trialFields(),
          run: (values) => editor.restore(one.id, values), then: () => { void editor.load(); renew(); },
        })) },
    ], (await api("GET", "/config/versions", { signal })).versions, t("There are no versions yet.")));
    replace(place, trial, editor.element, inForce, card(t("Versions"), versions));
  },
};
