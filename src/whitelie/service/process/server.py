"""`whitelie serve`: opens the store, makes the first key, and serves until a signal to stop."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_TCP,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SOL_SOCKET,
    TCP_NOTSENT_LOWAT,
    create_server,
    socket,
)
from typing import Any

import msgspec
import uvicorn

from whitelie.errors import InvalidInput, WhitelieError
from whitelie.kernel.block import LEAST_FOR_BLOCK
from whitelie.policy import COUNT_POLICIES
from whitelie.service import MOST_EPSILON, PER_ADDRESS, log, wire
from whitelie.service.api.app import build
from whitelie.service.api.connections import Connections, max_connections
from whitelie.service.api.hot_path import Service
from whitelie.service.api.limits import Limits
from whitelie.service.api.protocol import LimitedProtocol
from whitelie.service.engine.clock import TrustedClock
from whitelie.service.engine.engine import LAST_COMMITS_TIMEOUT_SECONDS, Engine
from whitelie.service.engine.keys import admin_key, hash_of, new_key
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.secrets import secrets_for, write_private
from whitelie.service.engine.shared_counters import SharedCounters
from whitelie.service.engine.tokens import fingerprint
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.experiment.results import results_of
from whitelie.service.process.supervisor import Supervisor
from whitelie.service.store.address import is_postgresql, open_store, sqlite_path
from whitelie.service.store.contract import Key, Store, StoredExperiment

SHUTDOWN_TIMEOUT_SECONDS = 10
"""How long requests may take to finish when the service stops (graceful shutdown)."""

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long one thread may keep the interpreter's lock while another waits; Python's is 5 ms."""

BACKLOG = 2048
"""Connections that may wait to be accepted, if there are files for all of them."""

TICKS_PER_SWEEP = 10
"""uvicorn ticks ten times a second; so often are all connections checked."""

MAX_UNSENT_BYTES = 1 << 17
"""What the kernel may buffer for a peer that does not read, before backpressure sets in."""

GC_THRESHOLDS = 50_000, 20, 100
"""Python's garbage collector runs rarely, since requests leave hardly any cycles."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator has chosen."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    most_epsilon: float = MOST_EPSILON
    per_address: int = PER_ADDRESS
    trusted_proxies: str = "127.0.0.1"
    connections: int | None = None
    auto_ship: bool = True


class Server(uvicorn.Server):
    """Checks its connections, and ends its streams before it waits for requests at shutdown."""

    def __init__(self, config: uvicorn.Config, engine: Engine, limit: int | None = None) -> None:
        super().__init__(config)
        self._engine = engine
        limit, files_left = max_connections(limit)
        config.backlog = min(BACKLOG, files_left // 2)
        self.server_state = self._connections = Connections(limit, config.forwarded_allow_ips)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            log.event("serving", address=f"http://{host}:{port}", epoch=self._engine.pipeline.epoch)

    async def on_tick(self, counter: int) -> bool:
        """Check all connections, once a second."""
        if counter % TICKS_PER_SWEEP == 0:
            self._connections.sweep(time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Stop: accept no more requests, finish those being served, commit what was accepted."""
        self._engine.end_pauses()
        if not self._engine.writer.is_available:  # what waits for the store would wait in vain
            self.config.timeout_graceful_shutdown = int(LAST_COMMITS_TIMEOUT_SECONDS)
        await super().shutdown(sockets)
        log.event("stopped")


def run(address: str, settings: Settings) -> None:
    """Serve from the store at an address until a signal to stop."""
    if settings.workers > 1 and not is_postgresql(address):
        reason = "one process serves a SQLite file: give one worker, or a postgresql:// store"
        raise InvalidInput("workers", settings.workers, reason)
    max_connections(settings.connections)
    port = listen(settings.host, settings.port, is_shared=settings.workers > 1)
    store = open_store(address)
    secrets = secrets_for(None if is_postgresql(address) else sqlite_path(address))

    def claimed(store: Store) -> Store:
        store.claim([fingerprint(secret) for secret in secrets()])
        return store

    claimed(store)
    log.start()
    make_first_key(store, _key_file(address))
    warm_up()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    counters, clock = SharedCounters(settings.workers), TrustedClock()
    if settings.workers == 1:
        serve(_engine(store, secrets, clock, counters, settings), settings, port)
        return
    store.close()  # every worker has connections of its own

    def work(place: int) -> None:
        counters.place = place
        mine = listen(settings.host, port.getsockname()[1], is_shared=True)
        opened = claimed(open_store(address))
        serve(_engine(opened, secrets, clock, counters, settings), settings, mine)

    Supervisor(work, settings.workers, on_poll=clock).run()


def _engine(
    store: Store,
    secrets: Callable[[], Sequence[bytes]],
    clock: TrustedClock,
    counters: SharedCounters,
    settings: Settings,
) -> Engine:
    ships = settings.auto_ship
    return Engine(store, secrets, clock=clock, counters=counters, auto_ships=ships)


def serve(engine: Engine, settings: Settings, listening: socket) -> None:
    """Serve what an engine decides and counts, until a signal to end."""
    service = Service(
        engine, ExperimentValidator(settings.most_epsilon), Limits(settings.per_address)
    )
    config = configuration(
        build(service),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS,
    )
    exit_cleanly_on_signals()
    Server(config, engine, settings.connections).run([listening])


def configuration(app: Any, **more: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for an application: fast, and without an access log."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        **more,
    )


def exit_cleanly_on_signals() -> None:
    """Exit with code 0 at the signals that uvicorn handles and then raises again."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: sys.exit(0))


def listen(host: str, port: int, *, is_shared: bool = False) -> socket:
    """Return a socket that is bound to a port, or say why it cannot be bound.

    Several processes may share a port: the kernel distributes connections among them.
    """
    family = AF_INET6 if ":" in host else AF_INET
    try:
        if is_shared:
            bound = socket(family)
            for option in (SO_REUSEADDR, SO_REUSEPORT):
                bound.setsockopt(SOL_SOCKET, option, 1)
            bound.bind((host, port))
        else:
            bound = create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = f"cannot listen on {host}:{port}: {error.strerror}; give another --host or --port"
        raise WhitelieError(reason) from None
    if sys.platform == "linux":
        bound.setsockopt(
            IPPROTO_TCP, TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES
        )  # accepted ones inherit it
    return bound


def warm_up() -> None:
    """Compile, or load from the cache, all that requests need, before the first request."""
    arms = [wire.NewArm(key="a"), wire.NewArm(key="b")]
    for policy in COUNT_POLICIES:
        asked = wire.NewExperiment(
            name="-", arms=arms, epsilon=1.0, window=0, spread=0, policy=policy.label
        )
        definition = msgspec.json.encode(ExperimentValidator().create(asked, 0, None)).decode()
        learner = Learner(StoredExperiment(0, "-", definition), {})
        learner.choose(1)
        learner.choose(LEAST_FOR_BLOCK)
        for position in range(len(arms)):
            learner.commit_answers(position, 2, 1, 0)
        results_of(learner.snapshot({}))


def _key_file(address: str) -> Path:
    """Return where the operator finds the admin key: beside a SQLite file, or in this folder."""
    path = Path("whitelie") if is_postgresql(address) else sqlite_path(address)
    return path.with_name(f"{path.name}.admin-key")


def make_first_key(store: Store, file: Path) -> None:
    """Store the operator's admin key, or create one if there is none and hand it over once."""
    given, known = os.environ.get("WHITELIE_ADMIN_KEY"), store.keys()
    if given is not None:
        key = admin_key("environment", given)
        for old in known:
            if old.name == key.name and old.hash != key.hash:
                store.delete_key(old.hash)
        if key not in known:
            store.save_key(key)
    elif not any(key.role == "admin" for key in known):
        text = new_key("admin")
        mine = Key("first", "admin", hash_of(text))
        store.save_key(mine)
        admins = [key for key in list(store.keys()) if key.role == "admin"]
        if admins[0] != mine:  # another server was faster
            store.delete_key(mine.hash)
        elif sys.stdout.isatty():
            print(f"Admin key, shown this once: {text}")
        else:
            _write_key(text, file, store, mine)


def _write_key(text: str, file: Path, store: Store, key: Key) -> None:
    """Write a key to a file; if that fails, delete the key."""
    try:
        write_private(file, f"{text}\n")
    except OSError as error:
        store.delete_key(key.hash)
        reason = f"a new key cannot be written to {file} ({error.strerror}): set this variable"
        raise InvalidInput("WHITELIE_ADMIN_KEY", None, reason) from None
    log.event("admin_key_written", file=str(file))
