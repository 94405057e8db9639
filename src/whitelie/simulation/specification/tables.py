"""Reading tables of a specification: known keys, numbers, and where in the file a value stands."""

import difflib
import math
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from whitelie.errors import InvalidInput


def check_keys(path: str, table: dict[str, Any], known: Collection[str]) -> None:
    """Refuse a key that the table does not have."""
    for key, value in table.items():
        if key not in known:
            where = f"the table {path}" if path else "the specification"
            reason = f"{where} has no key {key!r}; {nearest(key, known)}"
            raise InvalidInput(at(path, key), value, reason)


def required(path: str, table: dict[str, Any], key: str, what: str) -> Any:
    """Return what the table says of a key that it must have."""
    if key not in table:
        where = f"the table {path}" if path else "the specification"
        raise InvalidInput(at(path, key), None, f"{where} needs this key: {what}")
    return table[key]


def nearest(given: Any, known: Collection[Any]) -> str:
    """Return a hint: the name that the given one resembles most, and all there are."""
    nearest = max(known, key=lambda name: _likeness(str(given), str(name)))
    return f"did you mean {nearest!r}? Known are {listed(known)}"


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()


def listed(names: Collection[Any]) -> str:
    """Return the names as they are enumerated in a sentence."""
    return ", ".join(str(name) for name in names)


def number(path: str, given: Any) -> float:
    """Return the value if it is a number."""
    if isinstance(given, int) and abs(given) > sys.float_info.max:
        raise InvalidInput(path, given, "give a smaller number")
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise InvalidInput(path, given, "give a number")
    return given


def whole(path: str, given: Any, *, least: int = 1, most: int) -> int:
    """Return the value if it is a whole number in the range."""
    if isinstance(given, float) and given.is_integer():
        raise InvalidInput(path, given, f"give a whole number without point: {int(given):_}")
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidInput(path, given, "give a whole number")
    if not least <= given <= most:
        raise InvalidInput(path, given, f"give a whole number from {least} to {most:_}")
    return given


def at(path: str, key: str | int) -> str:
    """Return the path of a key or index inside the table or list at `path`.

    >>> at("channels", "red"), at("policies", 2), at("means", "a b"), at("", "seed")
    ('channels.red', 'policies[2]', "means.'a b'", 'seed')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    name = key if re.fullmatch(r"[\w-]+", key) else repr(key)
    return f"{path}.{name}" if path else name


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Name the place in the specification when a value is refused by what is built from it."""
    try:
        yield
    except InvalidInput as refused:
        named = all(part.isidentifier() for part in refused.field.split("."))
        field = refused.field if named else f"({refused.field})"
        raise InvalidInput(f"{path}.{field}", refused.value, refused.reason) from None
