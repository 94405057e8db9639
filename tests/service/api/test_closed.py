"""The service stays closed: whatever is sent, only what is documented happens and comes back."""

import asyncio
import base64
import csv
import io
import json
import logging
import random
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.checks import CheckContext
from schemathesis.specs.openapi.checks import positive_data_acceptance

from helpers.in_process_service import (
    ALL,
    BUTTON,
    DECISIONS,
    FEEDBACK,
    KEYS,
    ONE,
    SECRET,
    Clock,
    Line,
    Served,
    operation_of,
    refused,
    serving,
    stored,
)
from whitelie.service.api import hot_path, openapi
from whitelie.service.api import limits as limits_module
from whitelie.service.api.limits import MAX_BUCKETS, NETWORKS, Bucket, Buckets, Limits, networks
from whitelie.service.api.operations import OPERATIONS, Operation
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.experiment.definition import slug_of
from whitelie.service.process.server import warm_up
from whitelie.service.refusals import STATUS, Refusal
from whitelie.service.store.contract import Decision, Key

Case = schemathesis.Case[Any]
anyio = pytest.mark.anyio


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        await served.create()
        yield served


# The OpenAPI document


class Bridge:
    """An application that hands requests to one that lives on another thread's event loop."""

    portal: BlockingPortal
    served: Served

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError
        asked = [await receive()]
        while asked[-1].get("more_body"):
            asked.append(await receive())
        said: list[Any] = []
        await asyncio.to_thread(self.portal.call, self._ask, scope, asked, said)
        for message in said:
            await send(message)

    async def _ask(self, scope: Any, asked: list[Any], said: list[Any]) -> None:
        async def receive() -> Any:
            return asked.pop(0) if asked else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            said.append(message)

        await self.served.app(scope, receive, send)

    def prepare(self, case: Case) -> None:
        """Let many requests meet an experiment, which mostly runs, and a token that is good."""
        draw = random.Random(repr((case.path_parameters, case.body)))
        status = {each.slug: each.experiment.status for each in self.served.engine.directory}
        mended = case.path == FEEDBACK or draw.random() < 0.5
        if "button" not in status or (mended and status["button"] != "running"):
            self.portal.call(self._recreate)
        if "id" in (case.path_parameters or {}) and draw.random() < 0.5:
            case.path_parameters["id"] = "button"
        if case.path == FEEDBACK and isinstance(case.body, dict) and draw.random() < 0.5:
            items = case.body.get("items")
            for report in items if isinstance(items, list) else [case.body]:
                if isinstance(report, dict) and _is_token(report.get("token")):
                    report["token"] = self.portal.call(self.served.decide, "button")[0]["token"]

    async def _recreate(self) -> None:
        await self.served.as_().delete(ONE)
        await self.served.create()


def _is_token(given: object) -> bool:
    return isinstance(given, str) and len(given) <= 256


BRIDGE = Bridge()
SCHEMA = schemathesis.openapi.from_dict(
    openapi.document(),
    config=schemathesis.Config.from_dict(
        {
            "seed": 1,
            "headers": {"Authorization": f"Bearer {KEYS['admin']}"},
            "generation": {"max-examples": 40, "deterministic": True, "database": "none"},
        }
    ),
).exclude(operation_id="stream")
SCHEMA.app = BRIDGE


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    path = tmp_path_factory.mktemp("schemathesis") / "whitelie.db"
    warm_up()  # else the first requests may take longer than they are given
    with (
        start_blocking_portal("asyncio") as BRIDGE.portal,
        BRIDGE.portal.wrap_async_context_manager(serving(path)) as BRIDGE.served,
    ):
        yield BRIDGE


def has_a_documented_code(context: CheckContext, answer: schemathesis.Response, case: Case) -> None:
    """A refusal has a code that the operation lists, with this status and the field at fault."""
    operation = operation_of(case.method, case.path)
    if operation is None or answer.status_code in (operation.status, 405):
        return
    error = answer.json()["error"]
    assert error["code"] in (*operation.codes, "not_found")
    assert answer.status_code == STATUS[error["code"]]
    assert error["field"]


@SCHEMA.parametrize()
def test_requests_made_from_the_document_find_no_fault(case: Case, bridge: Bridge) -> None:
    bridge.prepare(case)
    case.call_and_validate(
        # Given here too: a header of the configuration alone is taken for a generated, invalid one.
        headers={"Authorization": f"Bearer {KEYS['admin']}"},
        additional_checks=[has_a_documented_code],
        # What a schema allows may break a rule that schemas cannot say, such as the ceiling.
        excluded_checks=[positive_data_acceptance],
    )


def test_the_document_lists_every_operation() -> None:
    paths = openapi.document()["paths"].values()
    names = {described["operationId"] for methods in paths for described in methods.values()}
    assert names == {operation.name for operation in OPERATIONS}


# Tokens


def decision(sequence: int) -> Decision:
    return Decision(1, 0, 1, sequence, 30_000_000, 30_010_080)


def mutations(cipher: TokenCipher, count: int) -> Iterator[str]:
    """Texts that are near to good tokens, and are none."""
    draw = random.Random(1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    good = [cipher.seal(decision(sequence)) for sequence in range(64)]
    other = TokenCipher([b"a secret of somebody else's making"])
    known = set(good)

    def flipped(token: str) -> str:
        raw = bytearray(base64.urlsafe_b64decode(token + "=="))
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def respelt(token: str) -> str:
        place = draw.choice((len(token) - 1, draw.randrange(len(token))))
        return token[:place] + draw.choice(alphabet) + token[place + 1 :]

    def cut(token: str) -> str:
        return token[: draw.randrange(len(token))] + draw.choice(("", "", "=", "A", "=="))

    def spliced(token: str) -> str:
        place = draw.randrange(1, len(token))
        return token[:place] + draw.choice(good)[place:]

    def foreign(token: str) -> str:
        made = other.seal(decision(draw.randrange(1000)))
        return draw.choice((made, token[:2] + made[2:]))

    def varied(token: str) -> str:
        place = draw.randrange(len(token))
        return draw.choice(
            (
                token + draw.choice("= A\n\0"),
                draw.choice(" \n\t=") + token,
                token.replace("-", "+").replace("_", "/"),
                token.swapcase(),
                token[::-1],
                token[:place] + draw.choice("=+/ .\n\0é💥") + token[place + 1 :],
                base64.b64encode(draw.randbytes(48)).decode().rstrip("="),
            )
        )

    makers = (flipped, flipped, respelt, respelt, cut, spliced, foreign, varied)
    while count:
        mutated = draw.choice(makers)(draw.choice(good))
        if mutated not in known:
            count -= 1
            yield mutated


def accepted(cipher: TokenCipher, tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if cipher.open(token) is not None]


@pytest.mark.promise("Tokens are AES-256-SIV")
def test_no_mutated_token_is_accepted() -> None:
    cipher = TokenCipher([SECRET, b"an older secret of the same house"])
    assert accepted(cipher, mutations(cipher, 100_000)) == []
    assert accepted(cipher, [cipher.seal(decision(7))])


class Unauthenticated(TokenCipher):
    """A cipher that reads the fields and does not look at the rest."""

    def open(self, token: str) -> Decision | None:
        try:
            raw = base64.urlsafe_b64decode(token + "==")
            return Decision(*struct.unpack(">IIIQII", raw[-28:]))
        except (ValueError, struct.error):
            return None


class Lenient(TokenCipher):
    """A cipher that takes every spelling of the same bytes."""

    def open(self, token: str) -> Decision | None:
        try:
            raw = base64.urlsafe_b64decode(token + "==")
        except ValueError:
            return None
        return super().open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


@pytest.mark.parametrize("careless", [Unauthenticated, Lenient])
def test_mutations_find_a_careless_cipher(careless: type[TokenCipher]) -> None:
    cipher = careless([SECRET])
    assert accepted(cipher, mutations(cipher, 2000))


@anyio
async def test_mutated_tokens_are_refused_and_change_nothing(served: Served) -> None:
    await served.decide("button", 64)
    before = stored(served)
    client = served.as_(None)
    cipher = TokenCipher([SECRET])
    for token in mutations(cipher, 500):
        answer = await client.post(FEEDBACK, json={"token": token, "bit": 1})
        assert refused(answer) == (422, "invalid_token", "token")
    items = [{"token": token, "bit": 1} for token in mutations(cipher, 1000)]
    answer = await client.post(FEEDBACK, json={"items": items})
    assert answer.json() == {"items": [{"status": "invalid"}] * 1000}
    assert stored(served) == before


@anyio
async def test_a_sealed_token_of_no_experiment_or_arm_is_invalid(served: Served) -> None:
    minute = served.engine.clock.minute
    for made in (
        Decision(99, 0, 1, 0, minute, minute + 9),
        Decision(1, 2, 1, 0, minute, minute + 9),
    ):
        token = TokenCipher([SECRET]).seal(made)
        answer = await served.as_(None).post(FEEDBACK, json={"token": token, "bit": 1})
        assert refused(answer) == (422, "invalid_token", "token")


# Keys


def request_of(operation: Operation) -> dict[str, Any]:
    """A request that is right, apart from its key."""
    bodies: dict[str, Any] = {
        "create": BUTTON,
        "change": {"status": "paused"},
        "ship": {"arm": "green"},
        "feedback": {"token": "x", "bit": 1},
        "roll_back": {"from": "2027-01-15T07:00:00Z", "to": "2027-01-15T07:01:00Z"},
    }
    request = {"method": operation.method, "url": operation.path.replace("{id}", "button")}
    if operation.name in bodies:
        request["json"] = bodies[operation.name]
    return request


@anyio
@pytest.mark.parametrize("role", ["admin", "reader", "publishable", None])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.promise("Roles")
async def test_a_key_may_do_what_is_declared_and_nothing_else(
    served: Served, operation: Operation, role: str | None
) -> None:
    if operation.name == "unship":
        await served.as_().post(f"{ONE}/ship", json={"arm": "green"})
    before = stored(served)
    asked = request_of(operation)
    if operation.name == "stream":
        line = Line.to(served.app, "GET", asked["url"], role)
        serving_it = line.start()
        status = (await line.next())["status"]
        await line.hang_up()
        await serving_it
    else:
        status = (await served.as_(role).request(**asked)).status_code
    if not operation.roles or role in operation.roles:
        assert status in (operation.status, 422)  # 422: this token is no token
    else:
        assert status == (401 if role is None else 403)
        assert stored(served) == before


@anyio
@pytest.mark.parametrize(
    ("ask", "field"),
    [({"count": 2}, "count"), ({"available": ["blue"]}, "available")],
)
async def test_a_publishable_key_neither_batches_nor_chooses(
    served: Served, ask: dict[str, Any], field: str
) -> None:
    before = stored(served)
    answer = await served.as_("publishable").post(DECISIONS, json=ask)
    assert refused(answer) == (403, "not_allowed", field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic " + KEYS["admin"], KEYS["admin"], "Bearer é"],
)
@pytest.mark.parametrize("path", [DECISIONS, ALL])
async def test_what_is_no_key_opens_nothing(served: Served, value: str, path: str) -> None:
    headers = {b"authorization": value.encode()}
    answer = await served.as_(None).post(path, headers=headers, json={})
    assert refused(answer) == (401, "unknown_key", "Authorization")
    assert answer.headers["www-authenticate"] == "Bearer"


@anyio
@pytest.mark.parametrize(
    "path",
    [
        "/v2/experiments/button/decisions",
        "/0123456789abcde/button/decisions",
        "/v1/experiments//decisions",
        "/v1/experiments/button/x/decisions",
        "/v1/experiments/",
        "/v1/experiments/button/",
        "/v1/feedback/",
        "//v1/feedback",
    ],
)
async def test_only_the_documented_paths_are_served(served: Served, path: str) -> None:
    before = stored(served)
    for method in ("GET", "POST"):
        answer = await served.as_().request(method, f"http://service.example{path}")
        assert refused(answer)[0] in (404, 405)
    assert stored(served) == before


# Limits


def wait(limits: Limits, key: Key, address: str, now: float) -> int | None:
    """Ask for a decision; return for how long to wait if it is refused."""
    try:
        limits.charge(key, address, now)
    except Refusal as refusal:
        return refusal.retry_after
    return 0


def charged(limits: Limits, key: Key, address: str, now: float) -> bool:
    return wait(limits, key, address, now) == 0


def publishable(per_minute: int) -> Key:
    return Key("p", "publishable", b"%d" % per_minute, (), per_minute)


def test_an_address_has_its_share_and_regains_it() -> None:
    limits, key = Limits(60), publishable(10**6)
    assert sum(charged(limits, key, "192.0.2.1", 0) for _ in range(100)) == 60
    assert sum(charged(limits, key, "192.0.2.1", 10) for _ in range(100)) == 10
    assert sum(charged(limits, key, "192.0.2.1", 1000) for _ in range(100)) == 60


def test_after_the_time_that_a_refusal_names_there_is_room() -> None:
    limits, key = Limits(7), publishable(10**6)
    now = 0
    for _ in range(50):
        if seconds := wait(limits, key, "192.0.2.1", now):
            now += seconds
            assert charged(limits, key, "192.0.2.1", now)
    assert now > 0


def test_a_key_has_its_share_over_all_addresses() -> None:
    limits, key = Limits(10), publishable(100)
    taken = [charged(limits, key, f"192.0.2.{number % 50}", 0) for number in range(500)]
    assert 95 < sum(taken) < 100  # the last ones are for those who have taken nothing
    taken += [charged(limits, key, f"192.0.2.{number}", 0) for number in range(50, 100)]
    assert sum(taken) == 100
    assert charged(limits, Key("other", "publishable", b"q", (), 1), "192.0.2.9", 0)


def test_who_is_refused_for_the_key_keeps_the_share_of_the_address() -> None:
    limits = Limits(5)
    assert not any(charged(limits, publishable(0), "192.0.2.1", 0) for _ in range(50))
    assert sum(charged(limits, publishable(100), "192.0.2.1", 0) for _ in range(50)) == 5


class NoAddresses(Limits):
    """Limits of keys alone."""

    def charge(self, key: Key, address: str, now: float) -> None:
        super().charge(key, str(random.random()), now)


class EveryAddressAlike(Limits):
    """Limits that do not tell addresses apart."""

    def charge(self, key: Key, address: str, now: float) -> None:
        super().charge(key, "", now)


def is_fair(limits: Limits) -> bool:
    """Whether everybody is served for an hour in which one address asks without end."""
    key = publishable(600)
    for second in range(3600):
        for _ in range(20):
            charged(limits, key, "198.51.100.1", second)
        if not charged(limits, key, f"192.0.2.{second % 250}", second):
            return False
    return True


def test_one_abusive_address_does_not_shut_out_others() -> None:
    assert is_fair(Limits(120))
    assert not is_fair(NoAddresses(120))
    assert not is_fair(EveryAddressAlike(120))


def honest_refusals(
    limits: Limits, attackers: list[str], seconds: int = 20, per_second: int = 20
) -> tuple[int, int]:
    """Return what attackers got who ask without end, and how often visitors were refused.

    Attackers ask 800 times a second in turn; modest visitors, each from an address of their own,
    come between them.
    """
    key, got, refusals, turn = publishable(6000), 0, 0, 0
    for step in range(seconds * per_second):
        now = step / per_second
        for _ in range(800 // per_second):
            got += charged(limits, key, attackers[turn % len(attackers)], now)
            turn += 1
        visitor = f"2001:db9:{step:x}::1" if step % 2 else f"192.0.{step // 250}.{step % 250}"
        refusals += not charged(limits, key, visitor, now)
    return got, refusals


NETWORK_OF_256 = [f"2001:db8:0:{number:x}::1" for number in range(256)]
SITE = [f"2001:db8:0:{number:x}::1" for number in range(0, 65_536, 8)]
CROWD = [f"10.0.{number >> 8}.{number & 255}" for number in range(2000)]


class FlatLimits(Limits):
    """Limits that know /64 networks only, and give to whoever comes first: the negative control."""

    def charge(self, key: Key, address: str, now: float) -> None:
        (asked, *_), name = networks(address), hash(key.hash)
        buckets = (
            (self._addresses, hash(asked), self._per_address),
            (self._keys, name, key.decisions_per_minute),
        )
        looked = [each.look(name, limit, now) for each, name, limit in buckets]
        if any(bucket.level < 1 for bucket in looked):
            raise Refusal("too_many_decisions", "wait", retry_after=1)
        for (each, name, _), bucket in zip(buckets, looked, strict=True):
            each.take(name, bucket)


@pytest.mark.parametrize("attackers", [NETWORK_OF_256, SITE, CROWD], ids=["/56", "/48", "IPv4"])
def test_many_addresses_do_not_shut_out_modest_visitors(attackers: list[str]) -> None:
    got, refusals = honest_refusals(FlatLimits(120), attackers)
    assert (got > 7000, refusals > 50) == (True, True), "the attack works without nested limits"
    got, refusals = honest_refusals(Limits(120), attackers)
    assert refusals == 0


@pytest.mark.parametrize(("attackers", "times"), [(NETWORK_OF_256, 4), (SITE, 16)])
def test_a_network_gets_what_it_may_and_no_more(attackers: list[str], times: int) -> None:
    got, _ = honest_refusals(Limits(120), attackers)
    assert got <= times * 120 * (1 + 20 / 60)
    assert times in dict(NETWORKS).values()


def test_who_asks_without_end_shares_a_key_equally_with_others_who_do() -> None:
    limits, key = Limits(120), publishable(600)
    got: Counter[str] = Counter()
    for second in range(600):
        for turn in range(40):
            address = f"192.0.2.{turn % 20}" if turn else "2001:db8::1"
            got[address] += charged(limits, key, address, second) and second >= 300
    assert sum(got.values()) == pytest.approx(5 * 600, rel=0.02)
    assert max(got.values()) < 1.3 * min(got.values())


def test_an_ipv4_address_has_no_network_around_it() -> None:
    limits, key = Limits(60), publishable(10**6)
    for number in range(250):
        assert sum(charged(limits, key, f"192.0.2.{number}", 0) for _ in range(61)) == 60


def test_a_scarce_key_is_there_for_others_after_the_time_that_a_refusal_names() -> None:
    limits, key = Limits(120), publishable(100)
    seconds = 0
    while not seconds:
        seconds = wait(limits, key, "192.0.2.1", 0) or 0
    assert 0 < seconds <= 61
    assert charged(limits, key, "192.0.2.2", 0)
    assert charged(limits, key, "192.0.2.1", seconds)


def test_an_ipv6_line_is_one_address_and_mapped_ipv4_are_many() -> None:
    assert networks("2001:db8::1") == networks("2001:db8::ffff:1")
    assert networks("2001:db8::1")[0] != networks("2001:db8:0:1::1")[0]
    assert networks("2001:db8::1")[1:] == networks("2001:db8:0:1::1")[1:]
    assert networks("2001:db8::1")[1] != networks("2001:db8:0:100::1")[1]
    assert networks("2001:db8::1")[2] == networks("2001:db8:0:100::1")[2]
    assert networks("2001:db8::1")[2] != networks("2001:db8:1::1")[2]
    assert networks("::ffff:192.0.2.1") == networks("192.0.2.1")
    assert networks("::ffff:192.0.2.1") != networks("::ffff:192.0.2.2")
    assert networks("no:address") == (b"no:address",)
    assert networks("") == (b"",)


@pytest.mark.parametrize("per_minute", [10**6, 60])
def test_time_that_is_set_back_shuts_nobody_out(per_minute: int) -> None:
    limits, key = Limits(60), publishable(per_minute)
    for number in range(100):
        charged(limits, key, f"192.0.2.{number}", 10_000)
    for second in range(1000, 1004):
        charged(limits, key, f"198.51.100.{second - 1000}", second)
    assert charged(limits, key, "203.0.113.1", 1004)


def test_a_key_that_is_asked_for_is_not_forgotten_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "MAX_BUCKETS", 10)
    limits, key = Limits(10**6), publishable(1)
    assert charged(limits, key, "192.0.2.1", 0)
    for number in range(2, 100):
        assert charged(limits, publishable(number), "192.0.2.2", 0)
        assert not charged(limits, key, f"198.51.100.{number}", 0)


def test_memory_holds_the_latest_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MAX_BUCKETS", 10)
    limits, key = Limits(60), publishable(10**6)
    assert sum(charged(limits, key, "192.0.2.0", 0) for _ in range(61)) == 60
    for number in range(1, 100):
        assert charged(limits, key, f"192.0.2.{number}", 0)
        assert not charged(limits, key, "192.0.2.0", 0)  # an abuser is not forgotten for others
    assert len(limits._addresses) == 10


def test_a_network_that_is_full_does_not_fill_memory_with_its_addresses() -> None:
    limits, key = Limits(60), publishable(10**6)
    taken = sum(charged(limits, key, address, 0) for address in SITE)
    assert len(limits._addresses) <= taken + 256 + 1 < len(SITE)


def test_memory_holds_hashes_and_numbers_only() -> None:
    limits = Limits(60)
    for address in ("203.0.113.77", "2001:db8:cb00:717f::1"):
        charged(limits, publishable(100), address, 0)
    kept = limits._addresses._kept
    assert len(kept) == 4
    assert {type(name) for name in kept} == {int}
    assert all(isinstance(bucket, Bucket) for bucket in kept.values())
    assert MAX_BUCKETS <= 100_000


@anyio
async def test_limits_hold_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, steady = Clock(), Clock(now=1000.0)
    monkeypatch.setattr(hot_path, "monotonic", steady)
    async with serving(tmp_path / "a.db", limits=Limits(30), clock=wall) as served:
        await served.create()
        abuser, other = (
            served.as_("publishable", address) for address in ("198.51.100.1", "192.0.2.1")
        )
        answers = [await abuser.post(DECISIONS) for _ in range(40)]
        assert [answer.status_code for answer in answers] == [200] * 30 + [429] * 10
        assert answers[-1].json()["error"]["code"] == "too_many_decisions"
        assert answers[-1].headers["retry-after"] == "3"
        assert (await other.post(DECISIONS)).status_code == 200
        wall.forward(50)  # the limits do not follow a clock that somebody sets
        assert (await abuser.post(DECISIONS)).status_code == 429
        steady.forward(2)
        assert (await abuser.post(DECISIONS)).status_code == 200
        assert len((await served.as_().post(DECISIONS, json={"count": 1000})).json()["decisions"])
        assert served.store.totals(1)[0].issued + served.store.totals(1)[1].issued == 1032


@anyio
async def test_a_refused_request_costs_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "a.db", limits=Limits(1)) as served:
        await served.create()
        client = served.as_("publishable")
        for body in ({"count": 2}, {"count": 0}, {"x": 1}):
            assert (await client.post(DECISIONS, json=body)).status_code in (403, 422)
        assert (await client.post(DECISIONS)).status_code == 200
        assert (await client.post(DECISIONS)).status_code == 429


@anyio
async def test_an_address_is_neither_stored_nor_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address, agent = "203.0.113.77", "Telltale/1.0"
    limits = Limits(2)
    async with serving(tmp_path / "a.db", limits=limits) as served:
        await served.create()
        for role in ("publishable", "admin"):
            client = served.as_(role, address)
            headers = {"user-agent": agent, "cookie": agent, "x-forwarded-for": address}
            for _ in range(5):
                answer = await client.post(DECISIONS, headers=headers)
            (await client.post(FEEDBACK, json={"token": "x", "bit": 7}, headers=headers)).json()
        assert answer.status_code == 200
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        kept = repr([vars(each) for each in vars(limits).values() if isinstance(each, Buckets)])
    for trace in (address, agent):
        assert trace.encode() not in written
        assert trace not in kept
        assert not any(trace in str(vars(record)) for record in caplog.records if ours(record))


def ours(record: logging.LogRecord) -> bool:
    """Whether a record is the service's, and not of the client that tests it."""
    return not record.name.startswith(("httpx", "httpcore"))


# Text stays text

NASTY = [
    "'; DROP TABLE experiments; --",
    '" OR ""="',
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "{{7*7}} ${7*7} <%= 7*7 %> %s %(x)s {0}",
    "\u202eRTL\u200f\u2066",
    "👩‍👩‍👧‍👦 🇩🇪",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://x")',
    "@SUM(1;2)",
    "a,b;c\u2028d\u2029e\x85f",
    "\\",
    '\\"',
    "\\n",
    "../../etc/passwd",
    "%00%0a%2e%2e",
    "null",
    "ﬀ\u0301\ufeff",
    "\U0010ffff\ue000",
    "x" * 64,
]


@anyio
@pytest.mark.parametrize("text", NASTY)
async def test_metacharacters_stay_text(served: Served, text: str) -> None:
    admin = served.as_()
    payload = {text: [text]}
    created = await served.create(name=text, arms=[{"key": text, "payload": payload}])
    assert re.fullmatch(r"[a-z0-9-]+", created["id"])
    shown = (await admin.get(f"{ALL}/{created['id']}")).json()
    assert shown == created
    assert (shown["name"], shown["arms"][0]["key"]) == (text, text)
    assert shown["arms"][0]["payload"] == payload
    (made,) = await served.decide(created["id"], available=[text])
    assert (made["arm"], made["payload"]) == (text, payload)
    assert await served.report([made]) == ["accepted"]
    results = (await admin.get(f"{ALL}/{created['id']}/results")).json()
    assert (results["name"], results["arms"][0]["key"]) == (text, text)
    table = await admin.get(f"{ALL}/{created['id']}/results.csv")
    (row,) = csv.DictReader(io.StringIO(table.text, newline=""))
    assert row["key"].removeprefix("'" if text[0] in "=+-@" else "") == text
    assert row["key"][0] not in "=+-@"
    assert "text/csv" in table.headers["content-type"]
    history = (await admin.get(f"{ALL}/{created['id']}/history")).json()
    assert history["buckets"][0]["arms"][0]["key"] == text
    families = text_string_to_metric_families((await admin.get("/metrics")).text)
    labels = [sample.labels for family in families for sample in family.samples]
    assert {"experiment": created["id"], "arm": text} in labels
    assert set(served.store.sizes()) == {
        *("epochs", "experiments", "keys", "counts", "steps", "shown", "spent")
    }
    for answer in (await admin.get(ALL), table, await admin.get("/metrics")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not answer.headers["content-type"].startswith("text/html")


@anyio
@pytest.mark.parametrize("text", ["", "a\0b", "a\n", "\r\na", "\x1b[31m", "\x7f", "x" * 201])
@pytest.mark.parametrize("field", ["name", "arms[0].key"])
async def test_control_characters_are_refused(served: Served, text: str, field: str) -> None:
    before = stored(served)
    body = BUTTON | ({"name": text} if field == "name" else {"arms": [{"key": text}]})
    answer = await served.as_().post(ALL, json=body)
    assert refused(answer) == (422, "invalid_field", field)
    assert stored(served) == before


@anyio
@pytest.mark.parametrize("text", [rb"\ud800", rb"\udc00\ud800", rb"a\udfff", b"\xed\xa0\x80"])
async def test_lone_surrogates_are_refused(served: Served, text: bytes) -> None:
    before = stored(served)
    body = json.dumps(BUTTON).encode().replace(b"Button", text)
    assert refused(await served.as_().post(ALL, content=body)) == (400, "malformed_json", "body")
    assert stored(served) == before


@pytest.mark.parametrize("text", NASTY)
def test_a_slug_is_plain(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug_of(text))


def test_a_slug_that_is_cut_ends_well() -> None:
    assert slug_of("a" * 59 + " b") == "a" * 59
