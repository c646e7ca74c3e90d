// The image as it is decoded, after each step of the preprocessing, and as the model sees it.

import { Rejected, call } from "./api.js";
import { at, element } from "./dom.js";

/** The pictures below an answer. */
export class Steps {
  constructor() {
    this.addresses = [];
  }

  /** Draw how an image became the input of a model. Where the server does not say, nothing is drawn. */
  async draw({ name, version }, image, signal) {
    const query = version ? `?version=${encodeURIComponent(version)}` : "";
    let found;
    try {
      found = await call(`v1/preprocess/${encodeURIComponent(name)}${query}`, { method: "POST", body: image, signal });
    } catch (error) {
      if (!(error instanceof Rejected)) throw error;
      this.clear();
      return;
    }
    this.clear();
    at("steps").replaceChildren(...found.steps.map((step) => this.step(step)));
    at("seen").hidden = false;
  }

  step({ what, how, width, height, png }) {
    const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    this.addresses.push(address);
    const picture = element("img");
    Object.assign(picture, { src: address, alt: `The image ${what}` });
    const caption = element("figcaption", "", "", element("b", "", what), element("span", "size", `${width} x ${height}`), element("span", "quiet", how));
    return element("li", "", "", element("figure", "", "", picture, caption));
  }

  /** Draw nothing, and let go of what was drawn. */
  clear() {
    for (const address of this.addresses.splice(0)) URL.revokeObjectURL(address);
    at("steps").replaceChildren();
    at("seen").hidden = true;
  }
}
