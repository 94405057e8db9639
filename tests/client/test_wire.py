"""The JavaScript client as the wire sees it: an audit of what left it, its own tests, its package.

Visitors with clocks of their own, bits from the platform's generator, and the real service.
"""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import log
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from helpers.client_audit import Audit, Interval, Record, audit, complaints
from helpers.paths import ROOT
from helpers.service_process import Server
from whitelie import RandomizedResponse
from whitelie.service.engine import keys
from whitelie.service.store.contract import Key
from whitelie.service.store.sqlite.store import SQLiteStore

HOME = ROOT / "clients" / "js"
VISITS = 20_000
FEW = 1_000
WINDOW, SPREAD = 600, 600
ONE = RandomizedResponse.from_epsilon(1)
MANY = 10**6
HANG_TIMEOUT_SECONDS = 300.0
"""Seconds after which a test gives up; nothing is said about speed."""

PACKED = {"LICENSE", "README.md", "package.json", "whitelie.d.ts", "whitelie.js"}
SIZE = re.compile(r"^\s*(?:ok \d+ -|✔) .*gzipped", re.MULTILINE)
NO_NETWORK = """
import { Socket } from "node:net";
Socket.prototype.connect = () => { throw new Error("there is no network") };
"""


@pytest.fixture(scope="module")
def node() -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed: apt-get install nodejs, version 20 or later")
    return node


# The audit ----------------------------------------------------------------------------------------


@dataclass
class Wire:
    """What requests alone show, beside who clicked; `counts` are the service's own."""

    records: list[Record]
    fields: set[tuple[str, ...]]
    reports: Counter[str]
    counts: tuple[int, int, int]

    @property
    def bits(self) -> int:
        return sum(record.bit or 0 for record in self.records)

    @property
    def faults(self) -> list[str]:
        """In what the client breaks its promise."""
        return complaints(audit(self.records), ONE, WINDOW) + hunch(self.records)


@dataclass
class Service:
    """A server for visitors who come without limit."""

    server: Server
    key: str
    node: str

    def visited(
        self,
        visits: int,
        sabotage: str | None = None,
        sending: str = "next-visit",
        leaving: tuple[float, float] = (0.5, 0.5),
    ) -> Wire:
        """Let visitors come, each once, and say what was seen.

        `leaving` are the shares that close the page before its report is due, by their reward.
        """
        experiment = self.server.create(window=WINDOW, spread=SPREAD)
        orders = {
            "server": f"http://127.0.0.1:{self.server.port}",
            "key": self.key,
            "experiment": experiment,
            "window": WINDOW,
            "spread": SPREAD,
            "visits": visits,
            "sending": sending,
            "leaving": leaving,
            "sabotage": sabotage,
        }
        command = [self.node, str(HOME / "testing" / "visits.js"), json.dumps(orders)]
        done = subprocess.run(
            command, capture_output=True, timeout=HANG_TIMEOUT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        recording = json.loads(done.stdout)
        assert len(recording["visits"]) == visits
        clicks = {visit["token"]: visit["clicked"] for visit in recording["visits"]}
        return Wire(
            joined(recording["requests"], clicks),
            {tuple(one["body"]) for one in recording["requests"]},
            Counter(one["body"]["token"] for one in recording["requests"] if is_report(one)),
            self.counts(experiment),
        )

    def counts(self, experiment: str) -> tuple[int, int, int]:
        """Return the decisions, the reports, and the ones among them."""
        answer = self.server.ask("GET", f"/v1/experiments/{experiment}/results")
        arms = json.loads(answer.body)["arms"]
        ones = sum(arm["answered"] * (arm["raw_rate"] or 0) for arm in arms)
        return sum(arm["issued"] for arm in arms), sum(arm["answered"] for arm in arms), round(ones)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, node: str) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("wire")
    with closing(SQLiteStore(folder / "whitelie.db")) as store:
        key = keys.create(store, Key("visitors", "publishable", b"", (), MANY))
    with Server(folder / "whitelie.db", folder / "log", "--per-address", str(MANY)) as server:
        yield Service(server.ready(), key, node)


def is_report(request: dict[str, Any]) -> bool:
    return bool(request["path"] == "/v1/feedback")


def joined(requests: list[dict[str, Any]], clicks: dict[str, int]) -> list[Record]:
    """Join decisions and reports by their tokens, and with the truth; times are in seconds."""
    reports = {one["body"]["token"]: one for one in requests if is_report(one)}
    records = []
    for request in requests:
        if not is_report(request):
            report = reports.get(request["issued"])
            at = None if report is None else report["at"] / 1000
            bit = None if report is None else report["body"]["bit"]
            records.append(Record(request["at"] / 1000, at, clicks[request["issued"]], bit))
    return records


def hunch(records: list[Record]) -> list[str]:
    """Guess from delays who clicked: the best threshold of one half, tried on the other."""
    seen = [(one.reported - one.decided, one.reward) for one in records if one.reported is not None]
    if len({reward for _, reward in seen}) < 2:
        return []
    sign, limit = best_threshold(seen[::2])
    said = [Counter[bool](), Counter[bool]()]
    for delay, reward in seen[1::2]:
        said[reward][sign * delay > sign * limit] += 1
    right = [Interval.of(said[reward][reward == 1], said[reward].total()) for reward in (0, 1)]
    lower, upper = (sum(each) / 2 for each in zip(*right, strict=True))
    print(f"guesses by delay are right with probability {lower:.3f} to {upper:.3f}")
    return [] if lower <= 0.5 else [f"delays betray clicks: {lower:.3f} of the guesses are right"]


def best_threshold(seen: list[tuple[float, int]]) -> tuple[int, float]:
    """Return a sign and a limit: `sign * delay > sign * limit` says click, as well as can be."""
    ones = sum(reward for _, reward in seen)
    weights = (-1 / (len(seen) - ones), 1 / ones)
    delays = groupby(sorted(seen), key=lambda one: one[0])
    steps = [(delay, sum(weights[reward] for _, reward in group)) for delay, group in delays]
    below = list(accumulate(step for _, step in steps))
    place = max(range(len(below)), key=lambda place: abs(below[place]))
    return (-1 if below[place] > 0 else 1), steps[place][0] + (1e-9 if below[place] > 0 else 0)


def epsilons(audited: Audit) -> Interval:
    """What epsilon of a report may be, from how often either reward becomes either bit."""
    zero, one = audited.ones
    no_zero, no_one = (Interval(1 - each.upper, 1 - each.lower) for each in audited.ones)
    ratios = [(one, zero), (no_zero, no_one)]
    lower = max(log(more.lower / less.upper) for more, less in ratios)
    return Interval(lower, max(log(more.upper / less.lower) for more, less in ratios))


@pytest.mark.parametrize(
    ("visits", "power"), [(5_000, 0.6), pytest.param(VISITS, 0.8, marks=pytest.mark.long)]
)
def test_what_leaves_the_client_keeps_the_promise(
    service: Service, visits: int, power: float
) -> None:
    wire = service.visited(visits)
    audited = audit(wire.records)
    print(audited, epsilons(audited))
    assert wire.faults == []
    assert ONE.epsilon in epsilons(audited)
    assert audited.epsilon <= ONE.epsilon
    assert epsilons(audited).lower > power, "the audit has no power"
    assert wire.fields == {(), ("token", "bit")}
    assert set(wire.reports.values()) == {1}
    assert wire.counts == (visits, len(wire.reports), wire.bits)
    assert min(audited.shares) > 0.9, "who stays or comes back reports"
    assert max(audited.shares) < 1, "who leaves for ever is silent"


LEAVING = (0.6, 0.9)
"""A click leads elsewhere: of those who click more close the page before its report is due."""


def test_next_visit_does_not_reveal_who_leaves_because_of_a_click(service: Service) -> None:
    wire = service.visited(FEW, leaving=LEAVING)
    assert wire.faults == []
    assert len(wire.reports) > 0.9 * FEW, "most come back"


def test_the_audit_finds_who_leaves_because_of_a_click_when_due(service: Service) -> None:
    """What this rule does not hide, and the documents say so: how long somebody stayed."""
    faults = service.visited(FEW, sending="when-due", leaving=LEAVING).faults
    print(faults)
    assert any("when a report comes depends on the reward" in fault for fault in faults), faults
    assert service.visited(FEW, sending="when-due").faults == []


@pytest.mark.parametrize(
    ("sabotage", "complaint"),
    [
        ("does not flip", "a visit reveals"),
        ("reports only clicks", "whether a report comes depends on the reward"),
        ("reports at the click", "within the window"),
        ("reports clicks later", "when a report comes depends on the reward"),
    ],
)
def test_the_audit_catches_sabotage(service: Service, sabotage: str, complaint: str) -> None:
    """Negative controls: bits, silence, times, and times that keep the window."""
    faults = service.visited(FEW, sabotage).faults
    print(faults)
    assert any(complaint in fault for fault in faults), faults
    if sabotage == "reports at the click":
        assert any("delays betray clicks" in fault for fault in faults), faults


# The package --------------------------------------------------------------------------------------


def quiet(folder: Path) -> dict[str, str]:
    """The environment of programs that have no network; npm writes into the folder."""
    lock = f"--import=data:text/javascript,{quote(NO_NETWORK)}"
    cache = {"npm_config_cache": str(folder), "npm_config_update_notifier": "false"}
    known = {name: text for name, text in os.environ.items() if not name.startswith("WHITELIE_")}
    return {**known, **cache, "NODE_OPTIONS": lock}


def test_without_a_network_nothing_connects(node: str, tmp_path: Path) -> None:
    """Negative control of the next test."""
    program = "fetch('http://127.0.0.1:50000').catch((error) => console.log(error.cause.message))"
    command = [node, "--eval", program]
    said = subprocess.run(
        command, env=quiet(tmp_path), capture_output=True, timeout=HANG_TIMEOUT_SECONDS, check=True
    )
    assert said.stdout.decode().strip() == "there is no network"


def test_the_clients_own_tests_pass_without_a_network(node: str, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    command = [npm, "test", "--offline"] if npm else [node, "--test"]
    done = subprocess.run(
        command,
        cwd=HOME,
        env=quiet(tmp_path),
        capture_output=True,
        timeout=HANG_TIMEOUT_SECONDS,
        check=False,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert SIZE.search(said), "the gzipped size is not checked"


def test_the_package_has_the_intended_files_only(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: apt-get install npm")
    command = [npm, "pack", "--dry-run", "--json", "--offline"]
    done = subprocess.run(
        command,
        cwd=HOME,
        env=quiet(tmp_path),
        capture_output=True,
        timeout=HANG_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"npm cannot run offline: {done.stderr.decode()}")
    (packed,) = json.loads(done.stdout)
    assert {file["path"] for file in packed["files"]} == PACKED
