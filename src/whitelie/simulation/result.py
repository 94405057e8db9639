"""The result of a simulation: labelled pull counts, and what follows from them.

`Result` interprets counts and never simulates. Its regret is pseudo-regret, Σ_a Δ_a·N_a(t): what
the choices cost in expectation, free of the noise of single rewards.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from whitelie.errors import InvalidInput, whole_number
from whitelie.problem import Problem
from whitelie.simulation.archive import (
    Cell,
    read_cells,
    read_file,
    stop_variables,
    write_cells,
    write_file,
)
from whitelie.simulation.intervals import (
    clopper_pearson,
    differences,
    simultaneous_band,
    t_interval,
)
from whitelie.simulation.netcdf import DIMENSIONS
from whitelie.simulation.stops import Stops, are_sound, wrong_winners

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from whitelie.certificate import Certificate

_TAKEN = {*DIMENSIONS, "pulls", "gaps", "regret", "mean", "standard_error", "lower", "upper"}
_TAKEN_BY_STOPS = {
    *("stop_reports", "stop_winner", "reports", "certified", "winner", "lost", "wrong"),
    *("median", "q95", "never", "wrong_lower", "wrong_upper", "lost_standard_error"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Pull counts of policies on one problem, or on one problem per value of a swept parameter.

    Arrays are labelled by policy, replicate, time and arm, after the parameter if there is one.
    Arm names other than text and integers are stored as their text.

    >>> result = Result.from_pulls(
    ...     [[[[1, 1], [5, 3]], [[1, 1], [7, 1]]]],
    ...     problem=Problem({"red": 0.75, "blue": 0.5}),
    ...     policies={"TS-CF": {"name": "TS"}},
    ...     times=[2, 8],
    ...     seed=1,
    ...     provenance={},
    ... )
    >>> result.regret.values.tolist()
    [[[0.25, 0.75], [0.25, 0.25]]]
    >>> result.summary()[["mean", "best_share"]].loc["TS-CF"].tolist()
    [0.5, 0.75]
    """

    dataset: xr.Dataset

    @classmethod
    def from_pulls(  # noqa: PLR0913 (all by name)
        cls,
        pulls: ArrayLike,
        *,
        problem: Problem,
        policies: Mapping[str, Mapping[str, Any]],
        times: Sequence[int],
        seed: int,
        provenance: Mapping[str, Any],
        stops: Stops | None = None,
    ) -> Self:
        """Return the result of one problem from counts by (policy, replicate, time, arm).

        `policies` describes each policy by plain data, in the order of the first axis; `times` are
        the steps after which pulls were counted, and at time t they sum to t. `stops` says where
        replicates stopped, if they did at a certificate.
        """
        steps, arms, counts = _times(times), _arm_labels(problem), np.asarray(pulls)
        described = _policies(policies)
        sizes = (len(described), *counts.shape[1:2], len(steps), len(arms))
        if counts.ndim != 4 or counts.shape != sizes or not counts.size:
            shape = f"({len(described)} policies, replicates, {len(steps)} times, {len(arms)} arms)"
            raise InvalidInput("pulls", counts.shape, f"the shape must be {shape}")
        _check_pulls(counts, steps)
        number = whole_number("seed", seed, most=2**64 - 1)
        stop = _checked_stop(stops, counts)
        cell = Cell(problem, described, number, _plain("provenance", provenance), stop)
        labels = (list(described), np.arange(sizes[1]), steps, arms)
        coordinates = dict(zip(DIMENSIONS, labels, strict=True))
        return cls(_dataset(counts, np.array(problem.gaps), coordinates, [cell], stops))

    @classmethod
    def stack(cls, results: Sequence[Self], coordinate: str, values: Sequence[Any]) -> Self:
        """Join results of several problems along a new first dimension, such as "epsilon".

        They must agree in the names of policies and arms, in times and number of replicates.
        """
        labels = _values(values, len(results))
        first = results[0]
        taken = _TAKEN | (_TAKEN_BY_STOPS if first.stop else set())
        if not isinstance(coordinate, str) or not coordinate or coordinate in taken:
            raise InvalidInput("coordinate", coordinate, f"give a name, none of {sorted(taken)}")
        for result in results:
            if result.coordinate is not None:
                raise InvalidInput("results", result.coordinate, "one is already stacked over this")
            if result.stop != first.stop:
                raise InvalidInput("results", result.stop, f"others stop at {first.stop}")
            for dimension in DIMENSIONS:
                if not result.pulls[dimension].equals(first.pulls[dimension]):
                    raise InvalidInput("results", dimension, "this differs between the results")
        coordinates = {coordinate: labels, **{d: first.pulls[d].values for d in DIMENSIONS}}
        counts = np.stack([result.pulls.values for result in results])
        gaps = np.stack([result.dataset["gaps"].values for result in results])
        stops = None
        if first.stop is not None:
            reports, winner = (
                np.stack([result.dataset[name].values for result in results])
                for name in ("stop_reports", "stop_winner")
            )
            stops = Stops(first.stop, reports, winner)
        cells = [result.cells[0] for result in results]
        return cls(_dataset(counts, gaps, coordinates, cells, stops))

    @property
    def pulls(self) -> xr.DataArray:
        """How often each arm was pulled: (policy, replicate, time, arm), N_a(t) in the paper."""
        return self.dataset["pulls"]

    @cached_property
    def regret(self) -> xr.DataArray:
        """The pseudo-regret Σ_a Δ_a·N_a(t): (policy, replicate, time)."""
        return _regret(self.pulls, self.dataset["gaps"])

    @property
    def stop(self) -> "Certificate | None":
        """The certificate at which replicates stopped; None if they did not."""
        return self.cells[0].stop

    @cached_property
    def stops(self) -> xr.Dataset:
        """Where every replicate stopped: (policy, replicate).

        `certified`: whether it did; `reports`: how many there were until then, or all up to the
        horizon where no arm was certified; `winner`: the arm's name, empty without one; `lost`: the
        rewards lost until then, Σ_a Δ_a·N_a; `wrong`: whether an arm was certified although another
        is as good or better (with a tolerance: is better by so much).
        """
        stop, (reports, winner) = self._stop_arrays()
        gaps = self.dataset["gaps"]
        wrong_arm = gaps.copy(data=wrong_winners(gaps.values, stop.tolerance))
        # The last label serves those without a winner, whose position is −1.
        names = np.append(self.pulls["arm"].values, "")
        hits = winner == xr.DataArray(np.arange(len(names) - 1), dims="arm")
        return xr.Dataset(
            {
                "certified": winner >= 0,
                "reports": reports.sum("arm", dtype=np.int64),
                "winner": winner.copy(data=names[winner.values]),
                "lost": _regret(reports, gaps),
                "wrong": (hits & wrong_arm).any("arm"),
            }
        )

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """What was run: one cell, or one for each value of the swept parameter."""
        return read_cells(self.dataset.attrs["whitelie"])

    @property
    def coordinate(self) -> str | None:
        """The name of the swept parameter, if there is one."""
        return str(self.pulls.dims[0]) if self.pulls.ndim == 5 else None

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(map(str, self.pulls["policy"].values))

    @property
    def replicates(self) -> int:
        """How often each policy was run."""
        return self.pulls.sizes["replicate"]

    @property
    def horizon(self) -> int:
        """The number of steps, T in the paper."""
        return int(self.pulls["time"].values[-1])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem of each cell."""
        return tuple(cell.problem for cell in self.cells)

    @property
    def problem(self) -> Problem:
        """The problem, if all cells have the same."""
        problem: Problem = self._common("problem")
        return problem

    @property
    def seed(self) -> int:
        """The seed, if all cells have the same."""
        seed: int = self._common("seed")
        return seed

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, settings and date of the run, if all cells have the same."""
        provenance: dict[str, Any] = self._common("provenance")
        return provenance

    def summary(self, at: float | None = None) -> "pd.DataFrame":
        """Return a row per policy on its regret at a time that was counted, by default the last.

        mean, standard_error, and lower and upper, the 95 % t-interval of the mean; median, q05 and
        q95, quantiles of the replicates; best_share, the mean share of pulls without regret.
        One replicate says nothing about spread, and gives mean and best_share alone.
        """
        regret = self._regret_at(at)
        best = (self._pulls_at(at) * (self.dataset["gaps"] == 0)).sum("arm")
        share = {"best_share": best.mean("replicate") / self._checkpoint(at)}
        if self.replicates == 1:
            return _table({"mean": regret.isel(replicate=0, drop=True), **share})
        quantiles = {
            name: regret.quantile(probability, "replicate", skipna=False).drop_vars("quantile")
            for name, probability in (("median", 0.5), ("q05", 0.05), ("q95", 0.95))
        }
        return _table({**t_interval(regret), **quantiles, **share})

    def compare(self, baseline: str, at: float | None = None) -> "pd.DataFrame":
        """Return a row per other policy on its regret minus the baseline's, replicate by replicate.

        Replicates share their random numbers, so differences are paired. lower and upper are
        t-intervals of the mean difference that hold together at 95 % over all rows (Bonferroni).
        conclusion says where the interval lies: "lower" regret than the baseline's, "higher", or
        "not separated" from it. Two replicates at least are needed.
        """
        return differences(self._regret_at(at), self._baseline(baseline)).to_dataframe()

    def stopping_summary(self) -> "pd.DataFrame":
        """Return a row per policy on where its replicates stopped.

        mean and standard_error of the reports until the certificate, where a replicate without one
        counts with the horizon; median and q95, by which so many replicates had stopped (infinite
        if that many did not); never, the share without a certificate; wrong, the share of wrong
        ones, with its 95 % interval of Clopper and Pearson, wrong_lower and wrong_upper; lost, the
        mean of the rewards lost until then, and lost_standard_error. One replicate says nothing
        about spread, and has no standard errors.
        """
        stops, count = self.stops, self.replicates
        ended = stops["reports"].where(stops["certified"], math.inf)
        quantiles = {
            name: ended.quantile(p, "replicate", method="higher").drop_vars("quantile")
            for name, p in (("median", 0.5), ("q95", 0.95))
        }
        wrong = stops["wrong"].sum("replicate")
        lower, upper = clopper_pearson(wrong.values, count)
        means = {
            what: t_interval(stops[what]) if count > 1 else {"mean": stops[what].mean("replicate")}
            for what in ("reports", "lost")
        }
        columns = {
            "mean": means["reports"]["mean"],
            "standard_error": means["reports"].get("standard_error"),
            **quantiles,
            "never": 1 - stops["certified"].mean("replicate"),
            "wrong": wrong / count,
            "wrong_lower": wrong.copy(data=lower),
            "wrong_upper": wrong.copy(data=upper),
            "lost": means["lost"]["mean"],
            "lost_standard_error": means["lost"].get("standard_error"),
        }
        return _table({name: column for name, column in columns.items() if column is not None})

    def compare_stops(self, baseline: str) -> "pd.DataFrame":
        """Return a row per other policy on its reports until the certificate minus the baseline's.

        As `compare`: paired, intervals that hold together, and whether they are "lower", "higher"
        or "not separated". A replicate without a certificate counts with the horizon.
        """
        reports = self.stops["reports"]
        return differences(reports, self._baseline(baseline)).to_dataframe()

    def bands(
        self, level: float = 0.95, simultaneous: bool = False, *, seed: int = 0
    ) -> xr.Dataset:
        """Return mean, standard_error, lower and upper of the regret over (policy, time).

        The t-band holds at each time by itself; the simultaneous one at all times of a curve
        together, by a bootstrap which the seed makes repeatable. Where all replicates agree both
        have no width. Two replicates at least are needed.
        """
        if simultaneous:
            number = whole_number("seed", seed, most=2**64 - 1)
            return simultaneous_band(self.regret, level=level, seed=number)
        return t_interval(self.regret, level=level)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        time: Literal["log", "linear"] = "log",
        regret: Literal["log", "linear"] = "linear",
        bands: Literal["pointwise", "simultaneous"] | None = "pointwise",
        bounds: Literal["both"] | bool = True,
    ) -> "Axes":
        """Draw mean regret over time, or at the horizon over the swept parameter.

        Bands are at 95 %; over a parameter, "simultaneous" means all its values (Bonferroni). They
        need two replicates. The dashed line is Theorem 1: it is asymptotic, and DP-UCB-INT, which
        sees true rewards, is not bound by it. `bounds="both"` adds Corollary 2's tight leading
        term, for randomised response. Without `ax` a figure is made that pyplot does not know:
        `result.plot().figure.savefig("regret.pdf")`. On a log scale of regret time begins at 10;
        over a parameter the scale is log also where mean regrets span a decade.
        """
        from whitelie.simulation import plot  # noqa: PLC0415 (only plots need matplotlib)

        theory = plot.theory_of(bounds, self.problems)
        panel = plot.Panel(bands=bands, theory=theory, scale=regret)
        if self.coordinate is None:
            return panel.over_time(self.regret, self.problem, ax=ax, time=time)
        return panel.over_parameter(self._regret_at(None), self.problems, self.horizon, ax=ax)

    def plot_stops(
        self,
        ax: "Axes | None" = None,
        *,
        bands: Literal["pointwise", "simultaneous"] | None = "pointwise",
    ) -> "Axes":
        """Draw by how many reports which share of the replicates had a certificate.

        Over a swept parameter: the mean of the reports until then, where a replicate without a
        certificate counts with the horizon; `bands` are as in `plot`.
        """
        from whitelie.simulation import plot  # noqa: PLC0415 (only plots need matplotlib)

        stops = self.stops
        if self.coordinate is None:
            return plot.stopping_times(stops, self.horizon, ax=ax)
        panel = plot.Panel(bands=bands, quantity="reports until the certificate")
        return panel.over_parameter(stops["reports"], self.problems, self.horizon, ax=ax)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a row per policy, replicate and time: regret, and `pulls_NAME` for every arm."""
        arms = self.pulls["arm"].values
        pulls = {f"pulls_{name}": self.pulls.sel(arm=name, drop=True) for name in arms}
        return _table({"regret": self.regret, **pulls}).reset_index()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one compressed NetCDF4 file, whole or not at all.

        A result that is there already is replaced; anything else is left alone and refused.
        """
        write_file(self.dataset, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the result that `save` wrote; refuse a file that is damaged, foreign or newer.

        A file from a stranger can be tried: nothing but counts and what was run is read from it,
        nothing outside of it, and no more than it holds.
        """
        return cls(read_file(Path(path)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.dataset.identical(other.dataset)

    def __hash__(self) -> int:
        return hash(self.dataset.attrs["whitelie"])

    def __repr__(self) -> str:
        sizes = self.pulls.sizes
        swept = f"{len(self.cells)} values of {self.coordinate} × " if self.coordinate else ""
        mean = self.summary()["mean"]
        return (
            f"Result: {swept}{sizes['policy']} policies × {self.replicates:,} replicates × "
            f"{sizes['time']} times, {sizes['arm']} arms; mean regret at {self.horizon:,}:\n"
            f"{(mean.unstack(0) if swept else mean).to_string()}"
        )

    def _repr_html_(self) -> str:
        return self.dataset.assign(regret=self.regret)._repr_html_()

    def _stop_arrays(self) -> "tuple[Certificate, list[xr.DataArray]]":
        if self.stop is None:
            reason = "nobody looked for a certificate here: simulate with stop=Certificate()"
            raise InvalidInput("stop", None, reason)
        return self.stop, [self.dataset[name] for name in ("stop_reports", "stop_winner")]

    def _baseline(self, name: str) -> str:
        if name not in self.policies or len(self.policies) == 1:
            names = ", ".join(self.policies)
            raise InvalidInput("baseline", name, f"one of two policies or more, here: {names}")
        return name

    def _common(self, field: str) -> Any:
        first, *others = (getattr(cell, field) for cell in self.cells)
        if any(other != first for other in others):
            raise InvalidInput(field, self.coordinate, "it differs along the sweep: see `cells`")
        return first

    def _checkpoint(self, at: float | None) -> int:
        if at is None:
            return self.horizon
        times = self.pulls["time"].values
        if isinstance(at, bool) or not isinstance(at, Integral | float) or at not in times:
            shown = times if len(times) <= 8 else np.concatenate([times[:3], times[-3:]])
            some = ", ".join(map(str, shown))
            raise InvalidInput("at", at, f"choose a time at which pulls were counted, as {some}")
        return int(at)

    def _pulls_at(self, at: float | None) -> xr.DataArray:
        return self.pulls.sel(time=self._checkpoint(at), drop=True)

    def _regret_at(self, at: float | None) -> xr.DataArray:
        return _regret(self._pulls_at(at), self.dataset["gaps"])


def _regret(pulls: xr.DataArray, gaps: xr.DataArray) -> xr.DataArray:
    """Arms of equal gap are counted together first, so that equal costs give equal numbers."""
    regret = xr.zeros_like(pulls.isel(arm=0, drop=True), dtype=np.float64).rename("regret")
    for cell in np.ndindex(gaps.shape[:-1]):
        for gap in np.unique(gaps.values[cell]):
            alike = gaps.values[cell] == gap
            regret.values[cell] += gap * pulls.values[cell][..., alike].sum(axis=-1)
    return regret


def _table(columns: Mapping[Any, xr.DataArray]) -> "pd.DataFrame":
    return xr.Dataset(columns).to_dataframe()


def _dataset(
    counts: NDArray[Any],
    gaps: NDArray[np.float64],
    coordinates: Mapping[str, Any],
    cells: Sequence[Cell],
    stops: Stops | None = None,
) -> xr.Dataset:
    dimensions = tuple(coordinates)
    variables = {
        "pulls": (dimensions, counts.astype(np.int32, copy=False)),
        "gaps": ((*dimensions[:-4], "arm"), gaps),
        **(stop_variables(dimensions, *stops[1:]) if stops else {}),
    }
    return xr.Dataset(variables, coords=coordinates, attrs={"whitelie": write_cells(cells)})


def _checked_stop(stops: Stops | None, counts: NDArray[Any]) -> "Certificate | None":
    if stops is None:
        return None
    shapes = stops.reports.shape, stops.winner.shape
    if shapes != ((*counts.shape[:2], counts.shape[3]), counts.shape[:2]):
        raise InvalidInput("stops", shapes, "give reports and winner for each replicate")
    if any(array.dtype != np.int32 for array in stops[1:]):
        raise InvalidInput("stops", stops, "reports and winner are of type int32")
    if not are_sound(counts[:, :, -1], stops.reports, stops.winner):
        reason = "reports until the stop, and then the winner alone, must make the last pulls"
        raise InvalidInput("stops", stops, reason)
    return stops.certificate


def _times(times: Sequence[int]) -> NDArray[np.int64]:
    steps = np.asarray(times)
    if steps.ndim != 1 or not steps.size or steps.dtype.kind not in "iu":
        raise InvalidInput("times", times, "give at least one whole number of steps")
    if steps[0] < 1 or (steps[1:] <= steps[:-1]).any() or steps[-1] >= 2**31:
        raise InvalidInput("times", times, "numbers of steps increase from 1 or more, below 2^31")
    return steps.astype(np.int64)


def _arm_labels(problem: Problem) -> list[str]:
    if not isinstance(problem, Problem):
        raise InvalidInput("problem", problem, "give a whitelie.Problem")
    labels = [str(name) for name in problem.names]
    if len(set(labels)) < len(labels):
        raise InvalidInput("problem", problem.names, "two names of arms read the same as text")
    return labels


def _policies(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    if not isinstance(policies, Mapping) or not policies:
        raise InvalidInput("policies", policies, "give at least one, as {name: plain data}")
    for name in policies:
        if not isinstance(name, str) or not name:
            raise InvalidInput("policies", name, "a policy's name is a text")
    return {name: _plain(f"policies[{name!r}]", policy) for name, policy in policies.items()}


def _plain(field: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as JSON would store it, so that a loaded result equals the saved one."""
    try:
        return dict(json.loads(json.dumps(dict(data))))
    except (TypeError, ValueError) as error:
        reason = "give a dict of text, numbers, lists and dicts"
        raise InvalidInput(field, data, reason) from error


def _values(values: Sequence[Any], count: int) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.dtype.kind not in "iuf":
        labels = labels.astype(str)
    if labels.shape != (count,) or not count:
        raise InvalidInput("values", values, f"give one for each of the {count} results")
    if len(np.unique(labels)) < count or "nan" in labels.astype(str):
        raise InvalidInput("values", values, "they must be numbers or texts that all differ")
    return labels


def _check_pulls(counts: NDArray[Any], steps: NDArray[np.int64]) -> None:
    if counts.dtype.kind not in "iu" or counts.min() < 0:
        raise InvalidInput("pulls", counts, "counts are whole numbers from 0 up")
    if (counts.sum(axis=-1, dtype=np.int64) != steps).any():
        raise InvalidInput("pulls", counts, "after t steps the arms' pulls must sum to t")
