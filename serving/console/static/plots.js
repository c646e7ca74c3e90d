// Small plots in SVG: lines over two minutes, and bars. Colors come from the style sheet; dashes tell lines apart too.

import { roundUp } from "./history.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 72;
const SPAN = 120; // seconds
const GAP = 2.5; // steps without a look that break a line

function svg(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

function html(name, text, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

class Frame {
  constructor(title, unit, names, ends) {
    this.unit = unit;
    this.title = title;
    this.element = html("figure", "", "plot");
    const caption = html("figcaption", "");
    caption.append(html("span", title, "title"));
    this.legend = html("span", "", "legend");
    caption.append(this.legend);
    this.values = names.map((name, index) => {
      const entry = html("span", "", `key key${index}`);
      if (names.length > 1) {
        const swatch = svg("svg", { viewBox: "0 0 22 6", width: 22, height: 6, "aria-hidden": "true" }, entry);
        svg("line", { x1: 1, y1: 3, x2: 21, y2: 3, class: `line line${index}` }, swatch);
        entry.append(html("span", name));
      }
      const value = html("b", "");
      entry.append(value);
      this.legend.append(entry);
      return value;
    });
    this.most = html("span", "", "most");
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    for (const share of [0, 0.5, 1]) {
      const y = 1 + share * (HEIGHT - 2);
      svg("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: "scale" }, this.drawing);
    }
    this.feet = html("div", "", "feet");
    this.feet.append(...ends.map((end) => html("span", end)));
    const area = html("div", "", "area");
    area.append(this.drawing, this.most);
    this.element.append(caption, area, this.feet);
  }

  report(names, texts, most) {
    for (const [index, text] of texts.entries()) if (this.values[index]) this.values[index].textContent = text;
    this.most.textContent = most;
    const said = texts.map((text, index) => (names.length > 1 ? `${names[index]} ${text}` : text)).join(", ");
    this.drawing.setAttribute("aria-label", `${this.title}: ${said}`);
  }
}

/** Lines over time. `update` takes points as [{time, values}], null where nothing is known, and how each value is said. */
export class Lines {
  constructor(title, names, format, { whole = false } = {}) {
    this.names = names;
    this.format = format;
    this.least = whole ? 1 : 0;
    this.frame = new Frame(title, "", names, ["2 min ago", "now"]);
    this.element = this.frame.element;
    this.paths = names.map((_, index) => svg("path", { class: `line line${index}` }));
    this.frame.drawing.append(...this.paths.toReversed());
  }

  /** Draw the points of the last `span` seconds, which are `step` seconds apart. */
  update(points, now, { span = SPAN, step = 1, since = "2 min ago" } = {}) {
    this.span = span;
    this.gap = GAP * step;
    this.frame.feet.firstChild.textContent = since;
    const known = points.flatMap((point) => point?.values?.filter((value) => value !== null) ?? []);
    const highest = Math.max(this.least, ...known);
    const most = highest > 0 ? roundUp(highest) : 1;
    for (const [index, path] of this.paths.entries()) path.setAttribute("d", this.trace(points, index, most, now));
    const last = points.findLast((point) => point !== null)?.values ?? this.names.map(() => null);
    this.frame.report(this.names, last.map(this.format), highest > 0 ? this.format(most) : "");
  }

  trace(points, index, most, now) {
    let path = "";
    let before = null;
    for (const point of points) {
      const value = point?.values?.[index] ?? null;
      if (value === null) {
        before = null;
        continue;
      }
      const x = (WIDTH * (1 - (now - point.time) / this.span)).toFixed(1);
      const y = (1 + (HEIGHT - 2) * (1 - value / most)).toFixed(1);
      const joined = before !== null && point.time - before < this.gap;
      path += joined ? `L${x} ${y}` : `M${x} ${y}l0.01 0`;
      before = point.time;
    }
    return path;
  }
}

/** A bar per batch size. `update` takes [[size, count], ...] and the mean in words. */
export class Bars {
  constructor(title, largest) {
    this.frame = new Frame(title, "", ["mean"], ["1", String(largest)]);
    this.element = this.frame.element;
    this.largest = largest;
    this.frame.most.classList.add("end"); // small batches are the usual ones, and stand on the left
    this.group = svg("g", { class: "bars" }, this.frame.drawing);
  }

  update(batches, mean) {
    const total = batches.reduce((sum, [, count]) => sum + count, 0);
    const most = Math.max(0, ...batches.map(([, count]) => count / total));
    const width = WIDTH / this.largest;
    this.group.replaceChildren(
      ...batches.map(([size, count]) => {
        const height = ((HEIGHT - 2) * count) / total / most;
        const shown = Math.max(1.5, width * 0.8);
        return svg("rect", { x: (size - 0.5) * width - shown / 2, y: HEIGHT - 1 - height, width: shown, height });
      }),
    );
    const shares = batches.map(([size, count]) => `${size}: ${Math.round((100 * count) / total)} %`);
    this.frame.report(["mean"], [mean === null ? "–" : `mean ${mean}`], total ? `${Math.round(100 * most)} %` : "");
    if (!shares.length) return;
    this.frame.drawing.setAttribute("aria-label", `${this.frame.title}, share of each: ${shares.join(", ")}`);
  }
}
