"""Goals, certificates and shipping, through the API in process."""

import asyncio
import csv
import io
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.engine_cases import FailingStore
from helpers.in_process_service import (
    ALL,
    BUTTON,
    DECISIONS,
    FEEDBACK,
    ONE,
    START,
    Clock,
    Line,
    Served,
    eventually,
    refused,
    serving,
    stored,
)
from whitelie import RandomizedResponse
from whitelie.policy import TS, TopTwo
from whitelie.service.engine import maintenance
from whitelie.service.engine.certification import certify_where_due
from whitelie.service.engine.tokens import TOKEN_LENGTH
from whitelie.service.experiment.changes import definition_of
from whitelie.service.experiment.definition import Experiment
from whitelie.service.minutes import DAY, time_of
from whitelie.service.store.contract import Batch, Cell, Unavailable

pytestmark = pytest.mark.anyio

MINUTE = 60
START_MINUTE = int(START // 60)
DAY_SECONDS = 86_400
RATES = {"low": 0.1, "middle": 0.3, "high": 0.8}
THREE: dict[str, Any] = {
    "arms": [{"key": key} for key in RATES],
    "epsilon": 2.0,
    "window": 0,
    "spread": 30,
    "sending": "when-due",
}
CLEAR = {"low": (300, 60), "middle": (300, 90), "high": (300, 220)}
"""Reports and ones that say which arm is best."""

NEAR = {"low": (150, 30), "middle": (150, 45), "high": (150, 75)}
"""Reports and ones that do not."""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        yield served


def definition(served: Served) -> Experiment:
    (saved,) = served.store.experiments()
    return definition_of(saved)


async def noted(served: Served) -> bool:
    return definition(served).certified is not None


async def results(served: Served, role: str = "admin") -> Any:
    answer = await served.as_(role).get(f"{ONE}/results")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def count(served: Served, counts: dict[str, tuple[int, int]]) -> None:
    """Let these reports come, and so many ones among them.

    Those of an arm come together: ones before zeros would be evidence for whoever looks between.
    """
    for key, (reports, ones) in counts.items():
        decisions = await served.decide("button", reports, available=[key])
        items = [
            {"token": decision["token"], "bit": int(number < ones)}
            for number, decision in enumerate(decisions)
        ]
        answer = await served.as_(None).post(FEEDBACK, json={"items": items})
        assert {item["status"] for item in answer.json()["items"]} == {"accepted"}


async def certified(served: Served, **fields: Any) -> None:
    """Create an experiment whose third arm is certified."""
    await served.create(**THREE, **fields)
    await count(served, CLEAR)
    assert (await results(served))["certificate"]["winner"] == "high"


# Goals


@pytest.mark.parametrize(
    ("goal", "policy", "label"),
    [
        ("earn", TS(), "TS-CF"),
        ("know", TopTwo(), "TopTwo-CF"),
        (1, TopTwo(), "TopTwo-CF"),
        (0.25, TopTwo(know=0.25), "TopTwo-CF (know=0.25)"),
    ],
)
async def test_a_goal_is_a_policy(served: Served, goal: Any, policy: Any, label: str) -> None:
    created = await served.create(goal=goal)
    assert (created["goal"], created["policy"]) == (goal, label)
    assert definition(served).policy == policy
    assert len(await served.decide("button", 20)) == 20


async def test_what_a_certificate_needs_is_fixed_at_creation(served: Served) -> None:
    expect = {"rate": 0.05, "difference": 0.01}
    asked = {"expect": expect, "delta": 0.1, "tolerance": 0.02, "then": "ship"}
    table = {"rule": "TopTwo", "know": 0.5}
    created = await served.create(**asked, policy=table)
    assert {name: created[name] for name in asked} == asked
    assert (created["goal"], created["policy"]) == (None, "TopTwo-CF (know=0.5)")
    assert (await served.as_().get(ONE)).json() == created
    certificate = (await results(served))["certificate"]
    assert (certificate["delta"], certificate["tolerance"]) == (0.1, 0.02)
    for name, value in (*asked.items(), ("goal", "know")):
        answer = await served.as_().patch(ONE, json={name: value})
        assert refused(answer) == (422, "invalid_field", name)


async def test_goals_and_certificates_do_not_change_what_devices_are_promised(
    served: Served,
) -> None:
    await served.create()
    before = (await served.as_(None).get(f"{ONE}/privacy")).json()
    await served.as_().delete(ONE)
    await served.create(goal="know", delta=0.01, then="ship")
    assert (await served.as_(None).get(f"{ONE}/privacy")).json() == before


async def test_a_creation_of_the_default_policy_may_be_repeated_in_either_words(
    served: Served,
) -> None:
    client, headers = served.as_(), {"idempotency-key": "one"}
    first = await client.post(ALL, json=BUTTON, headers=headers)
    again = await client.post(ALL, json=BUTTON | {"policy": "TS-CF"}, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await client.post(ALL, json=BUTTON | {"goal": "know"}, headers=headers)
    assert other.json()["error"]["code"] == "idempotency_conflict"


# The certificate


@dataclass
class Crowd:
    """People whose reports come at once; their rewards and coins are those of a seed."""

    served: Served
    seed: int = 7

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    async def visit(self, count: int) -> None:
        decisions = await self.served.decide("button", count)
        items = []
        for decision in decisions:
            coin = decision["mechanism"]
            channel = RandomizedResponse(p00=coin["p00"], p11=coin["p11"])
            reward = self._random.random() < RATES[decision["arm"]]
            one = self._random.random() < channel.mean_feedback(float(reward))
            items.append({"token": decision["token"], "bit": int(one)})
        answer = await self.served.as_(None).post(FEEDBACK, json={"items": items})
        assert answer.status_code == 200

    async def until_certified(self, most: int = 40) -> None:
        for _ in range(most):
            await self.visit(100)
            self.served.clock.forward(MINUTE)
            if await eventually(lambda: noted(self.served), 0.6):
                return
        raise AssertionError("no certificate")


async def test_three_arms_are_driven_to_their_certificate(served: Served) -> None:
    await served.create(**THREE, goal="know")
    first = await results(served)
    assert first["certificate"]["state"] == "open"
    assert first["sentence"] == "No reports yet; 0 decisions issued."
    crowd = Crowd(served)
    await crowd.visit(30)
    early = (await results(served))["certificate"]
    assert early["state"] == "open"
    assert 0 <= early["progress"] < 1
    assert early["winner"] is None
    assert {rival["key"] for rival in early["rivals"]} == RATES.keys() - {early["leader"]}
    await crowd.until_certified()
    for role in ("admin", "reader"):
        late = await results(served, role)
        certificate = late["certificate"]
        assert (certificate["state"], certificate["winner"]) == ("certified", "high")
        assert late["sentence"].startswith("high is best (wrong with probability at most 5 %, ")
        assert "likely" not in late["sentence"]
        assert [arm["certified"] for arm in late["arms"]] == [False, False, True]


async def test_an_admin_who_asks_certifies_at_once_and_a_reader_does_not(served: Served) -> None:
    await served.create(**THREE)
    await count(served, CLEAR)
    for _ in range(2):
        said = (await results(served, "reader"))["certificate"]
        assert (said["state"], said["winner"], said["progress"]) == ("open", None, 1)
    assert not await noted(served)
    said = (await results(served))["certificate"]
    assert (said["state"], said["winner"], said["leader"]) == ("certified", "high", "high")
    assert said["certified_at"] == "2027-01-15T08:00:00Z"
    assert (said["progress"], said["more_reports"], said["more_days"]) == (1, 0, 0)
    assert (await results(served, "reader"))["certificate"] == said
    assert definition(served).certified is not None


@pytest.mark.promise("Who certifies")
async def test_maintenance_looks_when_a_step_of_reports_has_come(served: Served) -> None:
    await served.create(**THREE, step=1000)
    await count(served, NEAR)
    await certify_where_due(served.engine)
    await count(served, CLEAR)
    await certify_where_due(served.engine)
    assert not await noted(served)
    await count(served, CLEAR)
    await certify_where_due(served.engine)
    assert await noted(served)


async def test_a_look_that_fails_is_due_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise Unavailable("no disk")

    await served.create(**THREE)
    await count(served, CLEAR)
    with monkeypatch.context() as failing:
        failing.setattr(served.store, "totals", fail)
        with pytest.raises(Unavailable):
            await certify_where_due(served.engine)
    await certify_where_due(served.engine)
    assert await noted(served)


async def test_a_certificate_survives_a_restart_and_what_comes_after_it(tmp_path: Path) -> None:
    path, clock = tmp_path / "x.db", Clock()
    async with serving(path, clock=clock) as served:
        await certified(served)
        first = (await results(served))["certificate"]
    clock.forward(600)
    async with serving(path, clock=clock) as served:
        assert (await results(served))["certificate"] == first
        await count(served, {"high": (700, 10)})
        later = (await results(served))["certificate"]
        assert later["leader"] != "high"
        for name in ("state", "winner", "certified_at", "sentence"):
            assert later[name] == first[name]


async def test_reports_per_day_are_those_of_the_last_day(served: Served) -> None:
    await served.create(**THREE)
    await count(served, NEAR)
    assert (await results(served))["certificate"]["more_days"] is None
    served.clock.forward(DAY_SECONDS / 2)
    said = (await results(served))["certificate"]
    assert said["more_days"] == pytest.approx(said["more_reports"] / 900)
    assert " more reports, " in said["sentence"]
    assert said["sentence"].endswith(" at today's traffic.")
    served.clock.forward(DAY_SECONDS)
    assert (await results(served))["certificate"]["more_days"] is None


async def test_nothing_is_certified_while_an_alarm_stands(served: Served) -> None:
    await served.create(**THREE, feedback_ttl=60)
    await count(served, CLEAR)
    await served.decide("button", 600, available=["low"])
    served.clock.forward(10 * MINUTE)
    await maintenance.expire(served.engine)
    said = await results(served)
    assert [alarm["code"] for alarm in said["alarms"]] == ["redeem_ratio"]
    certificate = said["certificate"]
    assert (certificate["state"], certificate["winner"]) == ("cannot_say", None)
    assert certificate["reason"] == "the arms are not answered equally often"
    await certify_where_due(served.engine)
    assert not await noted(served)
    assert served.engine.directory.find("button").is_look_due(1)
    await served.as_().patch(ONE, json={"retire": ["low"]})
    assert (await results(served))["certificate"]["winner"] == "high"


async def test_impossible_reports_certify_nothing(served: Served) -> None:
    await served.create(**THREE)
    await count(served, CLEAR | {"high": (300, 300)})
    said = (await results(served))["certificate"]
    assert (said["state"], said["winner"]) == ("cannot_say", None)
    assert said["reason"] == "some reports do not fit the agreed flipping"
    assert not await noted(served)


async def test_one_arm_is_never_certified(served: Served) -> None:
    await served.create(**THREE | {"arms": [{"key": "low"}]})
    await count(served, {"low": (300, 200)})
    said = (await results(served))["certificate"]
    assert (said["state"], said["reason"]) == (
        "cannot_say",
        "there are fewer than two arms to compare",
    )


async def test_a_jumped_clock_certifies_nothing(tmp_path: Path) -> None:
    clock = Clock(steady=Clock())
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(**THREE)
        await count(served, CLEAR)
        clock.forward(3600)
        served.engine.follow_clock()
        said = (await results(served))["certificate"]
        assert (said["state"], said["reason"]) == ("cannot_say", "the server's clock has jumped")
        assert not await noted(served)


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"add": [{"key": "new"}]}, False),
        ({"retire": ["high"]}, False),
        ({"retire": ["low"]}, True),
        ({"status": "paused"}, True),
        ({"status": "stopped"}, True),
    ],
)
async def test_a_certificate_stays_if_it_says_the_same_of_the_arms_that_are_left(
    served: Served, change: dict[str, Any], stays: bool
) -> None:
    await certified(served)
    assert (await served.as_().patch(ONE, json=change)).status_code == 200
    assert await noted(served) is stays
    said = (await results(served))["certificate"]
    assert (said["winner"] == "high") is stays


async def test_a_tolerance_ends_a_test_of_equal_arms(served: Served) -> None:
    arms = [{"key": "a"}, {"key": "b"}]
    await served.create(**THREE | {"arms": arms}, tolerance=0.2)
    await count(served, {"a": (900, 401), "b": (900, 400)})
    said = await results(served)
    assert said["certificate"]["state"] == "certified"
    assert said["sentence"].startswith("No other is better than a by more than 0.2 (wrong ")


async def test_the_table_has_evidence(served: Served) -> None:
    await certified(served)
    said = await results(served)
    text = (await served.as_().get(f"{ONE}/results.csv")).text
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(text))}
    for rival in said["certificate"]["rivals"]:
        row = rows[rival["key"]]
        assert (float(row["evidence"]), float(row["needed"])) == (
            rival["evidence"],
            rival["needed"],
        )
        assert row["certified"] == "false"
    assert [rows["high"][name] for name in ("evidence", "needed", "certified")] == ["", "", "true"]


@pytest.mark.parametrize("role", ["admin", "reader"])
async def test_metrics_say_how_far_it_is(served: Served, role: str) -> None:
    async def gauges() -> tuple[float, float]:
        text = (await served.as_(role).get("/metrics")).text
        metrics = dict(re.findall(r'^whitelie_(cert\w+){experiment="button"} (\S+)$', text, re.M))
        return float(metrics["certificate_progress"]), float(metrics["certified"])

    await served.create(**THREE)
    assert await gauges() == (0, 0)
    await count(served, CLEAR)
    assert await gauges() == (1, 0)
    await results(served)
    assert await gauges() == (1, 1)


@pytest.mark.parametrize("role", ["admin", "reader"])
async def test_the_stream_tells_when_it_happens(
    served: Served, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whitelie.service")
    await served.create(**THREE)
    line = Line.to(served.app, "GET", f"{ONE}/stream", role)
    await line.send(b"")
    task = line.start()
    await line.next()
    assert (await line.next())["body"].startswith(b"event: results\n")
    await count(served, CLEAR)
    await results(served)
    told = b""
    while b"event: certified\n" not in told:
        told += (await line.next())["body"]
    data = told.split(b"event: certified\ndata: ")[1]
    assert json.loads(data)["winner"] == "high"
    await line.hang_up()
    await asyncio.wait_for(task, 60)
    logged = [vars(record)["facts"] for record in caplog.records if record.msg == "certified"]
    assert logged == [{"id": "button", "arm": "high", "delta": 0.05}]


# Rollback


async def roll_back(served: Served, start: int, stop: int) -> None:
    span = {"from": time_of(start).isoformat(), "to": time_of(stop).isoformat()}
    answer = await served.as_().post(f"{ONE}/rollback", json=span)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("role", ["admin", "reader"])
async def test_a_rollback_withdraws_the_certificate_and_begins_anew(
    served: Served, role: str
) -> None:
    """Reports on decisions of the same day do not count as evidence, those of the next do."""
    await served.create(**THREE, step=1, feedback_ttl=3600, retention=DAY_SECONDS)
    await count(served, CLEAR)
    needed = (await results(served))["certificate"]["rivals"][0]["needed"]
    served.clock.forward(2 * MINUTE)
    await roll_back(served, START_MINUTE - 5, START_MINUTE - 4)
    anew = START_MINUTE // DAY * DAY + DAY
    assert definition(served).begun_anew is not None
    assert definition(served).evidence_begins == anew
    await count(served, CLEAR)
    said = await results(served, role)
    assert said["reports"] == 1800
    certificate = said["certificate"]
    assert (certificate["state"], certificate["winner"]) == ("open", None)
    assert (certificate["leader"], certificate["progress"]) == (None, 0)
    assert certificate["sentence"] == (
        "No certificate yet: after a rollback, evidence begins anew on 2027-01-16."
    )
    served.clock.now = 60.0 * anew
    await count(served, NEAR)
    expected = (await results(served, role))["certificate"]
    assert 0 < expected["progress"] < 1
    assert all(rival["needed"] > needed for rival in expected["rivals"])

    served.clock.forward(3 * DAY_SECONDS)
    await maintenance.join_old_minutes(served.engine)
    number = served.engine.directory.find("button").number
    assert {minute for minute, _ in served.store.history(number, 0, 2**40)} == {anew - DAY, anew}
    assert (await results(served, role))["certificate"]["rivals"] == expected["rivals"]
    await count(served, CLEAR)
    await results(served)
    assert (await results(served, role))["certificate"]["winner"] == "high"


async def test_each_rollback_needs_more_evidence(served: Served) -> None:
    await certified(served)
    needed = []
    for number in range(1, 4):
        served.clock.forward(2 * MINUTE)
        await roll_back(served, START_MINUTE, START_MINUTE + 1)
        anew = definition(served).begun_anew
        assert anew is not None
        assert (anew.number, anew.arms, anew.first_added) == (number, 3, 3)
        served.clock.now = 60.0 * anew.minute
        await count(served, NEAR)
        said = (await results(served))["certificate"]
        needed.append(said["rivals"][0]["needed"])
    assert needed == sorted(set(needed))


async def test_a_rollback_just_before_midnight_begins_a_day_later(served: Served) -> None:
    """A server whose clock is ahead by less than a minute may have decided after midnight."""
    await served.create(**THREE)
    midnight = START_MINUTE // DAY * DAY + DAY
    served.clock.now = 60.0 * (midnight - 1)
    await roll_back(served, START_MINUTE, START_MINUTE + 1)
    assert definition(served).evidence_begins == midnight + DAY


async def test_a_rollback_begins_after_all_that_was_decided(served: Served) -> None:
    """While the clock was ahead, decisions were made in minutes that are yet to come."""
    await served.create(**THREE)
    number, ahead = served.engine.directory.find("button").number, START_MINUTE + 3 * DAY
    served.store.commit(Batch(issued={Cell(number, 0, ahead): 1}))
    await roll_back(served, START_MINUTE - 5, START_MINUTE - 4)
    assert definition(served).evidence_begins == ahead // DAY * DAY + DAY


async def test_what_an_earlier_version_has_rolled_back_begins_anew(served: Served) -> None:
    """Its counts are those that somebody has chosen to leave."""
    await served.create(**THREE)
    (saved,) = served.store.experiments()
    old = json.loads(saved.definition)
    for name in ("goal", "delta", "tolerance", "expect", "then", "first_arms", "begun_anew"):
        del old[name]
    old["rolled_back"] = [[START_MINUTE - 9, START_MINUTE - 8]]
    assert served.store.change(saved, json.dumps(old))
    await served.engine.directory.refresh()
    await count(served, CLEAR)
    said = (await results(served))["certificate"]
    assert (said["state"], said["progress"]) == ("open", 0)
    assert definition(served).first_arms == 1
    assert definition(served).begun_anew is not None
    assert definition(served).certified is None


# Shipping


async def test_a_shipped_arm_is_what_everybody_sees(served: Served) -> None:
    await served.create()
    before = await served.decide("button", 20)
    answer = await served.as_().post(f"{ONE}/ship", json={"arm": "green"})
    assert answer.status_code == 200
    view = answer.json()
    assert view["status"] == "shipped"
    assert view["shipped"] == {
        "arm": "green",
        "at": "2027-01-15T08:00:00Z",
        "undo_until": "2027-01-16T08:00:00Z",
    }
    kept = stored(served)
    decisions = (await served.as_("publishable").post(DECISIONS)).json()["decisions"]
    decisions += await served.decide("button", 50)
    assert {decision["arm"] for decision in decisions} == {"green"}
    assert len({decision["token"] for decision in decisions}) == 51
    for decision in decisions:
        assert decision["payload"] == {"colour": "#0a0"}
        assert decision["mechanism"] == {"p00": 0.5, "p11": 0.5, "window": 0, "spread": 0}
        assert decision["expires_in"] == 0
        assert re.fullmatch(f"[A-Za-z0-9_-]{{{TOKEN_LENGTH}}}", decision["token"])
    assert await served.report(decisions) == ["invalid"] * 51
    report = {"token": decisions[0]["token"], "bit": 1}
    answer = await served.as_(None).post(FEEDBACK, json=report)
    assert refused(answer) == (422, "invalid_token", "token")
    assert stored(served) == kept
    metrics = (await served.as_().get("/metrics")).text
    assert "whitelie_decisions_total 20.0" in metrics

    assert await served.report(before) == ["accepted"] * 20
    said = await results(served)
    assert (said["status"], said["reports"], said["shipped"]) == ("shipped", 20, view["shipped"])
    assert said["sentence"].startswith("Shipped: everybody sees green. ")


async def test_a_shipped_arm_needs_neither_store_nor_clock(tmp_path: Path) -> None:
    clock = Clock(steady=Clock())
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create()
        await served.as_().post(f"{ONE}/ship", json={"arm": "blue"})
        FailingStore(served.store).fails = True
        clock.forward(3600)
        assert (await served.decide("button"))[0]["arm"] == "blue"


async def test_requests_that_wait_while_an_arm_is_shipped_get_it(served: Served) -> None:
    await served.create()
    ship = served.as_().post(f"{ONE}/ship", json={"arm": "blue"})
    waiting = [served.decide("button", 5) for _ in range(40)]
    answer, *decided = await asyncio.gather(ship, *waiting)
    assert answer.status_code == 200
    real = [one for each in decided for one in each if one["mechanism"]["p00"] != 0.5]
    (totals,) = stored(served)[3]
    assert sum(counts.issued for counts in totals.values()) == len(real)
    assert set(await served.report(real)) <= {"accepted"}


async def test_shipping_can_be_undone_for_a_day(served: Served) -> None:
    await served.create()
    client = served.as_()
    for status in ("running", "paused"):
        await client.patch(ONE, json={"status": status})
        await client.post(f"{ONE}/ship", json={"arm": "green"})
        served.clock.forward(DAY_SECONDS)
        answer = await client.post(f"{ONE}/unship")
        assert answer.status_code == 200
        assert (answer.json()["status"], answer.json()["shipped"]) == (status, None)
    await client.patch(ONE, json={"status": "running"})
    assert (await served.decide("button"))[0]["mechanism"]["spread"] == 60
    await client.post(f"{ONE}/ship", json={"arm": "green"})
    served.clock.forward(DAY_SECONDS + MINUTE)
    late = await client.post(f"{ONE}/unship")
    assert refused(late) == (409, "too_late_to_unship", "id")
    assert (await served.decide("button"))[0]["arm"] == "green"


async def test_what_cannot_be_shipped_is_refused(served: Served) -> None:
    await served.create(arms=[{"key": "green"}, {"key": "blue"}, {"key": "old"}])
    client, path = served.as_(), f"{ONE}/ship"
    await client.patch(ONE, json={"retire": ["old"]})
    for body, field in (({"arm": "red"}, "arm"), ({"arm": "old"}, "arm")):
        assert refused(await client.post(path, json=body)) == (422, "unknown_arm", field)
    for bad in ({}, {"arm": 1}, {"arm": "green", "when": "now"}):
        assert refused(await client.post(path, json=bad))[:2] == (422, "invalid_field")
    for role in ("reader", "publishable"):
        for end in ("ship", "unship"):
            answer = await served.as_(role).post(f"{ONE}/{end}", json={"arm": "green"})
            assert refused(answer) == (403, "not_allowed", "Authorization")
    assert refused(await client.post(f"{ONE}/unship")) == (409, "not_shipped", "id")
    assert refused(await client.patch(ONE, json={"status": "shipped"})) == (
        422,
        "invalid_field",
        "status",
    )

    shipped = (await client.post(path, json={"arm": "green"})).json()
    assert (await client.post(path, json={"arm": "green"})).json() == shipped
    other = await client.post(path, json={"arm": "blue"})
    assert refused(other) == (409, "experiment_shipped", "id")
    for change in ({"status": "running"}, {"status": "paused"}, {"add": [{"key": "new"}]}):
        answer = await client.patch(ONE, json=change)
        assert refused(answer) == (409, "experiment_shipped", "id")
    away = await client.post(DECISIONS, json={"available": ["blue"]})
    assert refused(away) == (422, "unknown_arm", "available")
    assert (await served.decide("button", available=["blue", "green"]))[0]["arm"] == "green"

    stopped = (await client.patch(ONE, json={"status": "stopped"})).json()
    assert (stopped["status"], stopped["shipped"]) == ("stopped", None)
    for end in ("ship", "unship"):
        answer = await client.post(f"{ONE}/{end}", json={"arm": "green"})
        assert refused(answer) == (409, "experiment_stopped", "id")
    assert refused(await client.post(DECISIONS)) == (409, "experiment_stopped", "id")


async def test_an_experiment_ships_by_itself_if_it_was_created_so(served: Served) -> None:
    await certified(served, then="ship")
    said = await results(served)
    assert (said["status"], said["shipped"]["arm"]) == ("shipped", "high")
    assert (await served.decide("button"))[0]["arm"] == "high"
    await served.as_().post(f"{ONE}/unship")
    await count(served, CLEAR)
    later = await results(served)
    assert (later["status"], later["certificate"]["winner"]) == ("running", "high")


async def test_a_paused_experiment_does_not_ship_by_itself(served: Served) -> None:
    await served.create(**THREE, then="ship")
    await count(served, CLEAR)
    await served.as_().patch(ONE, json={"status": "paused"})
    said = await results(served)
    assert (said["status"], said["certificate"]["winner"]) == ("paused", "high")


async def test_a_server_without_auto_ship_only_says_so(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whitelie.service")
    served.engine.auto_ships = False
    await certified(served, then="ship")
    assert (await results(served))["status"] == "running"
    logged = [vars(record)["facts"] for record in caplog.records if record.msg == "not_shipped"]
    assert logged == [{"id": "button", "arm": "high", "reason": "no-auto-ship"}]
