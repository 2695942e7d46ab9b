// English and Chinese. The English text is the key of the Chinese one.
import { zh } from "./chinese";
import { load, store } from "./storage";

let chosen = load("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export function language(): string {
  return chosen;
}

export function choose(language: string) {
  chosen = language;
  store("language", language);
}

/** The text in the language of the reader. `{name}` stands for a value. */
export function t(text: string, values: Record<string, string | number> = {}): string {
  const found = chosen === "zh" ? (zh[text] ?? text) : text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
