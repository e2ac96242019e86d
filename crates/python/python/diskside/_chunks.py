"""Reductions of Zarr arrays where their chunks lie: shipped functions run over the decompressed chunks, and results travel."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from zarr import Array

from ._function import function
from .errors import NotFoundError, UsageError
from .partition import combine

if TYPE_CHECKING:
    from ._function import Function
    from ._session import Session

#: Of each of numpy's types the name that ``array_stats`` and ``array_histogram`` have for it.
_TYPES = {"b1": "u8", "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64"}
_TYPES |= {"f4": "f32", "f8": "f64"}
_DIMENSIONS_MAX = 8


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
    decompress: str
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

    def classes(self) -> tuple[dict[tuple[int, ...], list[tuple[int, ...]]], list[tuple[int, ...]]]:
        """The chunks that are there, by what of them is the array's; and those that are not."""
        names = self._names()
        by_held: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        missing = []
        for at in product(*(range(count) for count in self.grid)):
            if self.key(at) in names:
                by_held.setdefault(self.held(at), []).append(at)
            else:
                missing.append(at)
        return by_held, missing

    def key(self, at: tuple[int, ...]) -> str:
        return str(self.array.metadata.encode_chunk_key(at))

    def _names(self) -> set[str]:
        """All that is below the array's directory, by one listing."""
        from urllib.parse import unquote

        root = unquote(self.url.removeprefix("diskside://").partition("/")[2]) + "/"
        try:
            found = self.session._native.find(self.url, True)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{self.url}: there is no such array") from None
        return {unquote(path).removeprefix(root) for path, _ in found}


def chunks_of(array: Array[Any], store: Any) -> Chunks:
    """How an array lies that is in a ``ZarrStore``.

    :raises UsageError: its type, or a codec, is none that servers reduce.
    """
    url = f"{store.url}/{array.path}".rstrip("/")
    metadata = array.metadata
    dtype = numpy.dtype(array.dtype)
    if len(array.shape) > _DIMENSIONS_MAX:
        raise UsageError(f"{url}: it has {len(array.shape)} dimensions; at a server {_DIMENSIONS_MAX} can be reduced")
    order = tuple(range(len(array.shape)))
    decompress = "none"
    if metadata.zarr_format == 2:
        if metadata.filters:
            raise _not_at_servers(url, str(metadata.filters[0]))
        if metadata.order == "F":
            order = order[::-1]
        if metadata.compressor is not None:
            decompress = _codec(url, metadata.compressor.get_config()["id"])
    else:
        for codec in metadata.codecs:
            told: Any = codec.to_dict()
            name = told["name"]
            if name == "bytes":
                big = told.get("configuration", {}).get("endian") == "big"
                dtype = dtype.newbyteorder(">" if big else "<")
            elif name == "transpose":
                order = tuple(told["configuration"]["order"])
            else:
                decompress = _codec(url, name)
    if f"{dtype.kind}{dtype.itemsize}" not in _TYPES:
        raise UsageError(f"{url}: its elements are {dtype}; servers reduce whole numbers, bool, float32 and float64")
    fill = metadata.fill_value
    fill = dtype.type(0 if fill is None else fill)
    return Chunks(store._session, url, array.shape, array.chunks, dtype, fill, order, decompress, array)


def _codec(url: str, name: str) -> str:
    if name not in ("gzip", "zstd"):
        raise _not_at_servers(url, name)
    return name


def _not_at_servers(url: str, codec: str) -> UsageError:
    told = "servers decompress gzip and zstd; read the array with zarr, which brings its chunks here"
    return UsageError(f"{url}: its codec {codec} is none that servers have: {told}")


def reduced(
    chunks: Chunks, run_by: Function, arguments: dict[str, Any], options: dict[str, Any], *, is_folded: bool
) -> tuple[list[tuple[tuple[int, ...], numpy.ndarray[Any, Any]]], list[tuple[int, ...]], str]:
    """Runs a function over all chunks that are there: of each class of chunks its rows; the chunks that are not there; and
    where it ran. The classes run at the same time."""
    by_held, missing = chunks.classes()
    arguments = arguments | chunks.arguments
    jobs = []
    for held, places in by_held.items():
        files = [f"{chunks.url}/{chunks.key(at)}" for at in places]
        given = arguments | {"held": [held[dimension] for dimension in chunks.order]}
        job = chunks.session.submit(
            run_by, files, args=given, combine=is_folded, decompress=chunks.decompress, header="none", split="whole", **options
        )
        jobs.append((places, job))
    done: list[tuple[tuple[int, ...], numpy.ndarray[Any, Any]]] = []
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
        for places, job in jobs:
            result = job.result()
            told.append(result.explain)
            done += zip(places, numpy.split(result.numpy(), len(places)), strict=True)
    return done, missing, "\n".join(told)


def elements(chunks: Chunks, places: list[tuple[int, ...]]) -> int:
    """How many elements of the array some chunks hold."""
    return sum(int(numpy.prod(chunks.held(at), dtype="i8")) for at in places)


class Statistics(NamedTuple):
    """Of an array, or with ``by_chunk`` arrays of these over the grid of chunks."""

    count: Any
    """Elements."""
    sum: Any
    """Whole numbers: modulo 2**64, as numpy's; floating-point numbers: in float64, NaN if an element is."""
    mean: Any
    """In float64; NaN of no elements."""
    min: Any
    """Of the array's type; of no elements its greatest value."""
    max: Any
    """Of the array's type; of no elements its least value."""
    explain: str
    """Where it ran and why."""


def statistics_of(chunks: Chunks, options: dict[str, Any], by_chunk: bool) -> Statistics:
    done, missing, told = reduced(chunks, function("array_stats"), {}, options, is_folded=not by_chunk)
    if by_chunk:
        rows = numpy.zeros(chunks.grid, function("array_stats").dtype)
        for at, row in done:
            rows[at] = row[0]
        for at in missing:
            rows[at] = _row_of_fill(chunks, elements(chunks, [at]))
        return _statistics(chunks, rows, told)
    parts = [row.tobytes() for _, row in done]
    if missing or not parts:
        parts.append(_row_of_fill(chunks, elements(chunks, missing)).tobytes())
    folded = combine("array_stats", parts, session=chunks.session)
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
    # A sum of whole numbers may be more than its 64 bits hold; the rounded one is not.
    exact = numpy.abs(rows["float_sum"]) < 2.0**62
    with numpy.errstate(invalid="ignore", divide="ignore"):
        mean = numpy.divide(numpy.where(exact, total, rows["float_sum"]), count, dtype="f8")
    return Statistics(count[()], total[()], mean[()], low[()], high[()], told)


def histogram_of(
    chunks: Chunks, bins: Any, options: dict[str, Any], given_range: tuple[float, float] | None
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    if given_range is None and numpy.ndim(bins) == 0:
        found = statistics_of(chunks, options, by_chunk=False)
        given_range = (float(found.min), float(found.max)) if found.count else (0, 1)
    edges = numpy.histogram_bin_edges(numpy.empty(0), bins, given_range)
    run_by = function("array_histogram")
    done, missing, _ = reduced(chunks, run_by, {"edges": [float(edge) for edge in edges]}, options, is_folded=True)
    counts = numpy.zeros(len(edges) - 1, "i8")
    for _, rows in done:
        counts += rows["count"].astype("i8")
    counts += numpy.histogram([chunks.fill], edges)[0] * elements(chunks, missing)
    return counts, edges
