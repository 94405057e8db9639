"""Servers in processes of their own, visitors on loopback, and a ledger of what they were told."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast

import msgspec
import uvloop

from whitelie.service import wire
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.store.contract import Counts, Decision, Store
from whitelie.service.store.sqlite.store import SQLiteStore

HOST = "127.0.0.1"
ADMIN_KEY = "ak_tests_only_9f8e7d6c5b4a39281706f5e4"
SECRET = "tests only: 0f1e2d3c4b5a69788796a5b4"
HANG_TIMEOUT_SECONDS = 120.0
"""Seconds after which a test gives up: a first start may compile; nothing is said about speed."""

LEAST_ROUNDS = 3
"""So often a visitor decides and reports, however slow the machine is."""

PAUSE = 0.05
"""Seconds before a visitor tries again."""

Value = TypeVar("Value")

_DECISIONS = msgspec.json.Decoder(wire.Decisions)
_ITEMS = msgspec.json.Decoder(wire.Items)


class Server:
    """`whitelie serve` on a store, from start until `stop` or `kill`; its log is a file.

    The store is given by its address; a path is that of a SQLite file.
    `environment` is added to this process's; None removes a variable.
    """

    def __init__(
        self,
        store: Path | str,
        log: Path,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        stdout: int = subprocess.DEVNULL,
    ) -> None:
        self.log = log
        said = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                command(store, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stream,
                env=variables(environment or {}),
            )
        self._said = said
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port, which the log says as soon as the server listens."""
        if self._port is None:
            serving = until(self._serving)
            self._port = int(serving["address"].rpartition(":")[2])
        return self._port

    def ready(self) -> Self:
        """Wait until requests are served; end the process if they never are."""
        try:
            until(lambda: self.ask("GET", "/readyz").status == 200)
        except BaseException:
            self.kill()
            raise
        return self

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> "Answer":
        """Send one request on a connection of its own, with the admin key."""
        headers.setdefault("Authorization", f"Bearer {ADMIN_KEY}")
        text = message(method, path, body, headers)

        port = self.port

        async def asked() -> Answer:
            connection = await Connection.opened(port)
            try:
                return await connection.ask(text)
            finally:
                connection.close()

        return run(asked(), HANG_TIMEOUT_SECONDS / 2)

    def create(self, **fields: Any) -> str:
        """Create an experiment and return its id."""
        body = {
            "name": "Process",
            "arms": [{"key": "a"}, {"key": "b"}, {"key": "c"}],
            "epsilon": 1.0,
            "window": 0,
            "spread": 0,
        }
        if any("p00" in arm for arm in fields.get("arms", ())):
            del body["epsilon"]
        answer = self.ask("POST", "/v1/experiments", body | fields)
        assert answer.status == 201, answer
        return str(msgspec.json.decode(answer.body)["id"])

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.process.kill()
        self.process.wait(HANG_TIMEOUT_SECONDS)

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def _serving(self) -> dict[str, Any] | None:
        said = self.log.read_bytes()[self._said :].decode()
        for line in said.splitlines(keepends=True):
            if '"event":"serving"' in line and line.endswith("\n"):
                event: dict[str, Any] = json.loads(line)
                return event
        assert self.process.poll() is None, f"the server has ended: {said}"
        return None


def command(store: Path | str, *arguments: str) -> list[str]:
    """Return the command that serves a store; the port is free unless the arguments give one."""
    port = () if "--port" in arguments else ("--port", "0")
    address = f"sqlite:///{store}" if isinstance(store, Path) else store
    return [sys.executable, "-m", "whitelie", "serve", "--store", address, *port, *arguments]


def variables(changed: Mapping[str, str | None]) -> dict[str, str]:
    """Return an environment with the tests' key and secret, and with these changes."""
    known = {**os.environ, "WHITELIE_ADMIN_KEY": ADMIN_KEY, "WHITELIE_SECRET": SECRET, **changed}
    return {name: value for name, value in known.items() if value is not None}


def refusal(store: Path | str, *arguments: str, **environment: str | None) -> str:
    """Return the one line with which a server refuses to start."""
    done = subprocess.run(
        command(store, *arguments),
        env=variables(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode > 0, done
    assert not done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def until(condition: Callable[[], Value | None]) -> Value:
    """Return what a condition returns, as soon as it is true."""
    end = time.monotonic() + HANG_TIMEOUT_SECONDS
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"the condition was not true within {HANG_TIMEOUT_SECONDS} seconds")


# Visitors ---------------------------------------------------------------------------------------


def run(work: Awaitable[Value], patience: float = 3 * HANG_TIMEOUT_SECONDS) -> Value:
    """Run a coroutine on a fast event loop."""

    async def waited() -> Value:
        async with asyncio.timeout(patience):
            return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(waited())


def message(method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> bytes:
    """Return an HTTP request; bytes are sent as they are, all else as JSON."""
    if isinstance(body, bytes):
        content = body
    else:
        content = b"" if body is None else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Answer(NamedTuple):
    """What the server says; `head` is in lower case."""

    status: int
    head: bytes
    body: bytes


class Connection(asyncio.Protocol):
    """A connection that is kept alive; a lost one raises ConnectionError where it is awaited."""

    def __init__(self) -> None:
        self._read = b""
        self._waiting: asyncio.Future[Answer] | None = None
        self._is_lost = False

    @classmethod
    async def opened(cls, port: int) -> Self:
        """Connect."""
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, HOST, port))[1]

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        if self._is_lost:
            raise ConnectionResetError
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, rest = self._read.partition(b"\r\n\r\n")
        if not end:
            return
        head = head.lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(rest) >= length and self._waiting and not self._waiting.done():
            self._read = rest[length:]
            self._waiting.set_result(Answer(int(head[9:12]), head, rest[:length]))


class Refused(Exception):
    """The server has refused a request, and says that nothing was changed."""


class Visitor(Connection):
    """Asks for decisions and reports on them."""

    async def decide(
        self, experiment: str, count: int = 1, headers: Mapping[str, str] | None = None
    ) -> list[wire.Decision]:
        """Return decisions."""
        path = f"/v1/experiments/{experiment}/decisions"
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"} if headers is None else headers
        answer = await self.ask(message("POST", path, {"count": count}, headers))
        if answer.status != 200:
            raise Refused(answer)
        return _DECISIONS.decode(answer.body).decisions

    async def report(
        self, reports: Sequence[tuple[str, int]], headers: Mapping[str, str] = {}
    ) -> list[str]:
        """Return what became of reports, given as tokens and bits."""
        items = [{"token": token, "bit": bit} for token, bit in reports]
        body = items[0] if len(items) == 1 else {"items": items}
        answer = await self.ask(message("POST", "/v1/feedback", body, headers))
        if answer.status != 200:
            raise Refused(answer)
        return [item.status for item in _ITEMS.decode(answer.body).items]


async def together(
    ports: int | Sequence[int],
    work: Iterable[Callable[[Visitor], Awaitable[None]]],
    end: float | None = None,
) -> None:
    """Let visitors work at the same time, each on a connection; the ports take turns.

    A lost connection ends its visitor. If there is an `end` on the monotonic clock, then whoever
    lost a connection, or found nobody at a port, begins anew until then: at the port that is now in
    their place of `ports`, so a list may follow a server that moves.
    """
    places = [ports] if isinstance(ports, int) else ports

    async def visit(place: int, one: Callable[[Visitor], Awaitable[None]]) -> None:
        while True:
            try:
                visitor = await Visitor.opened(places[place % len(places)])
            except ConnectionError:
                if end is None:
                    raise
            else:
                try:
                    return await one(visitor)
                except ConnectionError:
                    pass
                finally:
                    visitor.close()
            if end is None or time.monotonic() > end:
                return None
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*(visit(place, one) for place, one in enumerate(work)))


@dataclass
class Redeemed:
    """What became of tokens that many clients report, each of them all of it."""

    outcomes: Counter[str] = field(default_factory=Counter)
    accepted: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    def by(self, tokens: Sequence[str], size: int) -> Callable[[Visitor], Awaitable[None]]:
        """Return a client who reports tokens in any order, so many at once; of many one twice."""

        async def redeem(visitor: Visitor) -> None:
            for some in _pieces(random.sample(tokens, len(tokens)), size):
                reports = [(token, random.getrandbits(1)) for token in some]
                reports += reports[:1] if size > 2 else []
                statuses = await visitor.report(reports)
                self.sent += len(reports)
                self.outcomes.update(statuses)
                pairs = zip(reports, statuses, strict=True)
                self.accepted.update(report for report, status in pairs if status == "accepted")

        return redeem

    def check(self, tokens: int) -> None:
        """Of all who reported a token, one was told that it counts."""
        assert self.outcomes == {"accepted": tokens, "duplicate": self.sent - tokens}
        assert len(self.accepted) == tokens


# The ledger -------------------------------------------------------------------------------------


@dataclass
class Ledger:
    """What visitors of one experiment know.

    `issued` are tokens that have arrived, `asked` counts decisions whose answer never came;
    `accepted`, `unknown` and `refused` are reports by token, with their bits: answered by 200, sent
    without an answer or answered by 500, answered by 503. A report that is sent anew because it is
    unknown stays so if it is then refused. `surprises` are answers that may not be.
    """

    issued: list[str] = field(default_factory=list)
    asked: int = 0
    accepted: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    refusals: list[Answer] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    async def decide(self, visitor: Visitor, experiment: str, count: int) -> list[str]:
        """Ask for decisions, and write down their tokens."""
        self.asked += count
        try:
            decisions = await visitor.decide(experiment, count)
        except Refused as refused:
            self.refusals.append(refused.args[0])
            if refused.args[0].status == 500:
                return []
            decisions = []
        self.asked -= count
        tokens = [decision.token for decision in decisions]
        self.issued += tokens
        return tokens

    async def report(self, visitor: Visitor, reports: Sequence[tuple[str, int]]) -> None:
        """Report for the first time, or anew what was refused or is unknown."""
        anew = self.unknown.keys() & {token for token, _ in reports}
        self.unknown.update(reports)
        try:
            statuses = await visitor.report(reports)
        except Refused as refused:
            self.refusals.append(refused.args[0])
            if refused.args[0].status == 500:
                return
            settled = [report for report in reports if report[0] not in anew]
            self.refused.update(settled)
        else:
            settled = list(reports)
            for (token, bit), status in zip(reports, statuses, strict=True):
                if status != "accepted" and not (status == "duplicate" and token in anew):
                    self.surprises.append(f"a report was {status}")
                self.refused.pop(token, None)
                self.accepted[token] = bit
        for token, _ in settled:
            del self.unknown[token]

    async def repeat(self, visitor: Visitor, tokens: Sequence[str]) -> None:
        """Report again what was accepted, with the other bit: it must not count."""
        statuses = await visitor.report([(token, 1 - self.accepted[token]) for token in tokens])
        for status in statuses:
            if status != "duplicate":
                self.surprises.append(f"a report that was accepted before is now {status}")

    async def load(
        self,
        ports: int | Sequence[int],
        experiment: str,
        visitors: int,
        seconds: float,
        again: bool = False,
    ) -> None:
        """Decide and report on many connections, until time is up or the server is gone.

        Time is up for a visitor who has had some rounds. If `again`, visitors whose server is gone
        come back, until time is up.
        """
        end = time.monotonic() + seconds

        async def one(visitor: Visitor) -> None:
            draw, rounds = random.Random(), 0
            while time.monotonic() < end or rounds < LEAST_ROUNDS:
                rounds += 1
                tokens = await self.decide(visitor, experiment, draw.randint(1, 6))
                reports = [(token, draw.getrandbits(1)) for token in tokens if draw.random() < 0.9]
                if reports:
                    await self.report(visitor, reports)
                if reports and draw.random() < 0.1 and reports[0][0] in self.accepted:
                    try:
                        await self.repeat(visitor, [reports[0][0]])
                    except Refused as refused:
                        self.refusals.append(refused.args[0])
                if self.refusals:
                    await asyncio.sleep(0.05)

        await together(ports, [one] * visitors, end if again else None)

    async def settle(self, ports: int | Sequence[int]) -> None:
        """Repeat all that was accepted; report anew what is unknown or was refused."""
        repeats = _pieces(list(self.accepted), 500)
        pieces = _pieces(list((self.unknown | self.refused).items()), 500)
        places = 1 if isinstance(ports, int) else len(ports)

        def share(place: int) -> Callable[[Visitor], Awaitable[None]]:
            async def one(visitor: Visitor) -> None:
                for tokens in repeats[place::places]:
                    await self.repeat(visitor, tokens)
                for reports in pieces[place::places]:
                    await self.report(visitor, reports)

            return one

        await together(ports, map(share, range(places)))

    def faults(self, store: Path | Callable[[], Store], secret: str = SECRET) -> list[str]:
        """Return in what a store, an SQLite file or what opens it, contradicts visitors."""
        cipher = TokenCipher([secret.encode()])
        told = {token: cipher.open(token) for token in self.issued}
        names = Counter(_name(decision) for decision in map(told.get, self.issued))
        faults = [f"{name} was issued {times} times" for name, times in names.items() if times > 1]
        with closing(SQLiteStore(store) if isinstance(store, Path) else store()) as opened:
            totals = opened.totals(1)
            spent = opened.spent_bits()
        issued = Counter(_arm(told[token]) for token in self.issued)
        known, perhaps = _sums(told, self.accepted), _sums(told, self.unknown)
        for arm in issued.keys() | totals.keys():
            counts = totals.get(arm, Counts())
            if not counts.ones <= counts.answered <= counts.issued:
                faults.append(f"arm {arm} has {counts}")
            if counts.issued < issued[arm]:
                faults.append(f"arm {arm}: {issued[arm]} issued, {counts.issued} counted")
            for index, column in enumerate(("answered", "ones")):
                least = known[arm, index]
                most = least + perhaps[arm, index]
                if not least <= counts[index + 1] <= most:
                    faults.append(f"arm {arm}: {counts[index + 1]} {column}, told {least}…{most}")
        if sum(counts.issued for counts in totals.values()) > len(self.issued) + self.asked:
            faults.append("more was issued than asked for")
        if spent != sum(counts.answered for counts in totals.values()):
            faults.append(f"{spent} spent bits do not match the answers")
        return faults + self.surprises


def _sums(told: Mapping[str, Decision | None], reports: Mapping[str, int]) -> Counter[Any]:
    """Return how many reports each arm has at index 0, and their sum at index 1."""
    sums: Counter[Any] = Counter()
    for token, bit in reports.items():
        sums[_arm(told[token]), 0] += 1
        sums[_arm(told[token]), 1] += bit
    return sums


def _name(decision: Decision | None) -> tuple[int, int]:
    assert decision is not None
    return decision.epoch, decision.sequence


def _arm(decision: Decision | None) -> int:
    assert decision is not None
    return decision.arm


def _pieces(items: Sequence[Value], size: int) -> list[Sequence[Value]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
