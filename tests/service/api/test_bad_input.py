"""Bad input: every refusal has its own code and names the field, and nothing is stored."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.http_server import listening
from helpers.in_process_service import (
    ALL,
    BUTTON,
    DECISIONS,
    FEEDBACK,
    ONE,
    START,
    Line,
    Served,
    refused,
    serving,
    stored,
)
from helpers.paths import ROOT
from whitelie.service import wire
from whitelie.service.api import http
from whitelie.service.engine.learner import Learner
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.log import JsonFormatter
from whitelie.service.refusals import STATUS
from whitelie.service.store.contract import Unavailable
from whitelie.service.wire import MAX_PAYLOAD_DEPTH

anyio = pytest.mark.anyio


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        await served.create()
        yield served


# Bad input


def arm(**fields: Any) -> dict[str, Any]:
    return {"arms": [{"key": "a"}, {"key": "b", **fields}]}


BAD_EXPERIMENTS: list[tuple[dict[str, Any], str, str]] = [
    ({"epsilon": 9}, "epsilon_above_ceiling", "epsilon"),
    ({"epsilon": 1e300}, "epsilon_above_ceiling", "epsilon"),
    (arm(epsilon=8.1), "epsilon_above_ceiling", "arms[1].epsilon"),
    (arm(p00=1, p11=1), "epsilon_above_ceiling", "arms[1].p00"),
    (arm(p00=0.5, p11=1.0), "epsilon_above_ceiling", "arms[1].p00"),
    ({"epsilon": 0}, "invalid_field", "epsilon"),
    ({"epsilon": -1}, "invalid_field", "epsilon"),
    ({"epsilon": 1e-300}, "invalid_field", "epsilon"),
    ({"epsilon": "1"}, "invalid_field", "epsilon"),
    ({"epsilon": True}, "invalid_field", "epsilon"),
    ({"epsilon": None}, "invalid_field", "arms[0].epsilon"),
    ({"p00": 0.5}, "invalid_field", "epsilon"),
    ({"epsilon": None, "p00": 0.7}, "invalid_field", "p11"),
    ({"epsilon": None, "p11": 0.7}, "invalid_field", "p00"),
    ({"epsilon": None, "p00": 0.5, "p11": 0.5}, "invalid_field", "p00"),
    (arm(p00=1.5, p11=0.5), "invalid_field", "arms[1].p00"),
    (arm(epsilon=0), "invalid_field", "arms[1].epsilon"),
    (arm(key="a"), "invalid_field", "arms[1].key"),
    (arm(extra=1), "invalid_field", "arms[1].extra"),
    (arm(payload="x" * 4095), "invalid_field", "arms[1].payload"),
    ({"goal": "win"}, "invalid_field", "goal"),
    ({"goal": 0}, "invalid_field", "goal"),
    ({"goal": -0.5}, "invalid_field", "goal"),
    ({"goal": 1.01}, "invalid_field", "goal"),
    ({"goal": True}, "invalid_field", "goal"),
    ({"goal": "know", "policy": "TS-CF"}, "invalid_field", "goal"),
    ({"goal": 0.5, "policy": {"rule": "TopTwo", "know": 0.5}}, "invalid_field", "goal"),
    ({"policy": {"rule": "TopTwo", "know": 0}}, "invalid_field", "policy.know"),
    ({"policy": {"rule": "TopTwo", "know": 1.1}}, "invalid_field", "policy.know"),
    ({"policy": {"rule": "TS", "know": 1}}, "invalid_field", "policy.know"),
    ({"delta": 0}, "invalid_field", "delta"),
    ({"delta": -0.05}, "invalid_field", "delta"),
    ({"delta": 0.51}, "invalid_field", "delta"),
    ({"delta": None}, "invalid_field", "delta"),
    ({"tolerance": -0.01}, "invalid_field", "tolerance"),
    ({"tolerance": 1}, "invalid_field", "tolerance"),
    ({"tolerance": 1.5}, "invalid_field", "tolerance"),
    ({"expect": {"rate": 0.1}}, "invalid_field", "expect.difference"),
    ({"expect": {"rate": 0, "difference": 0.1}}, "invalid_field", "expect.rate"),
    ({"expect": {"rate": 1, "difference": 0.1}}, "invalid_field", "expect.rate"),
    ({"expect": {"rate": 0.1, "difference": 0}}, "invalid_field", "expect.difference"),
    ({"expect": {"rate": 0.1, "difference": -0.1}}, "invalid_field", "expect.difference"),
    ({"expect": {"rate": 0.1, "difference": 0.9}}, "invalid_field", "expect.difference"),
    ({"expect": {"rate": 0.1, "difference": 0.1, "sd": 1}}, "invalid_field", "expect.sd"),
    ({"expect": 0.1}, "invalid_field", "expect"),
    ({"then": "stop"}, "invalid_field", "then"),
    ({"arms": []}, "invalid_field", "arms"),
    ({"arms": [{"key": str(i)} for i in range(1001)]}, "invalid_field", "arms"),
    ({"arms": {"a": {}}}, "invalid_field", "arms"),
    ({"name": 7}, "invalid_field", "name"),
    ({"window": -1}, "invalid_field", "window"),
    ({"window": 1.5}, "invalid_field", "window"),
    ({"window": 10**30}, "invalid_field", "window"),
    ({"spread": 31 * wire.DAY_SECONDS}, "invalid_field", "spread"),
    ({"feedback_ttl": 600}, "invalid_field", "feedback_ttl"),
    ({"feedback_ttl": 59}, "invalid_field", "feedback_ttl"),
    ({"floor": 0.51}, "invalid_field", "floor"),
    ({"floor": 1.1}, "invalid_field", "floor"),
    ({"retention": 1}, "invalid_field", "retention"),
    ({"policy": "best"}, "invalid_field", "policy"),
    ({"policy": "WR(TS)"}, "invalid_field", "policy"),
    ({"policy": "DP-UCB-INT"}, "invalid_field", "policy"),
    ({"policy": {"rule": "XX"}}, "invalid_field", "policy.rule"),
    ({"policy": {"rule": "UCB1", "c": 1}}, "invalid_field", "policy.c"),
    ({"policy": {"rule": "UCB1", "feedback": "corrected"}}, "invalid_field", "policy.feedback"),
    ({"policy": {"rule": "KLUCB", "c": -1}}, "invalid_field", "policy.c"),
    ({"status": "running"}, "invalid_field", "status"),
    ({"p01": 0.1}, "invalid_field", "p01"),
]


@anyio
@pytest.mark.parametrize(("change", "code", "field"), BAD_EXPERIMENTS, ids=repr)
async def test_a_bad_experiment_is_refused_by_field(
    served: Served, change: dict[str, Any], code: str, field: str
) -> None:
    before = stored(served)
    answer = await served.as_().post(ALL, json=BUTTON | change)
    assert refused(answer) == (422, code, field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("missing", ["name", "arms", "window", "spread"])
async def test_a_missing_field_is_named(served: Served, missing: str) -> None:
    body = {name: value for name, value in BUTTON.items() if name != missing}
    answer = await served.as_().post(ALL, json=body)
    assert refused(answer) == (422, "invalid_field", missing)


@anyio
@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"status": "deleted"}, "invalid_field", "status"),
        ({"add": [{"key": "green"}]}, "invalid_field", "add[0].key"),
        ({"add": [{"key": "red"}, {"key": "red"}]}, "invalid_field", "add[1].key"),
        ({"add": [{"key": "red", "epsilon": 20}]}, "epsilon_above_ceiling", "add[0].epsilon"),
        ({"retire": ["red"]}, "unknown_arm", "retire[0]"),
        ({"retire": ["green", "blue"]}, "invalid_field", "retire"),
        ({"add": [{"key": f"{i}"} for i in range(999)]}, "invalid_field", "add"),
        ({"p00": 0.6, "p11": 0.6}, "invalid_field", "p00"),
        ({"epsilon": 2}, "invalid_field", "epsilon"),
        ({"name": "Other"}, "invalid_field", "name"),
    ],
    ids=repr,
)
async def test_a_bad_change_is_refused_by_field(
    served: Served, change: dict[str, Any], code: str, field: str
) -> None:
    before = stored(served)
    assert refused(await served.as_().patch(ONE, json=change)) == (422, code, field)
    assert stored(served) == before


@anyio
async def test_an_added_arm_can_break_the_floor(served: Served) -> None:
    created = await served.create(floor=0.5)
    answer = await served.as_().patch(f"{ALL}/{created['id']}", json={"add": [{"key": "red"}]})
    assert refused(answer) == (422, "invalid_field", "add")


@anyio
@pytest.mark.parametrize(
    ("ask", "code", "field"),
    [
        ({"count": 0}, "invalid_field", "count"),
        ({"count": 1001}, "invalid_field", "count"),
        ({"count": "3"}, "invalid_field", "count"),
        ({"count": 2**64}, "invalid_field", "count"),
        ({"available": []}, "invalid_field", "available"),
        ({"available": ["red"]}, "unknown_arm", "available[0]"),
        ({"available": ["blue", 3]}, "invalid_field", "available[1]"),
        ({"user": "me"}, "invalid_field", "user"),
    ],
    ids=repr,
)
async def test_a_bad_ask_is_refused_by_field(
    served: Served, ask: dict[str, Any], code: str, field: str
) -> None:
    before = stored(served)
    assert refused(await served.as_().post(DECISIONS, json=ask)) == (422, code, field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("bit", [2, -1, 0.5, "1", True, None, [], 10**40])
async def test_a_bit_is_0_or_1(served: Served, bit: Any) -> None:
    (made,) = await served.decide("button")
    before = stored(served)
    report = {"token": made["token"], "bit": bit}
    answer = await served.as_(None).post(FEEDBACK, json=report)
    assert refused(answer) == (422, "invalid_bit", "bit")
    answer = await served.as_(None).post(FEEDBACK, json={"items": [report | {"bit": 1}, report]})
    assert refused(answer) == (422, "invalid_bit", "items[1].bit")
    assert stored(served) == before
    assert await served.report([made]) == ["accepted"]


@anyio
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"bit": 1}, "token"),
        ({"token": "x"}, "bit"),
        ({"token": 7, "bit": 1}, "token"),
        ({"token": "x" * 257, "bit": 1}, "token"),
        ({"token": "x", "bit": 1, "user": "me"}, "user"),
        ({"items": []}, "items"),
        ({"items": [{"token": "x", "bit": 1}] * 1001}, "items"),
        ({"items": [{"token": "x", "bit": 1}, {"bit": 1}]}, "items[1].token"),
        ({"items": [7]}, "items[0]"),
        ([], "body"),
        ("x", "body"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_bad_report_is_refused_by_field(served: Served, body: Any, field: str) -> None:
    before = stored(served)
    answer = await served.as_(None).post(FEEDBACK, json=body)
    assert refused(answer) == (422, "invalid_field", field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize(
    ("start", "stop", "field"),
    [
        ("2027-01-15T07:00:30Z", "2027-01-15T07:02:00Z", "from"),
        ("2027-01-15T07:00:00Z", "2027-01-15T07:02:00.5Z", "to"),
        ("2027-01-15T07:02:00Z", "2027-01-15T07:02:00Z", "to"),
        ("2027-01-15T07:03:00Z", "2027-01-15T07:02:00Z", "to"),
        ("2027-01-15T07:00:00Z", "2027-01-15T08:01:00Z", "to"),
        ("1969-12-31T00:00:00Z", "2027-01-15T07:02:00Z", "from"),
        ("2027-01-15T07:00:00", "2027-01-15T07:02:00Z", "from"),
        (0, "2027-01-15T07:02:00Z", "from"),
        ("2027-01-15T07:00:00Z", "now", "to"),
        ("2027-01-15T07:00:00Z", "9999-12-31T23:59:00-23:59", "to"),
    ],
)
async def test_a_bad_span_is_refused_by_field(
    served: Served, start: Any, stop: Any, field: str
) -> None:
    before = stored(served)
    answer = await served.as_().post(f"{ONE}/rollback", json={"from": start, "to": stop})
    assert refused(answer) == (422, "invalid_field", field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("minutes=0", "minutes"),
        ("minutes=x", "minutes"),
        ("minutes=1.0", "minutes"),
        ("minutes=1e3", "minutes"),
        ("minutes=null", "minutes"),
        ("minutes=" + "9" * 5000, "minutes"),
        ("minutes=", "minutes"),
        ("from=0", "from"),
        ("from=null", "from"),
        ("from=yesterday", "from"),
        ("to=2027-01-15T07:00:00", "to"),
        ("from=2027-01-15T07:00:00Z&to=2027-01-15T07:00:00Z", "to"),
        ("from=2028-01-01T00:00:00Z", "to"),
        ("from=2000-01-01T00:00:00Z&minutes=1", "minutes"),
        ("from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z", "from"),
    ],
    ids=lambda value: value[:40],
)
async def test_a_bad_period_is_refused_by_field(served: Served, query: str, field: str) -> None:
    answer = await served.as_().get(f"{ONE}/history?{query}")
    assert refused(answer) == (422, "invalid_field", field)


@anyio
@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_bad_idempotency_key_is_refused(served: Served, key: str) -> None:
    before = stored(served)
    answer = await served.as_().post(ALL, json=BUTTON, headers={"idempotency-key": key})
    assert refused(answer) == (422, "invalid_field", "Idempotency-Key")
    assert stored(served) == before


# Bodies

DEEP = 100_000
MALFORMED = [
    b"",
    b" ",
    b"{",
    b"{}{}",
    b'{"name": NaN}',
    b'{"name": Infinity}',
    b"{'name': 1}",
    b'{"name": "x",}',
    b'\xef\xbb\xbf{"name": "x"}',
    '{"name": "x"}'.encode("utf-16"),
    b'{"name": "\xff"}',
    b'{"name": "\x00"}',
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b'{"arms": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"name": 1' + b"0" * 10_000 + b"}",
    b'{"arms": [{"key": "a", "payload": ' + b"9" * 5000 + b"}]}",
    b'{"arms": [{"key": "a", "payload": ' + b"[" * DEEP + b"]" * DEEP + b"}]}",
]


@anyio
@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:30]))
@pytest.mark.parametrize("path", [ALL, FEEDBACK, DECISIONS, f"{ONE}/rollback"])
async def test_what_is_not_json_is_refused(served: Served, path: str, body: bytes) -> None:
    before = stored(served)
    answer = await served.as_().post(path, content=body)
    if path == DECISIONS and not body:
        assert answer.status_code == 200  # an empty body asks for one decision
        return
    status, code, field = refused(answer)
    assert (status, code) in ((400, "malformed_json"), (422, "invalid_field"))
    assert field
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
async def test_numbers_that_are_none_are_refused(served: Served, number: str) -> None:
    before = stored(served)
    for field in ("epsilon", "floor", "p00", "window"):
        body = json.dumps(BUTTON | {field: "?"}).replace('"?"', number)
        status, code, _ = refused(await served.as_().post(ALL, content=body))
        assert (status, code) in ((400, "malformed_json"), (422, "invalid_field"))
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("depth", [MAX_PAYLOAD_DEPTH + 1, 500, 800, 900, 950, 1000, 1900])
async def test_a_payload_that_is_too_deep_is_refused(served: Served, depth: int) -> None:
    """Else it could be stored, and then neither be listed nor loaded."""
    before = stored(served)
    payload = b"[" * depth + b"]" * depth
    body = json.dumps(BUTTON | {"arms": [{"key": "a", "payload": "?"}]}).encode()
    status, _, field = refused(await served.as_().post(ALL, content=body.replace(b'"?"', payload)))
    assert (status, field) in ((422, "arms[0].payload"), (400, "body"))
    assert stored(served) == before


@anyio
async def test_a_payload_may_be_as_deep_and_large_as_is_said(served: Served) -> None:
    payload: Any = 10**30
    for level in range(MAX_PAYLOAD_DEPTH):
        payload = [payload] if level % 2 else {"a": payload}
    payloads: tuple[Any, ...] = (payload, "x" * 4094, "", {}, None, False, 0, -0.0, 2**64, 1e-320)
    for given in payloads:
        created = await served.create(arms=[{"key": "a", "payload": given}])
        (made,) = await served.decide(created["id"])
        assert made["payload"] == given
    assert (await served.as_().get(ALL)).status_code == 200


@anyio
async def test_of_a_key_that_is_given_twice_the_last_counts(served: Served) -> None:
    (made,) = await served.decide("button")
    body = b'{"bit": 7, "token": "x", "token": "%s", "bit": 0}' % made["token"].encode()
    answer = await served.as_(None).post(FEEDBACK, content=body)
    assert refused(answer) == (422, "invalid_bit", "bit")
    answer = await served.as_(None).post(FEEDBACK, content=body.replace(b'"bit": 7,', b'"bit": 1,'))
    assert answer.json() == {"items": [{"status": "accepted"}]}
    assert sum(counts.ones for counts in served.store.totals(1).values()) == 0


@anyio
@pytest.mark.parametrize("path", [ALL, FEEDBACK, DECISIONS, f"{ONE}/rollback"])
@pytest.mark.parametrize(
    "kind",
    ["text/html", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data"],
)
async def test_another_media_type_is_refused(served: Served, path: str, kind: str) -> None:
    before = stored(served)
    headers = {"content-type": kind}
    answer = await served.as_().post(path, content=b"{}", headers=headers)
    assert refused(answer) == (415, "unsupported_media_type", "Content-Type")
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("path", [ALL, FEEDBACK, DECISIONS, f"{ONE}/rollback"])
async def test_a_body_that_is_too_large_is_refused(served: Served, path: str) -> None:
    before = stored(served)
    large = b" " * http.MAX_BODY_BYTES + b"{}"
    for parts in ([large], [large[: 1 << 16]] * 100, [b"{", *[b" " * 99_999] * 1000]):
        line = Line.to(served.app, "POST", path)
        await line.send(*parts)
        await line.start()
        assert (await line.next())["status"] == 413
        error = json.loads((await line.next())["body"])["error"]
        assert (error["code"], error["field"]) == ("body_too_large", "body")
    assert stored(served) == before


@anyio
async def test_a_body_may_come_in_parts(served: Served) -> None:
    (made,) = await served.decide("button")
    body = json.dumps({"token": made["token"], "bit": 1}).encode()
    line = Line.to(served.app, "POST", FEEDBACK, None)
    await line.send(*(body[place : place + 1] for place in range(len(body))), b"", b"")
    await line.start()
    assert (await line.next())["status"] == 200
    assert json.loads((await line.next())["body"]) == {"items": [{"status": "accepted"}]}


@anyio
@pytest.mark.parametrize("path", [ALL, FEEDBACK, DECISIONS, f"{ONE}/rollback"])
async def test_who_hangs_up_early_changes_nothing(served: Served, path: str) -> None:
    before = stored(served)
    whole = json.dumps(BUTTON).encode() if path == ALL else b'{"count": 1}'
    for part in (None, b"", whole):
        line = Line.to(served.app, "POST", path)
        if part is not None:
            await line.send(part, b"")
            line.to_app = asyncio.Queue()
            await line.to_app.put({"type": "http.request", "body": part, "more_body": True})
        await line.hang_up()
        await line.start()
        assert (await line.next())["status"] == 400
    assert stored(served) == before


# Every code

Provocation = Callable[[Served, pytest.MonkeyPatch], Awaitable[httpx.Response]]


def asking(
    method: str, path: str, role: str | None = "admin", /, *, field: str | None, **request: Any
) -> tuple[Provocation, str | None]:
    async def provoke(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
        return await served.as_(role).request(method, path, **request)

    return provoke, field


def when_it_is(status: str) -> tuple[Provocation, str | None]:
    async def provoke(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
        await served.as_().patch(ONE, json={"status": status})
        return await served.as_("publishable").post(DECISIONS)

    return provoke, "id"


async def changed_when_shipped(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    await served.as_().post(f"{ONE}/ship", json={"arm": "green"})
    return await served.as_().patch(ONE, json={"status": "paused"})


async def unshipped_late(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    await served.as_().post(f"{ONE}/ship", json={"arm": "green"})
    served.clock.forward(2 * wire.DAY_SECONDS)
    return await served.as_().post(f"{ONE}/unship")


async def too_late(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    (made,) = await served.decide("button")
    served.clock.forward(30 * wire.DAY_SECONDS)
    return await served.as_(None).post(FEEDBACK, json={"token": made["token"], "bit": 1})


async def too_often(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(served.service.limits, "_per_address", 1)
    await served.as_("publishable").post(DECISIONS)
    return await served.as_("publishable").post(DECISIONS)


async def twice(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    headers = {"idempotency-key": "k"}
    await served.as_().post(ALL, json=BUTTON, headers=headers)
    return await served.as_().post(ALL, json=BUTTON | {"name": "Other"}, headers=headers)


async def meanwhile(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    learner = served.engine.directory.find("button")
    definition = learner.saved.definition.replace("Button", "Knopf")
    patch.setattr(learner, "saved", learner.saved._replace(definition=definition))
    return await served.as_().patch(ONE, json={"status": "paused"})


async def on_a_full_disk(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    def full(*_: Any) -> None:
        raise Unavailable("the disk is full")

    patch.setattr(served.store, "commit", full)
    patch.setattr(served.store, "probe", full)
    return await served.as_().post(DECISIONS)


async def after_a_jump(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(served.engine.clock, "_steady", lambda: START)
    served.clock.forward(61)
    return await served.as_().post(DECISIONS)


async def at_fault(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(Learner, "check_running", lambda learner: 1 / 0)
    return await served.as_().post(DECISIONS)


def by_bytes(
    sent: bytes, *, field: str | None, seconds: float = 0, most: int = 1
) -> tuple[Provocation, str | None]:
    """What is refused before there is a request: bytes on a connection, and then silence."""

    async def provoke(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
        async with listening(served.app, most) as site:
            peer = await site.peer()
            await peer.send(sent)
            if seconds:
                await site.settle(
                    lambda: any(each._unread for each in site.connections.connections)
                )
                site.pass_time(seconds)
            return await peer.answer()

    return provoke, field


PROVOKED: dict[str, tuple[Provocation, str | None]] = {
    "malformed_request": by_bytes(b"\x16\x03\x01", field=None),
    "request_timeout": by_bytes(b"GET / HTTP/1.1\r\n", seconds=11, field=None),
    "url_too_long": by_bytes(b"GET /" + b"x" * 9000, field="path"),
    "headers_too_large": by_bytes(b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, field="headers"),
    "too_many_connections": by_bytes(b"", most=0, field=None),
    "malformed_json": asking("POST", ALL, content=b"{", field="body"),
    "unknown_key": asking("GET", ALL, None, field="Authorization"),
    "not_allowed": asking("GET", ALL, "publishable", field="Authorization"),
    "origin_not_allowed": asking(
        "POST", DECISIONS, "publishable", headers={"origin": "https://evil"}, field="Origin"
    ),
    "not_found": asking("GET", "/nowhere", field="path"),
    "unknown_experiment": asking("GET", f"{ALL}/other", field="id"),
    "method_not_allowed": asking("PUT", ONE, field="method"),
    "experiment_paused": when_it_is("paused"),
    "experiment_stopped": when_it_is("stopped"),
    "experiment_shipped": (changed_when_shipped, "id"),
    "not_shipped": asking("POST", f"{ONE}/unship", field="id"),
    "too_late_to_unship": (unshipped_late, "id"),
    "changed_meanwhile": (meanwhile, "id"),
    "idempotency_conflict": (twice, "Idempotency-Key"),
    "token_expired": (too_late, "token"),
    "body_too_large": asking("POST", ALL, content=b" " * (1 << 21), field="body"),
    "unsupported_media_type": asking(
        "POST", ALL, headers={"content-type": "text/html"}, field="Content-Type"
    ),
    "invalid_field": asking("POST", ALL, json=BUTTON | {"window": -1}, field="window"),
    "invalid_bit": asking("POST", FEEDBACK, json={"token": "x", "bit": 2}, field="bit"),
    "invalid_token": asking("POST", FEEDBACK, json={"token": "x", "bit": 1}, field="token"),
    "unknown_arm": asking("POST", DECISIONS, json={"available": ["x"]}, field="available[0]"),
    "epsilon_above_ceiling": asking("POST", ALL, json=BUTTON | {"epsilon": 9}, field="epsilon"),
    "too_many_decisions": (too_often, None),
    "internal_error": (at_fault, None),
    "clock_jumped": (after_a_jump, None),
    "store_unavailable": (on_a_full_disk, None),
}


@anyio
@pytest.mark.parametrize("code", STATUS)
async def test_every_code_has_a_cause(
    served: Served, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    provoke, field = PROVOKED[code]
    answer = await provoke(served, monkeypatch)
    assert refused(answer) == (STATUS[code], code, field)


def test_every_code_is_documented() -> None:
    page = ROOT / "docs" / "service.md"
    text = page.read_text(encoding="utf-8")
    assert [code for code in STATUS if f"`{code}`" not in text] == []


@anyio
async def test_a_fault_is_logged_without_what_was_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("sent by somebody")

    monkeypatch.setattr(http, "decode", fail)
    answer = await served.as_().post(DECISIONS, json={})
    assert refused(answer) == (500, "internal_error", None)
    assert "somebody" not in answer.text
    (record,) = [record for record in caplog.records if record.name == "whitelie.service"]
    line = JsonFormatter().format(record)
    assert json.loads(line)["error"] == "ValueError"
    assert "somebody" not in line


@anyio
async def test_the_ceiling_is_the_operators(tmp_path: Path) -> None:
    async with serving(
        tmp_path / "a.db", validator=ExperimentValidator(most_epsilon=0.5)
    ) as served:
        answer = await served.as_().post(ALL, json=BUTTON | {"epsilon": 0.51})
        assert refused(answer) == (422, "epsilon_above_ceiling", "epsilon")
        assert (await served.create(epsilon=0.5))["arms"][0]["epsilon"] <= 0.5
