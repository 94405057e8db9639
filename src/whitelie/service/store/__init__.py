"""What the service remembers, and the contract of every store.

A store holds experiments, keys, epochs, counts and spent bits, and nothing else: no decision has a
row of its own, and nothing says who was asked.

- **Epochs.** `new_epoch` returns a number that no process had before, durably. A process numbers
  its decisions from 0 within its epoch, so that (epoch, sequence) names a decision for ever.
- **Counts** are kept per place, which is an experiment, an arm and the minute of *issue*: how many
  decisions were issued, how many of these were answered, and how many answers were 1.
- **Spent bits.** Bit `sequence` of an epoch says that this decision has been answered. Bits lie in
  blocks of `BLOCK`; a block may be dropped when all the tokens whose bits it holds have expired,
  because an expired token is refused before its bit is looked at.
- **commit** is the one way in which counts grow. It adds the issued decisions and, for every report
  whose bit is free, sets the bit and adds to the counts of its place, all in one durable
  transaction. It returns for each report, in order, whether its bit was free. Of two reports on one
  decision exactly one is told so: in one commit or in two, from one process or from many.
- **Steps.** What is shown to others than admins moves in steps. Reports that a commit accepts are
  held back until those of an arm are at least as many as the step of its experiment, which the
  batch names; then the same transaction adds all of them to what is shown, as a step dated by the
  batch's minute. So no step holds fewer reports, and a history of steps shows no single report, as
  one by minute of issue would. Without a step in the batch they stay held. A rollback restates an
  arm's steps, as one of what is left, only where that moves what is shown by a step or more; else
  the difference is held, below zero perhaps. Where such a difference would make a step that cannot
  be, of ones below zero or above its reports, the commit restates the arm's steps in the same way.
  What is shown and what is held make the counts.
- **Stale** batches are refused. A batch may name the generation (below) that its makers know; if
  anybody has changed experiments or keys since, `Stale` is raised and nothing is changed. So what
  was decided under old definitions never becomes durable under new ones: a deleted experiment and
  a span that was rolled back stay empty, however many processes write.
- **Invariant**, at every moment and after any crash, over tokens that have neither expired nor been
  rolled back nor deleted with their experiment: ones ≤ answered = spent bits ≤ issued.
- **Experiments** have a number, which is never reused, a slug and a definition, a text that only
  the service reads, and perhaps the hash of the Idempotency-Key that created them. Slugs and hashes
  are unique. `save` and `change` never overwrite what somebody else wrote meanwhile: they return
  None instead.
- **Keys** are kept by the hash of their text.
- **generation** is a number that differs whenever experiments or keys have been changed by anybody.
- **claim** makes a process one of the servers of a store, or refuses it: there is another where
  only one is possible, or the others seal tokens with secrets that this one does not know. A store
  `is_shared` if others may commit to it too.
- **contents** are all of the above as they are at one moment, and `fill` puts them into an empty
  store, numbers included. `require_alone` refuses while a server uses the store.

When a method raises, it has changed nothing; only if the store is closed meanwhile is this unknown.
A store raises `Unavailable` when it cannot do its work now, such as on a full disk, and works again
by itself when it can. Its writing methods are called from one thread at a time, the reading ones
(`totals`, `history`, `shown`, `steps`, `experiments`, `keys`, `spent_bits`, `sizes`, `generation`,
`contents`) from any thread, also beside a writing one. Times are whole minutes since 1970.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from whitelie.errors import InvalidInput, WhitelieError
from whitelie.service.token import Decision

BLOCK = 8192
"""Decisions whose spent bits lie in one block."""


class Unavailable(WhitelieError):
    """The store cannot do its work now; what was asked has not been done."""


class Stale(WhitelieError):
    """Experiments or keys have been changed since; what was asked has not been done."""


class Place(NamedTuple):
    """Where counts belong: an arm of an experiment, and the minute in which it was decided."""

    experiment: int
    arm: int
    minute: int


class Counts(NamedTuple):
    """Decisions issued, how many of them were answered, and how many answers were 1."""

    issued: int = 0
    answered: int = 0
    ones: int = 0


class Step(NamedTuple):
    """Reports that were shown at once, how many of them were 1, and in which minute."""

    answered: int = 0
    ones: int = 0
    minute: int = 0


class Report(NamedTuple):
    """An answer to a decision."""

    decision: Decision
    bit: int


@dataclass
class Batch:
    """What one commit makes durable: how many decisions were issued at each place, and reports.

    `generation` is the one that its makers know, if they care. `steps` has the step of each
    experiment, at least for those of the reports; what they fill is shown as of `minute`.
    """

    issued: dict[Place, int] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    generation: int | None = None
    minute: int = 0
    steps: Mapping[int, int] = field(default_factory=dict)


class Restated(NamedTuple):
    """When a rollback restates steps, and the step of its experiment."""

    minute: int
    step: int


class Saved(NamedTuple):
    """An experiment as the store keeps it; `key_hash` is that of an Idempotency-Key."""

    number: int
    slug: str
    definition: str
    key_hash: str | None = None


class Key(NamedTuple):
    """Who may ask, and for what; `expiry` is the last minute in which the key is good, if any."""

    name: str
    role: str
    hash: bytes
    origins: tuple[str, ...] = ()
    decisions_per_minute: int = 0
    expiry: int | None = None


class Block(NamedTuple):
    """Spent bits of an epoch; `expiry` is the last minute in which one of their tokens is good."""

    epoch: int
    block: int
    expiry: int
    bits: bytes


@dataclass(frozen=True)
class Contents:
    """All that a store holds; `last_experiment` is the highest number that one ever had.

    Rows of `counts` are (experiment, minute, arm, issued, answered, ones), those of `steps`
    (experiment, minute, arm, answered, ones).
    """

    epochs: Sequence[int]
    last_experiment: int
    experiments: Sequence[Saved]
    keys: Sequence[Key]
    counts: Iterable[tuple[int, ...]]
    steps: Iterable[tuple[int, ...]]
    spent: Iterable[Block]


class Store(Protocol):
    """See the contract above."""

    is_shared: bool

    def claim(self, fingerprints: Sequence[bytes]) -> None:
        """Become a server whose secrets have these fingerprints, the sealing one's first."""

    def new_epoch(self) -> int:
        """Return a number that no process had before."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        """Make a batch durable; return for each report whether its decision was unanswered.

        Raises `Stale` if the batch names another generation than the store's.
        """

    def totals(self, experiment: int, before: int | None = None) -> Mapping[int, Counts]:
        """Return the counts of each arm, over all minutes or those before a minute."""

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        """Return {(minute, arm): counts} of the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """

    def shown(self, experiment: int) -> Mapping[int, Step]:
        """Return the sum of all steps of each arm, and the minute of its latest."""

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        """Return {(minute, arm): step} of what was shown first in the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """

    def roll_back(
        self,
        experiment: int,
        start: int,
        stop: int,
        change: tuple[Saved, str] | None = None,
        restated: Restated | None = None,
    ) -> Mapping[int, Counts] | None:
        """Remove the counts of the minutes start … stop − 1; return what was removed, by arm.

        The arguments of a `change` may be given to be made with it; where that returns None, so
        does this, and nothing is removed. Steps are `restated`; without it what is shown stays.
        """

    def fold(self, experiment: int, before: int, width: int) -> None:
        """Join counts and steps before a minute in buckets of `width`; all their sums stay.

        A bucket that reaches beyond `before` is left as it is.
        """

    def forget_spent(self, before: int) -> int:
        """Drop the blocks all of whose tokens expired before a minute; return how many."""

    def spent_bits(self) -> int:
        """Return how many bits are set in all blocks, so that anybody can check the invariant."""

    def save(self, slug: str, definition: str, key_hash: str | None = None) -> Saved | None:
        """Keep a new experiment, or return None if there is one of this slug or key."""

    def change(self, saved: Saved, definition: str) -> Saved | None:
        """Replace the definition, or return None if it is no longer the one of `saved`."""

    def delete(self, number: int) -> None:
        """Remove an experiment, all its counts and steps."""

    def experiments(self) -> Sequence[Saved]:
        """Return all experiments, in the order of their numbers."""

    def save_key(self, key: Key) -> None:
        """Keep a key, in place of the one of the same hash."""

    def delete_key(self, hash: bytes) -> None:
        """Remove the key of this hash."""

    def keys(self) -> Sequence[Key]:
        """Return all keys, in the order in which they were first kept."""

    def generation(self) -> int:
        """Return a number that differs after any change of experiments or keys."""

    def probe(self) -> None:
        """Write durably, where there must be room for a large commit, or raise `Unavailable`."""

    def sizes(self) -> Mapping[str, int]:
        """Return how many rows each table has: all that is stored."""

    def require_alone(self) -> None:
        """Refuse if a server uses the store."""

    def contents(self) -> AbstractContextManager[Contents]:
        """Lend everything, as it is at one moment, to be read once."""

    def fill(self, contents: Contents) -> None:
        """Take everything from another store, or refuse if this one holds anything."""

    def close(self) -> None:
        """Give up the store; whoever waits for it in another thread is told `Unavailable`."""


def not_empty(shown: str) -> InvalidInput:
    """Return the refusal to fill a store that holds something."""
    return InvalidInput(
        "store", shown, "something is stored there already: give a new, empty store"
    )
