"""Keys: who may ask for what. The store keeps their hashes only.

*Admin* keys may do everything. *Reader* keys see results and metrics. *Publishable* keys stand in
pages that everybody can read, so they may only decide: one decision per request, for their own
origins, within their rate limit.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable

from whitelie.errors import InvalidInput
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Key, Store

PREFIXES = {"admin": "ak_", "reader": "rk_", "publishable": "pk_"}
"""What the keys of each role begin with."""

SHORTEST_KEY = 32

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def new_key(role: str) -> str:
    """Return the text of a new key."""
    return PREFIXES[role] + secrets.token_urlsafe(32)


def hash_of(text: str) -> bytes:
    """Return what the store keeps of a key: its text has 256 random bits, so no salt is needed."""
    return hashlib.sha256(text.encode()).digest()


def admin_key(name: str, text: str) -> Key:
    """Return the admin key that the operator has chosen."""
    if not text.startswith(PREFIXES["admin"]) or len(text) < SHORTEST_KEY or not text.isascii():
        reason = f"an admin key begins with ak_ and has at least {SHORTEST_KEY} ASCII characters"
        raise InvalidInput("WHITELIE_ADMIN_KEY", "(not shown)", reason)
    return Key(name, "admin", hash_of(text))


def origin(text: str) -> str:
    """Return an origin as browsers send it, or refuse it.

    >>> origin("https://Shop.example:443/"), origin("http://localhost:8000")
    ('https://shop.example', 'http://localhost:8000')
    """
    parts = _ORIGIN.fullmatch(text.rstrip("/").lower())
    if parts is None:
        reason = "an origin is like https://shop.example: no path, no *, names in ASCII (punycode)"
        raise InvalidInput("origin", text, reason)
    scheme, host, port = parts.groups(default="")
    is_usual = port == {"http": ":80", "https": ":443"}[scheme]
    return f"{scheme}://{host}" + ("" if is_usual else port)


def create(store: Store, key: Key) -> str:
    """Store a new key of the name, role and limits given; return its text."""
    kept = store.keys()
    if any(known.name == key.name for known in kept):
        raise InvalidInput("name", key.name, "there is a key of this name; rotate or revoke it")
    if key.role not in PREFIXES:
        raise InvalidInput("role", key.role, f"choose one of {', '.join(PREFIXES)}")
    if key.role != "publishable" and key.origins:
        raise InvalidInput("origin", key.origins[0], "only publishable keys have origins")
    return _save(store, key._replace(origins=tuple(origin(each) for each in key.origins)))


def rotate(store: Store, name: str, last_minute: int) -> str:
    """Store a new key in place of one, which expires after `last_minute`; return its text."""
    *_, current = _named(store, name)
    text = _save(store, current._replace(expiry=None))
    store.save_key(current._replace(expiry=last_minute))
    return text


def revoke(store: Store, name: str) -> None:
    """Remove the key of a name, and those that it replaced."""
    for key in _named(store, name):
        store.delete_key(key.hash)


def _save(store: Store, key: Key) -> str:
    text = new_key(key.role)
    store.save_key(key._replace(hash=hash_of(text)))
    return text


def _named(store: Store, name: str) -> list[Key]:
    """Return the keys of a name, the current one last."""
    kept = store.keys()
    named = [key for key in kept if key.name == name]
    if not named:
        known = ", ".join(sorted({key.name for key in kept}))
        raise InvalidInput("name", name, f"there is no such key; there are: {known}")
    return sorted(named, key=lambda key: key.expiry is None)


class Keyring:
    """The keys of a store, looked up by the hash of their text."""

    def __init__(self) -> None:
        self.replace(())

    def replace(self, keys: Iterable[Key]) -> None:
        """Use these keys instead of all others."""
        self._keys = {key.hash: key for key in keys}
        self.origins = frozenset(origin for key in self._keys.values() for origin in key.origins)

    def has(self, authorization: bytes | None, minute: int) -> bool:
        """Whether an Authorization header carries a known key that has not expired."""
        try:
            self.find(authorization, minute)
        except Refusal:
            return False
        return True

    def find(self, authorization: bytes | None, minute: int) -> Key:
        """Return the key that an Authorization header carries, or refuse the request."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            raise Refusal("unknown_key", "send a key as: Authorization: Bearer …", "Authorization")
        key = self._keys.get(hashlib.sha256(authorization[7:].strip()).digest())
        if key is None or (key.expiry is not None and minute > key.expiry):
            message = "this key is not known here: it may have been revoked, or have expired"
            raise Refusal("unknown_key", message, "Authorization")
        return key
