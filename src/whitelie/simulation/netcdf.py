"""The variables of a result's NetCDF file, read as if an attacker had written it.

HDF5 can point to other files, compute data from nothing and pack gigabytes into kilobytes. Here
only what `Result.save` writes is read, if the file itself holds it in the same layout. Nothing is
read before its size is known to follow from bytes that are there. Attributes of variables are
not read. The HDF5 library is compiled code that parses the rest: its own faults are beyond this.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import product
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from whitelie.errors import InvalidInput
from whitelie.simulation.stops import are_sound

DIMENSIONS = ("policy", "replicate", "time", "arm")

MOST_FILE_BYTES = 2**33
"""The largest file, and counts in it: 1,000 replicates of 10 policies on 10 arms take some 2^25."""

DEFLATE_RATIO = 1032
"""Deflate compresses by this factor at most: data that claim more are not in the file."""

MOST_CHUNK_BYTES = 2**24
MOST_LABEL_BYTES = 2**28
FILTERS = [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]

TEXT = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])
"""A text as HDF5 stores it in a variable: its length, and where its bytes are."""

HEAP = b"GCOL\x01\0\0\0"
NUMBERS = "iuf"


class Variables(NamedTuple):
    """What a file holds: labels by dimension, in the order of the axes of `pulls`, and arrays."""

    labels: dict[str, NDArray[Any]]
    pulls: NDArray[np.int32]
    gaps: NDArray[np.float64]
    stop_reports: NDArray[np.int32] | None = None
    stop_winner: NDArray[np.int32] | None = None


@contextmanager
def hdf5(content: bytes) -> Iterator[h5py.File]:
    """Open a file in memory; what the HDF5 library cannot read is refused."""
    _check_heaps(content)
    try:
        with h5py.File(BytesIO(content), "r") as file:
            yield file
    except InvalidInput:
        raise
    # h5py has no error of its own: it raises whichever of these is nearest to the library's code.
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError),
        *(OSError, RuntimeError, TypeError, ValueError, zlib.error),
    ) as error:
        raise InvalidInput("file", "(not shown)", f"HDF5 cannot read it: {error}") from error


def _check_heaps(content: bytes) -> None:
    """Refuse a heap of texts whose objects have no end: HDF5 would loop in it for ever.

    A heap begins with b"GCOL", a version, three zeros and its size. Objects follow: an index, then
    a size without these 16 bytes, up to a multiple of 8; or index 0, and the size of all that is
    free.
    """
    start = content.find(HEAP)
    while start >= 0:
        end = start + int.from_bytes(content[start + 8 : start + 16], "little")
        at = start + 16
        while at + 16 <= end <= len(content):
            index, length = struct.unpack_from("<H6xQ", content, at)
            step = 16 + -(-length // 8) * 8 if index else length
            at = at + step if step >= 16 else end + 1
        if at > end or end > len(content):
            raise InvalidInput("file", start, "a heap of texts does not end where it should")
        start = content.find(HEAP, start + 1)


def read_text(file: h5py.File, name: str) -> str:
    """Return an attribute of the file that is one text."""
    if name not in file.attrs:
        raise InvalidInput(name, None, "the file does not say what was run")
    attribute = file.attrs.get_id(name)
    if attribute.shape != () or h5py.check_string_dtype(attribute.dtype) is None:
        raise InvalidInput(name, attribute.dtype, "this attribute must be one text")
    return str(file.attrs[name])


def read_variables(file: h5py.File, content: bytes, *, stopped: bool = False) -> Variables:
    """Return all variables of a file, of which these are the bytes, or refuse it."""
    size = len(content)
    dimensions = _dimensions(file, {"stop_reports", "stop_winner"} if stopped else set())
    labels = {name: _labels(file, name, content) for name in dimensions}
    shape = tuple(len(labels[name]) for name in dimensions)
    gaps = _whole(file, "gaps", size)
    _check("gaps", gaps, (*shape[:-4], shape[-1]), np.dtype(np.float64))
    pulls = _compressed(file, "pulls", size)
    _check("pulls", pulls, shape, np.dtype(np.int32))
    if not stopped:
        return Variables(labels, _counts(pulls, labels["time"]), gaps[()])
    reports, winner = (_whole(file, name, size) for name in ("stop_reports", "stop_winner"))
    _check("stop_reports", reports, (*shape[:-2], shape[-1]), np.dtype(np.int32))
    _check("stop_winner", winner, shape[:-2], np.dtype(np.int32))
    counts = _counts(pulls, labels["time"])
    if not are_sound(counts[..., -1, :], reports[()], winner[()]):
        reason = "reports until the stop, and then the winner alone, must make the last pulls"
        raise InvalidInput("stop_reports", reports.shape, reason)
    return Variables(labels, counts, gaps[()], reports[()], winner[()])


def _dimensions(file: h5py.File, more: set[str]) -> tuple[str, ...]:
    """Return the names of all dimensions; one that is not ours is the swept parameter."""
    ours = {"pulls", "gaps", *DIMENSIONS, *more}
    reason = "a result has these variables, and at most one more, the swept parameter: "
    if len(file) > len(ours) + 1:
        raise InvalidInput("variables", len(file), reason + ", ".join(sorted(ours)))
    names = {*file}
    if not ours <= names or len(names) > len(ours) + 1:
        raise InvalidInput("variables", sorted(names), reason + ", ".join(sorted(ours)))
    return (*(names - ours), *DIMENSIONS)


def _variable(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a variable whose data this file holds: no link, external or virtual storage."""
    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise InvalidInput(name, type(link).__name__, "it must be in the file, not elsewhere")
    variable = file[name]
    if not isinstance(variable, h5py.Dataset):
        raise InvalidInput(name, type(variable).__name__, "this must be a variable")
    if variable.is_virtual or variable.external:
        raise InvalidInput(name, variable.shape, "its data must be in the file, not elsewhere")
    if not variable.shape or 0 in variable.shape:
        raise InvalidInput(name, variable.shape, "it is empty")
    return variable


def _whole(file: h5py.File, name: str, size: int) -> h5py.Dataset:
    """Return a variable that lies in the file in one piece, uncompressed."""
    variable = _variable(file, name)
    count, start = math.prod(variable.shape), variable.id.get_offset()
    width = TEXT.itemsize if variable.dtype.kind == "O" else variable.dtype.itemsize
    stored = variable.id.get_storage_size()
    properties = variable.id.get_create_plist()
    if properties.get_layout() != h5py.h5d.CONTIGUOUS or properties.get_nfilters():
        raise InvalidInput(name, variable.shape, "it must be stored in one piece, uncompressed")
    if stored != count * width or start is None or start + stored > size:
        raise InvalidInput(name, variable.shape, "the file does not hold as much data as it says")
    return variable


def _compressed(file: h5py.File, name: str, size: int) -> h5py.Dataset:
    """Return a variable that is compressed as `Result.save` does, and so is not too large."""
    variable = _variable(file, name)
    properties = variable.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if properties.get_layout() != h5py.h5d.CHUNKED or filters != FILTERS:
        raise InvalidInput(name, filters, "it must be stored in chunks, by shuffle and deflate")
    if math.prod(variable.chunks) * variable.dtype.itemsize > MOST_CHUNK_BYTES:
        raise InvalidInput(name, variable.chunks, "these chunks are too large")
    stored, needed = variable.id.get_storage_size(), variable.nbytes
    if stored > size or needed > DEFLATE_RATIO * stored:
        raise InvalidInput(name, variable.shape, "the file does not hold as much data as it says")
    if needed > MOST_FILE_BYTES:
        raise InvalidInput(name, variable.shape, f"it has more than {MOST_FILE_BYTES} bytes")
    return variable


def _check(name: str, variable: h5py.Dataset, shape: tuple[int, ...], dtype: Any) -> None:
    if variable.dtype != dtype:
        raise InvalidInput(name, variable.dtype, f"its type must be {dtype}")
    if variable.shape != shape:
        raise InvalidInput(name, variable.shape, f"its shape must be {shape}, as the labels say")


def _labels(file: h5py.File, name: str, content: bytes) -> NDArray[Any]:
    """Return the labels of a dimension: whole numbers, texts, or either for a swept parameter."""
    variable = _whole(file, name, len(content))
    if variable.ndim != 1:
        raise InvalidInput(name, variable.shape, "labels of a dimension are a list")
    if name in ("replicate", "time"):
        _check(name, variable, variable.shape, np.dtype(np.int64))
        labels = variable[()]
    elif name not in DIMENSIONS and variable.dtype.kind in NUMBERS:
        labels = variable[()]
    else:
        labels = _texts(name, variable, content)
    if len(np.unique(labels)) < len(labels):
        raise InvalidInput(name, labels, "two labels are the same")
    if name == "time" and (labels[0] < 1 or (np.diff(labels) < 0).any() or labels[-1] >= 2**31):
        raise InvalidInput(name, labels, "numbers of steps increase from 1 or more, below 2^31")
    return np.asarray(labels)


def _texts(name: str, variable: h5py.Dataset, content: bytes) -> NDArray[np.str_]:
    """Return texts; many of them may claim the same bytes, so their lengths are checked first."""
    count, start = len(variable), variable.id.get_offset()
    text_type = h5py.check_string_dtype(variable.dtype)
    if text_type is None or text_type.length is not None:
        raise InvalidInput(name, variable.dtype, "its labels must be texts of variable length")
    lengths = np.frombuffer(content, TEXT, count, start)["length"]
    if (
        lengths.sum(dtype=np.int64) > len(content)
        or 4 * count * int(lengths.max()) > MOST_LABEL_BYTES
    ):
        raise InvalidInput(name, count, "its labels are too long")
    return np.array(variable.asstr()[()].tolist(), dtype=str)


def _counts(pulls: h5py.Dataset, times: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the counts, read in pieces: the first piece that cannot be counts is refused.

    After t steps there are t pulls, so a file made of one repeated byte is refused at once.
    """
    counts = np.empty(pulls.shape, np.int32)
    spans = [range(0, size, step) for size, step in zip(pulls.shape, pulls.chunks, strict=True)]
    for outer in product(*spans[:-2]):
        for inner in product(*spans[-2:]):
            corner = (*outer, *inner)
            place = tuple(map(slice, corner, np.add(corner, pulls.chunks).tolist()))
            part = counts[place]
            part[...] = _chunk(pulls, corner)[tuple(map(slice, part.shape))]
        piece = counts[place[:-2]]
        if piece.min() < 0 or (piece.sum(axis=-1, dtype=np.int64) != times).any():
            reason = "after t steps the arms' pulls must sum to t"
            raise InvalidInput("pulls", pulls.shape, reason)
    return counts


def _chunk(variable: h5py.Dataset, corner: tuple[int, ...]) -> NDArray[np.int32]:
    """Return a chunk of whole numbers; HDF5 itself would inflate a stream of any length.

    A filter is left out of a chunk if its bit is set in the mask: what does not get smaller is not
    deflated.
    """
    mask, packed = variable.id.read_direct_chunk(corner)
    shuffled, deflated = not mask & 1, not mask & 2
    size = 4 * math.prod(variable.chunks)
    data = zlib.decompressobj().decompress(packed, size + 1) if deflated else packed
    if len(data) != size:
        raise InvalidInput(variable.name, corner, f"this chunk must have {size} bytes")
    octets = np.frombuffer(data, np.uint8)
    if shuffled:
        octets = octets.reshape(4, -1).T.ravel()
    return octets.view("<i4").reshape(variable.chunks)
