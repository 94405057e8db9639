"""What several files of tests share: results, a browser, a database server."""

import pytest

from browser import chromium
from postgres import postgres
from results import NOISY, TIMES, two_arms, walks
from whitelie import Problem
from whitelie.result import Result

__all__ = ["chromium", "found", "postgres", "swept"]


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are marked `anyio` run on asyncio, as the service does."""
    return "asyncio"


@pytest.fixture
def found() -> Result:
    return two_arms(walks(1, 3, 20, TIMES))


@pytest.fixture
def swept() -> Result:
    cells = [
        two_arms(walks(n, 3, 20, TIMES), problem=Problem({"good": 0.75, "bad": mean}, NOISY))
        for n, mean in enumerate((0.5, 0.25, 0.125))
    ]
    return Result.stack(cells, "epsilon", [4.0, 0.25, 1.0])
