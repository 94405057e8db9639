"""The vectors are what the reference computes, and the Python client passes them."""

import json
import math
import random
from typing import Any

import pytest

from helpers import conformance_vectors
from helpers.in_process_service import Clock
from helpers.simulated_devices import Stub, client_of
from whitelie import RandomizedResponse
from whitelie.client import Memory
from whitelie.client.decision import Mechanism, ReceivedDecision
from whitelie.client.ledger import CHARGE, Cap, Ledger
from whitelie.client.pending_report import REPORT

STORED: dict[str, list[Any]] = json.loads(conformance_vectors.FILE.read_text(encoding="utf-8"))


def test_the_file_is_what_the_reference_computes() -> None:
    """`make conformance-vectors` writes it anew."""
    assert conformance_vectors.FILE.read_text(encoding="utf-8") == conformance_vectors.text()
    assert list(STORED) == ["channels", "bits", "times", "ledgers", "sendings", "answers"]
    assert all(20 <= len(vectors) <= 70 for vectors in STORED.values())


def test_the_reference_is_the_channel_of_the_learner() -> None:
    for vector in STORED["channels"]:
        p00, p11 = vector["p00"], vector["p11"]
        if p00 + p11 == 1:
            continue  # nothing can be learned: the learner refuses it
        channel = RandomizedResponse(p00=p00, p11=p11)
        assert [str(each) for each in channel.thresholds] == [vector["zero"], vector["one"]]
        assert channel.epsilon == (math.inf if vector["epsilon"] is None else vector["epsilon"])


@pytest.mark.parametrize("vector", STORED["channels"], ids=str)
def test_channels(vector: dict[str, Any]) -> None:
    mechanism = Mechanism.of(vector["p00"], vector["p11"])
    assert (str(mechanism.zero), str(mechanism.one)) == (vector["zero"], vector["one"])
    assert mechanism.epsilon == (math.inf if vector["epsilon"] is None else vector["epsilon"])


@pytest.mark.parametrize("vector", STORED["bits"], ids=str)
def test_bits(vector: dict[str, Any]) -> None:
    mechanism = Mechanism.of(vector["p00"], vector["p11"])
    assert list(mechanism.bits(*map(int, vector["words"]))) == vector["bits"]


@pytest.mark.parametrize("vector", STORED["times"], ids=str)
def test_times(vector: dict[str, Any]) -> None:
    mechanism = Mechanism.of(0.75, 0.75, vector["window"], vector["spread"])
    assert mechanism.delay(vector["word"]) == vector["delay"]


@pytest.mark.parametrize("vector", STORED["ledgers"], ids=str)
def test_ledgers(vector: dict[str, Any]) -> None:
    items = vector["stored"]
    reports = {key: text for key, text in items.items() if key.startswith(REPORT)}
    waiting = {CHARGE + key.removeprefix(REPORT) for key in reports}
    for charge in vector["charges"]:
        cap = Cap(**charge["cap"])
        ledger = Ledger.pruned(items, cap, charge["now"], waiting)
        charged = ledger.charged(CHARGE + charge["id"], charge["epsilon"], cap, charge["now"])
        assert (charged is not None) == charge["kept"]
        items = reports | (charged or ledger).to_items()
    assert {key: json.loads(text) for key, text in items.items()} == vector["after"]


@pytest.mark.parametrize("vector", STORED["sendings"], ids=str)
def test_sendings(vector: dict[str, Any]) -> None:
    """By a whole client: what waits is of another service, and nothing is sent."""
    storage, stored = Memory(), vector["stored"]
    for key, text in stored.items():
        storage.set(key, text)
    client = client_of(Stub(Clock()), storage=storage, clock=lambda: vector["now"] / 1000)
    assert client.flush() == 0
    erased = {prefix + name for prefix in (REPORT, CHARGE) for name in vector["erased"]}
    left = {key: text for key, text in stored.items() if key not in erased}
    assert {key: storage.get(key) for key in storage.keys()} == left


@pytest.mark.parametrize("vector", STORED["answers"], ids=range(len(STORED["answers"])))
def test_answers(vector: dict[str, Any]) -> None:
    decision = ReceivedDecision.from_answer(vector["body"].encode())
    assert (decision is not None) == vector["understood"]


def test_the_vectors_tell_neighbours_apart() -> None:
    """Negative control: thresholds that are off by one, and words compared with ≤, are caught."""
    wrong = 0
    for vector in STORED["bits"]:
        mechanism = Mechanism.of(vector["p00"], vector["p11"])
        words = [int(word) for word in vector["words"]]
        at_most = [int(words[0] <= mechanism.zero), int(words[1] <= mechanism.one)]
        wrong += at_most != vector["bits"]
    assert wrong >= 6
    off = [v for v in STORED["channels"] if float(v["p00"]) * 2**64 % 1]
    assert off, "some probability must be rounded"


def test_no_span_ever_costs_more_than_a_cap() -> None:
    """Random charges under two caps at random times, the clock set back at times.

    Times are those that the ledger says: on a clock that was set back there are no others.
    """
    draw = random.Random(3)
    refused = 0
    for _ in range(100):
        caps = [Cap(draw.uniform(0.5, 5), days) for days in draw.sample([0.5, 1, 7], 2)]
        ledger, now = Ledger({}), 10**12
        for number in range(60):
            now += round(draw.expovariate(1 / 20_000_000))
            if draw.random() < 0.1:
                now -= round(draw.uniform(0, 3e8))
            cap = draw.choice(caps)
            before = Ledger.pruned(ledger.to_items(), cap, now)
            charged = before.charged(f"{CHARGE}{number}", draw.uniform(0, 1), cap, now)
            ledger = charged or before
            refused += charged is None
            assert all(charge.at <= now for charge in ledger.charges.values())
            if charged is not None:
                start = now - cap.days * 86_400_000
                young = [each.epsilon for each in ledger.charges.values() if each.at > start]
                assert sum(young) <= cap.epsilon * (1 + 1e-9)
    assert 500 < refused < 5_500, "else nothing is shown"


def test_charges_that_nobody_saw_do_not_exceed_the_cap_together() -> None:
    """Tabs charge each without seeing the others; of what they send all is within the cap."""
    draw = random.Random(4)
    for _ in range(50):
        caps = [Cap(draw.uniform(1, 4), draw.choice([1, 30])) for _ in range(12)]
        items: dict[str, str] = {}
        for number, cap in enumerate(caps):
            at = 10**12 + draw.choice([0, 0, 1])
            charged = Ledger({}).charged(f"{CHARGE}{number:02}", draw.uniform(0.1, 1), cap, at)
            items |= charged.to_items() if charged is not None else {}
        ledger = Ledger.read(items, Cap(), 10**12 + 5)
        sent = [charge for key, charge in ledger.charges.items() if ledger.allows(key)]
        assert 0 < len(sent) < len(items)
        assert sum(charge.epsilon for charge in sent) <= max(cap.epsilon for cap in caps) + 1e-6
