"""How far a long computation is: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]

LINE_EVERY_SECONDS = 5.0


@contextmanager
def progress(title: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Yield a function that is told how many more of `total` are done."""
    if not shown:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar(title, total)
    else:
        yield from _lines(title, total)


def _bar(title: str, total: int) -> Iterator[Advance]:
    from rich.console import Console  # noqa: PLC0415 (only for those who watch)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    columns = (title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def _lines(title: str, total: int) -> Iterator[Advance]:
    start = last = time.monotonic()
    finished = 0

    def advance(done: int) -> None:
        nonlocal finished, last
        finished += done
        now = time.monotonic()
        if finished == total or now - last >= LINE_EVERY_SECONDS:
            last = now
            left = (now - start) / max(finished, 1) * (total - finished)
            print(f"{title}: {finished} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)

    yield advance
