// The operator's first questions: is it healthy, how fast, how full, how right. And facts of the server and what happened.

import { at, element, term, write } from "./dom.js";
import { bytes, duration, percent, quantile, short, span } from "./history.js";

const FAILING = 0.01;
const TILES = [
  ["healthy", "Is it healthy?", "health"],
  ["fast", "How fast?", "answered"],
  ["full", "How full?", "cpu"],
  ["right", "How right?", "agreement"],
];

/** The four tiles above the models, the server's facts and the list of events. */
export class Overview {
  constructor() {
    this.tiles = {};
    for (const [name, question, word] of TILES) {
      const tile = element("div", "tile");
      tile.id = `tile-${name}`;
      const title = element("h2", "");
      title.append(term(word, question));
      const big = element("p", "big", "…");
      const note = element("p", "quiet");
      tile.append(title, big, note);
      at("overview").append(tile);
      this.tiles[name] = { tile, big, note };
    }
    this.before = null;
    this.facts = new Map();
  }

  show(name, text, note, state = "") {
    const { tile, big, note: below } = this.tiles[name];
    write(big, text);
    write(below, note);
    tile.dataset.state = state;
  }

  /** Draw what the models' cards know, and what the server says of itself. */
  update(stats, cards) {
    this.health(stats, cards);
    this.fast(stats, cards);
    this.full(stats, cards);
    this.right(cards);
    this.server(stats);
    this.before = stats;
  }

  health(stats, cards) {
    const out = cards.filter((card) => card.missing);
    const now = cards.map((card) => card.latest).filter(Boolean);
    const failed = sum(now.map((point) => point.failed ?? 0));
    const all = failed + sum(now.map((point) => point.answered ?? 0));
    const back = cards.filter((card) => card.agreement?.taken_back);
    const troubles = [];
    if (out.length) troubles.push(`${listed(out.map((card) => card.name))} ${out.length > 1 ? "do" : "does"} not serve`);
    if (failed > FAILING * all) troubles.push(`${percent(failed / all)} of the requests fail`);
    if (back.length) troubles.push(`the plan of ${listed(back.map((card) => card.name))} was taken back`);
    if (!stats.ready) return this.show("healthy", "Not ready", "Models are being loaded, or none serves.", "wait");
    if (troubles.length) return this.show("healthy", "Look here", `${troubles.join("; ")}.`, "bad");
    const serving = cards.filter((card) => card.serves).length;
    this.show("healthy", "Healthy", `${serving} model${serving === 1 ? "" : "s"} serving for ${span(stats.server.uptime_seconds)}.`, "good");
  }

  fast(stats, cards) {
    const known = cards.map((card) => card.latest).filter((point) => point && point.answered !== null);
    const rate = known.length ? sum(known.map((point) => point.answered)) : null;
    const recent = known.map((point) => point.recent).filter(Boolean);
    const latencies = recent.length ? recent[0].map((_, index) => sum(recent.map((counts) => counts[index]))) : [];
    const times = sum(latencies) ? [0.5, 0.99].map((share) => duration(quantile(stats.latency_bounds, latencies, share))) : null;
    this.show("fast", rate === null ? "…" : `${short(rate)}/s`, times ? `Half within ${times[0]}, 99 of 100 within ${times[1]}.` : "No requests in the last ten seconds.");
  }

  full(stats, cards) {
    const { server } = stats;
    const seconds = this.before && stats.time - this.before.time;
    const used = seconds > 0.2 ? Math.max(0, server.cpu_seconds - this.before.server.cpu_seconds) / seconds / server.machine_cores : this.used;
    this.used = used;
    const waiting = sum(cards.map((card) => card.waiting ?? 0));
    const free = server.machine_memory_free_bytes / server.machine_memory_bytes;
    const state = free < 0.05 || waiting >= stats.max_queue / 2 ? "bad" : "";
    const memory = `${bytes(server.memory_bytes)} of memory, ${bytes(server.machine_memory_free_bytes)} free`;
    this.show("full", used === undefined ? "…" : `${Math.round(100 * used)} %`, `of ${server.machine_cores} cores; ${memory}; ${short(waiting)} waiting.`, state);
  }

  right(cards) {
    const known = cards.filter((card) => card.proof);
    if (!known.length) return this.show("right", "–", "Nothing was proved of what serves.");
    const worst = known.reduce((one, other) => (other.proof.share < one.proof.share ? other : one));
    this.show("right", worst.proof.big, `${known.length > 1 ? `${worst.name}: ` : ""}${worst.proof.note}`, worst.proof.state);
  }

  server(stats) {
    const { server } = stats;
    const facts = [
      ["Running for", span(server.uptime_seconds)],
      ["Processes", stats.front_ends ? `${server.processes}: ${stats.front_ends} take requests, one computes` : String(server.processes)],
      ["Processor time", span(server.cpu_seconds)],
      ["The machine's processors", `${server.machine_cores} cores for this server; all programs together use ${Math.round(server.machine_cpu_percent)} %`],
      ["Memory", `${bytes(server.memory_bytes)} here; ${bytes(server.machine_memory_free_bytes)} of ${bytes(server.machine_memory_bytes)} free`],
      ["Queue", `up to ${short(stats.max_queue)} requests a model`],
      ["Response cache", stats.response_cache_bytes ? `up to ${bytes(stats.response_cache_bytes)}` : "off"],
      ["Compared with fp32", stats.shadow ? `${percent(stats.shadow)} of the images` : "off"],
      ["Model control", stats.model_control_mode],
    ];
    for (const [name, value] of facts) {
      if (!this.facts.has(name)) {
        const shown = element("dd");
        at("server").append(element("div", "", "", element("dt", "", name), shown));
        this.facts.set(name, shown);
      }
      write(this.facts.get(name), value);
    }
  }

  /** The last events, the newest first. */
  events(events) {
    const shown = events.slice(-30).reverse();
    const key = JSON.stringify(shown.slice(0, 1)) + events.length;
    if (key === this.shown) return;
    this.shown = key;
    at("no-events").hidden = shown.length > 0;
    at("events").replaceChildren(
      ...shown.map(({ time, model, text }) => {
        const when = element("time", "", new Date(time * 1000).toLocaleTimeString());
        when.dateTime = new Date(time * 1000).toISOString();
        return element("li", "", "", when, element("b", "", model), element("span", "", text));
      }),
    );
  }
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function listed(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
