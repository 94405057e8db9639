"""What earlier versions wrote still opens, and goes on as it would have gone on then.

Each folder of tests/samples with a version for its name is what that version wrote, by
tests/samples/make.py. Every kind has a control: a damaged sample is refused or has another end.
clients/js/test/samples.test.js does the same for the browser's client.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from helpers.in_process_service import Clock
from helpers.postgres_server import Postgres
from helpers.sample_service import Network, Operator, operating
from whitelie import (
    Bandit,
    InvalidInput,
    Result,
    policy_from_dict,
    simulate,
    simulate_many,
)
from whitelie.cli import app
from whitelie.client import Client, Folder
from whitelie.service.store.address import open_store

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("samples/*/result.nc"))


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def sample(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture
def copied(sample: Path, tmp_path: Path) -> Path:
    """A sample that may be changed."""
    return Path(shutil.copytree(sample, tmp_path / "sample"))


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def whitelie(*words: object) -> Outcome:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_there_are_samples() -> None:
    assert "0.1" in [folder.name for folder in VERSIONS]


# Results and simulations --------------------------------------------------------------------------


def asked_of(result: Result) -> dict[str, Any]:
    """The arguments of the simulation that gave a result."""
    times = result.dataset["time"].values.tolist()
    return {
        "horizon": result.horizon,
        "replicates": result.replicates,
        "seed": result.cells[0].seed,
        "checkpoints": times,
        "jobs": 1,
    }


def cells_of(result: Result) -> list[Any]:
    """The problems and policies of the simulation that gave a result."""
    return [
        (cell.problem, {name: policy_from_dict(made) for name, made in cell.policies.items()})
        for cell in result.cells
    ]


DP_UCB_INT = "DP-UCB-INT (epsilon=0.5)"


def test_a_result_opens_and_is_what_is_simulated_today(sample: Path) -> None:
    result = Result.load(sample / "result.nc")
    assert list(result.policies) == ["kl-UCB-CF", "TS-CF", "WR(TS)", DP_UCB_INT]
    assert result.pulls.values.tolist() == read(sample / "result.json")
    ((problem, policies),) = cells_of(result)
    assert problem.names == ("plain", "kind", 3)
    again = simulate(problem, policies, **asked_of(result))
    assert again.dataset.equals(result.dataset)
    assert again.cells[0].policies == result.cells[0].policies


def test_a_stacked_result_opens_and_is_what_is_simulated_today(sample: Path) -> None:
    result = Result.load(sample / "sweep.nc")
    assert result.coordinate == "epsilon"
    values = result.dataset["epsilon"].values.tolist()
    assert values == [0.5, 2]
    cells, asked = cells_of(result), asked_of(result)
    again = simulate_many(cells, coordinate="epsilon", values=values, **asked)
    assert again.dataset.equals(result.dataset)


def test_a_damaged_result_is_refused(copied: Path) -> None:
    path = copied / "result.nc"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="damaged"):
        Result.load(path)


def resumed(folder: Path) -> Result:
    """Go on with a store until it has all replicates of the result beside it."""
    result = Result.load(folder / "result.nc")
    ((problem, policies),) = cells_of(result)
    return simulate(problem, policies, **asked_of(result), store=folder / "store")


def test_an_interrupted_simulation_is_resumed(copied: Path) -> None:
    before = {path: path.read_bytes() for path in copied.glob("store/chunks/*")}
    assert len(before) == 8, "two of five replicates of four policies"
    whole = Result.load(copied / "result.nc")
    assert resumed(copied).dataset.equals(whole.dataset)
    assert all(path.read_bytes() == content for path, content in before.items())
    replicates = sorted(path.name.split("-", 2)[2] for path in copied.glob("store/chunks/*"))
    assert replicates.count("0-1.npy") == replicates.count("1-2.npy") == 4


def test_the_chunks_of_a_store_are_what_a_resumed_simulation_returns(copied: Path) -> None:
    chunk = min(copied.glob("store/chunks/*"))
    pulls = np.load(chunk)
    assert not np.array_equal(pulls, pulls[..., ::-1])
    np.save(chunk, np.ascontiguousarray(pulls[..., ::-1]))
    whole = Result.load(copied / "result.nc")
    assert not resumed(copied).dataset.equals(whole.dataset), "another chunk, another result"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert resumed(copied).dataset.equals(whole.dataset), "what is damaged is simulated anew"
    settings = copied / "store/settings.json"
    settings.write_text(json.dumps(read(settings) | {"kernel": "0" * 16}))
    with pytest.raises(InvalidInput, match="a kernel that gives other numbers"):
        resumed(copied)


def test_a_simulation_of_the_command_line_is_resumed(copied: Path) -> None:
    whole = Result.load(copied / "sweep.nc")
    chunks = {path.name for path in copied.glob("sweep-store/chunks/*")}
    done = whitelie("simulate", copied / "sweep.toml", "--store", copied / "sweep-store")
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert "replaced" in told, "an earlier version's result and figure are known as ours"
    assert "wrote" not in told
    assert Result.load(copied / "sweep.nc").dataset.equals(whole.dataset)
    assert len(chunks) == 8
    assert chunks < {path.name for path in copied.glob("sweep-store/chunks/*")}
    specification = copied / "sweep.toml"
    specification.write_text(specification.read_text().replace("seed = 7", "seed = 8"))
    refused = whitelie("simulate", specification, "--store", copied / "sweep-store")
    assert refused.exit_code == 2
    assert "made with seed 7" in " ".join(refused.output.split())


def test_an_interrupted_reproduction_is_resumed(copied: Path) -> None:
    folder = copied / "reproduction"
    claims = read(folder / "claims.json")
    chunks = {path: path.read_bytes() for path in folder.glob("runs/*/chunks/*")}
    (folder / "claims.json").unlink()
    command = ["reproduce", "--quick", "--only", "2c", "--horizon", 1000, "--out", folder]
    done = whitelie(*command, "--replicates", 2)
    assert done.exit_code == 0, done.output
    assert_same(claims, read(folder / "claims.json"))
    assert all(path.read_bytes() == content for path, content in chunks.items())
    assert len(list(folder.glob("runs/*/chunks/*"))) == len(chunks) + 2
    refused = whitelie(*command, "--replicates", 3)
    assert refused.exit_code == 2
    assert "made with replicates 2" in " ".join(refused.output.split())


def assert_same(kept: Any, now: Any, path: str = "") -> None:
    """Check that all that was kept is there still; fields may have been added."""
    if isinstance(kept, dict):
        assert isinstance(now, dict), path
        for key, value in kept.items():
            assert key in now, f"{path}.{key}"
            assert_same(value, now[key], f"{path}.{key}")
    elif isinstance(kept, list):
        assert isinstance(now, list), path
        assert len(kept) == len(now), path
        for place, (one, other) in enumerate(zip(kept, now, strict=True)):
            assert_same(one, other, f"{path}[{place}]")
    elif isinstance(kept, float):
        assert now == pytest.approx(kept, rel=1e-9), path
    else:
        assert (kept, type(kept)) == (now, type(now)), path


# Bandits ------------------------------------------------------------------------------------------


def choices_of(kept: dict[str, Any]) -> list[Any]:
    """What a restored bandit chooses, each time before it is told the next feedback."""
    bandit, choices = Bandit.from_json(kept["state"]), []
    for bit in kept["feedback"]:
        choices.append(bandit.choose())
        bandit.update(choices[-1], bit)
    return choices


def test_bandits_choose_as_they_would_have(sample: Path) -> None:
    bandits = read(sample / "bandits.json")
    assert len(bandits) == 7
    for kept in bandits:
        assert len(kept["choices"]) == 20
        assert choices_of(kept) == kept["choices"], kept["state"]
        bandit = Bandit.from_json(kept["state"])
        since = {"first_arms": 1, "expect": None}
        assert json.loads(bandit.to_json()) == json.loads(kept["state"]) | since
        assert bandit.arms == ("plain", "kind", 3)
        assert set(bandit.counts) == {"plain", "kind", 3, "gone"}


def test_a_changed_bandit_is_refused_or_chooses_otherwise(sample: Path) -> None:
    kept = read(sample / "bandits.json")[0]
    state = json.loads(kept["state"])
    assert choices_of(kept | {"state": json.dumps(state | {"seed": 99})}) != kept["choices"]
    state["arms"][0]["pulls"] = -1
    with pytest.raises(InvalidInput, match="pulls"):
        Bandit.from_json(json.dumps(state))


# Databases ----------------------------------------------------------------------------------------

Restore = Callable[[str], str]


@pytest.fixture
def restore(sample: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Restore:
    """Return what restores a kind of database from its dump, and returns its address."""

    def restored(kind: str) -> str:
        script = (sample / f"{kind}.sql").read_text(encoding="utf-8")
        if kind == "postgresql":
            server: Postgres = request.getfixturevalue("postgres")
            address = server.new_database()
            server.execute(address, script)
            return address
        path = tmp_path / "whitelie.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
        return f"sqlite:///{path}"

    return restored


def execute(address: str, statement: str) -> None:
    if address.startswith("sqlite"):
        with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(statement.replace("whitelie.", ""))
    else:
        Postgres.execute(address, statement)


KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


def reports_of(listed: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(each["token"], each["bit"]) for each in listed]


def totals(operator: Operator, slug: str) -> tuple[int, int, int]:
    arms = operator.told("GET", f"/v1/experiments/{slug}/results")["arms"]
    issued, answered, ones = (sum(arm[name] for arm in arms) for name in COUNTS)
    return issued, answered, ones


COUNTS = "issued", "answered", "ones"


@KINDS
def test_a_database_is_served_as_before(sample: Path, restore: Restore, kind: str) -> None:
    kept = read(sample / f"{kind}.json")
    keys = kept["keys"]
    with operating(restore(kind), kept["secret"], keys["admin"], Clock(kept["time"])) as operator:
        for path, view in kept["views"].items():
            now = operator.told("GET", path)
            if path.endswith("/results"):  # there was no certificate
                assert view.pop("converged") is False
                del view["sentence"]
                assert now["certificate"]["state"] in ("open", "cannot_say")
            assert_same(view, now, path)

        settled = kept["settled"]
        assert {each["status"] for each in settled} == {"duplicate", "expired", "invalid"}
        assert operator.report(reports_of(settled)) == [each["status"] for each in settled]
        before = totals(operator, "thompson")
        reports = reports_of(kept["unanswered"])
        assert operator.report(reports) == ["accepted"] * 3
        assert operator.report(reports) == ["duplicate"] * 3
        after = totals(operator, "thompson")
        assert np.subtract(after, before).tolist() == [0, 1, 1]

        arms = {decision["arm"] for decision in operator.decide("thompson", 1000)}
        assert arms == {"plain", "kind", "late"}, "one arm is retired, and one was added"
        for slug, code in (("paused", "paused"), ("stopped", "stopped")):
            refused = operator.ask("POST", f"/v1/experiments/{slug}/decisions", {})
            assert refused.status == 409
            assert json.loads(refused.body)["error"]["code"] == f"experiment_{code}"
        creation = kept["creation"]
        again = operator.told("POST", "/v1/experiments", creation["body"], **creation["headers"])
        assert again["id"] == "thompson", "an Idempotency-Key is known for ever"
        page = "/v1/experiments/thompson/results"
        statuses = [operator.ask("GET", page, key=keys[role]).status for role in sorted(keys)]
        assert statuses == [200, 403, 200]
        assert operator.ask("GET", page, key="rk_sample_old").status == 401, "it has expired"


@KINDS
def test_a_database_that_was_served_on_numbers_nothing_twice(
    sample: Path, restore: Restore, kind: str
) -> None:
    kept = read(sample / f"{kind}.json")
    address = restore(kind)
    with closing(open_store(address, must_exist=True)) as store:
        with store.contents() as held:
            epochs = list(held.epochs)
            assert held.last_experiment == 5, "the fifth was deleted"
        assert store.new_epoch() > max(epochs)
        saved = store.save("sixth", "{}")
        assert saved is not None
        assert saved.number == 6
        bits = sum(each["status"] == "duplicate" for each in kept["settled"])
        assert store.spent_bits() > bits > 0


@KINDS
def test_damage_to_a_database_shows(sample: Path, restore: Restore, kind: str) -> None:
    kept = read(sample / f"{kind}.json")
    address = restore(kind)
    execute(address, "DELETE FROM whitelie.spent")
    admin, clock = kept["keys"]["admin"], Clock(kept["time"])
    with operating(address, kept["secret"], admin, clock) as operator:
        duplicates = [each for each in kept["settled"] if each["status"] == "duplicate"]
        assert operator.report(reports_of(duplicates[:1])) == ["accepted"]
    execute(address, "UPDATE whitelie.counts SET issued = issued + 1 WHERE experiment = 1")
    other_secret = "another secret, which is as long as that one"
    if kind == "postgresql":
        with pytest.raises(InvalidInput, match="another secret"):
            operating(address, other_secret, admin, clock).__enter__()
        return
    with operating(address, other_secret, admin, clock) as operator:
        assert operator.report(reports_of(kept["unanswered"])) == ["invalid"] * 3
        path = "/v1/experiments/thompson/results"
        with pytest.raises(AssertionError, match="issued"):
            assert_same(kept["views"][path]["arms"], operator.told("GET", path)["arms"])


# Devices ------------------------------------------------------------------------------------------


def flushed(sample: Path, address: str, device: Path) -> tuple[int, list[Any], dict[str, Any]]:
    """Start a client on a folder; return what it sent to the sample's service, and what it left."""
    kept, database = read(sample / "device.json"), read(sample / "sqlite.json")
    clock, keys = Clock(kept["time"]), database["keys"]
    with operating(address, database["secret"], keys["admin"], clock) as operator:
        network, storage = Network(operator.server), Folder(device)
        assert network.address == kept["server"]
        client = Client(network, keys["publishable"], storage=storage, clock=clock)
        assert client.decide("thompson", sticky=True).arm == sticky_arm(storage)
        count = client.flush()
        left = {key: storage.get(key) for key in storage.keys()}  # noqa: SIM118 (a Storage is no dict)
        return count, network.sent, left


def sticky_arm(storage: Folder) -> str:
    arm: str = json.loads(storage.get("whitelie.sticky.thompson") or "")["arm"]
    return arm


def test_reports_that_wait_on_a_device_are_sent(
    sample: Path, copied: Path, restore: Restore
) -> None:
    kept = read(sample / "device.json")
    count, sent, left = flushed(sample, restore("sqlite"), copied / "device")
    assert count == kept["flushed"] == 5
    assert sent == kept["sent"], "to the byte, and the service takes them"
    assert [json.loads(each["body"])["bit"] for each in sent] == [0, 1, 1, 0, 1]
    assert left == kept["left"]
    assert sum("report" in key for key in left) == 1, "one is not due"


def test_a_damaged_report_is_not_sent(sample: Path, copied: Path, restore: Restore) -> None:
    damaged, *_ = sorted((copied / "device").glob("whitelie.report.*"))
    damaged.write_text(damaged.read_text()[:-1])
    count, sent, left = flushed(sample, restore("sqlite"), copied / "device")
    assert count == 4
    assert sent == read(sample / "device.json")["sent"][1:]
    assert damaged.name not in left
