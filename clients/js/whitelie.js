// The rules are in CONTRACT.md.

const ONE = 1n << 64n;
const DAY = 86_400_000;
const TOLERANCE = 1 + 1e-9;
const LOCK_HOLD_MS = 300; // tabs see changes of storage late
const CHARGE = "whitelie.charge.";
const REPORT = "whitelie.report.";
const STORAGE_FAILS = "storage fails: free or unblock it, or give a store";
const NOT_TAKEN = "the service did not take a report, which is kept for later";
const FORMER_LEDGER = "whitelie.ledger";
const LEDGER = `${CHARGE}ledger`;
const TIMES = ["decided", "until", "due", "expires"];

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

export function charge(store, id, cap, at, cost) {
  const charges = readCharges(store, cap, at);
  const former = load(store, FORMER_LEDGER);
  if (former !== undefined) {
    const spent = [former.start, former.spent].every(isAmount) ? former.spent : Infinity;
    charges.set(LEDGER, { at, epsilon: spent + (charges.get(LEDGER)?.epsilon ?? 0), cap });
  }
  const days = [...charges.values()].map((other) => other.cap.days);
  const span = days.reduce((most, each) => Math.max(most, each), Math.max(40, cap.days));
  for (const [name, other] of charges) {
    if (!(other.at <= at - span * DAY) || store.getItem(name.replace(CHARGE, REPORT)) != null) continue;
    store.removeItem(name);
    charges.delete(name);
  }
  const own = { at, epsilon: cost, cap };
  const kept = fits([...charges], own);
  if (kept) charges.set(CHARGE + id, own);
  for (const [name, other] of charges) {
    if (store.getItem(name) !== JSON.stringify(other)) save(store, name, other);
  }
  if (former !== undefined) store.removeItem(FORMER_LEDGER);
  return kept;
}

// Tabs may have charged at once: the reports that came too late.
export function overCap(store, cap, at) {
  const rank = ([name, charge]) => (name === LEDGER ? -1 : charge.at);
  const charges = [...readCharges(store, cap, at)].sort((a, b) => rank(a) - rank(b));
  const isOver = ([, own], place) => !fits(charges.slice(0, place), own);
  const reports = charges.filter(isOver).map(([name]) => name.replace(CHARGE, REPORT));
  return reports.filter((name) => store.getItem(name) != null);
}

// Negations here and below: a limit that is not a number allows nothing.
function fits(others, { at, epsilon, cap }) {
  const since = at - cap.days * DAY;
  const spent = others.reduce((sum, [, other]) => sum + (other.at <= since ? 0 : other.epsilon), epsilon);
  return spent <= cap.epsilon * TOLERANCE;
}

// What is not understood is more than any cap: null in JSON.
function readCharges(store, cap, at) {
  const charges = new Map();
  for (const name of names(store, CHARGE)) {
    const stored = load(store, name);
    if (stored === undefined) continue;
    const known = isCharge(stored) ? stored : { at, epsilon: null, cap };
    charges.set(name, { ...known, at: Math.min(known.at, at), epsilon: known.epsilon ?? Infinity });
  }
  return charges;
}

function isCharge({ at, epsilon, cap }) {
  return [at, epsilon === null ? 0 : epsilon, cap?.epsilon, cap?.days].every(isAmount);
}

function isAmount(number) {
  return Number.isFinite(number) && number >= 0;
}

const warned = new Set();

function warn(text) {
  if (!warned.has(text)) console.warn(`whitelie: ${text}`);
  warned.add(text);
}

function attempt(job, failure = STORAGE_FAILS) {
  try {
    return job();
  } catch {
    warn(failure);
  }
}

function load(store, name) {
  const text = store.getItem(name);
  if (text == null) return undefined;
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function save(store, name, value) {
  store.setItem(name, JSON.stringify(value));
}

function names(store, prefix) {
  const all = typeof store.keys === "function" ? [...store.keys()] : Object.keys(store);
  return all.filter((name) => name.startsWith(prefix)).sort();
}

function localStore() {
  try {
    return localStorage;
  } catch {}
}

const memory = new Map();

const pageMemory = {
  getItem: (name) => memory.get(name),
  setItem(name, text) {
    warn("reports end with the page: unblock storage, or give a store");
    memory.set(name, text);
  },
  removeItem: (name) => memory.delete(name),
  keys: () => memory.keys(),
};

const dueAtLoad = new WeakMap();

const queues = new Map();

// holdLock keeps the lock until other tabs see what was stored.
function withLock(name, job, ifAvailable = false) {
  return new Promise((settle) => {
    let pause = 0;
    const run = async () => job(() => (pause = LOCK_HOLD_MS));
    const queue = () => {
      if (ifAvailable) return settle(run());
      const turn = Promise.resolve(queues.get(name)).then(run, run);
      queues.set(name, turn);
      settle(turn);
    };
    const hold = async (lock) => {
      if (lock === null) return settle();
      const result = run();
      settle(result);
      await result.catch(() => {});
      if (pause) await new Promise((done) => setTimeout(done, pause));
    };
    try {
      navigator.locks.request(name, { ifAvailable }, hold).catch(queue);
    } catch {
      queue();
    }
  });
}

function isText(text, longest) {
  return typeof text === "string" && text !== "" && text.length <= longest;
}

function isDecision({ arm, payload = null, token, mechanism: { p00, p11, window, spread }, expires_in }) {
  return (
    isText(arm, 1000) &&
    isText(token, 4096) &&
    JSON.stringify(payload).length <= 65_536 &&
    [p00, p11].every((p) => typeof p === "number" && p >= 0 && p <= 1) &&
    [window, spread, expires_in].every((s) => Number.isInteger(s) && s >= 0 && s <= 34_560_000)
  );
}

function isReport({ server, experiment, arm, token, bits, bit, ...report }) {
  return (
    [server, experiment, arm, token].every((text) => typeof text === "string") &&
    Array.isArray(bits) &&
    bits.length === 2 &&
    bits.every((each) => [0, 1].includes(each)) &&
    bits.includes(bit) &&
    TIMES.every((time) => Number.isFinite(report[time]))
  );
}

export function Whitelie({
  server,
  key,
  maxEpsilon = 1,
  minSpread = 30,
  cap,
  timeout = 1000,
  store = localStore() ?? pageMemory,
  consent = true,
  sending = "next-visit",
  immediate = false,
  testing = {},
} = {}) {
  const {
    words = (count) => crypto.getRandomValues(new BigUint64Array(count)),
    now = Date.now,
    fetch = globalThis.fetch,
    setTimeout = globalThis.setTimeout,
    clearTimeout = globalThis.clearTimeout,
  } = testing;
  const limit = { epsilon: 10, days: 1, ...cap };
  for (const part of ["epsilon", "days"]) limit[part] = Math.min(limit[part], Number.MAX_VALUE);
  const rule = immediate || sending === "when-due" ? "when-due" : "next-visit";
  const latest = new Map();
  const retries = new Map();
  const reportNames = () => names(store, REPORT);
  let timer;
  let longDue;

  async function decide(experiment, options) {
    const chosen = await choose(experiment, options ?? {});
    latest.set(experiment, chosen);
    return chosen;
  }

  async function choose(experiment, { sticky, force, fallback }) {
    if (force != null) return choice(force);
    try {
      const find = sticky ? findSticky : findAnew;
      return await withTimeout(timeout, (signal) => find(experiment, signal));
    } catch (cause) {
      // Only our own causes are texts: others could quote the service.
      const known = typeof cause === "string" ? cause : "no answer, or a wrong one";
      warn(`no decision, check server, key and experiment: ${known}`);
      return choice(fallback?.arm, fallback?.payload);
    }
  }

  function reward(experiment) {
    const chosen = latest.get(experiment) ?? attempt(() => choice(null, null, latestReport(experiment)));
    chosen?.reward(1);
  }

  // One attempt per page load, and none waits for another tab: its end would be seen.
  async function flush() {
    for (const isNoted of [true, false]) {
      await withLock("whitelie.send", (holdLock) => sendAll(isNoted, holdLock), isNoted);
      if (isNoted && consents()) noted.clear();
    }
    schedule();
  }

  function forget() {
    const failure = "not everything was erased: clear the storage";
    for (const name of attempt(() => names(store, "whitelie."), failure) ?? []) {
      attempt(() => store.removeItem(name), failure);
    }
    retries.clear();
    noted.clear();
  }

  function choice(arm = null, payload = null, report) {
    return {
      arm,
      payload,
      reward(outcome) {
        if (report && (outcome === 1 || outcome === true)) attempt(() => rewardReport(report));
      },
    };
  }

  async function findSticky(experiment, signal) {
    const recalled = () => attempt(() => recall(experiment));
    return (
      recalled() ??
      withLock(`whitelie.sticky.${experiment}`, async (holdLock) => {
        signal.throwIfAborted();
        const known = recalled();
        if (known) return known;
        const chosen = await findAnew(experiment, signal, true);
        holdLock();
        return chosen;
      })
    );
  }

  function recall(experiment) {
    const { server: decider = server, arm, payload, report } = load(store, `whitelie.sticky.${experiment}`) ?? {};
    if (decider === server && isText(arm, Infinity)) return choice(arm, payload, report && REPORT + report);
  }

  async function findAnew(experiment, signal, sticky) {
    const url = `${server}/v1/experiments/${encodeURIComponent(experiment)}/decisions`;
    const response = await post(url, {}, signal, { Authorization: `Bearer ${key}` });
    if (response.status !== 200) throw `status ${response.status}`;
    const { decisions } = JSON.parse(await response.text());
    if (decisions.length !== 1 || !isDecision(decisions[0])) throw Error();
    signal.throwIfAborted();
    return take(experiment, decisions[0], sticky);
  }

  async function withTimeout(milliseconds, job) {
    const aborter = new AbortController();
    const { signal } = aborter;
    const late = new Promise((_, reject) => (signal.onabort = () => reject(signal.reason)));
    const timeoutTimer = setTimeout(() => aborter.abort("no answer in time"), milliseconds);
    try {
      return await Promise.race([job(signal), late]);
    } finally {
      clearTimeout(timeoutTimer);
      aborter.abort(); // nobody reads the answer to a report
    }
  }

  function post(url, body, signal, headers) {
    return fetch(url, {
      method: "POST",
      headers,
      body: JSON.stringify(body), // as plain text: a report needs no preflight
      credentials: "omit",
      referrerPolicy: "no-referrer", // it could say where a click has led
      redirect: "error", // nobody else may have it
      signal,
    });
  }

  function take(experiment, decision, sticky) {
    const { arm, payload } = decision;
    let chosen = choice(arm, payload);
    attempt(() => {
      const known = sticky && recall(experiment);
      if (known) chosen = known;
      if (known || !consents()) return;
      const report = isPrivate(decision.mechanism) ? keep(experiment, decision) : null;
      chosen = choice(arm, payload, report && REPORT + report);
      if (sticky) save(store, `whitelie.sticky.${experiment}`, { server, arm, payload, report });
    });
    return chosen;
  }

  function consents() {
    try {
      return (typeof consent === "function" ? consent() : consent) === true;
    } catch {
      warn("consent throws, which is none");
      return false;
    }
  }

  function isPrivate({ p00, p11, spread }) {
    const cost = epsilon(thresholds(p00, p11));
    if (!(cost <= maxEpsilon * TOLERANCE)) return warn("no report: lower epsilon, or raise maxEpsilon");
    if (!(spread >= minSpread)) return warn("no report: raise spread, or lower minSpread");
    return true;
  }

  // Bits and time are drawn before the outcome is known.
  function keep(experiment, { arm, token, mechanism: { p00, p11, window, spread }, expires_in }) {
    const [word0, word1, word2, word3] = words(4);
    const coin = thresholds(p00, p11);
    const bits = flip([word0, word1], coin);
    const decided = now();
    const until = decided + 1000 * window;
    const due = immediate ? until : decided + delay(window, spread, word2 >> 32n);
    const expires = decided + 1000 * expires_in;
    const id = BigInt.asUintN(96, (word2 << 64n) | word3)
      .toString(16)
      .padStart(24, "0");
    const times = { decided, until, due, expires };
    const report = { server, experiment, arm, token, bits, bit: bits[0], ...times, sending: rule };
    if (!charge(store, id, limit, decided, epsilon(coin))) return null;
    try {
      save(store, REPORT + id, report);
    } catch (error) {
      erase(REPORT + id);
      throw error;
    }
    schedule();
    longDue ??= due + DAY;
    if (decided > longDue && rule === "next-visit") {
      warn('reports wait for the next start: a program that runs anyway sets sending to "when-due"');
    }
    return id;
  }

  // The report first: it must not lack its charge.
  function erase(name) {
    store.removeItem(name);
    store.removeItem(name.replace(REPORT, CHARGE));
  }

  function latestReport(experiment) {
    const [newest] = reportNames()
      .map((name) => ({ ...load(store, name), name }))
      .filter((report) => report.server === server && report.experiment === experiment)
      .sort((a, b) => b.decided - a.decided);
    return newest?.name;
  }

  // Consent first: nothing may come between reading and writing.
  function rewardReport(name) {
    if (!consents()) return;
    const at = now();
    const report = load(store, name);
    if (!(at <= report?.until)) return;
    report.bit = report.bits[1];
    const isEarly = immediate && report.sending === "when-due";
    if (isEarly) report.due = at;
    save(store, name, report);
    if (isEarly) flush();
  }

  // A clock that was set back holds no report. Other tabs, or the disk, have the last reward by then.
  function read(name) {
    const report = load(store, name) ?? {};
    if (!isReport(report)) return {};
    const ahead = Math.max(report.decided - now(), 0);
    for (const time of TIMES) report[time] -= ahead;
    const { due, until } = report;
    const isTimed = report.sending === "when-due";
    const { failed, wait } = retries.get(name) ?? {};
    const first = due < until ? due : Math.max(due, until + (isTimed ? 1000 : 60_000));
    return { report, ahead, isTimed, at: failed <= now() ? Math.max(first, failed + wait) : first };
  }

  // All at once: none waits for the answer to another.
  async function sendAll(isNoted, holdLock) {
    const agreed = consents();
    const waiting = (attempt(reportNames) ?? []).filter((name) => noted.has(name) === isNoted);
    const fail = (name) => postpone(name, STORAGE_FAILS);
    try {
      if (agreed) overCap(store, limit, now()).forEach(erase);
      await Promise.all(waiting.map((name) => send(name, agreed, holdLock).catch(() => fail(name))));
    } catch {
      waiting.forEach(fail);
    }
  }

  async function send(name, agreed, holdLock) {
    const { report, ahead, isTimed, at } = read(name);
    if (!(now() <= report?.expires)) return store.removeItem(name);
    if (!agreed) return;
    if (ahead) save(store, name, report);
    if (now() < at || !(isTimed || noted.delete(name))) return;
    holdLock();
    const { status, headers } = await deliver(name, report);
    if (![200, 410, 422].includes(status)) return postpone(name, NOT_TAKEN, headers?.get("Retry-After"));
    if (status === 422) warn("a report was refused: is the token secret lost?");
    store.removeItem(name);
    retries.delete(name);
  }

  // The other bit is gone before this one leaves: a retry sends the same.
  async function deliver(name, report) {
    const { token, bit } = report;
    save(store, name, { ...report, bits: [bit, bit] });
    const url = `${report.server}/v1/feedback`;
    return withTimeout(30_000, (signal) => post(url, { token, bit }, signal)).catch(() => ({}));
  }

  function postpone(name, failure, asked) {
    warn(failure);
    const backoff = Math.min(2 * (retries.get(name)?.backoff ?? 2500), DAY / 24);
    retries.set(name, { backoff, wait: Math.max(backoff, 1000 * asked || 0), failed: now() });
  }

  function schedule() {
    clearTimeout(timer);
    if (rule === "next-visit" || !consents()) return;
    const times = attempt(() =>
      reportNames()
        .map(read)
        .map(({ isTimed, at }) => (isTimed ? at : Infinity)),
    );
    const next = Math.min(...(times ?? []));
    if (next < Infinity) timer = setTimeout(flush, Math.min(next - now(), 2 ** 31 - 1));
  }

  server = String(server).replace(/\/+$/, "");
  if (immediate) warn("the time of a report reveals its outcome: turn off immediate");
  if (![rule, "next-visit"].includes(sending)) warn('unknown sending: it is "next-visit"');
  const noted = dueAtLoad.get(store) ?? new Set();
  const noteDue = () => {
    dueAtLoad.set(store, noted);
    for (const name of reportNames()) {
      const { isTimed, at } = read(name);
      if (!isTimed && at <= now()) noted.add(name);
    }
  };
  if (!dueAtLoad.has(store)) attempt(noteDue); // another client on the page is no visit
  flush();
  return { decide, reward, flush, forget };
}
