"""The application: the unchanged service, and the shop that uses it under /demo."""

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from whitelie.demo import MAX_PACE
from whitelie.demo.crowd import CrowdProcess
from whitelie.service.api.static_files import MEDIA_TYPES, SECURITY_HEADERS

FOLDER = "/demo"
CLIENT = "whitelie.js"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    )
)
HEADERS = {**SECURITY_HEADERS, "content-security-policy": POLICY, "cache-control": "no-cache"}

_PACE = msgspec.json.Decoder(dict[str, float])


class Demo:
    """The service's application, and the shop for browsers on this machine."""

    def __init__(self, service: ASGIApp, crowd: CrowdProcess, port: int, facts: Any) -> None:
        self._service = service
        self._shop = shop(crowd, facts)
        self._hosts = {f"{host}:{port}".encode() for host in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if path != FOLDER and not path.startswith(f"{FOLDER}/"):
            await self._service(scope, receive, send)
        elif dict(scope["headers"]).get(b"host") in self._hosts:
            await self._shop(scope, receive, send)
        else:  # DNS rebinding: the shop's page has an admin key
            await Response("ask for 127.0.0.1", 421)(scope, receive, send)


def shop(crowd: CrowdProcess, facts: Any) -> Starlette:
    """Return the shop's pages; `facts` is what they must know about the service."""

    async def settings(_: Request) -> Response:
        return JSONResponse({**facts, "fastest": MAX_PACE}, headers=HEADERS)

    async def truth(_: Request) -> Response:
        return JSONResponse({"pace": crowd.pace, **crowd.truth}, headers=HEADERS)

    async def pace(request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers['host']}":
            return Response(status_code=403)
        try:
            wanted = _PACE.decode(await request.body())["pace"]
        except (msgspec.MsgspecError, KeyError):
            return Response(status_code=422)
        crowd.set_pace(min(max(wanted, 0.0), MAX_PACE))
        return Response(status_code=204, headers=HEADERS)

    routes = [
        Route(f"{FOLDER}/settings", settings),
        Route(f"{FOLDER}/truth", truth),
        Route(f"{FOLDER}/pace", pace, methods=["POST"]),
        _file(f"{FOLDER}/{CLIENT}", CLIENT, client_script()),
    ]
    for file in (files(__package__) / "page").iterdir():
        path = FOLDER if file.name == "index.html" else f"{FOLDER}/{file.name}"
        routes.append(_file(path, file.name, file.read_bytes()))
    return Starlette(routes=routes)


def client_script() -> bytes:
    """Return the browser client: a wheel has it in this package, a clone in clients/js."""
    packed = files(__package__) / CLIENT
    if packed.is_file():
        return packed.read_bytes()
    return (Path(__file__).parents[3] / "clients/js" / CLIENT).read_bytes()


def _file(path: str, name: str, body: bytes) -> Route:
    headers = {**HEADERS, "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    return Route(path, page)
