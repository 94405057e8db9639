import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, DAY, drawing, HOUR, never, SECOND, SERVER, World } from "../testing/world.js";

const open = (world, options) => world.client({ sending: "when-due", ...options });
const bodies = (world) => world.reports.map(({ body }) => body);

async function decided(t, { bits = [0, 1], part = 0.5, ...options } = {}) {
  const world = new World(t);
  const client = await open(world, { words: drawing(...bits, part), ...options });
  const choice = await client.decide("headline");
  return { world, client, choice };
}

test("silence is a message: without a reward RR(0) is sent, once, when it is due", async (t) => {
  const { world } = await decided(t, { bits: [1, 0] });
  await world.pass(90 * SECOND - 1);
  assert.equal(world.reports.length, 0);
  await world.pass(1);
  assert.deepEqual(bodies(world), [{ token: "token 1", bit: 1 }]);
  await world.pass(10 * DAY);
  assert.equal(world.reports.length, 1);
  assert.equal(world.store.reports.length, 0);
  assert.deepEqual(world.warnings, []);
});

test("a report carries a token and a bit, no key and no cookies", async (t) => {
  const { world } = await decided(t);
  await world.pass(120 * SECOND);
  const [{ url, options }] = world.reports;
  assert.equal(url, `${SERVER}/v1/feedback`);
  assert.equal(options.method, "POST");
  assert.equal(options.credentials, "omit");
  assert.equal(options.referrerPolicy, "no-referrer");
  assert.equal(options.headers, undefined);
  assert.ok(!("keepalive" in options));
});

test("time is a message: the outcome changes the bit, not the time", async (t) => {
  const times = [];
  for (const outcome of [0, 1]) {
    const { world, choice } = await decided(t);
    await world.pass(10 * SECOND);
    choice.reward(outcome);
    await world.pass(120 * SECOND);
    assert.deepEqual(bodies(world), [{ token: "token 1", bit: outcome }]);
    times.push(world.reports[0].at);
  }
  assert.equal(times[0], times[1]);
});

test("nor does it when the clock was set back", async (t) => {
  for (const reward of [(_, choice) => choice.reward(1), (client) => client.reward("headline")]) {
    const { world, client, choice } = await decided(t);
    await world.pass(5 * SECOND);
    world.time -= 60 * SECOND;
    await world.pass(SECOND);
    const [{ bit, bits, ...before }] = world.store.reports;
    reward(client, choice);
    const [{ bit: rewarded, bits: kept, ...after }] = world.store.reports;
    assert.deepEqual(after, before);
    assert.deepEqual([bit, rewarded, kept], [0, 1, bits]);
  }
});

test("later rewards and reward(0) change nothing", async (t) => {
  const { world, choice } = await decided(t);
  for (const outcome of [0, false, undefined, null, "1", 2, {}, Symbol("1")]) choice.reward(outcome);
  assert.equal(world.store.reports[0].bit, 0);
  choice.reward(1);
  choice.reward(0);
  choice.reward(1);
  assert.equal(world.store.reports[0].bit, 1);
});

test("a reward counts until the end of the window", async (t) => {
  for (const [late, bit] of [
    [0, 1],
    [1, 0],
  ]) {
    const { world, choice, client } = await decided(t);
    await world.pass(60 * SECOND + late);
    choice.reward(1);
    client.reward("headline");
    await world.pass(60 * SECOND);
    assert.deepEqual(bodies(world), [{ token: "token 1", bit }]);
  }
});

test("reward(experiment) is for the latest decision of the experiment, also after a reload", async (t) => {
  const { world, client } = await decided(t);
  await world.pass(SECOND);
  await client.decide("headline");
  await world.pass(SECOND);
  await client.decide("button");
  world.close();
  const visit = await open(world);
  visit.reward("headline");
  visit.reward("unknown");
  const bits = Object.fromEntries(world.store.reports.map(({ token, bit }) => [token, bit]));
  assert.deepEqual(bits, { "token 1": 0, "token 2": 1, "token 3": 0 });
});

test("reward(experiment) is not for an earlier decision when the latest one is not reported", async (t) => {
  const later = {
    "a forced one": (client) => client.decide("headline", { force: "plain" }),
    "the fallback": (client, world) => {
      world.onDecide = () => answer("", 503);
      return client.decide("headline");
    },
    "one beyond the cap": (client) => client.decide("headline"),
  };
  for (const [label, decide] of Object.entries(later)) {
    const { world, client } = await decided(t, { cap: { epsilon: 1 } });
    await decide(client, world);
    client.reward("headline");
    assert.deepEqual(
      world.store.reports.map(({ bit }) => bit),
      [0],
      label,
    );
  }
});

test("reward(experiment) is for this service", async (t) => {
  const { world } = await decided(t);
  const other = await open(world, { server: "https://other.example" });
  other.reward("headline");
  assert.equal(world.store.reports[0].bit, 0);
});

test("what fell due while the page was closed is sent at the next visit", async (t) => {
  const { world, choice } = await decided(t);
  choice.reward(1);
  world.close();
  await world.pass(DAY);
  assert.equal(world.reports.length, 0);
  await open(world);
  assert.deepEqual(bodies(world), [{ token: "token 1", bit: 1 }]);
});

test("what is not yet due waits after a reload", async (t) => {
  const { world } = await decided(t);
  world.close();
  await world.pass(30 * SECOND);
  await open(world);
  await world.pass(59 * SECOND);
  assert.equal(world.reports.length, 0);
  await world.pass(SECOND);
  assert.equal(world.reports.length, 1);
});

test("flush sends what is due and nothing else", async (t) => {
  const { world, client } = await decided(t);
  await client.flush();
  assert.equal(world.reports.length, 0);
  world.close();
  await world.pass(90 * SECOND);
  await client.flush();
  assert.equal(world.reports.length, 1);
});

test("one timer waits for the earliest report", async (t) => {
  const { world, client } = await decided(t);
  await client.decide("headline");
  await client.decide("headline");
  assert.equal(world.timers.length, 1);
  await world.pass(90 * SECOND);
  assert.equal(world.reports.length, 3);
  assert.equal(world.timers.length, 0);
});

test("reports go all at once, and none twice while it waits for its answer", async (t) => {
  const { world, client } = await decided(t);
  await client.decide("headline");
  world.onReport = never;
  await world.pass(90 * SECOND);
  client.flush();
  await world.pass(SECOND);
  assert.equal(world.reports.length, 2);
  assert.notEqual(world.reports[0].body.token, world.reports[1].body.token);
});

test("a wait of months does not overflow the timer", async (t) => {
  const world = new World(t);
  world.coin = { p00: 0.5, p11: 0.5, window: 30 * 86_400, spread: 30 * 86_400 };
  const expires_in = 90 * 86_400;
  world.onDecide = () => answer({ decisions: [{ ...world.decision(), expires_in }] });
  const client = await open(world, { words: drawing(0, 1, 0.5) });
  await client.decide("headline");
  await world.pass(45 * DAY - 1);
  assert.equal(world.reports.length, 0);
  await world.pass(1);
  assert.equal(world.reports.length, 1);
});

for (const status of [200, 410, 422]) {
  test(`status ${status} settles a report`, async (t) => {
    const { world } = await decided(t);
    world.onReport = () => answer({}, status);
    await world.pass(2 * DAY);
    assert.equal(world.reports.length, 1);
    assert.equal(world.store.reports.length, 0);
    assert.equal(world.warnings.length, status === 422 ? 1 : 0);
  });
}

const gaps = (world) => world.reports.slice(1).map(({ at }, i) => (at - world.reports[i].at) / SECOND);

for (const status of [400, 403, 404, 429, 500, 503, "offline"]) {
  test(`status ${status} keeps it, and the retries send the same bit ever more rarely`, async (t) => {
    const { world, choice, client } = await decided(t);
    choice.reward(1);
    world.onReport = () => (status === "offline" ? Promise.reject(new Error("offline")) : answer("", status));
    await world.pass(8 * HOUR);
    const expected = [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600];
    assert.deepEqual(gaps(world).slice(0, 12), expected);
    choice.reward(1);
    client.reward("headline");
    world.onReport = () => answer({});
    await world.pass(HOUR);
    assert.equal(world.store.reports.length, 0);
    assert.deepEqual(new Set(world.reports.map(({ body }) => body.bit)), new Set([1]));
    assert.deepEqual(world.warnings, ["whitelie: the service did not take a report, which is kept for later"]);
  });
}

test("flush does not press", async (t) => {
  const { world, client } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(90 * SECOND);
  for (let i = 0; i < 10; i += 1) await client.flush();
  assert.equal(world.reports.length, 1);
});

test("Retry-After is kept if it is longer", async (t) => {
  for (const [after, gap] of [
    ["2", 5],
    ["60", 60],
    ["nonsense", 5],
    ["-7", 5],
    ["7200", 7200],
  ]) {
    const { world } = await decided(t);
    world.onReport = () => answer("", 503, { "Retry-After": after });
    await world.pass(90 * SECOND + 3 * HOUR);
    assert.equal(gaps(world)[0], gap);
  }
});

test("a service that does not answer does not block for ever", async (t) => {
  const { world } = await decided(t);
  world.onReport = never;
  await world.pass(90 * SECOND);
  assert.equal(world.reports.length, 1);
  world.onReport = () => answer({});
  await world.pass(60 * SECOND);
  assert.equal(world.reports.length, 2);
  assert.equal(world.store.reports.length, 0);
});

test("one report that fails does not hold up the others", async (t) => {
  const { world, client } = await decided(t);
  await client.decide("headline");
  world.onReport = ({ body }) => answer("", body.token === "token 1" ? 500 : 200);
  await world.pass(90 * SECOND);
  assert.deepEqual(
    world.store.reports.map(({ token }) => token),
    ["token 1"],
  );
});

test("an expired report is removed unsent", async (t) => {
  const { world } = await decided(t);
  world.close();
  await world.pass(7 * DAY + 1);
  await open(world);
  assert.equal(world.reports.length, 0);
  assert.equal(world.store.reports.length, 0);
});

test("retries end when the report expires", async (t) => {
  const { world } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(8 * DAY);
  assert.equal(world.store.reports.length, 0);
  assert.equal(world.timers.length, 0);
});

test("after a crash between sending and removing, the same bit is sent again", async (t) => {
  const { world, choice } = await decided(t);
  choice.reward(1);
  world.onReport = never;
  await world.pass(90 * SECOND);
  world.close(); // the service has counted it, the page has not heard so
  world.onReport = () => answer({ items: [{ status: "duplicate" }] });
  const visit = await open(world);
  visit.reward("headline");
  // The crashed page's queue was in its process.
  assert.deepEqual(bodies(world), Array(2).fill({ token: "token 1", bit: 1 }));
  assert.equal(world.store.reports.length, 0);
});

test("once a bit has left, the other one is gone, even for a clock that is set back", async (t) => {
  const { world, choice, client } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(90 * SECOND);
  world.setClock(-DAY);
  choice.reward(1);
  client.reward("headline");
  world.close();
  await world.pass(DAY);
  await open(world);
  assert.deepEqual(
    bodies(world).map(({ bit }) => bit),
    [0, 0],
  );
});

test("a clock that is set back does not hold a report for ever", async (t) => {
  for (const reload of [false, true]) {
    const { world, choice } = await decided(t);
    await world.pass(10 * SECOND);
    world.setClock(-DAY);
    if (reload) {
      world.close();
      await open(world);
    }
    choice.reward(1);
    await world.pass(200 * SECOND);
    assert.deepEqual(bodies(world), [{ token: "token 1", bit: 1 }]);
  }
});

test("a clock that is set back does not hold a retry for ever", async (t) => {
  const { world } = await decided(t);
  world.onReport = () => answer("", 503);
  await world.pass(90 * SECOND);
  world.setClock(-DAY);
  world.onReport = () => answer({});
  await world.pass(120 * SECOND);
  assert.equal(world.reports.length, 2);
  assert.equal(world.store.reports.length, 0);
});

test("a clock that is set forward sends early, whatever the outcome", async (t) => {
  for (const outcome of [0, 1]) {
    const { world, choice } = await decided(t);
    choice.reward(outcome);
    world.close();
    world.setClock(DAY);
    await open(world);
    assert.deepEqual(bodies(world), [{ token: "token 1", bit: outcome }]);
  }
});

test("a clock that was a day ahead when the decision was made", async (t) => {
  const world = new World(t);
  world.time += DAY;
  const client = await open(world, { words: drawing(0, 1, 0.5) });
  await client.decide("headline");
  world.close();
  world.setClock(-DAY);
  await open(world);
  await world.pass(89 * SECOND);
  assert.equal(world.reports.length, 0);
  await world.pass(SECOND);
  assert.equal(world.reports.length, 1);
});

test("immediate sends when the outcome is known, and warns", async (t) => {
  const { world, choice } = await decided(t, { immediate: true });
  await world.pass(7 * SECOND);
  choice.reward(1);
  await world.pass(0);
  assert.deepEqual(bodies(world), [{ token: "token 1", bit: 1 }]);
  choice.reward(1);
  await world.pass(HOUR);
  assert.equal(world.reports.length, 1);
  assert.equal(world.warnings.length, 1);
  assert.match(world.warnings[0], /reveals its outcome/);
});

test("immediate sends an outcome of 0 a second after the window", async (t) => {
  const { world } = await decided(t, { immediate: true });
  await world.pass(61 * SECOND - 1);
  assert.equal(world.reports.length, 0);
  await world.pass(1);
  assert.deepEqual(bodies(world), [{ token: "token 1", bit: 0 }]);
});

test("immediate retries with the same bit", async (t) => {
  const { world, choice } = await decided(t, { immediate: true });
  world.onReport = () => answer("", 503);
  choice.reward(1);
  await world.pass(SECOND);
  choice.reward(1);
  world.onReport = () => answer({});
  await world.pass(SECOND);
  assert.equal(world.reports.length, 1);
  await world.pass(10 * SECOND);
  assert.deepEqual(bodies(world), Array(2).fill({ token: "token 1", bit: 1 }));
});

test("a report goes to the service that decided", async (t) => {
  const { world } = await decided(t);
  world.close();
  await world.pass(HOUR);
  await open(world, { server: "https://other.example" });
  assert.equal(world.reports[0].url, `${SERVER}/v1/feedback`);
});
