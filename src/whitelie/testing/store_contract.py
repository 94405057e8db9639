"""The laws that every store obeys, and a plain model to compare it with.

A file of tests subclasses `StoreContract` and gives it the fixture `fresh`. `Machine` plays random
batches, folds, deletions and reopenings on a store and on the model; the classes `Careless…` are
stores with one mistake each, which it must find.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from whitelie.service.store import (
    BLOCK,
    Batch,
    Counts,
    Key,
    Place,
    Report,
    Restated,
    Saved,
    Stale,
    Step,
    Store,
)
from whitelie.service.token import Decision

Opener = Callable[[], Store]
"""Opens one and the same store, each time anew."""


def decision(sequence: int, arm: int = 0, **changes: int) -> Decision:
    return Decision(1, arm, 1, sequence, 100, 160)._replace(**changes)


def issued(*decisions: Decision) -> dict[Place, int]:
    places = [Place(one.experiment, one.arm, one.minute) for one in decisions]
    return {place: places.count(place) for place in places}


def answers(first: int, bits: Sequence[int], minute: int = 200, step: int = 10) -> Batch:
    """Decisions of arm 0, numbered from `first`, issued and answered by these bits in one batch."""
    made = [decision(first + n) for n in range(len(bits))]
    reports = [Report(one, bit) for one, bit in zip(made, bits, strict=True)]
    return Batch(issued(*made), reports, minute=minute, steps={1: step})


class StoreContract:
    more: ClassVar[dict[str, int]] = {}
    """Rows of further tables that a store needs, where each of the others has what is expected."""

    @pytest.fixture
    def fresh(self) -> Callable[[], Opener]:
        """Return a function that makes a new empty store and returns what opens it."""
        raise NotImplementedError

    @pytest.fixture
    def opened(self, fresh: Callable[[], Opener]) -> Opener:
        return fresh()

    @pytest.fixture
    def store(self, opened: Opener) -> Store:
        return opened()

    # Epochs

    def test_an_epoch_is_never_given_twice(self, store: Store, opened: Opener) -> None:
        other = opened()
        epochs = [store.new_epoch(), other.new_epoch(), store.new_epoch()]
        store.close()
        other.close()
        epochs.append(opened().new_epoch())
        assert len(set(epochs)) == 4

    # Commits

    def test_a_commit_adds_to_the_places_of_its_decisions(self, store: Store) -> None:
        decisions = [decision(0), decision(1), decision(2, arm=1), decision(3, minute=101)]
        reports = [Report(one, bit) for one, bit in zip(decisions, (1, 0, 1, 1), strict=True)]
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
        reports = [Report(one, 1), Report(other, 0), Report(one, 0), Report(one, 1)]
        assert list(store.commit(Batch(issued(one, other), reports))) == [True, True, False, False]
        assert store.totals(1) == {0: Counts(2, 2, 1)}

    def test_of_two_reports_in_two_commits_the_first_counts(self, store: Store) -> None:
        one = decision(BLOCK)
        store.commit(Batch(issued(one)))
        answers = [list(store.commit(Batch({}, [Report(one, bit)]))) for bit in (0, 1)]
        assert answers == [[True], [False]]
        assert store.totals(1) == {0: Counts(1, 1, 0)}

    def test_a_commit_outlives_the_process(self, store: Store, opened: Opener) -> None:
        one, other = decision(7), decision(8)
        store.commit(Batch(issued(one, other), [Report(one, 1)]))
        store.close()
        store = opened()
        assert store.totals(1) == {0: Counts(2, 1, 1)}
        assert list(store.commit(Batch({}, [Report(one, 1), Report(other, 1)]))) == [False, True]

    def test_a_report_to_two_processes_counts_once(self, store: Store, opened: Opener) -> None:
        other = opened()
        decisions = [decision(sequence) for sequence in range(6)]
        store.commit(Batch(issued(*decisions)))
        for place, one in enumerate(decisions):
            stores = [store, other] if place % 2 else [other, store]
            answers = [list(each.commit(Batch({}, [Report(one, 1)]))) for each in stores]
            assert answers == [[True], [False]]
        assert other.totals(1) == store.totals(1) == {0: Counts(6, 6, 6)}
        assert store.spent_bits() == 6

    def test_a_report_to_two_at_the_same_time_counts_once(
        self, store: Store, opened: Opener
    ) -> None:
        decisions = [decision(sequence) for sequence in range(40)]
        store.commit(Batch(issued(*decisions)))
        answers: list[list[bool]] = []

        def work(one: Store) -> None:
            mine: list[bool] = []
            for each in decisions:
                mine += one.commit(Batch({}, [Report(each, 1)]))
            answers.append(mine)

        threads = [threading.Thread(target=work, args=(one,)) for one in (store, opened())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [sum(pair) for pair in zip(*answers, strict=True)] == [1] * 40
        assert store.totals(1) == {0: Counts(40, 40, 40)}

    def test_a_batch_of_an_old_generation_is_refused_whole(
        self, store: Store, opened: Opener
    ) -> None:
        other, one, known = opened(), decision(0), store.generation()
        first = Batch(issued(one), [Report(one, 1)], known)
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
                store.commit(Batch(issued(late), [Report(late, 1), Report(one, 1)], known))
            assert (store.totals(1), store.spent_bits(), store.sizes()) == before
            again = Batch(issued(late), [Report(late, 1), Report(one, 1)], store.generation())
            assert list(store.commit(again)) == [True, False]

    def test_commits_leave_the_generation_alone(self, store: Store, opened: Opener) -> None:
        before = store.generation()
        for number in range(5):
            batch = Batch(issued(decision(number)), [Report(decision(number), 1)], before)
            (store if number % 2 else opened()).commit(batch)
        store.fold(1, 1000, 10)
        store.forget_spent(1000)
        store.probe()
        assert store.generation() == before

    @pytest.mark.parametrize("sequence", [0, 7, 8, BLOCK - 1, BLOCK, 2**40 + 3, 2**63])
    def test_a_bit_is_its_own(self, store: Store, sequence: int) -> None:
        one = decision(sequence)
        near = [decision(sequence + 1), decision(sequence, epoch=2), decision(sequence + BLOCK)]
        store.commit(Batch(issued(one), [Report(one, 1)]))
        answers = store.commit(Batch(issued(*near), [Report(each, 1) for each in [*near, one]]))
        assert list(answers) == [True, True, True, False]
        assert store.spent_bits() == 4

    # Reading and rewriting counts

    def test_history_is_the_counts_of_the_minutes(self, store: Store) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(10)]
        store.commit(Batch(issued(*decisions), [Report(decisions[3], 1)]))
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

    def test_what_is_rolled_back_is_returned_and_gone(self, store: Store) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(6)]
        reports = [Report(one, 1) for one in decisions]
        store.commit(Batch(issued(*decisions), reports))
        store.commit(Batch({Place(2, 0, 102): 1}))
        assert store.roll_back(1, 102, 105) == {0: Counts(2, 2, 2), 1: Counts(1, 1, 1)}
        assert store.totals(1) == {0: Counts(1, 1, 1), 1: Counts(2, 2, 2)}
        assert store.totals(2) == {0: Counts(1, 0, 0)}
        assert store.roll_back(1, 102, 105) == {}
        assert not any(store.commit(Batch({}, reports)))

    def test_folding_keeps_all_sums(self, store: Store, opened: Opener) -> None:
        decisions = [decision(n, n % 2, minute=100 + n) for n in range(30)]
        store.commit(Batch(issued(*decisions), [Report(one, one.arm) for one in decisions]))
        before, coarse = store.totals(1), store.history(1, 0, 200, 10)
        store.fold(1, 125, 10)
        assert store.totals(1) == before
        assert store.history(1, 0, 200, 10) == coarse
        fine = store.history(1, 0, 200)
        assert {minute for minute, _ in fine} == {100, 110, *range(120, 130)}
        store.fold(1, 125, 10)
        store.close()
        assert opened().history(1, 0, 200) == fine

    def test_a_late_report_is_folded_too(self, store: Store) -> None:
        late = decision(0, minute=104)
        store.commit(Batch(issued(late)))
        store.fold(1, 110, 10)
        store.commit(Batch({}, [Report(late, 1)]))
        store.fold(1, 110, 10)
        assert store.history(1, 0, 200) == {(100, 0): Counts(1, 1, 1)}

    def test_bits_are_forgotten_when_all_their_tokens_have_expired(self, store: Store) -> None:
        short, long, apart = decision(0), decision(1, expiry=170), decision(BLOCK, expiry=150)
        for one in (long, short, apart):
            store.commit(Batch(issued(one), [Report(one, 1)]))
        assert store.forget_spent(150) == 0
        assert store.forget_spent(151) == 1
        assert store.forget_spent(170) == 0
        assert list(store.commit(Batch({}, [Report(long, 1)]))) == [False]
        assert store.spent_bits() == 2
        assert store.forget_spent(171) == 1
        assert store.spent_bits() == 0
        assert store.totals(1) == {0: Counts(3, 3, 3)}

    def test_what_one_has_forgotten_no_other_brings_back(
        self, store: Store, opened: Opener
    ) -> None:
        one, other = decision(0, expiry=100), decision(1)
        store.commit(Batch(issued(one, other), [Report(one, 1)]))
        assert opened().forget_spent(101) == 1
        store.commit(Batch({}, [Report(other, 1)]))
        assert store.spent_bits() == 1

    # Steps

    def test_reports_are_shown_when_they_fill_a_step(self, store: Store, opened: Opener) -> None:
        for number in range(9):
            store.commit(answers(number, [1]))
            assert not store.shown(1)
            assert not store.steps(1, 0, 1000)
        other = opened()
        other.commit(answers(9, [0], minute=205))
        for each in (store, other):
            assert each.shown(1) == {0: Step(10, 9, 205)}
            assert each.steps(1, 0, 1000) == {(205, 0): Step(10, 9, 205)}
        store.commit(answers(10, [1] * 12, minute=205))  # as many as are held, not a multiple
        store.commit(answers(22, [0] * 9, minute=206))
        assert store.steps(1, 0, 1000) == {(205, 0): Step(22, 21, 205)}
        assert store.totals(1) == {0: Counts(31, 31, 21)}
        store.close()
        other.commit(answers(31, [1], minute=207))
        assert other.steps(1, 205, 208) == {(205, 0): Step(22, 21, 205), (207, 0): Step(10, 1, 207)}
        assert other.steps(1, 206, 208, 100) == {(200, 0): Step(10, 1, 207)}
        assert other.shown(1) == {0: Step(32, 22, 207)}

    def test_every_arm_and_experiment_has_a_step_of_its_own(self, store: Store) -> None:
        many = [decision(n, n % 2, experiment=1 + n // 10) for n in range(30)]
        batch = Batch(issued(*many), [Report(one, one.arm) for one in many], minute=7)
        store.commit(replace(batch, steps={1: 5, 2: 6}))
        assert store.shown(1) == {0: Step(5, 0, 7), 1: Step(5, 5, 7)}
        assert store.shown(2) == store.shown(3) == {}  # five of six; and no step is known
        late = [decision(100, experiment=2), decision(101, experiment=3)]
        store.commit(Batch({}, [Report(one, 1) for one in late], minute=8, steps={2: 6, 3: 6}))
        assert store.shown(2) == {0: Step(6, 1, 8)}
        assert store.shown(3) == {0: Step(6, 1, 8)}

    def test_a_report_that_does_not_count_fills_no_step(self, store: Store) -> None:
        nine = answers(0, [1] * 9)
        store.commit(nine)
        assert not any(store.commit(replace(nine, issued={})))
        with pytest.raises(Stale):
            store.commit(replace(answers(9, [1]), generation=store.generation() + 1))
        assert store.shown(1) == {}
        store.commit(answers(9, [0]))
        assert store.shown(1) == {0: Step(10, 9, 200)}

    def test_steps_taken_by_two_at_once_lose_nothing(self, store: Store, opened: Opener) -> None:
        def work(one: Store, first: int) -> None:
            for number in range(first, first + 150, 3):
                one.commit(answers(number, [1, 0, 1], minute=number))

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
        (shown,) = store.shown(1).values()
        assert shown[:2] == tuple(sum(step[place] for step in steps.values()) for place in (0, 1))
        assert 290 < shown.answered <= 300  # what is left fills no step

    def test_a_rollback_restates_what_is_shown_if_that_is_a_step(self, store: Store) -> None:
        for minute, bits in ((100, [1] * 10), (101, [0] * 14), (102, [1] * 5)):
            made = [decision(100 * minute + n, minute=minute) for n in range(len(bits))]
            reports = [Report(one, bit) for one, bit in zip(made, bits, strict=True)]
            store.commit(Batch(issued(*made), reports, minute=minute, steps={1: 10}))
        before = store.steps(1, 0, 1000)
        assert before == {(100, 0): Step(10, 10, 100), (101, 0): Step(14, 0, 101)}
        store.roll_back(1, 102, 103, None, Restated(300, 10))  # which was held
        assert store.steps(1, 0, 1000) == before
        store.roll_back(1, 100, 101, None, Restated(301, 10))
        assert store.steps(1, 0, 1000) == {(301, 0): Step(14, 0, 301)}
        assert store.shown(1) == {0: Step(14, 0, 301)}
        store.commit(answers(0, [1] * 9, minute=302))
        store.roll_back(1, 101, 102, None, Restated(303, 10))  # 9 are left instead of 14
        assert store.shown(1) == {0: Step(14, 0, 301)}
        store.commit(answers(9, [1] * 15, minute=304))  # 24 ones are no step beside 14 zeros
        assert store.steps(1, 0, 1000) == {(304, 0): Step(24, 24, 304)}
        assert store.shown(1) == {0: Step(24, 24, 304)}
        store.commit(answers(24, [0] * 20, minute=305))
        assert store.steps(1, 0, 1000) == {(304, 0): Step(24, 24, 304), (305, 0): Step(20, 0, 305)}
        assert store.shown(1) == {0: Step(44, 24, 305)}
        store.roll_back(1, 0, 1000, None, Restated(400, 10))
        assert not store.shown(1)
        assert not store.steps(1, 0, 1000)
        assert not store.totals(1)

    @pytest.mark.parametrize("bit", [0, 1])
    def test_steps_go_on_after_a_small_rollback_whatever_bits_come(
        self, store: Store, bit: int
    ) -> None:
        """The bits that were removed are shown still, and may be others than all that come."""
        made = [decision(n, minute=150 if n < 3 else 100) for n in range(10)]
        others = [decision(n, arm=1) for n in range(10, 20)]
        reports = [Report(one, 1 - bit) for one in made + others]
        store.commit(Batch(issued(*made, *others), reports, minute=190, steps={1: 10}))
        before, other = store.shown(1).values()
        store.roll_back(1, 150, 151, None, Restated(191, 10))
        for number in range(13):
            assert store.shown(1)[0] == before == Step(10, 10 * (1 - bit), 190)
            store.commit(answers(20 + number, [bit], minute=200 + number))
        after = Step(20, 7 * (1 - bit) + 13 * bit, 212)
        assert store.shown(1) == {0: after, 1: other}
        assert store.steps(1, 0, 1000) == {(212, 0): after, (190, 1): other}

    def test_fewer_than_a_step_that_a_rollback_leaves_are_held(self, store: Store) -> None:
        store.commit(answers(0, [1] * 4))
        late = [decision(n, minute=150) for n in range(10, 30)]
        store.commit(replace(answers(0, []), reports=[Report(one, 0) for one in late]))
        assert store.shown(1) == {0: Step(24, 4, 200)}
        store.roll_back(1, 150, 151, None, Restated(210, 10))
        assert not store.shown(1)
        assert not store.steps(1, 0, 1000)
        store.commit(answers(40, [0] * 6, minute=211))
        assert store.steps(1, 0, 1000) == {(211, 0): Step(10, 4, 211)}

    def test_folding_joins_steps_too(self, store: Store) -> None:
        for number, minute in enumerate((103, 108, 109, 110, 125)):
            store.commit(answers(10 * number, [1] * 10, minute=minute))
        store.fold(1, 119, 10)
        assert store.steps(1, 0, 1000) == {
            (100, 0): Step(30, 30, 100),
            (110, 0): Step(10, 10, 110),
            (125, 0): Step(10, 10, 125),
        }
        assert store.shown(1) == {0: Step(50, 50, 125)}
        store.fold(1, 200, 100)
        assert store.steps(1, 0, 1000) == {(100, 0): Step(50, 50, 100)}
        assert store.shown(1) == {0: Step(50, 50, 100)}

    def test_deleting_removes_steps_and_what_is_held(self, store: Store) -> None:
        first, second = saved(store, "a"), saved(store, "b")
        assert first.number == 1
        for number in (first.number, second.number):
            made = [decision(n, arm=n // 10, experiment=number, epoch=number) for n in range(15)]
            reports = [Report(one, 1) for one in made]
            store.commit(Batch({}, reports, minute=9, steps={number: 10}))
        before = store.sizes()
        store.delete(first.number)
        assert not store.shown(first.number)
        assert not store.steps(first.number, 0, 1000)
        assert store.shown(second.number) == {0: Step(10, 10, 9)}
        assert {name: before[name] - rows for name, rows in store.sizes().items()} == {
            name: {"experiments": 1, "counts": 2, "steps": 1, "totals": 2, "shown": 2}.get(name, 0)
            for name in before
        }

    # Experiments and keys

    def test_a_key_creates_one_experiment(self, store: Store, opened: Opener) -> None:
        first = store.save("a", "1", "hash")
        assert first == Saved(1, "a", "1", "hash")
        assert opened().save("b", "2", "hash") is None
        assert store.save("b", "2") == Saved(store.experiments()[1].number, "b", "2")
        assert store.save("c", "3") is not None  # without a key there may be many
        changed = store.change(first, "4")
        assert changed == first._replace(definition="4")
        assert opened().experiments()[0] == changed
        store.delete(first.number)
        assert store.save("d", "5", "hash") is not None

    def test_a_slug_is_taken_once(self, store: Store, opened: Opener) -> None:
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
        store.commit(Batch({Place(first.number, 0, 5): 1, Place(second.number, 0, 5): 2}))
        store.delete(first.number)
        assert list(store.experiments()) == [second]
        assert store.totals(first.number) == {}
        assert store.totals(second.number) == {0: Counts(2, 0, 0)}

    def test_keys_are_kept_whole_and_in_order(self, store: Store, opened: Opener) -> None:
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

    def test_the_generation_tells_of_every_change(self, store: Store, opened: Opener) -> None:
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
        store.commit(Batch(issued(*decisions), [Report(one, 1) for one in decisions]))
        store.probe()
        sizes = {"epochs": 1, "experiments": 1, "keys": 1, "counts": 2, "steps": 0, "spent": 1}
        assert store.sizes() == sizes | self.more

    def test_reading_beside_a_writer_sees_whole_commits(self, store: Store) -> None:
        rounds, done = 60, threading.Event()
        troubles: list[BaseException] = []

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
                troubles.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for sequence in range(0, 2 * rounds, 2):
            pair = decision(sequence), decision(sequence + 1)
            store.commit(Batch(issued(*pair), [Report(one, 1) for one in pair]))
        done.set()
        for reader in readers:
            reader.join()
        assert troubles == []
        assert store.totals(1) == {0: Counts(2 * rounds, 2 * rounds, 2 * rounds)}

    def test_it_does_what_the_model_does(self, fresh: Callable[[], Opener]) -> None:
        play(fresh, settings(max_examples=50, stateful_step_count=25, deadline=None))

    @pytest.mark.parametrize("mistake", range(9))
    def test_the_model_finds_a_mistake(self, fresh: Callable[[], Opener], mistake: int) -> None:
        found = settings(
            max_examples=1000,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
        )
        with pytest.raises(AssertionError, match=r"^(counts|bits|answers|return|steps)"):
            play(lambda: careless(fresh(), MISTAKES[mistake]), found)


def saved(store: Store, slug: str) -> Saved:
    found = store.save(slug, "{}")
    assert found is not None
    return found


class Model:
    """The contract in a few lines of Python, without files, transactions or blocks of bits."""

    def __init__(self) -> None:
        self.counts: dict[Place, Counts] = {}
        self.spent: dict[tuple[int, int], int] = {}
        self.taken: dict[Place, Step] = {}

    def add(self, place: Place, *more: int) -> None:
        old = self.counts.get(place, Counts())
        self.counts[place] = Counts(*(a + b for a, b in zip(old, more, strict=True)))

    def commit(self, batch: Batch) -> list[bool]:
        for place, number in batch.issued.items():
            self.add(place, number, 0, 0)
        answers = []
        touched = set[tuple[int, int]]()
        for one, bit in batch.reports:
            name = one.epoch, one.sequence
            answers.append(name not in self.spent)
            if answers[-1]:
                self.spent[name] = one.expiry
                self.add(Place(one.experiment, one.arm, one.minute), 0, 1, bit)
                touched.add((one.experiment, one.arm))
        for experiment, arm in touched:
            answered, ones = self.held(experiment, arm)
            step = batch.steps.get(experiment)
            if step is not None and answered >= step:
                if not 0 <= ones <= answered:
                    self.hide(experiment, arm)
                    answered, ones = self.held(experiment, arm)
                self.show(Place(experiment, arm, batch.minute), answered, ones)
        return answers

    def held(self, experiment: int, arm: int) -> tuple[int, int]:
        """What is counted and not shown."""
        _, answered, ones = self.totals(experiment).get(arm, Counts())
        shown = self.shown(experiment).get(arm, Step())
        return answered - shown.answered, ones - shown.ones

    def show(self, place: Place, answered: int, ones: int) -> None:
        old = self.taken.get(place, Step())
        self.taken[place] = Step(old.answered + answered, old.ones + ones, place.minute)

    def steps(
        self, experiment: int, start: int = 0, stop: int = 10**9, width: int = 1
    ) -> dict[tuple[int, int], Step]:
        joined: dict[tuple[int, int], Step] = {}
        for (number, arm, minute), step in self.taken.items():
            if number == experiment and start <= minute < stop:
                bucket = minute // width * width, arm
                old = joined.get(bucket, Step())
                sums = old.answered + step.answered, old.ones + step.ones
                joined[bucket] = Step(*sums, max(old.minute, minute))
        return joined

    def shown(self, experiment: int) -> dict[int, Step]:
        return {arm: step for (_, arm), step in self.steps(experiment, width=10**9).items()}

    def roll_back(
        self, experiment: int, start: int, stop: int, restated: Restated
    ) -> dict[int, Counts]:
        removed = self.remove(experiment, start, stop)
        for arm in (0, 1):
            if abs(self.held(experiment, arm)[0]) >= restated.step:
                _, answered, ones = self.totals(experiment).get(arm, Counts())
                self.hide(experiment, arm)
                if answered >= restated.step:
                    self.show(Place(experiment, arm, restated.minute), answered, ones)
        return removed

    def hide(self, experiment: int, *arms: int) -> None:
        self.taken = {
            place: step
            for place, step in self.taken.items()
            if place.experiment != experiment or place.arm not in arms
        }

    def history(
        self, experiment: int, start: int = 0, stop: int = 10**9, width: int = 1
    ) -> dict[tuple[int, int], Counts]:
        joined = Model()
        for place, counts in self.counts.items():
            if place.experiment == experiment and start <= place.minute < stop:
                joined.add(place._replace(minute=place.minute // width * width), *counts)
        return {(place.minute, place.arm): counts for place, counts in joined.counts.items()}

    def totals(self, experiment: int, start: int = 0, stop: int = 10**9) -> dict[int, Counts]:
        history = self.history(experiment, start, stop, 10**9)
        return {arm: counts for (_, arm), counts in history.items()}

    def remove(self, experiment: int, start: int = 0, stop: int = 10**9) -> dict[int, Counts]:
        removed = self.totals(experiment, start, stop)
        for place in list(self.counts):
            if place.experiment == experiment and start <= place.minute < stop:
                del self.counts[place]
        return removed

    def fold(self, experiment: int, before: int, width: int) -> None:
        joined = self.history(experiment, 0, before // width * width, width)
        self.remove(experiment, 0, before // width * width)
        for (minute, arm), counts in joined.items():
            self.add(Place(experiment, arm, minute), *counts)
        joint, last = self.steps(experiment, width=width), before // width * width
        kept = self.steps(experiment, last)
        self.hide(experiment, 0, 1)
        for (minute, arm), step in [*joint.items(), *kept.items()]:
            if minute < last or (minute, arm) in kept:
                self.taken[Place(experiment, arm, minute)] = step._replace(minute=minute)

    def forget_spent(self, before: int) -> int:
        last: dict[tuple[int, int], int] = {}
        for (epoch, sequence), expiry in self.spent.items():
            block = epoch, sequence // BLOCK
            last[block] = max(expiry, last.get(block, expiry))
        dropped = {block for block, expiry in last.items() if expiry < before}
        for epoch, sequence in list(self.spent):
            if (epoch, sequence // BLOCK) in dropped:
                del self.spent[epoch, sequence]
        return len(dropped)


STEP = 2


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
        self.whole = True

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
            sequence = next(self.numbers) * (BLOCK // 5)
            place = self.experiments[experiment], arm, self.epochs[who], sequence, self.now
            new.append(Decision(*place, self.now + lifetime))
        self.decisions += new
        live = self.live()
        reports = [Report(live[n % len(live)], bit) for n, bit in answered if live]
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
        restated = Restated(self.now, STEP)
        expected = self.model.roll_back(*window, restated)
        found = self.stores[who].roll_back(*window, None, restated)
        assert found == expected, "returned counts differ"
        self.whole = False

    @rule(who=st.integers(0, 1), experiment=st.integers(0, 1), width=st.integers(1, 4))
    def fold(self, who: int, experiment: int, width: int) -> None:
        self.model.fold(self.experiments[experiment], self.now, width)
        self.stores[who].fold(self.experiments[experiment], self.now, width)

    @rule(who=st.integers(0, 1))
    def forget_spent(self, who: int) -> None:
        expected = self.model.forget_spent(self.now)
        assert self.stores[who].forget_spent(self.now) == expected, "returned number differs"
        self.whole &= not expected

    @rule(who=st.integers(0, 1), experiment=st.integers(0, 1))
    def delete(self, who: int, experiment: int) -> None:
        number = self.experiments[experiment]
        self.model.remove(number)
        self.model.hide(number, 0, 1)
        self.stores[who].delete(number)
        self.gone.add(number)
        self.experiments[experiment] = saved(self.stores[who], "ab"[experiment]).number
        assert self.experiments[experiment] not in self.gone, "return of an old number"
        self.whole = False

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
                assert store.shown(number) == model.shown(number), "steps differ in sum"
                steps = store.steps(number, 0, 2000)
                assert steps == model.steps(number), "steps differ"
                assert all(step.answered >= STEP for step in steps.values()), "steps of too few"
                assert store.steps(*window) == model.steps(*window), "steps of 3 differ"

    @invariant()
    def answers_are_spent_bits(self) -> None:
        if self.whole and self.decisions:
            totals = [
                counts
                for number in self.experiments
                for counts in self.stores[0].totals(number).values()
            ]
            assert all(ones <= answered <= made for made, answered, ones in totals), "counts"
            assert sum(each.answered for each in totals) == self.stores[0].spent_bits(), "bits"


def play(fresh: Callable[[], Opener], how: settings) -> None:
    run_state_machine_as_test(lambda: Machine(fresh()), settings=how)  # type: ignore[arg-type]


class Careless:
    """A store that does all as it should; each of its children makes one mistake."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class CarelessInOneBatch(Careless):
    """Counts two reports on one decision twice if they come together."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        seen: set[Decision] = set()
        reports = []
        for one, bit in batch.reports:
            reports.append(Report(one._replace(epoch=99) if one in seen else one, bit))
            seen.add(one)
        return self.store.commit(replace(batch, reports=reports))


class CarelessAcrossProcesses(Careless):
    """Keeps spent bits of its own, which no other sees."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.own = 1000 * store.new_epoch()

    def commit(self, batch: Batch) -> Sequence[bool]:
        own = [Report(one._replace(epoch=one.epoch + self.own), bit) for one, bit in batch.reports]
        return self.store.commit(replace(batch, reports=own))


class CarelessReturn(Careless):
    """Tells everybody that the answer was new."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        self.store.commit(batch)
        return [True] * len(batch.reports)


class CarelessForgetting(Careless):
    """Forgets in the last minute in which an answer may come."""

    def forget_spent(self, before: int) -> int:
        return self.store.forget_spent(before + 1)


class CarelessRollBack(Careless):
    """Takes `stop` for the last minute."""

    def roll_back(self, *arguments: Any) -> object:
        experiment, start, stop, *rest = arguments
        return self.store.roll_back(experiment, start, stop + 1, *rest)


class CarelessFold(Careless):
    """Folds the bucket that is still growing."""

    def fold(self, experiment: int, before: int, width: int) -> None:
        self.store.fold(experiment, before + width - 1, width)


class CarelessSteps(Careless):
    """Shows every report at once."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        return self.store.commit(replace(batch, steps=dict.fromkeys(batch.steps, 1)))


class CarelessDating(Careless):
    """Dates a step by the minute before."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        return self.store.commit(replace(batch, minute=batch.minute - 1))


class CarelessRestating(Careless):
    """Shows what a rollback leaves, however few reports that tells apart."""

    def roll_back(self, *arguments: Any) -> object:
        changed = [*arguments[:-1], arguments[-1]._replace(step=1)]
        return self.store.roll_back(*changed)


MISTAKES: list[type[Careless]] = [
    CarelessInOneBatch,
    CarelessAcrossProcesses,
    CarelessReturn,
    CarelessForgetting,
    CarelessRollBack,
    CarelessFold,
    CarelessSteps,
    CarelessDating,
    CarelessRestating,
]


def careless(opened: Opener, mistake: type[Careless]) -> Opener:
    return lambda: mistake(opened())
