"""A result as a file: what was run as JSON, the counts as NetCDF, and a SHA-256 over all."""

import hashlib
import json
import os
import secrets
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from whitelie.channel import AnyChannel, channel_from_dict
from whitelie.errors import InvalidInput, whole_number
from whitelie.problem import Problem
from whitelie.simulation.netcdf import MOST_FILE_BYTES, Variables, hdf5, read_text, read_variables

if TYPE_CHECKING:
    from whitelie.certificate import Certificate

FORMAT = 2
"""The version of the file format; a newer file is refused."""

FORMAT_WITHOUT_STOPS = 1
"""Results that stop at no certificate are written as they always were: any version reads them."""

_MARK = b"whitelie"
_CHECKSUM_BYTES = len(_MARK) + hashlib.sha256().digest_size
_REMEDY = "give a file as Result.save wrote it, or simulate again"


@dataclass(frozen=True)
class Cell:
    """One problem, the policies that ran on it as plain data, and how they were run."""

    problem: Problem
    policies: dict[str, dict[str, Any]]
    seed: int
    provenance: dict[str, Any]
    stop: "Certificate | None" = None


def write_cells(cells: Sequence[Cell]) -> str:
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
        {
            "problem": problem,
            "policies": cell.policies,
            "seed": cell.seed,
            "provenance": cell.provenance,
            **({"stop": cell.stop.to_dict()} if cell.stop else {}),
        }
        for cell, problem in zip(cells, problems, strict=True)
    ]
    channels = [channel.to_dict() for channel in number]
    version = FORMAT if any(cell.stop for cell in cells) else FORMAT_WITHOUT_STOPS
    return json.dumps({"format": version, "channels": channels, "cells": described})


def read_cells(text: str) -> tuple[Cell, ...]:
    """Return the cells that `write_cells` described, or refuse the text."""
    data = _json(text)
    try:
        channels = [channel_from_dict(channel) for channel in data["channels"]]
        return tuple(_cell(cell, channels) for cell in data["cells"])
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = f"incomplete or of a wrong type: {error!r}"
        raise InvalidInput("whitelie", text, reason) from error


def _cell(data: dict[str, Any], channels: Sequence[AnyChannel]) -> Cell:
    names, means, numbers = (data["problem"][key] for key in ("names", "means", "channels"))
    means_by_name = dict(zip(names, means, strict=True))
    places = [whole_number("channels", number, most=len(channels) - 1) for number in numbers]
    policies, provenance = data["policies"], data["provenance"]
    for name, value in {"provenance": provenance, "policies": policies, **policies}.items():
        if not isinstance(value, dict):
            raise InvalidInput(name, value, "this must be a table")
    problem = Problem(means_by_name, [channels[place] for place in places])
    seed = whole_number("seed", data["seed"], most=2**64 - 1)
    return Cell(
        problem, policies, seed, provenance, _stop(data["stop"]) if "stop" in data else None
    )


def _stop(data: dict[str, Any]) -> "Certificate":
    from whitelie.certificate import Certificate  # noqa: PLC0415 (the kernel is slow to import)

    return Certificate.from_dict(data)


def stop_variables(dimensions: tuple[str, ...], reports: Any, winner: Any) -> dict[str, Any]:
    """Return the variables of a result that stopped, with their dimensions; none without stops."""
    if reports is None:
        return {}
    replicate = dimensions[:-2]
    return {"stop_reports": ((*replicate, "arm"), reports), "stop_winner": (replicate, winner)}


def _storable(name: Hashable) -> str | int:
    return int(name) if isinstance(name, Integral) else str(name)


def write_file(dataset: xr.Dataset, path: Path) -> None:
    """Write NetCDF, then a mark and its SHA-256, which readers of NetCDF ignore."""
    if path.exists() and not (path.is_file() and _last_bytes(path).startswith(_MARK)):
        reason = "this file is not a whitelie result: choose a name that is free"
        raise InvalidInput("path", str(path), reason)
    if dataset["pulls"].nbytes > MOST_FILE_BYTES:
        reason = (
            f"the counts have more than {MOST_FILE_BYTES} bytes: save fewer times or replicates"
        )
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


def read_file(path: Path) -> xr.Dataset:
    """Return what `write_file` wrote, and refuse all else.

    The SHA-256 is checked first: a flipped bit could pass for a result, or hang the HDF5 library.
    It is no signature: whoever makes a file can make its checksum, so nothing in it is trusted.
    """
    content = _content(path)
    if (
        hashlib.sha256(content[:-_CHECKSUM_BYTES]).digest()
        != content[-_CHECKSUM_BYTES + len(_MARK) :]
    ):
        raise InvalidInput("path", str(path), "it was damaged after it was written; " + _REMEDY)
    try:
        with hdf5(content) as file:
            text = read_text(file, "whitelie")
            version = _format(text)
            if version > FORMAT:
                reason = f"a newer whitelie wrote it, in format {version} (here {FORMAT}): "
                raise InvalidInput("path", str(path), reason + "upgrade whitelie")
            cells = read_cells(text)
            stopped = any(cell.stop for cell in cells)
            variables = read_variables(file, content, stopped=stopped)
        _check_cells(cells, variables)
    except InvalidInput as error:
        if error.field == "path":
            raise
        raise InvalidInput("path", str(path), f"not a result: {error}; {_REMEDY}") from error
    dimensions = tuple(variables.labels)
    arrays = {
        "pulls": (dimensions, variables.pulls),
        "gaps": ((*dimensions[:-4], "arm"), variables.gaps),
        **stop_variables(dimensions, variables.stop_reports, variables.stop_winner),
    }
    return xr.Dataset(arrays, coords=variables.labels, attrs={"whitelie": text})


def _content(path: Path) -> bytes:
    """Return the bytes of a file that ends as results do; pipes, devices and zeros are not read."""
    try:
        if not path.is_file() and path.exists():
            raise InvalidInput("path", str(path), "it cannot be read: it is not a file")
        size = path.stat().st_size
        if not _last_bytes(path).startswith(_MARK):
            reason = "not a whole whitelie result: it is cut short, or something else wrote it; "
            raise InvalidInput("path", str(path), reason + _REMEDY)
        if size > MOST_FILE_BYTES:
            raise InvalidInput("path", str(path), f"it has more than {MOST_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput("path", str(path), f"it cannot be read: {error}") from error


def _format(text: str) -> int:
    data = _json(text)
    return whole_number("format", data.get("format") if isinstance(data, dict) else None, least=1)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("whitelie", text, f"this is not JSON: {error}") from None


def _check_cells(cells: Sequence[Cell], variables: Variables) -> None:
    """Refuse variables that do not fit what was run."""
    swept = variables.labels[next(iter(variables.labels))] if len(variables.labels) > 4 else [None]
    if len(cells) != len(swept):
        raise InvalidInput("cells", len(cells), f"there must be {len(swept)}, one per value")
    if any(cell.stop != cells[0].stop for cell in cells):
        raise InvalidInput("stop", cells[0].stop, "all cells must stop at the same certificate")
    arms, policies = variables.labels["arm"].tolist(), variables.labels["policy"].tolist()
    for cell, gaps in zip(cells, variables.gaps.reshape(len(cells), -1), strict=True):
        if [str(name) for name in cell.problem.names] != arms:
            raise InvalidInput("arm", arms, "these are not the arms of the problem")
        if not set(policies) <= set(cell.policies):
            raise InvalidInput("policy", policies, "not all of these policies were run")
        if gaps.tolist() != list(cell.problem.gaps):
            raise InvalidInput("gaps", gaps, "these are not the gaps of the problem")


def _last_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _CHECKSUM_BYTES))
        return file.read()
