// Visitors of a real service: node visits.js '{"server", "key", "experiment", "window", "spread",
// "visits", "sending", "leaving", "sabotage"}'
//
// Every visitor has a device and a time of their own; `leaving` are the shares that close the page
// before its report is due, of those who do not click and of those who do. Prints what left the devices, when, and who
// clicked: { requests: [{ at, path, body, issued }], visits: [{ token, clicked }] }; `issued` is the
// token in the answer, and times are milliseconds.

import { Agent, request } from "node:http";

import { DAY, MemoryStore, SECOND, START } from "./world.js";

const MOST_LANES = 100;
const LARGEST = (1n << 64n) - 1n;
const orders = JSON.parse(process.argv[2]);
const LANES = Math.min(MOST_LANES, Math.ceil(orders.visits / 25));
const requests = [];
const visits = [];
const agent = new Agent({ keepAlive: true, maxSockets: LANES });

// Visitors are not tabs of one browser: they share no locks.
Object.defineProperty(globalThis, "navigator", { value: undefined, configurable: true });

function post(url, { headers, body }) {
  return new Promise((resolve, reject) => {
    const length = Buffer.byteLength(body);
    const options = { method: "POST", agent, headers: { ...headers, "Content-Length": length } };
    const asked = request(url, options, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode, text: Buffer.concat(parts).toString() }));
    });
    asked.on("error", reject);
    asked.end(body);
  });
}

class OnlyClicks extends MemoryStore {
  changes = new Map();
  setItem(name, text) {
    this.changes.set(name, (this.changes.get(name) ?? 0) + 1);
    super.setItem(name, text);
  }
  keys() {
    return [...super.keys()].filter((name) => this.changes.get(name) > 1);
  }
}

/** Sabotage: options of the client, or what the device does. */
const SABOTAGE = {
  "reports only clicks": () => ({ store: new OnlyClicks() }),
  "reports at the click": () => ({ immediate: true }),
  "reports clicks later": () => ({ late: 0.5, sending: "when-due" }),
  "does not flip": () => ({
    words: (count) => [LARGEST, 0n, ...crypto.getRandomValues(new BigUint64Array(count - 2))],
  }),
};

class Visitor {
  time = START + Math.floor(Math.random() * DAY);
  timers = new Set();
  waiting = new Set();
  clicked = 0;

  constructor(Whitelie) {
    const { late = 0, store = new MemoryStore(), words, ...options } = SABOTAGE[orders.sabotage]?.() ?? {};
    const { fetch, setTimeout, clearTimeout } = this;
    const testing = { fetch, setTimeout, clearTimeout, now: () => this.time, ...(words && { words }) };
    const { server, key, sending } = orders;
    this.late = late;
    // The module tells page loads apart by the store object.
    this.open = () => new Whitelie({ server, key, sending, store: Object.create(store), testing, ...options });
  }

  fetch = (url, options) => {
    const record = { at: this.time, path: new URL(url).pathname, body: JSON.parse(options.body) };
    requests.push(record);
    const answered = post(url, options).then(({ status, text }) => {
      record.issued = JSON.parse(text).decisions?.[0].token;
      this.token ??= record.issued;
      return { status, headers: new Headers(), text: async () => text };
    });
    this.waiting.add(answered);
    return answered;
  };

  setTimeout = (job, wait) => {
    const timer = { job, at: this.time + wait };
    this.timers.add(timer);
    return timer;
  };

  clearTimeout = (timer) => {
    this.timers.delete(timer);
  };

  /** Waits until the client has had its answers, and has nothing to do until a timer fires. */
  async quiet() {
    for (;;) {
      await new Promise((done) => setImmediate(done));
      const [one] = this.waiting;
      if (!one) return;
      await one;
      this.waiting.delete(one);
    }
  }

  async until(end) {
    for (;;) {
      await this.quiet();
      const next = [...this.timers].sort((a, b) => a.at - b.at)[0];
      if (!(next?.at <= end)) break;
      this.timers.delete(next);
      this.time = Math.max(this.time, next.at) + this.clicked * this.late * orders.spread * SECOND;
      next.job();
    }
    this.time = Math.max(this.time, end);
  }

  async visit() {
    const start = this.time;
    const between = (from, to) => start + Math.floor(SECOND * (from + Math.random() * (to - from)));
    const { experiment, window, spread, leaving } = orders;
    let client = this.open();
    const asked = client.decide(experiment);
    await this.quiet();
    const choice = await asked;
    const plan = [];

    // Half click in time, some twice. Of the others some click too late, which does not count.
    const willClick = Math.random() < 0.5;
    const clickAt = between(0, window);
    if (willClick) {
      const click = () => {
        this.clicked = 1;
        choice.reward(1);
      };
      plan.push([clickAt, click]);
      if (Math.random() < 0.2) plan.push([clickAt, () => client.reward(experiment)]);
    } else if (Math.random() < 0.2) {
      plan.push([between(window, window + spread) + 1, () => choice.reward(1)]);
    }

    // Some close the page, which may be because of the click; of the others some reload it. Most come
    // back, whatever they have done.
    const reload = () => {
      this.timers.clear();
      client = this.open();
    };
    if (Math.random() < leaving[Number(willClick)]) plan.push([clickAt + 1, () => this.timers.clear()]);
    else if (Math.random() < 0.4) plan.push([between(0, window + spread), reload]);
    if (Math.random() < 0.95) plan.push([between(window + spread + 1, 86_400), reload]);

    for (const [at, act] of plan.sort(([a], [b]) => a - b)) {
      await this.until(at);
      act();
    }
    await this.until(start + 2 * DAY);
    visits.push({ token: this.token, clicked: this.clicked });
  }
}

let left = orders.visits;

async function lane(number) {
  const { Whitelie } = await import(`../whitelie.js?lane=${number}`);
  while (left > 0) {
    left -= 1;
    await new Visitor(Whitelie).visit();
  }
}

await Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)));
agent.destroy();
process.stdout.write(JSON.stringify({ requests, visits }));
