// The list of models: one card for each that users call, with its versions and companions in it.

import { Rejected, call } from "./api.js";
import { Card } from "./card.js";
import { at } from "./dom.js";
import { together } from "./history.js";

const COMPANION = /_(decode|classify)$/;

/** All models, those that serve first, and otherwise in the order of the index. */
export class Models {
  constructor(list, none) {
    this.list = list;
    this.none = none;
    this.cards = new Map();
  }

  /** Show the index and the live stats. The index is null where the token does not open it. */
  update(index, stats) {
    const rows = index ?? stats.models.map((model) => ({ ...model, state: "READY", reason: "" }));
    const explicit = index !== null && stats.model_control_mode === "explicit";
    const groups = grouped(rows, stats.models);
    const serving = groups.filter(({ rows }) => rows.some(serves));
    const cards = [...serving, ...groups.filter(({ rows }) => !rows.some(serves))].map(({ name, rows, companions }) => {
      const card = this.cards.get(name) ?? new Card(name, control);
      this.cards.set(name, card);
      card.describe(rows, companions, explicit);
      const counted = stats.models.filter((model) => model.name === name);
      if (counted.length) card.count(stats, together(counted));
      else card.rest();
      return card;
    });
    const shown = new Set(cards);
    for (const [name, card] of this.cards) {
      if (shown.has(card)) continue;
      card.element.remove();
      this.cards.delete(name);
    }
    // Moving an element would take the focus from what is in it.
    for (const [place, card] of cards.entries())
      if (this.list.children[place] !== card.element) this.list.insertBefore(card.element, this.list.children[place] ?? null);
    this.none.hidden = cards.length > 0;
    return cards;
  }

  /** Nothing could be read this time. */
  miss() {
    for (const card of this.cards.values()) card.miss();
  }

  /** What the server remembers of each model. */
  remember(history) {
    for (const card of this.cards.values()) card.remember(history.models[card.name], history.step_seconds);
  }
}

/** The models that users call, each with its rows of the index, one for each version, and those of its companions. */
function grouped(rows, models) {
  const names = new Set(rows.map(({ name }) => name));
  const targets = new Map(models.filter(({ target }) => target).map(({ name, target }) => [name, target]));
  const groups = new Map();
  const belongs = (name) => targets.get(name) ?? (COMPANION.test(name) && names.has(name.replace(COMPANION, "")) ? name.replace(COMPANION, "") : name);
  for (const row of rows) {
    const name = belongs(row.name);
    if (!groups.has(name)) groups.set(name, { name, rows: [], companions: [] });
    groups.get(name)[row.name === name ? "rows" : "companions"].push(row);
  }
  return [...groups.values()].filter(({ rows }) => rows.length);
}

function serves({ state }) {
  return state === "READY";
}

async function control(card, action) {
  if (action === "unload" && !(await asked(`Unload ${card.name}?`, "New requests to it are rejected until it is loaded again. Those that were accepted are answered.", "Unload"))) return;
  card.busy(action === "load" ? "Loading …" : "Unloading …");
  try {
    await call(`v2/repository/models/${encodeURIComponent(card.name)}/${action}`, { method: "POST", body: "{}" });
    card.report(action === "load" ? "Loaded." : "Unloaded.");
  } catch (error) {
    card.report(error instanceof Rejected ? `Rejected (${error.status}): ${error.message}` : error.message, true);
  }
  card.busy("");
}

/** Whether the person says yes. */
function asked(title, text, yes) {
  const dialog = at("ask");
  at("ask-title").textContent = title;
  at("ask-text").textContent = text;
  at("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
