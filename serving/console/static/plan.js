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
    write(this.right, this.proof?.note ?? "Nothing was proved of it.");
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
      const best = gains.map(([other, gain]) => `${gain.toFixed(2)} times as fast as ${other}`).join(", ");
      parts.push(element("li", "", "", element("b", "", `Batch ${batch}: `), `${choice}${best ? `, ${best}` : ""}`));
    }
    const chosen = element("ul", "chosen", "", ...parts);
    const reason = plan.reason ? [element("p", "quiet", plan.reason)] : [];
    const cut = plan.cut ? [element("p", "quiet", plan.cut)] : [];
    const words = element("p", "quiet", "", term("plan", "What a plan is"), " · ", term("precision", "Precisions"));
    this.body.replaceChildren(words, chosen, ...reason, ...cut, ...(plan.measurements.length ? [table(plan.measurements)] : []));
  }
}

function table(measurements) {
  const head = element("tr", "", "", ...["Candidate", "Batch", "Images/s", "Memory", "Agreement", "Outcome"].map((name) => header(name, "col")));
  const sorted = measurements.toSorted((one, other) => one.batch - other.batch || (one.milliseconds ?? Infinity) - (other.milliseconds ?? Infinity));
  const rows = sorted.map((item) => {
    const rate = item.milliseconds ? short((1000 * item.batch) / item.milliseconds) : "–";
    const cells = [item.batch, rate, item.memory_mb ? `${short(item.memory_mb)} MiB` : "–", item.agreement === null ? "–" : percent(item.agreement)];
    const outcome = element("td", "outcome", item.status === "won" ? "serves" : item.why || item.status);
    const row = element("tr", item.status, "", header(item.candidate, "row"), ...cells.map((cell) => element("td", "", String(cell))), outcome);
    return row;
  });
  const made = element("table", "", "", element("caption", "quiet", "Every candidate that was looked at, and what became of it"), element("thead", "", "", head), element("tbody", "", "", ...rows));
  const frame = element("div", "scroll", "", made);
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "Measurements of the plan");
  return frame;
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
