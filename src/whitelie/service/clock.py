"""Trusted time: the wall clock, as long as it agrees with a clock that nobody can set.

What time brings cannot be undone: spent bits are forgotten, minutes are joined into days. So a wall
clock that jumps ahead is not followed. Time then goes on by the steady clock, as it would have
without the jump, and nothing is forgotten. Nobody here can know which of the two clocks is right:
perhaps the wall clock was wrong before and has been mended. So the operator confirms it, by a
restart.
"""

import time
from collections.abc import Callable

from whitelie.service.log import event
from whitelie.service.refusal import Refusal

TOLERANCE = 60.0
"""Seconds by which the wall clock may be ahead of what is expected: NTP steps by less."""

SETTLED = 3600.0
"""Seconds after the start of a process before it forgets anything: its clock may yet be set."""

WHAT_TO_DO = (
    "set the server's clock right; if it is right now, restart the service, which confirms it"
)

# It counts the time for which a computer sleeps, as the monotonic clock of Linux does not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Clock = Callable[[], float]


def steady_time() -> float:
    """Return the seconds since some moment, by a clock that nobody sets and that never sleeps."""
    return time.clock_gettime(_STEADY)


class TrustedClock:
    """Seconds since 1970, by a wall clock that is compared with a steady one at every call.

    A wall clock that is given is its own steady clock unless another one is given too.
    """

    def __init__(self, wall: Clock | None = None, steady: Clock | None = None) -> None:
        self._wall = wall or time.time
        self._steady = steady or wall or steady_time
        self._started = self._steady()
        self._offset = self._wall() - self._started
        self._is_ahead = False

    def __call__(self) -> float:
        """Return the time: the wall clock's, or the expected one where that is too far ahead.

        A clock that is set back is followed, but what is expected of it is not lowered: it may be
        set right again.
        """
        wall, steady = self._wall(), self._steady()  # a pause between makes the wall clock late
        expected = steady + self._offset
        ahead = wall - expected
        if (ahead > TOLERANCE) != self._is_ahead:
            self._is_ahead = not self._is_ahead
            if self._is_ahead:
                event("clock_jumped", seconds=round(ahead), to_do=WHAT_TO_DO)
            else:
                event("clock_trusted")
        if self._is_ahead:
            return expected
        self._offset = max(self._offset, wall - steady)
        return wall

    @property
    def is_trusted(self) -> bool:
        """Whether the wall clock is not ahead of what is expected of it."""
        self()
        return not self._is_ahead

    @property
    def may_forget(self) -> bool:
        """Whether what is old by this clock may be forgotten for ever."""
        return self.is_trusted and self._steady() - self._started >= SETTLED

    def check(self) -> None:
        """Refuse what needs the right time while it is not known."""
        if not self.is_trusted:
            message = f"the server's clock has jumped ahead; nothing was changed: {WHAT_TO_DO}"
            raise Refusal("clock_jumped", message, retry_after=10)
