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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.checks import CheckContext
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service import BUTTON, KEYS, SECRET, Clock, Line, Served, operation_of, serving
from whitelie.service import door, http, openapi, wire
from whitelie.service import limits as limits_module
from whitelie.service.experiment import Rules, slug_of
from whitelie.service.limits import Buckets, Limits, neighbourhood
from whitelie.service.operations import OPERATIONS, Operation
from whitelie.service.refusal import STATUS, Refusal
from whitelie.service.store import Key, Unavailable
from whitelie.service.token import Decision, Seal
from whitelie.service.wire import MOST_DEPTH

anyio = pytest.mark.anyio
FEEDBACK = "/v1/feedback"
ALL = "/v1/experiments"
ONE = "/v1/experiments/button"
DECISIONS = f"{ONE}/decisions"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        await served.create()
        yield served


def stored(served: Served) -> tuple[Any, ...]:
    """All that the store remembers."""
    store = served.store
    experiments = store.experiments()
    totals = [store.totals(saved.number) for saved in experiments]
    return store.sizes(), store.spent_bits(), experiments, totals, store.keys()


def refused(answer: httpx.Response) -> tuple[int, str, str | None]:
    """How a request was refused."""
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "field"}
    assert error["message"]
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, error["code"], error.get("field")


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

    def prepare(self, case: schemathesis.Case) -> None:
        """Let every other request meet an experiment that runs, and a token that is good."""
        learner = self.served.engine.roster.find("button")
        if learner is None or learner.experiment.status != "running":
            self.portal.call(self._recreate)
        draw = random.Random(repr((case.path_parameters, case.body)))
        if "id" in (case.path_parameters or {}) and draw.random() < 0.5:
            case.path_parameters["id"] = "button"
        if case.path == FEEDBACK and draw.random() < 0.5:
            for report in case.body.get("items", [case.body]) if type(case.body) is dict else ():
                if isinstance(report, dict) and isinstance(report.get("token"), str):
                    report["token"] = self.portal.call(self.served.decide, "button")[0]["token"]

    async def _recreate(self) -> None:
        await self.served.as_().delete(ONE)
        await self.served.create()


BRIDGE = Bridge()
SCHEMA = schemathesis.openapi.from_dict(
    openapi.document(),
    config=schemathesis.Config.from_dict(
        {
            "seed": 1,
            "headers": {"Authorization": f"Bearer {KEYS['admin']}"},
            "generation": {"max-examples": 25, "deterministic": True, "database": "none"},
        }
    ),
).exclude(operation_id="stream")
SCHEMA.app = BRIDGE


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    path = tmp_path_factory.mktemp("schemathesis") / "whitelie.db"
    with (
        start_blocking_portal("asyncio") as BRIDGE.portal,
        BRIDGE.portal.wrap_async_context_manager(serving(path)) as BRIDGE.served,
    ):
        yield BRIDGE


def has_a_documented_code(
    context: CheckContext, answer: schemathesis.Response, case: schemathesis.Case
) -> None:
    """A refusal has a code that the operation lists, with this status and the field at fault."""
    operation = operation_of(case.method, case.path)
    if operation is None or answer.status_code in (operation.status, 405):
        return
    error = answer.json()["error"]
    assert error["code"] in (*operation.codes, "not_found")
    assert answer.status_code == STATUS[error["code"]]
    assert error["field"]


@SCHEMA.parametrize()
def test_requests_made_from_the_document_find_no_fault(
    case: schemathesis.Case, bridge: Bridge
) -> None:
    bridge.prepare(case)
    case.call_and_validate(
        additional_checks=[has_a_documented_code],
        # What a schema allows may break a rule that schemas cannot say, such as the ceiling.
        excluded_checks=[positive_data_acceptance],
    )


def test_the_document_lists_every_operation() -> None:
    found = {each.ok().definition.raw["operationId"] for each in SCHEMA.get_all_operations()}
    assert found == {operation.name for operation in OPERATIONS} - {"stream"}


# Tokens


def decision(sequence: int) -> Decision:
    return Decision(1, 0, 1, sequence, 30_000_000, 30_010_080)


def mutations(seal: Seal, count: int) -> Iterator[str]:
    """Texts that are near to good tokens, and are none."""
    draw = random.Random(1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    good = [seal.close(decision(sequence)) for sequence in range(64)]
    other = Seal([b"a secret of somebody else's making"])
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
        made = other.close(decision(draw.randrange(1000)))
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
                base64.b64encode(draw.randbytes(43)).decode().rstrip("="),
            )
        )

    makers = (flipped, flipped, respelt, respelt, cut, spliced, foreign, varied)
    while count:
        mutated = draw.choice(makers)(draw.choice(good))
        if mutated not in known:
            count -= 1
            yield mutated


def accepted(seal: Seal, tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if seal.open(token) is not None]


def test_no_mutated_token_is_accepted() -> None:
    seal = Seal([SECRET, b"an older secret of the same house"])
    assert accepted(seal, mutations(seal, 100_000)) == []
    assert accepted(seal, [seal.close(decision(7))])


class Unauthenticated(Seal):
    """A seal that reads the fields and does not look at the rest."""

    def open(self, token: str) -> Decision | None:
        try:
            raw = base64.urlsafe_b64decode(token + "==")
            return Decision(*struct.unpack(">IHIQII", raw[-26:]))
        except (ValueError, struct.error):
            return None


class Lenient(Seal):
    """A seal that takes every spelling of the same bytes."""

    def open(self, token: str) -> Decision | None:
        try:
            raw = base64.urlsafe_b64decode(token + "==")
        except ValueError:
            return None
        return super().open(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


@pytest.mark.parametrize("careless", [Unauthenticated, Lenient])
def test_mutations_find_a_careless_seal(careless: type[Seal]) -> None:
    seal = careless([SECRET])
    assert accepted(seal, mutations(seal, 2000))


@anyio
async def test_mutated_tokens_are_refused_and_change_nothing(served: Served) -> None:
    await served.decide("button", 64)
    before = stored(served)
    client = served.as_(None)
    seal = Seal([SECRET])
    for token in mutations(seal, 500):
        answer = await client.post(FEEDBACK, json={"token": token, "bit": 1})
        assert refused(answer) == (422, "invalid_token", "token")
    items = [{"token": token, "bit": 1} for token in mutations(seal, 1000)]
    answer = await client.post(FEEDBACK, json={"items": items})
    assert answer.json() == {"items": [{"status": "invalid"}] * 1000}
    assert stored(served) == before


@anyio
async def test_a_sealed_token_of_no_experiment_or_arm_is_invalid(served: Served) -> None:
    minute = served.engine.minute
    for made in (
        Decision(99, 0, 1, 0, minute, minute + 9),
        Decision(1, 2, 1, 0, minute, minute + 9),
    ):
        token = Seal([SECRET]).close(made)
        answer = await served.as_(None).post(FEEDBACK, json={"token": token, "bit": 1})
        assert refused(answer) == (422, "invalid_token", "token")


# Keys


def request_of(operation: Operation) -> dict[str, Any]:
    """A request that is right, apart from its key."""
    bodies: dict[str, Any] = {
        "create": BUTTON,
        "change": {"status": "paused"},
        "feedback": {"token": "x", "bit": 1},
        "roll_back": {"from": "2027-01-15T07:00:00Z", "to": "2027-01-15T07:01:00Z"},
    }
    found = {"method": operation.method, "url": operation.path.replace("{id}", "button")}
    if operation.name in bodies:
        found["json"] = bodies[operation.name]
    return found


@anyio
@pytest.mark.parametrize("role", ["admin", "reader", "publishable", None])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_a_key_may_do_what_is_declared_and_nothing_else(
    served: Served, operation: Operation, role: str | None
) -> None:
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
    headers = {"authorization": value.encode()}
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
    return Key("p", "publishable", b"p", (), per_minute)


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


def test_an_ipv6_line_is_one_address_and_mapped_ipv4_are_many() -> None:
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff:1")
    assert neighbourhood("2001:db8::1") != neighbourhood("2001:db8:0:1::1")
    assert neighbourhood("::ffff:192.0.2.1") == neighbourhood("192.0.2.1")
    assert neighbourhood("::ffff:192.0.2.1") != neighbourhood("::ffff:192.0.2.2")
    assert neighbourhood("no:address") == "no:address"
    assert neighbourhood("") == ""


def test_a_clock_that_is_set_back_shuts_nobody_out() -> None:
    limits, key = Limits(60), publishable(10**6)
    assert charged(limits, key, "192.0.2.1", 10_000)
    assert sum(charged(limits, key, "192.0.2.1", 1000) for _ in range(100)) == 59
    assert charged(limits, key, "192.0.2.1", 1001)


def test_memory_holds_the_latest_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MOST_BUCKETS", 10)
    buckets = Buckets()
    for name in range(100):
        buckets.take(name, 1, 60, 0)
        buckets.take(0, 1, 60, 0)
    assert len(buckets) == 10
    assert buckets.take(0, 1, 60, 0) > 0  # the abuser is not forgotten by adding others


@anyio
async def test_limits_hold_over_http(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "a.db", limits=Limits(30), clock=clock) as served:
        await served.create()
        abuser, other = (
            served.as_("publishable", address) for address in ("198.51.100.1", "192.0.2.1")
        )
        answers = [await abuser.post(DECISIONS) for _ in range(40)]
        assert [answer.status_code for answer in answers] == [200] * 30 + [429] * 10
        assert answers[-1].json()["error"]["code"] == "too_many_decisions"
        assert answers[-1].headers["retry-after"] == "3"
        assert (await other.post(DECISIONS)).status_code == 200
        clock.forward(2)
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
    found = (await admin.get(f"{ALL}/{created['id']}/results")).json()
    assert (found["name"], found["arms"][0]["key"]) == (text, text)
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
    assert set(served.store.sizes()) == {"epochs", "experiments", "keys", "counts", "spent"}
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
    ({"arms": []}, "invalid_field", "arms"),
    ({"arms": [{"key": str(i)} for i in range(1001)]}, "invalid_field", "arms"),
    ({"arms": {"a": {}}}, "invalid_field", "arms"),
    ({"name": 7}, "invalid_field", "name"),
    ({"window": -1}, "invalid_field", "window"),
    ({"window": 1.5}, "invalid_field", "window"),
    ({"window": 10**30}, "invalid_field", "window"),
    ({"spread": 31 * wire.DAY}, "invalid_field", "spread"),
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
@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 500, 800, 900, 950, 1000, 1900])
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
    for level in range(MOST_DEPTH):
        payload = [payload] if level % 2 else {"a": payload}
    for given in (payload, "x" * 4094, "", {}, None, False, 0, -0.0, 2**64, 1e-320):
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
    large = b" " * http.LARGEST_BODY + b"{}"
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


async def too_late(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    (made,) = await served.decide("button")
    served.clock.forward(30 * wire.DAY)
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
    learner = served.engine.roster.find("button")
    definition = learner.saved.definition.replace("Button", "Knopf")
    patch.setattr(learner, "saved", learner.saved._replace(definition=definition))
    return await served.as_().patch(ONE, json={"status": "paused"})


async def on_a_full_disk(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    def full(*_: Any) -> None:
        raise Unavailable("the disk is full")

    patch.setattr(served.store, "commit", full)
    patch.setattr(served.store, "probe", full)
    return await served.as_().post(DECISIONS)


async def at_fault(served: Served, patch: pytest.MonkeyPatch) -> httpx.Response:
    patch.setattr(door, "_check_running", lambda learner: 1 / 0)
    return await served.as_().post(DECISIONS)


PROVOKED: dict[str, tuple[Provocation, str | None]] = {
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
    page = Path(__file__).parents[1] / "docs" / "service.md"
    if page.exists():
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
    assert "somebody" not in " ".join(str(vars(r)["msg"]) for r in caplog.records if ours(r))


@anyio
async def test_the_ceiling_is_the_operators(tmp_path: Path) -> None:
    async with serving(tmp_path / "a.db", rules=Rules(most_epsilon=0.5)) as served:
        answer = await served.as_().post(ALL, json=BUTTON | {"epsilon": 0.51})
        assert refused(answer) == (422, "epsilon_above_ceiling", "epsilon")
        assert (await served.create(epsilon=0.5))["arms"][0]["epsilon"] <= 0.5
