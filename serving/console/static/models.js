// The list of models: what each does now, its plots, and the buttons of repository control.

import { Rejected, call } from "./api.js";
import { History, duration, short } from "./history.js";
import { Bars, Lines } from "./plots.js";

const KINDS = {
  tensor: "",
  decode: "decodes images for its model",
  classify: "decodes and classifies in one call",
};

function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

/** One version of one model. */
class Card {
  constructor(name, onControl) {
    this.name = name;
    this.version = "";
    this.element = element("article", "card model");
    this.element.dataset.model = name;
    const title = element("h3", "");
    this.numbered = element("span", "version");
    title.append(element("span", "name", name), this.numbered);
    this.state = element("span", "pill");
    this.load = this.button("Load", "load", onControl);
    this.unload = this.button("Unload", "unload", onControl);
    const buttons = element("div", "buttons");
    buttons.append(this.load, this.unload);
    const head = element("header", "");
    head.append(title, this.state, buttons);
    this.about = element("p", "quiet");
    this.reason = element("p", "reason");
    this.result = element("p", "result");
    this.result.setAttribute("role", "status");
    this.numbers = element("dl", "numbers");
    this.plots = element("details", "plots");
    this.plots.append(element("summary", "", "Last two minutes"));
    this.element.append(head, this.about, this.reason, this.result, this.numbers, this.plots);
    this.reason.hidden = this.result.hidden = true;
    this.history = null;
  }

  button(text, action, onControl) {
    const made = element("button", "", text);
    made.type = "button";
    made.dataset.action = action;
    made.addEventListener("click", () => onControl(this, action));
    return made;
  }

  /** The row of the index, and whether this card has its name's buttons. */
  describe({ state, reason, version }, controlled) {
    if (version !== this.version && this.history) this.history.points = [];
    this.version = version;
    this.numbered.textContent = version && `version ${version}`;
    this.element.dataset.version = version;
    this.state.textContent = state.toLowerCase();
    this.state.dataset.state = state;
    this.reason.textContent = reason ?? "";
    this.reason.hidden = !reason;
    this.load.hidden = this.unload.hidden = !controlled;
    this.load.textContent = state === "READY" ? "Reload" : "Load";
    this.unload.hidden ||= state !== "READY";
    this.load.setAttribute("aria-label", `${this.load.textContent} ${this.name}`);
    this.unload.setAttribute("aria-label", `Unload ${this.name}`);
    const serves = state === "READY";
    this.numbers.hidden = this.plots.hidden = !serves || !this.history;
  }

  /** What the model has counted at `time`; the first time decides which plots there are. */
  count(time, bounds, counters) {
    this.history ??= this.begin(bounds, counters);
    this.history.add(time, counters);
    this.numbers.hidden = this.plots.hidden = false;
    this.draw(counters);
  }

  begin(bounds, { kind, largest_batch: largest, queue, outputs }) {
    const gives = Object.entries(outputs).map(([name, what]) => `${name}: ${what || "raw numbers"}`);
    this.about.textContent = KINDS[kind] || gives.join("; ");
    this.about.hidden = !this.about.textContent;
    this.plots.open = kind === "tensor";
    const rate = (value) => (value === null ? "–" : `${short(value)}/s`);
    this.rates = new Lines("Requests", ["answered", "failed"], rate);
    this.times = new Lines("Latency, last 10 s", ["p50", "p95", "p99"], duration);
    this.parts = [this.rates, this.times];
    if (queue) {
      this.batches = new Bars("Batch sizes, last 10 s", largest);
      this.queue = new Lines("Requests in the model", ["arriving", "queued", "running"], short, { whole: true });
      this.parts.push(this.batches, this.queue);
    }
    const grid = element("div", "grid");
    grid.append(...this.parts.map((part) => part.frame.element));
    this.plots.append(grid);
    this.values = {};
    const names = { rate: "answered", p50: "p50", p95: "p95", p99: "p99" };
    if (queue) Object.assign(names, { batch: "mean batch", waiting: "waiting" });
    for (const [key, label] of Object.entries(names)) {
      const pair = element("div", "");
      this.values[key] = element("dd", key, "–");
      pair.append(element("dt", "", label), this.values[key]);
      this.numbers.append(pair);
    }
    return new History(bounds);
  }

  draw({ queue, failed, answered }) {
    const { points } = this.history;
    const now = this.history.latest();
    const pick = (values) => points.map((point) => point && { time: point.time, values: values(point) });
    this.rates.update(pick((point) => [point.answered, point.failed]), now.time);
    this.times.update(pick((point) => point.quantiles ?? [null, null, null]), now.time);
    this.values.rate.textContent = now.answered === null ? "–" : `${short(now.answered)}/s`;
    this.values.rate.title = `${answered} answered, ${failed} failed in all`;
    for (const [index, key] of ["p50", "p95", "p99"].entries())
      this.values[key].textContent = duration(now.quantiles?.[index]);
    if (!queue) return;
    this.batches.update(now.batches, now.rows === null ? null : short(now.rows));
    this.queue.update(pick((point) => Object.values(point.counters.queue)), now.time);
    this.values.batch.textContent = short(now.rows);
    this.values.waiting.textContent = short(queue.arriving + queue.queued);
  }

  miss() {
    this.history?.miss();
  }

  report(text, failed = false) {
    this.result.textContent = text;
    this.result.classList.toggle("error", failed);
    this.result.hidden = !text;
  }

  busy(text) {
    this.load.disabled = this.unload.disabled = Boolean(text);
    if (text) this.report(text);
  }
}

/** All models, those that serve first, and otherwise in the order of the index. */
export class Models {
  constructor(list, none) {
    this.list = list;
    this.none = none;
    this.cards = new Map();
  }

  /** Show the index and the live stats. The index is null where the token does not open it. */
  update(index, stats) {
    const counted = new Map(stats.models.map((model) => [key(model), model]));
    const rows = index ?? stats.models.map((model) => ({ ...model, state: "READY", reason: "" }));
    const explicit = index !== null && stats.model_control_mode === "explicit";
    const first = new Set();
    const keys = new Set(rows.map(key));
    const serving = rows.filter(({ state }) => state === "READY");
    const cards = [...serving, ...rows.filter(({ state }) => state !== "READY")].map((row) => {
      const card = this.card(row, keys);
      card.describe(row, explicit && !first.has(row.name));
      first.add(row.name);
      const counters = counted.get(key(row));
      if (counters) card.count(stats.time, stats.latency_bounds, counters);
      return card;
    });
    const shown = new Set(cards);
    for (const [id, card] of this.cards) {
      if (shown.has(card)) continue;
      card.element.remove();
      this.cards.delete(id);
    }
    // Moving an element would take the focus from what is in it.
    for (const [place, card] of cards.entries())
      if (this.list.children[place] !== card.element) this.list.insertBefore(card.element, this.list.children[place] ?? null);
    this.none.hidden = cards.length > 0;
  }

  /** Nothing could be read this time. */
  miss() {
    for (const card of this.cards.values()) card.miss();
  }

  /** The row's card, or that of another version of the model which is gone, with what was said in it. */
  card(row, keys) {
    const [id, card] = this.cards.has(key(row))
      ? [key(row), this.cards.get(key(row))]
      : ([...this.cards].find(([other, { name }]) => name === row.name && !keys.has(other)) ?? ["", new Card(row.name, control)]);
    this.cards.delete(id);
    this.cards.set(key(row), card);
    return card;
  }
}

function key({ name, version }) {
  return `${name}/${version}`;
}

async function control(card, action) {
  const warning = `Unload ${card.name}? New requests to it are rejected until it is loaded again.`;
  if (action === "unload" && !window.confirm(warning)) return;
  card.busy(action === "load" ? "Loading …" : "Unloading …");
  try {
    await call(`v2/repository/models/${encodeURIComponent(card.name)}/${action}`, { method: "POST", body: "{}" });
    card.report(action === "load" ? "Loaded." : "Unloaded.");
  } catch (error) {
    card.report(error instanceof Rejected ? `Rejected (${error.status}): ${error.message}` : error.message, true);
  }
  card.busy("");
}
