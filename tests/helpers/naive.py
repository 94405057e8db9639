"""The policies, the interval and evidence by their definitions: slow, plain, only for tests.

Nothing here mirrors, linearises or takes a Newton step: a largest q is found by halving, and a
decreasing channel is followed downwards, as the paper writes it. Divergences and logarithms of
factorials are 40-digit decimals. In doubles the textbook formulas lose half of their digits near
d = 0, where every index of a well-known arm lies, and all of them at 10^12 pulls.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from whitelie.channel import IDENTITY, Channel, RandomizedResponse
from whitelie.kernel.arms import Array as Floats
from whitelie.kernel.beta import beta
from whitelie.kernel.words import uniform, word
from whitelie.policy import IMED, KLUCB, UCB, UCB1, TopTwo

IndexPolicy = KLUCB | UCB | UCB1 | IMED

MANY_DIGITS = Context(prec=40)
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Arm:
    """All that a decision knows of one arm."""

    channel: Channel
    pulls: int
    successes: int
    pending: int = 0
    available: bool = True
    word: int = 0


def choose(policy: IndexPolicy, arms: Sequence[Arm]) -> int:
    """Argmax of the index over available arms, after a first pull of each; the word settles ties.

    Time is the number of feedbacks received from all arms, available or not.
    """
    available = [k for k, arm in enumerate(arms) if arm.available]
    untouched = [k for k in available if arms[k].pulls + arms[k].pending == 0]
    if untouched:
        return max(untouched, key=lambda k: arms[k].word)
    t = sum(arm.pulls for arm in arms)
    return max(available, key=lambda k: (index(policy, arms, k, t), arms[k].word))


def index(policy: IndexPolicy, arms: Sequence[Arm], k: int, t: int) -> float:
    """The index of arm k; a wrapped policy's is on the scale common to all arms.

    kl-UCB-CF: max{q : n·d(λ̂, g(q)) ≤ f(t)}; UCB-CF: g^-1(λ̂ ± sqrt(f(t)/(2n))), minus for a
    decreasing g; UCB1: mean + sqrt(2·ln t/n); IMED: see `imed_index`. Here n counts pending too.
    """
    if isinstance(policy, IMED):
        return imed_index(policy, arms, k)
    arm = arms[k]
    n = arm.pulls + arm.pending
    mean, channel = mean_feedback(arm), arm.channel
    if policy.feedback != "corrected":
        channel = IDENTITY
    if policy.feedback == "wrapped":
        mean = wrapped_mean(arms, k)
    if isinstance(policy, UCB1):
        return float(mean) + math.sqrt(2 * log_or_zero(t) / n)
    f = exploration(policy, t)
    if isinstance(policy, UCB):
        width = math.sqrt(f / (2 * n))
        return channel.mean_reward(float(mean) + (width if channel.increasing else -width))
    if policy.domain == "extended" and isinstance(channel, RandomizedResponse):
        return largest_reward_on_the_line(channel, mean, n, f)
    return largest_reward_in_unit(channel, mean, n, f)


def imed_index(policy: IMED, arms: Sequence[Arm], k: int) -> float:
    """−(n·d⁺(λ̂, g(μ̂*)) + ln n), where n counts pending decisions too.

    d⁺ is 0 for an arm that reads as good as μ̂*: λ̂ ≥ g(μ̂*), or ≤ for a decreasing g.
    """
    channels = [arm.channel if policy.feedback == "corrected" else IDENTITY for arm in arms]
    available = [k for k, arm in enumerate(arms) if arm.available]
    with_feedback = [k for k in available if arms[k].pulls] or available
    estimates = [channels[k].mean_reward(float(mean_feedback(arms[k]))) for k in with_feedback]
    best = min(max(*estimates, 0.0), 1.0)
    mean, target = mean_feedback(arms[k]), channels[k].mean_feedback(best)
    is_best = mean >= target if channels[k].increasing else mean <= target
    n = arms[k].pulls + arms[k].pending
    return -float(0 if is_best else n * divergence(mean, target)) - math.log(n)


def exploration(policy: KLUCB | UCB, t: int) -> float:
    """f(t) = max(0, ln t + c·ln max(1, ln t)), and 0 before the first feedback."""
    return max(0.0, log_or_zero(t) + policy.c * math.log(max(1.0, log_or_zero(t))))


def log_or_zero(t: int) -> float:
    """ln t, and 0 before the first feedback."""
    return math.log(t) if t else 0.0


def mean_feedback(arm: Arm) -> Fraction:
    """λ̂ = S/N, and ½ while all decisions are pending."""
    return Fraction(arm.successes, arm.pulls) if arm.pulls else HALF


def wrapped_mean(arms: Sequence[Arm], k: int) -> Fraction:
    """The mean of g_k^-1(feedback), on the scale where the values of all arms just fill [0, 1]."""
    values = [inverted_bit(arm.channel, bit) for arm in arms for bit in (0, 1)]
    lowest, highest = min(values), max(values)
    share_of_ones = mean_feedback(arms[k])
    zero, one = (inverted_bit(arms[k].channel, bit) for bit in (0, 1))
    mean = (1 - share_of_ones) * zero + share_of_ones * one
    return (mean - lowest) / (highest - lowest)


def inverted_bit(channel: Channel, bit: int) -> Fraction:
    """g^-1(bit), exactly, for g(x) = (1 − p00)·(1 − x) + p11·x."""
    assert isinstance(channel, RandomizedResponse)
    p00, p11 = Fraction(channel.p00), Fraction(channel.p11)
    return (bit - (1 - p00)) / (p00 + p11 - 1)


def largest_reward_on_the_line(
    channel: RandomizedResponse, mean: Fraction, n: int, f: float
) -> float:
    """max{q ∈ ℝ : n·d(λ̂, g(q)) ≤ f}; it holds q = g^-1(λ̂) and ends before g(q) leaves [0, 1]."""

    def allowed(q: float) -> bool:
        return n * divergence(mean, channel.mean_feedback(q)) <= f

    start = channel.mean_reward(float(mean))
    step = 1.0
    while allowed(start + step):
        step *= 2
    return last_where(allowed, start, start + step)


def largest_reward_in_unit(channel: Channel, mean: Fraction, n: int, f: float) -> float:
    """max{q ∈ [0, 1] : n·d(λ̂, g(q)) ≤ f}, or the end point nearest to it when there is none.

    d(λ̂, g(q)) falls until g(q) is as near to λ̂ as it gets, and rises from there: the set is an
    interval around that q, or empty, and in that case that q is an end point of [0, 1].
    """

    def allowed(q: float) -> bool:
        return n * divergence(mean, channel.mean_feedback(q)) <= f

    if allowed(1.0):
        return 1.0
    return last_where(allowed, reward_nearest(channel, mean), 1.0)


def reward_nearest(channel: Channel, mean: Fraction) -> float:
    """The q ∈ [0, 1] whose g(q) is nearest to the mean."""
    at_zero, at_one = channel.mean_feedback(0.0), channel.mean_feedback(1.0)
    if not min(at_zero, at_one) < mean < max(at_zero, at_one):
        return 0.0 if abs(at_zero - mean) < abs(at_one - mean) else 1.0
    if at_zero < at_one:
        return last_where(lambda q: channel.mean_feedback(q) <= mean, 0.0, 1.0)
    return last_where(lambda q: channel.mean_feedback(q) >= mean, 0.0, 1.0)


def last_where(condition: Callable[[float], bool], low: float, high: float) -> float:
    """Where the condition, true at low and false at high, changes; low if it never holds."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):  # no double lies between them
            break
        if condition(middle):
            low = middle
        else:
            high = middle
    return low


def divergence(x: Fraction | float, y: float) -> Decimal:
    """d(x, y) = x·ln(x/y) + (1 − x)·ln((1 − x)/(1 − y)), with 0·ln 0 = 0.

    It is infinite where y is no probability, or excludes what x allows.
    """
    if not 0 <= y <= 1:
        return Decimal("inf")
    with localcontext(MANY_DIGITS):
        p, q = decimal_of(x), decimal_of(y)
        return information(p, q) + information(1 - p, 1 - q)


def information(p: Decimal, q: Decimal) -> Decimal:
    """p·ln(p/q) of two probabilities."""
    if p == 0:
        return Decimal(0)
    return p * (p / q).ln() if q else Decimal("inf")


def decimal_of(number: Fraction | float) -> Decimal:
    """The same number in decimals, to as many digits as the context asks."""
    exact = Fraction(number)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def upper_end(mean: Fraction | float, budget: float) -> float:
    """max{q ∈ [0, 1] : d(mean, q) ≤ budget}."""
    allowance = Decimal(budget)
    if divergence(mean, 1.0) <= allowance:
        return 1.0
    return last_where(lambda q: divergence(mean, q) <= allowance, float(mean), 1.0)


def lower_end(mean: Fraction | float, budget: float) -> float:
    """min{q ∈ [0, 1] : d(mean, q) ≤ budget}."""
    allowance = Decimal(budget)
    if divergence(mean, 0.0) <= allowance:
        return 0.0
    return last_where(lambda q: divergence(mean, q) <= allowance, float(mean), 0.0)


def interval(pulls: int, successes: int, alpha: float) -> tuple[float, float]:
    """{q : N·d(λ̂, q) ≤ ln(1/α) + S·ln λ̂ + (N − S)·ln(1 − λ̂) − ln B(S + 1, N − S + 1)}."""
    if pulls == 0:
        return 0.0, 1.0
    failures = pulls - successes
    with localcontext(MANY_DIGITS):
        log_beta = log_factorial(successes) + log_factorial(failures) - log_factorial(pulls + 1)
        likeliest = count_log_share(successes, pulls) + count_log_share(failures, pulls)
        budget = -decimal_of(alpha).ln() + likeliest - log_beta
    mean = Fraction(successes, pulls)

    def allowed(q: float) -> bool:
        return pulls * divergence(mean, q) <= budget

    low = 0.0 if allowed(0.0) else last_where(allowed, float(mean), 0.0)
    high = 1.0 if allowed(1.0) else last_where(allowed, float(mean), 1.0)
    return low, high


def count_log_share(count: int, total: int) -> Decimal:
    """count·ln(count/total), 0 for no count."""
    return count * (Decimal(count) / Decimal(total)).ln() if count else Decimal(0)


def log_factorial(n: int) -> Decimal:
    """ln n!, by multiplication or, for large n, by Stirling's series (rest below 1e-35)."""
    if n <= 1000:
        return Decimal(math.factorial(n)).ln()
    return stirling(Decimal(n))


def stirling(x: Decimal) -> Decimal:
    """ln Γ(x + 1) for large x."""
    tau = Decimal("6.283185307179586476925286766559005768394338798750")
    series = 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7)
    return (x * tau).ln() / 2 + x * x.ln() - x + series + 1 / (1188 * x**9)


def log_gamma(z: Decimal) -> Decimal:
    """ln Γ(z), by its recurrence from where the rest of Stirling's series is below 1e-24."""
    product, shifted = Decimal(1), z
    while shifted <= 100:
        product *= shifted
        shifted += 1
    return stirling(shifted - 1) - product.ln()


def log_beta(a: Decimal, b: Decimal) -> Decimal:
    """ln B(a, b)."""
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def penalty(pulls: int, ones: int, a: float, b: float) -> float:
    """C = S·ln λ̂ + (N − S)·ln(1 − λ̂) − ln B(S + a, N − S + b) + ln B(a, b)."""
    if pulls == 0:
        return 0.0
    with localcontext(MANY_DIGITS):
        x, y, zeros = decimal_of(a), decimal_of(b), pulls - ones
        likeliest = count_log_share(ones, pulls) + count_log_share(zeros, pulls)
        return float(likeliest - log_beta(ones + x, zeros + y) + log_beta(x, y))


Costs = Callable[[Floats], tuple[Floats, Floats]]


def costs(a: Arm, b: Arm, tolerance: float) -> Costs:
    """N·d(λ̂, g(x)) of arm a at rewards x, and of arm b at x + tolerance; pending count in N."""

    def at(x: Floats) -> tuple[Floats, Floats]:
        return cost(a, x), cost(b, x + tolerance)

    return at


def cost(arm: Arm, rewards: Floats) -> Floats:
    """N·d(λ̂, g(x)), without loss of digits near 0; infinite where an affine g leaves [0, 1]."""
    if isinstance(arm.channel, RandomizedResponse):
        level = (1 - arm.channel.p00) + arm.channel.slope * rewards
    else:
        level = np.interp(rewards, arm.channel.xs, arm.channel.ys)
    mean, n = float(mean_feedback(arm)), arm.pulls + arm.pending
    total = np.zeros_like(level)
    with np.errstate(divide="ignore", invalid="ignore"):
        for p, q in ((mean, level), (1 - mean, 1 - level)):
            if p > 0:
                total += np.where(q > 0, -p * np.log1p((q - p) / p), np.inf)
    return np.asarray(np.where((level < 0) | (level > 1), np.inf, n * total))


def least_on_grid(
    a: Arm, b: Arm, tolerance: float, value: Callable[[Floats, Floats], Floats]
) -> tuple[float, float]:
    """The least value(ℓ_a(x), ℓ_b(x + tolerance)) from b's estimate − tolerance to a's, and its x.

    A dense grid, then ever finer ones around its best points; −∞ where a does not read better.
    """
    low = estimate(b) - tolerance
    high = estimate(a)
    if low >= high:
        return -math.inf, high
    if tolerance:  # x and x + tolerance are rewards
        low, high = (min(max(end, 0.0), 1 - tolerance) for end in (low, high))
    at = costs(a, b, tolerance)
    grid = np.linspace(low, high, 20_001)
    values = value(*at(grid))
    best, place = math.inf, high
    for start in np.argsort(values)[:3]:
        i, fine, near = int(start), grid, values
        for _ in range(6):
            fine = np.linspace(fine[max(i - 1, 0)], fine[min(i + 1, len(fine) - 1)], 101)
            near = value(*at(fine))
            i = int(np.argmin(near))
        if near[i] < best:
            best, place = float(near[i]), float(fine[i])
    return best, place


def estimate(arm: Arm) -> float:
    """g^-1(λ̂): on the line for an affine channel, in [0, 1] for a table."""
    mean = mean_feedback(arm)
    if isinstance(arm.channel, RandomizedResponse):
        return float((mean - (1 - Fraction(arm.channel.p00))) / Fraction(arm.channel.slope))
    return reward_nearest(arm.channel, mean)


def transport(a: Arm, b: Arm, tolerance: float = 0.0) -> tuple[float, float]:
    """W, the least ℓ_a(x) + ℓ_b(x + tolerance), and its x; −∞ where a does not read better."""
    return least_on_grid(a, b, tolerance, np.add)


def challenger(arms: Sequence[Arm], leader: int) -> int:
    """The available rival of the least W + ln N; pending decisions count in N."""

    def rank(k: int) -> tuple[float, int]:
        n = arms[k].pulls + arms[k].pending
        return max(transport(arms[leader], arms[k])[0], 0.0) + math.log(n), -arms[k].word

    return min((k for k, arm in enumerate(arms) if arm.available and k != leader), key=rank)


def thompson_draw(arm: Arm) -> float:
    """g^-1(θ), θ from Beta(S + 1, N − S + 1) by the arm's word; mirrored, so is its draw."""
    ones, zeros = arm.successes, arm.pulls - arm.successes
    if arm.channel.increasing:
        return arm.channel.mean_reward(beta(ones + 1.0, zeros + 1.0, np.uint64(arm.word)))
    return arm.channel.mean_reward(1 - beta(zeros + 1.0, ones + 1.0, np.uint64(arm.word)))


def coin(arm: Arm, number: int) -> float:
    """A number from 0 to 1 of the stream of the arm's word, beyond what its draw may take."""
    return uniform(np.uint64(word(np.uint64(arm.word), 2**40 + number)))


def challenger_share(leader: Arm, rival: Arm) -> float:
    """The rival's part of the transport cost, ½ where there is none."""
    w, x = transport(leader, rival)
    if w <= 0:
        return 0.5
    of_leader, of_rival = costs(leader, rival, 0.0)(np.array([x]))
    return float(of_rival[0] / (of_leader[0] + of_rival[0]))


def choose_top_two(policy: TopTwo, arms: Sequence[Arm]) -> int:
    """The leader by Thompson sampling or its challenger, by the leader's two coins."""
    if policy.feedback == "naive":
        arms = [replace(arm, channel=IDENTITY) for arm in arms]
    available = [k for k, arm in enumerate(arms) if arm.available]
    untouched = [k for k in available if arms[k].pulls + arms[k].pending == 0]
    if untouched:
        return max(untouched, key=lambda k: arms[k].word)
    leader = max(available, key=lambda k: (thompson_draw(arms[k]), arms[k].word))
    if len(available) == 1 or coin(arms[leader], 0) >= policy.know:
        return leader
    rival = challenger(arms, leader)
    share = challenger_share(arms[leader], arms[rival])
    return rival if coin(arms[leader], 1) < share else leader
