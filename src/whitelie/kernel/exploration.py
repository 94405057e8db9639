"""The exploration function f(t) of kl-UCB and UCB."""

import math

from whitelie.kernel.arms import Arms
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import Rule
from whitelie.kernel.state import State


@jit
def exploration(rule: Rule, t: int) -> float:
    """Return f(t) = max(0, weight·ln t + c·ln max(1, ln t)), and 0 before the first feedback.

    `weight` and `c` are fields of the rule.
    """
    log_t = math.log(max(t, 1))
    return max(0.0, rule.weight * log_t + rule.c * math.log(max(1.0, log_t)))


@jit
def exploration_now(rule: Rule, arms: Arms, state: State) -> float:
    """Return f(t), where t counts the feedbacks of all arms: what arms share."""
    return exploration(rule, state.pulls.sum())
