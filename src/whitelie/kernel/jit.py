"""The one jit decorator, and a disk cache that can never serve stale code.

numba stamps a cached function with its own source file only: when a callee in another file
changes, the cached caller would go on with the old one. So the cache directory is named after a
hash of all sources of this package. It lies in NUMBA_CACHE_DIR if that is set, else in the user's
cache folder; where neither can be written, every process compiles for itself.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def source_hash() -> str:
    """Return a hash of every source file of the kernel: equal hashes, equal compiled code."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cache_directory() -> str | None:
    try:
        user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        base = Path(numba.config.CACHE_DIR or user_cache / "whitelie")
        directory = base / f"kernel-{source_hash()}"
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except (OSError, RuntimeError):  # no right to write there, or no home at all
        return None
    return str(directory)


CACHE_DIRECTORY = _cache_directory()


def jit(function: Function) -> Function:
    """Compile the function without the interpreter lock, and cache it on disk."""
    numba_directory = numba.config.CACHE_DIR
    try:
        # Read once, when the dispatcher is made: other users of numba keep their own directory.
        numba.config.CACHE_DIR = CACHE_DIRECTORY or ""
        compiled = numba.njit(cache=CACHE_DIRECTORY is not None, nogil=True, error_model="numpy")
        return cast(Function, compiled(function))
    finally:
        numba.config.CACHE_DIR = numba_directory
