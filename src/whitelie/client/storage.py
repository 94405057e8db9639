"""Where a client stores reports and its ledger: in memory, or in a folder that survives crashes."""

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from whitelie.errors import WhitelieError

STATE_LOCK, SENDING_LOCK = "state", "sending"
"""The two locks: one is taken to change something, the other to send reports."""

_PARTIAL = ".partial"
_LOCKS = tuple(f"{name}.lock" for name in (STATE_LOCK, SENDING_LOCK))
_MAX_NAME_CHARACTERS = 200
"""Most systems allow 255 in a file's name, and the name of a partial file is longer."""


class Storage(Protocol):
    """Texts by key, and locks that all users of these texts share.

    Every method may raise any exception, before or after it has done its work: the client then
    gives up the report or the reward concerned, and warns.
    """

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""

    def set(self, key: str, text: str) -> None:
        """Store a text atomically: after a crash there is the new one or the old one.

        Called under `STATE_LOCK`.
        """

    def remove(self, key: str) -> None:
        """Remove a text, if it is there. Called under `STATE_LOCK`."""

    def keys(self) -> list[str]:
        """Return the keys of all texts."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Return a lock against other threads and processes."""


class Memory:
    """Texts that live as long as the program."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._locks = {name: threading.Lock() for name in (STATE_LOCK, SENDING_LOCK)}

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        return self._texts.get(key)

    def set(self, key: str, text: str) -> None:
        """Store a text."""
        self._texts[key] = text

    def remove(self, key: str) -> None:
        """Remove a text, if it is there."""
        self._texts.pop(key, None)

    def keys(self) -> list[str]:
        """Return the keys of all texts."""
        return list(self._texts)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other threads out."""
        with self._locks[name]:
            yield


class Folder:
    """A file for each text, which only its owner can read; many processes may share the folder.

    A text is written beside its place, flushed to disk and renamed. Windows lacks what this needs:
    there every use of a folder fails, and the client says so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._is_swept = False

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with suppress(FileNotFoundError):
            # A damaged text must be readable, so that the client sees the damage and removes it.
            return self._file(key).read_text(encoding="utf-8", errors="replace")
        return None

    def set(self, key: str, text: str) -> None:
        """Store a text."""
        self._make()
        file = self._file(key)
        partial = file.with_name(file.name + _PARTIAL)
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as written:
                written.write(text)
                written.flush()
                os.fsync(descriptor)
            partial.replace(file)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self._flush()

    def remove(self, key: str) -> None:
        """Remove a text, if it is there."""
        with suppress(FileNotFoundError):
            self._file(key).unlink()
            self._flush()

    def keys(self) -> list[str]:
        """Return the keys of all texts; for one that is too long, another that names its file."""
        if not self._path.exists():
            return []
        names = [file.name for file in self._path.iterdir()]
        return sorted(unquote(name) for name in names if not _is_reserved(name))

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lock out other threads and processes; the lock ends with the process that has it."""
        fcntl = import_module("fcntl")  # here, so that Windows can import the rest
        self._make()
        descriptor = os.open(self._path / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if name == STATE_LOCK:
                self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _file(self, key: str) -> Path:
        return self._path / _file_name(key)

    def _make(self) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _sweep(self) -> None:
        """Remove files that a crash left half written; under the lock nobody else writes."""
        if not self._is_swept:
            for partial in self._path.glob(f"*{_PARTIAL}"):
                partial.unlink()
            self._is_swept = True

    def _flush(self) -> None:
        """Make renames and removals durable."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_name(key: str) -> str:
    name = quote(key, safe="")
    if len(name) > _MAX_NAME_CHARACTERS:
        # The name has nothing to quote, so used as a key it leads to the same file.
        start = re.match(r"[\w.]{0,40}", key, re.ASCII)
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        return f"{start[0] if start else ''}~{digest}"
    return name.replace(".", "%2E") if _is_reserved(name) else name


def _is_reserved(name: str) -> bool:
    """Return whether a file is a lock, or is half written."""
    return name in _LOCKS or name.endswith(_PARTIAL)


class StorageFailed(WhitelieError):
    """The storage raised; it may have done its work nevertheless."""


class StorageAdapter:
    """A storage that raises nothing but `StorageFailed`. It caches nothing.

    If it cached what could not be written, a program that restarts could send something else than
    it has sent before.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with _translated():
            return self._storage.get(key)

    def set(self, key: str, text: str) -> None:
        """Store a text."""
        with _translated():
            self._storage.set(key, text)

    def remove(self, key: str) -> None:
        """Remove a text, if it is there."""
        with _translated():
            self._storage.remove(key)

    def keys_of(self, *prefixes: str) -> list[str]:
        """Return the keys that begin with one of these."""
        with _translated():
            return [key for key in self._storage.keys() if key.startswith(prefixes)]

    def items_of(self, *prefixes: str) -> dict[str, str]:
        """Return the texts whose keys begin with one of these."""
        texts = {key: self.get(key) for key in self.keys_of(*prefixes)}
        return {key: text for key, text in texts.items() if text is not None}

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lock out others."""
        lock = ExitStack()
        with _translated():
            lock.enter_context(self._storage.lock(name))
        try:
            yield
        finally:
            with _translated():
                lock.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a storage of the caller's own may raise anything
        raise StorageFailed(type(error).__name__) from error
