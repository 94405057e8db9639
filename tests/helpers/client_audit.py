"""An audit of any client, from what left the device: records of visits in, complaints out.

    audited = audit(records)            # measured
    complaints(audited, channel, 600)   # [] if the client keeps the promise of channel and window

Every bound holds with probability 1 − 10^-5, so that an honest client has a complaint in less than
one audit in a thousand.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.stats import beta, fisher_exact, ks_2samp

from whitelie.channel import RandomizedResponse

LEVEL = 1e-5


class Record(NamedTuple):
    """A visit: when it was decided and reported (None: never), the truth, and the bit sent."""

    decided: float
    reported: float | None
    reward: int
    bit: int | None


class Interval(NamedTuple):
    """What a probability may be, after so many hits in so many trials (Clopper–Pearson)."""

    lower: float
    upper: float

    @classmethod
    def of(cls, hits: int, trials: int) -> "Interval":
        lower = float(beta.ppf(LEVEL, hits, trials - hits + 1)) if hits else 0.0
        upper = float(beta.isf(LEVEL, hits + 1, trials - hits)) if hits < trials else 1.0
        return cls(lower, upper)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float) and self.lower <= value <= self.upper


@dataclass(frozen=True)
class Audit:
    """What records show.

    `epsilon` is what a visit reveals at least, through its bit or its silence. `ones` are the
    probabilities of a report of 1, by reward; `shares` are those of a report at all. `silence` and
    `times` are the p-values of "whether (when) a report comes does not depend on the reward".
    `earliest` is the shortest time from decision to report.
    """

    visits: int
    epsilon: float
    ones: tuple[Interval, Interval]
    shares: tuple[float, float]
    silence: float
    times: float
    earliest: float


def audit(records: Iterable[Record]) -> Audit:
    """Measure what records of visits, some with reward 1 and some with 0, reveal."""
    groups: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        groups[record.reward].append(record)
    assert all(groups), "an audit needs visits with reward 1 and with reward 0"
    reports = tuple([one for one in group if one.reported is not None] for group in groups)
    table = [
        [len(sent), len(group) - len(sent)] for sent, group in zip(reports, groups, strict=True)
    ]
    delays = [_delays(sent) for sent in reports]
    return Audit(
        visits=sum(map(len, groups)),
        epsilon=_epsilon(groups),
        ones=(_ones(reports[0]), _ones(reports[1])),
        shares=(len(reports[0]) / len(groups[0]), len(reports[1]) / len(groups[1])),
        silence=float(fisher_exact(table)[1]),
        times=_times(reports),
        earliest=min(delays[0] + delays[1], default=math.inf),
    )


def complaints(audited: Audit, channel: RandomizedResponse, window: float) -> list[str]:
    """Return in what a client breaks the promise of its mechanism."""
    said = []
    if audited.epsilon > channel.epsilon:
        said.append(f"a visit reveals {audited.epsilon:.3f}, not {channel.epsilon:.3f}")
    for reward in (0, 1):
        if channel.mean_feedback(reward) not in audited.ones[reward]:
            lower, upper = audited.ones[reward]
            said.append(f"reward {reward} becomes 1 with probability {lower:.3f} to {upper:.3f}")
    if audited.silence < LEVEL:
        said.append(f"whether a report comes depends on the reward: {audited.shares}")
    if audited.times < LEVEL:
        said.append(f"when a report comes depends on the reward: p = {audited.times:.1e}")
    if audited.earliest < window:
        said.append(f"a report left after {audited.earliest} s, within the window")
    return said


def _epsilon(groups: Sequence[Sequence[Record]]) -> float:
    """The largest epsilon that silence and both bits disprove any smaller value of."""
    largest = 0.0
    for message in (None, 0, 1):
        rates = [
            Interval.of(sum(record.bit == message for record in group), len(group))
            for group in groups
        ]
        for one, other in (rates, reversed(rates)):
            if one.lower > 0:
                largest = max(largest, math.log(one.lower / other.upper))
    return largest


def _ones(reports: Sequence[Record]) -> Interval:
    return Interval.of(sum(record.bit == 1 for record in reports), len(reports))


def _times(reports: Sequence[Sequence[Record]]) -> float:
    """The smallest p-value of two-sample tests: of all reports, and of those with the same bit."""
    values = [1.0]
    for bits in ((0, 1), (0,), (1,)):
        samples = [_delays([one for one in sent if one.bit in bits]) for sent in reports]
        if all(samples):
            test: Any = ks_2samp(samples[0], samples[1], method="asymp")
            values.append(float(test.pvalue))
    return min(values)


def _delays(reports: Sequence[Record]) -> list[float]:
    return [record.reported - record.decided for record in reports if record.reported is not None]
