"""Where reports wait, and the ledger is kept: in memory, or in a folder that survives crashes."""

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

STATE, SENDING = "state", "sending"
"""The two locks: held while something is changed, and while reports are sent."""

_PARTIAL = ".partial"
_LOCKS = tuple(f"{name}.lock" for name in (STATE, SENDING))
_LONGEST = 200
"""Characters of a file's name; most systems allow 255, and a partial file has a longer name."""


class Storage(Protocol):
    """Texts by key, and locks that everybody who uses these texts shares.

    Every method may raise, before or after it has done its work: the client then does without
    the report or the reward in question, and says so.
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

    A text is written beside its place, flushed to disk and renamed. Windows lacks what this needs:
    there every use of a folder fails, and the client says so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._is_swept = False

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with suppress(FileNotFoundError):
            # What is damaged must be read to be seen as damaged, and removed.
            return self._file(key).read_text(encoding="utf-8", errors="replace")
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
        """Return the keys of all texts; for one that is too long, another that names its file."""
        if not self._path.exists():
            return []
        names = [file.name for file in self._path.iterdir()]
        return sorted(unquote(name) for name in names if not _is_reserved(name))

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other threads and processes out; a lock ends with the process that holds it."""
        fcntl = import_module("fcntl")  # at first use: Windows can import the rest
        self._make()
        descriptor = os.open(self._path / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if name == STATE:
                self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _file(self, key: str) -> Path:
        return self._path / _file_name(key)

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


def _file_name(key: str) -> str:
    name = quote(key, safe="")
    if len(name) > _LONGEST:
        # Nothing in it is quoted, so that the name is a key of the same file.
        start = re.match(r"[\w.]{0,40}", key, re.ASCII)
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        return f"{start[0] if start else ''}~{digest}"
    return name.replace(".", "%2E") if _is_reserved(name) else name


def _is_reserved(name: str) -> bool:
    """Return whether a file is a lock, or is half written."""
    return name in _LOCKS or name.endswith(_PARTIAL)


class StorageFailed(Exception):
    """The storage could not do what was asked; it may have done it all the same."""


class Shelf:
    """A storage that fails in one way only, by `StorageFailed`. It keeps nothing itself.

    A copy in memory of what could not be written would let a program that starts again send
    something else than it has sent before.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with _translated():
            return self._storage.get(key)

    def set(self, key: str, text: str) -> None:
        """Keep a text."""
        with _translated():
            self._storage.set(key, text)

    def remove(self, key: str) -> None:
        """Remove a text, if it is there."""
        with _translated():
            self._storage.remove(key)

    def keys_of(self, *prefixes: str) -> list[str]:
        """Return the keys that begin with one of these."""
        with _translated():
            return [key for key in self._storage.keys() if key.startswith(prefixes)]  # noqa: SIM118

    def items_of(self, *prefixes: str) -> dict[str, str]:
        """Return the texts whose keys begin with one of these."""
        found = {key: self.get(key) for key in self.keys_of(*prefixes)}
        return {key: text for key, text in found.items() if text is not None}

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep others out."""
        held = ExitStack()
        with _translated():
            held.enter_context(self._storage.lock(name))
        try:
            yield
        finally:
            with _translated():
                held.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a storage of the caller's own may raise anything
        raise StorageFailed(type(error).__name__) from error
