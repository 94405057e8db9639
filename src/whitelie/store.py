"""A folder that keeps every finished chunk of replicates, so that a run can be interrupted.

DIR/settings.json says what the chunks are of; DIR/chunks holds one array per chunk, written beside
its place and then renamed, so that a file is either whole or not there. The policies are part of a
chunk's name, not of the settings: a later run may ask for others, or for more replicates.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.jit import source_hash
from whitelie.problem import Problem

FORMAT = 1
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
        self._shapes = [(len(checkpoints), len(problem.names)) for problem in problems]
        settings = {
            "format": FORMAT,
            "kernel": source_hash(),
            "seed": seed,
            "checkpoints": [int(time) for time in checkpoints],
            "problems": [problem.to_dict() for problem in problems],
        }
        try:
            self._open(Path(folder), settings)
        except OSError as error:
            reason = f"the folder cannot be used as a store: {error.strerror or error}"
            raise InvalidInput("store", str(folder), reason) from error

    def _open(self, folder: Path, settings: dict[str, Any]) -> None:
        path = folder / "settings.json"
        if path.exists():
            _check_same(folder, path, settings)
        elif folder.exists() and any(folder.iterdir()):
            raise InvalidInput(
                "store", str(folder), "the folder holds something else; choose another"
            )
        self._chunks.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_whole(path, json.dumps(settings).encode())
        tempfile.TemporaryFile(dir=self._chunks).close()

    def save(self, cell: int, policy: Any, start: int, pulls: Array) -> None:
        """Keep the pulls of consecutive replicates from `start` on."""
        name = f"{cell}-{fingerprint(policy)}-{start}-{start + len(pulls)}.npy"
        with tempfile.NamedTemporaryFile(dir=self._chunks, delete=False) as file:
            np.save(file, pulls)
        Path(file.name).replace(self._chunks / name)

    def chunks(self, cell: int, policy: Any) -> Iterator[tuple[int, Array]]:
        """Yield (first replicate, pulls) of every whole chunk of a policy."""
        for path in sorted(self._chunks.iterdir()):
            match = CHUNK.fullmatch(path.name)
            if not match or match[1] != str(cell) or match[2] != fingerprint(policy):
                continue
            start, stop = int(match[3]), int(match[4])
            pulls = _read(path)
            if pulls is not None and pulls.shape == (stop - start, *self._shapes[cell]):
                yield start, pulls


def _check_same(folder: Path, path: Path, settings: dict[str, Any]) -> None:
    try:
        kept = json.loads(path.read_text())
    except ValueError:
        raise InvalidInput("store", str(folder), "its settings.json is not whitelie's") from None
    for key, asked in settings.items():
        if not isinstance(kept, dict) or key not in kept:
            raise InvalidInput("store", str(folder), f"its settings.json does not say its {key}")
        if kept[key] != json.loads(json.dumps(asked)):
            raise InvalidInput("store", str(folder), _difference(key, kept[key], asked))


def _difference(key: str, kept: Any, asked: Any) -> str:
    advice = "choose another folder, or ask for the same settings"
    if key == "checkpoints":
        kept, asked = f"{len(kept)} up to {kept[-1]}", f"{len(asked)} up to {asked[-1]}"
    if key == "problems":
        return f"it holds other problems (means or channels differ); {advice}"
    if key == "kernel":
        return "it was made by another version of the kernel; choose another folder"
    return f"it was made with {key} {kept}, not {asked}; {advice}"


def _read(path: Path) -> Array | None:
    """Return the array, or None if the disk lost part of it: it is then computed again."""
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None


def _write_whole(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
