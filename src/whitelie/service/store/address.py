"""Addresses of stores: `sqlite:///relative/path` or `sqlite:////absolute/path`."""

from pathlib import Path

from whitelie.errors import InvalidInput

SQLITE = "sqlite:///"


def sqlite_path(address: str) -> Path:
    """Return the path that an address names.

    >>> sqlite_path("sqlite:///data/shop.db")
    PosixPath('data/shop.db')
    """
    path = Path(address.removeprefix(SQLITE))
    if not address.startswith(SQLITE) or not path.name:
        raise InvalidInput("store", address, "give an address such as sqlite:///whitelie.db")
    if not path.parent.is_dir():
        raise InvalidInput("store", address, f"there is no folder {path.parent}; make it first")
    return path
