"""`whitelie experiment` and `whitelie key`: what operators do from the shell."""

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from whitelie.cli import app
from whitelie.service.engine import secrets
from whitelie.service.engine.keys import hash_of
from whitelie.service.experiment import changes
from whitelie.service.minutes import this_minute
from whitelie.service.process import server
from whitelie.service.store.contract import Batch, Cell, Decision, Key, ReportedBit
from whitelie.service.store.sqlite.store import SQLiteStore

DESCRIPTION = {
    "name": "Front <b>page</b>",
    "arms": [{"key": "red"}, {"key": "blue"}],
    "epsilon": 1,
    "window": 60,
    "spread": 60,
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    SQLiteStore(path).close()
    return path


def run(database: Path, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [*words, "--store", f"sqlite:///{database}"], input=given)


def create(database: Path, **changes: object) -> Result:
    given = json.dumps({**DESCRIPTION, **changes})
    return run(database, "experiment", "create", "-", given=given)


def keys(database: Path) -> list[Key]:
    with closing(SQLiteStore(database)) as store:
        return list(store.keys())


def test_an_experiment_is_created_listed_paused_and_stopped(database: Path) -> None:
    assert create(database).output == "front-b-page-b\n"
    assert create(database).output == "front-b-page-b-2\n"
    listed = run(database, "experiment", "list").output
    assert "Front <b>page</b>" in listed
    assert "TS-CF" in listed
    for words, status in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        assert run(database, "experiment", words, "front-b-page-b").exit_code == 0
        with closing(SQLiteStore(database)) as store:
            first, second = map(changes.definition_of, store.experiments())
        assert first.status == status
        assert second.status == "running"
    refused = run(database, "experiment", "resume", "front-b-page-b")
    assert refused.exit_code == 2
    assert "stopped" in refused.stderr


def test_show_corrects_what_was_counted(database: Path) -> None:
    create(database)
    minute = this_minute()
    with closing(SQLiteStore(database)) as store:
        (saved,) = store.experiments()
        epoch = store.new_epoch()
        reports = [
            ReportedBit(Decision(saved.number, arm, epoch, 2 * i + arm, minute, minute + 9), bit)
            for arm, ones in ((0, 700), (1, 300))
            for i, bit in enumerate([1] * ones + [0] * (1000 - ones))
        ]
        issued = {Cell(saved.number, arm, minute): 1000 for arm in (0, 1)}
        store.commit(Batch(issued, reports))
    shown = run(database, "experiment", "show", "front-b-page-b").output
    assert shown.startswith("No certificate yet: red leads with all of the evidence that is ")
    with closing(SQLiteStore(database)) as store:
        (saved,) = store.experiments()
        noted = changes.definition_of(saved).with_certificate("red", minute)
        changes.change(store, saved, noted)
    sentence = "red is best (wrong with probability at most 5 %, however often one looks)."
    shown = " ".join(run(database, "experiment", "show", "front-b-page-b").output.split())
    assert shown.startswith(f"{sentence} 2,000 reports so far. arm ")
    assert "70.0%" in shown  # the raw rate
    assert "93.3%" in shown  # (0.7 − 0.2689) / 0.4621


def test_an_arm_is_shipped_and_that_is_undone(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(database)
    done = run(database, "experiment", "ship", "front-b-page-b", "blue")
    assert done.output == "front-b-page-b is shipped: everybody sees blue\n"
    shown = run(database, "experiment", "show", "front-b-page-b").output
    assert shown.startswith("Shipped: everybody sees blue. No reports yet; 0 decisions issued.")
    assert "shipped" in run(database, "experiment", "list").output
    refused = run(database, "experiment", "pause", "front-b-page-b")
    assert (refused.exit_code, "undone within a day" in refused.stderr) == (2, True)
    done = run(database, "experiment", "unship", "front-b-page-b")
    assert done.output == "front-b-page-b is running\n"
    refused = run(database, "experiment", "ship", "front-b-page-b", "green")
    assert (refused.exit_code, "there is no arm 'green'" in refused.stderr) == (2, True)
    run(database, "experiment", "ship", "front-b-page-b", "red")
    later = time.time() + 86_400 + 120
    monkeypatch.setattr("whitelie.service.minutes.now", lambda: later)
    refused = run(database, "experiment", "unship", "front-b-page-b")
    assert (refused.exit_code, "more than a day ago" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"epsilon": 9}, "epsilon: a report would reveal epsilon = 9"),
        ({"epsilon": None}, "arms[0].epsilon: give epsilon, or p00 and p11"),
        ({"window": -1}, "window"),
        ({"policy": "WR(TS)"}, "policy: WR(TS) keeps more than counts"),
        ({"arms": [{"key": "red"}, {"key": "red"}]}, "two arms have the key 'red'"),
        ({"colour": "red"}, "colour"),
        ({"goal": "know", "policy": "TS-CF"}, "goal: give a goal or a policy, not both"),
        ({"delta": 0.6}, "delta: the probability of a wrong certificate"),
    ],
)
def test_what_cannot_be_created_is_refused(
    database: Path, changes: dict[str, object], complaint: str
) -> None:
    refused = create(database, **changes)
    assert refused.exit_code == 2
    assert complaint in refused.stderr
    with closing(SQLiteStore(database)) as store:
        assert store.experiments() == []


def test_an_unknown_experiment_or_store_is_refused(database: Path, tmp_path: Path) -> None:
    create(database)
    refused = run(database, "experiment", "pause", "nothing")
    assert (refused.exit_code, "front-b-page-b" in refused.stderr) == (2, True)
    refused = run(tmp_path / "other.db", "experiment", "list")
    assert (refused.exit_code, "whitelie serve" in refused.stderr) == (2, True)
    assert not (tmp_path / "other.db").exists()


def test_a_key_is_created_rotated_and_revoked(database: Path) -> None:
    words = ("key", "create", "shop", "--origin", "https://Shop.example/")
    first = run(database, *words).output.strip()
    (key,) = keys(database)
    assert first.startswith("pk_")
    assert key == Key("shop", "publishable", hash_of(first), ("https://shop.example",), 6000)
    assert first.encode() not in database.read_bytes()

    second = run(database, "key", "rotate", "shop", "--grace", "5").output.strip()
    old, new = keys(database)
    assert (old.hash, new.hash) == (hash_of(first), hash_of(second))
    assert new.expiry is None
    assert old.expiry is not None
    assert 4 <= old.expiry - this_minute() <= 5

    assert run(database, "key", "revoke", "shop").exit_code == 0
    assert keys(database) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("create", "shop"), "rotate or revoke it"),
        (("create", "other", "--role", "king"), "publishable"),
        (("create", "other", "--origin", "shop.example"), "https://shop.example"),
        (("create", "other", "--role", "admin", "--origin", "https://a.b"), "only publishable"),
        (("rotate", "nobody"), "there are: shop"),
        (("rotate",), "--tokens"),
        (("revoke", "nobody"), "there are: shop"),
    ],
)
def test_wrong_commands_on_keys_are_refused(
    database: Path, words: tuple[str, ...], complaint: str
) -> None:
    run(database, "key", "create", "shop")
    refused = run(database, "key", *words)
    assert refused.exit_code == 2
    assert complaint in refused.stderr
    assert [key.name for key in keys(database)] == ["shop"]


def test_the_secret_of_tokens_is_rotated(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHITELIE_SECRET", raising=False)
    file = secrets.file_beside(database)
    secrets.rotate(file)
    (old,) = secrets.token_secrets(file)
    assert run(database, "key", "rotate", "--tokens").exit_code == 0
    new, kept = secrets.token_secrets(file)
    assert kept == old != new
    assert file.stat().st_mode & 0o777 == 0o600

    link = database.with_name("link.db")
    link.symlink_to(database)
    assert secrets.file_beside(link) == file
    beside = link.with_name("link.db.secret")
    file.rename(beside)  # where an earlier version has put it
    assert secrets.token_secrets(secrets.file_beside(link)) == [new, kept]
    assert file.stat().st_mode & 0o777 == 0o600

    monkeypatch.setenv("WHITELIE_SECRET", "s" * 32)
    refused = run(database, "key", "rotate", "--tokens")
    assert (refused.exit_code, "WHITELIE_SECRET" in refused.stderr) == (2, True)
    monkeypatch.delenv("WHITELIE_SECRET")
    assert secrets.token_secrets(file) == [new, kept]


@pytest.mark.parametrize(
    ("words", "environment", "ships"),
    [
        ([], {}, True),
        (["--no-auto-ship"], {}, False),
        ([], {"WHITELIE_AUTO_SHIP": "false"}, False),
        (["--auto-ship"], {"WHITELIE_AUTO_SHIP": "0"}, True),
    ],
)
def test_a_switch_turns_off_shipping_by_itself_for_the_whole_server(
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    environment: dict[str, str],
    ships: bool,
) -> None:
    made: list[server.Settings] = []
    monkeypatch.setattr(server, "run", lambda _, settings: made.append(settings))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(database, "serve", *words).exit_code == 0
    assert [settings.auto_ship for settings in made] == [ships]
