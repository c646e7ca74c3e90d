// One image to the server and its labels, or its embedding, back. Whatever a label says is shown as text.

import { Rejected, call, hasToken } from "./api.js";
import { duration, percent } from "./history.js";

const at = (id) => document.getElementById(id);

/** The part of the page that takes an image. `offer` tells it which models there are. */
export class Classifier {
  constructor() {
    this.image = null;
    this.shown = null; // the address of the preview, which holds the image in memory until it is revoked
    this.running = null;
    this.routes = new Map(); // model -> "classify" or "embed", by what its outputs are
    at("file").addEventListener("change", () => this.choose(at("file").files));
    at("again").addEventListener("click", () => this.send());
    at("model").addEventListener("change", () => this.changed());
    at("count").addEventListener("change", () => this.changed());
    const drop = at("drop");
    // The page must not be replaced by an image that falls beside the field.
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
    drop.addEventListener("dragover", () => drop.classList.add("over"));
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      drop.classList.remove("over");
      this.choose(event.dataTransfer.files);
    });
    document.addEventListener("paste", (event) => {
      if (event.clipboardData?.files.length) this.choose(event.clipboardData.files);
    });
    this.shell();
  }

  /** Offer these models, those that answer with classes first; what was chosen stays chosen as long as it is there. */
  offer(models) {
    const rank = { tensor: 0, classify: 1, decode: 2 };
    const sorted = models.filter((model) => model.answers.length).sort((one, other) => rank[one.kind] - rank[other.kind]);
    this.routes = new Map(sorted.map((model) => [model.name, model.answers[0]]));
    const names = [...new Set(sorted.map((model) => model.name))];
    const select = at("model");
    const old = [...select.options].map((option) => option.value);
    if (names.length === old.length && names.every((name, index) => name === old[index])) return;
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(chosen)) select.value = chosen;
    select.disabled = names.length === 0;
    this.shell();
    if (this.image && !chosen) this.send(); // it was chosen before the server had said what it serves
  }

  choose(files) {
    if (!files.length) return;
    this.image = files[0];
    const preview = at("preview");
    if (this.shown) URL.revokeObjectURL(this.shown);
    this.shown = URL.createObjectURL(this.image);
    preview.onload = () => this.previewed(true);
    preview.onerror = () => this.previewed(false); // the server may know formats that the browser does not
    preview.src = this.shown;
    preview.alt = `Preview of ${this.image.name}`;
    this.send();
  }

  previewed(can) {
    at("preview").hidden = !can;
    at("drop-hint").textContent = `${can ? "" : `${this.image.name}: no preview. `}Drop, paste or choose another.`;
  }

  changed() {
    this.shell();
    if (this.image) this.send();
  }

  async send() {
    const model = at("model").value;
    const count = at("count");
    if (!model) return this.reject("No model that takes images is served.");
    if (!count.checkValidity() || !count.value) return this.reject("Labels must be a number from 1 to 1000.");
    this.running?.abort();
    const own = (this.running = new AbortController());
    at("outcome").setAttribute("aria-busy", "true");
    const begin = performance.now();
    try {
      const answer = await call(this.path(model), { method: "POST", body: this.image, signal: own.signal });
      this.answer(answer, (performance.now() - begin) / 1000);
    } catch (error) {
      if (own.signal.aborted) return; // a later image has taken its place
      this.reject(error instanceof Rejected ? `The server rejected the image (${error.status}): ${error.message}` : error.message);
    }
    at("outcome").setAttribute("aria-busy", "false");
  }

  path(model) {
    const name = encodeURIComponent(model);
    return this.routes.get(model) === "embed" ? `v1/embed/${name}` : `v1/classify/${name}?k=${Number(at("count").value)}`;
  }

  answer({ model, version, heads, embedding, embeddings, ...single }, seconds) {
    at("rejected").hidden = true;
    at("again").hidden = false;
    at("said").textContent = `${model}, version ${version}, answered in ${duration(seconds)}`;
    const vectors = embedding ? { embedding } : (embeddings ?? {});
    const rows = Object.entries(vectors).map(([name, vector]) => text(described(name, vector)));
    for (const [name, head] of Object.entries(heads ?? {})) rows.push(text(name, "head"), ...rowsOf(head));
    if (single.predictions) rows.push(...rowsOf(single));
    at("labels").replaceChildren(...rows);
  }

  reject(message) {
    at("labels").replaceChildren();
    at("said").textContent = "";
    at("rejected").textContent = message;
    at("rejected").hidden = false;
    at("again").hidden = this.image === null;
  }

  /** The same call for a shell. */
  shell() {
    const bearer = hasToken() ? ' -H "Authorization: Bearer $TOKEN"' : "";
    const url = new URL(this.path(at("model").value || "MODEL"), document.baseURI);
    at("shell").textContent = `curl${bearer} --data-binary @photo.jpg '${url.href}'`;
  }
}

function rowsOf({ predictions }) {
  return predictions.length ? predictions.map(row) : [text("No label is above its threshold.")];
}

function described(name, vector) {
  const length = Math.hypot(...vector).toPrecision(4);
  const first = vector.slice(0, 8).map((value) => value.toPrecision(3));
  return `${name}: ${vector.length} numbers of length ${length}: ${first.join(", ")}${vector.length > 8 ? ", …" : ""}`;
}

function text(content, kind = "note") {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = content;
  return item;
}

function row({ label, index, probability }) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "name";
  name.textContent = label ?? `class ${index}`;
  const share = document.createElement("span");
  share.className = "share";
  share.textContent = percent(probability);
  const bar = document.createElement("span");
  bar.className = "fill";
  bar.style.inlineSize = `${Math.min(100, Math.max(0, probability * 100))}%`;
  const track = document.createElement("span");
  track.className = "track";
  track.append(bar);
  item.append(name, share, track);
  item.title = `class ${index}: ${probability}`;
  return item;
}
