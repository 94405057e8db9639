"""All compiled code: divergences, indices, Beta draws, the choice rule.

Everything here runs under numba and, with NUMBA_DISABLE_JIT=1, gives the same numbers without it.
Nothing is validated here; whoever calls has checked.
"""
