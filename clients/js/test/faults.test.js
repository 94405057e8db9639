// A storage that fails at any of its operations, before or after it has done its work.

import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, MemoryStore, SECOND, World } from "../testing/world.js";

class FaultyStore extends MemoryStore {
  operations = 0;
  visit = 1;

  /** `fault(operation, visit)` is "before", "after" or nothing. */
  constructor(fault) {
    super();
    this.fault = fault;
  }
  run(work) {
    const fault = this.fault(this.operations, this.visit);
    this.operations += 1;
    if (fault === "before") throw new Error("EIO");
    const result = work();
    if (fault === "after") throw new Error("EIO");
    return result;
  }
  getItem(name) {
    return this.run(() => super.getItem(name));
  }
  setItem(name, text) {
    this.run(() => super.setItem(name, text));
  }
  removeItem(name) {
    this.run(() => super.removeItem(name));
  }
  keys() {
    return this.run(() => super.keys());
  }
}

// A click, a service that answers 503 until the third visit, and three starts of the program.
async function threeVisits(t, sending, fault) {
  const world = new World(t);
  world.store = new FaultyStore(fault);
  for (const visit of [1, 2, 3]) {
    world.store.visit = visit;
    world.onReport = () => answer({}, visit < 3 ? 503 : 200);
    const client = await world.client({ sending, words: drawing(0, 1) });
    if (visit === 1) {
      const choice = await client.decide("headline", { sticky: true });
      assert.equal(choice.arm, "kind");
      choice.reward(1);
    }
    client.reward("headline");
    await world.pass(130 * SECOND);
    await client.flush();
    world.close();
  }
  return world;
}

function contradictions(world) {
  const bits = new Map();
  for (const { token, bit } of world.reports.map(({ body }) => body)) {
    bits.set(token, new Set(bits.get(token)).add(bit));
  }
  return [...bits.values()].filter((each) => each.size > 1).length;
}

const FAULTS = {
  "one operation fails": (first) => (operation) => operation === first,
  "all operations fail from one on, until the second visit": (first) => (operation, visit) =>
    operation >= first && visit < 2,
  "all operations fail from one on, until the third visit": (first) => (operation, visit) =>
    operation >= first && visit < 3,
};

for (const sending of ["next-visit", "when-due"]) {
  test(`${sending}: without a fault the click is sent`, async (t) => {
    const world = await threeVisits(t, sending, () => null);
    assert.ok(world.reports.length > 1, "there are retries");
    assert.deepEqual(new Set(world.reports.map(({ body }) => body.bit)), new Set([1]));
    assert.equal(world.store.reports.length, 0);
    assert.deepEqual(
      [...new Set(world.warnings)],
      ["whitelie: the service did not take a report, which is kept for later"],
    );
  });

  for (const [label, fails] of Object.entries(FAULTS)) {
    for (const when of ["before", "after"]) {
      test(`${sending}: ${label}, ${when} its work: no token carries two bits`, async (t) => {
        let sent = 0;
        for (let first = 0; ; first += 1) {
          const fault = fails(first);
          const world = await threeVisits(t, sending, (...now) => fault(...now) && when);
          assert.equal(contradictions(world), 0, `operation ${first}`);
          sent += world.reports.length;
          if (first >= world.store.operations) break;
        }
        assert.ok(sent > 0);
      });
    }
  }
}

test("a store that fails after the decision, a click, a service that answers 503, a restart", async (t) => {
  let visits = 0;
  for (let person = 0; person < 100; person += 1) {
    const world = new World(t);
    const client = await world.client({ sending: "when-due" });
    const choice = await client.decide("headline");
    world.store.full = true;
    choice.reward(1);
    world.onReport = () => answer("", 503);
    await world.pass(130 * SECOND);
    world.close();
    world.store.full = false;
    world.onReport = () => answer({});
    await world.pass(DAY);
    await world.client();
    visits += contradictions(world);
  }
  assert.equal(visits, 0, `${visits} of 100 visits sent both bits`);
});

test("a sealed report that cannot be stored is not sent", async (t) => {
  const world = new World(t);
  const client = await world.client({ sending: "when-due", words: drawing(0, 1) });
  await client.decide("headline");
  world.store.full = true;
  await world.pass(DAY);
  assert.equal(world.reports.length, 0);
  world.store.full = false;
  await world.pass(DAY);
  assert.deepEqual(
    world.reports.map(({ body }) => body.bit),
    [0],
  );
});
