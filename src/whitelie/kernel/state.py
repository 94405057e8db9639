"""What a decision rests on: counts per arm, and the memory of rules that keep one."""

from typing import Any, NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.jit import jit, jit_inline

NO_MEMORY = np.empty((0, 0))


class State(NamedTuple):
    """What a decision rests on, per arm.

    Feedbacks received, how many were 1, decisions whose feedback is yet to come, whether the arm
    may be chosen, and (row) what the rule remembers beyond: no rows where it has no memory.
    """

    pulls: Array
    successes: Array
    pending: Array
    available: Array
    memory: Array = NO_MEMORY


@jit
def new_state(size: int, columns: int) -> State:
    """Return the state before any feedback, with so many columns of memory."""
    zeros = np.zeros(size, dtype=np.int64)
    memory = np.zeros((size if columns else 0, columns))
    return State(zeros, zeros.copy(), zeros.copy(), np.ones(size, dtype=np.bool_), memory)


@jit_inline
def is_untried(state: Any, k: int) -> bool:
    """Whether arm k has neither feedback nor a pending decision; `state` is of bits or of cells."""
    return state.pulls[k] + state.pending[k] == 0


@jit_inline
def mean_of(arms: Arms, state: State, k: int) -> float:
    """Return the mean on which arm k's index is built; without any feedback its rate is ½."""
    pulls = state.pulls[k]
    ones = pulls - state.successes[k] if arms.mirrored[k] else state.successes[k]
    return arms.offset[k] + arms.scale[k] * (ones / pulls if pulls > 0 else 0.5)
