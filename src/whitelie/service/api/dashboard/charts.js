// Charts over time. They are drawn once; then only their last point moves, at most once a second.

import { el } from "./element.js";
import { candidatesOf, History, MAX_POINTS, widthFor } from "./history.js";
import { pathOf, request } from "./server.js";

const HOUR_MS = 3_600_000;
const RANGES = [
  ["1 hour", HOUR_MS],
  ["1 day", 24 * HOUR_MS],
  ["7 days", 168 * HOUR_MS],
  ["All", Infinity],
];
const MIN_REDRAW_INTERVAL_MS = 1000;
const SHARE_WINDOWS_PER_PERIOD = 40; // a point's share of traffic is taken over one of so many parts

// The palette of the figures (Okabe and Ito), lighter on dark paper.
const PALETTE = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"],
  dark: ["#3d9bd6", "#f07c2b", "#1fb88a", "#d890b8", "#e6a91f", "#8fd0f5", "#c3cad1"],
};
const MAX_DRAWN_ARMS = PALETTE.light.length;

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const CHART_KINDS = [
  {
    name: "estimates",
    title: "Corrected estimates",
    caption:
      "The share of people who like an arm, from all decisions up to a time, corrected for the flipping. The bands are anytime-valid: the probability that a true rate is ever outside its band is at most 5 %.",
    traces: bands,
  },
  {
    name: "shares",
    title: "Traffic",
    caption: "The share of decisions that each arm got. Each point covers the last fortieth of the period.",
    traces: areas,
  },
  {
    name: "chances",
    title: "Chance of being best",
    caption:
      "This browser approximates the chances with normal distributions. The table has the exact current chances.",
    traces: lines,
  },
];

let loading;

/** Return Plotly once this server has sent it, or null if it has none. */
function plotly() {
  const path = document.body.dataset.plotly;
  if (!path) return Promise.resolve(null);
  loading ??= new Promise((resolve) => {
    const script = el("script", {
      src: path,
      onload: () => resolve(window.Plotly),
      onerror: () => {
        loading = null;
        resolve(null);
      },
    });
    document.head.append(script);
  });
  return loading;
}

export class Charts {
  /** Charts of an experiment; `signal` ends them. */
  constructor(signal) {
    this.signal = signal;
    this.range = Infinity;
    this.legend = el("ul", { class: "legend", "aria-label": "Arms in the charts" });
    this.figures = CHART_KINDS.map((kind) => this.#figure(kind));
    this.node = el(
      "section",
      { class: "charts", "aria-labelledby": "charts" },
      el("div", { class: "row" }, el("h2", { id: "charts" }, "Over time"), this.#ranges()),
      this.legend,
      el(
        "div",
        { class: "figures" },
        this.figures.map((figure) => figure.node),
      ),
    );
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#build(), { signal });
    document.addEventListener("visibilitychange", () => this.#drawStale(), { signal });
    const seen = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          this.figures.find((figure) => figure.plot === target).isSeen = isIntersecting;
        }
        this.#drawStale();
      },
      { rootMargin: "200px" },
    );
    for (const figure of this.figures) seen.observe(figure.plot);
    signal.addEventListener("abort", () => {
      seen.disconnect();
      clearTimeout(this.timer);
      for (const { plot } of this.figures) if (plot.data) window.Plotly.purge(plot);
    });
  }

  /** Read the history, and draw it. */
  async load(experiment, results) {
    this.experiment = experiment;
    this.results = results;
    this.loading = this.#read();
    await this.loading;
  }

  async #read() {
    const width = widthFor(this.experiment, Date.now());
    const path = pathOf(this.experiment.id, `/history?minutes=${width}`);
    const [answer, Plotly] = await Promise.all([request("GET", path, { signal: this.signal }), plotly()]);
    if (this.signal.aborted) return;
    this.Plotly = Plotly;
    if (!Plotly) {
      const missing = "Charts need Plotly, which is not installed on this server: pip install plotly.";
      for (const { plot } of this.figures) plot.replaceChildren(el("p", { class: "soft" }, missing));
      return;
    }
    this.history = new History(this.experiment, answer);
    this.history.advance(this.results.arms, Date.now());
    this.#build();
  }

  /** Take new results. */
  update(results) {
    this.results = results;
    if (!this.history) return;
    const now = Date.now();
    if (results.arms.length !== this.history.keys.length) return;
    if (!this.history.advance(results.arms, now)) {
      this.history = null;
      this.#read().catch(() => {});
      return;
    }
    const last = this.history.starts.length - 1;
    const isSame =
      Math.floor(this.history.starts[last] / this.step) ===
      Math.floor(this.history.starts[this.ends.at(-1)] / this.step);
    if (isSame) {
      this.ends[this.ends.length - 1] = last;
      this.points.pop();
    } else {
      this.ends.push(last);
    }
    if (this.ends.length > MAX_POINTS) {
      this.#build();
      return;
    }
    this.#addPoint(this.ends.length - 1, now);
    this.isStale = new Set(this.figures);
    this.#drawStale();
  }

  /** Return the colour of an arm, or null if it is not drawn. */
  colour(key) {
    return this.colours?.get(key) ?? null;
  }

  #figure({ name, title, caption, traces }) {
    const plot = el("div", {
      class: "plot",
      role: "img",
      "aria-label": `${title} of each arm over time; the table above has the current numbers`,
    });
    const node = el(
      "figure",
      { class: `figure ${name}` },
      el("figcaption", {}, el("h3", {}, title), el("p", { class: "soft" }, caption)),
      plot,
    );
    return { name, node, plot, traces, isSeen: false, last: -Infinity };
  }

  #ranges() {
    const choices = RANGES.map(([text, length]) =>
      el(
        "label",
        {},
        el("input", {
          type: "radio",
          name: "range",
          checked: length === this.range,
          onchange: () => {
            this.range = length;
            this.#build();
          },
        }),
        el("span", {}, text),
      ),
    );
    return el("fieldset", { class: "choices" }, el("legend", { class: "unseen" }, "Period"), choices);
  }

  /** Compute all points anew, and draw. */
  #build() {
    if (!this.history?.starts.length || !this.Plotly) return;
    const now = Date.now();
    this.from = Math.max(now - this.range, this.history.starts[0]);
    Object.assign(this, this.history.points(this.from, now));
    this.choose(this.results);
    this.points = [];
    for (const place of this.ends.keys()) this.#addPoint(place, now);
    this.scale = null;
    this.isStale = new Set(this.figures);
    for (const figure of this.figures) figure.last = -Infinity;
    this.#drawStale();
  }

  /** Choose which arms are drawn, in which colours. */
  choose({ arms }) {
    const order = arms.map((_, k) => k);
    order.sort((a, b) => arms[b].probability_best - arms[a].probability_best || arms[b].issued - arms[a].issued);
    this.shown = (arms.length <= MAX_DRAWN_ARMS ? arms.map((_, k) => k) : order.slice(0, MAX_DRAWN_ARMS)).sort(
      (a, b) => a - b,
    );
    this.candidates = candidatesOf(arms);
    const palette = PALETTE[isDark() ? "dark" : "light"];
    this.colours = new Map(this.shown.map((k, place) => [arms[k].key, palette[place]]));
    const text = JSON.stringify([...this.colours]);
    if (text === this.legend.dataset.shown) return;
    this.legend.dataset.shown = text;
    const names = this.shown.map((k) => {
      const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.backgroundColor = this.colour(arms[k].key);
      return el("li", {}, swatch, arms[k].key);
    });
    const others = arms.length - this.shown.length;
    this.legend.replaceChildren(
      ...names,
      ...(others ? [el("li", { class: "soft" }, `and ${others} more, in the table`)] : []),
    );
  }

  #addPoint(place, now) {
    const earlier = place - Math.ceil(this.ends.length / SHARE_WINDOWS_PER_PERIOD);
    const before = earlier >= 0 ? this.ends[earlier] : lastBucketBefore(this.history.starts, this.from);
    this.points.push(this.history.point(this.ends[place], before, this, now));
  }

  /** Draw the charts that have changed and are seen, each in a frame of its own. */
  #drawStale() {
    clearTimeout(this.timer);
    if (document.hidden || !this.isStale || this.signal.aborted) return;
    const due = [...this.isStale].filter((figure) => figure.isSeen);
    const figure = due.find((each) => performance.now() - each.last >= MIN_REDRAW_INTERVAL_MS);
    if (figure) {
      this.isStale.delete(figure);
      figure.last = performance.now();
      this.#draw(figure);
      this.timer = setTimeout(() => requestAnimationFrame(() => this.#drawStale()), 30);
    } else if (due.length) {
      this.timer = setTimeout(() => this.#drawStale(), 200);
    }
  }

  #draw(figure) {
    const arms = this.shown.map((k) => ({
      k,
      name: escapeHtml(this.results.arms[k].key),
      colour: this.colour(this.results.arms[k].key),
    }));
    const times = this.points.map((point) => localTime(point.time));
    const traces = figure.traces(this.points, arms, times);
    const span = [localTime(this.range === Infinity ? this.from : Date.now() - this.range), times.at(-1)];
    const layout = layoutOf(span, figure.name === "estimates" ? this.#scale() : [0, 1]);
    const options = { displayModeBar: false, responsive: true, showTips: false };
    this.Plotly.react(figure.plot, traces, layout, options);
  }

  /** Return the vertical axis of estimates: it has room for where they are now, and never shrinks. */
  #scale() {
    const late = this.points.slice(-Math.ceil(this.points.length / 2));
    const now = this.shown.map((k) => late.at(-1).estimates.get(k));
    const means = late
      .flatMap((point) => this.shown.map((k) => point.estimates.get(k)[0]))
      .filter((mean) => mean !== null);
    const values = [...means, ...now.flatMap(([mean, lower, upper]) => (mean === null ? [] : [lower, upper]))];
    if (!values.length) return [0, 1];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (!this.scale || low < this.scale[0] || high > this.scale[1]) {
      const room = 0.08 * (high - low || 1);
      this.scale = [Math.max(low - room, -0.005), Math.min(high + room, 1.005)];
    }
    return this.scale;
  }
}

function bands(points, arms, times) {
  const drawn = arms.map(({ k, name, colour }) => {
    const estimates = points.map((point) => point.estimates.get(k));
    const column = (place) => estimates.map((each) => (each[0] === null ? null : each[place]));
    const edge = { x: times, mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: name };
    return {
      band: [
        { ...edge, y: column(1) },
        { ...edge, y: column(2), fill: "tonexty", fillcolor: withAlpha(colour, 0.13) },
      ],
      line: {
        ...line(times, column(0), name, colour),
        customdata: estimates.map(([, lower, upper]) => [lower, upper]),
        hovertemplate: "%{y:.1%} <span>in %{customdata[0]:.1%} … %{customdata[1]:.1%}</span>",
      },
    };
  });
  return [...drawn.flatMap(({ band }) => band), ...drawn.map(({ line }) => line)];
}

function areas(points, arms, times) {
  const kept = points.flatMap((point, i) => (point.shares[0] === null ? [] : [i]));
  return arms.map(({ k, name, colour }) => ({
    ...line(
      kept.map((i) => times[i]),
      kept.map((i) => points[i].shares[k]),
      name,
      colour,
    ),
    stackgroup: "all",
    line: { color: colour, width: 0.5 },
    fillcolor: withAlpha(colour, 0.72),
    hovertemplate: "%{y:.1%}",
  }));
}

function lines(points, arms, times) {
  return arms.map(({ k, name, colour }) => ({
    ...line(
      times,
      points.map((point) => point.chance.get(k) ?? null),
      name,
      colour,
    ),
    hovertemplate: "%{y:.1%}",
  }));
}

function line(x, y, name, colour) {
  return {
    x,
    y,
    name,
    type: "scatter",
    mode: x.length < 8 ? "lines+markers" : "lines",
    line: { color: colour, width: 2 },
    marker: { size: 5 },
    connectgaps: true,
  };
}

function layoutOf(span, range) {
  const axis = {
    fixedrange: true,
    color: cssColour("--soft"),
    gridcolor: cssColour("--line"),
    zeroline: false,
    automargin: false,
  };
  return {
    autosize: true,
    margin: { l: 48, r: 12, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: cssColour("--soft") },
    hovermode: "x unified",
    hoverlabel: {
      bgcolor: cssColour("--paper"),
      bordercolor: cssColour("--line"),
      font: { color: cssColour("--ink") },
    },
    dragmode: false,
    showlegend: false,
    xaxis: { ...axis, type: "date", range: span, showgrid: false, nticks: 6, hoverformat: "%d %b %Y, %H:%M" },
    yaxis: { ...axis, range, tickformat: ".0%", nticks: 6 },
  };
}

function lastBucketBefore(starts, from) {
  const place = starts.findIndex((start) => start >= from);
  return place < 0 ? starts.length - 1 : place - 1;
}

/** Return a time as Plotly shows it in the time zone of this browser. */
const localTime = (time) => time - new Date(time).getTimezoneOffset() * 60_000;

/** Return a name that Plotly, which reads some HTML, shows as it is. */
const escapeHtml = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function withAlpha(colour, alpha) {
  const parts = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  return `rgba(${parts.join(",")},${alpha})`;
}
