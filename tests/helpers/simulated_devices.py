"""Devices for tests of the Python client: services to talk to, chosen randomness, visits."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

from helpers.client_audit import Record
from helpers.in_process_service import BUTTON, KEYS, SECRET, Clock, keys
from whitelie.channel import RandomizedResponse
from whitelie.client import Answer, Client, InProcess, Memory, NoAnswer, Storage, Transport
from whitelie.service.api.app import build
from whitelie.service.api.hot_path import Service
from whitelie.service.api.limits import Limits
from whitelie.service.engine.engine import Engine
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.store.sqlite.store import SQLiteStore

KEY = KEYS["publishable"]
WINDOW, SPREAD = 600, 60
DAY = 24 * 60 * 60
WEEK = 7 * DAY
ONE = RandomizedResponse.from_epsilon(1)
LARGEST = 2**64 - 1
FLIPS = {"RR(0) = 1, RR(1) = 0": (0, LARGEST), "RR(0) = 0, RR(1) = 1": (LARGEST, 0)}


Make = Callable[["Stub", Storage], Client]
"""Starts the client of a device: a page is loaded, a program begins."""


class Request(NamedTuple):
    """A request that left a client."""

    at: float
    path: str
    body: Any
    headers: Mapping[str, str]

    @property
    def is_report(self) -> bool:
        return self.path == "/v1/feedback"


@dataclass
class Stub:
    """A service of canned answers, which writes down what it is asked; None gives no answer."""

    clock: Clock
    mechanism: dict[str, Any] = field(default_factory=dict)
    decision: Answer | None = field(default_factory=lambda: Answer(200))
    feedback: Answer | None = field(default_factory=lambda: Answer(200))
    address: str = "http://stub.example"
    requests: list[Request] = field(default_factory=list)

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        request = Request(self.clock(), path, json.loads(body), dict(headers))
        self.requests.append(request)
        answer = self.feedback if request.is_report else self.decision
        if answer is None:
            raise NoAnswer
        return self._decided() if answer == Answer(200) and not request.is_report else answer

    def _decided(self) -> Answer:
        token = f"token {len(self.requests)}"
        return Answer(200, json.dumps({"decisions": [decision(token, **self.mechanism)]}).encode())

    @property
    def reports(self) -> list[Request]:
        return [request for request in self.requests if request.is_report]

    @property
    def asked(self) -> int:
        return len(self.requests) - len(self.reports)


def decision(token: str = "token", **mechanism: Any) -> dict[str, Any]:
    """A decision as the service answers it."""
    proposed = {"p00": ONE.p00, "p11": ONE.p11, "window": WINDOW, "spread": SPREAD} | mechanism
    expires = proposed.pop("expires_in", WEEK)
    return {
        "arm": "green",
        "payload": {"colour": "#0a0"},
        "token": token,
        "mechanism": proposed,
        "expires_in": expires,
    }


def chosen(word0: int = 0, word1: int = 0, time: int = 0) -> Callable[[int], int]:
    """Random bits of one's choice: the words of RR(0), of RR(1), and of the time."""
    words, ids = cycle([word0, word1]), count(1)
    return lambda size: {64: lambda: next(words), 32: lambda: time, 96: lambda: next(ids)}[size]()


def client_of(stub: Stub, **changes: Any) -> Client:
    """A client that sends by itself: most rules are the same under both rules of sending."""
    options: dict[str, Any] = {"clock": stub.clock, "sending": "when-due"}
    return Client(stub, KEY, **(options | changes))


@dataclass
class Recorder:
    """Passes requests on to a service, and writes them down."""

    inside: Transport
    clock: Clock
    requests: list[Request] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.inside.address

    @address.setter
    def address(self, _: str) -> None:
        raise AttributeError

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        self.requests.append(Request(self.clock(), path, json.loads(body), dict(headers)))
        return self.inside.post(path, body, headers, timeout)


@dataclass
class Operator:
    """Who runs the real service in this process."""

    server: InProcess
    clock: Clock

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.server.request(
            method, path, data, {"Authorization": f"Bearer {KEYS['admin']}"}, 60
        )
        assert answer.status < 300, answer
        return json.loads(answer.body)

    def create(self, **changes: Any) -> str:
        """Create an experiment and return its id."""
        return str(self.ask("POST", "/v1/experiments", BUTTON | changes)["id"])

    def counts(self, experiment: str) -> tuple[int, int, float]:
        """Return the decisions, the reports, and the share of ones among them."""
        arms = self.ask("GET", f"/v1/experiments/{experiment}/results")["arms"]
        issued = sum(arm["issued"] for arm in arms)
        answered = sum(arm["answered"] for arm in arms)
        ones = sum(arm["answered"] * (arm["raw_rate"] or 0) for arm in arms)
        return issued, answered, ones / max(answered, 1)


@contextmanager
def operating(folder: Path) -> Iterator[Operator]:
    """Serve in process, on an event loop of its own, from a file in the folder."""
    store = SQLiteStore(folder / "whitelie.db")
    for key in keys():
        store.save_key(key)
    clock = Clock()
    engine = Engine(store, lambda: [SECRET], clock=clock)
    with InProcess(build(Service(engine, ExperimentValidator(), Limits(10**6)))) as server:
        yield Operator(server, clock)


def advance(client: Client, clock: Clock, to: float) -> None:
    """Let time pass; the client sends whatever falls due on the way, if its rule is such."""
    client.flush()
    while (due := client.next_due) is not None and clock.now < due <= to:
        clock.now = due
        client.flush()
    clock.now = max(clock.now, to)
    client.flush()


@dataclass(frozen=True)
class People:
    """How people behave: how often they leave the page after a visit, and when they come back.

    Both by reward. `returns` are mean days from when all reports are due.
    """

    leaves: tuple[float, float] = (0.0, 0.0)
    returns: tuple[float, float] = (1.0, 1.0)


def visits(make: Make, number: int, seed: int = 1, people: People | None = None) -> list[Record]:
    """Let visitors come, each with a device of their own; three in ten click within the window.

    Those who do not leave the page stay until their report is due. All come back once.
    """
    people = people or People()
    draw = random.Random(seed)
    clock = Clock()
    stub = Stub(clock)
    rewards = []
    for _ in range(number):
        start, storage = clock(), Memory()
        client = make(stub, storage)
        choice = client.decide("button")
        click = draw.uniform(0, WINDOW / 0.3)
        reward = int(click <= WINDOW)
        if reward:
            advance(client, clock, start + click)
            choice.reward(1)
            client.flush()
        if draw.random() >= people.leaves[reward]:
            advance(client, clock, start + 2 * (WINDOW + SPREAD))
        rewards.append(reward)
        away = draw.expovariate(1 / (DAY * people.returns[reward]))
        clock.now = start + 2 * (WINDOW + SPREAD) + min(away, WEEK / 2)
        make(stub, storage).flush()
    return records(stub, rewards)


def records(stub: Stub, rewards: list[int]) -> list[Record]:
    """Join decisions, in their order, with the reports on them."""
    reports = {request.body["token"]: request for request in stub.reports}
    records = []
    asked = [(place, one) for place, one in enumerate(stub.requests, 1) if not one.is_report]
    for reward, (place, request) in zip(rewards, asked, strict=True):
        report = reports.get(f"token {place}")
        if report is None:
            records.append(Record(request.at, None, reward, None))
        else:
            records.append(Record(request.at, report.at, reward, report.body["bit"]))
    return records


class OnlyClicks(Client):
    """Sabotage: reports only what was clicked."""

    def _reward(self, key: str) -> None:
        super()._reward(key)
        self._storage.set("clicked", "yes")

    def flush(self) -> int:
        return super().flush() if self._storage.keys_of("clicked") else 0
