"""Addresses of stores: `sqlite:///relative/path` or `sqlite:////absolute/path`."""

from pathlib import Path

from whitelie.errors import InvalidInput
from whitelie.service.store.sqlite import SQLiteStore

SQLITE = "sqlite:///"


def open_existing(address: str) -> SQLiteStore:
    """Return the store at an address, which must be there."""
    path = sqlite_path(address)
    if not path.exists():
        reason = "there is no such file; `whitelie serve` makes it, or give another --store"
        raise InvalidInput("store", address, reason)
    return SQLiteStore(path)


def sqlite_path(address: str) -> Path:
    """Return the path that an address names.

    >>> sqlite_path("sqlite:///shop.db")
    PosixPath('shop.db')
    """
    path = Path(address.removeprefix(SQLITE))
    if not address.startswith(SQLITE) or not path.name:
        raise InvalidInput("store", address, "give an address such as sqlite:///whitelie.db")
    if not path.parent.is_dir():
        raise InvalidInput("store", address, f"there is no folder {path.parent}; make it first")
    return path
