"""The tests that every store must pass; `StoreContract` says how to run them on one of your own."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import settings

from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Cell,
    Counts,
    Decision,
    Key,
    ReportedBit,
    Restatement,
    Stale,
    Step,
    Store,
    StoredExperiment,
)
from whitelie.testing.store_model import Opener, issued, play, saved


def decision(sequence: int, arm: int = 0, **changes: int) -> Decision:
    """Return a decision of arm 0 in minute 100, unless told otherwise."""
    return Decision(1, arm, 1, sequence, 100, 160)._replace(**changes)


def answered_batch(first: int, bits: Sequence[int], minute: int = 200, step: int = 10) -> Batch:
    """Return one batch: decisions of arm 0, numbered from `first`, and these bits on them."""
    made = [decision(first + n) for n in range(len(bits))]
    reports = [ReportedBit(one, bit) for one, bit in zip(made, bits, strict=True)]
    return Batch(issued(*made), reports, minute=minute, steps={1: step})


class StoreContract:
    """The tests of the contract in `whitelie.service.store.contract`.

    Subclass it in a file of tests, and override the fixture `fresh`:

        class TestMyStore(StoreContract):
            @pytest.fixture
            def fresh(self, tmp_path):
                def new_store():
                    path = tmp_path / secrets.token_hex(4)
                    return lambda: MyStore(path)
                return new_store

    `new_store()` stands for a new, empty store. The function that it returns opens this store; each
    call of it is what another process would see. Close in the fixture what a test leaves open.
    """

    tables_by_arm: ClassVar[tuple[str, ...]] = ()
    """Further tables that `sizes` names, with one row for each arm that has counts."""

    @pytest.fixture
    def fresh(self) -> Callable[[], Opener]:
        """Return a function that makes a new, empty store and returns what opens it."""
        raise NotImplementedError("override the fixture `fresh`: StoreContract says how")

    @pytest.fixture
    def opened(self, fresh: Callable[[], Opener]) -> Opener:
        """Return what opens one new store, as often as it is called."""
        return fresh()

    @pytest.fixture
    def store(self, opened: Opener) -> Store:
        """Return a new store, opened once."""
        return opened()

    # Epochs

    def test_no_epoch_is_given_twice(self, store: Store, opened: Opener) -> None:
        other = opened()
        epochs = [store.new_epoch(), other.new_epoch(), store.new_epoch()]
        store.close()
        other.close()
        epochs.append(opened().new_epoch())
        assert len(set(epochs)) == 4

    # Commits

    def test_a_commit_adds_to_the_cells_of_its_decisions(self, store: Store) -> None:
        decisions = [decision(0), decision(1), decision(2, arm=1), decision(3, minute=101)]
        reports = [ReportedBit(one, bit) for one, bit in zip(decisions, (1, 0, 1, 1), strict=True)]
        assert list(store.commit(Batch(issued(*decisions)))) == []
        assert list(store.commit(Batch({}, reports[:3]))) == [True] * 3
        assert list(store.commit(Batch(issued(decision(4)), reports[3:]))) == [True]
        assert store.totals(1) == {0: Counts(4, 3, 2), 1: Counts(1, 1, 1)}
        assert store.totals(1, 101) == {0: Counts(3, 2, 1), 1: Counts(1, 1, 1)}
        assert store.totals(1, 100) == store.totals(2) == {}
        assert store.spent_bits() == 4

    def test_an_empty_commit_changes_nothing(self, store: Store) -> None:
        assert list(store.commit(Batch())) == []
        assert store.totals(1) == {}
        assert store.spent_bits() == 0

    def test_of_two_reports_in_one_commit_the_first_counts(self, store: Store) -> None:
        one, other = decision(5), decision(6)
        reports = [
            ReportedBit(one, 1),
            ReportedBit(other, 0),
            ReportedBit(one, 0),
            ReportedBit(one, 1),
        ]
        assert list(store.commit(Batch(issued(one, other), reports))) == [True, True, False, False]
        assert store.totals(1) == {0: Counts(2, 2, 1)}

    def test_of_two_reports_in_two_commits_the_first_counts(self, store: Store) -> None:
        one = decision(BITS_PER_BLOCK)
        store.commit(Batch(issued(one)))
        answers = [list(store.commit(Batch({}, [ReportedBit(one, bit)]))) for bit in (0, 1)]
        assert answers == [[True], [False]]
        assert store.totals(1) == {0: Counts(1, 1, 0)}

    def test_a_commit_outlives_the_process(self, store: Store, opened: Opener) -> None:
        one, other = decision(7), decision(8)
        store.commit(Batch(issued(one, other), [ReportedBit(one, 1)]))
        store.close()
        store = opened()
        assert store.totals(1) == {0: Counts(2, 1, 1)}
        assert list(store.commit(Batch({}, [ReportedBit(one, 1), ReportedBit(other, 1)]))) == [
            False,
            True,
        ]

    def test_a_report_to_two_processes_counts_once(self, store: Store, opened: Opener) -> None:
        other = opened()
        decisions = [decision(sequence) for sequence in range(6)]
        store.commit(Batch(issued(*decisions)))
        for place, one in enumerate(decisions):
            stores = [store, other] if place % 2 else [other, store]
            answers = [list(each.commit(Batch({}, [ReportedBit(one, 1)]))) for each in stores]
            assert answers == [[True], [False]]
        assert other.totals(1) == store.totals(1) == {0: Counts(6, 6, 6)}
        assert store.spent_bits() == 6

    def test_a_report_to_two_processes_at_the_same_time_counts_once(
        self, store: Store, opened: Opener
    ) -> None:
        decisions = [decision(sequence) for sequence in range(40)]
        store.commit(Batch(issued(*decisions)))
        answers: list[list[bool]] = []

        def work(one: Store) -> None:
            mine: list[bool] = []
            for each in decisions:
                mine += one.commit(Batch({}, [ReportedBit(each, 1)]))
            answers.append(mine)

        threads = [threading.Thread(target=work, args=(one,)) for one in (store, opened())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [sum(pair) for pair in zip(*answers, strict=True)] == [1] * 40
        assert store.totals(1) == {0: Counts(40, 40, 40)}

    @pytest.mark.promise("Optimistic concurrency")
    def test_a_batch_under_an_old_generation_changes_nothing(
        self, store: Store, opened: Opener
    ) -> None:
        other, one, known = opened(), decision(0), store.generation()
        first = Batch(issued(one), [ReportedBit(one, 1)], known)
        assert list(store.commit(first)) == [True]
        changes: list[Callable[[], object]] = [
            lambda: other.save("a", "1"),
            lambda: other.change(store.experiments()[0], "2"),
            lambda: other.roll_back(5, 0, 1, (store.experiments()[0], "3")),
            lambda: other.save_key(Key("a", "admin", b"\1")),
            lambda: other.delete(store.experiments()[0].number),
        ]
        for number, change in enumerate(changes, 1):
            known, late = store.generation(), decision(number)
            change()
            before = store.totals(1), store.spent_bits(), store.sizes()
            with pytest.raises(Stale):
                store.commit(
                    Batch(issued(late), [ReportedBit(late, 1), ReportedBit(one, 1)], known)
                )
            assert (store.totals(1), store.spent_bits(), store.sizes()) == before
            again = Batch(
                issued(late), [ReportedBit(late, 1), ReportedBit(one, 1)], store.generation()
            )
            assert list(store.commit(again)) == [True, False]

    def test_commits_do_not_change_the_generation(self, store: Store, opened: Opener) -> None:
        before = store.generation()
        for number in range(5):
            batch = Batch(issued(decision(number)), [ReportedBit(decision(number), 1)], before)
            (store if number % 2 else opened()).commit(batch)
        store.join_minutes(1, 1000, 10)
        store.forget_spent(1000)
        store.probe()
        assert store.generation() == before

    @pytest.mark.parametrize(
        "sequence", [0, 7, 8, BITS_PER_BLOCK - 1, BITS_PER_BLOCK, 2**40 + 3, 2**63]
    )
    def test_every_decision_has_a_bit_of_its_own(self, store: Store, sequence: int) -> None:
        one = decision(sequence)
        near = [
            decision(sequence + 1),
            decision(sequence, epoch=2),
            decision(sequence + BITS_PER_BLOCK),
        ]
        store.commit(Batch(issued(one), [ReportedBit(one, 1)]))
        answers = store.commit(
            Batch(issued(*near), [ReportedBit(each, 1) for each in [*near, one]])
        )
        assert list(answers) == [True, True, True, False]
        assert store.spent_bits() == 4

    # Reading and rewriting counts

    def test_history_is_the_counts_of_the_minutes(self, store: Store) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(10)]
        store.commit(Batch(issued(*decisions), [ReportedBit(decisions[3], 1)]))
        assert store.history(1, 102, 105) == {
            (102, 0): Counts(1, 0, 0),
            (103, 1): Counts(1, 1, 1),
            (104, 0): Counts(1, 0, 0),
        }
        assert store.history(1, 102, 107, 5) == {
            (100, 0): Counts(2, 0, 0),
            (100, 1): Counts(1, 1, 1),
            (105, 0): Counts(1, 0, 0),
            (105, 1): Counts(1, 0, 0),
        }
        assert store.history(1, 105, 105) == store.history(2, 0, 1000) == {}

    def test_a_rollback_returns_what_it_removes(self, store: Store) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(6)]
        reports = [ReportedBit(one, 1) for one in decisions]
        store.commit(Batch(issued(*decisions), reports))
        store.commit(Batch({Cell(2, 0, 102): 1}))
        assert store.roll_back(1, 102, 105) == {0: Counts(2, 2, 2), 1: Counts(1, 1, 1)}
        assert store.totals(1) == {0: Counts(1, 1, 1), 1: Counts(2, 2, 2)}
        assert store.totals(2) == {0: Counts(1, 0, 0)}
        assert store.roll_back(1, 102, 105) == {}
        assert not any(store.commit(Batch({}, reports)))

    def test_joining_minutes_keeps_all_sums(self, store: Store, opened: Opener) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(30)]
        store.commit(Batch(issued(*decisions), [ReportedBit(one, one.arm) for one in decisions]))
        before, coarse = store.totals(1), store.history(1, 0, 200, 10)
        store.join_minutes(1, 125, 10)
        assert store.totals(1) == before
        assert store.history(1, 0, 200, 10) == coarse
        fine = store.history(1, 0, 200)
        assert {minute for minute, _ in fine} == {100, 110, *range(120, 130)}
        store.join_minutes(1, 125, 10)
        store.close()
        assert opened().history(1, 0, 200) == fine

    def test_sums_from_a_multiple_of_the_width_on_survive_joining(self, store: Store) -> None:
        """Evidence that begins anew at such a minute reads nothing of before, ever."""
        decisions = [decision(n, n % 2, minute=115 + n) for n in range(10)]
        reports = [ReportedBit(one, one.arm) for one in decisions]
        store.commit(Batch(issued(*decisions), reports, minute=125, steps={1: 1}))
        everything = 1, 120, 2**40, 2**40
        exact = {(0, 0): Counts(2, 2, 0), (0, 1): Counts(3, 3, 3)}
        assert store.history(*everything) == exact
        shown = {place: step[:2] for place, step in store.steps(*everything).items()}
        store.join_minutes(1, 130, 10)
        assert store.history(*everything) == exact
        assert {place: step[:2] for place, step in store.steps(*everything).items()} == shown
        assert store.history(1, 121, 2**40, 2**40) == {}  # no such multiple: what is lost

    def test_a_late_report_is_joined_too(self, store: Store) -> None:
        late = decision(0, minute=104)
        store.commit(Batch(issued(late)))
        store.join_minutes(1, 110, 10)
        store.commit(Batch({}, [ReportedBit(late, 1)]))
        store.join_minutes(1, 110, 10)
        assert store.history(1, 0, 200) == {(100, 0): Counts(1, 1, 1)}

    def test_a_block_is_dropped_when_all_its_tokens_have_expired(self, store: Store) -> None:
        short, long, apart = (
            decision(0),
            decision(1, expiry=170),
            decision(BITS_PER_BLOCK, expiry=150),
        )
        for one in (long, short, apart):
            store.commit(Batch(issued(one), [ReportedBit(one, 1)]))
        assert store.forget_spent(150) == 0
        assert store.forget_spent(151) == 1
        assert store.forget_spent(170) == 0
        assert list(store.commit(Batch({}, [ReportedBit(long, 1)]))) == [False]
        assert store.spent_bits() == 2
        assert store.forget_spent(171) == 1
        assert store.spent_bits() == 0
        assert store.totals(1) == {0: Counts(3, 3, 3)}

    def test_no_process_restores_a_block_that_another_has_dropped(
        self, store: Store, opened: Opener
    ) -> None:
        one, other = decision(0, expiry=100), decision(1)
        store.commit(Batch(issued(one, other), [ReportedBit(one, 1)]))
        assert opened().forget_spent(101) == 1
        store.commit(Batch({}, [ReportedBit(other, 1)]))
        assert store.spent_bits() == 1

    # Steps

    def test_reports_are_published_when_they_fill_a_step(
        self, store: Store, opened: Opener
    ) -> None:
        for number in range(9):
            store.commit(answered_batch(number, [1]))
            assert not store.published(1)
            assert not store.steps(1, 0, 1000)
        other = opened()
        other.commit(answered_batch(9, [0], minute=205))
        for each in (store, other):
            assert each.published(1) == {0: Step(10, 9, 205)}
            assert each.steps(1, 0, 1000) == {(205, 0): Step(10, 9, 205)}
        store.commit(answered_batch(10, [1] * 12, minute=205))  # all that are withheld
        store.commit(answered_batch(22, [0] * 9, minute=206))
        assert store.steps(1, 0, 1000) == {(205, 0): Step(22, 21, 205)}
        assert store.totals(1) == {0: Counts(31, 31, 21)}
        store.close()
        other.commit(answered_batch(31, [1], minute=207))
        assert other.steps(1, 205, 208) == {(205, 0): Step(22, 21, 205), (207, 0): Step(10, 1, 207)}
        assert other.steps(1, 206, 208, 100) == {(200, 0): Step(10, 1, 207)}
        assert other.published(1) == {0: Step(32, 22, 207)}

    def test_every_arm_and_experiment_has_a_step_of_its_own(self, store: Store) -> None:
        many = [decision(n, n % 2, experiment=1 + n // 10) for n in range(30)]
        batch = Batch(issued(*many), [ReportedBit(one, one.arm) for one in many], minute=7)
        store.commit(replace(batch, steps={1: 5, 2: 6}))
        assert store.published(1) == {0: Step(5, 0, 7), 1: Step(5, 5, 7)}
        assert store.published(2) == store.published(3) == {}  # five of six; and no step is known
        late = [decision(100, experiment=2), decision(101, experiment=3)]
        store.commit(Batch({}, [ReportedBit(one, 1) for one in late], minute=8, steps={2: 6, 3: 6}))
        assert store.published(2) == {0: Step(6, 1, 8)}
        assert store.published(3) == {0: Step(6, 1, 8)}

    def test_a_report_that_does_not_count_fills_no_step(self, store: Store) -> None:
        nine = answered_batch(0, [1] * 9)
        store.commit(nine)
        assert not any(store.commit(replace(nine, issued={})))
        with pytest.raises(Stale):
            store.commit(replace(answered_batch(9, [1]), generation=store.generation() + 1))
        assert store.published(1) == {}
        store.commit(answered_batch(9, [0]))
        assert store.published(1) == {0: Step(10, 9, 200)}

    def test_steps_of_two_processes_at_once_lose_nothing(
        self, store: Store, opened: Opener
    ) -> None:
        def work(one: Store, first: int) -> None:
            for number in range(first, first + 150, 3):
                one.commit(answered_batch(number, [1, 0, 1], minute=number))

        stores = [store, opened()]
        threads = [
            threading.Thread(target=work, args=(one, 1000 * place))
            for place, one in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.totals(1) == {0: Counts(300, 300, 200)}
        steps = store.steps(1, 0, 10**6)
        assert all(step.answered >= 10 for step in steps.values())
        (published,) = store.published(1).values()
        sums = tuple(sum(step[column] for step in steps.values()) for column in (0, 1))
        assert published[:2] == sums
        assert 290 < published.answered <= 300  # what is left fills no step

    def test_a_rollback_restates_steps_if_the_sum_moves_by_a_step(self, store: Store) -> None:
        for minute, bits in ((100, [1] * 10), (101, [0] * 14), (102, [1] * 5)):
            made = [decision(100 * minute + n, minute=minute) for n in range(len(bits))]
            reports = [ReportedBit(one, bit) for one, bit in zip(made, bits, strict=True)]
            store.commit(Batch(issued(*made), reports, minute=minute, steps={1: 10}))
        before = store.steps(1, 0, 1000)
        assert before == {(100, 0): Step(10, 10, 100), (101, 0): Step(14, 0, 101)}
        store.roll_back(1, 102, 103, None, Restatement(300, 10))  # its reports were withheld
        assert store.steps(1, 0, 1000) == before
        store.roll_back(1, 100, 101, None, Restatement(301, 10))
        assert store.steps(1, 0, 1000) == {(301, 0): Step(14, 0, 301)}
        assert store.published(1) == {0: Step(14, 0, 301)}
        store.commit(answered_batch(0, [1] * 9, minute=302))
        store.roll_back(1, 101, 102, None, Restatement(303, 10))  # 9 are left instead of 14
        assert store.published(1) == {0: Step(14, 0, 301)}
        store.commit(answered_batch(9, [1] * 15, minute=304))  # 24 ones are no step beside 14 zeros
        assert store.steps(1, 0, 1000) == {(304, 0): Step(24, 24, 304)}
        assert store.published(1) == {0: Step(24, 24, 304)}
        store.commit(answered_batch(24, [0] * 20, minute=305))
        assert store.steps(1, 0, 1000) == {(304, 0): Step(24, 24, 304), (305, 0): Step(20, 0, 305)}
        assert store.published(1) == {0: Step(44, 24, 305)}
        store.roll_back(1, 0, 1000, None, Restatement(400, 10))
        assert not store.published(1)
        assert not store.steps(1, 0, 1000)
        assert not store.totals(1)

    @pytest.mark.parametrize("bit", [0, 1])
    def test_steps_continue_after_a_small_rollback_whatever_bits_follow(
        self, store: Store, bit: int
    ) -> None:
        """The removed bits are still published, and may differ from all bits that follow."""
        made = [decision(n, minute=150 if n < 3 else 100) for n in range(10)]
        others = [decision(n, arm=1) for n in range(10, 20)]
        reports = [ReportedBit(one, 1 - bit) for one in made + others]
        store.commit(Batch(issued(*made, *others), reports, minute=190, steps={1: 10}))
        before, other = store.published(1).values()
        store.roll_back(1, 150, 151, None, Restatement(191, 10))
        for number in range(13):
            assert store.published(1)[0] == before == Step(10, 10 * (1 - bit), 190)
            store.commit(answered_batch(20 + number, [bit], minute=200 + number))
        after = Step(20, 7 * (1 - bit) + 13 * bit, 212)
        assert store.published(1) == {0: after, 1: other}
        assert store.steps(1, 0, 1000) == {(212, 0): after, (190, 1): other}

    def test_a_rollback_withholds_what_is_left_if_it_is_less_than_a_step(
        self, store: Store
    ) -> None:
        store.commit(answered_batch(0, [1] * 4))
        late = [decision(n, minute=150) for n in range(10, 30)]
        store.commit(replace(answered_batch(0, []), reports=[ReportedBit(one, 0) for one in late]))
        assert store.published(1) == {0: Step(24, 4, 200)}
        store.roll_back(1, 150, 151, None, Restatement(210, 10))
        assert not store.published(1)
        assert not store.steps(1, 0, 1000)
        store.commit(answered_batch(40, [0] * 6, minute=211))
        assert store.steps(1, 0, 1000) == {(211, 0): Step(10, 4, 211)}

    def test_joining_minutes_joins_steps_too(self, store: Store) -> None:
        for number, minute in enumerate((103, 108, 109, 110, 125)):
            store.commit(answered_batch(10 * number, [1] * 10, minute=minute))
        store.join_minutes(1, 119, 10)
        assert store.steps(1, 0, 1000) == {
            (100, 0): Step(30, 30, 100),
            (110, 0): Step(10, 10, 110),
            (125, 0): Step(10, 10, 125),
        }
        assert store.published(1) == {0: Step(50, 50, 125)}
        store.join_minutes(1, 200, 100)
        assert store.steps(1, 0, 1000) == {(100, 0): Step(50, 50, 100)}
        assert store.published(1) == {0: Step(50, 50, 100)}

    def test_deleting_removes_steps_and_withheld_reports(self, store: Store) -> None:
        first, second = saved(store, "a"), saved(store, "b")
        assert first.number == 1
        for number in (first.number, second.number):
            made = [decision(n, arm=n // 10, experiment=number, epoch=number) for n in range(15)]
            reports = [ReportedBit(one, 1) for one in made]
            store.commit(Batch({}, reports, minute=9, steps={number: 10}))
        before = store.sizes()
        store.delete(first.number)
        assert not store.published(first.number)
        assert not store.steps(first.number, 0, 1000)
        assert store.published(second.number) == {0: Step(10, 10, 9)}
        removed = {"experiments": 1, "counts": 2, "steps": 1} | dict.fromkeys(self.tables_by_arm, 2)
        assert {name: before[name] - rows for name, rows in store.sizes().items()} == {
            name: removed.get(name, 0) for name in before
        }

    # Experiments and keys

    def test_an_idempotency_key_creates_one_experiment(self, store: Store, opened: Opener) -> None:
        first = store.save("a", "1", "hash")
        assert first == StoredExperiment(1, "a", "1", "hash")
        assert opened().save("b", "2", "hash") is None
        assert store.save("b", "2") == StoredExperiment(store.experiments()[1].number, "b", "2")
        assert store.save("c", "3") is not None  # without a key there may be many
        changed = store.change(first, "4")
        assert changed == first._replace(definition="4")
        assert opened().experiments()[0] == changed
        store.delete(first.number)
        assert store.save("d", "5", "hash") is not None

    def test_a_slug_names_one_experiment(self, store: Store, opened: Opener) -> None:
        first, second = store.save("a", "{}"), opened().save("b", '{"ü": "\\u0000"}\0\n')
        assert first is not None
        assert second is not None
        assert store.save("a", "other") is None
        assert list(store.experiments()) == [first, second]
        assert [(one.slug, one.definition) for one in (first, second)] == [
            ("a", "{}"),
            ("b", '{"ü": "\\u0000"}\0\n'),
        ]
        store.close()
        assert list(opened().experiments()) == [first, second]

    def test_a_number_is_never_reused(self, store: Store, opened: Opener) -> None:
        first = saved(store, "a")
        store.delete(first.number)
        second = saved(store, "a")
        store.delete(second.number)
        store.close()
        third = saved(opened(), "a")
        assert len({first.number, second.number, third.number}) == 3

    def test_a_change_does_not_overwrite_anothers(self, store: Store, opened: Opener) -> None:
        first = saved(store, "a")
        mine = store.change(first, "mine")
        assert mine == first._replace(definition="mine")
        assert mine is not None
        assert opened().change(first, "theirs") is None
        assert list(store.experiments()) == [mine]
        assert store.change(mine, "mine again") is not None

    def test_a_deleted_experiment_is_not_changed(self, store: Store) -> None:
        first = saved(store, "a")
        store.delete(first.number)
        assert store.change(first, "more") is None
        assert list(store.experiments()) == []

    def test_deleting_removes_the_counts_of_that_experiment(self, store: Store) -> None:
        first, second = saved(store, "a"), saved(store, "b")
        store.commit(Batch({Cell(first.number, 0, 5): 1, Cell(second.number, 0, 5): 2}))
        store.delete(first.number)
        assert list(store.experiments()) == [second]
        assert store.totals(first.number) == {}
        assert store.totals(second.number) == {0: Counts(2, 0, 0)}

    def test_keys_are_stored_completely_and_in_order(self, store: Store, opened: Opener) -> None:
        keys = [
            Key("a", "decide", b"\0\xff", ("https://a.example", "https://ü.example"), 600, 12345),
            Key("b", "admin", b"\1"),
            Key("a", "read", b"\2", expiry=0),
        ]
        for key in keys:
            store.save_key(key)
        keys[0] = keys[0]._replace(role="read", origins=(), decisions_per_minute=0, expiry=None)
        opened().save_key(keys[0])
        assert list(store.keys()) == keys
        store.delete_key(b"\1")
        store.delete_key(b"unknown")
        store.close()
        assert list(opened().keys()) == [keys[0], keys[2]]

    def test_every_change_gives_another_generation(self, store: Store, opened: Opener) -> None:
        other = opened()
        key = Key("a", "admin", b"\1")
        changes: list[Callable[[], object]] = [
            lambda: store.save("a", "1"),
            lambda: other.save("b", "1"),
            lambda: store.change(other.experiments()[0], "2"),
            lambda: other.delete(store.experiments()[1].number),
            lambda: store.save_key(key),
            lambda: other.save_key(key._replace(role="read")),
            lambda: store.delete_key(key.hash),
        ]
        seen = [(store.generation(), other.generation())]
        for change in changes:
            change()
            seen.append((store.generation(), other.generation()))
        assert all(one == another for one, another in seen)
        assert len(set(seen)) == len(changes) + 1

    # All of it

    def test_sizes_are_the_rows(self, store: Store) -> None:
        store.new_epoch()
        saved(store, "a")
        store.save_key(Key("a", "admin", b"\1"))
        decisions = [decision(0), decision(1, arm=1), decision(2, arm=1)]
        store.commit(Batch(issued(*decisions), [ReportedBit(one, 1) for one in decisions]))
        store.probe()
        sizes = {"epochs": 1, "experiments": 1, "keys": 1, "counts": 2, "steps": 0, "spent": 1}
        assert store.sizes() == sizes | dict.fromkeys(self.tables_by_arm, 2)

    def test_readers_beside_a_writer_see_whole_commits(self, store: Store) -> None:
        rounds, done = 60, threading.Event()
        errors: list[BaseException] = []

        def read() -> None:
            try:
                last = 0
                while not done.is_set():
                    store.generation(), store.sizes(), store.keys(), store.experiments()
                    now = store.totals(1).get(0, Counts())
                    assert now == Counts(now.issued, now.issued, now.issued)
                    assert now.issued >= last
                    assert store.history(1, 0, 200).get((100, 0), Counts()) >= now
                    last = now.issued
            except BaseException as error:
                errors.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for sequence in range(0, 2 * rounds, 2):
            pair = decision(sequence), decision(sequence + 1)
            store.commit(Batch(issued(*pair), [ReportedBit(one, 1) for one in pair]))
        done.set()
        for reader in readers:
            reader.join()
        assert errors == []
        assert store.totals(1) == {0: Counts(2 * rounds, 2 * rounds, 2 * rounds)}

    @pytest.mark.promise("The store's contract")
    def test_random_games_agree_with_the_model(self, fresh: Callable[[], Opener]) -> None:
        play(fresh, settings(max_examples=50, stateful_step_count=25, deadline=None))
