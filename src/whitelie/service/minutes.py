"""Times as the service keeps them: whole minutes since 1970."""

from datetime import UTC, datetime
from time import time as now

HOUR = 60
DAY = 24 * HOUR
"""In minutes."""


def minute_of(time: datetime) -> int:
    """Return the minute that contains a time.

    >>> minute_of(datetime(1970, 1, 1, 1, 0, 59, tzinfo=UTC))
    60
    """
    return int(time.timestamp() // 60)


def this_minute() -> int:
    """Return the current minute."""
    return int(now() // 60)


def time_of(minute: int) -> datetime:
    """Return the start of a minute."""
    return datetime.fromtimestamp(minute * 60, UTC)


def minutes_in(seconds: int) -> int:
    """Return a number of seconds in minutes, rounded up."""
    return -(-seconds // 60)
