"""An audit of what leaves the device: the client passes, and sabotaged clients do not."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.client_audit import Interval, Record, audit, complaints
from helpers.simulated_devices import (
    KEY,
    ONE,
    SPREAD,
    WINDOW,
    Make,
    OnlyClicks,
    People,
    Recorder,
    Stub,
    operating,
    visits,
)
from whitelie.client import Client, Storage

pytestmark = pytest.mark.filterwarnings("ignore:whitelie. (reports leave at once|the bits are not)")

VISITS = 20_000


def next_visit(stub: Stub, storage: Storage) -> Client:
    return Client(stub, KEY, clock=stub.clock, storage=storage)


def when_due(stub: Stub, storage: Storage) -> Client:
    return Client(stub, KEY, clock=stub.clock, storage=storage, sending="when-due")


def only_clicks(stub: Stub, storage: Storage) -> Client:
    """Reports only what was clicked."""
    return OnlyClicks(stub, KEY, clock=stub.clock, storage=storage)


def at_the_click(stub: Stub, storage: Storage) -> Client:
    """Reports when the outcome is known."""
    return Client(stub, KEY, clock=stub.clock, storage=storage, immediate=True)


def unflipped(stub: Stub, storage: Storage) -> Client:
    """Sends the truth: RR(0) = 0 and RR(1) = 1."""
    words = iter([2**64 - 1, 0])

    def draw(size: int) -> int:
        return next(words) if size == 64 else secrets.randbits(size)

    return Client(stub, KEY, clock=stub.clock, storage=storage, random_bits_for_tests_only=draw)


@pytest.mark.parametrize(
    ("number", "power"), [(5_000, 0.6), pytest.param(VISITS, 0.8, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("rule", [next_visit, when_due])
def test_the_client_keeps_its_promise(rule: Make, number: int, power: float) -> None:
    audited = audit(visits(rule, number))
    print(audited)
    assert complaints(audited, ONE, WINDOW) == []
    assert audited.shares == (1.0, 1.0)
    assert audited.earliest >= WINDOW
    assert audited.epsilon > power, "the audit has no power"


@pytest.mark.parametrize(
    ("sabotage", "complaint"),
    [
        (only_clicks, "whether a report comes depends on the reward"),
        (at_the_click, "when a report comes depends on the reward"),
        (at_the_click, "within the window"),
        (unflipped, "a visit reveals"),
        (unflipped, "reward 1 becomes 1 with probability"),
    ],
)
def test_the_audit_catches_sabotage(sabotage: Make, complaint: str) -> None:
    """Negative controls."""
    said = complaints(audit(visits(sabotage, 2_000)), ONE, WINDOW)
    print(said)
    assert any(complaint in each for each in said), said


LEAVING = People(leaves=(0.6, 0.9))


def test_next_visit_hides_who_has_left_the_page() -> None:
    """Nine in ten who click leave the page, and six in ten of the others."""
    audited = audit(visits(next_visit, 2_000, people=LEAVING))
    assert complaints(audited, ONE, WINDOW) == []
    assert audited.shares == (1.0, 1.0)


@pytest.mark.parametrize(
    ("rule", "people"),
    [
        (when_due, LEAVING),
        # What no client can hide: who has clicked comes back sooner.
        (next_visit, People(leaves=(0.6, 0.9), returns=(1, 0.5))),
    ],
)
def test_the_audit_finds_times_that_people_give_away(rule: Make, people: People) -> None:
    (said,) = complaints(audit(visits(rule, 2_000, people=people)), ONE, WINDOW)
    assert "when a report comes depends on the reward" in said


def test_when_due_hides_the_outcome_from_time_if_leaving_does_not_depend_on_it() -> None:
    people = People(leaves=(0.75, 0.75))
    assert complaints(audit(visits(when_due, 2_000, people=people)), ONE, WINDOW) == []


def test_the_audit_reads_records() -> None:
    """Of a coin of epsilon 1 that a tenth skip, and of times that one bit in ten gives away."""
    draw = secrets.SystemRandom()

    def record(reward: int, *, skips: float = 0.0, hurries: float = 0.0) -> Record:
        bit = reward if draw.random() < skips else ONE.flip(reward)
        late = draw.uniform(0, SPREAD) * (0.5 if reward and draw.random() < hurries else 1)
        return Record(5.0, 5.0 + WINDOW + late, reward, bit)

    def said(**sabotage: float) -> list[str]:
        audited = audit(record(number % 2, **sabotage) for number in range(VISITS))
        return complaints(audited, ONE, WINDOW)

    assert said() == []
    assert len(said(skips=0.1)) >= 1
    assert len(said(hurries=0.3)) == 1


def test_intervals() -> None:
    assert Interval.of(0, 10).lower == 0
    assert Interval.of(10, 10).upper == 1
    assert 0.5 in Interval.of(50, 100)
    assert 0.9 not in Interval.of(50, 100)


@pytest.mark.parametrize("number", [1_000, pytest.param(VISITS, marks=pytest.mark.long)])
def test_the_promise_is_kept_to_the_real_service(tmp_path: Path, number: int) -> None:
    """Visitors in threads, in process; what the service counts is what left the devices."""
    with operating(tmp_path) as operator:
        experiment = operator.create(arms=[{"key": "green"}])
        recorder = Recorder(operator.server, operator.clock)

        def ready(_: int) -> Client:
            return Client(recorder, KEY, clock=operator.clock, timeout=60, sending="when-due")

        def decide(reward: int, client: Client) -> None:
            client.decide(experiment).reward(reward)

        with ThreadPoolExecutor(32) as pool:
            clients = list(map(ready, range(number)))
            rewards = [place % 2 for place in range(number)]
            list(pool.map(decide, rewards, clients))
            assert not any(request.is_report for request in recorder.requests)
            assert sum(pool.map(Client.flush, clients)) == 0
            operator.clock.forward(WINDOW + SPREAD)
            assert sum(pool.map(Client.flush, clients)) == number
        issued, answered, rate = operator.counts(experiment)
        sent = [request.body["bit"] for request in recorder.requests if request.is_report]
    assert issued == answered == number == len(sent)
    assert rate == pytest.approx(sum(sent) / number)
    assert rate in Interval.of(sum(sent), number)
    assert ONE.mean_feedback(0.5) in Interval.of(sum(sent), number)
