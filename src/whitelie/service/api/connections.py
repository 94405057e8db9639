"""The open connections of a process: how many there may be, who goes when there are too many.

A connection costs a file, and a process has only so many. When all are taken, connections that wait
for their peer, to speak or to read, are closed: the longest-waiting ones of whoever has most of
them. Who that is, networks say as they do for limits: what 16 lines may have, a /48 may have. Whose
request is at work is never cut off. A trusted proxy speaks for many visitors, so its connections go
only if no others wait. If none waits, the newcomer is refused.

Looking at all connections takes milliseconds, so it must not happen for every newcomer of a flood:
many go at once, and where few can go, nobody looks again before the next sweep.
"""

import resource
from collections import Counter
from operator import attrgetter
from typing import Any, Protocol

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from whitelie.errors import InvalidInput
from whitelie.service import log
from whitelie.service.limits import NETWORKS, networks

RESERVE = 256
"""Files that are not for visitors: for the store, the log, those who wait to be accepted, and those
who are told that all is full."""

USUAL_CONNECTIONS = 10_000
"""The most connections of a process, if it has files enough and the operator says nothing."""

MANY_FILES = 1 << 20
"""Files of a process that has no limit."""

MOST_REFUSED = 64
"""Newcomers who are told at a time that all is full; beyond them the connection is just cut."""

SHARE_MADE = 32
"""When room is made, one in so many goes at once."""

PARTS = tuple(1 / times for _, times in NETWORKS)
"""What a connection counts for in each network around its address: a /48 may have 16 for one."""

QUIET = 60.0
"""Seconds between two lines in the log about refused connections: a flood must not fill disks."""


class Connection(Protocol):
    """What is asked of a connection here."""

    address: str
    networks: tuple[bytes, ...]
    since: float

    def check(self, now: float) -> bool:
        """End it if it has taken too long; return whether its peer has to act, not the service."""

    def refuse(self, code: str) -> None:
        """Answer with an error and end."""

    def cut(self) -> None:
        """End it at once."""


class Connections(ServerState):
    """The connections of a uvicorn server, watched once a second."""

    connections: set[Any]

    def __init__(self, most: int, trusted_proxies: str | list[str]) -> None:
        super().__init__()
        self.most = most
        self.now = 0.0
        self.refused: Counter[str] = Counter()
        self._is_full = False
        self._said = float("-inf")
        self._trusted = ProxyHeadersMiddleware(_nobody, trusted_proxies).trusted_hosts

    def admit(self, newcomer: Connection) -> None:
        """Make room for a connection that was just opened, or refuse it."""
        address = newcomer.address
        newcomer.networks = () if address in self._trusted else networks(address)
        open_now = len(self.connections)
        if open_now <= self.most or (not self._is_full and self._make_room(newcomer)):
            return
        if open_now <= self.most + MOST_REFUSED:
            newcomer.refuse("too_many_connections")
        else:
            self.refused["too_many_connections"] += 1
            newcomer.cut()

    def sweep(self, now: float) -> None:
        """End connections that have taken too long; say in the log how many were refused."""
        self.now = now
        self._is_full = False
        for connection in list(self.connections):
            self._check(connection)
        if self.refused and now - self._said >= QUIET:
            log.event("connections_refused", **self.refused)
            self.refused.clear()
            self._said = now

    def _check(self, connection: Connection) -> bool:
        """Check a connection; a fault in one must not end the service of all."""
        try:
            return connection.check(self.now)
        except Exception as error:
            log.failure(error)
            connection.cut()
            return False

    def _make_room(self, newcomer: Connection) -> bool:
        """Close connections of whoever has most that wait; return whether it helps."""
        others = self.connections - {newcomer}
        waiting = [each for each in others if self._check(each)]
        if len(self.connections) - len(waiting) > self.most:
            self._is_full = True
            return False  # those who wait were refused too, and are to read why
        visitors = [each for each in waiting if each.networks] or waiting
        visitors.sort(key=attrgetter("since"), reverse=True)
        ranks = _ranks(visitors)
        wanted = max(self.most // SHARE_MADE, 1)
        enough = max(min(wanted, len(visitors) // 2), 1)
        self._is_full = enough < wanted
        for place in sorted(range(len(visitors)), key=ranks.__getitem__)[-enough:]:
            visitors[place].cut()
        return True


def _ranks(connections: list[Connection]) -> list[float]:
    """Return for each connection how many its holder has up to it, in parts of what it may have."""
    held: dict[bytes, float] = {}
    ranks = []
    for each in connections:
        rank = 0.0
        for network, part in zip(each.networks, PARTS, strict=False):
            held[network] = has = held.get(network, 0.0) + part
            rank = max(rank, has)
        ranks.append(rank)
    return ranks


def most_connections(wanted: int | None) -> tuple[int, int]:
    """Return how many connections a process may have, and how many more files are left.

    It raises its limit of files as far as it may.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = MANY_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    possible = max(files - RESERVE, files // 2)
    if wanted is not None and wanted > possible:
        reason = f"{files} files (ulimit -Hn, LimitNOFILE=) are enough for {possible}: allow more"
        raise InvalidInput("connections", wanted, reason)
    most = wanted or min(possible, USUAL_CONNECTIONS)
    return most, files - most


async def _nobody(*_: object) -> None:
    """An application that is never called: uvicorn's middleware knows which addresses to trust."""
