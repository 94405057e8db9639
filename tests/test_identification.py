"""The least time to name the best arm, against grids, a linear program, closed forms and laws."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from whitelie import IDENTITY, InvalidInput, Monotone, Problem, RandomizedResponse
from whitelie.bounds import Identification, identification_time
from whitelie.channel import Channel, of_bits

NOISY, CLEAR = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
TURNED = RandomizedResponse(p00=0.3, p11=0.15)
ONE_SIDED = RandomizedResponse(p00=0.75, p11=1.0)
PRIVATE = RandomizedResponse.from_epsilon(0.2)
STAIRS = Monotone.from_points([(0, 0.1), (0.4, 0.12), (0.45, 0.6), (0.7, 0.65), (1, 0.9)])
STAIRS_DOWN = Monotone.from_points([(0, 0.95), (0.55, 0.9), (0.6, 0.2), (1, 0.05)])
JUMP_FROM_0 = Monotone.from_points([(0, 0), (0.001, 0.5), (1, 1)])

PROBLEMS = {
    "one channel": Problem([0.9, 0.6], NOISY),
    "unequal channels": Problem([0.7, 0.9], [CLEAR, NOISY]),
    "a decreasing channel": Problem([0.2, 0.6], [TURNED, CLEAR]),
    "decreasing channels": Problem([0.8, 0.5, 0.1], TURNED),
    "three unequal channels": Problem([0.5, 0.8, 0.7], [CLEAR, TURNED, NOISY]),
    "a table": Problem([0.3, 0.8], STAIRS),
    "a table and its opposite": Problem([0.8, 0.3], [STAIRS, STAIRS_DOWN]),
    "the opposite is the better arm": Problem([0.3, 0.8], [STAIRS, STAIRS_DOWN]),
    "three arms with two tables": Problem([0.3, 0.75, 0.5], [STAIRS, STAIRS_DOWN, CLEAR]),
    "the truth": Problem([0.7, 0.3, 0.2], IDENTITY),
    "the best arm never fails": Problem([1.0, 0.3], IDENTITY),
    "the other arm never succeeds": Problem([0.5, 0.0], IDENTITY),
    "a best arm at the edge of a private one": Problem([1.0, 0.5, 0.2], ONE_SIDED),
    "the best arm is needed at μ_b alone": Problem([0.5, 0.0], [PRIVATE, JUMP_FROM_0]),
}


def divergence(mean: float, level: NDArray[np.float64]) -> NDArray[np.float64]:
    """The formula as in a textbook; the grids avoid the ends where it is infinite."""
    ones = mean * np.log(mean / level) if mean > 0 else np.zeros_like(level)
    return ones + ((1 - mean) * np.log((1 - mean) / (1 - level)) if mean < 1 else 0)


def divergences(
    problem: Problem, best: int, rival: int, points: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """d(λ_1, g_1(x)) and d(λ_b, g_b(x)) for x from μ_b to μ_1: so many points on each piece."""
    lowest, highest = problem.means[rival], problem.means[best]
    knots = {x for channel in problem.channels for x in getattr(channel, "xs", ())}
    ends = [lowest, *sorted(x for x in knots if lowest < x < highest), highest]
    shares = (1 - np.cos(np.linspace(1e-6, math.pi - 1e-6, points))) / 2
    xs = [left + share * (right - left) for left, right in pairwise(ends) for share in shares]
    of_best, of_rival = (
        divergence(problem.feedback_means[k], np.array([channel.mean_feedback(x) for x in xs]))
        for k, channel in ((k, of_bits(problem.channels)[k]) for k in (best, rival))
    )
    return of_best, of_rival


def by_definition(problem: Problem) -> tuple[float, NDArray[np.float64]]:
    """T* and w by their definition: grids of w, each on half the last one's range, and of x.

    The least over b and x is concave in w, so the best w is near the last grid's best.
    """
    best, arms = int(np.argmax(problem.means)), len(problem.means)
    rivals = [k for k in range(arms) if k != best]
    seen = [divergences(problem, best, rival, 150) for rival in rivals]
    centre, width = np.full(arms - 1, 0.5), 1.0
    for _ in range(16):
        steps = width * np.linspace(-0.5, 0.5, 200 if arms == 2 else 17)
        grid = np.array(list(product(*(centre[:, np.newaxis] + steps))))
        grid = grid[(grid > 0).all(axis=1) & (grid.sum(axis=1) < 1)]
        least = np.full(len(grid), math.inf)
        for share, (of_best, of_rival) in zip(grid.T, seen, strict=True):
            totals = np.outer(1 - grid.sum(axis=1), of_best) + np.outer(share, of_rival)
            least = np.minimum(least, totals.min(axis=1))
        top = int(np.argmax(least))
        centre, width = grid[top], width / 2
    return float(1 / least[top]), np.insert(centre, best, 1 - centre.sum())


def by_linear_program(problem: Problem) -> float:
    """T* as the least Σ n_a with n_1·d_1(x) + n_b·d_b(x) ≥ 1 for x on a grid."""
    best, arms = int(np.argmax(problem.means)), len(problem.means)
    rows = []
    for rival in set(range(arms)) - {best}:
        of_best, of_rival = divergences(problem, best, rival, 800)
        row = np.zeros((len(of_best), arms))
        row[:, best], row[:, rival] = of_best, of_rival
        rows.append(row)
    constraints = np.concatenate(rows)
    unit = float(np.median(constraints[constraints > 0]))
    result = linprog(np.ones(arms), A_ub=-constraints / unit, b_ub=-np.ones(len(constraints)))
    return float(result.fun) / unit


def shares_of(time: Identification) -> NDArray[np.float64]:
    return np.array(list(time.shares.values()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_the_best_that_a_grid_of_shares_offers(name: str) -> None:
    time = identification_time(PROBLEMS[name])
    constant, shares = by_definition(PROBLEMS[name])
    assert time.constant == pytest.approx(constant, rel=3e-4)
    assert shares_of(time) == pytest.approx(shares, abs=0.005)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_the_solution_of_a_linear_program(name: str) -> None:
    constant = identification_time(PROBLEMS[name]).constant
    program = by_linear_program(PROBLEMS[name])
    assert program <= constant * (1 + 1e-6)  # it has some of the constraints only
    assert constant == pytest.approx(program, rel=1e-5)


def test_a_table_can_have_two_minima_that_are_equally_low_at_the_best_shares() -> None:
    """Then the maximum over shares is an edge, where the slopes jump past −1."""
    problem = PROBLEMS["the opposite is the better arm"]
    of_best, of_rival = divergences(problem, 1, 0, 1000)
    time = identification_time(problem)

    def minima(share: float) -> list[float]:
        total = share * of_best + (1 - share) * of_rival
        middle = total[1:-1]
        return sorted(middle[(middle < total[:-2]) & (middle < total[2:])].tolist())

    assert minima(time.shares[1]) == pytest.approx([1 / time.constant] * 2, rel=1e-5)
    for share in (time.shares[1] - 0.01, time.shares[1] + 0.01):
        lowest, other = minima(share)
        assert lowest < 0.995 / time.constant
        assert other > 1.005 / time.constant


def exact(best: Channel, rival: Channel, means: tuple[float, float], rivals: int) -> Decimal:
    """T* for equal rivals: 1/d_1(x) where rivals·d_1(x) = d_b(x), in 50 digits."""

    def level(channel: Channel, x: Decimal) -> Decimal:
        assert isinstance(channel, RandomizedResponse)
        return (1 - x) * (1 - Decimal(channel.p00)) + x * Decimal(channel.p11)

    def d(channel: Channel, mean: Decimal, x: Decimal) -> Decimal:
        p, q = level(channel, mean), level(channel, x)
        return p * (p / q).ln() + (1 - p) * ((1 - p) / (1 - q)).ln()

    with localcontext(prec=50):
        highest, lowest = map(Decimal, means)
        left, right = lowest, highest
        for _ in range(60):
            x = (left + right) / 2
            if rivals * d(best, highest, x) > d(rival, lowest, x):
                left = x
            else:
                right = x
        return 1 / d(best, highest, x)


@pytest.mark.parametrize("gap", [0.3, 0.01, 1e-4])
@pytest.mark.parametrize(
    ("best", "rival", "rivals"),
    [(CLEAR, CLEAR, 1), (PRIVATE, CLEAR, 4), (TURNED, PRIVATE, 9), (CLEAR, TURNED, 2)],
)
def test_equal_rivals_to_nine_digits(
    best: Channel, rival: Channel, rivals: int, gap: float
) -> None:
    means = 0.4 + gap, 0.4
    problem = Problem([means[1]] * rivals + [means[0]], [rival] * rivals + [best])
    expected = float(exact(best, rival, means, rivals))
    assert identification_time(problem).constant == pytest.approx(expected, rel=1e-9)


def test_two_arms_with_one_channel_have_a_closed_form() -> None:
    """1/T* = d(λ_1, q) = d(λ_2, q): Chernoff's information, whose q has a closed form."""
    problem = Problem([0.9, 0.6], CLEAR)
    one, two = problem.feedback_means
    entropy = [-p * math.log(p) - (1 - p) * math.log(1 - p) for p in (one, two)]
    q = 1 / (1 + math.exp((entropy[0] - entropy[1]) / (one - two)))
    information = one * math.log(one / q) + (1 - one) * math.log((1 - one) / (1 - q))
    assert identification_time(problem).constant == pytest.approx(1 / information, rel=1e-12)


def test_close_arms_have_the_time_and_shares_of_normal_ones() -> None:
    """T* → 2·v·(1 + √(K − 1))²/Δ², and the best arm's share → 1/(1 + √(K − 1))."""
    gap, rivals = 1e-4, 16
    problem = Problem([0.4] * rivals + [0.4 + gap], CLEAR)
    level = problem.feedback_means[0]
    expected = 2 * level * (1 - level) * (1 + math.sqrt(rivals)) ** 2 / (0.8 * gap) ** 2
    time = identification_time(problem)
    assert time.constant == pytest.approx(expected, rel=1e-3)
    assert time.shares[rivals] == pytest.approx(1 / 5, rel=1e-3)


def test_five_pages_at_epsilon_1() -> None:
    channel = RandomizedResponse.from_epsilon(1)
    time = identification_time(Problem([0.05, 0.05, 0.05, 0.05, 0.06], channel), 0.05)
    assert time.constant * math.log(1 / 0.05) == pytest.approx(525_000, rel=1e-3)
    assert time.reports == pytest.approx(time.constant * 0.9 * math.log(19), rel=1e-12)


def test_arms_that_never_and_always_succeed() -> None:
    """n·ln(1/x) + n·ln(1/(1 − x)) ≥ 1 is hardest to meet at x = ½."""
    time = identification_time(Problem([0.0, 1.0], IDENTITY))
    assert time.constant == pytest.approx(1 / math.log(2), rel=1e-12)
    assert shares_of(time) == pytest.approx([0.5, 0.5], rel=1e-12)


def test_the_best_arm_alone_must_tell_where_the_other_has_its_mean() -> None:
    """No fewer reports of the best arm would do, whatever the other gets; more would be wasted."""
    problem = PROBLEMS["the best arm is needed at μ_b alone"]
    time = identification_time(problem)
    alone = float(divergence(problem.feedback_means[0], np.array(PRIVATE.mean_feedback(0.0))))
    assert time.shares[0] * time.constant == pytest.approx(1 / alone, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-20, 1e-300])
def test_rates_near_0_have_the_time_of_poisson_counts(scale: float) -> None:
    """With a rate μ and none, d_1 = μ·ln(μ/x) − μ + x and d_b = x: equal at x = μ/e."""
    time = identification_time(Problem([scale, 0.0], IDENTITY))
    assert time.constant * scale == pytest.approx(math.e, rel=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_shares_are_named_positive_and_add_up_to_1(name: str) -> None:
    time = identification_time(PROBLEMS[name])
    assert tuple(time.shares) == PROBLEMS[name].names
    assert min(time.shares.values()) > 0
    assert math.fsum(time.shares.values()) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_names_and_order_of_arms_do_not_matter(name: str) -> None:
    problem = PROBLEMS[name]
    order = [*range(1, len(problem.means)), 0]
    names = ["blue", "red", "green"][: len(order)]
    turned = Problem(
        {names[k]: problem.means[k] for k in order}, [problem.channels[k] for k in order]
    )
    given, computed = identification_time(problem), identification_time(turned)
    assert computed.constant == pytest.approx(given.constant, rel=1e-12)
    renamed = {names[k]: share for k, share in given.shares.items() if isinstance(k, int)}
    assert computed.shares == pytest.approx(renamed, rel=1e-9)


def mirrored(channel: Channel) -> Channel:
    if isinstance(channel, Monotone):
        return Monotone.from_points(
            [(x, 1 - y) for x, y in zip(channel.xs, channel.ys, strict=True)]
        )
    return RandomizedResponse(p00=1 - channel.p00, p11=1 - channel.p11)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("arm", [0, 1])
def test_a_mirrored_channel_takes_as_long(name: str, arm: int) -> None:
    problem = PROBLEMS[name]
    channels = list(of_bits(problem.channels))
    channels[arm] = mirrored(channels[arm])
    given = identification_time(problem)
    computed = identification_time(Problem(problem.means, channels))
    assert computed.constant == pytest.approx(given.constant, rel=1e-9)
    assert shares_of(computed) == pytest.approx(shares_of(given), rel=1e-6)


def test_a_table_of_an_affine_channel_is_that_channel() -> None:
    means = [0.8, 0.5, 0.1]
    given = identification_time(Problem(means, TURNED))
    computed = identification_time(Problem(means, Monotone(TURNED.mean_feedback)))
    assert computed.constant == pytest.approx(given.constant, rel=1e-9)
    assert shares_of(computed) == pytest.approx(shares_of(given), rel=1e-6)


def falling(times: list[float]) -> bool:
    return bool(np.all(np.diff(times) < 0))


def test_less_privacy_takes_less_time() -> None:
    epsilons = [0.1, 0.5, 1, 2, 4, math.inf]
    for others in ([], [CLEAR, TURNED]):
        channels = [RandomizedResponse.from_epsilon(epsilon) for epsilon in epsilons]
        each = [[channel, *(others or [channel] * 2)] for channel in channels]
        for means in ([0.6, 0.5, 0.3], [0.3, 0.5, 0.6]):
            assert falling([identification_time(Problem(means, c)).reports for c in each])


@pytest.mark.parametrize("channel", [NOISY, TURNED, STAIRS, STAIRS_DOWN])
def test_larger_gaps_take_less_time(channel: Channel) -> None:
    best = [[0.5 + gap, 0.5, 0.4] for gap in (0.01, 0.1, 0.2, 0.5)]
    other = [[0.7, 0.7 - gap, 0.4] for gap in (0.01, 0.1, 0.2, 0.5)]
    for means in (best, other):
        assert falling([identification_time(Problem(m, channel)).reports for m in means])


def test_another_arm_takes_more_time() -> None:
    times = [
        identification_time(Problem([0.7, 0.5, 0.4, 0.1][:arms], NOISY)).reports
        for arms in (4, 3, 2)
    ]
    assert falling(times)


@pytest.mark.parametrize(
    ("delta", "evidence"),
    [
        (5e-324, 744.4400719213812),
        (1e-30, 30 * math.log(10)),
        (0.01, 0.98 * math.log(99)),
        (0.05, 0.9 * math.log(19)),
        (0.25, 0.5 * math.log(3)),
    ],
)
def test_delta_enters_by_kl_alone(delta: float, evidence: float) -> None:
    problem = PROBLEMS["one channel"]
    time, at_5_percent = identification_time(problem, delta), identification_time(problem)
    assert time.reports == pytest.approx(time.constant * evidence, rel=1e-12)
    assert (time.constant, time.shares) == (at_5_percent.constant, at_5_percent.shares)
    assert at_5_percent.reports == identification_time(problem, 0.05).reports


@pytest.mark.parametrize(
    "problem",
    [
        Problem([0.5, 0.9, 0.9], NOISY),
        Problem([0.9, 0.9], [STAIRS, TURNED]),
        Problem([0.5, 0.5 - 2**-53], NOISY),
        Problem([0.5, 0.5 - 2**-50], RandomizedResponse.from_epsilon(1e-6)),
        Problem([5e-324, 0.0], IDENTITY),
    ],
    ids=["shared", "shared through tables", "one bit", "one bit of feedback", "smallest double"],
)
def test_arms_that_nothing_can_tell_apart_take_for_ever(problem: Problem) -> None:
    time = identification_time(problem)
    assert time.constant == time.reports == math.inf
    assert list(time.shares) == list(problem.names)
    assert np.isnan(shares_of(time)).all()


def test_equal_arms_below_the_best_are_no_tie() -> None:
    time = identification_time(Problem([0.5, 0.9, 0.5], NOISY))
    assert time.constant < math.inf
    assert time.shares[0] == pytest.approx(time.shares[2], rel=1e-12)


@pytest.mark.parametrize("means", [[0.9, 0.5], [0.9, 0.9]])
def test_a_guess_between_two_arms_errs_half_the_time(means: list[float]) -> None:
    assert identification_time(Problem(means, NOISY), 0.5).reports == 0.0


def unchecked(delta: Any) -> Identification:
    return identification_time(PROBLEMS["one channel"], delta)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: unchecked(0), "delta"),
        (lambda: unchecked(-0.1), "delta"),
        (lambda: unchecked(0.51), "delta"),
        (lambda: unchecked(math.nan), "delta"),
        (lambda: unchecked("0.05"), "delta"),
        (lambda: identification_time(Problem([0.9], NOISY)), "problem"),
    ],
)
def test_refusals_name_the_field(call: Callable[[], Identification], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        call()
    assert refusal.value.field == field
