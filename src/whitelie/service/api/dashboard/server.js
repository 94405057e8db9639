// The service: requests with the key, refusals as errors, results as a stream.

const KEY_STORAGE_NAME = "whitelie key";
const SILENCE_TIMEOUT_MS = 40_000; // the service is never silent for more than 15 seconds
const MAX_RETRY_DELAY_MS = 30_000;

/** A refusal by the service; `field` names the field at fault if there is one. */
export class Refused extends Error {
  constructor(status, { code, message, field = null }) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

/** The key lives as long as the tab, and is sent in a header only. */
export const key = {
  get text() {
    return sessionStorage.getItem(KEY_STORAGE_NAME);
  },
  keep(text) {
    sessionStorage.setItem(KEY_STORAGE_NAME, text);
  },
  forget() {
    sessionStorage.removeItem(KEY_STORAGE_NAME);
  },
  get isAdmin() {
    return Boolean(this.text?.startsWith("ak_"));
  },
};

/** Return the path of an experiment, or of what lies under it. */
export const pathOf = (id, rest = "") => `/v1/experiments/${encodeURIComponent(id)}${rest}`;

/** Send a request and return what the service answers, or throw why it refused. */
export async function request(method, path, { body, headers = {}, signal, as = "json" } = {}) {
  const options = { method, signal, cache: "no-store", headers: { ...authorization(), ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const response = await fetchChecked(path, options);
  return response.status === 204 ? null : response[as]();
}

/**
 * Call `onResults` with the results of an experiment whenever they change, until the signal aborts.
 *
 * A broken connection is retried with a delay that doubles, and that is one second again once an event
 * has come. `onState` gets "live", or the milliseconds until the next retry.
 */
export async function streamResults(id, { onResults, onState, onRefused, signal }) {
  let retryDelay = 1000;
  while (!signal.aborted) {
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end);
    let silenceTimer;
    const onActivity = () => {
      clearTimeout(silenceTimer);
      silenceTimer = setTimeout(end, SILENCE_TIMEOUT_MS);
    };
    try {
      onActivity();
      const options = { headers: authorization(), signal: connection.signal, cache: "no-store" };
      const response = await fetchChecked(pathOf(id, "/stream"), options);
      onState("live");
      for await (const event of events(response.body, onActivity)) {
        retryDelay = 1000;
        if (event.name === "results") onResults(JSON.parse(event.data));
      }
    } catch (error) {
      if (error instanceof Refused && [401, 403, 404].includes(error.status) && !signal.aborted) {
        onRefused(error);
        return;
      }
    } finally {
      clearTimeout(silenceTimer);
      signal.removeEventListener("abort", end);
    }
    if (signal.aborted) return;
    onState(retryDelay);
    await pause(retryDelay * (0.75 + Math.random() / 2), signal);
    retryDelay = Math.min(2 * retryDelay, MAX_RETRY_DELAY_MS);
  }
}

/** Yield server-sent events; comments call `onActivity` only. */
export async function* events(body, onActivity = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onActivity();
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const event = { name: "message", data: "" };
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}

/** Wait, but not longer than until the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}

const authorization = () => (key.text ? { Authorization: `Bearer ${key.text}` } : {});

async function fetchChecked(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(
    response.status,
    said.error ?? { code: "unknown", message: `The server answers ${response.status}.` },
  );
}
