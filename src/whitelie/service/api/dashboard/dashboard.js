// The page: who is there, and which view is shown. Addresses are #/, #/new and #/experiments/ID.

import { createView } from "./create.js";
import { el, notify, say, set } from "./element.js";
import { experimentView } from "./experiment.js";
import { plural, time } from "./numbers.js";
import { key, pathOf, pause, request } from "./server.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const LIST_REFRESH_MS = 15_000;
const MAX_REFRESHED_EXPERIMENTS = 50;
let view = new AbortController();

addEventListener("hashchange", show);
document.getElementById("leave").addEventListener("click", () => signOut(""));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
show();

/** Show the view that the address names. */
async function show() {
  view.abort();
  view = new AbortController();
  const { signal } = view;
  document.body.classList.remove("lonely");
  nav.hidden = !key.text;
  say(document.getElementById("role"), key.isAdmin ? "admin" : "reader");
  if (!key.text) {
    render(signInView(), "Sign in");
    return;
  }
  const [, kind, id] = location.hash.split("/");
  try {
    if (kind === "new" && key.isAdmin)
      render(createView({ onCreated: (made) => (location.hash = `#/experiments/${made}`) }), "New experiment");
    else if (kind === "experiments" && id) {
      const node = await experimentView(decodeURIComponent(id), { signal, onRefused: showRefusal });
      if (!signal.aborted) render(node, node.querySelector("h1").textContent);
    } else {
      const node = await listView(signal);
      if (!signal.aborted) render(node, "Experiments");
    }
  } catch (error) {
    if (!signal.aborted) showRefusal(error);
  }
}

function render(node, title) {
  document.title = `${title} · whitelie`;
  main.replaceChildren(node);
  scrollTo(0, 0);
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
}

function showRefusal(error) {
  if (error.status === 401) signOut("This key is unknown, or it was revoked.");
  else if (error.status === 403)
    signOut("This key may not read results. Give an admin key (ak_…) or a reader key (rk_…).");
  else if (error.status === 404) {
    notify("This experiment does not exist, or it was deleted.", true);
    location.hash = "#/";
  } else {
    const again = el("button", { type: "button", onclick: show }, "Try again");
    render(
      el(
        "section",
        { class: "lone" },
        el("h1", {}, "The service cannot be reached"),
        el("p", {}, error.message),
        again,
      ),
      "Unreachable",
    );
  }
}

function signOut(reason) {
  key.forget();
  show();
  document.getElementById("sign-error").replaceChildren(reason);
  document.getElementById("key").focus();
}

function signInView() {
  document.body.classList.add("lonely");
  const input = el("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": "sign-error key-hint",
    placeholder: "ak_…",
  });
  const error = el("p", { id: "sign-error", class: "error", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) {
      error.textContent = "Give a key: it begins with ak_ or rk_.";
      input.focus();
      return;
    }
    key.keep(text);
    await show();
  };
  return el(
    "form",
    { class: "lone", novalidate: true, onsubmit: submit },
    el("h1", {}, "Sign in"),
    el(
      "p",
      { class: "soft" },
      "See what your experiments have found, from answers that were randomised on people’s own devices.",
    ),
    el("div", { class: "field" }, el("label", { for: "key" }, "Admin or reader key"), input, error),
    el("button", { class: "primary" }, "Sign in"),
    el("p", { class: "note", id: "key-hint" }, "Only this tab keeps the key, until you close the tab or sign out."),
  );
}

async function listView(signal) {
  const { experiments } = await request("GET", "/v1/experiments", { signal });
  const create = key.isAdmin ? el("a", { class: "button primary", href: "#/new" }, "New experiment") : null;
  const items = experiments.toReversed().map((experiment) => {
    const status = el("span", { class: "status", "data-status": experiment.status }, experiment.status);
    const sentence = el("p", { class: "said" }, "\u00a0");
    const about = [
      plural(experiment.arms.filter((arm) => !arm.retired).length, "arm"),
      experiment.policy,
      `since ${time(experiment.created)}`,
    ];
    const link = el("a", { href: `#/experiments/${encodeURIComponent(experiment.id)}` }, experiment.name);
    const node = el(
      "li",
      {},
      el("div", { class: "row" }, el("h2", {}, link), status),
      sentence,
      el(
        "p",
        { class: "about" },
        about.map((text) => el("span", {}, text)),
      ),
    );
    return { experiment, node, sentence, status };
  });
  refreshSentences(items.slice(0, MAX_REFRESHED_EXPERIMENTS), signal);
  const empty = el(
    "div",
    { class: "nothing" },
    el("p", {}, "There are no experiments yet."),
    el(
      "p",
      { class: "soft" },
      key.isAdmin
        ? "An experiment has arms to choose from, and a limit to what a report may reveal."
        : "An admin can create one.",
    ),
  );
  return el(
    "section",
    { class: "list" },
    el("div", { class: "row" }, el("h1", {}, "Experiments"), create),
    items.length
      ? el(
          "ul",
          {},
          items.map((item) => item.node),
        )
      : empty,
  );
}

/** Refresh the sentence and the status of each experiment in turn, one request at a time. */
async function refreshSentences(items, signal) {
  while (!signal.aborted) {
    for (const { experiment, node, sentence, status } of document.hidden ? [] : items) {
      const results = await request("GET", pathOf(experiment.id, "/results"), { signal }).catch(() => null);
      if (signal.aborted) return;
      if (!results) continue;
      say(sentence, results.sentence);
      say(status, results.status);
      set(status, { "data-status": results.status });
      node.classList.toggle("is-alarmed", results.alarms.length > 0);
      node.classList.toggle("is-settled", results.certificate.state === "certified");
    }
    await pause(LIST_REFRESH_MS, signal);
  }
}
