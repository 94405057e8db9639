// One experiment: its results, live, and what an admin can do about it.

import { Certificate, candidateOf, canUndo, knownOf } from "./certificate.js";
import { Charts } from "./charts.js";
import { askForSpan, confirmed } from "./dialog.js";
import { el, notify, say, set } from "./element.js";
import { Leaderboard } from "./leaderboard.js";
import { count, percent, plural, short, time } from "./numbers.js";
import { Health, lastReport, Privacy, snippet } from "./panels.js";
import { key, pathOf, pause, request, streamResults } from "./server.js";

const POLL_INTERVAL_MS = 10_000;
const ARRIVAL_INTERVAL_MS = 60_000;

/** Return the view of an experiment. It lives until the signal aborts; `onRefused` ends it. */
export async function experimentView(id, { signal, onRefused }) {
  const [experiment, results, promise] = await Promise.all(
    ["", "/results", "/privacy"].map((rest) => request("GET", pathOf(id, rest), { signal })),
  );
  const view = new View(experiment, promise, signal, onRefused);
  view.update(results);
  streamResults(id, {
    signal,
    onRefused,
    onResults: (latest) => view.update(latest),
    onState: (state) => view.connection(state),
  });
  view.poll();
  return view.node;
}

class View {
  constructor(experiment, promise, signal, onRefused) {
    Object.assign(this, { experiment, signal, onRefused });
    this.isAdmin = key.isAdmin;
    this.charts = new Charts(signal);
    this.board = new Leaderboard({
      onRetire: this.isAdmin ? (arm) => this.#retire(arm) : null,
      colour: (arm) => this.charts.colour(arm),
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.update(this.results), { signal });
    this.privacy = new Privacy();
    this.privacy.promise(promise);
    this.health = new Health();
    this.status = el("span", { class: "status" });
    this.live = el("span", { class: "live" }, "connecting");
    this.sentence = el("p", { class: "sentence" });
    this.certificate = new Certificate();
    this.last = el("span");
    this.alarmed = el("p", { class: "alarmed" });
    this.waiting = this.#waiting();
    this.pauseButton = el("button", { type: "button", onclick: () => this.#pause() });
    this.shipButton = el("button", { type: "button", onclick: () => this.#ship() }, "Ship the winner…");
    this.undoButton = el("button", { type: "button", onclick: () => this.#undoShipping() }, "Undo shipping");
    this.stopButton = el("button", { type: "button", onclick: () => this.#stop() }, "Stop…");
    this.node = el(
      "article",
      { class: "experiment", "data-id": experiment.id },
      this.#head(),
      this.board.node,
      this.waiting,
      this.charts.node,
      el("div", { class: "panels" }, this.health.node, this.privacy.node),
      this.#taking(),
      this.isAdmin ? this.#ending() : null,
    );
  }

  update(results) {
    const isFirst = !this.results;
    const old = this.results;
    this.results = results;
    const grown = Math.max(this.sentence.offsetHeight, parseFloat(this.sentence.style.minHeight) || 0);
    say(this.sentence, results.sentence);
    if (grown && this.width === innerWidth)
      this.sentence.style.minHeight = `${grown}px`; // nothing jumps when it is shorter again
    else this.sentence.style.minHeight = "";
    this.width = innerWidth;
    this.node.classList.toggle("is-alarmed", results.alarms.length > 0);
    this.node.classList.toggle("is-settled", results.certificate.state === "certified");
    say(this.status, results.status);
    set(this.status, { "data-status": results.status });
    say(this.last, `last report seen: ${lastReport(results)}`);
    this.#alarm(results.alarms.length);
    const isEmpty = results.reports === 0;
    this.certificate.node.hidden = isEmpty && !results.shipped;
    this.certificate.update(results);
    if (old && old.certificate.state !== "certified" && results.certificate.state === "certified")
      notify(results.certificate.sentence);
    this.waiting.hidden = !isEmpty || Boolean(results.shipped);
    this.charts.node.hidden = isEmpty;
    this.taking.hidden = !this.waiting.hidden;
    this.node.classList.toggle("is-empty", isEmpty);
    this.charts.choose(results);
    this.board.update(results);
    this.health.update(results);
    this.#offer(results);
    if (!isEmpty && (isFirst || !old.reports || old.arms.length !== results.arms.length)) this.#load();
    else this.charts.update(results);
  }

  connection(state) {
    const isLive = state === "live";
    this.live.classList.toggle("on", isLive);
    say(this.live, isLive ? "live" : `reconnecting in ${Math.round(state / 1000)} s`);
  }

  /** Request at intervals what the stream does not tell. */
  async poll() {
    let asked = 0;
    while (!this.signal.aborted) {
      if (!document.hidden) {
        const [tables, ready] = await Promise.allSettled([
          request("GET", "/v1/stored", { signal: this.signal }),
          request("GET", "/readyz", { signal: this.signal }),
        ]);
        if (tables.status === "fulfilled") this.privacy.stored(tables.value.tables);
        if (!this.signal.aborted) this.health.available(ready.status === "fulfilled" ? null : ready.reason);
        if (this.isAdmin && Date.now() > asked + ARRIVAL_INTERVAL_MS) {
          asked = Date.now();
          await this.#arrival();
        }
      }
      await pause(POLL_INTERVAL_MS, this.signal);
    }
  }

  /** Show how late reports come, which the stream does not tell. */
  async #arrival() {
    try {
      const { arrival } = await request("GET", pathOf(this.experiment.id, "/results"), { signal: this.signal });
      if (arrival) this.health.arrival(arrival);
    } catch {
      // the stream says what is wrong
    }
  }

  #head() {
    const { experiment } = this;
    const epsilons = experiment.arms.map((arm) => arm.epsilon ?? Infinity);
    const facts = [experiment.policy, `ε = ${short(Math.max(...epsilons))}`, `since ${time(experiment.created)}`];
    if (experiment.goal !== null) facts.unshift(`goal: ${goalOf(experiment.goal)}`);
    if (experiment.then === "ship") facts.push("ships by itself at the certificate");
    const actions = el(
      "div",
      { class: "actions", role: "group", "aria-label": "Actions" },
      this.pauseButton,
      el("button", { type: "button", onclick: () => this.#export() }, "Export CSV"),
      this.undoButton,
      this.shipButton,
    );
    return el(
      "header",
      { class: "head" },
      el("p", { class: "crumb" }, el("a", { href: "#/" }, "Experiments")),
      el("h1", {}, experiment.name),
      this.sentence,
      this.certificate.node,
      el("p", { class: "about" }, this.status, this.live, ...facts.map((fact) => el("span", {}, fact)), this.last),
      this.alarmed,
      this.isAdmin ? actions : null,
    );
  }

  #alarm(number) {
    if (this.alarmedBy === number) return;
    this.alarmedBy = number;
    const go = () => this.health.node.focus();
    this.alarmed.replaceChildren(
      ...(number
        ? [
            el(
              "button",
              { type: "button", class: "link", onclick: go },
              `${plural(number, "alarm")}: what happened, and what to do`,
            ),
          ]
        : ["No alarms."]),
    );
  }

  #waiting() {
    return el(
      "section",
      { class: "waiting", "aria-labelledby": "waiting" },
      el("h2", { id: "waiting" }, "Waiting for the first report"),
      el("p", {}, "Put this into your page. Last report seen: ", el("strong", {}, "never"), "."),
      snippet(this.experiment),
    );
  }

  #taking() {
    this.taking = el(
      "details",
      { class: "taking" },
      el("summary", {}, "How a page takes part"),
      snippet(this.experiment),
    );
    return this.taking;
  }

  #ending() {
    const item = (title, text, button) =>
      el("li", {}, el("div", {}, el("h3", {}, title), el("p", { class: "soft" }, text)), button);
    return el(
      "section",
      { class: "ending", "aria-labelledby": "ending" },
      el("h2", { id: "ending" }, "Undo and end"),
      el(
        "ul",
        {},
        item(
          "Roll back a span",
          "Removes the decisions of some minutes, with their reports.",
          el("button", { type: "button", onclick: () => this.#rollBack() }, "Roll back…"),
        ),
        item("Stop", "Ends all decisions for good. Reports that are on their way still count.", this.stopButton),
        item(
          "Delete",
          "Removes the experiment and all its counts.",
          el("button", { type: "button", class: "danger", onclick: () => this.#delete() }, "Delete…"),
        ),
      ),
    );
  }

  /** Offer what can be done now. */
  #offer({ status, arms, alarms, certificate, shipped }) {
    say(this.pauseButton, status === "paused" ? "Resume" : "Pause");
    this.pauseButton.disabled = status === "stopped" || status === "shipped";
    this.stopButton.disabled = status === "stopped";
    const active = arms.filter((arm) => !arm.retired);
    const isUnknown = !active.some((arm) => arm.answered) || alarms.some((alarm) => alarm.code === "misspecified");
    this.shipButton.disabled = status === "stopped" || isUnknown;
    this.shipButton.classList.toggle("primary", certificate.state === "certified");
    const [hadShip, hadUndo] = [this.shipButton, this.undoButton].map((button) => button === document.activeElement);
    this.shipButton.hidden = Boolean(shipped);
    this.undoButton.hidden = !canUndo(shipped);
    if (hadShip && shipped) this.undoButton.focus();
    if (hadUndo && !shipped) this.shipButton.focus();
    this.#offerAgainAtTheEndOf(shipped);
  }

  /** Results need not change when the time is over in which shipping can be undone. */
  #offerAgainAtTheEndOf(shipped) {
    clearTimeout(this.undoTimer);
    if (!canUndo(shipped) || this.signal.aborted) return;
    this.undoTimer = setTimeout(
      () => !this.signal.aborted && this.update(this.results),
      Date.parse(shipped.undo_until) - Date.now() + 1,
    );
  }

  async #load() {
    try {
      this.experiment = await request("GET", pathOf(this.experiment.id), { signal: this.signal });
      await this.charts.load(this.experiment, this.results);
    } catch (error) {
      if (!this.signal.aborted) notify(`The charts cannot be drawn: ${error.message}`, true);
    }
  }

  /** Do something and say so, or why not. */
  async #do(work, done) {
    try {
      await work();
      notify(done);
      return true;
    } catch (error) {
      if (error.status === 401) this.onRefused(error);
      else notify(error.message, true);
      return false;
    }
  }

  #change(body, done) {
    return this.#doAndShow(() => request("PATCH", pathOf(this.experiment.id), { body }), done);
  }

  /** Do something, say so, and show the results that follow from it. */
  async #doAndShow(work, done) {
    if (await this.#do(work, done))
      await this.#do(async () => this.update(await request("GET", pathOf(this.experiment.id, "/results"))), done);
  }

  #pause() {
    const isPaused = this.results.status === "paused";
    return this.#change(
      { status: isPaused ? "running" : "paused" },
      isPaused ? "Resumed." : "Paused: no more decisions until you resume; reports still count.",
    );
  }

  async #stop() {
    const { shipped } = this.results;
    const text = shipped
      ? `Pages will no longer get “${shipped.arm}”: they show what they show without this service. A stopped experiment cannot be resumed.`
      : "No more decisions will be made, and a stopped experiment cannot be resumed. Reports that are on their way still count.";
    if (await confirmed({ title: "Stop for ever?", text, action: "Stop it", isDangerous: true }))
      await this.#change({ status: "stopped" }, "Stopped.");
  }

  async #retire(arm) {
    const text = `“${arm}” will not be shown any more and cannot come back. Its pending reports still count.`;
    if (await confirmed({ title: "Retire this arm?", text, action: "Retire it", isDangerous: true }))
      await this.#change({ retire: [arm] }, `Retired ${arm}.`);
  }

  async #ship() {
    const arm = candidateOf(this.results);
    const isCertified = this.results.certificate.state === "certified";
    const doubts = this.results.alarms.map((alarm) => `There is an alarm: ${alarm.message}`);
    const text = [
      knownOf(this.results, arm),
      ...doubts,
      "From now on everybody gets it, and nobody is asked any more. You can undo this for a day.",
    ];
    if (await confirmed({ title: `Ship “${arm}”?`, text, action: "Ship it", isDangerous: !isCertified })) {
      const work = () => request("POST", pathOf(this.experiment.id, "/ship"), { body: { arm } });
      await this.#doAndShow(work, `${arm} is shipped: everybody gets it.`);
    }
  }

  #undoShipping() {
    const work = () => request("POST", pathOf(this.experiment.id, "/unship"));
    return this.#doAndShow(work, "Shipping is undone: the experiment goes on as before.");
  }

  #rollBack() {
    const text =
      "Decisions that were issued in this span, and their reports, will be removed. Nothing brings them back.";
    askForSpan("Roll back a span", text, async (body) => {
      const { arms } = await request("POST", pathOf(this.experiment.id, "/rollback"), { body });
      const sum = (name) => arms.reduce((all, arm) => all + arm[name], 0);
      notify(`Removed ${plural(sum("issued"), "decision")} and ${plural(sum("answered"), "report")}.`);
      this.update(await request("GET", pathOf(this.experiment.id, "/results")));
      await this.#load();
    });
  }

  #export() {
    const { id } = this.experiment;
    return this.#do(async () => {
      const table = await request("GET", pathOf(id, "/results.csv"), { as: "blob" });
      const url = URL.createObjectURL(table);
      el("a", { href: url, download: `${id}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    }, `Saved ${id}.csv.`);
  }

  async #delete() {
    const text = `“${this.experiment.name}” and its ${count(this.results.reports)} reports will be deleted. Tokens that devices hold become invalid.`;
    if (!(await confirmed({ title: "Delete this experiment?", text, action: "Delete it", isDangerous: true }))) return;
    if (await this.#do(() => request("DELETE", pathOf(this.experiment.id)), `Deleted ${this.experiment.name}.`))
      location.hash = "#/";
  }
}

/** Return a goal in words. */
const goalOf = (goal) => (typeof goal === "number" ? `${percent(goal, 0)} to know` : goal);
