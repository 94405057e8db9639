// Talks to a real service: WHITELIE_TEST_SERVER is its address, WHITELIE_TEST_KEY an admin key.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryStore } from "../testing/world.js";
import { epsilon, thresholds, Whitelie } from "../whitelie.js";

const { WHITELIE_TEST_SERVER: server, WHITELIE_TEST_KEY: key } = process.env;
const options = { skip: server && key ? false : "WHITELIE_TEST_SERVER and WHITELIE_TEST_KEY are not set" };

async function admin(path, body) {
  const response = await fetch(server + path, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
}

async function create(more) {
  const arms = [{ key: "plain", payload: { text: "Buy now" } }, { key: "kind" }];
  const name = `js ${crypto.randomUUID()}`;
  const { id } = await admin("/v1/experiments", { name, arms, epsilon: 1, window: 0, spread: 0, ...more });
  return id;
}

const answered = async (id) =>
  (await admin(`/v1/experiments/${id}/results`)).arms.reduce((sum, arm) => sum + arm.answered, 0);

test("decisions are reported, and counted once", options, async () => {
  const id = await create();
  const store = new MemoryStore();
  const cap = { epsilon: 100 };
  const options = { server, key, store, cap, minSpread: 0, timeout: 10_000, sending: "when-due" };
  const client = new Whitelie(options);
  for (let i = 0; i < 20; i += 1) {
    const choice = await client.decide(id);
    assert.ok(["plain", "kind"].includes(choice.arm));
    if (choice.arm === "plain") choice.reward(1);
  }
  const copies = [...store.items].filter(([name]) => name.startsWith("whitelie.report."));
  await new Promise((done) => setTimeout(done, 1100)); // a second after the window
  await client.flush();
  assert.equal(store.reports.length, 0);
  assert.equal(await answered(id), 20);
  for (const [name, text] of copies) store.setItem(name, text);
  await client.flush();
  assert.equal(store.reports.length, 0);
  assert.equal(await answered(id), 20);
});

test("the service's coin is what this client charges", options, async () => {
  const id = await create({ spread: 30 });
  const store = new MemoryStore();
  const client = new Whitelie({ server, key, store, timeout: 10_000 });
  await client.decide(id, { sticky: true });
  const { spent } = store;
  assert.ok(spent <= 1 && spent > 1 - 1e-9, `${spent}`);
  assert.ok(epsilon(thresholds(0.7310585786300048, 0.7310585786300048)) <= 1);
  client.forget();
  assert.equal(store.items.size, 0);
  await client.flush();
});

test("what the service does not know shows the fallback, and a strange token is dropped", options, async (t) => {
  const warned = t.mock.method(console, "warn", () => {});
  const store = new MemoryStore();
  const client = new Whitelie({ server, key, store, timeout: 10_000, sending: "when-due" });
  const choice = await client.decide("nothing-of-this-name", { fallback: { arm: "plain" } });
  assert.equal(choice.arm, "plain");
  const times = { decided: 0, until: 0, due: 0, expires: Date.now() + 60_000 };
  const report = { server, experiment: "x", arm: "a", token: "made up", bits: [0, 1], bit: 0, ...times };
  store.setItem("whitelie.report.0", JSON.stringify(report));
  await client.flush();
  assert.equal(store.items.size, 0);
  assert.equal(warned.mock.callCount(), 2);
});
