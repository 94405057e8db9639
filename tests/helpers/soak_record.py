"""What a soak has recorded, and the checks over it: each returns what is wrong, in sentences.

Times are seconds of the monotonic clock, which all processes of a machine share.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from helpers.service_process import Answer, Ledger
from whitelie.service.store.contract import Store

GUARD = 2.0
"""Seconds after a restart, once the service is ready again, in which nobody's wait is judged."""

SLOWEST = 0.25
"""Seconds that 99 of 100 honest requests may take at most, outside of restarts."""

GROWTH = 1.2
"""How many times its level at the start a process's memory may be."""

WARM_UP, LEVEL = 20.0, 10.0
"""Seconds of a process's life before its memory counts, and those after, which give the level."""

NO_ANSWER = 0
"""The status of a request that was lost, or not answered in time."""


class Request(NamedTuple):
    """An honest request: when it was sent, how long it took, and the status of its answer."""

    at: float
    seconds: float
    status: int


class ServerError(NamedTuple):
    """An answer of 500 or more, to whom, and for how many seconds it asks to wait."""

    kind: str
    status: int
    retry_after: int


@dataclass
class Heard:
    """What a process that makes traffic was told; `outcomes` are counted by kind of traffic."""

    ledger: Ledger = field(default_factory=Ledger)
    requests: list[Request] = field(default_factory=list)
    errors: list[ServerError] = field(default_factory=list)
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)

    def count(self, kind: str, outcome: str) -> None:
        """Count an outcome."""
        counted = self.outcomes.setdefault(kind, {})
        counted[outcome] = counted.get(outcome, 0) + 1

    def note_error(self, kind: str, answer: Answer) -> None:
        """Write down an answer if it says that the service failed."""
        if answer.status >= 500:
            self.errors.append(ServerError(kind, answer.status, retry_after(answer)))


class Outage(NamedTuple):
    """A restart: of what, from the kill until the service was ready again."""

    kind: str
    start: float
    end: float


@dataclass
class Life:
    """A process of the service: its role, since when it lives, and its resident bytes by time."""

    role: str
    born: float
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def level(self) -> float | None:
        """Its memory when it has warmed up, or None if it did not live that long."""
        ends = self.born + WARM_UP, self.born + WARM_UP + LEVEL
        sizes = [size for at, size in self.memory if ends[0] <= at < ends[1]]
        return median(sizes) if sizes else None

    @property
    def peak(self) -> int:
        """The most it had since its level was taken; 0 if it did not live that long."""
        first = self.born + WARM_UP + LEVEL
        return max((size for at, size in self.memory if at >= first), default=0)


@dataclass
class Record:
    """A soak: the first process heard is that of honest visitors, the others' are hostile.

    `planned` are the honest requests that should have been sent, and `kinds` the traffic and the
    restarts that should have been seen. `settled` are the reports that count once all in doubt were
    sent again. `noticed` is what was wrong on the way: processes that ended without being killed,
    errors in the log, counts that cannot be.
    """

    heard: list[Heard]
    planned: int
    kinds: Sequence[str]
    settled: int = 0
    outages: list[Outage] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)

    @property
    def judged(self) -> list[Request]:
        """The honest requests that no restart could have delayed."""
        return [each for each in self.heard[0].requests if not self._is_excused(each)]

    def _is_excused(self, request: Request) -> bool:
        end = request.at + request.seconds
        return any(each.start <= end and request.at <= each.end + GUARD for each in self.outages)


# Checks -----------------------------------------------------------------------------------------


def miscounted(ledger: Ledger, store: Path | Callable[[], Store]) -> list[str]:
    """What is stored otherwise than visitors were told; nothing may be in doubt any more."""
    open_ends = len(ledger.unknown | ledger.refused)
    faults = [f"{open_ends} reports are neither accepted nor duplicates"] if open_ends else []
    return faults + ledger.faults(store)


def failed(record: Record) -> list[str]:
    """Answers of 500 or more, but 503 with a Retry-After."""
    wrong = Counter(
        f"{error.kind} was told {error.status} with Retry-After {error.retry_after}"
        for heard in record.heard
        for error in heard.errors
        if error.status != 503 or error.retry_after < 1
    )
    return [f"{what}, {times} times" for what, times in wrong.items()]


def refused(record: Record) -> list[str]:
    """Honest visitors who were refused for what they are not to blame for."""
    statuses = Counter(each.status for each in record.heard[0].requests)
    return [
        f"honest visitors were told {status}, {times} times"
        for status, times in statuses.items()
        if 300 <= status < 500
    ]


def slow(record: Record) -> list[str]:
    """Whether honest requests waited too long; one without its answer has waited for ever."""
    p99 = quantile(waits(record), 0.99)
    return [f"p99 of honest requests is {p99:.3f} s"] if p99 > SLOWEST else []


def grown(record: Record) -> list[str]:
    """Processes that took more memory than at their start, or than the first of their role did."""
    faults = []
    first: dict[str, float] = {}
    for life in record.lives:
        level = life.level
        if level is None:
            continue
        least = min(level, first.setdefault(life.role, level))
        if max(life.peak, level) > GROWTH * least:
            most = max(life.peak, level) / 2**20
            faults.append(f"a {life.role} grew from {least / 2**20:.0f} to {most:.0f} MiB")
    return faults


def missing(record: Record) -> list[str]:
    """What a soak is made of and this one did not see."""
    seen = {kind for heard in record.heard for kind in heard.outcomes}
    seen |= {outage.kind for outage in record.outages}
    return [f"there was no {kind}" for kind in record.kinds if kind not in seen]


def thin(record: Record) -> list[str]:
    """Whether so few were sent that it says little."""
    sent = len(record.heard[0].requests)
    if sent >= record.planned / 2:
        return []
    return [f"{sent} honest requests were sent, {record.planned} were planned"]


def noticed(record: Record) -> list[str]:
    """What was seen on the way."""
    return record.noticed


ANYWHERE = failed, refused, missing, noticed
"""The checks that hold however slow the machine is and however short the soak."""

ALL = *ANYWHERE, slow, grown, thin


def findings(record: Record, checks: Sequence[Callable[[Record], list[str]]] = ALL) -> list[str]:
    """All that is wrong with a record."""
    return [fault for check in checks for fault in check(record)]


# Figures ----------------------------------------------------------------------------------------


def retry_after(answer: Answer) -> int:
    """Return for how many seconds an answer asks to wait, or 0."""
    said = answer.head.partition(b"\r\nretry-after:")[2].split(b"\r\n")[0].strip()
    return int(said) if said.isdigit() else 0


def waits(record: Record) -> list[float]:
    """Return how long those waited who are judged."""
    return [each.seconds if each.status == 200 else math.inf for each in record.judged]


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that a share of them do not exceed; infinite if there is none."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.inf


def merged(ledgers: Sequence[Ledger]) -> Ledger:
    """Return what visitors know together."""
    return Ledger(
        issued=[token for each in ledgers for token in each.issued],
        asked=sum(each.asked for each in ledgers),
        accepted={token: bit for each in ledgers for token, bit in each.accepted.items()},
        unknown={token: bit for each in ledgers for token, bit in each.unknown.items()},
        refused={token: bit for each in ledgers for token, bit in each.refused.items()},
        surprises=[surprise for each in ledgers for surprise in each.surprises],
    )


def summary(record: Record) -> dict[str, Any]:
    """Return the figures of a soak, to be quoted."""
    honest, *hostile = record.heard
    lasted = waits(record)
    return {
        "honest": {
            "requests": len(honest.requests),
            "judged": len(lasted),
            "p50_ms": _milliseconds(quantile(lasted, 0.5)),
            "p99_ms": _milliseconds(quantile(lasted, 0.99)),
            "statuses": dict(Counter(str(each.status) for each in honest.requests)),
            "statuses_judged": dict(Counter(str(each.status) for each in record.judged)),
        },
        "hostile": {kind: each for heard in hostile for kind, each in heard.outcomes.items()},
        "errors": dict(
            Counter(f"{each.kind} {each.status}" for heard in record.heard for each in heard.errors)
        ),
        "reports": {
            name: sum(len(getattr(heard.ledger, name)) for heard in record.heard)
            for name in ("issued", "accepted", "unknown", "refused")
        },
        "settled": record.settled,
        "restarts": [[kind, round(end - start, 2)] for kind, start, end in record.outages],
        "memory_mib": [
            [life.role, _mebibytes(life.level), _mebibytes(life.peak)]
            for life in record.lives
            if life.level is not None
        ],
    }


def _milliseconds(seconds: float) -> float | None:
    return round(1000 * seconds, 1) if math.isfinite(seconds) else None


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else round(size / 2**20, 1)
