"""Sessions: connections to servers, files, and functions over them."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _diskside
from ._function import Function, function, shipped
from ._job import Job
from ._names import expanded, export_of, is_export_url, is_url, joined, parts_of, seconds, size
from ._result import Result
from ._scan import Scan
from .errors import DeadlineError, IoError, IsDirectoryError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

#: What a run is told besides the function's arguments.
OPTIONS = frozenset(
    "place split chunk heap range decompress header threads tier combine budget deadline result_max background durable "
    "state".split()
)
_SIZES = frozenset({"chunk", "heap", "result_max"})


class FileInfo(NamedTuple):
    """What is known of a file or directory of an export."""

    kind: str
    """``file``, ``directory``, ``link`` or ``other``."""
    size: int
    """Length in bytes."""
    modified: float
    """When the content changed last, in seconds since 1970."""
    version: int
    """Differs when the content may differ."""
    mode: int
    """Permission bits."""


class Session:
    """Connections to servers, what was read of their files, and what was measured of functions.

    :func:`connect` makes one. Threads can share it. It does not pickle; a process that was forked connects again by itself.
    """

    def __init__(self, url: str | None, options: tuple[Any, ...]) -> None:
        self.url = url
        self._options = options
        self._lock = threading.Lock()
        self._made: _diskside.Session | None = _diskside.Session(*options)
        self._servers: list[tuple[str, _diskside.Server]] = []

    @property
    def _native(self) -> _diskside.Session:
        made = self._made
        if made is None:
            raise UsageError("the session is closed")
        if made.is_here:
            return made
        # This process was forked from the one that made it, and has none of its threads.
        self._lock = threading.Lock()
        self._made = made = _diskside.Session(*self._options)
        return made

    def run(
        self,
        function: Function | str | os.PathLike[str] | bytes,
        files: Any,
        *,
        args: Mapping[str, Any] | None = None,
        out: str | os.PathLike[str] | None = None,
        recursive: bool = False,
        progress: Callable[[int, int | None], object] | bool | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Result:
        """Runs a function over files, wherever each is, and puts their results together in this order.

        :param function: a Function, or what :func:`function` takes: a shipped name, a path to C source or an object.
        :param files: one or several of: paths, ``diskside://HOST[:PORT]/EXPORT/PATH`` (with ``*``, ``?``, ``[...]`` and ``**``),
            ``nvme-tcp://HOST[:PORT]/NQN/NSID`` (both with ``+tls`` behind their scheme, too), open :class:`File`. Relative paths are those of the session's URL, if it has one.
        :param args: the function's arguments by name. Those whose names are no options can be given as keywords, too.
        :param out: a path or URL: the result becomes this file, which appears whole or not at all.
        :param recursive: run over all files below directories.
        :param progress: called about 20 times a second with the bytes that are done and those that there are (None: unknown);
            True: shows a bar of ``tqdm``.
        :param timeout: seconds; the function is stopped when they are over.
        :param options: arguments of the function, and any of

            - ``place``: ``auto`` (where it is faster), ``host`` (here), ``device`` (where the data is)
            - ``range``: the part of each file, first byte and end, such as ``(0, "8MiB")``; an end of None is that of the file
            - ``split``: what records are: ``lines``, ``bytes``, ``whole``, or the bytes of one
            - ``chunk``: bytes of a piece; ``heap``: bytes for ``ds_alloc``; ``threads``; ``tier``: ``best``, ``interp``,
              ``cranelift``, ``llvm``
            - ``combine``: False leaves the results of pieces and files one after another
            - ``decompress``: ``auto``, ``none``, ``gzip``, ``zstd``; ``header``: ``auto``, ``none``, ``npy``
            - ``budget``: loop iterations of a piece; ``deadline``: seconds; ``result_max``: bytes of the result, 64 MiB otherwise
            - ``background``: at a server, only while nothing else is to do; ``durable``: what is written is on stable media
            - ``state``: a name and a size in bytes, of memory that stays from call to call
        :returns: the result; rows by name if the function says what they are.
        :raises UsageError: an option, an argument, a range or a name is wrong.
        :raises IoError: a file or server cannot be used; FileNotFoundError and PermissionError where it is that.
        :raises TrapError: the function was stopped: ``error.trap`` has the place, the instruction and the source line.
        :raises DeadlineError: ``deadline`` or ``timeout`` passed; also a TimeoutError.

        >>> diskside.run("stats64", "measured.u64").count
        1000
        """
        timeout = seconds("timeout", timeout)
        tell = None if progress is None or progress is False else _told(progress, _name(function))
        job, files_here = self._begin(function, files, args, out, recursive, options)
        try:
            if tell is not None:
                return _with_progress(job, files_here, tell, timeout, _name(function))
            if not job._request.wait(timeout):
                job.cancel()
                raise DeadlineError(f"{_name(function)}: it had not ended within {timeout} s, and was stopped")
            return job.result()
        except IsDirectoryError as error:
            remedy = "recursive=True runs over all files below it, and a pattern such as */*.log over some"
            raise IsDirectoryError(f"{error}; {remedy}", error.errno) from None

    def scan(
        self,
        file: str | os.PathLike[str],
        columns: str | Iterable[str] | None = None,
        *,
        where: str | None = None,
        aggregate: str | Mapping[str, str] | None = None,
        by: str | Iterable[str] | None = None,
        order: str | Iterable[str] | None = None,
        limit: int | None = None,
        input: str | None = None,
        delimiter: str | None = None,
        header: bool = True,
        types: str | Mapping[str, str] | None = None,
        place: str = "auto",
    ) -> Scan:
        """Columns, rows or sums of a Parquet, Arrow, CSV or JSON lines file, wherever it is: what is not wanted does not travel.

        :param file: a path or ``diskside://HOST[:PORT]/EXPORT/PATH``; relative to the session's URL, if it has one.
        :param columns: names, or one text with commas between them; None: all.
        :param where: rows for which this is true, as SQL has it: ``l_quantity < 24 and l_comment like '%fox%'``.
        :param aggregate: what comes instead of rows: ``sum(a * b) as total, count(*)``, or the same by name:
            ``{"total": "sum(a * b)"}``. There are ``sum``, ``count``, ``min``, ``max`` and ``avg``.
        :param by: up to eight columns that rows are grouped by.
        :param order: columns of the result that its rows are sorted by, ``price desc, name``; it takes a limit of at most 65,536.
        :param limit: the most rows that come.
        :param input: what the file is: ``parquet``, ``arrow``, ``csv`` or ``jsonl``; None: what it begins with, or its name, says.
        :param delimiter: what is between the values of a CSV file; None: a comma, in a ``.tsv`` a tab.
        :param header: False: a CSV file begins with values, and its columns are called ``column0``, ``column1``, ...
        :param types: types of columns of a CSV or JSON lines file, ``price decimal(15, 2), day date``, or the same by name; those of
            others are guessed of its first lines.
        :param place: ``auto`` (where less is moved), ``host`` (the needed bytes are read, and decoded here by the program
            ``diskside-scan``) or ``device`` (at the server).
        :returns: a scan that begins when its result is asked for: ``arrow()``, ``pandas()``, ``polars()``, ``batches()``.
        :raises UsageError: an option is wrong; what is wrong for this file is found when the result is asked for.

        >>> session.scan("data/lineitem.parquet", by="l_shipmode", aggregate="count(*)").pandas()
        """
        name = joined(self.url, file)
        return Scan(self, name, columns, where, aggregate, by, order, limit, input, delimiter, header, types, place)

    def submit(
        self,
        function: Function | str | os.PathLike[str] | bytes,
        files: Any,
        *,
        args: Mapping[str, Any] | None = None,
        out: str | os.PathLike[str] | None = None,
        recursive: bool = False,
        **options: Any,
    ) -> Job[Result]:
        """Begins what :meth:`run` does, and does not wait: take ``job.result()``, or ``await job``."""
        return self._begin(function, files, args, out, recursive, options)[0]

    def _begin(
        self,
        what: Function | str | os.PathLike[str] | bytes,
        files: Any,
        args: Mapping[str, Any] | None,
        out: str | os.PathLike[str] | None,
        recursive: bool,
        options: dict[str, Any],
    ) -> tuple[Job[Result], list[_diskside.File]]:
        run_by = function(what)
        chosen, arguments = parted(run_by, args, options)
        opened = self._files(files, recursive)
        into = None if out is None else joined(self.url, out)
        request = self._native.run(opened, run_by._native, run_by.encode(arguments, opened[0], chosen), chosen, into)
        return Job(request, lambda ran: Result(ran, run_by)), opened

    def _submit_chunks(
        self,
        run_by: Function,
        files: list[tuple[str, tuple[int, int, int] | None]],
        encoding: tuple[tuple[str, ...], int],
        args: Mapping[str, Any],
        options: dict[str, Any],
    ) -> Job[Result]:
        """Begins a run over chunks of an array, each a file of an export or a range of a version of one: see ``_chunks``.

        :param encoding: what decodes each, in this order, and its bytes when it is decoded.
        """
        chosen, arguments = parted(run_by, args, options)
        opened = {url: self._native.open_late(url) for url, _ in files}
        ranges = [range_of for _, range_of in files if range_of is not None]
        chosen["chunks"] = (list(encoding[0]), encoding[1], ranges)
        named = [opened[url] for url, _ in files]
        request = self._native.run(named, run_by._native, run_by.encode(arguments), chosen, None)
        return Job(request, lambda ran: Result(ran, run_by))

    def _files(self, files: Any, recursive: bool) -> list[_diskside.File]:
        if isinstance(files, (str, bytes, os.PathLike, File)):
            files = [files]
        try:
            listed = list(files)
        except TypeError:
            raise UsageError(f"{files!r} is no file: give a path, a URL, an open file, or several of them") from None
        named: list[_diskside.File | str] = []
        for one in listed:
            if isinstance(one, File):
                named.append(one._native)
            else:
                named.extend(expanded(self._native, joined(self.url, one), recursive))
        if not named:
            raise UsageError("there are no files to run over")
        # That one of a few is not there is known before anything runs; of many only some are open at a time. One that is
        # alone is opened by its run, which may need no round trip of its own for that.
        few = 1 < len(named) <= 8
        open_one = self._native.open_late if not few else lambda name: self._native.open(name, "read")
        return [open_one(one) if isinstance(one, str) else one for one in named]

    def open(self, name: str | os.PathLike[str], mode: str = "r") -> File:
        """Opens a path, a file of an export, or a volume, for reads and writes by position.

        :param mode: ``r``; ``r+``: reading and writing, it must be there; ``w+``: the same, it is made if it is not there.
        """
        return File(self, joined(self.url, name), mode)

    def stat(self, url: str) -> FileInfo:
        """What is known of a file or directory of an export."""
        return FileInfo(*self._native.stat(joined(self.url, url)))

    def exists(self, url: str) -> bool:
        """Whether there is such a file or directory of an export."""
        try:
            self.stat(url)
        except FileNotFoundError:
            return False
        return True

    def ls(self, url: str = "") -> dict[str, FileInfo | None]:
        """The entries of a directory of an export, by name; of a server's URL, its exports."""
        of = joined(self.url, url)
        if is_export_url(of) and not parts_of(of)[1].strip("/"):
            return {name: None for name, _ in self._native.exports(of)}
        return {name: None if known is None else FileInfo(*known) for name, known in sorted(self._native.entries(of))}

    def read(self, name: str | os.PathLike[str]) -> bytes:
        """All bytes of a file, wherever it is."""
        with self.open(name) as file:
            return file.read()

    def write(self, name: str | os.PathLike[str], data: Any) -> None:
        """Writes a file whole: of an export, it appears with all of these bytes, or not at all."""
        to = joined(self.url, name)
        if is_export_url(to):
            try:
                self._native.write_whole(to, as_bytes(data))
            except NotFoundError as error:
                remedy = "make the directory first, with mkdir; what fsspec opens for writing makes it by itself"
                raise NotFoundError(f"{error}; {remedy}", error.errno) from None
            return
        with self.open(to, "w+") as file:
            file.truncate(0)
            file.write(0, data)

    def mkdir(self, url: str) -> None:
        """Makes a directory of an export; the one above it must be there."""
        self._native.make_directory(joined(self.url, url))

    def remove(self, url: str) -> None:
        """Removes a file of an export, or a directory that is empty."""
        name = joined(self.url, url)
        if self.stat(name).kind == "directory":
            try:
                self._native.remove_directory(name)
            except IoError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                remedy = "rm(url, recursive=True) of fsspec.filesystem('diskside') removes it with all that is in it"
                raise IoError(f"{error}; {remedy}", error.errno) from None
        else:
            self._native.unlink(name)

    def rename(self, url: str, to: str) -> None:
        """Gives a file or directory another name in its export, replacing a file of that name."""
        old, new = joined(self.url, url), joined(self.url, to)
        if export_of(old) != export_of(new):
            raise UsageError(f"rename: {new} is not in the export of {old}; copy it, and remove it")
        self._native.rename(old, new, True)

    def drop_cache(self) -> None:
        """Forgets all bytes of files of exports that are kept."""
        self._native.drop_cache()

    @property
    def cached_bytes(self) -> int:
        """Bytes of files of exports that are kept now."""
        return self._native.cached_bytes

    def metrics(self) -> str:
        """What it counts, in the text format of OpenMetrics, for a program that tells Prometheus of itself."""
        return self._native.metrics()

    def clear_state(self, name: str, url: str | None = None) -> None:
        """Zeroes a named state: of calls that ran here, or with a URL, at that server."""
        self._native.clear_state(name, url)

    def save_learnt(self) -> None:
        """Writes what was measured of functions into ``learnt_directory`` for the next session."""
        self._native.save_learnt()

    def close(self) -> None:
        """Closes connections, once what is under way has ended. Once more it does nothing."""
        self._made = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a diskside.Session has connections, so it does not pickle; pickle its URL, and connect there")

    def __repr__(self) -> str:
        return f"<diskside.Session {self.url or 'without a URL'}{'' if self._made else ', closed'}>"


class File:
    """A path here, a file of an export, or a volume, read and written by position.

    Threads can share it. It is opened again in a process that was forked, and where it is unpickled.
    """

    def __init__(self, session: Session, name: str, mode: str = "r") -> None:
        modes = {"r": "read", "r+": "write", "w+": "create"}
        if mode not in modes:
            others = "a session's write() writes a file whole, and fsspec.open() gives one with lines and a position"
            raise UsageError(f"mode: {mode!r} is none of {', '.join(modes)}; {others}")
        self.name = name
        self.mode = mode
        self._session = session
        self._mode = modes[mode]
        self._opened: tuple[_diskside.Session, _diskside.File] | None = None
        _ = self._native

    @property
    def _native(self) -> _diskside.File:
        session = self._session._native
        if self._opened is None or self._opened[0] is not session:
            if self.mode == "closed":
                raise UsageError(f"{self.name}: the file is closed")
            self._opened = (session, session.open(self.name, self._mode))
        return self._opened[1]

    @property
    def size(self) -> int:
        """Its present length in bytes."""
        return self._native.len_bytes()

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Reads up to ``length`` bytes at ``offset``, or all to the end; fewer only at the end."""
        return bytes(self.view(offset, length))

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """As :meth:`read`, without a copy: the bytes where they came in, read-only."""
        return self.submit_read(offset, length).result()

    def submit_read(self, offset: int = 0, length: int | None = None) -> Job[memoryview]:
        """Begins :meth:`view`, and does not wait."""
        offset = size("offset", offset)
        length = max(self.size - offset, 0) if length is None else size("length", length)
        return Job(self._native.read(offset, length), memoryview)

    def write(self, offset: int, data: Any, *, durable: bool = False) -> int:
        """Writes all of ``data``: bytes, or an array of any type and order (in C order). Returns its number of bytes."""
        return self.submit_write(offset, data, durable=durable).result()

    @property
    def _writable(self) -> _diskside.File:
        if self.mode == "r":
            raise UsageError(f"{self.name}: it was opened for reading; open it with the mode r+, or w+, which makes it if it is not there")
        return self._native

    def submit_write(self, offset: int, data: Any, *, durable: bool = False) -> Job[int]:
        """Begins :meth:`write`; the data is copied at once."""
        return Job(self._writable.write(size("offset", offset), as_bytes(data), durable), int)

    def sync(self) -> None:
        """Makes durable what was written before."""
        Job(self._native.sync(), int).result()

    def truncate(self, length: int) -> None:
        """Makes it so many bytes long."""
        self._writable.truncate(size("length", length))

    def run(self, function: Function | str | os.PathLike[str] | bytes, **options: Any) -> Result:
        """Runs a function over it: :meth:`Session.run`."""
        return self._session.run(function, self, **options)

    def submit(self, function: Function | str | os.PathLike[str] | bytes, **options: Any) -> Job[Result]:
        """Begins :meth:`run`, and does not wait."""
        return self._session.submit(function, self, **options)

    def write_through(
        self,
        what: Function | str | os.PathLike[str] | bytes,
        offset: int,
        data: Any,
        *,
        args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result:
        """Runs a function over ``data`` and writes its output at ``offset``; ``result.stats["written_bytes"]`` is how long that
        is. Where the function runs at the server, only the input travels."""
        run_by = function(what)
        chosen, arguments = parted(run_by, args, options)
        encoded = run_by.encode(arguments)
        request = self._writable.write_fn(size("offset", offset), as_bytes(data), run_by._native, encoded, chosen)
        return Job(request, lambda ran: Result(ran, run_by)).result()

    def close(self) -> None:
        """Closes it. Once more it does nothing."""
        self._opened = None
        self.mode = "closed"

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.name, self.mode)

    def __repr__(self) -> str:
        return f"<diskside.File {self.name} {self.mode}>"


def _open_again(name: str, mode: str) -> File:
    return File(default_session(), name, mode)


def parted(by: Function, args: Mapping[str, Any] | None, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the run, and arguments of the function."""
    chosen = {name: value for name, value in options.items() if name in OPTIONS and value is not None}
    arguments = {name: value for name, value in options.items() if name not in OPTIONS}
    for name in _SIZES & chosen.keys():
        chosen[name] = size(name, chosen[name])
    if "state" in chosen and not isinstance(chosen["state"], str):
        try:
            state, length = chosen["state"]
        except (TypeError, ValueError):
            raise UsageError(f"state: {chosen['state']!r} is not a name and a size, such as ('seen', '64KiB')") from None
        chosen["state"] = (state, size("state", length))
    elif "state" in chosen:
        state, _, length = chosen["state"].partition("=")
        chosen["state"] = (state, size("state", length))
    if "range" in chosen:
        chosen |= _range(chosen.pop("range"))
    known = [argument["name"] for argument in by.arguments]
    for name in arguments:
        if name not in known:
            raise UsageError(_unknown(by, name, known))
    try:
        given = dict(args or {})
    except (TypeError, ValueError):
        raise UsageError(f"{by.name}: args: {args!r} is not a dictionary of names and values") from None
    for name, value in given.items():
        if name in arguments:
            raise UsageError(f"{by.name}: argument `{name}` is given twice")
        arguments[name] = value
    return chosen, arguments


def _range(given: Any) -> dict[str, int]:
    try:
        start, end = given
    except (TypeError, ValueError):
        raise UsageError(f"range: {given!r} is not a first byte and an end") from None
    start = size("range", start)
    if end is None:
        return {"offset": start}
    end = size("range", end)
    if end < start:
        raise UsageError(f"range: it ends at {end}, before its first byte {start}")
    return {"offset": start, "length": end - start}


def _unknown(by: Function, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*known, *OPTIONS, "out", "recursive", "progress", "timeout", "args"], 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    has = ", ".join(known) or "none"
    return f"{by.name}: `{name}` is neither an argument of the function (it has {has}) nor an option of a run{hint}"


def as_bytes(data: Any) -> bytes:
    """The bytes of anything with a buffer, in C order."""
    if isinstance(data, bytes):
        return data
    kind = getattr(data, "dtype", None)
    if getattr(kind, "hasobject", False):
        raise UsageError(f"an array of {kind} holds Python objects, which have no bytes of their own; give it another type")
    if kind is not None and hasattr(data, "tobytes"):
        # Some types of numpy's, such as its times, have no buffer.
        return bytes(data.tobytes())
    try:
        return memoryview(data).tobytes()
    except TypeError:
        if hasattr(data, "tobytes"):
            return bytes(data.tobytes())
        remedy = "text becomes bytes by its encode()" if isinstance(data, str) else "give bytes, or an array"
        raise UsageError(f"{type(data).__name__} has no bytes: {remedy}") from None


def _name(what: Any) -> str:
    return what.name if isinstance(what, Function) else str(what)


class _Bar:
    """A bar of tqdm's, told of progress."""

    def __init__(self, name: str) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise UsageError("progress=True shows a bar of tqdm: pip install tqdm; or give a function that is told") from None
        self._tqdm: Any = tqdm
        self._name = name
        self._bar: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        self._bar = self._bar or self._tqdm(total=total, unit="B", unit_scale=True, desc=self._name)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _told(progress: Callable[[int, int | None], object] | bool, name: str) -> Callable[[int, int | None], object]:
    if callable(progress):
        return progress
    if progress is True:
        return _Bar(name)
    raise UsageError(f"progress: {progress!r} is neither True nor a function of the bytes that are done, and of those that there are")


def _with_progress(
    job: Job[Result],
    files: list[_diskside.File],
    tell: Callable[[int, int | None], object],
    timeout: float | None,
    name: str,
) -> Result:
    import time

    total = sum(file.len_bytes() for file in files) if len(files) <= 64 else None
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            ended = job._request.wait(0.05)
            done = job.done_bytes
            tell(done, total)
            if ended:
                return job.result()
            if end is not None and time.monotonic() >= end:
                raise DeadlineError(f"{name}: it had not ended within {timeout} s, and was stopped")
    finally:
        job.cancel()
        if isinstance(tell, _Bar):
            tell.close()


_default: Session | None = None
_default_lock = threading.Lock()


def default_session() -> Session:
    """The session of :func:`run`, :func:`submit`, :func:`scan` and :func:`open`."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = connect()
    return _default


def connect(
    url: str | None = None,
    *,
    cache: int | str = "256MiB",
    policy: str | None = None,
    learnt_directory: str | os.PathLike[str] | None = None,
    volumes: Iterable[str] = (),
    host_nqn: str | None = None,
    connect_timeout: float | None = None,
    loss_timeout: float | None = None,
    keep_alive: float | None = None,
    io: Mapping[str, Any] | None = None,
) -> Session:
    """Makes a session. Servers are connected to when they are first used.

    :param url: ``diskside://HOST[:PORT]/EXPORT/...``, of which relative paths are taken; ``diskside+tls://`` wants TLS.
    :param cache: bytes of files at servers that are kept here; 0: none. Sizes may be text such as ``"1GiB"``.
    :param policy: how ``place="auto"`` chooses: ``adaptive``, ``lambda-io[:n=N,k=K]``, ``host`` or ``device``; otherwise what
        the variable ``DISKSIDE_POLICY`` says.
    :param learnt_directory: where :meth:`Session.save_learnt` keeps what was measured.
    :param volumes: ``nvme-tcp://`` URLs of volumes that local files may be on, beside those that the kernel tells of.
    :param host_nqn: the NQN to connect as, if not this machine's.
    :param connect_timeout: seconds that each step of connecting may take (5).
    :param loss_timeout: seconds to try to connect again before requests fail (60).
    :param keep_alive: seconds without a sign of life after which a server is taken for lost (10), however long its functions
        run; it is asked every half of that.
    :param io: how files of this machine are read and written (``docs/asynchronous.md``): ``instances``, ``threads`` of each
        (1 or 2), ``in_flight_max``, ``staging_max``, ``spin`` and ``sq_poll`` in seconds, ``io_poll``.
    """
    if url is not None and not is_url(url):
        raise UsageError(f"connect: {url!r} is no URL; write diskside://HOST[:PORT]/EXPORT")
    learnt = None if learnt_directory is None else os.fspath(learnt_directory)
    timeouts = [
        seconds("connect_timeout", connect_timeout),
        seconds("loss_timeout", loss_timeout),
        seconds("keep_alive", keep_alive),
    ]
    if io is not None and not hasattr(io, "items"):
        raise UsageError(f'io: {io!r} is no dictionary, such as {{"instances": 2, "threads": 2}}')
    return Session(url, (size("cache", cache), policy, learnt, list(volumes), host_nqn, timeouts, dict(io or {})))


def run(function: Function | str | os.PathLike[str] | bytes, files: Any, **options: Any) -> Result:
    """Runs a function over files in the default session: :meth:`Session.run`."""
    return default_session().run(function, files, **options)


def submit(function: Function | str | os.PathLike[str] | bytes, files: Any, **options: Any) -> Job[Result]:
    """Begins :func:`run`, and does not wait: :meth:`Session.submit`."""
    return default_session().submit(function, files, **options)


def scan(file: str | os.PathLike[str], columns: str | Iterable[str] | None = None, **options: Any) -> Scan:
    """Columns, rows or sums of a Parquet, Arrow, CSV or JSON lines file, in the default session: :meth:`Session.scan`."""
    return default_session().scan(file, columns, **options)


def open(name: str | os.PathLike[str], mode: str = "r") -> File:
    """Opens a file in the default session: :meth:`Session.open`."""
    return default_session().open(name, mode)


def info() -> dict[str, Any]:
    """What there is here: ``version``; ``tiers``, which run functions; ``functions``, the shipped ones; ``io``, which is
    ``"io_uring"``, or ``"posix"`` where that is denied."""
    tiers = ["interp", "cranelift", *(["llvm"] if default_session()._native.has_llvm else [])]
    return {"version": _diskside.__version__, "tiers": tiers, "functions": shipped(), "io": _diskside.interface()}
