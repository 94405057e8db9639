// The form of a new experiment. The server checks it; a refusal is shown beside the field at fault.

import { el, notify, set } from "./element.js";
import { percent } from "./numbers.js";
import { meaning, raised } from "./panels.js";
import { request } from "./server.js";

const UNITS = { seconds: 1, minutes: 60, hours: 3600, days: 86400 };
const SENDING = [
  ["next-visit", "At the next visit"],
  ["when-due", "As soon as due"],
];
const GOALS = [
  ["earn", "Earn", "Soon most people see the arm that seems best. It may take very long to know that it is."],
  ["between", "In between", "Some decisions serve to know, the others to earn. You say how many."],
  ["know", "Know", "A certificate comes soonest. Until then more people see arms that are worse."],
];
const POLICIES = JSON.parse(document.body.dataset.policies);

/** Return the form; `onCreated(id)` is called once there is an experiment. */
export function createView({ onCreated }) {
  return new Form(onCreated).node;
}

class Form {
  constructor(onCreated) {
    this.onCreated = onCreated;
    this.fields = new Map();
    this.arms = [];
    this.armNumber = 0;
    this.list = el("div", { class: "arms" });
    this.general = el("p", { class: "error", role: "alert" });
    this.send = el("button", { class: "primary" }, "Create");
    this.node = el(
      "form",
      { class: "create", novalidate: true, "aria-labelledby": "create", onsubmit: (event) => this.#submit(event) },
      el("p", { class: "crumb" }, el("a", { href: "#/" }, "Experiments")),
      el("h1", { id: "create" }, "New experiment"),
      this.#field(
        "name",
        "Name",
        el("input", { type: "text", autocomplete: "off" }),
        "People read the name; the experiment’s id is made from it.",
      ),
      this.#armsField(),
      this.#goalField(),
      this.#certificateField(),
      this.#epsilonField(),
      el(
        "div",
        { class: "pair" },
        this.#wait(
          "window",
          "Window",
          10,
          "minutes",
          "How long after a decision a click still counts. Every device waits until the window has ended.",
        ),
        this.#wait(
          "spread",
          "Spread",
          5,
          "minutes",
          "After the window a report waits for a random part of the spread, so that its time reveals nothing. Clients require at least 30 seconds.",
        ),
      ),
      this.#field(
        "sending",
        "When reports leave",
        el(
          "select",
          {},
          SENDING.map(([value, text]) => el("option", { value }, text)),
        ),
        "“At the next visit” hides how long people stay on the page, but reports come later. “As soon as due” is for kiosks and servers, and for pages that a click does not leave. Clients need the same setting, which the snippet has.",
      ),
      this.#policyField(),
      this.general,
      el("div", { class: "buttons" }, el("a", { class: "button", href: "#/" }, "Cancel"), this.send),
    );
  }

  /** Return a labelled control, whose errors have the server's name of the field. */
  #field(name, label, control, hint = null, extra = null) {
    const id = `field-${name.replaceAll(/\W+/g, "-")}`;
    const error = el("p", { class: "error", id: `${id}-error` });
    set(control, { id, "aria-describedby": `${id}-error${hint ? ` ${id}-hint` : ""}` });
    this.fields.set(name, { control, error });
    return el(
      "div",
      { class: "field" },
      el("label", { for: id }, label),
      hint ? el("p", { class: "hint", id: `${id}-hint` }, hint) : null,
      extra ? el("div", { class: "joined" }, control, extra) : control,
      error,
    );
  }

  #armsField() {
    const error = el("p", { class: "error", id: "field-arms-error" });
    const add = el("button", { type: "button", onclick: () => this.#addArm().key.focus() }, "Add an arm");
    this.fields.set("arms", { control: add, error });
    this.#addArm("plain");
    this.#addArm("kind");
    return el(
      "fieldset",
      { class: "field" },
      el("legend", {}, "Arms"),
      el(
        "p",
        { class: "hint" },
        "The options to choose from. A payload is any JSON; the page gets it with the decision.",
      ),
      this.list,
      error,
      add,
    );
  }

  #addArm(value = "") {
    const number = this.armNumber++;
    const arm = {
      key: el("input", { type: "text", autocomplete: "off", value }),
      payload: el("input", {
        type: "text",
        class: "code",
        autocomplete: "off",
        spellcheck: "false",
        placeholder: '{"text": "Buy now"}',
      }),
      number,
    };
    const remove = el(
      "button",
      { type: "button", class: "quiet", "aria-label": "Remove this arm", onclick: () => this.#removeArm(arm) },
      "Remove",
    );
    arm.row = el(
      "div",
      { class: "arm" },
      this.#field(`arm-${number}.key`, "Key", arm.key),
      this.#field(`arm-${number}.payload`, "Payload (optional)", arm.payload),
      remove,
    );
    this.arms.push(arm);
    this.list.append(arm.row);
    return arm;
  }

  #removeArm(arm) {
    this.arms = this.arms.filter((each) => each !== arm);
    arm.row.remove();
    for (const part of ["key", "payload"]) this.fields.delete(`arm-${arm.number}.${part}`);
    this.fields.get("arms").control.focus();
  }

  /** What the experiment is for; a policy by name replaces it. */
  #goalField() {
    const error = el("p", { class: "error", id: "field-goal-error" });
    const share = el("input", { type: "range", id: "field-share", min: 0.1, max: 0.9, step: 0.1, value: 0.5 });
    const told = el("output", { for: "field-share" });
    const between = el(
      "div",
      { class: "share" },
      el("label", { for: "field-share" }, "Decisions that serve to know"),
      el("div", { class: "joined" }, share, told),
    );
    const inputs = GOALS.map(([value]) =>
      el("input", {
        type: "radio",
        name: "goal",
        value,
        checked: value === "earn",
        "aria-labelledby": `goal-${value}`,
        "aria-describedby": `goal-${value}-hint field-goal-error`,
      }),
    );
    const chosen = () => inputs.find((input) => input.checked).value;
    const tell = () => {
      between.hidden = chosen() !== "between";
      told.textContent = percent(Number(share.value), 0);
    };
    for (const input of [...inputs, share]) input.addEventListener("input", tell);
    tell();
    this.goal = () => (chosen() === "between" ? Number(share.value) : chosen());
    this.fields.set("goal", { control: inputs[0], error });
    this.goals = el(
      "fieldset",
      { class: "field" },
      el("legend", {}, "Goal"),
      el(
        "div",
        { class: "goals" },
        GOALS.map(([value, name, text], place) =>
          el(
            "label",
            { class: "goal" },
            inputs[place],
            el("span", { id: `goal-${value}` }, name),
            el("span", { class: "hint", id: `goal-${value}-hint` }, text),
          ),
        ),
      ),
      between,
      error,
    );
    return this.goals;
  }

  /** What a certificate is to say, and what happens then. */
  #certificateField() {
    const then = el("input", {
      type: "checkbox",
      id: "field-then",
      "aria-describedby": "field-then-hint field-then-error",
    });
    const error = el("p", { class: "error", id: "field-then-error" });
    this.fields.set("then", { control: then, error });
    return el(
      "fieldset",
      { class: "field certifying" },
      el("legend", {}, "Certificate"),
      el("p", { class: "hint" }, "The service says which arm is best once it knows, however often you look before."),
      el(
        "div",
        { class: "pair" },
        this.#percentField(
          "delta",
          "Error probability",
          "A certificate is wrong with at most this probability, however often anybody looks.",
          5,
        ),
        this.#percentField(
          "tolerance",
          "Tolerance (optional)",
          "How much better another arm may be, in percentage points. Equal arms end this way.",
        ),
      ),
      el(
        "div",
        { class: "pair" },
        this.#percentField(
          "expect.rate",
          "Expected rate (optional)",
          "If this is about right, a certificate comes sooner. It is valid either way.",
        ),
        this.#percentField(
          "expect.difference",
          "Expected difference (optional)",
          "The difference between the best arm and the next that matters, in percentage points.",
        ),
      ),
      el(
        "div",
        { class: "check" },
        then,
        el("label", { for: "field-then" }, "Ship by itself at the certificate"),
        el(
          "p",
          { class: "hint", id: "field-then-hint" },
          "Everybody then gets the winner, and nobody is asked any more. You can undo this for a day.",
        ),
        error,
      ),
    );
  }

  /** Return a field in percent, which may be left empty. */
  #percentField(name, label, hint, value = null) {
    const control = el("input", { type: "number", min: 0, max: 100, step: "any", inputmode: "decimal", value });
    return this.#field(name, label, control, hint, el("span", { class: "unit", "aria-hidden": "true" }, "%"));
  }

  /** Return the share that a field in percent has, or undefined if it is empty. */
  #share(name) {
    const { value } = this.fields.get(name).control;
    return value === "" ? undefined : Number((Number(value) / 100).toPrecision(12));
  }

  #policyField() {
    const select = el(
      "select",
      {},
      el("option", { value: "" }, "By the goal"),
      POLICIES.map(([value, text]) => el("option", { value }, text)),
    );
    select.addEventListener("input", () => (this.goals.disabled = Boolean(select.value)));
    this.advanced = el(
      "details",
      {},
      el("summary", {}, "Advanced"),
      this.#field("policy", "Policy", select, "The rule that chooses which arm to show. It replaces the goal."),
    );
    return this.advanced;
  }

  #epsilonField() {
    const number = el("input", { type: "number", min: 0, step: "any", value: 1, inputmode: "decimal" });
    const slider = el("input", {
      type: "range",
      min: 0.1,
      max: 4,
      step: 0.1,
      value: 1,
      "aria-label": "ε, privacy per report",
    });
    const plain = el("p", { class: "meaning", "aria-live": "polite" });
    const tell = () => {
      const epsilon = Number(number.value);
      const text = `Devices tell the truth with probability ${percent(1 / (1 + Math.exp(-epsilon)))}. ${meaning(epsilon)} ${advice(epsilon)}`;
      plain.replaceChildren(...(epsilon > 0 ? raised(text) : ["ε must be a number above 0."]));
    };
    const mirror = (source, copy) => () => {
      copy.value = source.value;
      tell();
    };
    number.addEventListener("input", mirror(number, slider));
    slider.addEventListener("input", mirror(slider, number));
    tell();
    const field = this.#field(
      "epsilon",
      "ε, privacy per report",
      number,
      "A smaller ε is more private, but the experiment learns more slowly.",
      slider,
    );
    field.append(plain);
    return field;
  }

  #wait(name, label, value, unit, hint) {
    const number = el("input", { type: "number", min: 0, step: 1, value, inputmode: "numeric" });
    const units = el(
      "select",
      { "aria-label": `${label}, unit` },
      Object.keys(UNITS).map((text) => el("option", { value: text, selected: text === unit }, text)),
    );
    this[name] = () => (number.value === "" ? undefined : Number(number.value) * UNITS[units.value]);
    return this.#field(name, label, number, hint, units);
  }

  async #submit(event) {
    event.preventDefault();
    this.#clear();
    const body = this.#body();
    if (!body) return;
    this.send.disabled = true;
    try {
      const created = await request("POST", "/v1/experiments", {
        body,
        headers: { "Idempotency-Key": this.#nameOf(body) },
      });
      notify(`Created ${created.name}.`);
      this.onCreated(created.id);
    } catch (refused) {
      this.#refuse(refused);
    } finally {
      this.send.disabled = false;
    }
  }

  /** Return what is asked for, or null if a payload is no JSON or an expectation is half of one. */
  #body() {
    const arms = [];
    for (const arm of this.arms) {
      const made = { key: arm.key.value };
      try {
        if (arm.payload.value.trim()) made.payload = JSON.parse(arm.payload.value);
      } catch {
        this.#fault(`arm-${arm.number}.payload`, 'This is not JSON. Put text in quotes: "Buy now".');
        return null;
      }
      arms.push(made);
    }
    const value = (name) => this.fields.get(name).control.value;
    const epsilon = value("epsilon") === "" ? undefined : Number(value("epsilon"));
    const expect = { rate: this.#share("expect.rate"), difference: this.#share("expect.difference") };
    const missing = Object.keys(expect).filter((name) => expect[name] === undefined);
    if (missing.length === 1) {
      this.#fault(`expect.${missing[0]}`, "Give both the rate and the difference, or neither.");
      return null;
    }
    return {
      name: value("name"),
      arms,
      epsilon,
      window: this.window(),
      spread: this.spread(),
      sending: value("sending"),
      delta: this.#share("delta"),
      tolerance: this.#share("tolerance"),
      expect: missing.length ? undefined : expect,
      // biome-ignore lint/suspicious/noThenProperty: it is the service's name of the field, and a string
      then: this.fields.get("then").control.checked ? "ship" : undefined,
      ...(value("policy") ? { policy: value("policy") } : { goal: this.goal() }),
    };
  }

  /** Return the same name for the same request, so that sending it twice creates one experiment. */
  #nameOf(body) {
    const text = JSON.stringify(body);
    if (this.sent !== text) {
      this.sent = text;
      this.sentName = [...crypto.getRandomValues(new Uint8Array(16))]
        .map((byte) => byte.toString(16).padStart(2, "0"))
        .join("");
    }
    return this.sentName;
  }

  #refuse({ field, message }) {
    const [, place, part] = /^arms\[(\d+)\](?:\.(\w+))?/.exec(field ?? "") ?? [];
    let name = field;
    if (place !== undefined) name = part === "epsilon" ? "epsilon" : `arm-${this.arms[place]?.number}.${part ?? "key"}`;
    this.#fault(
      this.fields.has(name) ? name : null,
      this.fields.has(name) || !field ? message : `${field}: ${message}`,
    );
  }

  #fault(name, message) {
    if (!name) {
      this.general.textContent = message;
      return;
    }
    const { control, error } = this.fields.get(name);
    error.textContent = message;
    set(control, { "aria-invalid": "true" });
    if (this.advanced.contains(control)) this.advanced.open = true;
    control.focus();
  }

  #clear() {
    this.general.textContent = "";
    for (const { control, error } of this.fields.values()) {
      error.textContent = "";
      set(control, { "aria-invalid": null });
    }
  }
}

function advice(epsilon) {
  if (epsilon <= 0.5) return "Strong protection; plan for many reports.";
  if (epsilon <= 2) return "A usual choice.";
  if (epsilon <= 4) return "Weak protection.";
  return "Hardly any protection.";
}
