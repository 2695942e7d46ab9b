// Builds elements. Data only becomes text or an attribute, never markup.

export type Child = Node | string | number | null | undefined | false | Child[];
export type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

const SVG = "http://www.w3.org/2000/svg";
/** Attributes that name an address, which may only be a place of this page. */
const ADDRESSES = new Set(["href", "src", "action", "formaction"]);

function fill(element: Element, attributes: Attributes, children: Child[]) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (!ADDRESSES.has(name) || String(value).startsWith("#")) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(element, children);
}

function add(parent: Node, children: Child[]) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) parent.appendChild(document.createTextNode(String(child)));
  }
}

/** An element; a function among the attributes listens to the event of its name. */
export function h<K extends keyof HTMLElementTagNameMap>(name: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  fill(element, attributes, children);
  return element;
}

/** An element of a picture. */
export function svg(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, name);
  fill(element, attributes, children);
  return element;
}

/** Replaces the children; an element with `data-key` keeps the focus, and one with `data-scroll` how far it is scrolled. */
export function replace(parent: Element, ...children: Child[]) {
  const focused = parent.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
  const scrolled = [...parent.querySelectorAll("[data-scroll]")].map((one) => [one.getAttribute("data-scroll"), one.scrollLeft] as const);
  const fragment = document.createDocumentFragment();
  add(fragment, children);
  parent.replaceChildren(fragment);
  if (focused) parent.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  for (const [name, left] of scrolled) {
    const one = parent.querySelector(`[data-scroll="${CSS.escape(name ?? "")}"]`);
    if (one && left) one.scrollLeft = left;
  }
}
