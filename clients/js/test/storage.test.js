import assert from "node:assert/strict";
import { test } from "node:test";

import { World, MemoryStore, SECOND, DAY, answer, drawing, withGlobal } from "../testing/world.js";

const WARNING = "whitelie: reports end with the page: free or unblock storage, or give a store";

// A browser's Storage: items are its properties, and it has no keys().
function browserStorage() {
  const methods = {
    getItem(name) {
      return Object.hasOwn(this, name) ? this[name] : null;
    },
    setItem(name, text) {
      this[name] = String(text);
    },
    removeItem(name) {
      delete this[name];
    },
  };
  return Object.create(methods);
}

async function reportsFromMemory(world, client) {
  const choice = await client.decide("headline");
  await client.decide("headline");
  choice.reward(1);
  assert.deepEqual(world.warnings, [WARNING]);
  await world.pass(200 * SECOND);
  assert.deepEqual(world.reports.map(({ body }) => body.bit), [1, 0]);
  await world.pass(DAY);
  assert.equal(world.reports.length, 2);
}

test("localStorage is the default, even with an item named keys", async (t) => {
  const world = new World(t);
  const storage = browserStorage();
  storage.keys = "house";
  withGlobal(t, "localStorage", { value: storage });
  const client = await world.client({ store: undefined, words: drawing(0, 1) });
  const choice = await client.decide("headline");
  choice.reward(1);
  assert.equal(Object.keys(storage).filter((name) => name.startsWith("whitelie.")).length, 2);
  await world.pass(60 * SECOND);
  assert.equal(world.reports[0].body.bit, 1);
  client.forget();
  assert.deepEqual(Object.keys(storage), ["keys"]);
  assert.deepEqual(world.warnings, []);
});

test("without storage, as in Node, reports live in memory, with one warning", async (t) => {
  const world = new World(t);
  withGlobal(t, "localStorage", { value: undefined });
  await reportsFromMemory(world, await world.client({ store: undefined, words: drawing(0, 1, 0.5) }));
});

test("blocked storage, which throws when it is looked at", async (t) => {
  const world = new World(t);
  const get = () => {
    throw new Error("SecurityError");
  };
  withGlobal(t, "localStorage", { get });
  await reportsFromMemory(world, await world.client({ store: undefined, words: drawing(0, 1, 0.5) }));
});

test("a store of which nothing works", async (t) => {
  const world = new World(t);
  const fail = () => {
    throw new Error("blocked");
  };
  const store = { getItem: fail, setItem: fail, removeItem: fail, keys: fail };
  const client = await world.client({ store, words: drawing(0, 1, 0.5) });
  await reportsFromMemory(world, client);
  client.forget();
});

test("clients of a page without storage share one ledger", async (t) => {
  const world = new World(t);
  withGlobal(t, "localStorage", { value: undefined });
  const tab = await world.tab();
  for (let i = 0; i < 20; i += 1) {
    const client = await world.client({ tab, store: undefined, words: drawing(0, 1, i / 32) });
    for (const name of ["headline", "button"]) await client.decide(name);
  }
  await world.pass(DAY - 1);
  assert.ok(world.reports.length < 12, `${world.reports.length}`);
});

test("storage that is full from the beginning", async (t) => {
  const world = new World(t);
  world.store.full = true;
  await reportsFromMemory(world, await world.client({ words: drawing(0, 1, 0.5) }));
});

test("storage that gets full mid-way", async (t) => {
  const world = new World(t);
  const client = await world.client({ words: drawing(0, 1, 0.5), cap: { epsilon: 3 } });
  const stored = await client.decide("headline");
  world.store.full = true;
  const remembered = await client.decide("headline", { sticky: true });
  stored.reward(1);
  remembered.reward(1);
  for (let i = 0; i < 5; i += 1) await client.decide("headline");
  assert.equal((await client.decide("headline", { sticky: true })).arm, "kind");
  world.store.full = false;
  await world.pass(200 * SECOND);
  assert.deepEqual(world.reports.map(({ body }) => body.bit).sort(), [0, 1, 1]);
  assert.equal(new Set(world.reports.map(({ body }) => body.token)).size, 3);
  assert.equal(world.store.reports.length, 0);
  assert.deepEqual(world.warnings, [WARNING]);
});

test("an item that cannot be removed is not sent again and again", async (t) => {
  const world = new World(t);
  world.store.removeItem = () => {
    throw new Error("blocked");
  };
  const client = await world.client();
  await client.decide("headline");
  await world.pass(10 * DAY);
  assert.equal(world.reports.length, 1);
});

test("items that somebody has spoilt are left alone", async (t) => {
  const world = new World(t);
  const spoilt = ["{", "7", "null", '"x"', "[]", "{}", '{"token": "t"}', '{"token": "t", "due": "soon"}'];
  spoilt.forEach((text, i) => world.store.setItem(`whitelie.report.${i}`, text));
  world.store.setItem("whitelie.sticky.headline", "{");
  const client = await world.client();
  assert.equal((await client.decide("headline", { sticky: true })).arm, "kind");
  client.reward("headline");
  await world.pass(DAY);
  assert.equal(world.reports.length, 1);
});

test("any object with the four methods is a store", async (t) => {
  const world = new World(t);
  const store = new MemoryStore();
  const client = await world.client({ store });
  await client.decide("headline");
  assert.equal(store.reports.length, 1);
  world.onReport = () => answer("", 503);
  await world.pass(200 * SECOND);
  assert.deepEqual(store.reports[0].bits, Array(2).fill(store.reports[0].bit));
});
