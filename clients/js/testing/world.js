// A world for tests: its own clock, timers, network, storage and tabs.

export const SERVER = "https://decide.example";
export const START = Date.UTC(2026, 0, 1);
export const SECOND = 1000;
export const HOUR = 3600 * SECOND;
export const DAY = 24 * HOUR;
const LARGEST = (1n << 64n) - 1n;
let copies = 0;

export class MemoryStore {
  items = new Map();
  full = false;
  getItem(name) {
    return this.items.get(name) ?? null;
  }
  setItem(name, text) {
    if (this.full) throw new Error("QuotaExceededError");
    this.items.set(name, text);
  }
  removeItem(name) {
    this.items.delete(name);
  }
  keys() {
    return this.items.keys();
  }
  read(prefix) {
    return [...this.items].filter(([name]) => name.startsWith(prefix)).map(([, text]) => JSON.parse(text));
  }
  get reports() {
    return this.read("whitelie.report.");
  }
  get charges() {
    return this.read("whitelie.charge.");
  }
  get spent() {
    return this.charges.reduce((sum, { epsilon }) => sum + (epsilon ?? Infinity), 0);
  }
}

// Like navigator.locks: one holder of a name at a time, whichever tab asks.
export class Locks {
  tails = new Map();
  request(name, { ifAvailable }, job) {
    const before = this.tails.get(name);
    if (ifAvailable && before) return Promise.resolve(job(null));
    const turn = Promise.resolve(before).then(() => job({ name }));
    const tail = turn
      .catch(() => {})
      .then(() => {
        if (this.tails.get(name) === tail) this.tails.delete(name);
      });
    this.tails.set(name, tail);
    return turn;
  }
}

export const never = () => new Promise(() => {});
export const answer = (body, status = 200, headers = {}) =>
  new Response(typeof body === "string" ? body : JSON.stringify(body), { status, headers });

/** The words that give these noisy bits, with any coin, and this part of the spread. */
export const drawing = (bit0, bit1, part = 0) => {
  let draws = 0n;
  const upper = BigInt(Math.floor(part * 2 ** 32)) << 32n;
  const word = (bit) => (bit ? 0n : LARGEST);
  return () => {
    draws += 1n;
    return [word(bit0), word(bit1), upper, draws];
  };
};

export class World {
  time = START;
  store = new MemoryStore();
  timers = [];
  requests = [];
  warnings = [];
  coin = { p00: 0.7, p11: 0.7, window: 60, spread: 60 };
  decisions = 0;

  constructor(t) {
    t.mock.method(console, "warn", (text) => this.warnings.push(text));
  }

  decision = () => {
    this.decisions += 1;
    return {
      arm: "kind",
      payload: { text: "Have a look" },
      token: `token ${this.decisions}`,
      mechanism: this.coin,
      expires_in: 7 * 86_400,
    };
  };
  onDecide = () => answer({ decisions: [this.decision()] });
  onReport = () => answer({ items: [{ status: "accepted" }] });

  fetch = async (url, options) => {
    const request = { at: this.time, url, options, body: JSON.parse(options.body) };
    this.requests.push(request);
    const handle = url.endsWith("/v1/feedback") ? this.onReport : this.onDecide;
    const aborted = new Promise((_, reject) => {
      options.signal.addEventListener("abort", () => reject(options.signal.reason));
    });
    return Promise.race([handle(request), aborted]);
  };

  setTimeout = (job, wait) => {
    // As in browsers, a wait that does not fit into 32 bits is no wait.
    const timer = { job, at: this.time + (wait > 2 ** 31 - 1 ? 0 : wait) };
    this.timers.push(timer);
    return timer;
  };
  clearTimeout = (timer) => {
    this.timers = this.timers.filter((other) => other !== timer);
  };

  get testing() {
    const { fetch, setTimeout, clearTimeout } = this;
    return { fetch, setTimeout, clearTimeout, now: () => this.time };
  }

  /** A new copy of the module: a page load, in a tab that has not warned yet. */
  async tab() {
    copies += 1;
    return import(`../whitelie.js?copy=${copies}`);
  }

  async client({ tab, words, testing, ...options } = {}) {
    const { Whitelie } = tab ?? (await this.tab());
    const client = new Whitelie({
      server: SERVER,
      key: "pk_test",
      store: this.store,
      testing: { ...this.testing, ...(words && { words }), ...testing },
      ...options,
    });
    await settle();
    return client;
  }

  /** Lets time pass; the device's clock may be set meanwhile, timers do not mind. */
  async pass(milliseconds) {
    const end = this.time + milliseconds;
    for (let fired = 0; ; fired += 1) {
      if (fired > 10_000) throw new Error("timers fire without end");
      const next = this.timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.clearTimeout(next);
      this.time = Math.max(this.time, next.at);
      next.job();
      await settle();
    }
    this.time = end;
    await settle();
  }

  setClock(milliseconds) {
    this.time += milliseconds;
    for (const timer of this.timers) timer.at += milliseconds;
  }

  /** The page is closed: its timers are gone, the store stays. */
  close() {
    this.timers = [];
  }

  get reports() {
    return this.requests.filter(({ url }) => url.endsWith("/v1/feedback"));
  }
  get questions() {
    return this.requests.filter(({ url }) => url.endsWith("/decisions"));
  }
}

/** Lets all promises that can settle do so. */
export async function settle() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((done) => setImmediate(done));
}

export function withGlobal(t, name, value) {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { configurable: true, ...value });
  t.after(() => {
    if (before) Object.defineProperty(globalThis, name, before);
    else delete globalThis[name];
  });
}
