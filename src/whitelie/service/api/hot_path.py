"""The hot path: decisions, feedback and preflights as plain ASGI, before any routing."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import get_args

import msgspec
from starlette.types import ASGIApp

from whitelie.service import wire
from whitelie.service.api import cors, http
from whitelie.service.api.cors import Header
from whitelie.service.api.http import Receive, Scope, Send
from whitelie.service.api.limits import Limits
from whitelie.service.api.operations import DECIDERS
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.tokens import worthless_token
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.log import failure
from whitelie.service.refusals import INTERNAL_ERROR, Refusal

EXPERIMENTS = "/v1/experiments/"
DECISIONS = "/decisions"

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

_ITEMS = {outcome: msgspec.json.encode(wire.Item(outcome)) for outcome in get_args(wire.Outcome)}
_ASK = msgspec.json.Decoder(wire.Ask)
_REPORT = msgspec.json.Decoder(wire.Report)
_REPORTS = msgspec.json.Decoder(wire.Reports)


@dataclass(frozen=True)
class Service:
    """What requests are served with: the engine, and what the operator allows."""

    engine: Engine
    validator: ExperimentValidator
    limits: Limits


class HotPath:
    """The ASGI application: it serves decisions and feedback; another one serves the rest."""

    def __init__(self, service: Service, others: ASGIApp) -> None:
        self._service = service
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        method = scope.get("method")
        if method == "OPTIONS":
            await http.respond(send, 204, b"", [*self._cors(scope), *cors.PREFLIGHT])
        elif method == "POST" and scope["path"] == cors.FEEDBACK:
            await self._serve(self._feedback, scope, receive, send)
        elif method == "POST" and _decides(scope["path"]):
            await self._serve(self._decisions, scope, receive, send)
        else:
            await self._others(scope, receive, send)

    async def _serve(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await handler(scope, receive, send)
        except Refusal as refused:
            await http.refuse(send, refused, self._cors(scope))
        except Exception as error:
            failure(error)
            await http.refuse(send, INTERNAL_ERROR)

    async def _decisions(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, authorization = self._service.engine, http.header(scope, b"authorization")
        key = engine.directory.keyring.find(authorization, engine.clock.minute)
        if key.role not in DECIDERS:
            raise Refusal("not_allowed", f"a {key.role} key cannot decide", "Authorization")
        headers: Iterable[Header] = ()
        if origin := http.header(scope, b"origin"):
            cors.check_origin(key, origin)
            headers = self._cors(scope)
        body = await http.read(scope, receive)
        ask = http.decode(body, _ASK) if body else wire.Ask()
        slug = scope["path"][len(EXPERIMENTS) : -len(DECISIONS)]
        learner = await engine.directory.find_or_refresh(slug)
        if learner.experiment.shipped is None:
            learner.check_running()
        if key.role == "publishable":
            _check_publishable(ask)
            address = scope["client"][0] if scope.get("client") else ""
            self._service.limits.charge(key, address, monotonic())
        parts = await _decided(engine, learner, ask)
        answer = b'{"decisions":[' + b",".join(parts) + b"]}"
        await http.respond(send, 200, answer, [http.JSON, *headers])

    async def _feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await http.read(scope, receive)
        if b'"items"' in body:
            items = http.decode(body, _REPORTS).items
            outcomes = await self._service.engine.pipeline.report(items)
        else:
            report = http.decode(body, _REPORT)
            outcomes = await self._service.engine.pipeline.report([report])
            if outcomes == ["expired"]:
                raise Refusal("token_expired", "reports on this decision no longer count", "token")
            if outcomes == ["invalid"]:
                raise Refusal("invalid_token", "this token is not one of ours", "token")
        parts = b",".join([_ITEMS[outcome] for outcome in outcomes])
        await http.respond(send, 200, b'{"items":[' + parts + b"]}", [http.JSON, cors.EVERY_ORIGIN])

    def _cors(self, scope: Scope) -> list[Header]:
        origins = self._service.engine.directory.keyring.origins
        return cors.page_headers(scope["path"], http.header(scope, b"origin"), origins)


async def _decided(engine: Engine, learner: Learner, ask: wire.Ask) -> list[bytes]:
    """Return decisions as JSON.

    Where an arm is shipped everybody gets it: nothing is chosen or committed, so that neither the
    store nor the clock matters.
    """
    while True:
        if (shipped := learner.answer_shipped(ask.available)) is not None:
            before, after = shipped
            return [before + worthless_token().encode() + after for _ in range(ask.count)]
        try:
            decided = await engine.pipeline.decide(learner, ask.count, ask.available)
        except Refusal as refused:
            if refused.code != "experiment_shipped":  # while this request waited
                raise
            continue
        answers, parts = learner.answers, []
        for arm, token in decided:
            before, after = answers[arm]
            parts.append(before + token.encode() + after)
        return parts


def _decides(path: str) -> bool:
    return path.startswith(EXPERIMENTS) and path.endswith(DECISIONS)


def _check_publishable(ask: wire.Ask) -> None:
    for field, usual in (("count", 1), ("available", None)):
        if getattr(ask, field) != usual:
            message = "a publishable key gets one decision per request, among all arms"
            raise Refusal("not_allowed", message, field)
