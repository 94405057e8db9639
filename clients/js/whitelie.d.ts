/**
 * Where reports wait. `localStorage`, `sessionStorage` and objects like this one will do. A method that
 * fails throws; what it failed to do is remembered nowhere else.
 */
export interface Store {
  getItem(name: string): string | null | undefined;
  setItem(name: string, text: string): void;
  removeItem(name: string): void;
  /** All names; a `Storage` needs none. */
  keys?(): Iterable<string>;
}

/**
 * The most epsilon that all reports of the device may cost together in the `days` before a decision: what
 * would make it more is not reported.
 */
export interface Cap {
  epsilon: number;
  days: number;
}

/** For tests only: bits drawn from these words are NOT private. */
export interface Testing {
  /** So many 64-bit words: word0 and word1 for the bits; of word2 the upper half for the time. */
  words?(count: number): Iterable<bigint>;
  /** Milliseconds. */
  now?(): number;
  fetch?: typeof fetch;
  setTimeout?(job: () => void, milliseconds: number): unknown;
  clearTimeout?(timer: unknown): void;
}

export interface Options {
  /** Address of the service. */
  server: string;
  /** Publishable key. */
  key: string;
  /** The largest epsilon per report; 1 by default. */
  maxEpsilon?: number;
  /** The least spread in seconds; 30 by default. */
  minSpread?: number;
  /** `{ epsilon: 10, days: 1 }` by default. */
  cap?: Partial<Cap>;
  /** Milliseconds to wait for a decision; 1000 by default. */
  timeout?: number;
  /** `localStorage` by default. */
  store?: Store;
  /**
   * Whether anything may be stored and sent: only `true`, the default, is consent. Asked at every
   * decision, at every reward and before reports are sent.
   */
  consent?: boolean | (() => boolean);
  /**
   * When the reports of this client leave. `"next-visit"`, the default: at the first page load after they
   * are due, so that their time does not tell how long anybody stayed. `"when-due"`: by a timer, if the page is
   * still open; for programs that run whether anybody is there or not.
   */
  sending?: "next-visit" | "when-due";
  /** A downgrade: a report leaves when its outcome is known, so that its time reveals the outcome. */
  immediate?: boolean;
  /** For tests only: replaces the clock, the network and the source of secrets. */
  testing?: Testing;
}

export interface DecideOptions {
  /** Keep the first choice on this device. */
  sticky?: boolean;
  /** An arm to show for testing; nothing is asked or reported. */
  force?: string | null;
  /** What to show when the service gives no answer. */
  fallback?: { arm?: string | null; payload?: unknown };
}

export interface Choice {
  arm: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON, which only the page that shows it can type
  payload: any;
  /** Says that the outcome was 1. What comes after the window changes nothing, nor does a 0. */
  reward(outcome: 0 | 1 | boolean): void;
}

/** A client. The first one of a page load sends at once what is due from former visits. */
export class Whitelie {
  constructor(options: Options);
  /** Resolves to what is to be shown; never rejects. */
  decide(experiment: string, options?: DecideOptions): Promise<Choice>;
  /** Says that the outcome of the latest decision of an experiment was 1, also after a reload. */
  reward(experiment: string): void;
  /**
   * Sends what was due at the page load and was not tried for lack of consent, and of reports under
   * `"when-due"` all that is due. Never rejects.
   */
  flush(): Promise<void>;
  /**
   * Erases all that clients have stored on this origin: reports that wait, sticky choices, charges. The
   * cap begins anew. What has left cannot be erased.
   */
  forget(): void;
}

/** Chances of a 1 in 2^-64ths: `zero` if the outcome is 0, `one` if it is 1. */
export interface Thresholds {
  zero: bigint;
  one: bigint;
}

/** The coin that keeps an outcome 0 with probability p00, and an outcome 1 with p11. */
export function thresholds(p00: number, p11: number): Thresholds;

/** The largest |ln| of the ratios of chances: how far one report can move anybody's odds. */
export function epsilon(coin: Thresholds): number;

/** The noisy bits RR(0) and RR(1), from two secret 64-bit words. */
export function flip(words: [bigint, bigint], coin: Thresholds): [0 | 1, 0 | 1];

/** Milliseconds from decision to report, from a secret 32-bit word; the rest is in seconds. */
export function delay(window: number, spread: number, word: number | bigint): number;

/**
 * Stores a charge for the report `id` if the cap allows it beside all charges within its span, and says
 * whether it did; `at` in milliseconds.
 */
export function charge(store: Store, id: string, cap: Cap, at: number, cost: number): boolean;

/**
 * Names of the waiting reports that are over the cap that they were charged under, beside the charges
 * before them. A report without a charge is not. `cap` is that of charges that are not understood.
 */
export function overCap(store: Store, cap: Cap, at: number): string[];
