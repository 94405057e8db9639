"""The contract of a store as a plain model, and random games that compare a store with it."""

from collections.abc import Callable
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Cell,
    Counts,
    Decision,
    ReportedBit,
    Restatement,
    Step,
    Store,
    StoredExperiment,
)

Opener = Callable[[], Store]
"""Opens one and the same store; each call stands for another process that opens it."""

STEP = 2
"""Reports of an arm that a game publishes at once."""


def issued(*decisions: Decision) -> dict[Cell, int]:
    """Return how many of these decisions each cell has."""
    cells = [Cell(one.experiment, one.arm, one.minute) for one in decisions]
    return {cell: cells.count(cell) for cell in cells}


def saved(store: Store, slug: str) -> StoredExperiment:
    """Save an experiment whose slug must be free."""
    kept = store.save(slug, "{}")
    assert kept is not None
    return kept


class Model:
    """The contract in a few lines of Python, without files, transactions or blocks of bits."""

    def __init__(self) -> None:
        self.counts: dict[Cell, Counts] = {}
        self.spent: dict[tuple[int, int], int] = {}
        self.published_steps: dict[Cell, Step] = {}

    def add(self, cell: Cell, *more: int) -> None:
        old = self.counts.get(cell, Counts())
        self.counts[cell] = Counts(*(a + b for a, b in zip(old, more, strict=True)))

    def commit(self, batch: Batch) -> list[bool]:
        for cell, number in batch.issued.items():
            self.add(cell, number, 0, 0)
        answers = []
        touched = set[tuple[int, int]]()
        for one, bit in batch.reports:
            name = one.epoch, one.sequence
            answers.append(name not in self.spent)
            if answers[-1]:
                self.spent[name] = one.expiry
                self.add(Cell(one.experiment, one.arm, one.minute), 0, 1, bit)
                touched.add((one.experiment, one.arm))
        for experiment, arm in touched:
            answered, ones = self.withheld(experiment, arm)
            step = batch.steps.get(experiment)
            if step is not None and answered >= step:
                if not 0 <= ones <= answered:
                    self.unpublish(experiment, arm)
                    answered, ones = self.withheld(experiment, arm)
                self.publish(Cell(experiment, arm, batch.minute), answered, ones)
        return answers

    def withheld(self, experiment: int, arm: int) -> tuple[int, int]:
        """Return what is counted and not published."""
        _, answered, ones = self.totals(experiment).get(arm, Counts())
        published = self.published(experiment).get(arm, Step())
        return answered - published.answered, ones - published.ones

    def publish(self, cell: Cell, answered: int, ones: int) -> None:
        old = self.published_steps.get(cell, Step())
        self.published_steps[cell] = Step(old.answered + answered, old.ones + ones, cell.minute)

    def steps(
        self, experiment: int, start: int = 0, stop: int = 10**9, width: int = 1
    ) -> dict[tuple[int, int], Step]:
        joined: dict[tuple[int, int], Step] = {}
        for (number, arm, minute), step in self.published_steps.items():
            if number == experiment and start <= minute < stop:
                bucket = minute // width * width, arm
                old = joined.get(bucket, Step())
                sums = old.answered + step.answered, old.ones + step.ones
                joined[bucket] = Step(*sums, max(old.minute, minute))
        return joined

    def published(self, experiment: int) -> dict[int, Step]:
        return {arm: step for (_, arm), step in self.steps(experiment, width=10**9).items()}

    def roll_back(
        self, experiment: int, start: int, stop: int, restated: Restatement
    ) -> dict[int, Counts]:
        removed = self.remove(experiment, start, stop)
        for arm in (0, 1):
            if abs(self.withheld(experiment, arm)[0]) >= restated.step:
                _, answered, ones = self.totals(experiment).get(arm, Counts())
                self.unpublish(experiment, arm)
                if answered >= restated.step:
                    self.publish(Cell(experiment, arm, restated.minute), answered, ones)
        return removed

    def unpublish(self, experiment: int, *arms: int) -> None:
        self.published_steps = {
            cell: step
            for cell, step in self.published_steps.items()
            if cell.experiment != experiment or cell.arm not in arms
        }

    def history(
        self, experiment: int, start: int = 0, stop: int = 10**9, width: int = 1
    ) -> dict[tuple[int, int], Counts]:
        joined = Model()
        for cell, counts in self.counts.items():
            if cell.experiment == experiment and start <= cell.minute < stop:
                joined.add(cell._replace(minute=cell.minute // width * width), *counts)
        return {(cell.minute, cell.arm): counts for cell, counts in joined.counts.items()}

    def totals(self, experiment: int, start: int = 0, stop: int = 10**9) -> dict[int, Counts]:
        history = self.history(experiment, start, stop, 10**9)
        return {arm: counts for (_, arm), counts in history.items()}

    def remove(self, experiment: int, start: int = 0, stop: int = 10**9) -> dict[int, Counts]:
        removed = self.totals(experiment, start, stop)
        for cell in list(self.counts):
            if cell.experiment == experiment and start <= cell.minute < stop:
                del self.counts[cell]
        return removed

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        joined = self.history(experiment, 0, before // width * width, width)
        self.remove(experiment, 0, before // width * width)
        for (minute, arm), counts in joined.items():
            self.add(Cell(experiment, arm, minute), *counts)
        joint, last = self.steps(experiment, width=width), before // width * width
        kept = self.steps(experiment, last)
        self.unpublish(experiment, 0, 1)
        for (minute, arm), step in [*joint.items(), *kept.items()]:
            if minute < last or (minute, arm) in kept:
                self.published_steps[Cell(experiment, arm, minute)] = step._replace(minute=minute)

    def forget_spent(self, before: int) -> int:
        last: dict[tuple[int, int], int] = {}
        for (epoch, sequence), expiry in self.spent.items():
            block = epoch, sequence // BITS_PER_BLOCK
            last[block] = max(expiry, last.get(block, expiry))
        dropped = {block for block, expiry in last.items() if expiry < before}
        for epoch, sequence in list(self.spent):
            if (epoch, sequence // BITS_PER_BLOCK) in dropped:
                del self.spent[epoch, sequence]
        return len(dropped)


class Machine(RuleBasedStateMachine):
    """Plays one game on the model and on two processes' views of one store."""

    def __init__(self, opened: Opener) -> None:
        super().__init__()
        self.opened = opened
        self.stores = [opened(), opened()]
        self.model = Model()
        self.now = 1000
        self.numbers = count()
        self.decisions: list[Decision] = []
        self.gone: set[int] = set()
        self.has_all_counts = True

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    @initialize()
    def start(self) -> None:
        self.epochs = [store.new_epoch() for store in self.stores]
        self.experiments = [saved(self.stores[0], slug).number for slug in "ab"]

    def live(self) -> list[Decision]:
        # The service refuses what has expired or whose experiment has been deleted.
        return [
            one
            for one in self.decisions
            if one.expiry >= self.now and one.experiment not in self.gone
        ]

    @rule(
        who=st.integers(0, 1),
        asked=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 4))),
        answered=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 1))),
    )
    def commit(
        self, who: int, asked: list[tuple[int, int, int]], answered: list[tuple[int, int]]
    ) -> None:
        new = []
        for experiment, arm, lifetime in asked:
            sequence = next(self.numbers) * (BITS_PER_BLOCK // 5)
            cell = self.experiments[experiment], arm, self.epochs[who], sequence, self.now
            new.append(Decision(*cell, self.now + lifetime))
        self.decisions += new
        live = self.live()
        reports = [ReportedBit(live[n % len(live)], bit) for n, bit in answered if live]
        steps = dict.fromkeys(self.experiments, STEP)
        batch = Batch(issued(*new), reports, minute=self.now, steps=steps)
        expected = self.model.commit(batch)
        assert list(self.stores[who].commit(batch)) == expected, "answers differ"

    @rule(minutes=st.integers(1, 4))
    def wait(self, minutes: int) -> None:
        self.now += minutes

    @rule(who=st.integers(0, 1), experiment=st.integers(0, 1), ago=st.integers(0, 9))
    def roll_back(self, who: int, experiment: int, ago: int) -> None:
        window = self.experiments[experiment], self.now - ago, self.now - ago + 3
        restated = Restatement(self.now, STEP)
        expected = self.model.roll_back(*window, restated)
        removed = self.stores[who].roll_back(*window, None, restated)
        assert removed == expected, "returned counts differ"
        self.has_all_counts = False

    @rule(who=st.integers(0, 1), experiment=st.integers(0, 1), width=st.integers(1, 4))
    def join_minutes(self, who: int, experiment: int, width: int) -> None:
        self.model.join_minutes(self.experiments[experiment], self.now, width)
        self.stores[who].join_minutes(self.experiments[experiment], self.now, width)

    @rule(who=st.integers(0, 1))
    def forget_spent(self, who: int) -> None:
        expected = self.model.forget_spent(self.now)
        assert self.stores[who].forget_spent(self.now) == expected, "returned number differs"
        self.has_all_counts &= not expected

    @rule(who=st.integers(0, 1), experiment=st.integers(0, 1))
    def delete(self, who: int, experiment: int) -> None:
        number = self.experiments[experiment]
        self.model.remove(number)
        self.model.unpublish(number, 0, 1)
        self.stores[who].delete(number)
        self.gone.add(number)
        self.experiments[experiment] = saved(self.stores[who], "ab"[experiment]).number
        assert self.experiments[experiment] not in self.gone, "return of an old number"
        self.has_all_counts = False

    @precondition(lambda self: self.decisions)
    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.stores[who].close()
        self.stores[who] = self.opened()

    @invariant()
    def counts_agree(self) -> None:
        for store in self.stores:
            assert store.spent_bits() == len(self.model.spent), "bits differ"
            for number in {*self.gone, *self.experiments} if self.decisions else ():
                model = self.model
                assert store.totals(number) == model.totals(number), "counts differ"
                before = store.totals(number, self.now)
                assert before == model.totals(number, 0, self.now), "counts before now differ"
                assert store.history(number, 0, 2000) == model.history(number), "counts differ"
                window = number, self.now - 7, self.now - 1, 3
                assert store.history(*window) == model.history(*window), "counts of 3 differ"
                assert store.published(number) == model.published(number), "steps differ in sum"
                steps = store.steps(number, 0, 2000)
                assert steps == model.steps(number), "steps differ"
                assert all(step.answered >= STEP for step in steps.values()), "steps of too few"
                assert store.steps(*window) == model.steps(*window), "steps of 3 differ"

    @invariant()
    def answers_are_spent_bits(self) -> None:
        if self.has_all_counts and self.decisions:
            totals = [
                counts
                for number in self.experiments
                for counts in self.stores[0].totals(number).values()
            ]
            assert all(ones <= answered <= made for made, answered, ones in totals), "counts"
            assert sum(each.answered for each in totals) == self.stores[0].spent_bits(), "bits"


def play(fresh: Callable[[], Opener], how: settings) -> None:
    """Play random games on new stores; the first difference from the model is an AssertionError."""
    run_state_machine_as_test(lambda: Machine(fresh()), settings=how)  # type: ignore[arg-type]  # hypothesis asks for a class, and calls it
