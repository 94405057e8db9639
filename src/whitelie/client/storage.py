"""Where reports wait, and the ledger is kept: in memory, or in a folder that survives crashes."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from whitelie.client.trouble import Trouble

STATE, SENDING = "state", "sending"
"""The two locks: held while something is changed, and while reports are sent."""

_PARTIAL = ".partial"
_LOCK = ".lock"


class Storage(Protocol):
    """Texts by key, and locks that everybody who uses these texts shares.

    Every method may raise: the client then goes on in memory.
    """

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""

    def set(self, key: str, text: str) -> None:
        """Keep a text; it survives a crash whole, or the old one does. Called under `STATE`."""

    def remove(self, key: str) -> None:
        """Remove a text, if it is there. Called under `STATE`."""

    def keys(self) -> list[str]:
        """Return the keys of all texts."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Return a lock that keeps other threads and processes out."""


class Memory:
    """Texts that live as long as the program."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._locks = {name: threading.Lock() for name in (STATE, SENDING)}

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        return self._texts.get(key)

    def set(self, key: str, text: str) -> None:
        """Keep a text."""
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

    A text is written beside its place, flushed to disk and renamed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._is_swept = False

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with suppress(FileNotFoundError):
            return self._file(key).read_text(encoding="utf-8")
        return None

    def set(self, key: str, text: str) -> None:
        """Keep a text."""
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
        """Return the keys of all texts."""
        if not self._path.exists():
            return []
        names = [file.name for file in self._path.iterdir()]
        return sorted(unquote(name) for name in names if not name.endswith((_PARTIAL, _LOCK)))

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other threads and processes out; a lock ends with the process that holds it."""
        fcntl = import_module("fcntl")  # Windows lacks it: there reports wait in memory
        self._make()
        descriptor = os.open(self._path / (name + _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if name == STATE:
                self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _file(self, key: str) -> Path:
        return self._path / quote(key, safe="")

    def _make(self) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _sweep(self) -> None:
        """Remove what a crash left half written; under the lock nobody else is writing."""
        if not self._is_swept:
            for partial in self._path.glob(f"*{_PARTIAL}"):
                partial.unlink()
            self._is_swept = True

    def _flush(self) -> None:
        """Make renamed and removed files last."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Shelf:
    """A storage that does not fail: what it cannot write or remove is remembered in memory."""

    def __init__(self, storage: Storage, trouble: Trouble) -> None:
        self._storage = storage
        self._trouble = trouble
        self._differs: dict[str, str | None] = {}
        self._unread: set[str] = set()
        self._locks = {name: threading.Lock() for name in (STATE, SENDING)}

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        if key in self._differs:
            return self._differs[key]
        try:
            return self._storage.get(key)
        except Exception as error:
            self._unread.add(key)
            self._warn(error)
            return None

    def set(self, key: str, text: str) -> None:
        """Keep a text, in memory if need be."""
        self._change(key, text)

    def remove(self, key: str) -> None:
        """Remove a text; if that fails it is not seen any more."""
        self._change(key, None)

    def keys_of(self, prefix: str) -> list[str]:
        """Return the keys that begin so."""
        try:
            stored = self._storage.keys()
        except Exception as error:
            stored = []
            self._warn(error)
        known = dict.fromkeys([*stored, *self._differs])
        present = [key for key in known if self._differs.get(key, "") is not None]
        return [key for key in present if key.startswith(prefix)]

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep others out; if the storage cannot, at least other threads of this client."""
        with ExitStack() as held:
            held.enter_context(self._locks[name])
            try:
                held.enter_context(self._storage.lock(name))
            except Exception as error:
                self._warn(error)
            yield

    def _change(self, key: str, text: str | None) -> None:
        if text is not None and key in self._unread:  # it may hold what must not be lost
            self._differs[key] = text
            return
        try:
            if text is None:
                self._storage.remove(key)
            else:
                self._storage.set(key, text)
        except Exception as error:
            self._differs[key] = text
            self._warn(error)
        else:
            self._differs.pop(key, None)

    def _warn(self, error: Exception) -> None:
        self._trouble.warn(
            "storage",
            f"the storage fails ({type(error).__name__}), so reports wait in memory and are lost "
            "when the program ends; make room, or give a storage that can be written",
        )
