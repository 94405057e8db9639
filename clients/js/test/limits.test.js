import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, HOUR, MemoryStore, SECOND, START, World } from "../testing/world.js";

const coin = (p, spread = 60) => ({ p00: p, p11: p, window: 60, spread });
const P1 = 0.7310585786300048; // epsilon 0.9999999999999996

// Whatever becomes of the token, the requests are those of everybody else.
async function shown(t, mechanism, options, times = 1) {
  const world = new World(t);
  world.coin = mechanism;
  const client = await world.client({ sending: "when-due", ...options });
  for (let i = 0; i < times; i += 1) assert.equal((await client.decide("headline")).arm, "kind");
  assert.equal(world.questions.length, times);
  return { world, client };
}

test("a coin above the ceiling is shown and not reported, with one warning", async (t) => {
  const { world } = await shown(t, coin(0.74), {}, 3);
  assert.equal(world.store.items.size, 0);
  assert.deepEqual(world.warnings, ["whitelie: no report: lower epsilon, or raise maxEpsilon"]);
  await world.pass(DAY);
  assert.equal(world.reports.length, 0);
});

test("the ceiling has a tolerance of 1e-9", async (t) => {
  for (const [maxEpsilon, kept] of [
    [1, 1],
    [1 - 9e-10, 1],
    [1 - 1.1e-9, 0],
    [2, 1],
    [0, 0],
  ]) {
    const { world } = await shown(t, coin(P1), { maxEpsilon });
    assert.equal(world.store.reports.length, kept, `${maxEpsilon}`);
  }
});

test("a coin that says nothing costs nothing", async (t) => {
  const { world } = await shown(t, coin(0.5), { maxEpsilon: 0, cap: { epsilon: 0 } });
  assert.equal(world.store.reports.length, 1);
  assert.equal(world.store.spent, 0);
});

test("a coin that can prove an outcome needs infinite limits", async (t) => {
  const certain = { p00: 1, p11: 0.5, window: 60, spread: 60 };
  for (const [limits, kept] of [
    [{ maxEpsilon: 1e308 }, 0],
    [{ maxEpsilon: Infinity }, 0],
    [{ maxEpsilon: Infinity, cap: { epsilon: Infinity } }, 1],
  ]) {
    const { world } = await shown(t, certain, limits);
    assert.equal(world.store.reports.length, kept);
  }
});

test("a spread below the minimum is shown and not reported, with one warning", async (t) => {
  const { world } = await shown(t, coin(0.7, 29), {}, 3);
  assert.equal(world.store.items.size, 0);
  assert.deepEqual(world.warnings, ["whitelie: no report: raise spread, or lower minSpread"]);
});

test("the minimum of the spread is an option", async (t) => {
  for (const [spread, minSpread, kept] of [
    [30, 30, 1],
    [0, 0, 1],
    [59, 60, 0],
    [60, 60, 1],
  ]) {
    const { world } = await shown(t, coin(0.7, spread), { minSpread });
    assert.equal(world.store.reports.length, kept);
  }
});

test("a limit that is not a number allows nothing", async (t) => {
  for (const limits of [
    { maxEpsilon: NaN },
    { maxEpsilon: "much" },
    { maxEpsilon: null },
    { minSpread: NaN },
    { minSpread: "no" },
    { cap: { epsilon: NaN } },
    { cap: { epsilon: undefined } },
  ]) {
    const { world } = await shown(t, coin(P1), limits);
    assert.equal(world.store.reports.length, 0, JSON.stringify(limits));
  }
});

test("the cap is silent, and its span slides", async (t) => {
  const { world, client } = await shown(t, coin(P1), {}, 9);
  await world.pass(HOUR);
  for (let i = 0; i < 3; i += 1) await client.decide("headline");
  assert.equal(world.reports.length, 9);
  assert.equal(world.store.reports.length, 1);
  assert.ok(Math.abs(world.store.spent - 10) < 1e-9);
  await world.pass(DAY - HOUR - 1);
  await client.decide("headline");
  assert.equal(world.store.reports.length, 0);
  await world.pass(1);
  for (let i = 0; i < 12; i += 1) await client.decide("headline");
  assert.equal(world.store.reports.length, 9, "the tenth is an hour younger");
  assert.deepEqual(world.warnings, []);
});

test("a charge is an item of its own", async (t) => {
  const { world } = await shown(t, coin(P1), { cap: { days: 7 } });
  const [report] = [...world.store.items.keys()].filter((name) => name.startsWith("whitelie.report."));
  const charge = JSON.parse(world.store.getItem(report.replace("report", "charge")));
  assert.deepEqual(charge, { at: START, epsilon: 0.9999999999999996, cap: { epsilon: 10, days: 7 } });
});

test("a shorter cap beside a longer one does not reset it", async (t) => {
  const world = new World(t);
  world.coin = coin(P1);
  const strict = await world.client({ cap: { epsilon: 3, days: 30 } });
  const usual = await world.client();
  let kept = 0;
  for (let day = 0; day < 30; day += 1) {
    for (const client of [strict, strict, usual]) {
      const before = world.store.reports.length;
      await client.decide("headline");
      if (client === strict) kept += world.store.reports.length - before;
    }
    await world.pass(DAY);
  }
  assert.ok(kept <= 3, `${kept} of a client that may keep 3`);
});

test("the cap is an option, in parts too", async (t) => {
  const { world, client } = await shown(t, coin(P1), { cap: { epsilon: 2 } }, 5);
  assert.equal(world.store.reports.length, 2);
  await world.pass(DAY);
  await client.decide("headline");
  assert.equal(world.store.reports.length, 1);
  const longer = await shown(t, coin(P1), { cap: { days: 7 } }, 11);
  await longer.world.pass(6 * DAY);
  await longer.client.decide("headline");
  assert.equal(longer.world.store.reports.length, 0);
});

test("the ledger survives a reload, and is charged though nothing was sent", async (t) => {
  const { world } = await shown(t, coin(P1), { cap: { epsilon: 3 } }, 2);
  world.close();
  const visit = await world.client({ cap: { epsilon: 3 } });
  await visit.decide("headline");
  await visit.decide("headline");
  assert.equal(world.store.reports.length, 3);
});

test("tabs share the ledger", async (t) => {
  const world = new World(t);
  world.coin = coin(P1);
  const tab = await world.tab();
  const clients = [await world.client({ tab }), await world.client({ tab })];
  const asked = Array.from({ length: 30 }, (_, i) => clients[i % 2].decide("headline"));
  await Promise.all(asked);
  assert.equal(world.store.reports.length, 10);
});

test("a clock that is set back does not lock the ledger for more than a period", async (t) => {
  const { world, client } = await shown(t, coin(P1), {}, 10);
  world.setClock(-300 * DAY);
  await client.decide("headline");
  await world.pass(HOUR);
  assert.equal(world.reports.length, 10);
  await world.pass(DAY);
  await client.decide("headline");
  assert.equal(world.store.reports.length, 1);
});

test("a charge that is not understood counts as more than any cap, from now", async (t) => {
  const negative = '{"at": 0, "epsilon": -1, "cap": {"epsilon": 10, "days": 1}}';
  for (const name of ["whitelie.charge.0", "whitelie.ledger"]) {
    for (const text of ["", "null", "{", "7", '"x"', "[]", "{}", negative, '{"start": 0, "spent": -9}']) {
      const world = new World(t);
      world.store.setItem(name, text);
      const client = await world.client({ cap: { epsilon: 1e9 } });
      for (const [wait, kept] of [
        [0, 0],
        [DAY - 1, 0],
        [1, 1],
      ]) {
        await world.pass(wait);
        assert.equal((await client.decide("headline")).arm, "kind");
        assert.equal(world.store.reports.length, kept, text);
      }
    }
  }
});

test("the ledger of an earlier version counts from now, once", async (t) => {
  const world = new World(t);
  world.coin = coin(P1);
  world.store.setItem("whitelie.ledger", JSON.stringify({ start: START - HOUR, spent: 8.5 }));
  const client = await world.client();
  for (let i = 0; i < 3; i += 1) await client.decide("headline");
  assert.equal(world.store.reports.length, 1);
  assert.equal(world.store.getItem("whitelie.ledger"), null);
});

test("a report of an earlier version, which has no charge, is sent", async (t) => {
  const world = new World(t);
  const client = await world.client();
  await client.decide("headline");
  for (const name of [...world.store.keys()]) {
    if (name.startsWith("whitelie.charge.")) world.store.removeItem(name);
  }
  await world.pass(HOUR);
  await world.client();
  assert.equal(world.reports.length, 1);
});

test("tabs that charged unseen by each other send no more than the cap", async (t) => {
  const world = new World(t);
  world.coin = coin(P1);
  const stores = [world.store, new world.store.constructor()];
  for (const store of stores) {
    const client = await world.client({ store, cap: { epsilon: 5 } });
    for (let i = 0; i < 5; i += 1) await client.decide("headline");
  }
  for (const [name, text] of stores[1].items) world.store.setItem(name, text);
  assert.equal(world.store.reports.length, 10);
  await world.pass(HOUR);
  await world.client();
  assert.equal(world.reports.length, 5);
  assert.equal(world.store.reports.length, 0);
  assert.ok(world.store.spent <= 5, "what was not sent is not spent");
});

test("a race of tabs is decided once, whatever the clock does afterwards", async (t) => {
  const world = new World(t);
  world.coin = coin(P1, 600);
  const cap = { epsilon: 1 };
  const stores = [new MemoryStore(), new MemoryStore()];
  const ids = [0xffn, 0x11n];
  for (const [i, store] of stores.entries()) {
    const drawn = () => [0n, 0n, BigInt(i * 2 ** 31) << 32n, ids[i]];
    await (await world.client({ store, cap, words: drawn })).decide("headline");
    await world.pass(5);
  }
  for (const store of stores) for (const [name, text] of store.items) world.store.setItem(name, text);
  await world.pass(130 * SECOND);
  await world.client({ cap });
  assert.equal(world.reports.length, 1);
  assert.equal(world.store.reports.length, 0, "the other is not due, and erased");
  world.setClock(-2 * HOUR);
  await world.client({ cap });
  await world.pass(HOUR);
  await world.client({ cap });
  assert.equal(world.reports.length, 1);
});

test("the charge of a report that waits is not pruned", async (t) => {
  const world = new World(t);
  world.coin = coin(P1, 50 * 86_400);
  world.decision = ((decision) => () => ({ ...decision(), expires_in: 90 * 86_400 }))(world.decision);
  const cap = { epsilon: 1 };
  for (let i = 0; i < 5; i += 1) {
    const store = new MemoryStore();
    const drawn = () => [0n, 0n, (2n ** 32n - 1n) << 32n, BigInt(i)];
    await (await world.client({ store, cap, words: drawn })).decide("headline");
    for (const [name, text] of store.items) world.store.setItem(name, text);
  }
  await world.pass(41 * DAY);
  const [name] = world.store.items.keys();
  const { charge } = await world.tab();
  charge(world.store, "99", { epsilon: 1, days: 1 }, world.time, 1);
  assert.ok(world.store.items.has(name));
  await world.pass(10 * DAY);
  await world.client({ cap });
  assert.equal(world.reports.length, 1);
});

test("without consent the arm is shown, and nothing is stored", async (t) => {
  const saysNothing = () => {};
  const promises = async () => true;
  for (const consent of [false, null, 0, 1, "yes", saysNothing, promises]) {
    const { world, client } = await shown(t, coin(0.7), { consent });
    const choice = await client.decide("headline", { sticky: true });
    choice.reward(1);
    client.reward("headline");
    assert.equal(world.store.items.size, 0);
    assert.deepEqual(world.warnings, []);
    await world.pass(DAY);
    assert.equal(world.reports.length, 0);
  }
});

test("consent is asked each time", async (t) => {
  let agreed = false;
  const { world, client } = await shown(t, coin(0.7), { consent: () => agreed });
  agreed = true;
  await client.decide("headline");
  assert.equal(world.store.reports.length, 1);
  agreed = false;
  await client.decide("headline");
  assert.equal(world.store.reports.length, 1);
});

test("consent that fails is none", async (t) => {
  const world = new World(t);
  const consent = () => {
    throw new Error("the banner is not there");
  };
  const client = await world.client({ consent });
  assert.equal((await client.decide("headline")).arm, "kind");
  assert.equal(world.store.items.size, 0);
  assert.deepEqual(world.warnings, ["whitelie: consent throws, which is none"]);
});

test("forget erases everything of this client, and nothing else", async (t) => {
  const world = new World(t);
  world.store.setItem("basket", "3 apples");
  const client = await world.client();
  const choice = await client.decide("headline", { sticky: true });
  await client.decide("button");
  client.forget();
  choice.reward(1);
  client.reward("headline");
  assert.deepEqual([...world.store.items.keys()], ["basket"]);
  await world.pass(60 * SECOND + DAY);
  assert.equal(world.reports.length, 0);
  await client.decide("headline", { sticky: true });
  assert.equal(world.questions.length, 3);
});

test("forget while a report is on its way", async (t) => {
  const world = new World(t);
  const client = await world.client();
  await client.decide("headline");
  world.onReport = () => new Promise((_, reject) => setImmediate(reject, new Error("offline")));
  const passing = world.pass(120 * SECOND);
  client.forget();
  await passing;
  assert.equal(world.store.items.size, 0);
});

test("nothing is sent for what was erased, and no wait is left of it", async (t) => {
  const world = new World(t);
  const client = await world.client({ sending: "when-due", words: drawing(0, 1, 0.5) });
  for (let i = 0; i < 2; i += 1) await client.decide("headline");
  world.onReport = () => answer("", 503);
  await world.pass(90 * SECOND);
  assert.equal(world.reports.length, 2);
  let settleFirst;
  world.onReport = () => new Promise((done) => (settleFirst ??= () => done(answer("", 404))));
  await world.pass(5 * SECOND);
  client.forget();
  settleFirst();
  await world.pass(DAY);
  assert.equal(world.reports.length, 4);
  assert.deepEqual([...world.store.items], []);
});
