// The form of a new experiment. The server checks; what it refuses is shown beside the field.

import { el, notify, set } from "./element.js"
import { percent } from "./numbers.js"
import { meaning, raised } from "./panels.js"
import { ask } from "./server.js"

const UNITS = { seconds: 1, minutes: 60, hours: 3600, days: 86400 }
const SENDING = [
  ["next-visit", "At the next visit"],
  ["when-due", "As soon as due"],
]
const POLICIES = [
  ["TS-CF", "Thompson sampling (TS-CF)"],
  ["kl-UCB-CF", "kl-UCB-CF"],
  ["UCB-CF", "UCB-CF"],
]

/** Return the form; `onCreated(id)` is called once there is an experiment. */
export function createView({ onCreated }) {
  return new Form(onCreated).node
}

class Form {
  constructor(onCreated) {
    this.onCreated = onCreated
    this.fields = new Map()
    this.arms = []
    this.armNumber = 0
    this.list = el("div", { class: "arms" })
    this.node = el(
      "form",
      { class: "create", novalidate: true, "aria-labelledby": "create", onsubmit: (event) => this.#submit(event) },
      el("p", { class: "crumb" }, el("a", { href: "#/" }, "Experiments")),
      el("h1", { id: "create" }, "New experiment"),
      this.#field("name", "Name", el("input", { type: "text", autocomplete: "off" }), "For people; its id is made from it."),
      this.#armsField(),
      this.#epsilonField(),
      el("div", { class: "pair" }, this.#wait("window", "Window", 10, "minutes", "How long after a decision a click may still come. Devices wait for all of it."), this.#wait("spread", "Spread", 5, "minutes", "Reports leave at a random time within it, so that time tells nothing. Clients want at least 30 seconds.")),
      this.#field("sending", "When reports leave", el("select", {}, SENDING.map(([value, text]) => el("option", { value }, text))), "At the next visit, staying or leaving the page tells nothing; reports come later. As soon as due is for kiosks and servers, or where a click does not leave the page. Clients must be told the same: the snippet does so."),
      this.#field("policy", "Policy", el("select", {}, POLICIES.map(([value, text]) => el("option", { value }, text))), "Who decides which arm to show. TS-CF is a good choice."),
      (this.general = el("p", { class: "error", role: "alert" })),
      el("div", { class: "buttons" }, el("a", { class: "button", href: "#/" }, "Cancel"), (this.send = el("button", { class: "primary" }, "Create"))),
    )
  }

  /** Return a labelled control, whose errors have the server's name of the field. */
  #field(name, label, control, hint = null, extra = null) {
    const id = `field-${name.replaceAll(/\W+/g, "-")}`
    const error = el("p", { class: "error", id: `${id}-error` })
    set(control, { id, "aria-describedby": `${id}-error${hint ? ` ${id}-hint` : ""}` })
    this.fields.set(name, { control, error })
    return el("div", { class: "field" }, el("label", { for: id }, label), hint ? el("p", { class: "hint", id: `${id}-hint` }, hint) : null, extra ? el("div", { class: "joined" }, control, extra) : control, error)
  }

  #armsField() {
    const error = el("p", { class: "error", id: "field-arms-error" })
    const add = el("button", { type: "button", onclick: () => this.#addArm().key.focus() }, "Add an arm")
    this.fields.set("arms", { control: add, error })
    this.#addArm("plain")
    this.#addArm("kind")
    return el("fieldset", { class: "field" }, el("legend", {}, "Arms"), el("p", { class: "hint" }, "What to choose from. A payload is any JSON; the page gets it with the decision."), this.list, error, add)
  }

  #addArm(value = "") {
    const number = this.armNumber++
    const arm = { key: el("input", { type: "text", autocomplete: "off", value }), payload: el("input", { type: "text", class: "code", autocomplete: "off", spellcheck: "false", placeholder: '{"text": "Buy now"}' }), number }
    const remove = el("button", { type: "button", class: "quiet", "aria-label": "Remove this arm", onclick: () => this.#removeArm(arm) }, "Remove")
    arm.row = el("div", { class: "arm" }, this.#field(`arm-${number}.key`, "Key", arm.key), this.#field(`arm-${number}.payload`, "Payload (optional)", arm.payload), remove)
    this.arms.push(arm)
    this.list.append(arm.row)
    return arm
  }

  #removeArm(arm) {
    this.arms = this.arms.filter((each) => each !== arm)
    arm.row.remove()
    for (const part of ["key", "payload"]) this.fields.delete(`arm-${arm.number}.${part}`)
    this.fields.get("arms").control.focus()
  }

  #epsilonField() {
    const number = el("input", { type: "number", min: 0, step: "any", value: 1, inputmode: "decimal" })
    const slider = el("input", { type: "range", min: 0.1, max: 4, step: 0.1, value: 1, "aria-label": "ε, privacy per report" })
    const plain = el("p", { class: "meaning", "aria-live": "polite" })
    const tell = () => {
      const epsilon = Number(number.value)
      const text = `Devices tell the truth with probability ${percent(1 / (1 + Math.exp(-epsilon)))}. ${meaning(epsilon)} ${advice(epsilon)}`
      plain.replaceChildren(...(epsilon > 0 ? raised(text) : ["ε is a number above 0."]))
    }
    number.addEventListener("input", () => ((slider.value = number.value), tell()))
    slider.addEventListener("input", () => ((number.value = slider.value), tell()))
    tell()
    const field = this.#field("epsilon", "ε, privacy per report", number, "Smaller is more private, and slower to learn from.", slider)
    field.append(plain)
    return field
  }

  #wait(name, label, value, unit, hint) {
    const number = el("input", { type: "number", min: 0, step: 1, value, inputmode: "numeric" })
    const units = el("select", { "aria-label": `${label}, unit` }, Object.keys(UNITS).map((text) => el("option", { value: text, selected: text === unit }, text)))
    this[name] = () => (number.value === "" ? undefined : Number(number.value) * UNITS[units.value])
    return this.#field(name, label, number, hint, units)
  }

  async #submit(event) {
    event.preventDefault()
    this.#clear()
    const body = this.#body()
    if (!body) return
    this.send.disabled = true
    try {
      const created = await ask("POST", "/v1/experiments", { body, headers: { "Idempotency-Key": this.#nameOf(body) } })
      notify(`Created ${created.name}.`)
      this.onCreated(created.id)
    } catch (refused) {
      this.#refuse(refused)
    } finally {
      this.send.disabled = false
    }
  }

  /** Return what is asked for, or null if a payload is no JSON. */
  #body() {
    const arms = []
    for (const arm of this.arms) {
      const made = { key: arm.key.value }
      try {
        if (arm.payload.value.trim()) made.payload = JSON.parse(arm.payload.value)
      } catch {
        this.#fault(`arm-${arm.number}.payload`, 'This is no JSON. Text stands in quotes: "Buy now".')
        return null
      }
      arms.push(made)
    }
    const value = (name) => this.fields.get(name).control.value
    const epsilon = value("epsilon") === "" ? undefined : Number(value("epsilon"))
    return { name: value("name"), arms, epsilon, window: this.window(), spread: this.spread(), sending: value("sending"), policy: value("policy") }
  }

  /** Return the same name for the same request, so that sending it twice creates one experiment. */
  #nameOf(body) {
    const text = JSON.stringify(body)
    if (this.sent !== text) {
      this.sent = text
      this.sentName = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")
    }
    return this.sentName
  }

  #refuse({ field, message }) {
    const [, place, part] = /^arms\[(\d+)\](?:\.(\w+))?/.exec(field ?? "") ?? []
    let name = field
    if (place !== undefined) name = part === "epsilon" ? "epsilon" : `arm-${this.arms[place]?.number}.${part ?? "key"}`
    this.#fault(this.fields.has(name) ? name : null, this.fields.has(name) || !field ? message : `${field}: ${message}`)
  }

  #fault(name, message) {
    if (!name) {
      this.general.textContent = message
      return
    }
    const { control, error } = this.fields.get(name)
    error.textContent = message
    set(control, { "aria-invalid": "true" })
    control.focus()
  }

  #clear() {
    this.general.textContent = ""
    for (const { control, error } of this.fields.values()) {
      error.textContent = ""
      set(control, { "aria-invalid": null })
    }
  }
}

function advice(epsilon) {
  if (epsilon <= 0.5) return "Strong protection; plan for many reports."
  if (epsilon <= 2) return "A usual choice."
  if (epsilon <= 4) return "Weak protection."
  return "Hardly any protection."
}
