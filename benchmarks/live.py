"""What one live decision costs, beside river's online bandits in the same run."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from river import bandit as river_bandit
from river.proba import Beta

from whitelie import IMED, KLUCB, TS, UCB, UCB1, Bandit, RandomizedResponse, TopTwo
from whitelie.policy import Policy

STEPS = 3_000
POLICIES: list[Policy] = [
    *(TS(feedback=reading) for reading in ("corrected", "naive")),
    *(KLUCB(feedback=reading) for reading in ("corrected", "naive", "wrapped")),
    *(UCB(feedback=reading) for reading in ("corrected", "naive", "wrapped")),
    *(UCB1(feedback=reading) for reading in ("naive", "wrapped")),
    IMED(),
    TopTwo(),
]


def microseconds(step: Callable[[], None], steps: int = STEPS) -> float:
    """The best of five rounds, so that a noisy neighbour does not count."""
    step()
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        rounds.append((time.perf_counter() - start) / steps)
    return min(rounds) * 1e6


def ours(policy: Policy, arms: int) -> float:
    bandit = Bandit(range(arms), RandomizedResponse.from_epsilon(1), policy, seed=1)
    bits = random.Random(1)

    def step() -> None:
        bandit.update(bandit.choose(), bits.getrandbits(1))

    return microseconds(step)


def peer(policy: Any, arms: int) -> float:
    names = list(range(arms))
    bits = random.Random(1)

    def step() -> None:
        policy.update(policy.pull(names), bits.getrandbits(1))

    return microseconds(step)


def certificate(arms: int) -> float:
    """Return the milliseconds of a certificate that is still open against every rival."""
    draw = random.Random(1)
    counts = {k: (2_000, draw.randint(900, 1_000)) for k in range(arms)}
    bandit = Bandit(range(arms), RandomizedResponse.from_epsilon(1), counts=counts)
    return microseconds(lambda: bandit.certificate() and None, 20) / 1e3


def import_seconds() -> float:
    code = "import time; s = time.perf_counter(); import whitelie; print(time.perf_counter() - s)"
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(5)]
    return min(map(float, runs))


def table() -> str:
    sizes = (2, 10, 100)
    rows = [("whitelie " + p.label, [ours(p, arms) for arms in sizes]) for p in POLICIES]
    rows += [
        (
            "river Thompson sampling",
            [
                peer(river_bandit.ThompsonSampling(reward_obj=Beta(), seed=1), arms)
                for arms in sizes
            ],
        ),
        ("river UCB", [peer(river_bandit.UCB(delta=1, seed=1), arms) for arms in sizes]),
    ]
    lines = [
        "Microseconds for one `choose` and one `update`, best of five rounds of 3,000.",
        "",
        "| policy | " + " | ".join(f"K = {arms}" for arms in sizes) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    lines += [f"| {name} | " + " | ".join(f"{x:.1f}" for x in row) + " |" for name, row in rows]
    times = ", ".join(f"{certificate(arms):.2f} ms for K = {arms:,}" for arms in (10, 1000))
    lines += ["", f"A certificate takes {times}."]
    lines += ["", f"`import whitelie` takes {import_seconds() * 1e3:.0f} ms."]
    return "\n".join(lines)
