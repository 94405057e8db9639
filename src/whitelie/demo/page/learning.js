// The simulated visitors: what the server knows of them, and what is true.

import { el, notify, say, set, svg } from "/dashboard/element.js";
import { count, percent } from "/dashboard/numbers.js";

const POLL_INTERVAL_MS = 1000;
const CHART_POINTS = 60;
const TRAFFIC_WINDOW_SECONDS = 5;
const byId = (id) => document.getElementById(id);

/** Ask both sides every second, and let the slider set the pace. */
export function startLearning(settings) {
  const keys = settings.heroes.map(({ key }) => key);
  const known = new Map(keys.map((key, place) => [key, knownRow(key, place)]));
  const truths = new Map(settings.heroes.map((hero, place) => [hero.key, truthRow(hero, place)]));
  byId("known").append(...[...known.values()].map(({ node }) => node));
  byId("truths").append(...[...truths.values()].map(({ node }) => node));
  const areas = keys.map((_, place) => svg("path", { class: `area arm-${place}` }));
  byId("shares").append(...areas);
  const past = [];
  let isReached = true;
  let isFresh = true;

  async function poll() {
    try {
      const [results, truth] = await Promise.all([
        fetchJson(`/v1/experiments/${settings.experiment}/results`, settings.reader),
        fetchJson("/demo/truth"),
      ]);
      past.push({ at: performance.now(), issued: results.arms.map((arm) => arm.issued), people: total(truth.shown) });
      if (past.length > CHART_POINTS + TRAFFIC_WINDOW_SECONDS) past.shift();
      drawKnown(results);
      drawTruth(truth);
      isReached = true;
    } catch {
      if (isReached) notify("The demonstration has ended, or cannot be reached.", true);
      isReached = false;
    }
    setTimeout(poll, POLL_INTERVAL_MS);
  }

  function drawKnown({ arms, sentence }) {
    say(byId("sentence"), sentence);
    const shares = sharesAt(past, past.length - 1);
    arms.forEach((arm, place) => {
      const row = known.get(arm.key);
      say(row.reports, count(arm.answered));
      say(row.ones, count(arm.ones));
      say(row.noisy, percent(arm.raw_rate, 0));
      say(row.corrected, percent(arm.estimate, 0));
      say(row.share, shares ? percent(shares[place], 0) : "–");
      row.bar.draw(arm.answered ? arm.lower : 0, arm.answered ? arm.upper : 1, arm.estimate);
      set(row.bar.node, { "aria-label": `${percent(arm.lower, 0)} to ${percent(arm.upper, 0)}` });
    });
    drawShares(areas, past);
  }

  function drawTruth(truth) {
    const clicks = total(truth.clicks);
    for (const [key, row] of truths) {
      say(row.shown, count(truth.shown[key]));
      say(row.clicks, count(truth.clicks[key]));
    }
    const best = settings.heroes.reduce((a, b) => (a.rate > b.rate ? a : b)).key;
    say(byId("said-true"), `People like “${best}” best. No device ever says so.`);
    say(byId("true-clicks"), count(clicks));
    say(byId("leaks"), count(truth.leaks));
    say(byId("lies"), truth.reports ? percent(truth.lies / truth.reports, 0) : "–");
    const { length } = past;
    const [first, last] = [past[Math.max(length - 1 - TRAFFIC_WINDOW_SECONDS, 0)], past[length - 1]];
    const pace = length > 1 ? (1000 * (last.people - first.people)) / (last.at - first.at) : 0;
    say(byId("passing"), `${count(total(truth.shown))} people so far, ${count(Math.round(pace))} per second now.`);
    if (isFresh) showPace(truth.pace);
    isFresh = false;
  }

  say(
    byId("coin"),
    `Every device inverts its answer with probability ${percent(1 / (1 + Math.exp(settings.epsilon)), 0)} (ε\u00a0=\u00a0${settings.epsilon}) and reports at a random time.`,
  );
  const slider = byId("pace");
  set(slider, { max: settings.fastest });
  const showPace = (pace) => {
    slider.value = pace;
    say(byId("pace-said"), count(pace));
  };
  let paceTimer;
  slider.addEventListener("input", () => {
    say(byId("pace-said"), slider.value);
    clearTimeout(paceTimer);
    paceTimer = setTimeout(
      () => fetch("/demo/pace", { method: "POST", body: JSON.stringify({ pace: Number(slider.value) }) }),
      150,
    );
  });
  poll();
}

async function fetchJson(path, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { headers, cache: "no-store" });
  if (!response.ok) throw new Error(response.status);
  return response.json();
}

const total = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

/** Return each arm's share of the decisions of a few seconds before a point, or null. */
function sharesAt(past, place) {
  const first = past[Math.max(place - TRAFFIC_WINDOW_SECONDS, 0)];
  const counts = past[place].issued.map((issued, k) => issued - first.issued[k]);
  const all = total(counts);
  return all ? counts.map((each) => each / all) : null;
}

/** Draw shares as areas that fill the height; the newest point is at the right. */
function drawShares(areas, past) {
  const points = [];
  for (let place = Math.max(past.length - CHART_POINTS, 1); place < past.length; place++) {
    const shares = sharesAt(past, place);
    if (shares) points.push([CHART_POINTS - past.length + place, shares]);
  }
  if (points.length < 2) return;
  let below = points.map(() => 0);
  areas.forEach((area, k) => {
    const above = points.map(([, shares], i) => below[i] + shares[k]);
    const corner = (i, height) => `${points[i][0]},${(100 - 100 * height).toFixed(2)}`;
    const top = points.map((_, i) => corner(i, above[i]));
    const bottom = points.map((_, i) => corner(i, below[i])).reverse();
    set(area, { d: `M${[...top, ...bottom].join("L")}Z` });
    below = above;
  });
}

function knownRow(key, place) {
  const row = {
    reports: el("td", { "data-label": "Reports" }),
    ones: el("td", { "data-label": "Ones" }),
    noisy: el("td", { "data-label": "Noisy", class: "soft" }),
    corrected: el("td", { "data-label": "Corrected", class: "strong" }),
    share: el("td", { "data-label": "Traffic", class: "strong" }),
    bar: interval(place),
  };
  row.node = el(
    "tr",
    {},
    head(key, place),
    row.reports,
    row.ones,
    row.noisy,
    row.corrected,
    el("td", { class: "wide" }, row.bar.node),
    row.share,
  );
  return row;
}

function truthRow({ key, rate }, place) {
  const row = {
    shown: el("td", { "data-label": "Shown" }),
    clicks: el("td", { "data-label": "Clicks" }),
    bar: interval(place),
  };
  row.bar.draw(null, null, rate);
  set(row.bar.node, { "aria-label": percent(rate, 0) });
  row.node = el(
    "tr",
    {},
    head(key, place),
    row.shown,
    row.clicks,
    el("td", { "data-label": "Rate", class: "strong" }, percent(rate, 0)),
    el("td", { class: "wide" }, row.bar.node),
  );
  return row;
}

function head(key, place) {
  return el("th", { scope: "row" }, el("span", { class: `swatch arm-${place}` }), key);
}

/** A bar from 0 to 100 %: an interval, and a mark. */
function interval(place) {
  const track = svg("line", { class: "track", x1: 0, x2: "100%", y1: 9, y2: 9 });
  const range = svg("rect", { class: `range arm-${place}`, y: 5, height: 8, rx: 4 });
  const mean = svg("rect", { class: `mean arm-${place}`, y: 2, height: 14, width: 3, rx: 1.5 });
  const node = svg("svg", { class: "bar", role: "img", "aria-label": "" }, track, range, mean);
  const draw = (lower, upper, middle) => {
    set(range, {
      x: `${100 * lower}%`,
      width: `${100 * (upper - lower)}%`,
      visibility: lower === null ? "hidden" : null,
    });
    set(mean, { x: `${100 * middle}%`, visibility: middle === null ? "hidden" : null });
  };
  draw(0, 1, null);
  return { node, draw };
}
