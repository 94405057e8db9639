"""The certificate: a statement that one arm is best, wrong with probability at most delta, ever.

`kernel/evidence.py` defines the evidence Z that arm a is better than arm b, and proves that it ever
reaches ln(1/α) by mistake with probability at most α. Here that is shared among pairs.

*Arms that stay.* Let K arms be there from the beginning. If a wrong arm is certified, Z against the
best arm was large enough, and there are K − 1 wrong arms: each pair gets δ/(K − 1).

*Arms that come and go.* "Best" means the best active arm, and whoever retires arms after looking
decides which pairs matter. So .9·δ is for the time in which the list of arms has not changed. Once
it has, each of the K(K − 1)/2 pairs of the first arms gets its part of .05·δ, and the k-th arm that
was added gets .05·δ/(k(k + 1)), shared by its pairs with earlier arms. The parts sum to at most δ.

*Counts that begin anew.* Where counts were thrown away (a rollback), evidence begins from zero. The
counts from the beginning have .95·δ for all of the above, and those since the j-th new beginning
.05·δ/(j(j + 1)).
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from whitelie.channel import AnyChannel
from whitelie.errors import InvalidInput, real_number
from whitelie.estimate import MISSPECIFICATION_ALPHA
from whitelie.kernel.arms import Arms, Array, feedback_at, pack
from whitelie.kernel.cell_evidence import cell_interval, evidence_of_cells
from whitelie.kernel.cells import CellState, estimate_of, has_cells, pack_cells
from whitelie.kernel.evidence import (
    Priors,
    Test,
    evidence_against_all,
    first_misspecified,
    leader_among,
    log_peak,
)
from whitelie.kernel.state import NO_MEMORY, State

DELTA = 0.05

UNCHANGED_SHARE, CHANGED_SHARE, ADDED_SHARE = 0.9, 0.05, 0.05
"""Shares of δ: while the list of arms is unchanged; later, for first arms and for added ones."""

FIRST_SHARE = 0.95
"""The share of δ for counts from the beginning; the rest is for counts that begin anew."""

GRID_RATES = 1 / (1 + np.exp(-np.arange(-5, 5.25, 0.5)))
"""The rates around which priors lie: logistic(−5), logistic(−4.5), …, logistic(5)."""

GRID_SPREAD = 0.3
"""The deviation of such a prior, as a share of m·(1 − m)."""

EXPECTED_WEIGHT = 0.6
"""The weight of the prior around what a plan expects; a wrong plan costs ln(1/0.4) of evidence."""

RIVALS_SHOWN = 5
"""Of how many rivals the evidence is put into words, the closest first."""

SLOPE_STEP = 2.0**-16
"""Over which difference of rewards a channel's slope is taken: one step of a tabulated function."""

LEAST_PRIOR, LARGEST_PRIOR = 2.0, 1e8
"""A prior is worth so many reports: steep or flat parts of a table would ask for less or more."""


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What a plan expects: the usual rate, and the difference that matters.

    Evidence then comes sooner if that is about right, and later if not; it is valid either way.

    >>> Expect(rate=0.05, difference=0.01)
    Expect(rate=0.05, difference=0.01)
    """

    rate: float
    difference: float

    def __post_init__(self) -> None:
        for field, what in (("rate", "a rate"), ("difference", "a difference")):
            reason = f"expect {what} above 0 and below 1"
            number = real_number(f"expect.{field}", getattr(self, field), reason, least=0, most=1)
            if number in (0, 1):
                raise InvalidInput(f"expect.{field}", number, reason)
            object.__setattr__(self, field, number)
        if self.difference**2 >= self.rate * (1 - self.rate):
            reason = f"a difference of {self.difference:g} is too large for a rate of {self.rate:g}"
            raise InvalidInput(
                "expect.difference", self.difference, f"{reason}: leave out what is not known"
            )

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """Return what was given as such, as {"rate": …, "difference": …}, or not at all."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping) or given.keys() != {"rate", "difference"}:
            reason = 'give Expect(rate=…, difference=…), or {"rate": …, "difference": …}'
            raise InvalidInput("expect", given, reason)
        return cls(**given)

    def to_dict(self) -> dict[str, float]:
        """Return plain data."""
        return {"rate": self.rate, "difference": self.difference}


@dataclass(frozen=True)
class Certificate:
    """What is asked for: an error probability, how much better another may be, what is expected.

    A certificate says that no other arm is better by more than `tolerance`; with 0, that one arm is
    best. The probability that it is wrong at any time is at most `delta`, however often one looks.
    """

    delta: float = DELTA
    tolerance: float = 0.0
    expect: Expect | None = None

    def __post_init__(self) -> None:
        reason = "the probability of a wrong certificate is above 0 and at most 0.5"
        if real_number("delta", self.delta, reason, least=0, most=0.5) == 0:
            raise InvalidInput("delta", self.delta, reason)
        reason = "the tolerance is a difference of rates, from 0 to 1"
        real_number("tolerance", self.tolerance, reason, least=0, most=1)
        object.__setattr__(self, "expect", Expect.of(self.expect))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        expect = None if self.expect is None else self.expect.to_dict()
        return {"delta": self.delta, "tolerance": self.tolerance, "expect": expect}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the certificate that `to_dict` described."""
        return cls(**data)

    def test(
        self, channels: tuple[AnyChannel, ...], retired: Array, beginning: "Beginning | None" = None
    ) -> Test:
        """Return what the kernel compares counts with; without a beginning, all arms were there."""
        first = Beginning(len(channels)) if beginning is None else beginning
        were_there = ~retired[: first.first_added_position]
        changed = bool(were_there.sum() < first.arms)
        needed = needed_evidence(self.delta, len(channels), first, changed=changed)
        return Test(priors(channels, self.expect), needed, ~retired, float(self.tolerance))


@dataclass(frozen=True)
class Beginning:
    """With which arms the counts began that evidence reads.

    `arms` were there at the beginning; those from position `first_added` on were added later (all
    before it were there, or were already retired). `restarts` counts new beginnings.
    """

    arms: int
    first_added: int | None = None
    restarts: int = 0

    @property
    def first_added_position(self) -> int:
        """From which position on arms were added."""
        return self.arms if self.first_added is None else self.first_added


class Rival(NamedTuple):
    """The evidence that the leader is better than a rival, and how much of it a certificate needs.

    In natural logarithms: at 3, the data speak e^3 = 20 times as clearly against "the rival is as
    good" as they would by chance. `more_reports` is a guess from the counts so far, None where they
    do not point that way.
    """

    evidence: float
    needed: float
    more_reports: int | None

    @property
    def missing(self) -> float:
        """How much evidence is missing."""
        return max(self.needed - self.evidence, 0.0)

    @property
    def share(self) -> float:
        """The share of the needed evidence that is there, from 0 to 1."""
        return min(self.evidence / self.needed, 1.0)

    @property
    def distance(self) -> tuple[float, float]:
        """What orders rivals, the closest first: by evidence, then by the reports it needs."""
        return self.share, -math.inf if self.more_reports is None else -self.more_reports

    def __str__(self) -> str:
        if not self.missing:
            return f"enough evidence ({self.evidence:.2f}, needed {self.needed:.2f})"
        guess = self.more_reports
        more = "" if guess is None else f", about {guess:,} more reports"
        return f"{self.missing:.2f} of {self.needed:.2f} is missing{more}"


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What a certificate says of the counts: the winner, or how far the evidence has come.

    `leader` has the largest estimate; `rivals` are the other active arms. `cannot_say` is why
    nothing can be said, if so. `print` gives all of it in words, of many rivals the closest.
    """

    winner: Hashable | None
    leader: Hashable | None
    rivals: Mapping[Hashable, Rival]
    delta: float
    tolerance: float
    cannot_say: str | None = None

    @property
    def progress(self) -> float:
        """The least share, over all rivals, of the evidence that is needed: from 0 to 1."""
        return min((rival.share for rival in self.rivals.values()), default=0.0)

    @property
    def more_reports(self) -> int | None:
        """A guess of how many more reports a certificate needs; None where none can be made."""
        numbers = [rival.more_reports for rival in self.rivals.values()]
        if self.winner is not None:
            return 0
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None

    @property
    def sentence(self) -> str:
        """What is known, in one sentence."""
        if self.cannot_say is not None:
            return f"Cannot say: {self.cannot_say}."
        sure = f"wrong with probability at most {100 * self.delta:g} %, however often one looks"
        if self.winner is not None and self.tolerance:
            return (
                f"No other is better than {self.winner} by more than {self.tolerance:g} ({sure})."
            )
        if self.winner is not None:
            return f"{self.winner} is best ({sure})."
        if self.leader is None:
            return "No certificate yet: some arms have no reports."
        guess = self.more_reports
        more = "" if guess is None else f"; about {guess:,} more reports are needed"
        return f"No certificate yet: {100 * self.progress:.0f} % of the evidence is there{more}."

    def __str__(self) -> str:
        closest = sorted(self.rivals, key=lambda name: self.rivals[name].distance)[:RIVALS_SHOWN]
        against = [f"  {self.leader} against {name}: {self.rivals[name]}" for name in closest]
        return "\n".join([self.sentence, *against])


def conclude(
    certificate: Certificate,
    channels: Mapping[Any, AnyChannel],
    counts: tuple[Array, Array] | Array,
    retired: Array,
    beginning: Beginning | None = None,
) -> Conclusion:
    """Return what a certificate says of reports and ones per arm, or of reports by arm and cell.

    `channels` names the arms. The counts must be all reports since one time, none left out, pooled
    or shrunk.
    """
    names, listed = list(channels), tuple(channels.values())
    test = certificate.test(listed, retired, beginning)
    if test.active.sum() < 2:
        return _conclusion(certificate, cannot_say="there are fewer than two arms to compare")
    if isinstance(counts, tuple):
        impossible, leader, values, reports = _read_bits(listed, counts, test)
    else:
        impossible, leader, values, reports = _read_cells(listed, counts, test)
    if impossible >= 0:
        reason = f"the reports on {names[impossible]} do not fit its channel"
        return _conclusion(certificate, cannot_say=reason)
    if leader < 0:
        return _conclusion(certificate)
    evidence, cost = values.T
    needed = test.needed[np.maximum(np.arange(len(names)), leader)]
    more = guess_more_reports(evidence, cost, needed, reports)
    rows = zip(np.maximum(evidence, 0.0).tolist(), needed.tolist(), more, strict=True)
    rivals = {
        name: Rival._make(row)
        for name, row, is_rival in zip(names, rows, test.active.tolist(), strict=True)
        if is_rival
    }
    del rivals[names[leader]]
    certified = all(rival.evidence >= rival.needed for rival in rivals.values())
    winner = names[leader] if certified else None
    return _conclusion(certificate, winner=winner, leader=names[leader], rivals=rivals)


def _read_bits(
    channels: tuple[AnyChannel, ...], counts: tuple[Array, Array], test: Test
) -> tuple[int, int, Array, int]:
    """Return a misspecified arm or −1, the leader or less than 0, evidence and cost, reports."""
    arms, (pulls, successes) = packed(channels), counts
    state = State(pulls, successes, np.zeros_like(pulls), test.active)
    impossible = first_misspecified(arms, state, test.active, MISSPECIFICATION_ALPHA)
    leader = leader_among(arms, state, test.active)
    if impossible >= 0 or leader < 0:
        return impossible, leader, NO_MEMORY, 0
    return -1, leader, evidence_against_all(arms, state, test, leader), int(pulls.sum())


def _read_cells(
    channels: tuple[AnyChannel, ...], cells: Array, test: Test
) -> tuple[int, int, Array, int]:
    """Return the same as `_read_bits`, from reports by cell."""
    arms, pulls = pack_cells(channels), cells.sum(axis=1)
    state = CellState(pulls, cells, np.zeros_like(pulls), test.active, NO_MEMORY)
    estimates = np.full(len(channels), -math.inf)
    for k in np.flatnonzero(test.active).tolist():
        low, high = cell_interval(arms, state, k, MISSPECIFICATION_ALPHA)
        if low > 1 or high < 0:
            return k, -1, NO_MEMORY, 0
        estimates[k] = estimate_of(arms, state, k)
    if not pulls[test.active].all():
        return -1, -1, NO_MEMORY, 0
    leader = int(estimates.argmax())
    return -1, leader, evidence_of_cells(arms, state, test, leader), int(pulls.sum())


def _conclusion(certificate: Certificate, **known: Any) -> Conclusion:
    blank: dict[str, Any] = {"winner": None, "leader": None, "rivals": {}}
    given = {"delta": certificate.delta, "tolerance": certificate.tolerance}
    return Conclusion(**{**blank, **given, **known})


def guess_more_reports(evidence: Array, cost: Array, needed: Array, reports: int) -> list[Any]:
    """Guess how many more reports each pair needs, if shares and rates stay; None if W is 0.

    W grows with the reports; Z is W minus penalties, which grow by half of the logarithm of the
    reports for each of two arms.
    """
    growing = cost > 0
    safe_cost = np.where(growing, cost, 1.0)
    lacking = needed + safe_cost - np.where(growing, evidence, 0.0)
    factor = np.ones(len(needed))
    for _ in range(20):
        factor = np.maximum((lacking + np.log(factor)) / safe_cost, 1.0)
    more = np.ceil(np.minimum((factor - 1) * reports, 2.0**62)).astype(np.int64).tolist()
    grows = growing.tolist()
    return [number if known else None for number, known in zip(more, grows, strict=True)]


def needed_evidence(delta: float, size: int, beginning: Beginning, *, changed: bool) -> Array:
    """Return, by the later arm of a pair, the evidence ln(1/α) that a certificate needs.

    `changed` says that an arm of the beginning was retired since; arms may also have been added.

    >>> needed_evidence(0.05, 3, Beginning(3), changed=False).round(2).tolist()
    [3.85, 3.85, 3.85]
    >>> needed_evidence(0.05, 3, Beginning(2), changed=False).round(2).tolist()
    [6.04, 6.04, 7.43]
    """
    first, restarts = beginning.arms, beginning.restarts
    start = beginning.first_added_position
    later = (1 - FIRST_SHARE) / max(restarts * (restarts + 1), 1)
    level = delta * (later if restarts else FIRST_SHARE)
    if size == start and not changed:
        alpha = UNCHANGED_SHARE * level / max(first - 1, 1)
        return np.full(size, -math.log(alpha))
    pairs = max(first * (first - 1) / 2, 1)
    needed = np.full(size, math.log(pairs) - math.log(CHANGED_SHARE * level))
    for k in range(1, size - start + 1):
        earlier = max(first + k - 1, 1)
        needed[start + k - 1] = math.log(k * (k + 1) * earlier) - math.log(ADDED_SHARE * level)
    return needed


@lru_cache(maxsize=64)
def packed(channels: tuple[AnyChannel, ...]) -> Arms:
    """Return the arms as evidence reads them."""
    return pack("corrected", channels)


@lru_cache(maxsize=64)
def priors(channels: tuple[AnyChannel, ...], expect: Expect | None) -> Priors:
    """Return the priors of every arm's mean feedback, and the logarithms of their weights.

    Half of the weight is on the uniform Beta(1, 1), half on Betas around g(m) for a grid of rates
    m, with deviation slope·0.3·m(1 − m). With an expectation, `EXPECTED_WEIGHT` is on one Beta
    around g(rate) with deviation slope·difference, and these share the rest.
    """
    rates, deviations = GRID_RATES, GRID_SPREAD * GRID_RATES * (1 - GRID_RATES)
    share = (1 if expect is None else 1 - EXPECTED_WEIGHT) / 2
    weights = [share, *[share / len(rates)] * len(rates)]
    if expect is not None:
        rates, deviations = np.append(rates, expect.rate), np.append(deviations, expect.difference)
        weights.append(EXPECTED_WEIGHT)
    if has_cells(channels):
        return _cell_priors(channels, rates, deviations, weights)
    distinct = {channel: _betas(channel, rates, deviations) for channel in set(channels)}
    a, b = (np.array([distinct[channel][side] for channel in channels]) for side in (0, 1))
    peak = np.array([list(map(log_peak, *row)) for row in zip(a, b, strict=True)])
    return Priors(a, b, peak, np.log(weights))


def _betas(channel: AnyChannel, rates: Array, deviations: Array) -> tuple[Array, Array]:
    """Return a and b of the uniform prior, then of those with mean g(rate).

    Their deviation is slope·deviation, which a channel with a steep table limits.
    """
    arms = packed((channel,))
    below, mean, above = (
        np.array([feedback_at(arms, 0, rate) for rate in rates + step])
        for step in (-SLOPE_STEP, 0, SLOPE_STEP)
    )
    spread = (above - below) / (2 * SLOPE_STEP) * deviations
    worth = mean * (1 - mean) / np.maximum(spread * spread, 1e-300) - 1
    worth = np.clip(worth, LEAST_PRIOR, LARGEST_PRIOR)
    return np.append(1.0, worth * mean), np.append(1.0, worth * (1 - mean))


def _cell_priors(
    channels: tuple[AnyChannel, ...], rates: Array, deviations: Array, weights: list[float]
) -> Priors:
    """Return the priors of arms whose reports fall into cells: Betas on D, scaled to [0, 1].

    With one binary mechanism they are those of its mean feedback. No parameter is below 1, so that
    densities are bounded.
    """
    arms = pack_cells(channels)
    width = (arms.high - arms.low)[:, None]
    mean, spread = (rates - arms.low[:, None]) / width, deviations / width
    worth = mean * (1 - mean) / (spread * spread) - 1
    worth = np.clip(worth, LEAST_PRIOR, LARGEST_PRIOR)
    worth = np.maximum(worth, 1 / np.minimum(mean, 1 - mean))
    ones = np.ones((len(channels), 1))
    a, b = np.hstack([ones, worth * mean]), np.hstack([ones, worth * (1 - mean)])
    return Priors(a, b, np.zeros_like(a), np.log(weights))
