import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, drawing, never, SECOND, SERVER, START, settle, World } from "../testing/world.js";

test("a decision is asked as the contract says, and nothing else is", async (t) => {
  const world = new World(t);
  const client = await world.client({ server: `${SERVER}/` });
  const choice = await client.decide("head line/1");
  assert.equal(choice.arm, "kind");
  assert.deepEqual(choice.payload, { text: "Have a look" });
  const [{ url, options }] = world.requests;
  assert.equal(url, `${SERVER}/v1/experiments/head%20line%2F1/decisions`);
  assert.equal(options.method, "POST");
  assert.equal(options.body, "{}");
  assert.equal(options.credentials, "omit");
  assert.equal(options.referrerPolicy, "no-referrer");
  assert.equal(options.redirect, "error");
  assert.deepEqual(options.headers, { Authorization: "Bearer pk_test" });
  assert.ok(!("keepalive" in options));
  assert.equal(world.requests.length, 1);
  assert.deepEqual(world.warnings, []);
});

test("both bits and the time are stored before the choice is returned", async (t) => {
  const world = new World(t);
  const client = await world.client({ words: drawing(1, 0, 0.5) });
  await client.decide("headline");
  assert.match([...world.store.items.keys()].join(), /whitelie\.report\.[0-9a-f]{24}(,|$)/);
  assert.deepEqual(world.store.reports, [
    {
      server: SERVER,
      experiment: "headline",
      arm: "kind",
      token: "token 1",
      bits: [1, 0],
      bit: 1,
      decided: START,
      until: START + 60 * SECOND,
      due: START + 90 * SECOND,
      expires: START + 7 * 86_400 * SECOND,
      sending: "next-visit",
    },
  ]);
});

test("the platform's generator draws bits, times and names", async (t) => {
  const world = new World(t);
  world.coin = { p00: 0.9, p11: 0.6, window: 0, spread: 100 };
  const client = await world.client({ maxEpsilon: 2, cap: { epsilon: Infinity } });
  const count = 1000;
  for (let i = 0; i < count; i += 1) await client.decide("headline");
  const { reports } = world.store;
  assert.equal(reports.length, count);
  const mean = (value) => reports.reduce((sum, report) => sum + value(report), 0) / count;
  const near = (mean, expected, deviation) =>
    assert.ok(Math.abs(mean - expected) < (5 * deviation) / Math.sqrt(count), `${mean}, not ${expected}`);
  near(
    mean(({ bits }) => bits[0]),
    0.1,
    0.3,
  );
  near(
    mean(({ bits }) => bits[1]),
    0.6,
    0.49,
  );
  near(
    mean(({ due }) => due - START),
    50 * SECOND,
    29 * SECOND,
  );
  near(
    mean(({ bits: [zero, one] }) => zero * one),
    0.06,
    0.24,
  );
});

const LONGEST = 400 * 86_400;
const FALLBACK = { arm: "plain", payload: "Buy now" };

async function assertFallback(world, client, pattern) {
  const choice = await client.decide("headline", { fallback: FALLBACK });
  assert.equal(choice.arm, "plain");
  assert.equal(choice.payload, "Buy now");
  choice.reward(1);
  const bare = await client.decide("headline", { sticky: true });
  assert.equal(bare.arm, null);
  assert.equal(bare.payload, null);
  assert.equal(world.store.items.size, 0);
  assert.equal(world.warnings.length, 1, world.warnings.join("\n"));
  assert.match(world.warnings[0], /^whitelie: no decision, check server, key and experiment: /);
  assert.match(world.warnings[0], pattern);
  await world.pass(1000 * SECOND);
  assert.equal(world.reports.length, 0);
}

test("an error shows the fallback", async (t) => {
  for (const status of [400, 401, 403, 404, 409, 429, 500, 503, 204, 201]) {
    const world = new World(t);
    world.onDecide = () => (status === 204 ? new Response(null, { status }) : answer({ error: {} }, status));
    await assertFallback(world, await world.client(), new RegExp(`status ${status}`));
  }
});

test("no network shows the fallback", async (t) => {
  const world = new World(t);
  world.onDecide = () => Promise.reject(new TypeError("Failed to fetch"));
  await assertFallback(world, await world.client(), /no answer, or a wrong one$/);
  const strange = new World(t);
  strange.onDecide = () => Promise.reject();
  await assertFallback(strange, await strange.client(), /no answer, or a wrong one$/);
});

test("a platform that throws shows the fallback", async (t) => {
  const world = new World(t);
  const fetch = () => {
    throw new Error("forbidden");
  };
  await assertFallback(world, await world.client({ testing: { fetch } }), /no answer, or a wrong one$/);
});

test("no answer in time shows the fallback, and a late answer is not kept", async (t) => {
  const world = new World(t);
  world.onDecide = never;
  const client = await world.client({ timeout: 250 });
  const asked = client.decide("headline", { fallback: FALLBACK });
  await world.pass(249);
  assert.equal(world.warnings.length, 0);
  await world.pass(1);
  assert.equal((await asked).arm, "plain");
  assert.match(world.warnings[0], /no answer in time/);
  assert.ok(world.requests[0].options.signal.aborted);
  assert.equal(world.store.items.size, 0);
});

test("a body that does not end is no answer", async (t) => {
  const world = new World(t);
  world.onDecide = ({ options }) => {
    const body = new ReadableStream({
      start(stream) {
        options.signal.addEventListener("abort", () => stream.error(options.signal.reason));
      },
    });
    return new Response(body);
  };
  const client = await world.client();
  const asked = client.decide("headline", { fallback: FALLBACK });
  await world.pass(1000);
  assert.equal((await asked).arm, "plain");
});

test("the timer of an answered question is gone", async (t) => {
  const world = new World(t);
  const client = await world.client({ consent: false });
  await client.decide("headline");
  assert.equal(world.timers.length, 0);
});

const BAD = {
  html: "<!doctype html><h1>Sign in to the hotel's network</h1>",
  empty: "",
  null: "null",
  list: "[]",
  "no decisions": { decisions: [] },
  "decisions of another kind": { decisions: "a" },
  "a decision of another kind": { decisions: [7] },
};
const WRONG = {
  arm: [undefined, null, 7, "", {}],
  token: [undefined, null, 7, "", {}, ["t"]],
  mechanism: [undefined, null, "fair", []],
  expires_in: [undefined, null, "7", {}, -1, 0.5, LONGEST + 1],
};
const WRONG_COIN = {
  p00: [undefined, null, "0.7", -0.1, 1.1, {}, true],
  p11: [undefined, null, "0.7", -1e-9, 2, []],
  window: [undefined, null, "60", -1, 0.5, LONGEST + 1, 1e300],
  spread: [undefined, null, "60", -60, 1.5, LONGEST + 1, Number.MAX_SAFE_INTEGER],
};

test("an answer that is not understood shows the fallback", async (t) => {
  const bodies = Object.entries(BAD);
  for (const [field, values] of Object.entries(WRONG)) {
    for (const value of values) bodies.push([`${field}: ${value}`, (good) => ({ ...good, [field]: value })]);
  }
  for (const [field, values] of Object.entries(WRONG_COIN)) {
    for (const value of values) {
      const spoil = (good) => ({ ...good, mechanism: { ...good.mechanism, [field]: value } });
      bodies.push([`${field}: ${value}`, spoil]);
    }
  }
  for (const text of ["NaN", "1e999", "-1e999"]) {
    for (const field of ["p00", "window", "spread", "expires_in"]) {
      bodies.push([`${field}: ${text}`, (good) => ({ ...good, [field]: 0, raw: [field, text] })]);
    }
  }
  for (const [label, body] of bodies) {
    await t.test(label, async (t) => {
      const world = new World(t);
      const spoilt = typeof body === "function" ? { decisions: [body(world.decision())] } : body;
      const raw = spoilt?.decisions?.[0]?.raw;
      let text = typeof spoilt === "string" ? spoilt : JSON.stringify(spoilt);
      if (raw) text = text.replace(new RegExp(`"${raw[0]}":[^,}]+`, "g"), `"${raw[0]}":${raw[1]}`);
      world.onDecide = () => answer(text);
      await assertFallback(world, await world.client(), /./);
    });
  }
});

test("the edges of what is understood are kept", async (t) => {
  const coins = [
    { p00: 0.5, p11: 0.5, window: 0, spread: 30 },
    { p00: 0.5, p11: 0.5, window: LONGEST, spread: LONGEST },
  ];
  for (const coin of coins) {
    const world = new World(t);
    world.coin = coin;
    const client = await world.client();
    await client.decide("headline");
    assert.equal(world.store.reports.length, 1);
  }
});

test("of two decisions none is taken, and large answers are not understood", async (t) => {
  const large = {
    "two decisions": (world) => [world.decision(), world.decision()],
    "an arm of 1,001 characters": (world) => [{ ...world.decision(), arm: "a".repeat(1001) }],
    "a token of 4,097 characters": (world) => [{ ...world.decision(), token: "t".repeat(4097) }],
    "a payload of 65,537 characters": (world) => [{ ...world.decision(), payload: "p".repeat(65_535) }],
  };
  for (const decisions of Object.values(large)) {
    const world = new World(t);
    world.onDecide = () => answer({ decisions: decisions(world) });
    await assertFallback(world, await world.client(), /a wrong one$/);
  }
  const world = new World(t);
  world.onDecide = () => answer({ decisions: [{ ...world.decision(), payload: "p".repeat(65_534) }] });
  assert.equal((await (await world.client()).decide("headline")).arm, "kind");
});

test("a service cannot write to the console, nor fill it", async (t) => {
  const world = new World(t);
  let number = 0;
  world.onDecide = () => {
    number += 1;
    return answer(`{"secret ${number}`);
  };
  const client = await world.client();
  for (let i = 0; i < 50; i += 1) await client.decide("headline");
  assert.equal(world.warnings.length, 1);
  assert.doesNotMatch(world.warnings[0], /secret/);
});

test("a payload may be missing", async (t) => {
  const world = new World(t);
  world.onDecide = () => answer({ decisions: [{ ...world.decision(), payload: undefined }] });
  const client = await world.client();
  assert.equal((await client.decide("headline")).payload, null);
});

test("force asks and stores nothing", async (t) => {
  const world = new World(t);
  const client = await world.client();
  const choice = await client.decide("headline", { force: "plain", sticky: true });
  choice.reward(1);
  assert.deepEqual([choice.arm, choice.payload], ["plain", null]);
  assert.equal(world.requests.length, 0);
  assert.equal(world.store.items.size, 0);
  await client.decide("headline", { force: null });
  assert.equal(world.requests.length, 1);
});

test("a sticky choice is one decision, one token, one report", async (t) => {
  const world = new World(t);
  const client = await world.client({ words: drawing(0, 1), sending: "when-due" });
  const [first, second] = await Promise.all([
    client.decide("headline", { sticky: true }),
    client.decide("headline", { sticky: true }),
  ]);
  world.close();
  const visit = await world.client({ sending: "when-due" });
  const third = await visit.decide("headline", { sticky: true });
  for (const choice of [first, second, third]) {
    assert.deepEqual([choice.arm, choice.payload], ["kind", { text: "Have a look" }]);
  }
  assert.equal(world.questions.length, 1);
  assert.equal(world.store.reports.length, 1);
  assert.equal(world.store.reports[0].bit, 0);
  third.reward(1);
  assert.equal(world.store.reports[0].bit, 1);
  await world.pass(120 * SECOND);
  assert.deepEqual(
    world.reports.map(({ body }) => body),
    [{ token: "token 1", bit: 1 }],
  );
  const later = await visit.decide("headline", { sticky: true });
  later.reward(1);
  await world.pass(120 * SECOND);
  assert.equal(later.arm, "kind");
  assert.equal(world.questions.length, 1);
  assert.equal(world.reports.length, 1);
});

test("a sticky choice is stored as the contract says", async (t) => {
  const world = new World(t);
  const client = await world.client();
  await client.decide("headline", { sticky: true });
  const name = [...world.store.items.keys()].find((key) => key.startsWith("whitelie.report."));
  const sticky = JSON.parse(world.store.getItem("whitelie.sticky.headline"));
  assert.deepEqual(sticky, {
    server: SERVER,
    arm: "kind",
    payload: { text: "Have a look" },
    report: name.slice("whitelie.report.".length),
  });
});

test("a sticky choice of another service is asked for anew, and the newest stays", async (t) => {
  const world = new World(t);
  const [one, two] = [await world.client(), await world.client({ server: "https://two.example" })];
  await one.decide("headline", { sticky: true });
  world.onDecide = () => answer({ decisions: [{ ...world.decision(), arm: "two's" }] });
  for (let i = 0; i < 2; i += 1) assert.equal((await two.decide("headline", { sticky: true })).arm, "two's");
  assert.equal(world.questions.length, 2);
});

test("what is used of a stored sticky choice", async (t) => {
  const used = [{ arm: "stored" }, { arm: "stored", report: null }, { arm: "stored", server: SERVER, report: "0" }];
  const unused = [
    {},
    { arm: "" },
    { arm: null },
    { arm: 7 },
    { arm: ["stored"] },
    { arm: "stored", server: "https://x" },
  ];
  for (const [items, arm] of [
    [used, "stored"],
    [unused, "kind"],
  ]) {
    for (const item of items) {
      const world = new World(t);
      world.store.setItem("whitelie.sticky.headline", JSON.stringify(item));
      const choice = await (await world.client()).decide("headline", { sticky: true });
      choice.reward(1);
      assert.equal(choice.arm, arm, JSON.stringify(item));
    }
  }
});

test("a sticky choice stays when its token was discarded", async (t) => {
  const world = new World(t);
  const client = await world.client({ maxEpsilon: 0.1 });
  await client.decide("headline", { sticky: true });
  await client.decide("headline", { sticky: true });
  assert.equal(world.questions.length, 1);
  assert.equal(world.store.reports.length, 0);
});

test("two tabs that ask at once agree on the sticky choice", async (t) => {
  const world = new World(t);
  const arms = ["plain", "kind"];
  world.onDecide = () => answer({ decisions: [{ ...world.decision(), arm: arms.pop() }] });
  const tabs = [await world.client(), await world.client()];
  const choices = await Promise.all(tabs.map((tab) => tab.decide("headline", { sticky: true })));
  assert.equal(choices[0].arm, choices[1].arm);
  assert.equal(world.store.reports.length, 1);
});

test("who waits for another tab's sticky choice waits no longer than for the service", async (t) => {
  const world = new World(t);
  world.onDecide = never;
  const client = await world.client({ timeout: 1000 });
  const asked = [1, 2, 3].map(() => client.decide("headline", { sticky: true, fallback: FALLBACK }));
  await world.pass(1000);
  for (const { arm } of await Promise.all(asked)) assert.equal(arm, "plain");
  assert.equal(world.store.items.size, 0);
});

test("a fallback does not stick", async (t) => {
  const world = new World(t);
  const good = world.onDecide;
  world.onDecide = () => answer("", 503);
  const client = await world.client();
  const options = { sticky: true, fallback: FALLBACK };
  assert.equal((await client.decide("headline", options)).arm, "plain");
  world.onDecide = good;
  assert.equal((await client.decide("headline", options)).arm, "kind");
});

test("nothing is thrown at a page that uses the client in a strange way", async (t) => {
  const world = new World(t);
  const { Whitelie } = await world.tab();
  for (const options of [undefined, {}, { store: null, sending: 7 }]) new Whitelie(options);
  world.onDecide = () => answer("", 404);
  const client = await world.client({ server: undefined, key: undefined });
  for (const experiment of [undefined, null, 7, "\ud800", {}]) {
    assert.equal((await client.decide(experiment)).arm, null);
    assert.equal((await client.decide(experiment, null)).arm, null);
    client.reward(experiment);
  }
  const choice = await client.decide("headline", { force: "plain" });
  for (const outcome of [undefined, null, "1", {}, Symbol("1"), 1n, NaN]) choice.reward(outcome);
  await client.flush();
  await settle();
});
