"""What the service stores, and the contract of every store.

A store holds experiments, keys, epochs, counts and spent bits, and nothing else: no decision has a
row of its own, and nothing says who was asked. `whitelie.testing.store_contract` tests a store
against what follows.

- **Times** are whole minutes since 1970.
- **Epochs.** `new_epoch` returns a number that no process had before, and makes it durable. A
  process numbers its decisions from 0 within its epoch, so (epoch, sequence) names a decision for
  ever.
- **Counts** are kept per cell. A cell is an experiment, an arm and the minute of *issue*: how many
  decisions were issued, how many of these were answered, and how many answers were 1.
- **Spent bits** are the replay protection: a set bit marks a token as used. Bit `sequence` of an
  epoch says that this decision has been answered; a bit that is not set is free. Bits lie in
  blocks of `BITS_PER_BLOCK`. A block may be dropped when all tokens whose bits it holds have
  expired, because the service refuses an expired token before it looks at the bit.
- **commit** is the only way in which counts grow. It adds the issued decisions. For every report
  whose bit is free it sets the bit and adds to the counts of the report's cell. All of this is one
  durable transaction. It returns for each report, in order, whether the bit was free. Of two
  reports on one decision exactly one finds the bit free: in one commit or in two, from one process
  or from many.
- **Steps.** Only admins see counts as they are. Others see published steps. A commit withholds the
  reports that it accepts until an arm has at least `step` of them; the batch names the step of
  each experiment. Then the same transaction publishes all of them together, as one step that is
  dated by the batch's minute. So no step holds fewer reports, and a history of steps reveals no
  single report, as a history by minute of issue would. Without a step in the batch, reports stay
  withheld. What is published and what is withheld add up to the counts.
- **Rollback and steps.** A rollback may remove reports that are published already. It restates the
  arm's steps, as one step of what is left, only if the published sum moves by a step or more.
  Otherwise the difference is withheld, and what is withheld may be negative. A later commit may
  then have to publish a step that is impossible, with ones below zero or above its reports; that
  commit restates the arm's steps in the same way.
- **Generation** is a number that differs whenever anybody has changed experiments or keys. It is
  the version number of optimistic concurrency control: a batch may name the generation that its
  makers read, and if the store's is another one, `commit` raises `Stale` and changes nothing. So
  what was decided under old definitions never becomes durable under new ones. A deleted experiment
  and a span that was rolled back stay empty, however many processes write.
- **Invariant.** At every moment and after any crash, ones ≤ answered = spent bits ≤ issued. It
  holds over tokens that have not expired, were not rolled back, and whose experiment was not
  deleted.
- **Experiments** have a number that is never reused, a slug, and a definition, a text that only
  the service reads. One that was created with an Idempotency-Key has the hash of that key, which
  makes a repeated creation idempotent. Slugs and hashes are unique. `save` and `change` never
  overwrite what somebody else wrote in between: they return None instead.
- **Keys** are kept by the hash of their text.
- **claim** makes a process one of the servers of a store, or refuses it. It refuses if the store
  can have one server only and has one, or if the other servers seal tokens with a secret that this
  one does not know. A store `is_shared` if several servers may commit to it.
- **contents** returns all of the above as of one moment. `fill` puts it into an empty store,
  numbers included. `require_alone` refuses while a server uses the store.
- **Failure.** A method that raises has changed nothing, unless the store is closed during the
  call: then nobody knows. A store raises `Unavailable` when it cannot work now, such as on a full
  disk. It works again by itself as soon as it can.
- **Threads.** One thread at a time calls the methods that write. Any thread may call those that
  read (`totals`, `history`, `published`, `steps`, `experiments`, `keys`, `spent_bits`, `sizes`,
  `generation`, `contents`), also while another one writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from whitelie.errors import InvalidInput, WhitelieError

BITS_PER_BLOCK = 8192
"""How many decisions share one block of spent bits."""


class Unavailable(WhitelieError):
    """The store cannot work now; nothing was changed, and the call may be repeated."""


class Stale(WhitelieError):
    """Somebody changed experiments or keys after this batch was made; nothing was written."""


class Cell(NamedTuple):
    """What counts are kept for: an arm of an experiment, and the minute of the decision."""

    experiment: int
    arm: int
    minute: int


class Counts(NamedTuple):
    """Decisions issued, how many of them were answered, and how many answers were 1."""

    issued: int = 0
    answered: int = 0
    ones: int = 0


class Step(NamedTuple):
    """Reports that were published together, how many of them were 1, and in which minute."""

    answered: int = 0
    ones: int = 0
    minute: int = 0


class Decision(NamedTuple):
    """A decision, as its token says it; its name is its epoch and sequence number.

    `minute` is when it was issued and `expiry` the last minute in which it can be answered.
    """

    experiment: int
    arm: int
    epoch: int
    sequence: int
    minute: int
    expiry: int


class ReportedBit(NamedTuple):
    """A report whose token has been opened: the decision that it answers, and the bit."""

    decision: Decision
    bit: int


@dataclass
class Batch:
    """What one commit makes durable: how many decisions were issued in each cell, and reports.

    `generation` is the one that its makers read, or None to commit under any. `steps` has the step
    of each experiment that the reports belong to. A step that the reports fill is dated `minute`.
    """

    issued: dict[Cell, int] = field(default_factory=dict)
    reports: list[ReportedBit] = field(default_factory=list)
    generation: int | None = None
    minute: int = 0
    steps: Mapping[int, int] = field(default_factory=dict)


class Restatement(NamedTuple):
    """How a rollback restates steps: the minute that dates the new one, and the least reports."""

    minute: int
    step: int


class StoredExperiment(NamedTuple):
    """An experiment as the store keeps it; `key_hash` is that of an Idempotency-Key."""

    number: int
    slug: str
    definition: str
    key_hash: str | None = None


class Key(NamedTuple):
    """Who may ask, and for what; `expiry` is the last minute in which the key is valid, if any."""

    name: str
    role: str
    hash: bytes
    origins: tuple[str, ...] = ()
    decisions_per_minute: int = 0
    expiry: int | None = None


class Block(NamedTuple):
    """Spent bits of an epoch; `expiry` is the last minute in which one of their tokens is valid."""

    epoch: int
    block: int
    expiry: int
    bits: bytes


@dataclass(frozen=True)
class Contents:
    """All that a store holds; `last_experiment` is the highest number that was ever given.

    Rows of `counts` are (experiment, minute, arm, issued, answered, ones), those of `steps`
    (experiment, minute, arm, answered, ones).
    """

    epochs: Sequence[int]
    last_experiment: int
    experiments: Sequence[StoredExperiment]
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
        """Make a batch durable; return for each report whether its spent bit was free.

        Raises `Stale` if the batch names another generation than the store's.
        """

    def totals(self, experiment: int, before: int | None = None) -> Mapping[int, Counts]:
        """Return the counts of each arm, over all minutes or over those before a minute."""

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        """Return {(minute, arm): counts} of the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """

    def published(self, experiment: int) -> Mapping[int, Step]:
        """Return the sum of all steps of each arm, and the minute of its latest."""

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        """Return {(minute, arm): step} of what was published in the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """

    def roll_back(
        self,
        experiment: int,
        start: int,
        stop: int,
        change: tuple[StoredExperiment, str] | None = None,
        restated: Restatement | None = None,
    ) -> Mapping[int, Counts] | None:
        """Remove the counts of the minutes start … stop − 1; return what was removed, by arm.

        `change` has the arguments of a `change` to make in the same transaction. If that change
        returns None, this returns None too, and removes nothing. `restated` says how steps are
        restated; without it, what is published stays.
        """

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        """Join the minutes before a minute into buckets of `width`, for counts and for steps.

        All sums stay. A bucket that reaches beyond `before` is left as it is.
        """

    def forget_spent(self, before: int) -> int:
        """Drop blocks whose tokens have all expired before a minute; return how many."""

    def spent_bits(self) -> int:
        """Return how many bits are set in all blocks; the invariant can be checked with it."""

    def save(
        self, slug: str, definition: str, key_hash: str | None = None
    ) -> StoredExperiment | None:
        """Store a new experiment, or return None if its slug or its key's hash is taken."""

    def change(self, saved: StoredExperiment, definition: str) -> StoredExperiment | None:
        """Replace the definition, or return None if the stored one differs from `saved`'s."""

    def delete(self, number: int) -> None:
        """Remove an experiment with all its counts and steps."""

    def experiments(self) -> Sequence[StoredExperiment]:
        """Return all experiments, in the order of their numbers."""

    def save_key(self, key: Key) -> None:
        """Store a key; it replaces the one with the same hash."""

    def delete_key(self, hash: bytes) -> None:
        """Remove the key with this hash, if there is one."""

    def keys(self) -> Sequence[Key]:
        """Return all keys, in the order in which they were first stored."""

    def generation(self) -> int:
        """Return a number that differs after any change of experiments or keys."""

    def probe(self) -> None:
        """Write durably, and check that a large commit has room, or raise `Unavailable`."""

    def sizes(self) -> Mapping[str, int]:
        """Return how many rows each table has.

        The tables are `epochs`, `experiments`, `keys`, `counts`, `steps` and `spent`, and those
        that the store has beside them.
        """

    def require_alone(self) -> None:
        """Refuse, by `InvalidInput`, if a server uses the store."""

    def contents(self) -> AbstractContextManager[Contents]:
        """Return everything as of one moment; it can be read once, within the `with` block."""

    def fill(self, contents: Contents) -> None:
        """Store everything that another store held, or refuse if this one is not empty."""

    def close(self) -> None:
        """Close the store; a call that another thread waits for raises `Unavailable`."""


def not_empty(address: str) -> InvalidInput:
    """Return the refusal to fill a store that holds something."""
    return InvalidInput("store", address, "it is not empty: give a new, empty store")
