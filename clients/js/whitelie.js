// The rules are in CONTRACT.md.

const ONE = 1n << 64n;
const DAY = 86_400_000;
const TOLERANCE = 1 + 1e-9;

export function thresholds(p00, p11) {
  return { zero: ONE - scale(p00), one: scale(p11) };
}

// Rounded toward 1/2: never less private.
function scale(p) {
  const scaled = p * 2 ** 64;
  return BigInt(p < 0.5 ? Math.ceil(scaled) : Math.floor(scaled));
}

export function epsilon({ zero, one }) {
  return Math.max(logRatio(one, zero), logRatio(ONE - one, ONE - zero));
}

function logRatio(a, b) {
  if (a === b) return 0;
  const [less, more] = a < b ? [a, b] : [b, a];
  return Math.log1p(Number(more - less) / Number(less));
}

export function flip([word0, word1], { zero, one }) {
  return [Number(word0 < zero), Number(word1 < one)];
}

export function delay(window, spread, word) {
  return 1000 * window + Number((BigInt(word) * BigInt(1000 * spread)) >> 32n);
}

export function charge(ledger, cap, at, cost) {
  const { start = at, spent } = ledger ?? { spent: 0 };
  const ended = at >= start + cap.days * DAY;
  const before = ended ? 0 : spent ?? Infinity;
  const kept = before + cost <= cap.epsilon * TOLERANCE;
  const begun = ended ? at : Math.min(start, at);
  return { kept, ledger: { start: begun, spent: kept ? before + cost : before } };
}

const warned = new Set();

function warn(text) {
  if (!warned.has(text)) console.warn(`whitelie: ${text}`);
  warned.add(text);
}

const queues = new Map();

// Tabs share a lock, kept until they see what was stored; else a page queues.
function exclusively(name, job, linger) {
  return new Promise((settle) => {
    const queue = () => {
      const turn = Promise.resolve(queues.get(name)).then(job, job);
      queues.set(name, turn);
      settle(turn);
    };
    const hold = async () => {
      const result = (async () => job())();
      settle(result);
      await result.catch(() => {});
      if (linger) await new Promise((done) => setTimeout(done, linger));
    };
    try {
      navigator.locks.request(name, hold).catch(queue);
    } catch {
      queue();
    }
  });
}

function localStore() {
  try {
    return localStorage;
  } catch {}
}

const pageMemory = new Map();

function openShelf(store = localStore()) {
  const memory = store ? new Map() : pageMemory;

  return {
    load(name) {
      let text = memory.get(name);
      try {
        text ??= store.getItem(name);
        return JSON.parse(text ?? null);
      } catch {
        return text ? {} : null;
      }
    },

    save(name, value) {
      const text = JSON.stringify(value);
      memory.set(name, text);
      try {
        store.setItem(name, text);
        memory.delete(name);
      } catch {
        warn("reports end with the page: free or unblock storage, or give a store");
      }
    },

    remove(name) {
      memory.delete(name);
      try {
        store?.removeItem(name);
      } catch {
        memory.set(name, "null");
      }
    },

    names(prefix) {
      const names = new Set(memory.keys());
      try {
        const stored = typeof store.keys === "function" ? store.keys() : Object.keys(store);
        for (const name of stored) names.add(name);
      } catch {}
      return [...names].filter((name) => name.startsWith(prefix)).sort();
    },
  };
}

function isDecision({ arm, token, mechanism: { p00, p11, window, spread }, expires_in }) {
  return (
    [arm, token].every((text) => text && typeof text === "string") &&
    [p00, p11].every((p) => typeof p === "number" && p >= 0 && p <= 1) &&
    [window, spread, expires_in].every((s) => Number.isInteger(s) && s >= 0 && s <= 1e9)
  );
}

export function Whitelie({
  server,
  key,
  maxEpsilon = 1,
  minSpread = 30,
  cap,
  timeout = 1000,
  store,
  consent = true,
  immediate = false,
  testing = {},
}) {
  const {
    words = (count) => crypto.getRandomValues(new BigUint64Array(count)),
    now = Date.now,
    fetch = globalThis.fetch,
    setTimeout = globalThis.setTimeout,
    clearTimeout = globalThis.clearTimeout,
  } = testing;
  const shelf = openShelf(store);
  const asking = new Map();
  const latest = new Map();
  const tries = new Map();
  const reportNames = () => shelf.names("whitelie.report.");
  let timer;

  async function decide(experiment, options) {
    const chosen = await choose(experiment, options ?? {});
    latest.set(experiment, chosen);
    return chosen;
  }

  async function choose(experiment, { sticky, force, fallback }) {
    if (force != null) return choice(force);
    try {
      const known = sticky && recall(experiment);
      if (known) return known;
      const decision = await (sticky ? askOnce(experiment) : ask(experiment));
      return await exclusively("whitelie.ledger", () => take(experiment, decision, sticky));
    } catch (error) {
      warn(`no decision, check server, key and experiment: ${error}`);
      return choice(fallback?.arm, fallback?.payload);
    }
  }

  function reward(experiment) {
    const [stored] = reportNames()
      .map((name) => ({ ...shelf.load(name), name }))
      .filter((report) => report.server === server && report.experiment === experiment)
      .sort((a, b) => b.decided - a.decided);
    const chosen = latest.get(experiment) ?? choice(null, null, stored?.name);
    chosen.reward(1);
  }

  async function flush() {
    try {
      await exclusively("whitelie.send", async () => {
        for (const name of reportNames()) await send(name);
      }, 300);
      schedule();
    } catch (error) {
      warn(`reports wait for the next visit: ${error}`);
    }
  }

  function forget() {
    shelf.names("whitelie.").forEach(shelf.remove);
  }

  function choice(arm = null, payload = null, report) {
    return {
      arm,
      payload,
      reward(outcome) {
        if (outcome === 1 || outcome === true) rewardReport(report);
      },
    };
  }

  function recall(experiment) {
    const known = shelf.load(`whitelie.sticky.${experiment}`);
    return known?.arm && choice(known.arm, known.payload, `whitelie.report.${known.report}`);
  }

  // Parts of a page that ask at once get one decision.
  function askOnce(experiment) {
    if (!asking.has(experiment)) {
      asking.set(experiment, ask(experiment).finally(() => asking.delete(experiment)));
    }
    return asking.get(experiment);
  }

  async function ask(experiment) {
    const url = `${server}/v1/experiments/${encodeURIComponent(experiment)}/decisions`;
    const { status, text } = await post(url, {}, timeout, { Authorization: `Bearer ${key}` });
    if (status !== 200) throw Error(`status ${status}`);
    const [decision] = JSON.parse(text).decisions;
    if (!isDecision(decision)) throw Error("not a decision");
    return decision;
  }

  async function post(url, body, patience, headers) {
    const aborter = new AbortController();
    const alarm = setTimeout(() => aborter.abort("no answer in time"), patience);
    try {
      const response = await fetch(url, {
        method: "POST",
        headers,
        body: JSON.stringify(body), // as plain text: a report needs no preflight
        credentials: "omit",
        referrerPolicy: "no-referrer", // it could say where a click has led
        signal: aborter.signal,
      });
      const retryAfter = response.headers.get("Retry-After");
      return { status: response.status, text: await response.text(), retryAfter };
    } finally {
      clearTimeout(alarm);
    }
  }

  function take(experiment, decision, sticky) {
    const known = sticky && recall(experiment);
    if (known) return known;
    const { arm, payload } = decision;
    const agreed = consents();
    const report = agreed && affords(decision.mechanism) ? keep(experiment, decision) : null;
    if (agreed && sticky) shelf.save(`whitelie.sticky.${experiment}`, { arm, payload, report });
    return choice(arm, payload, `whitelie.report.${report}`);
  }

  function consents() {
    try {
      return (typeof consent === "function" ? consent() : consent) === true;
    } catch {
      return false;
    }
  }

  // Negations: a limit that is not a number allows nothing.
  function affords({ p00, p11, spread }) {
    const cost = epsilon(thresholds(p00, p11));
    if (!(cost <= maxEpsilon * TOLERANCE)) return warn("no report: lower epsilon, or raise maxEpsilon");
    if (!(spread >= minSpread)) return warn("no report: raise spread, or lower minSpread");
    const limit = { epsilon: 10, days: 1, ...cap };
    const { kept, ledger } = charge(shelf.load("whitelie.ledger"), limit, now(), cost);
    shelf.save("whitelie.ledger", ledger);
    return kept;
  }

  // Bits and time are drawn before the outcome is known.
  function keep(experiment, { arm, token, mechanism: { p00, p11, window, spread }, expires_in }) {
    const [word0, word1, word2, word3] = words(4);
    const bits = flip([word0, word1], thresholds(p00, p11));
    const decided = now();
    const until = decided + 1000 * window;
    const due = immediate ? until : decided + delay(window, spread, word2 >> 32n);
    const expires = decided + 1000 * expires_in;
    const id = BigInt.asUintN(96, (word2 << 64n) | word3).toString(16).padStart(24, "0");
    const report = { server, experiment, arm, token, bits, bit: bits[0], decided, until, due, expires };
    shelf.save(`whitelie.report.${id}`, report);
    schedule();
    return id;
  }

  function rewardReport(name) {
    const report = shelf.load(name);
    if (!(now() <= report?.until)) return;
    report.bit = report.bits[1];
    if (immediate) report.due = now();
    shelf.save(name, report);
    if (immediate) flush();
  }

  function read(name) {
    const report = shelf.load(name);
    if (!Number.isFinite(report?.due)) return null;
    const ahead = report.decided - now();
    if (ahead > 0) {
      for (const time of ["decided", "until", "due", "expires"]) report[time] -= ahead;
      shelf.save(name, report);
    }
    return report;
  }

  async function send(name) {
    const report = read(name);
    if (!report || now() < attemptAt(name)) return;
    const { status, retryAfter } = now() > report.expires ? { status: 410 } : await deliver(name, report);
    if (![200, 410, 422].includes(status)) return postpone(name, 1000 * retryAfter || 0);
    if (status === 422) warn("a report was refused: is the token secret lost?");
    shelf.remove(name);
    tries.delete(name);
  }

  // The other bit is gone before this one leaves: a retry sends the same.
  async function deliver(name, report) {
    const { token, bit } = report;
    shelf.save(name, { ...report, bits: [bit, bit] });
    return post(`${report.server}/v1/feedback`, { token, bit }, 30_000).catch(() => ({}));
  }

  function postpone(name, asked) {
    const backoff = Math.min(2 * (tries.get(name)?.backoff ?? 2500), DAY / 24);
    const wait = Math.max(backoff, asked);
    tries.set(name, { backoff, wait, at: now() });
  }

  function attemptAt(name) {
    const { at, wait } = tries.get(name) ?? {};
    return at <= now() ? at + wait : read(name)?.due ?? Infinity;
  }

  function schedule() {
    clearTimeout(timer);
    const next = Math.min(...reportNames().map(attemptAt));
    const wait = Math.min(next - now(), 2 ** 31 - 1);
    if (next < Infinity) timer = setTimeout(flush, wait);
  }

  server = String(server).replace(/\/+$/, "");
  if (immediate) warn("the time of a report reveals its outcome: turn off immediate");
  flush();
  return { decide, reward, flush, forget };
}
