"""Addresses of stores: `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://…`."""

from pathlib import Path

from whitelie.errors import InvalidInput
from whitelie.service.store.contract import Store

SQLITE = "sqlite:///"
POSTGRESQL = "postgresql://", "postgres://"


def open_store(address: str, *, must_exist: bool = False) -> Store:
    """Open the store at an address; create it if it does not exist, unless it must."""
    if is_postgresql(address):
        from whitelie.service.store.postgresql.store import PostgresStore  # noqa: PLC0415 (psycopg is optional)

        return PostgresStore(address, must_exist=must_exist)
    from whitelie.service.store.sqlite.store import SQLiteStore  # noqa: PLC0415 (only the store in use)

    path = sqlite_path(address)
    if must_exist and not path.exists():
        reason = "there is no such file; `whitelie serve` creates it, or give another --store"
        raise InvalidInput("store", address, reason)
    return SQLiteStore(path)


def is_postgresql(address: str) -> bool:
    """Whether an address names a PostgreSQL database."""
    return address.startswith(POSTGRESQL)


def sqlite_path(address: str) -> Path:
    """Return the path that an address names.

    >>> sqlite_path("sqlite:///shop.db")
    PosixPath('shop.db')
    """
    path = Path(address.removeprefix(SQLITE))
    if not address.startswith(SQLITE) or not path.name:
        hidden = address if address.startswith("sqlite:") else "(not shown)"
        reason = "give an address such as sqlite:///whitelie.db or postgresql://USER@HOST/DATABASE"
        raise InvalidInput("store", hidden, reason)
    if not path.parent.is_dir():
        raise InvalidInput("store", address, f"there is no folder {path.parent}; create it first")
    return path
