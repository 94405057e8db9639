"""Replicates that stop at a certificate: what they leave behind, and what follows from it.

A replicate's counts have two more rows than checkpoints: the reports on each arm when it stopped,
and 1 for the arm that was certified. From then on the winner is shown and nobody reports, so that
the pulls at a checkpoint t still sum to t.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from whitelie.certificate import Certificate

Array = NDArray[Any]

STOP_ROWS = 2
"""How many rows follow the checkpoints."""


class Stops(NamedTuple):
    """Where replicates stopped: what was asked for, reports (…, arm), and positions of winners.

    Without a certificate the reports are all that there were, and the winner is −1.
    """

    certificate: "Certificate"
    reports: NDArray[np.int32]
    winner: NDArray[np.int32]


def split(rows: Array, stop: "Certificate") -> tuple[Array, Stops]:
    """Return the pulls by checkpoint, and where replicates stopped, from all rows together."""
    pulls, reports, mark = rows[..., :-2, :], rows[..., -2, :], rows[..., -1, :]
    winner = np.where(mark.any(axis=-1), mark.argmax(axis=-1), -1).astype(np.int32)
    return pulls, Stops(stop, reports, winner)


def are_sound(last_pulls: Array, reports: Array, winner: Array) -> bool:
    """Whether stops can belong to these pulls at the horizon: reports, then the winner alone."""
    size = reports.shape[-1]
    if reports.min() < 0 or winner.min() < -1 or winner.max() >= size:
        return False
    afterwards = last_pulls.sum(axis=-1, dtype=np.int64) - reports.sum(axis=-1, dtype=np.int64)
    shown = afterwards[..., None] * (np.arange(size) == winner[..., None])
    return bool((afterwards >= 0).all() and np.array_equal(reports + shown, last_pulls))


def rows_are_sound(rows: Array) -> bool:
    """Whether the last two rows of counts, of whatever origin, can belong to the others."""
    mark = rows[..., -1, :]
    if mark.min() < 0 or mark.sum(axis=-1, dtype=np.int64).max() > 1:
        return False
    winner = np.where(mark.any(axis=-1), mark.argmax(axis=-1), -1)
    return are_sound(rows[..., -3, :], rows[..., -2, :], winner)


def wrong_winners(gaps: NDArray[np.float64], tolerance: float) -> NDArray[np.bool_]:
    """Return for each arm (…, arm) whether its certificate would be wrong.

    That is: another arm is better by the tolerance or more; without one, as good or better.

    >>> wrong_winners(np.array([0.0, 0.01, 0.1]), 0).tolist()
    [False, True, True]
    >>> wrong_winners(np.array([0.0, 0.01, 0.1]), 0.05).tolist()
    [False, False, True]
    >>> wrong_winners(np.array([0.0, 0.0]), 0).tolist()
    [True, True]
    """
    least = np.sort(gaps, axis=-1)
    is_first = np.arange(gaps.shape[-1]) == gaps.argmin(axis=-1)[..., None]
    of_best_other = np.where(is_first, least[..., 1:2], least[..., :1])
    return np.asarray(gaps - of_best_other >= tolerance)
