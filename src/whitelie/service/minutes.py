"""Times as the service keeps them: whole minutes since 1970."""

import time
from datetime import UTC, datetime

HOUR = 60
DAY = 24 * HOUR


def minute_of(moment: datetime) -> int:
    """Return the minute that a moment lies in.

    >>> minute_of(datetime(1970, 1, 1, 1, 0, 59, tzinfo=UTC))
    60
    """
    return int(moment.timestamp() // 60)


def this_minute() -> int:
    """Return the minute that it is now."""
    return int(time.time() // 60)


def time_of(minute: int) -> datetime:
    """Return the start of a minute."""
    return datetime.fromtimestamp(minute * 60, UTC)


def minutes_in(seconds: int) -> int:
    """Return how many minutes hold so many seconds, rounded up."""
    return -(-seconds // 60)
