// The service: requests with the key, refusals as errors, results as they come.

const KEPT = "whitelie key"
const QUIET = 40_000 // milliseconds; the service is never silent for more than 15 seconds
const LONGEST_WAIT = 30_000

/** What the service has refused, by the field at fault if there is one. */
export class Refused extends Error {
  constructor(status, { code, message, field = null }) {
    super(message)
    Object.assign(this, { status, code, field })
  }
}

/** The key lives as long as the tab, and is sent in a header only. */
export const key = {
  get text() {
    return sessionStorage.getItem(KEPT)
  },
  keep(text) {
    sessionStorage.setItem(KEPT, text)
  },
  forget() {
    sessionStorage.removeItem(KEPT)
  },
  get isAdmin() {
    return Boolean(this.text?.startsWith("ak_"))
  },
}

/** Return the path of an experiment, or of what lies under it. */
export const pathOf = (id, rest = "") => `/v1/experiments/${encodeURIComponent(id)}${rest}`

/** Send a request and return what the service answers, or throw why it refused. */
export async function ask(method, path, { body, headers = {}, signal, as = "json" } = {}) {
  const options = { method, signal, cache: "no-store", headers: { ...authorization(), ...headers } }
  if (body !== undefined) {
    options.body = JSON.stringify(body)
    options.headers["Content-Type"] = "application/json"
  }
  const response = await fetched(path, options)
  return response.status === 204 ? null : response[as]()
}

/**
 * Hand over the results of an experiment whenever they change, until the signal aborts.
 *
 * A lost connection is made anew after a while that doubles, and begins at a second again once
 * something has come. `onState` hears "live", or in how many milliseconds it is tried again.
 */
export async function watch(id, { onResults, onState, onRefused, signal }) {
  let wait = 1000
  while (!signal.aborted) {
    const line = new AbortController()
    const end = () => line.abort()
    signal.addEventListener("abort", end)
    let silence
    const heard = () => {
      clearTimeout(silence)
      silence = setTimeout(end, QUIET)
    }
    try {
      heard()
      const options = { headers: authorization(), signal: line.signal, cache: "no-store" }
      const response = await fetched(pathOf(id, "/stream"), options)
      onState("live")
      for await (const event of events(response.body, heard)) {
        wait = 1000
        if (event.name === "results") onResults(JSON.parse(event.data))
      }
    } catch (error) {
      if (error instanceof Refused && [401, 403, 404].includes(error.status) && !signal.aborted) {
        onRefused(error)
        return
      }
    } finally {
      clearTimeout(silence)
      signal.removeEventListener("abort", end)
    }
    if (signal.aborted) return
    onState(wait)
    await pause(wait * (0.75 + Math.random() / 2), signal)
    wait = Math.min(2 * wait, LONGEST_WAIT)
  }
}

/** Yield server-sent events; comments are heard and left out. */
export async function* events(body, heard = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ""
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    heard()
    const parts = (text + value).split("\n\n")
    text = parts.pop()
    for (const part of parts) {
      const event = { name: "message", data: "" }
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7)
        if (line.startsWith("data: ")) event.data += line.slice(6)
      }
      if (event.data) yield event
    }
  }
}

/** Wait, but not longer than until the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener("abort", end)
      resolve()
    }
    const timer = setTimeout(end, milliseconds)
    signal.addEventListener("abort", end)
  })
}

const authorization = () => (key.text ? { Authorization: `Bearer ${key.text}` } : {})

async function fetched(path, options) {
  const response = await fetch(path, options)
  if (response.ok) return response
  const said = await response.json().catch(() => ({}))
  throw new Refused(response.status, said.error ?? { code: "unknown", message: `The server answers ${response.status}.` })
}
