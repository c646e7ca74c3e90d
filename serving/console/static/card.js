// One model: what it does now and did before, what it computes with, what failed, and the buttons of repository control.

import { element, term, write } from "./dom.js";
import { History, duration, percent, pointsOf, short } from "./history.js";
import { PlanDetails } from "./plan.js";
import { Bars, Lines } from "./plots.js";

const SPANS = [
  { name: "2 minutes", span: 120, step: 1, since: "2 min ago" },
  { name: "1 hour", span: 3600, step: 5, since: "1 hour ago", key: "hour" },
  { name: "1 day", span: 86400, step: 120, since: "1 day ago", key: "day" },
];
const REASONS = { REJECTED: "rejected", CANCELED: "canceled", BACKEND: "backend", OTHER: "other" };
const NUMBERS = { rate: ["answered", "answered"], p50: ["p50", "p50"], p95: ["p50", "p95"], p99: ["p50", "p99"], failing: ["failed", "failed"] };
const QUEUED = { batch: ["batch", "mean batch"], waiting: ["waiting", "waiting"], hits: ["cache", "cache hits"] };
const OFFLINE = "not loaded";

/** A model that users call. */
export class Card {
  constructor(name, onControl) {
    this.name = name;
    this.element = element("article", "card model");
    this.element.dataset.model = name;
    this.numbered = element("span", "version");
    const title = element("h3", "", "", element("span", "name", name), this.numbered);
    this.state = element("span", "pill");
    this.about = element("p", "quiet facts-line");
    this.reason = element("p", "reason");
    this.result = element("p", "result");
    this.result.setAttribute("role", "status");
    this.numbers = element("dl", "numbers");
    this.plots = element("details", "plots");
    this.plots.open = true;
    this.plan = new PlanDetails(name);
    this.failed = element("details", "failures");
    this.family = element("details", "family");
    this.load = this.button("Load", "load", onControl);
    this.unload = this.button("Unload", "unload", onControl);
    this.unload.classList.add("danger");
    this.control = element("div", "control", "", this.load, this.unload);
    const head = element("header", "", "", title, this.state);
    this.element.append(head, this.about, this.reason, this.result, this.numbers, this.plots, this.plan.element, this.failed, this.family, this.control);
    this.reason.hidden = this.result.hidden = this.failed.hidden = this.family.hidden = true;
    this.shown = SPANS[0];
    this.past = { hour: [], day: [] };
    this.history = null;
    this.rest();
  }

  button(text, action, onControl) {
    const made = element("button", "", text);
    made.type = "button";
    made.dataset.action = action;
    made.addEventListener("click", () => onControl(this, action));
    return made;
  }

  /** Its rows of the index, newest version first, and its companions'; whether it may be loaded and unloaded here. */
  describe(rows, companions, controlled) {
    const serving = rows.filter(({ state }) => state === "READY");
    const [first] = serving.length ? serving : rows;
    this.serves = serving.length > 0;
    // What nobody asked to be loaded is not missing.
    this.missing = [...rows, ...companions].some(({ state, reason }) => state === "UNAVAILABLE" && reason !== OFFLINE && !/version policy/.test(reason ?? ""));
    const versions = (serving.length ? serving : rows).map(({ version }) => version).filter(Boolean);
    write(this.numbered, versions.length ? `version${versions.length > 1 ? "s" : ""} ${versions.join(", ")}` : "");
    this.element.dataset.version = first.version;
    const loading = rows.find(({ state }) => state === "LOADING");
    const state = loading && !this.serves ? "LOADING" : first.state;
    write(this.state, state.toLowerCase());
    this.state.dataset.state = state;
    const reasons = rows.filter(({ reason }) => reason).map((row) => (rows.length > 1 && row.version ? `version ${row.version}: ${row.reason}` : row.reason));
    write(this.reason, reasons.join("; "));
    this.reason.hidden = !reasons.length;
    this.control.hidden = !controlled;
    this.unload.hidden = !this.serves;
    write(this.load, this.serves ? "Reload" : "Load");
    this.load.setAttribute("aria-label", `${this.load.textContent} ${this.name}`);
    this.unload.setAttribute("aria-label", `Unload ${this.name}`);
    this.numbers.hidden = this.plots.hidden = this.plan.element.hidden = !this.serves || !this.history;
    this.companions(companions);
  }

  companions(rows) {
    const key = JSON.stringify(rows);
    if (key === this.familyShown) return;
    this.familyShown = key;
    this.family.hidden = !rows.length;
    const items = rows.map(({ name, state, reason }) => {
      const what = name.endsWith("_decode") ? "decodes images to its input" : "decodes and answers in one call";
      const pill = element("span", "pill", state.toLowerCase());
      pill.dataset.state = state;
      return element("li", "", "", element("b", "", name), pill, element("span", "quiet", reason || what));
    });
    this.family.replaceChildren(element("summary", "", `${rows.length} companion${rows.length > 1 ? "s" : ""}`), element("p", "quiet", "", term("companion", "What companions are")), element("ul", "", "", ...items));
  }

  /** Nothing of it serves. */
  rest() {
    this.latest = this.waiting = this.proof = this.agreement = null;
  }

  /** What it has counted until now; the first time decides which plots there are. */
  count(stats, counters) {
    this.history ??= this.begin(stats.latency_bounds, counters);
    this.history.add(stats.time, counters);
    this.numbers.hidden = this.plots.hidden = this.plan.element.hidden = false;
    this.latest = this.history.latest();
    this.waiting = counters.queue ? counters.queue.arriving + counters.queue.queued : null;
    this.agreement = counters.agreement;
    this.cached = stats.response_cache_bytes > 0;
    this.tell(counters);
    this.plan.update(counters);
    this.proof = this.plan.proof;
    this.failures(counters);
    this.draw(counters);
  }

  /** A line on what it computes with. */
  tell({ plan, instances, largest_batch: largest, outputs, stages, away }) {
    const gives = Object.entries(outputs).map(([name, what]) => `${name}: ${what || "raw numbers"}`);
    const facts = [];
    if (plan.serves) facts.push(`${plan.serves} on ${plan.device === "cpu" ? "the CPU" : plan.device}`);
    if (instances) facts.push(`${instances} instance${instances > 1 ? "s" : ""}`);
    for (const why of away ?? []) facts.push(`an instance is away: ${why}`);
    if (largest) facts.push(`batches up to ${largest}`);
    for (const [number, shares] of (stages ?? []).flatMap((each) => [...each.entries()])) {
      const [busy, starved, blocked] = shares ? [shares.busy, shares.starved, shares.blocked].map(percent) : ["–", "–", "–"];
      facts.push(`stage ${number} ${busy} busy, ${starved} starved, ${blocked} blocked`);
    }
    write(this.about, [...facts, ...gives].join(" · "));
    this.about.hidden = !this.about.textContent;
  }

  begin(bounds, { largest_batch: largest, queue }) {
    const rate = (value) => (value === null ? "–" : `${short(value)}/s`);
    this.rates = new Lines("Requests", ["answered", "failed"], rate);
    this.times = new Lines("Latency", ["p50", "p95", "p99"], duration);
    this.parts = [this.rates, this.times];
    if (queue) {
      this.batches = new Bars("Batch sizes, last 10 s", largest);
      this.queue = new Lines("Requests in the model", ["arriving", "queued", "running"], short, { whole: true });
      this.parts.push(this.batches, this.queue);
    }
    const grid = element("div", "grid", "", ...this.parts.map((part) => part.frame.element));
    this.plots.append(element("summary", "", "History"), this.spans(), grid);
    this.values = {};
    for (const [key, [word, label]] of Object.entries({ ...NUMBERS, ...(queue ? QUEUED : {}) })) {
      this.values[key] = element("dd", key, "–");
      this.numbers.append(element("div", "", "", element("dt", "", "", term(word, label)), this.values[key]));
    }
    return new History(bounds);
  }

  /** The choice of how far back the plots go. */
  spans() {
    const choice = element("fieldset", "spans", "", element("legend", "", "Show the last"));
    for (const each of SPANS) {
      const button = element("input");
      Object.assign(button, { type: "radio", name: `span-${this.name}`, checked: each === this.shown });
      button.addEventListener("change", () => {
        this.shown = each;
        if (this.counters) this.draw(this.counters);
      });
      choice.append(element("label", "", "", button, each.name));
    }
    return choice;
  }

  /** What the server remembers of it. */
  remember(past, step) {
    if (!past) return;
    this.past = { hour: pointsOf(past.hour), day: pointsOf(past.day) };
    this.pastStep = step;
    if (this.counters) this.draw(this.counters);
  }

  draw(counters) {
    this.counters = counters;
    const now = this.history.latest();
    const { key, span } = this.shown;
    const seen = this.history.points;
    const first = seen.find((point) => point?.answered !== null)?.time ?? now.time;
    // Before this page was there, the server knows what was.
    const points = (key ? this.past[key] : [...this.past.hour.filter(({ time }) => time < first), ...seen]).filter((point) => !point || point.time > now.time - span);
    const range = { ...this.shown, step: key ? this.shown.step : (this.pastStep ?? 1) };
    const pick = (values) => points.map((point) => point && { time: point.time, values: values(point) });
    this.rates.update(pick((point) => [point.answered, point.failed]), now.time, range);
    this.times.update(pick((point) => point.quantiles ?? [null, null, null]), now.time, range);
    const { values } = this;
    write(values.rate, now.answered === null ? "–" : `${short(now.answered)}/s`);
    values.rate.title = `${counters.answered} answered, ${counters.failed} failed in all`;
    for (const [index, name] of ["p50", "p95", "p99"].entries()) write(values[name], duration(now.quantiles?.[index]));
    write(values.failing, now.failed === null ? "–" : `${short(now.failed)}/s`);
    if (!counters.queue) return;
    for (const part of [this.batches, this.queue]) part.frame.element.hidden = Boolean(key);
    this.batches.update(now.batches, now.rows === null ? null : short(now.rows));
    this.queue.update(seen.map((point) => point && { time: point.time, values: Object.values(point.counters.queue) }), now.time, SPANS[0]);
    write(values.batch, short(now.rows));
    write(values.waiting, short(this.waiting));
    write(values.hits, !this.cached ? "off" : counters.answered ? percent(counters.cache_hits / counters.answered) : "–");
  }

  /** The reasons of all failures since it was loaded. */
  failures({ failed, failures }) {
    this.failed.hidden = !failed;
    const key = JSON.stringify(failures);
    if (!failed || key === this.failuresShown) return;
    this.failuresShown = key;
    const items = Object.entries(failures)
      .filter(([, count]) => count)
      .map(([reason, count]) => element("li", "", "", term(REASONS[reason]), element("b", "", ` ${short(count)}`)));
    const { open } = this.failed;
    this.failed.replaceChildren(element("summary", "", `${short(failed)} failed in all`), element("ul", "", "", ...items));
    this.failed.open = open;
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
