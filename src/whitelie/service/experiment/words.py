"""Numbers in sentences that are true."""

from whitelie.service.minutes import DAY, HOUR

DAYS_PER_YEAR = 365


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "report"), number_of(2000, "report")
    ('1 report', '2,000 reports')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def percent(share: float, digits: int = 0) -> str:
    """Return a share in words that are true: never rounded to 0 % or 100 %."""
    unit = 10.0**-digits
    rounded = round(100 * share, digits)
    if rounded >= 100:
        return f"more than {100 - unit:.{digits}f} %"
    if rounded <= 0:
        return f"less than {unit:.{digits}f} %"
    return f"{rounded:.{digits}f} %"


def about(number: float) -> str:
    """Return a guess: its first two digits.

    >>> about(13_961), about(7), about(123_456_789)
    ('14,000', '7', '120,000,000')
    """
    return f"{int(float(f'{number:.2g}')):,}"


def duration(days: float) -> str:
    """Return a guess of a time, in the unit that people would use.

    >>> duration(9.2), duration(1 / 24), duration(0.01), duration(0.8), duration(3650)
    ('9 days', '60 minutes', '14 minutes', '19 hours', '10 years')
    """
    if days >= 2 * DAYS_PER_YEAR:
        return f"{about(days / DAYS_PER_YEAR)} years"
    for unit, name in ((DAY, "day"), (HOUR, "hour")):
        if days * DAY >= 1.5 * unit:
            return f"{about(round(days * DAY / unit))} {name}s"
    return number_of(max(round(days * DAY), 1), "minute")
