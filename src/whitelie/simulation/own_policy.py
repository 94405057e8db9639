"""A researcher's own policy, in Python on the same draws: `start` gives a player per replicate.

>>> class Greedy:
...     def start(self, problem, rng):
...         player = Greedy()
...         player.ones, player.pulls = np.ones(problem.n_arms), np.full(problem.n_arms, 2)
...         return player
...     def choose(self, t):
...         return np.argmax(self.ones / self.pulls)
...     def update(self, arm, feedback):
...         self.ones[arm] += feedback
...         self.pulls[arm] += 1
>>> run_own(Greedy(), Problem([0.9, 0.6]), 1, np.array([10, 100]), 0).sum(axis=1).tolist()
[10, 100]
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np

from whitelie.certificate import Certificate
from whitelie.channel import AnyChannel, Channel, of_bits
from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.choice import fill_words
from whitelie.problem import Problem
from whitelie.simulation.replicate import Replicate
from whitelie.simulation.stopping import Look


@dataclass(frozen=True)
class KnownProblem:
    """What a learner knows before it plays: everything of a problem but the means.

    A policy that could read the means would win every comparison, and nobody would notice.
    """

    names: tuple[Hashable, ...]
    channels: tuple[AnyChannel, ...]
    horizon: int

    @property
    def n_arms(self) -> int:
        """How many arms there are; positions run from 0 to n_arms − 1."""
        return len(self.names)


@runtime_checkable
class Player(Protocol):
    """A policy in one replicate, with all that it learns there."""

    def choose(self, t: int) -> int:
        """Return the position of the arm to pull, after t feedbacks."""

    def update(self, arm: int, feedback: int) -> None:
        """Learn that the arm, which `choose` returned, gave this feedback: 0 or 1."""


class StartingPolicy(Protocol):
    """A policy that starts a new player for every replicate, so that it may keep any state.

    Replicates run in several threads or processes, in any order, and only some of them after a
    resumption. So nothing may pass from one player to another. `rng` is a function of the seed
    and the replicate alone; a player that draws from nothing else is reproducible.
    """

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> Player:
        """Return a new player."""


@runtime_checkable
class CountPolicy(Protocol):
    """A choice rule on counts of feedback, without a state of its own: all replicates share it."""

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        """Return the position of the arm to pull, after t feedbacks.

        `words` are 64 random bits per arm, fresh each time.
        """


OwnPolicy = StartingPolicy | CountPolicy
"""An object that has both `start` and `choose` is a StartingPolicy: its players may be copies."""


def check_own(policy: Any) -> None:
    """Refuse what is neither kind of policy."""
    if isinstance(policy, type):
        reason = f"this is a class; give an object of it, such as {policy.__name__}()"
        raise InvalidInput("policies", policy, reason)
    if not _starts(policy) and not isinstance(policy, CountPolicy):
        reason = (
            "give a policy, an object with start(problem, rng) that returns a player, "
            "or an object with choose(pulls, successes, channels, t, words)"
        )
        raise InvalidInput("policies", policy, reason)


def _starts(policy: Any) -> TypeGuard[StartingPolicy]:
    """Whether `start` is a method: a choice rule on counts may have a number of that name."""
    return callable(getattr(policy, "start", None))


def run_own(
    policy: OwnPolicy,
    problem: Problem,
    seed: int,
    checkpoints: Array,
    replicate: int,
    *,
    stop: Certificate | None = None,
) -> Array:
    """Return pulls by checkpoint (row) and arm (column), as the kernels do.

    With a `stop` the rows of `stops.py` follow.
    """
    size = len(problem.names)
    arms = Replicate(problem, seed, replicate)
    player = _player(policy, problem, int(checkpoints[-1]), arms.decision_key)
    choose, pull, update = player.choose, arms.pull, player.update
    look = _never if stop is None else Look(stop, problem)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    t, winner = 0, None
    for row, checkpoint in enumerate(checkpoints.tolist()):
        while t < checkpoint and winner is None:
            arm = choose(t)
            _check_arm(arm, size, policy)
            feedback = pull(arm)
            update(arm, feedback)
            winner = look(arm, feedback)
            t += 1
        history[row] = arms.pulls
        if winner is not None:
            history[row, winner] += checkpoint - t
    if stop is None:
        return history
    mark = np.arange(size) == (-1 if winner is None else winner)
    return np.vstack([history, np.array([arms.pulls, mark], dtype=np.int32)])


def _never(arm: int, feedback: int) -> None:
    """Look for no certificate."""


def _player(policy: OwnPolicy, problem: Problem, horizon: int, key: np.uint64) -> Player:
    """Return the player of one replicate, whose randomness is a function of its key alone.

    Philox is counter-based: its key is all of its seed, and the numbers under two keys are
    independent for every practical purpose.
    """
    if not _starts(policy):
        return _CountPlayer(cast(CountPolicy, policy), problem, key)
    rng = np.random.Generator(np.random.Philox(key=int(key)))
    player: Any = policy.start(KnownProblem(problem.names, problem.channels, horizon), rng)
    field = f"{type(policy).__name__}.start"
    if player is policy:
        reason = "return a new player, such as copy.copy(self): replicates must not share a state"
        raise InvalidInput(field, type(player).__name__, reason)
    if isinstance(player, type) or not isinstance(player, Player):
        reason = "return a player: an object with choose(t) and update(arm, feedback)"
        raise InvalidInput(field, type(player).__name__, reason)
    return player


class _CountPlayer:
    """Keeps the counts and draws the words that a choice rule on counts is given.

    The rule gets copies, so that one that writes into its arguments changes nothing.
    """

    def __init__(self, policy: CountPolicy, problem: Problem, key: np.uint64) -> None:
        size = len(problem.names)
        self._rule, self._channels, self._key = policy.choose, of_bits(problem.channels), key
        self._pulls, self._successes = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._words = np.empty(size, np.uint64)

    def choose(self, t: int) -> int:
        fill_words(self._key, t, self._words)
        pulls, successes, words = self._pulls.copy(), self._successes.copy(), self._words.copy()
        return self._rule(pulls, successes, self._channels, t, words)

    def update(self, arm: int, feedback: int) -> None:
        self._pulls[arm] += 1
        self._successes[arm] += feedback


def _check_arm(arm: Any, size: int, policy: OwnPolicy) -> None:
    if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < size:
        name = type(policy).__name__
        raise InvalidInput(f"{name}.choose", arm, f"return the position of an arm, 0 to {size - 1}")
