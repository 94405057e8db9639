// Your own device: the shop with the real client, what it has stored, and what has left.

import { el, say, set } from "/dashboard/element.js";
import { short } from "/dashboard/numbers.js";
import { Whitelie } from "./whitelie.js";

const REPORT = "whitelie.report.";
const CHARGE = "whitelie.charge.";
const CAP_EPSILON = 10;
const DAY_MS = 86_400_000;
const byId = (id) => document.getElementById(id);
const leavesAt = ({ due, until }) => Math.max(due, until + 1000);
const seconds = (milliseconds) => `${(Math.max(milliseconds, 0) / 1000).toFixed(1)} s`;

/** Show the shop, and this visit as the client has stored it. */
export function startDevice(settings) {
  const { experiment, key, window: window_, spread } = settings;
  const sent = recordRequests();
  const client = new Whitelie({
    server: location.origin,
    key,
    minSpread: spread,
    cap: { epsilon: CAP_EPSILON, days: 1 },
    sending: "when-due", // a click does not leave this page, and whoever watches sees the report leave
  });
  let visit = null;
  let isRevealed = false;

  async function enter() {
    visit = null;
    const before = new Set(storedNames());
    const start = Date.now();
    const choice = await client.decide(experiment);
    const name = storedNames().find((each) => !before.has(each));
    visit = { choice, start, name, report: stored(name), clicked: null };
    const {
      title = "Tea",
      text = "The service gives no answer: this is the fallback.",
      button = "Add to basket",
    } = choice.payload ?? {};
    say(byId("hero-title"), title);
    say(byId("hero-text"), text);
    say(byId("buy"), button);
    set(byId("hero"), { "data-arm": choice.arm ?? "none" });
    set(byId("buy"), { disabled: false, "aria-pressed": "false" });
    say(byId("greeting"), choice.arm ? `You got the greeting “${choice.arm}”.` : "No answer: the fallback is shown.");
    draw();
  }

  byId("buy").addEventListener("click", () => {
    if (!visit) return;
    visit.clicked ??= Date.now();
    visit.choice.reward(1);
    set(byId("buy"), { "aria-pressed": "true" });
    draw();
  });
  byId("again").addEventListener("click", enter);
  byId("forget").addEventListener("click", () => {
    client.forget();
    enter();
  });
  byId("reveal").addEventListener("click", () => {
    isRevealed = !isRevealed;
    set(byId("reveal"), { "aria-pressed": String(isRevealed) });
    say(byId("reveal"), isRevealed ? "hide" : "show");
    draw();
  });

  byId("part-window").style.flexGrow = window_;
  byId("part-spread").style.flexGrow = spread;
  byId("window-words").style.flexGrow = window_;
  byId("spread-words").style.flexGrow = spread;
  say(byId("window-words"), `${window_} s: clicks count`);
  say(byId("spread-words"), `${spread} s: the report leaves`);

  function draw() {
    drawLog(
      sent.filter((each) => visit && each.at >= visit.start),
      visit?.report?.token,
    );
    if (!visit) return;
    const { report, start } = visit;
    const now = Date.now();
    const whole = 1000 * (window_ + spread);
    const share = (time) => `${(100 * Math.min(Math.max(time - start, 0), whole)) / whole}%`;
    byId("passed").style.width = share(now);
    byId("due-mark").hidden = !report;
    if (report) byId("due-mark").style.left = share(leavesAt(report));
    say(byId("spent"), spentWords());
    const inTime = visit.clicked !== null && report && visit.clicked <= report.until;
    say(byId("clicked"), clickWords(visit, inTime));
    const mine = report && sent.find((each) => each.token === report.token);
    drawBits(report, inTime);
    const words = reportWords({ arm: visit.choice.arm, report, mine, inTime, now });
    say(byId("leaves"), words);
    set(byId("time"), { "aria-label": mine ? "The report has left" : "The report waits" });
    byId("time").classList.toggle("done", Boolean(mine));
  }

  function drawBits(report, inTime) {
    const bits = byId("bits");
    if (!report) return void say(bits, "nothing is stored.");
    const face = (bit) => (isRevealed ? String(bit) : "•");
    const text = `no click → ${face(report.bits[0])},  click → ${face(report.bits[1])}`;
    if (bits.dataset.text === text + inTime) return;
    bits.dataset.text = text + inTime;
    const bit = (place) => el("b", { class: `bit${isRevealed ? " seen" : ""}` }, face(report.bits[place]));
    bits.replaceChildren(
      el("span", { class: inTime ? "unused" : "used" }, "no click → ", bit(0)),
      el("span", { class: inTime ? "used" : "unused" }, "click → ", bit(1)),
    );
  }

  enter();
  setInterval(draw, 100);
}

function clickWords({ clicked, start, report }, inTime) {
  if (clicked === null) return "none so far";
  const when = `after ${seconds(clicked - start)}`;
  if (!report) return `${when}; it stays here, and nothing will be reported`;
  return inTime ? `${when}; it stays here` : `${when}: too late to count. Visit again.`;
}

function reportWords({ arm, report, mine, inTime, now }) {
  if (arm === null) return "none: the service gave no answer.";
  if (!report) return "none: this device has used up its limit for 24 hours.";
  if (!mine) return `leaves in ${seconds(leavesAt(report) - now)}, click or no click.`;
  if (mine.status === null) return "is on its way.";
  const bit = JSON.parse(mine.body).bit;
  const isLie = bit !== Number(inTime);
  return `has left with a ${bit}: ${isLie ? "a white lie" : "the truth"}. Only you can tell.`;
}

function spentWords() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(CHARGE));
  const charges = names.map(stored).filter((charge) => charge?.at > Date.now() - DAY_MS);
  const spent = charges.reduce((sum, { epsilon }) => sum + (epsilon ?? Infinity), 0);
  return charges.length > 0 ? `ε = ${short(spent)} of ${CAP_EPSILON} spent in 24 hours` : "";
}

function storedNames() {
  return Object.keys(localStorage).filter((name) => name.startsWith(REPORT));
}

function stored(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Keep a record of all that the client sends, word for word. */
function recordRequests() {
  const sent = [];
  const { fetch } = globalThis;
  globalThis.fetch = async (address, options = {}) => {
    const { pathname } = new URL(address, location.href);
    if (options.method !== "POST" || !pathname.startsWith("/v1/")) return fetch(address, options);
    const one = { at: Date.now(), path: pathname, body: options.body, status: null, token: tokenIn(options.body) };
    sent.push(one);
    const response = await fetch(address, options);
    one.status = response.status;
    return response;
  };
  return sent;
}

function tokenIn(body) {
  return JSON.parse(body).token ?? null;
}

function drawLog(requests, token) {
  const list = byId("log");
  const state = requests.map((each) => `${each.at}${each.status}`).join();
  if (list.dataset.state === state) return;
  list.dataset.state = state;
  const first = requests[0]?.at;
  const nodes = requests.map((each) =>
    el(
      "li",
      { class: each.token && each.token !== token ? "other" : null },
      el("span", { class: "when" }, seconds(each.at - first)),
      el(
        "span",
        {},
        el(
          "code",
          { class: "path" },
          `POST ${each.path}${each.token && each.token !== token ? " (of an earlier visit)" : ""}`,
        ),
        el("code", { class: "body" }, each.body),
      ),
    ),
  );
  if (!requests.some((each) => each.token && each.token === token))
    nodes.push(el("li", { class: "soft" }, "No report yet."));
  list.replaceChildren(...nodes);
}
