"""The service in process: its ASGI application on a store of its own, at a time of one's choice.

    async with serving(tmp_path / "whitelie.db") as served:
        created = await served.create()
        answer = await served.as_("publishable").post(f"/v1/experiments/{created['id']}/decisions")

Whatever a client receives is compared with the OpenAPI document's lists of codes.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from whitelie.service.api.app import build
from whitelie.service.api.hot_path import HotPath, Service
from whitelie.service.api.limits import Limits
from whitelie.service.api.operations import OPERATIONS, Operation
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.keys import hash_of
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.refusals import STATUS
from whitelie.service.store.contract import Key
from whitelie.service.store.sqlite.store import SQLiteStore

Message = MutableMapping[str, Any]

KEYS = {role: role[0] + "k_" + role * 4 for role in ("admin", "reader", "publishable")}
"""The text of a key of each role."""

SHOP = "https://shop.example"
"""The origin of the publishable key."""

FEEDBACK = "/v1/feedback"
ALL = "/v1/experiments"
ONE = "/v1/experiments/button"
DECISIONS = f"{ONE}/decisions"

SECRET = b"a secret of thirty-two characters"
START = 1_800_000_000.0
ADDRESS = "192.0.2.1"

BUTTON: dict[str, Any] = {
    "name": "Button",
    "arms": [{"key": "green", "payload": {"colour": "#0a0"}}, {"key": "blue"}],
    "epsilon": 1.0,
    "window": 600,
    "spread": 60,
}
"""An experiment to create."""


@dataclass
class Clock:
    """A clock that stands still until it is moved; it can jump if there is a steady one beside."""

    now: float = START
    steady: "Clock | None" = None

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Served:
    """A service at work, and clients that speak to it."""

    service: Service
    app: HotPath
    store: SQLiteStore
    clock: Clock

    @property
    def engine(self) -> Engine:
        return self.service.engine

    def as_(self, role: str | None = "admin", address: str = ADDRESS) -> httpx.AsyncClient:
        """Return a client with the key of a role, or without one, that calls from an address."""
        headers = {"authorization": f"Bearer {KEYS[role]}"} if role else {}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=(address, 40000)),
            base_url="http://service.example",
            headers=headers,
            event_hooks={"response": [check_documented]},
        )

    async def create(self, **changes: Any) -> Any:
        """Create an experiment and return how it looks."""
        answer = await self.as_().post("/v1/experiments", json=BUTTON | changes)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def decide(self, slug: str, count: int = 1, **ask: Any) -> list[Any]:
        """Ask for decisions and return them."""
        path = f"/v1/experiments/{slug}/decisions"
        answer = await self.as_().post(path, json={"count": count, **ask})
        assert answer.status_code == 200, answer.text
        decisions: list[Any] = answer.json()["decisions"]
        return decisions

    async def report(self, decisions: Iterable[Any], bit: int = 1) -> list[str]:
        """Report on decisions and return what became of it."""
        items = [{"token": decision["token"], "bit": bit} for decision in decisions]
        answer = await self.as_(None).post("/v1/feedback", json={"items": items})
        assert answer.status_code == 200, answer.text
        return [item["status"] for item in answer.json()["items"]]


@asynccontextmanager
async def serving(
    path: Path,
    *,
    clock: Clock | None = None,
    validator: ExperimentValidator | None = None,
    limits: Limits | None = None,
    secrets: Callable[[], list[bytes]] = lambda: [SECRET],
    publishable: Iterable[Key] = (),
) -> AsyncIterator[Served]:
    """Serve from a file, with a key of each role and those that are given."""
    store = SQLiteStore(path)
    for key in (*keys(), *publishable):
        store.save_key(key)
    clock = clock or Clock()
    engine = Engine(store, secrets, clock=clock, steady=clock.steady)
    service = Service(engine, validator or ExperimentValidator(), limits or Limits(10**6))
    served = Served(service, build(service), store, clock)
    async with living(served.app):
        yield served


def keys() -> list[Key]:
    """Return a key of each role, for the store."""
    origins = {"publishable": (SHOP,)}
    return [
        Key(role, role, hash_of(text), origins.get(role, ()), decisions_per_minute=10**6)
        for role, text in KEYS.items()
    ]


@asynccontextmanager
async def living(app: HotPath) -> AsyncIterator[None]:
    """Start an application and end it, as a server does."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan"}, to_app.get, from_app.put))

    async def tell(word: str) -> None:
        await to_app.put({"type": f"lifespan.{word}"})
        said = await from_app.get()
        assert said["type"] == f"lifespan.{word}.complete", said

    await tell("startup")
    try:
        yield
    finally:
        await tell("shutdown")
        await life


@dataclass
class Line:
    """A connection on which messages are sent and received one at a time."""

    app: HotPath
    scope: Message
    to_app: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    from_app: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    @classmethod
    def to(
        cls, app: HotPath, method: str, path: str, role: str | None = "admin", **headers: str
    ) -> "Line":
        """Return a line for one request; its parts are still to be sent."""
        if role:
            headers["authorization"] = f"Bearer {KEYS[role]}"
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": raw,
            "client": (ADDRESS, 40000),
            "server": ("service.example", 80),
        }
        return cls(app, scope)

    async def send(self, *parts: bytes) -> None:
        """Send parts of the body; the last of them ends it."""
        for index, part in enumerate(parts):
            more = index + 1 < len(parts)
            await self.to_app.put({"type": "http.request", "body": part, "more_body": more})

    async def hang_up(self) -> None:
        """Close the connection."""
        await self.to_app.put({"type": "http.disconnect"})

    def start(self) -> "asyncio.Task[None]":
        """Let the application serve this line."""
        coroutine: Awaitable[None] = self.app(self.scope, self.to_app.get, self.from_app.put)
        return asyncio.ensure_future(coroutine)

    async def next(self, seconds: float = 5) -> Message:
        """Return the next message of the answer."""
        return await asyncio.wait_for(self.from_app.get(), seconds)


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


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 5) -> bool:
    """Return whether something comes to hold soon."""
    for _ in range(int(seconds / 0.02)):
        if await holds():
            return True
        await asyncio.sleep(0.02)
    return False


def operation_of(method: str, path: str) -> Operation | None:
    """Return the operation that a request asks for."""
    for operation in OPERATIONS:
        pattern = operation.path.replace(".", r"\.").replace("{id}", "[^/]+")
        if operation.method == method and re.fullmatch(pattern, path):
            return operation
    return None


async def check_documented(answer: httpx.Response) -> None:
    """Check that an answer is one of those that the OpenAPI document lists for its operation."""
    operation = operation_of(answer.request.method, answer.request.url.path)
    if operation is None or answer.status_code == operation.status:
        return
    await answer.aread()
    error = answer.json()["error"]
    assert error["code"] in (*operation.codes, "internal_error"), (operation.name, error)
    assert answer.status_code == STATUS[error["code"]]
    assert answer.status_code != 422 or error["field"]
