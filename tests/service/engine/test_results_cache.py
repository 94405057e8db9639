"""Results that many ask for, and streams of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.engine_cases import button
from helpers.in_process_service import KEYS, Line, serving
from whitelie.service.engine import results_cache
from whitelie.service.engine.keys import hash_of
from whitelie.service.experiment.results import Results, results_of

pytestmark = pytest.mark.anyio


async def test_results_that_many_ask_for_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        computed = []

        def compute(*arguments: Any, **more: Any) -> Results:
            computed.append(arguments)
            return results_of(*arguments, **more)

        monkeypatch.setattr(results_cache, "results_of", compute)
        await asyncio.gather(
            *(results_cache.latest_results(engine, learner, is_admin=True) for _ in range(20))
        )
        assert len(computed) == 1
        await engine.pipeline.decide(learner, 1)
        await asyncio.gather(
            *(results_cache.cached_results(engine, learner, is_admin=True) for _ in range(20))
        )
        assert len(computed) == 1  # a second has not passed
        results = await results_cache.latest_results(engine, learner, is_admin=True)
        assert sum(arm.issued for arm in results.arms) == 1
        assert len(computed) == 2


async def test_a_stream_ends_with_its_key(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        await button(served)
        line = Line.to(served.app, "GET", "/v1/experiments/button/stream", "reader")
        await line.send(b"")
        serving_it = line.start()
        assert (await line.from_app.get())["status"] == 200
        assert b"event: results" in (await line.from_app.get())["body"]
        served.store.delete_key(hash_of(KEYS["reader"]))
        await served.engine.directory.refresh()
        await asyncio.wait_for(serving_it, 60)
