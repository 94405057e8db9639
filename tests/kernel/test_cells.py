"""Evidence in cells: against slow plain twins, and against the special code of one bit."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from whitelie import (
    IDENTITY,
    IMED,
    KLUCB,
    TS,
    UCB,
    Bandit,
    Certificate,
    InvalidInput,
    Mechanism,
    Menu,
    Monotone,
    Problem,
    RandomizedResponse,
    TopTwo,
    bounds,
    menu,
    simulate,
)
from whitelie.channel import AnyChannel, mechanism_of
from whitelie.kernel.cell_evidence import cell_interval, log_area, penalty_of_cells
from whitelie.kernel.cells import (
    Cells,
    CellState,
    draw_of,
    end_of,
    estimate_of,
    least_common,
    likelihood,
    pack_cells,
)
from whitelie.kernel.divergence import lower_end, upper_end
from whitelie.kernel.evidence import log_peak, penalty
from whitelie.kernel.interval import feedback_interval
from whitelie.policy import Policy
from whitelie.policy.run import runner

TERNARY = Mechanism(zero=[0.5, 0.2, 0.3], one=[0.2, 0.5, 0.3])
MENU = menu({0.25: 0.3, 1: 0.3, 4: 0.4})
CHANNELS: dict[str, AnyChannel] = {
    "one coin": RandomizedResponse.from_epsilon(1),
    "turned": RandomizedResponse(p00=0.2, p11=0.3),
    "one-sided": RandomizedResponse(p00=1, p11=0.6),
    "ternary": TERNARY,
    "menu": MENU,
    "menu of unlike": Menu([TERNARY, RandomizedResponse(p00=0.3, p11=0.2), IDENTITY]),
    "lossy": mechanism_of(RandomizedResponse.from_epsilon(2)).with_loss(0.1, 0.4),
}
BITS = ["one coin", "turned", "one-sided"]
POLICIES: list[Policy] = [KLUCB(), UCB(), TS(), IMED(), TopTwo(), TopTwo(know=0.5)]


def state_of(*rows: Any, pending: Any = None) -> CellState:
    counts = np.array(rows, dtype=np.int64)
    waiting = np.zeros(len(counts), np.int64) if pending is None else np.array(pending)
    available = np.ones(len(counts), dtype=bool)
    return CellState(counts.sum(axis=1), counts, waiting, available, np.empty((0, 0)))


def drawn_counts(channel: AnyChannel, n: int, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    columns = pack_cells([channel]).u.shape[1]
    return draw.multinomial(n, draw.dirichlet(np.ones(columns)))


def loss(arms: Cells, row: Any, q: float) -> float:
    """L(q) by its definition."""
    probabilities = arms.u[0] + arms.v[0] * q
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(-np.sum(np.where(row > 0, row * np.log(np.maximum(probabilities, 0)), 0.0)))


def slow_estimate(arms: Cells, row: Any) -> float:
    least = optimize.minimize_scalar(
        lambda q: loss(arms, row, q),
        bounds=(arms.low[0], arms.high[0]),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return float(least.x)


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("n", [1, 7, 400, 10**6])
def test_estimates_and_ends_are_those_of_a_plain_search(name: str, n: int) -> None:
    arms = pack_cells([CHANNELS[name]])
    for seed in range(4):
        row = drawn_counts(CHANNELS[name], n, seed)
        state = state_of(row)
        estimate = estimate_of(arms, state, 0)
        least = loss(arms, row, estimate)
        assert least <= loss(arms, row, slow_estimate(arms, row)) + 1e-7 * max(1, n / 1e3)
        for budget in (0.1, 4.0):
            for end, upward in ((arms.high[0], True), (arms.low[0], False)):
                last = end_of(arms, state, 0, budget, upward)
                if last in (arms.low[0], arms.high[0]):
                    inside = end - 1e-9 * (end - estimate)
                    assert loss(arms, row, inside) - least <= budget + 1e-6
                else:
                    assert loss(arms, row, last) - least == pytest.approx(budget, abs=1e-5)


@pytest.mark.promise("Cells")
@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("n", [1, 30, 10**5])
def test_one_coin_in_cells_equals_the_special_code(name: str, n: int) -> None:
    channel = CHANNELS[name]
    assert isinstance(channel, RandomizedResponse)
    arms = pack_cells([channel])
    width = arms.high[0] - arms.low[0]
    for ones in sorted({0, n // 3, n // 2, n}):
        state = state_of([n - ones, ones])
        rate = ones / n
        assert estimate_of(arms, state, 0) == pytest.approx(channel.mean_reward(rate), abs=1e-9)
        for f in (0.01, 3.0, 30.0):
            feedback = lower_end(rate, f / n), upper_end(rate, f / n)
            expected = sorted(map(channel.mean_reward, feedback))
            ends = [end_of(arms, state, 0, f, upward) for upward in (False, True)]
            assert ends == pytest.approx(expected, abs=1e-9 * width)
        interval = sorted(map(channel.mean_reward, feedback_interval(n, ones, 0.05)))
        assert cell_interval(arms, state, 0, 0.05) == pytest.approx(interval, abs=1e-9 * width)
        speaking = ones if channel.increasing else n - ones
        for a, b in ((1.0, 1.0), (12.0, 40.0), (2e4, 3e4)):
            expected_penalty = penalty(float(n), float(speaking), a, b, log_peak(a, b))
            of, at = likelihood(arms, state, 0), estimate_of(arms, state, 0)
            assert penalty_of_cells(of, at, a, b) == pytest.approx(expected_penalty, abs=1e-7)


@pytest.mark.parametrize("name", ["ternary", "menu", "menu of unlike", "lossy"])
def test_mixtures_are_what_quadrature_says(name: str) -> None:
    arms = pack_cells([CHANNELS[name]])
    for n in (2, 60, 3000):
        row = drawn_counts(CHANNELS[name], n, n)
        state = state_of(row)
        of, at = likelihood(arms, state, 0), estimate_of(arms, state, 0)
        low, high, least = arms.low[0], arms.high[0], loss(arms, row, at)
        expected, _ = integrate.quad(
            lambda q, row=row, least=least: math.exp(least - loss(arms, row, q)),
            low, high, points=[at], limit=500, epsabs=1e-13,
        )  # fmt: skip
        assert log_area(of, at) == pytest.approx(math.log(expected / (high - low)), abs=1e-6)


@pytest.mark.parametrize("name", ["one coin", "ternary", "menu of unlike"])
def test_draws_are_from_the_posterior(name: str) -> None:
    arms = pack_cells([CHANNELS[name]])
    columns = arms.u.shape[1]
    for n in (0, 1, 40, 5000):
        row = drawn_counts(CHANNELS[name], n, 3) if n else np.zeros(columns, np.int64)
        state = state_of(row)
        draws = np.array([draw_of(arms, state, 0, np.uint64(seed)) for seed in range(4000)])
        grid = np.linspace(arms.low[0], arms.high[0], 200_001)[1:-1]
        least = loss(arms, row, estimate_of(arms, state, 0))
        density = np.exp([least - loss(arms, row, q) for q in grid[::20]])
        below = np.cumsum(density) / density.sum()

        def distribution(q: Any, below: Any = below, grid: Any = grid) -> Any:
            return np.interp(q, grid[::20], below)

        assert stats.kstest(draws, distribution).pvalue > 1e-4
        shifted = draws + 0.3 * draws.std()
        assert stats.kstest(shifted, distribution).pvalue < 1e-4, "the control"


def test_the_common_reward_of_two_arms_is_the_cheapest() -> None:
    arms = pack_cells([MENU, MENU])
    one = pack_cells([MENU])
    for seed in range(10):
        rows = [drawn_counts(MENU, 300, 2 * seed + k) for k in range(2)]
        estimates = [slow_estimate(one, row) for row in rows]
        a, b = (0, 1) if estimates[0] > estimates[1] else (1, 0)
        x, of_a, of_b = least_common(arms, state_of(*rows), a, b)
        least = [loss(one, row, q) for row, q in zip(rows, estimates, strict=True)]
        grid = np.linspace(estimates[b], estimates[a], 4001)
        costs = [loss(one, rows[a], q) - least[a] + loss(one, rows[b], q) - least[b] for q in grid]
        assert of_a + of_b == pytest.approx(min(costs), abs=1e-4)
        assert x == pytest.approx(grid[int(np.argmin(costs))], abs=1e-2)
        assert least_common(arms, state_of(*rows), b, a)[1:] == (0, 0)


@pytest.mark.parametrize("policy", [KLUCB(), KLUCB(c=0), KLUCB(c=0, domain="unit")])
@pytest.mark.parametrize("name", ["one coin", "ternary", "menu", "menu of unlike"])
def test_the_fast_kernel_plays_as_the_plain_one(policy: KLUCB, name: str) -> None:
    channel = CHANNELS[name]
    problem = Problem([0.7, 0.65, 0.4, 0.7], [MENU, channel, channel, channel])
    times = np.array([5, 100, 3000])
    for replicate in range(3):
        fast, plain = (
            runner(policy, problem, 5, times, plain=plain)(replicate) for plain in (False, True)
        )
        assert np.array_equal(fast, plain)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
def test_the_order_of_a_menu_changes_nothing(policy: Policy) -> None:
    turned = Menu(MENU.mechanisms[::-1], MENU.shares[::-1])
    counts = {"a": ((5, 9), (8, 3), (2, 11)), "b": ((6, 4), (7, 7), (9, 5)), "c": ((0, 0),) * 3}
    reversed_counts = {name: rows[::-1] for name, rows in counts.items()}
    first = Bandit(list(counts), MENU, policy, seed=3, counts=counts)
    second = Bandit(list(counts), turned, policy, seed=3, counts=reversed_counts)
    assert first.choose(40) == second.choose(40)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
def test_one_coin_chooses_as_the_special_code_where_it_is_no_draw(policy: Policy) -> None:
    coin = RandomizedResponse.from_epsilon(1)
    bits = {"a": (50, 30), "b": (40, 22), "c": (9, 5), "d": (0, 0)}
    cells = {name: (n - ones, ones) for name, (n, ones) in bits.items()}
    special = Bandit(list(bits), coin, policy, seed=1, counts=bits)
    general = Bandit(list(bits), mechanism_of(coin), policy, seed=1, counts=cells)
    pending = {"c": 3, "d": 2}
    if isinstance(policy, TS | TopTwo):
        times = 3000
        shares = [
            np.array([list(map(bandit.choose(times).count, bits))]) for bandit in (special, general)
        ]
        table = np.vstack(shares)
        assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-4
    else:
        assert special.choose(60, pending=pending) == general.choose(60, pending=pending)


def test_half_of_the_people_at_a_quarter_cost_little_if_treated_right() -> None:
    """Regret at T = 10^4: the likelihood reads both groups; the average slope misreads both."""
    problem = Problem([0.9, 0.8, 0.8, 0.8, 0.8], menu({0.25: 0.5, 4: 0.5}))
    result = simulate(problem, [KLUCB(), TS()], horizon=10_000, replicates=24, seed=1)
    regret = dict(zip(result.policies, result.regret.values[..., -1], strict=True))
    slopes = [one.slope for one in MENU_OF_TWO.mechanisms]
    averaged = RandomizedResponse.warner(0.5 + sum(slopes) / 4)
    blurred = simulate(
        Problem(problem.means, averaged), [KLUCB(), TS()], horizon=10_000, replicates=24, seed=1
    )
    worse = dict(zip(blurred.policies, blurred.regret.values[..., -1], strict=True))
    for name in ("kl-UCB-CF", "TS-CF"):
        better = np.asarray(regret[name]).ravel()
        other = np.asarray(worse[name]).ravel()
        spread = math.hypot(stats.sem(better), stats.sem(other))
        assert other.mean() - better.mean() > 3 * spread, name


MENU_OF_TWO = menu({0.25: 0.5, 4: 0.5})


def test_bounds_of_a_menu_weigh_its_mechanisms() -> None:
    means = [0.9, 0.8, 0.8]
    one, two = (RandomizedResponse.from_epsilon(epsilon) for epsilon in (0.25, 4))
    constants = [bounds.lower_constant(Problem(means, channel)) for channel in (one, two)]
    mixed = bounds.lower_constant(Problem(means, MENU_OF_TWO))
    assert 1 / mixed == pytest.approx(0.5 / constants[0] + 0.5 / constants[1], rel=1e-12)
    coin = RandomizedResponse.from_epsilon(1)
    general = Problem(means, mechanism_of(coin))
    assert bounds.lower_constant(general) == pytest.approx(
        bounds.lower_constant(Problem(means, coin)), rel=1e-12
    )
    times = [bounds.identification_time(each) for each in (general, Problem(means, coin))]
    assert times[0].constant == pytest.approx(times[1].constant, rel=1e-8)
    assert list(times[0].shares.values()) == pytest.approx(list(times[1].shares.values()), rel=1e-5)
    by_epsilon = [
        bounds.identification_time(Problem(means, menu({0.25: 1 - share, 4: share}))).constant
        for share in (0.2, 0.5, 0.8)
    ]
    assert all(later < earlier for earlier, later in pairwise(by_epsilon))
    for bound in (bounds.finite_time_bound, bounds.ucb_order):
        with pytest.raises(InvalidInput, match="more than bits"):
            bound(general, 100.0)


def test_tables_naive_readings_and_stops_are_refused_beside_menus() -> None:
    table = Monotone.from_points([(0, 0.1), (1, 0.9)])
    with pytest.raises(InvalidInput, match="tabulated"):
        Bandit(["a", "b"], [MENU, table])
    with pytest.raises(InvalidInput, match="corrected"):
        Bandit(["a", "b"], MENU, TS(feedback="naive"))
    with pytest.raises(InvalidInput, match="corrected"):
        simulate(PAIR, [UCB(feedback="wrapped")], horizon=10, replicates=1, seed=1)
    with pytest.raises(InvalidInput, match="one bit"):
        simulate(PAIR, [UCB()], horizon=10, replicates=1, seed=1, stop=Certificate())


PAIR = Problem([0.5, 0.6], MENU)


@pytest.mark.long
def test_the_table_of_two_groups() -> None:
    """Five arms, half of the people at ε = ¼ and half at 4, T = 10^5: regret with its error."""
    problem = Problem([0.9, 0.8, 0.8, 0.8, 0.8], MENU_OF_TWO)
    result = simulate(problem, [KLUCB(), TS()], horizon=100_000, replicates=200, seed=1)
    for name, mean, error in (("kl-UCB-CF", 317, 4), ("TS-CF", 116, 3)):
        place = list(result.policies).index(name)
        regret = np.asarray(result.regret.values[place, ..., -1]).ravel()
        print(f"{name}: {regret.mean():.0f} ± {stats.sem(regret):.1f}")
        assert abs(regret.mean() - mean) < 4 * math.hypot(stats.sem(regret), error)
