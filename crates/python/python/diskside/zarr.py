"""Zarr arrays at servers, of formats 2 and 3, for zarr-python 3 and xarray.

>>> import zarr
>>> from diskside.zarr import ZarrStore
>>> array = zarr.open_array(ZarrStore("diskside://server/data/measured.zarr"), mode="r")

It needs the package ``zarr``.
"""

from __future__ import annotations

import asyncio
import builtins
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer

from ._chunks import Statistics, chunks_of, histogram_of, statistics_of
from ._default import default_session
from ._names import is_export_url, parts_of
from ._session import Session
from ._shards import use as use_codec_of_shards
from ._turn import Turns
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import numpy as np
    from zarr import Array
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype


use_codec_of_shards()


class ZarrStore(Store):
    """The files below a directory of an export, each under its path as key.

    What the tasks of one turn of the event loop get travels as one batch, however many files and ranges that are. A value
    that is set is there whole or not at all.

    :param url: ``diskside://HOST[:PORT]/EXPORT/PATH``, or ``diskside+tls://``; the directory is made when something is set.
    :param session: the session that it works in; by default the one of :func:`diskside.run`. It is not pickled.
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(self, url: str, *, read_only: bool = False, session: Session | None = None) -> None:
        super().__init__(read_only=read_only)
        if not is_export_url(url):
            raise UsageError(f"ZarrStore: {url!r} is no directory of an export; write diskside://HOST[:PORT]/EXPORT/PATH")
        self.url = url.rstrip("/")
        self._session = session or default_session()
        self._turns = Turns(self._session)

    @property
    def batches(self) -> int:
        """How many batches of reads have been begun."""
        return self._turns.batches

    def with_read_only(self, read_only: bool = False) -> ZarrStore:
        return type(self)(self.url, read_only=read_only, session=self._session)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and (self.url, self.read_only) == (other.url, other.read_only)

    def __hash__(self) -> int:
        return hash((self.url, self.read_only))

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"ZarrStore({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "read_only": self.read_only, "is_open": self._is_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["url"], read_only=state["read_only"])  # type: ignore[misc]
        self._is_open = state["is_open"]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return (await self._get(key, prototype, byte_range))[0]

    async def _get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: ByteRequest | None,
        *,
        version: int | None = None,
        anew: bool = False,
    ) -> tuple[Buffer | None, int]:
        """A value, and the version of the file that it is of; 0: of more than one, or there is none."""
        await self._ensure_open()
        start, end = _ends(byte_range)
        try:
            read = await self._turns.read(self._of(key), start, end, version=version, anew=anew)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None, 0
        return prototype.buffer.from_bytes(read.data), read.version

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> builtins.list[Buffer | None]:
        return await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges))

    async def exists(self, key: str) -> bool:
        await self._ensure_open()
        try:
            found = await asyncio.to_thread(self._session.stat, self._of(key))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return found.kind != "directory"

    async def getsize(self, key: str) -> int:
        await self._ensure_open()
        return (await asyncio.to_thread(self._session.stat, self._of(key))).size

    async def set(self, key: str, value: Buffer) -> None:
        await self._ensure_open()
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"ZarrStore.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead.")
        await asyncio.to_thread(self._set, key, value.to_bytes())

    def _set(self, key: str, value: bytes) -> None:
        url = self._of(key)
        try:
            self._session.write(url, value)
        except FileNotFoundError:
            self._make_directory(url.rpartition("/")[0])
            self._session.write(url, value)

    def _make_directory(self, url: str) -> None:
        native = self._session._native
        # Of an export itself nobody can make one.
        while parts_of(url)[1].count("/"):
            try:
                return native.make_directory(url)
            except FileExistsError:
                return None
            except FileNotFoundError:
                self._make_directory(url.rpartition("/")[0])
        return None

    async def delete(self, key: str) -> None:
        await self._ensure_open()
        self._check_writable()
        try:
            await asyncio.to_thread(self._session._native.unlink, self._of(key))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (IsADirectoryError, PermissionError):
            await self.delete_dir(key)

    async def delete_dir(self, prefix: str) -> None:
        await self._ensure_open()
        self._check_writable()
        await asyncio.to_thread(self._delete_below, self._of(prefix))

    def _delete_below(self, url: str) -> None:
        native = self._session._native
        try:
            entries = native.entries(url)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, known in entries:
            if known is not None and known[0] == "directory":
                self._delete_below(f"{url}/{name}")
            else:
                native.unlink(f"{url}/{name}")
        if url != self.url:
            native.remove_directory(url)

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        await self._ensure_open()
        # A prefix is of keys, not of directories: `a/b` is one of `a/bc`.
        directory = prefix.rpartition("/")[0]
        try:
            found = await asyncio.to_thread(self._session._native.find, self._of(directory), True, True)
        except (FileNotFoundError, NotADirectoryError):
            return
        root = parts_of(self.url)[1] + "/"
        for path, known in found:
            key = unquote(path.removeprefix(root))
            if key.startswith(prefix) and (known is None or known[0] != "directory"):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        await self._ensure_open()
        try:
            entries = await asyncio.to_thread(self._session._native.entries, self._of(prefix.rstrip("/")))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, _ in sorted(entries):
            yield unquote(name)

    def _of(self, key: str) -> str:
        # In a URL, `%41` is another way to write `A`; a key is what it is.
        return f"{self.url}/{key.replace('%', '%25')}".rstrip("/")


def statistics(array: str | Array[Any], *, by_chunk: bool = False, **options: Any) -> Statistics:
    """Count, sum, mean, least and greatest of an array's elements, computed where its chunks are: only these travel.

    Chunks that are not there are the fill value, and of chunks that reach beyond the array only its elements count.

    :param array: its URL, or an array that is open in a :class:`ZarrStore`.
    :param by_chunk: each of these of every chunk: arrays over the grid of chunks.
    :param options: those of :meth:`diskside.Session.run`: ``place``, ``deadline``, ``tier``, ``threads``.
    :raises UsageError: its type is no number of up to 8 bytes, or a codec is none that servers have (gzip, zstd, zlib, lz4,
        crc32c, blosc by lz4, lz4hc, zlib or zstd; in shards, too).

    >>> diskside.zarr.statistics("diskside://server/data/grid.zarr").mean
    np.float64(0.5)
    """
    return statistics_of(_chunks(array), options, by_chunk)


def histogram(
    array: str | Array[Any], bins: Any = 10, range: tuple[float, float] | None = None, **options: Any
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The counts and edges of ``numpy.histogram``, computed where the array's chunks are.

    :param bins: how many, or their edges.
    :param range: the first edge and the last; those of the elements otherwise, which another pass finds.
    """
    return histogram_of(_chunks(array), bins, options, range)


def _chunks(array: str | Array[Any]) -> Any:
    import zarr

    if isinstance(array, str):
        opened = zarr.open(ZarrStore(array, read_only=True), mode="r")
        if isinstance(opened, zarr.Group):
            raise UsageError(f"{array}: it is a group; name one of its arrays: {', '.join(sorted(opened.array_keys())) or 'it has none'}")
        array = opened
    store = array.store
    if not isinstance(store, ZarrStore):
        raise UsageError(f"{store}: the array is in no diskside.zarr.ZarrStore, so it is at no server of ours")
    return chunks_of(array, store)


def _ends(byte_range: ByteRequest | None) -> tuple[int, int | None]:
    match byte_range:
        case None:
            return 0, None
        case RangeByteRequest(start, end):
            return start, end
        case OffsetByteRequest(offset):
            return offset, None
        case SuffixByteRequest(suffix):
            # Nothing from the end on is nothing.
            return (-suffix, None) if suffix else (0, 0)
    raise ValueError(f"Unexpected byte_range, got {byte_range}.")
