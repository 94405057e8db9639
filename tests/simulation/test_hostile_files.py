"""Files that an enemy made: results, folders of chunks and specifications, all refused in words.

A hostile result has a right checksum, as anybody can compute one. Each is read by a process that
may take 256 MB more than it has when it begins.
"""

import hashlib
import json
import os
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Callable
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from helpers.paths import SAMPLES
from helpers.result_cases import PROBLEM as TWO_ARMS
from helpers.result_cases import TABLE, TIMES, walks
from whitelie import Bandit, Certificate, InvalidInput, Problem, RandomizedResponse
from whitelie.simulation import archive
from whitelie.simulation.chunks import ChunkStore
from whitelie.simulation.result import Result
from whitelie.simulation.specification import parse_specification
from whitelie.simulation.stops import Stops

SPARE = 256 * 2**20
GIANT = 3 * 10**9
TAIL = 40
TEXT = h5py.string_dtype()

LOADER = f"""
import json, re, resource, signal, sys
from pathlib import Path
from whitelie import InvalidInput
from whitelie.simulation.result import Result

Result.load(sys.argv[1])  # imports what it needs
signal.alarm(100)  # ends a hang

def status(word):
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(word + r":\\s+(\\d+)", text)[1])

most = status("VmSize") + {SPARE}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
told, began = {{}}, status("VmHWM")
for name in sys.argv[2:]:
    try:
        told[name] = "loaded: " + repr(Result.load(name).dataset)[:200]
    except InvalidInput as refusal:
        told[name] = ["refused", refusal.field, refusal.reason]
    except BaseException as error:
        told[name] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps([status("VmHWM") - began, told]))
"""


def seal(path: Path) -> None:
    """Put the mark and the right checksum behind whatever the file holds."""
    content = path.read_bytes()
    path.write_bytes(content + b"whitelie" + hashlib.sha256(content).digest())


def replaced(file: h5py.File, name: str, **changes: Any) -> h5py.Dataset:
    """Make a variable anew, with other properties."""
    data = file[name][()]
    del file[name]
    return file.create_dataset(name, **{"data": data, **changes})


def empty(file: h5py.File, name: str, shape: tuple[int, ...], dtype: Any, **how: Any) -> None:
    del file[name]
    file.create_dataset(name, shape, dtype, **how)


def external(name: str) -> Callable[[h5py.File], None]:
    """A variable whose data is a system file."""

    def make(file: h5py.File) -> None:
        kept = file[name]
        size = int(np.prod(kept.shape)) * 8
        shape, dtype = kept.shape, np.float64 if name == "gaps" else np.int64
        empty(file, name, shape, dtype, external=[("/etc/passwd", 0, size)])

    return make


def external_counts(file: h5py.File) -> None:
    shape = file["pulls"].shape
    size = int(np.prod(shape)) * 4
    empty(file, "pulls", shape, np.int32, external=[("/etc/passwd", 0, size)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((2,), np.float64)
    layout[:] = h5py.VirtualSource(file.filename + ".other", "gaps", (2,))
    del file["gaps"]
    file.create_virtual_dataset("gaps", layout)


def virtual_of_itself(file: h5py.File) -> None:
    shape = (3, 10**6, 3, 2)
    layout = h5py.VirtualLayout(shape, np.int32)
    source = h5py.VirtualSource(".", "pulls", file["pulls"].shape)
    layout[:, :20] = source
    del file["pulls"]
    file.create_virtual_dataset("pulls", layout)


def linked(name: str, link: Any) -> Callable[[h5py.File], None]:
    def make(file: h5py.File) -> None:
        del file[name]
        file[name] = link

    return make


def soft_alias(file: h5py.File) -> None:
    """A soft link to a variable of another name."""
    file.move("gaps", "kept")
    file["gaps"] = h5py.SoftLink("/kept")


def group(file: h5py.File) -> None:
    del file["gaps"]
    file.create_group("gaps")


def group_in_a_circle(file: h5py.File) -> None:
    del file["gaps"]
    file["gaps"] = file["/"]


def deep_groups(file: h5py.File) -> None:
    deepest = file
    for _ in range(500):
        deepest = deepest.create_group("g")


def many_variables(file: h5py.File) -> None:
    for number in range(500):
        file.create_dataset(f"v{number}", data=number)


def of_type(name: str, dtype: Any) -> Callable[[h5py.File], None]:
    def make(file: h5py.File) -> None:
        how = {"compression": 4, "shuffle": True} if name == "pulls" else {}
        replaced(file, name, dtype=dtype, **how)

    return make


def ragged(file: h5py.File) -> None:
    """Lists of any length for labels."""
    empty(file, "policy", (3,), h5py.vlen_dtype(np.int64))


def references(file: h5py.File) -> None:
    empty(file, "policy", (3,), h5py.ref_dtype)


def compound(file: h5py.File) -> None:
    empty(file, "time", (3,), np.dtype([("a", "i8"), ("b", "S99")]))


def giant_fill(file: h5py.File) -> None:
    """Nothing but a fill value: 3 GB in no bytes at all."""
    how = {"chunks": (1, 1000, 3, 2), "compression": 4, "shuffle": True, "fillvalue": 1}
    empty(file, "pulls", (3, GIANT // 72, 3, 2), np.int32, **how)
    empty(file, "replicate", (GIANT // 72,), np.int64)


def giant_labels(file: h5py.File) -> None:
    empty(file, "replicate", (GIANT // 8,), np.int64, fillvalue=1)


def giant_gaps(file: h5py.File) -> None:
    empty(file, "gaps", (GIANT // 8,), np.float64, fillvalue=0.25)


def no_numbers(file: h5py.File) -> None:
    empty(file, "time", (0,), np.int64)


def scalar(file: h5py.File) -> None:
    del file["time"]
    file["time"] = 3


def compression_bomb(file: h5py.File) -> None:
    """Zeros in deflated chunks that are all there: 192 MB in 250 kB."""
    how = {"chunks": (1, 500, 4000, 1), "compression": 9, "shuffle": True}
    empty(file, "pulls", (3, 2000, 4000, 2), np.int32, **how)
    packed = zlib.compress(bytes(4 * 500 * 4000), 9)
    for policy, start, arm in product(range(3), range(0, 2000, 500), range(2)):
        file["pulls"].id.write_direct_chunk((policy, start, 0, arm), packed)
    del file["replicate"], file["time"]
    file["replicate"], file["time"] = np.arange(2000), np.arange(1, 4001)


def long_stream(millions: int) -> bytes:
    """A deflate stream of so many million zeros, made of one flushed piece again and again."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(10**6)) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(10**6)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + piece * (millions - 1)


def twice_deflated(file: h5py.File) -> None:
    """Two deflate filters in a row: 3 GB in a chunk of some kB."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((3, 20, 3, 2))
    plist.set_deflate(9)
    plist.set_deflate(9)
    del file["pulls"]
    space = h5py.h5s.create_simple((3, 20, 3, 2))
    made = h5py.h5d.create(file.id, b"pulls", h5py.h5t.NATIVE_INT32, space, plist)
    made.write_direct_chunk((0, 0, 0, 0), zlib.compress(long_stream(3000), 9))


def overflowing_chunk(file: h5py.File) -> None:
    """A chunk of 1,440 bytes whose stream goes on for 900 MB."""
    replaced(file, "pulls", chunks=(3, 20, 3, 2), compression=9, shuffle=True)
    file["pulls"].id.write_direct_chunk((0, 0, 0, 0), long_stream(900))


def giant_chunk(file: h5py.File) -> None:
    how = {"chunks": (3, 10**7, 3, 2), "compression": 9, "shuffle": True}
    empty(file, "pulls", (3, 10**7, 3, 2), np.int32, **how)


def scaled(file: h5py.File) -> None:
    replaced(file, "pulls", scaleoffset=0)


def unknown_filter(file: h5py.File) -> None:
    """A filter that would be loaded from a plugin."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((3, 20, 3, 2))
    plist.set_filter(32_000, h5py.h5z.FLAG_OPTIONAL)
    del file["pulls"]
    space = h5py.h5s.create_simple((3, 20, 3, 2))
    h5py.h5d.create(file.id, b"pulls", h5py.h5t.NATIVE_INT32, space, plist)


def uncompressed(file: h5py.File) -> None:
    replaced(file, "pulls")


def other_shape(file: h5py.File) -> None:
    pulls = file["pulls"][:, :, :2]
    del file["pulls"]
    file.create_dataset("pulls", data=pulls, compression=4, shuffle=True)


def other_sums(file: h5py.File) -> None:
    file["pulls"][0, 0, 0, 0] += 1


def negative(file: h5py.File) -> None:
    file["pulls"][0, 0, 0] = [-1, 5]


def other_gaps(file: h5py.File) -> None:
    file["gaps"][:] = [0.5, 0]


def no_gaps(file: h5py.File) -> None:
    file["gaps"][:] = np.nan


def times_backwards(file: h5py.File) -> None:
    file["time"][:] = [64, 16, 4]
    file["pulls"][:] = file["pulls"][()][:, :, ::-1]


def other_arms(file: h5py.File) -> None:
    file["arm"][:] = ["good", "evil"]


def same_policies(file: h5py.File) -> None:
    file["policy"][:] = ["TS-CF"] * 3


def unknown_policy(file: h5py.File) -> None:
    file["policy"][0] = "made up"


def no_text(file: h5py.File) -> None:
    file["policy"][0] = b"\xff\xfe"


def long_label(file: h5py.File) -> None:
    """One label of 2 MB would make an array of 8 MB a label."""
    labels = ["x" * 2 * 10**6, *map(str, range(100))]
    del file["arm"]
    file.create_dataset("arm", data=labels, dtype=TEXT)


def missing(file: h5py.File) -> None:
    del file["gaps"]


def says(text: Any) -> Callable[[h5py.File], None]:
    def make(file: h5py.File) -> None:
        file.attrs["whitelie"] = text

    return make


def changed(**changes: Any) -> Callable[[h5py.File], None]:
    """Another word about the first cell."""

    def make(file: h5py.File) -> None:
        data = json.loads(file.attrs["whitelie"])
        data["cells"][0].update(changes)
        file.attrs["whitelie"] = json.dumps(data)

    return make


def two_cells(file: h5py.File) -> None:
    data = json.loads(file.attrs["whitelie"])
    file.attrs["whitelie"] = json.dumps({**data, "cells": 2 * data["cells"]})


def silent(file: h5py.File) -> None:
    del file.attrs["whitelie"]


PROBLEM = {"names": ["good", "bad"], "means": [0.75, 0.5], "channels": [0, 0]}
HOSTILE: dict[str, Callable[[h5py.File], None]] = {
    "external counts": external_counts,
    "external gaps": external("gaps"),
    "external labels": external("replicate"),
    "virtual": virtual,
    "virtual of itself": virtual_of_itself,
    "external link": linked("gaps", h5py.ExternalLink("/etc/passwd", "/gaps")),
    "soft link": soft_alias,
    "soft link in a circle": linked("gaps", h5py.SoftLink("/gaps")),
    "group": group,
    "group in a circle": group_in_a_circle,
    "deep groups": deep_groups,
    "many variables": many_variables,
    "floats for counts": of_type("pulls", np.float64),
    "wide counts": of_type("pulls", np.int64),
    "narrow times": of_type("time", np.int16),
    "whole gaps": of_type("gaps", np.int64),
    "ragged": ragged,
    "references": references,
    "compound": compound,
    "giant fill": giant_fill,
    "giant labels": giant_labels,
    "giant gaps": giant_gaps,
    "no numbers": no_numbers,
    "scalar": scalar,
    "compression bomb": compression_bomb,
    "twice deflated": twice_deflated,
    "overflowing chunk": overflowing_chunk,
    "giant chunk": giant_chunk,
    "scaled": scaled,
    "unknown filter": unknown_filter,
    "uncompressed": uncompressed,
    "other shape": other_shape,
    "other sums": other_sums,
    "negative": negative,
    "other gaps": other_gaps,
    "no gaps": no_gaps,
    "times backwards": times_backwards,
    "other arms": other_arms,
    "same policies": same_policies,
    "unknown policy": unknown_policy,
    "no text": no_text,
    "long label": long_label,
    "missing": missing,
    "silent": silent,
    "a list of texts": says(["a"] * 1000),
    "a number": says(3),
    "no JSON": says("{"),
    "no table": says("[1]"),
    "deep JSON": says("[" * 60_000),
    "no format": says('{"format": "2"}'),
    "no cells": says('{"format": 1}'),
    "cells of nothing": says('{"format": 1, "channels": 3, "cells": [3]}'),
    "two cells": two_cells,
    "seed": changed(seed="1"),
    "provenance": changed(provenance=[]),
    "policies": changed(policies=["TS-CF"]),
    "policy": changed(policies={"TS-CF": 1, "mine": {}, "kl-UCB-CF": {}}),
    "channel from behind": changed(problem={**PROBLEM, "channels": [-1, 0]}),
    "mean": changed(problem={**PROBLEM, "means": [2, 0.5]}),
    "names": changed(problem={**PROBLEM, "names": [["good"], "bad"]}),
}


def no_stop_variables(file: h5py.File) -> None:
    del file["stop_winner"]


def changed_stop(**changes: Any) -> Callable[[h5py.File], None]:
    """Another certificate at which the replicates stopped."""

    def make(file: h5py.File) -> None:
        data = json.loads(file.attrs["whitelie"])
        stop = {**data["cells"][0]["stop"], **changes}
        data["cells"][0]["stop"] = changes.get("stop", stop)
        file.attrs["whitelie"] = json.dumps(data)

    return make


def without_stop(file: h5py.File) -> None:
    """The variables of a stop, of which nothing is said."""
    data = json.loads(file.attrs["whitelie"])
    del data["cells"][0]["stop"]
    file.attrs["whitelie"] = json.dumps(data)


def set_to(name: str, value: Any) -> Callable[[h5py.File], None]:
    def make(file: h5py.File) -> None:
        file[name][0, 0] = value

    return make


def giant_stops(file: h5py.File) -> None:
    """Nothing but a fill value, for more replicates than there are."""
    empty(file, "stop_winner", (3, GIANT // 12), np.int32, fillvalue=-1)


def deflated_stops(file: h5py.File) -> None:
    replaced(file, "stop_reports", compression=4, shuffle=True)


def virtual_stops(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3, 20), np.int32)
    layout[:] = h5py.VirtualSource(file.filename + ".other", "stop_winner", (3, 20))
    del file["stop_winner"]
    file.create_virtual_dataset("stop_winner", layout)


HOSTILE_STOPS: dict[str, Callable[[h5py.File], None]] = {
    "no winners": no_stop_variables,
    "nothing said": without_stop,
    "wide winners": of_type("stop_winner", np.int64),
    "floats for reports": of_type("stop_reports", np.float32),
    "winner beyond": set_to("stop_winner", 2),
    "winner below": set_to("stop_winner", -2),
    "another winner": set_to("stop_winner", 1),
    "nobody won": set_to("stop_winner", -1),
    "more reports than steps": set_to("stop_reports", 2**31 - 1),
    "reports below 0": set_to("stop_reports", -1),
    "giant stops": giant_stops,
    "deflated stops": deflated_stops,
    "virtual stops": virtual_stops,
    "external link of stops": linked("stop_winner", h5py.ExternalLink("/etc/passwd", "/w")),
    "delta": changed_stop(delta=7),
    "delta of text": changed_stop(delta="0.05"),
    "no delta": changed_stop(delta=None),
    "tolerance": changed_stop(tolerance=-1),
    "expect": changed_stop(expect={"rate": 2, "difference": 0.1}),
    "unknown": changed_stop(more=1),
    "a list": changed_stop(stop=[0.05]),
    "nothing": changed_stop(stop=None),
}


def endless_heap(content: bytearray) -> None:
    """Free space of no size, after which HDF5 would look at the same place for ever."""
    heap = content.index(b"GCOL")
    content[heap + 16 : heap + 32] = bytes(16)


def long_heap(content: bytearray) -> None:
    heap = content.index(b"GCOL")
    content[heap + 8 : heap + 16] = b"\xf0" * 8


def long_texts(content: bytearray) -> None:
    """Labels that claim 4 GB each."""
    with h5py.File(BytesIO(content), "r") as file:
        start = file["policy"].id.get_offset()
    for text in range(3):
        content[start + 16 * text : start + 16 * text + 4] = b"\xff" * 4


BYTES: dict[str, Callable[[bytearray], None]] = {
    "endless heap": endless_heap,
    "long heap": long_heap,
    "long texts": long_texts,
}


def stopped_result() -> Result:
    """Three policies that stop with 20 replicates of two arms, the first of which wins."""
    second = walks(1, 3, 20, [4])
    reports = np.concatenate([4 - second, second], axis=-1).astype(np.int32)
    last = reports + np.array([60, 0])
    return Result.from_pulls(
        np.stack([reports, last], axis=2),
        problem=TWO_ARMS,
        policies={"TS-CF": {}, "UCB1": {}, "mine": {}},
        times=[4, 64],
        seed=1,
        provenance={},
        stops=Stops(Certificate(), reports, np.zeros((3, 20), np.int32)),
    )


def hostile(good: Path, path: Path, make: Callable[[h5py.File], None]) -> Path:
    """A genuine result, made hostile, with a right checksum."""
    path.write_bytes(good.read_bytes()[:-TAIL])
    with h5py.File(path, "r+") as file:
        make(file)
    seal(path)
    return path


def load_all(good: Path, paths: list[Path]) -> tuple[int, dict[str, Any]]:
    """Load each in one process of little memory; return its growth and what came of each."""
    command = [sys.executable, "-c", LOADER, str(good), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    grown, told = json.loads(done.stdout)
    return grown, {Path(name).stem: what for name, what in told.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by /proc and RLIMIT_AS")
def test_hostile_results_are_refused_in_little_memory(tmp_path: Path, small_result: Result) -> None:
    good = tmp_path / "good.nc"
    small_result.save(good)
    paths = [hostile(good, tmp_path / f"{name}.nc", make) for name, make in HOSTILE.items()]
    for name, change in BYTES.items():
        content = bytearray(good.read_bytes()[:-TAIL])
        change(content)
        paths.append(tmp_path / f"{name}.nc")
        paths[-1].write_bytes(content)
        seal(paths[-1])
    stopped = tmp_path / "stopped.nc"
    stopped_result().save(stopped)
    paths += [
        hostile(stopped, tmp_path / f"{name}.nc", make) for name, make in HOSTILE_STOPS.items()
    ]
    grown, told = load_all(good, [stopped, *paths])
    assert told.pop("stopped").startswith("loaded: ")  # a control
    wrong = {name: what for name, what in told.items() if what[:2] != ["refused", "path"]}
    assert not wrong
    assert told.keys() == HOSTILE.keys() | BYTES.keys() | HOSTILE_STOPS.keys()
    assert all(len(reason) > 20 and "give a file as" in reason for *_, reason in told.values())
    assert grown < 150 * 2**20


def test_attributes_that_nobody_asked_for_are_not_read(
    tmp_path: Path, small_result: Result
) -> None:
    def decorated(file: h5py.File) -> None:
        file.attrs.update({f"a{number}": np.zeros(8000) for number in range(100)})
        file["pulls"].attrs.update({"scale_factor": 2.0, "_FillValue": 1, "units": "days since"})
        file["time"].attrs["units"] = "days since 1970-01-01"

    small_result.save(tmp_path / "good.nc")
    path = hostile(tmp_path / "good.nc", tmp_path / "result.nc", decorated)
    assert Result.load(path) == small_result


def test_a_file_that_is_not_a_result_is_not_read(tmp_path: Path) -> None:
    pipe, sparse = tmp_path / "pipe", tmp_path / "sparse"
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(2**41)
    for path in (pipe, sparse, Path("/dev/zero")):
        with pytest.raises(InvalidInput, match=r"cannot be read|something else wrote it"):
            Result.load(path)
    with sparse.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"whitelie" + bytes(32))
    with pytest.raises(InvalidInput, match="more than"):
        Result.load(sparse)


def test_results_of_earlier_versions_open() -> None:
    """A file that the first version of the format wrote: texts swept, a table, odd names."""
    loaded = Result.load(SAMPLES / "format-1.nc")
    odd = Problem({"('a', 1)": 0.75, 2: 0.5}, [TABLE, RandomizedResponse.from_epsilon(1)])
    assert loaded.coordinate == "kind"
    assert loaded.dataset["kind"].values.tolist() == ["tabelliert", "geräuschvoll"]
    assert loaded.cells[0].problem == odd
    assert loaded.cells[0].provenance == {"versions": {"numpy": "2"}, "Δ": [0.1, None, True]}
    assert loaded.cells[1].seed == 2**64 - 1
    bad = np.stack([walks(1, 3, 5, TIMES), walks(2, 3, 5, TIMES)])
    assert np.array_equal(loaded.pulls.values[..., 1], bad)


def test_a_result_too_large_to_be_read_is_not_written(
    tmp_path: Path, small_result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_FILE_BYTES", small_result.pulls.nbytes - 1)
    with pytest.raises(InvalidInput, match="save fewer"):
        small_result.save(tmp_path / "result.nc")


@pytest.fixture
def store(tmp_path: Path) -> ChunkStore:
    return ChunkStore(tmp_path / "store", [PLAIN], 1, np.array([2, 4]))


PLAIN = Problem([0.5, 0.25])
SOUND = np.array([[[1, 1], [3, 1]]], np.int32)


def claims(path: Path, shape: tuple[int, ...], dtype: Any = np.int32) -> None:
    """A header of NumPy's format, and hardly any data."""
    with path.open("wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(16))


def test_hostile_chunks_count_as_lost(store: ChunkStore, tmp_path: Path) -> None:
    chunks = tmp_path / "store/chunks"
    store.save(0, "p", 0, SOUND)
    name = next(iter(chunks.iterdir())).name.replace("-0-1.npy", "-{}-{}.npy")
    for start, shape in enumerate([(1, 2, 2), (10**15, 2, 2), (2**62, 2**62), (-1,)], 1):
        claims(chunks / name.format(start, start + 1), shape)
    claims(chunks / name.format(5, 5 + 10**15), (10**15, 2, 2))
    claims(chunks / name.format(6, 7), (1, 2, 2), "S2000000000")
    np.savez(chunks / "many.npz", SOUND)
    (chunks / "many.npz").replace(chunks / name.format(7, 8))
    with (chunks / name.format(8, 9)).open("wb") as file:
        np.save(file, np.array([[[[]]]], dtype=object), allow_pickle=True)
    os.mkfifo(chunks / name.format(9, 10))
    (chunks / name.format(10, 11)).mkdir()
    assert [start for start, _ in store.chunks(0, "p")] == [0]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "\ud800", "3", "{", '{"format": {"more": 1}}', '{"format": [1]}']
)
def test_hostile_settings_of_a_folder_are_refused(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "settings.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InvalidInput, match=r"settings\.json|was made"):
        ChunkStore(folder, [PLAIN], 1, np.array([2, 4]))


def test_settings_that_say_more_are_refused(store: ChunkStore, tmp_path: Path) -> None:
    path = tmp_path / "store/settings.json"
    data = json.loads(path.read_text())
    data["problems"][0]["more"] = 1
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidInput, match="problems"):
        ChunkStore(tmp_path / "store", [PLAIN], 1, np.array([2, 4]))


STATE = json.loads(Bandit(["a", "b"], RandomizedResponse.from_epsilon(1), seed=1).to_json())
SPECIFICATION = """
horizon = 100
replicates = 2
seed = 1
means = [0.9, 0.8]
channel = { epsilon = 1 }
policies = ["kl-UCB-CF"]
stop = { delta = 0.05, tolerance = 0, expect = { rate = 0.5, difference = 0.1 } }
"""
ODD: list[Any] = [None, True, -1, 1e999, 10**400, "", "x", [], [[]], {}, {"kind": []}, [None]]


def places(data: Any) -> list[list[Any]]:
    """The way to every value of nested plain data."""
    if not isinstance(data, dict | list):
        return [[]]
    keys: Any = data if isinstance(data, dict) else range(len(data))
    return [[], *([key, *rest] for key in keys for rest in places(data[key]))]


def with_value(data: Any, way: list[Any], value: Any) -> Any:
    if not way:
        return value
    copy = data.copy()
    copy[way[0]] = with_value(data[way[0]], way[1:], value)
    return copy


def test_a_hostile_state_is_refused_or_is_a_bandit() -> None:
    refused = 0
    for way in places(STATE):
        for value in ODD:
            try:
                Bandit.from_json(json.dumps(with_value(STATE, way, value))).choose()
            except InvalidInput:
                refused += 1
    assert refused > 10 * len(places(STATE))


TOML = {None: "nan", True: "true", 1e999: "inf", 10**400: "1" + 400 * "0"}


def toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    return TOML[value] if value in TOML else json.dumps(value)


def test_a_hostile_specification_is_refused_or_is_one() -> None:
    data = tomllib.loads(SPECIFICATION)
    refused = 0
    for way in places(data)[1:]:
        for value in ODD:
            text = "\n".join(f"{k} = {toml(v)}" for k, v in with_value(data, way, value).items())
            try:
                parse_specification(text)
            except InvalidInput:
                refused += 1
    assert refused > 9 * len(places(data)[1:])


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, "1e999999", "{" * 9])
def test_a_number_of_thousands_of_digits_is_no_specification(value: str) -> None:
    with pytest.raises(InvalidInput):
        parse_specification(f"horizon = {value}")
