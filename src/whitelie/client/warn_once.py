"""What goes wrong outside: the network, the service, the disk. It is said once and never raised."""

import threading
import warnings


class WhitelieWarning(UserWarning):
    """Something went wrong and the program goes on; the text says what to do."""


class Trouble:
    """Warns once for each cause."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def warn(self, cause: str, message: str) -> None:
        """Say it, unless this cause was named before."""
        with self._lock:
            if cause in self._known:
                return
            self._known.add(cause)
        warnings.warn(f"whitelie: {message}", WhitelieWarning, stacklevel=4)

    def warn_storage(self, failed: Exception) -> None:
        """Say that the storage fails."""
        self.warn(
            "storage",
            f"the storage fails ({failed}), so that reports or rewards are not kept, or not sent "
            "now; make room, or give a storage that can be read, written and locked",
        )
