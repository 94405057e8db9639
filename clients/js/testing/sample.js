// Prints items that this version leaves in localStorage, and what a later page load sends of them:
// { time, items: {name: text}, sent: [{ url, method, headers, body }], left: [names] }
//
// tests/samples/make.py keeps it, and test/samples.test.js opens it with every later version.

import { answer, drawing, HOUR, MemoryStore, SECOND, World } from "./world.js";

/** Loads a page on stored items and returns what leaves at that time. */
export async function loaded(t, time, items) {
  const world = new World(t);
  world.time = time;
  world.store = new MemoryStore();
  world.store.items = new Map(Object.entries(items));
  await world.client();
  await world.pass(0);
  const sent = world.reports.map(({ url, options: { method, headers, body } }) => ({ url, method, headers, body }));
  return { sent, left: [...world.store.keys()], warnings: world.warnings };
}

/** Reports of all kinds: due and not, rewarded, sealed by an attempt that failed, under both rules. */
async function stored(t) {
  const world = new World(t);
  world.onReport = () => answer("", 503);
  const words = drawing(0, 1, 0.5);
  const visit = await world.client({ words });
  const kiosk = await world.client({ words, sending: "when-due" });
  (await visit.decide("headline")).reward(1);
  await visit.decide("headline");
  await visit.decide("button", { sticky: true });
  (await kiosk.decide("headline")).reward(1);
  await world.pass(HOUR);
  (await visit.decide("headline")).reward(1);
  await kiosk.decide("headline");
  await world.pass(30 * SECOND);
  return { time: world.time, items: Object.fromEntries(world.store.items) };
}

if (process.argv[1] === import.meta.filename) {
  const t = { mock: { method() {} } };
  const { time, items } = await stored(t);
  const { sent, left } = await loaded(t, time, items);
  console.log(JSON.stringify({ time, items, sent, left }));
}
