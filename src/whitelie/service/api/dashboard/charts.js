// Charts over time. They are drawn once; then only their last point moves, at most once a second.

import { el } from "./element.js"
import { candidatesOf, History, MOST_POINTS, widthFor } from "./history.js"
import { ask, pathOf } from "./server.js"

const HOUR = 3_600_000
const RANGES = [["1 hour", HOUR], ["1 day", 24 * HOUR], ["7 days", 168 * HOUR], ["All", Infinity]]
const OFTEN = 1000 // milliseconds between two drawings of a chart
const SHARES = 40 // parts of the period, over the latest of which shares are taken at each time

// The palette of the figures (Okabe and Ito), lighter on dark paper.
const PALETTE = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"],
  dark: ["#3d9bd6", "#f07c2b", "#1fb88a", "#d890b8", "#e6a91f", "#8fd0f5", "#c3cad1"],
}
const MOST_DRAWN = PALETTE.light.length

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

const KINDS = [
  {
    name: "estimates",
    title: "Corrected estimates",
    caption: "What people like, corrected for the flipping, from all decisions up to a time. The bands hold at every look: a true rate ever leaves its band with probability at most 5 %.",
    traces: bands,
  },
  {
    name: "shares",
    title: "Traffic",
    caption: "How decisions were divided among the arms, at each time over a fortieth of the period.",
    traces: areas,
  },
  {
    name: "chances",
    title: "Chance of being best",
    caption: "An approximation, made in this browser with normal distributions. The table has the exact chances of now.",
    traces: lines,
  },
]

let loading

/** Return Plotly once this server has sent it, or null if it has none. */
function plotly() {
  const path = document.body.dataset.plotly
  if (!path) return Promise.resolve(null)
  loading ??= new Promise((resolve) => {
    const script = el("script", { src: path, onload: () => resolve(window.Plotly), onerror: () => ((loading = null), resolve(null)) })
    document.head.append(script)
  })
  return loading
}

export class Charts {
  /** Charts of an experiment; `signal` ends them. */
  constructor(signal) {
    this.signal = signal
    this.range = Infinity
    this.legend = el("ul", { class: "legend", "aria-label": "Arms in the charts" })
    this.figures = KINDS.map((kind) => this.#figure(kind))
    this.node = el(
      "section",
      { class: "charts", "aria-labelledby": "charts" },
      el("div", { class: "row" }, el("h2", { id: "charts" }, "Over time"), this.#ranges()),
      this.legend,
      el("div", { class: "figures" }, this.figures.map((figure) => figure.node)),
    )
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#build(), { signal })
    document.addEventListener("visibilitychange", () => this.#move(), { signal })
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        this.figures.find((figure) => figure.plot === target).isSeen = isIntersecting
      }
      this.#move()
    }, { rootMargin: "200px" })
    for (const figure of this.figures) seen.observe(figure.plot)
    signal.addEventListener("abort", () => {
      seen.disconnect()
      clearTimeout(this.timer)
      for (const { plot } of this.figures) if (plot.data) window.Plotly.purge(plot)
    })
  }

  /** Read the history, and draw it. */
  async load(experiment, results) {
    this.experiment = experiment
    this.results = results
    this.loading = this.#read()
    await this.loading
  }

  async #read() {
    const width = widthFor(this.experiment, Date.now())
    const path = pathOf(this.experiment.id, `/history?minutes=${width}`)
    const [found, Plotly] = await Promise.all([ask("GET", path, { signal: this.signal }), plotly()])
    if (this.signal.aborted) return
    this.Plotly = Plotly
    if (!Plotly) {
      const missing = "Charts need Plotly, which is not installed beside this server: pip install plotly."
      for (const { plot } of this.figures) plot.replaceChildren(el("p", { class: "soft" }, missing))
      return
    }
    this.history = new History(this.experiment, found)
    this.history.advance(this.results.arms, Date.now())
    this.#build()
  }

  /** Take new results. */
  update(results) {
    this.results = results
    if (!this.history) return
    const now = Date.now()
    if (results.arms.length !== this.history.keys.length) return
    if (!this.history.advance(results.arms, now)) {
      this.history = null
      this.#read().catch(() => {})
      return
    }
    const last = this.history.starts.length - 1
    const isSame = Math.floor(this.history.starts[last] / this.step) === Math.floor(this.history.starts[this.ends.at(-1)] / this.step)
    if (isSame) {
      this.ends[this.ends.length - 1] = last
      this.points.pop()
    } else {
      this.ends.push(last)
    }
    if (this.ends.length > MOST_POINTS) {
      this.#build()
      return
    }
    this.#add(this.ends.length - 1, now)
    this.isStale = new Set(this.figures)
    this.#move()
  }

  /** Return the colour of an arm, or null if it is not drawn. */
  colour(key) {
    return this.colours?.get(key) ?? null
  }

  #figure({ name, title, caption, traces }) {
    const plot = el("div", { class: "plot", role: "img", "aria-label": `${title} of each arm over time; the table above has the numbers of now` })
    const node = el("figure", { class: `figure ${name}` }, el("figcaption", {}, el("h3", {}, title), el("p", { class: "soft" }, caption)), plot)
    return { name, node, plot, traces, isSeen: false, last: -Infinity }
  }

  #ranges() {
    const choices = RANGES.map(([text, length]) =>
      el("label", {}, el("input", { type: "radio", name: "range", checked: length === this.range, onchange: () => ((this.range = length), this.#build()) }), el("span", {}, text)),
    )
    return el("fieldset", { class: "choices" }, el("legend", { class: "unseen" }, "Period"), choices)
  }

  /** Compute all points anew, and draw. */
  #build() {
    if (!this.history?.starts.length || !this.Plotly) return
    const now = Date.now()
    this.from = Math.max(now - this.range, this.history.starts[0])
    Object.assign(this, this.history.points(this.from, now))
    this.choose(this.results)
    this.points = []
    this.ends.forEach((_, place) => this.#add(place, now))
    this.scale = null
    this.isStale = new Set(this.figures)
    for (const figure of this.figures) figure.last = -Infinity
    this.#move()
  }

  /** Choose which arms are drawn, in which colours. */
  choose({ arms }) {
    const order = arms.map((_, k) => k)
    order.sort((a, b) => arms[b].probability_best - arms[a].probability_best || arms[b].issued - arms[a].issued)
    this.shown = (arms.length <= MOST_DRAWN ? arms.map((_, k) => k) : order.slice(0, MOST_DRAWN)).sort((a, b) => a - b)
    this.candidates = candidatesOf(arms)
    const palette = PALETTE[isDark() ? "dark" : "light"]
    this.colours = new Map(this.shown.map((k, place) => [arms[k].key, palette[place]]))
    const text = JSON.stringify([...this.colours])
    if (text === this.legend.dataset.shown) return
    this.legend.dataset.shown = text
    const names = this.shown.map((k) => {
      const swatch = el("span", { class: "swatch", "aria-hidden": "true" })
      swatch.style.backgroundColor = this.colour(arms[k].key)
      return el("li", {}, swatch, arms[k].key)
    })
    const others = arms.length - this.shown.length
    this.legend.replaceChildren(...names, ...(others ? [el("li", { class: "soft" }, `and ${others} more, in the table`)] : []))
  }

  #add(place, now) {
    const earlier = place - Math.ceil(this.ends.length / SHARES)
    const before = earlier >= 0 ? this.ends[earlier] : firstBefore(this.history.starts, this.from)
    this.points.push(this.history.point(this.ends[place], before, this, now))
  }

  /** Draw the charts that have changed and are seen, each in a frame of its own. */
  #move() {
    clearTimeout(this.timer)
    if (document.hidden || !this.isStale || this.signal.aborted) return
    const due = [...this.isStale].filter((figure) => figure.isSeen)
    const figure = due.find((each) => performance.now() - each.last >= OFTEN)
    if (figure) {
      this.isStale.delete(figure)
      figure.last = performance.now()
      this.#draw(figure)
      this.timer = setTimeout(() => requestAnimationFrame(() => this.#move()), 30)
    } else if (due.length) {
      this.timer = setTimeout(() => this.#move(), 200)
    }
  }

  #draw(figure) {
    const arms = this.shown.map((k) => ({ k, name: literal(this.results.arms[k].key), colour: this.colour(this.results.arms[k].key) }))
    const times = this.points.map((point) => local(point.time))
    const traces = figure.traces(this.points, arms, times)
    const span = [local(this.range === Infinity ? this.from : Date.now() - this.range), times.at(-1)]
    const layout = looks(span, figure.name === "estimates" ? this.#scale() : [0, 1])
    const options = { displayModeBar: false, responsive: true, showTips: false }
    this.Plotly.react(figure.plot, traces, layout, options)
  }

  /** Return the vertical axis of estimates: it has room for where they are now, and never shrinks. */
  #scale() {
    const late = this.points.slice(-Math.ceil(this.points.length / 2))
    const now = this.shown.map((k) => late.at(-1).estimates.get(k))
    const means = late.flatMap((point) => this.shown.map((k) => point.estimates.get(k)[0])).filter((mean) => mean !== null)
    const found = [...means, ...now.flatMap(([mean, lower, upper]) => (mean === null ? [] : [lower, upper]))]
    if (!found.length) return [0, 1]
    const [low, high] = [Math.min(...found), Math.max(...found)]
    if (!this.scale || low < this.scale[0] || high > this.scale[1]) {
      const room = 0.08 * (high - low || 1)
      this.scale = [Math.max(low - room, -0.005), Math.min(high + room, 1.005)]
    }
    return this.scale
  }
}

function bands(points, arms, times) {
  const drawn = arms.map(({ k, name, colour }) => {
    const found = points.map((point) => point.estimates.get(k))
    const column = (place) => found.map((each) => (each[0] === null ? null : each[place]))
    const edge = { x: times, mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: name }
    return {
      band: [
        { ...edge, y: column(1) },
        { ...edge, y: column(2), fill: "tonexty", fillcolor: faded(colour, 0.13) },
      ],
      line: {
        ...line(times, column(0), name, colour),
        customdata: found.map(([, lower, upper]) => [lower, upper]),
        hovertemplate: "%{y:.1%} <span>in %{customdata[0]:.1%} … %{customdata[1]:.1%}</span>",
      },
    }
  })
  return [...drawn.flatMap(({ band }) => band), ...drawn.map(({ line }) => line)]
}

function areas(points, arms, times) {
  const kept = points.flatMap((point, i) => (point.shares[0] === null ? [] : [i]))
  return arms.map(({ k, name, colour }) => ({
    ...line(kept.map((i) => times[i]), kept.map((i) => points[i].shares[k]), name, colour),
    stackgroup: "all",
    line: { color: colour, width: 0.5 },
    fillcolor: faded(colour, 0.72),
    hovertemplate: "%{y:.1%}",
  }))
}

function lines(points, arms, times) {
  return arms.map(({ k, name, colour }) => ({
    ...line(times, points.map((point) => point.chance.get(k) ?? null), name, colour),
    hovertemplate: "%{y:.1%}",
  }))
}

function line(x, y, name, colour) {
  return { x, y, name, type: "scatter", mode: x.length < 8 ? "lines+markers" : "lines", line: { color: colour, width: 2 }, marker: { size: 5 }, connectgaps: true }
}

function looks(span, range) {
  const axis = { fixedrange: true, color: ink("--soft"), gridcolor: ink("--line"), zeroline: false, automargin: false }
  return {
    autosize: true,
    margin: { l: 48, r: 12, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink("--soft") },
    hovermode: "x unified",
    hoverlabel: { bgcolor: ink("--paper"), bordercolor: ink("--line"), font: { color: ink("--ink") } },
    dragmode: false,
    showlegend: false,
    xaxis: { ...axis, type: "date", range: span, showgrid: false, nticks: 6, hoverformat: "%d %b %Y, %H:%M" },
    yaxis: { ...axis, range, tickformat: ".0%", nticks: 6 },
  }
}

function firstBefore(starts, from) {
  const place = starts.findIndex((start) => start >= from)
  return place < 0 ? starts.length - 1 : place - 1
}

/** Return a time as Plotly shows it in the time zone of this browser. */
const local = (time) => time - new Date(time).getTimezoneOffset() * 60_000

/** Return a name that Plotly, which reads some HTML, shows as it is. */
const literal = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

function faded(colour, alpha) {
  const parts = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16))
  return `rgba(${parts.join(",")},${alpha})`
}
