"""One option: a mechanism, what it hides, and what it costs on a design."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from whitelie import bounds, composition
from whitelie.channel import IDENTITY, RandomizedResponse
from whitelie.kernel.arms import Array
from whitelie.planning.certified import Certified, certified_of
from whitelie.planning.design import Design
from whitelie.planning.runs import Runs
from whitelie.planning.times import CONFIDENCE_LEVEL, Chance, Time, chance, time_to_settle
from whitelie.policy import KLUCB, TS
from whitelie.simulation.intervals import multiplier_quantile, student

CURVE_POINTS = 60
"""Points of a curve over the year."""

PROOF_EPSILON = 30.0
"""A report with a larger epsilon is called a proof: the odds are ten million million to one."""

COMPOSITION_DELTA = 1e-6
"""The δ at which the composition of several reports of a person is stated."""


@dataclass(frozen=True)
class Mechanism:
    """What a channel does to one answer, and its effective sample size.

    `worth` is how many randomised reports are worth one noise-free report: the ratio of Theorem 1's
    constants Σ Δ_a/d, which is a mean of d(μ_a, μ_1)/d(g(μ_a), g(μ_1)) over the other arms, each
    weighted with its part in the regret without noise. `gain` is how many reports of symmetric
    randomised response, at the smaller of the channel's two budgets, tell as much as one of these;
    None where the channel is symmetric itself.
    """

    channel: RandomizedResponse
    worth: float
    gain: float | None = None

    @property
    def belief_factor(self) -> float:
        """e^ε: one report multiplies anybody's odds about one person by at most this."""
        epsilon = self.channel.epsilon
        return math.exp(epsilon) if epsilon < 700 else math.inf

    @property
    def truth(self) -> str:
        """How truthful an answer is, in words."""
        zero, one = percent(self.channel.p00, 0), percent(self.channel.p11, 0)
        if self.channel.p00 == self.channel.p11:
            return f"truthful with probability {one}"
        return f"a “yes” is truthful with probability {one}, a “no” with {zero}"

    @property
    def belief(self) -> str:
        """What a single answer does, in words; the factor is rounded up."""
        yes, no = self.channel.epsilon1, self.channel.epsilon0
        if self.channel.p00 == self.channel.p11:
            return f"moves anyone's belief {_at_most(yes)}"
        return f"moves anyone's belief in a “yes” {_at_most(yes)}, in a “no” {_at_most(no)}"

    def __str__(self) -> str:
        subject = "each answer is " if self.truth.startswith("truthful") else ""
        words = f"{subject}{self.truth}; a single answer {self.belief}"
        if self.gain is None:
            return words
        smaller = epsilon_text(min(self.channel.epsilon0, self.channel.epsilon1))
        return (
            f"{words}; it tells {self.gain:.3g} times as much as a symmetric one with ε = {smaller}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite."""
        return {
            "text": str(self),
            "channel": self.channel.to_dict(),
            "p00": self.channel.p00,
            "p11": self.channel.p11,
            "epsilon0": finite(self.channel.epsilon0),
            "epsilon1": finite(self.channel.epsilon1),
            "belief_factor": finite(self.belief_factor),
            "slope": self.channel.slope,
            "worth": finite(self.worth),
            "gain": None if self.gain is None else finite(self.gain),
        }


@dataclass(frozen=True)
class Theory:
    """What the paper's theorems say of lost rewards over the year, on all answers asked for.

    `constant` is Theorem 1's, the least regret per unit of ln T over T reports in the long run;
    `lower` is that times ln T, `leading` Corollary 2's leading term for kl-UCB-CF and TS-CF, and
    `explicit` Theorem 2's bound in finite time for kl-UCB-CF with c = 3. All but `constant` are
    divided by the share of reports that arrive. None is not applicable.
    """

    constant: float
    lower: float
    leading: float | None
    explicit: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite, or not applicable."""
        return {
            "constant": finite(self.constant),
            "lower": finite(self.lower),
            "leading": None if self.leading is None else finite(self.leading),
            "explicit": None if self.explicit is None else finite(self.explicit),
        }


@dataclass(frozen=True)
class LostRewards:
    """Rewards lost against always showing the best arm, by day.

    If the goal is to know, the winner is shown alone from its certificate on.
    `low` and `high` are a simultaneous 95 % band of the mean over runs: it holds on all days
    together. 5 % of the runs lost less than `lucky`, 5 % more than `unlucky`.
    """

    days: Array
    mean: Array
    low: Array
    high: Array
    lucky: Array
    unlucky: Array

    def to_dict(self) -> dict[str, list[float]]:
        """Return plain data."""
        return {name: values.tolist() for name, values in vars(self).items()}


@dataclass(frozen=True)
class People:
    """What several reports of one person cost together.

    `basic` is k·ε; `composed` is the smaller ε of Kairouz, Oh and Viswanath's Theorem 3.5 at δ,
    or equal to `basic` where that theorem does not help.
    """

    reports: int
    basic: float
    composed: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite."""
        return {
            "reports": self.reports,
            "basic": finite(self.basic),
            "composed": finite(self.composed),
            "delta": self.delta,
        }


@dataclass(frozen=True)
class Unequal:
    """How many times as much a report tells where only one of the two answers is sensitive.

    `only_yes` compares `from_epsilons(epsilon0=inf, epsilon1=ε)`, under which a report of 0 proves
    a reward of 0, with `from_epsilon(ε)`; `only_no` the other way round. Ratios of Theorem 1's
    constants.
    """

    only_yes: float
    only_no: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite."""
        return {"only_yes": finite(self.only_yes), "only_no": finite(self.only_no)}


@dataclass(frozen=True)
class Option:
    """A mechanism on a design: what it hides and what it costs.

    `settled`: until nearly all traffic goes to the best arm, which only a simulation can see;
    `certified`: until an arm is certified as the best. `goal` says which of them a budget of days
    is about, "earn" or "know".
    """

    goal: str
    epsilon: float
    mechanism: Mechanism
    theory: Theory
    lost: LostRewards
    settled: Time
    certified: Certified
    wrong: Chance
    people: People
    unequal: Unequal | None

    @property
    def lost_rewards(self) -> float:
        """The mean number of rewards lost in the year."""
        return float(self.lost.mean[-1])

    @property
    def reached(self) -> Time:
        """When 95 % of runs have what the plan is for: a certificate, or settled traffic."""
        return self.certified.within if self.goal == "know" else self.settled

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite, or beyond the year."""
        return {
            "epsilon": finite(self.epsilon),
            "mechanism": self.mechanism.to_dict(),
            "theory": self.theory.to_dict(),
            "lost_rewards": self.lost_rewards,
            "lost": self.lost.to_dict(),
            "time_to_settle": self.settled.to_dict(),
            "certificate": self.certified.to_dict(),
            "wrong_arm": self.wrong.to_dict(),
            "people": self.people.to_dict(),
            "unequal": None if self.unequal is None else self.unequal.to_dict(),
        }


def option_of(design: Design, channel: RandomizedResponse, epsilon: float, runs: Runs) -> Option:
    """Return the option that these runs are of; `epsilon` is the nominal one, for its name."""
    return Option(
        goal=design.goal.name,
        epsilon=epsilon,
        mechanism=Mechanism(channel, worth(design, channel), gain(design, channel)),
        theory=_theory(design, channel),
        lost=_lost(design, runs),
        settled=time_to_settle(runs, design),
        certified=certified_of(runs, design),
        wrong=chance(runs.wrong),
        people=people(epsilon, design.reports_per_person),
        unequal=unequal(design, epsilon),
    )


def worth(design: Design, channel: RandomizedResponse) -> float:
    """Return how many reports through a channel are worth one noise-free report.

    >>> private = RandomizedResponse.from_epsilon(1)
    >>> for rate in (0.05, 0.5):
    ...     print(round(worth(Design(rates=(rate, rate + 0.01), traffic=1000), private), 1))
    18.3
    4.7
    """
    return _relative(design, channel, IDENTITY)


def gain(design: Design, channel: RandomizedResponse) -> float | None:
    """Return how many symmetric reports at the smaller budget one report is worth."""
    smaller = min(channel.epsilon0, channel.epsilon1)
    if channel.p00 == channel.p11 or smaller == math.inf:
        return None
    return _relative(design, RandomizedResponse.from_epsilon(smaller), channel)


def unequal(design: Design, epsilon: float) -> Unequal | None:
    """Return the gain of unequal budgets, or None where epsilon is infinite already."""
    if epsilon == math.inf:
        return None
    symmetric = RandomizedResponse.from_epsilon(epsilon)
    only_yes = RandomizedResponse.from_epsilons(epsilon0=math.inf, epsilon1=epsilon)
    only_no = RandomizedResponse.from_epsilons(epsilon0=epsilon, epsilon1=math.inf)
    return Unequal(
        _relative(design, symmetric, only_yes),
        _relative(design, symmetric, only_no),
    )


def people(epsilon: float, reports: int) -> People:
    """Return what `reports` reports of one person at level epsilon cost together."""
    total, delta = reports * epsilon, COMPOSITION_DELTA
    if epsilon == math.inf:
        return People(reports, total, total, delta)
    return People(reports, total, composition.optimal([epsilon] * reports, delta), delta)


def lost_rewards(design: Design, runs: Runs) -> float:
    """Return the mean number of rewards lost by the last batch, on all answers asked for."""
    return float(runs.regret[:, -1].mean() / design.arrive)


def _at_most(epsilon: float) -> str:
    if epsilon > PROOF_EPSILON:
        return "without limit: it can prove it"
    return f"by at most a factor of {float(composition.rounded_up(math.exp(epsilon), 3)):,.10g}"


def epsilon_text(epsilon: float) -> str:
    """Return an epsilon to six figures at most, rounded up.

    >>> epsilon_text(0.25), epsilon_text(2.0794415416798357), epsilon_text(math.inf)
    ('0.25', '2.07945', '∞')
    """
    if epsilon == math.inf:
        return "∞"
    return f"{float(composition.rounded_up(epsilon * (1 - 1e-12), 6)):g}"


def percent(share: float, decimals: int = 2) -> str:
    """Return a share in per cent, with more decimals where it is nearly none or all.

    >>> percent(0.06), percent(0.99966), percent(1.0), percent(0.7311, 0), percent(0.00006)
    ('6 %', '99.966 %', '100 %', '73 %', '0.006 %')
    """
    rare = 100 * min(share, 1 - share)
    needed = 1 - math.floor(math.log10(rare)) if 0 < rare < 0.5 else 0
    text = f"{100 * share:.{max(decimals, needed)}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def delay_text(design: Design) -> str:
    """Say when reports arrive.

    >>> delay_text(Design(rates=(0.1, 0.2), traffic=100, delay=7))
    '7 days after the decision'
    """
    if not design.delay:
        return "at once"
    return f"{design.delay:g} {'day' if design.delay == 1 else 'days'} after the decision"


def certificate_text(design: Design) -> str:
    """Say what the certificate of a plan states.

    >>> print(certificate_text(Design(rates=(0.1, 0.2), traffic=100)))
    The certificate is wrong with probability at most 5 %, however often one looks
    """
    asked, expect = design.goal.certificate, design.goal.certificate.expect
    words = "The certificate is wrong with probability at most "
    words += f"{percent(asked.delta)}, however often one looks"
    if asked.tolerance:
        words += f"; it says that no other is better by more than {_points(asked.tolerance)}"
    if expect is not None:
        words += f"; it expects a rate of {percent(expect.rate)} and a difference of "
        words += f"{_points(expect.difference)}, which can cost time but never make it wrong"
    return words


def _points(difference: float) -> str:
    number = f"{100 * difference:.3g}"
    return f"{number} percentage point{'' if number == '1' else 's'}"


def amount(value: float) -> str:
    """Return an amount of rewards: whole, or with the figures that matter below ten.

    >>> amount(1234.5), amount(0.4), amount(3.14159)
    ('1,234', '0.4', '3.1')
    """
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def finite(value: float) -> float | None:
    """Return the value, or None for infinity, which JSON cannot write."""
    return value if math.isfinite(value) else None


def _relative(design: Design, channel: RandomizedResponse, better: RandomizedResponse) -> float:
    least = bounds.lower_constant(design.problem(better))
    return bounds.lower_constant(design.problem(channel)) / least if least > 0 else math.inf


def _theory(design: Design, channel: RandomizedResponse) -> Theory:
    problem, horizon, policy = design.problem(channel), float(design.horizon), design.policy
    leading = explicit = None
    if isinstance(policy, KLUCB | TS) and policy.feedback == "corrected":
        leading = bounds.randomized_response_bound(problem, horizon) / design.arrive
    if policy == KLUCB():
        explicit = bounds.finite_time_bound(problem, horizon) / design.arrive
    return Theory(
        constant=bounds.lower_constant(problem),
        lower=bounds.lower_bound(problem, horizon) / design.arrive,
        leading=leading,
        explicit=explicit,
    )


def _lost(design: Design, runs: Runs) -> LostRewards:
    wanted = np.geomspace(min(len(design.rates), runs.times[-1]), runs.times[-1], CURVE_POINTS)
    rows = np.unique(np.searchsorted(runs.times, wanted.round().astype(np.int64)))
    curves = runs.regret[:, rows] / design.arrive
    mean = curves.mean(axis=0)
    level = CONFIDENCE_LEVEL
    critical = max(
        student(len(curves), level=level), multiplier_quantile(curves, level=level, seed=0)
    )
    half = critical * curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
    lucky, unlucky = np.quantile(curves, [0.05, 0.95], axis=0)
    days = runs.times[rows] / design.reports_per_day
    return LostRewards(days, mean, np.maximum(mean - half, 0.0), mean + half, lucky, unlucky)
