"""The vectors are what the reference computes, and the Python client passes them."""

import json
import math
import random
from typing import Any

import pytest

import vectors
from whitelie import RandomizedResponse
from whitelie.client.decision import Mechanism
from whitelie.client.ledger import Cap, Ledger

STORED: dict[str, list[Any]] = json.loads(vectors.FILE.read_text(encoding="utf-8"))


def test_the_file_is_what_the_reference_computes() -> None:
    """`python tests/vectors.py` writes it anew."""
    assert vectors.FILE.read_text(encoding="utf-8") == vectors.text()
    assert list(STORED) == ["channels", "bits", "times", "ledgers"]
    assert all(20 <= len(found) <= 40 for found in STORED.values())


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


@pytest.mark.parametrize("vector", STORED["ledgers"], ids=lambda one: str(one["cap"]))
def test_ledgers(vector: dict[str, Any]) -> None:
    cap = Cap(**vector["cap"])
    text = None
    for charge in vector["charges"]:
        ledger = Ledger.from_text(text, charge["at"], cap)
        kept, after = ledger.charged(charge["epsilon"], charge["at"], cap)
        assert (kept, after.spent) == (charge["kept"], charge["spent"])
        text = after.to_text()


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


def test_a_period_never_costs_more_than_its_cap() -> None:
    """Random charges at random times, the clock set back at times: no period exceeds the cap."""
    draw = random.Random(3)
    for _ in range(200):
        cap = Cap(draw.uniform(0.5, 5), draw.choice([0.5, 1, 7]))
        ledger, now, kept_in = Ledger(), 10**12, 0.0
        for _ in range(100):
            now += round(draw.expovariate(1 / 20_000_000))
            if draw.random() < 0.1:
                now -= round(draw.uniform(0, 3e8))
            before = ledger.start
            epsilon = draw.uniform(0, 1)
            kept, ledger = ledger.charged(epsilon, now, cap)
            if ledger.start > before:  # a new period, and the old one is over
                assert ledger.start == now >= before + cap.days * 86_400_000
                kept_in = 0.0
            kept_in += epsilon if kept else 0.0
            assert ledger.spent == kept_in <= cap.epsilon * (1 + 1e-9)
            assert ledger.start <= now
