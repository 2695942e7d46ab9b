// Plots: lines or a stack of areas over time, drawn as SVG, with a text and a table for those who do not see them.
import { h, svg } from "./dom";
import { clock } from "./format";
import { t } from "./text";

export interface Line {
  name: string;
  /** A class of the style sheet, which has the colour. */
  tone: string;
  values: (number | null)[];
}

export interface Plot {
  title: string;
  /** Of the first value, in seconds since 1970. */
  start: number;
  /** Between two values, in seconds. */
  step: number;
  lines: Line[];
  isStack?: boolean;
  format: (value: number) => string;
}

const WIDTH = 640;
const HEIGHT = 170;
const LEFT = 58;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;

/** The smallest round number that is not below. */
function round(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((one) => one * power).find((one) => one >= value * 0.999) ?? value;
}

export function plot(one: Plot): HTMLElement {
  const length = Math.max(2, ...one.lines.map((line) => line.values.length));
  const bases: number[] = new Array(length).fill(0);
  const tops = one.lines.map((line) => line.values.map((value, index) => {
    if (value === null || value === undefined) return null;
    if (!one.isStack) return value;
    return (bases[index] += value);
  }));
  const most = round(Math.max(0, ...tops.flat().filter((value): value is number => value !== null)));
  const x = (index: number) => LEFT + (index / (length - 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const known = (line: Line) => line.values.filter((value): value is number => value !== null && value !== undefined);
  const summary = one.lines.map((line) => {
    const values = known(line);
    return values.length === 0 ? `${line.name}: –` : t("{name}: now {now}, at most {most}", {
      name: line.name, now: one.format(values[values.length - 1]), most: one.format(Math.max(...values)),
    });
  }).join("; ");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${one.title}. ${summary}`, class: "plot" });
  for (const share of [0, 0.5, 1]) {
    picture.append(
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(most * share), y2: y(most * share), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(most * share) + 4, "text-anchor": "end" }, one.format(most * share)));
  }
  const withDay = one.step * length > 86400;
  for (const share of [0, 0.5, 1]) {
    picture.append(svg("text", {
      x: LEFT + share * (WIDTH - LEFT - RIGHT), y: HEIGHT - 5, "text-anchor": ["start", "middle", "end"][share * 2],
    }, clock(one.start + share * (length - 1) * one.step, withDay)));
  }
  // The last layer of a stack is the highest: it is drawn first, and the lower ones over it.
  const order = one.lines.map((line, index) => ({ line, values: tops[index] }));
  for (const { line, values } of one.isStack ? order.reverse() : order) {
    for (const run of runs(values)) {
      const points = run.map(([index, value]) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      if (one.isStack) {
        picture.append(svg("polygon", {
          points: `${x(run[0][0]).toFixed(1)},${y(0)} ${points} ${x(run[run.length - 1][0]).toFixed(1)},${y(0)}`, class: `area ${line.tone}`,
        }));
      } else {
        picture.append(svg("polyline", { points, class: `line ${line.tone}` }));
      }
    }
  }
  const legend = h("ul", { class: "legend" }, one.lines.map((line) => {
    const values = known(line);
    return h("li", {}, h("span", { class: `key ${line.tone}`, "aria-hidden": "true" }), line.name, " ",
      h("b", {}, values.length > 0 ? one.format(values[values.length - 1]) : "–"));
  }));
  return h("figure", {}, h("figcaption", {}, one.title), picture, legend);
}

/** The stretches without a gap. */
function runs(values: (number | null)[]): [number, number][][] {
  const found: [number, number][][] = [];
  let isOpen = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) {
      isOpen = false;
      return;
    }
    if (!isOpen) found.push([]);
    isOpen = true;
    found[found.length - 1].push([index, value]);
  });
  return found;
}
