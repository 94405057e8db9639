"""What a simulation found: labelled pull counts, and what follows from them.

`Result` interprets counts and never simulates. Its regret is pseudo-regret, Σ_a Δ_a·N_a(t): what
the choices cost in expectation, free of the noise of single rewards.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from whitelie.bands import differences, simultaneous_band, t_interval
from whitelie.channel import channel_from_dict
from whitelie.errors import InvalidInput, whole_number
from whitelie.problem import Problem

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FORMAT = 1
"""The version of the file format; a newer file is refused."""

_DIMENSIONS = ("policy", "replicate", "time", "arm")
_TAKEN = {*_DIMENSIONS, "pulls", "gaps", "regret", "mean", "standard_error", "lower", "upper"}
_MARK = b"whitelie"
_TAIL = len(_MARK) + hashlib.sha256().digest_size
_REMEDY = "give a file as Result.save wrote it, or simulate again"


@dataclass(frozen=True)
class Cell:
    """One problem, the policies that ran on it as plain data, and how they were run."""

    problem: Problem
    policies: dict[str, dict[str, Any]]
    seed: int
    provenance: dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Pull counts of policies on one problem, or on one problem per value of a swept parameter.

    Arrays are labelled by policy, replicate, time and arm, after the parameter if there is one.
    Arm names other than text and integers are kept as their text.

    >>> found = Result.from_pulls(
    ...     [[[[1, 1], [5, 3]], [[1, 1], [7, 1]]]],
    ...     problem=Problem({"red": 0.75, "blue": 0.5}),
    ...     policies={"TS-CF": {"name": "TS"}},
    ...     times=[2, 8],
    ...     seed=1,
    ...     provenance={},
    ... )
    >>> found.regret.values.tolist()
    [[[0.25, 0.75], [0.25, 0.25]]]
    >>> found.summary()[["mean", "best_share"]].loc["TS-CF"].tolist()
    [0.5, 0.75]
    """

    dataset: xr.Dataset

    @classmethod
    def from_pulls(
        cls,
        pulls: ArrayLike,
        *,
        problem: Problem,
        policies: Mapping[str, Mapping[str, Any]],
        times: Sequence[int],
        seed: int,
        provenance: Mapping[str, Any],
    ) -> Self:
        """Return the result of one problem from counts by (policy, replicate, time, arm).

        `policies` describes each policy by plain data, in the order of the first axis; `times` are
        the steps after which pulls were counted, and at time t they sum to t.
        """
        steps, arms, counts = _times(times), _arm_labels(problem), np.asarray(pulls)
        described = _policies(policies)
        sizes = (len(described), *counts.shape[1:2], len(steps), len(arms))
        if counts.ndim != 4 or counts.shape != sizes or not counts.size:
            shape = f"({len(described)} policies, replicates, {len(steps)} times, {len(arms)} arms)"
            raise InvalidInput("pulls", counts.shape, f"the shape must be {shape}")
        _check_pulls(counts, steps)
        number = whole_number("seed", seed, most=2**64 - 1)
        cell = Cell(problem, described, number, _plain("provenance", provenance))
        labels = (list(described), np.arange(sizes[1]), steps, arms)
        coordinates = dict(zip(_DIMENSIONS, labels, strict=True))
        return cls(_dataset(counts, np.array(problem.gaps), coordinates, [cell]))

    @classmethod
    def stack(cls, results: Sequence[Self], coordinate: str, values: Sequence[Any]) -> Self:
        """Join results of several problems along a new first dimension, such as "epsilon".

        They must agree in the names of policies and arms, in times and number of replicates.
        """
        labels = _values(values, len(results))
        if not isinstance(coordinate, str) or not coordinate or coordinate in _TAKEN:
            raise InvalidInput("coordinate", coordinate, f"give a name, none of {sorted(_TAKEN)}")
        first = results[0]
        for result in results:
            if result.coordinate is not None:
                raise InvalidInput("results", result.coordinate, "one is already stacked over this")
            for dimension in _DIMENSIONS:
                if not result.pulls[dimension].equals(first.pulls[dimension]):
                    raise InvalidInput("results", dimension, "this differs between the results")
        coordinates = {coordinate: labels, **{d: first.pulls[d].values for d in _DIMENSIONS}}
        counts = np.stack([result.pulls.values for result in results])
        gaps = np.stack([result.dataset["gaps"].values for result in results])
        return cls(_dataset(counts, gaps, coordinates, [result.cells[0] for result in results]))

    @property
    def pulls(self) -> xr.DataArray:
        """How often each arm was pulled: (policy, replicate, time, arm), N_a(t) in the paper."""
        return self.dataset["pulls"]

    @cached_property
    def regret(self) -> xr.DataArray:
        """The pseudo-regret Σ_a Δ_a·N_a(t): (policy, replicate, time)."""
        return _regret(self.pulls, self.dataset["gaps"])

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """What was run: one cell, or one for each value of the swept parameter."""
        return _read_cells(self.dataset.attrs["whitelie"])

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
        if baseline not in self.policies or len(self.policies) == 1:
            names = ", ".join(self.policies)
            raise InvalidInput("baseline", baseline, f"one of two policies or more, here: {names}")
        return differences(self._regret_at(at), baseline).to_dataframe()

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
        bands: Literal["pointwise", "simultaneous"] | None = "pointwise",
        bounds: Literal["both"] | bool = True,
    ) -> "Axes":
        """Draw mean regret over time, or at the horizon over the swept parameter.

        Bands are at 95 %; over a parameter, "simultaneous" means all its values (Bonferroni). They
        need two replicates. The dashed line is Theorem 1: it is asymptotic, and DP-UCB-INT, which
        sees true rewards, is not bound by it. `bounds="both"` adds Corollary 2's tight leading
        term, for randomised response. Without `ax` a figure is made that pyplot does not know:
        `result.plot().figure.savefig("regret.pdf")`.
        """
        from whitelie import figure  # noqa: PLC0415 (only plots need matplotlib)

        panel = figure.Panel(bands=bands, bounds=bounds)
        if self.coordinate is None:
            return panel.over_time(self.regret, self.problem, ax=ax, time=time)
        return panel.over_parameter(self._regret_at(None), self.problems, self.horizon, ax=ax)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a row per policy, replicate and time: regret, and `pulls_NAME` for every arm."""
        arms = self.pulls["arm"].values
        pulls = {f"pulls_{name}": self.pulls.sel(arm=name, drop=True) for name in arms}
        return _table({"regret": self.regret, **pulls}).reset_index()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one compressed NetCDF4 file, whole or not at all.

        A result that is there already is replaced; anything else is left alone and refused.
        """
        _write_file(self.dataset, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the result that `save` wrote; refuse a file that is damaged, foreign or newer."""
        return cls(_read_file(Path(path)))

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
) -> xr.Dataset:
    dimensions = tuple(coordinates)
    variables = {
        "pulls": (dimensions, counts.astype(np.int32, copy=False)),
        "gaps": ((*dimensions[:-4], "arm"), gaps),
    }
    return xr.Dataset(variables, coords=coordinates, attrs={"whitelie": _write_cells(cells)})


def _write_cells(cells: Sequence[Cell]) -> str:
    """Return JSON in which channels are listed once and numbered: a table has 65,537 points."""
    every = [channel for cell in cells for channel in cell.problem.channels]
    number = {channel: place for place, channel in enumerate(dict.fromkeys(every))}
    problems = [
        {
            "names": [_storable(name) for name in cell.problem.names],
            "means": cell.problem.means,
            "channels": [number[channel] for channel in cell.problem.channels],
        }
        for cell in cells
    ]
    described = [
        {**vars(cell), "problem": problem} for cell, problem in zip(cells, problems, strict=True)
    ]
    channels = [channel.to_dict() for channel in number]
    return json.dumps({"format": FORMAT, "channels": channels, "cells": described})


def _read_cells(text: str) -> tuple[Cell, ...]:
    data = json.loads(text)
    channels = [channel_from_dict(channel) for channel in data["channels"]]
    cells = []
    for cell in data["cells"]:
        names, means, numbers = (cell["problem"][key] for key in ("names", "means", "channels"))
        means_by_name = dict(zip(names, means, strict=True))
        problem = Problem(means_by_name, [channels[number] for number in numbers])
        cells.append(Cell(**{**cell, "problem": problem}))
    return tuple(cells)


def _storable(name: Hashable) -> str | int:
    return int(name) if isinstance(name, Integral) else str(name)


def _write_file(dataset: xr.Dataset, path: Path) -> None:
    """Write NetCDF, then a mark and the SHA-256 of it, which readers of NetCDF do not see."""
    if path.exists() and not (path.is_file() and _tail(path).startswith(_MARK)):
        reason = "something is there that is not a whitelie result: choose a name that is free"
        raise InvalidInput("path", str(path), reason)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    compressed = {"pulls": {"zlib": True, "complevel": 4, "shuffle": True}}
    try:
        dataset.to_netcdf(unfinished, engine="h5netcdf", encoding=compressed)
        with unfinished.open("r+b") as file:
            file.write(_MARK + hashlib.file_digest(file, "sha256").digest())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInput("path", str(path), f"it cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _read_file(path: Path) -> xr.Dataset:
    """Check the SHA-256 first: a flipped bit can pass for a finding, or hang the HDF5 library."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput("path", str(path), f"it cannot be read: {error}") from error
    if not content[-_TAIL:].startswith(_MARK):
        reason = "not a whole whitelie result: it is cut short, or something else wrote it; "
        raise InvalidInput("path", str(path), reason + _REMEDY)
    if hashlib.sha256(content[:-_TAIL]).digest() != content[-_TAIL + len(_MARK) :]:
        raise InvalidInput("path", str(path), "damaged since it was written; " + _REMEDY)
    dataset = xr.load_dataset(BytesIO(content), engine="h5netcdf").drop_encoding()
    version = json.loads(dataset.attrs["whitelie"])["format"]
    if version > FORMAT:
        reason = f"a newer whitelie wrote it, in format {version} (here {FORMAT}): upgrade whitelie"
        raise InvalidInput("path", str(path), reason)
    return dataset


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read()


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
