"""What whitelie raises on purpose about input, stores, networks and files: `WhitelieError`.

```text
WhitelieError
├── InvalidInput (ValueError)          a value from outside was refused; nothing was changed
├── whitelie.client
│   ├── NoAnswer                       the service did not answer in time; raised by transports
│   ├── StorageFailed                  the device's storage failed; the client warns of it
│   └── ApplicationFailed (RuntimeError)   an application in this process did not start or end
└── whitelie.service
    ├── Refusal (ValueError)           a request was refused: its error code and HTTP status
    ├── Stale                          experiments or keys have changed; nothing was done
    └── Unavailable                    the store cannot work now; nothing was done
        └── ConnectionLost             the connection broke; a write may have been done or not
```

In parentheses is the builtin that a class derives from as well. A class whose name begins with an
underscore never leaves its module and is not drawn. `WhitelieWarning` is a warning, not an error:
the client warns where a program should not stop.

Mistakes in a program that extends whitelie are Python's own errors: TypeError and
NotImplementedError for the author of a rule or store, AttributeError for a name that is not there.
"""

import math
import operator
import reprlib
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


class WhitelieError(Exception):
    """The root of the tree above: catch it to catch them all."""


class InvalidInput(WhitelieError, ValueError):
    """A value was refused: `field` names it, `value` was given, the message says what is right.

    >>> print(InvalidInput("p00", 1.5, "a probability lies in [0, 1]"))
    p00=1.5: a probability lies in [0, 1]
    """

    def __init__(self, field: str, value: Any, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(f"{field}={_SHORT.repr(value)}: {reason}")

    def __reduce__(self) -> tuple[type["InvalidInput"], tuple[str, Any, str]]:
        """Rebuild from the three parts, so that the error crosses process boundaries."""
        return type(self), (self.field, self.value, self.reason)


def whole_number(field: str, value: Any, *, least: int = 0, most: int = 2**53) -> int:
    """Return the value as an int if it is a whole number in the range, else refuse it by name.

    >>> whole_number("replicates", 10, least=1)
    10
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidInput(field, value, f"give a whole number from {least} to {most}")
    return number


def real_number(field: str, value: Any, reason: str, *, least: float, most: float) -> float:
    """Return the value as a float if it is a number from `least` to `most`, else refuse it by name.

    >>> real_number("p00", 0.5, "a probability lies in [0, 1]", least=0, most=1)
    0.5
    """
    try:
        number = math.nan if isinstance(value, str | bytes | bytearray | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise InvalidInput(field, value, reason)
    return number
