import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { answer, MemoryStore, World } from "../testing/world.js";
import { charge, delay, epsilon, flip, overCap, thresholds } from "../whitelie.js";

const vectors = JSON.parse(readFileSync(new URL("../../conformance.json", import.meta.url), "utf8"));

test("there are vectors of every kind", () => {
  for (const kind of ["channels", "bits", "times", "ledgers", "sendings", "answers"])
    assert.ok(vectors[kind].length > 5, kind);
});

test("channels", () => {
  for (const vector of vectors.channels) {
    const { p00, p11, zero, one } = vector;
    const coin = thresholds(p00, p11);
    assert.deepEqual(coin, { zero: BigInt(zero), one: BigInt(one) });
    const expected = vector.epsilon ?? Infinity;
    const computed = epsilon(coin);
    assert.ok(computed === expected || Math.abs(computed / expected - 1) <= 1e-12, `${p00} ${p11}: ${computed}`);
  }
});

test("bits", () => {
  for (const { p00, p11, words, bits } of vectors.bits) {
    assert.deepEqual(flip(words.map(BigInt), thresholds(p00, p11)), bits);
  }
});

test("times", () => {
  for (const { window, spread, word, delay: expected } of vectors.times) {
    assert.equal(delay(window, spread, word), expected);
  }
  // Doubles would round this up to the end of the spread.
  assert.equal(delay(0, 2_592_000, 2 ** 32 - 1), 2_592_000_000 - 1);
});

const filled = (items) => {
  const store = new MemoryStore();
  for (const [name, text] of Object.entries(items)) store.setItem(name, text);
  return store;
};

test("ledgers", () => {
  for (const { stored, charges, after } of vectors.ledgers) {
    const store = filled(stored);
    for (const { id, now, cap, epsilon: cost, kept } of charges) {
      assert.equal(charge(store, id, cap, now, cost), kept, JSON.stringify({ stored, id }));
    }
    const entries = [...store.items].map(([name, text]) => [name, JSON.parse(text)]);
    assert.deepEqual(Object.fromEntries(entries), after, JSON.stringify(stored));
  }
});

test("sendings", () => {
  const cap = { epsilon: 10, days: 1 };
  for (const { stored, now, erased } of vectors.sendings) {
    const store = filled(stored);
    const names = overCap(store, cap, now).map((name) => name.replace("whitelie.report.", ""));
    assert.deepEqual(names.sort(), erased, JSON.stringify(stored));
    assert.deepEqual(Object.fromEntries(store.items), stored, "nothing is written");
  }
});

test("answers", async (t) => {
  for (const { body, understood } of vectors.answers) {
    const world = new World(t);
    world.onDecide = () => answer(body);
    const { arm } = await (await world.client()).decide("headline");
    assert.equal(arm !== null, understood, body.slice(0, 400));
  }
});

test("the cap bounds what is spent in any span, whatever the charges", () => {
  const cap = { epsilon: 3, days: 1 };
  const store = new MemoryStore();
  for (let step = 0; step < 1000; step += 1) {
    const at = step * 1e6;
    charge(store, `${step}`, cap, at, (step % 7) / 3);
    const within = store.charges.filter((one) => one.at > at - 86_400_000);
    const spent = within.reduce((sum, one) => sum + one.epsilon, 0);
    assert.ok(spent <= cap.epsilon * (1 + 1e-9));
  }
});

test("a report counts under its own cap, even in a span of no days", () => {
  const none = { epsilon: 0.5, days: 0 };
  assert.ok(!charge(new MemoryStore(), "a", none, 1, 1));
  const stored = { "whitelie.charge.a": JSON.stringify({ at: 1, epsilon: 1, cap: none }), "whitelie.report.a": "" };
  assert.deepEqual(overCap(filled(stored), none, 2), ["whitelie.report.a"]);
});

test("an infinite sum is not forgotten in JSON", () => {
  const free = { epsilon: Number.MAX_VALUE, days: 1 };
  const store = new MemoryStore();
  assert.ok(charge(store, "a", free, 0, Infinity));
  assert.ok(charge(store, "b", free, 1, 1));
  assert.ok(!charge(store, "c", { epsilon: 1e300, days: 1 }, 1, 1));
});
