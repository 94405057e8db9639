"""The front door: decisions, feedback and preflights as plain ASGI; all else goes further in."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import get_args

import msgspec
from starlette.types import ASGIApp

from whitelie.service import http, wire
from whitelie.service.engine import Engine
from whitelie.service.experiment import Rules
from whitelie.service.http import Header, Receive, Scope, Send
from whitelie.service.limits import Limits
from whitelie.service.log import failure
from whitelie.service.operations import DECIDERS
from whitelie.service.refusal import FAULT, Refusal

EXPERIMENTS = "/v1/experiments/"
DECISIONS = "/decisions"
FEEDBACK = "/v1/feedback"
EVERYBODY: Header = (b"access-control-allow-origin", b"*")

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

_ITEMS = {outcome: msgspec.json.encode(wire.Item(outcome)) for outcome in get_args(wire.Outcome)}
_ASK = msgspec.json.Decoder(wire.Ask)
_REPORT = msgspec.json.Decoder(wire.Report)
_REPORTS = msgspec.json.Decoder(wire.Reports)


@dataclass(frozen=True)
class Service:
    """What requests are served with."""

    engine: Engine
    rules: Rules
    limits: Limits


class Door:
    """The ASGI application: the two hot paths, and whatever is inside for the others."""

    def __init__(self, service: Service, inside: ASGIApp) -> None:
        self._service = service
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        method = scope.get("method")
        if method == "OPTIONS":
            await self._preflight(scope, send)
        elif method == "POST" and scope["path"] == FEEDBACK:
            await self._serve(self._feedback, scope, receive, send)
        elif method == "POST" and _decides(scope["path"]):
            await self._serve(self._decisions, scope, receive, send)
        else:
            await self._inside(scope, receive, send)

    async def _serve(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await handler(scope, receive, send)
        except Refusal as refused:
            await http.refuse(send, refused, self._shared_with(scope))
        except Exception as error:
            failure(error)
            await http.refuse(send, FAULT)

    async def _decisions(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine = self._service.engine
        key = engine.roster.keyring.find(http.header(scope, b"authorization"), engine.minute)
        if key.role not in DECIDERS:
            raise Refusal("not_allowed", f"a {key.role} key cannot decide", "Authorization")
        headers: Iterable[Header] = ()
        if origin := http.header(scope, b"origin"):
            if key.role == "publishable" and origin.decode("latin-1") not in key.origins:
                raise Refusal("origin_not_allowed", "this key is for other origins", "Origin")
            headers = self._shared_with(scope)
        body = await http.read(scope, receive)
        ask = http.decode(body, _ASK) if body else wire.Ask()
        learner = await engine.roster.seek(scope["path"][len(EXPERIMENTS) : -len(DECISIONS)])
        learner.check_running()
        if key.role == "publishable":
            _check_publishable(ask)
            address = scope["client"][0] if scope.get("client") else ""
            self._service.limits.charge(key, address, monotonic())
        decided = await engine.decide(learner, ask.count, ask.available)
        answers = learner.answers
        parts = []
        for arm, token in decided:
            before, after = answers[arm]
            parts.append(before + token.encode() + after)
        answer = b'{"decisions":[' + b",".join(parts) + b"]}"
        await http.respond(send, 200, answer, [http.JSON, *headers])

    async def _feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await http.read(scope, receive)
        if b'"items"' in body:
            items = http.decode(body, _REPORTS).items
            outcomes = await self._service.engine.report(items)
        else:
            report = http.decode(body, _REPORT)
            outcomes = await self._service.engine.report([report])
            if outcomes == ["expired"]:
                raise Refusal("token_expired", "reports on this decision no longer count", "token")
            if outcomes == ["invalid"]:
                raise Refusal("invalid_token", "this token is not one of ours", "token")
        parts = b",".join([_ITEMS[outcome] for outcome in outcomes])
        await http.respond(send, 200, b'{"items":[' + parts + b"]}", [http.JSON, EVERYBODY])

    async def _preflight(self, scope: Scope, send: Send) -> None:
        """Say to a browser which requests it may send from its page's origin."""
        headers = [
            *self._shared_with(scope),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"600"),
        ]
        await http.respond(send, 204, b"", headers)

    def _shared_with(self, scope: Scope) -> list[Header]:
        """Return the header that lets a page of the request's origin read the answer."""
        path = scope["path"]
        if path == FEEDBACK or path.endswith("/privacy"):
            return [EVERYBODY]
        origin = http.header(scope, b"origin")
        vary = (b"vary", b"Origin")
        if origin and origin.decode("latin-1") in self._service.engine.roster.keyring.origins:
            return [(b"access-control-allow-origin", origin), vary]
        return [vary]


def _decides(path: str) -> bool:
    return path.startswith(EXPERIMENTS) and path.endswith(DECISIONS)


def _check_publishable(ask: wire.Ask) -> None:
    for field, usual in (("count", 1), ("available", None)):
        if getattr(ask, field) != usual:
            message = "a publishable key gets one decision per request, among all arms"
            raise Refusal("not_allowed", message, field)
