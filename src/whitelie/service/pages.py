"""The dashboard's files: one page that asks this service for everything, and no other host."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

Page = Callable[[Request], Awaitable[Response]]

FOLDER = "/dashboard"
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
SAFETY = {
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


def _page(name: str, path: str) -> tuple[str, Page]:
    content = (files(__package__) / "dashboard" / name).read_text("utf-8")
    if name == "index.html":
        content = content.replace('"plotly-path"', json.dumps(plotly_path() or ""))
    body = content.encode()
    headers = {
        **SAFETY,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    }
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]

    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    return path, page


@cache
def _plotly() -> bytes:
    """Return Plotly's script as its package has it, compressed."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 (only who opens a page needs it)

    return gzip.compress(get_plotlyjs().encode(), mtime=0)


async def _plotly_page(request: Request) -> Response:
    body = await asyncio.to_thread(_plotly)
    headers = {
        **SAFETY,
        "cache-control": "public, max-age=31536000, immutable",
        "vary": "Accept-Encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, media_type=MEDIA_TYPES["js"], headers=headers)


def _pages() -> list[tuple[str, Page]]:
    names = sorted(file.name for file in (files(__package__) / "dashboard").iterdir())
    found = [_page(name, f"{FOLDER}/{name}") for name in names if name != "index.html"]
    found.append(_page("index.html", "/"))
    if path := plotly_path():
        found.append((path, _plotly_page))
    return found


PAGES = _pages()
"""Paths, and what answers them."""
