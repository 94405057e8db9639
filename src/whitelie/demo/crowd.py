"""Starts and ends the process of the simulated visitors, and reads what it prints."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Self

from whitelie.demo.visitors import World

EXIT_TIMEOUT_SECONDS = 5.0


class CrowdProcess:
    """Visitors who come until the `with` block or this process ends."""

    def __init__(self, world: World, pace: float) -> None:
        self.pace = pace
        self.truth: dict[str, Any] = {
            "shown": dict.fromkeys(world.rates, 0),
            "clicks": dict.fromkeys(world.rates, 0),
            "reports": 0,
            "lies": 0,
            "leaks": 0,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "whitelie.demo.visitors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C reaches this process only, which then ends theirs
        )
        self._tell(json.dumps(world._asdict()))
        self.set_pace(pace)
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def set_pace(self, pace: float) -> None:
        """Let so many visitors come per second."""
        self.pace = pace
        self._tell(f"{pace:g}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listening.join()
        self._output.close()

    @property
    def _input(self) -> Any:
        return self._process.stdin

    @property
    def _output(self) -> Any:
        return self._process.stdout

    def _tell(self, line: str) -> None:
        with suppress(OSError):  # their process has ended: the page shows that nobody comes
            self._input.write(f"{line}\n")
            self._input.flush()

    def _listen(self) -> None:
        with suppress(ValueError):  # the last line may be incomplete
            for line in self._output:
                self.truth = json.loads(line)
