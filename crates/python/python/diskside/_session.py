"""Sessions: connections to servers, files, and functions over them."""

from __future__ import annotations

import collections
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

from . import _diskside
from ._delta import delta_files
from ._file import File, FileInfo, as_bytes
from ._function import Function, function
from ._iceberg import iceberg_files
from ._job import Job
from ._names import expanded, export_of, is_export_url, joined, parts_of, seconds
from ._options import parted
from ._planner import Sql
from ._progress import told, with_progress
from ._result import Result
from ._scan import Scan
from ._sql import Query
from ._substrait import Substrait
from ._tables import TableScan
from .errors import DeadlineError, IoError, IsDirectoryError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    import deltalake
    import pyarrow.compute as pc
    import pyiceberg.table


#: Reports of scans that a session keeps.
SCANS_KEPT = 256


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
        self._scanned: collections.deque[dict[str, Any]] = collections.deque(maxlen=SCANS_KEPT)

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
        tell = None if progress is None or progress is False else told(progress, _name(function))
        job, files_here = self._begin(function, files, args, out, recursive, options)
        try:
            if tell is not None:
                return with_progress(job, files_here, tell, timeout, _name(function))
            if not job._request.wait(timeout):
                job.cancel()
                raise DeadlineError(f"{_name(function)}: it had not ended within {timeout} s, and was stopped")
            return job.result()
        except IsDirectoryError as error:
            remedy = "recursive=True runs over all files below it, and a pattern such as */*.log over some"
            raise IsDirectoryError(f"{error}; {remedy}", error.errno) from None

    def scan(
        self,
        file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        columns: str | Iterable[str] | None = None,
        *,
        where: str | bytes | pc.Expression | None = None,
        aggregate: str | Mapping[str, str] | None = None,
        by: str | Iterable[str] | None = None,
        order: str | Iterable[str] | None = None,
        limit: int | None = None,
        input: str | None = None,
        delimiter: str | None = None,
        header: bool = True,
        types: str | Mapping[str, str] | None = None,
        place: str = "auto",
        partitions: bool = True,
        function: Function | str | os.PathLike[str] | bytes | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> Scan:
        """Columns, rows or sums of Parquet, Arrow, CSV or JSON lines files, wherever they are: what is not wanted does not travel.

        :param file: a path or ``diskside://HOST[:PORT]/EXPORT/PATH``; relative to the session's URL, if it has one. A directory
            means all files below it, but for those with a name that begins with ``_`` or ``.``, and a pattern with ``*``, ``?``,
            ``[...]`` or ``**`` those that it matches. A list means all of these. Columns are matched by name.
        :param columns: names, or one text with commas between them; None: all.
        :param where: rows for which this is true, as SQL has it: ``l_quantity < 24 and l_comment like '%fox%'``. Or an expression of
            pyarrow (``pc.field("l_quantity") < 24``), or the bytes of an ``ExtendedExpression`` of Substrait; a part of these that a
            scan does not do is an error, once the result is asked for.
        :param aggregate: what comes instead of rows: ``sum(a * b) as total, count(*)``, or the same by name:
            ``{"total": "sum(a * b)"}``. There are ``sum``, ``count``, ``min``, ``max`` and ``avg``.
        :param by: up to eight columns that rows are grouped by.
        :param order: columns of the result that its rows are sorted by, ``price desc, name``; it takes a limit of at most 65,536.
        :param limit: the most rows that come.
        :param input: what the file is: ``parquet``, ``arrow``, ``csv`` or ``jsonl``; None: what it begins with, or its name, says.
        :param delimiter: what is between the values of a CSV file; None: a comma, in a ``.tsv`` a tab.
        :param header: False: a CSV file begins with values, and its columns are called ``column0``, ``column1``, ...
        :param types: types of columns of a CSV or JSON lines file, ``price decimal(15, 2), day date``, or the same by name; those of
            others are guessed of its first lines. So are types of columns that directories say, of all of these.
        :param place: ``auto`` (where it is faster, or on both sides), ``host`` (the needed bytes are read, and decoded here by the
            program ``diskside-scan``), ``device`` (at the server) or ``both`` (some row groups of one file on each side, of sums and
            first rows in an order); of several files, each.
        :param partitions: False: directories that are called ``key=value`` are not columns of the files in them.
        :param function: a function over columns, called for the rows that ``where`` takes: what :func:`function` makes, or takes, of
            ``SEC("columns/NAME")``. One with ``DS_SELECT`` selects rows for ``columns``, ``aggregate``, ``by``, ``order`` and ``limit``;
            others give rows of their own, without these options.
        :param args: the arguments of the function, by name.
        :returns: a scan that begins when its result is asked for: ``arrow()``, ``pandas()``, ``polars()``, ``batches()``.
        :raises UsageError: an option is wrong; what is wrong for this file is found when the result is asked for.

        >>> session.scan("data/lineitem.parquet", by="l_shipmode", aggregate="count(*)").pandas()
        >>> session.scan("data/sales", where="year = 2024", by="month", aggregate="sum(price)").pandas()
        """
        try:
            listed = [file] if isinstance(file, (str, bytes, os.PathLike)) else list(file)
        except TypeError:
            raise UsageError(f"{file!r} is no file: give a path, a URL, or several of them") from None
        names = [joined(self.url, one) for one in listed]
        by_function = _over_columns(function, args)
        return Scan(self, names, columns, where, aggregate, by, order, limit, input, delimiter, header, types, place, partitions, by_function)

    def scan_delta(
        self,
        table: str | os.PathLike[str] | deltalake.DeltaTable,
        columns: str | Iterable[str] | None = None,
        *,
        version: int | None = None,
        root: str | os.PathLike[str] | None = None,
        where: str | bytes | pc.Expression | None = None,
        aggregate: str | Mapping[str, str] | None = None,
        by: str | Iterable[str] | None = None,
        order: str | Iterable[str] | None = None,
        limit: int | None = None,
        place: str = "auto",
    ) -> Scan:
        """Columns, rows or sums of a Delta Lake table (``pip install 'diskside[delta]'``), as :meth:`scan` has them of its files.

        The log of the table is read now, by the package ``deltalake``; the scan stays at that version.

        :param table: a path or ``diskside://HOST[:PORT]/EXPORT/PATH`` of its directory, or a ``deltalake.DeltaTable``.
        :param columns: names, or one text with commas between them; None: all of the table.
        :param version: the version of the table; None: the last one.
        :param root: where the directory of the table is, if its files are to be read elsewhere than its log.
        :param where: rows for which this is true; so of columns that the table is partitioned by, which rule files out.
        :param aggregate: what comes instead of rows, as for :meth:`scan`; so do ``by``, ``order``, ``limit`` and ``place``.
        :raises UsageError: it is no table, or a scan of its files does not give its rows: it has deletion vectors, names of
            columns other than those in files, or features that are not known here.

        >>> session.scan_delta("diskside://server/data/sales", where="day = date '2024-02-29'", version=7).arrow()
        """
        files = delta_files(self, table, version, root)
        return TableScan(self, files, columns, where, aggregate, by, order, limit, place)

    def scan_iceberg(
        self,
        table: str | os.PathLike[str] | pyiceberg.table.Table,
        columns: str | Iterable[str] | None = None,
        *,
        snapshot_id: int | None = None,
        root: str | os.PathLike[str] | None = None,
        where: str | bytes | pc.Expression | None = None,
        aggregate: str | Mapping[str, str] | None = None,
        by: str | Iterable[str] | None = None,
        order: str | Iterable[str] | None = None,
        limit: int | None = None,
        place: str = "auto",
    ) -> Scan:
        """Columns, rows or sums of an Apache Iceberg table (``pip install 'diskside[iceberg]'``), as :meth:`scan` has them of its files.

        Its metadata are read now, by the package ``pyiceberg``, and the footers of its files; the scan stays at that snapshot.

        :param table: a ``pyiceberg.table.Table`` of a catalog; a path or URL of a file that ends in ``.metadata.json``; or the directory
            of a table that has ``metadata/version-hint.text``.
        :param columns: names, or one text with commas between them; None: all of the table.
        :param snapshot_id: the snapshot, with the columns that the table had then; None: the current one.
        :param root: where the directory of the table is, as a path or URL, if that is not what its metadata say.
        :param where: rows for which this is true.
        :param aggregate: what comes instead of rows, as for :meth:`scan`; so do ``by``, ``order``, ``limit`` and ``place``.
        :raises UsageError: it is no table, or a scan of its files does not give its rows: it has deletes, or a file has a column
            by another name or of another type.

        >>> session.scan_iceberg(catalog.load_table("shop.sales"), root="diskside://server/lake/shop/sales", limit=10).arrow()
        """
        files = iceberg_files(self, table, snapshot_id, root)
        return TableScan(self, files, columns, where, aggregate, by, order, limit, place)

    def sql(self, query: str, /, **tables: Any) -> Query:
        """A query of SQL over files and tables, which DataFusion plans and computes (``pip install 'diskside[sql]'``).

        Servers give the columns that it uses, of the rows that its conditions select, and the sums of a query over one table, as far as
        :meth:`scan` does them. The answer is that of DataFusion over the plain files.

        :param query: one query. Names with capital letters are written in double quotes.
        :param tables: by the names that the query has for them: files, as :meth:`scan` takes them; a scan, with its options; tables of
            pyarrow, pandas or Polars.
        :returns: a query that begins when its result is asked for: ``arrow()``, ``pandas()``, ``polars()``, ``batches()``.
        :raises UsageError: a table is none; an error of the query is found when the result is asked for.

        >>> session.sql("select l_shipmode, count(*) from lineitem group by 1", lineitem="data/lineitem.parquet").arrow()
        """
        return Query(self, Sql(query), tables)

    def substrait(self, plan: bytes | str, /, **tables: Any) -> Query:
        """A query that is a plan of `Substrait <https://substrait.io>`_ over files and tables: what :meth:`sql` is of SQL.

        :param plan: the bytes of a ``substrait.Plan``, as DataFusion, Ibis and others make them, or its JSON as a text.
        :param tables: by the names of the tables that the plan reads: files, scans and tables, as :meth:`sql` takes them.
        :returns: a query that begins when its result is asked for: ``arrow()``, ``pandas()``, ``polars()``, ``batches()``.
        :raises UsageError: it is no plan; it reads a table that is not given, or something else than named tables; what DataFusion
            does not know of it is found when the result is asked for.

        >>> session.substrait(plan, lineitem="data/lineitem.parquet").arrow()
        """
        return Query(self, Substrait(plan), tables)

    def last_scans(self) -> list[dict[str, Any]]:
        """How the last scans of the session went that were read to their ends, at most 256, the newest last.

        Those that Polars, pyarrow, DuckDB and SQL made are among them, so this tells where a query ran and what it moved. Each is a
        :attr:`Scan.report`, with the ``name`` of what was scanned.
        """
        return [dict(report) for report in list(self._scanned)]

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
        """Bytes of files of exports that are kept now, those of footers among them."""
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


def _name(what: Any) -> str:
    return what.name if isinstance(what, Function) else str(what)


def _over_columns(
    what: Function | str | os.PathLike[str] | bytes | None, args: Mapping[str, Any] | None
) -> tuple[Function, bytes] | None:
    if what is None:
        if args is not None:
            raise UsageError("args: they are of a function; give function= as well")
        return None
    over = function(what)
    if over.kind != "columns":
        raise UsageError(f'function: {over.name} is of kind {over.kind}, and a scan runs SEC("columns/NAME")')
    try:
        given = dict(args or {})
    except (TypeError, ValueError):
        raise UsageError(f"{over.name}: args: {args!r} is not a dictionary of names and values") from None
    return over, over.encode(given)
