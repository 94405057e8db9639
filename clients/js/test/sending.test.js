// When reports leave: at the next visit, which is the default, or when they are due.

import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, HOUR, Locks, never, SECOND, World, withGlobal } from "../testing/world.js";

const DUE = 90 * SECOND;
const SETTLED = 120 * SECOND; // from then on a page load sends: a minute after the window
const words = drawing(0, 1, 0.5);
const bodies = (world) => world.reports.map(({ body }) => body);

async function decided(t, options) {
  const world = new World(t);
  const client = await world.client({ words, ...options });
  const choice = await client.decide("headline");
  return { world, client, choice };
}

test("a page that stays open past the time of its report sends nothing", async (t) => {
  const { world, client, choice } = await decided(t);
  choice.reward(1);
  assert.equal(world.timers.length, 0, "there is no timer");
  await world.pass(DUE);
  await client.flush();
  await client.decide("headline");
  await world.pass(HOUR);
  await client.flush();
  assert.equal(world.reports.length, 0);
  await world.client();
  assert.equal(world.reports.length, 2);
});

test("the first start after the time sends, one before it does not, nor later in its life", async (t) => {
  const { world, choice } = await decided(t);
  choice.reward(1);
  await world.pass(DUE - 1);
  const early = await world.client();
  await world.pass(HOUR);
  await early.flush();
  assert.equal(world.reports.length, 0);
  await world.client();
  assert.deepEqual(bodies(world), [{ token: "token 1", bit: 1 }]);
});

test("the time at which somebody leaves changes nothing", async (t) => {
  const times = [];
  for (const stays of [1 * SECOND, DUE + SECOND, HOUR]) {
    const { world } = await decided(t);
    await world.pass(stays);
    world.close();
    await world.pass(2 * HOUR - stays);
    await world.client();
    times.push(world.reports.map(({ at }) => at));
  }
  assert.equal(new Set(times.map(String)).size, 1);
  assert.equal(times[0].length, 1);
});

test("a page load makes one attempt: what fails waits for the next", async (t) => {
  const { world } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(SETTLED);
  const visit = await world.client();
  await world.pass(HOUR);
  await visit.flush();
  assert.equal(world.reports.length, 1, "neither a timer nor flush tries again");
  world.onReport = () => answer({});
  await world.client();
  assert.equal(world.reports.length, 2);
  assert.equal(world.store.reports.length, 0);
});

test("a clock that is set back does not make a visit send its own report", async (t) => {
  const { world, client } = await decided(t);
  await world.pass(HOUR);
  world.setClock(-DAY);
  await client.flush();
  await world.pass(HOUR);
  await client.flush();
  assert.equal(world.reports.length, 0);
  await world.client();
  assert.equal(world.reports.length, 1);
});

test("when-due sends by a timer, if the page is still open", async (t) => {
  const { world } = await decided(t, { sending: "when-due" });
  await world.pass(DUE - 1);
  assert.equal(world.reports.length, 0);
  await world.pass(1);
  assert.equal(world.reports.length, 1);
});

test("no report leaves before a second after the window: other tabs may have rewarded it", async (t) => {
  const world = new World(t);
  const client = await world.client({ words: drawing(0, 1, 0), sending: "when-due" });
  await client.decide("headline");
  await world.pass(61 * SECOND - 1);
  await client.flush();
  await world.client();
  assert.equal(world.reports.length, 0);
  await world.pass(1);
  assert.equal(world.reports.length, 1);
});

test("a value that is not known is the default, with a warning", async (t) => {
  for (const sending of ["now", null, true]) {
    const { world } = await decided(t, { sending });
    await world.pass(HOUR);
    assert.equal(world.reports.length, 0);
    assert.deepEqual(world.warnings, ['whitelie: unknown sending: it is "next-visit"']);
  }
});

test("a program whose reports have been due for a day is told once that they wait", async (t) => {
  for (const [sending, warnings] of [
    ["next-visit", 1],
    ["when-due", 0],
  ]) {
    const { world, client } = await decided(t, { sending, cap: { epsilon: 100 } });
    for (let day = 0; day < 4; day += 1) {
      await world.pass(12 * HOUR);
      await client.decide("headline");
      if (day === 1) assert.deepEqual(world.warnings, [], "a report has been due for less than a day");
    }
    assert.equal(world.warnings.length, warnings);
    if (warnings) assert.match(world.warnings[0], /"when-due"/);
  }
});

test("a report leaves by the rule that it was made under, whoever else is on the page", async (t) => {
  for (const other of [{ sending: "when-due" }, { immediate: true }]) {
    const world = new World(t);
    const tab = await world.tab();
    const shop = await world.client({ tab, words });
    await shop.decide("headline");
    const widget = await world.client({ tab, server: "https://widget.example", words: drawing(0, 1, 0.25), ...other });
    await widget.decide("button");
    await world.pass(HOUR);
    await shop.flush();
    await widget.flush();
    assert.deepEqual(
      world.reports.map(({ url }) => new URL(url).host),
      ["widget.example"],
    );
    assert.deepEqual(
      world.store.reports.map(({ sending }) => sending),
      ["next-visit"],
    );
    await world.client();
    assert.equal(world.reports.length, 2);
  }
});

test("a reward to an immediate client changes no time of a report that waits for the next visit", async (t) => {
  const { world } = await decided(t);
  const [before] = world.store.reports;
  const other = await world.client({ immediate: true });
  other.reward("headline");
  assert.deepEqual(world.store.reports, [{ ...before, bit: 1 }]);
  assert.equal(world.reports.length, 0);
});

test("a report of an earlier version, which has no rule, waits for the next visit", async (t) => {
  const { world, client } = await decided(t, { sending: "when-due" });
  const [name] = [...world.store.keys()].filter((each) => each.startsWith("whitelie.report."));
  const { sending, ...report } = JSON.parse(world.store.getItem(name));
  world.store.setItem(name, JSON.stringify(report));
  await world.pass(HOUR);
  await client.flush();
  assert.deepEqual([sending, world.reports.length], ["when-due", 0]);
  await world.client();
  assert.equal(world.reports.length, 1);
});

test("another client of the same page load is no visit", async (t) => {
  const world = new World(t);
  const tab = await world.tab();
  const first = await world.client({ tab, words });
  await first.decide("headline");
  await world.pass(HOUR);
  const view = await world.client({ tab });
  await view.flush();
  assert.equal(world.reports.length, 0);
  await world.client({ tab, store: Object.create(world.store) });
  assert.equal(world.reports.length, 1, "another page load has another store object");
});

test("clients of one page load make one attempt together", async (t) => {
  const { world } = await decided(t);
  await world.pass(SETTLED);
  world.onReport = () => answer("", 503);
  const tab = await world.tab();
  const clients = [await world.client({ tab }), await world.client({ tab })];
  for (const client of clients) await client.flush();
  assert.equal(world.reports.length, 1);
});

test("a service that does not answer delays no report, its own neither, and is not asked again", async (t) => {
  const world = new World(t);
  for (const name of ["a", "b", "c"]) {
    const client = await world.client({ words, server: `https://${name}.example` });
    await client.decide("headline");
    await world.pass(0);
  }
  world.onReport = ({ url }) => (url.includes("b.example") ? answer({}) : never());
  await world.pass(SETTLED);
  const visit = await world.client();
  const start = world.time;
  await world.pass(HOUR);
  await visit.flush();
  assert.deepEqual(
    world.reports.map(({ at }) => at),
    [start, start, start],
  );
  assert.deepEqual(world.store.reports.map(({ server }) => server).sort(), ["https://a.example", "https://c.example"]);
});

test("while another tab sends, a page load sends nothing, then nor later", async (t) => {
  const locks = new Locks();
  withGlobal(t, "navigator", { value: { locks } });
  const { world } = await decided(t);
  await world.pass(SETTLED);
  let release;
  locks.request("whitelie.send", {}, () => new Promise((done) => (release = done)));
  const visit = await world.client();
  release();
  await world.pass(HOUR);
  await visit.flush();
  assert.equal(world.reports.length, 0);
  await world.client();
  assert.equal(world.reports.length, 1);
});

test("a ledger that cannot be read at a page load makes its reports wait for the next", async (t) => {
  const { world } = await decided(t);
  await world.pass(SETTLED);
  const { getItem } = world.store;
  world.store.getItem = (name) => {
    if (name.startsWith("whitelie.charge.")) throw Error("fails");
    return getItem.call(world.store, name);
  };
  const visit = await world.client();
  world.store.getItem = getItem;
  await world.pass(HOUR);
  await visit.flush();
  assert.equal(world.reports.length, 0);
  await world.client();
  assert.equal(world.reports.length, 1);
});

test("the body of the answer to a report is not read", async (t) => {
  const { world } = await decided(t);
  await world.pass(SETTLED);
  let isCancelled = false;
  const body = new ReadableStream({ cancel: () => (isCancelled = true) });
  world.onReport = ({ options }) => {
    options.signal.addEventListener("abort", () => (isCancelled = true));
    return new Response(body);
  };
  const visit = await world.client();
  assert.equal(world.store.reports.length, 0, "it is settled though the answer has no end");
  assert.ok(isCancelled);
  await visit.flush();
});

test("a storage that cannot be read for a moment makes no report leave early", async (t) => {
  const { world, client } = await decided(t, { sending: "when-due" });
  const { getItem } = world.store;
  world.store.getItem = () => {
    throw new Error("EIO");
  };
  await client.flush();
  world.store.getItem = getItem;
  await client.flush();
  await world.pass(DUE - 1);
  await client.flush();
  assert.equal(world.reports.length, 0);
  await world.pass(SECOND);
  await client.flush();
  assert.equal(world.reports.length, 1);
});

test("consent is asked before a report is read, and not again until it is written", async (t) => {
  let during = () => {};
  const consent = () => {
    during();
    return true;
  };
  const { world, choice, client } = await decided(t, { consent, sending: "when-due" });
  // While the page thinks about consent, another tab sends the report.
  during = () => world.store.items.clear();
  choice.reward(1);
  client.reward("headline");
  assert.equal(world.store.items.size, 0, "what is gone is not written again");
  during = () => {};
  await client.decide("headline");
  await world.pass(DUE - 1);
  during = () => world.store.items.clear();
  world.time += SECOND;
  await client.flush();
  assert.equal(world.reports.length, 0);
  assert.equal(world.store.items.size, 0);
});

test("without consent nothing is sent, nothing is rewarded, and nothing is lost", async (t) => {
  for (const sending of ["next-visit", "when-due"]) {
    let agreed = true;
    const { world, choice } = await decided(t, { sending, consent: () => agreed });
    agreed = false;
    choice.reward(1);
    const before = new Map(world.store.items);
    await world.pass(SETTLED);
    const visit = await world.client({ sending, consent: () => agreed });
    await visit.flush();
    await world.pass(HOUR);
    assert.equal(world.reports.length, 0);
    assert.deepEqual(world.store.items, before);
    agreed = true;
    await visit.flush();
    assert.deepEqual(bodies(world), [{ token: "token 1", bit: 0 }]);
  }
});

test("without consent what has expired is removed unsent", async (t) => {
  const { world } = await decided(t);
  await world.pass(8 * DAY);
  await world.client({ consent: false });
  assert.equal(world.reports.length, 0);
  assert.equal(world.store.reports.length, 0);
});

test("consent withdrawn and everything erased: nothing is left, and nothing is sent", async (t) => {
  const { world, client } = await decided(t);
  client.forget();
  assert.equal(world.store.items.size, 0);
  await world.pass(DAY);
  await world.client({ consent: false });
  assert.equal(world.reports.length, 0);
});
