"""The live bandit: choose, update, estimate, in process, with a portable state."""

import copy
import json
import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self, overload

import numpy as np

from whitelie.channel import IDENTITY, Channel, channel_from_dict
from whitelie.errors import InvalidInput, whole_number
from whitelie.estimate import Estimate, estimate_arms
from whitelie.kernel.arms import Array, pack
from whitelie.kernel.choice import State, decide, rule_of
from whitelie.policy import TS, Policy, policy_from_dict
from whitelie.problem import Channels, arm_channels, arm_names

SCHEMA = "whitelie.bandit"
VERSION = 1
LARGEST_SEED = 2**64 - 1
MOST_CHOICES = 10_000_000


class Bandit:
    """Chooses among arms from corrupted feedback; its state is two integers per arm.

    `arms` are any hashable names, `channels` one channel for all or one per arm. The same seed,
    counts and number of decisions give the same choice; without a seed one is drawn. A bandit is
    for one thread at a time.

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
        counts: Mapping[Any, tuple[int, int]] | None = None,
    ) -> None:
        policy = TS() if policy is None else policy
        if not isinstance(policy, Policy):
            raise InvalidInput("policy", policy, "give a policy such as TS() or KLUCB()")
        if not policy.counts_feedback:
            raise InvalidInput(
                "policy",
                policy,
                f"{policy.label} keeps more than counts of feedback and runs in the simulator only",
            )
        names = arm_names(arms)
        self._policy = policy
        self._rule = rule_of(policy)
        self._positions = {name: k for k, name in enumerate(names)}
        self._channels = list(arm_channels(channels, names))
        self._packed = pack(policy, self._channels)
        self._pulls = np.zeros(len(names), dtype=np.int64)
        self._successes = np.zeros(len(names), dtype=np.int64)
        self._retired = np.zeros(len(names), dtype=bool)
        self._seed = (
            secrets.randbits(53) if seed is None else whole_number("seed", seed, most=LARGEST_SEED)
        )
        self._decisions = 0
        if counts is not None:
            self.update_counts(counts)

    def __repr__(self) -> str:
        active = len(self.arms)
        return f"Bandit({active} arms, {self._policy.label}, {self._pulls.sum()} feedbacks)"

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The names of the arms that can be chosen: all but the retired ones."""
        return tuple(name for name, k in self._positions.items() if not self._retired[k])

    @property
    def policy(self) -> Policy:
        """The policy that chooses."""
        return self._policy

    @property
    def channels(self) -> dict[Hashable, Channel]:
        """Per arm, retired ones too: the channel through which devices report."""
        return dict(zip(self._positions, self._channels, strict=True))

    @property
    def counts(self) -> dict[Hashable, tuple[int, int]]:
        """Per arm, retired ones too: how many feedbacks came, and how many of them were 1."""
        return {
            name: (int(self._pulls[k]), int(self._successes[k]))
            for name, k in self._positions.items()
        }

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
        """
        state = State(
            self._pulls, self._successes, self._pending(pending), self._choosable(available)
        )
        chosen = np.empty(
            1 if n is None else whole_number("n", n, most=MOST_CHOICES), dtype=np.int64
        )
        key, number = np.uint64(self._seed), self._decisions
        decide(self._rule, self._packed, state, key, number, chosen)
        self._decisions += len(chosen)
        names = tuple(self._positions)
        return names[chosen[0]] if n is None else [names[k] for k in chosen]

    def update(self, arm: Any, feedback: Any) -> None:
        """Add the feedback, 0 or 1, of one arm; or a list of arms and the list of their feedbacks.

        A tuple is a name, like any other hashable; lists and arrays are batches.
        Nothing is added if anything is wrong. Late feedback of a retired arm is welcome.
        """
        if not isinstance(arm, list | np.ndarray):
            position, one = self._position(arm), _bit(feedback)
            self._pulls[position] += 1
            self._successes[position] += one
            return
        if not isinstance(feedback, list | tuple | np.ndarray) or len(arm) != len(feedback):
            raise InvalidInput(
                "feedback", feedback, f"give one feedback for each of {len(arm)} arms"
            )
        positions = np.array([self._position(name) for name in arm], dtype=np.int64)
        ones = [_bit(value) for value in feedback]
        np.add.at(self._pulls, positions, 1)
        np.add.at(self._successes, positions, ones)

    def update_counts(self, counts: Mapping[Any, tuple[int, int]]) -> None:
        """Add {arm: (feedbacks, how many of them were 1)}; nothing if anything is wrong."""
        if not isinstance(counts, Mapping):
            raise InvalidInput("counts", counts, "give {arm: (feedbacks, how many were 1)}")
        checked = [(self._position(name), *_pair(name, pair)) for name, pair in counts.items()]
        total = int(self._pulls.sum()) + sum(pulls for _, pulls, _ in checked)
        whole_number("all pulls together", total)
        for k, pulls, successes in checked:
            self._pulls[k] += pulls
            self._successes[k] += successes

    def estimates(self) -> dict[Hashable, Estimate]:
        """Return what is known of each arm, by name."""
        rows = estimate_arms(self._channels, self._pulls, self._successes, self._retired)
        return dict(zip(self._positions, rows, strict=True))

    def add_arm(
        self, name: Hashable, channel: Channel, *, counts: tuple[int, int] = (0, 0)
    ) -> None:
        """Add an arm; nobody else's counts change."""
        arm_names([*self._positions, name])
        (channel,) = arm_channels([channel], [name])
        pulls, successes = _pair(name, counts)
        retired = np.append(self._retired, False)
        self._packed = pack(self._policy, [*self._channels, channel], ~retired)
        self._channels.append(channel)
        self._positions[name] = len(self._positions)
        self._pulls = np.append(self._pulls, pulls)
        self._successes = np.append(self._successes, successes)
        self._retired = retired

    def retire_arm(self, name: Hashable) -> None:
        """Never choose this arm again; its counts stay."""
        position = self._position(name)
        if self.arms == (name,):
            raise InvalidInput("arm", name, "this is the last arm; add another before retiring it")
        self._retired[position] = True
        self._packed = pack(self._policy, self._channels, ~self._retired)

    def merge(self, other: "Bandit") -> "Bandit":
        """Return a bandit that has seen what both have seen; the seed and decisions are this one's.

        Both must have the same policy and the same channel for every name. An arm that either has
        retired is retired. Counts that both started from are counted twice: start every server
        from nothing, with a seed of its own.
        """
        if not isinstance(other, Bandit):
            raise InvalidInput("other", other, "give a bandit")
        if other.policy != self._policy:
            raise InvalidInput("policy", other.policy, f"this bandit's is {self._policy}")
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
                        "pulls": int(self._pulls[k]),
                        "successes": int(self._successes[k]),
                        "retired": bool(self._retired[k]),
                    }
                    for name, k in self._positions.items()
                ],
                "seed": self._seed,
                "decisions": self._decisions,
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
            counts={arm["name"]: (arm["pulls"], arm["successes"]) for arm in arms},
        )
        for arm in arms:
            if not isinstance(arm["retired"], bool):
                raise InvalidInput("retired", arm["retired"], "it must be true or false")
            if arm["retired"]:
                bandit.retire_arm(arm["name"])
        bandit._decisions = whole_number("decisions", state["decisions"])
        return bandit

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


def _pair(name: Hashable, pair: Any) -> tuple[int, int]:
    """Return (pulls, successes) if they can be counts of feedback."""
    try:
        pulls, successes = pair
    except (TypeError, ValueError):
        raise InvalidInput(f"counts[{name!r}]", pair, "give (feedbacks, how many were 1)") from None
    pulls = whole_number(f"pulls[{name!r}]", pulls)
    return pulls, whole_number(f"successes[{name!r}]", successes, most=pulls)


def _bit(value: Any) -> int:
    try:
        return {0: 0, 1: 1}[value]
    except (KeyError, TypeError):
        raise InvalidInput(
            "feedback", value, "feedback is 0 or 1; a missing report is none"
        ) from None
