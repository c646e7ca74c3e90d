// One image to the server, its answer back, beside another model's where that is asked for, and what the model was given.

import { Rejected, call, hasToken } from "./api.js";
import { at } from "./dom.js";
import { duration } from "./history.js";
import { compared, rowsOf, text, vectors } from "./answers.js";
import { Steps } from "./steps.js";

/** The part of the page that takes an image. `offer` tells it which models there are. */
export class Classifier {
  constructor() {
    this.image = null;
    this.shown = null; // the address of the preview, which holds the image in memory until it is revoked
    this.running = null;
    this.offered = new Map(); // what an option is called -> its model, version and route
    this.steps = new Steps();
    at("file").addEventListener("change", () => this.choose(at("file").files));
    at("again").addEventListener("click", () => this.send());
    for (const name of ["model", "other", "count"]) at(name).addEventListener("change", () => this.changed());
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

  /** Offer the models that answer images, each of their versions; what was chosen stays chosen as long as it is there. */
  offer(models) {
    const able = models.filter((model) => model.answers.length && model.kind === "tensor");
    const newest = new Set();
    this.offered = new Map();
    for (const { name, version, answers } of able) {
      if (!newest.has(name)) this.offered.set(name, { name, version: "", route: answers[0] });
      else this.offered.set(`${name}, version ${version}`, { name, version, route: answers[0] });
      newest.add(name);
    }
    const names = [...this.offered.keys()];
    const chosen = at("model").value;
    fill(at("other"), ["", ...names], "nothing");
    if (fill(at("model"), names) && this.image && !chosen) this.send(); // it was chosen before the server had said what it serves
    at("model").disabled = names.length === 0;
    at("other").disabled = names.length < 2;
    this.shell();
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
    const asked = this.offered.get(at("model").value);
    const other = this.offered.get(at("other").value);
    const count = at("count");
    if (!asked) return this.reject("No model that takes images is served.");
    if (!count.checkValidity() || !count.value) return this.reject("Labels must be a number from 1 to 1000.");
    this.running?.abort();
    const own = (this.running = new AbortController());
    at("outcome").setAttribute("aria-busy", "true");
    try {
      const first = await this.answer(asked, own.signal, "said", "labels");
      const second = other ? await this.answer(other, own.signal, "other-said", "other-labels") : null;
      at("rejected").hidden = true;
      at("again").hidden = false;
      at("second").hidden = !second;
      at("verdict").hidden = !second;
      at("verdict").textContent = second ? compared(first, second) : "";
      await this.steps.draw(asked, this.image, own.signal);
    } catch (error) {
      if (own.signal.aborted) return; // a later image has taken its place
      this.reject(error instanceof Rejected ? `The server rejected the image (${error.status}): ${error.message}` : error.message);
    }
    at("outcome").setAttribute("aria-busy", "false");
  }

  path({ name, version, route }) {
    const query = new URLSearchParams();
    if (route === "classify") query.set("k", String(Number(at("count").value)));
    if (version) query.set("version", version);
    return `v1/${route}/${encodeURIComponent(name)}${query.size ? `?${query}` : ""}`;
  }

  /** What one model says, shown where it belongs. */
  async answer(asked, signal, said, labels) {
    const begin = performance.now();
    const answer = await call(this.path(asked), { method: "POST", body: this.image, signal });
    const seconds = (performance.now() - begin) / 1000;
    at(said).textContent = `${answer.model}, version ${answer.version}, answered in ${duration(seconds)}`;
    const rows = vectors(answer);
    for (const [name, head] of Object.entries(answer.heads ?? {})) rows.push(text(name, "head"), ...rowsOf(head));
    if (answer.predictions) rows.push(...rowsOf(answer));
    at(labels).replaceChildren(...rows);
    return answer;
  }

  reject(message) {
    at("labels").replaceChildren();
    at("other-labels").replaceChildren();
    at("second").hidden = at("verdict").hidden = true;
    this.steps.clear();
    at("said").textContent = "";
    at("rejected").textContent = message;
    at("rejected").hidden = false;
    at("again").hidden = this.image === null;
  }

  /** The same call for a shell. */
  shell() {
    const bearer = hasToken() ? ' -H "Authorization: Bearer $TOKEN"' : "";
    const asked = this.offered.get(at("model").value) ?? { name: "MODEL", version: "", route: "classify" };
    const url = new URL(this.path(asked), document.baseURI);
    at("shell").textContent = `curl${bearer} --data-binary @photo.jpg '${url.href}'`;
  }
}

/** Whether a choice has other options now. */
function fill(select, values, none = "") {
  const old = [...select.options].map((option) => option.value);
  if (values.length === old.length && values.every((value, index) => value === old[index])) return false;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => new Option(value || none, value)));
  if (values.includes(chosen)) select.value = chosen;
  return true;
}
