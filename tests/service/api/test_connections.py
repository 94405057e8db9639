"""Connections: nobody holds one, or fills memory through one, without end."""

import asyncio
import gc
import gzip
import json
import logging
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from helpers.http_server import Listening, Peer, listening
from helpers.in_process_service import (
    BUTTON,
    DECISIONS,
    FEEDBACK,
    KEYS,
    ONE,
    Served,
    refused,
    serving,
)
from helpers.paths import ROOT
from helpers.service_process import ADMIN_KEY, HANG_TIMEOUT_SECONDS, HOST, Server, message, until
from whitelie.service import log
from whitelie.service.api import connections as connections_module
from whitelie.service.api import static_files
from whitelie.service.api.connections import (
    CLOSED_ONE_IN,
    RESERVED_FILES,
    Connections,
    max_connections,
)
from whitelie.service.api.limits import Limits
from whitelie.service.api.protocol import (
    DEADLINES_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADER_FIELDS,
    MAX_PIPELINED_REQUESTS,
    MAX_URL_BYTES,
    Phase,
)
from whitelie.service.api.static_files import plotly_path
from whitelie.service.log import JsonFormatter

anyio = pytest.mark.anyio
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
KEY = f"Authorization: Bearer {KEYS['admin']}\r\n".encode()
DECIDE = b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (DECISIONS.encode(), KEY)
STREAM = b"GET %b/stream HTTP/1.1\r\nHost: x\r\n%b\r\n" % (ONE.encode(), KEY)
PLOTLY = f"GET {plotly_path()} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
END = b"\r\n"
ABUSER, VISITOR = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def anyio_backend() -> Any:
    """As the service runs."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        await served.create()
        yield served


@pytest.fixture
async def site(served: Served) -> AsyncIterator[Listening]:
    async with listening(served.app) as site:
        yield site


async def is_served(peer: Peer) -> bool:
    await peer.send(GET + END)
    return (await peer.answer()).status_code == 200


# What is sent, in bytes


@anyio
async def test_what_is_allowed_is_served(site: Listening) -> None:
    path = b"/healthz?" + b"x" * (MAX_URL_BYTES - 9)
    assert (await site.ask(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)).status_code == 200
    fields = b"".join(
        b"X-%d: %b\r\n" % (number, b"x" * 300) for number in range(MAX_HEADER_FIELDS - 1)
    )
    assert len(fields) > 0.9 * MAX_HEAD_BYTES
    assert (await site.ask(GET, fields, END)).status_code == 200
    assert not site.connections.refused


@anyio
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"GET /%b" % (b"x" * MAX_URL_BYTES)], (414, "url_too_long", "path")),
        ([b"GET /", *[b"x" * 1000] * 9], (414, "url_too_long", "path")),
        ([GET, b"X: %b" % (b"x" * MAX_HEAD_BYTES)], (431, "headers_too_large", "headers")),
        ([GET, b"X: ", *[b"x" * 1000] * 33], (431, "headers_too_large", "headers")),
        ([GET, b"x" * MAX_HEAD_BYTES], (431, "headers_too_large", "headers")),
        ([GET, b"X: x\r\n" * MAX_HEADER_FIELDS, END], (431, "headers_too_large", "headers")),
        ([GET, b"X: x\r\n" * (MAX_HEADER_FIELDS + 1)], (431, "headers_too_large", "headers")),
        (
            [DECIDE, b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n" * MAX_HEADER_FIELDS],
            (431, "headers_too_large", "headers"),
        ),
        (
            [DECIDE, b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x" * 2 * MAX_HEAD_BYTES],
            (431, "headers_too_large", "headers"),
        ),
        (
            [DECIDE, b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 2 * MAX_HEAD_BYTES],
            (431, "headers_too_large", "headers"),
        ),
        ([b"\x16\x03\x01 no HTTP\r\n\r\n"], (400, "malformed_request", None)),
        ([b"GET / HTTP/1.1\r\nno header\r\n\r\n"], (400, "malformed_request", None)),
        ([b"GET /\xff HTTP/1.1\r\n\r\n"], (400, "malformed_request", None)),
        ([DECIDE, b"Content-Length: x\r\n\r\n"], (400, "malformed_request", None)),
        (
            [DECIDE, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
            (400, "malformed_request", None),
        ),
    ],
)
async def test_what_exceeds_a_limit_is_refused_before_it_is_complete(
    site: Listening, served: Served, parts: list[bytes], expected: tuple[int, str, str | None]
) -> None:
    peer = await site.peer()
    for part in parts:
        await peer.send(part)
    answer = await peer.answer()
    assert refused(answer) == expected
    assert answer.headers["connection"] == "close"
    assert site.connections.refused == {expected[1]: 1}
    await peer.send(b"x" * 1000)  # what comes now is thrown away
    peer.writer.write_eof()
    assert await peer.rest() == b""
    await site.settle(lambda: not site.connections.connections)
    assert not served.store.totals(1)


@anyio
async def test_refused_connections_leave_nothing_in_memory(site: Listening) -> None:
    chunked = b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % FEEDBACK.encode()
    known: WeakSet[object] = WeakSet()
    for sent in (
        b"GET /%b" % (b"x" * MAX_URL_BYTES),
        GET + b"X: x\r\n" * MAX_HEADER_FIELDS + END,
        chunked + b"0\r\n" + b"X: x\r\n" * MAX_HEADER_FIELDS + END,
        (GET + END) * (MAX_PIPELINED_REQUESTS + 2),
    ):
        peer = await site.peer()
        await site.settle(lambda: bool(site.connections.connections))
        known.update(site.connections.connections)
        await peer.send(sent)
        await peer.rest()
        peer.writer.transport.abort()
        await site.settle(lambda: not site.connections.connections)
    assert sum(site.connections.refused.values()) == 4
    gc.collect()
    assert not known


@anyio
async def test_the_script_is_compressed_once_for_several_first_requests(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, compress = list[int](), gzip.compress

    def slowly(plain: bytes, **options: Any) -> bytes:
        made.append(len(plain))
        time.sleep(0.1)  # so that the other requests come before it ends
        return compress(plain, 1, **options)

    monkeypatch.setattr(gzip, "compress", slowly)
    static_files._plotly.cache_clear()
    try:
        asked = (served.as_().get(str(plotly_path())) for _ in range(4))
        lengths = {len(answer.content) for answer in await asyncio.gather(*asked)}
    finally:
        static_files._plotly.cache_clear()
    assert len(made) == 1
    assert lengths == set(made)


def long_head(size: int) -> bytes:
    """Return a head of so many bytes."""
    return b"%bX: %b\r\n\r\n" % (GET, b"x" * (size - len(GET + b"X: \r\n\r\n")))


@anyio
@pytest.mark.parametrize("before", [b"", b"x" * 20_000], ids=["alone", "after a body"])
@pytest.mark.parametrize("cut", [1, 3, 1000, MAX_HEAD_BYTES - 1, MAX_HEAD_BYTES])
async def test_a_head_may_have_as_many_bytes_as_the_limit_and_no_more(
    site: Listening, before: bytes, cut: int
) -> None:
    for size, status in ((MAX_HEAD_BYTES, 200), (MAX_HEAD_BYTES + 1, 431)):
        peer = await site.peer()
        await site.settle(lambda: len(site.connections.connections) == 1)
        (connection,) = site.connections.connections
        if before:
            connection.data_received(GET + b"Content-Length: %d\r\n\r\n" % len(before))
            assert (await peer.answer()).status_code == 200
        sent = before + long_head(size)
        for piece in (sent[:cut], sent[cut:]):  # the kernel would join them as it likes
            connection.data_received(piece)
        assert (await peer.answer()).status_code == status
        peer.writer.transport.abort()
        await site.settle(lambda: not site.connections.connections)


@anyio
@pytest.mark.parametrize("pause", [False, True])
async def test_trailers_count_with_the_head(site: Listening, pause: bool) -> None:
    head = b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % FEEDBACK.encode()
    left = MAX_HEAD_BYTES - len(head)
    most = b"X: x\r\n" * (MAX_HEADER_FIELDS - 1)
    for trailers, status in (
        (most, 400),
        (most + b"X: x\r\n", 431),
        (b"a:\r\n" * 4000, 431),
        (b"X: %b\r\n" % (b"x" * (left - 5)), 400),
        (b"X: %b\r\n" % (b"x" * (left - 4)), 431),
    ):
        peer = await site.peer()
        await peer.send(head + b"1\r\n{\r\n")
        if pause:
            (connection,) = site.connections.connections
            await site.settle(lambda connection=connection: connection.cycle)  # type: ignore[misc]  # mypy infers no lambda with a default
        await peer.send(b"0\r\n" + trailers + END)
        assert (await peer.answer()).status_code == status
        peer.writer.transport.abort()
        await site.settle(lambda: not site.connections.connections)


@anyio
async def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    head = (
        f"POST {DECISIONS} HTTP/1.1\r\nAuthorization: Bearer {KEYS['publishable']}\r\n"
        "X-Forwarded-For: 203.0.113.7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    )
    async with serving(tmp_path / "a.db", limits=Limits(3)) as served:
        await served.create()
        async with listening(served.app) as site:
            answers = [
                await site.ask(f"{head}X-Forwarded-For: 10.0.0.{number}\r\n\r\n".encode())
                for number in range(6)
            ]
    assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 3


@anyio
async def test_a_request_that_is_answered_early_may_be_ended_and_followed_by_another(
    site: Listening,
) -> None:
    peer = await site.peer()
    await peer.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    assert (await peer.answer()).status_code == 404
    await peer.send(b"x" * 1000 + GET + END)
    assert (await peer.answer()).status_code == 200


@anyio
async def test_a_body_that_never_ends_is_answered_once(site: Listening) -> None:
    peer = await site.peer()
    await peer.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert (await peer.answer()).status_code == 404
    for _ in range(10):
        await peer.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
    assert await peer.rest() == b""


@anyio
async def test_a_body_that_is_too_large_is_refused_though_it_has_no_end(site: Listening) -> None:
    peer = await site.peer()
    await peer.send(DECIDE + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(200):
        await peer.send(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
    assert refused(await peer.answer()) == (413, "body_too_large", "body")
    assert await peer.rest() == b""


@anyio
async def test_requests_in_a_row_are_answered_in_a_row(site: Listening) -> None:
    peer = await site.peer()
    await peer.send((GET + END) * MAX_PIPELINED_REQUESTS)
    for _ in range(MAX_PIPELINED_REQUESTS):
        assert (await peer.answer()).status_code == 200


@anyio
async def test_more_requests_than_may_wait_end_the_connection(site: Listening) -> None:
    peer = await site.peer()
    await peer.send((GET + END) * 1000)
    assert (await peer.rest()).count(b"200 OK") <= MAX_PIPELINED_REQUESTS
    await site.settle(lambda: not site.connections.connections)


@anyio
async def test_a_good_request_is_answered_though_rubbish_follows(
    site: Listening, served: Served
) -> None:
    peer = await site.peer()
    await peer.send(DECIDE + b"Content-Length: 0\r\n\r\n" + b"\x00rubbish")
    assert len((await peer.answer()).json()["decisions"]) == 1
    assert await peer.rest() == b""


@anyio
async def test_another_protocol_is_not_spoken(site: Listening) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    peer = await site.peer()
    await peer.send(GET + upgrade + END + b"\x81\x05hello")
    assert (await peer.answer()).status_code == 200
    assert await peer.rest() == b""


# Deadlines


@anyio
@pytest.mark.parametrize(
    ("parts", "phase"),
    [
        ([GET], Phase.HEAD),
        ([b"GET /heal"], Phase.HEAD),
        ([GET + END, GET], Phase.HEAD),
        ([DECIDE + b"Content-Length: 9\r\n\r\n{"], Phase.BODY),
        ([DECIDE + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"], Phase.BODY),
        ([b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n" % FEEDBACK.encode()], Phase.BODY),
    ],
)
@pytest.mark.promise("Limits while a request comes")
async def test_a_request_must_come_in_time(
    site: Listening, served: Served, parts: list[bytes], phase: Phase
) -> None:
    peer = await site.peer()
    for part in parts[:-1]:
        await peer.send(part)
        assert (await peer.answer()).status_code == 200
    await peer.send(parts[-1])
    (connection,) = site.connections.connections
    await site.settle(lambda: connection._reading is phase)
    site.pass_time(DEADLINES_SECONDS[phase])
    assert not site.connections.refused
    site.pass_time(1)
    assert refused(await peer.answer()) == (408, "request_timeout", None)
    assert await peer.rest() == b""
    assert not served.store.totals(1)


@anyio
@pytest.mark.parametrize(
    "begun", [GET, DECIDE + b"Content-Length: 9\r\n\r\n{"], ids=["head", "body"]
)
async def test_a_peer_that_stays_after_its_refusal_is_aborted(
    site: Listening, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[BaseException] = []
    monkeypatch.setattr(log, "failure", faults.append)
    peer = await site.peer()
    await peer.send(begun)
    (connection,) = site.connections.connections
    await site.settle(lambda: connection._reading is not Phase.NOTHING)
    site.pass_time(DEADLINES_SECONDS[connection._reading])
    site.pass_time(1)
    assert (await peer.answer()).status_code == 408
    for _ in range(int(DEADLINES_SECONDS[Phase.END]) + 2):
        site.pass_time(1)
    assert not site.connections.connections
    assert not faults


@anyio
async def test_a_fault_of_one_connection_does_not_end_the_others(
    site: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, other = await site.peer(), await site.peer()
    await peer.send(GET + END)
    assert (await peer.answer()).status_code == 200
    (broken,) = [each for each in site.connections.connections if each.cycle is not None]
    monkeypatch.setattr(broken, "check", lambda now: 1 / 0)
    site.pass_time(1)
    await other.send(GET + END)
    assert (await other.answer()).status_code == 200
    assert broken not in site.connections.connections


@anyio
async def test_bytes_that_trickle_do_not_put_a_deadline_off(site: Listening) -> None:
    peer = await site.peer()
    await peer.send(GET)
    (connection,) = site.connections.connections
    for _ in range(int(DEADLINES_SECONDS[Phase.HEAD]) + 1):
        known = connection._unread
        await peer.send(b"x")
        await site.settle(lambda known=known: connection._unread > known)  # type: ignore[misc]  # mypy infers no lambda with a default
        site.pass_time(1)
    assert (await peer.answer()).status_code == 408


@anyio
async def test_a_silent_connection_is_closed(site: Listening) -> None:
    silent, idle = await site.peer(), await site.peer()
    assert await is_served(idle)
    site.pass_time(DEADLINES_SECONDS[Phase.HEAD] + 1)
    assert await silent.rest() == b""
    assert await is_served(idle)
    site.pass_time(DEADLINES_SECONDS[Phase.NOTHING])
    assert await is_served(idle)
    site.pass_time(DEADLINES_SECONDS[Phase.NOTHING] + 1)
    assert await idle.rest() == b""
    assert not site.connections.refused


@anyio
async def test_a_refused_peer_that_does_not_close_is_aborted(site: Listening) -> None:
    peer = await site.peer()
    await peer.send(b"\x00")
    assert (await peer.answer()).status_code == 400
    site.pass_time(DEADLINES_SECONDS[Phase.END] + 1)
    await site.settle(lambda: not site.connections.connections)


@anyio
async def test_a_stream_lives_as_long_as_it_is_read(site: Listening) -> None:
    peer = await site.peer()
    await peer.send(STREAM)
    await peer.until(b"event: results")
    site.pass_time(3600)
    (connection,) = site.connections.connections
    assert not connection.transport.is_closing()


def deaf(port: int) -> socket.socket:
    """Return a connection of somebody who does not read."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect((HOST, port))
    peer.sendall(PLOTLY)
    peer.setblocking(False)
    return peer


@anyio
async def test_a_peer_that_does_not_read_is_aborted_and_a_slow_reader_is_not(
    site: Listening,
) -> None:
    with deaf(site.port) as slow, deaf(site.port) as never:
        await site.settle(lambda: len(site.connections.connections) == 2)
        await site.settle(
            lambda: all(each.flow.write_paused for each in site.connections.connections)
        )
        loop = asyncio.get_running_loop()
        for _ in range(4):
            site.pass_time(DEADLINES_SECONDS[Phase.READER] - 1)
            async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
                for _ in range(100):
                    await loop.sock_recv(slow, 1 << 14)
        assert len(site.connections.connections) == 1
        (left,) = site.connections.connections
        assert left.client == slow.getsockname()
        site.pass_time(DEADLINES_SECONDS[Phase.READER] + 1)
        await site.settle(lambda: not site.connections.connections)
        assert never.fileno() > 0


# The script of the charts


@anyio
async def test_both_forms_of_the_script_are_there_when_they_are_asked_for(
    site: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = await site.ask(PLOTLY[:-2] + b"Accept-Encoding: gzip\r\n\r\n")

    def never(*_: Any, **__: Any) -> bytes:
        raise AssertionError("this takes the time of everybody")

    plain = gzip.decompress(packed.content) if "content-encoding" not in packed.headers else None
    monkeypatch.setattr(gzip, "compress", never)
    monkeypatch.setattr(gzip, "decompress", never)
    again = await site.ask(PLOTLY)
    assert again.status_code == 200
    assert plain is None
    assert again.text == packed.text


@anyio
async def test_the_script_waits_for_its_reader_in_pieces(site: Listening) -> None:
    with deaf(site.port):
        await site.settle(lambda: len(site.connections.connections) == 1)
        (connection,) = site.connections.connections
        await site.settle(lambda: connection.flow.write_paused)
        assert connection.transport.get_write_buffer_size() < 1 << 18


# How many there may be


@anyio
@pytest.mark.parametrize("begun", [b"", GET, DECIDE + b"Content-Length: 9\r\n\r\n{"])
async def test_the_visitor_with_most_idle_connections_loses_some(
    served: Served, begun: bytes
) -> None:
    async with listening(served.app, most=20) as site:
        modest = [await site.peer(VISITOR) for _ in range(3)]
        many = [await site.peer(ABUSER) for _ in range(40)]
        for each in many:
            await each.send(begun)
        assert [await is_served(each) for each in modest] == [True] * 3
        for _ in range(30):
            assert await is_served(await site.peer(VISITOR))
        assert len(site.connections.connections) <= 21


@anyio
async def test_who_was_just_served_has_not_waited_long(served: Served) -> None:
    async with listening(served.app, most=2) as site:
        for address in (VISITOR, ABUSER):
            peer = await site.peer(address)
            assert await is_served(peer)
            site.pass_time(5)
            if address == VISITOR:
                visitor = peer
        assert await is_served(visitor)
        assert await is_served(await site.peer(HOST))
        assert {each.address for each in site.connections.connections} == {VISITOR, HOST}


@anyio
async def test_served_requests_are_not_aborted_and_new_connections_are_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "MAX_ANSWERED_REFUSALS", 1)
    async with listening(served.app, most=2) as site:
        streams = [await site.peer(ABUSER) for _ in range(2)]
        for each in streams:
            await each.send(STREAM)
            await each.until(b"event: results")
        newcomer = await site.peer(VISITOR)
        answer = await newcomer.answer()
        assert refused(answer) == (503, "too_many_connections", None)
        assert int(answer.headers["retry-after"]) > 0
        assert await (await site.peer(VISITOR)).rest() == b""
        newcomer.writer.close()
        streams[0].writer.transport.abort()
        await site.settle(lambda: len(site.connections.connections) == 1)
        assert await is_served(await site.peer(VISITOR))
        assert not any(each.transport.is_closing() for each in site.connections.connections)


@anyio
async def test_a_proxy_is_not_one_greedy_visitor(served: Served) -> None:
    async with listening(served.app, most=20, trusted=VISITOR) as site:
        proxied = [await site.peer(VISITOR) for _ in range(15)]
        assert [await is_served(each) for each in proxied] == [True] * 15
        for _ in range(30):
            await is_served(await site.peer(ABUSER))
        assert [await is_served(each) for each in proxied] == [True] * 15
        for _ in range(30):  # only the proxy's own crowd takes its idle ones
            assert await is_served(await site.peer(VISITOR))


class Idle:
    """A connection that waits, as far as others that are open see it."""

    def __init__(self, connections: Connections, address: str, since: float = 0.0) -> None:
        self.address, self.since = address, since
        self.networks: tuple[bytes, ...] = ()
        self._connections = connections
        self.looks = 0
        connections.connections.add(self)
        connections.admit(self)

    @property
    def is_open(self) -> bool:
        return self in self._connections.connections

    def abort(self) -> None:
        self._connections.connections.discard(self)

    def refuse(self, code: str) -> None:
        self.abort()

    def check(self, now: float) -> bool:
        self.looks += 1
        return True


@pytest.mark.parametrize(
    "address", ["10.0.{0}.{1}", "2001:db8:0:{0:x}{1:02x}::", "2001:db8:{0:x}{1:02x}::", "10.0.0.1"]
)
def test_one_look_at_all_connections_admits_many_new_ones(address: str) -> None:
    connections = Connections(640, "")
    first = [Idle(connections, address.format(*divmod(number, 256))) for number in range(640)]
    for number in range(640, 1280):
        Idle(connections, address.format(*divmod(number, 256)), 1.0)
    assert max(each.looks for each in first) <= 640 / (640 // CLOSED_ONE_IN)
    assert len(connections.connections) >= 640 - 640 // CLOSED_ONE_IN


def test_among_equals_the_longest_idle_connection_is_closed() -> None:
    connections = Connections(64, "")
    equals = [Idle(connections, f"192.0.2.{number}", number * 7 % 64) for number in range(64)]
    Idle(connections, "198.51.100.1", 100.0)
    assert [each.since for each in equals if not each.is_open] == [0.0, 1.0]


def test_if_few_are_idle_the_next_look_waits_for_the_next_sweep() -> None:
    connections = Connections(640, "127.0.0.1")
    proxied = [Idle(connections, "127.0.0.1") for _ in range(630)]
    visitors = [Idle(connections, f"192.0.2.{number}") for number in range(100)]
    assert max(each.looks for each in proxied) == 1
    assert sum(each.is_open for each in visitors) == 10
    connections.sweep(1.0)
    assert Idle(connections, "198.51.100.1").is_open
    assert all(each.is_open for each in proxied)


@pytest.mark.parametrize("site", [56, 48])
def test_a_network_does_not_take_the_second_connection_of_visitors(site: int) -> None:
    connections = Connections(640, "")
    visitors = [Idle(connections, f"192.0.2.{number // 2}") for number in range(100)]
    lines = 256 if site == 56 else 65_536
    for number in range(2000):
        Idle(connections, f"2001:db8:0:{number * 7 % lines:x}::1", 1.0)
    assert all(each.is_open for each in visitors)


def test_connections_leave_files_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: raised.append(limit))
    assert max_connections(None) == (4096 - RESERVED_FILES, RESERVED_FILES)
    assert raised == [(4096, 4096)]
    assert max_connections(100) == (100, 3996)
    with pytest.raises(ValueError, match="LimitNOFILE"):
        max_connections(4000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert max_connections(None) == (32, 32)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert max_connections(None)[0] == connections_module.DEFAULT_MAX_CONNECTIONS


# The log


def test_a_flood_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "whitelie.service")
    connections = Connections(10, "")
    for now in range(150):
        connections.refused["malformed_request"] += 1000
        connections.sweep(float(now))
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [line["event"] for line in lines] == ["connections_refused"] * 3
    assert [line["malformed_request"] for line in lines] == [1000, 60_000, 60_000]


# The process


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that may open 1,024 files."""
    folder = tmp_path_factory.mktemp("poor")
    with Server(folder / "x.db", folder / "log") as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        server.ready()
        server.create(name="Button", arms=BUTTON["arms"])
        yield server


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("1,500 connections need ulimit -Hn 4096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    with ExitStack() as opened:
        yield opened
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(server: Server, line: str = "VmRSS") -> int:
    """Return bytes: those that a process has, or (VmHWM) the most that it ever had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(1024 * int(each.split()[1]) for each in status if each.startswith(line))


def visit(server: Server, address: str) -> int:
    """Ask for a decision from an address; return the status."""
    with socket.create_connection((HOST, server.port), HANG_TIMEOUT_SECONDS, (address, 0)) as line:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Connection": "close"}
        line.sendall(message("POST", DECISIONS, {}, headers))
        return int(line.makefile("rb").read()[9:12])


@pytest.mark.parametrize("address", [ABUSER, HOST])
@pytest.mark.parametrize("begun", [b"", GET], ids=["silent", "begun"])
def test_connections_of_one_do_not_lock_others_out(
    poor: Server, sockets: ExitStack, address: str, begun: bytes
) -> None:
    for _ in range(1100):
        line = socket.create_connection((HOST, poor.port), HANG_TIMEOUT_SECONDS, (address, 0))
        sockets.enter_context(line)
        try:
            line.sendall(begun)
        except ConnectionError:
            continue
    for _ in range(20):
        assert visit(poor, VISITOR) == 200


@pytest.mark.promise("Limits while a request comes")
def test_headers_without_end_take_no_memory(poor: Server) -> None:
    before = memory(poor)
    piece = b"x" * (1 << 20)
    for start in (GET + b"X: ", b"GET /", GET):
        with socket.create_connection((HOST, poor.port), HANG_TIMEOUT_SECONDS) as line:
            line.sendall(start)
            try:
                for _ in range(48):
                    line.sendall(piece)
            except ConnectionError:
                pass
            answer = line.recv(1 << 16)
            assert answer.split()[1] in (b"431", b"414", b"400")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]
    assert memory(poor, "VmHWM") - before < 16e6
    assert visit(poor, VISITOR) == 200


def test_readers_who_do_not_read_take_little_memory(poor: Server, sockets: ExitStack) -> None:
    with deaf(poor.port) as first:  # the script is made once
        first.settimeout(HANG_TIMEOUT_SECONDS)
        first.recv(1)
    before = memory(poor)
    for _ in range(200):
        peer = sockets.enter_context(deaf(poor.port))
        peer.settimeout(HANG_TIMEOUT_SECONDS)
        peer.recv(1)
    assert memory(poor) - before < 60e6
    assert visit(poor, VISITOR) == 200


def test_what_is_malformed_is_logged_by_its_documented_name_without_content(
    poor: Server,
) -> None:
    for _ in range(3):
        with socket.create_connection((HOST, poor.port), HANG_TIMEOUT_SECONDS) as line:
            line.sendall(b"telltale\r\n\r\n")
            answer = line.makefile("rb").read()
        assert b"telltale" not in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "malformed_request"
    until(lambda: b'"event":"connections_refused"' in poor.log.read_bytes())
    said = poor.log.read_bytes()
    assert b"telltale" not in said
    assert b"127.0.0" not in said.replace(b"http://127.0.0.1", b"")
    documented = (ROOT / "docs/service.md").read_text("utf-8")
    for text in said.decode().splitlines():
        assert f"`{json.loads(text)['event']}`" in documented


def test_what_uvicorn_says_is_logged_by_its_name() -> None:
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "telltale", None, None)
    assert json.loads(JsonFormatter().format(record))["event"] == "uvicorn"
    assert "telltale" not in JsonFormatter().format(record)


def test_more_connections_than_files_are_refused(tmp_path: Path) -> None:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Server(tmp_path / "x.db", tmp_path / "log", "--connections", str(files)) as server:
        assert server.process.wait(HANG_TIMEOUT_SECONDS) > 0
    assert "LimitNOFILE" in server.log.read_text()


@pytest.mark.long
def test_deadlines_are_kept_by_a_running_service(tmp_path: Path) -> None:
    with Server(tmp_path / "x.db", tmp_path / "log").ready() as server, ExitStack() as opened:
        server.create(name="Button", arms=BUTTON["arms"])
        lines = []
        head = message("POST", DECISIONS, {"count": 1}, {"Authorization": f"Bearer {ADMIN_KEY}"})
        for begun in (b"", head[:20], head[:-1]):
            line = opened.enter_context(
                socket.create_connection((HOST, server.port), HANG_TIMEOUT_SECONDS)
            )
            line.sendall(begun)
            lines.append(line.makefile("rb"))
        answers = [line.read()[9:12] for line in lines]
        assert answers == [b"", b"408", b"408"]
