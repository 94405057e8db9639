"""The ASGI application, built from an engine and the operator's settings."""

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

from whitelie.service.api import cors, http
from whitelie.service.api.handlers import HANDLERS, Call
from whitelie.service.api.hot_path import HotPath, Service
from whitelie.service.api.operations import OPERATIONS, Operation
from whitelie.service.api.static_files import PAGES
from whitelie.service.engine.engine import LAST_COMMITS_TIMEOUT_SECONDS
from whitelie.service.engine.maintenance import maintain
from whitelie.service.log import failure
from whitelie.service.refusals import INTERNAL_ERROR, Refusal, unavailable
from whitelie.service.store.contract import Unavailable

READ_TIMEOUT_SECONDS = 10.0
"""How long an operation that reads may take."""

Endpoint = Callable[[Request], Awaitable[Response]]


def build(service: Service) -> HotPath:
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
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.engine.directory.refresh()
        maintenance = asyncio.create_task(maintain(service.engine))
        yield
        service.engine.end_pauses()
        # It may wait for a store that does not answer.
        await asyncio.wait([maintenance], timeout=LAST_COMMITS_TIMEOUT_SECONDS)
        maintenance.cancel()
        await service.engine.close()

    refusals: dict[Any, Any] = {
        Refusal: _refuse,
        HTTPException: _refuse_route,
        Exception: _refuse_fault,
    }
    others = Starlette(routes=routes, exception_handlers=refusals, lifespan=lifespan)
    others.router.redirect_slashes = False
    return HotPath(service, others)


def _endpoint(service: Service, operations: dict[str, Operation]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = operations[method]
        _check_key(service, operation, request)
        body = await _body(operation, request)
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS if method == "GET" else None):
                await _refresh(service, request)
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
        response.raw_headers += [*http.SECURITY_HEADERS, *cors.operator_headers(request.url.path)]
        return response

    return endpoint


def _check_key(service: Service, operation: Operation, request: Request) -> None:
    if not operation.roles:
        return
    engine, authorization = service.engine, http.header(request.scope, b"authorization")
    key = engine.directory.keyring.find(authorization, engine.clock.minute)
    if key.role not in operation.roles:
        allowed = " or ".join(operation.roles)
        raise Refusal("not_allowed", f"this needs a key of role {allowed}", "Authorization")


async def _refresh(service: Service, request: Request) -> None:
    """Read what other servers have created, and before a change what they have changed."""
    directory, id = service.engine.directory, request.path_params.get("id")
    if request.method not in ("GET", "HEAD") or (id is not None and not directory.has(id)):
        await directory.refresh_or_refuse()


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
    """Return the value of a query parameter; digits alone are a number."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else text


async def _refuse(request: Request, refused: Refusal) -> Response:
    response = Response(refused.body, refused.status)
    response.raw_headers += [
        *http.refusal_headers(refused),
        *http.SECURITY_HEADERS,
        *cors.operator_headers(request.url.path),
    ]
    return response


async def _refuse_route(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        refused = Refusal(
            "method_not_allowed",
            "this path has other methods: the Allow header lists them",
            "method",
        )
    else:
        refused = Refusal("not_found", "there is no such path", "path")
    response = await _refuse(request, refused)
    response.headers.update(error.headers or {})
    return response


async def _refuse_fault(request: Request, error: Exception) -> Response:
    failure(error)
    return await _refuse(request, INTERNAL_ERROR)
