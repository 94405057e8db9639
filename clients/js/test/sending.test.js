// When reports leave: at the next visit, which is the default, or when they are due.

import assert from "node:assert/strict";
import { test } from "node:test";

import { World, SECOND, HOUR, DAY, answer, drawing } from "../testing/world.js";

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

test("a failure is tried again by flush after its wait, and by the next start", async (t) => {
  const { world } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(SETTLED);
  const visit = await world.client();
  await visit.flush();
  assert.equal(world.reports.length, 1, "flush does not press");
  await world.pass(HOUR);
  assert.equal(world.reports.length, 1, "there is no timer");
  await visit.flush();
  assert.equal(world.reports.length, 2);
  world.onReport = () => answer({});
  await world.client();
  assert.equal(world.reports.length, 3);
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

test("a value that is not known is the default", async (t) => {
  for (const sending of ["now", null, true]) {
    const { world } = await decided(t, { sending });
    await world.pass(HOUR);
    assert.equal(world.reports.length, 0);
  }
});

test("a program whose reports have been due for a day is told once that they wait", async (t) => {
  for (const [sending, warnings] of [["next-visit", 1], ["when-due", 0]]) {
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
