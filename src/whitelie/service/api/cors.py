"""CORS (cross-origin resource sharing): which pages may read which answers, decided here alone.

A browser lets a page of another origin read an answer only if a header of the answer says so.
Feedback and the privacy statement are for every origin: they need no key. Decisions are for the
origins that some publishable key names. Nothing else is for other origins, the dashboard included.
"""

from collections.abc import Container

from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Key

Header = tuple[bytes, bytes]

FEEDBACK = "/v1/feedback"
PRIVACY = "/privacy"

EVERY_ORIGIN: Header = (b"access-control-allow-origin", b"*")
EXPOSE_RETRY_AFTER: Header = (b"access-control-expose-headers", b"retry-after")
"""Lets pages read when to try again, beside the few headers that they may always read."""

_VARY: Header = (b"vary", b"Origin")
PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
)
"""Which requests a page may send, if the headers beside these allow its origin."""


def check_origin(key: Key, origin: bytes) -> None:
    """Refuse a publishable key that a page of another origin than the key's own has sent."""
    if key.role == "publishable" and origin.decode("latin-1") not in key.origins:
        raise Refusal(
            "origin_not_allowed",
            "this key is for other origins: create one for this page",
            "Origin",
        )


def page_headers(path: str, origin: bytes | None, origins: Container[str]) -> list[Header]:
    """Return the headers of an answer that pages may want to read: decisions, feedback, preflights.

    `origins` are those of all publishable keys: a preflight carries no key, and the answer that
    refuses an unknown key must be readable too.
    """
    if path == FEEDBACK or path.endswith(PRIVACY):
        return [EVERY_ORIGIN]
    if origin and origin.decode("latin-1") in origins:
        return [(b"access-control-allow-origin", origin), _VARY]
    return [_VARY]


def operator_headers(path: str) -> list[Header]:
    """Return the headers of an operation that is not for pages, save the privacy statement."""
    return [EVERY_ORIGIN] if path.endswith(PRIVACY) else []
