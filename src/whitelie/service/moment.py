"""Times as the service keeps them: whole minutes since 1970."""

from datetime import UTC, datetime


def minute_of(time: datetime) -> int:
    """Return the minute that a time lies in.

    >>> minute_of(datetime(1970, 1, 1, 1, 0, 59, tzinfo=UTC))
    60
    """
    return int(time.timestamp() // 60)


def time_of(minute: int) -> datetime:
    """Return the start of a minute."""
    return datetime.fromtimestamp(minute * 60, UTC)


def minutes_in(seconds: int) -> int:
    """Return how many minutes hold so many seconds, rounded up."""
    return -(-seconds // 60)
