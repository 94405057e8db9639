import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { charge, delay, epsilon, flip, thresholds } from "../whitelie.js";

const vectors = JSON.parse(readFileSync(new URL("../../conformance.json", import.meta.url), "utf8"));

test("there are vectors of every kind", () => {
  for (const kind of ["channels", "bits", "times", "ledgers"]) assert.ok(vectors[kind].length > 5, kind);
});

test("channels", () => {
  for (const vector of vectors.channels) {
    const { p00, p11, zero, one } = vector;
    const coin = thresholds(p00, p11);
    assert.deepEqual(coin, { zero: BigInt(zero), one: BigInt(one) });
    const expected = vector.epsilon ?? Infinity;
    const found = epsilon(coin);
    assert.ok(found === expected || Math.abs(found / expected - 1) <= 1e-12, `${p00} ${p11}: ${found}`);
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

test("ledgers", () => {
  for (const { cap, charges } of vectors.ledgers) {
    let ledger = null;
    for (const { at, epsilon: cost, kept, spent } of charges) {
      const after = charge(ledger, cap, at, cost);
      ledger = JSON.parse(JSON.stringify(after.ledger));
      assert.equal(after.kept, kept, JSON.stringify({ cap, at, cost }));
      assert.equal(ledger.spent, spent);
    }
  }
});

test("the cap bounds what is spent in a period, whatever the charges", () => {
  const cap = { epsilon: 3, days: 1 };
  let ledger = null;
  for (let step = 0; step < 1000; step += 1) {
    ledger = charge(ledger, cap, step * 1e6, (step % 7) / 3).ledger;
    assert.ok(ledger.spent <= cap.epsilon * (1 + 1e-9));
  }
});

test("an infinite sum is not forgotten in JSON", () => {
  const free = { epsilon: Infinity, days: 1 };
  const { kept, ledger } = charge(null, free, 0, Infinity);
  assert.ok(kept);
  const stored = JSON.parse(JSON.stringify(ledger));
  assert.ok(charge(stored, free, 1, 1).kept);
  assert.ok(!charge(stored, { epsilon: 10, days: 1 }, 1, 1).kept);
});
