"""Evidence that an arm is better than another, anytime-valid: mixture martingales of pairs.

*One arm.* Let an arm's mean feedback have the prior Beta(α, β). The mixture likelihood of its
counts over their likelihood under the mean reward x is

    M(x) = B(S + α, N − S + β) / [B(α, β)·g(x)^S·(1 − g(x))^(N−S)] = e^(N·d(λ̂, g(x)) − C).

At the true mean reward M is a martingale that begins at 1: every report multiplies it by its
predictive over its true probability, whose mean is 1, whichever arm is sampled when.

*Two arms.* With priors j of weights p_j, fixed before the first report, and .8 + .1 + .1 = 1,

    E(x, y) = .8·Σ p_j·M_a^j(x)·M_b^j(y) + .1·Σ p_j·M_a^j(x) + .1·Σ p_j·M_b^j(y)

is at the true (μ_a, μ_b) a martingale that begins at 1, since a report belongs to one arm. So by
Ville's inequality it *ever* reaches 1/α with probability at most α, under every sampling rule and
however often somebody looks. (The single terms serve rules that starve one of the arms.)

*What is certified.* Z = min of ln E(x, x + η) over x from x̂_b − η to x̂_a, where x̂ are the
estimates and η is the tolerance. Suppose that b is better by η or more, μ_b ≥ μ_a + η. Then
Z ≤ ln E(μ_a, μ_b): M_a falls up to x̂_a, M_b rises from x̂_b on. If [x̂_b − η, x̂_a] and
[μ_a, μ_b − η] meet, take an x of both: on the way there from the truth neither M rises. If the
truth lies below, take x = x̂_b − η, where M_b is least and M_a has only fallen; if above, x̂_a
likewise. Hence Z ≥ ln(1/α), at any time, is wrong with probability at most α.
With a tolerance, x is kept in [0, 1 − η], where x and x + η are rewards. The same x serves: [μ_a,
μ_b − η] lies in [0, 1 − η], so if the intervals meet, they meet there; and where an end of
[x̂_b − η, x̂_a] is moved to 0 or to 1 − η, it is moved towards the truth, on a way on which the M
that was least there rises, but to no more than at the truth.
`whitelie.certificate` says how that probability is shared among pairs.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array, feedback_at, reward_at
from whitelie.kernel.divergence import divergence
from whitelie.kernel.interval import feedback_interval, log_largest_probability
from whitelie.kernel.jit import jit
from whitelie.kernel.state import State, mean_of
from whitelie.kernel.transport import TRANSPORT, Weights, least, pair_of
from whitelie.kernel.words import ZERO

ONE = ZERO + 1
LOG_BOTH, LOG_ONLY = math.log(0.8), math.log(0.1)
"""The weights of the term of both arms and of each single term."""


class Priors(NamedTuple):
    """Beta priors of every arm's mean feedback (row) by component (column), and log weights.

    As packed arms are, of a decreasing channel it is the mean of 1 − feedback. `peak`: `log_peak`.
    """

    a: Array
    b: Array
    peak: Array
    log_weight: Array


class Test(NamedTuple):
    """What a certificate asks for: evidence `needed` against a rival, by the later of the two arms.

    A pair of arms i < j needs `needed[j]`. `active` arms are those among which one is the best.
    """

    priors: Priors
    needed: Array
    active: Array
    tolerance: float


@jit
def log_peak(a: float, b: float) -> float:
    """Return ln[a·b/(a + b)·P], with P the largest probability of a of a + b, of real numbers.

    It is −ln B(a, b) + a·ln(a/(a + b)) + b·ln(b/(a + b)); by Stirling's series nothing cancels.
    """
    return math.log(a / (a + b) * b) + log_largest_probability(a + b, a)


@jit
def penalty(n: float, ones: float, a: float, b: float, peak: float) -> float:
    """Return C = S·ln λ̂ + (N − S)·ln(1 − λ̂) − ln B(S + a, N − S + b) + ln B(a, b).

    With p = (S + a)/(N + a + b) and m = a/(a + b) it is N·d(λ̂, p) + (a + b)·d(m, p) + log_peak of
    the posterior − `peak`, the log_peak of the prior: so written, nothing large cancels.
    """
    if n == 0:
        return 0.0
    prior, p = a + b, (ones + a) / (n + a + b)
    fit = n * divergence(ones / n, p) + prior * divergence(a / prior, p)
    return fit + log_peak(ones + a, n - ones + b) - peak


@jit
def fill_penalties(priors: Priors, arms: Arms, state: State, k: int, penalties: Array) -> None:
    """Fill in C of arm k under each component of the prior."""
    n = float(state.pulls[k])
    ones = float(state.pulls[k] - state.successes[k] if arms.mirrored[k] else state.successes[k])
    for j in range(len(penalties)):
        penalties[j] = penalty(n, ones, priors.a[k, j], priors.b[k, j], priors.peak[k, j])


@jit
def log_mean(log_weight: Array, penalties: Array) -> float:
    """Return ln Σ p_j·e^−C_j."""
    largest = -math.inf
    for j in range(len(penalties)):
        largest = max(largest, log_weight[j] - penalties[j])
    total = 0.0
    for j in range(len(penalties)):
        total += math.exp(log_weight[j] - penalties[j] - largest)
    return largest + math.log(total)


@jit
def evidence(
    arms: Arms, state: State, test: Test, pair: tuple[int, int], penalties: tuple[Array, Array]
) -> float:
    """Return Z of a pair (a, b) whose penalties are given; −∞ where a does not read better."""
    of_a, of_b = penalties
    log_weight = test.priors.log_weight
    weights = Weights(
        LOG_BOTH + log_mean(log_weight, of_a + of_b),
        LOG_ONLY + log_mean(log_weight, of_a),
        LOG_ONLY + log_mean(log_weight, of_b),
    )
    return least(arms, pair_of(arms, state, pair[0], pair[1], test.tolerance), weights).value


@jit
def leader_among(arms: Arms, state: State, active: Array) -> int:
    """Return the active arm of the largest estimate; −1 − k if active arm k has no report."""
    leader, largest, missing = ZERO, -math.inf, -ONE
    for k in range(len(active)):
        if active[k]:
            if state.pulls[k] == 0:
                missing = k
            estimate = reward_at(arms, k, mean_of(arms, state, k))
            if estimate > largest:
                leader, largest = k, estimate
    return leader if missing < 0 else -ONE - missing


@jit
def is_out_of_reach(arms: Arms, state: State, test: Test, leader: int, b: int) -> bool:
    """Whether the evidence against b cannot be enough: Z ≤ W, which is quick to compute."""
    cost = least(arms, pair_of(arms, state, leader, b, test.tolerance), TRANSPORT).value
    return cost < test.needed[max(leader, b)]


@jit
def certified_arm(arms: Arms, state: State, test: Test, hint: int) -> int:
    """Return the active arm that is certified against all other active arms.

    Else −1 − b, where b is an arm that stands in the way: one without reports, or a rival that the
    leader has not beaten. Only the leader can be certified. `hint` is the rival to try first.
    """
    leader = leader_among(arms, state, test.active)
    if leader < 0:
        return leader
    if hint != leader and test.active[hint] and is_out_of_reach(arms, state, test, leader, hint):
        return -ONE - hint
    return certified_leader(arms, state, test, leader, hint)


@jit
def certified_leader(arms: Arms, state: State, test: Test, leader: int, hint: int) -> int:
    """Return the leader if it is certified, else −1 − b for a rival b that it has not beaten."""
    size = len(test.active)
    for b in range(size):
        if b != leader and test.active[b] and is_out_of_reach(arms, state, test, leader, b):
            return -ONE - b
    of_leader = np.empty(len(test.priors.log_weight))
    of_rival = np.empty_like(of_leader)
    fill_penalties(test.priors, arms, state, leader, of_leader)
    for i in range(-1, size):
        b = hint if i < 0 else ZERO + i
        if b != leader and test.active[b]:
            fill_penalties(test.priors, arms, state, b, of_rival)
            value = evidence(arms, state, test, (leader, b), (of_leader, of_rival))
            if not value >= test.needed[max(leader, b)]:
                return -ONE - b
    return leader


@jit
def evidence_against_all(arms: Arms, state: State, test: Test, leader: int) -> Array:
    """Return, by arm (row), Z of the leader against it and the transport cost W; NaN elsewhere."""
    size = len(test.active)
    rows = np.full((size, 2), math.nan)
    of_leader = np.empty(len(test.priors.log_weight))
    of_rival = np.empty_like(of_leader)
    fill_penalties(test.priors, arms, state, leader, of_leader)
    for b in range(size):
        if b != leader and test.active[b]:
            fill_penalties(test.priors, arms, state, b, of_rival)
            rows[b, 0] = evidence(arms, state, test, (leader, b), (of_leader, of_rival))
            rows[b, 1] = least(
                arms, pair_of(arms, state, leader, b, test.tolerance), TRANSPORT
            ).value
    return rows


@jit
def first_misspecified(arms: Arms, state: State, active: Array, alpha: float) -> int:
    """Return the first active arm whose feedback its channel can hardly have produced, or −1.

    The interval of its mean feedback at level alpha misses g([0, 1]). It holds the rate itself.
    """
    for k in range(len(active)):
        if active[k] and state.pulls[k] > 0:
            rate = mean_of(arms, state, k)
            low, high = feedback_at(arms, k, 0.0), feedback_at(arms, k, 1.0)
            if not low <= rate <= high:
                ones = state.successes[k]
                if arms.mirrored[k]:
                    ones = state.pulls[k] - ones
                lower, upper = feedback_interval(state.pulls[k], ones, alpha)
                if upper < low or lower > high:
                    return k
    return -ONE
