"""The one jit decorator, and a disk cache that can never serve stale code.

numba stamps a cached function with its own source file only: when a callee in another file
changes, the cached caller would go on with the old one. So the cache directory is named after a
hash of all sources with compiled code. It lies in NUMBA_CACHE_DIR if that is set, else in the
user's cache folder; where neither can be written, every process compiles for itself.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


OPTIONS = {"nogil": True, "error_model": "numpy"}
"""How everything is compiled."""

INLINE = {**OPTIONS, "forceinline": True}
"""How small functions of a whole state are compiled: handing over its arrays costs more."""

SOURCES = ("kernel", "policy")
"""The folders of this package that hold compiled code: the loops, and the policies' rules."""


def source_hash() -> str:
    """Return a hash of every file with compiled code: equal hashes, equal compiled code."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(path for folder in SOURCES for path in (package / folder).glob("*.py")):
        name = path.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
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
    return _compile(function, OPTIONS)


def jit_inline(function: Function) -> Function:
    """Compile the function into each of its callers."""
    return _compile(function, INLINE)


def _compile(function: Function, options: dict[str, Any]) -> Function:
    numba_directory = numba.config.CACHE_DIR
    try:
        # Read once, when the dispatcher is made: other users of numba keep their own directory.
        numba.config.CACHE_DIR = CACHE_DIRECTORY or ""
        compiled = numba.njit(cache=CACHE_DIRECTORY is not None, **options)(function)
    finally:
        numba.config.CACHE_DIR = numba_directory
    if CACHE_DIRECTORY is not None and hasattr(compiled, "py_func"):
        compiled._cache = _KeepOwnRules(compiled._cache)
    return cast(Function, compiled)


class _KeepOwnRules:
    """A disk cache that leaves out what was compiled for rules from outside this package.

    Their sources are not in the hash, so after an edit the cache would serve stale code.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what is stored for a signature, or None."""
        return None if _is_foreign(signature) else self._cache.load_overload(signature, context)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store what was compiled for a signature."""
        if not _is_foreign(signature):
            self._cache.save_overload(signature, compiled)


def _is_foreign(kinds: Any) -> bool:
    """Whether a NamedTuple from outside this package is among types, or inside one of them."""
    for kind in getattr(kinds, "args", kinds):
        if isinstance(kind, numba.types.BaseNamedTuple):
            package = kind.instance_class.__module__.partition(".")[0]
            if package != __name__.partition(".")[0] or _is_foreign(kind.types):
                return True
    return False
