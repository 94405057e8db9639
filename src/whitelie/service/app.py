"""The application: a value built from an engine and the operator's settings."""

import asyncio
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
from whitelie.service.door import Door, Service
from whitelie.service.log import failure
from whitelie.service.operations import OPERATIONS, Operation
from whitelie.service.refusal import Refusal
from whitelie.service.store import Unavailable

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

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        await service.engine.refresh()
        upkeep = asyncio.create_task(service.engine.keep_up())
        yield
        await service.engine.close()
        await upkeep

    refusals: dict[Any, Any] = {
        Refusal: _refuse,
        HTTPException: _refuse_route,
        Exception: _refuse_fault,
    }
    return Door(service, Starlette(routes=routes, exception_handlers=refusals, lifespan=living))


def _endpoint(service: Service, operations: dict[str, Operation]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = operations[method]
        _check_key(service, operation, request)
        body = await _body(operation, request)
        try:
            answer = await HANDLERS[operation.name](Call(service, request, body))
        except Unavailable:
            message = "the store cannot be written now; nothing was changed, try again"
            raise Refusal("store_unavailable", message, retry_after=2) from None
        if isinstance(answer, Response):
            response = answer
        elif answer is None:
            response = Response(status_code=operation.status)
        else:
            encoded = msgspec.json.encode(answer)
            response = Response(encoded, operation.status, media_type="application/json")
        response.raw_headers += http.SAFETY
        if operation.name == "privacy":
            response.raw_headers.append((b"access-control-allow-origin", b"*"))
        return response

    return endpoint


def _check_key(service: Service, operation: Operation, request: Request) -> None:
    if not operation.roles:
        return
    engine = service.engine
    key = engine.keyring.find(http.header(request.scope, b"authorization"), engine.minute)
    if key.role not in operation.roles:
        allowed = " or ".join(operation.roles)
        raise Refusal("not_allowed", f"this needs a key of role {allowed}", "Authorization")


async def _body(operation: Operation, request: Request) -> Any:
    if operation.query is not None:
        try:
            return msgspec.convert(dict(request.query_params), operation.query, strict=False)
        except msgspec.ValidationError as error:
            raise http.invalid(error) from None
    if operation.body is None:
        return None
    body = await http.read(request.scope, request.receive)
    return http.decode(body, msgspec.json.Decoder(operation.body))


async def _refuse(request: Request, refused: Refusal) -> Response:
    response = Response(refused.body, refused.status)
    response.raw_headers += [*http.refusal_headers(refused), *http.SAFETY]
    return response


async def _refuse_route(request: Request, error: HTTPException) -> Response:
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    response = await _refuse(request, Refusal(code, "there is no such path, or not this method"))
    response.headers.update(error.headers or {})
    return response


async def _refuse_fault(request: Request, error: Exception) -> Response:
    failure(error)
    return await _refuse(request, http.FAULT)
