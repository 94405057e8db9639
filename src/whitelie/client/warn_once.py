"""Warnings about the network, the service or the disk: one for each cause, never an exception."""

import threading
import warnings


class WhitelieWarning(UserWarning):
    """Something outside the program failed, and the program goes on; the text says what to do."""


class WarnOnce:
    """Warns once for each cause."""

    def __init__(self) -> None:
        self._causes: set[str] = set()
        self._lock = threading.Lock()

    def warn(self, cause: str, message: str) -> None:
        """Warn, unless there was a warning of this cause before."""
        with self._lock:
            if cause in self._causes:
                return
            self._causes.add(cause)
        warnings.warn(f"whitelie: {message}", WhitelieWarning, stacklevel=4)

    def warn_storage(self, failed: Exception) -> None:
        """Warn that the storage fails."""
        self.warn(
            "storage",
            f"the storage fails ({failed}), so that reports or rewards are not kept, or not sent "
            "now; make room, or give a storage that can be read, written and locked",
        )
