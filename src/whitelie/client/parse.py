"""Parses JSON from outside as strictly as JavaScript does."""

import json
import math
from typing import Any


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if it is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("too deep") from error


def finite(value: Any) -> float:
    """Return a finite number; raise ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        is_finite = False
    if not is_finite:
        raise ValueError("not finite")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
