// What a model computes with, the measurements behind that and why the others lost, and how right it is.

import { call } from "./api.js";
import { element, term, write } from "./dom.js";
import { percent, short } from "./history.js";

/** A part of a card that asks the server for the whole plan once it is opened. */
export class PlanDetails {
  constructor(name) {
    this.name = name;
    this.proof = null;
    this.element = element("details", "plan");
    this.element.hidden = true;
    this.title = element("summary");
    this.right = element("p", "right");
    this.live = element("p", "live");
    this.body = element("div", "body");
    this.element.append(this.title, this.right, this.live, this.body);
    this.element.addEventListener("toggle", () => this.ask());
    this.version = "";
  }

  /** What every look tells of it. */
  update({ plan, version, agreement }) {
    const known = plan.serves;
    this.element.hidden = !known;
    if (!known) return;
    write(this.title, `Plan and proofs: ${plan.precisions.join(", ")} on ${plan.device}, ${plan.measured ? "measured on this machine" : "not measured on this machine"}`);
    this.proof = proofOf(plan, agreement);
    write(this.right, this.proof ? `${this.proof.big} ${this.proof.note}` : "Nothing was proved of it.");
    this.live.hidden = !agreement;
    if (agreement) write(this.live, told(agreement));
    const key = `${version} ${plan.serves} ${plan.measured}`;
    if (key !== this.version) {
      this.version = key;
      this.asked = "";
      this.ask();
    }
  }

  async ask() {
    if (this.element.hidden || !this.element.open || this.asked === this.version) return;
    this.asked = this.version;
    try {
      this.draw(await call(`v1/plan/${encodeURIComponent(this.name)}`));
    } catch (error) {
      this.asked = "";
      this.body.replaceChildren(element("p", "quiet", `The plan cannot be read: ${error.message}`));
    }
  }

  draw(plan) {
    const parts = [];
    for (const [batch, choice] of Object.entries(plan.choices)) {
      const gains = Object.entries(plan.gains[batch] ?? {}).filter(([other]) => other !== choice);
      const [rival] = gains.sort(([, one], [, other]) => one - other); // the best that computes in fp32
      const best = rival ? `, ${rival[1].toFixed(2)} times as fast as ${rival[0]}` : "";
      parts.push(element("li", "", "", element("b", "", `Batch ${batch}: `), `${choice}${best}`));
    }
    const chosen = element("ul", "chosen", "", ...parts);
    const reason = plan.reason ? [element("p", "quiet", plan.reason)] : [];
    const cut = plan.cut ? [element("p", "quiet", plan.cut)] : [];
    const words = element("p", "quiet", "", term("plan", "What a plan is"), " · ", term("precision", "Precisions"));
    this.body.replaceChildren(words, chosen, ...reason, ...cut, ...(plan.measurements.length ? [table(plan.measurements)] : []));
  }
}

function table(measurements) {
  const batches = [...new Set(measurements.map(({ batch }) => batch))].sort((one, other) => one - other);
  const candidates = new Map();
  for (const item of measurements) candidates.set(item.candidate, [...(candidates.get(item.candidate) ?? []), item]);
  const head = element("tr", "", "", ...["Candidate", ...batches.map((batch) => `Batch ${batch}`), "Memory", "Agreement", "What became of it"].map((name) => header(name, "col")));
  const best = (items) => Math.min(Infinity, ...items.filter(({ milliseconds }) => milliseconds).map(({ milliseconds, batch }) => milliseconds / batch));
  const sorted = [...candidates].sort(([, one], [, other]) => won(other) - won(one) || best(one) - best(other));
  const rows = sorted.map(([candidate, items]) => {
    const of = (batch) => items.find((item) => item.batch === batch);
    const cells = batches.map((batch) => element("td", of(batch)?.status === "won" ? "best" : "", of(batch)?.milliseconds ? short((1000 * batch) / of(batch).milliseconds) : "–"));
    const memory = Math.max(...items.map((item) => item.memory_mb ?? 0));
    const agreement = items.map((item) => item.agreement).filter((share) => share !== null);
    const why = won(items) ? `serves batches of ${items.filter(({ status }) => status === "won").map(({ batch }) => batch).join(", ")}` : items.find((item) => item.why)?.why || items[0].status;
    const rest = [memory ? `${short(memory)} MiB` : "–", agreement.length ? percent(Math.min(...agreement)) : "–"];
    return element("tr", won(items) ? "won" : "", "", header(candidate, "row"), ...cells, ...rest.map((cell) => element("td", "", cell)), element("td", "outcome", why));
  });
  const caption = element("caption", "quiet", "Images a second of every candidate, by batch size; bold where it serves");
  const made = element("table", "", "", caption, element("thead", "", "", head), element("tbody", "", "", ...rows));
  const frame = element("div", "scroll", "", made);
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "Measurements of the plan");
  return frame;
}

function won(items) {
  return items.some(({ status }) => status === "won");
}

function header(text, scope) {
  const made = element("th", "", text);
  made.scope = scope;
  return made;
}

/** How right it is, as one number and a sentence: on the images that are answered here where that is known, else as packaged. */
function proofOf(plan, agreement) {
  if (agreement?.compared && !agreement.taken_back) {
    const below = agreement.high < agreement.accepted;
    return { share: agreement.share, big: percent(agreement.share), note: `of ${short(agreement.compared)} answers given here agree with fp32.`, state: below ? "bad" : "good" };
  }
  const { parity } = plan;
  if (!parity?.status || parity.status === "not-run") return null;
  if (parity.status !== "passed") return { share: 0, big: "Failed", note: parity.why ?? "It does not agree with the original model.", state: "bad" };
  const share = parity.top1_agreement ?? parity.decision_agreement ?? parity.cosine ?? 1;
  const differs = parity.max_abs === undefined ? "" : `, and outputs differ by up to ${parity.max_abs.toExponential(1)}`;
  const lost = parity.accuracy_drop === undefined ? "" : `, and ${parity.accuracy_drop.toFixed(2)} points of accuracy are lost`;
  return { share, big: percent(share), note: `agree with the original model, on ${short(parity.rows ?? 0)} images or rows when it was packaged${differs}${lost}.`, state: "good" };
}

function told({ compared, agreed, skipped, low, high, accepted, taken_back: back }) {
  const counted = `${short(agreed)} of ${short(compared)} compared answers agree with fp32`;
  const bounds = compared ? `; of all, ${percent(low)} to ${percent(high)} with 95 % confidence` : "";
  const left = skipped ? `; ${short(skipped)} more were left out while others were compared` : "";
  return `${counted}${bounds}; at least ${percent(accepted)} was accepted${left}.${back ? " The plan was taken back, and it serves in fp32." : ""}`;
}
