"""HTTP as plain ASGI: reading bodies within limits, decoding them, answering."""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeVar

import msgspec

from whitelie.service.api.cors import EXPOSE_RETRY_AFTER, Header
from whitelie.service.refusals import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Body = TypeVar("Body")

JSON = (b"content-type", b"application/json")
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
MAX_BODY_BYTES = 1 << 20
MEDIA_TYPES = ("", "application/json", "text/plain")


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a request's header, given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def read(scope: Scope, receive: Receive) -> bytes:
    """Return a request's body, or refuse one that is too large or is not JSON."""
    kind = (header(scope, b"content-type") or b"").split(b";")[0].strip().lower()
    if kind.decode("latin-1") not in MEDIA_TYPES:
        raise Refusal(
            "unsupported_media_type",
            "send JSON, with Content-Type: application/json",
            "Content-Type",
        )
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = [body]
        size = len(body)
        while message.get("more_body") and size <= MAX_BODY_BYTES:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        body = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise Refusal("malformed_json", "the connection ended before the body did", "body")
    if len(body) > MAX_BODY_BYTES:
        raise Refusal("body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes", "body")
    return body


def decode(body: bytes, decoder: "msgspec.json.Decoder[Body]") -> Body:
    """Decode a body, or refuse it and name the field that is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refusal("malformed_json", "the body is not JSON in UTF-8", "body") from None


def invalid(error: msgspec.ValidationError) -> Refusal:
    """Return the refusal that names the field a decoder rejected.

    >>> invalid(msgspec.ValidationError("Expected `int`, got `str` - at `$.items[0].count`")).field
    'items[0].count'
    >>> invalid(msgspec.ValidationError("Object missing required field `token`")).field
    'token'
    """
    message, at = str(error).partition(" - at `")[::2]
    path = at.rstrip("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    named = re.search(r"field `(.+)`$", message)
    field = ".".join(part for part in (path, named and named[1]) if part) or "body"
    code = "invalid_bit" if re.search(r"(^|\.)bit$", path) else "invalid_field"
    if code == "invalid_bit":
        message = "a bit is 0 or 1"
    return Refusal(code, message, field)


async def respond(
    send: Send, status: int, body: bytes, headers: Iterable[Header] = (JSON,)
) -> None:
    """Answer a request."""
    sent = [*headers]
    if status != 204:  # which has no body to be long
        sent.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refused: Refusal, headers: Iterable[Header] = ()) -> None:
    """Answer a request with a refusal."""
    await respond(send, refused.status, refused.body, [*refusal_headers(refused), *headers])


def refusal_headers(refused: Refusal) -> list[Header]:
    """Return the headers of a refusal."""
    headers = [JSON]
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
        headers.append(EXPOSE_RETRY_AFTER)
    if refused.code == "unknown_key":
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
