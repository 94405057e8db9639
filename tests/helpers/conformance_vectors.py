"""The vectors of clients/conformance.json, computed by the reference.

`make conformance-vectors` writes the file; a test compares it with what is computed.
"""

import json
import math
import random
from fractions import Fraction
from typing import Any

from helpers.paths import ROOT
from whitelie.channel import RandomizedResponse, coin

FILE = ROOT / "clients/conformance.json"
DAY = 24 * 60 * 60
MILLISECONDS = 1000
LARGEST = 2**64 - 1
TOLERANCE = Fraction(1) + Fraction(1, 10**9)

HALF = 0.5
ABOVE_HALF = math.nextafter(HALF, 1)
BELOW_HALF = math.nextafter(HALF, 0)
BELOW_ONE = math.nextafter(1.0, 0)
EXACT = 2.0**-12
"""From here up every double is a whole number of 2^-64ths."""


def private(epsilon: float) -> tuple[float, float]:
    channel = RandomizedResponse.from_epsilon(epsilon)
    return channel.p00, channel.p11


def asymmetric(epsilon0: float, epsilon1: float) -> tuple[float, float]:
    channel = RandomizedResponse.from_epsilons(epsilon0=epsilon0, epsilon1=epsilon1)
    return channel.p00, channel.p11


COINS = [
    private(1),
    tuple(math.nextafter(p, 1) for p in private(1)),
    *(private(epsilon) for epsilon in (1e-6, 0.1, 0.25, 0.5, math.log(3), 2, 8, 36)),
    asymmetric(0.5, 1),
    asymmetric(math.inf, 1),
    asymmetric(1, math.inf),
    (0.95, 0.55),
    (2 / 3, 5 / 6),
    (0.1, 0.1),
    (0.45, 0.3),
    (0.0, 0.0),
    (1.0, 1.0),
    (1.0, 0.5),
    (0.5, 1.0),
    (0.0, 1.0),
    (1.0, 0.0),
    (0.5, 0.5),
    (ABOVE_HALF, ABOVE_HALF),
    (BELOW_HALF, BELOW_HALF),
    (BELOW_HALF, HALF),
    (HALF, ABOVE_HALF),
    (BELOW_ONE, BELOW_ONE),
    (1e-30, 0.9),
    (0.9, 1e-30),
    (1e-30, 1e-30),
    (5e-324, 1.0),
    (2.0**-64, 0.75),
    (math.nextafter(2.0**-64, 1), 0.75),
    (math.nextafter(2.0**-12, 0), 0.5),
    (1.1e-4, 1.3e-7),
    (EXACT, 1 - EXACT),
]
"""(p00, p11): increasing, decreasing, of slope 0, one-sided, and at the edges of rounding."""


def thresholds(p00: float, p11: float) -> tuple[int, int]:
    return coin.ONE - coin.threshold(p00), coin.threshold(p11)


def channels() -> list[Any]:
    vectors = []
    for p00, p11 in COINS:
        zero, one = thresholds(p00, p11)
        epsilon = coin.exact_epsilon(zero, one)
        vectors.append(
            {
                "p00": p00,
                "p11": p11,
                "zero": str(zero),
                "one": str(one),
                "epsilon": epsilon if math.isfinite(epsilon) else None,
            }
        )
    return vectors


def words(p00: float, p11: float, draw: random.Random) -> list[tuple[int, int]]:
    """Words on both sides of each threshold, the ends, and any."""
    zero, one = thresholds(p00, p11)
    near = [(zero - 1, one - 1), (zero, one), (0, 0), (LARGEST, LARGEST), (zero, one - 1)]
    inside = [(min(max(a, 0), LARGEST), min(max(b, 0), LARGEST)) for a, b in near]
    return [*inside, (draw.getrandbits(64), draw.getrandbits(64))]


def bits() -> list[Any]:
    draw = random.Random(1)
    chosen = [
        private(1),
        (0.45, 0.3),
        (1e-30, 0.9),
        (0.0, 1.0),
        (1.0, 0.0),
        (BELOW_HALF, BELOW_HALF),
    ]
    vectors = []
    for p00, p11 in chosen:
        zero, one = thresholds(p00, p11)
        for word0, word1 in words(p00, p11, draw):
            flipped = [
                coin.flip(zero, one, reward, word << 64)
                for reward, word in ((0, word0), (1, word1))
            ]
            vectors.append(
                {"p00": p00, "p11": p11, "words": [str(word0), str(word1)], "bits": flipped}
            )
    return vectors


def times() -> list[Any]:
    spans = [(0, 0), (60, 0), (0, 1), (0, 30), (600, 60), (60, 7 * DAY), (30 * DAY, 30 * DAY)]
    known = [0, 1, 2**31, 2**32 - 1, 2_863_311_531]
    return [
        {
            "window": window,
            "spread": spread,
            "word": word,
            "delay": MILLISECONDS * window
            + math.floor(Fraction(word * MILLISECONDS * spread, 2**32)),
        }
        for window, spread in spans
        for word in known
    ]


INSTANT = 1 / (DAY * MILLISECONDS)
"""A millisecond, in days."""

TODAY = 20_000
ONE = RandomizedResponse.from_epsilon(1).epsilon
CHARGE, LEDGER, REPORT = "whitelie.charge.", "whitelie.ledger", "whitelie.report."
KEPT_FOR = 40
"""Days."""

Charge = dict[str, Any]
Numbers = tuple[float, float]


def at(day: float) -> int:
    """Return the milliseconds of a day since 1970."""
    return round(day * DAY * MILLISECONDS)


def capped(cap: Numbers) -> dict[str, float]:
    return {"epsilon": cap[0], "days": cap[1]}


def charge(day: float, epsilon: float | None, cap: Numbers = (10, 1)) -> Charge:
    return {"at": at(day), "epsilon": epsilon, "cap": capped(cap)}


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def understood(text: str) -> Charge | None:
    """Return the charge of a text, if it is one."""
    try:
        charge = json.loads(text)
        cap = charge["cap"]
        numbers = [charge["at"], cap["epsilon"], cap["days"]]
        if charge["epsilon"] is not None:
            numbers.append(charge["epsilon"])
    except (ValueError, TypeError, KeyError):
        return None
    return charge if all(map(is_number, numbers)) else None


def spent_before(text: str) -> float | None:
    """Return what an item of earlier versions says was spent, if it is understood."""
    try:
        ledger = json.loads(text)
        sound = is_number(ledger["start"]) and is_number(ledger["spent"])
    except (ValueError, TypeError, KeyError):
        return None
    return ledger["spent"] if sound else None


def plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def read(stored: dict[str, str], cap: dict[str, float], now: int) -> dict[str, Charge]:
    """Return all charges by id as the contract reads them."""
    charges = {}
    for name, text in stored.items():
        if name.startswith(CHARGE):
            charge = understood(text) or {"at": now, "epsilon": None, "cap": cap}
            charges[name.removeprefix(CHARGE)] = charge | {"at": min(charge["at"], now)}
    return charges


def pruned(stored: dict[str, str], cap: dict[str, float], now: int) -> dict[str, Charge]:
    """Return the charges that are left when a client charges: young ones, and of what waits."""
    charges = read(stored, cap, now)
    if LEDGER in stored:
        earlier = charges.get("ledger", {"epsilon": 0})["epsilon"]
        spent = plus(earlier, spent_before(stored[LEDGER]))
        charges["ledger"] = {"at": now, "epsilon": spent, "cap": cap}
    spans = [each["cap"]["days"] for each in charges.values()]
    oldest = now - max(KEPT_FOR, cap["days"], *spans) * DAY * MILLISECONDS
    return {
        key: each for key, each in charges.items() if each["at"] > oldest or REPORT + key in stored
    }


def fits(others: list[Charge], own: Charge) -> bool:
    """Return whether a charge, with others in the span that it ends, is within its own cap."""
    start = own["at"] - Fraction(own["cap"]["days"]) * DAY * MILLISECONDS
    counted = [each["epsilon"] for each in others if each["at"] > start] + [own["epsilon"]]
    if None in counted:
        return False
    return sum(map(Fraction, counted)) <= Fraction(own["cap"]["epsilon"]) * TOLERANCE


def ledger(
    charges: list[tuple[float, float, Numbers]], stored: dict[str, Charge | str] | None = None
) -> Any:
    """A ledger: items stored before, and charges as (days since 1970, epsilon, cap)."""
    texts = _texts(stored or {})
    known, charged = texts, []
    for number, (day, epsilon, numbers) in enumerate(charges):
        now, cap = at(day), capped(numbers)
        after = pruned(known, cap, now)
        new = {"at": now, "epsilon": epsilon, "cap": cap}
        kept = fits([*after.values()], new)
        name = f"{number:024x}"
        charged.append({"id": name, "now": now, "epsilon": epsilon, "cap": cap, "kept": kept})
        if kept:
            after[name] = new
        known = _texts(
            {key: text for key, text in known.items() if key.startswith(REPORT)}
            | {CHARGE + key: each for key, each in after.items()}
        )
    after_all = {name: json.loads(text) for name, text in sorted(known.items())}
    return {"stored": texts, "charges": charged, "after": after_all}


def _texts(items: dict[str, Charge | str]) -> dict[str, str]:
    return {
        name: each if isinstance(each, str) else json.dumps(each) for name, each in items.items()
    }


WAITING: dict[str, Any] = {
    "server": "https://elsewhere.example",
    "experiment": "button",
    "arm": "green",
    "token": "token",
    "bits": [0, 1],
    "bit": 0,
    "decided": 0,
    "until": 0,
    "due": 0,
    "expires": 10**15,
    "sending": "next-visit",
}
"""A report of some other service."""


def waiting(name: str) -> str:
    return REPORT + name


DEFAULT: Numbers = (10, 1)
STRICT: Numbers = (3, 30)
NOT_UNDERSTOOD = [
    "",
    "null",
    "{",
    "[]",
    "7",
    "{}",
    '{"at": 0, "epsilon": 1}',
    '{"at": 0, "epsilon": -1, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": 0, "epsilon": NaN, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": 0, "epsilon": 1e999, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": 0, "epsilon": "1", "cap": {"epsilon": 10, "days": 1}}',
    '{"at": 0, "epsilon": true, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": null, "epsilon": 1, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": "0", "epsilon": 1, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": -1, "epsilon": 1, "cap": {"epsilon": 10, "days": 1}}',
    '{"at": 0, "epsilon": 1, "cap": null}',
    '{"at": 0, "epsilon": 1, "cap": {"epsilon": 10}}',
    '{"at": 0, "epsilon": 1, "cap": {"epsilon": -10, "days": 1}}',
    '{"at": 0, "epsilon": 1, "cap": {"epsilon": 10, "days": null}}',
]
OLD_NOT_UNDERSTOOD = [
    "",
    "null",
    "{",
    "[]",
    '{"start": 0}',
    '{"start": null, "spent": 1}',
    '{"start": 0, "spent": -5}',
    '{"start": 0, "spent": NaN}',
    '{"start": 0, "spent": "1"}',
    '{"start": 0, "spent": null}',
]


def ledgers() -> list[Any]:
    def many(
        count: int, epsilon: float, cap: Numbers, step: float = INSTANT
    ) -> list[tuple[float, float, Numbers]]:
        return [(TODAY + index * step, epsilon, cap) for index in range(count)]

    def once(*days: float, epsilon: float = 1, cap: Numbers = DEFAULT) -> Any:
        return [(TODAY + day, epsilon, cap) for day in days]

    one, other = CHARGE + "aa", CHARGE + "bb"
    old = {"start": at(TODAY - 0.5), "spent": 9.5}
    return [
        ledger(many(12, 1, DEFAULT)),
        ledger(many(12, ONE, DEFAULT)),
        ledger(many(11, math.nextafter(1, 2), DEFAULT)),
        ledger(many(12, 0.1, (1, 1))),
        ledger([(TODAY, 0.1, (0.3, 1)), (TODAY, 0.2, (0.3, 1)), (TODAY, 1e-6, (0.3, 1))]),
        ledger(once(0, epsilon=1 + 5e-10, cap=(1, 1))),
        ledger(once(0, epsilon=1 + 2e-9, cap=(1, 1))),
        ledger([(TODAY, cost, (1, 1)) for cost in (1.5, 1, 0.001)]),
        ledger(once(0, 0, epsilon=0, cap=(0, 1))),
        # The span slides: a charge counts for as long as it is younger than the span.
        ledger([(TODAY, 2, (2, 1)), *once(1 - INSTANT, 1, 1.5, cap=(2, 1))]),
        ledger(many(12, 1, (2, 1), 0.25)),
        ledger(many(12, 1.25, (5, 0.5), 0.1)),
        ledger(many(5, 1, (2, 30), 12)),
        # Around any change of days no more than the cap is kept.
        ledger([*once(*[0.9] * 3, cap=(3, 1)), *once(*[1.1] * 3, 1.9, cap=(3, 1))]),
        # Several caps on the same charges: each looks at its own span.
        ledger([*many(3, 1, STRICT), *once(0.1, 0.2, 1.3), *once(1.4, 29, cap=STRICT)]),
        ledger([*once(0, 1, 2), *once(3, cap=STRICT), *once(30.5, 30.6, 31.5, cap=STRICT)]),
        ledger([*once(0, 0), *once(0.1, cap=(2, 1)), *once(0.1, cap=STRICT), *once(0.1)]),
        # The clock was set back by a second, by ten days, and forward and back.
        ledger([(TODAY, 2, (2, 1)), *once(-1 / DAY, 1 - 1 / DAY, cap=(2, 1))]),
        ledger([(TODAY, 2, (2, 1)), *once(-10, -9.5, -9, cap=(2, 1))]),
        ledger([(TODAY, 2, (2, 1)), *once(300, 0, 0, 0.5, cap=(2, 1))]),
        ledger(once(0), {one: charge(TODAY + 9, 5), other: charge(TODAY - 9, 5)}),
        # What is older than 40 days and all spans is removed, and nothing younger.
        ledger(once(0), {one: charge(TODAY - 40, 1), other: charge(TODAY - 40 + INSTANT, 1)}),
        ledger(once(0), {one: charge(TODAY - 500, 1), other: charge(TODAY, 1, (3, 501))}),
        ledger(once(0, cap=(3, 501)), {one: charge(TODAY - 500, 2.5), other: charge(0, 1)}),
        # Except what was charged for a report that still waits.
        ledger(once(0), {one: charge(TODAY - 50, 1), waiting("aa"): WAITING, other: charge(0, 1)}),
        ledger(once(0), {one: charge(TODAY - 50, 1), waiting("bb"): WAITING, other: charge(0, 1)}),
        ledger(once(0), {one: charge(TODAY - 50, 1), waiting("aa"): "null"}),
        ledger(once(0, cap=(3, 90)), {one: charge(TODAY - 95, 3), waiting("aa"): WAITING}),
        # More than any cap.
        ledger(once(0, 1, cap=(1e6, 1)), {one: charge(TODAY, None)}),
        ledger(once(0, epsilon=0, cap=(1e6, 2)), {one: charge(TODAY - 1, None)}),
        *(ledger(once(0, 0.5, 1), {one: text}) for text in NOT_UNDERSTOOD),
        # An item of earlier versions.
        ledger(once(0, 0.5, 1), {LEDGER: json.dumps(old)}),
        ledger(once(0, 0.5, epsilon=0.25), {LEDGER: json.dumps(old)}),
        ledger(once(0), {LEDGER: json.dumps(old | {"start": at(TODAY + 9)})}),
        ledger(once(0), {LEDGER: json.dumps(old | {"spent": 0})}),
        # An earlier version that still runs beside this one has begun another.
        ledger(once(0, 0.5), {LEDGER: json.dumps(old), CHARGE + "ledger": charge(TODAY - 0.1, 1)}),
        ledger(once(0, 1), {LEDGER: json.dumps(old), CHARGE + "ledger": charge(TODAY - 5, None)}),
        *(ledger(once(0, 1), {LEDGER: text}) for text in OLD_NOT_UNDERSTOOD),
    ]


def sending(stored: dict[str, Charge | str], waits: list[str], day: float = TODAY) -> Any:
    """What is erased before anything is sent: the reports that are over their caps."""
    texts = _texts(
        {CHARGE + key: each for key, each in stored.items()}
        | {waiting(name): WAITING for name in waits}
    )
    now = at(day)
    charges = read(texts, capped(DEFAULT), now)

    def place(key: str) -> tuple[bool, float, str]:
        return key != "ledger", charges[key]["at"], key

    erased = []
    for name in sorted(waits):
        own = charges.get(name)
        if own is None:
            continue
        before = [each for key, each in charges.items() if place(key) < place(name)]
        if not fits(before, own):
            erased.append(name)
    return {"stored": texts, "now": now, "erased": erased}


def sendings() -> list[Any]:
    tabs: dict[str, Charge | str] = {f"{number:02x}": charge(TODAY, 1) for number in range(11)}
    pair: dict[str, Charge | str] = {"aa": charge(TODAY - 1, 2, (3, 30))}
    tight = (1, 1)
    race: dict[str, Charge | str] = {name: charge(TODAY, 1, tight) for name in ("aa", "bb", "cc")}
    back: dict[str, Charge | str] = {
        "zz": charge(TODAY, 1, tight),
        "aa": charge(TODAY + INSTANT, 1, tight),
    }

    def old(ledger: Charge | str) -> dict[str, Charge | str]:
        return {"ledger": ledger}

    new: dict[str, Charge | str] = {"aa": charge(TODAY, 1), "bb": charge(TODAY + INSTANT, 1)}
    return [
        sending(tabs, [*tabs]),
        sending(tabs, ["0a"]),
        sending(tabs, ["09"]),
        sending(tabs, [*tabs], TODAY + 5),
        sending(tabs | {"ff": charge(TODAY - INSTANT, 1)}, [*tabs, "ff"]),
        sending(tabs, ["unknown"]),
        sending({"aa": charge(TODAY, 1 + 5e-10, tight)}, ["aa"]),
        sending({"aa": charge(TODAY, 1 + 2e-9, tight)}, ["aa"]),
        # Its own cap and its own span, whatever the caps of others are.
        sending(pair | {"bb": charge(TODAY, 2, (3, 1))}, ["aa", "bb"]),
        sending(pair | {"bb": charge(TODAY, 2, (3, 2))}, ["aa", "bb"]),
        sending(pair | {"bb": charge(TODAY, 2, (4, 2))}, ["aa", "bb"]),
        # It counts itself, also in a span of no days.
        sending({"aa": charge(TODAY, 1, (1, 0)), "bb": charge(TODAY, 2, (1, 0))}, ["aa", "bb"]),
        # Nothing is pruned, however old it is.
        sending(race, [*race], TODAY + 39),
        sending(race, [*race], TODAY + 41),
        sending(race, ["bb"], TODAY + 399),
        sending({"aa": charge(1, 1, tight), "bb": charge(1, 1, tight)}, ["aa", "bb"]),
        # What is erased counts all the same for what is erased with it.
        sending(race | {"bb": charge(TODAY, 1, (2, 1)), "dd": charge(TODAY, 1, (3, 1))}, ["dd"]),
        sending(race | {"dd": charge(TODAY, 1, (3, 1))}, [*race, "dd"]),
        # The clock was set back: all are of now, in the order of their ids.
        sending({"aa": charge(TODAY, 2, (3, 1)), "bb": charge(TODAY + 3, 2)}, ["aa"], TODAY - 9),
        sending({"aa": charge(TODAY + 3, 2), "bb": charge(TODAY, 2, (3, 1))}, ["bb"], TODAY - 9),
        sending(back, ["aa", "zz"], TODAY + 1),
        sending(back, ["aa", "zz"], TODAY - 1),
        # What earlier versions spent comes before all, whenever it was found.
        sending(old(charge(TODAY + INSTANT, 9)) | new, ["aa", "bb"], TODAY + 1),
        sending(old(charge(TODAY + INSTANT, 9)) | new, ["bb"], TODAY + 1),
        sending(old(charge(TODAY + 3, 10)) | new, ["aa", "bb"], TODAY + 4),
        sending(old(charge(TODAY - 2, 10)) | new, ["aa", "bb"], TODAY + 1),
        sending(old("null") | new, ["aa", "bb"], TODAY + 9),
        # More than any cap: before it, after it, and itself.
        sending({"aa": charge(TODAY, None), "bb": charge(TODAY, 1)}, ["bb"]),
        sending({"aa": charge(TODAY, 1), "bb": charge(TODAY, None)}, ["aa"]),
        sending({"aa": charge(TODAY, None)}, ["aa"]),
        *(sending({"aa": text}, ["aa"]) for text in ("", "null", NOT_UNDERSTOOD[7])),
        sending({"aa": charge(TODAY - 1, 1), "00": "null"}, ["aa"]),
    ]


ARMS = [(0, False), (1, True), (1000, True), (1001, False)]
TOKENS = [(0, False), (4096, True), (4097, False)]


def answer(is_understood: bool, **changes: Any) -> Any:
    """An answer to the question for a decision; a change of ... leaves a field out."""
    mechanism: dict[str, Any] = {"p00": 0.75, "p11": 0.75, "window": 60, "spread": 60}
    decision: dict[str, Any] = {
        "arm": "green",
        "payload": None,
        "token": "token",
        "expires_in": 90_000,
    }
    for name, value in changes.items():
        (mechanism if name in mechanism else decision)[name] = value
    known = {name: each for name, each in mechanism.items() if each is not ...}
    decided = {name: each for name, each in decision.items() if each is not ...}
    body = json.dumps({"decisions": [decided | {"mechanism": known}]})
    return {"body": body, "understood": is_understood}


def answers() -> list[Any]:
    longest = 400 * DAY
    sound = answer(True)["body"]
    one = sound.removeprefix('{"decisions": [').removesuffix("]}")
    said = [("", False), ("null", False), ("[]", False), ('{"decisions": null}', False)]
    said += [(f'{{"decisions": [{", ".join([one] * count)}]}}', count == 1) for count in range(3)]
    said += [(sound.replace("0.75", text, 1), False) for text in ("NaN", "1e999", "true", '"1"')]
    said += [(sound.replace("null", text, 1), False) for text in ("NaN", "Infinity")]
    said += [(sound.replace('w": 60', f'w": {text}'), True) for text in ("60.0", "6e1")]
    said += [(sound.replace('w": 60', f'w": {text}'), False) for text in ("60.5", "1e999", "true")]
    return [
        answer(True),
        answer(True, payload=...),
        answer(True, payload={"colour": [1, None]}),
        *(answer(is_understood, arm="a" * length) for length, is_understood in ARMS),
        *(answer(is_understood, token="t" * length) for length, is_understood in TOKENS),
        *(answer(False, **{name: None}) for name in ("arm", "token", "p00", "window", "spread")),
        *(answer(False, **{name: ...}) for name in ("arm", "token", "p11", "expires_in")),
        *(answer(False, **{name: -1}) for name in ("p00", "window", "spread", "expires_in")),
        *(answer(True, **{name: longest}) for name in ("window", "spread", "expires_in")),
        *(answer(False, **{name: longest + 1}) for name in ("window", "spread", "expires_in")),
        answer(True, p00=0, p11=1, window=0, spread=0, expires_in=0),
        answer(False, arm=7),
        *({"body": body, "understood": is_understood} for body, is_understood in said),
    ]


def computed() -> dict[str, list[Any]]:
    """All vectors."""
    return {
        "channels": channels(),
        "bits": bits(),
        "times": times(),
        "ledgers": ledgers(),
        "sendings": sendings(),
        "answers": answers(),
    }


def text() -> str:
    """The file: one vector a line."""
    lists = []
    for name, vectors in computed().items():
        lines = ",\n".join("    " + json.dumps(vector, allow_nan=False) for vector in vectors)
        lists.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(lists) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
