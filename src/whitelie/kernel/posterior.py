"""An arm's posterior: that of its mean feedback, uniform before any."""

from whitelie.kernel.arms import Arms, reward_at
from whitelie.kernel.beta import beta
from whitelie.kernel.jit import jit_inline
from whitelie.kernel.state import State
from whitelie.kernel.words import Word


@jit_inline
def posterior(arms: Arms, state: State, k: int) -> tuple[float, float]:
    """Return a and b of arm k's posterior Beta(a, b): S + 1 and N − S + 1, swapped if mirrored."""
    failures = state.pulls[k] - state.successes[k]
    successes = state.successes[k]
    if arms.mirrored[k]:
        successes, failures = failures, successes
    return successes + 1.0, failures + 1.0


@jit_inline
def sample(arms: Arms, state: State, k: int, seed: Word) -> float:
    """Return g^-1(θ) of arm k with θ drawn from its posterior."""
    a, b = posterior(arms, state, k)
    return reward_at(arms, k, beta(a, b, seed))
