"""Stores with experiments in the states that the dashboard shows."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from helpers.in_process_service import KEYS
from whitelie import RandomizedResponse
from whitelie.service import wire
from whitelie.service.engine.keys import hash_of
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.store.contract import Batch, Cell, Decision, Key, ReportedBit
from whitelie.service.store.sqlite.store import SQLiteStore

HERO: dict[str, Any] = {"name": "Homepage hero", "epsilon": 1.0, "window": 600, "spread": 300}
LONG_AGO = 9_990
"""Minutes of the longest history."""


def fill(path: Path) -> None:
    """Make a store with an experiment in each state, and a reader key."""
    store = SQLiteStore(path)
    store.save_key(Key("reader", "reader", hash_of(KEYS["reader"])))
    add(store, "empty", {"plain": 0.3, "kind": 0.4}, minutes=5, per_minute=0)
    add(store, "learning", {"plain": 0.3, "kind": 0.5, "bold": 0.25}, minutes=1440, per_minute=3)
    clear = {"plain": 0.2, "kind": 0.5, "bold": 0.25}
    add(store, "certified", clear, minutes=2880, per_minute=12)
    add(store, "shipped", clear, minutes=2880, per_minute=12)
    ship(store, "shipped", "kind")
    add(
        store,
        "alarmed",
        {"plain": 0.3, "kind": 1.4, "bold": 0.3},
        minutes=1440,
        per_minute=6,
        answering={"plain": 0.9, "kind": 0.9, "bold": 0.4},
        feedback_ttl=3600,
    )
    add(store, "long", {"plain": 0.3, "kind": 0.4, "bold": 0.35}, minutes=LONG_AGO, per_minute=4)
    hostile = {"<b>bold</b>": 0.3, "<img src=x onerror=alert(1)>": 0.4, "$\\frac12$ &lt;": 0.3}
    add(store, "<script>alert(1)</script>", hostile, minutes=120, per_minute=5)
    store.close()


def add(
    store: SQLiteStore,
    name: str,
    rates: Mapping[str, float],
    *,
    minutes: int,
    per_minute: int,
    answering: Mapping[str, float] | None = None,
    **fields: Any,
) -> None:
    """Add an experiment whose traffic moves to the best arm; a rate above 1 is a cheat's."""
    draw = np.random.default_rng(1)
    now = int(time.time() // 60)
    arms = [wire.NewArm(key=key, payload={"text": key}) for key in rates]
    asked = wire.NewExperiment(**HERO | {"name": name} | fields, arms=arms)
    experiment = ExperimentValidator().create(asked, now - minutes, None)
    number = changes.create(store, experiment)[0].number
    channel = RandomizedResponse.from_epsilon(experiment.epsilon)
    epoch = store.new_epoch()
    best = int(np.argmax(list(rates.values())))
    batch = Batch(minute=now, steps={number: experiment.step})
    sequence = 0
    for past in range(minutes, 0, -1) if per_minute else ():
        share = np.full(len(rates), 1.0)
        share[best] = 1 + 8 / (1 + math.exp(-8 * (0.5 - past / minutes)))
        issued = draw.multinomial(draw.poisson(per_minute), share / share.sum())
        for arm, (key, rate) in enumerate(rates.items()):
            minute, count = now - past, int(issued[arm])
            if not count:
                continue
            batch.issued[Cell(number, arm, minute)] = count
            answered = draw.binomial(count, (answering or {}).get(key, 0.9))
            mean = min(channel.mean_feedback(min(rate, 1.0)) + 0.5 * max(rate - 1, 0), 1.0)
            for bit in draw.random(answered) < mean:
                expiry = minute + experiment.lifetime
                told = Decision(number, arm, epoch, sequence, minute, expiry)
                batch.reports.append(ReportedBit(told, int(bit)))
                sequence += 1
    if batch.issued:
        store.commit(batch)


def ship(store: SQLiteStore, slug: str, arm: str) -> None:
    """Let everybody see an arm of an experiment."""
    (saved,) = (each for each in store.experiments() if each.slug == slug)
    now = int(time.time() // 60)
    shipped = ExperimentValidator().ship(changes.definition_of(saved), arm, now)
    changes.change(store, saved, shipped)
