// The parts that views are made of: tables, facts, buttons that ask, messages.
import { may } from "./api";
import { Child, h, replace } from "./dom";
import { t } from "./text";

export interface Column<T> {
  head: string;
  cell: (row: T) => Child;
  /** Whether the column has numbers, which stand at the right. */
  isNumber?: boolean;
}

/** A table with its caption; on narrow screens each row is a card. */
export function table<T>(caption: string, columns: Column<T>[], rows: T[], empty: string): HTMLElement {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  const kind = (column: Column<T>) => (column.isNumber ? "number" : null);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption, "data-scroll": caption, "data-key": `table ${caption}` },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.head)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        columns.map((column) => h("td", { class: kind(column), "data-label": column.head }, h("span", {}, column.cell(row)))))))));
}

/** Any JSON, readable: what has a name beside its value, lists of objects as tables. */
export function facts(value: any, caption: string, depth = 0): Child {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) {
    if (value.length === 0) return "–";
    if (depth < 3 && value.every((one) => one && typeof one === "object" && !Array.isArray(one))) {
      const names = [...new Set(value.flatMap((one) => Object.keys(one)))].slice(0, 12);
      return table(caption, names.map((name) => ({ head: words(name), cell: (row: any) => facts(row[name], name, depth + 1) })), value, "–");
    }
    return value.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(", ");
  }
  if (depth >= 3) return JSON.stringify(value);
  return h("dl", { class: "facts" }, Object.entries(value).map(([name, one]) => [h("dt", {}, words(name)), h("dd", {}, facts(one, words(name), depth + 1))]));
}

function words(name: string): string {
  return name.replaceAll("_", " ");
}

/** A state as a word with a colour, never by colour alone. */
export function badge(kind: "good" | "warn" | "bad" | "off", text: string): HTMLElement {
  return h("span", { class: `badge ${kind}` }, text);
}

export function card(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** One number with its name. */
export function figure(name: string, value: string, more: Child = null, tone: string | null = null): HTMLElement {
  return h("div", { class: "figure" }, h("span", { class: "name" }, name), h("strong", { class: tone }, value), more ? h("small", {}, more) : null);
}

const region = h("div", { class: "messages", role: "status", "aria-live": "polite" });
const alarms = h("div", { class: "messages", role: "alert" });

export function messages(): HTMLElement {
  return h("div", { class: "toasts" }, region, alarms);
}

/** Removes what was said to somebody else. */
export function forget() {
  region.replaceChildren();
  alarms.replaceChildren();
}

/** Says what happened, also to screen readers. */
export function say(text: string, isFault = false) {
  const one: HTMLElement = h("div", { class: isFault ? "toast bad" : "toast" }, text,
    h("button", { class: "plain", "aria-label": t("Close"), click: () => one.remove() }, "×"));
  (isFault ? alarms : region).appendChild(one);
  if (!isFault) setTimeout(() => one.remove(), 6000);
}

export function fault(error: unknown) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  say(error instanceof Error ? error.message : String(error), true);
}

/** What to show instead of what the server did not say. */
export function failure(error: unknown): HTMLElement {
  return h("p", { class: "empty bad failure" }, error instanceof Error ? error.message : String(error));
}

export interface Field {
  name: string;
  label: string;
  value?: string;
  required?: boolean;
  options?: [string, string][];
  kind?: string;
  hint?: string;
}

/** Asks before something is done; the values of the fields, or `null`. */
export function ask(title: string, text: string, verb: string, fields: Field[] = [], isDanger = false, more: Child = null): Promise<Record<string, string> | null> {
  return new Promise((resolve) => {
    let result: Record<string, string> | null = null;
    const inputs = fields.map((field) => {
      const attributes = { name: field.name, required: !!field.required, id: `field-${field.name}` };
      const input = field.options
        ? h("select", attributes, field.options.map(([value, label]) => h("option", { value, selected: value === field.value }, label)))
        : h("input", { ...attributes, type: field.kind ?? "text", value: field.value ?? "", autocomplete: "off", spellcheck: "false" });
      return h("p", { class: "field" }, h("label", { for: `field-${field.name}` }, field.label), input, field.hint ? h("small", {}, field.hint) : null);
    });
    const form = h("form", { method: "dialog" }, h("h2", { id: "question" }, title), text ? h("p", {}, text) : null, more, inputs,
      h("p", { class: "actions" },
        h("button", { type: "button", click: () => dialog.close() }, t("Cancel")),
        h("button", { class: isDanger ? "danger" : "primary" }, verb)));
    form.addEventListener("submit", () => {
      result = {};
      for (const [name, value] of new FormData(form)) result[name] = String(value);
    });
    const dialog: HTMLDialogElement = h("dialog", { "aria-labelledby": "question", close: () => { dialog.remove(); resolve(result); } }, form);
    document.body.appendChild(dialog);
    dialog.showModal();
  });
}

export interface Action {
  label: string;
  role?: "operate" | "configure";
  isDanger?: boolean;
  title: string;
  text: string;
  fields?: Field[];
  run: (values: Record<string, string>) => Promise<string | void>;
  then?: () => void;
}

/** A button that asks, acts and says what came of it. Who may not has a button that says so. */
export function action(one: Action): HTMLElement {
  const allowed = may(one.role ?? "operate");
  const button: HTMLButtonElement = h("button", {
    class: one.isDanger ? "small danger" : "small",
    "data-key": `${one.label} ${one.title}`,
    "aria-disabled": allowed ? null : "true",
    title: allowed ? null : t("Your role does not permit this."),
    click: async () => {
      if (!allowed) return say(t("Your role does not permit this."), true);
      const values = await ask(one.title, one.text, one.label, one.fields, one.isDanger);
      if (!values) return;
      button.disabled = true;
      try {
        say((await one.run(values)) || t("Done."));
        one.then?.();
      } catch (error) {
        fault(error);
      } finally {
        button.disabled = false;
      }
    },
  }, one.label);
  return button;
}

/** Repeats `read` every `seconds` while the view is shown and the page is visible. Returns what reads at once. */
export function poll(stop: AbortSignal, seconds: number, read: () => Promise<void>): () => void {
  let timer = 0;
  let isReading = false;
  const turn = async () => {
    clearTimeout(timer);
    if (stop.aborted || isReading) return;
    isReading = true;
    if (!document.hidden) await read().catch(() => {});
    isReading = false;
    if (!stop.aborted) timer = window.setTimeout(turn, seconds * 1000);
  };
  stop.addEventListener("abort", () => clearTimeout(timer));
  void turn();
  return () => void turn();
}

/** A view that shows what the server says, again and again; what fails is said in its place. */
export function watch(place: HTMLElement, stop: AbortSignal, seconds: number, read: (signal: AbortSignal) => Promise<Child>): () => void {
  place.setAttribute("aria-busy", "true");
  return poll(stop, seconds, async () => {
    try {
      const shown = await read(stop);
      // What somebody selects or asks about does not vanish under the hand.
      if (!stop.aborted && !(getSelection()?.toString() && place.contains(getSelection()!.anchorNode))) replace(place, shown);
    } catch (error) {
      if (!stop.aborted) replace(place, failure(error));
    }
    place.removeAttribute("aria-busy");
  });
}
