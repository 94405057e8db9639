"""What rules ask of an arm's reports, whether they are bits or fall into cells."""

from whitelie.kernel.arms import Arms, reward_at
from whitelie.kernel.cells import Cells, draw_of, estimate_of
from whitelie.kernel.jit import jit
from whitelie.kernel.posterior import sample
from whitelie.kernel.rule import ByArms
from whitelie.kernel.state import State, mean_of

estimate = ByArms("estimate")
"""(arms, state, k): the mean reward that the reports on arm k stand for, not clipped."""

draw = ByArms("draw")
"""(arms, state, k, word): a mean reward drawn from the posterior of arm k."""


@estimate.register(Arms)
@jit
def estimate_of_bits(arms: Arms, state: State, k: int) -> float:
    """Return g^-1(λ̂); without any feedback λ̂ is ½."""
    return reward_at(arms, k, mean_of(arms, state, k))


estimate.register(Cells)(estimate_of)
draw.register(Arms)(sample)
draw.register(Cells)(draw_of)
