"""A token secret or a key in wrong hands: what a thief can do, and what ends it.

What docs/service.md tells operators to do is done here, in that order.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.in_process_service import (
    DECISIONS,
    ONE,
    START,
    Line,
    Served,
    eventually,
    serving,
    stored,
)
from whitelie.cli import app
from whitelie.service.api.operations import OPERATIONS
from whitelie.service.engine import keys, secrets
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.minutes import time_of
from whitelie.service.store.contract import Decision, Key

pytestmark = pytest.mark.anyio

NOW = int(START // 60)
THIEF = "thief"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "whitelie.db"


@pytest.fixture
def file(database: Path) -> Path:
    """The file of secrets beside the database."""
    file = secrets.file_beside(database)
    secrets.rotate(file)
    return file


@pytest.fixture
async def served(database: Path, file: Path) -> AsyncIterator[Served]:
    async with serving(database, secrets=lambda: secrets.token_secrets(file)) as served:
        await served.create()
        yield served


def forged(stolen: bytes, minute: int, count: int = 5) -> list[dict[str, str]]:
    """Tokens that no server has issued, for the first arm and for any minute."""
    cipher = TokenCipher([stolen])
    decisions = [Decision(1, 0, minute, n, minute, NOW + 60) for n in range(count)]
    return [{"token": cipher.seal(decision)} for decision in decisions]


async def counted(served: Served, minute: int) -> list[Any]:
    """What the history says of a minute: (arm, issued, answered)."""
    span = {"from": time_of(minute).isoformat(), "to": time_of(minute + 1).isoformat()}
    answer = await served.as_("admin").get(f"{ONE}/history", params=span)
    return [
        (arm["key"], arm["issued"], arm["answered"])
        for bucket in answer.json()["buckets"]
        for arm in bucket["arms"]
    ]


async def roll_back(served: Served, start: int, stop: int) -> Any:
    span = {"from": time_of(start).isoformat(), "to": time_of(stop).isoformat()}
    answer = await served.as_("admin").post(f"{ONE}/rollback", json=span)
    assert answer.status_code == 200, answer.text
    return answer.json()["arms"]


async def test_a_stolen_secret_forges_reports_in_any_minute_until_it_is_removed(
    served: Served, database: Path, file: Path
) -> None:
    (stolen,) = secrets.token_secrets(file)
    honest = await served.decide("button", 2)
    before, spare = forged(stolen, NOW - 1000), forged(stolen, NOW - 2000)
    assert await served.report(before) == ["accepted"] * 5
    assert await counted(served, NOW - 1000) == [("green", 0, 5)]  # more answered than issued

    address = f"sqlite:///{database}"
    done = CliRunner().invoke(app, ["key", "rotate", "--tokens", "--store", address])
    assert done.exit_code == 0, done.output
    served.engine.reload_secrets()
    assert await served.report(spare[:1]) == ["accepted"]  # rotating alone ends nothing
    assert await served.report(honest[:1]) == ["accepted"]

    secrets.write_private(file, file.read_text().splitlines()[0] + "\n")  # sed -i '2,$d'

    async def is_refused() -> bool:
        return await served.report(spare[:1]) == ["invalid"]

    assert await eventually(is_refused)  # the running server reads the file again
    assert await served.report(honest[1:]) == ["invalid"]  # given up, as documented
    assert await served.report(await served.decide("button")) == ["accepted"]
    assert await served.report(forged(stolen, NOW, 1)) == ["invalid"]

    removed = await roll_back(served, NOW - 2000, NOW - 999)
    assert [(arm["key"], arm["issued"], arm["answered"]) for arm in removed] == [("green", 0, 6)]
    assert await counted(served, NOW - 1000) == []


async def test_a_stolen_secret_can_answer_before_an_honest_visitor_does(
    served: Served, file: Path
) -> None:
    """Whoever has the secret need not see a token to spend it."""
    (stolen,) = secrets.token_secrets(file)
    (honest,) = await served.decide("button")
    sealed = TokenCipher([stolen]).open(honest["token"])
    assert sealed is not None  # arm, minute and number can be read
    made = {"token": TokenCipher([stolen]).seal(sealed)}
    assert await served.report([made], bit=0) == ["accepted"]
    assert await served.report([honest], bit=1) == ["duplicate"]


def header(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_revoked_key_ends_at_once_also_on_a_stream_that_runs(served: Served) -> None:
    text = keys.create(served.store, Key(THIEF, "reader", b""))
    await served.engine.directory.refresh()
    line = Line.to(served.app, "GET", f"{ONE}/stream", None, **header(text))
    line.start()
    await line.send(b"")
    assert (await line.next())["status"] == 200
    assert b"event: results" in (await line.next())["body"]
    keys.revoke(served.store, THIEF)

    async def is_refused() -> bool:
        return (await served.as_(None).get(ONE, headers=header(text))).status_code == 401

    assert await eventually(is_refused)
    last = await line.next()
    assert (last["body"], last["more_body"]) == (b"", False)


async def test_a_rotated_key_lives_until_its_last_minute_and_revoking_ends_both(
    served: Served,
) -> None:
    old = keys.create(served.store, Key(THIEF, "admin", b""))
    new = keys.rotate(served.store, THIEF, NOW + 5)
    await served.engine.directory.refresh()

    async def statuses() -> list[int]:
        client = served.as_(None)
        return [(await client.get(ONE, headers=header(text))).status_code for text in (old, new)]

    served.clock.forward(5 * 60)
    assert await statuses() == [200, 200]
    served.clock.forward(60)
    assert await statuses() == [401, 200]
    served.clock.forward(-60)
    newest = keys.rotate(served.store, THIEF, NOW + 100)
    keys.revoke(served.store, THIEF)
    await served.engine.directory.refresh()
    assert await statuses() == [401, 401]
    assert (await served.as_(None).get(ONE, headers=header(newest))).status_code == 401


async def test_tokens_that_a_key_was_given_outlive_it_until_they_are_rolled_back(
    served: Served,
) -> None:
    text = keys.create(served.store, Key(THIEF, "admin", b""))
    await served.engine.directory.refresh()
    answer = await served.as_(None).post(DECISIONS, headers=header(text), json={"count": 50})
    harvested = answer.json()["decisions"]
    keys.revoke(served.store, THIEF)
    await served.engine.directory.refresh()
    assert (await served.as_(None).post(DECISIONS, headers=header(text))).status_code == 401
    assert await served.report(harvested[:1]) == ["accepted"]
    served.clock.forward(60)
    removed = await roll_back(served, NOW, NOW + 1)
    assert sum(arm["issued"] for arm in removed) == 50
    assert set(await served.report(harvested)) == {"expired"}


@pytest.mark.parametrize("role", ["reader", "publishable"])
async def test_a_reader_or_publishable_key_changes_no_definition(served: Served, role: str) -> None:
    before = stored(served)
    for operation in OPERATIONS:
        if operation.method in ("POST", "PATCH", "DELETE") and "admin" in operation.roles:
            path = operation.path.replace("{id}", "button")
            answer = await served.as_(role).request(operation.method, path, json={})
            expected = 200 if role in operation.roles else 403
            assert answer.status_code == expected, operation.name
    after = stored(served)
    assert after[2] == before[2]  # the experiments
    assert after[4] == before[4]  # the keys


async def test_no_key_makes_or_removes_keys_and_none_reads_the_secret(served: Served) -> None:
    """That takes the shell: a stolen admin key is over when it is revoked."""
    assert not [operation.path for operation in OPERATIONS if "key" in operation.path]
    before = served.store.keys()
    for method in ("GET", "POST", "PUT", "DELETE"):
        for path in ("/v1/keys", "/v1/secret"):
            answer = await served.as_("admin").request(method, path)
            assert answer.status_code == 404
    assert served.store.keys() == before
