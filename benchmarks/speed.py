"""Simulated steps per second on one core, beside pymab (Rust core) and river in the same run."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymab
from pymab.policies import BernoulliThompsonSamplingPolicy, KLUCBPolicy, UCBPolicy
from river import bandit as river_bandit
from river import proba

from whitelie import KLUCB, TS, UCB1, Problem, RandomizedResponse, simulate
from whitelie.policy import Policy
from whitelie.policy.run import runner

SIZES = (2, 10, 100)
NOISY, CLEAR = RandomizedResponse.warner(0.6), RandomizedResponse.warner(0.9)
FIRST_EXPERIMENT = Problem([0.9] + [0.8] * 9, [NOISY] + [CLEAR] * 9)


def main_problem(arms: int = 10) -> list[float]:
    return [0.9] + [0.8] * (arms - 1)


def nanoseconds(run: Callable[[int], object], steps: int, seconds: float = 1.0) -> float:
    """Nanoseconds per step: the fastest of repeated replicates over about a second each."""
    run(0)
    fastest, spent, replicate = float("inf"), 0.0, 0
    while spent < seconds or replicate < 3:
        replicate += 1
        start = time.perf_counter()
        run(replicate)
        took = time.perf_counter() - start
        fastest, spent = min(fastest, took), spent + took
    return fastest / steps * 1e9


def ours(policy: Policy, problem: Problem, horizon: int, *, plain: bool = False) -> float:
    checkpoints = np.unique(np.geomspace(1, horizon, 200).astype(np.int64))
    return nanoseconds(runner(policy, problem, 1, checkpoints, plain=plain), horizon)


def with_pymab(policy: object, arms: int, horizon: int) -> float:
    environment = pymab.BanditEnvironment(
        means=np.array(main_problem(arms)), reward_model=pymab.BernoulliReward()
    )

    def run(seed: int) -> None:
        config = pymab.ExperimentConfig(horizon=horizon, n_replicates=1, seed=seed)
        pymab.Experiment(environment=environment, policies={"policy": policy}, config=config).run()

    return nanoseconds(run, horizon)


def with_river(make: Callable[[], Any], arms: int, horizon: int) -> float:
    means, names = main_problem(arms), list(range(arms))

    def run(seed: int) -> None:
        policy, rewards = make(), random.Random(seed)
        for _ in range(horizon):
            arm = policy.pull(names)
            policy.update(arm, int(rewards.random() < means[arm]))

    return nanoseconds(run, horizon)


def row(name: str, cells: list[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def head(first: str, columns: list[str]) -> list[str]:
    return [row(first, columns), "|---|" + "---:|" * len(columns)]


def peers() -> str:
    """Classical policies on the identity channel."""
    rules = {
        "kl-UCB": (KLUCB(), lambda k: KLUCBPolicy(n_arms=k), None),
        "UCB1": (UCB1(), lambda k: UCBPolicy(n_arms=k), lambda: river_bandit.UCB(delta=1, seed=1)),
        "Thompson sampling": (
            TS(),
            lambda k: BernoulliThompsonSamplingPolicy(n_arms=k),
            lambda: river_bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=1),
        ),
    }
    lines = [
        "Classical policies on rewards as they are: one best arm of .9, the others .8. "
        "Nanoseconds per step and ratios; T = 100,000 for whitelie, 5,000 for pymab, 2,000 for "
        "river.",
        "",
        *head("rule", ["K", "whitelie", "pymab", "×", "river", "×"]),
    ]
    for rule, (policy, pymab_policy, river_policy) in rules.items():
        for arms in SIZES:
            mine = ours(policy, Problem(main_problem(arms)), 100_000)
            rust = with_pymab(pymab_policy(arms), arms, 5_000)
            cells = [str(arms), f"{mine:.0f}", f"{rust:,.0f}", f"{rust / mine:.0f}", "–", "–"]
            if river_policy:
                theirs = with_river(river_policy, arms, 2_000)
                cells[4:] = [f"{theirs:,.0f}", f"{theirs / mine:.0f}"]
            lines.append(row(rule, cells))
    return "\n".join(lines)


def private() -> str:
    """The paper's algorithms, fast and step by step."""
    problems = {"experiment 1": FIRST_EXPERIMENT} | {
        f"ε = {name}": Problem(main_problem(), RandomizedResponse.from_epsilon(epsilon))
        for name, epsilon in (("8", 8), ("1", 1), ("1/4", 0.25), ("1/8", 0.125))
    }
    lines = [
        "kl-UCB-CF and TS-CF on the paper's main problem, K = 10, T = 100,000. Nanoseconds per "
        "step of the fast kernel, of the plain one that solves or draws every arm, and the ratio.",
        "",
        *head("problem", ["kl-UCB-CF", "plain", "×", "TS-CF", "plain", "×"]),
    ]
    for name, problem in problems.items():
        cells = []
        for policy in (KLUCB(), TS()):
            fast, plain = ours(policy, problem, 100_000), ours(policy, problem, 100_000, plain=True)
            cells += [f"{fast:.0f}", f"{plain:,.0f}", f"{plain / fast:.0f}"]
        lines.append(row(name, cells))
    return "\n".join(lines)


def growth() -> str:
    """Cost per step against the number of arms and the horizon."""
    sizes, horizons = (2, 5, 10, 20, 50, 100), (10**3, 10**4, 10**5, 10**6)
    lines = [
        "Nanoseconds per step on rewards as they are, against K: at a fixed horizon, where more "
        "arms also mean more exploring, and at one that grows with K.",
        "",
        *head("policy", [f"K = {size}" for size in sizes]),
    ]
    for policy in (KLUCB(), TS()):
        for title, per_arm in (("T = 100,000", 0), ("T = 10,000·K", 10_000)):
            cells = [
                f"{ours(policy, Problem(main_problem(k)), per_arm * k or 100_000):.0f}"
                for k in sizes
            ]
            lines.append(row(f"{policy.label}, {title}", cells))
    plain = ours(KLUCB(), Problem(main_problem(100)), 20_000, plain=True)
    fast = ours(KLUCB(), Problem(main_problem(100)), 20_000)
    lines += ["", f"kl-UCB at K = 100, T = 20,000: plain {plain:,.0f}, fast {fast:,.0f}, "
              f"{plain / fast:.0f} times."]  # fmt: skip
    lines += ["", "Nanoseconds per step on experiment 1, against T:", ""]
    lines += head("policy", [f"{horizon:,}" for horizon in horizons])
    for policy in (KLUCB(), TS()):
        cells = [f"{ours(policy, FIRST_EXPERIMENT, horizon):.0f}" for horizon in horizons]
        lines.append(row(policy.label, cells))
    return "\n".join(lines)


PAPER_SCALE = """
import resource, sys, time
sys.path.insert(0, {folder!r})
import speed
start = time.perf_counter()
speed.simulate(speed.FIRST_EXPERIMENT, [speed.KLUCB(), speed.TS()], horizon=100_000,
               replicates=1000, seed=1)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

FIRST_RESULT = """
import os, time
os.environ["NUMBA_CACHE_DIR"] = {cache!r}
start = time.perf_counter()
from whitelie import *
policies = [KLUCB(), TS(), UCB1(), DPUCBInt()]
simulate(Problem([0.9, 0.6]), policies, horizon=100, replicates=2, seed=1)
print(time.perf_counter() - start)
"""


def outputs(code: str) -> list[float]:
    """The numbers that a new process prints."""
    return [float(x) for x in subprocess.check_output([sys.executable, "-c", code]).split()]


def threaded_seconds(jobs: int) -> float:
    start = time.perf_counter()
    policies: list[Policy] = [KLUCB(), TS()]
    simulate(FIRST_EXPERIMENT, policies, horizon=100_000, replicates=500, seed=1, jobs=jobs)
    return time.perf_counter() - start


def scale() -> str:
    """A paper-scale panel, threads, memory, compilation."""
    one, two = threaded_seconds(1), threaded_seconds(2)
    seconds, megabytes = outputs(PAPER_SCALE.format(folder=str(Path(__file__).parent)))
    with tempfile.TemporaryDirectory() as cache:
        (cold,), (warm,) = (outputs(FIRST_RESULT.format(cache=cache)) for _ in range(2))
    return "\n".join(
        [
            "- kl-UCB-CF and TS-CF on experiment 1 at the paper's scale (10 arms, T = 100,000, "
            f"1,000 replicates): {seconds:.1f} s in 2 threads, peak memory {megabytes:,.0f} MB.",
            f"- Two threads are {one / two:.2f} times as fast as one ({one:.1f} s and {two:.1f} s "
            "for 500 replicates).",
            f"- From `import` to a first small result: {cold:.1f} s compiling everything, "
            f"{warm:.1f} s from the disk cache.",
        ]
    )
