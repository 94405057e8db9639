// The certificate: how far the evidence has come, and what that means.

import { el, say, set, svg } from "./element.js";
import { percent, short, time } from "./numbers.js";

const WEEKDAYS = "A certificate assumes that rates do not move. Let it run for whole weeks: weekdays differ.";

/** The evidence as a bar, under the headline. */
export class Certificate {
  constructor() {
    this.fill = svg("rect", { height: "100%" });
    this.bar = el(
      "div",
      {
        class: "evidence-bar",
        role: "progressbar",
        "aria-label": "Evidence for a certificate",
        "aria-valuemin": 0,
        "aria-valuemax": 100,
      },
      svg("svg", { "aria-hidden": "true" }, this.fill),
    );
    this.state = el("strong");
    this.shipped = el("span");
    this.meaning = el("p");
    this.node = el(
      "section",
      { class: "certificate", "aria-label": "Certificate" },
      this.bar,
      el("p", { class: "evidence-text" }, this.state, this.shipped),
      el("details", {}, el("summary", {}, "What a certificate says"), this.meaning, el("p", {}, WEEKDAYS)),
    );
  }

  update(results) {
    const { certificate, shipped } = results;
    const { state, progress } = certificate;
    set(this.node, { "data-state": state });
    this.bar.hidden = state === "cannot_say";
    set(this.bar, { "aria-valuenow": Math.floor(100 * progress), "aria-valuetext": shareOf(progress) });
    set(this.fill, { width: `${100 * progress}%` });
    say(this.state, `${wordsOf(certificate)}.`);
    const undo = canUndo(shipped) ? `; this can be undone until ${time(shipped.undo_until)}` : "";
    say(this.shipped, shipped ? ` Shipped on ${time(shipped.at)}${undo}.` : "");
    const what = certificate.tolerance
      ? `A certificate says that no other arm is better than the winner by more than ${short(100 * certificate.tolerance)} percentage points.`
      : "A certificate says that one arm is better than all others.";
    const delta = `${short(100 * certificate.delta)}\u202f%`;
    say(this.meaning, `${what} The probability that it is wrong is at most ${delta}, however often anybody looks.`);
  }
}

/** Whether the shipping of an arm can still be undone. */
export const canUndo = (shipped) => Boolean(shipped) && Date.now() <= Date.parse(shipped.undo_until);

/** Return the arm to ship: the certified one, or the leader, or else the one that is believed in most. */
export function candidateOf({ arms, certificate }) {
  if (certificate.winner ?? certificate.leader) return certificate.winner ?? certificate.leader;
  const active = arms.filter((arm) => !arm.retired);
  return active.reduce((a, b) => (b.probability_best > a.probability_best ? b : a)).key;
}

/** Return in words what is known of an arm that is about to be shipped. */
export function knownOf({ arms, certificate }, arm) {
  if (certificate.state === "certified") return certificate.sentence;
  if (arms.filter((each) => !each.retired).length < 2) return `“${arm}” is the only active arm.`;
  const missing = certificate.reason ?? `there is ${shareOf(certificate.progress)}`;
  return `This is not certified: ${missing}; another arm may turn out to be best.`;
}

function wordsOf({ state, progress, certified_at, reason, rivals }) {
  if (state === "certified") return `Certified on ${time(certified_at)}`;
  if (state === "cannot_say") return `Cannot say: ${reason}`;
  const share = shareOf(progress);
  const closest = rivals.reduce((a, b) => (b.evidence / b.needed < a.evidence / a.needed ? b : a), rivals[0]);
  const against = rivals.length > 1 ? `; the closest rival is ${closest.key}` : "";
  return `${share[0].toUpperCase()}${share.slice(1)}${against}`;
}

/** Return how much of the evidence there is, rounded as the headline is. */
const shareOf = (progress) =>
  `${progress < 0.005 ? "hardly any" : percent(progress, 0)} of the evidence that a certificate needs`;
