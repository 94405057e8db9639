"""Confidence intervals for means over replicates: t-intervals, paired differences, bands.

Everything here takes labelled values with a dimension "replicate", whose entries are independent
and equally distributed, and gives labelled values without it.
"""

import math

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from whitelie.errors import InvalidInput

BOOTSTRAP_DRAWS = 2000
"""How many times the bootstrap draws multipliers."""

MOST_MULTIPLIERS = 2**20
"""How many multipliers the bootstrap holds in memory at once."""


def t_interval(values: xr.DataArray, *, level: float = 0.95, statements: int = 1) -> xr.Dataset:
    """Return mean, standard error s/√n, and lower and upper = mean ∓ t·s/√n.

    t is the 1 − (1 − level)/(2·statements) quantile of Student's law with n − 1 degrees of freedom:
    so that many intervals hold together at the level (Bonferroni). Where all replicates agree the
    width is exactly zero.
    """
    critical = student(values.sizes["replicate"], level=level, statements=statements)
    return _interval(values, xr.DataArray(critical))


def simultaneous_band(values: xr.DataArray, *, level: float = 0.95, seed: int = 0) -> xr.Dataset:
    """Return what `t_interval` does, with lower and upper that hold at all times together.

    One multiple of the standard error serves all times of a curve: `multiplier_quantile`, or
    Student's where that is larger, so that the band never is narrower than the pointwise one.
    """
    least = student(values.sizes["replicate"], level=level)
    matrices = values.transpose(..., "replicate", "time")
    critical = xr.full_like(values.isel(replicate=0, time=0, drop=True), least)
    for curve in np.ndindex(critical.shape):
        quantile = multiplier_quantile(matrices.values[curve], level=level, seed=seed)
        critical.values[curve] = max(least, quantile)
    return _interval(values, critical)


def differences(values: xr.DataArray, baseline: str) -> xr.Dataset:
    """Return the t-intervals of policies minus the baseline, replicate by replicate.

    They hold together at 95 %, and `conclusion` says on which side of 0 an interval lies.
    """
    others = values.sel(policy=[name for name in values["policy"].values if name != baseline])
    paired = others - values.sel(policy=baseline, drop=True)
    statements = paired.size // paired.sizes["replicate"]
    intervals = t_interval(paired, statements=statements).rename(mean="difference")
    sides = [intervals["upper"].values < 0, intervals["lower"].values > 0]
    words = np.select(sides, ["lower", "higher"], "not separated")
    return intervals.assign(conclusion=intervals["lower"].copy(data=words))


def clopper_pearson(
    successes: ArrayLike, trials: int, *, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of Clopper and Pearson's exact interval for a probability.

    >>> low, high = clopper_pearson(np.array([0, 10]), 10)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.692], [0.308, 1.0])
    """
    from scipy.special import betaincinv  # noqa: PLC0415 (only intervals need scipy)

    counts, tail = np.asarray(successes), (1 - level) / 2
    failures = trials - counts
    inner_low = betaincinv(np.maximum(counts, 1), failures + 1, tail)
    inner_high = betaincinv(counts + 1, np.maximum(failures, 1), 1 - tail)
    return np.where(counts == 0, 0.0, inner_low), np.where(failures == 0, 1.0, inner_high)


def student(replicates: int, *, level: float, statements: int = 1) -> float:
    """Return the half-width, in standard errors, of t-intervals that hold together."""
    from scipy.special import stdtrit  # noqa: PLC0415 (only intervals need scipy)

    if replicates < 2:
        raise InvalidInput(
            "replicates", replicates, "an interval needs two replicates at least: simulate more"
        )
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise InvalidInput("level", level, "a confidence level lies between 0 and 1, as 0.95 does")
    return float(stdtrit(replicates - 1, 1 - (1 - level) / (2 * statements)))


def multiplier_quantile(matrix: NDArray[np.float64], *, level: float, seed: int) -> float:
    """Return the level-quantile of the studentised mean's largest |value| over all times.

    The matrix has a row per replicate and a column per time. With x_i(t) a replicate's deviation
    from the mean, a draw is max over t of |Σ ξ_i·x_i(t)| / sqrt(Σ x_i(t)²) for Gaussian multipliers
    ξ_i, divided by sqrt(χ²/(n − 1)) with n − 1 degrees of freedom. So it follows Student's law at
    every time, with the replicates' own correlation between times. With few replicates, or very
    skewed ones, the band covers less often than its level says, as t-intervals do.
    Times at which all replicates agree are left out; without others it is 0.
    """
    replicates = len(matrix)
    varying = matrix[:, np.ptp(matrix, axis=0) > 0]
    if not varying.size:
        return 0.0
    deviations = varying - varying.mean(axis=0)
    deviations /= np.sqrt((deviations**2).sum(axis=0))
    generator = np.random.default_rng(seed)
    scale = np.sqrt(generator.chisquare(replicates - 1, BOOTSTRAP_DRAWS) / (replicates - 1))
    size = max(1, MOST_MULTIPLIERS // replicates)
    starts = range(0, BOOTSTRAP_DRAWS, size)
    blocks = [min(size, BOOTSTRAP_DRAWS - start) for start in starts]
    largest = [
        np.abs(generator.standard_normal((block, replicates)) @ deviations).max(axis=1)
        for block in blocks
    ]
    return float(np.quantile(np.concatenate(largest) / scale, level, method="higher"))


def _interval(values: xr.DataArray, critical: xr.DataArray) -> xr.Dataset:
    """Deviations are taken from the first replicate: where all agree, they are exactly zero."""
    first = values.isel(replicate=0, drop=True)
    deviations = values - first
    mean = first + deviations.mean("replicate", skipna=False)
    spread = deviations.std("replicate", ddof=1, skipna=False)
    standard_error = spread / math.sqrt(values.sizes["replicate"])
    half = critical * standard_error
    parts = {"mean": mean, "standard_error": standard_error}
    return xr.Dataset({**parts, "lower": mean - half, "upper": mean + half})
