// Numbers as people read them, and the statistics that charts need.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const NARROW_SPACE = "\u202f";

/** Return a whole number, or a dash for one that is not told. */
export const count = (number) => (number === null ? "–" : whole.format(number));
export const time = (iso) => clock.format(new Date(iso));
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Return a share as a percentage, never rounded to 0 % or 100 %. */
export function percent(share, digits = 1) {
  if (share === null || share === undefined) return "–";
  if (share === 0 || share === 1) return `${100 * share}${NARROW_SPACE}%`;
  const step = 10 ** -digits;
  const rounded = Number((100 * share).toFixed(digits));
  if (rounded <= 0) return `<${NARROW_SPACE}${step.toFixed(digits)}${NARROW_SPACE}%`;
  if (rounded >= 100) return `>${NARROW_SPACE}${(100 - step).toFixed(digits)}${NARROW_SPACE}%`;
  return `${rounded.toFixed(digits)}${NARROW_SPACE}%`;
}

/** Return seconds in days, hours, minutes and what remains. */
export function duration(seconds) {
  const parts = [];
  for (const [name, size] of [
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
    ["second", 1],
  ]) {
    const whole = Math.floor(seconds / size);
    if (whole) parts.push(plural(whole, name));
    seconds -= whole * size;
  }
  return parts.join(" ") || "none";
}

/** Return a number with so many significant digits, without zeros at its end. */
export const short = (number, digits = 3) => String(Number(number.toPrecision(digits)));

/** The coin of an arm: how mean rewards become mean feedback, and back. */
export function coinOf({ p00, p11 }) {
  const slope = p00 + p11 - 1;
  return { low: 1 - p00, slope, reward: (rate) => (rate - (1 - p00)) / slope };
}

/**
 * Return [estimate, lower, upper] of an arm's mean reward, as `whitelie.estimate` has them.
 *
 * The interval is that of the beta mixture, which is anytime-valid: the probability that the truth is
 * ever outside is at most 5 %.
 */
export function estimate(coin, answered, ones) {
  if (!answered) return [null, 0, 1];
  const mean = clampToUnit(coin.reward(ones / answered));
  const ends = [coin.low, coin.low + coin.slope].sort((a, b) => a - b);
  const [least, most] = feedbackInterval(answered, ones, 0.001);
  if (most < ends[0] || least > ends[1]) return [mean, 0, 1]; // reports that this coin cannot produce
  const [lower, upper] = feedbackInterval(answered, ones, 0.05)
    .map((end) => clampToUnit(coin.reward(end)))
    .sort((a, b) => a - b);
  return [mean, lower, upper];
}

/**
 * Return each arm's chance to be best, if posteriors were normal.
 *
 * Cells are cut at quantiles of all arms; in a cell arm k is best with probability about
 * ΔF_k·Π_j≠k F_j.
 */
export function chances(coins, answered, ones) {
  const arms = coins.map((coin, k) => {
    const rate = (ones[k] + 1) / (answered[k] + 2);
    const error = Math.sqrt((rate * (1 - rate)) / (answered[k] + 3)) / Math.abs(coin.slope);
    return { mean: coin.reward(rate), error };
  });
  const cuts = arms.flatMap(({ mean, error }) => QUANTILES.map((z) => mean + z * error)).sort((a, b) => a - b);
  const best = arms.map(() => 0);
  let before = arms.map(() => 0);
  for (const cut of cuts) {
    const below = arms.map(({ mean, error }) => normalCdf((cut - mean) / error));
    const logs = below.map((high, k) => Math.log(Math.max((high + before[k]) / 2, 1e-300)));
    const sum = logs.reduce((a, b) => a + b, 0);
    for (let k = 0; k < best.length; k++) best[k] += (below[k] - before[k]) * Math.exp(sum - logs[k]);
    before = below;
  }
  const total = best.reduce((a, b) => a + b, 0);
  return best.map((chance) => chance / total);
}

const QUANTILES = Array.from({ length: 33 }, (_, i) => (i - 16) / 4);

const clampToUnit = (number) => Math.min(Math.max(number, 0), 1);

function feedbackInterval(pulls, successes, alpha) {
  const rate = successes / pulls;
  const budget = (Math.log1p(pulls) - Math.log(alpha) + logLargest(pulls, successes)) / pulls;
  return [end(rate, 0, budget), end(rate, 1, budget)];
}

/** Return the rate furthest from `rate` toward `limit` whose divergence is within the budget. */
function end(rate, limit, budget) {
  let [inside, outside] = [rate, limit];
  for (let i = 0; i < 40; i++) {
    const middle = (inside + outside) / 2;
    if (divergence(rate, middle) <= budget) inside = middle;
    else outside = middle;
  }
  return inside;
}

function divergence(p, q) {
  const term = (a, b) => (a === 0 ? 0 : b === 0 ? Infinity : a * Math.log(a / b));
  return term(p, q) + term(1 - p, 1 - q);
}

/** Return ln P(S of N | rate S/N), by Stirling's errors. */
function logLargest(pulls, successes) {
  const failures = pulls - successes;
  if (!successes || !failures) return 0;
  const errors = stirling(pulls) - stirling(successes) - stirling(failures);
  return errors + 0.5 * Math.log(pulls / (2 * Math.PI * successes * failures));
}

const LOG_FACTORIALS = [0];
for (let n = 1; n < 16; n++) LOG_FACTORIALS.push(LOG_FACTORIALS[n - 1] + Math.log(n)); // ln n!

function stirling(n) {
  if (n < 16) return LOG_FACTORIALS[n] - (n + 0.5) * Math.log(n) + n - 0.5 * Math.log(2 * Math.PI);
  const square = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / n;
}

/** The normal distribution function (Abramowitz and Stegun 7.1.26: error below 1.5e-7). */
function normalCdf(z) {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = (series * Math.exp(-x * x)) / 2;
  return z > 0 ? 1 - tail : tail;
}
