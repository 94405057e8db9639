"""Trusted time: the wall clock, as long as it agrees with a clock that nobody can set.

Maintenance cannot be undone: it forgets spent bits, and joins minutes into days. So the service
does not follow a wall clock that jumps, ahead or back. It then takes the time from the steady
clock, as if there had been no jump, and forgets nothing. The service cannot know which of the two
clocks is right: perhaps the wall clock was wrong before, and somebody has set it right. So the
operator confirms the new time, by a restart. In its first hour the service forgets nothing, and
follows a clock that is set back: a machine may start with a wrong clock, and NTP sets it.
"""

import time
from collections.abc import Callable
from functools import partial

from whitelie.service.log import event
from whitelie.service.refusals import CLOCK_TO_DO, Refusal

JUMP_TOLERANCE_SECONDS = 60.0
"""How far the wall clock may be from the expected time: NTP steps by less."""

SETTLING_SECONDS = 3600.0
"""How long a process forgets nothing after its start: its clock may yet be set."""

READING_PAUSE_SECONDS = 1.0
"""Two clocks that were read further apart than this were not read at the same time."""

Clock = Callable[[], float]

# It counts the time for which a computer sleeps, as the monotonic clock of Linux does not.
steady_time: Clock = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds by a clock that nobody sets and that never sleeps; it began at any time."""


class TrustedClock:
    """Seconds since 1970, by a wall clock that is compared with a steady one at every call.

    A wall clock that is given is its own steady clock unless another one is given too. A forked
    process inherits the expected time: a worker that is started anew does not confirm a jump.
    `wall` is the wall clock itself, `has_jumped` says whether it was distrusted at the latest call,
    and `times_set_back` how often it was set back and followed.
    """

    def __init__(self, wall: Clock | None = None, steady: Clock | None = None) -> None:
        self.wall = wall or time.time
        self.times_set_back = 0
        self._steady = steady or wall or steady_time
        now, self._started = self._read()
        self._offset = now - self._started
        self._latest_minute = 0
        self.has_jumped = False

    def __call__(self) -> float:
        """Return the wall clock's time, or the expected time if the wall clock has jumped."""
        offset = (wall := self.wall()) - self._steady()
        if abs(offset - self._offset) <= JUMP_TOLERANCE_SECONDS and not self.has_jumped:
            self._offset = offset  # as nearly always, and every request asks
            return wall
        wall, steady = self._read()
        expected = steady + self._offset
        off = wall - expected
        if off < -JUMP_TOLERANCE_SECONDS and steady - self._started < SETTLING_SECONDS:
            event("clock_set_back", seconds=round(-off))
            self.times_set_back += 1
            self._latest_minute = 0
            off = 0.0
        had_jumped, self.has_jumped = self.has_jumped, abs(off) > JUMP_TOLERANCE_SECONDS
        if abs(off) > JUMP_TOLERANCE_SECONDS:
            if not had_jumped:
                event("clock_jumped", seconds=round(off), to_do=CLOCK_TO_DO)
            return expected
        if had_jumped:
            event("clock_trusted")
        self._offset = wall - steady
        return wall

    @property
    def minute(self) -> int:
        """The minute that it is now; it stands still while the clock goes back by seconds."""
        minute = int(self() // 60)
        self._latest_minute = max(self._latest_minute, minute)
        return self._latest_minute

    def _read(self) -> tuple[float, float]:
        """Read both clocks at the same time: a pause between them would look like a jump."""
        while True:
            before, wall, steady = self._steady(), self.wall(), self._steady()
            if steady - before < READING_PAUSE_SECONDS:
                return wall, steady

    @property
    def is_trusted(self) -> bool:
        """Whether the wall clock shows the expected time."""
        self()
        return not self.has_jumped

    @property
    def may_forget(self) -> bool:
        """Whether maintenance may forget what is old by this clock."""
        return self.is_trusted and self._steady() - self._started >= SETTLING_SECONDS

    def check(self) -> None:
        """Refuse a request that needs the right time while it is not known."""
        if not self.is_trusted:
            message = f"the server's clock has jumped; nothing was changed: {CLOCK_TO_DO}"
            raise Refusal("clock_jumped", message, retry_after=10)
