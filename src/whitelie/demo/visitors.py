"""Simulated visitors, in a process of their own: `python -m whitelie.demo.visitors`.

Each is a person with a device: a `whitelie.client.Client` with its own storage, ledger and coin,
which asks the service over HTTP, waits, and reports. People click with true probabilities, which
the service does not know. The process ends when its standard input does.
"""

import heapq
import http.client
import json
import queue
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

from whitelie.client import Answer, Choice, Client, NoAnswer, WhitelieWarning

THREADS = 24
MAX_QUEUED_ACTIONS = 4 * THREADS
"""Actions that may wait for a thread before no further visitors come (backpressure)."""

TICK_SECONDS = 0.005
PRINT_INTERVAL_SECONDS = 0.2
REQUEST_TIMEOUT_SECONDS = 10.0
MAX_IDLE_SECONDS = 2.0
"""A keep-alive connection that was idle for longer is not used again: it may have been closed."""

Action = Callable[[], None]


class World(NamedTuple):
    """Where the service is, and how often people click."""

    server: str
    key: str
    experiment: str
    window: int
    spread: int
    rates: dict[str, float]


@dataclass
class Truth:
    """What really happened. Only the sums leave this process, for the page.

    `lies` are reports that differ from the truth, `leaks` are requests that a click has caused.
    """

    shown: dict[str, int]
    clicks: dict[str, int]
    reports: int = 0
    lies: int = 0
    leaks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> str:
        """Return it as JSON."""
        with self.lock:
            return json.dumps(
                {
                    "shown": self.shown,
                    "clicks": self.clicks,
                    "reports": self.reports,
                    "lies": self.lies,
                    "leaks": self.leaks,
                }
            )


class KeepAliveTransport:
    """Sends requests over keep-alive connections, one for each thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        parts = urlsplit(address)
        self._place = parts.hostname or "", parts.port
        self._local = threading.local()

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Return the answer, or raise `NoAnswer`."""
        connection = self._connection(timeout)
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer from error
        self._local.used = time.monotonic()
        return Answer(answer.status, content)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is None:
            known = http.client.HTTPConnection(*self._place, timeout=timeout)
            self._local.connection = known
        elif time.monotonic() - self._local.used > MAX_IDLE_SECONDS:
            known.close()  # the next request opens it again
        self._local.used = time.monotonic()
        return known


class RecordingTransport:
    """A visitor's transport; it records how many requests, and which bit, were sent."""

    def __init__(self, transport: KeepAliveTransport) -> None:
        self.address = transport.address
        self.requests = 0
        self.sent: int | None = None
        self._transport = transport

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Return the answer, or raise `NoAnswer`."""
        self.requests += 1
        answer = self._transport.post(path, body, headers, timeout)
        if path == "/v1/feedback":
            self.sent = json.loads(body)["bit"]
        return answer


class Crowd:
    """Lets visitors come at a pace, and runs every action at its time."""

    def __init__(self, world: World, people: random.Random) -> None:
        self.world = world
        self.people = people
        self.pace = 0.0
        self.is_ending = False
        none = dict.fromkeys(world.rates, 0)
        self.truth = Truth(dict(none), dict(none))
        self.transport = KeepAliveTransport(world.server)
        self._later: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._now: queue.SimpleQueue[Action] = queue.SimpleQueue()

    def at(self, time: float, action: Action) -> None:
        """Run an action at a time of the clock."""
        with self._lock:
            heapq.heappush(self._later, (time, next(self._numbers), action))

    def run(self) -> None:
        """Run until `is_ending`."""
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        last = time.time()
        arriving, printed = 0.0, 0.0
        while not self.is_ending:
            now = time.time()
            arriving = min(arriving + self.pace * max(now - last, 0.0), self.pace / 5 + 1)
            last = now
            while arriving >= 1 and self._now.qsize() < MAX_QUEUED_ACTIONS:
                arriving -= 1
                self._now.put(Visitor(self).arrive)
            for action in self._due(now):
                self._now.put(action)
            if abs(now - printed) > PRINT_INTERVAL_SECONDS:
                printed = now
                print(self.truth.text(), flush=True)
            time.sleep(TICK_SECONDS)

    def _due(self, now: float) -> list[Action]:
        due = []
        with self._lock:
            while self._later and self._later[0][0] <= now:
                due.append(heapq.heappop(self._later)[2])
        return due

    def _work(self) -> None:
        while True:
            self._now.get()()


class Visitor:
    """A person and a device."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport = RecordingTransport(crowd.transport)
        self._device = Client(
            self._transport,
            crowd.world.key,
            min_spread=crowd.world.spread,
            timeout=REQUEST_TIMEOUT_SECONDS,
            # This program runs whether anybody has clicked or not, and nobody would wait for
            # visitors of a demonstration to come back.
            sending="when-due",
        )
        self._choice = Choice(None)
        self._has_clicked = False

    def arrive(self) -> None:
        """Look at the shop, and decide whether and when to click."""
        world, truth, people = self._crowd.world, self._crowd.truth, self._crowd.people
        now = time.time()
        self._choice = self._device.decide(world.experiment)
        arm = self._choice.arm
        if arm is None:
            return
        with truth.lock:
            truth.shown[arm] += 1
            likes = people.random() < world.rates[arm]
            click_time = now + world.window * people.uniform(0.1, 0.9)
        if likes:
            self._crowd.at(click_time, self.click)
        self._report_when_due()

    def click(self) -> None:
        """Click: the device stores it, and sends nothing."""
        self._has_clicked = True
        before = self._transport.requests
        self._choice.reward(1)
        truth = self._crowd.truth
        with truth.lock:
            truth.leaks += self._transport.requests - before
            truth.clicks[self._choice.arm or ""] += 1

    def report(self) -> None:
        """Send the flipped bit, which is due."""
        if self._device.flush():
            truth = self._crowd.truth
            with truth.lock:
                truth.reports += 1
                truth.lies += self._transport.sent != int(self._has_clicked)
        self._report_when_due()

    def _report_when_due(self) -> None:
        due = self._device.next_due
        if due is not None:
            self._crowd.at(due, self.report)


def _listen(crowd: Crowd) -> None:
    for line in sys.stdin:
        crowd.pace = float(line)
    crowd.is_ending = True


def main() -> None:
    """Read where the service is, then paces, and print the true sums several times a second."""
    warnings.simplefilter("ignore", WhitelieWarning)  # a visitor without an answer leaves
    crowd = Crowd(World(**json.loads(sys.stdin.readline())), random.Random())
    threading.Thread(target=_listen, args=(crowd,), daemon=True).start()
    with suppress(BrokenPipeError):
        crowd.run()


if __name__ == "__main__":
    main()
