// The table of arms. Rows stay where they are and change what they say, so that nothing jumps.

import { el, say, set, svg } from "./element.js";
import { count, percent } from "./numbers.js";

const MAX_ROWS = 20;
const COLUMNS = [
  ["arm", "Arm"],
  ["raw", "Noisy rate", "The share of ones among the flipped bits"],
  ["estimate", "Corrected", "The rate that the flipped bits stand for"],
  ["interval", "Interval", "The probability that the rate is outside, at any time you look, is at most 5 %"],
  [
    "evidence",
    "Evidence",
    "How much there is of the evidence that a certificate needs to say that the leader is better than this arm",
  ],
  ["best", "P(best), a\u00a0belief", "The posterior chance of being best: what one may bet on, not a certificate"],
  ["traffic", "Traffic", "The share of the decisions of the last hour, or of all if there were none"],
  ["issued", "Decisions"],
  ["answered", "Reports"],
];

export class Leaderboard {
  /** A table whose rows call `onRetire(key)` if it is given; `colour(key)` is that of the charts. */
  constructor({ onRetire = null, colour }) {
    this.onRetire = onRetire;
    this.colour = colour;
    this.rows = [];
    this.isWhole = false;
    this.scale = el("span", { class: "scale" });
    const heads = COLUMNS.map(([name, text, title]) =>
      el("th", { scope: "col", class: name, title }, text, name === "interval" ? this.scale : null),
    );
    if (onRetire) heads.push(el("th", { scope: "col", class: "act" }, el("span", { class: "unseen" }, "Action")));
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "board" },
      el("caption", { class: "unseen" }, "Arms, the most likely best first"),
      el("thead", {}, el("tr", {}, heads)),
      this.body,
    );
    this.more = el("button", {
      type: "button",
      class: "quiet",
      hidden: true,
      onclick: () => {
        this.isWhole = true;
        this.update(this.results);
      },
    });
    this.node = el(
      "section",
      { class: "leaderboard", "aria-labelledby": "arms" },
      el("h2", { id: "arms" }, "Arms"),
      this.table,
      this.more,
    );
  }

  update(results) {
    this.results = results;
    // Whoever points at a row or is in it must find the same arm there.
    const isHeld =
      this.order && this.body.matches(":hover, :focus-within") && this.order.length === results.arms.length;
    if (!isHeld) this.order = ranked(results.arms);
    const arms = new Map(results.arms.map((arm) => [arm.key, arm]));
    const shown = this.isWhole ? this.order : this.order.slice(0, MAX_ROWS);
    while (this.rows.length > shown.length) this.rows.pop().node.remove();
    while (this.rows.length < shown.length) this.#append();
    const scale = scaleOf(results.arms);
    const { leader, rivals } = results.certificate;
    const more = new Map(rivals.map((rival) => [rival.key, rival.more_reports]));
    say(this.scale, `${percent(scale[0], 0)} … ${percent(scale[1], 0)}`);
    const canRetire =
      ["running", "paused"].includes(results.status) && results.arms.filter((arm) => !arm.retired).length > 1;
    for (const [place, key] of shown.entries()) {
      this.#fill(this.rows[place], arms.get(key), scale, canRetire);
      fillEvidence(this.rows[place], arms.get(key), { isLeader: key === leader, more: more.get(key) });
    }
    this.more.hidden = this.isWhole || this.order.length <= MAX_ROWS;
    say(this.more, `Show all ${count(this.order.length)} arms`);
  }

  #append() {
    const cells = Object.fromEntries(
      COLUMNS.map(([name, text]) => [
        name,
        el(name === "arm" ? "th" : "td", { class: name, "data-label": text, scope: name === "arm" ? "row" : null }),
      ]),
    );
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    const name = el("span", { class: "name" });
    const badge = el("span", { class: "badge" });
    cells.arm.append(el("div", { class: "who" }, swatch, name, badge));
    const values = {};
    for (const column of ["raw", "estimate", "issued", "answered", "evidence", "best", "traffic"]) {
      values[column] = el("span");
      cells[column].append(values[column]);
    }
    const bars = {};
    for (const column of ["evidence", "best", "traffic"]) {
      bars[column] = svg("rect", { height: "100%", rx: 1.5 });
      cells[column].append(svg("svg", { class: "meter", "aria-hidden": "true" }, bars[column]));
    }
    const range = svg("rect", { class: "range", y: 5, height: 8, rx: 4 });
    const raw = svg("rect", { class: "noisy", y: 3, height: 12, width: 2, rx: 1 });
    const mean = svg("rect", { class: "mean", y: 2, height: 14, width: 3, rx: 1.5 });
    const track = svg("line", { class: "track", x1: 0, x2: "100%", y1: 9, y2: 9 });
    const picture = svg("svg", { class: "bar", role: "img" }, track, range, raw, mean);
    cells.interval.append(picture);
    const row = {
      node: el("tr", {}, Object.values(cells)),
      swatch,
      name,
      badge,
      values,
      bars,
      range,
      raw,
      mean,
      picture,
    };
    if (this.onRetire) {
      row.retire = el("button", { type: "button", class: "quiet", onclick: () => this.onRetire(row.key) }, "Retire…");
      row.node.append(el("td", { class: "act" }, row.retire));
    }
    this.body.append(row.node);
    this.rows.push(row);
  }

  #fill(row, arm, scale, canRetire) {
    row.key = arm.key;
    row.node.classList.toggle("retired", arm.retired);
    say(row.name, arm.key);
    set(row.name, { title: arm.key });
    say(row.badge, arm.retired ? "retired" : "");
    const colour = this.colour(arm.key);
    row.swatch.style.backgroundColor = colour ?? "transparent";
    say(row.values.raw, percent(arm.raw_rate));
    say(row.values.estimate, percent(arm.estimate));
    say(row.values.best, arm.retired ? "–" : percent(arm.probability_best));
    say(row.values.traffic, percent(arm.traffic_share));
    say(row.values.issued, count(arm.issued));
    say(row.values.answered, count(arm.answered));
    set(row.bars.best, { width: `${100 * arm.probability_best}%` });
    set(row.bars.traffic, { width: `${100 * arm.traffic_share}%` });
    const at = (value) => Math.min(Math.max((100 * (value - scale[0])) / (scale[1] - scale[0]), 0), 100);
    const [left, right] = [at(arm.lower), at(arm.upper)];
    set(row.range, { x: `${left}%`, width: `${Math.max(right - left, 0.5)}%` });
    row.range.style.fill = colour ?? "";
    for (const [mark, value] of [
      [row.mean, arm.estimate],
      [row.raw, arm.raw_rate],
    ]) {
      set(mark, {
        visibility: value === null || value < scale[0] || value > scale[1] ? "hidden" : "visible",
        x: `${at(value ?? 0)}%`,
      });
    }
    row.mean.style.fill = colour ?? "";
    set(row.picture, { "aria-label": `${percent(arm.lower)} to ${percent(arm.upper)}` });
    set(row.picture.parentElement, { title: `${percent(arm.lower)} to ${percent(arm.upper)}` });
    if (row.retire) {
      set(row.retire, { "aria-label": `Retire ${arm.key}`, disabled: arm.retired || !canRetire });
      row.retire.classList.toggle("gone", arm.retired);
    }
  }
}

/** Show the evidence against an arm, or that it leads. */
function fillEvidence({ node, values, bars }, { certified, evidence, needed }, { isLeader, more }) {
  const share = evidence === null ? null : Math.min(evidence / needed, 1);
  const word = certified ? "certified" : isLeader ? "leads" : percent(share, 0);
  const guess = more ? `; about ${count(Number(more.toPrecision(2)))} more reports` : "";
  say(values.evidence, word);
  set(values.evidence, { title: share === null ? null : `${evidence.toFixed(2)} of ${needed.toFixed(2)}${guess}` });
  node.classList.toggle("certified", certified);
  set(bars.evidence, { width: `${100 * (share ?? 0)}%` });
  set(bars.evidence.parentElement, { visibility: share === null ? "hidden" : "visible" });
}

/** Return the arms' keys: active arms first, then the most likely best, then the most shown. */
function ranked(arms) {
  const order = (a, b) => a.retired - b.retired || b.probability_best - a.probability_best || b.issued - a.issued;
  return [...arms].sort(order).map((arm) => arm.key);
}

/** Return the axis of the small bars: whole tens of percent around all that is known. */
function scaleOf(arms) {
  const known = arms.filter((arm) => arm.answered && !arm.retired);
  if (!known.length) return [0, 1];
  const low = Math.min(...known.map((arm) => arm.lower));
  const high = Math.max(...known.map((arm) => arm.upper));
  return [Math.floor(low * 10) / 10, Math.max(Math.ceil(high * 10) / 10, Math.floor(low * 10) / 10 + 0.1)];
}
