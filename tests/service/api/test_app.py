"""What every operation does, through HTTP."""

import asyncio
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.in_process_service import (
    BUTTON,
    KEYS,
    SECRET,
    START,
    Clock,
    Line,
    Served,
    eventually,
    serving,
)
from whitelie.channel import RandomizedResponse
from whitelie.service import wire
from whitelie.service.engine.keys import hash_of
from whitelie.service.store.contract import Counts, Key, Unavailable

pytestmark = pytest.mark.anyio
FEEDBACK = "/v1/feedback"
ALL = "/v1/experiments"
ONE = "/v1/experiments/button"
DECISIONS = f"{ONE}/decisions"
PRIVACY = f"{ONE}/privacy"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        yield served


def at(minute: int) -> str:
    """A minute as it is written in requests."""
    return datetime.fromtimestamp(minute * 60, UTC).isoformat()


def sums(counts: dict[int, Counts] | Any) -> Counts:
    return Counts(*map(sum, zip(Counts(), *counts.values(), strict=True)))


# Creating, showing, listing


async def test_an_experiment_is_shown_as_it_was_created(served: Served) -> None:
    created = await served.create()
    channel = RandomizedResponse.from_epsilon(1)
    mechanism = {"p00": channel.p00, "p11": channel.p11, "epsilon": channel.epsilon}
    assert created == {
        "id": "button",
        "name": "Button",
        "status": "running",
        "arms": [
            {"key": "green", "payload": {"colour": "#0a0"}, **mechanism, "retired": False},
            {"key": "blue", "payload": None, **mechanism, "retired": False},
        ],
        "policy": "TS-CF",
        "window": 600,
        "spread": 60,
        "sending": "next-visit",
        "feedback_ttl": 660 + 7 * wire.DAY_SECONDS,
        "floor": 0.0,
        "retention": 90 * wire.DAY_SECONDS,
        "step": 10,
        "created": "2027-01-15T08:00:00Z",
        "goal": None,
        "expect": None,
        "delta": 0.05,
        "tolerance": 0.0,
        "then": None,
        "shipped": None,
    }
    assert (await served.as_("reader").get(ONE)).json() == created
    other = await served.create(name="Other")
    assert (await served.as_("reader").get(ALL)).json() == {"experiments": [created, other]}


async def test_equal_names_have_slugs_of_their_own(served: Served) -> None:
    names = ["Button", "button!", " BUTTON", "日本", "Über 1/2"]
    created = [(await served.create(name=name))["id"] for name in names]
    assert created == ["button", "button-2", "button-3", "experiment", "uber-1-2"]


async def test_arms_may_have_mechanisms_and_policies_tuning(served: Served) -> None:
    created = await served.create(
        epsilon=None,
        arms=[{"key": "a", "epsilon": 2}, {"key": "b", "p00": 0.75, "p11": 0.875}],
        policy={"rule": "KLUCB", "c": 0},
        feedback_ttl=3600,
        floor=0.25,
        retention=wire.DAY_SECONDS,
    )
    assert [arm["p11"] for arm in created["arms"]] == [
        RandomizedResponse.from_epsilon(2).p11,
        0.875,
    ]
    assert created["policy"] == "kl-UCB-CF (c=0.0)"
    assert (created["feedback_ttl"], created["floor"], created["retention"]) == (3600, 0.25, 86400)


async def test_the_same_idempotency_key_creates_once(served: Served) -> None:
    client, headers = served.as_(), {"idempotency-key": "one"}
    first, second = [await client.post(ALL, json=BUTTON, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    spelt = json.dumps(dict(reversed(BUTTON.items())), indent=4)
    assert (await client.post(ALL, content=spelt, headers=headers)).json() == first.json()
    other = await client.post(ALL, json=BUTTON | {"window": 1}, headers=headers)
    assert other.json()["error"]["code"] == "idempotency_conflict"
    assert len(served.store.experiments()) == 1
    another = await client.post(ALL, json=BUTTON, headers={"idempotency-key": "two"})
    assert another.json()["id"] == "button-2"


async def test_a_request_of_an_earlier_version_may_be_repeated(served: Served) -> None:
    """What was stored had all fields of its time in the hash; `step` and `sending` came later."""
    coin = {"p00": 0.7310585786300048, "p11": 0.7310585786300048}
    stored = {
        "name": "Button",
        "arms": [
            {"key": "green", **coin, "payload": {"colour": "#0a0"}, "retired": False},
            {"key": "blue", **coin, "payload": None, "retired": False},
        ],
        "policy": {"name": "TS", "feedback": "corrected"},
        "window": 600,
        "spread": 60,
        "feedback_ttl": 605460,
        "floor": 0.0,
        "retention": 7776000,
        "created": 29916070,
        **coin,
        "status": "running",
        "rolled_back": [],
        "creation": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
        "2a1d6c2cc3db665c671b71e1696563f7e7b748c77ee68cee83473d14403b7f7a",
    }
    key_hash = str(stored["creation"]).split()[0]
    assert served.store.save("button", json.dumps(stored), key_hash)
    client, headers = served.as_(), {"idempotency-key": "one"}
    again = await client.post(ALL, json=BUTTON, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, "button")
    for change in ({"step": 1000}, {"sending": "when-due"}, {"window": 1}):
        other = await client.post(ALL, json=BUTTON | change, headers=headers)
        assert other.json()["error"]["code"] == "idempotency_conflict"
    assert len(served.store.experiments()) == 1


async def test_fields_that_are_not_given_name_no_request(served: Served) -> None:
    """So a later version may add some: the name of a request of today stays as it is."""
    headers = {"idempotency-key": "one"}
    usual = {"step": 10, "sending": "next-visit", "floor": 0.0, "policy": "TS-CF", "p00": None}
    for body in (BUTTON, BUTTON | usual):
        answer = await served.as_().post(ALL, json=body, headers=headers)
        assert (answer.status_code, answer.json()["id"]) == (201, "button")
    (saved,) = served.store.experiments()
    given = json.dumps(BUTTON, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(given.encode()).hexdigest()
    assert json.loads(saved.definition)["creation"].split()[1] == digest


async def test_creations_at_the_same_time_are_told_apart(served: Served) -> None:
    def creation(key: str, name: str) -> Any:
        headers = {"idempotency-key": key}
        return served.as_().post(ALL, json=BUTTON | {"name": name}, headers=headers)

    same = await asyncio.gather(*(creation("one", "Same") for _ in range(8)))
    assert {answer.json()["id"] for answer in same} == {"same"}
    others = await asyncio.gather(*(creation("two", f"Other {i}") for i in range(8)))
    assert sorted(answer.status_code for answer in others) == [201] + [409] * 7
    plain = await asyncio.gather(*(served.create(name="Plain") for _ in range(8)))
    assert len({created["id"] for created in plain}) == 8
    assert len(served.store.experiments()) == 10


async def test_experiments_and_counts_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as served:
        created = await served.create()
        decisions = await served.decide("button", 20)
        await served.report(decisions[:10])
        results = (await served.as_().get(f"{ONE}/results")).json()
    async with serving(path) as served:
        assert (await served.as_().get(ONE)).json() == created
        again = (await served.as_().get(f"{ONE}/results")).json()
        assert again == {**results, "last_report": None}  # which is kept in memory only
        outcomes = await served.report(decisions)
        assert outcomes == ["duplicate"] * 10 + ["accepted"] * 10


# Changing and deleting


async def test_arms_are_added_and_retired(served: Served) -> None:
    await served.create()
    change = {"add": [{"key": "red"}], "retire": ["green", "blue"]}
    changed = (await served.as_().patch(ONE, json=change)).json()
    assert [(arm["key"], arm["retired"]) for arm in changed["arms"]] == [
        ("green", True),
        ("blue", True),
        ("red", False),
    ]
    assert changed["arms"][2]["p00"] == changed["arms"][0]["p00"]
    assert {made["arm"] for made in await served.decide("button", 50)} == {"red"}
    answer = await served.as_().post(DECISIONS, json={"available": ["green"]})
    assert answer.json()["error"]["code"] == "unknown_arm"
    assert (await served.as_().get(ONE)).json() == changed


async def test_a_retired_arm_is_still_reported_on(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 50)
    await served.as_().patch(ONE, json={"retire": ["green"]})
    assert set(await served.report(decisions)) == {"accepted"}
    results = (await served.as_().get(f"{ONE}/results")).json()
    assert sum(arm["answered"] for arm in results["arms"]) == 50


@pytest.mark.promise("Paused and stopped")
async def test_a_paused_experiment_takes_reports_and_goes_on(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 2)
    client = served.as_()
    assert (await client.patch(ONE, json={"status": "paused"})).json()["status"] == "paused"
    answer = await client.post(DECISIONS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "experiment_paused")
    assert await served.report(decisions[:1]) == ["accepted"]
    assert (await client.patch(ONE, json={"status": "running"})).json()["status"] == "running"
    await served.decide("button")
    assert (await client.patch(ONE, json={"status": "stopped"})).json()["status"] == "stopped"
    assert await served.report(decisions[1:]) == ["accepted"]
    for change in ({"status": "running"}, {"add": [{"key": "red"}]}, {"retire": ["blue"]}, {}):
        answer = await client.patch(ONE, json=change)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "experiment_stopped")
    assert (await client.patch(ONE, json={"status": "stopped"})).status_code == 200
    assert (await client.post(DECISIONS)).json()["error"]["code"] == "experiment_stopped"


def test_no_change_speaks_of_the_mechanism() -> None:
    assert wire.Change.__struct_fields__ == ("status", "add", "retire")


@pytest.mark.parametrize(
    "change",
    [
        {"p00": 0.9, "p11": 0.9},
        {"epsilon": 8},
        {"arms": []},
        {"window": 0},
        {"spread": 0},
        {"feedback_ttl": 60},
        {"retention": 3650 * wire.DAY_SECONDS},
        {"add": [{"key": "green", "epsilon": 8}]},
    ],
)
@pytest.mark.promise("A mechanism never changes")
async def test_the_mechanism_never_changes(served: Served, change: dict[str, Any]) -> None:
    created = await served.create()
    promised = (await served.as_(None).get(PRIVACY)).json()
    assert (await served.as_().patch(ONE, json=change)).status_code == 422
    assert (await served.as_().get(ONE)).json() == created
    assert (await served.as_(None).get(PRIVACY)).json() == promised


async def test_a_deleted_experiment_leaves_nothing(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 3)
    await served.report(decisions[:1])
    answer = await served.as_().delete(ONE)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await served.as_().get(ONE)).json()["error"]["code"] == "unknown_experiment"
    assert (await served.as_().delete(ONE)).status_code == 404
    assert await served.report(decisions) == ["invalid"] * 3
    assert served.store.sizes()["experiments"] == served.store.sizes()["counts"] == 0
    await served.create()
    assert await served.report(decisions) == ["invalid"] * 3  # a new one has a new number


# Deciding


async def test_a_decision_says_how_to_flip_and_when_to_report(served: Served) -> None:
    created = await served.create()
    answer = await served.as_("publishable").post(DECISIONS)
    (made,) = answer.json()["decisions"]
    arm = next(arm for arm in created["arms"] if arm["key"] == made["arm"])
    assert made["mechanism"] == {
        "p00": arm["p00"],
        "p11": arm["p11"],
        "window": 600,
        "spread": 60,
    }
    assert (made["payload"], made["expires_in"]) == (arm["payload"], created["feedback_ttl"])
    assert msgspec.json.decode(answer.content, type=wire.Decisions)


async def test_decisions_are_counted_and_each_has_its_token(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 1000)
    assert len({made["token"] for made in decisions}) == 1000
    results = (await served.as_().get(f"{ONE}/results")).json()
    issued = {arm["key"]: arm["issued"] for arm in results["arms"]}
    assert issued == dict(Counter(made["arm"] for made in decisions))


async def test_only_available_arms_are_chosen(served: Served) -> None:
    await served.create(arms=[{"key": key} for key in "abcd"])
    decisions = await served.decide("button", 200, available=["b", "d", "b"])
    assert {made["arm"] for made in decisions} == {"b", "d"}


async def test_a_floor_is_kept_against_a_clear_winner(served: Served) -> None:
    await served.create(epsilon=8, floor=0.25, feedback_ttl=1000)
    for arm, bit in (("green", 1), ("blue", 0)):
        await served.report(await served.decide("button", 1000, available=[arm]), bit)
    chosen = Counter(made["arm"] for made in await served.decide("button", 1000))
    assert 180 < chosen["blue"] < 320  # 250 ± 5 standard deviations
    await served.create(name="Bare", epsilon=8)
    for arm, bit in (("green", 1), ("blue", 0)):
        await served.report(await served.decide("bare", 1000, available=[arm]), bit)
    chosen = Counter(made["arm"] for made in await served.decide("bare", 1000))
    assert chosen["blue"] < 20


# Reporting


async def test_a_report_counts_once(served: Served) -> None:
    await served.create()
    (made,) = await served.decide("button")
    client, report = served.as_(None), {"token": made["token"], "bit": 1}
    assert (await client.post(FEEDBACK, json=report)).json() == {"items": [{"status": "accepted"}]}
    for bit in (1, 0):
        answer = await client.post(FEEDBACK, json=report | {"bit": bit})
        assert answer.json() == {"items": [{"status": "duplicate"}]}
    assert sums(served.store.totals(1)) == (1, 1, 1)


@pytest.mark.promise("One report, or many")
async def test_a_batch_is_answered_in_its_order(served: Served) -> None:
    await served.create(feedback_ttl=660)
    (old,) = await served.decide("button")
    served.clock.forward(3600)
    new = await served.decide("button", 2)
    outcomes = await served.report([new[0], {"token": "x"}, old, new[0], new[1]], 0)
    assert outcomes == ["accepted", "invalid", "expired", "duplicate", "accepted"]
    assert sums(served.store.totals(1)) == (3, 2, 0)


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain;charset=UTF-8", "application/json; charset=utf-8", None]
)
async def test_beacons_may_report_as_plain_text(served: Served, kind: str | None) -> None:
    await served.create()
    (made,) = await served.decide("button")
    body = json.dumps({"token": made["token"], "bit": 1})
    headers = {"content-type": kind} if kind else {}
    answer = await served.as_(None).post(FEEDBACK, content=body, headers=headers)
    assert answer.json() == {"items": [{"status": "accepted"}]}


@pytest.mark.promise("Lifetimes")
async def test_a_token_expires_with_its_minute(served: Served) -> None:
    await served.create(feedback_ttl=660)
    decisions = await served.decide("button", 3)
    served.clock.forward(659)
    assert await served.report(decisions[:1]) == ["accepted"]
    served.clock.forward(60)  # START is the start of a minute: this is within the last one
    assert await served.report(decisions[1:2]) == ["accepted"]
    served.clock.forward(1)
    answer = await served.as_(None).post(FEEDBACK, json={"token": decisions[2]["token"], "bit": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "token_expired")

    async def is_missing() -> bool:
        results = (await served.as_().get(f"{ONE}/results")).json()
        return [arm["missing"] for arm in results["arms"]].count(1) == 1

    served.clock.forward(120)
    assert await eventually(is_missing)


async def test_tokens_outlive_the_rotation_of_secrets(tmp_path: Path) -> None:
    kept = [SECRET]
    async with serving(tmp_path / "a.db", secrets=lambda: list(kept)) as served:
        await served.create()
        decisions = await served.decide("button", 3)
        kept.insert(0, b"a second secret of thirty-two characters")
        served.engine.reload_secrets()
        assert await served.report(decisions[:1]) == ["accepted"]
        newer = await served.decide("button")
        kept.pop()
        served.engine.reload_secrets()
        assert await served.report([decisions[1], *newer]) == ["invalid", "accepted"]


# Results and history


async def test_results_count_what_was_reported(served: Served) -> None:
    await served.create()
    green = await served.decide("button", 30, available=["green"])
    blue = await served.decide("button", 20, available=["blue"])
    await served.report(green[:20], 1)
    await served.report(blue[:5], 0)
    results = (await served.as_().get(f"{ONE}/results")).json()
    assert [
        (arm["key"], arm["issued"], arm["answered"], arm["ones"], arm["pending"])
        for arm in results["arms"]
    ] == [("green", 30, 20, 20, 10), ("blue", 20, 5, 0, 15)]
    assert (results["reports"], results["status"], results["name"]) == (25, "running", "Button")
    table = await served.as_().get(f"{ONE}/results.csv")
    assert table.headers["content-disposition"] == 'attachment; filename="button.csv"'
    rows = list(csv.DictReader(io.StringIO(table.text, newline="")))
    assert [(row["key"], row["answered"]) for row in rows] == [("green", "20"), ("blue", "5")]
    assert list(rows[0]) == list(results["arms"][0])


async def test_history_is_by_the_minute_of_decision(served: Served) -> None:
    await served.create()
    first = await served.decide("button", 3, available=["green"])
    served.clock.forward(120)
    await served.decide("button", 2, available=["blue"])
    await served.report(first, 1)
    start = int(START) // 60
    client = served.as_()
    history = (await client.get(f"{ONE}/history")).json()
    assert history["minutes"] == 1
    assert [(bucket["start"], bucket["arms"]) for bucket in history["buckets"]] == [
        ("2027-01-15T08:00:00Z", [{"key": "green", "issued": 3, "answered": 3, "ones": 3}]),
        ("2027-01-15T08:02:00Z", [{"key": "blue", "issued": 2, "answered": 0, "ones": 0}]),
    ]
    query = {"from": at(start), "to": at(start + 2), "minutes": "60"}
    history = (await client.get(f"{ONE}/history", params=query)).json()
    assert [bucket["arms"][0]["key"] for bucket in history["buckets"]] == ["green"]
    query = {"from": "2027-01-15T09:01:00+01:00", "minutes": "60"}
    history = (await client.get(f"{ONE}/history", params=query)).json()
    assert [bucket["arms"][0]["key"] for bucket in history["buckets"]] == ["blue"]
    assert history["minutes"] == 60


async def test_a_long_history_has_longer_buckets(served: Served) -> None:
    await served.create()
    for days, minutes in ((0.5, 1), (3, 5), (10, 15), (40, 60), (200, 360), (600, 1440)):
        served.clock.now = START + days * wire.DAY_SECONDS
        history = (await served.as_().get(f"{ONE}/history")).json()
        assert history["minutes"] == minutes


async def test_a_stream_tells_what_has_changed(served: Served) -> None:
    await served.create()
    line = Line.to(served.app, "GET", f"{ONE}/stream")
    await line.send(b"")
    task = line.start()
    start = await line.next()
    assert start["status"] == 200
    assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
    for reports in (0, 1):
        event = (await line.next())["body"]
        name, data = event.removesuffix(b"\n\n").split(b"\n")
        assert name == b"event: results"
        assert json.loads(data.removeprefix(b"data: "))["reports"] == reports
        if not reports:
            await served.report(await served.decide("button"))
    await line.hang_up()
    await asyncio.wait_for(task, 60)


async def test_a_stream_ends_with_its_experiment(served: Served) -> None:
    await served.create()
    line = Line.to(served.app, "GET", f"{ONE}/stream")
    task = line.start()
    await line.next()
    await served.as_().delete(ONE)
    await asyncio.wait_for(task, 60)


async def test_a_stream_ends_with_the_service(tmp_path: Path) -> None:
    async with serving(tmp_path / "a.db") as served:
        await served.create()
        line = Line.to(served.app, "GET", f"{ONE}/stream")
        task = line.start()
        await line.next()
    await asyncio.wait_for(task, 60)


async def test_the_head_of_a_stream_ends(served: Served) -> None:
    await served.create()
    answer = await asyncio.wait_for(served.as_().head(f"{ONE}/stream"), 60)
    assert answer.status_code == 200


# Rolling back


@pytest.mark.promise("Rollback")
async def test_a_rollback_removes_its_minutes_and_nothing_else(served: Served) -> None:
    await served.create()
    start = int(START) // 60
    made = []
    for _ in range(4):
        made.append(await served.decide("button", 10))
        served.clock.forward(60)
    for decisions, bit in zip(made, (0, 1, 1, 0), strict=True):
        assert set(await served.report(decisions[:5], bit)) == {"accepted"}
    history = served.store.history(1, 0, 2**40)
    span = {"from": at(start + 1), "to": at(start + 3)}
    removed = (await served.as_().post(f"{ONE}/rollback", json=span)).json()
    gone = {place: counts for place, counts in history.items() if start < place[0] < start + 3}
    left = {place: counts for place, counts in history.items() if place not in gone}
    assert served.store.history(1, 0, 2**40) == left
    assert (
        sums(
            {
                i: Counts(a["issued"], a["answered"], a["ones"])
                for i, a in enumerate(removed["arms"])
            }
        )
        == sums(gone)
        == (20, 10, 10)
    )
    results = (await served.as_().get(f"{ONE}/results")).json()
    assert sum(arm["issued"] for arm in results["arms"]) == 20
    assert (results["reports"], sum(arm["ones"] for arm in results["arms"])) == (10, 0)
    outcomes = [await served.report(decisions[4:6]) for decisions in made]
    assert outcomes == [
        ["duplicate", "accepted"],
        ["expired", "expired"],
        ["expired", "expired"],
        ["duplicate", "accepted"],
    ]
    again = (await served.as_().post(f"{ONE}/rollback", json=span)).json()
    assert again == {"arms": []}
    assert sums(served.store.totals(1)) == (20, 12, 2)


async def test_a_rollback_holds_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "a.db", clock=clock) as served:
        await served.create()
        decisions = await served.decide("button", 4)
        clock.forward(60)
        minute = int(START) // 60
        span = {"from": at(minute), "to": at(minute + 1)}
        assert (await served.as_().post(f"{ONE}/rollback", json=span)).status_code == 200
    async with serving(tmp_path / "a.db", clock=clock) as served:
        assert await served.report(decisions) == ["expired"] * 4
        assert served.store.totals(1) == {}


async def test_reports_beside_a_rollback_are_removed_or_refused(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 200)
    served.clock.forward(60)
    minute = int(START) // 60
    span = {"from": at(minute), "to": at(minute + 1)}
    reports = [served.report([made]) for made in decisions]
    rollback = served.as_().post(f"{ONE}/rollback", json=span)
    before = [asyncio.ensure_future(report) for report in reports[:100]]
    removed = await rollback
    await asyncio.gather(*before, *reports[100:])
    assert removed.status_code == 200
    assert served.store.totals(1) == {}
    results = (await served.as_().get(f"{ONE}/results")).json()
    assert [arm["issued"] + arm["answered"] for arm in results["arms"]] == [0, 0]


# What devices are promised


async def test_the_promise_is_public_and_its_hash_is_of_all_it_says(served: Served) -> None:
    await served.create(
        epsilon=None,
        arms=[
            {"key": "a", "epsilon": 1},
            {"key": "b", "p00": 0.5, "p11": 0.75},
            {"key": "é", "epsilon": 1},
        ],
    )
    answer = await served.as_(None).get(PRIVACY, headers={"origin": "https://any.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
    promised = answer.json()
    hash_ = promised.pop("hash")
    text = json.dumps(promised, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hash_ == hashlib.sha256(text.encode()).hexdigest()
    first, second = RandomizedResponse(p00=0.5, p11=0.75), RandomizedResponse.from_epsilon(1)
    assert promised["channels"] == [
        {"p00": each.p00, "p11": each.p11, "epsilon": each.epsilon} for each in (first, second)
    ]
    assert promised["epsilon"] == max(first.epsilon, second.epsilon)
    assert (promised["window"], promised["spread"]) == (600, 60)
    assert promised["stored"]
    assert promised["not_stored"]
    assert promised["not_guaranteed"]


async def test_the_hash_changes_with_the_promise_only(served: Served) -> None:
    await served.create()

    async def hash_now() -> str:
        promised: str = (await served.as_(None).get(PRIVACY)).json()["hash"]
        return promised

    first = await hash_now()
    await served.decide("button", 5)
    await served.as_().patch(ONE, json={"add": [{"key": "red"}], "status": "paused"})
    assert await hash_now() == first
    await served.as_().patch(ONE, json={"add": [{"key": "grey", "epsilon": 2}]})
    assert await hash_now() != first


# Operating


async def test_metrics_can_be_read_by_prometheus(served: Served) -> None:
    await served.create()
    decisions = await served.decide("button", 10, available=["green"])
    await served.report([*decisions[:4], decisions[0], {"token": "x"}])
    answer = await served.as_().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["whitelie_decisions_total",] == 10
    assert samples["whitelie_reports_total", "accepted"] == 4
    assert samples["whitelie_reports_total", "duplicate"] == 1
    assert samples["whitelie_reports_total", "invalid"] == 1
    assert samples["whitelie_arm_issued", "green", "button"] == 10
    assert samples["whitelie_arm_pending", "green", "button"] == 6
    assert samples["whitelie_arm_ones", "blue", "button"] == 0
    assert samples["whitelie_store_available",] == 1


async def test_health_needs_no_key(served: Served) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await served.as_(None).get(path)).json() == {"status": "ok"}


async def test_without_its_store_the_service_lives_but_is_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise Unavailable("the disk is full")

    await served.create()
    (made,) = await served.decide("button")
    before = served.store.totals(1)
    with monkeypatch.context() as patch:
        for method in ("commit", "probe", "save", "change", "delete", "roll_back"):
            patch.setattr(served.store, method, full)
        client = served.as_()
        for answer in (
            await client.post(DECISIONS),
            await client.post(FEEDBACK, json={"token": made["token"], "bit": 1}),
            await client.post(ALL, json=BUTTON),
            await client.patch(ONE, json={"status": "paused"}),
            await client.delete(ONE),
            await client.get("/readyz"),
        ):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "store_unavailable"
            assert answer.headers["retry-after"] == "2"
        assert (await client.get("/healthz")).status_code == 200
        assert served.store.totals(1) == before
    assert await eventually(lambda: is_ready(served))
    assert await served.report([made]) == ["accepted"]


async def is_ready(served: Served) -> bool:
    return (await served.as_(None).get("/readyz")).status_code == 200


async def test_reading_without_a_store_is_refused_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise Unavailable("the database is locked")

    await served.create()
    monkeypatch.setattr(served.store, "history", full)
    for path in ("history", "results", "results.csv"):
        answer = await served.as_().get(f"{ONE}/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")


async def test_the_document_is_served(served: Served) -> None:
    document = (await served.as_(None).get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert DECISIONS.replace("button", "{id}") in document["paths"]


async def test_answers_are_not_kept_by_caches(served: Served) -> None:
    await served.create()
    for path in (ALL, ONE, f"{ONE}/results", PRIVACY, "/metrics", "/nowhere"):
        answer = await served.as_().get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


# Keys


async def test_a_key_is_good_until_its_last_minute(tmp_path: Path) -> None:
    minute = int(START) // 60
    key = Key("brief", "admin", hash_of("ak_brief"), expiry=minute + 1)
    async with serving(tmp_path / "a.db", publishable=[key]) as served:
        await served.create()
        client = served.as_(None)
        headers = {"authorization": "Bearer ak_brief"}
        for path in (ALL, "/metrics"):
            assert (await client.get(path, headers=headers)).status_code == 200
        served.clock.forward(119)
        assert (await client.post(DECISIONS, headers=headers)).status_code == 200
        served.clock.forward(1)
        assert (await client.post(DECISIONS, headers=headers)).status_code == 401
        assert (await client.get(ALL, headers=headers)).status_code == 401


async def test_a_revoked_key_is_soon_refused_and_a_new_one_served(served: Served) -> None:
    await served.create()
    client = served.as_("reader")
    assert (await client.get(ALL)).status_code == 200
    served.store.delete_key(hash_of(KEYS["reader"]))

    async def is_refused() -> bool:
        return (await client.get(ALL)).status_code == 401

    assert await eventually(is_refused)
    served.store.save_key(Key("new", "reader", hash_of("rk_new")))

    async def is_served() -> bool:
        headers = {"authorization": "Bearer rk_new"}
        return (await served.as_(None).get(ALL, headers=headers)).status_code == 200

    assert await eventually(is_served)
