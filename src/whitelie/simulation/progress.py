"""Progress of a long computation: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Takes how many more are done and, if known, how many seconds the rest will take."""

    def __call__(self, done: int, left: float | None = None) -> None:
        """Show the progress."""


LINE_INTERVAL_SECONDS = 5.0


@contextmanager
def progress(title: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Yield a function to call whenever more of the `total` is done."""
    if not shown:
        yield lambda done, left=None: None
    elif sys.stderr.isatty():
        yield from _bar(title, total)
    else:
        yield from _lines(title, total)


def _bar(title: str, total: int) -> Iterator[Advance]:
    from rich.console import Console  # noqa: PLC0415 (only for a terminal)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 (only for a terminal)

    columns = (title, BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, left="")
        yield lambda done, left=None: bar.update(task, advance=done, left=_clock(left))


def _lines(title: str, total: int) -> Iterator[Advance]:
    last = time.monotonic()
    finished = 0

    def advance(done: int, left: float | None = None) -> None:
        nonlocal finished, last
        finished += done
        now = time.monotonic()
        if finished == total or now - last >= LINE_INTERVAL_SECONDS:
            last = now
            line = f"{title}: {finished} of {total}  {_clock(left)}".rstrip()
            print(line, file=sys.stderr, flush=True)

    yield advance


def _clock(seconds: float | None) -> str:
    """Return the seconds that are left as minutes and seconds, and hours if there are any.

    >>> _clock(7.6), _clock(83), _clock(7205), _clock(None)
    ('0:08 left', '1:23 left', '2:00:05 left', '')
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} left" if hours else f"{minutes}:{rest:02} left"
