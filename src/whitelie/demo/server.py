"""`whitelie demo`: the service on a store in a temporary folder, the shop, and its visitors."""

import os
import secrets
import signal
import sys
import threading
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from whitelie.demo.app import FOLDER, Demo
from whitelie.demo.crowd import CrowdProcess
from whitelie.demo.shop import EPSILON, HEROES, SPREAD, WINDOW, experiment
from whitelie.demo.visitors import World
from whitelie.service import wire
from whitelie.service.api.app import build
from whitelie.service.api.hot_path import Service
from whitelie.service.api.limits import Limits
from whitelie.service.engine import keys
from whitelie.service.engine.engine import Engine
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.minutes import this_minute
from whitelie.service.process.server import (
    SWITCH_INTERVAL_SECONDS,
    Server,
    configuration,
    exit_cleanly_on_signals,
    listen,
    warm_up,
)
from whitelie.service.store.contract import Key, Store
from whitelie.service.store.sqlite.store import SQLiteStore

HOST = "127.0.0.1"
SHUTDOWN_TIMEOUT_SECONDS = 2
UNLIMITED_PER_MINUTE = 10**6
"""Decisions: all visitors come from one address and share one key."""


def run(port: int, pace: float, *, opens_browser: bool) -> None:
    """Serve the demonstration until a signal to stop, and leave nothing behind."""
    exit_cleanly_on_signals()
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    with listen(HOST, port) as listening, TemporaryDirectory(prefix="whitelie-demo-") as folder:
        port = listening.getsockname()[1]
        store = SQLiteStore(Path(folder) / "demo.db")
        store.claim()
        facts = _create(store, port)
        print("Getting ready; the first start compiles and takes half a minute.", flush=True)
        warm_up()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        sealing = [secrets.token_urlsafe(32).encode()]
        engine = Engine(store, lambda: sealing)
        world = World(
            server=f"http://{HOST}:{port}",
            key=facts["key"],
            experiment=facts["experiment"],
            window=WINDOW,
            spread=SPREAD,
            rates={hero.key: hero.rate for hero in HEROES},
        )
        with CrowdProcess(world, pace) as crowd:
            service = build(Service(engine, ExperimentValidator(), Limits(UNLIMITED_PER_MINUTE)))
            app = Demo(service, crowd, port, facts)
            config = configuration(app, timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS)
            address = f"http://{HOST}:{port}{FOLDER}"
            print(f"The shop is at {address}\nCtrl-C ends it and removes {folder}.", flush=True)
            if opens_browser:
                threading.Thread(target=_open, args=(address,), daemon=True).start()
            Server(config, engine).run([listening])


def _create(store: Store, port: int) -> dict[str, Any]:
    """Create the experiment and its keys; return what the page must know about them."""
    asked = msgspec.convert(experiment(), wire.NewExperiment)
    saved, _ = changes.create(store, ExperimentValidator().create(asked, this_minute(), None))
    origins = tuple(f"http://{host}:{port}" for host in (HOST, "localhost"))
    page = Key("shop", "publishable", b"", origins, UNLIMITED_PER_MINUTE)
    return {
        "experiment": saved.slug,
        "key": keys.create(store, page),
        "reader": keys.create(store, Key("panel", "reader", b"")),
        "admin": keys.create(store, Key("admin", "admin", b"")),
        "epsilon": EPSILON,
        "window": WINDOW,
        "spread": SPREAD,
        "heroes": [{"key": hero.key, "title": hero.title, "rate": hero.rate} for hero in HEROES],
    }


def _open(address: str) -> None:
    """Open a browser if there is a screen: a browser in this terminal would be in the way."""
    has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_screen or sys.platform != "linux":
        webbrowser.open(address)
