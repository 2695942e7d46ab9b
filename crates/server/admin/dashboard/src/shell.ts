// The frame around each view: navigation, language, colours, keys.
import { currentSession, logOut } from "./api";
import { Child, h, replace } from "./dom";
import { fault, messages } from "./parts";
import { load, store } from "./storage";
import { choose, language, t } from "./text";
import { views } from "./views";

const THEMES = ["auto", "light", "dark"];

function applyTheme() {
  const theme = load("theme") ?? "auto";
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
}

/** The switches of language and colours. */
export function switches(again: () => void): Child {
  applyTheme();
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  const theme = load("theme") ?? "auto";
  const names: Record<string, string> = { auto: t("Colours: system"), light: t("Colours: light"), dark: t("Colours: dark") };
  return [
    h("button", { class: "plain", "data-key": "language", lang: language() === "zh" ? "en" : "zh-CN", click: () => { choose(language() === "zh" ? "en" : "zh"); again(); } }, language() === "zh" ? "English" : "中文"),
    h("button", { class: "plain", "data-key": "theme", click: () => { store("theme", THEMES[(THEMES.indexOf(theme) + 1) % 3]); again(); } }, names[theme] ?? names.auto),
  ];
}

let stop = new AbortController();
let isBound = false;
let redraw: () => void = () => {};

export function shell(begin: () => void) {
  const session = currentSession();
  const main = h("main", { id: "main", tabindex: -1 });
  const draw = () => {
    stop.abort();
    stop = new AbortController();
    const [id, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
    const shown = views();
    const view = shown.find((one) => one.id === id) ?? shown[0];
    let argument = rest.join("/");
    try {
      argument = decodeURIComponent(argument);
    } catch {
      // What is no encoding stands for itself.
    }
    const place = h("div", { class: "view" });
    document.title = `${view.title()} · Apus`;
    replace(main, h("h1", { id: "title" }, view.title()), place);
    const nav = h("nav", { "aria-label": t("Views") }, h("ul", {}, shown.map((one) =>
      h("li", {}, h("a", { href: `#/${one.id}`, "aria-current": one === view ? "page" : null, "data-key": one.id }, one.title())))));
    const leave = async () => {
      try {
        await logOut();
        stop.abort();
        begin();
      } catch (error) {
        fault(error);
      }
    };
    replace(document.body,
      h("a", { class: "skip", href: "#main", click: (event: Event) => { event.preventDefault(); main.focus(); } }, t("Skip to the content")),
      h("header", {}, h("a", { class: "brand", href: "#/", "aria-label": t("Apus: to the first view") }, "Apus"), h("div", { class: "who" },
        session ? h("span", {}, [session.name, roleName(session.role), ...(session.sites ?? [])].join(" · ")) : null,
        switches(draw), h("button", { class: "plain", "data-key": "keys", "aria-haspopup": "dialog", click: keys }, t("Keys")),
        h("button", { class: "plain", "data-key": "leave", click: leave }, t("Log out")))),
      h("div", { class: "frame" }, nav, main), messages());
    nav.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
    view.show(place, stop.signal, argument);
  };
  redraw = draw;
  if (!isBound) bind();
  draw();
}

function roleName(role: string): string {
  return role === "configure" ? t("may configure") : role === "operate" ? t("may operate") : t("may read");
}

/** `g` and a letter lead to a view, `/` to the filter, `?` to the keys. */
function bind() {
  isBound = true;
  let isGoing = false;
  window.addEventListener("hashchange", () => {
    if (location.hash.startsWith("#code=")) return;
    redraw();
    document.getElementById("main")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  });
  window.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
    if (isGoing) {
      isGoing = false;
      const view = views().find((one) => one.key === event.key);
      if (view) location.hash = `#/${view.id}`;
    } else if (event.key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1500);
    } else if (event.key === "?") {
      keys();
    } else if (event.key === "/") {
      event.preventDefault();
      document.querySelector<HTMLInputElement>("main input")?.focus();
    }
  });
}

function keys() {
  const dialog: HTMLDialogElement = h("dialog", { "aria-labelledby": "keys", close: () => dialog.remove() }, h("form", { method: "dialog" },
    h("h2", { id: "keys" }, t("Keys")),
    h("dl", { class: "facts keys" },
      views().map((view) => [h("dt", {}, h("kbd", {}, "g"), " ", h("kbd", {}, view.key)), h("dd", {}, view.title())]),
      h("dt", {}, h("kbd", {}, "/")), h("dd", {}, t("to the filter")), h("dt", {}, h("kbd", {}, "?")), h("dd", {}, t("this list"))),
    h("p", { class: "actions" }, h("button", { class: "primary" }, t("Close")))));
  document.body.appendChild(dialog);
  dialog.showModal();
}
