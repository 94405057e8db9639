"""A service on any store, who operates it, and a network that writes down what devices send."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from helpers.in_process_service import Clock
from whitelie.client import Answer, InProcess, NoAnswer, Transport
from whitelie.service.api.app import build
from whitelie.service.api.hot_path import Service
from whitelie.service.api.limits import Limits
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.tokens import fingerprint
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.store.address import open_store


@dataclass
class Operator:
    """Speaks with a service that runs in this process."""

    server: InProcess
    admin_key: str

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        signed = {"Authorization": f"Bearer {key or self.admin_key}"} | headers
        return self.server.request(method, path, data, signed, 60)

    def told(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.ask(method, path, body, **headers)
        assert answer.status < 300, answer
        return json.loads(answer.body) if answer.body else None

    def decide(self, slug: str, count: int) -> list[Any]:
        path = f"/v1/experiments/{slug}/decisions"
        decisions: list[Any] = self.told("POST", path, {"count": count})["decisions"]
        return decisions

    def report(self, reports: Sequence[tuple[str, int]]) -> list[str]:
        items = [{"token": token, "bit": bit} for token, bit in reports]
        told = self.told("POST", "/v1/feedback", {"items": items})
        return [item["status"] for item in told["items"]]


@contextmanager
def operating(address: str, secret: str, admin_key: str, clock: Clock) -> Iterator[Operator]:
    """Serve from the store at an address, which must have the key."""
    store = open_store(address)
    try:
        store.claim([fingerprint(secret.encode())])
    except BaseException:
        store.close()
        raise
    engine = Engine(store, lambda: [secret.encode()], clock=clock)
    with InProcess(build(Service(engine, ExperimentValidator(), Limits(10**6)))) as server:
        yield Operator(server, admin_key)


@dataclass
class Network:
    """Passes requests on, unless it is cut off, and writes down their bytes and the answers."""

    inside: Transport
    is_cut_off: bool = False
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.inside.address

    @address.setter
    def address(self, _: str) -> None:
        raise AttributeError

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        if self.is_cut_off:
            raise NoAnswer
        answer = self.inside.post(path, body, headers, timeout)
        told = {"status": answer.status, "answer": answer.body.decode()}
        self.sent.append({"path": path, "body": body.decode(), "headers": dict(headers), **told})
        return answer
