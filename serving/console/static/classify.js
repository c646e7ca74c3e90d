// One image to the server and its labels back. Whatever a label says is shown as text.

import { Rejected, call, hasToken } from "./api.js";
import { duration, percent } from "./history.js";

const at = (id) => document.getElementById(id);

/** The part of the page that takes an image. `offer` tells it which models there are. */
export class Classifier {
  constructor() {
    this.image = null;
    this.shown = null; // the address of the preview, which holds the image in memory until it is revoked
    this.running = null;
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
    const sorted = models.filter((model) => model.takes_images).sort((one, other) => rank[one.kind] - rank[other.kind]);
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
      const path = `v1/classify/${encodeURIComponent(model)}?k=${Number(count.value)}`;
      const answer = await call(path, { method: "POST", body: this.image, signal: own.signal });
      this.answer(answer, (performance.now() - begin) / 1000);
    } catch (error) {
      if (own.signal.aborted) return; // a later image has taken its place
      this.reject(error instanceof Rejected ? `The server rejected the image (${error.status}): ${error.message}` : error.message);
    }
    at("outcome").setAttribute("aria-busy", "false");
  }

  answer({ model, version, predictions }, seconds) {
    at("rejected").hidden = true;
    at("again").hidden = false;
    at("said").textContent = `${model}, version ${version}, answered in ${duration(seconds)}`;
    at("labels").replaceChildren(...predictions.map(row));
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
    const model = encodeURIComponent(at("model").value || "MODEL");
    const url = new URL(`v1/classify/${model}?k=${Number(at("count").value)}`, document.baseURI);
    at("shell").textContent = `curl${bearer} --data-binary @photo.jpg '${url.href}'`;
  }
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
