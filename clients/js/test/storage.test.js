import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, HOUR, MemoryStore, SECOND, World, withGlobal } from "../testing/world.js";

const ENDS = "whitelie: reports end with the page: unblock storage, or give a store";
const FAILS = "whitelie: storage fails: free or unblock it, or give a store";
const WORKING = { sending: "when-due", words: drawing(0, 1, 0.5) };

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
  assert.deepEqual(world.warnings, [ENDS]);
  await world.pass(200 * SECOND);
  assert.deepEqual(
    world.reports.map(({ body }) => body.bit),
    [1, 0],
  );
  await world.pass(DAY);
  assert.equal(world.reports.length, 2);
}

async function showsAndReportsNothing(world, client) {
  for (const sticky of [false, true]) {
    const choice = await client.decide("headline", { sticky });
    assert.equal(choice.arm, "kind");
    choice.reward(1);
    client.reward("headline");
  }
  await world.pass(DAY);
  assert.equal(world.reports.length, 0);
  assert.deepEqual(world.warnings, [FAILS]);
}

test("localStorage is the default, even with an item named keys", async (t) => {
  const world = new World(t);
  const storage = browserStorage();
  storage.keys = "house";
  withGlobal(t, "localStorage", { value: storage });
  const client = await world.client({ ...WORKING, store: undefined });
  const choice = await client.decide("headline");
  choice.reward(1);
  assert.equal(Object.keys(storage).filter((name) => name.startsWith("whitelie.")).length, 2);
  await world.pass(90 * SECOND);
  assert.equal(world.reports[0].body.bit, 1);
  client.forget();
  assert.deepEqual(Object.keys(storage), ["keys"]);
  assert.deepEqual(world.warnings, []);
});

test("without storage, as in Node, reports live in memory, with one warning", async (t) => {
  const world = new World(t);
  withGlobal(t, "localStorage", { value: undefined });
  await reportsFromMemory(world, await world.client({ ...WORKING, store: undefined }));
});

test("blocked storage, which throws when it is looked at", async (t) => {
  const world = new World(t);
  const get = () => {
    throw new Error("SecurityError");
  };
  withGlobal(t, "localStorage", { get });
  await reportsFromMemory(world, await world.client({ ...WORKING, store: undefined }));
});

test("a store of which nothing works", async (t) => {
  const world = new World(t);
  const fail = () => {
    throw new Error("blocked");
  };
  const store = { getItem: fail, setItem: fail, removeItem: fail, keys: fail };
  const client = await world.client({ ...WORKING, store });
  await showsAndReportsNothing(world, client);
  client.forget();
  assert.deepEqual(world.warnings, [FAILS, "whitelie: not everything was erased: clear the storage"]);
});

test("clients of a page without storage share one ledger", async (t) => {
  const world = new World(t);
  withGlobal(t, "localStorage", { value: undefined });
  const tab = await world.tab();
  for (let i = 0; i < 20; i += 1) {
    const client = await world.client({ tab, ...WORKING, store: undefined, words: drawing(0, 1, i / 32) });
    for (const name of ["headline", "button"]) await client.decide(name);
  }
  await world.pass(DAY - 1);
  assert.ok(world.reports.length < 12, `${world.reports.length}`);
});

test("storage that is full from the beginning", async (t) => {
  const world = new World(t);
  world.store.full = true;
  await showsAndReportsNothing(world, await world.client(WORKING));
  assert.equal(world.store.items.size, 0);
});

test("storage that has room for a charge and not for its report keeps neither", async (t) => {
  const world = new World(t);
  const { setItem } = world.store;
  world.store.setItem = (name, text) => {
    if (name.startsWith("whitelie.report.")) throw new Error("QuotaExceededError");
    setItem.call(world.store, name, text);
  };
  await showsAndReportsNothing(world, await world.client(WORKING));
  assert.deepEqual(world.store.charges, []);
});

test("storage that gets full mid-way: what is stored is reported, and no reward that is not", async (t) => {
  const world = new World(t);
  const client = await world.client(WORKING);
  const rewarded = await client.decide("headline");
  const stored = await client.decide("headline");
  rewarded.reward(1);
  world.store.full = true;
  stored.reward(1);
  const discarded = await client.decide("headline", { sticky: true });
  assert.equal(discarded.arm, "kind");
  discarded.reward(1);
  world.store.full = false;
  await world.pass(200 * SECOND);
  assert.deepEqual(
    world.reports.map(({ body }) => [body.token, body.bit]),
    [
      ["token 1", 1],
      ["token 2", 0],
    ],
  );
  assert.equal(world.store.reports.length, 0);
  assert.deepEqual(world.warnings, [FAILS]);
});

test("an item that cannot be removed may be sent again, ever more rarely, with the same bit", async (t) => {
  const world = new World(t);
  world.store.removeItem = () => {
    throw new Error("blocked");
  };
  const client = await world.client(WORKING);
  (await client.decide("headline")).reward(1);
  await world.pass(HOUR);
  const bits = world.reports.map(({ body }) => body.bit);
  assert.ok(bits.length < 12, `${bits.length}`);
  assert.deepEqual(new Set(bits), new Set([1]));
});

test("reports that are not understood are removed, and nothing is sent for them", async (t) => {
  const world = new World(t);
  const spoilt = ["", "{", "7", "null", '"x"', "[]", "{}", '{"token": "t"}', '{"token": "t", "due": "soon"}'];
  for (const [i, text] of spoilt.entries()) world.store.setItem(`whitelie.report.${i}`, text);
  world.store.setItem("whitelie.sticky.headline", "{");
  const client = await world.client(WORKING);
  assert.equal((await client.decide("headline", { sticky: true })).arm, "kind");
  client.reward("headline");
  assert.equal(world.store.reports.length, 1);
  await world.pass(DAY);
  assert.deepEqual(
    world.reports.map(({ body }) => body),
    [{ token: "token 1", bit: 1 }],
  );
});

test("a report is understood by its known fields; others are ignored", async (t) => {
  const wrong = { server: 7, experiment: null, arm: {}, token: undefined, bits: [0, 2], bit: 2, due: "1", until: null };
  for (const [field, value] of [
    ["note", "x"],
    ["bits", [0, 1, 1]],
    ["bits", { length: 2 }],
    ...Object.entries(wrong),
  ]) {
    const world = new World(t);
    const client = await world.client({ words: drawing(0, 1) });
    await client.decide("headline");
    const [name] = [...world.store.keys()].filter((each) => each.startsWith("whitelie.report."));
    const report = JSON.parse(world.store.getItem(name));
    world.store.setItem(name, JSON.stringify({ ...report, [field]: value }));
    await world.pass(HOUR);
    await world.client();
    assert.equal(world.reports.length, field === "note" ? 1 : 0, field);
    assert.deepEqual(world.store.reports, [], field);
  }
});

test("any object with the four methods is a store", async (t) => {
  const world = new World(t);
  const store = new MemoryStore();
  const client = await world.client({ ...WORKING, store });
  await client.decide("headline");
  assert.equal(store.reports.length, 1);
  world.onReport = () => answer("", 503);
  await world.pass(200 * SECOND);
  assert.deepEqual(store.reports[0].bits, Array(2).fill(store.reports[0].bit));
});
