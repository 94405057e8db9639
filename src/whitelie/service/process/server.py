"""The processes: open the store, make the first key, serve until they are told to end."""

import gc
import os
import signal
import sys
import time
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
from whitelie.service import MOST_EPSILON, PER_ADDRESS, log, wire
from whitelie.service.app import build
from whitelie.service.clock import TrustedClock
from whitelie.service.connections import Connections, most_connections
from whitelie.service.door import Service
from whitelie.service.engine import FAREWELL, Engine
from whitelie.service.experiment import Rules
from whitelie.service.keys import admin_key, hash_of, new_key
from whitelie.service.learner import Learner
from whitelie.service.limits import Limits
from whitelie.service.protocol import LimitedProtocol
from whitelie.service.secret import secrets_for, write_private
from whitelie.service.standing import results_now, standing_of
from whitelie.service.store import Key, Saved, Store
from whitelie.service.store.address import is_postgresql, open_store, sqlite_path
from whitelie.service.supervisor import Supervisor
from whitelie.service.tally import Tally
from whitelie.service.token import fingerprint

GRACE = 10
"""Seconds that requests have to finish when the service ends."""

SWITCH = 0.0005
"""The longest that the writer waits for the interpreter, in seconds; 5 ms is Python's own."""

BACKLOG = 2048
"""Connections that may wait to be accepted, if there are files for all of them at once."""

SWEEP = 10
"""How many ticks of uvicorn, each a tenth of a second, are between two looks at all connections."""

UNSENT = 1 << 17
"""Bytes that the kernel may hold for a peer that does not read."""

RARELY = 50_000, 20, 100
"""When cycles are looked for: requests leave hardly any."""


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


class Server(uvicorn.Server):
    """Watches its connections, and tells its streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, engine: Engine, most: int | None = None) -> None:
        super().__init__(config)
        self._engine = engine
        most, left = most_connections(most)
        config.backlog = min(BACKLOG, left // 2)
        self.server_state = self._connections = Connections(most, config.forwarded_allow_ips)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            log.event("serving", address=f"http://{host}:{port}", epoch=self._engine.epoch)

    async def on_tick(self, counter: int) -> bool:
        """Do what is to be done ten times a second."""
        if counter % SWEEP == 0:
            self._connections.sweep(time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """End: no new requests, those at work are finished, what was accepted is committed."""
        self._engine.end_pauses()
        if not self._engine.writer.is_available:  # what waits for the store would wait in vain
            self.config.timeout_graceful_shutdown = int(FAREWELL)
        await super().shutdown(sockets)
        log.event("stopped")


def run(address: str, settings: Settings) -> None:
    """Serve from the store at an address until a signal to end."""
    if settings.workers > 1 and not is_postgresql(address):
        reason = "one process serves a SQLite file: give one worker, or a postgresql:// store"
        raise InvalidInput("workers", settings.workers, reason)
    most_connections(settings.connections)
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
    sys.setswitchinterval(SWITCH)
    gc.freeze()
    gc.set_threshold(*RARELY)
    tally, clock = Tally(settings.workers), TrustedClock()
    if settings.workers == 1:
        serve(Engine(store, secrets, clock=clock, tally=tally), settings, port)
        return
    store.close()  # every worker has connections of its own

    def work(place: int) -> None:
        tally.place = place
        mine = listen(settings.host, port.getsockname()[1], is_shared=True)
        engine = Engine(claimed(open_store(address)), secrets, clock=clock, tally=tally)
        serve(engine, settings, mine)

    Supervisor(work, settings.workers, look=clock).run()


def serve(engine: Engine, settings: Settings, listening: socket) -> None:
    """Serve what an engine decides and counts, until a signal to end."""
    service = Service(engine, Rules(settings.most_epsilon), Limits(settings.per_address))
    config = configuration(
        build(service),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=GRACE,
    )
    end_quietly()
    Server(config, engine, settings.connections).run([listening])


def configuration(app: Any, **more: Any) -> uvicorn.Config:
    """Return how uvicorn serves an application: fast, and without an access log."""
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


def end_quietly() -> None:
    """Let signals that uvicorn has heeded, and raises again, end the process with code 0."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: sys.exit(0))


def listen(host: str, port: int, *, is_shared: bool = False) -> socket:
    """Return a socket that is bound to a port, or say why it cannot.

    Several processes may share a port: the kernel shares connections out among those that listen.
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
        bound.setsockopt(IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT)  # and what it accepts inherits it
    return bound


def warm_up() -> None:
    """Compile, or load from the cache, all that requests need, before the first one comes."""
    arms = [wire.NewArm(key="a"), wire.NewArm(key="b")]
    for policy in ("TS-CF", "kl-UCB-CF"):
        asked = wire.NewExperiment(
            name="-", arms=arms, epsilon=1.0, window=0, spread=0, policy=policy
        )
        definition = msgspec.json.encode(Rules().create(asked, 0, None)).decode()
        learner = Learner(Saved(0, "-", definition), {})
        learner.choose(1)
        results_now(standing_of(learner, {}), learner)


def _key_file(address: str) -> Path:
    """Return where an admin key is left for the operator: beside a SQLite file, or here."""
    path = Path("whitelie") if is_postgresql(address) else sqlite_path(address)
    return path.with_name(f"{path.name}.admin-key")


def make_first_key(store: Store, file: Path) -> None:
    """Keep the operator's admin key, or make one if there is none and hand it over once."""
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
            _leave(text, file, store, mine)


def _leave(text: str, file: Path, store: Store, key: Key) -> None:
    """Write a key to a file, or forget it."""
    try:
        write_private(file, f"{text}\n")
    except OSError as error:
        store.delete_key(key.hash)
        reason = f"one cannot be written to {file} ({error.strerror}): set this variable"
        raise InvalidInput("WHITELIE_ADMIN_KEY", None, reason) from None
    log.event("admin_key_written", file=str(file))
