"""CORS: which pages may read which answers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.in_process_service import ALL, DECISIONS, FEEDBACK, ONE, SHOP, Served, serving
from helpers.paths import ROOT
from whitelie.service.engine.keys import hash_of
from whitelie.service.store.contract import Key

anyio = pytest.mark.anyio
PRIVACY = f"{ONE}/privacy"
PREFLIGHT = {"access-control-request-method": "POST"}
EVIL = "https://evil.example"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        yield served


@pytest.mark.parametrize(
    ("path", "origin", "allowed"),
    [
        (DECISIONS, SHOP, SHOP),
        (DECISIONS, EVIL, None),
        (DECISIONS, SHOP + ":8443", None),
        (DECISIONS, SHOP.upper(), None),
        (DECISIONS, "null", None),
        (DECISIONS, "http://shop.example", None),
        (FEEDBACK, SHOP, "*"),
        (FEEDBACK, EVIL, "*"),
        (PRIVACY, EVIL, "*"),
        (ALL, EVIL, None),
    ],
)
@anyio
async def test_cors_preflights_know_the_registered_origins(
    served: Served, path: str, origin: str, allowed: str | None
) -> None:
    answer = await served.as_(None).options(path, headers={"origin": origin, **PREFLIGHT})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    assert answer.headers.get("access-control-allow-origin") == allowed
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    if allowed != "*":
        assert answer.headers["vary"] == "Origin"


@anyio
async def test_cors_lets_a_publishable_key_decide_for_its_own_origins_only(tmp_path: Path) -> None:
    other = Key("other", "publishable", hash_of("pk_other"), (EVIL,), 1000)
    async with serving(tmp_path / "a.db", publishable=[other]) as served:
        await served.create()
        client = served.as_("publishable")
        answer = await client.post(DECISIONS, headers={"origin": SHOP})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == SHOP
        assert answer.headers["vary"] == "Origin"
        before = served.store.totals(1)
        answer = await client.post(DECISIONS, headers={"origin": EVIL})  # registered, elsewhere
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        answer = await client.post(DECISIONS, headers={"origin": "https://shop.example.evil"})
        assert answer.json()["error"]["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in answer.headers
        assert served.store.totals(1) == before
        assert (await client.post(DECISIONS)).status_code == 200  # a server or an app


@anyio
async def test_cors_lets_every_page_report_and_read_the_refusal(served: Served) -> None:
    for bit in (1, 2):
        body = {"token": "x", "bit": bit}
        answer = await served.as_(None).post(FEEDBACK, json=body, headers={"origin": EVIL})
        assert answer.status_code == 422
        assert answer.headers["access-control-allow-origin"] == "*"
    answer = await served.as_(None).get(f"{ALL}/none/privacy", headers={"origin": EVIL})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, "*")


@anyio
async def test_cors_lets_a_page_read_why_it_was_refused_a_decision(served: Served) -> None:
    answer = await served.as_("publishable").post(DECISIONS, headers={"origin": SHOP})
    assert answer.json()["error"]["code"] == "unknown_experiment"
    assert answer.headers["access-control-allow-origin"] == SHOP


@anyio
async def test_cors_lets_no_other_page_read_what_operators_read(served: Served) -> None:
    await served.create()
    for path in (ALL, ONE, f"{ONE}/results", "/metrics", "/v1/stored"):
        answer = await served.as_().get(path, headers={"origin": SHOP})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


def test_cors_is_decided_in_one_file() -> None:
    service = ROOT / "src/whitelie/service"
    names = {file.name for file in service.rglob("*.py") if "access-control-" in file.read_text()}
    assert names == {"cors.py"}
