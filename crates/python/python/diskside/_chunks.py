"""Reductions of Zarr arrays where their chunks lie: shipped functions run over the decoded chunks, and results travel."""

from __future__ import annotations

import operator
import re
import time
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from zarr import Array

from ._encoded import Shards, encoding_of, in_shards, is_missing
from ._function import function
from ._names import parts_of
from .errors import ChangedError, IoError, NotFoundError, UsageError
from .partition import combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._function import Function
    from ._session import Session

#: Of each of numpy's types the name that ``array_stats`` and ``array_histogram`` have for it.
_TYPES = {"b1": "u8", "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64"}
_TYPES |= {"f4": "f32", "f8": "f64"}
_DIMENSIONS_MAX = 8
#: Chunks of an array of which each is told by itself.
_GRID_MAX = 1 << 22
#: Ends of bins of ``array_histogram``.
_EDGES_MAX = 1 << 16

#: First byte and end, and the version of the file whose index says so.
Ranged = tuple[int, int, int]


class Place(NamedTuple):
    """Where a chunk is."""

    at: tuple[int, ...]
    """In the grid of chunks."""
    url: str
    range: Ranged | None = None
    """In a shard."""


class Chunks(NamedTuple):
    """How an array lies at a server."""

    session: Session
    url: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: numpy.dtype[Any]
    fill: Any
    order: tuple[int, ...]
    """Which dimensions there are in memory, slowest first."""
    codecs: tuple[str, ...]
    """What decodes a chunk, in this order."""
    shards: Shards | None
    array: Array[Any]

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension."""
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunk, strict=True))

    @property
    def arguments(self) -> dict[str, Any]:
        kind = f"{self.dtype.kind}{self.dtype.itemsize}"
        return {
            "type": _TYPES[kind],
            "big_endian": int(self.dtype.byteorder == ">"),
            "shape": [self.chunk[dimension] for dimension in self.order],
        }

    def held(self, at: tuple[int, ...]) -> tuple[int, ...]:
        """How many elements of a chunk along each dimension are the array's."""
        ends = zip(at, self.chunk, self.shape, strict=True)
        return tuple(min(chunk, length - index * chunk) for index, chunk, length in ends)

    def classes(self) -> dict[tuple[int, ...], list[Place]]:
        """The chunks that are there, by what of them is the array's. How many there could be does not matter: metadata may
        tell of more than anyone can count."""
        by_held: dict[tuple[int, ...], list[Place]] = {}
        for place in self._places():
            by_held.setdefault(self.held(place.at), []).append(place)
        return by_held

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def elements_of(self, places: Iterable[tuple[int, ...]]) -> int:
        """How many elements of the array some chunks hold."""
        return sum(prod(self.held(at)) for at in places)

    def _places(self) -> Iterator[Place]:
        """The chunks that are there, in the order of the grid; of shards, shard by shard."""
        counts = (1,) * len(self.shape) if self.shards is None else self.shards.counts
        # Of chunks, or of shards.
        grid = tuple(-(-chunks // count) for chunks, count in zip(self.grid, counts, strict=True))
        there = sorted(at for name in self._names() if (at := self._at(name, grid)) is not None)
        if self.shards is None:
            for at in there:
                yield Place(at, f"{self.url}/{self.key(at)}")
            return
        urls = [f"{self.url}/{self.key(shard)}" for shard in there]
        for shard, url, (index, version) in zip(there, urls, in_shards(self.session, urls, self.shards), strict=True):
            for inner in numpy.argwhere(~is_missing(index)).tolist():
                at = tuple(i * count + j for i, count, j in zip(shard, counts, inner, strict=True))
                if any(i >= chunks for i, chunks in zip(at, self.grid, strict=True)):
                    continue
                offset, length = (int(number) for number in index[tuple(inner)])
                if offset + length >= 2**63:
                    where = f"chunk {tuple(inner)} at byte {offset}, which is beyond any file's end"
                    raise IoError(f"{url}: the index of the shard puts {where}")
                yield Place(at, url, (offset, offset + length, version))

    def _at(self, name: str, grid: tuple[int, ...]) -> tuple[int, ...] | None:
        """Where in a grid the chunk of a key is; None: it is no chunk's."""
        numbers = re.findall("[0-9]+", name)
        # A number of which nobody has read all digits is none.
        at = tuple(int(number) for number in numbers if len(number) < 20)[: len(grid)]
        if len(at) != len(grid) or any(i >= chunks for i, chunks in zip(at, grid, strict=True)):
            return None
        return at if self.key(at) == name else None

    def key(self, at: tuple[int, ...]) -> str:
        return str(self.array.metadata.encode_chunk_key(at))

    def _names(self) -> set[str]:
        """All that is below the array's directory, by one listing, and by one more for each symbolic link to a directory."""
        from urllib.parse import quote, unquote

        root = unquote(parts_of(self.url)[1]) + "/"
        files: set[str] = set()
        unlisted = [""]
        while unlisted:
            under = f"{self.url}/{quote(unlisted.pop())}".rstrip("/")
            try:
                found = self.session._native.find(under, True, True)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError(f"{self.url}: there is no such array") from None
            for path, info in found:
                name = unquote(path).removeprefix(root)
                if info is None or info[0] != "directory":
                    files.add(name)
                elif name.count("/") <= len(self.shape):
                    # No key has more names than that: a link to itself ends there.
                    unlisted.append(name)
        return files


def chunks_of(array: Array[Any], store: Any) -> Chunks:
    """How an array lies that is in a ``ZarrStore``.

    :raises UsageError: its type, or a codec, is none that servers reduce.
    """
    # As the store has it: a name may have a percent sign in it.
    url = store._of(array.path)
    metadata = array.metadata
    if len(array.shape) > _DIMENSIONS_MAX:
        raise UsageError(f"{url}: it has {len(array.shape)} dimensions; at a server {_DIMENSIONS_MAX} can be reduced")
    if prod(array.shape) >= 2**63 or 0 in array.chunks:
        raise UsageError(f"{url}: an array of the shape {array.shape} in chunks of {array.chunks} is none that can be reduced")
    dtype, order, codecs, shards = encoding_of(url, array)
    if f"{dtype.kind}{dtype.itemsize}" not in _TYPES:
        raise UsageError(f"{url}: its elements are {dtype}; servers reduce whole numbers, bool, float32 and float64")
    fill = metadata.fill_value
    fill = dtype.type(0 if fill is None else fill)
    return Chunks(store._session, url, array.shape, array.chunks, dtype, fill, order, codecs, shards, array)


#: Before an array of which a shard changed is read again, in seconds.
_PAUSES = (0.01, 0.05, 0.25)


#: Of chunks the rows that a function gives.
Rows = list[tuple[tuple[int, ...], numpy.ndarray[Any, Any]]]


def reduced(
    chunks: Chunks, run_by: Function, arguments: dict[str, Any], options: dict[str, Any], *, is_folded: bool
) -> tuple[Rows, int, str]:
    """As :func:`_reduced`; once more where a shard is another one than its index was read of."""
    for pause in _PAUSES:
        try:
            return _reduced(chunks, run_by, arguments, options, is_folded=is_folded)
        except ChangedError:
            time.sleep(pause)
    return _reduced(chunks, run_by, arguments, options, is_folded=is_folded)


def _reduced(
    chunks: Chunks, run_by: Function, arguments: dict[str, Any], options: dict[str, Any], *, is_folded: bool
) -> tuple[Rows, int, str]:
    """Runs a function over all chunks that are there: of each class of chunks its rows, or of each chunk; the elements of the
    chunks that are not there; and where it ran. The classes run at the same time."""
    by_held = chunks.classes()
    missing = chunks.elements - sum(chunks.elements_of(place.at for place in places) for places in by_held.values())
    arguments = arguments | chunks.arguments
    jobs = []
    length = prod(chunks.chunk) * chunks.dtype.itemsize
    for held, places in by_held.items():
        given = arguments | {"held": [held[dimension] for dimension in chunks.order]}
        files = [(place.url, place.range) for place in places]
        chosen = options | {"combine": is_folded, "split": "whole"}
        job = chunks.session._submit_chunks(run_by, files, (chunks.codecs, length), given, chosen)
        jobs.append(([place.at for place in places], job))
    done: Rows = []
    told = []
    if is_folded:
        parts = []
        for _, job in jobs:
            result = job.result()
            parts.append(result)
            told.append(result.explain)
        if parts:
            # In the order of the classes, which is that of their first chunks.
            fold = combine(run_by, parts, session=chunks.session, **arguments)
            done.append(((), fold.numpy()))
    else:
        for at, job in jobs:
            result = job.result()
            told.append(result.explain)
            done += zip(at, numpy.split(result.numpy(), len(at)), strict=True)
    return done, missing, "\n".join(told)


class Statistics(NamedTuple):
    """Of an array, or with ``by_chunk`` arrays of these over the grid of chunks."""

    count: Any
    """Elements."""
    sum: Any
    """Whole numbers: modulo 2**64, as numpy's; floating-point numbers: in float64, NaN if an element is."""
    mean: Any
    """In float64; NaN of no elements."""
    min: Any
    """Of the array's type; NaN of no elements."""
    max: Any
    """Of the array's type; NaN of no elements."""
    explain: str
    """Where it ran and why."""


def statistics_of(chunks: Chunks, options: dict[str, Any], by_chunk: bool) -> Statistics:
    if by_chunk and prod(chunks.grid) > _GRID_MAX:
        raise UsageError(f"{chunks.url}: it has {prod(chunks.grid)} chunks; by_chunk=True gives rows of {_GRID_MAX} at most")
    done, missing, told = reduced(chunks, function("array_stats"), {}, options, is_folded=not by_chunk)
    if by_chunk:
        rows = numpy.zeros(chunks.grid, function("array_stats").dtype)
        for at, row in done:
            rows[at] = row[0]
        for place in numpy.argwhere(rows["count"] == 0).tolist():
            rows[tuple(place)] = _row_of_fill(chunks, prod(chunks.held(tuple(place))))
        return _statistics(chunks, rows, told)
    parts = [row.tobytes() for _, row in done]
    if missing or not parts:
        parts.append(_row_of_fill(chunks, missing).tobytes())
    folded = combine("array_stats", parts, session=chunks.session, type=chunks.arguments["type"])
    return _statistics(chunks, folded.numpy()[0], told)


def _row_of_fill(chunks: Chunks, count: int) -> numpy.ndarray[Any, Any]:
    """What ``array_stats`` gives for so many elements that are the fill value."""
    row = numpy.zeros((), function("array_stats").dtype)
    kind = chunks.dtype.kind
    row["count"], row["is_float"], row["is_unsigned"] = count, kind == "f", kind in "ub"
    row["min"], row["max"] = (-1, 0) if kind in "ub" else (2**63 - 1, -(2**63))
    row["float_min"], row["float_max"] = numpy.inf, -numpy.inf
    if count == 0:
        return row
    if kind == "f":
        row["float_min"] = row["float_max"] = chunks.fill
        row["float_sum"] = float(chunks.fill) * count
    else:
        bits = int(chunks.fill) % 2**64
        row["min"] = row["max"] = _signed(bits)
        row["sum"] = _signed(bits * count % 2**64)
        row["float_sum"] = float(int(chunks.fill) * count)
    return row


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def _statistics(chunks: Chunks, rows: Any, told: str) -> Statistics:
    native = chunks.dtype.newbyteorder("=")
    count = rows["count"]
    if native.kind == "f":
        total, low, high = rows["float_sum"], rows["float_min"].astype(native), rows["float_max"].astype(native)
    else:
        wide = numpy.dtype("u8" if native.kind in "ub" else "i8")
        total, low, high = (numpy.asarray(rows[name]).view(wide)[()] for name in ("sum", "min", "max"))
        # As numpy: how many are true.
        total = total.astype("i8") if native.kind == "b" else total
        low, high = low.astype(native), high.astype(native)
    if count.ndim == 0 and count == 0:
        # As of an empty column: there is none.
        low = high = numpy.float64("nan")
    # A sum of whole numbers may be more than its 64 bits hold; the rounded one is not.
    exact = numpy.abs(rows["float_sum"]) < 2.0**62
    with numpy.errstate(invalid="ignore", divide="ignore"):
        mean = numpy.divide(numpy.where(exact, total, rows["float_sum"]), count, dtype="f8")
    return Statistics(count[()], total[()], mean[()], low[()], high[()], told)


def histogram_of(
    chunks: Chunks, bins: Any, options: dict[str, Any], given_range: tuple[float, float] | None
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    if isinstance(bins, str):
        raise UsageError(f"bins: {bins!r}: it takes all elements to choose bins; give their number, or their edges")
    # As numpy: the edges are of the elements' type, and those equal to one are in the bin above it.
    kind = numpy.dtype("u1") if chunks.dtype.kind == "b" else chunks.dtype.newbyteorder("=")
    if numpy.ndim(bins) == 0:
        if operator.index(bins) >= _EDGES_MAX:
            raise UsageError(f"bins: at a server there are at most {_EDGES_MAX - 1}, not {bins}")
        if given_range is None:
            found = statistics_of(chunks, options, by_chunk=False)
            given_range = (found.min.astype(kind), found.max.astype(kind)) if found.count else (0, 1)
    elif not 2 <= len(bins) <= _EDGES_MAX or not numpy.isfinite(numpy.asarray(bins, "f8")).all():
        raise UsageError(f"bins: edges are from 2 to {_EDGES_MAX} finite numbers that rise")
    edges = numpy.histogram_bin_edges(numpy.empty(0, kind), bins, given_range)
    run_by = function("array_histogram")
    done, missing, _ = reduced(chunks, run_by, {"edges": [float(edge) for edge in edges]}, options, is_folded=True)
    counts = numpy.zeros(len(edges) - 1, "i8")
    for _, rows in done:
        counts += rows["count"].astype("i8")
    counts += numpy.histogram([float(chunks.fill)], edges)[0] * missing
    return counts, edges
