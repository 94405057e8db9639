"""What looking every day does to a test, to a belief and to a certificate.

Variants are shown equally often, and devices randomise every answer. At the end of every day
somebody looks, and stops at the first clear statement. How often is it wrong?

Run: python examples/peeking.py [RUNS]
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from whitelie import Bandit, RandomizedResponse

Array = NDArray[Any]

CHANNEL = RandomizedResponse.from_epsilon(1)
REPORTS_A_DAY, DAYS = 20_000, 90
RUNS, SEED = 2_000, 2018
LEVEL = 0.05

WORLDS: Mapping[str, tuple[float, ...]] = {
    "two that are equal": (0.05, 0.05),
    "five that are equal": (0.05,) * 5,
    "two, one better by a point": (0.05, 0.06),
}

Statement = Callable[[Array, Array], Array]
"""Reports and ones (…, day, arm) -> by day the arm that is named best, or −1."""


def draw(rates: tuple[float, ...], runs: int, seed: int = SEED) -> tuple[Array, Array]:
    """Return the reports and the ones among them, (run, day, arm), all since the first day."""
    a_day = REPORTS_A_DAY // len(rates)
    feedback = [CHANNEL.mean_feedback(rate) for rate in rates]
    ones = np.random.default_rng(seed).binomial(a_day, feedback, (runs, DAYS, len(rates)))
    reports = np.broadcast_to(a_day * np.arange(1, DAYS + 1)[:, None], ones.shape)
    return reports, ones.cumsum(axis=1)


def tested(reports: Array, ones: Array) -> Array:
    """The largest rate, if a z-test against every other finds a difference at 5 % (two-sided)."""
    rate = ones / reports
    leader = rate.argmax(axis=-1)[..., None]
    of_leader = np.take_along_axis(rate, leader, axis=-1)
    pooled = (rate + of_leader) / 2
    z = (of_leader - rate) / np.sqrt(2 * pooled * (1 - pooled) / reports)
    np.put_along_axis(z, leader, np.inf, axis=-1)
    return np.where(z.min(axis=-1) > norm.isf(LEVEL / 2), leader[..., 0], -1)


def believed(reports: Array, ones: Array) -> Array:
    """The arm that beats all others with a posterior probability of 95 %.

    With thousands of reports a posterior is as good as normal.
    """
    mean = (ones + 1) / (reports + 2)
    deviation = np.sqrt(mean * (1 - mean) / (reports + 3))
    best = np.zeros(mean.shape)
    for node, weight in zip(*np.polynomial.hermite_e.hermegauss(48), strict=True):
        drawn = (mean + node * deviation)[..., :, None]
        below = norm.cdf((drawn - mean[..., None, :]) / deviation[..., None, :])
        own = np.arange(mean.shape[-1])
        below[..., own, own] = 1
        best += weight / np.sqrt(2 * np.pi) * below.prod(axis=-1)
    return np.where(best.max(axis=-1) >= 1 - LEVEL, best.argmax(axis=-1), -1)


def certified(reports: Array, ones: Array) -> Array:
    """The arm for which there is a certificate at 5 %."""
    names = range(reports.shape[-1])
    named = np.full(reports.shape[:-1], -1)
    for run in range(len(named)):
        for day in range(reports.shape[1]):
            rows = zip(reports[run, day].tolist(), ones[run, day].tolist(), strict=True)
            counts = dict(zip(names, rows, strict=True))
            winner = Bandit(names, CHANNEL, counts=counts).certificate(LEVEL).winner
            if winner is not None:
                named[run, day] = winner
                break  # who looks every day stops here
    return named


def at_last(statement: Statement) -> Statement:
    """The statement of somebody who looks once, on the last day."""

    def looked(reports: Array, ones: Array) -> Array:
        named = np.full(reports.shape[:-1], -1)
        named[..., -1] = statement(reports[..., -1:, :], ones[..., -1:, :])[..., 0]
        return named

    return looked


STATEMENTS: Mapping[str, Statement] = {
    "a test, looked at once": at_last(tested),
    "a test, looked at daily": tested,
    "95 % likely best, daily": believed,
    "the certificate, daily": certified,
}


def stopped(named: Array) -> tuple[Array, Array]:
    """Return who is named first in every run, −1 for nobody, and the day."""
    day = (named >= 0).argmax(axis=1)
    return np.take_along_axis(named, day[:, None], axis=1)[:, 0], day + 1


def row(statement: Statement, rates: tuple[float, ...], runs: int) -> tuple[float, float, float]:
    """Return the shares of runs that named an arm, and a wrong one; and the median day of those."""
    first, day = stopped(statement(*draw(rates, runs)))
    is_best = np.array(rates) > sorted(rates)[-2]
    wrong = (first >= 0) & ~is_best[first]
    days = day[first >= 0]
    return (first >= 0).mean(), wrong.mean(), float(np.median(days)) if len(days) else np.nan


def main(runs: int = RUNS) -> None:
    """Print how often each statement is made, how often it is wrong, and when it comes."""
    print(f"{REPORTS_A_DAY:,} reports a day at ε = 1, {DAYS} days, {runs:,} runs.")
    for world, rates in WORLDS.items():
        print(f"\n{world:29}{'names one':>11}{'wrongly':>10}{'median day':>12}")
        for name, statement in STATEMENTS.items():
            made, wrong, day = row(statement, rates, runs)
            when = "–" if np.isnan(day) else f"{day:.0f}"
            print(f"  {name:27}{100 * made:9.1f} %{100 * wrong:8.1f} %{when:>12}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
