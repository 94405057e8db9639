"""What several files of tests share: results, a browser, a database server."""

import pytest

from helpers.chromium_page import chromium
from helpers.postgres_server import postgres
from helpers.processes import let_interrupts_through
from helpers.result_cases import NOISY, TIMES, two_arms, walks
from whitelie import Problem
from whitelie.simulation.result import Result

__all__ = ["chromium", "postgres", "small_result", "swept"]

LONGEST_SECONDS = 3 * 3600
"""What a test marked `long` may take."""

let_interrupts_through()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test waits without a limit; `timeout` in pyproject.toml is that of all others."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS))


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are marked `anyio` run on asyncio, as the service does."""
    return "asyncio"


@pytest.fixture
def small_result() -> Result:
    return two_arms(walks(1, 3, 20, TIMES))


@pytest.fixture
def swept() -> Result:
    cells = [
        two_arms(walks(n, 3, 20, TIMES), problem=Problem({"good": 0.75, "bad": mean}, NOISY))
        for n, mean in enumerate((0.5, 0.25, 0.125))
    ]
    return Result.stack(cells, "epsilon", [4.0, 0.25, 1.0])
