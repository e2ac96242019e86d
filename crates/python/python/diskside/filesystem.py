"""Files of exports for everything that opens files through fsspec: pandas, pyarrow, Dask, xarray.

>>> import pandas
>>> pandas.read_parquet("diskside://server/data/measured.parquet", columns=["value"])

It needs the package ``fsspec``, which finds it by itself.
"""

from __future__ import annotations

import asyncio
import dis
import errno
import os
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.caching import BaseCache
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile

from . import _diskside
from ._default import connect, default_session
from ._file import as_bytes
from ._session import Session
from ._turn import Turns
from .errors import ExistsError, IoError, IsDirectoryError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Bytes that are copied at once.
_PIECE = 8 << 20


class DisksideFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """The exports of servers: paths are HOST[:PORT]/EXPORT/PATH.

    Reads are exactly of the bytes that are asked for, and many at once are one batch; small reads one behind another read
    ahead. A file that is written appears when it is closed, whole or not at all, and directories above it are made.

    :param session: the session that it works in; by default the one of :func:`diskside.run`.
    :param connect_options: instead, options of :func:`diskside.connect`.
    """

    protocol = "diskside"
    async_impl = True
    root_marker = ""
    sep = "/"

    def __init__(self, session: Session | None = None, connect_options: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._session = session or (connect(**connect_options) if connect_options else default_session())
        self._turns = Turns(self._session)

    @property
    def _native(self) -> _diskside.Session:
        return self._session._native

    @property
    def fsid(self) -> str:
        return self.protocol

    @classmethod
    def _parent(cls, path: str) -> str:
        path = cls._strip_protocol(path)
        return path.rpartition("/")[0]

    def _url(self, path: str) -> str:
        return f"{self.protocol}://{self._strip_protocol(path)}"

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if "/" not in path:
            # A server.
            return {"name": path, "size": 0, "type": "directory"}
        return _entry(path, await asyncio.to_thread(self._native.stat, self._url(path)))

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if "/" not in path:
            exports = await asyncio.to_thread(self._native.exports, self._url(path))
            entries = [{"name": f"{path}/{name}", "size": 0, "type": "directory"} for name, _ in exports]
        else:
            try:
                listed = await asyncio.to_thread(self._native.entries, self._url(path))
                entries = [_entry(f"{path}/{name}", known) for name, known in sorted(listed) if known is not None]
                entries = await asyncio.gather(*(self._behind_link(entry) for entry in entries))
            except NotADirectoryError:
                entries = [await self._info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    async def _behind_link(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A symbolic link to a file is told as that file; others as links, which no walk follows."""
        if entry["type"] != "link":
            return entry
        try:
            behind = await self._info(entry["name"])
        except OSError:
            return entry
        return {**behind, "islink": True} if behind["type"] == "file" else entry

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        first = start or 0
        if end is not None and end < 0:
            end = max((await self._info(path))["size"] + end, 0)
        read = await self._turns.read(self._url(path), first, end)
        return bytes(read.data)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Sequence[int | None] | int | None,
        ends: Sequence[int | None] | int | None,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[bytes | BaseException]:
        first: list[int | None] = [starts] * len(paths) if starts is None or isinstance(starts, int) else list(starts)
        last: list[int | None] = [ends] * len(paths) if ends is None or isinstance(ends, int) else list(ends)
        if not len(paths) == len(first) == len(last):
            raise ValueError("there are not as many starts and ends as paths")
        reads = [self._cat_file(path, start, end) for path, start, end in zip(paths, first, last, strict=True)]
        read = await asyncio.gather(*reads, return_exceptions=on_error == "return")
        return list(read)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        await asyncio.to_thread(self._write, path, [as_bytes(value)], mode)

    def _write(self, path: str, pieces: Any, mode: str = "overwrite") -> None:
        """Writes a file whole."""
        writer = self._writer(path, mode)
        for piece in pieces:
            writer.write(piece)
        writer.publish()

    def _writer(self, path: str, mode: str) -> _diskside.Writer:
        url = self._url(path)
        if self._strip_protocol(path).count("/") < 2:
            raise IsDirectoryError(f"{url} is no file: write diskside://HOST[:PORT]/EXPORT/PATH", errno.EISDIR)
        if mode == "create" and self._session.exists(url):
            raise ExistsError(f"{url} exists", errno.EEXIST)
        try:
            return self._native.writer(url)
        except FileNotFoundError:
            self._make_directories(self._parent(path))
            return self._native.writer(url)

    def _make_directories(self, path: str) -> bool:
        """Makes a directory and those above it; whether it was not there."""
        path = self._strip_protocol(path)
        if path.count("/") < 2:
            # An export; that it is there is found out when something is made in it.
            return False
        try:
            self._native.make_directory(self._url(path))
        except FileExistsError:
            if self._native.stat(self._url(path))[0] != "directory":
                raise
            return False
        except FileNotFoundError:
            parent = self._parent(path)
            if parent.count("/") < 2:
                raise
            self._make_directories(parent)
            # Others may make the same one now.
            return self._make_directories(path)
        return True

    async def _put_file(self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **options: Any) -> None:
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))

        def pieces() -> Any:
            with open(lpath, "rb") as file:
                while piece := file.read(_PIECE):
                    yield piece
                    callback.relative_update(len(piece))

        await asyncio.to_thread(self._write, rpath, pieces(), mode)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **options: Any) -> None:
        if isinstance(lpath, str) and (os.path.isdir(lpath) or await self._isdir(rpath)):
            os.makedirs(lpath, exist_ok=True)
            return
        if isinstance(lpath, (str, os.PathLike)):
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        out = open(lpath, "wb") if isinstance(lpath, (str, os.PathLike)) else lpath
        try:
            await asyncio.to_thread(self._get, rpath, out, callback)
        finally:
            if out is not lpath:
                out.close()

    def _get(self, path: str, out: Any, callback: Any) -> None:
        with self._session.open(self._url(path)) as file:
            callback.set_size(file.size)
            for piece in _pieces(file._native):
                out.write(piece)
                callback.relative_update(len(piece))

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        if await self._isdir(path1):
            await self._makedirs(path2, exist_ok=True)
            return

        def copy() -> None:
            with self._session.open(self._url(path1)) as file:
                self._write(path2, (bytes(piece) for piece in _pieces(file._native)))

        await asyncio.to_thread(copy)

    async def _rm_file(self, path: str, **options: Any) -> None:
        await asyncio.to_thread(self._native.unlink, self._url(path))

    async def _rmdir(self, path: str, **options: Any) -> None:
        await asyncio.to_thread(self._native.remove_directory, self._url(path))

    #: fsspec makes no synchronous one of it by itself: its own does nothing.
    rmdir = sync_wrapper(_rmdir)

    async def _rm(self, path: str | list[str], recursive: bool = False, batch_size: int | None = None, **options: Any) -> None:
        found = await self._expand_path(path, recursive=recursive)
        # What is in a directory goes before it.
        for one in sorted(found, key=lambda path: path.count("/"), reverse=True):
            try:
                await self._rm_file(one)
            except (IsADirectoryError, PermissionError):
                if not recursive:
                    raise
                await self._rmdir(one)

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        if create_parents:
            made = await asyncio.to_thread(self._make_directories, path)
            if not made and path.strip("/").count("/") > 1:
                raise ExistsError(f"{self._url(path)} exists", errno.EEXIST)
        else:
            await asyncio.to_thread(self._native.make_directory, self._url(path))

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        made = await asyncio.to_thread(self._make_directories, path)
        if not made and not exist_ok:
            raise ExistsError(f"{self._url(path)} exists", errno.EEXIST)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:
        stripped = self._strip_protocol(path)
        if maxdepth is not None or withdirs or "/" not in stripped or any(one in stripped for one in "*?["):
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, **options)
        # One request, however many directories there are.
        server = stripped.split("/", 1)[0]
        try:
            found = await asyncio.to_thread(self._native.find, self._url(stripped), True, True)
        except FileNotFoundError:
            found = []
        below = stripped.partition("/")[2].rstrip("/")
        for at, _ in found:
            # A recursive get makes local files of these names.
            if at != below and not at.startswith(below + "/") or ".." in at.removeprefix(below).split("/"):
                raise IoError(f"{self._url(stripped)}: the server says that {at} is below it", errno.EBADMSG)
        entries = {f"{server}/{at}": _entry(f"{server}/{at}", known) for at, known in sorted(found) if known is not None and known[0] != "directory"}
        return entries if options.get("detail") else list(entries)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Gives a file or directory another name; between exports it is copied, and removed."""
        if isinstance(path1, str) and self._strip_protocol(path1).split("/")[:2] == self._strip_protocol(path2).split("/")[:2]:
            to = path2 if not self.isdir(path2) else f"{path2.rstrip('/')}/{path1.rstrip('/').rpartition('/')[2]}"
            self._native.rename(self._url(path1), self._url(to), True)
            return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def modified(self, path: str) -> datetime:
        """When the content changed last."""
        return datetime.fromtimestamp(self.info(path)["modified"], tz=timezone.utc)

    def ukey(self, path: str) -> str:
        """Differs when the content may differ."""
        return str(self.info(path)["version"])

    def checksum(self, path: str) -> int:
        """As :meth:`ukey`, a number."""
        return int(self.info(path)["version"])

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_type: str = "diskside",
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> DisksideFile:
        return DisksideFile(
            self,
            path,
            mode,
            block_size or "default",
            autocommit=autocommit,
            cache_type=cache_type,
            cache_options=cache_options,
            **options,
        )


class DisksideTlsFileSystem(DisksideFileSystem):
    """The same over TLS alone: URLs are ``diskside+tls://HOST[:PORT]/EXPORT/PATH``."""

    protocol = "diskside+tls"


class DisksideServiceFileSystem(DisksideFileSystem):
    """Files of a service, whose servers DNS has: URLs are ``diskside+srv://NAME/EXPORT/PATH``."""

    protocol = "diskside+srv"


class DisksideTlsServiceFileSystem(DisksideFileSystem):
    """The same over TLS alone: URLs are ``diskside+tls+srv://NAME/EXPORT/PATH``."""

    protocol = "diskside+tls+srv"


class DisksideFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file of an export, as Python's own are."""

    def __init__(self, fs: DisksideFileSystem, path: str, mode: str, *args: Any, **options: Any) -> None:
        self._file: _diskside.File | None = None
        self._writer: _diskside.Writer | None = None
        self._end = 0
        #: What is being handled while it is written.
        self._handled = sys.exception()
        if mode == "rb":
            # Blocks of two versions make no file.
            self._file, options["size"] = fs._native.open(fs._url(path), "read").of_one_version()
        elif mode == "xb":
            mode = "wb"
            if fs._session.exists(fs._url(path)):
                raise ExistsError(f"{fs._url(path)} exists", errno.EEXIST)
        super().__init__(fs, path, mode, *args, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        assert self._file is not None
        length = max(min(end, self.size) - start, 0)
        request = self._file.read_past_cache(start, length)
        request.wait()
        return bytes(request.take())

    def _initiate_upload(self) -> None:
        if self.mode == "ab":
            url = self.fs._url(self.path)
            self._file = self.fs._native.open(url, "create")
            self._end = self._file.len_bytes()
        else:
            self._writer = self.fs._writer(self.path, "overwrite")

    def _upload_chunk(self, final: bool = False) -> bool:
        piece = self.buffer.getvalue()
        if self._writer is not None:
            self._writer.write(piece)
            if final and self.autocommit:
                self.commit()
        elif self._file is not None:
            request = self._file.write(self._end, piece, False)
            request.wait()
            self._end += request.take()
        return True

    def commit(self) -> None:
        """Gives the file its name."""
        if self._writer is not None:
            self._writer.publish()
            self._writer = None

    def write(self, data: Any) -> int:
        if not _ends_with_block(self._handled):
            self._handled = sys.exception()
        written: int = super().write(data)
        return written

    def close(self) -> None:
        if not self.closed and self.mode == "wb" and _ends_with_block(self._handled):
            self.discard()
        super().close()

    def __exit__(self, kind: Any, *raised: Any) -> None:
        # fsspec's own closes the file, which then has its name with half of its bytes.
        if kind is not None and not self.closed and self.mode == "wb":
            self.discard()
        super().__exit__(kind, *raised)

    def discard(self) -> None:
        """Gives up what was written."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
        self.closed = True


def _ends_with_block(handled: BaseException | None) -> bool:
    """Whether a ``with`` block is ending by another exception than this one.

    ``fsspec.open``, files of text and compressed ones do not say so to the file that they wrap: they close it, as if all were written.
    """
    raised = sys.exception()
    if raised is None or raised is handled:
        return False
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_code[frame.f_lasti] != _WITH_EXCEPT_START:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


_WITH_EXCEPT_START = dis.opmap["WITH_EXCEPT_START"]


class SequentialCache(BaseCache):  # type: ignore[misc]
    """Reads exactly what is asked for, so that nothing travels that nobody needs; but small reads one behind another, as of
    lines, are read ahead of: as much as has been read so, up to 4 MiB."""

    name = "diskside"
    SMALL = 64 << 10
    AHEAD_MAX = 4 << 20

    def __init__(self, blocksize: int, fetcher: Any, size: int, **options: Any) -> None:
        super().__init__(blocksize, fetcher, size)
        self._start, self._held = 0, b""
        self._next, self._in_row = 0, 0

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = start or 0
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        is_next = start == self._next and stop - start <= self.SMALL
        self._in_row = self._in_row + stop - start if is_next else 0
        self._next = stop
        held_to = self._start + len(self._held)
        if self._start <= start and stop <= held_to:
            return self._held[start - self._start : stop - self._start]
        if not self._in_row:
            return bytes(self.fetcher(start, stop))
        ahead = min(max(self._in_row, stop - start), self.AHEAD_MAX)
        begun = self._held[start - self._start :] if self._start <= start < held_to else b""
        self._held = begun + self.fetcher(start + len(begun), min(stop + ahead, self.size))
        self._start = start
        return self._held[: stop - start]


def _register() -> None:
    from fsspec.caching import caches, register_cache

    if SequentialCache.name not in caches:
        register_cache(SequentialCache)


_register()


def _entry(path: str, known: tuple[str, int, float, int, int]) -> dict[str, Any]:
    kind, size, modified, version, mode = known
    is_directory = kind == "directory"
    return {
        "name": path,
        "size": 0 if is_directory else size,
        "type": kind,
        "modified": modified,
        "version": version,
        "mode": mode,
    }


def _pieces(file: _diskside.File) -> Any:
    """All bytes of a file; the next piece is on its way while one is used."""
    file, length = file.of_one_version()
    ahead = file.read_past_cache(0, min(_PIECE, length))
    for offset in range(0, length, _PIECE):
        request = ahead
        following = offset + _PIECE
        if following < length:
            ahead = file.read_past_cache(following, min(_PIECE, length - following))
        request.wait()
        piece = memoryview(request.take())
        if not piece:
            raise NotFoundError(f"{file.name} became shorter while it was read")
        yield piece
