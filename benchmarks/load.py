"""A lean HTTP/1.1 load generator for the decision service: what a phone fleet does, on uvloop.

Every connection is one raw protocol that sends prepared bytes, reads just enough of the answer
(status, length, tokens) and sends the next request as soon as the answer is there. Modes:

- `pairs`: decide, then feed back every token of that answer, and again;
- `decide`: decisions only.

As a command it prints one line of JSON:

    WHITELIE_ADMIN_KEY=ak_… python benchmarks/load.py --port 8000 --experiment demo --seconds 5

As a module: `create`, then `run(Plan(…))` in this process or `spawn(Plan(…))` in one of its own.
"""

import argparse
import asyncio
import dataclasses
import gc
import http.client
import json
import math
import os
import random
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

HOST = "127.0.0.1"
PREPARED_REWARDS = 1 << 16
MOST_SECONDS = 120.0
"""Seconds after which a run of a given total is given up."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to send: for `seconds` after a `warmup`, or `total` decisions within `MOST_SECONDS`."""

    port: int
    experiment: str
    key: str = dataclasses.field(repr=False)
    mode: str = "pairs"
    connections: int = 128
    count: int = 1
    seconds: float = 5.0
    warmup: float = 1.0
    total: int = 0
    epsilon: float = 1.0
    rate: float = 0.5
    seed: int = 1


def create(port: int, key: str, arms: int = 10, name: str = "Load", **more: Any) -> dict[str, Any]:
    """Create an experiment and return the server's answer; its `id` names it."""
    body = {
        "name": name,
        "arms": [{"key": f"arm-{number}"} for number in range(arms)],
        "epsilon": 1.0,
        "window": 60,
        "spread": 60,
        **more,
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/experiments", json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 201:
        raise RuntimeError(f"creating an experiment: {response.status} {text[:500]}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def endings(plan: Plan) -> list[bytes]:
    """A pool of ends of an answer: rewards of the given rate through randomized response."""
    draw = random.Random(plan.seed)
    keep = 1 / (1 + math.exp(-plan.epsilon))
    rewards = (draw.random() < plan.rate for _ in range(PREPARED_REWARDS))
    bits = (reward if draw.random() < keep else not reward for reward in rewards)
    return [b'","bit":1}' if bit else b'","bit":0}' for bit in bits]


class Run:
    """What all connections of one run share: requests, clock, counts."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self.plan = plan
        self.pairs = plan.mode == "pairs"
        self.endings = endings(plan)
        self.place = 0
        host = f"Host: {HOST}:{plan.port}\r\nContent-Type: application/json\r\n"
        body = json.dumps({"count": plan.count})
        self.decide = (
            f"POST /v1/experiments/{plan.experiment}/decisions HTTP/1.1\r\n{host}"
            f"Authorization: Bearer {plan.key}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        self.feedback = f"POST /v1/feedback HTTP/1.1\r\n{host}Content-Length: ".encode()
        self.marker = b""
        self.start = time.perf_counter()
        self.begin = self.start + (0 if plan.total else plan.warmup)
        self.end = self.begin + (MOST_SECONDS if plan.total else plan.seconds)
        self.last = self.start
        self.asked = self.issued = self.answered = 0
        self.times = {"decide": array("d"), "feedback": array("d")}
        self.errors: Counter[str] = Counter()
        self.sample = ""
        self.open = plan.connections
        self.over = loop.create_future()

    def error(self, what: str, text: bytes = b"", times: int = 1) -> None:
        self.errors[what] += times
        if text and not self.sample:
            self.sample = text[:300].decode(errors="replace")

    def tokens(self, answer: bytes) -> list[bytes]:
        """Slice the tokens out of an answer's bytes."""
        if not self.marker:
            self.marker = next(m for m in (b'"token":"', b'"token": "', b"\xff") if m in answer)
        pieces = answer.split(self.marker)
        del pieces[0]
        return [piece[: piece.index(b'"')] for piece in pieces]

    def report(self, tokens: list[bytes]) -> bytes:
        """Return the request that feeds back these tokens with the pool's next bits."""
        first = self.place
        self.place = last = first + len(tokens)
        if last > PREPARED_REWARDS:
            first, self.place = 0, len(tokens)
            last = self.place
        if len(tokens) == 1:
            body = b'{"token":"' + tokens[0] + self.endings[first]
        else:
            parts = map(bytes.__add__, tokens, self.endings[first:last])
            body = b'{"items":[{"token":"' + b',{"token":"'.join(parts) + b"]}"
        return b"%b%d\r\n\r\n%b" % (self.feedback, len(body), body)

    def closed(self) -> None:
        self.open -= 1
        if not self.open and not self.over.done():
            self.over.set_result(None)


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way."""

    __slots__ = ("chunks", "missing", "next", "run", "sent", "stopping", "transport")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.chunks: list[bytes] = []
        self.missing = 0
        self.stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.decide(time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.stopping:
            self.run.error("connection lost")
        self.run.closed()

    def data_received(self, data: bytes) -> None:
        if self.chunks:
            self.chunks.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                return
            data = b"".join(self.chunks)
            self.chunks.clear()
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self.chunks.append(data)
            self.missing = 1
            return
        lower = data[:head].lower()
        place = lower.find(b"\r\ncontent-length:")
        if place < 0:
            self.run.error("no Content-Length", data)
            self.stop()
            return
        end = lower.find(b"\r\n", place + 17)
        length = int(lower[place + 17 : end if end > 0 else head])
        self.missing = head + 4 + length - len(data)
        if self.missing > 0:
            self.chunks.append(data)
            return
        self.next(data[9:12], data[head + 4 :])

    def stop(self) -> None:
        self.stopping = True
        self.transport.close()

    def decide(self, now: float) -> None:
        run = self.run
        if now >= run.end or (run.plan.total and run.asked >= run.plan.total):
            self.stop()
            return
        run.asked += run.plan.count
        self.next = self.decided
        self.sent = now
        self.transport.write(run.decide)

    def decided(self, status: bytes, body: bytes) -> None:
        now = time.perf_counter()
        run = self.run
        if status != b"200":
            run.error(f"decide: {status.decode()}", body)
            self.decide(now)
            return
        counted = self.sent >= run.begin and now <= run.end
        if counted:
            run.times["decide"].append(now - self.sent)
        if not run.pairs:
            answered = body.count(b'"token"')
        else:
            tokens = run.tokens(body)
            answered = len(tokens)
        if answered != run.plan.count:
            run.error("decide: wrong number of tokens", body)
            self.decide(now)
            return
        if run.begin <= now <= run.end:
            run.issued += answered
            run.last = now
        if run.pairs:
            self.next = self.answered
            request = run.report(tokens)
            self.sent = time.perf_counter()
            self.transport.write(request)
        else:
            self.decide(now)

    def answered(self, status: bytes, body: bytes) -> None:
        now = time.perf_counter()
        run = self.run
        if status != b"200":
            run.error(f"feedback: {status.decode()}", body)
            self.decide(now)
            return
        if self.sent >= run.begin and now <= run.end:
            run.times["feedback"].append(now - self.sent)
        accepted = body.count(b'"accepted"')
        if accepted != run.plan.count:
            known = 0
            for word in (b"duplicate", b"expired", b"invalid"):
                if times := body.count(b'"%b"' % word):
                    known += times
                    run.error(f"feedback: {word.decode()}", body, times)
            if accepted + known != run.plan.count:
                run.error("feedback: wrong number of items", body)
        if run.begin <= now <= run.end:
            run.answered += accepted
            run.last = now
        self.decide(now)


def latency(times: Sequence[float]) -> dict[str, float | None]:
    """Return requests and their p50, p99 and maximum in milliseconds."""
    if not times:
        return {"requests": 0, "p50": None, "p99": None, "max": None}
    ordered = sorted(times)

    def at(share: float) -> float:
        return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"requests": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": at(1)}


async def _run(plan: Plan) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    run = Run(plan, loop)

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not run.over.done():
            run.over.set_exception(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(failed)
    cpu = time.process_time()
    connecting = [
        loop.create_connection(lambda: Connection(run), HOST, plan.port)
        for _ in range(plan.connections)
    ]
    await asyncio.gather(*connecting)
    try:
        await asyncio.wait_for(run.over, run.end - run.start + 30)
    except TimeoutError:
        run.error("no answer")
    if run.asked < plan.total:
        run.error("unfinished")
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - run.start
    seconds = (run.last if plan.total else run.end) - run.begin
    done = run.answered if run.pairs else run.issued
    if not done:
        run.error("nothing finished in time")
    return {
        "mode": plan.mode,
        "connections": plan.connections,
        "count": plan.count,
        "seconds": round(seconds, 3),
        "issued": run.issued,
        "answered": run.answered,
        "per_second": round(done / seconds, 1) if seconds > 0 else 0.0,
        "requests_per_second": round(sum(map(len, run.times.values())) / seconds, 1)
        if seconds > 0
        else 0.0,
        "latency_ms": {name: latency(times) for name, times in run.times.items()},
        "errors": sum(run.errors.values()),
        "error_kinds": dict(run.errors),
        "error_sample": run.sample,
        "load_cpu": round(cpu / wall, 3),
    }


def run(plan: Plan) -> dict[str, Any]:
    """Put the load on a server from this process and return what was measured."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(plan))
    finally:
        gc.enable()


def spawn(plan: Plan) -> dict[str, Any]:
    """Put the load on a server from a process of its own."""
    arguments = [
        f"--{field.name}={getattr(plan, field.name)}"
        for field in dataclasses.fields(plan)
        if field.name != "key"
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), *arguments],
        env={**os.environ, "WHITELIE_ADMIN_KEY": plan.key},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in dataclasses.fields(Plan):
        if field.name == "key":
            continue
        required = field.default is dataclasses.MISSING
        choices = ("pairs", "decide") if field.name == "mode" else None
        parser.add_argument(
            f"--{field.name}",
            type=field.type,  # type: ignore[arg-type]  # its fields have classes for types
            required=required,
            default=None if required else field.default,
            choices=choices,
        )
    options = vars(parser.parse_args())
    print(json.dumps(run(Plan(key=os.environ.get("WHITELIE_ADMIN_KEY", ""), **options))))


if __name__ == "__main__":
    main()
