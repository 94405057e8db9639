"""The application: a value built from an engine and the operator's settings."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whitelie.service import http
from whitelie.service.administration import HANDLERS, Call
from whitelie.service.door import EVERYBODY, Door, Service
from whitelie.service.engine import FAREWELL
from whitelie.service.log import failure
from whitelie.service.operations import OPERATIONS, Operation
from whitelie.service.pages import PAGES
from whitelie.service.refusal import FAULT, Refusal, unavailable
from whitelie.service.store import Unavailable
from whitelie.service.upkeep import keep_up

LONGEST = 10.0
"""Seconds that reading may take."""

Endpoint = Callable[[Request], Awaitable[Response]]


def build(service: Service) -> Door:
    """Return the ASGI application."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    routes = [
        Route(path, _endpoint(service, operations), methods=list(operations))
        for path, operations in by_path.items()
    ]
    routes += [Route(path, page) for path, page in PAGES]

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        await service.engine.roster.refresh()
        upkeep = asyncio.create_task(keep_up(service.engine))
        yield
        service.engine.end_pauses()
        await asyncio.wait([upkeep], timeout=FAREWELL)  # it may wait for a store that is away
        upkeep.cancel()
        await service.engine.close()

    refusals: dict[Any, Any] = {
        Refusal: _refuse,
        HTTPException: _refuse_route,
        Exception: _refuse_fault,
    }
    inside = Starlette(routes=routes, exception_handlers=refusals, lifespan=living)
    inside.router.redirect_slashes = False
    return Door(service, inside)


def _endpoint(service: Service, operations: dict[str, Operation]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = operations[method]
        _check_key(service, operation, request)
        body = await _body(operation, request)
        try:
            async with asyncio.timeout(LONGEST if method == "GET" else None):
                await _catch_up(service, request)
                answer = await HANDLERS[operation.name](Call(service, request, body))
        except (Unavailable, TimeoutError):
            raise unavailable() from None
        if isinstance(answer, Response):
            response = answer
        elif answer is None:
            response = Response(status_code=operation.status)
        else:
            encoded = msgspec.json.encode(answer)
            response = Response(encoded, operation.status, media_type="application/json")
        response.raw_headers += [*http.SAFETY, *_shared(request)]
        return response

    return endpoint


def _check_key(service: Service, operation: Operation, request: Request) -> None:
    if not operation.roles:
        return
    engine = service.engine
    key = engine.roster.keyring.find(http.header(request.scope, b"authorization"), engine.minute)
    if key.role not in operation.roles:
        allowed = " or ".join(operation.roles)
        raise Refusal("not_allowed", f"this needs a key of role {allowed}", "Authorization")


async def _catch_up(service: Service, request: Request) -> None:
    """Know what other servers have created, and what they have changed before changing it."""
    roster, id = service.engine.roster, request.path_params.get("id")
    if request.method not in ("GET", "HEAD") or (id is not None and not roster.has(id)):
        await roster.refresh_or_refuse()


async def _body(operation: Operation, request: Request) -> Any:
    if operation.query is not None:
        try:
            given = {name: _number(text) for name, text in request.query_params.items()}
            return msgspec.convert(given, operation.query)
        except msgspec.ValidationError as error:
            raise http.invalid(error) from None
    if operation.body is None:
        return None
    body = await http.read(request.scope, request.receive)
    return http.decode(body, msgspec.json.Decoder(operation.body))


def _number(text: str) -> int | str:
    """Return what a query says, in which a number is nothing but digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else text


async def _refuse(request: Request, refused: Refusal) -> Response:
    response = Response(refused.body, refused.status)
    response.raw_headers += [*http.refusal_headers(refused), *http.SAFETY, *_shared(request)]
    return response


def _shared(request: Request) -> list[http.Header]:
    """Return the header that lets every page read what devices are promised."""
    return [EVERYBODY] if request.url.path.endswith("/privacy") else []


async def _refuse_route(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        refused = Refusal("method_not_allowed", "this path has other methods", "method")
    else:
        refused = Refusal("not_found", "there is no such path", "path")
    response = await _refuse(request, refused)
    response.headers.update(error.headers or {})
    return response


async def _refuse_fault(request: Request, error: Exception) -> Response:
    failure(error)
    return await _refuse(request, FAULT)
