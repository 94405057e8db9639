"""A result as a file: what was run as JSON, the counts as NetCDF, and a SHA-256 over all."""

import hashlib
import json
import os
import secrets
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Any

import xarray as xr

from whitelie.channel import channel_from_dict
from whitelie.errors import InvalidInput
from whitelie.problem import Problem

FORMAT = 1
"""The version of the file format; a newer file is refused."""

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
        {**vars(cell), "problem": problem} for cell, problem in zip(cells, problems, strict=True)
    ]
    channels = [channel.to_dict() for channel in number]
    return json.dumps({"format": FORMAT, "channels": channels, "cells": described})


def read_cells(text: str) -> tuple[Cell, ...]:
    """Return the cells that `write_cells` described."""
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


def write_file(dataset: xr.Dataset, path: Path) -> None:
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


def read_file(path: Path) -> xr.Dataset:
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
