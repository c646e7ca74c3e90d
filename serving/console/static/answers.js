// Answers as rows of a list, and how two of them differ. Whatever a label says is shown as text.

import { element } from "./dom.js";
import { percent } from "./history.js";

/** A row for each label. */
export function rowsOf({ predictions }) {
  return predictions.length ? predictions.map(row) : [text("No label is above its threshold.")];
}

/** A row for each embedding. */
export function vectors({ embedding, embeddings }) {
  return Object.entries(embedding ? { embedding } : (embeddings ?? {})).map(([name, vector]) => text(described(name, vector)));
}

/** A row that is no label. */
export function text(content, kind = "note") {
  return element("li", kind, content);
}

/** What two answers for one image have in common, in a sentence. */
export function compared(first, second) {
  const one = vectorOf(first);
  const other = vectorOf(second);
  if (one && other) return one.length === other.length ? `The directions of both embeddings agree to ${cosine(one, other).toFixed(4)} (1 is the same).` : "The embeddings have different lengths.";
  const pairs = headsOf(first).flatMap(([name, head]) => headsOf(second).filter(([same]) => same === name).map(([, given]) => [name, head, given]));
  if (!pairs.length) return "The two give different kinds of answers.";
  return pairs.map(([name, head, given]) => `${name ? `${name}: ` : ""}${difference(head, given)}`).join(" ");
}

function difference(one, other) {
  const [best, rival] = [one.predictions[0], other.predictions[0]];
  if (!best || !rival) return best || rival ? "Only one of them gives a label." : "Neither gives a label.";
  const same = best.index === rival.index && best.label === rival.label;
  const shared = one.predictions.flatMap((each) => other.predictions.filter(({ index }) => index === each.index).map((match) => Math.abs(match.probability - each.probability)));
  const most = shared.length ? ` Probabilities of the labels in both lists differ by up to ${percent(Math.max(...shared))}.` : "";
  return (same ? `Both say ${named(best)}.` : `They differ: ${named(best)} against ${named(rival)}.`) + most;
}

function headsOf(answer) {
  return answer.heads ? Object.entries(answer.heads) : answer.predictions ? [["", answer]] : [];
}

function vectorOf({ embedding, embeddings }) {
  return embedding ?? Object.values(embeddings ?? {})[0];
}

function cosine(one, other) {
  return one.reduce((total, value, index) => total + value * other[index], 0) / (Math.hypot(...one) * Math.hypot(...other) || 1);
}

function described(name, vector) {
  const length = Math.hypot(...vector).toPrecision(4);
  const first = vector.slice(0, 8).map((value) => value.toPrecision(3));
  return `${name}: ${vector.length} numbers of length ${length}: ${first.join(", ")}${vector.length > 8 ? ", …" : ""}`;
}

function named({ label, index }) {
  return label ?? `class ${index}`;
}

function row(prediction) {
  const { index, probability } = prediction;
  const bar = element("span", "fill");
  bar.style.inlineSize = `${Math.min(100, Math.max(0, probability * 100))}%`;
  const item = element("li", "", "", element("span", "name", named(prediction)), element("span", "share", percent(probability)), element("span", "track", "", bar));
  item.title = `class ${index}: ${probability}`;
  return item;
}
