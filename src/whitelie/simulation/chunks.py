"""A folder that keeps every finished chunk of replicates, so that a run can be interrupted.

DIR/settings.json says what the chunks are of; DIR/chunks holds one array per chunk, written beside
its place and then renamed, so that a file is either whole or not there. The policies are part of a
chunk's name, not of the settings: a later run may ask for others, or for more replicates.
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

from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.jit import source_hash
from whitelie.problem import Problem

FORMAT = 1
TEMPORARY = ".whitelie-"
CHUNK = re.compile(r"(\d+)-([0-9a-f]{16})-(\d+)-(\d+)\.npy")


def fingerprint(description: Any) -> str:
    """Return a short hash of plain data."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """The chunks of one simulation: a seed, checkpoints, and a problem for each cell."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        problems: Sequence[Problem],
        seed: int,
        checkpoints: Array,
    ) -> None:
        self._chunks = Path(folder) / "chunks"
        self._checkpoints = checkpoints
        self._shapes = [(len(checkpoints), len(problem.names)) for problem in problems]
        settings = {
            "format": FORMAT,
            "kernel": source_hash(),
            "seed": seed,
            "checkpoints": [int(time) for time in checkpoints],
            "problems": [problem.to_dict() for problem in problems],
        }
        claim_folder("store", Path(folder), settings)
        self._chunks.mkdir(exist_ok=True)

    def save(self, cell: int, policy: Any, start: int, pulls: Array) -> None:
        """Keep the pulls of consecutive replicates from `start` on."""
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
            match = CHUNK.fullmatch(path.name)
            if not match or match[1] != str(cell) or match[2] != fingerprint(policy):
                continue
            start, stop = int(match[3]), int(match[4])
            pulls = _read(path, (stop - start, *self._shapes[cell]))
            if pulls is not None and (pulls.sum(axis=-1) == self._checkpoints).all():
                yield start, pulls


def claim_folder(field: str, folder: Path, settings: dict[str, Any]) -> None:
    """Claim a new or empty folder by its settings.json; refuse one that has others, or no room."""
    try:
        _open_folder(field, folder, json.dumps(settings))
        tempfile.TemporaryFile(dir=folder).close()
    except TypeError:
        reason = "arm names must be text or whole numbers to be kept"
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
        if any(not entry.name.startswith(TEMPORARY) for entry in folder.iterdir()):
            if not path.exists():  # nobody else was quicker
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
        kept = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise InvalidInput(field, str(folder), "its settings.json is not whitelie's") from None
    for key, value in asked.items():
        if not isinstance(kept, dict) or key not in kept:
            raise InvalidInput(field, str(folder), f"its settings.json does not say its {key}")
        if kept[key] != value:
            raise InvalidInput(field, str(folder), _difference(key, kept[key], value))


def _difference(key: str, kept: Any, asked: Any) -> str:
    advice = "choose another folder, or ask for the same settings"
    if key == "kernel":
        return "it was made by another version of the kernel; choose another folder"
    if isinstance(kept, list) and isinstance(asked, list):
        if len(kept) != len(asked):
            return f"it was made with {len(kept)} {key}, not {len(asked)}; {advice}"
        place = next(i for i, value in enumerate(asked) if kept[i] != value)
        kept, asked, key = kept[place], asked[place], f"{key}[{place}]"
    if isinstance(kept, dict) and isinstance(asked, dict):
        names = [*asked, *(kept.keys() - asked.keys())]
        part = next(name for name in names if kept.get(name) != asked.get(name))
        kept, asked, key = kept.get(part), asked.get(part), f"{key}.{part}"
    return f"it was made with {key} {reprlib.repr(kept)}, not {reprlib.repr(asked)}; {advice}"


def _read(path: Path, shape: tuple[int, ...]) -> Array | None:
    """Return the array, or None if it is not what it should be: it is then computed again.

    No memory is taken for what a header claims before the file is seen to hold it.
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
    """Open a file that is not yet in its place, so that its place never holds part of it."""
    return tempfile.NamedTemporaryFile(dir=folder, prefix=TEMPORARY, delete=False)
