"""Trusted time: the wall clock, as long as it agrees with a clock that nobody can set.

What time brings cannot be undone: spent bits are forgotten, minutes are joined into days. So a wall
clock that jumps, ahead or back, is not followed. Time then goes on by the steady clock, as it would
have without the jump, and nothing is forgotten. Nobody here can know which of the two clocks is
right: perhaps the wall clock was wrong before and has been mended. So the operator confirms it, by
a restart. Only in the first hour, in which nothing is forgotten, a clock that is set back is
followed: a machine may start with a wrong clock, and NTP sets it.
"""

import time
from collections.abc import Callable
from functools import partial

from whitelie.service.log import event
from whitelie.service.refusal import Refusal

TOLERANCE = 60.0
"""Seconds by which the wall clock may differ from what is expected: NTP steps by less."""

SETTLED = 3600.0
"""Seconds after the start of a process before it forgets anything: its clock may yet be set."""

PAUSE = 1.0
"""Seconds between readings of two clocks that are not taken for the same moment."""

WHAT_TO_DO = (
    "set the server's clock right; if it is right now, restart the service, which confirms it"
)

Clock = Callable[[], float]

# It counts the time for which a computer sleeps, as the monotonic clock of Linux does not.
steady_time: Clock = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""The seconds since some moment, by a clock that nobody sets and that never sleeps."""


class TrustedClock:
    """Seconds since 1970, by a wall clock that is compared with a steady one at every call.

    A wall clock that is given is its own steady clock unless another one is given too. A forked
    process inherits what is expected: workers that are started anew confirm nothing. `wall` is the
    wall clock as it is, and `times_set_back` how often it was set back and followed.
    """

    def __init__(self, wall: Clock | None = None, steady: Clock | None = None) -> None:
        self.wall = wall or time.time
        self.times_set_back = 0
        self._steady = steady or wall or steady_time
        now, self._started = self._read()
        self._offset = now - self._started
        self._has_jumped = False

    def __call__(self) -> float:
        """Return the time: the wall clock's, or the expected one where that has jumped."""
        offset = (wall := self.wall()) - self._steady()
        if abs(offset - self._offset) <= TOLERANCE and not self._has_jumped:
            self._offset = offset  # as nearly always, and every request asks
            return wall
        wall, steady = self._read()
        expected = steady + self._offset
        off = wall - expected
        if off < -TOLERANCE and steady - self._started < SETTLED:
            event("clock_set_back", seconds=round(-off))
            self.times_set_back += 1
            off = 0.0
        had_jumped, self._has_jumped = self._has_jumped, abs(off) > TOLERANCE
        if abs(off) > TOLERANCE:
            if not had_jumped:
                event("clock_jumped", seconds=round(off), to_do=WHAT_TO_DO)
            return expected
        if had_jumped:
            event("clock_trusted")
        self._offset = wall - steady
        return wall

    def _read(self) -> tuple[float, float]:
        """Return both clocks at the same moment: a pause between them would look like a jump."""
        while True:
            before, wall, steady = self._steady(), self.wall(), self._steady()
            if steady - before < PAUSE:
                return wall, steady

    @property
    def is_trusted(self) -> bool:
        """Whether the wall clock is what is expected of it."""
        self()
        return not self._has_jumped

    @property
    def may_forget(self) -> bool:
        """Whether what is old by this clock may be forgotten for ever."""
        return self.is_trusted and self._steady() - self._started >= SETTLED

    def check(self) -> None:
        """Refuse what needs the right time while it is not known."""
        if not self.is_trusted:
            message = f"the server's clock has jumped; nothing was changed: {WHAT_TO_DO}"
            raise Refusal("clock_jumped", message, retry_after=10)
