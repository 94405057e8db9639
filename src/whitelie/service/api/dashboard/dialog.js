// Questions before something that cannot be undone, and the form of a rollback.

import { el } from "./element.js";

/** Ask whether to go on; resolve to true or false. The answer "no" has the focus. */
export function confirmed({ title, text, action, isDangerous = false }) {
  return new Promise((resolve) => {
    const go = el(
      "button",
      { type: "button", class: isDangerous ? "danger" : "primary", onclick: () => finish(true) },
      action,
    );
    const stay = el("button", { type: "button", autofocus: true, onclick: () => finish(false) }, "Cancel");
    const dialog = shown(title, [
      ...[text].flat().map((part) => el("p", {}, part)),
      el("div", { class: "buttons" }, stay, go),
    ]);
    const finish = (answer) => {
      dialog.close();
      resolve(answer);
    };
    dialog.addEventListener("close", () => resolve(false));
  });
}

/** Ask for a span of minutes; `send({from, to})` throws a refusal, which is shown at its field. */
export function askForSpan(title, text, send) {
  const now = new Date();
  const inputs = {
    from: el("input", {
      type: "datetime-local",
      id: "span-from",
      step: 60,
      value: minute(now.getTime() - 3_600_000),
      "aria-describedby": "span-from-error",
    }),
    to: el("input", {
      type: "datetime-local",
      id: "span-to",
      step: 60,
      value: minute(now.getTime()),
      "aria-describedby": "span-to-error",
    }),
  };
  const errors = {
    from: el("p", { class: "error", id: "span-from-error" }),
    to: el("p", { class: "error", id: "span-to-error" }),
  };
  const submit = async (event) => {
    event.preventDefault();
    for (const name in errors) errors[name].textContent = "";
    const span = {};
    for (const [name, input] of Object.entries(inputs)) {
      if (!input.value) {
        errors[name].textContent = "Give a date and a time.";
        return;
      }
      span[name] = new Date(input.value).toISOString();
    }
    try {
      await send(span);
      dialog.close();
    } catch (refused) {
      (errors[refused.field] ?? errors.to).textContent = refused.message;
    }
  };
  const field = (name, label) =>
    el("div", { class: "field" }, el("label", { for: `span-${name}` }, label), inputs[name], errors[name]);
  const form = el(
    "form",
    { novalidate: true, onsubmit: submit },
    el("p", {}, text),
    el("div", { class: "pair" }, field("from", "From"), field("to", "Up to (not included)")),
    el("p", { class: "note" }, "In the time zone of this browser."),
    el(
      "div",
      { class: "buttons" },
      el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      el("button", { class: "danger" }, "Remove these minutes"),
    ),
  );
  const dialog = shown(title, [form]);
}

function shown(title, children) {
  const dialog = el(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    el("h2", { id: "dialog-title" }, title),
    ...children,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Return a time as an input of date and time has it. */
function minute(time) {
  return new Date(time - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
