"""Results as files: the same again, and nothing else is taken for one or replaced."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from helpers.result_cases import TABLE, TIMES, two_arms, walks
from whitelie import InvalidInput, Problem, RandomizedResponse
from whitelie.simulation import archive as module
from whitelie.simulation.result import Result


def test_saved_and_loaded_is_the_same(tmp_path: Path, small_result: Result, swept: Result) -> None:
    odd = Problem({("a", 1): 0.75, 2: 0.5}, [TABLE, RandomizedResponse.from_epsilon(1)])
    provenance = {"versions": {"numpy": "2"}, "Δ": [0.1, None, True]}
    strange = two_arms(walks(1, 3, 5, TIMES), problem=odd, provenance=provenance)
    for number, result in enumerate((small_result, swept, strange)):
        path = tmp_path / f"{number}.nc"
        result.save(path)
        loaded = Result.load(str(path))
        assert loaded == result
        assert hash(loaded) == hash(result)
        assert loaded.cells == result.cells
        assert loaded.pulls.dtype == np.int32
        assert loaded.summary().equals(result.summary())
    assert loaded.problem == Problem({"('a', 1)": 0.75, 2: 0.5}, odd.channels)
    assert loaded.provenance == provenance
    assert loaded.cells[0].policies["mine"] == {"name": "mine"}
    assert small_result != two_arms(walks(1, 3, 20, TIMES), seed=8)
    with xr.open_dataset(tmp_path / "0.nc", engine="h5netcdf") as foreign_reader:
        assert foreign_reader["pulls"].equals(small_result.pulls)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as refusal:
        act()
    assert refusal.value.field == "path"
    return refusal.value.reason


def test_damaged_and_foreign_files_are_refused(tmp_path: Path, small_result: Result) -> None:
    path, other = tmp_path / "result.nc", tmp_path / "other.nc"
    small_result.save(path)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 41, len(whole) - 1):
        other.write_bytes(whole[:length])
        assert "cut short" in refused(lambda: Result.load(other))
    for place in range(0, len(whole) - 40, 1111):
        other.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "damaged" in refused(lambda: Result.load(other))
    small_result.dataset.to_netcdf(other, engine="h5netcdf")
    assert "something else wrote it" in refused(lambda: Result.load(other))
    assert "cannot be read" in refused(lambda: Result.load(tmp_path / "nowhere.nc"))
    assert "cannot be read" in refused(lambda: Result.load(tmp_path))


def test_a_newer_file_asks_for_an_upgrade(
    tmp_path: Path, small_result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as future:
        future.setattr(module, "FORMAT_WITHOUT_STOPS", module.FORMAT + 1)
        two_arms(walks(1, 3, 20, TIMES)).save(tmp_path / "new.nc")
    assert "upgrade" in refused(lambda: Result.load(tmp_path / "new.nc"))


def test_only_results_are_overwritten(tmp_path: Path, small_result: Result) -> None:
    path, foreign = tmp_path / "result.nc", tmp_path / "thesis.tex"
    two_arms(walks(9, 3, 5, TIMES)).save(path)
    small_result.save(path)
    assert Result.load(path) == small_result
    foreign.write_text("years of work")
    (tmp_path / "empty").touch()
    for taken in (foreign, tmp_path / "empty", tmp_path):
        assert "choose a name that is free" in refused(lambda taken=taken: small_result.save(taken))  # type: ignore[misc]  # mypy infers no lambda with a default
    assert foreign.read_text() == "years of work"
    for hopeless in (tmp_path / "nowhere" / "a.nc", foreign / "a.nc"):
        assert "written" in refused(lambda path=hopeless: small_result.save(path))  # type: ignore[misc]  # mypy infers no lambda with a default
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "empty",
        "result.nc",
        "thesis.tex",
    ]


@pytest.mark.parametrize(("place", "step"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, small_result: Result, monkeypatch: pytest.MonkeyPatch, place: Any, step: str
) -> None:
    path = tmp_path / "result.nc"
    small_result.save(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, step, full)
    assert "No space left" in refused(lambda: two_arms(walks(9, 3, 5, TIMES)).save(path))
    assert Result.load(path) == small_result
    assert list(tmp_path.iterdir()) == [path]
