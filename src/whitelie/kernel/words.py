"""Random words as pure functions of where they are used: counter-based, so nothing has a state.

A word is 64 bits, the output of SplitMix64 (Steele, Lea and Flood, 2014) at a counter: word
number i under a key is finalizer(key + i·γ). Keys are words themselves, so coordinates nest:
key(seed) → key of a replicate → key of an arm → word of a feedback.

All arithmetic is on plain integers modulo 2^64, masked, so that it is the same uncompiled.
"""

from typing import cast

import numpy as np

from whitelie.kernel.jit import jit

MASK = 0xFFFFFFFFFFFFFFFF
GAMMA = 0x9E3779B97F4A7C15

ZERO = cast(int, np.int64(0))
"""Where counting starts; a literal 0 would make numba compile callees for it alone."""

Word = int | np.uint64
"""64 random bits: an unsigned integer when compiled, a plain one when not."""

ZERO_WORD: Word = np.uint64(0)
"""The word of whoever draws nothing."""


@jit
def word(key: Word, index: int | np.int64) -> Word:
    """Return word number `index` under a key."""
    z = (int(np.uint64(key)) + int(np.uint64(index)) * GAMMA + GAMMA) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@jit
def uniform(word: Word) -> float:
    """Return a number strictly inside (0, 1): the middle of one of 2^53 cells."""
    return (float(int(np.uint64(word)) >> 11) + 0.5) * 2.0**-53
