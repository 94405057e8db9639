import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, Locks, SECOND, World, withGlobal } from "../testing/world.js";

const slowly = async () => {
  await new Promise((done) => setImmediate(done));
  return answer({});
};

async function openTabs(t, { locks, sameProcess = false }) {
  withGlobal(t, "navigator", { value: locks && { locks } });
  const world = new World(t);
  world.onReport = slowly;
  const shared = sameProcess ? await world.tab() : undefined;
  const open = () => world.client({ tab: shared, sending: "when-due", words: drawing(0, 1, 0.5) });
  const first = await open();
  for (let i = 0; i < 3; i += 1) await first.decide("headline");
  const second = await open();
  await second.flush(); // waits for the lock of the first
  assert.equal(world.timers.length, 2);
  return { world, first, second };
}

test("timers of two tabs fire at once: each report is sent once, thanks to the lock", async (t) => {
  const { world, first, second } = await openTabs(t, { locks: new Locks() });
  await world.pass(89 * SECOND);
  world.time += SECOND;
  for (const { job } of world.timers.splice(0)) job();
  await Promise.all([first.flush(), second.flush()]);
  assert.deepEqual(world.reports.map(({ body }) => body.token).sort(), ["token 1", "token 2", "token 3"]);
  assert.equal(world.store.reports.length, 0);
});

test("two clients of a page send each report once without locks", async (t) => {
  const { world, first, second } = await openTabs(t, { sameProcess: true });
  world.time += 90 * SECOND;
  await Promise.all([first.flush(), second.flush(), first.flush()]);
  assert.equal(world.reports.length, 3);
});

test("two tabs without locks may send twice, but the same bit", async (t) => {
  const { world, first, second } = await openTabs(t, {});
  second.reward("headline");
  world.time += 90 * SECOND;
  await Promise.all([first.flush(), second.flush()]);
  await world.pass(DAY);
  const bits = new Map();
  for (const { token, bit } of world.reports.map(({ body }) => body)) {
    assert.equal(bits.get(token) ?? bit, bit);
    bits.set(token, bit);
  }
  assert.equal(bits.size, 3);
  assert.equal(world.store.reports.length, 0);
});

test("a reward in one tab changes the report that the other sends", async (t) => {
  const { world, second } = await openTabs(t, { locks: new Locks() });
  second.reward("headline");
  await world.pass(120 * SECOND);
  await second.flush(); // has to wait for the lock
  assert.equal(world.reports.filter(({ body }) => body.bit).length, 1);
  assert.equal(world.reports.length, 3);
});

test("a tab that fails leaves the report to the other", async (t) => {
  const { world, second } = await openTabs(t, { locks: new Locks() });
  world.onReport = () => Promise.reject(new Error("offline"));
  await world.pass(90 * SECOND);
  world.close();
  world.onReport = slowly;
  world.time += 60 * SECOND;
  await second.flush();
  assert.equal(world.store.reports.length, 0);
});

test("tabs with locks share the ledger and the sticky choice", async (t) => {
  withGlobal(t, "navigator", { value: { locks: new Locks() } });
  const world = new World(t);
  const tabs = [await world.client({ cap: { epsilon: 2 } }), await world.client({ cap: { epsilon: 2 } })];
  const choices = await Promise.all(tabs.map((tab) => tab.decide("headline", { sticky: true })));
  assert.equal(world.store.reports.length, 1);
  choices[1].reward(1);
  assert.equal(world.store.reports[0].bit, world.store.reports[0].bits[1]);
  await Promise.all(tabs.flatMap((tab) => [tab.decide("a"), tab.decide("b")]));
  assert.equal(world.store.reports.length, 2);
});

test("where locks are blocked, as storage is, a page queues", async (t) => {
  const request = () => Promise.reject(new Error("SecurityError"));
  const { world, first, second } = await openTabs(t, { locks: { request }, sameProcess: true });
  world.time += 90 * SECOND;
  await Promise.all([first.flush(), second.flush()]);
  assert.equal(world.reports.length, 3);
  assert.deepEqual(world.warnings, []);
});
