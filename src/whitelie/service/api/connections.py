"""The open connections of a process: how many there may be, and which are closed beyond that.

A connection costs a file descriptor, and a process has a limited number. When all are taken, the
service closes idle connections: those that wait for their peer to send or to read. It takes the
longest-waiting ones of the visitor who has most. Visitors are told apart by network, as for limits:
a /48 may have as many as 16 addresses. A connection whose request is being served is never closed.
A trusted proxy speaks for many visitors, so its connections are closed only if no others are idle.
If none is idle, the new connection is refused.

A look at all connections takes milliseconds, so it must not happen for every new connection of a
flood: many are closed at once, and if few could be closed, the next look waits for the next sweep.
"""

import resource
from collections import Counter
from operator import attrgetter
from typing import Any, Protocol

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from whitelie.errors import InvalidInput
from whitelie.service import log
from whitelie.service.api.limits import NETWORKS, networks

RESERVED_FILES = 256
"""Files that are not for visitors: for the store, the log, connections that wait to be accepted,
and connections that are told that all are taken."""

DEFAULT_MAX_CONNECTIONS = 10_000
"""For a process that has files enough, if the operator gives no other number."""

FILES_IF_UNLIMITED = 1 << 20
"""How many files a process without a limit is taken to have."""

MAX_ANSWERED_REFUSALS = 64
"""How many refused connections may be open to get an answer; beyond that they are just closed."""

CLOSED_ONE_IN = 32
"""When all connections are taken, one in so many is closed at once."""

NETWORK_WEIGHTS = tuple(1 / times for _, times in NETWORKS)
"""What a connection counts for in each network around its address: 1/16 in its /48."""

LOG_INTERVAL_SECONDS = 60.0
"""Between two lines in the log about refused connections: a flood must not fill the disk."""


class Connection(Protocol):
    """What this module needs of a connection."""

    address: str
    networks: tuple[bytes, ...]
    since: float

    def check(self, now: float) -> bool:
        """Close it if it is overdue; return whether it waits for its peer, not for the service."""

    def refuse(self, code: str) -> None:
        """Answer with an error, and close."""

    def abort(self) -> None:
        """Close it at once."""


class Connections(ServerState):
    """The connections of a uvicorn server, checked once a second."""

    connections: set[Any]

    def __init__(self, limit: int, trusted_proxies: str | list[str]) -> None:
        super().__init__()
        self.limit = limit
        self.now = 0.0
        self.refused: Counter[str] = Counter()
        self._is_full = False
        self._logged_at = float("-inf")
        self._trusted = ProxyHeadersMiddleware(_nobody, trusted_proxies).trusted_hosts

    def admit(self, new: Connection) -> None:
        """Accept a new connection, if need be by closing others, or refuse it."""
        address = new.address
        new.networks = () if address in self._trusted else networks(address)
        open_now = len(self.connections)
        if open_now <= self.limit or (not self._is_full and self._make_room(new)):
            return
        if open_now <= self.limit + MAX_ANSWERED_REFUSALS:
            new.refuse("too_many_connections")
        else:
            self.refused["too_many_connections"] += 1
            new.abort()

    def sweep(self, now: float) -> None:
        """Close connections that are overdue; log how many were refused."""
        self.now = now
        self._is_full = False
        for connection in list(self.connections):
            self._check(connection)
        if self.refused and now - self._logged_at >= LOG_INTERVAL_SECONDS:
            log.event("connections_refused", **self.refused)
            self.refused.clear()
            self._logged_at = now

    def _check(self, connection: Connection) -> bool:
        """Check a connection; an error in one must not stop the service for all."""
        try:
            return connection.check(self.now)
        except Exception as error:
            log.failure(error)
            connection.abort()
            return False

    def _make_room(self, new: Connection) -> bool:
        """Close idle connections of the visitor who has most; return whether that helps."""
        others = self.connections - {new}
        waiting = [each for each in others if self._check(each)]
        if len(self.connections) - len(waiting) > self.limit:
            self._is_full = True
            return False  # the idle ones were refused too, and still read why
        visitors = [each for each in waiting if each.networks] or waiting
        visitors.sort(key=attrgetter("since"), reverse=True)
        ranks = _ranks(visitors)
        wanted = max(self.limit // CLOSED_ONE_IN, 1)
        enough = max(min(wanted, len(visitors) // 2), 1)
        self._is_full = enough < wanted
        for index in sorted(range(len(visitors)), key=ranks.__getitem__)[-enough:]:
            visitors[index].abort()
        return True


def _ranks(connections: list[Connection]) -> list[float]:
    """Return how many connections its visitor has up to each, weighted by network."""
    counts: dict[bytes, float] = {}
    ranks = []
    for each in connections:
        rank = 0.0
        for network, weight in zip(each.networks, NETWORK_WEIGHTS, strict=False):
            counts[network] = counts.get(network, 0.0) + weight
            rank = max(rank, counts[network])
        ranks.append(rank)
    return ranks


def max_connections(wanted: int | None) -> tuple[int, int]:
    """Return how many connections this process may have, and how many files are left then.

    Raise the process's limit of open files as far as the system allows.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = FILES_IF_UNLIMITED
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    possible = max(files - RESERVED_FILES, files // 2)
    if wanted is not None and wanted > possible:
        reason = f"{files} open files (ulimit -Hn, LimitNOFILE=) allow {possible}: raise that limit"
        raise InvalidInput("connections", wanted, reason)
    most = wanted or min(possible, DEFAULT_MAX_CONNECTIONS)
    return most, files - most


async def _nobody(*_: object) -> None:
    """An application that is never called: only the middleware's trusted addresses are used."""
