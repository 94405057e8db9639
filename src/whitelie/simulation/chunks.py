"""A folder that stores every finished chunk of replicates, so that a run can be resumed.

DIR/settings.json says which simulation the chunks belong to; DIR/chunks holds one array per chunk,
written under a temporary name and then renamed, so that a file is either whole or not there. The
policies are part of a chunk's name, not of the settings: a later run may ask for others, or for
more replicates.
"""

import hashlib
import json
import math
import os
import re
import reprlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from whitelie.certificate import Certificate
from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.numbers import NUMBERS
from whitelie.problem import Problem
from whitelie.simulation.stops import STOP_ROWS, rows_are_sound

FORMAT = 1
TEMPORARY_PREFIX = ".whitelie-"
CHUNK_FILE_NAME = re.compile(r"(\d+)-([0-9a-f]{16})-(\d+)-(\d+)\.npy")


def fingerprint(description: Any) -> str:
    """Return a short hash of plain data."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


class ChunkStore:
    """The chunks of one simulation: a seed, checkpoints, and a problem for each cell."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        problems: Sequence[Problem],
        seed: int,
        checkpoints: Array,
        stop: Certificate | None = None,
    ) -> None:
        self._chunks = Path(folder) / "chunks"
        self._checkpoints = checkpoints
        self._stops = stop is not None
        length = len(checkpoints) + (STOP_ROWS if self._stops else 0)
        self._shapes = [(length, len(problem.names)) for problem in problems]
        settings: dict[str, Any] = {
            "format": FORMAT,
            "kernel": NUMBERS,
            "seed": seed,
            "checkpoints": [int(time) for time in checkpoints],
            "problems": [problem.to_dict() for problem in problems],
        }
        if stop is not None:
            settings["stop"] = stop.to_dict()
        claim_folder("store", Path(folder), settings)
        self._chunks.mkdir(exist_ok=True)

    def save(self, cell: int, policy: Any, start: int, pulls: Array) -> None:
        """Store the pulls of consecutive replicates from `start` on."""
        name = f"{cell}-{fingerprint(policy)}-{start}-{start + len(pulls)}.npy"
        with _whole_file(self._chunks) as file:
            try:
                np.save(file, np.ascontiguousarray(pulls))
            except OSError:
                Path(file.name).unlink()
                raise
        Path(file.name).replace(self._chunks / name)

    def chunks(self, cell: int, policy: Any) -> Iterator[tuple[int, Array]]:
        """Yield (first replicate, pulls) of every whole chunk of a policy."""
        for path in sorted(self._chunks.iterdir()):
            match = CHUNK_FILE_NAME.fullmatch(path.name)
            if not match or match[1] != str(cell) or match[2] != fingerprint(policy):
                continue
            start, stop = int(match[3]), int(match[4])
            pulls = _read(path, (stop - start, *self._shapes[cell]))
            if pulls is not None and self._are_counts(pulls):
                yield start, pulls

    def _are_counts(self, pulls: Array) -> bool:
        at_checkpoints = pulls[:, : len(self._checkpoints)]
        sound = not self._stops or rows_are_sound(pulls)
        return sound and bool((at_checkpoints.sum(axis=-1) == self._checkpoints).all())


def claim_folder(field: str, folder: Path, settings: dict[str, Any]) -> None:
    """Claim a new or empty folder by its settings.json; refuse other settings, or a full disk."""
    try:
        _open_folder(field, folder, json.dumps(settings))
        tempfile.TemporaryFile(dir=folder).close()
    except TypeError:
        reason = "arm names must be text or whole numbers to be stored"
        raise InvalidInput(field, str(folder), reason) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = f"the folder cannot be used: {error}"
        raise InvalidInput(field, str(folder), reason) from error


def _open_folder(field: str, folder: Path, settings: str) -> None:
    """Claim a new or empty folder by its settings, all at once; else compare them."""
    path = folder / "settings.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if any(not entry.name.startswith(TEMPORARY_PREFIX) for entry in folder.iterdir()):
            if not path.exists():  # no other process has just claimed it
                reason = "the folder holds something else; choose another"
                raise InvalidInput(field, str(folder), reason)
        else:
            with _whole_file(folder) as file:
                file.write(settings.encode())
            with suppress(FileExistsError):
                os.link(file.name, path)
            Path(file.name).unlink()
    _check_same(field, folder, path, json.loads(settings))


def _check_same(field: str, folder: Path, path: Path, asked: dict[str, Any]) -> None:
    try:
        stored = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise InvalidInput(field, str(folder), "its settings.json is not whitelie's") from None
    if not isinstance(stored, dict):
        raise InvalidInput(field, str(folder), "its settings.json is not whitelie's")
    for key, value in asked.items():
        if key not in stored and key == "stop":
            raise InvalidInput(field, str(folder), _difference(key, None, value))
        if key not in stored:
            raise InvalidInput(field, str(folder), f"its settings.json does not say its {key}")
        if stored[key] != value:
            raise InvalidInput(field, str(folder), _difference(key, stored[key], value))
    for key in stored.keys() - asked.keys():
        raise InvalidInput(field, str(folder), _difference(key, stored[key], None))


def _difference(key: str, stored: Any, asked: Any) -> str:
    advice = "choose another folder, or ask for the same settings"
    if key == "kernel":
        return "it was made by a kernel that gives other numbers; choose another folder"
    if isinstance(stored, list) and isinstance(asked, list):
        if len(stored) != len(asked):
            return f"it was made with {len(stored)} {key}, not {len(asked)}; {advice}"
        place = next(i for i, value in enumerate(asked) if stored[i] != value)
        stored, asked, key = stored[place], asked[place], f"{key}[{place}]"
    if isinstance(stored, dict) and isinstance(asked, dict):
        names = [*asked, *(stored.keys() - asked.keys())]
        part = next(name for name in names if stored.get(name) != asked.get(name))
        stored, asked, key = stored.get(part), asked.get(part), f"{key}.{part}"
    if stored is None:
        return f"it was made without {key}, not with {reprlib.repr(asked)}; {advice}"
    if asked is None:
        return f"it was made with {key} {reprlib.repr(stored)}, not without; {advice}"
    return f"it was made with {key} {reprlib.repr(stored)}, not {reprlib.repr(asked)}; {advice}"


def _read(path: Path, shape: tuple[int, ...]) -> Array | None:
    """Return the array, or None if it is not what it should be: it is then computed again.

    The size that a header claims is compared with the file before any memory is allocated.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                return None
            header = np.lib.format.read_array_header_1_0(file)
            left = path.stat().st_size - file.tell()
            if header != (shape, False, np.dtype(np.int32)) or left != 4 * math.prod(shape):
                return None
            return np.fromfile(file, np.int32).reshape(shape)
    except (OSError, ValueError, EOFError):
        return None


def _whole_file(folder: Path) -> Any:
    """Open a temporary file that will be renamed, so that its final name never holds a part."""
    return tempfile.NamedTemporaryFile(dir=folder, prefix=TEMPORARY_PREFIX, delete=False)
