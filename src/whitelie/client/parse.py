"""JSON from outside, read as JavaScript reads it."""

import json
import math
from typing import Any


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text; whatever is wrong with the text is a ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("too deep") from error


def finite(value: Any) -> float:
    """Return a finite number; anything else is a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        is_finite = False
    if not is_finite:
        raise ValueError("not finite")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
