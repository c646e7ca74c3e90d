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
    if (!before) return { answered: null, failed: null, quantiles: null, recent: null, batches: [], rows: null };
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
      recent: latencies,
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

/** Seconds as an age. */
export function span(seconds) {
  const units = [
    [86400, "day"],
    [3600, "hour"],
    [60, "minute"],
    [1, "second"],
  ];
  const [length, unit] = units.find(([length]) => seconds >= length) ?? units.at(-1);
  const count = Math.floor(seconds / length);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

/** Bytes in binary units. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, count > 0 ? Math.floor(Math.log2(count) / 10) : 0);
  return `${short(count / 1024 ** power)} ${units[power]}`;
}

/** Points of the server's history as those of `History`: rates and quantiles at a time. */
export function pointsOf(rows) {
  return rows.map(([time, seconds, answered, failed, , , , ...quantiles]) => ({
    time,
    answered: answered / seconds,
    failed: failed / seconds,
    quantiles: quantiles[0] === null ? null : quantiles,
  }));
}

/** Counters of several versions of a model as one. */
export function together(all) {
  const [first, ...others] = all;
  return others.reduce((one, other) => {
    const batches = { ...one.batches };
    for (const [size, count] of Object.entries(other.batches)) batches[size] = (batches[size] ?? 0) + count;
    const numbers = ["answered", "failed", "cache_hits", "rows", "executions"].map((name) => [name, one[name] + other[name]]);
    const failures = Object.fromEntries(Object.keys(one.failures).map((name) => [name, one.failures[name] + other.failures[name]]));
    const latencies = one.latencies.map((count, index) => count + other.latencies[index]);
    const queue = one.queue && other.queue && Object.fromEntries(Object.keys(one.queue).map((name) => [name, one.queue[name] + other.queue[name]]));
    return { ...one, ...Object.fromEntries(numbers), batches, failures, latencies, queue };
  }, first);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
