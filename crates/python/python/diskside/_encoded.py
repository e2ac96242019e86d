"""How the chunks of a Zarr array are encoded, and where they lie in shards."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from zarr import Array

from ._job import Job
from .errors import ChangedError, IoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._session import Session

#: What servers decode, by the names that both formats and numcodecs have for it.
_CODECS = {"gzip": "gzip", "zstd": "zstd", "zlib": "zlib", "lz4": "lz4", "blosc": "blosc", "crc32c": "crc32c"}
_CODECS |= {f"numcodecs.{name}": name for name in ("gzip", "zstd", "zlib", "lz4", "blosc")}
#: Compressors within Blosc's frames.
_IN_BLOSC = ("lz4", "lz4hc", "zlib", "zstd")
#: A chunk that is in no shard: offset and length in its index.
_MISSING = 2**64 - 1
#: Longest index of a shard: one of 16 million chunks.
_INDEX_MAX = 1 << 28


class Encoding(NamedTuple):
    """What an array's chunks are, decoded and encoded."""

    dtype: numpy.dtype[Any]
    order: tuple[int, ...]
    """Which dimensions there are in memory, slowest first."""
    codecs: tuple[str, ...]
    """In the order of decoding."""
    shards: Shards | None


class Shards(NamedTuple):
    """How chunks lie in shards."""

    counts: tuple[int, ...]
    """Chunks of a shard along each dimension."""
    at_end: bool
    big_endian: bool
    is_checked: bool
    """A checksum follows the index."""

    @property
    def index_len(self) -> int:
        return prod(self.counts) * 16 + 4 * self.is_checked


def encoding_of(url: str, array: Array[Any]) -> Encoding:
    """How an array's chunks are encoded.

    :raises UsageError: in a way that servers do not decode.
    """
    metadata = array.metadata
    dtype = numpy.dtype(array.dtype)
    order = tuple(range(len(array.shape)))
    if metadata.zarr_format == 2:
        if metadata.filters:
            raise _not_at_servers(url, f"filter {metadata.filters[0]}")
        codecs: tuple[str, ...] = ()
        if metadata.compressor is not None:
            told = metadata.compressor.get_config()
            codecs = (_codec(url, told["id"], told),)
        return Encoding(dtype, order[::-1] if metadata.order == "F" else order, codecs, None)
    listed: list[Any] = [codec.to_dict() for codec in metadata.codecs]
    shards = None
    if [one["name"] for one in listed] == ["sharding_indexed"]:
        told = listed[0]["configuration"]
        shards = _shards(url, array, told)
        listed = list(told["codecs"])
    big, order, codecs = _chain(url, listed, order)
    return Encoding(dtype.newbyteorder(">" if big else "<"), order, codecs, shards)


def _chain(url: str, listed: list[Any], order: tuple[int, ...]) -> tuple[bool, tuple[int, ...], tuple[str, ...]]:
    """Whether numbers are big-endian, the order of dimensions, and what the bytes are encoded by."""
    big = False
    codecs: list[str] = []
    for told in listed:
        configuration = told.get("configuration") or {}
        match told["name"]:
            case "bytes":
                big = configuration.get("endian") == "big"
            case "transpose":
                # One of a transposed array transposes that again.
                order = tuple(order[dimension] for dimension in configuration["order"])
            case name:
                codecs.append(_codec(url, name, configuration))
    return big, order, tuple(reversed(codecs))


def _codec(url: str, name: str, told: dict[str, Any]) -> str:
    codec = _CODECS.get(name)
    if codec is None:
        raise _not_at_servers(url, f"codec {name}")
    if codec == "blosc" and _name(told.get("cname", "lz4")) not in _IN_BLOSC:
        raise _not_at_servers(url, f"codec blosc by {_name(told['cname'])}")
    return codec


def _name(of: Any) -> str:
    return str(getattr(of, "value", of))


def _not_at_servers(url: str, what: str) -> UsageError:
    have = "gzip, zstd, zlib, lz4, crc32c, and blosc by lz4, lz4hc, zlib and zstd"
    return UsageError(f"{url}: its {what} is none that servers have: {have}; read the array with zarr, which brings its chunks here")


def _shards(url: str, array: Array[Any], told: dict[str, Any]) -> Shards:
    if any(codec["name"] == "sharding_indexed" for codec in told["codecs"]):
        raise _not_at_servers(url, "codec sharding_indexed within shards")
    index = list(told["index_codecs"])
    names = [codec["name"] for codec in index]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise _not_at_servers(url, f"index of shards, encoded by {', '.join(names)},")
    assert array.shards is not None
    counts = tuple(shard // chunk for shard, chunk in zip(array.shards, array.chunks, strict=True))
    big = (index[0].get("configuration") or {}).get("endian") == "big"
    shards = Shards(counts, _name(told["index_location"]) == "end", big, len(names) == 2)
    if shards.index_len > _INDEX_MAX:
        raise UsageError(f"{url}: a shard has {prod(counts)} chunks, and an index of {shards.index_len} bytes; {_INDEX_MAX} are read")
    return shards


def in_shards(session: Session, urls: list[str], shards: Shards) -> Iterator[tuple[numpy.ndarray[Any, Any], int]]:
    """The index of each: offset and length of each of its chunks, of those that are not there 2**64 - 1; and the version of the shard
    that says so."""
    length = shards.index_len
    wanted = [(url, -length, None, None) if shards.at_end else (url, 0, length, None) for url in urls]
    at_once = max(min(_AT_ONCE, _AT_ONCE_BYTES // length), 1)
    for first in range(0, len(wanted), at_once):
        part = wanted[first : first + at_once]
        for (url, *_), found in zip(part, Job(session._native.fetch(part, True), list).result(), strict=True):
            if isinstance(found, Exception):
                raise found
            data, _, version = found
            if version == 0:
                raise ChangedError(f"{url}: the shard changed while its index was read")
            yield _index(url, bytes(memoryview(data)), shards), version


#: Indexes that are read at a time.
_AT_ONCE = 256
_AT_ONCE_BYTES = 1 << 26


def _index(url: str, data: bytes, shards: Shards) -> numpy.ndarray[Any, Any]:
    if len(data) != shards.index_len:
        raise IoError(f"{url}: it has no room for the index of a shard, which has {shards.index_len} bytes")
    if shards.is_checked:
        import google_crc32c

        data, told = data[:-4], int.from_bytes(data[-4:], "little")
        found = google_crc32c.value(data)
        if found != told:
            raise IoError(f"{url}: the index of the shard is damaged: its checksum says {told:08x}, and that of its bytes is {found:08x}")
    return numpy.frombuffer(data, ">u8" if shards.big_endian else "<u8").astype("u8").reshape(*shards.counts, 2)


def is_missing(index: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Of which chunks an index says that they are not there."""
    missing: numpy.ndarray[Any, Any] = (index == _MISSING).all(axis=-1)
    return missing
