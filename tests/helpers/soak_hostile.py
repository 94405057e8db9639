"""Hostile visitors of a soak: each kind from addresses of its own, bounded in count and rate.

They may be refused, cut off or left waiting as the service likes. What may not be is that a token
counts that was not issued, or counts twice.
"""

import asyncio
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from helpers.service_process import HOST, Answer, Refused, message
from helpers.soak_caller import Caller, Job
from helpers.soak_record import Heard
from whitelie.service.api.static_files import plotly_path
from whitelie.service.engine.tokens import TOKEN_LENGTH

ANSWER_TIMEOUT_SECONDS = 5.0
"""Seconds that an attacker waits for an answer."""

HOLD = 60.0
"""Seconds after which an attacker who was not cut off tries again."""

STAY = 10
"""Seconds below which attackers stay after an answer."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
RESET = struct.pack("ii", 1, 0)
"""The SO_LINGER under which a closed connection is reset."""

WRONG_BODIES = (
    b"",
    b"{",
    b"[" * 100_000,
    b'{"token": 1, "bit": 0}',
    b'{"token": "x", "bit": 2}',
    b'{"items": []}',
    b"\xff\xfe" * 1000,
    b" " * (2 << 20),
)


class Kind(NamedTuple):
    """An attack: how many do it at a time, and for how many seconds each rests in between."""

    attack: Callable[["Hostile", str], Awaitable[str]]
    at_once: int
    pause: float


class Hostile:
    """Everybody who means harm."""

    def __init__(self, job: Job, heard: Heard) -> None:
        self._job = job
        self._heard = heard

    def work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what is to be done at the same time."""
        addresses = (f"127.0.{9 + place // 250}.{1 + place % 250}" for place in count())
        for name, kind in KINDS.items():
            shared = next(addresses)
            for each in range(kind.at_once):
                if each % 50 == 49:
                    shared = next(addresses)
                yield self._repeat(name, kind, shared, is_first=not each)

    async def _repeat(self, name: str, kind: Kind, address: str, *, is_first: bool) -> None:
        """Attack until time is up; the first of a kind does so at least once."""
        if not is_first:
            await asyncio.sleep(random.random() * min(kind.pause, 1))
        while is_first or not self._job.is_over:
            is_first = False
            outcome = "held"  # if time is up first
            try:
                outcome = await kind.attack(self, address)
            except ConnectionRefusedError:
                outcome = "not connected"
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                outcome = "cut"
            finally:
                self._heard.count(name, outcome)
            await asyncio.sleep(max(random.uniform(0.5, 1.5) * kind.pause, 0.05))

    # Bytes

    async def _drip(
        self, address: str, first: bytes, piece: bytes = b"", pause: float = 1.0, hold: float = HOLD
    ) -> str:
        """Send a beginning, then a piece at every pause, until an answer comes or time is up."""
        outcome = "held"
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(
                HOST, self._job.port, local_addr=(address, 0)
            )
        try:
            _send(writer, first)
            for _ in range(int(hold / pause)):
                try:
                    async with asyncio.timeout(pause):
                        await writer.drain()
                        outcome = self._outcome(await reader.readuntil(b"\r\n\r\n"))
                        break
                except TimeoutError:
                    if self._job.is_over:
                        break
                    if piece and not writer.transport.get_write_buffer_size():
                        _send(writer, piece)
            await self._stay(reader, 0 if outcome == "held" else random.randrange(STAY))
            return outcome
        finally:
            writer.transport.abort()

    async def _stay(self, reader: asyncio.StreamReader, seconds: int) -> None:
        """Keep a connection open after its answer, for so long or until it is cut off."""
        for _ in range(seconds):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await reader.read()
                return
            if self._job.is_over:
                return

    def _outcome(self, head: bytes) -> str:
        """Return the status of an answer, and write down a failure of the service."""
        answer = Answer(int(head[9:12]), head.lower().removesuffix(b"\r\n\r\n"), b"")
        self._heard.note_error("attacker", answer)
        return str(answer.status)

    async def slow_headers(self, address: str) -> str:
        return await self._drip(address, b"GET / HTTP/1.1\r\nHost: a\r\n", b"X-Slow: 1\r\n")

    async def slow_body(self, address: str) -> str:
        return await self._drip(address, _post("Content-Length: 10000"), b" ")

    async def endless_body(self, address: str) -> str:
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        return await self._drip(address, _post("Transfer-Encoding: chunked"), chunk, 0.05)

    async def endless_small_chunks(self, address: str) -> str:
        return await self._drip(
            address, _post("Transfer-Encoding: chunked"), b"1\r\n \r\n" * 10, 0.5
        )

    async def idle(self, address: str) -> str:
        return await self._drip(address, b"", pause=HOLD / 4)

    async def idle_after_an_answer(self, address: str) -> str:
        caller = await self._call(address)
        try:
            answer = await caller.ask(message("GET", "/healthz"))
            for _ in range(int(HOLD)):
                if self._job.is_over or caller.is_gone:
                    return "cut" if caller.is_gone else "held"
                await asyncio.sleep(1)
            return str(answer.status)
        finally:
            caller.close()

    async def header_flood(self, address: str) -> str:
        lines = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(64))
        flood = lines * (self._job.flood // len(lines))
        return await self._drip(address, b"GET / HTTP/1.1\r\n" + flood + b"\r\n", hold=10)

    async def one_long_header(self, address: str) -> str:
        flood = b"X-Long: " + b"a" * self._job.flood
        return await self._drip(address, b"GET / HTTP/1.1\r\n" + flood, hold=10)

    async def long_url(self, address: str) -> str:
        return await self._drip(address, b"GET /" + b"a" * (1 << 20), hold=10)

    async def garbage(self, address: str) -> str:
        return await self._drip(
            address, os.urandom(random.randint(1, 5000)), hold=ANSWER_TIMEOUT_SECONDS
        )

    async def wrong_body(self, address: str) -> str:
        body = random.choice(WRONG_BODIES)
        path = random.choice(["/v1/feedback", self._decisions])
        return await self._drip(address, message("POST", path, body), hold=ANSWER_TIMEOUT_SECONDS)

    async def churn(self, address: str) -> str:
        """Connect and be gone, some in the middle of a request, some by a reset."""
        _, writer = await asyncio.open_connection(HOST, self._job.port, local_addr=(address, 0))
        try:
            if random.random() < 0.5:
                body = {"token": "a" * TOKEN_LENGTH, "bit": 1}
                _send(writer, message("POST", "/v1/feedback", body)[: random.randint(1, 150)])
                await writer.drain()
            if random.random() < 0.5:
                known: socket.socket = writer.get_extra_info("socket")
                known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        finally:
            writer.transport.abort()
        return "left"

    async def not_reading(self, address: str) -> str:
        """Ask for the largest page again and again, uncompressed, and read nothing."""
        asked = message("GET", str(plotly_path()))
        with socket.socket() as deaf:
            deaf.setblocking(False)
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.bind((address, 0))
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                await loop.sock_connect(deaf, (HOST, self._job.port))
                await loop.sock_sendall(deaf, asked * 5)
            for _ in range(int(HOLD)):
                await asyncio.sleep(1)
                if deaf.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    return "cut"
                if self._job.is_over:
                    break
            return "held"

    # Tokens

    async def _call(self, address: str) -> Caller:
        return await Caller.from_address(address, self._job, self._heard, "attacker")

    @property
    def _decisions(self) -> str:
        return f"/v1/experiments/{self._job.experiment}/decisions"

    async def _with_token(self, address: str, use: Callable[[Caller, str], Awaitable[str]]) -> str:
        caller = await self._call(address)
        try:
            tokens = await self._heard.ledger.decide(caller, self._job.experiment, 1)
            return await use(caller, tokens[0]) if tokens else "no token"
        except Refused as refused:
            return str(refused.args[0].status)
        finally:
            caller.close()

    async def _must_be_invalid(self, caller: Caller, tokens: list[str]) -> str:
        """Report made-up tokens, alone or together, none of which may count."""
        try:
            statuses = await caller.report([(token, 1) for token in tokens])
        except Refused as refused:
            return str(refused.args[0].status)
        for status in statuses:
            if status != "invalid":
                self._heard.ledger.surprises.append(f"a made-up token was {status}")
        return "invalid"

    async def forged_token(self, address: str) -> str:
        caller = await self._call(address)
        try:
            tokens = [_random_token() for _ in range(random.choice([1, 2, 50]))]
            return await self._must_be_invalid(caller, tokens)
        finally:
            caller.close()

    async def mutated_token(self, address: str) -> str:
        async def mutate(caller: Caller, token: str) -> str:
            mutants = [_mutant(token) for _ in range(20)]
            return await self._must_be_invalid(caller, mutants)

        return await self._with_token(address, mutate)

    async def replayed_token(self, address: str) -> str:
        """Report once, then with the other bit."""

        async def replay(caller: Caller, token: str) -> str:
            ledger = self._heard.ledger
            await ledger.report(caller, [(token, random.getrandbits(1))])
            if token not in ledger.accepted:
                return "not accepted"
            for _ in range(5):
                await ledger.repeat(caller, [token] * random.randint(1, 20))
            return "duplicate"

        return await self._with_token(address, replay)

    async def raced_token(self, address: str) -> str:
        """Report the same on several connections at once: one of them is accepted."""

        async def race(caller: Caller, token: str) -> str:
            ledger, bit = self._heard.ledger, random.getrandbits(1)
            callers = [caller]
            try:
                for _ in range(3):
                    callers.append(await self._call(address))
                ledger.unknown[token] = bit
                reporting = (each.report([(token, bit)]) for each in callers)
                told = await asyncio.gather(*reporting, return_exceptions=True)
            finally:
                for each in callers:
                    each.close()
            statuses = [each[0] for each in told if isinstance(each, list)]
            is_known = len(statuses) == len(callers)
            if statuses.count("accepted") > 1 or (is_known and "accepted" not in statuses):
                ledger.surprises.append(f"a report on {len(callers)} connections was {statuses}")
            if statuses:
                ledger.accepted[token] = ledger.unknown.pop(token)
            return "accepted once" if is_known else "cut"

        return await self._with_token(address, race)

    async def harvest(self, address: str) -> str:
        """Take a decision and never report."""

        async def keep(caller: Caller, token: str) -> str:
            return "taken"

        return await self._with_token(address, keep)

    async def harvest_in_bursts(self, address: str) -> str:
        """Take as many as there are, beyond every limit."""
        caller = await self._call(address)
        try:
            for _ in range(50):
                if not await self._heard.ledger.decide(caller, self._job.experiment, 1):
                    return "limited"
            return "taken"
        finally:
            caller.close()


KINDS = {
    "idle": Kind(Hostile.idle, 300, 1),
    "idle after an answer": Kind(Hostile.idle_after_an_answer, 100, 1),
    "slow headers": Kind(Hostile.slow_headers, 50, 1),
    "slow body": Kind(Hostile.slow_body, 50, 1),
    "endless body": Kind(Hostile.endless_body, 3, 3),
    "endless small chunks": Kind(Hostile.endless_small_chunks, 10, 1),
    "header flood": Kind(Hostile.header_flood, 1, 5),
    "one long header": Kind(Hostile.one_long_header, 1, 5),
    "long url": Kind(Hostile.long_url, 1, 2),
    "garbage": Kind(Hostile.garbage, 5, 1),
    "wrong body": Kind(Hostile.wrong_body, 5, 1),
    "churn": Kind(Hostile.churn, 5, 0.25),
    "not reading": Kind(Hostile.not_reading, 30, 2),
    "forged token": Kind(Hostile.forged_token, 5, 0.5),
    "mutated token": Kind(Hostile.mutated_token, 3, 2),
    "replayed token": Kind(Hostile.replayed_token, 3, 2),
    "raced token": Kind(Hostile.raced_token, 3, 2),
    "harvest": Kind(Hostile.harvest, 4, 1),
    "harvest in bursts": Kind(Hostile.harvest_in_bursts, 2, 2),
}
"""All attacks."""


def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write; uvloop refuses a connection that was lost just now with a RuntimeError."""
    if writer.transport.is_closing():
        raise ConnectionResetError
    writer.write(data)


def _post(header: str) -> bytes:
    return f"POST /v1/feedback HTTP/1.1\r\nHost: {HOST}\r\n{header}\r\n\r\n".encode()


def _random_token() -> str:
    return "".join(random.choices(LETTERS, k=TOKEN_LENGTH))


def _mutant(token: str) -> str:
    """Return a token with one letter changed."""
    place = random.randrange(TOKEN_LENGTH)
    other = random.choice(LETTERS.replace(token[place], ""))
    return token[:place] + other + token[place + 1 :]
