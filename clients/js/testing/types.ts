// A page's program as TypeScript sees the package: `make lint` compiles it, and nothing runs it. Each
// error that it expects is a negative control: the compiler fails where it accepts the next line.

import {
  type Cap,
  type Choice,
  charge,
  type DecideOptions,
  delay,
  epsilon,
  flip,
  type Options,
  overCap,
  type Store,
  type Testing,
  type Thresholds,
  thresholds,
  Whitelie,
} from "whitelie";

/** Accepts a value only if its type is exactly `Expected`; `any` is exactly itself alone. */
function isExactly<Expected>() {
  return <Actual>(
    _value: Actual,
    ..._same: (<T>() => T extends Actual ? 1 : 2) extends <T>() => T extends Expected ? 1 : 2 ? [] : [never]
  ): void => {};
}

const cap: Cap = { epsilon: 10, days: 1 };
const memory = new Map<string, string>();
const store: Store = {
  getItem: (name) => memory.get(name),
  setItem: (name, text) => void memory.set(name, text),
  removeItem: (name) => void memory.delete(name),
  keys: () => memory.keys(),
};
const testing: Testing = {
  words: (count) => new BigUint64Array(count),
  now: () => 0,
  fetch: globalThis.fetch,
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
};
const every: Required<Options> = {
  server: "https://decide.example",
  key: "pk_key",
  maxEpsilon: 1,
  minSpread: 30,
  cap: { epsilon: 5 },
  timeout: 1000,
  store,
  consent: () => true,
  sending: "when-due",
  immediate: false,
  testing,
};
const decideOptions: Required<DecideOptions> = {
  sticky: true,
  force: null,
  fallback: { arm: "plain", payload: { text: "Buy now" } },
};

const client = new Whitelie(every);
new Whitelie({ server: "https://decide.example", key: "pk_key" });
new Whitelie({ server: "https://decide.example", key: "pk_key", consent: false, store: localStorage });
new Whitelie({ server: "https://decide.example", key: "pk_key", sending: "next-visit", store: sessionStorage });

const choice = await client.decide("headline", decideOptions);
isExactly<Choice>()(choice);
isExactly<Choice>()(await client.decide("headline"));
isExactly<string | null>()(choice.arm);
// biome-ignore lint/suspicious/noExplicitAny: the type that is declared
isExactly<any>()(choice.payload);
isExactly<void>()(choice.reward(1));
choice.reward(0);
choice.reward(true);
isExactly<void>()(client.reward("headline"));
isExactly<Promise<void>>()(client.flush());
isExactly<void>()(client.forget());

const coin = thresholds(0.75, 0.75);
isExactly<Thresholds>()(coin);
isExactly<bigint>()(coin.zero);
isExactly<bigint>()(coin.one);
isExactly<number>()(epsilon(coin));
isExactly<[0 | 1, 0 | 1]>()(flip([1n, 2n], coin));
isExactly<number>()(delay(600, 300, 7));
isExactly<number>()(delay(600, 300, 7n));
isExactly<boolean>()(charge(store, "0f", cap, 0, 1));
isExactly<string[]>()(overCap(store, cap, 0));

// @ts-expect-error the check of types itself can fail
isExactly<number>()(choice.arm);
// @ts-expect-error a client needs a server and a key
new Whitelie({ server: "https://decide.example" });
// @ts-expect-error an option that does not exist
new Whitelie({ ...every, maxEpsilons: 1 });
// @ts-expect-error a way of sending that does not exist
new Whitelie({ ...every, sending: "at-once" });
// @ts-expect-error consent is a boolean or a function
new Whitelie({ ...every, consent: "yes" });
// @ts-expect-error a store can also remove
new Whitelie({ ...every, store: { getItem: store.getItem, setItem: store.setItem } });
// @ts-expect-error an option of a decision that does not exist
client.decide("headline", { stick: true });
// @ts-expect-error a rating is no outcome
choice.reward(5);
// @ts-expect-error only a choice takes the outcome
client.reward("headline", 0);
// @ts-expect-error a decision is a promise
client.decide("headline").arm;
// @ts-expect-error two words are needed
flip([1n], coin);
