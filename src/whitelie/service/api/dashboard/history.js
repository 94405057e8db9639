// Counts over time: cumulative by bucket, joined to as many points as a chart can show.

import { chances, coinOf, estimate } from "./numbers.js";

export const MAX_POINTS = 240;
export const MAX_BUCKETS = 10_000;
const MINUTE_MS = 60_000;
const BUCKET_MINUTES = [1, 5, 15, 60, 360, 1440];
const MAX_CANDIDATES = 50;

/** Return for how many minutes a bucket of the history should stand. */
export function widthFor(experiment, now) {
  const most = experiment.arms.length <= 10 ? MAX_BUCKETS : MAX_BUCKETS / 10;
  const minutes = (now - Date.parse(experiment.created)) / MINUTE_MS + 1;
  return BUCKET_MINUTES.find((width) => minutes <= width * (most - 1)) ?? 1440;
}

/**
 * The counts of an experiment by bucket: `starts`, and by arm `issued`, `answered`, `ones`, which
 * are sums since the beginning.
 */
export class History {
  constructor(experiment, { minutes, buckets }) {
    this.keys = experiment.arms.map((arm) => arm.key);
    this.coins = experiment.arms.map(coinOf);
    this.width = minutes * MINUTE_MS;
    this.starts = [];
    this.sums = this.keys.map(() => ({ issued: [], answered: [], ones: [] }));
    const places = new Map(this.keys.map((key, place) => [key, place]));
    const totals = this.keys.map(() => ({ issued: 0, answered: 0, ones: 0 }));
    for (const { start, arms } of buckets) {
      for (const { key, ...counts } of arms) {
        const total = totals[places.get(key)];
        if (total) for (const name in counts) total[name] += counts[name];
      }
      this.#push(Date.parse(start), totals);
    }
  }

  /** Take the totals of now; return false if they contradict the buckets, after a rollback. */
  advance(totals, now) {
    const start = now - (now % this.width);
    const last = this.starts.length - 1;
    const isNew = last < 0 || this.starts[last] < start;
    const before = isNew ? last : last - 1;
    if (before >= 0 && totals.some((total, k) => total.issued < this.sums[k].issued[before])) return false;
    if (isNew) this.#push(start, totals);
    else
      this.sums.forEach((sum, k) => {
        for (const name in sum) sum[name][last] = totals[k][name];
      });
    return true;
  }

  /** Return in which buckets the points of a chart end that begins at a time, MAX_POINTS at most. */
  points(from, now) {
    const first = Math.max(from, this.starts[0] ?? now);
    const step = this.width * Math.max(1, Math.ceil((now - first) / this.width / (MAX_POINTS - 2)));
    const ends = [];
    let bin;
    for (let i = lowerBound(this.starts, from); i < this.starts.length; i++) {
      const next = Math.floor(this.starts[i] / step);
      if (next === bin) ends.pop();
      ends.push(i);
      bin = next;
    }
    return { ends, step };
  }

  /** Return a point: when it ends, and by arm the share since bucket `before`, estimate, chance. */
  point(i, before, { shown, candidates }, now) {
    const issued = this.sums.map((sum) => sum.issued[i] - (before < 0 ? 0 : sum.issued[before]));
    const all = issued.reduce((a, b) => a + b, 0);
    const answered = this.sums.map((sum) => sum.answered[i]);
    const ones = this.sums.map((sum) => sum.ones[i]);
    const best = chances(
      candidates.map((k) => this.coins[k]),
      candidates.map((k) => answered[k]),
      candidates.map((k) => ones[k]),
    );
    return {
      time: Math.min(this.starts[i] + this.width, now),
      shares: issued.map((each) => (all ? Math.max(each, 0) / all : null)),
      estimates: new Map(shown.map((k) => [k, estimate(this.coins[k], answered[k], ones[k])])),
      chance: new Map(candidates.map((k, place) => [k, best[place]])),
    };
  }

  #push(start, totals) {
    this.starts.push(start);
    this.sums.forEach((sum, k) => {
      for (const name in sum) sum[name].push(totals[k][name]);
    });
  }
}

/** Return the places of the arms that may be best: those at work, and of very many the most answered. */
export function candidatesOf(arms) {
  const active = arms.flatMap((arm, k) => (arm.retired ? [] : [k]));
  return active.sort((a, b) => arms[b].answered - arms[a].answered).slice(0, MAX_CANDIDATES);
}

function lowerBound(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
