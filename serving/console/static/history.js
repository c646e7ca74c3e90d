// From counters to what happened lately: rates, quantiles and batch sizes between two looks. Pure: no page, no clock.

const KEPT = 121; // looks of a second each: the plots show two minutes
const WINDOW = 10; // seconds over which quantiles and batch sizes are taken: a single one holds too few requests

/** What one model did between looks at its counters. `points` are in order of time; a null one is a look that failed. */
export class History {
  constructor(bounds) {
    this.bounds = bounds;
    this.points = [];
  }

  /** Add a look at `time`, in seconds. */
  add(time, counters) {
    const last = this.latest()?.counters;
    // Counters that fell are those of another start of the server, and say nothing about the one before.
    if (last && (counters.answered < last.answered || counters.failed < last.failed)) this.points = [];
    const before = this.latest();
    if (before && time <= before.time) return;
    this.points.push({ time, counters, ...this.since(before, time, counters) });
    if (this.points.length > KEPT) this.points.shift();
  }

  /** Add a look that failed, which leaves a gap in the plots. */
  miss() {
    if (this.points.length && this.points.at(-1) !== null) this.points.push(null);
    if (this.points.length > KEPT) this.points.shift();
  }

  /** The latest look that did not fail. */
  latest() {
    return this.points.findLast((point) => point !== null);
  }

  /** The look `WINDOW` seconds before `time`, or the first one there is. */
  before(time) {
    const seen = this.points.filter((point) => point !== null);
    return seen.findLast((point) => point.time <= time - WINDOW + 0.5) ?? seen[0];
  }

  since(before, time, counters) {
    if (!before) return { answered: null, failed: null, quantiles: null, batches: [], rows: null };
    const seconds = time - before.time;
    const old = this.before(time).counters;
    const latencies = counters.latencies.map((count, index) => count - old.latencies[index]);
    const batches = Object.entries(counters.batches)
      .map(([size, count]) => [Number(size), count - (old.batches[size] ?? 0)])
      .filter(([, count]) => count > 0);
    const executed = sum(batches.map(([, count]) => count));
    return {
      answered: (counters.answered - before.counters.answered) / seconds,
      failed: (counters.failed - before.counters.failed) / seconds,
      quantiles: sum(latencies) ? [0.5, 0.95, 0.99].map((share) => quantile(this.bounds, latencies, share)) : null,
      batches,
      rows: executed ? sum(batches.map(([size, count]) => size * count)) / executed : null,
    };
  }
}

/** The value below which that share of what a histogram counts lies, straight between the bounds of its bucket, as Prometheus
 * has it. `counts` has one entry per bound, and one for what is beyond the last, of which nothing more is known. */
export function quantile(bounds, counts, share) {
  const rank = share * sum(counts);
  let below = 0;
  for (const [index, bound] of bounds.entries()) {
    if (counts[index] && below + counts[index] >= rank) {
      const lower = index ? bounds[index - 1] : 0;
      return lower + (bound - lower) * Math.max(0, (rank - below) / counts[index]);
    }
    below += counts[index];
  }
  return bounds.at(-1);
}

/** The next of 1, 2, 5, 10, 20, ... that is at least `value`. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9)) ?? 10 * power;
}

/** A number in three digits. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value.toLocaleString("en", { maximumSignificantDigits: value >= 1000 ? 4 : 3 });
}

/** A share of one in percent. */
export function percent(share) {
  return share > 0 && share < 0.0001 ? "< 0.01 %" : `${(share * 100).toFixed(share < 0.1 ? 2 : 1)} %`;
}

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 1 ? `${short(seconds * 1000)} ms` : `${short(seconds)} s`;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
