"""JSON with one spelling (RFC 8785), so that its hash can be computed anywhere."""

import json
from decimal import Decimal
from typing import Any


def canonical(value: Any) -> str:
    """Return the one spelling of JSON data: sorted keys, no spaces, numbers as JavaScript has them.

    >>> canonical({"b": [1.0, 1e-05, 0.5], "a": None})
    '{"a":null,"b":[1,0.00001,0.5]}'
    """
    match value:
        case dict():
            items = (f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value))
            return "{" + ",".join(items) + "}"
        case list():
            return "[" + ",".join(map(canonical, value)) + "]"
        case float():
            return _number(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number's shortest digits, with an exponent where JavaScript writes one.

    >>> [_number(x) for x in (1e-7, 1.5e-300, 1e20, 1e21, 0.1, 100.0)]
    ['1e-7', '1.5e-300', '100000000000000000000', '1e+21', '0.1', '100']
    """
    digits = repr(value).removesuffix(".0")
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return format(Decimal(digits), "f")
    mantissa, exponent = digits.split("e")
    return f"{mantissa}e{int(exponent):+d}"
