"""How many reports each arm has, and what they said: bits, or cells of several mechanisms."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from whitelie.channel import AnyChannel, Mechanism, Menu
from whitelie.errors import InvalidInput, whole_number
from whitelie.kernel.arms import Array
from whitelie.kernel.cells import CellState, has_cells, listed
from whitelie.kernel.state import State


class BitCounts:
    """Reports of one bit: how many came, and how many were 1."""

    def __init__(self, size: int) -> None:
        self.pulls = np.zeros(size, dtype=np.int64)
        self.successes = np.zeros(size, dtype=np.int64)

    def checked(self, arm: int, feedback: Any) -> int:
        """Return 0 or 1."""
        return bit(feedback)

    def add(self, arm: int, cell: int) -> None:
        """Count one bit."""
        self.pulls[arm] += 1
        self.successes[arm] += cell

    def checked_counts(self, name: Any, arm: int, given: Any) -> Sequence[int]:
        """Return zeros and ones from (feedbacks, how many were 1)."""
        pulls, successes = pair(name, given)
        return pulls - successes, successes

    def add_many(self, arms: Sequence[int], cells: Sequence[int]) -> None:
        """Count bits of many arms."""
        positions = np.array(arms, dtype=np.int64)
        np.add.at(self.pulls, positions, 1)
        np.add.at(self.successes, positions, cells)

    def add_counts(self, arm: int, counts: Sequence[int]) -> None:
        """Count zeros and ones."""
        self.pulls[arm] += sum(counts)
        self.successes[arm] += counts[1]

    def of(self, arm: int) -> tuple[int, int]:
        """Return how many feedbacks came, and how many of them were 1."""
        return int(self.pulls[arm]), int(self.successes[arm])

    @property
    def read(self) -> tuple[Array, Array]:
        """What estimates and certificates read: feedbacks, and how many were 1."""
        return self.pulls, self.successes

    def to_dict(self, arm: int) -> dict[str, Any]:
        """Return the reports on an arm as plain data."""
        pulls, successes = self.of(arm)
        return {"pulls": pulls, "successes": successes}

    def state(self, pending: Array, available: Array, memory: Array) -> State:
        """Return what the kernel reads."""
        return State(self.pulls, self.successes, pending, available, memory)

    def with_arms(self, channels: Sequence[AnyChannel]) -> "BitCounts | CellCounts":
        """Return the same reports beside those of further arms, which have none."""
        if has_cells(channels):
            return CellCounts.from_bits(self, channels)
        longer = BitCounts(len(channels))
        longer.pulls[: len(self.pulls)] = self.pulls
        longer.successes[: len(self.pulls)] = self.successes
        return longer


class CellCounts:
    """Reports by cell: an output of a mechanism, or of the one that a person chose from a menu."""

    def __init__(self, channels: Sequence[AnyChannel]) -> None:
        self.channels = tuple(channels)
        columns = max(sum(one.outputs for one in listed(each)) for each in self.channels)
        self.cells = np.zeros((len(self.channels), columns), dtype=np.int64)

    @classmethod
    def from_bits(cls, bits: BitCounts, channels: Sequence[AnyChannel]) -> Self:
        """Return reports of bits as cells, beside those of further arms."""
        made = cls(channels)
        size = len(bits.pulls)
        made.cells[:size, 0] = bits.pulls - bits.successes
        made.cells[:size, 1] = bits.successes
        return made

    @property
    def pulls(self) -> Array:
        """How many reports each arm has."""
        return np.asarray(self.cells.sum(axis=1))

    def checked(self, arm: int, feedback: Any) -> int:
        """Return the cell of an output, or of (choice, output)."""
        channel = self.channels[arm]
        if not isinstance(channel, Menu):
            return _output(feedback, listed(channel)[0])
        try:
            choice, output = feedback
        except (TypeError, ValueError):
            reason = "give (choice, output): which mechanism was chosen, and what it reported"
            raise InvalidInput("feedback", feedback, reason) from None
        if isinstance(choice, bool) or choice not in range(len(channel.mechanisms)):
            reason = f"the menu has the choices 0 to {len(channel.mechanisms) - 1}"
            raise InvalidInput("feedback", feedback, reason)
        place = int(choice)
        return channel.starts[place] + _output(output, channel.mechanisms[place])

    def add(self, arm: int, cell: int) -> None:
        """Count one report."""
        self.cells[arm, cell] += 1

    def checked_counts(self, name: Any, arm: int, given: Any) -> Sequence[int]:
        """Return reports by cell, from what `of` gives."""
        channel = self.channels[arm]
        if not isinstance(channel, Mechanism | Menu):
            pulls, successes = pair(name, given)
            return pulls - successes, successes
        groups = given if isinstance(channel, Menu) else [given]
        mechanisms = listed(channel)
        reason = "give how often each output came" + (
            ", for each choice" if isinstance(channel, Menu) else ""
        )
        field = f"counts[{name!r}]"
        try:
            lengths = [len(group) for group in groups]
        except TypeError:
            raise InvalidInput(field, given, reason) from None
        if lengths != [one.outputs for one in mechanisms]:
            raise InvalidInput(field, given, reason)
        return [whole_number(field, count) for group in groups for count in group]

    def add_many(self, arms: Sequence[int], cells: Sequence[int]) -> None:
        """Count reports of many arms."""
        positions = np.array(arms, dtype=np.int64), np.array(cells, dtype=np.int64)
        np.add.at(self.cells, positions, 1)

    @property
    def read(self) -> Array:
        """What estimates and certificates read: reports by arm (row) and cell (column)."""
        return self.cells

    def to_dict(self, arm: int) -> dict[str, Any]:
        """Return the reports on an arm as plain data: by output, or as bits are kept."""
        if isinstance(self.channels[arm], Mechanism | Menu):
            return {"cells": self.of(arm)}
        pulls, successes = self.of(arm)
        return {"pulls": pulls, "successes": successes}

    def add_counts(self, arm: int, counts: Sequence[int]) -> None:
        """Count many reports, by cell."""
        self.cells[arm, : len(counts)] += counts

    def of(self, arm: int) -> tuple[Any, ...]:
        """Return how often each output came, for each choice of a menu; of bits as `BitCounts`."""
        channel, row = self.channels[arm], self.cells[arm].tolist()
        if isinstance(channel, Menu):
            places = zip(channel.starts, channel.mechanisms, strict=True)
            return tuple(tuple(row[start : start + one.outputs]) for start, one in places)
        if isinstance(channel, Mechanism):
            return tuple(row[: channel.outputs])
        return row[0] + row[1], row[1]

    def state(self, pending: Array, available: Array, memory: Array) -> CellState:
        """Return what the kernel reads."""
        return CellState(self.pulls, self.cells, pending, available, memory)

    def with_arms(self, channels: Sequence[AnyChannel]) -> "CellCounts":
        """Return the same reports beside those of further arms, which have none."""
        longer = CellCounts(channels)
        rows, columns = self.cells.shape
        longer.cells[:rows, :columns] = self.cells
        return longer


def counts_for(channels: Sequence[AnyChannel]) -> BitCounts | CellCounts:
    """Return no reports yet, of arms with these channels."""
    return CellCounts(channels) if has_cells(channels) else BitCounts(len(channels))


def bit(value: Any) -> int:
    """Return a feedback of 0 or 1, or refuse it."""
    try:
        return {0: 0, 1: 1}[value]
    except (KeyError, TypeError):
        raise InvalidInput(
            "feedback", value, "feedback is 0 or 1; a missing report is none"
        ) from None


def pair(name: Any, given: Any) -> tuple[int, int]:
    """Return (pulls, successes) if they can be counts of feedback."""
    try:
        pulls, successes = given
    except (TypeError, ValueError):
        reason = "give (feedbacks, how many were 1)"
        raise InvalidInput(f"counts[{name!r}]", given, reason) from None
    pulls = whole_number(f"pulls[{name!r}]", pulls)
    return pulls, whole_number(f"successes[{name!r}]", successes, most=pulls)


def _output(value: Any, mechanism: Mechanism) -> int:
    if isinstance(value, bool | int | np.integer) and value in range(mechanism.outputs):
        return int(value)
    reason = f"the outputs of this mechanism are 0 to {mechanism.outputs - 1}"
    raise InvalidInput("feedback", value, reason)
