"""The live bandit: choose, update, estimate, in process, with a portable state."""

import copy
import json
import secrets
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self, overload

import numpy as np

from whitelie.certificate import DELTA, Beginning, Certificate, Conclusion, Expect, conclude
from whitelie.channel import IDENTITY, AnyChannel, channel_from_dict
from whitelie.chooser import Chooser
from whitelie.counts import CellCounts, counts_for
from whitelie.errors import InvalidInput, real_number, whole_number
from whitelie.estimate import Estimate, estimate_arms, estimate_cells
from whitelie.kernel.arms import Array
from whitelie.kernel.cells import CellState
from whitelie.kernel.state import NO_MEMORY, State
from whitelie.policy import TS, Policy, policy_from_dict
from whitelie.problem import Channels, arm_channels, arm_names

SCHEMA = "whitelie.bandit"
VERSION = 1
LARGEST_SEED = 2**64 - 1
MOST_CHOICES = 10_000_000


class Bandit:
    """Chooses among arms from corrupted feedback; its state is two integers per arm.

    A policy with memory has its own numbers per arm beside them, which `to_json` writes too.
    `arms` are any hashable names, `channels` one channel for all or one per arm. The same seed,
    counts and number of decisions give the same choice; without a seed one is drawn. What you
    `expect` of rates makes a certificate come sooner if it is about right, and is fixed here;
    `counts` to start from must be all reports on all arms that were ever shown. A bandit is for one
    thread at a time.

    >>> from whitelie import RandomizedResponse
    >>> bandit = Bandit(["red", "blue"], RandomizedResponse.from_epsilon(1), seed=7)
    >>> bandit.update(["red", "blue", "red"], [1, 0, 1])
    >>> bandit.counts
    {'red': (2, 2), 'blue': (1, 0)}
    >>> bandit.choose()
    'red'
    """

    def __init__(
        self,
        arms: Sequence[Hashable],
        channels: Channels = IDENTITY,
        policy: Policy | None = None,
        seed: int | None = None,
        *,
        counts: Mapping[Any, Any] | None = None,
        expect: Expect | Mapping[str, float] | None = None,
    ) -> None:
        policy = TS() if policy is None else policy
        if not isinstance(policy, Policy):
            raise InvalidInput("policy", policy, "give a policy such as TS() or KLUCB()")
        if not policy.runs_live:
            raise InvalidInput(
                "policy",
                policy,
                f"{policy.label} keeps more than counts of feedback and runs in the simulator only",
            )
        names = arm_names(arms)
        self._policy = policy
        self._expect = Expect.of(expect)
        self._first_arms = len(names)
        self._positions = {name: k for k, name in enumerate(names)}
        self._channels = list(arm_channels(channels, names))
        self._counts = counts_for(self._channels)
        self._memory = np.zeros((len(names), policy.memory)) if policy.memory else NO_MEMORY
        self._retired = np.zeros(len(names), dtype=bool)
        self._seed = (
            secrets.randbits(53) if seed is None else whole_number("seed", seed, most=LARGEST_SEED)
        )
        self._chooser = Chooser(self._seed)
        self._chooser.define(policy, self._channels)
        if counts is not None:
            self.update_counts(counts)

    def __repr__(self) -> str:
        active = len(self.arms)
        return f"Bandit({active} arms, {self._policy.label}, {self._counts.pulls.sum()} feedbacks)"

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The names of the arms that can be chosen: all but the retired ones."""
        return tuple(name for name, k in self._positions.items() if not self._retired[k])

    @property
    def policy(self) -> Policy:
        """The policy that chooses."""
        return self._policy

    @property
    def channels(self) -> dict[Hashable, AnyChannel]:
        """Per arm, retired ones too: the channel through which devices report."""
        return dict(zip(self._positions, self._channels, strict=True))

    @property
    def counts(self) -> dict[Hashable, Any]:
        """Per arm, retired ones too: how many feedbacks came, and how many of them were 1.

        Of a `Mechanism`, how often each output came; of a `Menu`, that for each choice.
        """
        return {name: self._counts.of(k) for name, k in self._positions.items()}

    @overload
    def choose(
        self,
        n: None = None,
        available: Iterable[Hashable] | None = None,
        pending: Mapping[Any, int] | None = None,
    ) -> Any: ...
    @overload
    def choose(
        self,
        n: int,
        available: Iterable[Hashable] | None = None,
        pending: Mapping[Any, int] | None = None,
    ) -> list[Any]: ...
    def choose(
        self,
        n: int | None = None,
        available: Iterable[Hashable] | None = None,
        pending: Mapping[Any, int] | None = None,
    ) -> Any:
        """Return the name of the arm to show next, or a list of n names.

        `available` restricts the choice. `pending` counts decisions whose feedback may still come,
        per arm: the index policies widen as if it had come, so that they do not repeat themselves
        while they wait; names chosen within one call count as pending for those after them.

        One call for n names and n calls for one give the same names, but for Thompson sampling:
        from 8 names and 8 arms on, one call is faster and makes other draws from the same
        distribution, after the first name.
        """
        state = self._state(self._pending(pending), self._choosable(available))
        count = 1 if n is None else whole_number("n", n, most=MOST_CHOICES)
        chosen = self._chooser.choose(state, count)
        names = tuple(self._positions)
        return names[chosen[0]] if n is None else [names[k] for k in chosen]

    def update(self, arm: Any, feedback: Any) -> None:
        """Add the feedback, 0 or 1, of one arm; or a list of arms and the list of their feedbacks.

        Feedback through a `Mechanism` is the number of an output, through a `Menu` it is
        (choice, output). A tuple is a name, like any other hashable; lists and arrays are batches.
        Nothing is added if anything is wrong. Late feedback of a retired arm is welcome.
        """
        if not isinstance(arm, list | np.ndarray):
            position = self._position(arm)
            cell = self._counts.checked(position, feedback)
            self._counts.add(position, cell)
            self._remember(position, cell)
            return
        if not isinstance(feedback, list | tuple | np.ndarray) or len(arm) != len(feedback):
            raise InvalidInput(
                "feedback", feedback, f"give one feedback for each of {len(arm)} arms"
            )
        reports = [
            (position := self._position(name), self._counts.checked(position, value))
            for name, value in zip(arm, feedback, strict=True)
        ]
        if self._memory.shape[1]:
            for position, cell in reports:
                self._counts.add(position, cell)
                self._remember(position, cell)
            return
        self._counts.add_many(*zip(*reports, strict=True) if reports else ((), ()))

    def update_counts(self, counts: Mapping[Any, Any]) -> None:
        """Add {arm: (feedbacks, how many of them were 1)}; nothing if anything is wrong.

        Of a `Mechanism` or `Menu`, reports are given as `counts` has them.
        """
        self._check_no_memory("counts", counts)
        self._add_counts(counts)

    def _add_counts(self, counts: Mapping[Any, Any]) -> None:
        if not isinstance(counts, Mapping):
            raise InvalidInput("counts", counts, "give {arm: (feedbacks, how many were 1)}")
        checked = [
            (k := self._position(name), self._counts.checked_counts(name, k, given))
            for name, given in counts.items()
        ]
        total = int(self._counts.pulls.sum()) + sum(sum(cells) for _, cells in checked)
        whole_number("all pulls together", total)
        for k, cells in checked:
            self._counts.add_counts(k, cells)

    def estimates(self) -> dict[Hashable, Estimate]:
        """Return what is known of each arm, by name."""
        if isinstance(self._counts, CellCounts):
            rows = estimate_cells(self._channels, self._counts.cells, self._retired)
        else:
            rows = estimate_arms(self._channels, *self._counts.read, self._retired)
        return dict(zip(self._positions, rows, strict=True))

    def certificate(self, delta: float = DELTA, tolerance: float = 0) -> Conclusion:
        """Return whether one arm is known to be best, and how far the evidence has come.

        The statement is wrong with probability at most `delta`, however often you ask and whenever
        you stop; with a `tolerance`, it is that no other arm is better by more than that. It holds
        if the counts are all reports since the bandit was made, and rates do not move. Arms that
        were added or retired cost evidence: `whitelie.certificate` says how much.

        >>> from whitelie import RandomizedResponse
        >>> channel = RandomizedResponse.from_epsilon(1)
        >>> counts = {"red": (2000, 1300), "blue": (2000, 900)}
        >>> print(Bandit(["red", "blue"], channel, counts=counts).certificate())
        red is best (wrong with probability at most 5 %, however often one looks).
          red against blue: enough evidence (73.27, needed 3.15)
        """
        asked = Certificate(delta, tolerance, self._expect)
        beginning = Beginning(self._first_arms)
        return conclude(asked, self.channels, self._counts.read, self._retired, beginning)

    def add_arm(self, name: Hashable, channel: AnyChannel, *, counts: Any = None) -> None:
        """Add an arm; nobody else's counts change."""
        arm_names([*self._positions, name])
        (channel,) = arm_channels([channel], [name])
        channels = [*self._channels, channel]
        longer = self._counts.with_arms(channels)
        if counts is not None:
            cells = longer.checked_counts(name, len(self._channels), counts)
            if sum(cells):
                self._check_no_memory("counts", counts)
            longer.add_counts(len(self._channels), cells)
        retired = np.append(self._retired, False)
        self._chooser.define(self._policy, channels, ~retired)
        self._channels, self._counts = channels, longer
        self._positions[name] = len(self._positions)
        if self._memory.shape[1]:
            self._memory = np.vstack([self._memory, np.zeros(self._memory.shape[1])])
        self._retired = retired

    def retire_arm(self, name: Hashable) -> None:
        """Never choose this arm again; its counts stay."""
        position = self._position(name)
        if self.arms == (name,):
            raise InvalidInput("arm", name, "this is the last arm; add another before retiring it")
        self._retired[position] = True
        self._chooser.define(self._policy, self._channels, ~self._retired)

    def merge(self, other: "Bandit") -> "Bandit":
        """Return a bandit that has seen what both have seen; the seed and decisions are this one's.

        Both must have the same policy, the same expectation, and the same channel for every name.
        An arm that either has retired is retired. Counts that both started from are counted twice:
        start every server from nothing, with a seed of its own. The certificate of merged bandits
        holds if nobody looks at the parts, and each is made of all that the servers have seen.
        """
        if not isinstance(other, Bandit):
            raise InvalidInput("other", other, "give a bandit")
        self._check_no_memory("other", other)
        if other.policy != self._policy:
            raise InvalidInput("policy", other.policy, f"this bandit's is {self._policy}")
        if other._expect != self._expect:
            raise InvalidInput("expect", other._expect, f"this bandit's is {self._expect}")
        if other._positions.keys() != self._positions.keys():
            different = set(other._positions) ^ set(self._positions)
            raise InvalidInput("arms", different, "only one of the two bandits has these arms")
        for name, k in self._positions.items():
            channel = other._channels[other._positions[name]]
            if channel != self._channels[k]:
                raise InvalidInput(
                    "channels",
                    channel,
                    f"arm {name!r} has {self._channels[k]} here: counts under "
                    "different channels are never pooled",
                )
        merged = copy.deepcopy(self)
        merged.update_counts(other.counts)
        if self._names_at_first != other._names_at_first:
            merged._first_arms = 1  # as if all other arms had been added
        for name in other._positions:
            if name not in other.arms:
                merged.retire_arm(name)
        return merged

    def __copy__(self) -> Self:
        """A copy that shares nothing: half-shared counts would be of no use."""
        return copy.deepcopy(self)

    def to_json(self) -> str:
        """Return the whole state as JSON, from which `from_json` goes on identically."""
        for name in self._positions:
            _check_portable(name)
        distinct = list(dict.fromkeys(self._channels))
        return json.dumps(
            {
                "schema": SCHEMA,
                "version": VERSION,
                "policy": self._policy.to_dict(),
                "channels": [channel.to_dict() for channel in distinct],
                "arms": [
                    {
                        "name": name,
                        "channel": distinct.index(self._channels[k]),
                        **self._counts.to_dict(k),
                        "retired": bool(self._retired[k]),
                        **({"memory": self._memory[k].tolist()} if self._memory.shape[1] else {}),
                    }
                    for name, k in self._positions.items()
                ],
                "seed": self._seed,
                "decisions": self._chooser.decisions,
                "first_arms": self._first_arms,
                "expect": None if self._expect is None else self._expect.to_dict(),
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the bandit that `to_json` described; refuse all else, saying what is wrong."""
        try:
            state = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput("state", text, f"this is not JSON: {error}") from None
        if not isinstance(state, dict) or state.get("schema") != SCHEMA:
            raise InvalidInput("schema", state, f"expected {SCHEMA!r}")
        if state.get("version") != VERSION:
            reason = f"this whitelie reads version {VERSION}; upgrade whitelie or export anew"
            raise InvalidInput("version", state.get("version"), reason)
        try:
            return cls._from_state(state)
        except (KeyError, TypeError, IndexError) as error:
            raise InvalidInput(
                "state", state, f"incomplete or of a wrong type: {error!r}"
            ) from None

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        channels = [channel_from_dict(data) for data in state["channels"]]
        arms = state["arms"]
        for arm in arms:
            _check_portable(arm["name"])
        places = [whole_number("channel", arm["channel"], most=len(channels) - 1) for arm in arms]
        bandit = cls(
            [arm["name"] for arm in arms],
            [channels[place] for place in places],
            policy_from_dict(state["policy"]),
            whole_number("seed", state["seed"], most=LARGEST_SEED),
            expect=state.get("expect"),
        )
        # Earlier versions did not say which arms were added: as if all but one had been.
        first_arms = state.get("first_arms", 1)
        bandit._first_arms = whole_number("first_arms", first_arms, least=1, most=len(arms))
        bandit._add_counts({arm["name"]: _stored_counts(arm) for arm in arms})
        if bandit._memory.shape[1]:
            for k, arm in enumerate(arms):
                bandit._memory[k] = _numbers(arm["memory"], bandit._memory.shape[1])
        for arm in arms:
            if not isinstance(arm["retired"], bool):
                raise InvalidInput("retired", arm["retired"], "it must be true or false")
            if arm["retired"]:
                bandit.retire_arm(arm["name"])
        bandit._chooser.decisions = whole_number("decisions", state["decisions"])
        return bandit

    @property
    def _names_at_first(self) -> set[Hashable]:
        return set(list(self._positions)[: self._first_arms])

    def _state(self, pending: Array, available: Array) -> State | CellState:
        return self._counts.state(pending, available, self._memory)

    def _remember(self, position: int, one: int) -> None:
        if self._memory.shape[1]:
            pending = np.zeros(len(self._positions), dtype=np.int64)
            self._chooser.remember(self._state(pending, ~self._retired), position, one)

    def _check_no_memory(self, field: str, value: Any) -> None:
        if self._memory.shape[1]:
            reason = (
                f"{self._policy.label} remembers more than counts: give each feedback to update"
            )
            raise InvalidInput(field, value, reason)

    def _position(self, name: Any) -> int:
        try:
            return self._positions[name]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self._positions))
            raise InvalidInput("arm", name, f"there is no such arm; there are {known}") from None

    def _choosable(self, available: Iterable[Hashable] | None) -> Array:
        choosable = ~self._retired
        if available is not None:
            if not isinstance(available, Iterable):
                raise InvalidInput("available", available, "give the names of arms")
            wanted = np.zeros_like(choosable)
            wanted[[self._position(name) for name in available]] = True
            choosable &= wanted
        if not choosable.any():
            raise InvalidInput("available", available, "no arm is left to choose from")
        return choosable

    def _pending(self, pending: Mapping[Any, int] | None) -> Array:
        counts = np.zeros(len(self._positions), dtype=np.int64)
        if pending is not None and not isinstance(pending, Mapping):
            raise InvalidInput("pending", pending, "give {arm: how many decisions are pending}")
        for name, count in (pending or {}).items():
            counts[self._position(name)] = whole_number(f"pending[{name!r}]", count)
        return counts


def _check_portable(name: Any) -> None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InvalidInput("arm", name, "only text and whole numbers are names in JSON")


def _stored_counts(arm: dict[str, Any]) -> Any:
    return arm["cells"] if "cells" in arm else (arm["pulls"], arm["successes"])


def _numbers(values: Any, count: int) -> list[float]:
    reason = f"the memory of an arm is a list of {count} numbers"
    if not isinstance(values, list) or len(values) != count:
        raise InvalidInput("memory", values, reason)
    most = sys.float_info.max
    return [real_number("memory", value, reason, least=-most, most=most) for value in values]
