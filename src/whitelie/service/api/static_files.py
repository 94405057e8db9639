"""The dashboard's files: one page that asks this service for everything, and no other host."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from threading import Lock
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from whitelie.policy import COUNT_POLICIES, TS, Policy

Page = Callable[[Request], Awaitable[Response]]

_COMPRESSING = Lock()

FOLDER = "/dashboard"
PIECE_BYTES = 1 << 16
MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}

# Styles need no 'unsafe-inline'. Plotly leaves its own <style> element out where one of that id has
# the class no-inline-styles (index.html names our style sheet so), and sets styles one property at
# a time, which the policy allows. One more <style>, for maps, is added when the script is loaded;
# its hash is that of Plotly 7.1. If another version has another, the browser refuses it with a
# message in the console, and charts without maps miss nothing. Scripts need no 'unsafe-eval' as
# long as charts are SVG: Plotly's WebGL traces compile functions from text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def plotly_path() -> str | None:
    """Return where Plotly's script is served; None if it is not installed."""
    try:
        return f"{FOLDER}/plotly-{version('plotly')}.min.js"
    except PackageNotFoundError:
        return None


def policy_choices() -> list[tuple[str, str]]:
    """Return names and descriptions of the policies that the form offers, the usual one first."""
    corrected = [policy for policy in COUNT_POLICIES if policy.feedback == "corrected"]
    corrected.sort(key=lambda policy: policy != TS())
    return [(policy.label, _described(policy)) for policy in corrected]


def _described(policy: Policy) -> str:
    name, label = policy.plain_name, policy.label
    return label if name in label else f"{name} ({label})"


def _page(name: str, path: str) -> tuple[str, Page]:
    content = (files(__package__) / "dashboard" / name).read_text("utf-8")
    if name == "index.html":
        content = content.replace("plotly-path", plotly_path() or "")
        content = content.replace("policy-choices", escape(json.dumps(policy_choices())))
    body = content.encode()
    headers = {
        **SECURITY_HEADERS,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    }
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    return path, page


class Script(NamedTuple):
    """A script, plain and compressed."""

    plain: bytes
    packed: bytes


@cache
def _plotly() -> Script:
    """Return Plotly's script from its package; compressed once, and never on the event loop."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 (only needed once a page is opened)

    plain = get_plotlyjs().encode()
    return Script(plain, gzip.compress(plain, mtime=0))


def _plotly_once() -> Script:
    """Return the same; requests that come before it is compressed wait for the first.

    With `cache` alone each of them would compress it, in memory that its thread keeps.
    """
    with _COMPRESSING:
        return _plotly()


async def _plotly_page(request: Request) -> Response:
    script = await asyncio.to_thread(_plotly_once)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    body = script.packed if is_packed else script.plain
    headers = {
        **SECURITY_HEADERS,
        "cache-control": "public, max-age=31536000, immutable",
        "content-length": str(len(body)),
        "vary": "Accept-Encoding",
    }
    if is_packed:
        headers["content-encoding"] = "gzip"
    return StreamingResponse(_pieces(body), media_type=MEDIA_TYPES["js"], headers=headers)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body as fast as the peer reads, so that the buffer holds a piece, not all of it."""
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def _pages() -> list[tuple[str, Page]]:
    names = sorted(file.name for file in (files(__package__) / "dashboard").iterdir())
    pages = [_page(name, f"{FOLDER}/{name}") for name in names if name != "index.html"]
    pages.append(_page("index.html", "/"))
    if path := plotly_path():
        pages.append((path, _plotly_page))
    return pages


PAGES = _pages()
"""Paths, and the function that answers each."""
