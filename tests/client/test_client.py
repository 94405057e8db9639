"""The Python client keeps the contract in clients/CONTRACT.md, rule by rule."""

import asyncio
import inspect
import json
import math
import secrets
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy
import pytest

import whitelie.client
from helpers.in_process_service import Clock
from helpers.processes import started
from helpers.service_process import ADMIN_KEY, Server, until
from helpers.simulated_devices import (
    FLIPS,
    KEY,
    LARGEST,
    ONE,
    SPREAD,
    WEEK,
    WINDOW,
    Recorder,
    Stub,
    advance,
    chosen,
    client_of,
    decision,
    operating,
)
from whitelie import InvalidInput
from whitelie.client import (
    HTTP,
    Answer,
    Cap,
    Choice,
    Client,
    Folder,
    InProcess,
    Memory,
    NoAnswer,
    Storage,
    WhitelieWarning,
)
from whitelie.client.pending_report import PendingReport

pytestmark = pytest.mark.filterwarnings("ignore:whitelie. the bits are not secret")

DAY = 24 * 60 * 60
NOT_TAKEN = "the service did not take a report, which is kept for later"
OUTCOMES = pytest.mark.parametrize("outcome", [0, 1])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stub(clock: Clock) -> Stub:
    return Stub(clock)


def warned(match: str) -> Any:
    return pytest.warns(WhitelieWarning, match=match)


# One decision, one report ------------------------------------------------------------------------


def test_public_names() -> None:
    assert sorted(whitelie.client.__all__) == [
        *("Answer", "Cap", "Choice", "Client", "Folder", "HTTP", "InProcess", "Memory"),
        *("NoAnswer", "Storage", "Transport", "WhitelieWarning"),
    ]
    for name in whitelie.client.__all__:
        assert getattr(whitelie.client, name) is not None


def test_it_needs_the_standard_library_only() -> None:
    code = "import sys, whitelie.client; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "numba", "scipy", "msgspec", "starlette", "httpx"} & {*loaded}


def test_randomness_is_secret_unless_a_test_says_otherwise(stub: Stub) -> None:
    parameters = inspect.signature(Client).parameters
    assert parameters["random_bits_for_tests_only"].default is secrets.randbits
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client_of(stub)
    with warned("not secret"):
        client_of(stub, random_bits_for_tests_only=chosen())


def test_a_decision_and_its_report_with_the_real_service(tmp_path: Path) -> None:
    with operating(tmp_path) as operator:
        experiment = operator.create()
        recorder = Recorder(operator.server, operator.clock)
        client = Client(
            recorder, KEY, clock=operator.clock, timeout=60, storage=Memory(), sending="when-due"
        )
        choice = client.decide(experiment)
        assert (choice.arm, choice.payload) in [("green", {"colour": "#0a0"}), ("blue", None)]
        choice.reward(1)
        assert client.next_due is not None
        assert WINDOW <= client.next_due - operator.clock() <= WINDOW + SPREAD
        advance(client, operator.clock, client.next_due)
        assert operator.counts(experiment)[:2] == (1, 1)
        assert client.next_due is None
        asked, report = recorder.requests
        assert (asked.body, asked.headers["Authorization"]) == ({}, f"Bearer {KEY}")
        assert set(report.body) == {"token", "bit"}
        assert set(report.headers) == {"Content-Type"}, "a report carries no key"


@OUTCOMES
@pytest.mark.parametrize("flip", FLIPS)
def test_the_report_is_the_bit_that_was_drawn(stub: Stub, flip: str, outcome: int) -> None:
    words = FLIPS[flip]
    client = client_of(stub, random_bits_for_tests_only=chosen(*words))
    client.decide("button").reward(outcome)
    advance(client, stub.clock, stub.clock() + WINDOW + SPREAD)
    assert [report.body["bit"] for report in stub.reports] == [int(words[outcome] == 0)]


@OUTCOMES
def test_both_bits_and_the_time_are_stored_before_the_choice_is_returned(
    stub: Stub, outcome: int
) -> None:
    storage = Memory()
    draws = chosen(0, LARGEST, 2**31)
    client = client_of(stub, storage=storage, random_bits_for_tests_only=draws)
    choice = client.decide("button")
    (key,) = [key for key in storage.keys() if "report" in key]
    now = round(stub.clock() * 1000)
    stored = json.loads(storage.get(key) or "")
    assert stored == {
        "server": stub.address,
        "experiment": "button",
        "arm": "green",
        "token": "token 1",
        "bits": [1, 0],
        "bit": 1,
        "decided": now,
        "until": now + 1000 * WINDOW,
        "due": now + 1000 * WINDOW + 500 * SPREAD,
        "expires": now + 1000 * WEEK,
        "sending": "when-due",
    }
    choice.reward(outcome)
    after = json.loads(storage.get(key) or "")
    assert after == stored | {"bit": 1 - outcome}


@OUTCOMES
def test_nothing_leaves_before_it_is_due(stub: Stub, outcome: int) -> None:
    client = client_of(stub, random_bits_for_tests_only=chosen(time=2**31))
    client.decide("button").reward(outcome)
    start = stub.clock()
    for passed in (0, 1, WINDOW - 1, WINDOW, WINDOW + SPREAD / 2 - 0.002):
        stub.clock.now = start + passed
        assert client.flush() == 0
    assert not stub.reports
    stub.clock.now = start + WINDOW + SPREAD / 2
    assert client.flush() == 1
    assert [report.at for report in stub.reports] == [stub.clock()]


def test_a_reward_counts_once_and_within_the_window(stub: Stub) -> None:
    draws = chosen(0, LARGEST)  # RR(0) = 1, RR(1) = 0
    client = client_of(stub, random_bits_for_tests_only=draws, cap=Cap(100))
    first, late, none, twice = [client.decide(name) for name in ("a", "b", "c", "d")]
    twice.reward(1)
    twice.reward(1)
    twice.reward(0)
    none.reward(0)
    stub.clock.forward(WINDOW)
    first.reward(True)
    stub.clock.forward(0.001)
    late.reward(1)
    stub.clock.forward(SPREAD)
    assert client.flush() == 4
    bits = {report.body["token"]: report.body["bit"] for report in stub.reports}
    assert bits == {"token 1": 0, "token 2": 1, "token 3": 1, "token 4": 0}
    first.reward(1)  # after it was sent
    assert client.next_due is None


def test_a_reward_is_any_whole_number_of_0_and_1(stub: Stub) -> None:
    client = client_of(stub, random_bits_for_tests_only=chosen(0, LARGEST))
    client.decide("button").reward(cast("int", numpy.int64(1)))
    client.decide("other").reward(cast("int", numpy.int64(0)))
    stub.clock.forward(WINDOW + SPREAD)
    client.flush()
    bits = {report.body["token"]: report.body["bit"] for report in stub.reports}
    assert bits == {"token 1": 0, "token 2": 1}


def test_a_reward_by_experiment_finds_the_latest_decision_after_a_restart(stub: Stub) -> None:
    storage = Memory()
    draws = {"storage": storage, "random_bits_for_tests_only": chosen(0, LARGEST)}
    before = client_of(stub, **draws)
    before.decide("button")
    stub.clock.forward(1)
    before.decide("button")
    stub.clock.forward(1)
    before.decide("other")
    client_of(stub, **draws).reward("button")
    client_of(stub, **draws).reward("unknown")
    stub.clock.forward(WINDOW + SPREAD)
    client_of(stub, **draws).flush()
    bits = {report.body["token"]: report.body["bit"] for report in stub.reports}
    assert bits == {"token 1": 1, "token 2": 0, "token 3": 1}


def test_a_reward_of_a_decision_that_is_not_reported_goes_to_no_other(stub: Stub) -> None:
    draws = chosen(0, LARGEST)
    client = client_of(stub, random_bits_for_tests_only=draws, cap=Cap(1))
    client.decide("button")
    client.decide("button")  # beyond the cap
    client.reward("button")
    advance(client, stub.clock, stub.clock() + WINDOW + SPREAD)
    assert [report.body["bit"] for report in stub.reports] == [1]


def test_the_order_of_reports_is_that_of_their_times(stub: Stub) -> None:
    client = client_of(stub, cap=Cap(100))
    for _ in range(20):
        client.decide("button").reward(1)
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 20
    tokens = [report.body["token"] for report in stub.reports]
    made = [f"token {number}" for number in range(1, 21)]
    assert sorted(tokens) == sorted(made)
    assert tokens != made, "else the order of decisions could be read off"


# The device owns the limit -----------------------------------------------------------------------


def test_a_coin_above_the_ceiling_is_shown_and_not_reported(stub: Stub) -> None:
    client = client_of(stub)
    stub.mechanism = {"p00": 0.75, "p11": 0.75}
    with warned("epsilon = 1.099.*max_epsilon = 1"):
        choice = client.decide("button")
    assert choice == Choice("green", {"colour": "#0a0"})
    client.decide("button").reward(1)  # warned once
    assert client.next_due is None
    assert len(stub.requests) == 2
    stub.mechanism = {}
    client.decide("button")
    assert client.next_due is not None


@pytest.mark.parametrize(
    ("max_epsilon", "is_kept"),
    [(ONE.epsilon, True), (1, True), (1 / (1 + 5e-10), True), (1 / (1 + 2e-9), False)],
)
def test_the_ceiling_has_a_tolerance(stub: Stub, max_epsilon: float, is_kept: bool) -> None:
    client = client_of(stub, max_epsilon=max_epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.decide("button")
    assert (client.next_due is not None) == is_kept


@pytest.mark.parametrize("coin", [(1.0, 1.0), (0.0, 0.0), (1.0, 0.5), (0.5, 1.0)])
def test_a_coin_that_can_prove_the_truth_is_never_used(
    stub: Stub, coin: tuple[float, float]
) -> None:
    client = client_of(stub, max_epsilon=1e6)
    stub.mechanism = {"p00": coin[0], "p11": coin[1]}
    with warned("epsilon = inf"):
        client.decide("button")
    assert client.next_due is None


def test_a_short_spread_is_not_reported(stub: Stub) -> None:
    client = client_of(stub)
    stub.mechanism = {"spread": 29}
    with warned("spread over 29 s.*min_spread = 30"):
        client.decide("button")
    assert client.next_due is None
    stub.mechanism = {"spread": 30}
    client.decide("button")
    assert client.next_due is not None


@OUTCOMES
def test_the_ledger_stops_reports_silently_and_requests_stay_the_same(
    stub: Stub, outcome: int
) -> None:
    client = client_of(stub, cap=Cap(epsilon=3, days=1))
    for _ in range(5):
        assert client.decide("button").arm == "green"
        client.reward("button", outcome)
    asked = [(request.path, request.body, request.headers) for request in stub.requests]
    assert len(asked) == 5
    assert all(each == asked[0] for each in asked)
    stub.clock.forward(DAY - 1)
    assert client.flush() == 3
    client.decide("button")
    assert client.next_due is None
    stub.clock.forward(1)
    client.decide("button")
    assert client.next_due is not None


def test_the_ledger_is_shared_by_clients_and_survives(stub: Stub, tmp_path: Path) -> None:
    other = Stub(stub.clock, address="http://other.example")
    cap = Cap(epsilon=2, days=1)
    for service in (stub, other, stub):
        client_of(service, cap=cap, storage=Folder(tmp_path)).decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    sent = [client_of(each, cap=cap, storage=Folder(tmp_path)).flush() for each in (stub, other)]
    assert sent == [1, 1], "each service gets its own reports, and the third was beyond the cap"


@pytest.mark.parametrize("text", ["", "{", "null", '{"start": 0, "spent": -5}'])
@pytest.mark.parametrize("key", ["whitelie.ledger", "whitelie.charge.0"])
def test_a_ledger_that_is_not_understood_counts_as_full(stub: Stub, key: str, text: str) -> None:
    storage = Memory()
    storage.set(key, text)
    client = client_of(stub, storage=storage)
    client.decide("button")
    assert client.next_due is None
    assert storage.get("whitelie.ledger") is None
    stub.clock.forward(DAY)
    client.decide("button")
    assert client.next_due is not None


def test_what_an_earlier_version_charged_still_counts(stub: Stub) -> None:
    storage = Memory()
    now = round(1000 * stub.clock())
    storage.set("whitelie.ledger", json.dumps({"start": now - 1000, "spent": 8.5}))
    storage.set("whitelie.report.0", json.dumps(stored_report(stub)))
    client = client_of(stub, storage=storage)
    for _ in range(3):
        client.decide("button")
    assert sorted(key for key in storage.keys() if "charge" in key)[1] == "whitelie.charge.ledger"
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 1
    assert client_of(stub, storage=storage).flush() == 1, "that of the earlier version, at a start"


def stored_report(stub: Stub) -> dict[str, Any]:
    now = round(1000 * stub.clock())
    times = {"decided": now, "until": now, "due": now, "expires": now + 10**7}
    texts = {"server": stub.address, "experiment": "a", "arm": "green", "token": "earlier"}
    return {**texts, "bits": [0, 1], "bit": 0, **times}


def test_a_longer_cap_holds_beside_a_shorter_one(stub: Stub) -> None:
    """Two clients on one storage for 30 days; the shorter cap resets nothing."""
    storage = Memory()
    strict = client_of(stub, storage=storage, cap=Cap(epsilon=3, days=30))
    usual = client_of(stub, storage=storage)
    tokens = set()
    for _ in range(29):
        for client in (strict, strict, strict, strict, usual, usual):
            stub.clock.forward(0.001)
            client.decide("button")
            if client is strict:
                tokens.add(f"token {len(stub.requests)}")
        stub.clock.forward(DAY)
        strict.flush()
    sent = {report.body["token"] for report in stub.reports}
    assert len(sent & tokens) == 3
    assert len(sent - tokens) == 2 * 29


def test_experiments_and_services_share_the_cap_first_come_first_served(stub: Stub) -> None:
    storage, other = Memory(), Stub(stub.clock, address="http://other.example")
    here, there = [client_of(each, storage=storage, cap=Cap(3)) for each in (stub, other)]
    here.decide("a")
    there.decide("a")
    here.decide("b")
    here.decide("a")
    there.decide("c")
    stub.clock.forward(WINDOW + SPREAD)
    assert (here.flush(), there.flush()) == (2, 1)


def test_the_cap_holds_around_every_change_of_days(stub: Stub) -> None:
    client = client_of(stub, cap=Cap(epsilon=3, days=1))
    start, sent = stub.clock(), []
    for days in (0, 0.9, 0.9, 1.1, 1.1, 1.1):
        stub.clock.now = start + days * DAY
        client.decide("button")
        sent.append(client.flush())
    stub.clock.forward(WINDOW + SPREAD)
    sent.append(client.flush())
    assert sent == [0, 1, 0, 2, 0, 0, 1]


def test_tabs_that_charge_at_once_do_not_exceed_the_cap(stub: Stub) -> None:
    """Clients that do not see each other's charges, as tabs in the same instant."""
    shared = Memory()
    for _ in range(11):
        alone = Memory()
        client_of(stub, storage=alone).decide("button")
        for key in alone.keys():
            shared.set(key, alone.get(key) or "")
    assert len(shared.keys()) == 22
    stub.clock.forward(WINDOW + SPREAD)
    client = client_of(stub, storage=shared)
    assert client.flush() == 10
    assert client.next_due is None
    assert len(shared.keys()) == 10, "the eleventh report is removed, and its charge"


def test_a_race_is_decided_once_whatever_the_clock_does(stub: Stub) -> None:
    """The later of two is due later; without it a clock set back would turn their order round."""
    shared = Memory()
    for number, (name, word) in enumerate([("ff", 0), ("11", 2**31)]):
        alone = Memory()
        flips = chosen(time=word)
        client = client_of(stub, storage=alone, cap=Cap(1), random_bits_for_tests_only=flips)
        client.decide("button")
        stub.clock.forward(0.005)
        for key in alone.keys():
            shared.set(key.rpartition(".")[0] + "." + name, alone.get(key) or "")
        assert len(shared.keys()) == 2 * number + 2
    stub.clock.forward(WINDOW + SPREAD / 4)
    assert client_of(stub, storage=shared).flush() == 1
    for step in (-2 * 60 * 60, WINDOW + SPREAD, 60 * 60):
        stub.clock.forward(step)
        assert client_of(stub, storage=shared).flush() == 0
    assert len(stub.reports) == 1


def test_a_race_is_decided_however_late_the_reports_leave(stub: Stub) -> None:
    """Charges of reports that wait are kept when others are made: they are still compared."""
    stub.mechanism = {"spread": 50 * DAY, "expires_in": 100 * DAY}
    shared, last = Memory(), chosen(time=2**32 - 1)
    for _ in range(5):
        alone = Memory()
        client_of(stub, storage=alone, cap=Cap(1), random_bits_for_tests_only=last).decide("button")
        for key in alone.keys():
            shared.set(key, alone.get(key) or "")
    stub.clock.forward(41 * DAY)
    alone_again = client_of(stub, storage=shared, cap=Cap(1), random_bits_for_tests_only=last)
    alone_again.decide("other")
    stub.clock.forward(10 * DAY)
    assert client_of(stub, storage=shared).flush() == 1


def test_consent_withdrawn_between_two_reports_stops_the_second(stub: Stub) -> None:
    client = client_of(stub, consent=lambda: not stub.reports)
    client.decide("button")
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 1
    assert len(stub.reports) == 1


def test_nothing_is_sent_for_what_is_gone(stub: Stub) -> None:
    """`consent` is asked before a report is read: one that erases everything is heeded."""
    storage = Memory()

    def consent() -> bool:
        if is_ending:
            client.forget()
        return True

    is_ending = False
    client = client_of(stub, storage=storage, consent=consent)
    choice = client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    is_ending = True
    assert client.flush() == 0
    choice.reward(1)
    assert not stub.reports
    assert storage.keys() == []


def test_without_consent_nothing_is_stored(stub: Stub) -> None:
    storage = Memory()
    answers = iter([False, True])
    client = client_of(stub, storage=storage, consent=lambda: next(answers))
    client.decide("button", sticky=True).reward(1)
    assert not list(storage.keys())
    client.decide("button")
    assert len(stub.requests) == 2
    assert client.next_due is not None


def test_stored_reports_are_not_sent_after_consent_is_withdrawn(stub: Stub) -> None:
    storage, given = Memory(), [True]
    draws = chosen(0, LARGEST)
    client = client_of(
        stub, storage=storage, consent=lambda: given[0], random_bits_for_tests_only=draws
    )
    choice = client.decide("button")
    stored = {key: storage.get(key) for key in storage.keys()}
    given[0] = False
    choice.reward(1)
    client.decide("button")
    assert {key: storage.get(key) for key in storage.keys()} == stored
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 0
    assert not stub.reports
    given[0] = True
    assert client.flush() == 1
    assert [report.body["bit"] for report in stub.reports] == [1], "the click did not count"


def test_without_consent_what_has_expired_is_removed(stub: Stub) -> None:
    storage, given = Memory(), [True]
    client = client_of(stub, storage=storage, consent=lambda: given[0])
    client.decide("button")
    given[0] = False
    stub.clock.forward(WEEK + 1)
    client.flush()
    assert ["charge" in key for key in storage.keys()] == [True]


def test_only_true_is_consent(stub: Stub) -> None:
    async def later() -> bool:
        return True

    coroutine = later()
    consents: list[Any] = [False, lambda: "no", lambda: 1, lambda: None, lambda: coroutine]
    for consent in consents:
        client = client_of(stub, consent=consent)
        client.decide("button")
        assert client.next_due is None
    coroutine.close()
    client = client_of(stub, consent=lambda: bool(1 / 0))
    with warned("raised ZeroDivisionError, which counts as no consent"):
        assert client.decide("button").arm == "green"
    assert client.next_due is None


# Sticky, forced, fallback ------------------------------------------------------------------------


def test_sticky_is_one_decision_and_one_report(stub: Stub, tmp_path: Path) -> None:
    draws = {"random_bits_for_tests_only": chosen(0, LARGEST)}
    first = client_of(stub, storage=Folder(tmp_path), **draws).decide("button", sticky=True)
    again = client_of(stub, storage=Folder(tmp_path), **draws)
    choice = again.decide("button", sticky=True)
    assert choice == first == Choice("green", {"colour": "#0a0"})
    assert len(stub.requests) == 1
    choice.reward(1)
    advance(again, stub.clock, stub.clock() + WINDOW + SPREAD)
    assert [report.body["bit"] for report in stub.reports] == [0]
    again.decide("button", sticky=True).reward(1)
    assert again.flush() == 0
    assert len(stub.requests) == 2
    again.decide("other", sticky=True)
    assert len(stub.requests) == 3


def test_sticky_without_a_report_stays_too(stub: Stub) -> None:
    storage = Memory()
    client = client_of(stub, storage=storage, cap=Cap(0.5))
    assert client.decide("a", sticky=True) == client.decide("a", sticky=True)
    assert json.loads(storage.get("whitelie.sticky.a") or "")["report"] is None
    assert len(stub.requests) == 1
    stub.decision = None
    with warned("no decision"):
        client.decide("b", sticky=True, fallback=Choice("plain"))
    assert storage.get("whitelie.sticky.b") is None, "a fallback is not kept"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "7", '{"payload": 1}'),
        *('{"arm": null}', '{"arm": ""}', '{"arm": 7}', '{"arm": ["x"]}'),
        '{"arm": "x", "server": "http://other.example"}',
        '{"arm": "x", "server": null}',
    ],
)
def test_a_sticky_choice_that_is_not_understood_is_replaced(stub: Stub, text: str) -> None:
    storage = Memory()
    storage.set("whitelie.sticky.button", text)
    assert client_of(stub, storage=storage).decide("button", sticky=True).arm == "green"
    kept = json.loads(storage.get("whitelie.sticky.button") or "")
    assert (kept["arm"], kept["server"]) == ("green", stub.address), "it is overwritten"


@pytest.mark.parametrize("changes", [{}, {"report": None}, {"server": "http://stub.example"}])
def test_a_sticky_choice_of_an_earlier_version_is_used(stub: Stub, changes: dict[str, Any]) -> None:
    storage = Memory()
    storage.set("whitelie.sticky.button", json.dumps({"arm": "x"} | changes))
    choice = client_of(stub, storage=storage).decide("button", sticky=True)
    assert choice == Choice("x", None)
    choice.reward(1)
    assert not stub.requests


def test_two_who_decide_at_once_stick_to_one_choice(clock: Clock) -> None:
    storage = Memory()

    class Meeting(Stub):
        barrier = threading.Barrier(2)

        def post(
            self, path: str, body: bytes, headers: Mapping[str, str], timeout: float
        ) -> Answer:
            answer = super().post(path, body, headers, timeout)
            self.barrier.wait(10)
            return answer

    meeting = Meeting(clock)
    clients = [client_of(meeting, storage=storage) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda client: client.decide("button", sticky=True), clients))
    reports = [key for key in storage.keys() if "report" in key]
    assert len(reports) == 1


def test_force_asks_and_reports_nothing(stub: Stub) -> None:
    client = client_of(stub)
    choice = client.decide("button", force="blue")
    choice.reward(1)
    assert choice == Choice("blue")
    assert not stub.requests
    assert client.next_due is None


def test_the_fallback_is_shown_when_no_answer_comes(stub: Stub) -> None:
    client = client_of(stub)
    stub.decision = None
    with warned("no decision from http://stub.example within 1 s"):
        choice = client.decide("button", fallback=Choice("plain", [1]))
    choice.reward(1)
    assert choice == Choice("plain", [1])
    assert client.decide("button") == Choice(None)  # warned once
    assert client.next_due is None


@pytest.mark.parametrize("more", [0, 1])
def test_a_payload_has_a_largest_size(stub: Stub, more: int) -> None:
    payload = {"ü": "ü" * (65_536 - len('{"ü":""}') + more)}
    body = json.dumps({"decisions": [decision() | {"payload": payload}]}).encode()
    stub.decision = Answer(200, body)
    client = client_of(stub)
    if more:
        with warned("something that is no decision"):
            assert client.decide("button") == Choice(None)
    else:
        assert client.decide("button").payload == payload


def test_a_service_does_not_choose_what_is_warned_of(stub: Stub) -> None:
    client = client_of(stub)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(5):
            stub.decision = Answer(401, b'{"error": {"code": "say %d"}}' % number)
            client.decide("button")
    assert [str(each.message).count("say") for each in said] == [0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(500), "500"),
        (Answer(401, b'{"error": {"code": "unknown_key", "message": ""}}'), "401"),
        (Answer(429, b"[]", 7), "429"),
        (Answer(302, b"elsewhere"), "302"),
        (Answer(204), "something that is no decision"),
        (Answer(601), "something that is no decision"),
    ],
)
def test_an_error_means_the_fallback(stub: Stub, answer: Answer, said: str) -> None:
    stub.decision = answer
    with warned(f"answered {said}, so the fallback is shown"):
        assert client_of(stub).decide("button", fallback=Choice("plain")) == Choice("plain")


def mangled() -> list[Any]:
    good = decision()
    without = [
        {key: good[key] for key in good if key != name} for name in good if name != "payload"
    ]
    coins: list[Any] = [
        *({"p00": wrong} for wrong in (-0.1, 1.1, "0.7", None, True, math.nan, math.inf)),
        *({"window": wrong} for wrong in (-1, 0.5, "60", None, True, 10**9 + 1, math.nan)),
        *({"spread": wrong} for wrong in (-1, 1e300, "")),
        *({"expires_in": wrong} for wrong in (-1, "", None)),
    ]
    return [
        *({"decisions": [each]} for each in [*without, *(decision(**coin) for coin in coins)]),
        *({"decisions": [good | {name: []}]} for name in good if name != "payload"),
        *({"decisions": each} for each in ([], [good, good], [None], None, good, ["a"])),
        *({"decisions": [good | {name: ""}]} for name in ("arm", "token")),
        [],
        None,
        7,
    ]


@pytest.mark.parametrize("body", mangled(), ids=lambda body: json.dumps(body)[:60])
def test_an_answer_that_is_not_understood_means_the_fallback(stub: Stub, body: Any) -> None:
    stub.decision = Answer(200, json.dumps(body).encode())
    client = client_of(stub)
    with warned("no decision"):
        assert client.decide("button", fallback=Choice("plain")) == Choice("plain")
    assert client.next_due is None


@pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_an_answer_that_is_no_json_means_the_fallback(stub: Stub, body: bytes) -> None:
    stub.decision = Answer(200, body)
    with warned("no decision"):
        assert client_of(stub).decide("button") == Choice(None)


# Sending -----------------------------------------------------------------------------------------


def decided(stub: Stub, **changes: Any) -> Client:
    """A client with one report, which is due."""
    client = client_of(stub, **changes)
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    return client


@OUTCOMES
@pytest.mark.parametrize("trouble", [None, Answer(500), Answer(429), Answer(400), Answer(404)])
def test_a_retry_sends_the_same_bit_with_exponential_backoff(
    stub: Stub, trouble: Answer | None, outcome: int
) -> None:
    client = client_of(stub)
    client.decide("button").reward(outcome)
    stub.clock.forward(WINDOW + SPREAD)
    stub.feedback = trouble
    start = stub.clock()
    with warned(NOT_TAKEN):
        assert client.flush() == 0
    advance(client, stub.clock, start + 6 * 60 * 60)
    waits = [round(report.at - start) for report in stub.reports]
    doubled = [5 * (2**failures - 1) for failures in range(11)]
    assert waits[:11] == doubled
    assert {later - earlier for earlier, later in pairwise(waits[10:])} == {3600}
    stub.feedback = Answer(200)
    advance(client, stub.clock, stub.clock() + 3600)
    assert client.next_due is None
    assert len({json.dumps(report.body) for report in stub.reports}) == 1


def test_retry_after_replaces_a_shorter_backoff(stub: Stub) -> None:
    client = decided(stub)
    stub.feedback = Answer(503, b"", 100)
    with warned(NOT_TAKEN):
        client.flush()
    assert client.next_due == stub.clock() + 100
    stub.clock.forward(100)
    stub.feedback = Answer(503, b"", 1)
    client.flush()
    assert client.next_due == stub.clock() + 10


@pytest.mark.parametrize("status", [200, 410, 422])
def test_what_settles_a_report(stub: Stub, status: int) -> None:
    client = decided(stub)
    stub.feedback = Answer(status)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert client.flush() == 1
    assert client.next_due is None
    assert ["does not know a token" in str(each.message) for each in said] == [True] * (
        status == 422
    )


def test_a_service_that_is_away_is_asked_once_not_once_for_each_report(stub: Stub) -> None:
    client = client_of(stub)
    for _ in range(10):
        client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    stub.feedback = None
    with warned(NOT_TAKEN):
        client.flush()
    assert client.flush() == 0
    assert len(stub.reports) == 1
    stub.feedback = Answer(200)
    stub.clock.forward(5)
    assert client.flush() == 10


def test_the_backoff_starts_again_after_a_success(stub: Stub) -> None:
    client = client_of(stub)
    for trouble in (None, None, Answer(200), None):
        client.decide("button")
        stub.clock.forward(WINDOW + SPREAD)
        stub.feedback = trouble
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client.flush()
    assert client.next_due == stub.clock() + 5


def test_a_clock_set_back_does_not_prolong_the_backoff(stub: Stub) -> None:
    client = decided(stub)
    stub.feedback = None
    with warned(NOT_TAKEN):
        client.flush()
    stub.clock.forward(-DAY)
    stub.feedback = Answer(200)
    stub.clock.forward(WINDOW + SPREAD)
    client.flush()  # which notices
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 1


def test_a_refused_report_does_not_delay_others(stub: Stub) -> None:
    client = client_of(stub)
    client.decide("button")
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    stub.feedback = Answer(400)
    with warned(NOT_TAKEN):
        client.flush()
    assert len(stub.reports) == 2


def test_what_has_expired_is_removed_unsent(stub: Stub) -> None:
    storage = Memory()
    client = decided(stub, storage=storage)
    stub.clock.forward(WEEK)
    assert client.flush() == 0
    assert not stub.reports
    assert [key for key in storage.keys() if "report" in key] == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"bits": 1}', '{"server": "x", "bits": []}']
)
def test_a_report_that_is_damaged_is_removed(stub: Stub, text: str) -> None:
    storage = Memory()
    storage.set("whitelie.report.0", text)
    client = decided(stub, storage=storage)
    client.reward("button")
    assert client.flush() == 1
    assert storage.get("whitelie.report.0") is None


def test_a_damaged_bit_is_not_sent(stub: Stub) -> None:
    storage = Memory()
    client = decided(stub, storage=storage)
    (key,) = [key for key in storage.keys() if "report" in key]
    stored = json.loads(storage.get(key) or "")
    for wrong in (
        *({"bit": 2}, {"bit": True}, {"bit": [0]}, {"bits": [0, 0], "bit": 1}),
        *({"bits": bits} for bits in ([], [0], [0, 1, 1], "01", {}, {"0": 0, "1": 1}, 7)),
        *({"due": due} for due in ("soon", None, True, math.inf, math.nan, 10**400)),
        *({name: 7} for name in ("server", "experiment", "arm", "token")),
    ):
        assert PendingReport.from_text(json.dumps(stored | wrong)) is None
    storage.set(key, json.dumps(stored | {"bit": 7}))
    assert client.flush() == 0
    assert not stub.reports


def test_a_crash_between_sending_and_removing_counts_once(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    class Crashing(Recorder):
        def post(
            self, path: str, body: bytes, headers: Mapping[str, str], timeout: float
        ) -> Answer:
            answer = super().post(path, body, headers, timeout)
            if self.requests[-1].is_report:
                raise Crash
            return answer

    with operating(tmp_path) as operator:
        experiment = operator.create()
        options: dict[str, Any] = {"clock": operator.clock, "timeout": 60}
        options["storage"] = Folder(tmp_path / "device")
        crashing = Crashing(operator.server, operator.clock)
        client = Client(crashing, KEY, sending="when-due", **options)
        client.decide(experiment).reward(1)
        operator.clock.forward(WINDOW + SPREAD)
        with pytest.raises(Crash):
            client.flush()
        recorder = Recorder(operator.server, operator.clock)
        assert Client(recorder, KEY, **options).flush() == 1
        assert recorder.requests[-1].body == crashing.requests[-1].body
        assert operator.counts(experiment)[:2] == (1, 1)


def test_after_the_first_attempt_no_reward_changes_the_bit(stub: Stub) -> None:
    """Even when the clock is set back into the window."""
    client = client_of(stub, random_bits_for_tests_only=chosen(0, LARGEST))
    choice = client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    stub.feedback = None
    with warned(NOT_TAKEN):
        client.flush()
    stub.clock.forward(-DAY)
    choice.reward(1)
    stub.feedback = Answer(200)
    advance(client, stub.clock, stub.clock() + 2 * DAY)
    assert [report.body["bit"] for report in stub.reports] == [1, 1]


@pytest.mark.parametrize("by_name", [False, True])
def test_on_a_clock_set_back_a_reward_changes_no_time(stub: Stub, by_name: bool) -> None:
    client = client_of(stub, random_bits_for_tests_only=chosen(0, LARGEST, 2**31))
    choice = client.decide("button")
    due = client.next_due
    stub.clock.forward(-60)
    if by_name:
        client.reward("button")
    else:
        choice.reward(1)
    ((_, report),) = client._outbox.waiting()
    assert report.due == round(1000 * (due or 0))
    assert report.bit == report.bits[1]


def test_a_forced_arm_is_not_rewarded(stub: Stub) -> None:
    client = client_of(stub, random_bits_for_tests_only=chosen(0, LARGEST))
    client.decide("button")
    client.decide("button", force="blue")
    client.reward("button")
    ((_, report),) = client._outbox.waiting()
    assert report.bit == report.bits[0]


@OUTCOMES
def test_a_clock_set_back_delays_nothing_for_ever(stub: Stub, outcome: int) -> None:
    draws = chosen(0, LARGEST, 2**31)
    client = client_of(stub, random_bits_for_tests_only=draws)
    choice = client.decide("button")
    stub.clock.forward(-DAY)
    client.flush()
    assert client.next_due == stub.clock() + WINDOW + SPREAD / 2
    stub.clock.forward(WINDOW)
    choice.reward(outcome)
    stub.clock.forward(SPREAD)
    assert client.flush() == 1
    assert [report.body["bit"] for report in stub.reports] == [1 - outcome]


def test_a_clock_set_forward_sends_early_whatever_the_outcome(stub: Stub) -> None:
    client = client_of(stub)
    for outcome in (0, 1):
        client.decide("button").reward(outcome)
    stub.clock.forward(DAY)
    assert client.flush() == 2


def test_immediate_is_a_loud_downgrade(stub: Stub) -> None:
    with warned("their time reveals the outcome"):
        client = client_of(stub, immediate=True)
    start = stub.clock()
    clicked, _ = client.decide("button"), client.decide("button")
    stub.clock.forward(10)
    clicked.reward(0)
    assert client.flush() == 0
    clicked.reward(1)
    assert client.flush() == 1
    assert client.next_due == start + WINDOW + 1, "everybody has seen the last reward"


def test_two_clients_on_one_folder_send_one_report(clock: Clock, tmp_path: Path) -> None:
    class Slow(Stub):
        def post(
            self, path: str, body: bytes, headers: Mapping[str, str], timeout: float
        ) -> Answer:
            answer = super().post(path, body, headers, timeout)
            time.sleep(0.01)
            return answer

    slow = Slow(clock)
    clients = [client_of(slow, storage=Folder(tmp_path)) for _ in range(4)]
    for client in clients:
        client.decide("button")
    clock.forward(WINDOW + SPREAD)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(Client.flush, clients)) == 4
    tokens = [report.body["token"] for report in slow.reports]
    assert len(tokens) == len({*tokens}) == 4


def test_forget_erases_everything(stub: Stub, tmp_path: Path) -> None:
    """Also what others have stored there for other services; but not what is not ours."""
    storage = Folder(tmp_path)
    client = client_of(stub, storage=storage)
    other = client_of(Stub(stub.clock, address="http://other.example"), storage=storage)
    storage.set("of somebody else", "stays")
    storage.set("whitelie.ledger", '{"start": 0, "spent": 1}')
    choice = client.decide("button", sticky=True)
    other.decide("button")
    assert len(storage.keys()) == 1 + 2 + 3 + 1
    client.forget()
    assert storage.keys() == ["of somebody else"]
    choice.reward(1)
    client.reward("button")
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == other.flush() == 0
    client.decide("button", sticky=True)
    assert stub.asked == 2


def test_after_forget_the_cap_starts_again(stub: Stub) -> None:
    """Charges say when somebody was here, and are erased with the rest."""
    client = client_of(stub, cap=Cap(1))
    client.decide("button")
    client.forget()
    client.decide("button")
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    assert client.flush() == 1


def test_forget_resets_the_backoff(stub: Stub) -> None:
    client = decided(stub)
    stub.feedback = None
    with warned(NOT_TAKEN):
        client.flush()
    client.forget()
    stub.feedback = Answer(200)
    client._storage.set(
        "whitelie.report.0", json.dumps(stored_report(stub) | {"sending": "when-due"})
    )
    stub.clock.forward(1)
    assert client.flush() == 1


def test_what_was_sent_is_not_recalled(stub: Stub) -> None:
    """A report that is leaving while everything is erased is not stored again."""

    class Erasing(Stub):
        def post(
            self, path: str, body: bytes, headers: Mapping[str, str], timeout: float
        ) -> Answer:
            answer = super().post(path, body, headers, timeout)
            if self.requests[-1].is_report:
                client.forget()
            return answer

    storage = Memory()
    for feedback in (Answer(200), Answer(503)):
        erasing = Erasing(stub.clock, feedback=feedback)
        client = decided(erasing, storage=storage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client.flush()
        assert len(erasing.reports) == 1
        assert not storage.keys()


# Over the network --------------------------------------------------------------------------------


def test_over_a_socket_to_the_real_service(tmp_path: Path) -> None:
    clock = Clock(time.time())
    with Server(tmp_path / "whitelie.db", tmp_path / "log").ready() as server:
        experiment = server.create(window=1, spread=30)
        storage = Folder(tmp_path / "device")
        address = f"http://127.0.0.1:{server.port}/"
        options: dict[str, Any] = {"storage": storage, "clock": clock, "timeout": 60}
        client = Client(address, ADMIN_KEY, sending="when-due", **options)
        assert client.decide(experiment).arm in {"a", "b", "c"}
        clock.forward(31)
        server.kill()
        with warned(NOT_TAKEN):
            assert client.flush() == 0
        with warned("no decision"):
            assert client.decide(experiment) == Choice(None)
    clock.forward(5)
    arguments = ["--port", str(server.port)]
    with Server(tmp_path / "whitelie.db", tmp_path / "log", *arguments).ready() as server:
        assert client.flush() == 1
        answer = server.ask("GET", f"/v1/experiments/{experiment}/results")
        assert json.loads(answer.body)["reports"] == 1


@contextmanager
def talking(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on loopback that answers as the handler does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    said: bytes = b""
    pause: float = 0.0
    seen: list[tuple[str, dict[str, str], bytes]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        try:
            for byte in self.said:
                self.wfile.write(bytes([byte]))
                time.sleep(self.pause)
        except OSError:
            pass  # the client has gone


def handler(said: bytes, pause: float = 0.0) -> type[Quiet]:
    return type("Handler", (Quiet,), {"said": said, "pause": pause, "seen": []})


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP",
        b"\x00" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_whatever_a_server_says_nothing_is_raised(said: bytes) -> None:
    with talking(handler(said)) as address, warned("the fallback is shown"):
        client = Client(address, KEY, storage=Memory())
        assert client.decide("button", fallback=Choice("plain")) == Choice("plain")


def test_a_server_that_answers_byte_by_byte_does_not_block_the_page(clock: Clock) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + b" " * 10_000
    with talking(handler(said, 0.02)) as address, warned("within 0.2 s"):
        start = time.monotonic()
        Client(address, KEY, storage=Memory(), timeout=0.2).decide("button")
        assert time.monotonic() - start < 2


def test_a_server_that_never_ends_keeps_no_thread(clock: Clock) -> None:
    endless = handler(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, 0.001)
    with talking(endless) as address, warned("within 0.2 s"):
        client = Client(address, KEY, clock=clock, timeout=0.2, storage=Memory())
        for _ in range(3):
            assert client.decide("button") == Choice(None)
        until(lambda: "whitelie-request" not in [t.name for t in threading.enumerate()] or None)


def test_what_is_sent_over_the_network(clock: Clock) -> None:
    body = json.dumps({"decisions": [decision("t")]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nRetry-After: x\r\n\r\n" % len(body)
    talker = handler(head + body)
    with talking(talker) as address:
        client = Client(f"{address}/learn/", KEY, clock=clock, timeout=30, sending="when-due")
        client.decide("a b")
        clock.forward(WINDOW + SPREAD)
        assert client.flush() == 1
    (path, headers, sent), (report_path, report_headers, report) = talker.seen
    assert (path, sent) == ("/learn/v1/experiments/a%20b/decisions", b"{}")
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert report_path == "/learn/v1/feedback"
    assert json.loads(report) in ({"token": "t", "bit": 0}, {"token": "t", "bit": 1})
    said = {"Host", "Accept-Encoding", "Content-Length", "Content-Type"}
    assert set(report_headers) == said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_keeps_the_report(clock: Clock, status: int) -> None:
    elsewhere = handler(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    with talking(elsewhere) as other:
        moved = b"HTTP/1.1 %d Moved\r\nLocation: %s/v1/feedback\r\nContent-Length: 0\r\n\r\n"
        here = handler(moved % (status, other.encode()))
        with talking(here) as address:
            client = Client(address, KEY, clock=clock, timeout=30, sending="when-due")
            report = stored_report(Stub(clock, address=address)) | {"sending": "when-due"}
            client._storage.set("whitelie.report.0", json.dumps(report))
            clock.forward(1)
            with warned(NOT_TAKEN):
                assert client.flush() == 0
            assert client.next_due == clock() + 5
            clock.forward(5)
            client.flush()
            with warned("the fallback is shown"):
                assert client.decide("button") == Choice(None)
    assert len(here.seen) == 3
    assert here.seen[0][2] == here.seen[1][2]
    assert not elsewhere.seen


def test_a_port_where_nobody_listens(clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with warned("no decision"):
        client = Client(f"http://127.0.0.1:{port}", KEY, storage=Memory())
        assert client.decide("button") == Choice(None)
    with warned("no decision"):
        client = Client(f"https://127.0.0.1:{port}", KEY, storage=Memory())
        assert client.decide("button") == Choice(None)


FLUSHER = """
import sys
from whitelie.client import Client, Folder
print(Client(sys.argv[1], "pk_x", storage=Folder(sys.argv[2]), timeout=30).flush())
"""


def test_processes_on_one_folder_send_each_report_once(tmp_path: Path) -> None:
    body = json.dumps({"decisions": [decision("t", window=0)]}).encode()
    talker = handler(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with talking(talker) as address:
        early = Clock(time.time() - 3600)
        storage = Folder(tmp_path)
        client = Client(address, KEY, storage=storage, clock=early, timeout=30)
        for _ in range(10):
            client.decide("button")
        command = [sys.executable, "-c", FLUSHER, address, str(tmp_path)]
        with ExitStack() as stack:
            starts = [started(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
            flushers = [stack.enter_context(start) for start in starts]
            sent = [int(flusher.communicate(timeout=120)[0]) for flusher in flushers]
    assert sum(sent) == 10
    assert len([path for path, _, _ in talker.seen if path == "/v1/feedback"]) == 10


def test_a_transport_of_ones_own_may_raise_anything(clock: Clock) -> None:
    class Odd(Stub):
        def post(
            self, path: str, body: bytes, headers: Mapping[str, str], timeout: float
        ) -> Answer:
            super().post(path, body, headers, timeout)
            raise RuntimeError

    with warned("no decision"):
        assert client_of(Odd(clock)).decide("button") == Choice(None)
    stub = Stub(clock)
    storage = Memory()
    decided(stub, storage=storage)
    with warned(NOT_TAKEN):
        assert client_of(Odd(clock), storage=storage).flush() == 0


# In the background -------------------------------------------------------------------------------


def test_a_thread_sends_what_falls_due(stub: Stub) -> None:
    stub.mechanism = {"window": 0, "spread": 0}
    client = client_of(stub, min_spread=0)
    for _ in range(3):
        client.decide("button")
    stub.clock.forward(1)
    with client:
        client.start()  # a second start changes nothing
        until(lambda: len(stub.reports) == 3 or None)
        client.decide("button")
        stub.clock.forward(1)
        client.decide("button")  # which wakes the thread
        until(lambda: len(stub.reports) == 4 or None)
    stub.clock.forward(1)
    assert len(stub.reports) == 4
    client.start()  # which sends what is due
    until(lambda: len(stub.reports) == 5 or None)
    client.stop()
    client.stop()


def test_a_reward_makes_nothing_leave(stub: Stub) -> None:
    """Not even what is due and has not left for another reason."""
    with client_of(stub) as client:
        choice = client.decide("button")
        time.sleep(0.1)  # until the thread sleeps again: it does not know that the clock will jump
        stub.clock.forward(WINDOW + SPREAD)
        choice.reward(1)
        time.sleep(0.1)
        assert not stub.reports


def test_a_thread_reports_at_once_when_told_to(stub: Stub) -> None:
    with warned("reveals the outcome"), client_of(stub, immediate=True) as client:
        client.decide("button").reward(1)
        until(lambda: stub.reports or None)


def test_a_thread_wakes_when_a_report_falls_due() -> None:
    stub = Stub(Clock())
    stub.mechanism = {"window": 0, "spread": 0}
    with Client(stub, KEY, min_spread=0, sending="when-due") as client:
        start = time.time()
        client.decide("button").reward(1)
        until(lambda: stub.reports or None)
    assert 0.99 <= time.time() - start < 30


@pytest.mark.filterwarnings("error")
def test_a_thread_survives_warnings_that_are_errors(stub: Stub) -> None:
    stub.mechanism = {"window": 0, "spread": 0}
    stub.feedback = None
    client = client_of(stub, min_spread=0)
    client.decide("button")
    stub.clock.forward(1)
    with client:
        until(lambda: stub.reports or None)
        stub.feedback = Answer(200)
        stub.clock.forward(5)
        until(lambda: (client.decide("button") and len(stub.reports) >= 2) or None)


def test_a_thread_does_not_spin_on_what_it_may_not_send(stub: Stub) -> None:
    """Nobody consents, or the report belongs to the next start."""
    asked = []

    def consent() -> bool:
        asked.append(stub.clock())
        return len(asked) == 1

    client = client_of(stub, consent=consent)
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    with client:
        until(lambda: len(asked) > 1 or None)
        time.sleep(0.2)
    assert len(asked) == 2
    storage = Counted()
    client = client_of(stub, sending="next-visit", storage=storage)
    client.decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    with client:
        time.sleep(0.2)
    assert storage.listed < 20
    assert not stub.reports


class Counted(Memory):
    """Counts how often it is looked through."""

    listed = 0

    def keys(self) -> list[str]:
        self.listed += 1
        return super().keys()


# At the next visit ------------------------------------------------------------------------------


def visiting(stub: Stub, storage: Storage, **changes: Any) -> Client:
    """A page load, by the default rule."""
    return Client(stub, KEY, clock=stub.clock, storage=storage, **changes)


@OUTCOMES
def test_nothing_leaves_in_the_visit_it_belongs_to(stub: Stub, outcome: int) -> None:
    storage = Memory()
    with visiting(stub, storage) as client:
        client.decide("button").reward(outcome)
        stub.clock.forward(WINDOW + SPREAD + DAY / 2)
        assert client.flush() == 0
        assert client.next_due == stub.clock(), "a client that starts now would send it"
    assert not stub.reports
    assert visiting(stub, storage).flush() == 1
    assert client.flush() == 0


def test_a_start_sends_what_is_due_then_and_nothing_else(stub: Stub) -> None:
    storage = Memory()
    visiting(stub, storage).decide("early")
    stub.clock.forward(SPREAD + 1)
    visiting(stub, storage).decide("late")
    stub.clock.forward(WINDOW - 2)
    between = visiting(stub, storage, min_spread=0)
    stub.clock.forward(2 * SPREAD)
    assert between.flush() == 1, "whatever has fallen due since"
    assert visiting(stub, storage).flush() == 1


@pytest.mark.parametrize("rule", ["next-visit", "when-due"])
@pytest.mark.parametrize("trouble", [None, Answer(503), Answer(400)])
def test_a_start_makes_one_attempt_however_long_it_lasts(
    stub: Stub, trouble: Answer | None, rule: Any
) -> None:
    storage = Memory()
    visiting(stub, storage).decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    stub.feedback = trouble
    client = visiting(stub, storage, sending=rule)
    with warned(NOT_TAKEN):
        assert client.flush() == 0
    stub.feedback = Answer(200)
    with client:
        for _ in range(40):
            stub.clock.forward(60 * 60)
            client._background.wake()
            assert client.flush() == 0
    assert len(stub.reports) == 1
    with visiting(stub, storage) as again:
        until(lambda: again.next_due is None or None)
    assert len(stub.reports) == 2


def test_a_start_asks_a_service_that_is_silent_once(stub: Stub) -> None:
    """Attempts that time out one after the other would tell how long somebody stayed."""
    storage = Memory()
    for _ in range(5):
        visiting(stub, storage).decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    client = visiting(stub, storage)
    stub.feedback = None
    with warned(NOT_TAKEN):
        client.flush()
    stub.feedback = Answer(503)
    client.flush()
    assert len(stub.reports) == 1
    client = visiting(stub, storage)
    with warned(NOT_TAKEN):
        client.flush()
    client.flush()
    assert len(stub.reports) == 6, "a refusal holds up no other"


def test_consent_that_comes_later_lets_the_one_attempt_be_made(stub: Stub) -> None:
    storage, given = Memory(), False
    visiting(stub, storage).decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    client = visiting(stub, storage, consent=lambda: given)
    assert client.flush() == 0
    given = True
    assert client.flush() == 1


@pytest.mark.parametrize("made", ["next-visit", "when-due"])
@pytest.mark.parametrize("sends", ["next-visit", "when-due"])
def test_a_report_leaves_by_the_rule_that_it_was_made_under(
    stub: Stub, made: Any, sends: Any
) -> None:
    storage = Memory()
    other = visiting(stub, storage, sending=sends)
    visiting(stub, storage, sending=made).decide("button")
    stub.clock.forward(WINDOW + SPREAD)
    assert other.flush() == (made == "when-due")
    assert visiting(stub, storage, sending=sends).flush() == (made == "next-visit")


@pytest.mark.parametrize("change", [{}, {"sending": "soon"}, {"sending": None, "more": [1]}])
def test_a_report_without_a_rule_that_is_known_leaves_at_a_start(
    stub: Stub, change: dict[str, Any]
) -> None:
    storage = Memory()
    client = client_of(stub, storage=storage)
    storage.set("whitelie.report.0", json.dumps(stored_report(stub) | change))
    stub.clock.forward(WINDOW)
    assert client.flush() == 0
    assert client_of(stub, storage=storage).flush() == 1


def test_an_immediate_client_makes_no_report_of_another_rule_leave(stub: Stub) -> None:
    storage = Memory()
    visiting(stub, storage).decide("button", sticky=True)
    with warned("reveals the outcome"):
        client = visiting(stub, storage, immediate=True)
    client.decide("button", sticky=True).reward(1)
    assert client.flush() == 0
    assert visiting(stub, storage).flush() == 0
    assert not stub.reports


def test_a_clock_that_jumps_lets_nothing_out_in_its_own_visit(stub: Stub) -> None:
    storage = Memory()
    client = visiting(stub, storage)
    stub.clock.forward(-DAY)
    client.decide("button")
    stub.clock.forward(2 * DAY)
    with warned("due for a day and waits for the next start"):
        assert client.flush() == 0
    assert visiting(stub, storage).flush() == 1


def test_a_program_that_keeps_running_is_warned_once(stub: Stub) -> None:
    client = visiting(stub, Memory())
    client.decide("button")
    stub.clock.forward(WINDOW + DAY)
    client.flush()
    stub.clock.forward(SPREAD + 2)
    with warned('say sending="when-due"'):
        client.flush()
    client.flush()


def test_next_visit_with_storage_in_memory_warns(stub: Stub) -> None:
    with warned("memory ends with this client: give a storage"):
        Client(stub, KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Client(stub, KEY, sending="when-due")
        visiting(stub, Memory())


def test_immediate_does_not_wait_for_the_next_visit(stub: Stub) -> None:
    with warned("reveals the outcome"):
        client = visiting(stub, Memory(), immediate=True)
    client.decide("button").reward(1)
    assert client.flush() == 1


@OUTCOMES
def test_nothing_leaves_until_everybody_has_seen_the_last_reward(stub: Stub, outcome: int) -> None:
    client = client_of(stub, random_bits_for_tests_only=chosen(time=0))  # due at once
    choice = client.decide("button")
    stub.clock.forward(WINDOW)
    choice.reward(outcome)
    stub.clock.forward(0.999)
    assert client.flush() == 0
    stub.clock.forward(0.001)
    assert client.flush() == 1


# In process --------------------------------------------------------------------------------------


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """An application that knows no lifespan, and echoes."""
    assert scope["type"] == "http"
    message = await receive()
    assert (await receive())["type"] == "http.disconnect"
    if message["body"] == b"fail":
        raise RuntimeError
    headers = [(b"Retry-After", b"7")]
    await send({"type": "http.response.start", "status": 418, "headers": headers})
    for part in (scope["path"].encode(), message["body"]):
        await send({"type": "http.response.body", "body": part, "more_body": True})


def test_an_application_without_lifespan() -> None:
    with InProcess(plain) as server:
        assert server.post("/a%20b", b"!", {}, 5) == Answer(418, b"/a b!", 7)
        with pytest.raises(NoAnswer):
            server.post("/", b"fail", {}, 5)


def test_an_application_that_never_answers() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await asyncio.sleep(3600)

    with InProcess(silent) as server, pytest.raises(NoAnswer):
        server.post("/", b"", {}, 0.05)


def test_an_application_that_fails_to_start() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="failed at startup: no"):
        InProcess(failing)
    assert threading.active_count() == before


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("server", wrong)
            for wrong in ("", "shop.example", "ftp://a", "http://", "http://a?b", 7)
        ),
        *(("server", wrong) for wrong in ("http://a:b", "http://u:p@a", None)),
        *(("key", wrong) for wrong in ("", 7, "a\nb", "ü", None)),
        *(("max_epsilon", wrong) for wrong in (0, -1, math.inf, math.nan, "1", None, True)),
        *(("min_spread", wrong) for wrong in (-1, "a", None)),
        *(("timeout", wrong) for wrong in (0, math.inf, "a")),
        *(("cap", wrong) for wrong in (10, None, {"epsilon": 1})),
        *(("consent", wrong) for wrong in ("yes", None, 1)),
        *(("sending", wrong) for wrong in ("", "now", None, True, "when_due")),
        *(("immediate", wrong) for wrong in ("no", None, 1)),
    ],
)
def test_wrong_settings_are_refused(field: str, value: Any) -> None:
    given = {"server": "http://a.example", "key": KEY} | {field: value}
    with pytest.raises(InvalidInput) as refused:
        Client(**given)
    assert refused.value.field == field


def test_wrong_arguments_are_refused(stub: Stub) -> None:
    client = client_of(stub)
    wrong: Any
    for wrong in ("", None, 7, b"a", "a\n"):
        with pytest.raises(InvalidInput, match="experiment"):
            client.decide(wrong)
        with pytest.raises(InvalidInput, match="experiment"):
            client.reward(wrong)
    for wrong in ("", 7):
        with pytest.raises(InvalidInput, match="force"):
            client.decide("button", force=wrong)
    for wrong in ("plain", {"arm": "plain"}):
        with pytest.raises(InvalidInput, match="fallback"):
            client.decide("button", fallback=wrong)
    assert not stub.requests
    choice = client.decide("button")
    for wrong in (2, -1, 0.5, "1", None):
        with pytest.raises(InvalidInput, match="not shown"):
            choice.reward(wrong)
        with pytest.raises(InvalidInput, match="not shown"):
            client.reward("button", wrong)
    for wrong in ((-1, 1), (math.nan, 1), ("a", 1), (1, 0), (1, math.inf)):
        with pytest.raises(InvalidInput, match="cap"):
            Cap(*wrong)


def test_a_client_shows_no_key(stub: Stub) -> None:
    assert KEY not in repr(client_of(stub))
    assert repr(Choice("a")) == "Choice(arm='a', payload=None)"
    assert HTTP("HTTPS://a.example:8443/x/").address == "HTTPS://a.example:8443/x"
