// The configuration: an editor with the check inline, the diff before a change is applied, the change being tried, and the versions.
import { api, ApiError, exchange, may } from "../api";
import { Child, h, replace } from "../dom";
import { moment, percent, span } from "../format";
import { action, ask, badge, card, failure, fault, poll, say, table, watch } from "../parts";
import { t } from "../text";
import type { View } from "../views";

/** Lines of a diff with the colours of what they do, and the signs for those who do not see them. */
function diffLines(text: string): Child {
  if (!text) return h("p", { class: "empty" }, t("Nothing changes."));
  return h("pre", { class: "diff", tabindex: 0 }, text.split("\n").map((line) =>
    h("span", { class: /^(@|--- |\+\+\+ )/.test(line) ? "place" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : null }, `${line}\n`)));
}

function diffOf(value: any): Child {
  return diffLines(Array.isArray(value) ? value.join("\n") : typeof value === "string" ? value : value ? JSON.stringify(value, null, 1) : "");
}

/** What is known of the change being tried. */
function tried(change: any, again: () => void): Child {
  if (!change || !change.id || !["trying", "tried", "watching", "applied"].includes(String(change.state)) || change.seconds_left === null) return null;
  const share = (one: any) => percent(one?.error_share);
  return h("section", { class: "card trying", "aria-label": t("A change is being tried") },
    h("h2", {}, t("A change is being tried")),
    h("p", {}, t("It is rolled back by itself in {time}, unless it is confirmed.", { time: span(change.seconds_left) })),
    h("p", {}, t("Server errors before: {before}; now: {now}", { before: share(change.before), now: share(change.now) })),
    h("p", { class: "actions" },
      action({ label: t("Roll back"), role: "configure", isDanger: true, title: t("Roll back"), text: t("The configuration from before is in force again."), run: () => api("POST", "/config/change/rollback", { body: {} }).then(() => t("The change is rolled back.")), then: again }),
      action({ label: t("Confirm"), role: "configure", title: t("Confirm"), text: t("The change stays."), run: () => api("POST", "/config/change/confirm", { body: {} }).then(() => t("The change is confirmed.")), then: again })));
}

export const config: View = {
  id: "config", key: "f", title: () => t("Configuration"),
  show(place, stop) {
    const trial = h("div", { "aria-live": "polite" });
    const editor = h("div");
    const versions = h("div");
    const reload = action({
      label: t("Reload"), title: t("Reload"), text: t("The file is loaded again; one with mistakes changes nothing."),
      run: async () => {
        const done = await api("POST", "/reload", { body: {} });
        return [t("Done."), ...(done?.changes ?? []), done?.warnings].filter(Boolean).join(" ");
      },
      then: () => void loadText(),
    });
    replace(place, h("p", { class: "bar" }, reload), trial, editor, card(t("Versions"), versions));
    let version = "";
    const readTrial = poll(stop, 1, async () => {
      try {
        replace(trial, tried(await api("GET", "/config/change", { signal: stop }), () => readTrial()));
      } catch (error) {
        replace(trial);
        // A server without the configuration API is not asked every second.
        if (error instanceof ApiError && error.isMissing) await new Promise((done) => setTimeout(done, 10000));
      }
    });
    const loadText = async () => {
      let found: any;
      try {
        const { body, response } = await exchange("GET", "/config", { signal: stop });
        found = body;
        version = response.headers.get("etag") ?? `"${found.version}"`;
      } catch (error) {
        if (!stop.aborted) replace(editor, failure(error, t("its configuration")));
        return;
      }
      const gutter = h("pre", { class: "gutter", "aria-hidden": "true" });
      const area = h("textarea", { id: "config-text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: 24, "aria-describedby": "mistakes", readonly: !may("configure") });
      area.value = found.text;
      const mistakes = h("div", { id: "mistakes", role: "status", "aria-live": "polite" });
      let marked = new Map<number, string>();
      const number = () => {
        replace(gutter, area.value.split("\n").map((_, index) => h("span", { class: marked.get(index + 1) ?? null }, `${index + 1}\n`)));
        gutter.scrollTop = area.scrollTop;
      };
      let checked = 0;
      const check = async (): Promise<any> => {
        const turn = ++checked;
        const answer = await api("POST", "/config/check", { body: { text: area.value }, signal: stop });
        if (turn !== checked) return answer;
        const list = (answer.mistakes ?? []) as any[];
        marked = new Map(list.map((one) => [one.line, one.severity === "warning" ? "warn" : "bad"]));
        number();
        replace(mistakes, list.length === 0 ? h("p", {}, badge("good", t("no mistakes"))) : h("ul", { class: "mistakes" }, list.map((one) => h("li", {},
          h("button", { type: "button", class: "plain", click: () => jump(one.line, one.column) }, one.line ? t("line {line}", { line: one.line }) : t("somewhere")),
          " ", badge(one.severity === "warning" ? "warn" : "bad", one.severity === "warning" ? t("warning") : t("mistake")), " ", one.message, one.hint ?? one.help ? h("small", {}, ` ${one.hint ?? one.help}`) : null))));
        return answer;
      };
      const jump = (line: number, column: number) => {
        const lines = area.value.split("\n");
        const at = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + Math.max(0, (column ?? 1) - 1);
        area.focus();
        area.setSelectionRange(at, at);
        area.scrollTop = Math.max(0, (line - 6) * 20);
      };
      let timer = 0;
      area.addEventListener("input", () => {
        number();
        clearTimeout(timer);
        timer = window.setTimeout(() => check().catch(fault), 500);
      });
      area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
      const apply = async () => {
        const answer = await check();
        if ((answer.mistakes ?? []).some((one: any) => one.severity !== "warning")) return say(t("The configuration has mistakes."), true);
        const preview = h("div", {}, diffOf(answer.diff));
        const asked = ask(t("Apply this change?"), t("It is tried: rolled back by itself if errors become more, or if nobody confirms it in time."), t("Apply"), [
          { name: "seconds", label: t("Try for"), value: "60", options: [["30", span(30)], ["60", span(60)], ["300", span(300)], ["", t("apply at once, without a trial")]] },
          { name: "note", label: t("Note for the history"), required: false },
          { name: "write", label: t("Write it to the file"), value: "yes", options: [["yes", t("yes")], ["", t("no")]] },
        ]);
        document.querySelector("dialog[open] form p")?.after(preview);
        const values = await asked;
        if (!values) return;
        await api("PUT", "/config", {
          body: { text: area.value, ...(values.note ? { note: values.note } : {}), ...(values.seconds ? { try_seconds: Number(values.seconds) } : {}), write: values.write === "yes" },
          headers: { "If-Match": version },
        });
        say(values.seconds ? t("The change is being tried. Confirm it above.") : t("The change is applied."));
        readTrial();
        await loadText();
        readVersions();
      };
      const submit = (event: Event) => {
        event.preventDefault();
        apply().catch((error) => {
          if (error instanceof ApiError && (error.status === 409 || error.status === 412)) say(t("Somebody else has changed the configuration in the meantime. Copy your text, load it anew and apply your change again."), true);
          else fault(error);
        });
      };
      replace(editor, card(t("Configuration"),
        h("p", { class: "minor" }, t("Secrets are hidden, and stay as they are."), " ", (found.files ?? []).join(", ")),
        h("form", { submit },
          h("label", { for: "config-text", class: "hidden" }, t("Text of the configuration")),
          h("div", { class: "editor" }, gutter, area), mistakes,
          h("p", { class: "actions" },
            h("button", { type: "button", click: () => void loadText() }, t("Load anew")),
            h("button", { type: "button", click: () => check().catch(fault) }, t("Check")),
            h("button", { class: "primary", disabled: !may("configure") }, t("Apply…"))))));
      number();
    };
    void loadText();
    const readVersions = watch(versions, stop, 15, t("a history of its configuration"), async (signal) => {
      const found = await api("GET", "/config/versions", { signal });
      const list = (Array.isArray(found) ? found : found.versions) as any[];
      const id = (one: any) => String(one.version ?? one.n ?? one.id);
      return table(t("Versions"), [
        { head: t("Version"), cell: (one: any) => id(one) }, { head: t("Time"), cell: (one) => moment(one.time ?? one.when) }, { head: t("Who"), cell: (one) => one.who ?? "–" },
        { head: t("Note"), cell: (one) => one.note ?? "–" },
        { head: t("Action"), cell: (one) => h("span", { class: "buttons" },
          h("button", { class: "small", "data-key": `show ${id(one)}`, click: async () => {
            try {
              const whole = await api("GET", `/config/versions/${encodeURIComponent(id(one))}`);
              const shown = ask(t("Version {version}", { version: id(one) }), "", t("Close"));
              document.querySelector("dialog[open] form p")?.after(h("div", {}, diffOf(whole.diff ?? whole.text)));
              await shown;
            } catch (error) { fault(error); }
          } }, t("Show")),
          action({
            label: t("Restore"), role: "configure", title: t("Version {version}", { version: id(one) }), text: t("This version is tried and, once confirmed, in force again."),
            run: () => api("POST", `/config/versions/${encodeURIComponent(id(one))}/restore`, { body: {} }).then(() => undefined), then: () => { readTrial(); void loadText(); readVersions(); },
          })) },
      ], list, t("There are no versions yet."));
    });
  },
};
