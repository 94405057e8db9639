// What the service promises and keeps, whether its numbers can be trusted, and how pages take part.

import { el, notify, say, set } from "./element.js";
import { count, duration, percent, plural, short, time } from "./numbers.js";

const ALARMS = {
  misspecified: "Impossible reports",
  redeem_ratio: "Arms are not answered equally often",
  nobody_reports: "Nobody reports",
  clock_jumped: "The server’s clock has jumped",
};
const OUTCOMES = ["Answered", "Pending", "Overdue", "Missing", "Redeemed"];
const OUTCOMES_NOTE =
  "Pending: the report may be on its way. Overdue: it is late, and may still come. Missing: it can no longer come. Redeemed: the share of answered decisions among those that are answered or missing. It should be about the same for all arms.";
const TABLES = {
  experiments: "definitions",
  counts: "counts by arm and minute",
  spent: "blocks of answered-or-not bits",
  keys: "hashes of keys",
  epochs: "starts of the service",
  steps: "batches of reports that are shown together",
  shown: "sums of these batches, and what is held back",
  totals: "sums by arm, shown and counted",
};

/** Return in words what an epsilon lets anybody conclude. */
export function meaning(epsilon) {
  if (epsilon === null) return "A report may reveal a click entirely: there is no limit.";
  const factor = Math.exp(epsilon);
  return `A report changes anyone’s odds about a click by at most a factor e^ε\u00a0=\u00a0${factor < 1e6 ? short(factor) : factor.toExponential(1)}.`;
}

/** Return a text with its e^ε as it is printed. */
export function raised(text) {
  const [before, after] = text.split("e^ε");
  return after === undefined ? [before] : [before, "e", el("sup", {}, "ε"), after];
}

export class Privacy {
  constructor() {
    this.statement = el("div", { class: "statement" });
    this.lists = el("div");
    this.counts = {};
    this.rows = el("tbody");
    const rows = el("table", { class: "plain" }, el("caption", {}, "Rows in this server’s store now"), el("tbody", {}));
    rows.tBodies[0].replaceWith(this.rows);
    this.node = el(
      "section",
      { class: "panel", "aria-labelledby": "privacy" },
      el("h2", { id: "privacy" }, "Privacy"),
      this.statement,
      rows,
      el(
        "p",
        { class: "note" },
        "These are the rows of all experiments together. The table state has one more row, which counts changes.",
      ),
      this.lists,
    );
  }

  /** Show what devices are promised. */
  promise(said) {
    const coins = said.channels.map(({ p00, p11 }) =>
      p00 === p11
        ? `tells the truth with probability ${percent(p00)}`
        : `reports a click truthfully with probability ${percent(p11)}, and no click with ${percent(p00)}`,
    );
    const facts = [
      ["The device’s coin", coins.join("; or ")],
      ["Waits for a reward", duration(said.window)],
      ["Then a random part of", duration(said.spread)],
      [
        "Then sends",
        said.sending === "next-visit" ? "at the next visit" : "at once if the page is open, else at the next visit",
      ],
      ["A report counts for", duration(said.feedback_ttl)],
      ["Counts by minute become counts by day after", duration(said.retention)],
    ];
    this.statement.replaceChildren(
      el(
        "p",
        { class: "figure-of" },
        `ε = ${said.epsilon === null ? "∞" : short(said.epsilon)}`,
        el("span", {}, " per report"),
      ),
      el("p", {}, raised(meaning(said.epsilon))),
      el(
        "dl",
        { class: "facts" },
        facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
      ),
    );
    this.lists.replaceChildren(
      list("What is not stored", said.not_stored),
      el(
        "details",
        {},
        el("summary", {}, "What is stored, and what nobody can guarantee"),
        list("Stored", said.stored),
        list("Not guaranteed", said.not_guaranteed),
      ),
      el("h3", {}, "Hash of this statement"),
      el("p", {}, el("code", { class: "hash" }, said.hash)),
      el("p", { class: "note" }, "It changes whenever the statement changes, so a client can pin it."),
    );
  }

  /** Show how many rows each table has. */
  stored(tables) {
    for (const name of Object.keys({ ...TABLES, ...tables }).filter((each) => each in tables)) {
      this.counts[name] ??= this.#row(name);
      say(this.counts[name], count(tables[name]));
    }
  }

  #row(name) {
    const value = el("td", { class: "number" });
    this.rows.append(
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          el("code", {}, name),
          TABLES[name] ? el("span", { class: "soft" }, ` ${TABLES[name]}`) : null,
        ),
        value,
      ),
    );
    return value;
  }
}

export class Health {
  constructor() {
    this.store = el("dd", {}, "…");
    this.reports = el("dd", {}, "…");
    this.missing = el("dd", {}, "…");
    this.fit = el("dd", {}, "…");
    this.delay = el("dd");
    const fact = (name, value) => el("div", {}, el("dt", {}, name), value);
    this.lost = fact("Missing reports", this.missing);
    this.delayed = fact("Answered by now", this.delay);
    this.facts = el(
      "dl",
      { class: "facts" },
      fact("Store", this.store),
      fact("Last report seen", this.reports),
      this.lost,
      fact("Reports fit the coin", this.fit),
      this.delayed,
    );
    this.delayed.hidden = true; // only admins are told
    this.alarms = el("div", { class: "alarms" });
    this.body = el("tbody");
    const heads = ["Arm", ...OUTCOMES];
    const table = el(
      "table",
      { class: "plain redeem" },
      el("caption", {}, "What became of decisions"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((text, place) => el("th", { scope: "col", class: place ? "number" : null }, text)),
        ),
      ),
      this.body,
    );
    this.note = el("p", { class: "note" });
    this.node = el(
      "section",
      { class: "panel", id: "health-panel", "aria-labelledby": "health", tabindex: -1 },
      el("h2", { id: "health" }, "Health"),
      this.alarms,
      this.facts,
      table,
      this.note,
    );
    this.rows = [];
    this.shown = null;
  }

  update(results) {
    const issued = total(results.arms, "issued");
    const missing = total(results.arms, "missing");
    const isWhole = results.arms.every((arm) => arm.missing !== null); // admins are told what is late, readers are not
    const bad = results.alarms.filter((alarm) => alarm.code === "misspecified");
    if (results.reports)
      verdict(this.fit, !bad.length, bad.length ? `no: ${bad.map((alarm) => alarm.arm).join(", ")}` : "yes");
    else say(this.fit, "no reports yet");
    this.lost.hidden = !isWhole;
    say(
      this.note,
      isWhole ? OUTCOMES_NOTE : "Pending: not answered, as far as readers see. Admins see what is overdue and missing.",
    );
    say(
      this.missing,
      issued ? `${count(missing)} of ${plural(issued, "decision")}, ${percent(missing / issued)}` : "no decisions yet",
    );
    say(this.reports, lastReport(results));
    this.#alarm(results.alarms);
    const arms = results.arms.slice(0, 20);
    while (this.rows.length > arms.length) this.rows.pop().node.remove();
    while (this.rows.length < arms.length) this.#append();
    arms.forEach((arm, place) => {
      const over = isWhole ? arm.answered + arm.missing : 0;
      const texts = [
        arm.key,
        count(arm.answered),
        count(arm.pending),
        count(arm.overdue),
        count(arm.missing),
        over ? percent(arm.answered / over) : "–",
      ];
      for (const [column, text] of texts.entries()) say(this.rows[place].cells[column], text);
    });
  }

  /** Show whether the service is ready; `refused` says why not. */
  available(refused = null) {
    const isClock = refused?.code === "clock_jumped"; // then the store works, and an alarm says the rest
    verdict(
      this.store,
      !refused || isClock,
      refused && !isClock ? "cannot be written: decisions and reports are refused" : "available",
    );
  }

  /** Show how late reports come: of decisions of some ages, how many are answered. */
  arrival(ages) {
    const known = ages.filter((age) => age.issued);
    this.delayed.hidden = !known.length;
    say(
      this.delay,
      known.map((age) => `${percent(age.answered / age.issued, 0)} of those made ${duration(age.from)} ago`).join(", "),
    );
  }

  #alarm(alarms) {
    const text = JSON.stringify(alarms);
    if (text === this.shown) return;
    this.shown = text;
    this.alarms.replaceChildren(
      ...(alarms.length
        ? alarms.map((alarm) =>
            el(
              "div",
              { class: "alarm", role: "alert" },
              el("h3", {}, ALARMS[alarm.code] ?? alarm.code),
              el("p", {}, alarm.message),
            ),
          )
        : [el("p", { class: "calm" }, "No alarms.")]),
    );
  }

  #append() {
    const cells = [
      el("th", { scope: "row" }),
      ...OUTCOMES.map((text) => el("td", { class: "number", "data-label": text })),
    ];
    const node = el("tr", {}, cells);
    this.body.append(node);
    this.rows.push({ node, cells });
  }
}

/** Return when a report was last seen; the service remembers it only while it runs. */
export function lastReport(results) {
  if (results.last_report) return time(results.last_report);
  return results.reports ? "none since the service started" : "never";
}

/** The lines that let a page take part in an experiment. */
export function snippet(experiment) {
  const epsilons = experiment.arms.map((arm) => arm.epsilon);
  const most = epsilons.includes(null) ? "Infinity" : String(Math.ceil(Math.max(...epsilons) * 1e4 - 1e-4) / 1e4);
  const cap = most > 10 ? `, cap: { epsilon: ${most}, days: 1 }` : "";
  const sending = experiment.sending === "when-due" ? ', sending: "when-due"' : "";
  const text = `import { Whitelie } from "whitelie"

const wl = new Whitelie({ server: ${JSON.stringify(location.origin)}, key: "pk_…", maxEpsilon: ${most}${cap}${sending} })
const choice = await wl.decide(${JSON.stringify(experiment.id)})
show(choice.payload)
button.onclick = () => choice.reward(1)
`;
  const code = el("code", {}, text);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notify("Copied.");
    } catch {
      getSelection().selectAllChildren(code); // without HTTPS a page may not write the clipboard
      notify("Selected: copy it with Ctrl+C or ⌘C.");
    }
  };
  return el(
    "div",
    { class: "snippet" },
    el("pre", { tabindex: 0, role: "region", "aria-label": "Snippet for your page" }, code),
    el("button", { type: "button", class: "copy", onclick: copy }, "Copy"),
    el(
      "p",
      { class: "note" },
      "The key comes from ",
      el("code", {}, "whitelie key create shop --origin https://shop.example"),
      ".",
    ),
    experiment.spread < 30
      ? el(
          "p",
          { class: "note" },
          `Clients send no report if the spread is below 30 seconds, unless their option minSpread allows it; this experiment has ${experiment.spread}.`,
        )
      : null,
  );
}

const total = (arms, name) => arms.reduce((sum, arm) => sum + arm[name], 0);

function verdict(element, isGood, text) {
  say(element, text);
  set(element, { class: isGood ? "good" : "bad" });
}

const list = (title, texts) =>
  el(
    "div",
    {},
    el("h3", {}, title),
    el(
      "ul",
      { class: "points" },
      texts.map((text) => el("li", {}, text)),
    ),
  );
